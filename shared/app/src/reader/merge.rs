//! A feed merged from the timelines of many authors, newest first. Posts are loaded only when they are needed.

use std::collections::{BinaryHeap, HashMap, VecDeque};

use async_trait::async_trait;
use futures::future::try_join_all;
use tidemark_domain::{AuthorHead, AuthorState, FeedKey, Post, PostId, PostSummary, Seq, Timestamp, UserId, store::Result};
use tidemark_facts::Facts;

use super::{Readers, Snapshot, Status};
use crate::PARALLEL;

/// The number of posts of one author in the first load, and in each later load.
const FIRST_LOAD: usize = 10;
const NEXT_LOAD: usize = 100;

/// A post as a merge returns it.
pub(super) trait Placed: Send {
    fn key(&self) -> FeedKey;
}

impl Placed for Post {
    fn key(&self) -> FeedKey {
        self.key()
    }
}

impl Placed for PostSummary {
    fn key(&self) -> FeedKey {
        self.key()
    }
}

impl Placed for FeedKey {
    fn key(&self) -> FeedKey {
        *self
    }
}

/// The store of posts for a merge.
#[async_trait]
pub(super) trait Source<P>: Send + Sync {
    /// Returns those of these posts of an author that feeds show, newest first. `seqs` descend.
    async fn load(&self, author: UserId, seqs: &[Seq]) -> Result<Vec<P>>;
}

/// The posts themselves, from the facts.
pub(super) struct FactSource<'a>(pub(super) &'a Facts);

#[async_trait]
impl Source<Post> for FactSource<'_> {
    async fn load(&self, author: UserId, seqs: &[Seq]) -> Result<Vec<Post>> {
        let posts = self.0.posts_of(author, seqs).await?;
        Ok(posts.into_iter().filter(Post::is_in_feeds).collect())
    }
}

/// What pages show of the posts. Redis has it, or stores it: the next reader pays nothing.
pub(super) struct Summaries<'a>(pub(super) &'a Readers);

#[async_trait]
impl Source<PostSummary> for Summaries<'_> {
    async fn load(&self, author: UserId, seqs: &[Seq]) -> Result<Vec<PostSummary>> {
        let ids: Vec<PostId> = seqs.iter().map(|&seq| PostId::new(author, seq)).collect();
        Ok(self.0.summaries(&ids).await?.0)
    }
}

/// The posts of an author that a lane returns.
enum Wanted<'a> {
    /// Posts that feeds show, according to the author's head.
    Feed(&'a AuthorHead),
    /// Posts with these sequence numbers, in ascending order.
    Only(Vec<Seq>),
}

/// One author in a merge.
pub(super) struct Lane<'a, P> {
    author: UserId,
    /// All posts are above this number.
    after: Seq,
    /// All remaining posts are at or below this number.
    upto: Seq,
    /// No remaining post is later.
    latest_at: Timestamp,
    wanted: Wanted<'a>,
    loaded: VecDeque<P>,
    loads: usize,
}

impl<'a, P: Placed> Lane<'a, P> {
    /// Returns the lanes of a feed: live posts above the floors of the authors who are heard, or the unread posts.
    pub(super) fn of(snapshot: &'a Snapshot, status: Status) -> Vec<Self> {
        let of_feed = |state: &AuthorState, head: &'a AuthorHead| Some((state.floor, head.latest_seq, Wanted::Feed(head)));
        // No other posts are read.
        let of_unread = |state: &AuthorState, _: &'a AuthorHead| {
            let mut seqs: Vec<Seq> = state.unread_seqs().collect();
            seqs.reverse();
            Some((seqs.first()? - 1, *seqs.last()?, Wanted::Only(seqs)))
        };
        match status {
            Status::All => Self::of_heard(snapshot, of_feed),
            Status::Unread => Self::of_heard(snapshot, of_unread),
        }
    }

    /// Returns the lanes below what a view stores, which has every entry from `low` on. `lowest` has the lowest number
    /// of each author in it. So no post has to be looked up by its time: the merge leaves out what is above `low`.
    pub(super) fn below(snapshot: &'a Snapshot, status: Status, low: FeedKey, lowest: &HashMap<UserId, Seq>) -> Vec<Self> {
        let mut lanes = Self::of(snapshot, status);
        for lane in &mut lanes {
            lane.upto = lowest.get(&lane.author).map_or(lane.upto, |lowest| lane.upto.min(lowest - 1));
            lane.latest_at = lane.latest_at.min(low.at);
        }
        lanes
    }

    fn of_heard(
        snapshot: &'a Snapshot,
        choose: impl Fn(&AuthorState, &'a AuthorHead) -> Option<(Seq, Seq, Wanted<'a>)>,
    ) -> Vec<Self> {
        let lanes = snapshot.state.heard().filter_map(|(author, state)| {
            let head = snapshot.heads.get(&author)?;
            let (after, upto, wanted) = choose(state, head)?;
            let lane = Self { author, after, upto, latest_at: head.latest_at, wanted, loaded: VecDeque::new(), loads: 0 };
            (after < upto).then_some(lane)
        });
        lanes.collect()
    }

    /// Returns the greatest key that the lane can still return.
    fn bound(&self) -> Option<FeedKey> {
        match self.loaded.front() {
            Some(post) => Some(post.key()),
            None => (self.after < self.upto).then(|| FeedKey { at: self.latest_at, post: PostId::new(self.author, self.upto) }),
        }
    }

    fn is_loaded(&self) -> bool {
        !self.loaded.is_empty()
    }

    /// Returns the next numbers, greatest first. Deleted posts are skipped and cost nothing, however many there are.
    fn next_seqs(&mut self, limit: usize) -> Vec<Seq> {
        match &mut self.wanted {
            Wanted::Feed(head) => head.feed_seqs(self.after, self.upto, limit),
            Wanted::Only(seqs) => {
                seqs.truncate(seqs.partition_point(|&seq| seq <= self.upto));
                let mut next = seqs.split_off(seqs.len().saturating_sub(limit));
                next.reverse();
                next
            }
        }
    }

    async fn load(&mut self, source: &dyn Source<P>) -> Result<()> {
        let limit = if self.loads == 0 { FIRST_LOAD } else { NEXT_LOAD };
        self.loads += 1;
        let seqs = self.next_seqs(limit);
        let loaded = source.load(self.author, &seqs).await?;
        // The next load begins below the last number of this one, even if that post no longer exists.
        self.upto = seqs.last().filter(|_| seqs.len() == limit).map_or(self.after, |last| last - 1);
        if let Some(last) = loaded.last() {
            self.latest_at = last.key().at;
        }
        self.loaded.extend(loaded);
        Ok(())
    }
}

/// The merge. [`Merge::next`] returns posts newest first, each once.
pub(super) struct Merge<'a, P> {
    source: &'a dyn Source<P>,
    facts: &'a Facts,
    lanes: Vec<Lane<'a, P>>,
    heap: BinaryHeap<(FeedKey, usize)>,
    before: Option<FeedKey>,
    started: bool,
}

impl<'a, P: Placed> Merge<'a, P> {
    /// Merges lanes, strictly below `before`.
    pub(super) fn new(source: &'a dyn Source<P>, facts: &'a Facts, lanes: Vec<Lane<'a, P>>, before: Option<FeedKey>) -> Self {
        Self { source, facts, lanes, heap: BinaryHeap::new(), before, started: false }
    }

    pub(super) async fn next(&mut self) -> Result<Option<P>> {
        self.start().await?;
        while let Some((_, lane)) = self.heap.pop() {
            if !self.lanes[lane].is_loaded() {
                self.load(lane).await?;
                continue;
            }
            let post = self.lanes[lane].loaded.pop_front();
            self.push(lane);
            if let Some(post) = post
                && self.before.is_none_or(|before| post.key() < before)
            {
                return Ok(Some(post));
            }
        }
        Ok(None)
    }

    /// Returns the next posts, at most `most`.
    pub(super) async fn take(&mut self, most: usize) -> Result<Vec<P>> {
        let mut posts = Vec::new();
        while posts.len() < most
            && let Some(post) = self.next().await?
        {
            posts.push(post);
        }
        Ok(posts)
    }

    /// Moves every lane to the cursor. Only lanes with a later post are looked up by time.
    async fn start(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.started, true) {
            return Ok(());
        }
        if let Some(before) = self.before {
            let mut later: Vec<&mut Lane<'_, P>> = self.lanes.iter_mut().filter(|lane| lane.latest_at > before.at).collect();
            for lanes in later.chunks_mut(PARALLEL) {
                let last = try_join_all(lanes.iter().map(|lane| self.facts.last_post_at(lane.author, before.at))).await?;
                for (lane, last) in lanes.iter_mut().zip(last) {
                    // The merge loads a lane only if its bound is among the newest, so an exact one saves loads.
                    lane.upto = lane.upto.min(last.map_or(0, |last| last.post.seq));
                    lane.latest_at = last.map_or(before.at, |last| last.at);
                }
            }
        }
        for lane in 0..self.lanes.len() {
            self.push(lane);
        }
        Ok(())
    }

    fn push(&mut self, lane: usize) {
        if let Some(bound) = self.lanes[lane].bound() {
            self.heap.push((bound, lane));
        }
    }

    /// Loads a lane, together with the next lanes that are not loaded.
    async fn load(&mut self, first: usize) -> Result<()> {
        let mut chosen = vec![first];
        while chosen.len() < PARALLEL
            && let Some((_, lane)) = self.heap.peek()
            && !self.lanes[*lane].is_loaded()
        {
            chosen.push(*lane);
            self.heap.pop();
        }
        chosen.sort_unstable();
        let source = self.source;
        let lanes = self.lanes.iter_mut().enumerate().filter(|(index, _)| chosen.binary_search(index).is_ok());
        try_join_all(lanes.map(|(_, lane)| lane.load(source))).await?;
        for lane in chosen {
            self.push(lane);
        }
        Ok(())
    }
}

//! A feed merged from the timelines of many authors, in either direction. Posts are loaded only when they are needed.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
};

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

/// The posts in the facts.
pub(super) struct FactSource<'a>(pub(super) &'a Facts);

#[async_trait]
impl Source<PostSummary> for FactSource<'_> {
    async fn load(&self, author: UserId, seqs: &[Seq]) -> Result<Vec<PostSummary>> {
        let posts = self.0.posts_of(author, seqs).await?;
        Ok(posts.into_iter().filter(Post::is_in_feeds).map(PostSummary::from).collect())
    }
}

/// What pages show of the posts. Redis has it, or stores it: the next reader pays nothing.
pub(super) struct Summaries<'a>(pub(super) &'a Readers);

#[async_trait]
impl Source<FeedKey> for Summaries<'_> {
    async fn load(&self, author: UserId, seqs: &[Seq]) -> Result<Vec<FeedKey>> {
        let posts = Source::<PostSummary>::load(self, author, seqs).await?;
        Ok(posts.iter().map(PostSummary::key).collect())
    }
}

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

/// The direction of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    NewestFirst,
    OldestFirst,
}

/// What comes next of a merge: the greatest. All of a merge are of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    NewestFirst(FeedKey),
    OldestFirst(Reverse<FeedKey>),
}

/// One author in a merge.
pub(super) struct Lane<'a, P> {
    author: UserId,
    /// All posts are above this number.
    after: Seq,
    /// All remaining posts are at or below this number.
    upto: Seq,
    /// No remaining post is earlier.
    earliest_at: Timestamp,
    /// No remaining post is later.
    latest_at: Timestamp,
    /// If there is one, all posts are below it.
    below: Option<FeedKey>,
    wanted: Wanted<'a>,
    /// Newest first.
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
            lane.below = Some(low);
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
            let times = (Timestamp::default(), head.latest_at);
            (after < upto).then(|| Self::new(author, (after, upto), times, wanted, VecDeque::new()))
        });
        lanes.collect()
    }

    /// Returns a lane with posts of any authors that are loaded already, newest first.
    pub(super) fn loaded(posts: VecDeque<P>) -> Self {
        Self::new(UserId::MIN, (0, 0), (Timestamp::default(), Timestamp::MAX), Wanted::Only(Vec::new()), posts)
    }

    fn new(
        author: UserId,
        (after, upto): (Seq, Seq),
        (earliest_at, latest_at): (Timestamp, Timestamp),
        wanted: Wanted<'a>,
        loaded: VecDeque<P>,
    ) -> Self {
        Self { author, after, upto, earliest_at, latest_at, below: None, wanted, loaded, loads: 0 }
    }

    /// Returns the first key in this order that the lane can still return.
    fn bound(&self, order: Order) -> Option<Turn> {
        let rest = |at, seq| (self.after < self.upto).then(|| FeedKey { at, post: PostId::new(self.author, seq) });
        match order {
            Order::NewestFirst => {
                let known = self.loaded.front().map(P::key);
                known.or_else(|| rest(self.latest_at, self.upto)).map(Turn::NewestFirst)
            }
            Order::OldestFirst => {
                let known = self.loaded.back().map(P::key);
                known.or_else(|| rest(self.earliest_at, self.after + 1)).map(|key| Turn::OldestFirst(Reverse(key)))
            }
        }
    }

    fn pop(&mut self, order: Order) -> Option<P> {
        match order {
            Order::NewestFirst => self.loaded.pop_front(),
            Order::OldestFirst => self.loaded.pop_back(),
        }
    }

    fn is_loaded(&self) -> bool {
        !self.loaded.is_empty()
    }

    /// Returns the next numbers, greatest first. Deleted posts are skipped and cost nothing, however many there are.
    fn next_seqs(&mut self, order: Order, limit: usize) -> Vec<Seq> {
        let mut next = match (&mut self.wanted, order) {
            (Wanted::Feed(head), Order::NewestFirst) => return head.feed_seqs(self.after, self.upto, limit),
            (Wanted::Feed(head), Order::OldestFirst) => head.oldest_feed_seqs(self.after, self.upto, limit),
            (Wanted::Only(seqs), order) => {
                seqs.truncate(seqs.partition_point(|&seq| seq <= self.upto));
                seqs.drain(..seqs.partition_point(|&seq| seq <= self.after));
                match order {
                    Order::NewestFirst => seqs.split_off(seqs.len().saturating_sub(limit)),
                    Order::OldestFirst => seqs.drain(..limit.min(seqs.len())).collect(),
                }
            }
        };
        next.reverse();
        next
    }

    async fn load(&mut self, source: &dyn Source<P>, order: Order) -> Result<()> {
        let limit = if self.loads == 0 { FIRST_LOAD } else { NEXT_LOAD };
        self.loads += 1;
        let seqs = self.next_seqs(order, limit);
        let mut loaded = source.load(self.author, &seqs).await?;
        // The next load begins beyond the last number of this one, even if that post no longer exists.
        let is_last = seqs.len() < limit;
        let (oldest, newest) = (loaded.last().map(P::key), loaded.first().map(P::key));
        match order {
            Order::NewestFirst => {
                self.upto = seqs.last().filter(|_| !is_last).map_or(self.after, |last| last - 1);
                self.latest_at = oldest.map_or(self.latest_at, |key| key.at);
            }
            Order::OldestFirst => {
                let ends = is_last || newest.zip(self.below).is_some_and(|(newest, below)| newest >= below);
                self.after = seqs.first().filter(|_| !ends).copied().unwrap_or(self.upto);
                self.earliest_at = newest.map_or(self.earliest_at, |key| key.at);
            }
        }
        loaded.retain(|post| self.below.is_none_or(|below| post.key() < below));
        self.loaded.extend(loaded);
        Ok(())
    }
}

/// The merge. [`Merge::next`] returns posts in order, each once.
pub(super) struct Merge<'a, P> {
    source: &'a dyn Source<P>,
    facts: &'a Facts,
    order: Order,
    lanes: Vec<Lane<'a, P>>,
    heap: BinaryHeap<(Turn, usize)>,
    before: Option<FeedKey>,
    from: Timestamp,
    started: bool,
}

impl<'a, P: Placed> Merge<'a, P> {
    /// Merges lanes newest first, strictly below `before`.
    pub(super) fn new(source: &'a dyn Source<P>, facts: &'a Facts, lanes: Vec<Lane<'a, P>>, before: Option<FeedKey>) -> Self {
        let (order, from) = (Order::NewestFirst, Timestamp::default());
        Self { source, facts, order, lanes, heap: BinaryHeap::new(), before, from, started: false }
    }

    /// Merges lanes oldest first, from posts of this time on.
    pub(super) fn oldest_first(source: &'a dyn Source<P>, facts: &'a Facts, lanes: Vec<Lane<'a, P>>, from: Timestamp) -> Self {
        Self { order: Order::OldestFirst, from, ..Self::new(source, facts, lanes, None) }
    }

    pub(super) async fn next(&mut self) -> Result<Option<P>> {
        self.start().await?;
        while let Some((_, lane)) = self.heap.pop() {
            if !self.lanes[lane].is_loaded() {
                self.load(lane).await?;
                continue;
            }
            let post = self.lanes[lane].pop(self.order);
            self.push(lane);
            if let Some(post) = post
                && post.key().at >= self.from
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

    /// Moves every lane to the cursor. Only lanes with a post beyond it are looked up by time.
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
        if let Some(at) = self.from.ms().checked_sub(1).map(Timestamp::from_ms) {
            self.lanes.retain(|lane| lane.latest_at > at);
            let mut others: Vec<&mut Lane<'_, P>> = self.lanes.iter_mut().filter(|lane| !lane.is_loaded()).collect();
            for lanes in others.chunks_mut(PARALLEL) {
                let last = try_join_all(lanes.iter().map(|lane| self.facts.last_post_at(lane.author, at))).await?;
                for (lane, last) in lanes.iter_mut().zip(last) {
                    lane.after = lane.after.max(last.map_or(0, |last| last.post.seq));
                    lane.earliest_at = self.from;
                }
            }
        }
        for lane in 0..self.lanes.len() {
            self.push(lane);
        }
        Ok(())
    }

    fn push(&mut self, lane: usize) {
        if let Some(turn) = self.lanes[lane].bound(self.order) {
            self.heap.push((turn, lane));
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
        let (source, order) = (self.source, self.order);
        let lanes = self.lanes.iter_mut().enumerate().filter(|(index, _)| chosen.binary_search(index).is_ok());
        try_join_all(lanes.map(|(_, lane)| lane.load(source, order))).await?;
        for lane in chosen {
            self.push(lane);
        }
        Ok(())
    }
}

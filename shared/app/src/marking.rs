//! [`Marking`]: marks posts read and unread. One post, many posts, everything up to a post, everything before a time.
//!
//! A mark is written to the facts before the response. The update of the view carries the version of the read state, so
//! marks of several devices may reach the view in any order.
//!
//! If the view does not accept the update, the outage note is written ([`crate::outage`]), and the projector updates
//! the view. The mark then returns up to a second later, with counts from the facts. If the note fails too, the mark
//! returns an error although the fact is written. The same mark again updates the view.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::FutureExt;

use crate::{
    Stores, ViewSync, in_parallel, live,
    once::{Begun, Once},
    reader::{Flags, Origin, PairFacts, Readers, Snapshot},
};
use tidemark_domain::{
    IdempotencyKey, PostId, PostState, ReadState, Seen, Seq, Timestamp, UserId, Viewer, Withheld,
    store::Result,
    visibility::{may_see, may_see_author},
};

/// Use cases of a reader's marks. Clones share the stores.
#[derive(Clone)]
pub struct Marking {
    stores: Arc<Stores>,
    readers: Readers,
    sync: ViewSync,
}

#[derive(Debug, Clone)]
pub struct MarkedPost {
    pub read: bool,
    /// The reader's counts after the mark.
    pub snapshot: Snapshot,
}

/// The posts that a mark of many covers.
#[derive(Debug, Clone)]
pub enum MarkForm {
    /// Deleted and unknown posts, and those that the user may not see, are left out.
    Posts(Vec<PostId>),
    /// Everything of an author up to this number; nothing of an author whose posts the user may not see.
    Through(UserId, Seq),
    /// Everything that existed at this time, of every followed author. `None` stands for now, and for the newest post
    /// that the feed shows, if that is later; so does a time to come.
    Before(Option<Timestamp>),
}

#[derive(Debug, Clone)]
pub struct MarkedPosts {
    /// The number of the posts that were unread before.
    pub changed: u64,
    /// The posts that were unread after the mark.
    pub total: u64,
    pub degraded: bool,
}

impl MarkedPosts {
    /// The result of an earlier attempt.
    fn answered(answer: &[u64]) -> Self {
        let number = |index: usize| answer.get(index).copied().unwrap_or_default();
        Self { changed: number(0), total: number(1), degraded: false }
    }
}

/// The result of a change of one author's read state.
struct Changed {
    /// The facts of the pair after the change.
    pair: PairFacts,
    /// The number of posts that counted as unread; of a mark as unread, those that did not.
    count: u64,
    /// Whether this request wrote the facts. If not, they contained the change before.
    written: bool,
}

/// The result for each author. The failure of one author does not stop the others.
type Outcomes = Vec<Result<Changed>>;

impl Marking {
    pub fn new(stores: Arc<Stores>, readers: Readers, sync: ViewSync) -> Self {
        Self { stores, readers, sync }
    }

    /// Updates the view of a read state that another writer has changed.
    pub async fn sync_view(&self, user: UserId, author: UserId) -> Result<()> {
        self.sync.reads_of(user, author).await
    }

    /// Marks one live post read or unread.
    pub async fn mark_post(&self, viewer: impl Into<Viewer>, post: PostId, read: bool) -> Result<Seen<MarkedPost>> {
        let (viewer, ids) = (viewer.into(), [post]);
        let user = viewer.user;
        let posts = [(post.author, vec![post.seq])].into();
        let (live, blocks, mut pairs) = futures::try_join!(
            self.readers.live_posts(&ids),
            self.stores.facts.blocks(user, post.author),
            self.readers.pairs_of_posts(user, &posts)
        )?;
        let Some(pair) = pairs.pop() else { return Ok(Err(Withheld::Gone)) };
        let state = if live.is_empty() { PostState::Gone } else { PostState::Live };
        if let Err(withheld) = may_see(state, pair.standing(viewer, blocks)) {
            return Ok(Err(withheld));
        }
        let changed = self.mark(user, pair, &[post.seq], read, (self.stores.random)()).await?;
        let snapshot = self.show(user, std::slice::from_ref(&changed)).await?;
        self.tell(user, &snapshot, Some(post)).await;
        Ok(Ok(MarkedPost { read: Flags::new(user, changed.pair).is_read(post.seq), snapshot }))
    }

    /// Marks many posts read. With a key, an attempt covers what the first one was about to cover, and changes the read
    /// state of an author only if none before has.
    pub async fn mark_many(
        &self,
        viewer: impl Into<Viewer>,
        form: MarkForm,
        key: Option<&IdempotencyKey>,
    ) -> Result<Once<MarkedPosts>> {
        let viewer = viewer.into();
        let user = viewer.user;
        let bound = match &form {
            MarkForm::Posts(_) => Vec::new(),
            // At most up to the latest post: a post that arrives later stays unread.
            MarkForm::Through(author, seq) => vec![(*seq).min(self.latest(*author, key.is_some(), *seq).await?)],
            MarkForm::Before(before) => {
                let past = before.filter(|before| *before <= self.stores.clock.now());
                vec![
                    match past {
                        Some(past) => past,
                        None => self.until_now(user).await?.min(before.unwrap_or(Timestamp::MAX)),
                    }
                    .ms(),
                ]
            }
        };
        let attempt = match self.stores.begin(user, "reads", key, bound).await? {
            Begun::Attempt(attempt) => attempt,
            Begun::Answered(answer) => return Ok(Once::Done(MarkedPosts::answered(&answer))),
            Begun::KeyReused => return Ok(Once::KeyReused),
        };
        let limit = attempt.bound.first().copied().unwrap_or_default();
        let marked = match form {
            MarkForm::Posts(posts) => self.mark_posts(viewer, &posts, attempt.token).await?,
            MarkForm::Through(author, _) => self.mark_through(viewer, author, limit, attempt.token).await?,
            MarkForm::Before(_) => self.mark_before(user, Timestamp::from_ms(limit), attempt.token).await?,
        };
        let answer = self.stores.finish(&attempt, vec![marked.changed, marked.total]).await?;
        Ok(Once::Done(MarkedPosts { degraded: marked.degraded, ..MarkedPosts::answered(&answer) }))
    }

    /// The author's latest number, if a bound needs it. Without a key, the mark itself looks.
    async fn latest(&self, author: UserId, keyed: bool, otherwise: Seq) -> Result<Seq> {
        if !keyed {
            return Ok(otherwise);
        }
        Ok(self.stores.facts.head_of(author).await?.latest_seq)
    }

    /// Deleted and unknown posts, and those that the user may not see, are left out.
    async fn mark_posts(&self, viewer: Viewer, posts: &[PostId], token: u64) -> Result<MarkedPosts> {
        let user = viewer.user;
        let asked: Vec<PostId> = posts.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let live = self.readers.live_posts(&asked).await?;
        let mut by_author: BTreeMap<UserId, Vec<Seq>> = BTreeMap::new();
        for id in asked.into_iter().filter(|id| live.contains(id)) {
            by_author.entry(id.author).or_default().push(id.seq);
        }
        let pairs = self.readers.pairs_of_posts(user, &by_author).await?;
        let withheld = self.withheld(viewer, &pairs).await?;
        let last = posts.iter().copied().rev().find(|id| live.contains(id) && !withheld.contains(&id.author));
        let change = async |pair: PairFacts| match by_author.get(&pair.author) {
            Some(seqs) if !withheld.contains(&pair.author) => self.mark(user, pair, seqs, true, token).await,
            _ => Ok(Changed { pair, count: 0, written: false }),
        };
        let changes = pairs.into_iter().map(|pair| change(pair).boxed());
        self.shown(user, in_parallel(changes.collect()).await, last).await
    }

    /// Returns those of these authors whose posts the user may not see. A block has ended the follow.
    async fn withheld(&self, viewer: Viewer, pairs: &[PairFacts]) -> Result<BTreeSet<UserId>> {
        let is_stranger = |pair: &&PairFacts| pair.author != viewer.user && pair.live_edge().is_none();
        let strangers: Vec<&PairFacts> = pairs.iter().filter(is_stranger).collect();
        let authors: Vec<UserId> = strangers.iter().map(|pair| pair.author).collect();
        let blocks = self.stores.facts.blocks_between(viewer.user, &authors).await?;
        let standing = |pair: &PairFacts| pair.standing(viewer, blocks.get(&pair.author).copied().unwrap_or_default());
        let withheld = strangers.into_iter().filter(|pair| may_see_author(standing(pair)).is_err());
        Ok(withheld.map(|pair| pair.author).collect())
    }

    async fn mark_through(&self, viewer: Viewer, author: UserId, seq: Seq, token: u64) -> Result<MarkedPosts> {
        let user = viewer.user;
        let pair = self.readers.pair(user, author).await?;
        let is_withheld = !self.withheld(viewer, std::slice::from_ref(&pair)).await?.is_empty();
        let last = (!is_withheld).then(|| PostId::new(author, seq.min(pair.head.latest_seq)));
        let changed = self.apply(user, pair, token, None, |flags, reads| {
            // Nothing can be marked. So no mark names an author who has left.
            if is_withheld || flags.facts.head.posts == 0 {
                return None;
            }
            // At most up to the latest post: a post that arrives later stays unread.
            let seq = seq.min(flags.facts.head.latest_seq);
            let count = if seq < reads.through { 0 } else { flags.unread_upto(seq) };
            reads.mark_through(seq).then_some(count)
        });
        let outcomes = vec![changed.await];
        self.shown(user, outcomes, last).await
    }

    /// Marks everything read that existed at `before`, of every followed author.
    async fn mark_before(&self, user: UserId, before: Timestamp, token: u64) -> Result<MarkedPosts> {
        let pairs = self.readers.pairs(user).await?;
        let latest = pairs.iter().max_by_key(|pair| pair.head.latest_at).filter(|pair| pair.head.latest_seq > 0);
        let latest = latest.map(|pair| PostId::new(pair.author, pair.head.latest_seq));
        let changes = pairs.into_iter().map(|pair| self.mark_pair_before(user, pair, before, token).boxed());
        self.shown(user, in_parallel(changes.collect()).await, latest).await
    }

    /// Returns now, or the time of the newest post that the user's feed shows, if that is later. The machine that
    /// published the post may have a clock that is ahead of this one.
    async fn until_now(&self, user: UserId) -> Result<Timestamp> {
        Ok(self.readers.snapshot(user).await?.state.newest_at().max(self.stores.clock.now()))
    }

    async fn mark_pair_before(&self, user: UserId, pair: PairFacts, before: Timestamp, token: u64) -> Result<Changed> {
        // If no post of the author is unread, no post has to be looked up by time.
        let unread = pair.state().is_some_and(|state| state.unread() > 0);
        let upto = match unread {
            false => 0,
            true if pair.head.latest_at <= before => pair.head.latest_seq,
            true => self.stores.facts.last_post_at(pair.author, before).await?.map_or(0, |last| last.post.seq),
        };
        let changed = self.apply(user, pair, token, None, |flags, reads| match flags.unread_upto(upto) {
            0 => None,
            count => reads.mark_all(upto).then_some(count),
        });
        changed.await
    }

    /// Marks posts of one author.
    async fn mark(&self, user: UserId, pair: PairFacts, seqs: &[Seq], read: bool, token: u64) -> Result<Changed> {
        let changed = self.apply(user, pair, token, Some((seqs, read)), |flags, reads| {
            if seqs.iter().all(|&seq| reads.read.contains(seq) == read) {
                return None;
            }
            for &seq in seqs {
                reads.read.set(seq, read);
            }
            Some(seqs.iter().filter(|&&seq| flags.is_unread(seq) == read).count() as u64)
        });
        changed.await
    }

    /// Applies `change` to the read state for the author of `pair`. `change` may run several times. It gets the facts
    /// and returns how many posts it changed; `None` if there is nothing to write. `marks` are the posts, if it marks
    /// only these. A state that the request with this token has changed is left as it is.
    async fn apply(
        &self,
        user: UserId,
        mut pair: PairFacts,
        token: u64,
        marks: Option<(&[Seq], bool)>,
        change: impl Fn(&Flags, &mut ReadState) -> Option<u64>,
    ) -> Result<Changed> {
        let (author, mut is_first) = (pair.author, true);
        let mut attempts = self.stores.attempts("mark");
        loop {
            attempts.next().await?;
            // An earlier attempt has written it, or this one has and its response was lost.
            if let Some(count) = pair.reads.changed_by(token) {
                return Ok(Changed { pair, count, written: true });
            }
            let before = Flags::new(user, pair);
            let mut reads = before.facts.reads.clone();
            let Some(count) = change(&before, &mut reads) else {
                return Ok(Changed { pair: before.facts, count: 0, written: false });
            };
            reads.advance(token, count);
            pair = before.facts;
            let written = match marks {
                Some((seqs, read)) if is_first => self.stores.facts.put_marks(user, author, &reads, seqs, read).await?,
                // Others write the state too, and they do not have to wait for each other.
                Some((seqs, read)) => {
                    let (known, reads) = self.stores.facts.mark_posts(user, author, seqs, read, token).await?;
                    let is_own = known.changed_by(token).is_some();
                    let before = Flags::new(user, PairFacts { reads: known.clone(), ..pair.clone() });
                    let count = if is_own { count } else { change(&before, &mut known.clone()).unwrap_or(0) };
                    return Ok(Changed { pair: PairFacts { reads, ..pair }, count, written: true });
                }
                None => self.stores.facts.put_reads(user, author, &reads).await?.then_some(reads),
            };
            is_first = false;
            if let Some(reads) = written {
                return Ok(Changed { pair: PairFacts { reads, ..pair }, count, written: true });
            }
            pair.reads = self.stores.facts.reads(user, &[author]).await?.remove(&author).unwrap_or_default();
        }
    }

    /// Updates the view with the changes that succeeded, tells the connections, and returns the first failure.
    async fn shown(&self, user: UserId, outcomes: Outcomes, last: Option<PostId>) -> Result<MarkedPosts> {
        let (changes, failures): (Outcomes, Outcomes) = outcomes.into_iter().partition(Result::is_ok);
        let changes: Vec<Changed> = changes.into_iter().flatten().collect();
        let snapshot = self.show(user, &changes).await?;
        self.tell(user, &snapshot, last).await;
        match failures.into_iter().find_map(Result::err) {
            Some(error) => Err(error),
            None => Ok(MarkedPosts {
                changed: changes.iter().map(|change| change.count).sum(),
                total: snapshot.state.unread_total(),
                degraded: snapshot.origin == Origin::Degraded,
            }),
        }
    }

    /// Sends a task for the reader's connections, if there are any, even if this request changed nothing, because an
    /// earlier one may have ended before this. Counts that the connections have are not sent again.
    async fn tell(&self, user: UserId, snapshot: &Snapshot, last: Option<PostId>) {
        // Counts from the facts do not know who is watched.
        let may_be_watched = match snapshot.origin {
            Origin::View => snapshot.state.meta.watched,
            Origin::Rebuilding => true,
            Origin::Degraded => false,
        };
        if may_be_watched {
            live::notify(&self.stores, &[user], last).await;
        }
    }

    /// Updates the view from the facts of these pairs and returns the counts after it. It also compares pairs that this
    /// request did not write, because an earlier request may have ended between its fact and the view. If the view
    /// cannot be read, it cannot be compared, and every pair that was ever marked is updated. If the view does not
    /// accept the update, a worker does it later, and the counts come from the facts.
    async fn show(&self, user: UserId, changes: &[Changed]) -> Result<Snapshot> {
        let readers = &self.readers;
        let (written, others): (Vec<&Changed>, Vec<&Changed>) = changes.iter().partition(|change| change.written);
        let written: Vec<&PairFacts> = written.into_iter().map(|change| &change.pair).collect();
        let snapshot = match self.sync.reads(user, &written).await? {
            true => readers.snapshot(user).await?,
            false => readers.snapshot_of_facts(user, Origin::Degraded).await?,
        };
        let stale: Vec<&PairFacts> = match snapshot.origin {
            // The snapshot does not have the marks of authors who are not followed.
            Origin::View => changes
                .iter()
                .filter(|Changed { pair, written, .. }| {
                    snapshot.lacks(pair) || (!written && pair.live_edge().is_none() && pair.reads.version > 0)
                })
                .map(|change| &change.pair)
                .collect(),
            Origin::Rebuilding | Origin::Degraded => {
                others.into_iter().map(|change| &change.pair).filter(|pair| pair.reads.version > 0).collect()
            }
        };
        if stale.is_empty() {
            return Ok(snapshot);
        }
        match (self.sync.reads(user, &stale).await?, snapshot.origin) {
            (true, Origin::View) => readers.snapshot(user).await,
            (false, Origin::View) => readers.snapshot_of_facts(user, Origin::Degraded).await,
            (_, Origin::Rebuilding | Origin::Degraded) => Ok(snapshot),
        }
    }
}

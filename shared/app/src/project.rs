//! [`Projector`]: brings views in line with facts that have changed, and groups of inboxes.
//!
//! The tables whose items are copied into views have change streams. Each record names a [`Change`], and the projector
//! derives the views from the facts again. The result depends on the facts alone, so records may be repeated, late or
//! out of order. Usually the request that changed the fact has updated the views before its response. The projector
//! updates those that the request did not reach, because Redis was unavailable or the process has ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use tidemark_domain::{PostId, Store, Timestamp, UserId, store::Result};
use tidemark_facts::{Change, EdgePart, PostWrite};
use tidemark_views::{KnownFollow, Seed};
use tracing::warn;

use crate::{
    Inboxes, OutOfTime, PARALLEL, People, Stores, ViewSync, fan_out::FanOuts, notices::NoticeBoard, outage::Outage,
    reader::Readers,
};

/// While views are unavailable, the projector tries again after this time. The outage note stands longer.
const AGAIN: Duration = Duration::from_secs(1);

/// How long the outage note stands after an invocation that could not update all views: longer than Lambda waits before
/// it sends the records again.
const UNTIL_NEXT_INVOCATION: Duration = Duration::from_secs(10);

/// Usually the request that has changed a fact updates the view within this time.
const GRACE: Duration = Duration::from_millis(200);

/// Records that are older than this when they arrive are behind.
const BEHIND: Duration = Duration::from_secs(2);

/// Use cases of the streams. Clones share the stores.
#[derive(Clone)]
pub struct Projector {
    stores: Arc<Stores>,
    outage: Outage,
    readers: Readers,
    sync: ViewSync,
    fan_outs: FanOuts,
    notices: NoticeBoard,
    people: People,
    inboxes: Inboxes,
}

impl Projector {
    pub fn new(
        stores: Arc<Stores>,
        outage: Outage,
        sync: ViewSync,
        fan_outs: FanOuts,
        notices: NoticeBoard,
        people: People,
        inboxes: Inboxes,
    ) -> Self {
        let readers = sync.readers().clone();
        Self { stores, outage, readers, sync, fan_outs, notices, people, inboxes }
    }

    /// Updates the views after these changes, of which the oldest was made at `since`. While the views are unavailable
    /// it tries again until it is out of time. Returns the changes that have to be projected later.
    ///
    /// As long as views are behind in an outage, it extends the outage note.
    pub async fn project(&self, changes: BTreeSet<Change>, since: Timestamp, out_of_time: OutOfTime<'_>) -> BTreeSet<Change> {
        let (mut left, mut was_away) = (changes, false);
        loop {
            let (failed, is_away) = self.once(&left).await;
            (left, was_away) = (failed, was_away || is_away);
            if left.is_empty() {
                let is_behind = since.plus_ms(BEHIND.as_millis() as u64) < self.stores.clock.now();
                if was_away || (is_behind && self.outage.check().await.is_err()) {
                    // Other records of the same outage may still wait.
                    self.outage.extend_note(Duration::ZERO).await;
                }
                return left;
            }
            let stop = !is_away || out_of_time();
            if is_away {
                self.outage.extend_note(if stop { UNTIL_NEXT_INVOCATION } else { Duration::ZERO }).await;
            }
            if stop {
                return left;
            }
            (self.stores.wait)(AGAIN).await;
        }
    }

    /// Tries each change once. Returns those that a later attempt may project, and whether the views were away. What no
    /// attempt can project goes to the failure queue, so that it does not hold up later changes.
    async fn once(&self, changes: &BTreeSet<Change>) -> (BTreeSet<Change>, bool) {
        let work = self.work(changes).into_iter();
        let work = work.map(|(changes, work)| AssertUnwindSafe(work).catch_unwind().map(|done| (changes, done)));
        let done: Vec<_> = stream::iter(work.collect::<Vec<_>>()).buffer_unordered(PARALLEL).collect().await;
        let (mut failed, mut is_away) = (BTreeSet::new(), false);
        for (changes, outcome) in done {
            let is_retryable = match &outcome {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => {
                    is_away |= error.is_unavailable() && error.store() == Store::Views;
                    warn!(?changes, error = error as &dyn std::error::Error, "views are not updated");
                    error.is_retryable()
                }
                // The panic has been logged.
                Err(_) => false,
            };
            if is_retryable || !self.give_up(&changes).await {
                failed.extend(changes);
            }
        }
        (failed, is_away)
    }

    /// The operations of these changes. The edges of a reader share one.
    fn work(&self, changes: &BTreeSet<Change>) -> Vec<(Vec<Change>, BoxFuture<'_, Result<()>>)> {
        let mut of_reader: BTreeMap<UserId, [Vec<UserId>; 2]> = BTreeMap::new();
        let mut work = Vec::new();
        for &change in changes {
            let operation = match change {
                Change::Edge { user, author, part } => {
                    of_reader.entry(user).or_default()[part as usize].push(author);
                    continue;
                }
                Change::Reads { user, author, version } => self.reads(user, author, version).boxed(),
                Change::Reactions { user, author } => self.reactions(user, author).boxed(),
                Change::Counts(post) => self.sync.reacted(post).boxed(),
                Change::Comments(post) => self.sync.comments(post).boxed(),
                Change::Head(author) => self.fan_outs.show_head(author).boxed(),
                Change::Post { id, write: PostWrite::Edited } => self.sync.post(id).boxed(),
                Change::Post { id, write } => self.fan_out(id, write).boxed(),
                Change::Profile(user) => self.people.sync(user).boxed(),
                Change::PlatformHead(platform) => self.notices.sync(platform, None).boxed(),
                Change::PendingEdit { platform, revision } => self.stores.facts.apply_pending_edit(platform, revision).boxed(),
                Change::NoticeReads { user, platform } => self.notices.sync(platform, Some(user)).boxed(),
                Change::Group { user, id } => self.inboxes.changed(user, id).boxed(),
                Change::Apart { user, other, by } => self.inboxes.apart(user, other, by).boxed(),
            };
            work.push((vec![change], operation));
        }
        for (user, [choices, follows]) in of_reader {
            let of =
                |part, authors: &[UserId]| authors.iter().map(|&author| Change::Edge { user, author, part }).collect::<Vec<_>>();
            let changes = [of(EdgePart::Choices, &choices), of(EdgePart::Follow, &follows)].concat();
            work.push((changes, self.edges(user, choices, follows).boxed()));
        }
        work
    }

    async fn give_up(&self, changes: &[Change]) -> bool {
        let given_up = self.stores.queues.failures.give_up(&format!("{changes:?}")).await;
        logged!(given_up, "a change is not in the failure queue, and is tried again").is_some()
    }

    async fn edges(&self, user: UserId, choices: Vec<UserId>, follows: Vec<UserId>) -> Result<()> {
        let (shown, followed) = futures::join!(self.sync.choices_of(user, &choices), self.sync.follows(user, &follows));
        followed.and(shown)
    }

    async fn reactions(&self, user: UserId, author: UserId) -> Result<()> {
        self.readers.sync_reactions(user, author).await?;
        // The counters include reactions.
        self.stores.views.forget_counters(author, None).await
    }

    /// Starts the fan-out of a post that was published or deleted, if nobody has. Shows a deletion before.
    async fn fan_out(&self, id: PostId, write: PostWrite) -> Result<()> {
        let stores = &self.stores;
        let Some(post) = stores.facts.posts(&[id]).await?.remove(&id) else {
            // An erasure has removed the tombstone. Its record comes after all others of the post.
            return stores.views.clear_posts(&[id]).await;
        };
        if write == PostWrite::Deleted {
            stores.views.remember_posts(&[(post.clone().into(), None)], None).await?;
        }
        self.fan_outs.start_unsent(&post).await
    }

    /// Updates the view of one reader, unless it has this version already.
    async fn reads(&self, user: UserId, author: UserId, version: u32) -> Result<()> {
        if self.has_reads(user, author, version).await? {
            return Ok(());
        }
        (self.stores.wait)(GRACE).await;
        if self.has_reads(user, author, version).await? {
            return Ok(());
        }
        self.readers.sync_reads(user, author).await
    }

    async fn has_reads(&self, user: UserId, author: UserId, version: u32) -> Result<bool> {
        let stores = &self.stores;
        let known = stores.views.known_reader(user, author).await?;
        let has_marks = known.marks.as_ref().is_none_or(|marks| marks.version >= version);
        Ok(has_marks
            && match known.follow {
                KnownFollow::Following(state) => state.version >= version,
                KnownFollow::NotFollowing => true,
                // Without a view, a later rebuild reads the facts. One that has begun may have read them before.
                KnownFollow::Unknown => stores.views.seed(user, &Seed::default()).await?.is_none(),
            })
    }
}

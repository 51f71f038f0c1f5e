//! [`Live`]: sends a reader's unread counts to the reader's connections when they have changed.
//!
//! A change goes through two queues. A delivery, or [`Live::notify`], checks whether a [`LiveTask`] is queued, and
//! sends one if not. The function `live` [runs](Live::run) it: it reads the counts as they are then, so the last state
//! wins, and sends a [`LivePost`]. The function that posts it is outside of the VPC, and reads no store.
//!
//! A message is a hint. If one is lost, the next ping finds it: it compares the counts with those of the last message
//! ([`Live::ping`]).

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, stream};
use tidemark_domain::{CountsDigest, PostId, UnreadChange, UserId};
use tracing::warn;

use crate::{
    Stores,
    error::StoreError,
    ports::{ClaimedUpdate, LivePost, LiveTask, Notified},
    reader::{Origin, Readers},
};

/// The least time between two messages, which is also the delay of a task that has to wait.
const LEAST_BETWEEN: Duration = Duration::from_secs(1);

/// Readers in one task. A failed reader is sent again alone, so the others do not wait for it.
const USERS_PER_TASK: usize = 50;

/// Readers whose counts are read in parallel.
const PARALLEL: usize = 16;

/// The number of times that a reader gets another message because a connection could not be reached.
const MOST_TRIES: u8 = 3;

/// Use cases of live connections. Clones share the stores.
#[derive(Clone)]
pub struct Live {
    pub stores: Arc<Stores>,
    pub readers: Readers,
}

impl Live {
    /// Sends tasks for watched readers whose counts have changed. The message names a post if it is known.
    ///
    /// It does not fail, because a hint must not hold back a delivery or a mark: after a failure the next change, or
    /// the next ping, sends the counts.
    pub async fn notify(&self, users: &[UserId], post: Option<PostId>) {
        log_failure(self.try_notify(users, post).await);
    }

    /// The same for readers whose change is already noted.
    pub async fn announce(&self, notified: Notified) {
        log_failure(self.try_announce(notified).await);
    }

    async fn try_notify(&self, users: &[UserId], post: Option<PostId>) -> Result<(), StoreError> {
        if users.is_empty() {
            return Ok(());
        }
        self.try_announce(self.stores.live_views.notify(users, post).await?).await
    }

    async fn try_announce(&self, Notified { now, later }: Notified) -> Result<(), StoreError> {
        let (now, later) = futures::join!(self.send(&now, Duration::ZERO), self.send(&later, LEAST_BETWEEN));
        now.and(later)
    }

    async fn send(&self, users: &[UserId], delay: Duration) -> Result<(), StoreError> {
        let tasks: Vec<LiveTask> =
            users.chunks(USERS_PER_TASK).map(|users| LiveTask::Changed { users: users.to_vec() }).collect();
        if tasks.is_empty() { Ok(()) } else { self.stores.live_queue.send(&tasks, delay).await }
    }

    /// Registers a new connection. The reader is expected to read the counts after this.
    pub async fn connect(&self, user: UserId, connection: &str) -> Result<(), StoreError> {
        let told = self.stores.live_views.watch(user, connection).await?;
        let Some(counts) = self.counts(user).await? else { return Ok(()) };
        match told {
            None => self.stores.live_views.told(&[(user, Some(counts))], true).await,
            Some(told) => self.tell_if_changed(user, Some(told), counts).await,
        }
    }

    /// Renews a connection, or registers it again if Redis has lost it. If the counts are not those of the last
    /// message, or if that is unknown, the connections get a message.
    pub async fn ping(&self, user: UserId, connection: &str) -> Result<(), StoreError> {
        let told = self.stores.live_views.watch(user, connection).await?;
        let Some(counts) = self.counts(user).await? else { return Ok(()) };
        self.tell_if_changed(user, told, counts).await
    }

    async fn tell_if_changed(&self, user: UserId, told: Option<CountsDigest>, counts: CountsDigest) -> Result<(), StoreError> {
        if told == Some(counts) { Ok(()) } else { self.try_notify(&[user], None).await }
    }

    /// Returns the reader's counts now; `None` if Redis is unavailable. A missing view is rebuilt, and then it is
    /// watched.
    async fn counts(&self, user: UserId) -> Result<Option<CountsDigest>, StoreError> {
        let snapshot = self.readers.snapshot(user).await?;
        Ok((snapshot.origin != Origin::Degraded).then(|| CountsDigest::of(&snapshot.state)))
    }

    /// Removes a connection that was closed. May be repeated.
    pub async fn disconnect(&self, user: UserId, connection: &str) -> Result<(), StoreError> {
        self.stores.live_views.unwatch(user, connection).await
    }

    /// Runs one task. It may run any number of times, in any order. After an error, the caller has to give it back to
    /// the queue.
    pub async fn run(&self, task: &LiveTask) -> Result<(), StoreError> {
        match task {
            LiveTask::Changed { users } => self.tell(users, None).await,
            LiveTask::Again { users, tries } if *tries > MOST_TRIES => {
                let unknown: Vec<_> = users.iter().map(|user| (*user, None)).collect();
                self.stores.live_views.told(&unknown, false).await
            }
            LiveTask::Again { users, tries } => self.tell(users, Some(*tries)).await,
            LiveTask::Gone { connections } => {
                for gone in connections {
                    self.stores.live_views.unwatch(gone.user, &gone.connection).await?;
                }
                Ok(())
            }
        }
    }

    /// Sends the counts to the connections of these readers. `again` is the number of messages that did not reach some
    /// of them; without it, readers whose connections have the counts are left out.
    async fn tell(&self, users: &[UserId], again: Option<u8>) -> Result<(), StoreError> {
        let claimed = self.stores.live_views.claim(users).await?;
        let early = |(user, claimed): (&UserId, &ClaimedUpdate)| (*claimed == ClaimedUpdate::TooEarly).then_some(*user);
        let early: Vec<UserId> = users.iter().zip(&claimed).filter_map(early).collect();
        if !early.is_empty() {
            self.stores.live_queue.send(&[task_of(early, again)], LEAST_BETWEEN).await?;
        }
        let updates: Vec<_> =
            users.iter().zip(claimed).map(|(user, claimed)| self.update(*user, claimed, again).boxed()).collect();
        let updates: Vec<(UserId, Result<_, StoreError>)> = stream::iter(updates).buffer_unordered(PARALLEL).collect().await;
        let (mut posts, mut told, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (user, update) in updates {
            match update {
                Ok(Some((post, counts))) => {
                    posts.push(post);
                    told.push((user, Some(counts)));
                }
                Ok(None) => {}
                Err(error) if users.len() == 1 => return Err(error),
                Err(error) => {
                    warn!(%user, error = &error as &dyn std::error::Error, "counts unavailable, the reader is told alone");
                    failed.push(task_of(vec![user], again));
                }
            }
        }
        if !failed.is_empty() {
            self.stores.live_queue.send(&failed, LEAST_BETWEEN).await?;
        }
        if posts.is_empty() {
            return Ok(());
        }
        self.stores.live_queue.post(&posts).await?;
        self.stores.live_views.told(&told, false).await
    }

    /// The message for one reader, with the digest of its counts; `None` if there is nothing to tell.
    async fn update(
        &self,
        user: UserId,
        claimed: ClaimedUpdate,
        again: Option<u8>,
    ) -> (UserId, Result<Option<(LivePost, CountsDigest)>, StoreError>) {
        let ClaimedUpdate::Claimed { noted, told, connections } = claimed else { return (user, Ok(None)) };
        // The time comes before the counts: a message with a later time has every change that this one has.
        let at = self.stores.clock.now();
        let snapshot = match self.readers.snapshot(user).await {
            Ok(snapshot) => snapshot,
            Err(error) => return (user, Err(error)),
        };
        let counts = CountsDigest::of(&snapshot.state);
        if again.is_none() && told == Some(counts) {
            return (user, Ok(None));
        }
        let change = UnreadChange::of(&snapshot.state, noted, at);
        (user, Ok(Some((LivePost::new(user, connections, change, again.unwrap_or_default()), counts))))
    }
}

fn log_failure(result: Result<(), StoreError>) {
    if let Err(error) = result {
        warn!(error = &error as &dyn std::error::Error, "connections are told after the next ping");
    }
}

fn task_of(users: Vec<UserId>, again: Option<u8>) -> LiveTask {
    match again {
        None => LiveTask::Changed { users },
        Some(tries) => LiveTask::Again { users, tries },
    }
}

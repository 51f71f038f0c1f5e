//! [`Live`]: sends a reader's unread counts to the reader's connections when they have changed.
//!
//! A change goes through two queues. A delivery, or [`notify`], checks whether a [`LiveTask`] is queued, and
//! sends one if not. The function `live` [runs](Live::run) it: it reads the counts as they are then, so the last state
//! wins, and sends a [`LivePost`]. The function that posts it is outside of the VPC, and reads no store.
//!
//! Unread notices of the platforms that a connection has named go the same way, one message for each platform. What a
//! connection was told of them is kept beside the digest ([`Views::forget_notices`](tidemark_views::Views)). The number
//! of unread groups of the inbox has a message of its own, and is kept with the digest.
//!
//! A message is a hint. If one is lost, the next ping sends another, because it compares the counts with those that its
//! connection was told ([`Live::ping`]). A connection was told when the sender has posted the message and says so
//! ([`LiveTask::Told`]); until then it is unknown what the connection knows, and no other message is built for the
//! reader. So the time between two messages is kept where they are posted, however long they are on their way.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt;
use tidemark_domain::{
    CountsDigest, Known, Platform, PostId, StoreError, Timestamp, Told, UnreadChange, UnreadNotices, UserId, store::Result,
};
use tidemark_queue::{LivePost, LiveTask};
use tidemark_views::{ClaimedUpdate, NamedPlatform, Notified};
use tracing::warn;

use crate::{
    Inboxes, Stores, in_parallel,
    notices::NoticeBoard,
    reader::{Origin, Readers},
};

/// The least time from the end of a message to the next one, which is also the delay of a task that has to wait.
const LEAST_BETWEEN: Duration = Duration::from_secs(1);

/// Readers in one task. A failed reader is sent again alone, so the others do not wait for it.
const USERS_PER_TASK: usize = 50;

/// The number of times that a reader gets another message because a connection could not be reached.
const MOST_TRIES: u8 = 3;

/// Use cases of live connections. Clones share the stores.
#[derive(Clone)]
pub struct Live {
    stores: Arc<Stores>,
    readers: Readers,
    notices: NoticeBoard,
    inboxes: Inboxes,
}

/// Sends tasks for readers whose change is noted.
///
/// It does not fail, because a hint must not hold back a delivery or a mark: after a failure the next change, or the
/// next ping, sends the counts.
pub(crate) async fn announce(stores: &Stores, notified: Notified) {
    log_failure(try_announce(stores, notified).await);
}

/// Sends tasks for watched readers whose counts have changed, as [`announce`] does. The message names a post if it is
/// known.
pub(crate) async fn notify(stores: &Stores, users: &[UserId], post: Option<PostId>) {
    if users.is_empty() {
        return;
    }
    match stores.views.notify(users, post).await {
        Ok(notified) => announce(stores, notified).await,
        Err(error) => log_failure(Err(error)),
    }
}

async fn try_announce(stores: &Stores, Notified { now, later }: Notified) -> Result<()> {
    let (now, later) = futures::join!(send(stores, &now, Duration::ZERO), send(stores, &later, LEAST_BETWEEN));
    now.and(later)
}

async fn send(stores: &Stores, users: &[UserId], delay: Duration) -> Result<()> {
    let tasks: Vec<LiveTask> = users.chunks(USERS_PER_TASK).map(|users| LiveTask::Changed { users: users.to_vec() }).collect();
    stores.queues.live.send(&tasks, delay).await
}

impl Live {
    pub fn new(stores: Arc<Stores>, readers: Readers, notices: NoticeBoard, inboxes: Inboxes) -> Self {
        Self { stores, readers, notices, inboxes }
    }

    /// Registers a new connection. The reader is expected to read the counts after this.
    pub async fn connect(&self, user: UserId, connection: &str) -> Result<()> {
        let watched = self.stores.views.watch(user, connection).await?;
        let Some(known) = self.known(user).await? else { return Ok(()) };
        let told = Told { connections: vec![connection.to_owned()], ..Told::nobody(user, watched.built, known) };
        self.stores.views.note_told(&[told], None).await
    }

    /// Removes a connection that was closed. May be repeated.
    pub async fn disconnect(&self, user: UserId, connection: &str) -> Result<()> {
        self.stores.views.unwatch(user, connection, None).await
    }

    /// Renews a connection, or registers it again, and notes the platforms that it names, if it does. If it may not
    /// know the counts, or the unread notices of these platforms, it is told.
    pub async fn ping(&self, user: UserId, connection: &str, platforms: Option<&[Platform]>) -> Result<()> {
        let told = match platforms {
            Some(platforms) => self.stores.views.name_platforms(user, connection, platforms).await?,
            None => Vec::new(),
        };
        let watched = self.stores.views.watch(user, connection).await?;
        let Some(known) = self.known(user).await? else { return Ok(()) };
        let (unread, _) = self.notices.counts(platforms.unwrap_or_default(), user).await?;
        let knows_notices = told.into_iter().eq(unread.into_iter().map(|counts| Some(counts.unread)));
        if watched.known == Some(known) && knows_notices {
            return Ok(());
        }
        let mut notified = self.stores.views.notify(&[user], None).await?;
        if notified.now.is_empty() {
            // A worker that was killed may not have sent the task on which the view relies.
            notified.later = vec![user];
        }
        try_announce(&self.stores, notified).await
    }

    /// Returns what the reader's connections should know; `None` if Redis is unavailable. A missing view is rebuilt,
    /// and then watched.
    async fn known(&self, user: UserId) -> Result<Option<Known>> {
        let (snapshot, inbox) = futures::try_join!(self.readers.snapshot(user), self.inbox(user))?;
        Ok((snapshot.origin != Origin::Degraded).then(|| Known { counts: CountsDigest::of(&snapshot.state), inbox }))
    }

    /// Returns the number of the reader's unread groups.
    async fn inbox(&self, user: UserId) -> Result<u32> {
        Ok(u32::try_from(self.inboxes.unread(user).await?).unwrap_or(u32::MAX))
    }

    /// Runs one task. It may run any number of times, in any order. `repeated` says whether it may have run before.
    /// After an error, the caller has to give it back to the queue.
    pub async fn run(&self, task: &LiveTask, repeated: bool) -> Result<()> {
        match task {
            LiveTask::Changed { users } => self.tell(users, None, repeated).await,
            // The counts that they know stay unknown, so their next ping sends a message.
            LiveTask::Again { tries, .. } if *tries > MOST_TRIES => Ok(()),
            LiveTask::Again { users, tries } => self.tell(users, Some(*tries), repeated).await,
            LiveTask::Told { told } => self.stores.views.note_told(told, Some(LEAST_BETWEEN)).await,
            LiveTask::Gone { connections } => {
                for gone in connections {
                    self.stores.views.unwatch(gone.user, &gone.connection, gone.at).await?;
                }
                Ok(())
            }
        }
    }

    /// Tells the connections of these readers the counts, unless they know them. `again` is how often some of them were
    /// not told. A reader who fails is told by a task of its own.
    async fn tell(&self, users: &[UserId], again: Option<u8>, repeated: bool) -> Result<()> {
        let claimed = self.stores.views.claim_updates(users).await;
        let (mut early, mut updates, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (&user, claimed) in users.iter().zip(claimed) {
            match claimed {
                Ok(ClaimedUpdate::TooEarly) => early.push(user),
                // The first run may have ended between the claim and its task.
                Ok(ClaimedUpdate::OnItsWay) if repeated => early.push(user),
                Ok(ClaimedUpdate::OnItsWay | ClaimedUpdate::Unwatched) => {}
                Ok(ClaimedUpdate::Claimed { noted, at, connections }) => {
                    let update = self.update(user, (noted, at), connections, again);
                    updates.push(update.map(move |update| (user, at, update)).boxed());
                }
                Err(error) => failed.push((user, error)),
            }
        }
        if !early.is_empty() {
            self.stores.queues.live.send(&[task_of(early, again)], LEAST_BETWEEN).await?;
        }
        let (mut posts, mut begun, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        for (user, at, update) in in_parallel(updates).await {
            match update {
                Ok((Some(post), known)) => {
                    posts.push(post);
                    begun.push(known);
                }
                Ok((None, known)) => ended.push(known),
                Err(error) => {
                    ended.push(Told::nobody(user, at, Known { counts: CountsDigest(0), inbox: 0 }));
                    failed.push((user, error));
                }
            }
        }
        self.stores.queues.live.post(&posts).await?;
        begun.retain(|known| !known.connections.is_empty() || !known.notices.is_empty());
        // Where nothing is posted, the next message need not wait.
        for (told, next) in [(begun, None), (ended, Some(Duration::ZERO))] {
            log_failure(self.stores.views.note_told(&told, next).await);
        }
        self.tell_alone(users, failed, again).await
    }

    /// Sends tasks for readers who failed. If all did, the queue repeats the task itself.
    async fn tell_alone(&self, users: &[UserId], mut failed: Vec<(UserId, StoreError)>, again: Option<u8>) -> Result<()> {
        if failed.len() == users.len() {
            return failed.pop().map_or(Ok(()), |(_, error)| Err(error));
        }
        let mut tasks = Vec::new();
        for (user, error) in failed {
            warn!(%user, error = &error as &dyn std::error::Error, "counts unavailable, the reader is told alone");
            tasks.push(task_of(vec![user], again));
        }
        self.stores.queues.live.send(&tasks, LEAST_BETWEEN).await
    }

    /// Returns the message for those connections of a reader that do not know the counts or the inbox, and the
    /// connections that know both.
    async fn update(
        &self,
        user: UserId,
        (noted, at): (Option<(PostId, Timestamp)>, Timestamp),
        connections: Vec<(String, Option<Known>)>,
        again: Option<u8>,
    ) -> Result<(Option<LivePost>, Told)> {
        // `at` comes before the counts: a message with a later time has every change that this one has.
        let open: BTreeSet<String> = connections.iter().map(|(connection, _)| connection.clone()).collect();
        let (snapshot, inbox, notices) =
            futures::try_join!(self.readers.snapshot(user), self.inbox(user), self.notices(user, &open))?;
        let (known_notices, notices) = notices;
        let now = Known { counts: CountsDigest::of(&snapshot.state), inbox };
        let those = |knows: &dyn Fn(Option<Known>) -> bool| -> Vec<String> {
            connections.iter().filter(|(_, known)| knows(*known)).map(|(connection, _)| connection.clone()).collect()
        };
        let others = those(&|known| known.is_none_or(|known| known.counts != now.counts));
        let inbox_to = those(&|known| known.is_none_or(|known| known.inbox != now.inbox));
        let known = those(&|known| known == Some(now));
        let post = (!others.is_empty() || !inbox_to.is_empty() || !notices.is_empty()).then(|| {
            let change = UnreadChange::of(&snapshot.state, noted, at);
            LivePost { notices, inbox_to, ..LivePost::new(user, others, change, now, again.unwrap_or_default()) }
        });
        Ok((post, Told { connections: known, notices: known_notices, ..Told::nobody(user, at, now) }))
    }

    /// Returns the unread notices that these connections of a reader know, and those that they do not.
    async fn notices(&self, user: UserId, open: &BTreeSet<String>) -> Result<(Vec<UnreadNotices>, Vec<UnreadNotices>)> {
        let mut named = self.stores.views.forget_notices(user).await?;
        named.retain(|named| open.contains(&named.connection));
        let platforms: BTreeSet<Platform> = named.iter().map(|named| named.platform).collect();
        let platforms: Vec<Platform> = platforms.into_iter().collect();
        let (counts, _) = self.notices.counts(&platforms, user).await?;
        let unread: BTreeMap<Platform, u64> = platforms.into_iter().zip(counts.iter().map(|counts| counts.unread)).collect();
        let (known, others): (Vec<_>, Vec<_>) =
            named.into_iter().partition(|named| named.told.is_some() && named.told == unread.get(&named.platform).copied());
        Ok((by_platform(known, &unread), by_platform(others, &unread)))
    }
}

fn by_platform(named: Vec<NamedPlatform>, unread: &BTreeMap<Platform, u64>) -> Vec<UnreadNotices> {
    let mut of: BTreeMap<Platform, Vec<String>> = BTreeMap::new();
    for NamedPlatform { connection, platform, .. } in named {
        of.entry(platform).or_default().push(connection);
    }
    let unread_of = |platform| unread.get(&platform).copied().unwrap_or_default();
    of.into_iter().map(|(platform, connections)| UnreadNotices { connections, platform, unread: unread_of(platform) }).collect()
}

fn log_failure(result: Result<()>) {
    logged!(result, "connections are told after the next ping");
}

fn task_of(users: Vec<UserId>, again: Option<u8>) -> LiveTask {
    match again {
        None => LiveTask::Changed { users },
        Some(tries) => LiveTask::Again { users, tries },
    }
}

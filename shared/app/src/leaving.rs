//! [`Leaving`]: the erasure of a user.
//!
//! An erasure closes the user's access first. The user's posts are then gone for everybody but followers, and as
//! originals for these too. A worker removes relations, posts and the rest, in [slices](mod@slice) of a second. When
//! nothing is left, the worker waits until every request from before the erasure has ended, looks again, and finishes
//! the receipt. The receipt stays.
//!
//! The tasks of an erasure are a chain: each is sent by the one before. The receipt has the number of the chain, and a
//! task of an older chain does nothing. So a chain that was resumed too early does not run beside the other one.

mod export;
mod left;
mod slice;

pub use export::{Exported, Place};

use std::sync::Arc;

use futures::{FutureExt, StreamExt, stream};
use tidemark_domain::{Erasure, StoreError, UserId, store::Result};
use tidemark_queue::Task;
use tracing::warn;

use crate::{Following, Inboxes, OutOfTime, PARALLEL, Publishing, Stores, ViewSync, fan_out::BACKLOG_WAIT_MS, outage::Outage};
use slice::Slice;

/// An erasure that no worker has touched for this time is resumed, if the queue is drained. Otherwise its task may wait
/// in the queue, and it is resumed after [`BACKLOG_WAIT_MS`].
const STALLED_MS: u64 = 120_000;

/// Receipts that one call of [`Leaving::resume`] looks at. It begins at a random one, so that all have their turn.
const MOST_LOOKED_AT: usize = 1_000;

/// Use cases of users who leave. Clones share the stores.
#[derive(Clone)]
pub struct Leaving {
    stores: Arc<Stores>,
    outage: Outage,
    sync: ViewSync,
    following: Following,
    publishing: Publishing,
    inboxes: Inboxes,
}

/// The result of [`Leaving::resume`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resumed {
    pub resumed: usize,
    /// Erasures with items that cannot be removed.
    pub incomplete: usize,
    /// Receipts, or parts of their list, that could not be read or resumed.
    pub failed: usize,
}

impl Leaving {
    pub fn new(
        stores: Arc<Stores>,
        outage: Outage,
        sync: ViewSync,
        following: Following,
        publishing: Publishing,
        inboxes: Inboxes,
    ) -> Self {
        Self { stores, outage, sync, following, publishing, inboxes }
    }

    /// Begins an erasure, or returns the one that has begun. If the worker's task cannot be sent, reconcile sends it.
    ///
    /// Afterwards no request that begins shows a post of the user to others than followers, nor a title as an
    /// original to anybody: the head in Redis says so, or the outage is noted. A follower's feed has the posts, and
    /// the follower may read them, until the worker has ended the follow.
    pub async fn begin(&self, user: UserId) -> Result<Erasure> {
        let stores = &self.stores;
        let now = stores.clock.now();
        let mut erasure = stores.facts.begin_erasure(user, now).await?;
        if erasure.finished_at.is_some() {
            return Ok(erasure);
        }
        // Also if the erasure has begun: an earlier request may have ended before its view.
        let head = stores.facts.head_of(user).await?;
        self.outage.or_later(stores.views.replace_head(user, &head).await).await?;
        let is_new = erasure == Erasure::begin(now);
        match stores.views.note_access(user, false).await {
            Err(error) => {
                // A worker closes access. Until then the outage note stands, and requests ask the facts.
                if !is_new {
                    erasure.chain += 1;
                    if !self.save(user, &mut erasure).await? {
                        // A worker was first, so it has closed access.
                        return Ok(erasure);
                    }
                }
                let tasks = [task(user, &erasure, true)];
                futures::try_join!(stores.queues.tasks.send(&tasks), self.outage.instead(&error))?;
            }
            // A task is under way.
            Ok(()) if !is_new => {}
            Ok(()) => {
                logged!(stores.queues.tasks.send(&[task(user, &erasure, false)]).await, "the erasure is left to reconcile", %user);
            }
        }
        Ok(erasure)
    }

    /// Sends tasks for erasures that no worker continues. What fails is logged and left to the next call.
    pub async fn resume(&self, drained: bool, out_of_time: OutOfTime<'_>) -> Result<Resumed> {
        let stores = &self.stores;
        let (mut users, mut found) = (Vec::new(), Resumed::default());
        let failed = |found: &mut Resumed, error: StoreError| {
            found.failed += 1;
            warn!(error = &error as &dyn std::error::Error, "an erasure is not resumed");
        };
        for part in stores.facts.running_erasures().await? {
            match part {
                Ok(part) => users.extend(part),
                Err(error) => failed(&mut found, error),
            }
        }
        if !users.is_empty() {
            let first = (stores.random)() as usize % users.len();
            users.rotate_left(first);
        }
        let looks = users.into_iter().take(MOST_LOOKED_AT).take_while(|_| !out_of_time());
        let mut looks = stream::iter(looks).map(|user| self.resume_one(user, drained).boxed()).buffer_unordered(PARALLEL);
        while let Some(looked) = looks.next().await {
            match looked {
                Ok(one) => {
                    found.resumed += one.resumed;
                    found.incomplete += one.incomplete;
                }
                Err(error) => failed(&mut found, error),
            }
        }
        Ok(found)
    }

    /// Looks at one receipt. Of two runs at once, one starts a chain.
    async fn resume_one(&self, user: UserId, drained: bool) -> Result<Resumed> {
        let stores = &self.stores;
        let mut found = Resumed::default();
        let Some(mut erasure) = stores.facts.erasure(user).await? else { return Ok(found) };
        if erasure.finished_at.is_some() {
            // The two come from different moments of a table that was restored.
            stores.facts.forget_running_erasure(user).await?;
            return Ok(found);
        }
        found.incomplete = usize::from(erasure.incomplete.is_some());
        let wait = if drained && erasure.incomplete.is_none() { STALLED_MS } else { BACKLOG_WAIT_MS };
        if erasure.touched_at.plus_ms(wait) < stores.clock.now() {
            erasure.chain += 1;
            // This is stored first: the next look sees that the erasure was resumed.
            if self.save(user, &mut erasure).await? {
                stores.queues.tasks.send(&[task(user, &erasure, false)]).await?;
                found.resumed = 1;
            }
        }
        Ok(found)
    }

    /// Continues an erasure for a slice, and sends the rest as a new task. May be repeated, also concurrently.
    pub async fn run(&self, user: UserId, chain: u64, out_of_time: OutOfTime<'_>) -> Result<()> {
        let stores = &self.stores;
        let Some(erasure) = stores.facts.erasure(user).await?.filter(|erasure| erasure.finished_at.is_none()) else {
            return Ok(());
        };
        if chain < erasure.chain {
            return Ok(());
        }
        stores.views.note_access(user, false).await?;
        Slice::new(self, user, erasure, out_of_time).run().await
    }

    /// Stores the next version of a receipt. Returns false if another run was first, which then continues.
    async fn save(&self, user: UserId, erasure: &mut Erasure) -> Result<bool> {
        let stores = &self.stores;
        erasure.version += 1;
        erasure.touched_at = stores.clock.now();
        if stores.facts.put_erasure(user, erasure).await? {
            return Ok(true);
        }
        // The response to this write may have been lost.
        Ok(stores.facts.erasure(user).await?.as_ref() == Some(erasure))
    }
}

fn task(user: UserId, erasure: &Erasure, closes: bool) -> Task {
    Task::Erase { user, chain: erasure.chain, closes }
}

//! What happens while Redis is unavailable, and until the views have what they missed.
//!
//! A change that cannot reach its view is left to a task. Until a worker has done that task, the view is stale, although Redis may be back already. Nobody who reads
//! the view can see that. So the process that leaves a change to a task also notes the outage among the facts, for a few seconds; workers that cannot do such a task, or
//! do one, prolong the note. Every process looks at the note once a second at most, and while it stands, answers come from the facts and are marked `Degraded`. A change
//! is acknowledged only when every process must have looked since the note stands.

use crate::Stores;
use crate::error::{Store, StoreError};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tracing::warn;

use crate::ports::Task;
use tidemark_domain::Timestamp;

/// How long a note stands: longer than a worker takes for a task that waits for nothing.
const STANDS: Duration = Duration::from_secs(3);

/// How often one process looks at the note, and writes it, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The note, as one process knows it. Clones share it.
#[derive(Clone)]
pub struct Outage {
    stores: Arc<Stores>,
    known: Arc<Mutex<Known>>,
}

/// What a process has read and written of the note. Never locked while something is waited for: requests that come before an answer ask for themselves.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Until when the note stands, for all that is known.
    until: Timestamp,
    /// When it was asked for, the last time that there was an answer.
    looked_at: Timestamp,
    /// Since when and until when the note stands that this process has written.
    noted_since: Timestamp,
    noted_until: Timestamp,
    /// After a write that failed, when to write again.
    note_again_at: Timestamp,
}

impl Outage {
    /// Nothing is known yet.
    pub fn new(stores: Arc<Stores>) -> Self {
        Self { stores, known: Arc::default() }
    }

    /// An error while views may lack changes that wait in a task. If the facts cannot say, none is known.
    ///
    /// # Errors
    /// The facts have to answer instead of the views.
    pub async fn check(&self) -> Result<(), StoreError> {
        let now = self.stores.clock.now();
        let known = *self.known();
        if now >= known.until && now >= known.looked_at.plus_ms(ms(LOOK_EVERY)) {
            let until = self.stores.outages.outage_until().await.unwrap_or_else(|error| {
                warn!(error = &error as &dyn std::error::Error, "whether Redis had an outage could not be read");
                known.until
            });
            let mut known = self.known();
            known.until = until.max(known.until);
            known.looked_at = now.max(known.looked_at);
        }
        let detail = || "views may lack changes of an outage that wait for a worker".into();
        if now < self.known().until {
            return Err(StoreError::Unavailable { store: Store::Views, operation: "outage", source: detail() });
        }
        Ok(())
    }

    /// Notes that a change waits in a task which is not tried before this pause is over. Since when the note stands; long ago if it could not be written.
    async fn note(&self, pause: Duration) -> Timestamp {
        let now = self.stores.clock.now();
        let until = now.plus_ms(ms(STANDS + pause));
        {
            let mut known = self.known();
            if until < known.noted_until.plus_ms(ms(LOOK_EVERY)) || now < known.note_again_at {
                return known.noted_since;
            }
            known.until = until.max(known.until);
        }
        let noted = self.stores.outages.note_outage(until).await;
        let mut known = self.known();
        match noted {
            Ok(()) => {
                if now >= known.noted_until {
                    known.noted_since = self.stores.clock.now();
                }
                known.noted_until = until.max(known.noted_until);
            }
            Err(error) => {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "an outage of Redis could not be noted: views may be stale for a moment"
                );
                known.note_again_at = now.plus_ms(ms(LOOK_EVERY));
            }
        }
        known.noted_since
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes that a worker brings into views later.
#[derive(Clone)]
pub struct Later {
    /// The stores.
    pub stores: Arc<Stores>,
    /// The note that they wait.
    pub outage: Outage,
}

impl Later {
    /// Leaves views to a worker. Returns when no process believes them any more: until the note has stood for so long as a process may rely on its last look.
    ///
    /// # Errors
    /// The queue did not take a task.
    async fn sync(&self, tasks: &[Task]) -> Result<(), StoreError> {
        let (since, sent) = futures::join!(self.outage.note(Duration::ZERO), self.stores.queue.send(tasks));
        let left = since.plus_ms(ms(LOOK_EVERY)).ms().saturating_sub(self.stores.clock.now().ms());
        if left > 0 {
            (self.stores.wait)(Duration::from_millis(left)).await;
        }
        sent
    }

    /// Leaves to a worker what could not be shown because of `error`. The fact stands, and the caller can be answered as if the view had it.
    ///
    /// # Errors
    /// The queue did not take a task either. The caller must not be told that all is done: its repetition shows the fact.
    pub async fn instead(&self, error: &(impl std::error::Error + Sync + 'static), tasks: &[Task]) -> Result<(), StoreError> {
        warn!(error = error as &dyn std::error::Error, ?tasks, "the views could not be updated, a worker will do it");
        self.sync(tasks).await
    }

    /// Leaves a task that failed to a later attempt of its own, if it has had fewer than `most`. A message that is received again and again would end among the dead
    /// letters of an outage that lasts, and wait for the queue's visibility timeout each time.
    ///
    /// # Errors
    /// The queue did not take it, or it was tried too often: it has to be given back.
    pub async fn again(&self, task: &Task, most: u8) -> Result<(), StoreError> {
        let (task, tries) = task.tried_once_more();
        if tries >= most {
            return Err(StoreError::Unavailable { store: Store::Queue, operation: "again", source: "tried too often".into() });
        }
        let pause = pause(&task, tries);
        let note = async {
            if task.is_missed_by_views() {
                self.outage.note(pause).await;
            }
        };
        futures::join!(note, self.stores.queue.send_after(std::slice::from_ref(&task), pause)).1
    }

    /// After a task was done: others of the same outage may still wait, and then the note stands on.
    pub async fn done(&self, task: &Task) {
        if task.is_missed_by_views() {
            self.outage.note(Duration::ZERO).await;
        }
    }
}

/// Attempts of its own that a task has in an outage, four hours of them; then it is given back, and ends among the dead letters.
pub const MOST_TRIES: u8 = u8::MAX;

/// Attempts of its own that a task has which may have failed through its own fault, half a minute of them.
pub const FEW_TRIES: u8 = 8;

/// How long a task waits that failed so often: short at first, so that a view is right soon after a short outage, and a minute in a long one. A page of a fan-out is much
/// work, of which some may be done each time, and so waits longer.
fn pause(task: &Task, tries: u8) -> Duration {
    Duration::from_secs(match tries {
        0..5 if task.is_missed_by_views() => 1,
        5..20 if task.is_missed_by_views() => 2,
        0..20 => u64::from(tries.min(4)),
        20..40 => 10,
        _ => 60,
    })
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

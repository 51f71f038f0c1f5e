//! Changes while Redis is unavailable, and stale views until the projector has updated them.
//!
//! A change that cannot reach its view is in the change stream of its table, and the [projector](crate::project)
//! updates the view. Until then the view is stale, even if Redis is available again. A reader of the view cannot detect
//! that. Therefore the process that changed the fact also writes the outage note to the facts. The note stands for a
//! few seconds. The projector extends it as long as views are unavailable or behind. A process relies on a read of the
//! note for a second. If its next read fails, it assumes no outage, and may use stale views until a read succeeds.
//! While the note stands, responses come from the facts and are marked `Degraded`. A change is acknowledged only when
//! the note has stood for a second, so that every process has tried to read it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidemark_domain::{Store, StoreError, Timestamp, store::Result};
use tidemark_queue::Task;
use tracing::warn;

use crate::Stores;

/// The time that a note stands: longer than a record usually waits in a stream.
const STANDS: Duration = Duration::from_secs(3);

/// The time that a process relies on one read of the note, and on one write of it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The outage note, as one process knows it, and the updates of views that come later. Clones share the state.
#[derive(Clone)]
pub struct Outage {
    stores: Arc<Stores>,
    known: Arc<Mutex<Known>>,
    /// Held during a read of the note, so that requests that come together share one read.
    reading: Arc<futures::lock::Mutex<()>>,
}

/// The state of the note, as one process has read and written it.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Until when the note stands, as far as this process knows.
    until: Timestamp,
    /// The time at which the note was last read, with or without success.
    looked_at: Timestamp,
    /// The times between which the note of this process stands.
    noted_since: Timestamp,
    noted_until: Timestamp,
    /// After a failed write: when to write again.
    note_again_at: Timestamp,
}

impl Known {
    /// Whether the note has to be read again at `now`.
    fn is_old(&self, now: Timestamp) -> bool {
        now >= self.until && now >= self.looked_at.plus_ms(ms(LOOK_EVERY))
    }
}

impl Outage {
    pub fn new(stores: Arc<Stores>) -> Self {
        Self { stores, known: Arc::default(), reading: Arc::default() }
    }

    /// Returns an error while views may lack changes that wait in a task; the response then has to come from the facts.
    /// If the note cannot be read, no outage is assumed.
    pub async fn check(&self) -> Result<()> {
        let now = self.stores.clock.now();
        if self.known().is_old(now) {
            let _reading = self.reading.lock().await;
            if self.known().is_old(now) {
                let until = logged!(self.stores.facts.outage_until().await, "could not read the outage note");
                let mut known = self.known();
                known.until = until.unwrap_or_default().max(known.until);
                known.looked_at = now.max(known.looked_at);
            }
        }
        let detail = || "views may lack changes that wait for the projector".into();
        if now < self.known().until {
            return Err(StoreError::Unavailable { store: Store::Views, operation: "outage", source: detail() });
        }
        Ok(())
    }

    /// Returns what a view returned; an error while views may lack changes. Reads the note and the view in parallel.
    pub(crate) async fn checked<T>(&self, view: impl Future<Output = Result<T>>) -> Result<T> {
        let (outage, view) = futures::join!(self.check(), view);
        outage.and(view)
    }

    /// Notes that a change is not tried before `pause` is over. Returns since when the note
    /// stands. After a failed write, the next one is tried a second later.
    async fn note(&self, pause: Duration) -> Result<Timestamp> {
        let now = self.stores.clock.now();
        let until = now.plus_ms(ms(STANDS + pause));
        {
            let mut known = self.known();
            if until < known.noted_until.plus_ms(ms(LOOK_EVERY)) {
                return Ok(known.noted_since);
            }
            if now < known.note_again_at {
                let source = "the last write of the outage note failed".into();
                return Err(StoreError::Unavailable { store: Store::Facts, operation: "note_outage", source });
            }
            known.until = until.max(known.until);
        }
        let noted = self.stores.facts.note_outage(until).await;
        let mut known = self.known();
        if let Err(error) = noted {
            known.note_again_at = now.plus_ms(ms(LOOK_EVERY));
            return Err(error);
        }
        if now >= known.noted_until {
            known.noted_since = self.stores.clock.now();
        }
        known.noted_until = until.max(known.noted_until);
        Ok(known.noted_since)
    }

    /// Leaves to the projector the update that failed with `error`. The fact is stored, so the caller may respond as if
    /// the view had the change. Returns when the note has stood for as long as a process may rely on its last read.
    /// From then on no process uses the stale views, unless it cannot read the note.
    ///
    /// Fails if the note cannot be written: other processes may use the stale views for a moment. The caller must not
    /// report success.
    pub(crate) async fn instead(&self, error: &StoreError) -> Result<()> {
        warn!(error = error as &dyn std::error::Error, "could not update the views, the projector will update them");
        let since = self.note(Duration::ZERO).await?;
        let left = since.plus_ms(ms(LOOK_EVERY)).ms().saturating_sub(self.stores.clock.now().ms());
        if left > 0 {
            (self.stores.wait)(Duration::from_millis(left)).await;
        }
        Ok(())
    }

    /// Leaves an update of views to the projector if it has failed.
    pub(crate) async fn or_later(&self, shown: Result<()>) -> Result<()> {
        let Err(error) = shown else { return Ok(()) };
        self.instead(&error).await
    }

    /// Sends a task that has now failed `tries` times again with a delay, if it has had fewer than `most` attempts. A
    /// message that the queue redelivers would wait for the visibility timeout each time, and become a dead letter in a
    /// long outage.
    ///
    /// Returns false if no attempt is left or the queue does not accept the task, which the caller then gives back.
    pub(crate) async fn again(&self, task: &Task, tries: u8, most: u8) -> bool {
        if tries >= most {
            return false;
        }
        let pause = pause(task, tries);
        let noted = async {
            if task.is_missed_by_views() {
                self.extend_note(pause).await;
            }
        };
        futures::join!(noted, self.stores.queues.tasks.send_again(std::slice::from_ref(task), tries, pause)).1.is_ok()
    }

    /// Extends the note, because views are behind. Nothing was acknowledged here, so a failed write costs only that
    /// some responses come from a stale view.
    pub(crate) async fn extend_note(&self, pause: Duration) {
        logged!(self.note(pause).await, "could not extend the outage note: views may be stale for a moment");
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that was sent this often in an outage, for about four hours, is given back and becomes a dead letter.
pub(crate) const MOST_TRIES: u8 = u8::MAX;

/// The same for a page that the facts or the queue refuse, because the page may be the cause: about half a minute.
pub(crate) const FEW_TRIES: u8 = 8;

/// The delay of a task that has failed `tries` times: short at first, so that a view is right soon after a short
/// outage, and a minute in a long one. A page of a fan-out, which is more work, waits longer.
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

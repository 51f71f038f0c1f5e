//! What happens while Redis is unavailable, and until the views have what they missed.
//!
//! A change that cannot reach its view is left to a `sync` task. Until a worker has done that task, the view is stale, although Redis may be back already. Nobody who reads
//! the view can see that. So whoever leaves a change to a task also notes the outage among the facts, for a few seconds; workers that cannot do such a task, or do a late
//! one, prolong the note. Every process looks at the note once a second at most, and while it stands, answers come from the facts and are marked `Degraded`.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tracing::warn;

use crate::{
    domain::Timestamp,
    ports::{Clock, Outages, QueueError, Task, TaskQueue, ViewError},
};

/// How long a note stands: longer than a worker takes for a task that waits for nothing.
const STANDS: Duration = Duration::from_secs(3);

/// How often one process looks at the note, and writes it, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The note, as one process knows it. Clones share it.
#[derive(Clone)]
pub struct Outage {
    facts: Arc<dyn Outages>,
    clock: Arc<dyn Clock>,
    known: Arc<Mutex<Known>>,
}

#[derive(Clone, Copy, Default)]
struct Known {
    looked_at: Timestamp,
    noted_at: Timestamp,
    until: Timestamp,
}

impl Outage {
    /// Nothing is known yet.
    pub fn new(facts: Arc<dyn Outages>, clock: Arc<dyn Clock>) -> Self {
        Self { facts, clock, known: Arc::default() }
    }

    /// An error while views may lack changes that wait in a task. If the facts cannot say, none is known.
    ///
    /// # Errors
    /// The facts have to answer instead of the views.
    pub async fn check(&self) -> Result<(), ViewError> {
        let now = self.clock.now();
        let known = *self.known();
        let until = if now < known.until || now < known.looked_at.plus_ms(ms(LOOK_EVERY)) {
            known.until
        } else {
            self.known().looked_at = now;
            match self.facts.outage_until().await {
                Ok(until) => {
                    self.known().until = until;
                    until
                }
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "whether Redis had an outage could not be read");
                    known.until
                }
            }
        };
        let detail = || "views may lack changes of an outage that wait for a worker".into();
        if now < until { Err(ViewError::Unavailable { operation: "outage", source: detail() }) } else { Ok(()) }
    }

    /// Notes that a change waits in a task.
    pub async fn note(&self) {
        let now = self.clock.now();
        let until = now.plus_ms(ms(STANDS));
        {
            let mut known = self.known();
            if now < known.noted_at.plus_ms(ms(LOOK_EVERY)) {
                return;
            }
            known.noted_at = now;
            known.until = known.until.max(until);
        }
        if let Err(error) = self.facts.note_outage(until).await {
            warn!(
                error = &error as &dyn std::error::Error,
                "an outage of Redis could not be noted: views may be stale for a moment"
            );
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes that a worker brings into views later.
#[derive(Clone)]
pub struct Later {
    /// Tasks.
    pub queue: Arc<dyn TaskQueue>,
    /// The note that they wait.
    pub outage: Outage,
}

impl Later {
    /// Leaves views to a worker.
    ///
    /// # Errors
    /// The queue did not take a task.
    pub async fn sync(&self, tasks: &[Task]) -> Result<(), QueueError> {
        futures::join!(self.outage.note(), self.queue.send(tasks)).1
    }

    /// Leaves a task that failed to a later attempt of its own. A message that is received again and again would end among the dead letters of an outage that lasts.
    ///
    /// # Errors
    /// The queue did not take it: it has to be given back.
    pub async fn again(&self, task: &Task) -> Result<(), QueueError> {
        let Some((task, tries)) = task.tried_once_more().filter(|(_, tries)| *tries < MOST_TRIES) else {
            return Err(QueueError { detail: "not a task of a view, or tried too often".to_owned(), source: None });
        };
        let task = [task];
        futures::join!(self.outage.note(), self.queue.send_after(&task, pause(tries))).1
    }

    /// Whether other tasks of the same outage may still wait when this one is done: then the note stands on.
    pub async fn done(&self, task: &Task) {
        if task.tried_once_more().is_some_and(|(_, tries)| tries > 1) {
            self.outage.note().await;
        }
    }
}

/// Attempts of its own that a task has, four hours of them; then it is given back, and ends among the dead letters.
const MOST_TRIES: u8 = u8::MAX;

/// How long a task waits that failed so often: short at first, so that a view is right soon after a short outage, and a minute in a long one.
fn pause(tries: u8) -> Duration {
    Duration::from_secs(match tries {
        0..5 => 1,
        5..20 => 2,
        20..40 => 10,
        _ => 60,
    })
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

//! [`EventsOut`]: sends the events of stream records to the event bus.
//!
//! An event leaves after its fact, and after the views of its record: views do not wait for the bus. A record whose
//! events the bus does not accept is given back to its stream, so events are repeated and never lost. While the bus
//! accepts nothing, later records wait for [`PATIENCE`]. Then events go to the failure queue, as requests that an
//! operator can send, and the views continue.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::FutureExt;
use tidemark_domain::{Event, StoreError, Timestamp};
use tidemark_queue::{Cause, EventBus, EventEntry, Refusal, lag};
use tracing::{error, warn};

use crate::{Stores, metrics::Metric};

/// How long records wait for a bus that accepts no event.
const PATIENCE: Duration = Duration::from_secs(300);

/// Lambda sends records that are given back again within this time.
const REPEATED: Duration = Duration::from_secs(90);

/// An event of a stream record, which lacks the text of a post.
#[derive(Debug, Clone)]
pub struct PendingEvent {
    /// The index of its record in the batch.
    pub record: usize,
    /// The time of the change.
    pub at: Timestamp,
    pub event: Event,
}

/// Use case of the events that leave. Clones share what they know about the bus.
#[derive(Clone)]
pub struct EventsOut {
    stores: Arc<Stores>,
    /// The first and the last of the refusals of this process since the bus has accepted an event.
    silent: Arc<Mutex<Option<[Timestamp; 2]>>>,
}

impl EventsOut {
    pub fn new(stores: Arc<Stores>) -> Self {
        Self { stores, silent: Arc::default() }
    }

    /// Whether there is a bus. Without one, nobody reads events from records.
    pub fn has_bus(&self) -> bool {
        self.stores.queues.bus.is_some()
    }

    /// Sends events in the order of their records. Returns the records whose events must be sent again.
    pub async fn send(&self, pending: Vec<PendingEvent>) -> BTreeSet<usize> {
        let Some(bus) = self.stores.queues.bus.as_ref().filter(|_| !pending.is_empty()) else { return BTreeSet::new() };
        let times: BTreeMap<usize, Timestamp> = pending.iter().map(|pending| (pending.record, pending.at)).collect();
        let (events, mut left) = self.complete(pending).await;
        if events.is_empty() {
            return left;
        }
        let at = |record: &usize| times.get(record).copied().unwrap_or_default();
        let records: Vec<usize> = events.iter().map(|(record, _)| *record).collect();
        let entries: Vec<EventEntry> = events.iter().map(|(record, event)| EventEntry::new(event, at(record))).collect();
        let refused: BTreeMap<usize, Refusal> = bus.put(&entries).await.into_iter().collect();
        let stores = &self.stores;
        let now = stores.clock.now();
        for (_, entry) in entries.iter().enumerate().filter(|(index, _)| !refused.contains_key(index)) {
            stores.recorder.time(Metric::EventLag, lag(entry, now));
        }
        let accepts = refused.len() < entries.len();
        let is_hopeless = self.is_hopeless(accepts, now);
        if !refused.is_empty() {
            stores.recorder.count(Metric::EventsRefused, refused.len() as u64);
        }
        for (index, refusal) in refused {
            let (entry, record) = (&entries[index], records[index]);
            let is_final = match refusal.cause {
                Cause::Event => true,
                Cause::Unknown => accepts,
                Cause::Busy => false,
            };
            if is_final || is_hopeless {
                error!(id = entry.id, reason = refusal.reason, "an event is given up");
                if self.give_up(bus, entry).await {
                    continue;
                }
            } else if left.is_empty() {
                warn!(id = entry.id, reason = refusal.reason, "events are not sent");
            }
            left.insert(record);
        }
        left
    }

    /// Notes whether the bus accepts events. Returns whether it has accepted none for too long. A pause without events
    /// is no part of that time.
    fn is_hopeless(&self, accepts: bool, now: Timestamp) -> bool {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if accepts {
            *silent = None;
            return false;
        }
        let [since, _] = silent.filter(|[_, last]| last.plus_ms(REPEATED.as_millis() as u64) > now).unwrap_or([now; 2]);
        *silent = Some([since, now]);
        since.plus_ms(PATIENCE.as_millis() as u64) <= now
    }

    /// Sends an event to the failure queue. Returns whether it is there.
    async fn give_up(&self, bus: &EventBus, entry: &EventEntry) -> bool {
        let given_up = self.stores.queues.failures.give_up(&bus.as_request(entry)).await;
        logged!(given_up, "an event is not in the failure queue, and is sent again").is_some()
    }

    /// Returns the events, and the records that must be completed later. What no attempt can complete goes to the
    /// failure queue.
    async fn complete(&self, pending: Vec<PendingEvent>) -> (Vec<(usize, Event)>, BTreeSet<usize>) {
        let facts = &self.stores.facts;
        let pending: Vec<(usize, Event)> = pending.into_iter().map(|pending| (pending.record, pending.event)).collect();
        let error = match facts.completed_events(pending.clone()).boxed().await {
            Ok(events) => return (events, BTreeSet::new()),
            Err(error) => error,
        };
        if error.is_retryable() {
            warn!(error = &error as &dyn std::error::Error, "events are not completed");
            return (Vec::new(), pending.into_iter().map(|(record, _)| record).collect());
        }
        let (mut events, mut left) = (Vec::new(), BTreeSet::new());
        for event in pending {
            let record = event.0;
            match facts.completed_events(vec![event]).boxed().await {
                Ok(completed) => events.extend(completed),
                Err(error) if !error.is_retryable() && self.cannot_be_read(&error).await => {}
                Err(_) => _ = left.insert(record),
            }
        }
        (events, left)
    }

    /// Notes an event that no attempt can read. Returns whether the failure queue has the note.
    pub async fn cannot_be_read(&self, error: &StoreError) -> bool {
        error!(error = error as &dyn std::error::Error, "an event is given up");
        let note = match error {
            StoreError::DamagedItem { table, key, .. } => format!("no event, because an item is damaged: {table} {key}"),
            other => format!("no event: {other}"),
        };
        logged!(self.stores.queues.failures.give_up(&note).await, "a damaged item is not in the failure queue").is_some()
    }
}

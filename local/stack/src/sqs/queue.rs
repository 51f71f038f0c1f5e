//! One standard queue's messages: waiting, delayed and in flight.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    time::Duration,
};

use rustack_sqs_core::message::generate_receipt_handle;
use rustack_sqs_model::types::MessageAttributeValue;
use tokio::time::Instant;

use crate::{clock, template::Queue};

#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) body: String,
    pub(crate) attributes: HashMap<String, MessageAttributeValue>,
    pub(crate) group: Option<String>,
    pub(crate) sent_ms: u64,
    /// The time of the first possible receive. Equals `sent_ms` unless the message was sent with a delay.
    pub(crate) due_ms: u64,
    pub(crate) receives: u32,
    pub(crate) first_received_ms: Option<u64>,
    /// In a dead-letter queue, the ARN of the queue that the message comes from.
    pub(crate) dead_letter_source: Option<String>,
    /// The handle of the latest receive.
    pub(crate) handle: String,
    pub(crate) returns: Returns,
}

/// The rule that decides when a message in flight returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Returns {
    /// The receive set the time. The receiver may still be at work.
    #[default]
    AsReceived,
    /// The receiver set another time.
    AsAsked,
    AfterFailure,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Messages that can be received now.
    pub visible: usize,
    /// Messages received and neither deleted nor visible again.
    pub in_flight: usize,
    /// Messages whose delay has not passed.
    pub delayed: usize,
}

impl Counts {
    /// Returns true if the queue has no messages of any kind.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The result of one attempt to receive.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) messages: Vec<Message>,
    /// Messages that have reached the largest number of receives.
    pub(super) dead: Vec<Message>,
    /// Ids of messages older than the retention period.
    pub(super) expired: Vec<String>,
    /// True if more messages are visible.
    pub(super) more: bool,
}

/// Visible messages. Groups take turns, so a burst of one sender does not delay the others (SQS calls this a fair
/// queue). A message without a group is a group of its own, so a queue without groups is first in, first out.
#[derive(Debug, Default)]
struct Visible {
    turns: VecDeque<String>,
    groups: HashMap<String, VecDeque<Message>>,
    count: usize,
}

impl Visible {
    fn push(&mut self, message: Message) {
        let group = message.group.as_ref().map_or_else(|| format!("\u{0}{}", message.id), Clone::clone);
        let members = self.groups.entry(group.clone()).or_default();
        if members.is_empty() {
            self.turns.push_back(group);
        }
        members.push_back(message);
        self.count += 1;
    }

    fn pop(&mut self) -> Option<Message> {
        let group = self.turns.pop_front()?;
        let members = self.groups.get_mut(&group)?;
        let message = members.pop_front();
        if members.is_empty() {
            self.groups.remove(&group);
        } else {
            self.turns.push_back(group);
        }
        self.count -= usize::from(message.is_some());
        message
    }

    fn remove(&mut self, id: &str, handle: &str) -> bool {
        for (group, members) in &mut self.groups {
            if let Some(index) = members.iter().position(|m| m.id == id && m.handle == handle) {
                members.remove(index);
                self.count -= 1;
                if members.is_empty() {
                    let group = group.clone();
                    self.groups.remove(&group);
                    self.turns.retain(|turn| *turn != group);
                }
                return true;
            }
        }
        false
    }
}

#[derive(Debug, Default)]
pub(super) struct Messages {
    visible: Visible,
    delayed: BTreeMap<(Instant, u64), Message>,
    in_flight: HashMap<String, (Instant, Message)>,
    deadlines: BTreeSet<(Instant, String)>,
    counter: u64,
}

impl Messages {
    pub(super) fn put(&mut self, message: Message) {
        let wait = message.due_ms.saturating_sub(clock::now_ms());
        if wait == 0 {
            self.visible.push(message);
        } else {
            self.counter += 1;
            self.delayed.insert((Instant::now() + Duration::from_millis(wait), self.counter), message);
        }
    }

    /// Makes due messages visible.
    fn promote(&mut self) {
        let now = Instant::now();
        while let Some(entry) = self.delayed.first_entry().filter(|entry| entry.key().0 <= now) {
            self.visible.push(entry.remove());
        }
        while let Some((_, id)) = self.deadlines.first().filter(|(at, _)| *at <= now).cloned() {
            if let Some(message) = self.end_flight(&id) {
                self.visible.push(message);
            }
        }
    }

    fn end_flight(&mut self, id: &str) -> Option<Message> {
        let (at, message) = self.in_flight.remove(id)?;
        self.deadlines.remove(&(at, id.to_owned()));
        Some(message)
    }

    /// Takes up to `most` messages. For each, `reorder` gets the number of groups and returns how many to skip.
    pub(super) fn take(&mut self, queue: &Queue, most: usize, visibility: Duration, reorder: impl Fn(usize) -> usize) -> Taken {
        self.promote();
        let mut taken = Taken::default();
        let now_ms = clock::now_ms();
        while taken.messages.len() < most {
            let turns = &mut self.visible.turns;
            turns.rotate_left(reorder(turns.len()).min(turns.len()));
            let Some(mut message) = self.visible.pop() else { break };
            if message.sent_ms + u64::from(queue.retention_seconds) * 1_000 < now_ms {
                taken.expired.push(message.id);
                continue;
            }
            if queue.redrive.as_ref().is_some_and(|redrive| message.receives >= redrive.max_receives) {
                taken.dead.push(message);
                continue;
            }
            message.receives += 1;
            message.first_received_ms.get_or_insert(now_ms);
            message.handle = generate_receipt_handle(&message.id);
            message.returns = Returns::AsReceived;
            self.hide(message.clone(), visibility);
            taken.messages.push(message);
        }
        taken.more = self.visible.count > 0;
        taken
    }

    /// Removes the message of `handle`, unless it has been received again since.
    pub(super) fn delete(&mut self, id: &str, handle: &str) -> bool {
        if self.in_flight.get(id).is_some_and(|(_, message)| message.handle == handle) {
            return self.end_flight(id).is_some();
        }
        self.visible.remove(id, handle)
    }

    /// Hides a message in flight for `visibility` from now. Returns false if it is not in flight under this handle.
    pub(super) fn set_visibility(&mut self, id: &str, handle: &str, visibility: Duration) -> bool {
        self.promote();
        if self.in_flight.get(id).is_none_or(|(_, message)| message.handle != handle) {
            return false;
        }
        let Some(mut message) = self.end_flight(id) else { return false };
        message.returns = Returns::AsAsked;
        self.fly(message, visibility);
        true
    }

    fn fly(&mut self, message: Message, visibility: Duration) {
        if visibility.is_zero() { self.visible.push(message) } else { self.hide(message, visibility) }
    }

    fn hide(&mut self, message: Message, visibility: Duration) {
        let until = Instant::now() + visibility;
        self.deadlines.insert((until, message.id.clone()));
        self.in_flight.insert(message.id.clone(), (until, message));
    }

    /// Notes that the receiver of a message has failed. A delay that the receiver set applies. Otherwise the message
    /// returns after `delay`, or at the time that its receive set if `delay` is `None`.
    pub(super) fn failed(&mut self, id: &str, handle: &str, delay: Option<Duration>) {
        self.promote();
        let Some((until, message)) = self.in_flight.get_mut(id).filter(|(_, message)| message.handle == handle) else { return };
        if message.returns == Returns::AsAsked {
            return;
        }
        message.returns = Returns::AfterFailure;
        let Some(delay) = delay.filter(|delay| Instant::now() + *delay < *until) else { return };
        if let Some(message) = self.end_flight(id) {
            self.fly(message, delay);
        }
    }

    /// Makes messages of failed receivers return after `delay`.
    pub(super) fn hasten(&mut self, delay: Duration) {
        self.promote();
        let failed = self.in_flight.values().filter(|(_, message)| message.returns == Returns::AfterFailure);
        let failed: Vec<(String, String)> = failed.map(|(_, message)| (message.id.clone(), message.handle.clone())).collect();
        for (id, handle) in failed {
            self.failed(&id, &handle, Some(delay));
        }
    }

    pub(super) fn counts(&mut self) -> Counts {
        self.promote();
        Counts { visible: self.visible.count, in_flight: self.in_flight.len(), delayed: self.delayed.len() }
    }

    /// The time at which the next hidden or delayed message becomes visible.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let delayed = self.delayed.keys().next().map(|(at, _)| *at);
        let returning = self.deadlines.first().map(|(at, _)| *at);
        delayed.into_iter().chain(returning).min()
    }

    /// Removes and returns all messages, in any state.
    pub(super) fn drain(&mut self) -> Vec<Message> {
        let mut all: Vec<Message> = std::iter::from_fn(|| self.visible.pop()).collect();
        all.extend(std::mem::take(&mut self.delayed).into_values());
        all.extend(std::mem::take(&mut self.in_flight).into_values().map(|(_, message)| message));
        self.deadlines.clear();
        all
    }
}

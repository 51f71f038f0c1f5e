//! [`Inboxes`]: groups of acts of other users that concern a user.
//!
//! The projector derives a group from the facts of its acts when one of them has changed ([`Inboxes::changed`]). A
//! group is written at most once in a pause, which is a second or longer ([`pause`]), also if many invocations of the
//! projector see its acts:
//!
//! 1. A derivation first sends a [`Task::Group`] that is delayed by the pause, then writes the group on the condition
//!    that no other derivation has been written since, with the time at which it has read all acts.
//! 2. An act that finds the pause of a group is left to that task, which has not begun.
//! 3. The task derives the group again. If nothing has changed, it writes nothing, and that is all. So it also finds
//!    what a derivation has missed whose facts were older than those of another that had nothing to write.
//!
//! Nothing is lost if a process ends: a record of a stream and a task are repeated until their group is derived. Redis
//! has no part in this. An unread count is a property of stored groups ([`tidemark_domain::Inbox`]).

mod derive;
mod wrong;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tidemark_domain::{
    Group, GroupId, GroupKind, GroupPlace, IdempotencyKey, PostId, Reaction, ShownGroup, Timestamp, UserId, store::Result,
};
use tidemark_facts::{Hiding, StoredGroup, group_of};
use tidemark_queue::Task;
use tracing::{info, warn};

use crate::{
    Stores, cut,
    live::notify,
    once::{Begun, Once},
    reader::Status,
};

/// The pause after a write of a group, if its acts have a counter or are few. The longest is the longest delay of a
/// task.
const LEAST_PAUSE: Duration = Duration::from_secs(1);
const MOST_PAUSE: Duration = Duration::from_secs(900);

/// The pause is a millisecond for so many entries that the derivation has read. So a group costs some 1,000 read units
/// a second for each invocation that works on it.
const READ_PER_MS: u64 = 40;

/// An act relies on a task only if that begins later than this, whatever the clocks of two processes say.
const CLOCKS: Duration = Duration::from_millis(100);

/// The newest acts of a user of each kind whose groups are derived after a block, besides the groups that exist.
const NEWEST_ACTS: usize = 1_000;

/// The quotes of an author's posts among which those of one user are looked for.
const MOST_QUOTES: usize = 10_000;

/// One of so many new groups is followed by a look for groups that are too many, and so many are removed at once. Those
/// of the last minute stay: their task would make them again.
const TRIMMED_OF: u64 = 16;
const MOST_TRIMMED: usize = 100;
const NEW_FOR: Duration = Duration::from_secs(60);

/// A page of an inbox.
#[derive(Debug)]
pub struct InboxPage {
    pub items: Vec<ShownGroup>,
    pub next: Option<GroupPlace>,
    /// The unread groups of the whole inbox.
    pub unread: u64,
}

/// Use cases of inboxes. Clones share the stores.
#[derive(Clone)]
pub struct Inboxes {
    stores: Arc<Stores>,
}

/// Why a group is derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// An act has begun or ended. A task that follows a write has the version that was written.
    Act { after: Option<u32> },
    /// The block or mute of this user and the group's user has begun or ended.
    Apart(UserId),
    /// Reconcile has found the group wrong. What is stored of it may not be true.
    Wrong,
}

impl Inboxes {
    pub fn new(stores: Arc<Stores>) -> Self {
        Self { stores }
    }

    /// Returns at most `limit` groups with this status below a place, newest act first.
    pub async fn page(&self, user: UserId, status: Status, below: Option<GroupPlace>, limit: usize) -> Result<InboxPage> {
        let mut items = self.shown(user).await?;
        let unread = unread_of(&items);
        items.retain(|group| (status == Status::All || group.unread) && below.is_none_or(|below| group.place() < below));
        let next = cut(&mut items, limit).map(|last| last.place());
        Ok(InboxPage { items, next, unread })
    }

    /// Returns the number of the user's unread groups.
    pub async fn unread(&self, user: UserId) -> Result<u64> {
        Ok(unread_of(&self.shown(user).await?))
    }

    async fn shown(&self, user: UserId) -> Result<Vec<ShownGroup>> {
        Ok(self.stores.facts.inbox(user).await?.inbox.shown(self.stores.clock.now()))
    }

    /// Marks the acts of a group read, up to the time of the request's first attempt. Returns the number of unread
    /// groups after it; `None` if there is no such group.
    pub async fn read(&self, user: UserId, id: GroupId, key: Option<&IdempotencyKey>) -> Result<Option<Once<u64>>> {
        let now = self.stores.clock.now();
        let attempt = match self.stores.begin(user, "read-group", key, vec![now.ms()]).await? {
            Begun::Attempt(attempt) => attempt,
            Begun::Answered(answer) => return Ok(Some(Once::Done(answer.first().copied().unwrap_or_default()))),
            Begun::KeyReused => return Ok(Some(Once::KeyReused)),
        };
        let at = attempt.bound.first().copied().map_or(now, Timestamp::from_ms);
        if !self.stores.facts.read_group(user, id, at).await? {
            return Ok(None);
        }
        self.finish_read(user, &attempt).await.map(Some)
    }

    /// Marks all acts up to `before` read, at most up to the time of the request's first attempt. Returns the number of
    /// unread groups after it.
    pub async fn read_before(&self, user: UserId, before: Timestamp, key: Option<&IdempotencyKey>) -> Result<Once<u64>> {
        let before = before.min(self.stores.clock.now());
        let attempt = match self.stores.begin(user, "read-inbox", key, vec![before.ms()]).await? {
            Begun::Attempt(attempt) => attempt,
            Begun::Answered(answer) => return Ok(Once::Done(answer.first().copied().unwrap_or_default())),
            Begun::KeyReused => return Ok(Once::KeyReused),
        };
        let before = attempt.bound.first().copied().map_or(before, Timestamp::from_ms);
        self.stores.facts.read_inbox(user, before).await?;
        self.finish_read(user, &attempt).await
    }

    async fn finish_read(&self, user: UserId, attempt: &crate::once::Attempt) -> Result<Once<u64>> {
        let unread = self.unread(user).await?;
        let answer = self.stores.finish(attempt, vec![unread]).await?;
        notify(&self.stores, &[user], None).await;
        Ok(Once::Done(answer.first().copied().unwrap_or(unread)))
    }

    /// Derives a group after an act has begun or ended. May be repeated.
    pub(crate) async fn changed(&self, user: UserId, id: GroupId) -> Result<()> {
        self.bring(user, id, Cause::Act { after: None }).await
    }

    /// Runs a [`Task::Group`].
    pub(crate) async fn run(&self, user: UserId, id: GroupId, other: Option<UserId>, version: Option<u32>) -> Result<()> {
        self.bring(user, id, other.map_or(Cause::Act { after: version }, Cause::Apart)).await
    }

    /// Derives a group that reconcile has found wrong.
    pub async fn derive_anew(&self, user: UserId, id: GroupId) -> Result<()> {
        self.bring(user, id, Cause::Wrong).await
    }

    /// Has workers derive groups after a writer of the lists of followers or requests that no stream shows.
    pub async fn listed(&self, author: UserId, ids: impl IntoIterator<Item = GroupId>) -> Result<()> {
        let task = |id| Task::Group { user: author, id, other: None, version: None };
        self.send(Duration::ZERO, ids.into_iter().map(task)).await
    }

    /// Has workers derive the groups of a user that have acts of another, after a mute or a block between the two has
    /// begun or ended. May be repeated.
    pub(crate) async fn apart(&self, user: UserId, other: UserId, by: Hiding) -> Result<()> {
        let ids = self.groups_with(user, other, by).await?;
        let task = |id| Task::Group { user, id, other: Some(other), version: None };
        self.send(Duration::ZERO, ids.into_iter().map(task)).await
    }

    /// The groups of a user that may have acts of another: all that exist. The end of a block may bring others back, of
    /// which these are the newest.
    async fn groups_with(&self, user: UserId, other: UserId, by: Hiding) -> Result<BTreeSet<GroupId>> {
        let (facts, others) = (&self.stores.facts, [other]);
        let stored = facts.inbox(user).await?;
        let existing: BTreeSet<GroupId> = stored.inbox.groups.iter().map(|group| group.id).chain(stored.damaged).collect();
        let of_kind = |kind: GroupKind| existing.iter().filter(move |id| id.kind() == kind).filter_map(|id| id.post(user));
        let reposted: Vec<(UserId, PostId)> = of_kind(GroupKind::Repost).map(|post| (other, post)).collect();
        let commented: Vec<(UserId, PostId)> = of_kind(GroupKind::Comment).map(|post| (other, post)).collect();
        let newest = match by {
            Hiding::Mute => 0,
            Hiding::Block => NEWEST_ACTS,
        };
        let (mut given, of_other, own, reposted, commented, quoted, acts) = futures::try_join!(
            facts.reactors(user, &others),
            facts.readable_edge(other, user),
            facts.readable_edge(user, other),
            facts.reposting(&reposted),
            facts.commenting(&commented),
            facts.quoted_by(other, user, MOST_QUOTES),
            facts.newest_acts_of(other, user, newest)
        )?;
        let mut ids = acts;
        let given = given.remove(&other).unwrap_or_default();
        for reaction in Reaction::ALL {
            let seqs: Vec<u64> = given.of(reaction).iter().collect();
            ids.extend(seqs.iter().rev().take(newest).map(|seq| group_of(reaction, *seq)));
            ids.extend(seqs.iter().map(|seq| group_of(reaction, *seq)).filter(|id| existing.contains(id)));
        }
        if let Some(edge) = of_other {
            ids.extend(edge.following.then(|| GroupId::follow(edge.since)));
            ids.extend(edge.requested.map(|_| GroupId::REQUEST));
        }
        ids.extend(own.filter(|edge| edge.accepted).map(|edge| GroupId::accepted(edge.since)));
        ids.extend(reposted.into_iter().map(|(_, post)| GroupId::of_post(GroupKind::Repost, post.seq)));
        ids.extend(commented.into_iter().map(|(_, post)| GroupId::of_post(GroupKind::Comment, post.seq)));
        let quoted = quoted.into_iter().map(|seq| GroupId::of_post(GroupKind::Quote, seq));
        ids.extend(quoted.filter(|id| by == Hiding::Block || existing.contains(id)));
        Ok(ids)
    }

    /// Derives a group, and writes it if it has changed.
    async fn bring(&self, user: UserId, id: GroupId, cause: Cause) -> Result<()> {
        let stores = &self.stores;
        if cause != Cause::Wrong && id.is_over(stores.clock.now()) {
            // A follow of an import, or the end of an old one.
            return Ok(());
        }
        let mut attempts = stores.attempts("group");
        loop {
            attempts.next().await?;
            let before = stores.facts.group(user, id).await?;
            let known = match &before {
                StoredGroup::Present(group) => group.clone(),
                StoredGroup::Absent | StoredGroup::Damaged => Group::new(id),
            };
            let ends_pause = cause == Cause::Wrong || cause == Cause::Act { after: Some(known.version) };
            if let Some(left) = self.left_of_pause(&known).filter(|_| !ends_pause) {
                match cause {
                    // The task that ends the pause does not know the other user.
                    Cause::Apart(other) if left > CLOCKS => {
                        return self.send(left, [Task::Group { user, id, other: Some(other), version: None }]).await;
                    }
                    // The task that ends the pause has not begun.
                    _ if left > CLOCKS => return Ok(()),
                    _ => (stores.wait)(left).await,
                }
            }
            let derived = self.derive(user, &known, cause).await?;
            // The pause begins now. A derivation longer than its pause would otherwise be followed by the next at once.
            let now = stores.clock.now();
            let after = Group { version: known.version + 1, written_at: now, ..derived };
            let then = |version| [Task::Group { user, id, other: None, version: Some(version) }];
            let is_of_stream = cause == Cause::Act { after: None };
            // The pause of many acts begins even if two of them have changed nothing together.
            let is_same = after.has_same_acts(&known) && !(is_of_stream && pause(&after) > LEAST_PAUSE);
            if is_same && !matches!(before, StoredGroup::Damaged) {
                // A list may show an act later than the pair of which the record is.
                let may_be_late = is_of_stream && matches!(id.kind(), GroupKind::Follow | GroupKind::Request);
                return if may_be_late { self.send(LEAST_PAUSE, then(known.version)).await } else { Ok(()) };
            }
            self.send(pause(&after), then(after.version)).await?;
            if !stores.facts.put_group(user, &before, &after, now).await? {
                // Another derivation was first, or the user has read the group.
                continue;
            }
            if self.left_of_pause(&after).is_none_or(|left| left <= CLOCKS) {
                // The task may have begun before the write.
                self.send(pause(&after), then(after.version)).await?;
            }
            self.written(user, &known, &after).await;
            return Ok(());
        }
    }

    /// What is left of the pause after the last write of a group; `None` if it is over. A clock that was ahead has
    /// written a time that counts as over.
    fn left_of_pause(&self, group: &Group) -> Option<Duration> {
        let now = self.stores.clock.now();
        let end = group.written_at.plus_ms(pause(group).as_millis() as u64);
        let is_ahead = group.written_at > now.plus_ms(LEAST_PAUSE.as_millis() as u64);
        (end > now && !is_ahead).then(|| Duration::from_millis(end.ms() - now.ms()))
    }

    async fn send(&self, delay: Duration, tasks: impl IntoIterator<Item = Task>) -> Result<()> {
        let tasks: Vec<Task> = tasks.into_iter().collect();
        self.stores.queues.tasks.send_after(&tasks, delay).await
    }

    /// Tells the user's connections, and removes groups that are too many. Failures are logged: the next ping, and the
    /// next new group, make up for them.
    async fn written(&self, user: UserId, before: &Group, after: &Group) {
        let heard = |group: &Group| group.acts.as_ref().and_then(|acts| acts.heard_at);
        if heard(before) != heard(after) {
            notify(&self.stores, &[user], None).await;
        }
        if before.acts.is_none() && after.acts.is_some() && (self.stores.random)().is_multiple_of(TRIMMED_OF) {
            logged!(self.trim(user).await, "groups of an inbox are too many", %user);
        }
    }

    /// Removes the acts of the groups that are too old or too many, which the inbox does not show.
    async fn trim(&self, user: UserId) -> Result<()> {
        let (now, stored) = (self.stores.clock.now(), self.stores.facts.inbox(user).await?);
        let is_settled = |group: &Group| group.written_at.plus_ms(NEW_FOR.as_millis() as u64) < now;
        let trimmed = stored.inbox.trimmed(now).into_iter().filter(|(group, _)| is_settled(group));
        let trimmed: Vec<(&Group, Group)> = trimmed.take(MOST_TRIMMED).collect();
        for (group, rest) in &trimmed {
            let rest = Group { version: group.version + 1, ..rest.clone() };
            // A group that has changed meanwhile stays.
            self.stores.facts.put_group(user, &StoredGroup::Present((*group).clone()), &rest, now).await?;
        }
        if !trimmed.is_empty() {
            info!(%user, groups = trimmed.len(), "groups beyond the most of an inbox are removed");
        }
        if !stored.damaged.is_empty() {
            warn!(%user, groups = stored.damaged.len(), "groups of an inbox cannot be read");
        }
        Ok(())
    }
}

/// The time for which a group is left as it is after a write.
fn pause(group: &Group) -> Duration {
    Duration::from_millis(group.entries / READ_PER_MS).clamp(LEAST_PAUSE, MOST_PAUSE)
}

fn unread_of(groups: &[ShownGroup]) -> u64 {
    groups.iter().filter(|group| group.unread).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_pauses_longer_the_more_entries_were_read() {
        let of = |entries| pause(&Group { entries, ..Group::new(GroupId::REQUEST) }).as_millis();
        assert_eq!([0, 40_000, 400_000, u64::MAX].map(of), [1_000, 1_000, 10_000, 900_000]);
    }
}

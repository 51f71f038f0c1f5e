//! What reconcile looks for: groups that are not what their acts imply.

use std::collections::BTreeSet;

use futures::FutureExt;
use tidemark_domain::{
    Group, GroupId, GroupPlace, Relation, RequestSide, Timestamp, UserId,
    ids::SHARDS,
    inbox::{GROUP_LIFETIME_MS, MOST_GROUPS},
    store::Result,
};
use tracing::warn;

use super::{Cause, Inboxes};
use crate::in_parallel;

/// The groups that are derived in one look, and the posts with reactions that are listed of each shard for it.
const MOST_LOOKED_AT: usize = 200;
const MOST_POSTS: usize = 10_000;

/// The days of follows and acceptances that may have a group.
const DAYS: usize = 91;

impl Inboxes {
    /// Returns the groups of a user that cannot be read, differ from what their acts imply, are missing, or have no
    /// acts. Each has the version that was looked at. If a user has more groups than a look derives, `day` decides
    /// which.
    ///
    /// Groups that the inbox does not show, because they are too old or too many, are none of them. So what is trimmed
    /// stays away.
    pub async fn wrong_groups(&self, user: UserId, day: u64) -> Result<Vec<(GroupId, u32)>> {
        let (facts, now) = (&self.stores.facts, self.stores.clock.now());
        let stored = facts.inbox(user).await?;
        let left: BTreeSet<GroupId> = stored.inbox.beyond(now).into_iter().map(|group| group.id).collect();
        let known = stored.inbox.groups;
        let mut places: Vec<GroupPlace> =
            known.iter().filter(|group| !left.contains(&group.id)).filter_map(Group::place).collect();
        places.sort_unstable_by(|a, b| b.cmp(a));
        let oldest = places.get(MOST_GROUPS - 1).copied();
        let mut ids: BTreeSet<GroupId> = self.implied(user, now).await?;
        ids.retain(|id| !stored.damaged.contains(id));
        ids.extend(known.iter().map(|group| group.id));
        // A task derives those of the last moments again.
        known.iter().filter(|group| self.left_of_pause(group).is_some()).for_each(|group| _ = ids.remove(&group.id));
        let mut ids: Vec<GroupId> = ids.into_iter().collect();
        if !ids.is_empty() {
            let first = (day as usize).wrapping_mul(MOST_LOOKED_AT) % ids.len();
            ids.rotate_left(first);
            ids.truncate(MOST_LOOKED_AT);
        }
        let look = |id: GroupId| {
            let group = known.iter().find(|group| group.id == id).cloned();
            async move {
                let derived = self.derive(user, &group.clone().unwrap_or_else(|| Group::new(id)), Cause::Wrong).await;
                (id, group, derived)
            }
            .boxed()
        };
        let mut wrong: Vec<(GroupId, u32)> = stored.damaged.into_iter().map(|id| (id, 0)).collect();
        for (id, group, derived) in in_parallel(ids.into_iter().map(look).collect()).await {
            let derived = match derived {
                Ok(derived) => derived,
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => {
                    warn!(%user, %id, error = &error as &dyn std::error::Error, "a group cannot be derived");
                    continue;
                }
            };
            let (version, acts) = group.map_or((0, None), |group| (group.version, group.acts));
            let belongs = derived.place().is_some_and(|place| oldest.is_none_or(|oldest| place >= oldest));
            // A group that the inbox does not show is wrong only if it should.
            let is_shown = acts.is_some() && !left.contains(&id);
            if acts != derived.acts && (is_shown || belongs) {
                wrong.push((id, version));
            }
        }
        Ok(wrong)
    }

    /// The groups that the facts imply, and others: posts whose reactions may be too old.
    async fn implied(&self, user: UserId, now: Timestamp) -> Result<BTreeSet<GroupId>> {
        let facts = &self.stores.facts;
        let mut ids = BTreeSet::new();
        let reacted = futures::future::try_join_all((0..SHARDS).map(|shard| facts.acted_on(user, shard, MOST_POSTS)));
        let (requests, following, mut newest, reacted) = futures::try_join!(
            facts.requests(user, RequestSide::Received, None, 1),
            facts.following(user),
            facts.followers_by_time(user, None, 1),
            reacted
        )?;
        if !requests.is_empty() {
            ids.insert(GroupId::REQUEST);
        }
        let oldest = Timestamp::from_ms(now.ms().saturating_sub(GROUP_LIFETIME_MS));
        let accepted = following.into_iter().filter(|edge| edge.accepted && edge.since > oldest);
        ids.extend(accepted.map(|edge| GroupId::accepted(edge.since)));
        // The newest follow of each day, from day to day.
        for _ in 0..DAYS {
            let Some(follow) = newest.pop().filter(|follow| follow.since > oldest) else { break };
            let id = GroupId::follow(follow.since);
            ids.insert(id);
            let before = Relation { since: id.day()[0], user: UserId::MIN };
            newest = facts.followers_by_time(user, Some(before), 1).await?;
        }
        ids.extend(reacted.into_iter().flatten());
        Ok(ids)
    }
}

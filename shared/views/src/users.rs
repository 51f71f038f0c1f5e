//! Calls of one function for many users.

use redis::{FromRedisValue, ToRedisArgs};
use redis_link::{Bundle, Consistency};
use tidemark_domain::{StoreError, UserId};
use tracing::warn;

use crate::{
    Function, Result,
    connection::{Views, fcall},
    keys::View,
};

/// Users in one script call. With fewer, readers wait less, and the fixed part of a call costs more.
pub const USERS_PER_CALL: usize = 35;

/// This many damaged views of one page of followers are deleted in any case. More are deleted if they are the minority.
const MOST_DAMAGED: usize = 5;

impl Views {
    /// Calls a script for some users, at most `per_call` users in each call, one call after another, so that readers
    /// are served in between. The users should be in bucket order. Returns the response to each call, with its users.
    ///
    /// If a script cannot decode the values of some users, their views are deleted, and they are left out.
    ///
    /// # Errors
    /// At least one call failed. Others may have run, and their responses are lost, so the caller repeats all users.
    pub(crate) async fn for_users<'a, T: FromRedisValue>(
        &self,
        function: Function,
        (users, per_call): (&'a [UserId], usize),
        keys_of: impl Fn(UserId) -> Vec<String>,
        args: &(impl ToRedisArgs + Sync),
    ) -> Result<Vec<(&'a [UserId], T)>> {
        // One user may wait for the call.
        let is_bulk = users.len() > 1;
        let call = |users: &[UserId]| {
            let keys: Vec<String> = users.iter().flat_map(|&user| keys_of(user)).collect();
            // Any full call is as much work as a full delivery.
            let bulk = is_bulk.then_some((users.len() * USERS_PER_CALL).div_ceil(per_call));
            Bundle { commands: vec![fcall(function, &keys, args)], consistency: Consistency::Strong, bulk }
        };
        // On a cluster, one call serves users of one bucket, because they share a slot.
        let parts: Vec<&[UserId]> = match self.link.is_one_node() {
            true => users.chunks(per_call).collect(),
            false => users.chunk_by(|a, b| a.bucket() == b.bucket()).flat_map(|users| users.chunks(per_call)).collect(),
        };
        let (mut responses, mut suspects, mut damaged) = (Vec::new(), Vec::new(), Vec::new());
        for (users, response) in self.in_turn(function, parts, &call).await {
            match response {
                // `notify` reads no value that could be damaged.
                Err(StoreError::DamagedView { .. }) if function != Function::Notify => suspects.extend(users.chunks(1)),
                response => responses.push((users, response?)),
            }
        }
        if suspects.is_empty() {
            return Ok(responses);
        }
        for (users, response) in self.in_turn(function, suspects, &call).await {
            match response {
                Err(error @ StoreError::DamagedView { .. }) => damaged.push((users[0], error)),
                response => responses.push((users, response?)),
            }
        }
        let healthy = responses.iter().map(|(users, _)| users.len()).sum();
        self.drop_damaged(damaged, healthy).await.map(|()| responses)
    }

    /// Calls a script for parts of users: in turn on one node, until Redis is unavailable; in parallel on a cluster.
    async fn in_turn<'a, T: FromRedisValue>(
        &self,
        function: Function,
        parts: Vec<&'a [UserId]>,
        call: impl Fn(&[UserId]) -> Bundle,
    ) -> Vec<(&'a [UserId], Result<T>)> {
        let name = function.source_name();
        if !self.link.is_one_node() {
            let results = self.results(name, parts.iter().map(|users| call(users)).collect()).await;
            return parts.into_iter().zip(results).map(|(users, result)| (users, result.map(|(value, _)| value))).collect();
        }
        let mut results = Vec::new();
        for users in parts {
            let result = self.query(name, call(users)).await;
            let is_last = result.as_ref().is_err_and(StoreError::is_retryable);
            results.push((users, result));
            if is_last {
                break;
            }
        }
        results
    }

    /// Deletes the views of these users. If they are the majority, and many, the script may be wrong: returns an error.
    async fn drop_damaged(&self, mut damaged: Vec<(UserId, StoreError)>, healthy: usize) -> Result<()> {
        if damaged.len() > healthy.max(MOST_DAMAGED)
            && let Some((_, error)) = damaged.pop()
        {
            return Err(error);
        }
        let views: Vec<View> = damaged.iter().map(|(user, _)| View::Reader(*user)).collect();
        self.clear(&views).await?;
        for (user, error) in damaged {
            warn!(%user, error = &error as &dyn std::error::Error, "a damaged view was deleted");
        }
        Ok(())
    }
}

/// The users at positions, which begin at 1, of a call's users.
pub(crate) fn at_positions(users: &[UserId], positions: Vec<usize>) -> impl Iterator<Item = UserId> {
    positions.into_iter().filter_map(|position| users.get(position.checked_sub(1)?).copied())
}

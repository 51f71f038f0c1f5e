//! Calls of one function for many users.

use redis::FromRedisValue;
use redis_link::{Bundle, Consistency};
use tidemark_app::ports::StoreError;
use tidemark_domain::UserId;

use crate::{
    connection::{Arg, Redis, fcall},
    library::Function,
};

/// Users in one script call. A reader waits for the call in progress, so fewer users delay readers less, and cost the
/// fixed part of a call more often.
pub const USERS_PER_CALL: usize = 35;

impl Redis {
    /// Calls a script for some users, at most `per_call` users in each call, one call after another, so that readers
    /// are served in between. The users should be in bucket order. Returns the response to each call, with its users.
    ///
    /// For one user it is no bulk work, because that user may wait for it.
    ///
    /// # Errors
    /// At least one call failed. Others may have run, and their responses are lost, so the caller repeats all users.
    pub(crate) async fn for_users<'a, T: FromRedisValue>(
        &self,
        function: Function,
        (users, per_call): (&'a [UserId], usize),
        keys_of: impl Fn(UserId) -> Vec<String>,
        args: &[Arg],
    ) -> Result<Vec<(&'a [UserId], T)>, StoreError> {
        let is_bulk = users.len() > 1;
        let call = |users: &[UserId]| {
            let keys: Vec<String> = users.iter().flat_map(|&user| keys_of(user)).collect();
            // Any full call is as much work as a full delivery.
            let bulk = is_bulk.then_some((users.len() * USERS_PER_CALL).div_ceil(per_call));
            Bundle { commands: vec![fcall(function, &keys, args)], consistency: Consistency::Strong, bulk }
        };
        if self.is_one_node() {
            let mut responses = Vec::new();
            for users in users.chunks(per_call) {
                responses.push((users, self.query(function.source_name(), call(users)).await?));
            }
            return Ok(responses);
        }
        // One call serves users of one bucket, because they share a slot. The nodes run their calls in parallel, each
        // some at a time.
        let parts: Vec<&[UserId]> =
            users.chunk_by(|a, b| a.bucket() == b.bucket()).flat_map(|users| users.chunks(per_call)).collect();
        let calls = parts.iter().map(|users| call(users));
        let responses = self.each(function.source_name(), calls.collect()).await?;
        Ok(parts.into_iter().zip(responses).collect())
    }
}

/// The users at positions, which begin at 1, of a call's users.
pub(crate) fn at_positions(users: &[UserId], positions: Vec<usize>) -> impl Iterator<Item = UserId> {
    positions.into_iter().filter_map(|position| users.get(position.checked_sub(1)?).copied())
}

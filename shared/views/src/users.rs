//! Calls of one function for many users.

use redis::FromRedisValue;
use redis_link::{Bundle, Consistency};
use tidemark_app::ports::StoreError;
use tidemark_domain::UserId;
use tracing::warn;

use crate::{
    connection::{Arg, Redis, fcall},
    keys::View,
    library::Function,
};

/// Users in one script call. A reader waits for the call in progress, so fewer users delay readers less, and cost the
/// fixed part of a call more often.
pub const USERS_PER_CALL: usize = 35;

/// The maximum number of damaged views in one page of followers. More have another cause than damage.
const MOST_DAMAGED: usize = 5;

impl Redis {
    /// Calls a script for some users, at most `per_call` users in each call, one call after another, so that readers
    /// are served in between. The users should be in bucket order. Returns the response to each call, with its users.
    ///
    /// For one user it is no bulk work, because that user may wait for it.
    ///
    /// If the script cannot read the views of some users, these views are deleted, and their users are left out. The
    /// next read rebuilds them.
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
        // One call serves users of one bucket on a cluster, because they share a slot.
        let parts: Vec<&[UserId]> = match self.is_one_node() {
            true => users.chunks(per_call).collect(),
            false => users.chunk_by(|a, b| a.bucket() == b.bucket()).flat_map(|users| users.chunks(per_call)).collect(),
        };
        match self.in_turn(function, &parts, call).await {
            Err(StoreError::DamagedView { .. }) => self.one_by_one(function, users, call).await,
            responses => responses,
        }
    }

    /// Calls a script for parts of users: one call after another on one node, and on a cluster the nodes in parallel,
    /// each some calls at a time.
    async fn in_turn<'a, T: FromRedisValue>(
        &self,
        function: Function,
        parts: &[&'a [UserId]],
        call: impl Fn(&[UserId]) -> Bundle,
    ) -> Result<Vec<(&'a [UserId], T)>, StoreError> {
        if self.is_one_node() {
            let mut responses = Vec::new();
            for &users in parts {
                responses.push((users, self.query(function.source_name(), call(users)).await?));
            }
            return Ok(responses);
        }
        let responses = self.each(function.source_name(), parts.iter().map(|users| call(users)).collect()).await?;
        Ok(parts.iter().copied().zip(responses).collect())
    }

    /// Calls a script for each user alone, and deletes the views that it cannot read. If these are many, the script may
    /// be wrong and not the views, so none is deleted.
    async fn one_by_one<'a, T: FromRedisValue>(
        &self,
        function: Function,
        users: &'a [UserId],
        call: impl Fn(&[UserId]) -> Bundle,
    ) -> Result<Vec<(&'a [UserId], T)>, StoreError> {
        let (mut responses, mut damaged) = (Vec::new(), Vec::new());
        for users in users.chunks(1) {
            match self.query(function.source_name(), call(users)).await {
                Err(error @ StoreError::DamagedView { .. }) if damaged.len() >= MOST_DAMAGED => return Err(error),
                Err(StoreError::DamagedView { detail }) => damaged.push((users[0], detail)),
                response => responses.push((users, response?)),
            }
        }
        let mut views = Vec::new();
        for (user, detail) in damaged {
            warn!(%user, detail, "a damaged view is deleted");
            views.push(View::Reader(user));
            if function == Function::Notify {
                views.push(View::Connections(user));
            }
        }
        self.clear(&views).await.map(|()| responses)
    }
}

/// The users at positions, which begin at 1, of a call's users.
pub(crate) fn at_positions(users: &[UserId], positions: Vec<usize>) -> impl Iterator<Item = UserId> {
    positions.into_iter().filter_map(|position| users.get(position.checked_sub(1)?).copied())
}

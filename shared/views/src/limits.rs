//! [`LimitViews`] on Redis.

use std::time::Duration;

use async_trait::async_trait;
use tidemark_app::{
    Budget,
    ports::{LimitViews, StoreError},
};
use tidemark_domain::{Timestamp, UserId};

use super::{keys, library::Function};
use crate::connection::Redis;

#[async_trait]
impl LimitViews for Redis {
    async fn spend(&self, user: UserId, budget: Budget, per_minute: u32, now: Timestamp) -> Result<Option<Duration>, StoreError> {
        let args = [budget.name().into(), u64::from(per_minute).into(), now.ms().into()];
        let wait: u64 = self.call(Function::Spend, &[keys::limits(user)], &args).await?;
        Ok((wait > 0).then(|| Duration::from_millis(wait)))
    }
}

//! [`LimitViews`] and [`ErasureViews`] on Redis.

use std::time::Duration;

use async_trait::async_trait;
use tidemark_app::{
    Budget,
    ports::{ErasureViews, LimitViews, Spent},
};
use tidemark_domain::{Platform, PostId, Timestamp, UserId};

use super::{
    Function, Result,
    keys::{self, View},
};
use crate::connection::{Redis, ms};

#[async_trait]
impl LimitViews for Redis {
    async fn spend(&self, user: UserId, (budget, per_minute): (Budget, u32), tokens: u32, now: Timestamp) -> Result<Spent> {
        let args = (budget.name(), per_minute, now.ms(), tokens, "asked");
        let [wait, left, access]: [u64; 3] = self.call(Function::Spend, &[keys::limits(user), keys::access(user)], args).await?;
        Ok(Spent { wait: (wait > 0).then(|| Duration::from_millis(wait)), left, access: (access > 0).then_some(access == 1) })
    }

    async fn owe(&self, user: UserId, (budget, per_minute): (Budget, u32), tokens: u32, now: Timestamp) -> Result<()> {
        let args = (budget.name(), per_minute, now.ms(), tokens, "done");
        self.call::<[u64; 3]>(Function::Spend, &[keys::limits(user), keys::access(user)], args).await.map(drop)
    }
}

#[async_trait]
impl ErasureViews for Redis {
    async fn note_access(&self, user: UserId, may: bool) -> Result<()> {
        let args = (if may { 1 } else { 2 }, ms(keys::ACCESS_LIFETIME), may.then_some(1));
        self.call::<u8>(Function::Lease, &[keys::access(user)], args).await.map(drop)
    }

    async fn clear_reactions(&self, user: UserId) -> Result<()> {
        self.clear(&[View::Reactions(user)]).await
    }

    async fn clear_user(&self, user: UserId) -> Result<()> {
        let views: Vec<View> = keys::of_user(user).into_iter().filter(|view| *view != View::Access(user)).collect();
        self.clear(&views).await
    }

    async fn clear_notice_reads(&self, user: UserId, platform: Platform) -> Result<()> {
        self.clear(&[View::NoticeReads(user, platform)]).await
    }

    async fn clear_posts(&self, posts: &[PostId]) -> Result<()> {
        let views: Vec<View> = posts.iter().flat_map(|&post| keys::of_post(post)).collect();
        self.clear(&views).await
    }
}

impl Redis {
    /// Deletes the keys of these views. They are rebuilt when they are needed.
    pub async fn clear(&self, views: &[View]) -> Result<()> {
        let keys = |view| keys::of_view(view).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        // One command for a view: a process must not find its lease after its record is gone.
        self.each::<u64>("clear", views.iter().map(|view| redis::Cmd::unlink(keys(view))).collect()).await.map(drop)
    }
}

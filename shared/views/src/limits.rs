//! Buckets and access, and the views of users who leave.

use std::time::Duration;

use tidemark_domain::{Budget, Platform, PostId, Timestamp, UserId};

use super::{
    Function, Result,
    keys::{self, View},
};
use crate::connection::{Views, ms};

/// The result of [`Views::spend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// The time until the bucket has enough tokens, if it has too few.
    pub wait: Option<Duration>,
    /// The tokens in the bucket.
    pub left: u64,
    /// Whether the user may call; `None` if only the facts know.
    pub access: Option<bool>,
}

impl Views {
    /// Takes the tokens of a request from a bucket that holds a number of tokens a minute; 0 means that there is no
    /// bucket. A full bucket allows a request of any number of tokens.
    pub async fn spend(&self, user: UserId, (budget, per_minute): (Budget, u32), tokens: u32, now: Timestamp) -> Result<Spent> {
        let args = (budget.name(), per_minute, now.ms(), tokens, "asked");
        let [wait, left, access]: [u64; 3] = self.call(Function::Spend, &[keys::limits(user), keys::access(user)], args).await?;
        Ok(Spent { wait: (wait > 0).then(|| Duration::from_millis(wait)), left, access: (access > 0).then_some(access == 1) })
    }

    /// Takes the tokens of work that is done, whatever the bucket holds.
    pub async fn owe(&self, user: UserId, (budget, per_minute): (Budget, u32), tokens: u32, now: Timestamp) -> Result<()> {
        let args = (budget.name(), per_minute, now.ms(), tokens, "done");
        self.call::<[u64; 3]>(Function::Spend, &[keys::limits(user), keys::access(user)], args).await.map(drop)
    }
}

impl Views {
    /// Stores whether a user may call. A permission, which may be late, is stored only if nothing is known.
    pub async fn note_access(&self, user: UserId, may: bool) -> Result<()> {
        let args = (if may { 1 } else { 2 }, ms(keys::ACCESS_LIFETIME), may.then_some(1));
        self.call::<u8>(Function::Lease, &[keys::access(user)], args).await.map(drop)
    }

    pub async fn clear_reactions(&self, user: UserId) -> Result<()> {
        self.clear(&[View::Reactions(user)]).await
    }

    /// Removes every view that is named by the user alone, except the note that the user may not call.
    pub async fn clear_user(&self, user: UserId) -> Result<()> {
        let views: Vec<View> = keys::of_user(user).into_iter().filter(|view| *view != View::Access(user)).collect();
        self.clear(&views).await
    }

    /// Removes the view of a read state. A process that has read the facts before can no longer store them.
    pub async fn clear_notice_reads(&self, user: UserId, platform: Platform) -> Result<()> {
        self.clear(&[View::NoticeReads(user, platform)]).await
    }

    pub async fn clear_posts(&self, posts: &[PostId]) -> Result<()> {
        let views: Vec<View> = posts.iter().flat_map(|&post| keys::of_post(post)).collect();
        self.clear(&views).await
    }
}

impl Views {
    /// Deletes the keys of these views. They are rebuilt when they are needed.
    pub async fn clear(&self, views: &[View]) -> Result<()> {
        let keys = |view| keys::of_view(view).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        // One command for a view: a process must not find its lease after its record is gone.
        self.each::<u64>("clear", views.iter().map(|view| redis::Cmd::unlink(keys(view))).collect()).await.map(drop)
    }
}

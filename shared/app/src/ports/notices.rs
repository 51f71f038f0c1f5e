//! Ports of the notices: facts and views.

use std::collections::HashMap;

use async_trait::async_trait;
use tidemark_domain::{
    Notice, NoticeContent, NoticeId, NoticeReads, Platform, PlatformHead, Seq, SeqSet, Slot, Timestamp, UserId,
};

use super::facts::{IdempotencyKey, Record};
use crate::error::Result;

#[derive(Debug, Clone, PartialEq)]
pub enum NoticesPublished {
    /// One new notice for each platform, with the platform's head after it.
    Created(Vec<(Notice, PlatformHead)>),
    /// An earlier request with the same key and body published these notices, which may have changed since.
    Repeated(Vec<Notice>),
    /// An earlier request with the same key published something else.
    KeyReused,
    /// The notice would expire before it is published. Nothing is published.
    Expired,
    /// This platform has the maximum number of live notices. Nothing is published on any platform.
    Full(Platform),
}

#[derive(Debug, Clone, PartialEq)]
pub enum NoticeWritten {
    /// The notice with its new content, and the platform's head after it.
    Edited(Notice, PlatformHead),
    /// An earlier request with the same key and body has edited the notice, which may have changed since.
    Repeated(Notice),
    /// An earlier request with the same key edited something else.
    KeyReused,
    /// The notice would expire before it is replaced. Nothing is changed.
    Expired,
    /// The notice is not live.
    Unknown,
}

/// Notices, and the read states of users.
#[async_trait]
pub trait Notices: Send + Sync {
    /// Returns the head of a platform; an empty one if nothing was ever published on it.
    async fn head(&self, platform: Platform) -> Result<PlatformHead>;
    async fn reads(&self, platform: Platform, user: UserId) -> Result<NoticeReads>;
    /// Returns the head and a user's read state. Both reads are consistent, but not necessarily of the same moment.
    async fn state(&self, platform: Platform, user: UserId) -> Result<(PlatformHead, NoticeReads)>;
    /// Returns these notices. Deleted and unknown ones are left out. Expired ones may be among them.
    async fn notices(&self, ids: &[NoticeId]) -> Result<HashMap<NoticeId, Notice>>;
    /// Publishes one notice on each of at most 32 distinct platforms, in one transaction.
    async fn publish(
        &self,
        user: UserId,
        platforms: &[Platform],
        content: &NoticeContent,
        idempotency: Option<&IdempotencyKey>,
        now: Timestamp,
    ) -> Result<NoticesPublished>;
    /// Replaces a notice, in one transaction with its head and the record of `user`'s request.
    async fn edit(
        &self,
        id: NoticeId,
        content: &NoticeContent,
        renotify: bool,
        once: Option<(UserId, &IdempotencyKey)>,
        now: Timestamp,
    ) -> Result<NoticeWritten>;
    /// Removes notices, up to 99 in one transaction, and returns the head after it. May be repeated.
    async fn remove(&self, platform: Platform, seqs: &[Seq]) -> Result<PlatformHead>;
    /// Returns how many users have read this slot. The number is exact, and repeated requests do not change it.
    async fn readers(&self, platform: Platform, slot: Slot) -> Result<u64>;
    /// Replaces a user's read state, and changes the number of readers of every slot that differs. Returns the state as
    /// it was written, with its version; `None` if `before` is not the stored state. A change of very many slots takes
    /// several transactions, each of which is exact. If it ends with `None` or an error, some of them may be done. The
    /// last one writes the record, on its own condition. With `unless_erased` it also returns `None` if the user has
    /// asked to leave.
    async fn put_reads(
        &self,
        user: UserId,
        platform: Platform,
        before: &NoticeReads,
        after: NoticeReads,
        record: Option<&Record>,
        unless_erased: bool,
    ) -> Result<Option<NoticeReads>>;
}

/// A record in the views of notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeRecord {
    Head(Platform),
    Reads(UserId, Platform),
}

/// A record with its content.
#[derive(Debug, Clone, PartialEq)]
pub enum NoticeView {
    Head(Platform, PlatformHead),
    Reads(UserId, Platform, NoticeReads),
}

impl NoticeView {
    pub fn record(&self) -> NoticeRecord {
        match self {
            Self::Head(platform, _) => NoticeRecord::Head(*platform),
            Self::Reads(user, platform, _) => NoticeRecord::Reads(*user, *platform),
        }
    }
}

/// Heads and read states, which a count reads in one round trip, and titles, which a page reads in one.
#[async_trait]
pub trait NoticeViews: Send + Sync {
    async fn notice_head(&self, platform: Platform) -> Result<Option<PlatformHead>>;
    /// Returns the head and the slots that the user has read, in one round trip; `None` for a missing one.
    async fn notice_state(&self, platform: Platform, user: UserId) -> Result<(Option<PlatformHead>, Option<SeqSet>)>;
    async fn lease_notices(&self, records: &[NoticeRecord], token: u64) -> Result<Vec<NoticeRecord>>;
    async fn fill_notices(&self, views: &[NoticeView], token: u64) -> Result<()>;
    async fn replace_notices(&self, view: &NoticeView) -> Result<()>;
    /// Returns the known titles and times of these notices in these revisions.
    async fn notice_titles(&self, notices: &[(NoticeId, u64)]) -> Result<HashMap<NoticeId, (String, Timestamp)>>;
    /// Stores titles. The title of a revision never changes.
    async fn remember_titles(&self, notices: &[Notice]) -> Result<()>;
}

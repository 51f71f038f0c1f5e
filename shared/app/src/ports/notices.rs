//! Ports of the notices: facts and views.

use crate::error::StoreError;
use std::collections::HashMap;

use async_trait::async_trait;

use super::IdempotencyKey;
use tidemark_domain::{
    Notice, NoticeContent, NoticeId, NoticeReads, Platform, PlatformHead, Seq, SeqSet, Slot, Timestamp, UserId,
};

/// What came of publishing notices.
#[derive(Debug, Clone, PartialEq)]
pub enum NoticesPublished {
    /// One new notice a platform, and the platform's head after it.
    Created(Vec<(Notice, PlatformHead)>),
    /// The same key and body published these before; whatever became of them since, they are as they were.
    Repeated(Vec<Notice>),
    /// The same key published something else before.
    KeyReused,
    /// It would expire before it is published; nothing was.
    Expired,
    /// This platform has as many live notices as it can hold; nothing was published on any.
    Full(Platform),
}

/// Notices and what users have read of them.
#[async_trait]
pub trait Notices: Send + Sync {
    /// The head of a platform; an empty one when nothing was ever published on it.
    async fn head(&self, platform: Platform) -> Result<PlatformHead, StoreError>;
    /// The head, and what a user has read: one consistent read of both, the one not necessarily at the moment of the other.
    async fn state(&self, platform: Platform, user: UserId) -> Result<(PlatformHead, NoticeReads), StoreError>;
    /// These notices, deleted and unknown ones left out. Expired ones may be among them.
    async fn notices(&self, ids: &[NoticeId]) -> Result<HashMap<NoticeId, Notice>, StoreError>;
    /// Publishes one notice on each of these distinct platforms, at most 32: heads, notices and idempotency record (of `user`) in one transaction.
    async fn publish(
        &self,
        user: UserId,
        platforms: &[Platform],
        content: &NoticeContent,
        idempotency: Option<&IdempotencyKey>,
        now: Timestamp,
    ) -> Result<NoticesPublished, StoreError>;
    /// Replaces a notice, in one transaction with its head; `None` when it is not live.
    async fn edit(
        &self,
        id: NoticeId,
        content: &NoticeContent,
        renotify: bool,
        now: Timestamp,
    ) -> Result<Option<(Notice, PlatformHead)>, StoreError>;
    /// Takes notices of one platform away; the head after it. Repeatable, and whole for up to 99 of them.
    async fn remove(&self, platform: Platform, seqs: &[Seq]) -> Result<PlatformHead, StoreError>;
    /// How many users have read what has this slot: exact, and unchanged by anything repeated.
    async fn readers(&self, platform: Platform, slot: Slot) -> Result<u64, StoreError>;
    /// Moves a user from one state to another, together with the numbers of readers of every slot that differs; the state as it was written, with its
    /// version. `None` when `before` is not the stored one. A change of very many slots takes several transactions, each exact: when it ends
    /// with `None` or an error, some of it may be done.
    async fn put_reads(
        &self,
        user: UserId,
        platform: Platform,
        before: &NoticeReads,
        after: NoticeReads,
    ) -> Result<Option<NoticeReads>, StoreError>;
}

/// A record of the views.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeRecord {
    /// The head of a platform.
    Head(Platform),
    /// What a user has read on a platform.
    Reads(UserId, Platform),
}

/// A record with what it holds.
#[derive(Debug, Clone, PartialEq)]
pub enum NoticeView {
    /// The head of a platform.
    Head(Platform, PlatformHead),
    /// What a user has read on a platform.
    Reads(UserId, Platform, NoticeReads),
}

impl NoticeView {
    /// Which record this is.
    pub fn record(&self) -> NoticeRecord {
        match self {
            Self::Head(platform, _) => NoticeRecord::Head(*platform),
            Self::Reads(user, platform, _) => NoticeRecord::Reads(*user, *platform),
        }
    }
}

/// Heads and read states where a count finds them in one round trip, and titles where a page does.
#[async_trait]
pub trait NoticeViews: Send + Sync {
    /// Head, and the slots that the user has read, those that are there: two commands in one round trip.
    async fn notice_state(&self, platform: Platform, user: UserId) -> Result<(Option<PlatformHead>, Option<SeqSet>), StoreError>;
    /// Takes the leases for filling these records, before the facts are read, unless somebody has them; which were taken.
    async fn lease_notices(&self, records: &[NoticeRecord], token: u64) -> Result<Vec<NoticeRecord>, StoreError>;
    /// Stores records read from the facts, those whose lease is still the caller's: nothing has changed, and nothing was lost, since it was taken.
    async fn fill_notices(&self, views: &[NoticeView], token: u64) -> Result<(), StoreError>;
    /// Brings a record that is there in line with a later version, and takes the lease from whoever fills it. A record that is not there stays so: it
    /// is filled when it is asked for.
    async fn replace_notices(&self, view: &NoticeView) -> Result<(), StoreError>;
    /// Titles and times of these notices in these revisions; those that are known.
    async fn notice_titles(&self, notices: &[(NoticeId, u64)]) -> Result<HashMap<NoticeId, (String, Timestamp)>, StoreError>;
    /// Stores titles. A revision's title never changes.
    async fn remember_titles(&self, notices: &[Notice]) -> Result<(), StoreError>;
}

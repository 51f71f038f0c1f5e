//! Edits of notices: one notice, or several on several platforms, all or none.
//!
//! A transaction takes 100 items, and 100 notices have heads and a record besides. If they do not fit, the transaction
//! has no notice, but one *pending edit* for each platform: an item with the new content, named by the version of the
//! head. A notice of which the head names that revision is read from there ([`Facts::notices_at`]), until the projector
//! has written the content to the notices ([`Facts::apply_pending_edit`]).

use std::collections::{BTreeMap, HashMap};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tidemark_domain::{IdempotencyKey, Notice, NoticeContent, NoticeId, Platform, PlatformHead, Seq, Timestamp, UserId};

use super::{
    Facts, Result, attempts, distinct,
    item::{Item, encode, number, string},
    notices::{PlatformChange, read_head},
    read,
    schema::{self, NoticeItem, PendingEditItem, PlatformHeadItem},
    write::{Write, below, present},
};
use crate::Record;

/// The most items in one transaction.
const MOST_IN_TRANSACTION: usize = 100;

/// The number of notices that are written at a time.
const PARALLEL: usize = 16;

const APPLY: &str = "apply_pending_edit";

/// A request to edit notices that has an idempotency key.
#[derive(Debug, Clone, Copy)]
pub struct KeyedEdit<'a> {
    pub user: UserId,
    /// The operation in the name of the record.
    pub operation: &'static str,
    pub key: &'a IdempotencyKey,
}

#[derive(Debug, Clone, PartialEq)]
pub enum NoticesWritten {
    /// The notices with their new content, and the heads of their platforms after it.
    Edited(Vec<Notice>, Vec<PlatformChange>),
    /// An earlier request with the same key and body has edited the notices, which may have changed since.
    Repeated(Vec<Notice>),
    /// An earlier request with the same key edited something else.
    KeyReused,
    /// The notices would expire before they are replaced. Nothing is changed.
    Expired,
    /// This notice is not live. Nothing is changed.
    Unknown(NoticeId),
}

impl Facts {
    /// Replaces notices in one transaction with their heads and the record of the request. The result has each notice
    /// once, by id. They are on at most 32 platforms.
    pub async fn edit_notices(
        &self,
        ids: &[NoticeId],
        content: &NoticeContent,
        renotify: bool,
        once: Option<KeyedEdit<'_>>,
        now: Timestamp,
    ) -> Result<NoticesWritten> {
        let ids = distinct(ids);
        let mut of_platforms: BTreeMap<Platform, Vec<Seq>> = BTreeMap::new();
        for id in &ids {
            of_platforms.entry(id.platform).or_default().push(id.seq);
        }
        let platforms: Vec<Platform> = of_platforms.keys().copied().collect();
        let fits = ids.len() + platforms.len() + usize::from(once.is_some()) <= MOST_IN_TRANSACTION;
        let mut attempts = attempts("edit_notices");
        loop {
            attempts.next().await?;
            let record = async {
                let Some(KeyedEdit { user, operation, key }) = once else { return Ok(None) };
                self.record(user, operation, &key.key, now).await
            };
            let (mut heads, known, record) = futures::try_join!(self.platform_heads(&platforms), self.notices(&ids), record)?;
            if let Some(Record { fingerprint, answer, .. }) = record {
                let is_same = once.is_some_and(|once| once.key.fingerprint == fingerprint);
                let earlier = || repeated(&ids, content, answer.unwrap_or_default());
                return Ok(if is_same { NoticesWritten::Repeated(earlier()) } else { NoticesWritten::KeyReused });
            }
            if content.expires_at.is_some_and(|at| at <= now) {
                return Ok(NoticesWritten::Expired);
            }
            let (mut notices, mut changes, mut writes) = (Vec::new(), Vec::new(), Vec::new());
            for (&platform, seqs) in &of_platforms {
                let before = heads.remove(&platform).unwrap_or_default();
                let mut head = before.clone();
                let edited = match head.edit(seqs, content.expires_at, renotify, now) {
                    Ok(edited) => edited,
                    Err(seq) => return Ok(NoticesWritten::Unknown(NoticeId { platform, seq })),
                };
                for live in edited {
                    let id = NoticeId { platform, seq: live.seq };
                    let Some(&Notice { created_at, .. }) = known.get(&id) else { return Ok(NoticesWritten::Unknown(id)) };
                    notices.push(Notice { id, created_at, revision: live.revision, content: content.clone() });
                }
                writes.push(self.put_head(platform, &before, &head));
                writes.extend((!fits).then(|| self.put_pending_edit(platform, head.version, content)));
                changes.push((platform, head));
            }
            if fits {
                writes.extend(notices.iter().map(|notice| self.put_notice(notice, present(NoticeItem::title))));
            }
            writes.extend(once.map(|KeyedEdit { user, operation, key }| {
                let answer = notices.iter().map(|notice| notice.created_at.ms()).collect();
                let record = Record::new(user, operation, key, rand::random(), Vec::new(), now);
                self.record_write(&Record { answer: Some(answer), ..record })
            }));
            if self.send_all("edit_notices", writes).await? {
                return Ok(NoticesWritten::Edited(notices, changes));
            }
        }
    }

    /// Returns these notices as [`notices`](Self::notices) does, each in this revision of its head or a later one.
    pub async fn notices_at(&self, wanted: &[(NoticeId, u64)]) -> Result<HashMap<NoticeId, Notice>> {
        let ids: Vec<NoticeId> = wanted.iter().map(|(id, _)| *id).collect();
        let mut found = self.notices(&ids).await?;
        self.read_pending_edits(&mut found, wanted).await?;
        Ok(found)
    }

    /// Brings notices that were read to these revisions of their heads, or to later ones.
    pub async fn read_pending_edits(&self, found: &mut HashMap<NoticeId, Notice>, wanted: &[(NoticeId, u64)]) -> Result<()> {
        let (mut wanted, mut attempts) = (wanted.to_vec(), attempts("read_pending_edits"));
        loop {
            wanted.retain(|(id, revision)| found.get(id).is_some_and(|notice| notice.revision < *revision));
            if wanted.is_empty() {
                return Ok(());
            }
            attempts.next().await?;
            let edits: Vec<(Platform, u64)> = wanted.iter().map(|&(id, revision)| (id.platform, revision)).collect();
            let edits = self.pending_edits(&edits).await?;
            let mut gone = Vec::new();
            for (id, revision) in wanted {
                match (edits.get(&(id.platform, revision)), found.get_mut(&id)) {
                    (Some(content), Some(notice)) => (notice.revision, notice.content) = (revision, content.clone()),
                    _ => gone.push((id, revision)),
                }
            }
            if gone.is_empty() {
                return Ok(());
            }
            // An edit that is gone was written to its notices, or a later one that may be pending has replaced it.
            let ids: Vec<NoticeId> = gone.iter().map(|(id, _)| *id).collect();
            let platforms: Vec<Platform> = ids.iter().map(|id| id.platform).collect();
            let heads = self.platform_heads(&distinct(&platforms)).await?;
            found.extend(self.notices(&ids).await?);
            let replaced = |(id, revision): (NoticeId, u64)| {
                let live = heads.get(&id.platform)?.live.iter().find(|notice| notice.seq == id.seq)?;
                (live.revision != revision).then_some((id, live.revision))
            };
            wanted = gone.into_iter().filter_map(replaced).collect();
        }
    }

    /// Writes a pending edit to the notices that no later edit has replaced, and deletes it. May be repeated.
    pub async fn apply_pending_edit(&self, platform: Platform, revision: u64) -> Result<()> {
        let Some(content) = self.pending_edits(&[(platform, revision)]).await?.remove(&(platform, revision)) else {
            return Ok(());
        };
        let head = self.platform_head(platform).await?;
        let notices = head.live.iter().filter(|notice| notice.revision == revision);
        let updates = notices.map(|notice| {
            let update = self.update_notice(NoticeId { platform, seq: notice.seq }, revision, &content);
            self.send(APPLY, update).boxed()
        });
        let updates = stream::iter(updates.collect::<Vec<_>>()).buffer_unordered(PARALLEL);
        updates.try_fold((), async |(), _| Ok(())).await?;
        self.send(APPLY, Write::delete(&self.tables.notices, schema::pending_edit(platform, revision))).await.map(drop)
    }
}

impl Facts {
    /// Returns the heads of these distinct platforms. Those on which nothing was ever published are left out.
    pub async fn platform_heads(&self, platforms: &[Platform]) -> Result<HashMap<Platform, PlatformHead>> {
        let keys = platforms.iter().map(|&platform| schema::platform_head(platform)).collect();
        let heads = self.get("platform_heads", &self.tables.notices, keys).await?;
        heads.into_iter().map(|item| Ok((PlatformHeadItem::platform.read(&item)?, read_head(item)?))).collect()
    }

    /// Returns the contents of these edits, each named by its platform and revision. Those that are not pending are
    /// left out.
    async fn pending_edits(&self, edits: &[(Platform, u64)]) -> Result<HashMap<(Platform, u64), NoticeContent>> {
        let keys = distinct(edits).into_iter().map(|(platform, revision)| schema::pending_edit(platform, revision));
        let items = self.get("pending_edits", &self.tables.notices, keys.collect()).await?;
        items.into_iter().map(read_pending_edit).collect()
    }

    fn put_pending_edit(&self, platform: Platform, revision: u64, content: &NoticeContent) -> Write {
        let item = PendingEditItem {
            platform,
            item: schema::pending_edit_sort_key(revision),
            title: content.title.clone(),
            body: content.body.clone(),
            until: content.expires_at.map(Timestamp::ms),
        };
        Write::put(&self.tables.notices, encode(&item))
    }

    /// Gives a notice this content, unless it has a later one or is gone.
    fn update_notice(&self, id: NoticeId, revision: u64, content: &NoticeContent) -> Write {
        let update = Write::update(&self.tables.notices, schema::notice(id))
            .set(NoticeItem::title, string(content.title.clone()))
            .set(NoticeItem::revision, number(revision))
            .when(present(NoticeItem::title))
            .when(below(NoticeItem::revision, number(revision)));
        let update = match &content.body {
            Some(body) => update.set(NoticeItem::body, string(body.clone())),
            None => update.remove([NoticeItem::body]),
        };
        match content.expires_at {
            Some(at) => {
                let expires_at = number(schema::notice_expires_at(at));
                update.set(NoticeItem::until, number(at.ms())).set(NoticeItem::expires_at, expires_at)
            }
            None => update.remove([NoticeItem::until, NoticeItem::expires_at]),
        }
    }
}

/// The notices of an earlier request. The body is the same, so the response needs only the record of their times, even
/// if the notices have changed.
fn repeated(ids: &[NoticeId], content: &NoticeContent, created_at: Vec<u64>) -> Vec<Notice> {
    let created_at = created_at.into_iter().map(Timestamp::from_ms);
    let notice = |(&id, created_at)| Notice { id, created_at, revision: 0, content: content.clone() };
    ids.iter().zip(created_at).map(notice).collect()
}

fn read_pending_edit(item: Item) -> Result<((Platform, u64), NoticeContent)> {
    read(item, |item: PendingEditItem| {
        let revision = schema::pending_edit_revision(&item.item).ok_or(PendingEditItem::item)?;
        let content = NoticeContent { title: item.title, body: item.body, expires_at: item.until.map(Timestamp::from_ms) };
        Ok(((item.platform, revision), content))
    })
}

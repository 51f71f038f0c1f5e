//! Heads of authors: how they are read and written.

use tidemark_domain::{AuthorHead, Modes, SeqSet, Timestamp, UserId};

use super::{
    Result,
    item::{Count, Item, number},
    read,
    schema::HeadItem,
    write::Write,
};

/// How long an author counts as contended after a transaction with several posts: longer than a slow request.
const CONTENDED_MS: u64 = 5_000;

/// Sets the latest post and the modes of a head.
pub fn with_modes(head: Write, after: &AuthorHead) -> Write {
    head.set(HeadItem::latest_seq, number(after.latest_seq))
        .set(HeadItem::latest_at, number(after.latest_at.ms()))
        .set(HeadItem::mode_changes, number(after.modes.changes))
        .set(HeadItem::pulled, number(after.modes.pulled))
}

impl From<HeadItem> for AuthorHead {
    fn from(head: HeadItem) -> Self {
        let count = |count, attribute| Count::or_zero(count, attribute, format_args!("{} {}", head.author, head.item));
        let (posts, archived) = (count(head.posts, HeadItem::posts), count(head.archived, HeadItem::archived));
        let deleted = head.deleted.unwrap_or_default().0;
        // A head from before `archived_seqs` existed: any of its deleted posts may be archived.
        let unknown = || if archived > 0 { deleted.clone() } else { SeqSet::default() };
        Self {
            latest_seq: head.latest_seq,
            latest_at: Timestamp::from_ms(head.latest_at),
            posts,
            archive: head.archived_seqs.map_or_else(unknown, |archive| archive.0),
            deleted,
            archived,
            modes: Modes { changes: head.mode_changes.unwrap_or(0), pulled: head.pulled.unwrap_or(0) },
        }
    }
}

/// The head, and whether a publish should join a group at once, without an attempt to write the head alone.
pub(crate) fn seen_head(items: Vec<Item>, now: Timestamp) -> Result<(AuthorHead, bool)> {
    let contended_at: Option<u64> = items.first().map(|head| HeadItem::contended_at.optional(head)).transpose()?.flatten();
    let is_contended = contended_at.is_some_and(|at| now.ms() < at.saturating_add(CONTENDED_MS));
    Ok((items.into_iter().next().map(read_head).transpose()?.unwrap_or_default(), is_contended))
}

pub fn read_head(item: Item) -> Result<AuthorHead> {
    read_head_of(item).map(|(_, head)| head)
}

pub(crate) fn read_head_of(item: Item) -> Result<(UserId, AuthorHead)> {
    read(item, |head: HeadItem| Ok((head.author.into(), head.into())))
}

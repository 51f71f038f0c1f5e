//! Heads of authors: how they are read and written.

use tidemark_domain::{AuthorHead, Modes, Timestamp, UserId};

use super::{
    Result,
    item::{Count, Item, number},
    read,
    schema::HeadItem,
    write::Write,
};

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
        Self {
            latest_seq: head.latest_seq,
            latest_at: Timestamp::from_ms(head.latest_at),
            posts,
            archive: head.archived_seqs.unwrap_or_default().0,
            deleted: head.deleted.unwrap_or_default().0,
            archived,
            modes: Modes { changes: head.mode_changes.unwrap_or(0), pulled: head.pulled.unwrap_or(0) },
        }
    }
}

pub fn read_head(item: Item) -> Result<AuthorHead> {
    read_head_of(item).map(|(_, head)| head)
}

pub(crate) fn read_head_of(item: Item) -> Result<(UserId, AuthorHead)> {
    read(item, |head: HeadItem| Ok((head.author.into(), head.into())))
}

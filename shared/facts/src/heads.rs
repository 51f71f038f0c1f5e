//! Heads of authors: how they are read and written, and an author's privacy.

use tidemark_domain::{AuthorHead, Modes, Seq, Timestamp, UserId};

use super::{
    Facts, Result, attempts,
    item::{Count, Item, number},
    read,
    schema::{self, HeadItem},
    write::{Condition, Write, absent, is, present, still_number},
};

/// The author's latest post is still this one. Before the first post there is no head, or one of an author who has
/// changed privacy.
pub fn still_latest(seq: Seq) -> Condition {
    let same = is(HeadItem::latest_seq, number(seq));
    if seq == 0 { absent(HeadItem::latest_seq).or(same) } else { same }
}

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
            privacy: if head.erased.is_some() { Self::LEAVES } else { head.privacy.unwrap_or(0) },
            modes: Modes { changes: head.mode_changes.unwrap_or(0), pulled: head.pulled.unwrap_or(0) },
        }
    }
}

impl Facts {
    /// Makes an author private or public. May be repeated. Afterwards no follow begins that has read a public head.
    ///
    /// The head is the fact. The fence in the author's counters follows it, also if an earlier attempt has changed the
    /// head.
    pub async fn set_privacy(&self, author: UserId, is_private: bool) -> Result<()> {
        let mut attempts = attempts("set_privacy");
        let privacy = loop {
            attempts.next().await?;
            let head = self.head_of(author).await?;
            if head.is_private() == is_private {
                break head.privacy;
            }
            // A head without posts is like none.
            let update = Write::update(&self.tables.posts, schema::head(author))
                .set(HeadItem::privacy, number(head.privacy + 1))
                .set_if_absent(HeadItem::latest_seq, number(0_u64))
                .set_if_absent(HeadItem::latest_at, number(0_u64));
            // If the response of this write was lost, the next attempt finds it.
            self.send("set_privacy", update.when(still_number(HeadItem::privacy, head.privacy))).await?;
        };
        if is_private { self.raise_privacy(author, privacy).await } else { Ok(()) }
    }

    /// Removes the privacy of an author who has left and has no posts.
    pub async fn forget_privacy(&self, author: UserId) -> Result<()> {
        let update = Write::update(&self.tables.posts, schema::head(author)).remove([HeadItem::privacy]);
        self.send("forget_privacy", update.when(present(HeadItem::privacy))).await.map(drop)
    }
}

pub fn read_head(item: Item) -> Result<AuthorHead> {
    read_head_of(item).map(|(_, head)| head)
}

pub(crate) fn read_head_of(item: Item) -> Result<(UserId, AuthorHead)> {
    read(item, |head: HeadItem| Ok((head.author.into(), head.into())))
}

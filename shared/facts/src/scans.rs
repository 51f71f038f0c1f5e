//! All facts of a kind, in pages of a scan, for exports. Several segments of a table may be read at once.
//!
//! An item that cannot be decoded is an error of its own, so that the others are exported.

use aws_sdk_dynamodb::types::AttributeValue;
use futures::FutureExt;
use tidemark_domain::{
    AuthorHead, CommentNumber, Edge, Erasure, FeedKey, GroupId, Handle, NoticeReads, Platform, PostId, Profile, Reaction,
    ReadState, Timestamp, UserId, UserLists,
};

use super::{
    Facts, Result,
    edges::read_edge,
    heads::read_head_of,
    item::{Attribute, Item, string},
    notices::read_reads as read_notice_reads,
    people::read_profile,
    read,
    reads::read_reads,
    schema::{
        self, CommentNumbersItem, ErasureItem, GroupItem, HandleItem, HeadItem, IdentityItem, InboxReadItem, ListsItem,
        NoticeReadsItem, PlatformHeadItem, ReactedItem, ReadsItem,
    },
    unavailable,
};

/// Items that one page reads.
const PAGE: i32 = 1_000;

/// A part of a table, and the place in it.
#[derive(Debug, Clone)]
pub struct Segment {
    pub number: i32,
    pub of: i32,
    /// Items that were read so far.
    pub read: u64,
    /// The last key that was read; `None` at the beginning.
    after: Option<Item>,
    is_done: bool,
}

/// The user id of a claim, or the receipt of an erasure.
#[derive(Debug, Clone, PartialEq)]
pub enum Identity {
    Claim(String, UserId),
    Receipt(UserId, Box<Erasure>),
}

/// A handle that its user has given up, and until when others cannot have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rest {
    pub handle: Handle,
    pub user: UserId,
    pub until: Timestamp,
}

impl Segment {
    /// All segments of a table.
    pub fn all(of: i32) -> impl Iterator<Item = Self> {
        (0..of).map(move |number| Self { number, of, read: 0, after: None, is_done: false })
    }
}

/// A page of a scan: each fact, or what is wrong with its item.
type Page<T> = Vec<Result<T>>;

impl Facts {
    /// The next page of each kind; `None` at the end of the segment. Pairs are edges, requests, mutes, blocks, and
    /// tombstones.
    pub async fn some_pairs(&self, segment: &mut Segment) -> Result<Option<Page<Edge>>> {
        Ok(self.page(&self.tables.following, segment).await?.map(|items| items.into_iter().map(read_edge).collect()))
    }

    pub async fn some_reads(&self, segment: &mut Segment) -> Result<Option<Page<(UserId, UserId, ReadState)>>> {
        let Some(items) = self.page(&self.tables.reads, segment).await? else { return Ok(None) };
        // A window has another key.
        let is_state = |item: &Item| matches!(ReadsItem::author.of(item), Some(AttributeValue::N(author)) if author.len() <= 20);
        let items = items.into_iter().filter(is_state).collect();
        let items = self.completed("some_reads", &self.tables.reads, items).await?;
        let state = |item: Item| {
            let user = ReadsItem::user.user(&item)?;
            read_reads(item).map(|(author, state)| (user, author, state))
        };
        Ok(Some(items.into_iter().map(state).collect()))
    }

    pub async fn some_reactions(&self, segment: &mut Segment) -> Result<Option<Page<(UserId, Reaction, FeedKey)>>> {
        // Reposts and comments have entries too, and are told by their posts.
        let is_other = |item: &Item| {
            let partition: Result<String> = ReactedItem::user.read(item);
            partition.is_ok_and(|partition| schema::reposting_user(&partition).or(schema::commenting_user(&partition)).is_some())
        };
        let reacted = |item: Item| {
            let (user, reaction) = ReactedItem::user.parsed(&item, schema::reacting)?;
            Ok((user, reaction, ReactedItem::at.parsed(&item, schema::reaction_of)?))
        };
        let items = self.page(&self.tables.reacted, segment).await?;
        Ok(items.map(|items| items.into_iter().filter(|item| !is_other(item)).map(reacted).collect()))
    }

    /// Posts with comments, and the last number of each.
    pub async fn some_commented(&self, segment: &mut Segment) -> Result<Option<Page<(PostId, CommentNumber)>>> {
        let commented = |item: Item| {
            let post = schema::comment_numbers_post(&CommentNumbersItem::counter.read::<String>(&item).ok()?)?;
            Some(CommentNumbersItem::last_number.read(&item).map(|last| (post, last)))
        };
        Ok(self.page(&self.tables.counters, segment).await?.map(|items| items.into_iter().filter_map(commented).collect()))
    }

    /// Until when users have read groups of their inboxes; without a group, the whole inbox.
    pub async fn some_inbox_reads(&self, segment: &mut Segment) -> Result<Option<Page<(UserId, Option<GroupId>, Timestamp)>>> {
        let state = |item: Item| {
            let read = || {
                let (user, sort_key) = (GroupItem::user.user(&item)?, GroupItem::item.read::<String>(&item)?);
                let (id, at): (_, Option<u64>) = match sort_key.as_str() {
                    schema::INBOX_READ => (None, InboxReadItem::read_before.optional(&item)?),
                    _ => (Some(GroupItem::item.parsed(&item, schema::group_of)?), GroupItem::read_at.optional(&item)?),
                };
                Ok(at.map(|at| (user, id, Timestamp::from_ms(at))))
            };
            read().transpose()
        };
        Ok(self.page(&self.tables.inbox, segment).await?.map(|items| items.into_iter().filter_map(state).collect()))
    }

    pub async fn some_profiles(&self, segment: &mut Segment) -> Result<Option<Page<Profile>>> {
        Ok(self.page(&self.tables.profiles, segment).await?.map(|items| items.into_iter().map(read_profile).collect()))
    }

    pub async fn some_rests(&self, segment: &mut Segment) -> Result<Option<Page<Rest>>> {
        let rest = |item: Item| {
            let found = read(item, |HandleItem { handle, user, expires_at }| {
                let handle = Handle::stored(&handle).ok_or(HandleItem::handle)?;
                Ok(expires_at.map(|seconds| Rest { handle, user: user.into(), until: Timestamp::from_ms(seconds * 1_000) }))
            });
            found.transpose()
        };
        Ok(self.page(&self.tables.handles, segment).await?.map(|items| items.into_iter().filter_map(rest).collect()))
    }

    pub async fn some_identities(&self, segment: &mut Segment) -> Result<Option<Page<Identity>>> {
        let identity = |item: Item| {
            let key: String = IdentityItem::identity.read(&item).ok()?;
            if let Some(user) = schema::erased_user(&key) {
                return Some(read(item, |item: ErasureItem| Ok(Identity::Receipt(user, Box::new(item.into())))));
            }
            let claim = schema::claim_of(&key)?.to_owned();
            Some(IdentityItem::user.user(&item).map(|user| Identity::Claim(claim, user)))
        };
        Ok(self.page(&self.tables.identities, segment).await?.map(|items| items.into_iter().filter_map(identity).collect()))
    }

    /// Heads of authors.
    pub async fn some_heads(&self, segment: &mut Segment) -> Result<Option<Page<(UserId, AuthorHead)>>> {
        let Some(items) = self.page_of(&self.tables.posts, segment, Some((HeadItem::item, schema::HEAD))).await? else {
            return Ok(None);
        };
        let items = self.completed("some_heads", &self.tables.posts, items).await?;
        Ok(Some(items.into_iter().map(read_head_of).collect()))
    }

    pub async fn some_platforms(&self, segment: &mut Segment) -> Result<Option<Page<Platform>>> {
        let heads = self.page_of(&self.tables.notices, segment, Some((PlatformHeadItem::item, schema::HEAD))).await?;
        Ok(heads.map(|items| items.iter().map(|item| PlatformHeadItem::platform.read(item)).collect()))
    }

    pub async fn some_notice_reads(&self, segment: &mut Segment) -> Result<Option<Page<(UserId, Platform, NoticeReads)>>> {
        let state = |item: Item| {
            let (user, platform) = (NoticeReadsItem::user.user(&item)?, NoticeReadsItem::platform.read(&item)?);
            read_notice_reads(item).map(|reads| (user, platform, reads))
        };
        Ok(self.page(&self.tables.notice_reads, segment).await?.map(|items| items.into_iter().map(state).collect()))
    }

    pub async fn some_lists(&self, segment: &mut Segment) -> Result<Option<Page<(UserId, UserLists)>>> {
        let lists = |item: Item| {
            let user = schema::lists_user(&ListsItem::counter.read::<String>(&item).ok()?)?;
            Some(read(item, |ListsItem { version, last, lists, .. }| Ok((user, UserLists { version, last, lists }))))
        };
        Ok(self.page(&self.tables.counters, segment).await?.map(|items| items.into_iter().filter_map(lists).collect()))
    }

    async fn page(&self, table: &str, segment: &mut Segment) -> Result<Option<Vec<Item>>> {
        self.page_of(table, segment, None).await
    }

    /// The next page of a segment, of the items with this value of an attribute.
    async fn page_of(&self, table: &str, segment: &mut Segment, only: Option<(Attribute, &str)>) -> Result<Option<Vec<Item>>> {
        if segment.is_done {
            return Ok(None);
        }
        let scan = self.client.scan().table_name(table).consistent_read(true).limit(PAGE);
        let scan = scan.segment(segment.number).total_segments(segment.of).set_exclusive_start_key(segment.after.take());
        let page = scan.send().boxed().await.map_err(|error| unavailable("export", error))?;
        segment.after = page.last_evaluated_key().cloned();
        segment.is_done = segment.after.is_none();
        segment.read += page.items().len() as u64;
        let items = page.items.unwrap_or_default().into_iter();
        let is_wanted = |item: &Item| only.is_none_or(|(name, value)| name.of(item) == Some(&string(value)));
        Ok(Some(items.filter(is_wanted).collect()))
    }
}

//! Reads comments, and what counts and lists them, as they are stored.

use std::collections::BTreeSet;

use tidemark_domain::{CommentId, CommentNumber, PostId, StoreError, UserId, comments::BLOCK};
use tidemark_facts::{
    StoredComment,
    comments::read_comment,
    decode::read,
    item::{Item, number, string},
    schema::{self, CommentCountItem, CommentNumbersItem, ReactedItem},
    write::{Write, absent, is, only, present, queried, still_number},
};

use super::{
    ByKey, Decoded, StoredFacts,
    audit::{by_key, listing, stored_comments},
};
use crate::diff::facts::StoredCount;

/// The most numbers of one post that are looked at. The counts of a post with more are not checked: only the
/// transactions that write them keep them exact.
const MOST_NUMBERS: CommentNumber = 10_000;

/// The newest entries of a list of comments that are looked at.
const MOST_ENTRIES: usize = 1_000;

impl StoredFacts {
    /// The last numbers of the comments on these posts. Posts without comments are left out.
    pub(crate) async fn last_numbers(&self, posts: &[PostId]) -> Result<ByKey<PostId, CommentNumber>, StoreError> {
        let keys = posts.iter().copied().map(schema::comment_numbers).collect();
        let items = self.get("last_numbers", &self.tables.counters, keys).await?;
        let post = |item: &Item| CommentNumbersItem::counter.parsed(item, schema::comment_numbers_post);
        by_key(items, post, |item| read(item, |numbers: CommentNumbersItem| Ok(numbers.last_number)))
    }

    /// The counts of a post's comments, by lane.
    pub(crate) async fn lanes(&self, post: PostId) -> Result<Decoded<Vec<StoredCount>>, StoreError> {
        let keys = (1..=schema::LANES).map(|number| schema::comment_count(CommentId::new(post, number))).collect();
        let items = self.get("lanes", &self.tables.reactions, keys).await?;
        let lane = |item: &Item| CommentCountItem::item.parsed(item, schema::lane_of);
        let stored = by_key(items, lane, |item| read(item, stored_comments))?;
        let lanes = (0..schema::LANES).map(|lane| stored.found.get(&lane).copied().unwrap_or_default()).collect();
        Ok(Decoded { found: lanes, damaged: stored.damaged.into_iter().map(|(_, item)| ((), item)).collect() })
    }

    /// The comments on a post, withdrawn ones too: up to `last`, and in the blocks above until one is empty. `None` if
    /// there are more than [`MOST_NUMBERS`].
    pub(crate) async fn all_comments(
        &self,
        post: PostId,
        last: CommentNumber,
    ) -> Result<Option<Decoded<Vec<StoredComment>>>, StoreError> {
        let (mut items, mut upto) = (Vec::new(), 0);
        while upto < MOST_NUMBERS {
            let found = self.comment_items(post, upto + 1..=upto + BLOCK).await?;
            let is_empty = found.is_empty();
            items.extend(found);
            upto += BLOCK;
            if is_empty && upto >= last {
                return listing(items, read_comment).map(Some);
            }
        }
        Ok(None)
    }

    /// Returns those of these comments that the lists of their users have.
    pub(crate) async fn listed_comments(&self, comments: &[(UserId, CommentId)]) -> Result<BTreeSet<CommentId>, StoreError> {
        let keys = comments.iter().map(|&(user, comment)| schema::comment_entry(user, comment)).collect();
        let items = self.get("listed_comments", &self.tables.reacted, keys).await?;
        let listed = items.iter().filter(|item| ReactedItem::at.of(item).is_some());
        listed.map(|item| ReactedItem::post.parsed(item, schema::entry_comment)).collect()
    }

    /// The comments in the newest entries of a user's list.
    pub(crate) async fn commented_by(&self, user: UserId) -> Result<Decoded<Vec<CommentId>>, StoreError> {
        let query = self.query(&self.tables.reacted, [is(ReactedItem::user, string(schema::comments_by(user)))]);
        let newest = query.index_name(schema::BY_TIME).consistent_read(true).scan_index_forward(false);
        let newest = only(newest, &[ReactedItem::user, ReactedItem::post]);
        listing(queried("commented_by", newest, MOST_ENTRIES).await?, |item| {
            ReactedItem::post.parsed(&item, schema::entry_comment)
        })
    }

    /// Returns those of these comments that stand, and those that cannot be read.
    pub(crate) async fn standing(&self, comments: &[CommentId]) -> Result<ByKey<CommentId, Option<UserId>>, StoreError> {
        let keys = comments.iter().copied().map(schema::comment).collect();
        let items = self.get("standing", &self.tables.reactions, keys).await?;
        let id = |item: &Item| schema::comment_in(item);
        by_key(items, id, |item| read_comment(item).map(|stored| stored.standing().map(|comment| comment.author)))
    }

    /// Raises the last number of a post's comments, if it is still the one that was seen.
    pub(super) async fn raise_last_number(
        &self,
        operation: &'static str,
        post: PostId,
        seen: CommentNumber,
        right: CommentNumber,
    ) -> Result<bool, StoreError> {
        let update = Write::update(&self.tables.counters, schema::comment_numbers(post))
            .set(CommentNumbersItem::last_number, number(right))
            .set_if_absent(CommentNumbersItem::at, number(0_u64));
        self.send(operation, update.when(still_number(CommentNumbersItem::last_number, seen))).await
    }

    /// Adds a comment that stands to the list of its user, or takes the time of one that does not.
    pub(super) async fn list_comment(
        &self,
        operation: &'static str,
        of: CommentId,
        user: UserId,
        at: Option<tidemark_domain::Timestamp>,
    ) -> Result<bool, StoreError> {
        let (reacted, check) = (&self.tables.reacted, Write::check(&self.tables.reactions, schema::comment(of)));
        let writes = match at {
            Some(at) => vec![
                check.when(present(schema::CommentItem::text)),
                Write::put(reacted, schema::comment_entry_item(user, of, at)),
            ],
            None => vec![
                check.when(absent(schema::CommentItem::text)),
                Write::update(reacted, schema::comment_entry(user, of)).remove([ReactedItem::at]),
            ],
        };
        self.send_all(operation, writes).await
    }
}

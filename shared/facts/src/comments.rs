//! Comments: their numbers, texts and counts.
//!
//! A request gets a number from an item that no transaction names, so that nothing waits for it. Then it writes the
//! comment, on the condition that no other comment has the number. If it ends in between, a page that lacks the number
//! makes it free, and a later comment takes it.

use std::{
    collections::{HashMap, HashSet},
    ops::RangeInclusive,
};

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use futures::{StreamExt, TryStreamExt, future::try_join_all, stream};
use tidemark_domain::{
    Comment, CommentId, CommentNumber, CommentNumbers, Post, PostId, PostState, Relation, Seen, StoreError, Timestamp, UserId,
    Viewer, ids::SHARDS, visibility::may_react,
};
use tracing::error;

use super::{
    Facts, Record, Result, SHARDS_AT_ONCE, attempts, distinct,
    heads::read_head,
    item::{Count, Item, Stored, number, numbers, string},
    post_items::read_post,
    reactions::read_blocks,
    read,
    schema::{self, CommentCountItem, CommentItem, CommentNumbersItem, ReactedItem, ReactionItem},
    write::{Cancelled, Write, absent, at_most, below, between, contains, each_queried, is, is_not, present, queried},
};

/// The most numbers of comments that one query of the newest ones looks at.
const MOST_NUMBERS: CommentNumber = 4_096;

/// A comment as it is stored, withdrawn ones too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredComment {
    pub id: CommentId,
    /// `None` if the user has left.
    pub author: Option<UserId>,
    /// `None` if the comment was withdrawn.
    pub text: Option<String>,
    pub at: Timestamp,
    token: u64,
}

impl StoredComment {
    /// Returns the comment, if it stands.
    pub fn standing(self) -> Option<Comment> {
        let Self { id, author, text, at, .. } = self;
        Some(Comment { id, author: author?, text: text?, created_at: at })
    }
}

/// The outcome of a write of a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placed {
    /// The comment stands, by this write or an earlier one of the same request.
    Done(Comment),
    /// Another comment has the number.
    Taken,
    /// One of the two users blocks the other.
    Blocked,
    /// Another attempt at the request has written the answer.
    Answered,
}

/// The writes of a comment, by their index in its transaction.
const NUMBER: usize = 0;
const BLOCKS: usize = 1;

impl Facts {
    /// Returns the post, which is the original of a repost, and the numbers of its comments, if the viewer may comment
    /// on it.
    pub async fn may_comment(&self, viewer: Viewer, post: PostId) -> Result<Seen<(PostId, CommentNumbers)>> {
        let reactions = (self.tables.reactions.as_str(), vec![schema::reaction(viewer.user, post.author)]);
        let posts = (self.tables.posts.as_str(), vec![schema::post(post), schema::head(post.author)]);
        let counters = (self.tables.counters.as_str(), vec![schema::comment_numbers(post)]);
        let [mut blocks, posts, mut numbers] = self.batch_get("may_comment", [reactions, posts, counters]).await?;
        let (heads, posts): (Vec<Item>, Vec<Item>) = posts.into_iter().partition(schema::is_head);
        let found = posts.into_iter().next().map(read_post).transpose()?;
        if found.as_ref().is_some_and(|post| post.reposted().is_some() && !post.deleted) {
            return match self.target_of(viewer, post).await? {
                Ok(original) => Box::pin(self.may_comment(viewer, original)).await,
                Err(withheld) => Ok(Err(withheld)),
            };
        }
        let head = heads.into_iter().next().map(read_head).transpose()?.unwrap_or_default();
        let kept = self.kept_out(viewer, [(post.author, head.audience())]).await?.remove(&post.author);
        let blocks = blocks.pop().map(read_blocks).transpose()?.unwrap_or_default();
        let may = may_react(found.as_ref().map_or(PostState::Gone, Post::state), blocks, kept);
        let numbers = numbers.pop().map(read_numbers).transpose()?.map(|(_, numbers)| numbers);
        Ok(may.map(|()| (post, numbers.unwrap_or_default())))
    }

    /// Returns the numbers of the comments of these posts. Posts without comments are left out.
    pub async fn comment_numbers(&self, posts: &[PostId]) -> Result<HashMap<PostId, CommentNumbers>> {
        let keys = distinct(posts).into_iter().map(schema::comment_numbers).collect();
        let items = self.get("comment_numbers", &self.tables.counters, keys).await?;
        items.into_iter().map(read_numbers).collect()
    }

    /// Gives a number to a request: a free one, or the next. `known` was read before.
    pub async fn give_number(&self, post: PostId, known: &CommentNumbers, now: Timestamp) -> Result<CommentNumber> {
        let (counters, key) = (&self.tables.counters, schema::comment_numbers(post));
        // Requests that see the same free numbers take different ones.
        if let Some(&free) = known.free.get((rand::random::<u64>() % known.free.len().max(1) as u64) as usize) {
            let taken = Write::update(counters, key.clone()).take(CommentNumbersItem::free, numbers(&[free]));
            if self.send("give_number", taken.when(contains(CommentNumbersItem::free, number(free)))).await? {
                return Ok(free);
            }
        }
        loop {
            // If the SDK repeats an update that was done, its condition fails.
            let token = rand::random::<u64>();
            let next = Write::update(counters, key.clone())
                .add(CommentNumbersItem::last_number, 1)
                .set(CommentNumbersItem::at, number(now.ms()))
                .set(CommentNumbersItem::write_token, number(token));
            let other = absent(CommentNumbersItem::write_token).or(is_not(CommentNumbersItem::write_token, number(token)));
            let given = match self.updated("give_number", next.when(other)).await? {
                Some(given) => Some(given),
                None => self.get_one("give_number", counters, key.clone()).await?,
            };
            let given = given.filter(|item| CommentNumbersItem::write_token.read::<u64>(item).is_ok_and(|known| known == token));
            // Otherwise another request got the number after the next, and this one is lost until a page finds it.
            if let Some(given) = given {
                return CommentNumbersItem::last_number.read(&given);
            }
        }
    }

    /// Notes that no comment has these numbers, so that the next comments take them. A number that has a comment does
    /// no harm.
    pub async fn free_numbers(&self, post: PostId, unused: &[CommentNumber]) -> Result<()> {
        let update = Write::update(&self.tables.counters, schema::comment_numbers(post));
        let update = update.insert(CommentNumbersItem::free, numbers(unused)).when(present(CommentNumbersItem::last_number));
        self.send("free_numbers", update).await.map(drop)
    }

    /// Writes a comment with its counts and its entry, and the record of the request. `token` names the request.
    pub async fn put_comment(&self, comment: &Comment, token: u64, record: Option<&Record>) -> Result<Placed> {
        let mut attempts = attempts("put_comment");
        loop {
            attempts.next().await?;
            let written = self.transact("put_comment", self.comment_writes(comment, token, record)).await;
            let (failed, error) = match written {
                Ok(Ok(())) => return Ok(Placed::Done(comment.clone())),
                Ok(Err(Cancelled::Conflict(_))) => continue,
                Ok(Err(Cancelled::Conditions(failed))) => (failed, None),
                // The comment may have been written.
                Err(error) => (vec![NUMBER], Some(error)),
            };
            if failed.contains(&NUMBER) {
                let known = self.comment(comment.id).await?.filter(|known| known.token == token);
                return match (known.and_then(StoredComment::standing), error) {
                    (Some(own), _) => Ok(Placed::Done(own)),
                    (None, Some(error)) => Err(error),
                    (None, None) => Ok(Placed::Taken),
                };
            }
            return Ok(if failed.contains(&BLOCKS) { Placed::Blocked } else { Placed::Answered });
        }
    }

    /// Returns a comment, a withdrawn one too.
    pub async fn comment(&self, id: CommentId) -> Result<Option<StoredComment>> {
        self.get_one("comment", &self.tables.reactions, schema::comment(id)).await?.map(read_comment).transpose()
    }

    /// Returns these comments, in any order. Absent ones are left out.
    pub async fn comments(&self, ids: &[CommentId]) -> Result<Vec<StoredComment>> {
        let keys = distinct(ids).into_iter().map(schema::comment).collect();
        self.get("comments", &self.tables.reactions, keys).await?.into_iter().map(read_comment).collect()
    }

    /// Returns the comments of a post with these numbers, in order, withdrawn ones too. Damaged ones are left out.
    pub async fn comments_between(&self, post: PostId, range: RangeInclusive<CommentNumber>) -> Result<Vec<StoredComment>> {
        let mut found = Vec::new();
        for item in self.comment_items(post, range).await? {
            match read_comment(item) {
                Err(error @ StoreError::DamagedItem { .. }) => {
                    error!(%post, error = &error as &dyn std::error::Error, "a damaged comment is left out");
                }
                comment => found.push(comment?),
            }
        }
        Ok(found)
    }

    /// Returns the items of the comments of a post with these numbers, in order.
    pub async fn comment_items(&self, post: PostId, range: RangeInclusive<CommentNumber>) -> Result<Vec<Item>> {
        let blocks = schema::block_of(*range.start())..=schema::block_of(*range.end());
        let of_block = async |block| {
            let [partition, first, last] = schema::comments_in(post, block, &range);
            let query = [is(CommentItem::shard, string(partition)), between(CommentItem::item, string(first), string(last))];
            let query = self.query(&self.tables.reactions, query).consistent_read(true);
            queried("comment_items", query, usize::MAX).await
        };
        Ok(try_join_all(blocks.map(of_block)).await?.into_iter().flatten().collect())
    }

    /// Returns the number of standing comments on a post whose last number is `last`, and the number of its changes.
    pub async fn comment_count(&self, post: PostId, last: CommentNumber) -> Result<(u64, u64)> {
        let of_part = async |part: String| {
            let query = self.query(&self.tables.reactions, [is(CommentCountItem::shard, string(part))]).consistent_read(true);
            queried("comment_count", query, usize::MAX).await
        };
        let items = try_join_all(schema::comment_counts(post, last).into_iter().map(of_part)).await?;
        let counts = items.into_iter().flatten().map(read_count).collect::<Result<Vec<_>>>()?;
        Ok((counts.iter().map(|counts| counts.0).sum(), counts.iter().map(|counts| counts.1).sum()))
    }

    /// Returns how many of a post's standing comments these users have written. `count` is that of all users.
    pub async fn comments_of(&self, post: PostId, users: &HashSet<UserId>, count: u64) -> Result<u64> {
        // An item costs a read unit. A query costs one for each of 64 users who have commented, and one for each shard.
        let items = if users.len() as u64 <= count / 64 + u64::from(SHARDS) {
            let keys = users.iter().map(|&user| schema::commented(post, user)).collect();
            self.get("comments_of", &self.tables.reactions, keys).await?
        } else {
            let found =
                try_join_all((0..SHARDS).map(|shard| queried("comments_of", self.commented_in(post, shard), usize::MAX))).await?;
            let is_of =
                |item: &Item| ReactionItem::item.parsed(item, schema::commented_of).map(|(_, user)| users.contains(&user));
            let mut items = Vec::new();
            for item in found.into_iter().flatten() {
                if is_of(&item)? {
                    items.push(item);
                }
            }
            items
        };
        items.into_iter().map(|item| read_count(item).map(|(count, _)| count)).sum()
    }

    /// Withdraws a comment. May be repeated.
    pub async fn withdraw_comment(&self, known: &StoredComment) -> Result<()> {
        self.end_comment(known.id, false).await
    }

    /// Returns at most `limit` comments of a user, withdrawn ones too.
    pub async fn comment_entries(&self, user: UserId, limit: usize) -> Result<Vec<CommentId>> {
        let by = is(ReactedItem::user, string(schema::comments_by(user)));
        let query = self.query(&self.tables.reacted, [by]).consistent_read(true);
        let entries = queried("comment_entries", query, limit).await?;
        entries.iter().map(|entry| ReactedItem::post.parsed(entry, schema::entry_comment)).collect()
    }

    /// Returns at most `limit` standing comments of a user below `before`, with their times, newest first.
    pub async fn comments_by(
        &self,
        user: UserId,
        before: Option<(Timestamp, CommentId)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, CommentId)>> {
        let by = is(ReactedItem::user, string(schema::comments_by(user)));
        let end = before.map_or("~".to_owned(), |(at, id)| schema::commented_at(at, id));
        let query = self.query(&self.tables.reacted, [by, below(ReactedItem::at, string(end))]);
        let newest = query.index_name(schema::BY_TIME).consistent_read(true).scan_index_forward(false);
        let entries = queried("comments_by", newest, limit).await?;
        entries.iter().map(|entry| ReactedItem::at.parsed(entry, schema::entry_time)).collect()
    }

    /// Removes a comment of a user who leaves: the number alone stays. May be repeated.
    pub async fn erase_comment(&self, user: UserId, id: CommentId) -> Result<()> {
        self.end_comment(id, true).await?;
        let count = Write::delete(&self.tables.reactions, schema::commented(id.post, user));
        let is_zero = absent(CommentCountItem::comments).or(at_most(CommentCountItem::comments, number(0_u64)));
        self.send("erase_comment", count.when(is_zero)).await?;
        // The entry goes last, because only it lists the comment.
        self.send("erase_comment", Write::delete(&self.tables.reacted, schema::comment_entry(user, id))).await.map(drop)
    }

    /// Removes the comments on a post of a user who has left, at most `limit` numbers of them, with their entries and
    /// the counts of the post. Returns whether it has removed the last of them.
    pub async fn remove_comments(&self, post: PostId, limit: CommentNumber) -> Result<bool> {
        let Some(numbers) = self.comment_numbers(&[post]).await?.remove(&post) else { return Ok(true) };
        let (reactions, last) = (&self.tables.reactions, numbers.last);
        let first = last.saturating_sub(limit - 1).max(1);
        if first <= last {
            let found = self.comment_items(post, first..=last).await?;
            let entry =
                |item: &Item| Some(schema::comment_entry(CommentItem::user.user(item).ok()?, schema::comment_in(item).ok()?));
            self.delete_all(&self.tables.reacted, found.iter().filter_map(entry).collect()).await?;
            let keys = found.iter().map(|item| schema::key_of(CommentItem::TABLE, item)).collect();
            self.delete_all(reactions, keys).await?;
        }
        let key = schema::comment_numbers(post);
        if first > 1 {
            let left = Write::update(&self.tables.counters, key).set(CommentNumbersItem::last_number, number(first - 1));
            self.send("remove_comments", left).await?;
            return Ok(false);
        }
        // Without its comment, no transaction changes a count.
        let lanes = (1..=schema::LANES).map(|number| schema::comment_count(CommentId::new(post, number)));
        self.delete_all(reactions, lanes.collect()).await?;
        self.delete_all(&self.tables.counters, vec![key]).await?;
        Ok(true)
    }
}

impl Facts {
    /// The writes of a new comment: [`NUMBER`], [`BLOCKS`], its counts, its entry and the record.
    fn comment_writes(&self, comment: &Comment, token: u64, record: Option<&Record>) -> Vec<Write> {
        let &Comment { id, author, created_at, .. } = comment;
        let reactions = &self.tables.reactions;
        let blocks = Write::check(reactions, schema::reaction(author, id.post.author));
        let mut writes = vec![
            Write::put(reactions, schema::comment_item(comment, token)).when(absent(CommentItem::item)),
            blocks.when(absent(ReactionItem::blocked)).when(absent(ReactionItem::blocks)),
        ];
        writes.extend(self.count_comment(id, author, 1));
        writes.push(Write::put(&self.tables.reacted, schema::comment_entry_item(author, id, created_at)));
        writes.extend(record.map(|record| self.record_write(record)));
        writes
    }

    /// The changes of the two counts that include a comment.
    pub(crate) fn count_comment(&self, id: CommentId, author: UserId, change: i64) -> [Write; 2] {
        [schema::comment_count(id), schema::commented(id.post, author)].map(|key| {
            let update = Write::update(&self.tables.reactions, key);
            update.add(CommentCountItem::comments, change).add(CommentCountItem::changes, 1)
        })
    }

    /// Withdraws a comment. With `forget`, it names its author no more.
    async fn end_comment(&self, id: CommentId, forget: bool) -> Result<()> {
        let mut attempts = attempts("end_comment");
        loop {
            attempts.next().await?;
            let Some(known) = self.comment(id).await? else { return Ok(()) };
            attempts.outcome()?;
            let comment = Write::update(&self.tables.reactions, schema::comment(id));
            let comment = comment.when(is(CommentItem::write_token, number(known.token)));
            let comment = if forget { comment.remove([CommentItem::user]) } else { comment };
            let writes = match (known.text.is_some(), known.author) {
                (true, Some(author)) => {
                    let entry = Write::update(&self.tables.reacted, schema::comment_entry(author, id));
                    let [count, of_user] = self.count_comment(id, author, -1);
                    let comment = comment.remove([CommentItem::text]).when(present(CommentItem::text));
                    vec![comment, count, of_user, entry.remove([ReactedItem::at])]
                }
                (false, Some(_)) if forget => vec![comment],
                _ => return Ok(()),
            };
            if attempts.done(self.transact("end_comment", writes).await) {
                return Ok(());
            }
        }
    }

    /// Returns how many users have comments that stand on a post, and the number of entries with those of others.
    pub async fn count_commenters(&self, post: PostId) -> Result<[u64; 2]> {
        let of_shard = async |shard| {
            let mut counts = [0; 2];
            each_queried("count_commenters", self.commented_in(post, shard), |item| {
                counts[0] += u64::from(read_count(item.clone())?.0 > 0);
                counts[1] += 1;
                Ok(())
            })
            .await?;
            Ok::<_, StoreError>(counts)
        };
        let counts: Vec<[u64; 2]> = stream::iter((0..SHARDS).map(of_shard)).buffered(SHARDS_AT_ONCE).try_collect().await?;
        Ok(counts.into_iter().fold([0; 2], |[users, entries], counts| [users + counts[0], entries + counts[1]]))
    }

    /// Returns at least `limit` comments that stand on a post, with numbers below `before`, newest first, and below
    /// which number older ones are; `None` after the last. The numbers decide which are new, and times order those of
    /// one call.
    pub async fn newest_comments(
        &self,
        post: PostId,
        before: Option<CommentNumber>,
        limit: usize,
    ) -> Result<(Vec<Relation>, Option<CommentNumber>)> {
        let mut before = match before {
            Some(before) => before,
            None => self.comment_numbers(&[post]).await?.remove(&post).map_or(0, |numbers| numbers.last) + 1,
        };
        let (mut found, mut numbers) = (Vec::<Relation>::new(), limit as CommentNumber);
        while before > 1 && found.len() < limit {
            let first = before.saturating_sub(numbers).max(1);
            // Many that were withdrawn may come together.
            numbers = (numbers * 4).min(MOST_NUMBERS);
            let comments = self.comments_between(post, first..=before - 1).await?;
            let comments = comments.into_iter().filter_map(StoredComment::standing);
            found.extend(comments.map(|comment| Relation { since: comment.created_at, user: comment.author }));
            before = first;
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.dedup();
        Ok((found, (before > 1).then_some(before)))
    }

    /// The numbers of comments of the users of one shard on a post.
    fn commented_in(&self, post: PostId, shard: u16) -> QueryFluentBuilder {
        let partition = is(ReactionItem::shard, string(schema::follower_shard(post.author, shard)));
        let first = schema::commented_on(post.seq);
        let range = between(ReactionItem::item, string(&first), string(format!("{first}~")));
        self.query(&self.tables.reactions, [partition, range]).consistent_read(true)
    }
}

pub fn read_comment(item: Item) -> Result<StoredComment> {
    read(item, |CommentItem { shard, item, at, write_token: token, user, text }| {
        let id = schema::comment_of(&shard, &item).ok_or(CommentItem::item)?;
        Ok(StoredComment { id, author: user.map(UserId::from), text, at: Timestamp::from_ms(at), token })
    })
}

/// A number of comments, and the number of its changes.
pub fn read_count(item: Item) -> Result<(u64, u64)> {
    read(item, |CommentCountItem { shard, item, comments, changes }| {
        let count = |count, attribute| Count::or_zero(count, attribute, format_args!("{shard} {item}"));
        Ok((count(comments, CommentCountItem::comments), count(changes, CommentCountItem::changes)))
    })
}

fn read_numbers(item: Item) -> Result<(PostId, CommentNumbers)> {
    read(item, |CommentNumbersItem { counter, last_number: last, at, free, .. }| {
        let post = schema::comment_numbers_post(&counter).ok_or(CommentNumbersItem::counter)?;
        let free = free.unwrap_or_default();
        Ok((post, CommentNumbers { last, given_at: Timestamp::from_ms(at), free }))
    })
}

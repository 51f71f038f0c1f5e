//! Reads the facts as they are stored. [`crate::facts::repairs`] repairs them.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    hash::Hash,
};

use futures::future::try_join_all;
use tidemark_domain::{
    Edge, NoticeId, Platform, Post, PostId, Reaction, ReactionState, ReadState, Relation, SeqSet, Slot, StoreError, Timestamp,
    UserId,
    ids::{MAX_SEQ, SHARDS},
};
use tidemark_facts::{
    counters::{sum_of_changes, sum_of_parts},
    decode::read,
    distinct,
    edges::read_edge,
    followers::read_follower,
    item::{Attribute, Count, Item, Stored as _, number, string},
    notices::noticed,
    people::{read_handle, read_profile},
    post_items::{body_of, post_of},
    reactions::{read_liker, read_reactions},
    reads::read_reads,
    reposts::{RepostEntry, Reposter, quoter, read_entry, read_reposter},
    schema::{
        self, CommentCountItem, CounterItem, EdgeItem, ErasureItem, FollowerItem, HeadItem, NoticeItem, PendingEditItem,
        PostItem, ReactedItem, ReactionCountsItem, ReactionItem, RecordItem, WalkItem,
    },
    unavailable,
    write::{Write, below, between, count_queried, is, is_not_of_type, only, queried, still},
};
use tracing::warn;

use super::{ByKey, Decoded, StoredFacts, Unfinished, UnfinishedAt};
use crate::{
    diff::{
        Answered, DamagedItem, ListedQuote, ListedReaction, ListedRepost, RecordSays, StoredRecord,
        facts::{ReactionShard, StoredBlock, StoredCount, StoredHandle, StoredHead, StoredPost},
        notices::StoredNotice,
    },
    job::Segment,
};

/// The most items of one shard that are looked at. The counts of an author with 16 times as many followers are not
/// checked: only the transactions that write them keep them exact.
const MOST_IN_SHARD: usize = 10_000;

/// Items of the table of identities that are read for one of another table, because few of them are receipts.
const RECEIPTS_FOR_ONE: usize = 8;

/// The newest posts of an author, and the newest entries of a list of reactions, that are looked at.
const MOST_POSTS: usize = 1_000;

impl StoredFacts {
    /// The counts of followed authors and of the user's requests, and of followers and of received requests by shard.
    pub(crate) async fn counts(
        &self,
        user: UserId,
    ) -> Result<([StoredCount; 2], [[StoredCount; SHARDS as usize]; 2]), StoreError> {
        let followings = self.get_one("counts", &self.tables.counters, schema::followings_counter(user));
        let (followings, followers) = futures::try_join!(followings, self.follower_parts(user))?;
        let followings = followings.map(|item| read(item, Ok::<CounterItem, _>)).transpose()?;
        let own = COUNTS.map(|of| count_of_parts(followings.as_slice(), of));
        Ok((own, COUNTS.map(|of| followers.each_ref().map(|parts| count_of_parts(parts, of)))))
    }

    /// The heads of these authors. A head that does not exist is an empty one.
    pub(crate) async fn stored_heads(&self, authors: &[UserId]) -> Result<ByKey<UserId, StoredHead>, StoreError> {
        let authors = distinct(authors);
        let keys = authors.iter().copied().map(schema::head).collect();
        let items = self.get("stored_heads", &self.tables.posts, keys).await?;
        let mut heads = by_key(items, |item| HeadItem::author.user(item), stored_head)?;
        for author in authors {
            if heads.damaged.iter().all(|(damaged, _)| *damaged != author) {
                heads.found.entry(author).or_default();
            }
        }
        Ok(heads)
    }

    /// All edges of one user, tombstones included.
    pub(crate) async fn edges_of(&self, user: UserId) -> Result<Decoded<Vec<Edge>>, StoreError> {
        listing(self.of_user("edges_of", &self.tables.following, user).await?, read_edge)
    }

    /// The stored pairs (user, other) of these blocks, and their notes, without pairs that cannot be read.
    pub async fn blocks(&self, blocks: &[(UserId, UserId)]) -> Result<Vec<StoredBlock>, StoreError> {
        let keys = blocks.iter().map(|&(user, other)| schema::edge(user, other)).collect();
        let items = self.get("blocks", &self.tables.following, keys).await?;
        let pair = |item: &Item| Ok((EdgeItem::user.user(item)?, EdgeItem::author.user(item)?));
        let pairs = by_key(items, pair, read_edge)?;
        let is_damaged = |pair: &(UserId, UserId)| pairs.damaged.iter().any(|(damaged, _)| damaged == pair);
        // The notes come last. If the pair changes in between, it has another revision in the second look.
        let notes = self.block_notes(blocks).await?;
        let stored = blocks.iter().zip(notes).filter(|(pair, _)| !is_damaged(pair)).map(|(&(user, other), notes)| {
            let edge = pairs.found.get(&(user, other));
            let blocked = edge.is_some_and(|edge| edge.blocked.is_some());
            StoredBlock { user, other, blocked, rev: edge.map(|edge| edge.rev), notes }
        });
        Ok(stored.collect())
    }

    pub(crate) async fn stored_reads(&self, user: UserId) -> Result<Decoded<HashMap<UserId, ReadState>>, StoreError> {
        let Decoded { found, damaged } = listing(self.of_user("stored_reads", &self.tables.reads, user).await?, read_reads)?;
        Ok(Decoded { found: found.into_iter().collect(), damaged })
    }

    /// The followers that one shard of an author lists; `None` if there are more than [`MOST_IN_SHARD`].
    pub(crate) async fn listed_followers(
        &self,
        author: UserId,
        shard: u16,
    ) -> Result<Option<Decoded<Vec<Relation>>>, StoreError> {
        self.entries("listed_followers", schema::follower_shard(author, shard)).await
    }

    /// The requests that one shard of an author lists; `None` if there are more than [`MOST_IN_SHARD`].
    pub(crate) async fn listed_requests(&self, author: UserId, shard: u16) -> Result<Option<Decoded<Vec<Relation>>>, StoreError> {
        self.entries("listed_requests", schema::request_shard(author, shard)).await
    }

    /// The same of a user's own requests, with the authors.
    pub(crate) async fn sent_requests(&self, user: UserId) -> Result<Option<Decoded<Vec<Relation>>>, StoreError> {
        self.entries("sent_requests", schema::sent_requests(user)).await
    }

    async fn entries(&self, operation: &'static str, partition: String) -> Result<Option<Decoded<Vec<Relation>>>, StoreError> {
        let items = self.partition(operation, &self.tables.followers, &partition, None).await?;
        items.map(|items| listing(items, |item| read_follower(&item))).transpose()
    }

    /// Returns the time since which each author lists the user's request. Authors who do not are left out.
    pub(crate) async fn asked_by(&self, user: UserId, authors: &[UserId]) -> Result<ByKey<UserId, Timestamp>, StoreError> {
        let keys = distinct(authors).into_iter().map(|author| {
            let [by_author, _] = schema::requests(user, author);
            by_author
        });
        let items = self.get("asked_by", &self.tables.followers, keys.collect()).await?;
        by_key(items, author_of(FollowerItem::shard), |item| read_follower(&item).map(|relation| relation.since))
    }

    /// Returns the time since which each author lists the user. Authors who do not are left out.
    pub(crate) async fn listed_by(&self, user: UserId, authors: &[UserId]) -> Result<ByKey<UserId, Timestamp>, StoreError> {
        let keys = distinct(authors).into_iter().map(|author| schema::follower(author, user)).collect();
        let items = self.get("listed_by", &self.tables.followers, keys).await?;
        by_key(items, author_of(FollowerItem::shard), |item| read_follower(&item).map(|relation| relation.since))
    }

    /// The users among these whose pair with the author is `live`.
    pub(crate) async fn live_pairs_with(
        &self,
        author: UserId,
        users: &[UserId],
        live: impl Fn(&Edge) -> bool,
    ) -> Result<Decoded<HashSet<UserId>, UserId>, StoreError> {
        let keys = distinct(users).into_iter().map(|user| schema::edge(user, author)).collect();
        let items = self.get("live_pairs_with", &self.tables.following, keys).await?;
        let Decoded { found, damaged } = by_key(items, |item| EdgeItem::user.user(item), read_edge)?;
        let live = found.into_iter().filter(|(_, edge)| live(edge)).map(|(user, _)| user);
        Ok(Decoded { found: live.collect(), damaged })
    }

    /// The reactions of the users of one shard to an author; `None` if there are more than [`MOST_IN_SHARD`] items.
    pub(crate) async fn reactions_in(&self, author: UserId, shard: u16) -> Result<Option<Decoded<ReactionShard>>, StoreError> {
        let partition = schema::follower_shard(author, shard);
        // In the order of the keys, counts come before users, so they are read first.
        let range = Some(schema::COUNTS_AND_USERS);
        let Some(items) = self.partition("reactions_in", &self.tables.reactions, &partition, range).await? else {
            return Ok(None);
        };
        let mut shard = ReactionShard::default();
        let (mut users, mut reposts) = (Vec::new(), Vec::new());
        for item in items {
            let sort_key: String = ReactionCountsItem::item.read(&item)?;
            let post = schema::post_seq(&sort_key);
            if schema::is_reposter(&sort_key) {
                reposts.push(item);
                continue;
            }
            if post.is_none() && !schema::is_total(&sort_key) {
                if let Some(user) = schema::reacting_user(&sort_key) {
                    let flags = [(ReactionItem::blocked, (author, user)), (ReactionItem::blocks, (user, author))];
                    shard.flagged.extend(flags.into_iter().filter(|(flag, _)| flag.of(&item).is_some()).map(|(_, block)| block));
                }
                users.push(item);
                continue;
            }
            let counts: ReactionCountsItem = read(item, Ok)?;
            match post {
                Some(seq) => _ = shard.posts.insert(seq, counts),
                None => {
                    let total = |count| StoredCount { count: sum_of_parts([count]), changes: sum_of_changes([counts.changes]) };
                    shard.total = [counts.likes, counts.favorites].map(total);
                }
            }
        }
        let Decoded { found, mut damaged } = listing(users, |item| read_reactions(item).map(|(user, _, state)| (user, state)))?;
        shard.users = found;
        let reposts = listing(reposts, |item| {
            let (seq, Reposter { by, repost }) = read_reposter(&item)?;
            Ok(ListedRepost { repost, original: PostId::new(author, seq), at: by.since })
        })?;
        damaged.extend(reposts.damaged);
        shard.reposts = reposts.found;
        let range = Some([schema::COMMENTED[0], schema::QUOTES[1]]);
        if let Some(items) = self.partition("likers_in", &self.tables.reactions, &partition, range).await? {
            damaged.extend(add_lists(&mut shard, author, items)?);
        }
        Ok(Some(Decoded { found: shard, damaged }))
    }

    /// Returns the entries that the users' lists have, with their times; `None` for a time that cannot be read.
    pub(crate) async fn listed_reactions(
        &self,
        entries: &[ListedReaction],
    ) -> Result<HashMap<ListedReaction, Option<Timestamp>>, StoreError> {
        let keys = entries.iter().map(|&ListedReaction { user, post, reaction }| schema::reacted(user, reaction, post));
        let items = self.get("listed_reactions", &self.tables.reacted, keys.collect()).await?;
        let at = |item: &Item| ReactedItem::at.parsed(item, schema::reaction_of).ok().map(|key| key.at);
        let entry = |item: &Item| Ok(((ReactedItem::user.read(item)?, ReactedItem::post.read(item)?), at(item)));
        let found = items.iter().map(entry).collect::<Result<HashMap<(String, String), _>, StoreError>>()?;
        let key = |entry: &ListedReaction| (schema::reacted_by(entry.user, entry.reaction), schema::reacted_post(entry.post));
        Ok(entries.iter().filter_map(|entry| Some((*entry, *found.get(&key(entry))?))).collect())
    }

    /// The newest entries of a user's list of likes or favorites, at most [`MOST_POSTS`].
    pub(crate) async fn reacted_by(&self, user: UserId, reaction: Reaction) -> Result<Decoded<Vec<ListedReaction>>, StoreError> {
        let query = self.query(&self.tables.reacted, [is(ReactedItem::user, string(schema::reacted_by(user, reaction)))]);
        let newest = query.index_name(schema::BY_TIME).consistent_read(true).scan_index_forward(false);
        listing(queried("reacted_by", newest, MOST_POSTS).await?, |item| {
            let key = ReactedItem::at.parsed(&item, schema::reaction_of)?;
            Ok(ListedReaction { user, post: key.post, reaction })
        })
    }

    /// The newest entries of a user's list of reposts, at most [`MOST_POSTS`].
    pub(crate) async fn reposted_by(&self, user: UserId) -> Result<Decoded<Vec<ListedRepost>>, StoreError> {
        let query = self.query(&self.tables.reacted, [is(ReactedItem::user, string(schema::reposts_by(user)))]);
        listing(queried("reposted_by", query.consistent_read(true), MOST_POSTS).await?, |item| {
            let key = ReactedItem::at.parsed(&item, schema::reaction_of)?;
            let RepostEntry { seq, at } = read_entry(&item)?;
            Ok(ListedRepost { repost: PostId::new(user, seq), original: key.post, at })
        })
    }

    /// The reposts among these that a list lacks, each with whether that of the original does. The erasure of the
    /// original's author has removed the latter.
    pub(crate) async fn unlisted_reposts(&self, reposts: &[ListedRepost]) -> Result<Vec<(ListedRepost, bool)>, StoreError> {
        let by_user = |of: &ListedRepost| schema::repost_item(of.repost.author, of.original, of.at, of.repost.seq);
        let by_original = |of: &ListedRepost| {
            schema::reposter_item(of.original, Relation { since: of.at, user: of.repost.author }, of.repost.seq)
        };
        let keys = |table: &'static str, item: &dyn Fn(&ListedRepost) -> Item| {
            reposts.iter().map(|of| schema::key_of(table, &item(of))).collect::<Vec<Item>>()
        };
        let authors: Vec<UserId> = reposts.iter().map(|of| of.original.author).collect();
        let (own, listed, erased) = futures::try_join!(
            self.get("unlisted_reposts", &self.tables.reacted, keys(ReactedItem::TABLE, &by_user)),
            self.get("unlisted_reposts", &self.tables.reactions, keys(ReactionItem::TABLE, &by_original)),
            self.erased(&authors),
        )?;
        // An entry that cannot be read is reported as damaged.
        let has = |items: &[Item], table, entry: Item, is_readable: &dyn Fn(&Item) -> bool| {
            let key = schema::key_of(table, &entry);
            items.iter().any(|item| *item == entry || (schema::key_of(table, item) == key && !is_readable(item)))
        };
        let lacks = |of: &ListedRepost| {
            let of_original = !erased.contains(&of.original.author)
                && !has(&listed, ReactionItem::TABLE, by_original(of), &|item| read_reposter(item).is_ok());
            let of_user = !has(&own, ReactedItem::TABLE, by_user(of), &|item| read_entry(item).is_ok());
            (of_original || of_user).then_some((*of, of_original))
        };
        Ok(reposts.iter().filter_map(lacks).collect())
    }

    /// The quotes among these that the lists of their originals lack. The erasure of an original's author has removed
    /// them.
    pub(crate) async fn unlisted_quotes(&self, quotes: &[&Post]) -> Result<Vec<ListedQuote>, StoreError> {
        let listed: Vec<(ListedQuote, Item)> = quotes.iter().filter_map(|post| listed_quote(post).zip(quoter(post))).collect();
        let keys = listed.iter().map(|(_, entry)| entry.clone()).collect();
        let authors: Vec<UserId> = listed.iter().map(|(of, _)| of.original.author).collect();
        let (found, erased) =
            futures::try_join!(self.get("unlisted_quotes", &self.tables.reactions, keys), self.erased(&authors))?;
        let lacks = |(of, entry): &(ListedQuote, Item)| !erased.contains(&of.original.author) && !found.contains(entry);
        Ok(listed.into_iter().filter(lacks).map(|(of, _)| of).collect())
    }

    pub(crate) async fn given_to(&self, user: UserId, authors: &[UserId]) -> Result<ByKey<UserId, ReactionState>, StoreError> {
        let keys = distinct(authors).into_iter().map(|author| schema::reaction(user, author)).collect();
        let items = self.get("given_to", &self.tables.reactions, keys).await?;
        by_key(items, author_of(ReactionItem::shard), |item| read_reactions(item).map(|(_, _, state)| state))
    }

    pub(crate) async fn handle_of(&self, user: UserId) -> Result<Decoded<Vec<StoredHandle>>, StoreError> {
        let profiles = listing(self.get("handle_of", &self.tables.profiles, vec![schema::profile(user)]).await?, read_profile)?;
        let mut handles = Decoded { found: Vec::new(), damaged: profiles.damaged };
        for profile in profiles.found {
            let Some(handle) = profile.content.card.handle else { continue };
            let items = self.get("handle_of", &self.tables.handles, vec![schema::handle(&handle)]).await?;
            let owner = listing(items, read_handle)?;
            if owner.damaged.is_empty() {
                let owner = owner.found.into_iter().flatten().next();
                handles.found.push(StoredHandle { handle, version: profile.version, owner });
            }
            handles.damaged.extend(owner.damaged);
        }
        Ok(handles)
    }

    /// The posts with these ids. Unknown posts are left out.
    pub(crate) async fn stored_posts(&self, posts: &[PostId]) -> Result<ByKey<PostId, StoredPost>, StoreError> {
        let keys = distinct(posts).into_iter().map(schema::post).collect();
        by_key(self.get("stored_posts", &self.tables.posts, keys).await?, post_of, stored_post)
    }

    /// An author's newest posts, tombstones included, at most [`MOST_POSTS`].
    pub(crate) async fn newest_posts(&self, author: UserId) -> Result<Decoded<Vec<StoredPost>>, StoreError> {
        listing(self.newest_items("newest_posts", author, 0..=MAX_SEQ, MOST_POSTS).await?, stored_post)
    }

    /// The posts of one shard whose fan-out or retraction is not finished and that were published at or before
    /// `before`: newest first, after `after`, at most `limit`. Also returns where the next part begins.
    pub async fn unfinished(
        &self,
        which: Unfinished,
        shard: u64,
        before: Timestamp,
        after: Option<&UnfinishedAt>,
        limit: usize,
    ) -> Result<(Decoded<Vec<PostId>>, Option<UnfinishedAt>), StoreError> {
        let partition = string(match which {
            Unfinished::Open => schema::unfinished_shard(shard),
            Unfinished::GivenUp => schema::given_up_shard(shard),
        });
        let start = after.map(|after| {
            let mut key = schema::post(after.post);
            let place = [(PostItem::unfinished, partition.clone()), (PostItem::time, string(&after.time))];
            key.extend(place.map(|(attribute, value)| (attribute.name().to_owned(), value)));
            key
        });
        let end = below(PostItem::time, string(schema::post_time_end(before)));
        let response = self
            .query(&self.tables.posts, [is(PostItem::unfinished, partition), end])
            .index_name(schema::UNFINISHED)
            .scan_index_forward(false)
            .limit(i32::try_from(limit).unwrap_or(i32::MAX))
            .set_exclusive_start_key(start)
            .send()
            .await
            .map_err(|error| unavailable("unfinished", error))?;
        let place = |item: &Item| Ok::<_, StoreError>(UnfinishedAt { time: PostItem::time.read(item)?, post: post_of(item)? });
        // If the key of the last item is not a post's, there is no next part. The next look begins with the newest.
        let next = response.last_evaluated_key().and_then(|item| place(item).ok());
        Ok((listing(response.items.unwrap_or_default(), |item| post_of(&item))?, next))
    }

    pub async fn given_up(&self) -> Result<u64, StoreError> {
        let counts = (0..schema::UNFINISHED_SHARDS).map(async |shard| {
            let shard = [is(PostItem::unfinished, string(schema::given_up_shard(shard)))];
            count_queried("given_up", self.query(&self.tables.posts, shard).index_name(schema::UNFINISHED)).await
        });
        Ok(try_join_all(counts).await?.into_iter().sum())
    }

    /// The posts among these that have a body.
    pub async fn bodies(&self, posts: &[PostId]) -> Result<HashSet<PostId>, StoreError> {
        let keys = distinct(posts).into_iter().map(schema::body).collect();
        let items = self.get("bodies", &self.tables.posts, keys).await?;
        items.iter().map(body_of).collect()
    }

    /// A part of all edges by follower, tombstones included, and where the next part begins.
    pub(crate) async fn some_edges(
        &self,
        after: Option<(String, String)>,
        limit: usize,
        segment: Segment,
    ) -> Result<(Decoded<Vec<Edge>>, Option<(String, String)>), StoreError> {
        let after = after.map(|(user, author)| schema::edge_key(&user, &author));
        let (items, last) = self.some("some_edges", &self.tables.following, after, (limit, segment)).await?;
        // The raw keys, because they may be damaged.
        let text = |item: &Item, key: Attribute| key.of(item).and_then(|value| value.as_n().ok()).cloned();
        let pair = |item: Item| Some((text(&item, EdgeItem::user)?, text(&item, EdgeItem::author)?));
        Ok((listing(items, read_edge)?, last.and_then(pair)))
    }

    /// The authors of a part of the lists of followers and requests who have no pair of their own, and where the next
    /// part begins. A walk over edges does not meet an author whom a list alone names.
    pub(crate) async fn some_authors(
        &self,
        after: Option<(String, String)>,
        limit: usize,
        segment: Segment,
        wanted: impl Fn(UserId) -> bool,
    ) -> Result<(Vec<UserId>, Option<(String, String)>), StoreError> {
        let after = after.map(|(shard, follower)| schema::listed_key(&shard, &follower));
        let (items, last) = self.some("some_authors", &self.tables.followers, after, (limit, segment)).await?;
        let author = |item: &Item| schema::shard_author(&FollowerItem::shard.read::<String>(item).ok()?);
        let authors: BTreeSet<UserId> = items.iter().filter_map(author).filter(|author| wanted(*author)).collect();
        let is_alone = async |author: UserId| {
            let own = self.query(&self.tables.following, [is(EdgeItem::user, number(author.get()))]);
            Ok::<_, StoreError>(queried("some_authors", own, 1).await?.is_empty().then_some(author))
        };
        let alone = try_join_all(authors.into_iter().map(is_alone)).await?.into_iter().flatten().collect();
        let key = |item: &Item| Ok::<_, StoreError>((FollowerItem::shard.read(item)?, FollowerItem::follower.read(item)?));
        Ok((alone, last.as_ref().map(key).transpose()?))
    }

    /// The same of the keys of all idempotency records.
    pub(crate) async fn some_records(
        &self,
        after: Option<&str>,
        limit: usize,
        segment: Segment,
    ) -> Result<(Vec<String>, Option<String>), StoreError> {
        let after = after.map(schema::record);
        let (items, last) = self.some("some_records", &self.tables.idempotency, after, (limit, segment)).await?;
        let key = |item: &Item| RecordItem::key.read::<String>(item);
        Ok((items.iter().map(key).collect::<Result<_, _>>()?, last.as_ref().map(key).transpose()?))
    }

    /// The users of a part of the receipts of erasures that have ended, when each ended, and where the next part
    /// begins. A user id of a claim is an item of the same table.
    pub(crate) async fn some_erased(
        &self,
        after: Option<&str>,
        limit: usize,
        segment: Segment,
    ) -> Result<(Vec<(UserId, Timestamp)>, Option<String>), StoreError> {
        let after = after.map(schema::identity_item);
        let limit = limit * RECEIPTS_FOR_ONE;
        let (items, last) = self.some("some_erased", &self.tables.identities, after, (limit, segment)).await?;
        let key = |item: &Item| ErasureItem::identity.read::<String>(item);
        let ended = |item: &Item| {
            let user = schema::erased_user(&key(item).ok()?)?;
            // A receipt that cannot be read is found by the job that resumes erasures.
            let ended: u64 = ErasureItem::finished_at.optional(item).ok()??;
            Some((user, Timestamp::from_ms(ended)))
        };
        Ok((items.iter().filter_map(ended).collect(), last.as_ref().map(key).transpose()?))
    }

    pub async fn record(&self, key: &str) -> Result<Option<StoredRecord>, StoreError> {
        let Some(item) = self.get_one("record", &self.tables.idempotency, schema::record(key)).await? else { return Ok(None) };
        let says = said(item);
        let exists = match says.as_ref().map(|says| &says.answered) {
            // It may be unreadable.
            Some(Answered::Post(post)) => self.get_one("record", &self.tables.posts, schema::post(*post)).await?.is_some(),
            Some(Answered::Notices(notices)) => self.were_published(notices).await?,
            Some(Answered::Numbers) => true,
            None => false,
        };
        // An erasure removes what the user's requests have made, and leaves their records to their time.
        let exists = exists
            || match schema::record_user(key) {
                Some(user) => self.erased(&[user]).await?.contains(&user),
                None => false,
            };
        Ok(Some(StoredRecord { key: key.to_owned(), says, exists }))
    }

    /// The position of the walk `name`; `None` if no walk is in progress.
    pub async fn walk(&self, name: &str) -> Result<Option<String>, StoreError> {
        let (table, key) = (&self.tables.counters, schema::walk(name));
        let Some(item) = self.get_one("walk", table, key.clone()).await? else { return Ok(None) };
        if let Ok(position) = WalkItem::position.read(&item) {
            return Ok(Some(position));
        }
        warn!(name, "the position of a walk cannot be read, the walk begins again");
        self.send("walk", Write::delete(table, key).when(is_not_of_type(WalkItem::position, "S"))).await?;
        Ok(None)
    }

    /// Stores the position of a walk, on condition that it was at `from`; false if it was not.
    pub(crate) async fn note_walk(&self, name: &str, from: Option<&str>, to: Option<&str>) -> Result<bool, StoreError> {
        let table = &self.tables.counters;
        let write = match to {
            Some(to) => Write::put(table, schema::walk_item(name, to)),
            None => Write::delete(table, schema::walk(name)),
        };
        self.send("note_walk", write.when(still(WalkItem::position, from.map(string)))).await
    }

    /// All items of a sharded partition, or those of `reactions` with sort keys in this range; `None` if there are more
    /// than [`MOST_IN_SHARD`].
    async fn partition(
        &self,
        operation: &'static str,
        table: &str,
        partition: &str,
        range: Option<[&str; 2]>,
    ) -> Result<Option<Vec<Item>>, StoreError> {
        let partition = is(FollowerItem::shard, string(partition));
        let query = match range {
            Some([first, last]) => self.query(table, [partition, between(ReactionItem::item, string(first), string(last))]),
            None => self.query(table, [partition]),
        };
        let items = queried(operation, query.consistent_read(true), MOST_IN_SHARD + 1).await?;
        Ok(Some(items).filter(|items| items.len() <= MOST_IN_SHARD))
    }

    /// The notices of a platform: also those that its head does not list, and expired ones.
    pub(crate) async fn stored_notices(&self, platform: Platform) -> Result<Decoded<Vec<StoredNotice>>, StoreError> {
        let [first, last] = [0, MAX_SEQ].map(|seq| string(schema::notice_sort_key(seq)));
        let notices = [is(NoticeItem::platform, number(platform.get())), between(NoticeItem::item, first, last)];
        let query = self.query(&self.tables.notices, notices).consistent_read(true);
        // Without the texts, which may be long.
        let query = only(query, &[NoticeItem::platform, NoticeItem::item, NoticeItem::until]);
        let items = queried("stored_notices", query, usize::MAX).await?;
        let read_seq = |item: &Item| NoticeItem::item.parsed(item, schema::notice_seq);
        // The key alone shows that a notice exists.
        let until = |item: &Item| NoticeItem::until.optional::<u64>(item);
        let expires_at = |item: &Item| until(item).ok().flatten().map(Timestamp::from_ms);
        let stored = |item: Item| Ok(StoredNotice { seq: read_seq(&item)?, expires_at: expires_at(&item) });
        let Decoded { found, mut damaged } = listing(items.clone(), stored)?;
        damaged.extend(listing(items, |item| until(&item))?.damaged);
        Ok(Decoded { found, damaged })
    }

    /// The revisions of a platform's pending edits.
    pub(crate) async fn pending_edits_of(&self, platform: Platform) -> Result<Vec<u64>, StoreError> {
        let [first, last] = [0, u64::MAX].map(|revision| string(schema::pending_edit_sort_key(revision)));
        let edits = [is(PendingEditItem::platform, number(platform.get())), between(PendingEditItem::item, first, last)];
        let query = self.query(&self.tables.notices, edits).consistent_read(true);
        let items = queried("pending_edits_of", only(query, &[PendingEditItem::item]), usize::MAX).await?;
        items.iter().map(|item| PendingEditItem::item.parsed(item, schema::pending_edit_revision)).collect()
    }

    /// The slots among these that at least one user in this user's shard of the numbers of readers has read.
    pub(crate) async fn counted_slots(&self, user: UserId, platform: Platform, slots: &[Slot]) -> Result<SeqSet, StoreError> {
        let mut blocks: Vec<u64> = slots.iter().map(|&slot| schema::reader_block(slot).0).collect();
        blocks.dedup();
        let counter = |block| schema::notice_readers(platform, schema::reader_shard(user), block);
        let keys = blocks.into_iter().map(counter).collect();
        let items = self.get("counted_slots", &self.tables.counters, keys).await?;
        let mut counted = SeqSet::default();
        for &slot in slots {
            let (block, attribute) = schema::reader_block(slot);
            let key = counter(block);
            let Some(item) = items.iter().find(|item| CounterItem::counter.of(item) == CounterItem::counter.of(&key)) else {
                continue;
            };
            let count = attribute.optional::<Count>(item)?;
            if Count::or_zero(count, attribute, schema::key_text("counters", item)) > 0 {
                counted.insert(slot);
            }
        }
        Ok(counted)
    }

    /// Whether the platforms have published up to these notices. A deleted notice leaves no other trace.
    async fn were_published(&self, notices: &[NoticeId]) -> Result<bool, StoreError> {
        let heads = try_join_all(notices.iter().map(|notice| self.platform_head(notice.platform))).await?;
        Ok(notices.iter().zip(heads).all(|(notice, head)| notice.seq <= head.latest_seq))
    }

    /// A part of a table, and the key of its last item if there are more.
    async fn some(
        &self,
        operation: &'static str,
        table: &str,
        after: Option<Item>,
        (limit, segment): (usize, Segment),
    ) -> Result<(Vec<Item>, Option<Item>), StoreError> {
        let scan = self.client.scan().table_name(table).limit(i32::try_from(limit).unwrap_or(i32::MAX));
        let scan = scan.segment(segment.number.cast_signed()).total_segments(segment.of.cast_signed());
        let response = scan.set_exclusive_start_key(after).send().await.map_err(|error| unavailable(operation, error))?;
        Ok((response.items.unwrap_or_default(), response.last_evaluated_key))
    }
}

/// The content of an idempotency record; `None` if it cannot be read.
pub(super) fn said(item: Item) -> Option<RecordSays> {
    let record: RecordItem = read(item, Ok).ok()?;
    let answered = match (record.notices, record.token) {
        (Some(ids), _) => Answered::Notices(noticed(&ids).filter(|_| record.at.is_some())?),
        (None, Some(_)) => Answered::Numbers,
        (None, None) => Answered::Post(record.post?.parse().ok()?),
    };
    Some(RecordSays { answered, expires_at: record.expires_at })
}

fn author_of(shard: Attribute) -> impl Fn(&Item) -> Result<UserId, StoreError> {
    move |item| shard.parsed(item, schema::shard_author)
}

fn stored_post(item: Item) -> Result<StoredPost, StoreError> {
    read(item, |post: PostItem| Ok(StoredPost { unfinished: post.unfinished.is_some(), post: post.try_into()? }))
}

fn stored_head(item: Item) -> Result<StoredHead, StoreError> {
    read(item, |head: HeadItem| {
        // The right number of posts depends on these numbers.
        let exact = |count: Option<Count>, of| count.map(|Count(count)| count.ok_or(of)).transpose();
        exact(head.archived, HeadItem::archived)?;
        let deletions = exact(head.deletions, HeadItem::deletions)?;
        // A head has a pair of other numbers as its change number.
        Ok(StoredHead { posts: stored_count(head.posts, None), deletions, head: head.into() })
    })
}

/// Decodes each item separately. An item that cannot be read is damaged, and the others are found.
pub(super) fn listing<T>(items: Vec<Item>, read: impl Fn(Item) -> Result<T, StoreError>) -> Result<Decoded<Vec<T>>, StoreError> {
    decoded(items, |_| Ok(()), |_, item| read(item))
}

/// The same for items that were read by their keys.
pub(super) fn by_key<K: Copy + Eq + Hash, T>(
    items: Vec<Item>,
    key: impl Fn(&Item) -> Result<K, StoreError>,
    read: impl Fn(Item) -> Result<T, StoreError>,
) -> Result<ByKey<K, T>, StoreError> {
    decoded(items, key, |key, item| Ok((key, read(item)?)))
}

fn decoded<K: Copy, T, A: Default + Extend<T>>(
    items: Vec<Item>,
    key: impl Fn(&Item) -> Result<K, StoreError>,
    read: impl Fn(K, Item) -> Result<T, StoreError>,
) -> Result<Decoded<A, K>, StoreError> {
    let mut decoded = Decoded { found: A::default(), damaged: Vec::new() };
    for item in items {
        let of = key(&item)?;
        match read(of, item) {
            Ok(found) => decoded.found.extend([found]),
            Err(StoreError::DamagedItem { table, key, .. }) => decoded.damaged.push((of, DamagedItem { table, key })),
            Err(error) => return Err(error),
        }
    }
    Ok(decoded)
}

/// One of the counts in a counter.
type CountOf = fn(&CounterItem) -> Option<Count<i64>>;

/// Follows, and requests.
const COUNTS: [CountOf; 2] = [|counter| counter.count, |counter| counter.requests];

/// A count of all parts of a counter. Its change number is the sum of theirs, because each only grows.
fn count_of_parts(parts: &[CounterItem], of: CountOf) -> StoredCount {
    StoredCount { count: CounterItem::total(parts, of), changes: sum_of_changes(parts.iter().map(|part| part.changes)) }
}

pub(super) fn stored_comments(item: CommentCountItem) -> Result<StoredCount, Attribute> {
    Ok(stored_count(item.comments, item.changes))
}

fn stored_count(count: Option<Count>, changes: Option<Count>) -> StoredCount {
    let [count, changes] = [count, changes].map(|stored| stored.map_or(Some(0), |Count(number)| number));
    StoredCount { count, changes }
}

/// The entry that the list of an original has of a quote; `None` if the post is no quote of another user's post.
pub(crate) fn listed_quote(post: &Post) -> Option<ListedQuote> {
    quoter(post)?;
    Some(ListedQuote { quote: post.id, original: post.of?.original(), at: post.created_at })
}

/// Adds the numbers of comments, the likes, the favorites and the quotes that a shard lists. Returns damaged items.
fn add_lists(shard: &mut ReactionShard, author: UserId, items: Vec<Item>) -> Result<Vec<((), DamagedItem)>, StoreError> {
    let is_count = |item: &Item| CommentCountItem::item.parsed(item, schema::commented_of).is_ok();
    let (counts, items): (Vec<Item>, Vec<Item>) = items.into_iter().partition(is_count);
    let counts = listing(counts, |item| {
        let of = CommentCountItem::item.parsed(&item, schema::commented_of)?;
        Ok((of, read(item, stored_comments)?))
    })?;
    let mut damaged = counts.damaged;
    shard.commented = Some(counts.found);
    let is_quote = |item: &Item| ReactionItem::item.parsed(item, schema::quoter_of).is_ok();
    let (quotes, items): (Vec<Item>, Vec<Item>) = items.into_iter().partition(is_quote);
    let quotes = listing(quotes, |item| {
        let (seq, by, quote) = ReactionItem::item.parsed(&item, schema::quoter_of)?;
        Ok(ListedQuote { quote: PostId::new(by.user, quote), original: PostId::new(author, seq), at: by.since })
    })?;
    damaged.extend(quotes.damaged);
    shard.quotes = Some(quotes.found);
    let likers = listing(items, |item| {
        let (seq, reaction, Relation { since, user }) = read_liker(&item)?;
        Ok((ListedReaction { user, post: PostId::new(author, seq), reaction }, since))
    })?;
    damaged.extend(likers.damaged);
    shard.likers = Some(likers.found);
    Ok(damaged)
}

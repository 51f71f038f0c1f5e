//! Receipts in the table `identities`, and the removal of a user's items from all tables: of all that the other files
//! cannot remove or list. Every removal may be repeated.

use std::collections::{BTreeSet, HashSet};

use aws_sdk_dynamodb::types::{AttributeValue, Select};
use futures::{FutureExt, StreamExt, TryStreamExt, future::try_join_all, stream};
use tidemark_domain::{Erasure, Platform, PostId, Reaction, ReactionState, Removed, RequestSide, Timestamp, UserId, ids::SHARDS};

use super::{
    Facts, Result, attempts, distinct,
    item::{Attribute, Item, Stored as _, encode, flag, number, string},
    reactions::read_reactions,
    read,
    schema::{
        self, CounterItem, EdgeItem, ErasureItem, HeadItem, IdentityItem, NoticeReadsItem, PostItem, ProfileItem, ReactedItem,
        ReactionItem, ReadsItem, RecordItem, RunningItem,
    },
    unavailable,
    write::{Condition, Write, absent, between, having, is, only, present, queried, still_number},
};

/// Traces of a user that take many reads to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    Reactions(Reaction),
    /// Authors of whose posts the user has marked some.
    Reads,
    /// Comments that stand.
    Comments,
}

/// Items that are deleted concurrently.
const PARALLEL: usize = 16;

impl Facts {
    /// Returns the receipt of a user; `None` if the user never asked to leave.
    pub async fn erasure(&self, user: UserId) -> Result<Option<Erasure>> {
        let item = self.get_one("erasure", &self.tables.identities, schema::erasure(user)).await?;
        item.map(|item| read(item, |item: ErasureItem| Ok(item.into()))).transpose()
    }

    /// Stores a receipt unless there is one. From then on, follows of the user are refused. Returns the stored receipt.
    pub async fn begin_erasure(&self, user: UserId, now: Timestamp) -> Result<Erasure> {
        let begun = Erasure::begin(now);
        let mut attempts = attempts("begin_erasure");
        loop {
            attempts.next().await?;
            if let Some(known) = self.erasure(user).await? {
                return Ok(known);
            }
            attempts.outcome()?;
            let mut writes = self.receipt_writes(user, &begun, None);
            let listed = Write::update(&self.tables.identities, schema::running_part(user));
            writes.push(listed.insert(RunningItem::running, one(user)));
            if attempts.done(self.transact("begin_erasure", writes).await) {
                return Ok(begun);
            }
        }
    }

    /// Replaces a receipt by its next version. Returns false, and writes nothing, if another run was first.
    pub async fn put_erasure(&self, user: UserId, next: &Erasure) -> Result<bool> {
        let receipt = Write::put(&self.tables.identities, erasure_item(user, next));
        let receipt = receipt.when(is(ErasureItem::version, number(next.version.saturating_sub(1))));
        if next.finished_at.is_none() {
            return self.send("put_erasure", receipt).await;
        }
        let listed = Write::update(&self.tables.identities, schema::running_part(user)).take(RunningItem::running, one(user));
        // Erasures of the same part begin and end, and hold the list.
        self.transact_when_free("put_erasure", vec![receipt, listed]).await
    }

    /// Replaces the receipt of a finished erasure by its next version, which is not finished. Returns false, and writes
    /// nothing, if another run was first.
    pub async fn reopen_erasure(&self, user: UserId, next: &Erasure) -> Result<bool> {
        let receipt = Write::put(&self.tables.identities, erasure_item(user, next));
        let receipt = receipt.when(is(ErasureItem::version, number(next.version.saturating_sub(1))));
        let listed = Write::update(&self.tables.identities, schema::running_part(user)).insert(RunningItem::running, one(user));
        self.transact_when_free("reopen_erasure", vec![receipt, listed]).await
    }

    /// Returns users whose erasures are not finished, in parts. A part that is damaged is an error of its own.
    pub async fn running_erasures(&self) -> Result<Vec<Result<Vec<UserId>>>> {
        let parts = self.get("running_erasures", &self.tables.identities, schema::running_erasures()).await?;
        let users = |item: RunningItem| Ok(item.running.unwrap_or_default().into_iter().map(UserId::from).collect());
        Ok(parts.into_iter().map(|part| read(part, users)).collect())
    }

    /// Removes a user whose erasure is finished from the list of those that are not.
    pub async fn forget_running_erasure(&self, user: UserId) -> Result<()> {
        let taken = Write::update(&self.tables.identities, schema::running_part(user)).take(RunningItem::running, one(user));
        self.send("forget_running", taken.when(present(RunningItem::running))).await.map(drop)
    }

    /// Counts what there is to remove, without what [`Self::count_some_traces`] counts.
    pub async fn count_traces(&self, user: UserId) -> Result<Removed> {
        let users = [user];
        let (heads, follows, followers, lists, hidden) = futures::try_join!(
            self.heads(&users),
            self.followings(user),
            self.follower_counts(user),
            self.lists(user),
            self.hidden(user)
        )?;
        Ok(Removed {
            posts: heads.get(&user).map_or(0, |head| head.posts),
            follows,
            followers: followers.iter().sum(),
            lists: lists.lists.len() as u64,
            mutes: hidden.iter().filter(|edge| edge.muted.is_some()).count() as u64,
            blocks: hidden.iter().filter(|edge| edge.blocked.is_some()).count() as u64,
            ..Removed::default()
        })
    }

    /// Counts some traces of a kind. Begins after an item. Returns the last item that was counted; `None` at the end.
    pub async fn count_some_traces(&self, user: UserId, trace: Trace, after: Option<String>) -> Result<(u64, Option<String>)> {
        const OPERATION: &str = "count_some";
        let listed = |by: String| {
            let query = self.query(&self.tables.reacted, [is(ReactedItem::user, string(&by))]).consistent_read(true);
            (query, (ReactedItem::user, string(by)), ReactedItem::post)
        };
        // The sort key of both tables is the place of an item.
        let (query, (partition, value), sort_key) = match trace {
            Trace::Reactions(reaction) => listed(schema::reacted_by(user, reaction)),
            Trace::Comments => {
                let (query, by, sort_key) = listed(schema::comments_by(user));
                (having(query, present(ReactedItem::at)), by, sort_key)
            }
            Trace::Reads => (self.query_user(&self.tables.reads, user), (ReadsItem::user, number(user.get())), ReadsItem::author),
        };
        let after = after.map(|after| {
            let after = if trace == Trace::Reads { AttributeValue::N(after) } else { string(after) };
            Item::from([(partition.name().to_owned(), value), (sort_key.name().to_owned(), after)])
        });
        let page = query.select(Select::Count).set_exclusive_start_key(after).send().boxed().await;
        let page = page.map_err(|error| unavailable(OPERATION, error))?;
        let last = page.last_evaluated_key().and_then(|last| sort_key.of(last));
        let last = last.and_then(|last| last.as_s().or_else(|_| last.as_n()).ok()).cloned();
        Ok((u64::try_from(page.count()).unwrap_or(0), last))
    }

    /// Returns at most `limit` users whom the user's pairs name, tombstones included, or who have a pair that names the
    /// user, tombstones excluded: a follow, a request, a mute or a block.
    pub async fn related_users(&self, user: UserId, limit: usize) -> Result<Vec<UserId>> {
        let own = queried("related", self.query_user(&self.tables.following, user), limit);
        let naming = self.query(&self.tables.following, [is(EdgeItem::named, number(user.get()))]);
        let naming = queried("related", naming.index_name(schema::NAMED), limit);
        let (followers, received, sent, own, naming, blocks) = futures::try_join!(
            self.followers_by_time(user, None, limit),
            self.requests(user, RequestSide::Received, None, limit),
            // A damaged table may list a request that the pair does not have.
            self.requests(user, RequestSide::Sent, None, limit),
            own,
            naming,
            // A damaged table may list a block that the pair does not have.
            self.blocks_of(user)
        )?;
        let relations = followers.into_iter().chain(received).chain(sent);
        let mut found: BTreeSet<UserId> = relations.map(|relation| relation.user).collect();
        let ids = |items: Vec<Item>, attribute: Attribute| -> Result<Vec<UserId>> {
            items.iter().map(|item| attribute.user(item)).collect()
        };
        found.extend(ids(own, EdgeItem::author)?);
        found.extend(ids(naming, EdgeItem::user)?);
        found.extend(blocks.into_iter().flatten());
        Ok(found.into_iter().take(limit).collect())
    }

    /// Removes both pairs of two users who follow each other no more, with their read states and empty reactions.
    /// Returns the users whose reactions were removed: views may have a later version of them.
    pub async fn remove_pair(&self, user: UserId, other: UserId) -> Result<Vec<UserId>> {
        let mut removed = Vec::new();
        for (one, other) in [(user, other), (other, user)] {
            let edge = Write::delete(&self.tables.following, schema::edge(one, other));
            // A follow or request that began since then is ended by a later run.
            let ended = absent(EdgeItem::following).or(is(EdgeItem::following, flag(false)));
            let edge = edge.when(ended).when(absent(EdgeItem::requested_at));
            // A damaged table may list a follower without an edge, or a request.
            let listed = Write::delete(&self.tables.followers, schema::follower(other, one));
            let entries = schema::block_entries(one, other).map(|entry| Write::delete(&self.tables.followers, entry));
            let lists = [self.unlist_request(one, other), entries].concat();
            self.send_all("remove_pair", [vec![edge, listed], lists].concat()).await?;
            self.remove_reads(one, other).await?;
            if self.remove_empty_reactions(one, other).await? {
                removed.push(one);
            }
        }
        Ok(removed)
    }

    /// Returns users with their reactions to an author, at most `limit` of each shard, or errors of damaged items.
    pub async fn reactions_to(&self, author: UserId, limit: usize) -> Result<Vec<Result<(UserId, ReactionState)>>> {
        let items = self.of_shards("reactions_to", author, schema::USERS, limit).await?;
        Ok(items.into_iter().map(|item| read_reactions(item).map(|(user, _, state)| (user, state))).collect())
    }

    /// Removes a user's reactions to an author whose posts are all deleted. The counts and the entries of the posts
    /// stay.
    pub async fn remove_reactions_to(&self, author: UserId, user: UserId, state: &ReactionState) -> Result<()> {
        let given =
            |reaction, seqs: Vec<u64>| seqs.into_iter().map(move |seq| schema::reacted(user, reaction, PostId::new(author, seq)));
        let keys = given(Reaction::Like, state.liked.iter().collect())
            .chain(given(Reaction::Favorite, state.favorited.iter().collect()));
        // The state goes last, because only it lists the posts.
        self.delete_all(&self.tables.reacted, keys.collect()).await?;
        let item = Write::delete(&self.tables.reactions, schema::reaction(user, author));
        self.send("remove_reactions", item.when(still_number(ReactionItem::version, state.version))).await.map(drop)
    }

    /// Returns at most `limit` authors of whose posts the user has marked some.
    pub async fn marked_authors(&self, user: UserId, limit: usize) -> Result<Vec<UserId>> {
        let query = only(self.query_user(&self.tables.reads, user), &[ReadsItem::author]);
        let items = queried("marked_authors", query, limit).await?;
        items.iter().map(|item| ReadsItem::author.user(item)).collect()
    }

    /// Returns at most `limit` users who have marked posts of an author. Marks of the last second may be left out.
    pub async fn markers(&self, author: UserId, limit: usize) -> Result<Vec<UserId>> {
        let of_shard = async |shard| {
            let by = is(ReadsItem::by, string(schema::follower_shard(author, shard)));
            let query = self.query(&self.tables.reads, [by]).index_name(schema::BY_AUTHOR);
            queried("markers", query, limit).await
        };
        let items = try_join_all((0..SHARDS).map(of_shard)).await?.into_iter().flatten().take(limit);
        items.map(|item| ReadsItem::user.user(&item)).collect()
    }

    pub async fn remove_reads(&self, user: UserId, author: UserId) -> Result<()> {
        let key = schema::reads(user, author);
        let mut attempts = attempts("remove_reads");
        loop {
            attempts.next().await?;
            let [stored] = self.stored("remove_reads", [(&self.tables.reads, vec![key.clone()])]).await?;
            let Some(item) = stored.into_iter().next() else { return Ok(()) };
            // The windows come first, because only the item lists them. A mark in between may have added one.
            self.delete_all(&self.tables.reads, self.window_keys(&item)).await?;
            let version: u32 = ReadsItem::version.read(&item)?;
            let item = Write::delete(&self.tables.reads, key.clone()).when(still_number(ReadsItem::version, version));
            if self.send("remove_reads", item).await? {
                return Ok(());
            }
        }
    }

    /// Returns the platforms of which the user has read notices.
    pub async fn read_platforms(&self, user: UserId) -> Result<Vec<Platform>> {
        let query = self.query(&self.tables.notice_reads, [is(NoticeReadsItem::user, number(user.get()))]).consistent_read(true);
        let items = queried("read_platforms", query, usize::MAX).await?;
        items.iter().map(|item| NoticeReadsItem::platform.read(item)).collect()
    }

    /// Removes a read state whose counts have been corrected. Returns false if its version has changed.
    pub async fn remove_notice_reads(&self, user: UserId, platform: Platform, version: u64) -> Result<bool> {
        let item = Write::delete(&self.tables.notice_reads, schema::notice_reads(user, platform));
        self.send("remove_notice_reads", item.when(still_number(NoticeReadsItem::version, version))).await
    }

    pub async fn remove_profile(&self, user: UserId) -> Result<()> {
        let mut attempts = attempts("remove_profile");
        loop {
            attempts.next().await?;
            let Some(profile) = self.profiles(&[user]).await?.remove(&user) else { return Ok(()) };
            let item = Write::delete(&self.tables.profiles, schema::profile(user));
            let mut writes = vec![item.when(still_number(ProfileItem::version, profile.version))];
            if let Some(handle) = &profile.content.card.handle {
                writes.push(Write::delete(&self.tables.handles, schema::handle(handle)));
            }
            if self.send_all("remove_profile", writes).await? {
                return Ok(());
            }
        }
    }

    /// Removes at most `limit` tombstones of posts, and returns how many there were.
    pub async fn remove_tombstones(&self, author: UserId, limit: usize) -> Result<usize> {
        let [first, last] = schema::POSTS.map(string);
        let posts = [is(PostItem::author, number(author.get())), between(PostItem::item, first, last)];
        let query = self.query(&self.tables.posts, posts).consistent_read(true);
        let items = queried("remove_tombstones", query, limit).await?;
        // This includes posts that the head counts as deleted and that have no tombstone.
        self.delete_all(&self.tables.posts, items.iter().map(schema::windowed_key).collect()).await
    }

    /// Whether there are counts, or entries of users who have reacted to posts of an author or repost them.
    pub async fn has_reaction_counts(&self, author: UserId) -> Result<bool> {
        Ok(!self.of_shards("has_reaction_counts", author, schema::ENTRIES_AND_COUNTS, 1).await?.is_empty())
    }

    /// Removes at most `limit` counts of comments of users in each shard, and returns how many there were.
    pub async fn remove_commenters(&self, author: UserId, limit: usize) -> Result<usize> {
        let items = self.of_shards("remove_commenters", author, schema::COMMENTED, limit).await?;
        let keys = items.iter().map(|item| schema::key_of(ReactionItem::TABLE, item)).collect();
        self.delete_all(&self.tables.reactions, keys).await
    }

    /// Whether there are counts of comments of users on posts of an author.
    pub async fn has_commenters(&self, author: UserId) -> Result<bool> {
        Ok(!self.of_shards("has_commenters", author, schema::COMMENTED, 1).await?.is_empty())
    }

    /// Removes at most `limit` counts and entries of reactions and reposts in each shard, and returns how many there
    /// were.
    pub async fn remove_reaction_counts(&self, user: UserId, limit: usize) -> Result<usize> {
        let items = self.of_shards("remove_reaction_counts", user, schema::ENTRIES_AND_COUNTS, limit).await?;
        let keys = items.iter().map(|item| schema::key_of(ReactionItem::TABLE, item)).collect();
        self.delete_all(&self.tables.reactions, keys).await
    }

    /// Whether there are lists or counters of the user.
    pub async fn has_counters(&self, user: UserId) -> Result<bool> {
        let first = (0..SHARDS).map(|shard| schema::followers_counter(user, shard));
        let keys = first.chain([schema::followings_counter(user), schema::lists(user)]).collect();
        Ok(!self.get("has_counters", &self.tables.counters, keys).await?.is_empty())
    }

    /// Removes lists, counters, and posts that wait for a number.
    pub async fn remove_counters(&self, user: UserId) -> Result<()> {
        let parts = self.follower_parts(user).await?;
        let key = |item: &CounterItem| schema::counter(item.counter.clone());
        let further = parts.iter().flat_map(|parts| parts.iter().skip(1)).map(key).collect();
        let first = parts.iter().filter_map(|parts| parts.first()).map(key);
        let own = first.chain([schema::followings_counter(user), schema::lists(user)]).collect();
        // The first part says how many there are.
        self.delete_all(&self.tables.counters, further).await?;
        self.delete_all(&self.tables.counters, own).await?;
        self.remove_records(user).await
    }
}

impl Facts {
    /// The writes of the first receipt of a user, on a condition for the user's head.
    pub(crate) fn receipt_writes(&self, user: UserId, receipt: &Erasure, of_head: Option<Condition>) -> Vec<Write> {
        let identities = &self.tables.identities;
        let left = |shard| IdentityItem { identity: schema::left_key(user, shard), user: None };
        let left = (0..SHARDS).map(|shard| Write::put(identities, encode(&left(shard))));
        // A head without posts is like none.
        let head = Write::update(&self.tables.posts, schema::head(user))
            .set(HeadItem::erased, flag(true))
            .set_if_absent(HeadItem::latest_seq, number(0_u64))
            .set_if_absent(HeadItem::latest_at, number(0_u64));
        let receipt = Write::put(identities, erasure_item(user, receipt)).when(absent(ErasureItem::identity));
        [receipt, of_head.into_iter().fold(head, Write::when)].into_iter().chain(left).collect()
    }

    /// Removes the user's idempotency records. The index of the records is a moment late. The last look is
    /// later.
    async fn remove_records(&self, user: UserId) -> Result<()> {
        let query = self.query(&self.tables.idempotency, [is(RecordItem::user, number(user.get()))]);
        let query = only(query.index_name(schema::BY_USER), &[RecordItem::key]);
        let records = queried("remove_records", query, usize::MAX).await?;
        let key = |record: &Item| Ok(schema::record(&RecordItem::key.read::<String>(record)?));
        let keys = records.iter().map(key).collect::<Result<Vec<_>>>()?;
        self.delete_all(&self.tables.idempotency, keys).await.map(drop)
    }

    /// Returns those of these users who have asked to leave.
    pub async fn erased(&self, users: &[UserId]) -> Result<HashSet<UserId>> {
        let keys = distinct(users).into_iter().map(schema::head).collect();
        let heads = self.get("erased", &self.tables.posts, keys).await?;
        heads.iter().filter(|head| HeadItem::erased.of(head).is_some()).map(|head| HeadItem::author.user(head)).collect()
    }

    /// The check that a user has not asked to leave, for the transaction of a write that may come long after the
    /// receipt was read. Transactions that check one item hold each other up, so it is asked of the item of a shard.
    pub fn still_here(&self, user: UserId, shard: u16) -> Write {
        Write::check(&self.tables.identities, schema::left(user, shard)).when(absent(IdentityItem::identity))
    }

    /// At most `limit` items of each shard of an author's reactions with sort keys in this range.
    async fn of_shards(
        &self,
        operation: &'static str,
        author: UserId,
        [first, last]: [&str; 2],
        limit: usize,
    ) -> Result<Vec<Item>> {
        let of_shard = async |shard| {
            let partition = is(ReactionItem::shard, string(schema::follower_shard(author, shard)));
            let range = between(ReactionItem::item, string(first), string(last));
            let query = self.query(&self.tables.reactions, [partition, range]).consistent_read(true);
            queried(operation, query, limit).await
        };
        Ok(try_join_all((0..SHARDS).map(of_shard)).await?.into_iter().flatten().collect())
    }

    /// Deletes the reactions of a user to an author, if there are neither reactions nor blocks left. Returns whether it
    /// did.
    async fn remove_empty_reactions(&self, user: UserId, author: UserId) -> Result<bool> {
        let key = schema::reaction(user, author);
        let Some(item) = self.get_one("remove_reactions", &self.tables.reactions, key.clone()).await? else {
            return Ok(false);
        };
        let (_, _, state) = read_reactions(item)?;
        if !state.is_empty() {
            return Ok(false);
        }
        let item = Write::delete(&self.tables.reactions, key).when(still_number(ReactionItem::version, state.version));
        let item = item.when(absent(ReactionItem::blocked)).when(absent(ReactionItem::blocks));
        self.send("remove_reactions", item).await
    }

    pub(crate) async fn delete_all(&self, table: &str, keys: Vec<Item>) -> Result<usize> {
        let deletes: Vec<_> = keys.into_iter().map(|key| self.send("remove", Write::delete(table, key))).collect();
        stream::iter(deletes).buffer_unordered(PARALLEL).try_fold(0, async |deleted, _| Ok(deleted + 1)).await
    }
}

fn one(user: UserId) -> AttributeValue {
    AttributeValue::Ns(vec![user.to_string()])
}

fn erasure_item(user: UserId, erasure: &Erasure) -> Item {
    let Erasure { started_at, finished_at, removed, counting, swept_at, pairs, cleared, touched_at, chain, incomplete, version } =
        erasure;
    encode(&ErasureItem {
        identity: schema::erasure_key(user),
        started_at: started_at.ms(),
        touched_at: touched_at.ms(),
        version: *version,
        finished_at: finished_at.map(Timestamp::ms),
        swept_at: swept_at.map(Timestamp::ms),
        removed: *removed,
        counting: counting.clone(),
        pairs: (!pairs.is_empty()).then(|| pairs.iter().map(|&user| user.into()).collect()),
        cleared: (*cleared > 0).then_some(*cleared),
        chain: (*chain > 0).then_some(*chain),
        incomplete: incomplete.clone(),
    })
}

impl From<ErasureItem> for Erasure {
    fn from(item: ErasureItem) -> Self {
        Self {
            started_at: Timestamp::from_ms(item.started_at),
            finished_at: item.finished_at.map(Timestamp::from_ms),
            removed: item.removed,
            counting: item.counting,
            swept_at: item.swept_at.map(Timestamp::from_ms),
            pairs: item.pairs.unwrap_or_default().into_iter().map(UserId::from).collect(),
            cleared: item.cleared.unwrap_or(0),
            chain: item.chain.unwrap_or(0),
            incomplete: item.incomplete,
            touched_at: Timestamp::from_ms(item.touched_at),
            version: item.version,
        }
    }
}

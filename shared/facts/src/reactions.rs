//! Likes and favorites, and their counts: the tables `reactions` and `reacted`.

use std::collections::HashMap;

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tidemark_domain::{
    Audience, Blocks, CountsVersion, FeedKey, PostId, PostState, Reaction, ReactionCounts, ReactionState, Relation, Seen, Seq,
    Standing, Timestamp, UserId, Viewer, Withheld,
    ids::SHARDS,
    visibility::{may_react, may_take_back},
};

use super::{
    Facts, Result, attempts,
    counters::HeldUp,
    distinct,
    heads::read_head,
    item::{Attribute, Bits, Item, encode, string},
    merge::{Part, merged},
    post_counts::{PostCounts, summed},
    post_items::read_post,
    read,
    schema::{self, ReactedItem, ReactionCountsItem, ReactionItem},
    unavailable,
    write::{Write, below, between, is, only, queried, still, still_number},
};

/// Posts whose comments are counted at once.
const POSTS_AT_ONCE: usize = 16;

/// The indexes of the post's count and of the reaction in the transaction of a reaction.
pub(crate) const REACTED: [usize; 2] = [1, 0];

impl Facts {
    /// Returns the user's reactions to these authors' posts. Missing ones are left out.
    pub async fn reactions(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, ReactionState>> {
        let keys = distinct(authors).into_iter().map(|author| schema::reaction(user, author)).collect();
        let items = self.get("reactions", &self.tables.reactions, keys).await?;
        items.into_iter().map(|item| read_reactions(item).map(|(_, author, state)| (author, state))).collect()
    }

    /// Gives a reaction to a post, or removes one, also from a deleted post: state and counts in one transaction. May
    /// be repeated. Returns the post, which is the original of a repost, and the user's reactions to its author's posts
    /// after it, whether or not it changed them.
    ///
    /// The transaction does not check the post: all likes of a popular post would lock one item, and delay its
    /// deletion. A reaction that overlaps the deletion counts as one from before it, and so does one that overlaps a
    /// change of the author's privacy.
    pub async fn react(
        &self,
        viewer: impl Into<Viewer>,
        post: PostId,
        reaction: Reaction,
        given: bool,
        now: Timestamp,
    ) -> Result<Seen<(PostId, ReactionState)>> {
        let (mut attempts, mut held_up, viewer) = (attempts("react"), HeldUp::default(), viewer.into());
        let (user, mut seen) = (viewer.user, None);
        loop {
            attempts.next().await?;
            let reactions = vec![schema::reaction(user, post.author), schema::post_reactions(post, 0)];
            let reactions = (self.tables.reactions.as_str(), reactions);
            // Not read again: the post's partition takes 3,000 units a second, and reactions to it hold each other up.
            let posts = if seen.is_none() { vec![schema::post(post), schema::head(post.author)] } else { vec![] };
            let posts = (self.tables.posts.as_str(), posts);
            // Only the entry of a reaction knows its time.
            let entry = if given { vec![] } else { vec![schema::reacted(user, reaction, post)] };
            let entries = (self.tables.reacted.as_str(), entry);
            let [mut reactions, posts, mut entries] = self.batch_get("react", [reactions, posts, entries]).await?;
            let (found, kept) = match seen {
                Some(seen) => seen,
                None => {
                    let (heads, posts): (Vec<Item>, Vec<Item>) = posts.into_iter().partition(schema::is_head);
                    let found = posts.into_iter().next().map(read_post).transpose()?;
                    if found.as_ref().is_some_and(|post| post.reposted().is_some() && !(given && post.deleted)) {
                        return match self.target_of(viewer, post).await? {
                            Ok(original) => Box::pin(self.react(viewer, original, reaction, given, now)).await,
                            Err(withheld) => Ok(Err(withheld)),
                        };
                    }
                    let head = heads.into_iter().next().map(read_head).transpose()?.unwrap_or_default();
                    let kept = self.kept_out(viewer, [(post.author, head.audience())]).await?.remove(&post.author);
                    *seen.insert((found.map(|post| post.state()), kept))
                }
            };
            let counts = PostCounts::take(post, &mut reactions)?;
            let known = reactions.pop().map(read_reactions).transpose()?.map(|(_, _, state)| state).unwrap_or_default();
            let (blocks, next) = (known.blocks, known.changed(post.seq, reaction, given));
            let may = match given {
                true => may_react(found.unwrap_or(PostState::Gone), blocks, kept),
                // A reaction that stands can be taken back, whatever became of the post.
                false => may_take_back(blocks, kept).and(match found.is_none() && next.is_none() {
                    true => Err(Withheld::Gone),
                    false => Ok(()),
                }),
            };
            if let Err(withheld) = may {
                return Ok(Err(withheld));
            }
            let Some(next) = next else { return Ok(Ok((post, known))) };
            // Otherwise another device of the user, another user of the same shard, or a block has been first.
            let entry = if given { Entry::New(now) } else { Entry::Old(entries.pop()) };
            match self.transact("react", self.reaction_writes(user, counts, &next, reaction, entry)?).await? {
                Ok(()) => return Ok(Ok((post, next))),
                Err(cancelled) => held_up.note(self, counts.first(self), &cancelled, REACTED).await,
            }
        }
    }

    /// Returns the blocks between the user and these others. Those without a block may be left out.
    pub async fn blocks_between(&self, user: UserId, others: &[UserId]) -> Result<HashMap<UserId, Blocks>> {
        let keys = distinct(others).into_iter().map(|other| schema::reaction(user, other)).collect();
        let items = self.get("blocks_between", &self.tables.reactions, keys).await?;
        items.into_iter().map(|item| read_reactions(item).map(|(_, other, state)| (other, state.blocks))).collect()
    }

    /// Returns the blocks between two users.
    pub async fn blocks(&self, user: UserId, other: UserId) -> Result<Blocks> {
        Ok(self.blocks_between(user, &[other]).await?.remove(&other).unwrap_or_default())
    }

    /// Returns the standings of a viewer with these authors.
    pub async fn standings(&self, viewer: impl Into<Viewer>, authors: &[UserId]) -> Result<HashMap<UserId, Standing>> {
        let viewer = viewer.into();
        let (blocks, heads) = futures::try_join!(self.blocks_between(viewer.user, authors), self.heads(authors))?;
        let kept_out = self.kept_out(viewer, heads.iter().map(|(author, head)| (*author, head.audience()))).await?;
        let blocks = |author| blocks.get(author).copied().unwrap_or_default();
        Ok(authors.iter().map(|author| (*author, Standing::of(blocks(author), kept_out.get(author).copied()))).collect())
    }

    /// Returns at most `limit` users who have reacted to a post, and when, below `before`, newest first.
    pub async fn likers(
        &self,
        post: PostId,
        reaction: Reaction,
        before: Option<Relation>,
        limit: usize,
    ) -> Result<Vec<Relation>> {
        let read = |item: &Item| read_liker(item).map(|(.., liker)| (liker, liker));
        let key = [ReactionItem::shard, ReactionItem::item];
        let shards = self.listed_partitions("likers", post).await?;
        self.entries_of("likers", (shards, schema::likers(post.seq, reaction)), &key, (before, limit), read).await
    }

    /// Returns at most `limit` entries of a post below `before`, newest first, from these partitions. Their sort keys
    /// begin with `first`, and go on with a time and a user.
    pub(crate) async fn entries_of<T>(
        &self,
        operation: &'static str,
        (partitions, first): (Vec<String>, String),
        attributes: &[Attribute],
        (before, limit): (Option<Relation>, usize),
        read: fn(&Item) -> Result<(Relation, T)>,
    ) -> Result<Vec<T>> {
        let load = |partition: &str, before: Option<Relation>, limit| {
            let end = before.map_or("~".to_owned(), |before| schema::follower_since(before.user, before.since));
            // One more, because the bounds are inclusive.
            let range = between(ReactionItem::item, string(&first), string(format!("{first}{end}")));
            let query = self.query(&self.tables.reactions, [is(ReactionItem::shard, string(partition)), range]);
            let query = only(query.consistent_read(true), attributes);
            let query = query.scan_index_forward(false).limit(limit + 1);
            async move {
                let response = query.send().await.map_err(|error| unavailable(operation, error))?;
                let entries = response.items().iter().map(read).collect::<Result<Vec<_>>>()?;
                let entries = entries.into_iter().filter(|(place, _)| before.is_none_or(|before| *place < before));
                Ok(Part { entries: entries.collect(), is_last: response.last_evaluated_key().is_none() })
            }
            .boxed()
        };
        merged(partitions, before, limit, load).await
    }

    /// Returns at most `limit` posts with the times of the user's reactions below `before`, newest first.
    pub async fn reacted(&self, user: UserId, reaction: Reaction, before: Option<FeedKey>, limit: usize) -> Result<Vec<FeedKey>> {
        let by = is(ReactedItem::user, string(schema::reacted_by(user, reaction)));
        let reacted = &self.tables.reacted;
        let query = match before {
            Some(key) => self.query(reacted, [by, below(ReactedItem::at, string(schema::reacted_at(key.at, key.post)))]),
            None => self.query(reacted, [by]),
        };
        let newest = query.index_name(schema::BY_TIME).consistent_read(true).scan_index_forward(false);
        let items = queried("reacted", newest, limit).await?;
        items.iter().map(|item| ReactedItem::at.parsed(item, schema::reaction_of)).collect()
    }

    /// Returns the exact counts of one post, without its comments.
    pub async fn counts_without_comments(&self, post: PostId) -> Result<ReactionCounts> {
        let parts = self.post_parts("counts_without_comments", &[post]).await?;
        Ok(parts.get(&post).map(|parts| summed(parts).0).unwrap_or_default())
    }

    /// Returns the exact counts of one post.
    pub async fn reaction_counts(&self, post: PostId) -> Result<CountsVersion> {
        Ok(self.reaction_counts_of(&[post]).await?.remove(&post).unwrap_or_default())
    }

    /// Returns the exact counts of each of these posts.
    pub async fn reaction_counts_of(&self, posts: &[PostId]) -> Result<HashMap<PostId, CountsVersion>> {
        let posts = distinct(posts);
        let (parts, numbers) = futures::try_join!(self.post_parts("reaction_counts", &posts), self.comment_numbers(&posts))?;
        let comments = numbers.into_iter().map(|(post, numbers)| async move {
            let (comments, changes) = self.comment_count(post, numbers.last).await?;
            Ok((post, (ReactionCounts { comments, ..ReactionCounts::default() }, changes)))
        });
        let comments: Vec<(PostId, (ReactionCounts, u64))> =
            stream::iter(comments).buffer_unordered(POSTS_AT_ONCE).try_collect().await?;
        let mut found: HashMap<PostId, CountsVersion> = posts.into_iter().map(|post| (post, CountsVersion::default())).collect();
        let summed = parts.iter().map(|(post, parts)| (*post, summed(parts)));
        for (post, (counts, changes)) in summed.chain(comments) {
            let Some(of) = found.get_mut(&post) else { continue };
            of.counts = [of.counts, counts].into_iter().sum();
            of.version += changes;
        }
        Ok(found)
    }

    /// Returns the exact counts of all posts of an author, deleted ones included.
    pub async fn reactions_received(&self, author: UserId) -> Result<ReactionCounts> {
        let keys = (0..SHARDS).map(|shard| schema::author_reactions(author, shard)).collect();
        let items = self.get("reactions_received", &self.tables.reactions, keys).await?;
        let shards: Vec<ReactionCountsItem> = items.into_iter().map(|item| read(item, Ok)).collect::<Result<_>>()?;
        // A shard that cannot be read takes nothing from the others.
        Ok(shards.iter().map(|shard| summed(std::slice::from_ref(shard)).0).sum())
    }

    /// Returns the standing of a viewer with the author.
    pub async fn standing(&self, viewer: impl Into<Viewer>, author: UserId) -> Result<Standing> {
        Ok(self.standings(viewer, &[author]).await?.remove(&author).unwrap_or_default())
    }
}

impl Facts {
    /// Returns those of these authors whose posts are kept from the viewer, and why. Reads the edges to private ones.
    pub async fn kept_out(
        &self,
        viewer: Viewer,
        authors: impl IntoIterator<Item = (UserId, Audience)>,
    ) -> Result<HashMap<UserId, Withheld>> {
        let kept = |(author, audience)| Some((author, viewer.kept_from(author, audience, false)?));
        let mut kept: HashMap<UserId, Withheld> = authors.into_iter().filter_map(kept).collect();
        let private: Vec<UserId> = kept.iter().filter(|(_, why)| **why == Withheld::Private).map(|(author, _)| *author).collect();
        for edge in self.edges(viewer.user, &private).await?.into_values().filter(|edge| edge.following) {
            kept.remove(&edge.author);
        }
        Ok(kept)
    }

    /// Takes a reaction back, also that to a deleted post. May be repeated.
    pub async fn unreact(&self, user: UserId, post: PostId, reaction: Reaction) -> Result<()> {
        let mut attempts = attempts("unreact");
        loop {
            attempts.next().await?;
            let reactions = (self.tables.reactions.as_str(), vec![schema::reaction(user, post.author)]);
            let entries = (self.tables.reacted.as_str(), vec![schema::reacted(user, reaction, post)]);
            let [mut reactions, mut entries] = self.batch_get("unreact", [reactions, entries]).await?;
            let known = reactions.pop().map(read_reactions).transpose()?.map(|(_, _, state)| state).unwrap_or_default();
            let Some(next) = known.changed(post.seq, reaction, false) else {
                // The lists of reactions may still have it.
                let entries = self.entry_writes(user, post, reaction, Entry::Old(entries.pop()))?;
                if self.send_all("unreact", entries).await? {
                    return Ok(());
                }
                continue;
            };
            let mut writes = self.reaction_writes(user, PostCounts::new(post), &next, reaction, Entry::Old(entries.pop()))?;
            if next.is_empty() && next.blocks == Blocks::default() {
                // Nothing would find an empty state, so it is deleted.
                let item = Write::delete(&self.tables.reactions, schema::reaction(user, post.author));
                writes[0] = item.when(still_number(ReactionItem::version, known.version));
            }
            if self.transact("unreact", writes).await?.is_ok() {
                return Ok(());
            }
        }
    }

    pub(crate) fn reaction_writes(
        &self,
        user: UserId,
        counts: PostCounts,
        state: &ReactionState,
        reaction: Reaction,
        entry: Entry,
    ) -> Result<Vec<Write>> {
        let (reactions, post) = (&self.tables.reactions, counts.post());
        let item = ReactionItem {
            shard: schema::follower_shard(post.author, user.shard()),
            item: schema::reaction_sort_key(user),
            version: Some(state.version),
            liked: Some(Bits(state.liked.clone())),
            favorited: Some(Bits(state.favorited.clone())),
            given_at: if let Entry::New(at) = entry { Some(at.ms()) } else { None },
            blocked: state.blocks.by_author.then_some(true),
            blocks: state.blocks.by_user.then_some(true),
        };
        let version = still_number(ReactionItem::version, state.version.saturating_sub(1));
        let change = if matches!(entry, Entry::New(_)) { 1 } else { -1 };
        let total = Write::update(reactions, schema::author_reactions(post.author, user.shard()));
        let mut writes = vec![
            Write::put(reactions, encode(&item)).when(version),
            counts.add(self, user, counted(reaction), change),
            total.add(counted(reaction), change).add(ReactionCountsItem::changes, 1),
        ];
        writes.extend(self.entry_writes(user, post, reaction, entry)?);
        Ok(writes)
    }

    /// The writes of a reaction's entries among those of the user and among those of the post, or of their removal. A
    /// removal requires that the user's entry is still the one that was read, because the other one has its time.
    fn entry_writes(&self, user: UserId, post: PostId, reaction: Reaction, entry: Entry) -> Result<Vec<Write>> {
        let (reactions, reacted) = (&self.tables.reactions, &self.tables.reacted);
        let of_post = |since| schema::liker(post, reaction, Relation { since, user });
        let old = match entry {
            Entry::New(at) => {
                let of_user = schema::reacted_item(user, reaction, FeedKey { at, post });
                return Ok(vec![Write::put(reacted, of_user), Write::put(reactions, of_post(at))]);
            }
            Entry::Old(item) => item,
        };
        let removed = Write::delete(reacted, schema::reacted(user, reaction, post));
        let removed = removed.when(still(ReactedItem::at, old.as_ref().and_then(|item| ReactedItem::at.of(item)).cloned()));
        let Some(item) = old else { return Ok(vec![removed]) };
        let at = ReactedItem::at.parsed(&item, schema::reaction_of)?.at;
        Ok(vec![removed, Write::delete(reactions, of_post(at))])
    }
}

/// The entries of a reaction that is given at this time, or those of one that is removed, by the user's entry.
pub(crate) enum Entry {
    New(Timestamp),
    Old(Option<Item>),
}

/// The post's number, the reaction, the time and the user of an entry among those of a post.
pub fn read_liker(item: &Item) -> Result<(Seq, Reaction, Relation)> {
    ReactionItem::item.parsed(item, schema::liker_of)
}

/// The count of a reaction.
pub fn counted(reaction: Reaction) -> Attribute {
    match reaction {
        Reaction::Like => ReactionCountsItem::likes,
        Reaction::Favorite => ReactionCountsItem::favorites,
    }
}

/// The blocks between user and author in an item of a user's reactions.
pub(crate) fn read_blocks(item: Item) -> Result<Blocks> {
    read_reactions(item).map(|(.., state)| state.blocks)
}

/// The same of one author, with the blocks between the user and the author.
pub(crate) fn read_reactor(item: Item) -> Result<(UserId, ReactionState)> {
    read_reactions(item).map(|(user, _, state)| (user, state))
}
/// The same with the time of the reaction that the last change gave; `None` if it removed one.
pub(crate) fn read_given(item: Item) -> Result<(UserId, UserId, ReactionState, Option<Timestamp>)> {
    let given_at: Option<u64> = ReactionItem::given_at.optional(&item)?;
    read_reactions(item).map(|(user, author, state)| (user, author, state, given_at.map(Timestamp::from_ms)))
}

/// User, author and the user's reactions to the author's posts.
pub fn read_reactions(item: Item) -> Result<(UserId, UserId, ReactionState)> {
    read(item, |ReactionItem { shard, item, version, liked, favorited, blocked, blocks, .. }| {
        let author = schema::shard_author(&shard).ok_or(ReactionItem::shard)?;
        let user = schema::reacting_user(&item).ok_or(ReactionItem::item)?;
        let [liked, favorited] = [liked, favorited].map(|set| set.unwrap_or_default().0);
        let [by_author, by_user] = [blocked, blocks].map(|flag| flag == Some(true));
        let blocks = Blocks { by_author, by_user };
        Ok((user, author, ReactionState { version: version.unwrap_or(0), liked, favorited, blocks }))
    })
}

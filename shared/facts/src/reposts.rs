//! Posts that name another: what a publish of one checks and writes, and who reposts a post. A standing repost has two
//! entries: by its original in `reactions`, and by its user in `reacted`. They are written and removed with the post.

use std::collections::{BTreeSet, HashSet};

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use futures::{StreamExt, TryStreamExt, future::try_join_all, stream};
use tidemark_domain::{
    Audience, AuthorHead, Blocks, NewPost, Post, PostId, PostState, Reference, Relation, Seen, Seq, StoreError, Timestamp,
    UserId, Viewer,
    ids::SHARDS,
    visibility::{may_refer, may_see_author},
};

use super::{
    Facts, Published, Result, SHARDS_AT_ONCE, attempts,
    item::{Item, number, string},
    post_counts::{PostCounts, post_counter},
    post_items::read_post,
    reactions::read_reactions,
    schema::{self, ReactedItem, ReactionCountsItem, ReactionItem, ReposterItem},
    write::{Write, absent, between, count_queried, each_queried, is, only, present, queried},
};

/// A user's repost in the list of its original.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reposter {
    /// The user, and the time of the repost.
    pub by: Relation,
    pub repost: PostId,
}

/// What a user's list of reposts says of a repost: its number and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepostEntry {
    pub seq: Seq,
    pub at: Timestamp,
}

/// What a publish has read of the post that it names.
pub(crate) struct Named {
    pub(crate) original: Option<Post>,
    /// Of the original's author, if that is not the user.
    audience: Audience,
    blocks: Blocks,
    /// Of a repost.
    pub(crate) entry: Option<RepostEntry>,
    /// Those of the original of a repost.
    pub(crate) counts: Option<PostCounts>,
}

/// What follows from the post that a new one names.
pub(crate) enum Naming {
    /// The new post may be written.
    Done,
    /// The facts have to be read again.
    Again,
    Ends(Box<Published>),
}

impl Named {
    /// Returns whether this user may repost or quote it.
    pub(crate) fn may_be_named(&self, user: UserId, original: PostId) -> Seen<()> {
        let state = self.original.as_ref().map_or(PostState::Gone, Post::state);
        may_refer(state, self.blocks, Viewer::from(user).kept_from(original.author, self.audience, false))
    }
}

impl Facts {
    /// Returns the post that a request for `id` means: the original of a repost that the viewer may see, deleted or
    /// not, and `id` itself otherwise, also if there is no such post. Reactions, comments and pages go to it.
    pub async fn target_of(&self, viewer: impl Into<Viewer>, id: PostId) -> Result<Seen<PostId>> {
        match self.original_of(id).await? {
            Some(original) if original != id => Ok(may_see_author(self.standing(viewer, id.author).await?).map(|()| original)),
            _ => Ok(Ok(id)),
        }
    }

    /// Returns the original of a repost, live or withdrawn, and `id` itself for another post. `None`: there is no such
    /// post.
    pub async fn original_of(&self, id: PostId) -> Result<Option<PostId>> {
        let post = self.get_one("original_of", &self.tables.posts, schema::post(id)).await?;
        Ok(post.map(read_post).transpose()?.map(|post| post.reposted().unwrap_or(id)))
    }

    /// Returns the user's entry of a repost of this original.
    pub async fn repost_of(&self, user: UserId, original: PostId) -> Result<Option<RepostEntry>> {
        let item = self.get_one("repost_of", &self.tables.reacted, schema::repost(user, original)).await?;
        item.as_ref().map(read_entry).transpose()
    }

    /// Removes what is left of a repost whose post does not stand.
    pub async fn forget_repost(&self, user: UserId, original: PostId, entry: RepostEntry) -> Result<()> {
        let mut attempts = attempts("forget_repost");
        loop {
            attempts.next().await?;
            let writes = self.repost_removal(user, original, entry).await?;
            attempts.outcome()?;
            if writes.is_empty()
                || attempts.done(self.send_all("forget_repost", writes).await.map(|sent| sent.then_some(()).ok_or(())))
            {
                return Ok(());
            }
        }
    }

    /// Makes the count of a post's reposts the number of their entries.
    pub async fn recount_reposts(&self, original: PostId) -> Result<()> {
        const OPERATION: &str = "recount_reposts";
        let first = schema::reposters(original.seq);
        let key = |part| schema::post_reactions(original, part);
        let counter = post_counter(self, ReactionCountsItem::reposts, &key);
        let mut attempts = attempts(OPERATION);
        loop {
            attempts.next().await?;
            // An entry that comes or goes meanwhile changes the number of changes of a part.
            let stored = self.stored_parts(OPERATION, &counter).await?;
            let count = |shard| {
                let partition = is(ReactionItem::shard, string(schema::follower_shard(original.author, shard)));
                let range = between(ReactionItem::item, string(&first), string(format!("{first}~")));
                count_queried(OPERATION, self.query(&self.tables.reactions, [partition, range]).consistent_read(true))
            };
            let right = try_join_all((0..SHARDS).map(count)).await?.into_iter().sum();
            if stored.is_absent() && right == 0 {
                return Ok(());
            }
            attempts.outcome()?;
            let set = self.set_post_count(OPERATION, &counter, &stored, Some(right)).await;
            if attempts.done(set.map(|sent| sent.then_some(()).ok_or(()))) {
                return Ok(());
            }
        }
    }

    /// Returns at most `limit` users who repost a post, below `before`, newest first.
    pub async fn reposters(&self, original: PostId, before: Option<Relation>, limit: usize) -> Result<Vec<Reposter>> {
        let read = |item: &Item| read_reposter(item).map(|(_, entry)| (entry.by, entry));
        let attributes = [ReposterItem::shard, ReposterItem::item, ReposterItem::repost];
        let shards = self.listed_partitions("reposters", original).await?;
        self.entries_of("reposters", (shards, schema::reposters(original.seq)), &attributes, (before, limit), read).await
    }

    /// Returns at most `limit` quotes of a post by others below `before`, newest first.
    pub async fn quotes(&self, original: PostId, before: Option<Relation>, limit: usize) -> Result<Vec<Relation>> {
        let read = |item: &Item| ReactionItem::item.parsed(item, schema::quoter_of).map(|(_, by, _)| (by, by));
        let attributes = [ReactionItem::shard, ReactionItem::item];
        let shards = (0..SHARDS).map(|shard| schema::follower_shard(original.author, shard)).collect();
        self.entries_of("quotes", (shards, schema::quoters(original.seq)), &attributes, (before, limit), read).await
    }

    /// Returns all other users who quote a post, and the number of their quotes.
    pub async fn quoters(&self, original: PostId) -> Result<(HashSet<UserId>, u64)> {
        let first = schema::quoters(original.seq);
        let range = [first.clone(), format!("{first}~")];
        let of_shard = async |shard| {
            let (mut users, mut quotes) = (HashSet::new(), 0);
            each_queried("quoters", self.quotes_in(original.author, shard, &range), |item| {
                users.insert(ReactionItem::item.parsed(item, schema::quoter_of)?.1.user);
                quotes += 1;
                Ok(())
            })
            .await?;
            Ok::<_, StoreError>((users, quotes))
        };
        let shards: Vec<(HashSet<UserId>, u64)> =
            stream::iter((0..SHARDS).map(of_shard)).buffered(SHARDS_AT_ONCE).try_collect().await?;
        let quotes = shards.iter().map(|(_, quotes)| quotes).sum();
        Ok((shards.into_iter().flat_map(|(users, _)| users).collect(), quotes))
    }

    /// Returns the numbers of an author's posts that a user quotes. It reads the quotes of these posts by the users of
    /// a shard, at most `limit` of them, those of the newest posts.
    pub async fn quoted_by(&self, user: UserId, author: UserId, limit: usize) -> Result<BTreeSet<Seq>> {
        let query = self.quotes_in(author, user.shard(), &schema::QUOTES.map(str::to_owned)).scan_index_forward(false);
        let items = queried("quoted_by", query, limit).await?;
        let quote = |item: &Item| ReactionItem::item.parsed(item, schema::quoter_of).map(|(seq, by, _)| (seq, by.user));
        let quotes = items.iter().map(quote).collect::<Result<Vec<_>>>()?;
        Ok(quotes.into_iter().filter(|(_, by)| *by == user).map(|(seq, _)| seq).collect())
    }

    fn quotes_in(&self, author: UserId, shard: u16, [first, last]: &[String; 2]) -> QueryFluentBuilder {
        let partition = is(ReactionItem::shard, string(schema::follower_shard(author, shard)));
        let query = self.query(&self.tables.reactions, [partition, between(ReactionItem::item, string(first), string(last))]);
        only(query.consistent_read(true), &[ReactionItem::shard, ReactionItem::item])
    }

    /// Returns the originals of at most `limit` reposts that the user's list has, with the entries.
    pub async fn listed_reposts(&self, user: UserId, limit: usize) -> Result<Vec<(PostId, RepostEntry)>> {
        let by = is(ReactedItem::user, string(schema::reposts_by(user)));
        let query = self.query(&self.tables.reacted, [by]).consistent_read(true);
        let items = queried("listed_reposts", query, limit).await?;
        let original = |item: &Item| ReactedItem::at.parsed(item, schema::reaction_of).map(|key| key.post);
        items.iter().map(|item| Ok((original(item)?, read_entry(item)?))).collect()
    }
}

impl Facts {
    /// The keys of what a publish reads of the post that it names: in `posts`, `reactions` and `reacted`.
    pub(crate) fn named_keys(new: &NewPost) -> [Vec<Item>; 3] {
        let Some(of) = new.of else { return [const { Vec::new() }; 3] };
        let original = of.original();
        let mut posts = vec![schema::post(original)];
        if original.author != new.author {
            posts.push(schema::head(original.author));
        }
        let entry = of.reposted().map(|original| schema::repost(new.author, original));
        let counts = of.reposted().map(|original| schema::post_reactions(original, 0));
        let reactions = [schema::reaction(new.author, original.author)].into_iter().chain(counts);
        [posts, reactions.collect(), entry.into_iter().collect()]
    }

    /// Decodes what was read with these keys, without the author's own head.
    pub(crate) fn read_named(new: &NewPost, posts: Vec<Item>, mut reactions: Vec<Item>, entries: &[Item]) -> Result<Named> {
        let original = new.of.and_then(Reference::reposted);
        let counts = original.map(|original| PostCounts::take(original, &mut reactions)).transpose()?;
        let (heads, posts): (Vec<Item>, Vec<Item>) = posts.into_iter().partition(schema::is_head);
        let heads = heads.into_iter().map(super::heads::read_head).collect::<Result<Vec<_>>>()?;
        let reactions = reactions.into_iter().map(|item| Ok(read_reactions(item)?.2.blocks)).collect::<Result<Vec<Blocks>>>()?;
        Ok(Named {
            original: posts.into_iter().next().map(read_post).transpose()?,
            audience: heads.first().map(AuthorHead::audience).unwrap_or_default(),
            blocks: reactions.first().copied().unwrap_or_default(),
            entry: entries.first().map(read_entry).transpose()?,
            counts,
        })
    }

    /// Decides about the post that a new one names. A repost in its place is replaced by its original.
    pub(crate) async fn name(&self, new: &mut NewPost, named: Named) -> Result<Naming> {
        let Some(of) = new.of else { return Ok(Naming::Done) };
        let (author, original) = (new.author, of.original());
        if named.original.as_ref().is_some_and(|post| !post.deleted && post.reposted().is_some()) {
            return Ok(match self.target_of(author, original).await? {
                Ok(target) => {
                    new.of = Some(if of.reposted().is_some() { Reference::Repost(target) } else { Reference::Quote(target) });
                    Naming::Again
                }
                Err(withheld) => Naming::Ends(Box::new(Published::Withheld(withheld))),
            });
        }
        if let Err(withheld) = named.may_be_named(author, original) {
            return Ok(Naming::Ends(Box::new(Published::Withheld(withheld))));
        }
        let Some(entry) = named.entry else { return Ok(Naming::Done) };
        match self.standing_repost(author, original, entry).await? {
            Some(repost) => Ok(Naming::Ends(Box::new(Published::Repeated(repost)))),
            // Only a restored table or an operator leaves an entry without its post.
            None => self.forget_repost(author, original, entry).await.map(|()| Naming::Again),
        }
    }

    /// Returns the standing repost of this entry; `None` if the post does not stand, or is of another original.
    pub async fn standing_repost(&self, user: UserId, original: PostId, entry: RepostEntry) -> Result<Option<Post>> {
        let id = PostId::new(user, entry.seq);
        let post = self.posts(&[id]).await?.remove(&id);
        Ok(post.filter(|post| !post.deleted && post.reposted() == Some(original)))
    }

    /// The writes that a post needs beside it because it names another: the check that neither of the two users blocks
    /// the other, and, for a repost, its entries and its count. The transaction does not name the original: all reposts
    /// of a popular post would lock one item, and delay its deletion. A repost or quote that overlaps the deletion, or
    /// a change of privacy, counts as one from before it: the original is then unavailable in it.
    pub(crate) fn reference_writes(&self, post: &Post, counts: Option<PostCounts>) -> Vec<Write> {
        let (reactions, user) = (&self.tables.reactions, post.id.author);
        let Some(of) = post.of else { return Vec::new() };
        let mut writes = Vec::new();
        if of.original().author != user {
            let blocks = Write::check(reactions, schema::reaction(user, of.original().author));
            writes.push(blocks.when(absent(ReactionItem::blocked)).when(absent(ReactionItem::blocks)));
        }
        writes.extend(self.repost_writes(post, counts));
        writes.extend(quoter(post).map(|entry| Write::put(reactions, entry)));
        writes
    }

    /// The entries of a post that is a repost, and its count; without counts, the user's entry alone.
    pub(crate) fn repost_writes(&self, post: &Post, counts: Option<PostCounts>) -> Vec<Write> {
        let Some(original) = post.reposted() else { return Vec::new() };
        let (reactions, user, at) = (&self.tables.reactions, post.id.author, post.created_at);
        let entry = schema::repost_item(user, original, at, post.id.seq);
        let mut writes = vec![Write::put(&self.tables.reacted, entry).when(absent(ReactedItem::user))];
        if let Some(counts) = counts {
            writes.extend([
                Write::put(reactions, schema::reposter_item(original, Relation { since: at, user }, post.id.seq)),
                counts.add(self, user, ReactionCountsItem::reposts, 1),
            ]);
        }
        writes
    }

    /// The writes that remove the entries of a repost and lower its original's count. Entries that another repost has,
    /// or that were removed with the original's author, are left alone.
    pub(crate) async fn repost_removal(&self, user: UserId, original: PostId, entry: RepostEntry) -> Result<Vec<Write>> {
        let (reactions, reacted) = (&self.tables.reactions, &self.tables.reacted);
        let by_user = schema::repost(user, original);
        let by_original = schema::reposter(original, Relation { since: entry.at, user });
        let counts = schema::post_reactions(original, 0);
        let wanted = [(reacted.as_str(), vec![by_user.clone()]), (reactions.as_str(), vec![by_original.clone(), counts])];
        let [of_user, of_original] = self.batch_get("repost_removal", wanted).await?;
        let (listed, counted): (Vec<Item>, Vec<Item>) =
            of_original.into_iter().partition(|item| ReposterItem::repost.of(item).is_some());
        let mut writes = Vec::new();
        let number_of = |attribute: super::item::Attribute, item: &Item| attribute.optional::<Seq>(item).ok().flatten();
        if of_user.iter().any(|item| number_of(ReactedItem::repost, item) == Some(entry.seq)) {
            writes.push(Write::delete(reacted, by_user).when(is(ReactedItem::repost, number(entry.seq))));
        }
        if listed.iter().any(|item| number_of(ReposterItem::repost, item) == Some(entry.seq)) {
            writes.push(Write::delete(reactions, by_original).when(present(ReposterItem::repost)));
            writes.extend(PostCounts::take_repost(self, original, counted.first())?);
        }
        Ok(writes)
    }
}

/// The entry of a quote in the list of its original; `None` if the post is none, or quotes its own author.
pub fn quoter(post: &Post) -> Option<Item> {
    let original = post.of.filter(|of| of.reposted().is_none())?.original();
    let by = Relation { since: post.created_at, user: post.id.author };
    (original.author != by.user).then(|| schema::quoter(original, by, post.id.seq))
}

/// The number and the time of a repost in its user's list.
pub fn read_entry(item: &Item) -> Result<RepostEntry> {
    let at = ReactedItem::at.parsed(item, schema::reaction_of)?.at;
    Ok(RepostEntry { seq: ReactedItem::repost.read(item)?, at })
}

/// The number of the original, and an entry among its reposters.
pub fn read_reposter(item: &Item) -> Result<(Seq, Reposter)> {
    let (seq, by) = ReposterItem::item.parsed(item, schema::reposter_of)?;
    Ok((seq, Reposter { by, repost: PostId::new(by.user, ReposterItem::repost.read(item)?) }))
}

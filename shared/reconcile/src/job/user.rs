//! Loads all facts of one user: the user's own items, then the items of others that must agree with them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use futures::future::try_join_all;
use tidemark_domain::{Comment, CommentId, Edge, Post, PostId, Reaction, Seq, Timestamp, UserId, ids::SHARDS};
use tidemark_facts::StoredComment;

use super::{
    Reconcile, ReconcileError,
    load::damaged_text,
    walk::{DAY, in_sample},
};
use crate::{
    diff::{
        DamagedItem, ListedQuote, ListedReaction, ListedRepost,
        comments::PostComments,
        facts::{ListedShard, ReactionShard, StoredCount, StoredPost, UserFacts},
    },
    facts::{Decoded, listed_quote},
};

/// The most reactions of one shard that are looked for in the lists of their users.
const MOST_LISTED: usize = 1_000;

/// The posts of an author whose comments are looked at.
const MOST_COMMENTED: usize = 20;

/// The live posts of an author whose texts are read. A text may have 64 KiB, that is 16 read units.
const MOST_TEXTS: usize = 50;

/// Leaves out entries of users whose own pairs cannot be read. Their shards are not whole.
fn leave_out(shards: &mut [ListedShard], unsure: HashSet<UserId>) {
    for shard in shards {
        shard.whole &= shard.followers.iter().all(|entry| !unsure.contains(&entry.user));
        shard.followers.retain(|entry| !unsure.contains(&entry.user));
    }
}

impl Reconcile {
    /// Loads counts first, then the items that they count. The other side of an edge costs a read unit of its own. It
    /// is loaded if one of the two users is in the sample, or the count differs from the list. Otherwise it counts as
    /// right.
    pub(super) async fn user_facts(&self, user: UserId, share: f64) -> Result<UserFacts, ReconcileError> {
        let mut facts = self.own_facts(user).await?;
        self.add_other_sides(&mut facts, share).await?;
        for shard in facts.reactions.iter_mut().filter(|shard| shard.whole) {
            (shard.unlisted, shard.listed_at) = self.listed(shard.entries(user)).await?;
        }
        self.add_reposts(&mut facts).await?;
        self.add_quotes(&mut facts).await?;
        let authors: Vec<UserId> = facts.reacted.iter().map(|entry| entry.post.author).collect();
        let given = self.facts.given_to(user, &authors).await?;
        facts.reacted.retain(|entry| given.damaged.iter().all(|(author, _)| *author != entry.post.author));
        facts.given = readable(given, &mut facts.damaged);
        self.add_comments(&mut facts).await?;
        Ok(facts)
    }

    /// Adds the comments on the user's posts, and those in the user's list that do not stand.
    async fn add_comments(&self, facts: &mut UserFacts) -> Result<(), ReconcileError> {
        let audit = &self.facts;
        let of_users: Option<Vec<_>> = facts.reactions.iter().map(|shard| shard.commented.clone()).collect();
        let of_users: Option<Vec<_>> = of_users.map(|shards| shards.into_iter().flatten().collect());
        let counted = of_users.iter().flatten().map(|((seq, _), _)| PostId::new(facts.user, *seq));
        let mut posts: Vec<PostId> = facts.posts.iter().map(|stored| stored.post.id).collect();
        self.only_todays(&mut posts, MOST_TEXTS);
        let posts: BTreeSet<PostId> = posts.into_iter().chain(counted.clone()).collect();
        let numbers = audit.last_numbers(&posts.into_iter().collect::<Vec<_>>()).await?;
        let unreadable: Vec<PostId> = numbers.damaged.iter().map(|(post, _)| *post).collect();
        let numbers = readable(numbers, &mut facts.damaged);
        let mut posts: Vec<PostId> = numbers.keys().copied().chain(counted).collect::<BTreeSet<_>>().into_iter().collect();
        posts.retain(|post| !unreadable.contains(post));
        self.only_todays(&mut posts, MOST_COMMENTED);
        for post in posts {
            let lanes = audit.lanes(post).await?;
            let Some(stored) = audit.all_comments(post, numbers.get(&post).copied().unwrap_or(0)).await? else { continue };
            let is_whole = lanes.damaged.is_empty() && stored.damaged.is_empty();
            let (lanes, stored) = (readable(lanes, &mut facts.damaged), readable(stored, &mut facts.damaged));
            if !is_whole {
                continue;
            }
            // A comment that was written since has a higher number than the last one before.
            let last = self.facts.last_numbers(&[post]).await?.found.remove(&post).unwrap_or(0);
            let highest = stored.iter().map(|comment| comment.id.number).max().unwrap_or(0);
            let standing: Vec<Comment> = stored.into_iter().filter_map(StoredComment::standing).collect();
            let mut due: Vec<(UserId, CommentId)> = standing.iter().map(|comment| (comment.author, comment.id)).collect();
            self.only_todays(&mut due, MOST_LISTED);
            let listed = audit.listed_comments(&due).await?;
            let unlisted = due.into_iter().map(|(_, id)| id).filter(|id| !listed.contains(id)).collect();
            let of_post = |of_users: &Vec<((Seq, UserId), StoredCount)>| {
                let of_post = of_users.iter().filter(|((seq, _), _)| *seq == post.seq);
                of_post.map(|((_, user), count)| (*user, *count)).collect()
            };
            let of_users = of_users.as_ref().map(of_post);
            facts.comments.insert(post, PostComments { standing, last, highest, lanes, of_users, unlisted });
        }
        let listed = readable(audit.commented_by(facts.user).await?, &mut facts.damaged);
        let stored = audit.standing(&listed).await?;
        let unsure: Vec<CommentId> = stored.damaged.iter().map(|(id, _)| *id).collect();
        let standing = readable(stored, &mut facts.damaged);
        let is_ghost = |id: &CommentId| !unsure.contains(id) && standing.get(id).copied().flatten() != Some(facts.user);
        facts.comment_ghosts = listed.into_iter().filter(is_ghost).collect();
        Ok(())
    }

    async fn own_facts(&self, user: UserId) -> Result<UserFacts, ReconcileError> {
        let (audit, own, shards, mut damaged) = (&self.facts, [user], || 0..SHARDS, BTreeSet::new());
        let (([followings, requests_sent], [follower_counts, request_counts]), heads) =
            futures::try_join!(audit.counts(user), audit.stored_heads(&own))?;
        let (edges, posts, reads, followers, requests, sent, reactions, reacted, reposted, handle) = futures::try_join!(
            audit.edges_of(user),
            audit.newest_posts(user),
            audit.stored_reads(user),
            try_join_all(shards().map(|shard| audit.listed_followers(user, shard))),
            try_join_all(shards().map(|shard| audit.listed_requests(user, shard))),
            audit.sent_requests(user),
            try_join_all(shards().map(|shard| audit.reactions_in(user, shard))),
            try_join_all(Reaction::ALL.map(|reaction| audit.reacted_by(user, reaction))),
            audit.reposted_by(user),
            audit.handle_of(user),
        )?;
        let head = readable(heads, &mut damaged).remove(&user);
        let (edges, edges_whole) = shard(Some(edges), &mut damaged);
        let mut listed = |stored| {
            let (followers, whole) = shard(stored, &mut damaged);
            ListedShard { followers, whole }
        };
        let [followers, requests] = [followers, requests].map(|shards| shards.into_iter().map(&mut listed).collect());
        let sent = listed(sent);
        let reactions = reactions.into_iter().map(|stored| shard(stored, &mut damaged));
        let reactions = reactions.map(|(shard, whole)| ReactionShard { whole, ..shard }).collect();
        Ok(UserFacts {
            user,
            edges,
            edges_whole,
            followings,
            listed: HashMap::new(),
            followers,
            live_followers: HashSet::new(),
            follower_counts,
            requests_sent,
            sent,
            asked: HashMap::new(),
            requests,
            live_requests: HashSet::new(),
            request_counts,
            head,
            posts: readable(posts, &mut damaged),
            bodies: HashSet::new(),
            reads: readable(reads, &mut damaged),
            read_heads: HashMap::new(),
            reactions,
            reacted: reacted.into_iter().flat_map(|list| readable(list, &mut damaged)).collect(),
            given: HashMap::new(),
            reposted: readable(reposted, &mut damaged),
            ghost_reposts: BTreeSet::new(),
            unlisted_reposts: BTreeMap::new(),
            wrong_quotes: Vec::new(),
            comments: HashMap::new(),
            comment_ghosts: Vec::new(),
            blocks: Vec::new(),
            handle: readable(handle, &mut damaged).pop(),
            damaged,
        })
    }

    /// Adds the items of others, and further items of the user, that must agree with the user's own.
    async fn add_other_sides(&self, facts: &mut UserFacts, share: f64) -> Result<(), ReconcileError> {
        let (audit, user) = (&self.facts, facts.user);
        let day = self.app.stores.clock.now().ms() / DAY;
        let is_due = |user: UserId| in_sample(user, share, day);
        let (compared, not_compared): (Vec<UserId>, Vec<UserId>) =
            facts.following().map(|edge| edge.author).partition(|_| is_due(user));
        // The followers whose edges are not looked at today count as live.
        let (mut due, mut others) = (Vec::new(), Vec::new());
        for (shard, count) in facts.followers.iter().zip(&facts.follower_counts) {
            let all = is_due(user) || count.count != Some(shard.followers.len() as u64);
            for follower in shard.followers.iter().map(|follower| follower.user) {
                if all || is_due(follower) { due.push(follower) } else { others.push(follower) }
            }
        }
        let asked: Vec<UserId> = facts.asking().map(|edge| edge.author).collect();
        let mut asking: Vec<UserId> = facts.requests.iter().flat_map(|shard| &shard.followers).map(|entry| entry.user).collect();
        self.only_todays(&mut asking, MOST_LISTED);
        let read: Vec<UserId> = facts.reads.keys().copied().collect();
        let [tombstones, mut with_text] = [true, false].map(|deleted| -> Vec<PostId> {
            facts.posts.iter().filter(|stored| stored.post.deleted == deleted).map(|stored| stored.post.id).collect()
        });
        let blocked = facts.edges.iter().filter(|edge| edge.blocked.is_some()).map(|edge| (edge.user, edge.author));
        let flagged = facts.reactions.iter().flat_map(|shard| shard.flagged.iter().copied());
        let [blocking, blockers] = self.app.stores.facts.blocks_of(user).await?;
        let blocking = blocking.into_iter().map(|other| (user, other));
        let noted = blocking.chain(blockers.into_iter().map(|other| (other, user)));
        let blocks: BTreeSet<(UserId, UserId)> = blocked.chain(flagged).chain(noted).collect();
        let mut blocks: Vec<(UserId, UserId)> = blocks.into_iter().collect();
        self.only_todays(&mut with_text, MOST_TEXTS);
        self.only_todays(&mut blocks, MOST_LISTED);
        let (listed, live_followers, asked, live_requests, read_heads, bodies, texts, blocks) = futures::try_join!(
            audit.listed_by(user, &compared),
            audit.live_pairs_with(user, &due, |edge| edge.following),
            audit.asked_by(user, &asked),
            audit.live_pairs_with(user, &asking, Edge::asks),
            audit.stored_heads(&read),
            audit.bodies(&tombstones),
            self.app.stores.facts.posts_with_texts(&with_text),
            audit.blocks(&blocks),
        )?;
        leave_out(&mut facts.followers, live_followers.damaged.iter().map(|(follower, _)| *follower).collect());
        leave_out(&mut facts.requests, live_requests.damaged.iter().map(|(asking, _)| *asking).collect());
        let looked_at: HashSet<UserId> = asking.into_iter().collect();
        let listed_requests: Vec<UserId> =
            facts.requests.iter().flat_map(|shard| &shard.followers).map(|entry| entry.user).collect();
        facts.live_requests = readable(live_requests, &mut facts.damaged);
        facts.live_requests.extend(listed_requests.into_iter().filter(|asking| !looked_at.contains(asking)));
        let unknown: Vec<UserId> = asked.damaged.iter().map(|(author, _)| *author).collect();
        facts.asked = readable(asked, &mut facts.damaged).into_iter().map(|(author, at)| (author, Some(at))).collect();
        facts.asked.extend(unknown.into_iter().map(|author| (author, None)));
        let unknown: Vec<UserId> = listed.damaged.iter().map(|(author, _)| *author).chain(not_compared).collect();
        facts.listed = readable(listed, &mut facts.damaged).into_iter().map(|(author, since)| (author, Some(since))).collect();
        facts.listed.extend(unknown.into_iter().map(|author| (author, None)));
        facts.live_followers = readable(live_followers, &mut facts.damaged);
        facts.live_followers.extend(others);
        facts.read_heads = readable(read_heads, &mut facts.damaged);
        facts.damaged.extend(texts.values().filter(|(_, text)| text.is_none()).map(|(post, _)| damaged_text(post.id)));
        (facts.bodies, facts.blocks) = (bodies, blocks);
        Ok(())
    }

    /// Returns the reactions that the users' lists lack, and the times of the others, of as many as are looked at
    /// today.
    async fn listed(
        &self,
        mut entries: Vec<(ListedReaction, u32)>,
    ) -> Result<(Vec<(ListedReaction, u32)>, HashMap<ListedReaction, Timestamp>), ReconcileError> {
        self.only_todays(&mut entries, MOST_LISTED);
        let wanted: Vec<ListedReaction> = entries.iter().map(|(entry, _)| *entry).collect();
        let listed = self.facts.listed_reactions(&wanted).await?;
        entries.retain(|(entry, _)| !listed.contains_key(entry));
        Ok((entries, listed.into_iter().filter_map(|(entry, at)| Some((entry, at?))).collect()))
    }

    /// Adds the reposts that are listed and do not stand, and those that stand and are not listed, of as many as are
    /// looked at today.
    async fn add_reposts(&self, facts: &mut UserFacts) -> Result<(), ReconcileError> {
        let of_original = facts.reactions.iter().flat_map(|shard| shard.reposts.iter().copied());
        let mut listed: Vec<ListedRepost> = of_original.chain(facts.reposted.iter().copied()).collect();
        self.only_todays(&mut listed, MOST_LISTED);
        let mut own: Vec<ListedRepost> = live_posts(&facts.posts).filter_map(listed_repost).collect();
        self.only_todays(&mut own, MOST_LISTED);
        let ghosts = self.ghosts(listed, |listed| listed.repost, listed_repost, &mut facts.damaged);
        let (ghosts, unlisted) = futures::try_join!(ghosts, async { Ok(self.facts.unlisted_reposts(&own).await?) })?;
        facts.ghost_reposts = ghosts.into_iter().collect();
        facts.unlisted_reposts = unlisted.into_iter().collect();
        Ok(())
    }

    /// The same for quotes.
    async fn add_quotes(&self, facts: &mut UserFacts) -> Result<(), ReconcileError> {
        let mut listed: Vec<ListedQuote> =
            facts.reactions.iter().flat_map(|shard| shard.quotes.iter().flatten().copied()).collect();
        self.only_todays(&mut listed, MOST_LISTED);
        let mut own: Vec<&Post> = live_posts(&facts.posts).filter(|post| listed_quote(post).is_some()).collect();
        self.only_todays(&mut own, MOST_LISTED);
        let ghosts = self.ghosts(listed, |listed| listed.quote, listed_quote, &mut facts.damaged);
        let (ghosts, unlisted) = futures::try_join!(ghosts, async { Ok(self.facts.unlisted_quotes(&own).await?) })?;
        facts.wrong_quotes = ghosts.into_iter().map(|of| (of, false)).chain(unlisted.into_iter().map(|of| (of, true))).collect();
        Ok(())
    }

    /// Returns the listed entries that do not stand: no live post has this entry, and none is damaged.
    async fn ghosts<L: PartialEq>(
        &self,
        listed: Vec<L>,
        post_of: fn(&L) -> PostId,
        entry_of: fn(&Post) -> Option<L>,
        damaged: &mut BTreeSet<DamagedItem>,
    ) -> Result<Vec<L>, ReconcileError> {
        let ids: Vec<PostId> = listed.iter().map(post_of).collect();
        let posts = self.facts.stored_posts(&ids).await?;
        let is_damaged = |id: PostId| posts.damaged.iter().any(|(damaged, _)| *damaged == id);
        let stands = |listed: &L| {
            let post = posts.found.get(&post_of(listed)).map(|stored| &stored.post).filter(|post| !post.deleted);
            post.and_then(entry_of).as_ref() == Some(listed)
        };
        let ghosts = listed.into_iter().filter(|listed| !stands(listed) && !is_damaged(post_of(listed))).collect();
        readable(posts, damaged);
        Ok(ghosts)
    }

    /// Leaves the entries that are looked at today, at most `most`. Every day these are others, until all were.
    fn only_todays<T>(&self, entries: &mut Vec<T>, most: usize) {
        if !entries.is_empty() {
            let day = (self.app.stores.clock.now().ms() / DAY) as usize;
            let first = day.wrapping_mul(most) % entries.len();
            entries.rotate_left(first);
            entries.truncate(most);
        }
    }
}

fn live_posts(posts: &[StoredPost]) -> impl Iterator<Item = &Post> {
    posts.iter().map(|stored| &stored.post).filter(|post| !post.deleted)
}

/// The entry of a repost among those of its original.
fn listed_repost(post: &Post) -> Option<ListedRepost> {
    Some(ListedRepost { repost: post.id, original: post.reposted()?, at: post.created_at })
}

/// Returns the items that can be read, and adds the others to `damaged`.
fn readable<T, K>(decoded: Decoded<T, K>, damaged: &mut BTreeSet<DamagedItem>) -> T {
    damaged.extend(decoded.damaged.into_iter().map(|(_, item)| item));
    decoded.found
}

/// The same, and whether these are all items. A shard with too many, which is `None`, has none here.
fn shard<T: Default>(stored: Option<Decoded<T>>, damaged: &mut BTreeSet<DamagedItem>) -> (T, bool) {
    let whole = stored.as_ref().is_some_and(|stored| stored.damaged.is_empty());
    (readable(stored.unwrap_or_default(), damaged), whole)
}

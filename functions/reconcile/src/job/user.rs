//! Loads all facts of one user: the user's own items, then the items of others that must agree with them.

use std::collections::{BTreeSet, HashMap, HashSet};

use futures::future::try_join_all;
use tidemark_domain::{
    Edge, Post, PostId, PostText, Reaction, ReactionState, ReadState, Relation, Timestamp, UserId, ids::SHARDS,
};

use super::{
    context::{Reconcile, ReconcileError},
    load::damaged_text,
    walk::{DAY, in_sample},
};
use crate::{
    diff::{
        DamagedItem, ListedReaction,
        facts::{ListedShard, ReactionShard, StoredBlock, StoredHandle, StoredHead, StoredPost, UserFacts},
    },
    stored::{Decoded, StoredCounts},
};

/// The most items of one shard that are looked at. The counts of an author with 16 times as many followers are not
/// checked: only the transactions that write them keep them exact.
const MOST_IN_SHARD: usize = 10_000;

/// The newest posts of an author that are looked at.
const MOST_POSTS: usize = 1_000;

/// The most reactions of one shard that are looked for in the lists of their users.
const MOST_LISTED: usize = 1_000;

/// The live posts of an author whose texts are read. A text may have 64 KiB, that is 16 read units.
const MOST_TEXTS: usize = 50;

/// The items of a user.
struct OwnItems {
    counts: StoredCounts,
    heads: Decoded<HashMap<UserId, StoredHead>, UserId>,
    /// All edges, tombstones included.
    edges: Decoded<Vec<Edge>>,
    posts: Decoded<Vec<StoredPost>>,
    reads: Decoded<HashMap<UserId, ReadState>>,
    /// By shard; `None` if a shard has too many.
    followers: Vec<Option<Decoded<Vec<Relation>>>>,
    /// By shard; `None` if a shard has too many.
    reactions: Vec<Option<Decoded<ReactionShard>>>,
    /// The lists of likes and of favorites.
    reacted: [Decoded<Vec<ListedReaction>>; 2],
    handle: Decoded<Vec<StoredHandle>>,
}

/// The items of others, and the further items of the user, that must agree with [`OwnItems`].
struct OtherItems {
    /// The time since which each followed author lists the user.
    listed: Decoded<HashMap<UserId, Timestamp>, UserId>,
    /// The followed authors whose lists are not looked at today. They count as right.
    not_compared: Vec<UserId>,
    /// The followers whose edges are not looked at today count as live.
    live_followers: Decoded<HashSet<UserId>, UserId>,
    read_heads: Decoded<HashMap<UserId, StoredHead>, UserId>,
    bodies: HashSet<PostId>,
    texts: HashMap<PostId, (Post, Option<PostText>)>,
    blocks: Vec<StoredBlock>,
}

impl OwnItems {
    /// The authors whom the user follows.
    fn followed(&self) -> impl Iterator<Item = UserId> + '_ {
        self.edges.found.iter().filter(|edge| edge.following).map(|edge| edge.author)
    }

    /// The user's blocks, and those of which the user's reactions have a flag.
    fn blocks(&self) -> Vec<(UserId, UserId)> {
        let blocked = self.edges.found.iter().filter(|edge| edge.blocked.is_some()).map(|edge| (edge.user, edge.author));
        let flagged = self.reactions.iter().flatten().flat_map(|shard| shard.found.flagged.iter().copied());
        blocked.chain(flagged).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The deleted posts, and the live ones.
    fn posts_by_state(&self) -> [Vec<PostId>; 2] {
        let of_state = |deleted| {
            let posts = self.posts.found.iter().map(|stored| &stored.post).filter(|post| post.deleted == deleted);
            posts.map(|post| post.id).collect()
        };
        [true, false].map(of_state)
    }

    /// Divides the listed followers into those whose edges are looked at, and the others.
    fn followers_by_look(&self, is_due: impl Fn(UserId) -> bool, all_due: bool) -> [Vec<UserId>; 2] {
        let (mut due, mut others) = (Vec::new(), Vec::new());
        for (shard, count) in self.followers.iter().zip(&self.counts.followers) {
            let Some(shard) = shard else { continue };
            let all = all_due || count.count != Some(shard.found.len() as u64);
            for Relation { user: follower, .. } in &shard.found {
                if all || is_due(*follower) { due.push(*follower) } else { others.push(*follower) }
            }
        }
        [due, others]
    }
}

impl Reconcile {
    /// Loads all facts of one user: counts first, then the items that they count. The other side of an edge costs a
    /// read unit of its own. It is loaded if one of the two users is in the sample, and if the count differs from the
    /// list. The others count as right.
    pub(super) async fn user_facts(&self, user: UserId, share: f64) -> Result<UserFacts, ReconcileError> {
        let mut own = self.own_items(user).await?;
        let others = self.other_items(user, &own, share).await?;
        for shard in own.reactions.iter_mut().flatten() {
            shard.found.unlisted = self.unlisted(shard.found.entries(user)).await?;
        }
        let authors: Vec<UserId> = own.reacted.iter().flat_map(|list| &list.found).map(|entry| entry.post.author).collect();
        let given = self.facts.given_to(user, &authors).await?;
        Ok(user_facts(user, own, others, given))
    }

    async fn own_items(&self, user: UserId) -> Result<OwnItems, ReconcileError> {
        let audit = &self.facts;
        let (own, shards) = ([user], || 0..SHARDS);
        let (counts, heads) = futures::try_join!(audit.counts(user), audit.stored_heads(&own))?;
        let (edges, posts, reads, followers, reactions, likes, favorites, handle) = futures::try_join!(
            audit.edges_of(user),
            audit.newest_posts(user, MOST_POSTS),
            audit.stored_reads(user),
            try_join_all(shards().map(|shard| audit.listed_followers(user, shard, MOST_IN_SHARD))),
            try_join_all(shards().map(|shard| audit.reactions_in(user, shard, MOST_IN_SHARD))),
            audit.reacted_by(user, Reaction::Like, MOST_POSTS),
            audit.reacted_by(user, Reaction::Favorite, MOST_POSTS),
            audit.handle_of(user),
        )?;
        Ok(OwnItems { counts, heads, edges, posts, reads, followers, reactions, reacted: [likes, favorites], handle })
    }

    async fn other_items(&self, user: UserId, own: &OwnItems, share: f64) -> Result<OtherItems, ReconcileError> {
        let audit = &self.facts;
        let day = self.app.stores.clock.now().ms() / DAY;
        let is_due = |user: UserId| in_sample(user, share, day);
        let (compared, not_compared) =
            if is_due(user) { (own.followed().collect(), vec![]) } else { (vec![], own.followed().collect()) };
        let [due, others] = own.followers_by_look(is_due, is_due(user));
        let read: Vec<UserId> = own.reads.found.keys().copied().collect();
        let [tombstones, mut with_text] = own.posts_by_state();
        let mut blocks = own.blocks();
        self.only_todays(&mut with_text, MOST_TEXTS);
        self.only_todays(&mut blocks, MOST_LISTED);
        let (listed, mut live_followers, read_heads, bodies, texts, blocks) = futures::try_join!(
            audit.listed_by(user, &compared),
            audit.live_followers(user, &due),
            audit.stored_heads(&read),
            audit.bodies(&tombstones),
            self.app.stores.posts.with_texts(&with_text),
            audit.blocks(&blocks),
        )?;
        live_followers.found.extend(others);
        Ok(OtherItems { listed, not_compared, live_followers, read_heads, bodies, texts, blocks })
    }

    /// Returns the reactions that the users' lists lack, among as many as are looked at today.
    async fn unlisted(&self, mut entries: Vec<(ListedReaction, u32)>) -> Result<Vec<(ListedReaction, u32)>, ReconcileError> {
        self.only_todays(&mut entries, MOST_LISTED);
        let wanted: Vec<ListedReaction> = entries.iter().map(|(entry, _)| *entry).collect();
        let listed = self.facts.listed_reactions(&wanted).await?;
        entries.retain(|(entry, _)| !listed.contains(entry));
        Ok(entries)
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

/// Collects the items that can be read, and lists the others as damaged.
fn user_facts(
    user: UserId,
    mut own: OwnItems,
    others: OtherItems,
    given: Decoded<HashMap<UserId, ReactionState>, UserId>,
) -> UserFacts {
    let damaged_texts = others.texts.values().filter(|(_, text)| text.is_none()).map(|(post, _)| damaged_text(post.id));
    let mut damaged: BTreeSet<DamagedItem> = damaged_texts.collect();
    let mut reacted: Vec<ListedReaction> = own.reacted.into_iter().flat_map(|list| readable(list, &mut damaged)).collect();
    reacted.retain(|entry| given.damaged.iter().all(|(author, _)| *author != entry.post.author));
    let unsure: HashSet<UserId> = others.live_followers.damaged.iter().map(|(follower, _)| *follower).collect();
    let followers = own.followers.into_iter().map(|shard| listed_shard(shard, &unsure, &mut damaged)).collect();
    let reactions = own.reactions.into_iter().map(|shard| whole_shard(shard?, &mut damaged)).collect();
    let mut unknown: Vec<UserId> = others.listed.damaged.iter().map(|(author, _)| *author).collect();
    unknown.extend(others.not_compared);
    let mut listed: HashMap<UserId, Option<Timestamp>> =
        readable(others.listed, &mut damaged).into_iter().map(|(author, since)| (author, Some(since))).collect();
    listed.extend(unknown.into_iter().map(|author| (author, None)));
    let mut read_heads = readable(others.read_heads, &mut damaged);
    let reads = readable(own.reads, &mut damaged).into_iter();
    let head = own.heads.found.remove(&user);
    readable(own.heads, &mut damaged);
    let following_whole = own.edges.damaged.is_empty();
    let mut following = readable(own.edges, &mut damaged);
    following.retain(|edge| edge.following);
    UserFacts {
        user,
        following_whole,
        following,
        followings: own.counts.followings,
        listed,
        followers,
        live_followers: readable(others.live_followers, &mut damaged),
        follower_counts: own.counts.followers,
        head,
        posts: readable(own.posts, &mut damaged),
        bodies: others.bodies,
        reads: reads.filter_map(|(author, reads)| Some((author, reads, read_heads.remove(&author)?.head))).collect(),
        reactions,
        reacted,
        given: readable(given, &mut damaged),
        blocks: others.blocks,
        handle: readable(own.handle, &mut damaged).pop(),
        damaged,
    }
}

/// Returns the items that can be read, and adds the others to `damaged`.
fn readable<T, K>(decoded: Decoded<T, K>, damaged: &mut BTreeSet<DamagedItem>) -> T {
    damaged.extend(decoded.damaged.into_iter().map(|(_, item)| item));
    decoded.found
}

/// The reactions of a shard, if all of them can be read.
fn whole_shard(shard: Decoded<ReactionShard>, damaged: &mut BTreeSet<DamagedItem>) -> Option<ReactionShard> {
    let whole = shard.damaged.is_empty();
    let found = readable(shard, damaged);
    whole.then_some(found)
}

/// A shard without the followers whose edges cannot be read.
fn listed_shard(
    shard: Option<Decoded<Vec<Relation>>>,
    unsure: &HashSet<UserId>,
    damaged: &mut BTreeSet<DamagedItem>,
) -> ListedShard {
    let Some(shard) = shard else { return ListedShard::default() };
    let whole = shard.damaged.is_empty() && shard.found.iter().all(|follower| !unsure.contains(&follower.user));
    let mut followers = readable(shard, damaged);
    followers.retain(|follower| !unsure.contains(&follower.user));
    ListedShard { followers, whole }
}

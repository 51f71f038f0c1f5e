//! Facts against facts, user by user.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde::Serialize;

use super::{DamagedItem, FactDifference, GRACE_SECONDS, Recount};
use tidemark_domain::{
    AuthorHead, DeliveryState, Edge, NoticeId, Post, PostId, Reaction, ReactionState, ReadState, Relation, Seq, Timestamp,
    UserId, ids::SHARDS, invariants, model::TOMBSTONE_SECONDS,
};
use tidemark_facts::item::Reader;

/// A post with what else is stored about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPost {
    /// The post.
    pub post: Post,
    /// Whether the index of unfinished fan-outs lists it.
    pub unfinished: bool,
}

impl StoredPost {
    /// Whether its delivery or retraction is still under way.
    pub fn is_moving(&self) -> bool {
        self.unfinished || self.post.delivery.state == DeliveryState::Pending
    }
}

/// A count as it is stored, zero when it is not, with the number of its changes; `None` is below zero, or no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredCount {
    /// What is counted.
    pub count: Option<u64>,
    /// How often what is counted has changed.
    pub changes: Option<u64>,
}

impl Default for StoredCount {
    fn default() -> Self {
        Self { count: Some(0), changes: Some(0) }
    }
}

impl StoredCount {
    /// A count of an item with its change number.
    pub fn read(reader: &Reader<'_>, name: &str) -> Self {
        let number = |name| reader.optional_number(name).map(|number| number.unwrap_or(0)).ok();
        Self { count: number(name), changes: number("changes") }
    }

    /// What is wrong with it when `right` were listed after it was read.
    fn recount(self, right: u64) -> Option<Recount> {
        let Self { count: seen, changes } = self;
        (seen != Some(right) || changes.is_none()).then_some(Recount { seen, right, changes })
    }
}

/// A head, with its numbers as they are stored.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StoredHead {
    /// The head; a count that cannot be read is zero in it.
    pub head: AuthorHead,
    /// Its live posts as counted.
    pub posts: StoredCount,
    /// The number of its deletions; `None` when there is none.
    pub deletions: Option<u64>,
}

/// The reactions that the users of one shard have given to one author.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReactionShard {
    /// What each user thinks.
    pub users: Vec<ReactionState>,
    /// The counts of each post.
    pub posts: HashMap<Seq, ShardCounts>,
    /// The counts of all posts.
    pub total: ShardCounts,
}

/// Likes and favorites as they are counted in one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShardCounts {
    /// Likes.
    pub likes: StoredCount,
    /// Favorites.
    pub favorites: StoredCount,
}

impl ShardCounts {
    fn of(&self, reaction: Reaction) -> StoredCount {
        match reaction {
            Reaction::Like => self.likes,
            Reaction::Favorite => self.favorites,
        }
    }
}

/// Followers as one shard lists them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListedShard {
    /// Those that can be read.
    pub followers: Vec<Relation>,
    /// Whether these are all: none is damaged, nor its edge, and there are not more than are looked at.
    pub whole: bool,
}

/// All that the facts say of one user, as follower, author and reader. A shard of reactions that is `None` has more in it than is looked at, or something that cannot be
/// read; its numbers are exact by construction, and to prove it would take longer than they stand still. All counts were read before what they count.
#[derive(Debug, Clone)]
pub struct UserFacts {
    /// Who.
    pub user: UserId,
    /// Live edges.
    pub following: Vec<Edge>,
    /// Whether these are all: none is damaged.
    pub following_whole: bool,
    /// How many authors the user is counted to follow.
    pub followings: StoredCount,
    /// Since when the authors followed list the user; `None` when that cannot be read.
    pub listed: HashMap<UserId, Option<Timestamp>>,
    /// Followers as listed, shard by shard; without those whose edges cannot be read.
    pub followers: Vec<ListedShard>,
    /// Which of them have a live edge.
    pub live_followers: HashSet<UserId>,
    /// How many are counted, shard by shard.
    pub follower_counts: [StoredCount; SHARDS as usize],
    /// The user's head as an author; `None` when it cannot be read.
    pub head: Option<StoredHead>,
    /// The newest posts.
    pub posts: Vec<StoredPost>,
    /// Which of the deleted ones have a body.
    pub bodies: HashSet<PostId>,
    /// What the user has read, with the latest post of each author.
    pub reads: Vec<(UserId, ReadState, AuthorHead)>,
    /// Reactions received, shard by shard.
    pub reactions: Vec<Option<ReactionShard>>,
    /// What of all this cannot be read.
    pub damaged: BTreeSet<DamagedItem>,
}

/// What is wrong. `missing` are edges (user, author) that are known not to be listed: their authors' counts count them.
pub fn differences(facts: &UserFacts, missing: &BTreeSet<(UserId, UserId)>) -> Vec<FactDifference> {
    let mut found = edges(facts, missing);
    found.extend(posts(facts));
    found.extend(facts.damaged.iter().cloned().map(|item| FactDifference::ItemDamaged { item }));
    for (author, reads, head) in &facts.reads {
        if !invariants::reads_only_what_exists(head, reads) {
            found.push(FactDifference::ReadsBeyond { user: facts.user, author: *author, latest: head.latest_seq });
        }
    }
    for (shard, reactions) in facts.reactions.iter().enumerate() {
        if let Some(reactions) = reactions {
            found.extend(self::reactions(facts.user, shard as u16, reactions));
        }
    }
    found
}

/// Edges of the user that the author does not list.
pub fn missing(facts: &UserFacts) -> impl Iterator<Item = (UserId, UserId)> + '_ {
    facts.following.iter().filter(|edge| !facts.listed.contains_key(&edge.author)).map(|edge| (edge.user, edge.author))
}

fn edges(facts: &UserFacts, missing: &BTreeSet<(UserId, UserId)>) -> Vec<FactDifference> {
    let UserFacts { user, .. } = *facts;
    let mut found = Vec::new();
    for edge in &facts.following {
        let Edge { author, since, rev, .. } = *edge;
        match facts.listed.get(&author) {
            None => found.push(FactDifference::FollowerMissing { user, author, since, rev }),
            Some(Some(listed)) if *listed != since => found.push(FactDifference::FollowerSince { user, author, since, rev }),
            Some(_) => {}
        }
    }
    if facts.following_whole
        && let Some(count) = facts.followings.recount(facts.following.len() as u64)
    {
        found.push(FactDifference::FollowingsCount { user, count });
    }
    for (shard, ListedShard { followers, whole }) in facts.followers.iter().enumerate() {
        let ghosts = followers.iter().filter(|follower| !facts.live_followers.contains(&follower.user));
        found.extend(ghosts.map(|ghost| FactDifference::FollowerGhost { user: ghost.user, author: user, since: ghost.since }));
        let live = followers.iter().filter(|follower| facts.live_followers.contains(&follower.user)).count();
        let missing = missing.iter().filter(|(follower, author)| *author == user && usize::from(follower.shard()) == shard);
        let right = (live + missing.count()) as u64;
        if *whole && let Some(count) = facts.follower_counts[shard].recount(right) {
            found.push(FactDifference::FollowersCount { author: user, shard: shard as u16, count });
        }
    }
    found
}

fn posts(facts: &UserFacts) -> Vec<FactDifference> {
    let UserFacts { user: author, head: stored, .. } = facts;
    let mut found = Vec::new();
    let head = stored.as_ref().map(|stored| &stored.head);
    let mut implied = head.map_or(0, AuthorHead::implied_posts);
    for StoredPost { post, unfinished } in &facts.posts {
        let id = post.id;
        let left_out = !post.is_in_feeds();
        if head.is_some_and(|head| head.deleted.contains(id.seq) != left_out) {
            found.push(FactDifference::HeadDeletion { post: id, deleted: left_out });
            implied = if left_out { implied.saturating_sub(1) } else { implied + 1 };
        }
        match (post.deleted, post.delivery.state, unfinished) {
            (false, DeliveryState::Done, true) => found.push(FactDifference::UnfinishedLeft { post: id }),
            (false, DeliveryState::Pending | DeliveryState::Running, false) => {
                found.push(FactDifference::UnfinishedMissing { post: id });
            }
            _ => {}
        }
        if post.deleted && facts.bodies.contains(&id) {
            found.push(FactDifference::BodyLeft { post: id });
        }
    }
    if let Some(StoredHead { head, posts, deletions }) = stored
        && posts.count != Some(implied)
    {
        let (seen, latest, deletions) = (posts.count, head.latest_seq, *deletions);
        found.push(FactDifference::HeadPosts { author: *author, seen, right: implied, latest, deletions });
    }
    found
}

fn reactions(author: UserId, shard: u16, stored: &ReactionShard) -> Vec<FactDifference> {
    let mut found = Vec::new();
    for reaction in Reaction::ALL {
        let mut right: HashMap<Seq, u64> = stored.posts.keys().map(|&seq| (seq, 0)).collect();
        let mut total = 0;
        for seq in stored.users.iter().flat_map(|state| state.of(reaction).above(0)) {
            *right.entry(seq).or_default() += 1;
            total += 1;
        }
        for (seq, right) in right {
            let seen = stored.posts.get(&seq).copied().unwrap_or_default().of(reaction);
            if let Some(count) = seen.recount(right) {
                found.push(FactDifference::PostReactions { post: PostId::new(author, seq), shard, reaction, count });
            }
        }
        if let Some(count) = stored.total.of(reaction).recount(total) {
            found.push(FactDifference::AuthorReactions { author, shard, reaction, count });
        }
    }
    found
}

/// An idempotency record as stored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct StoredRecord {
    /// Its key.
    #[serde(rename = "record")]
    pub key: String,
    /// What it says; `None` when it cannot be read.
    #[serde(skip)]
    pub says: Option<RecordSays>,
}

/// What an idempotency record says was published.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answered {
    /// A post.
    Post(PostId),
    /// Notices, one a platform.
    Notices(Vec<NoticeId>),
}

/// What an idempotency record says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordSays {
    /// What was published.
    pub answered: Answered,
    /// Unix seconds.
    pub expires_at: u64,
    /// Whether there is, or was, such a post or such notices.
    pub exists: bool,
}

/// What is wrong with an idempotency record.
pub fn of_record(record: &StoredRecord, now: Timestamp) -> Option<FactDifference> {
    let record = record.clone();
    match &record.says {
        None => Some(FactDifference::RecordDamaged { record }),
        Some(says) if says.expires_at + GRACE_SECONDS < now.seconds() => Some(FactDifference::RecordExpired { record }),
        Some(says) if !says.exists => Some(FactDifference::RecordOfNothing { record }),
        Some(_) => None,
    }
}

/// What is wrong with a tombstone: it has held off what was late for long enough.
pub fn of_tombstone(edge: &Edge, now: Timestamp) -> Option<FactDifference> {
    let expired = !edge.following && edge.since.seconds() + TOMBSTONE_SECONDS + GRACE_SECONDS < now.seconds();
    expired.then_some(FactDifference::TombstoneExpired { user: edge.user, author: edge.author, rev: edge.rev })
}

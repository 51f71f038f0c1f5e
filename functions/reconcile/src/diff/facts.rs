//! Compares the facts of each user with each other.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde::Serialize;

use super::{DamagedItem, FactDifference, GRACE_SECONDS, Recount};
use tidemark_domain::{
    AuthorHead, DeliveryState, Edge, NoticeId, Post, PostId, Reaction, ReactionState, ReadState, Relation, Seq, Timestamp,
    UserId, ids::SHARDS, invariants, model::TOMBSTONE_SECONDS,
};

/// A post, and whether it is in the index of unfinished fan-outs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPost {
    pub post: Post,
    pub unfinished: bool,
}

impl StoredPost {
    /// Whether its delivery or retraction is in progress.
    pub fn is_moving(&self) -> bool {
        self.unfinished || self.post.delivery.state == DeliveryState::Pending
    }
}

/// A stored count with its change number. A missing number is zero. `None` is a value that is negative or not a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredCount {
    pub count: Option<u64>,
    pub changes: Option<u64>,
}

impl Default for StoredCount {
    fn default() -> Self {
        Self { count: Some(0), changes: Some(0) }
    }
}

impl StoredCount {
    /// The difference of this count, if `right` items were listed after it was read.
    fn recount(self, right: u64) -> Option<Recount> {
        let Self { count: seen, changes } = self;
        (seen != Some(right) || changes.is_none()).then_some(Recount { seen, right, changes })
    }
}

/// A head, with its numbers as they are stored.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StoredHead {
    /// A count in it that cannot be read is zero.
    pub head: AuthorHead,
    /// The number of live posts.
    pub posts: StoredCount,
    /// The number of deletions; `None` if it is not stored.
    pub deletions: Option<u64>,
}

/// The reactions that the users of one shard have given to one author.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReactionShard {
    /// By user.
    pub users: Vec<ReactionState>,
    /// By post.
    pub posts: HashMap<Seq, ShardCounts>,
    /// Of all posts together.
    pub total: ShardCounts,
}

/// The counts of likes and favorites in one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShardCounts {
    pub likes: StoredCount,
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

/// The followers that one shard lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListedShard {
    /// Without followers that cannot be read, or whose edges cannot be read.
    pub followers: Vec<Relation>,
    /// Whether the list is complete: no follower and no edge of one is damaged, and the shard has at most the number of
    /// items that reconcile looks at.
    pub whole: bool,
}

/// All facts of one user, as follower, author and reader. Every count was read before the items that it counts.
///
/// A shard of reactions is `None` if it has more items than reconcile looks at, or an item that cannot be read. The
/// counts of a big shard are exact by construction, and would change before they could be checked.
#[derive(Debug, Clone)]
pub struct UserFacts {
    pub user: UserId,
    /// Live edges.
    pub following: Vec<Edge>,
    /// Whether `following` is complete: no edge is damaged.
    pub following_whole: bool,
    /// The stored count of followed authors.
    pub followings: StoredCount,
    /// Since when each followed author lists the user; `None` if that cannot be read.
    pub listed: HashMap<UserId, Option<Timestamp>>,
    /// By shard.
    pub followers: Vec<ListedShard>,
    /// The listed followers who have a live edge.
    pub live_followers: HashSet<UserId>,
    /// The stored counts of followers, by shard.
    pub follower_counts: [StoredCount; SHARDS as usize],
    /// The user's head as an author; `None` if it cannot be read.
    pub head: Option<StoredHead>,
    /// The newest posts.
    pub posts: Vec<StoredPost>,
    /// The deleted posts that have a body.
    pub bodies: HashSet<PostId>,
    /// The read state of each author, with the author's head.
    pub reads: Vec<(UserId, ReadState, AuthorHead)>,
    /// The reactions that the user received, by shard.
    pub reactions: Vec<Option<ReactionShard>>,
    /// The items that cannot be read.
    pub damaged: BTreeSet<DamagedItem>,
}

/// Returns the differences. `missing` are edges (user, author) that are known not to be listed. The right counts of
/// their authors include them.
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

/// The edges of the user that the author does not list.
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

/// An idempotency record as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct StoredRecord {
    #[serde(rename = "record")]
    pub key: String,
    /// The content; `None` if it cannot be read.
    #[serde(skip)]
    pub says: Option<RecordSays>,
}

/// What a request with an idempotency key has published.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answered {
    Post(PostId),
    /// One for each platform.
    Notices(Vec<NoticeId>),
}

/// The content of an idempotency record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordSays {
    pub answered: Answered,
    /// Unix seconds.
    pub expires_at: u64,
    /// Whether the post or the notices exist, or existed.
    pub exists: bool,
}

pub fn of_record(record: &StoredRecord, now: Timestamp) -> Option<FactDifference> {
    let record = record.clone();
    match &record.says {
        None => Some(FactDifference::RecordDamaged { record }),
        Some(says) if says.expires_at + GRACE_SECONDS < now.seconds() => Some(FactDifference::RecordExpired { record }),
        Some(says) if !says.exists => Some(FactDifference::RecordOfNothing { record }),
        Some(_) => None,
    }
}

/// Whether a tombstone is past its time. Messages that it must stop can no longer arrive.
pub fn of_tombstone(edge: &Edge, now: Timestamp) -> Option<FactDifference> {
    let expired = !edge.following && edge.since.seconds() + TOMBSTONE_SECONDS + GRACE_SECONDS < now.seconds();
    expired.then_some(FactDifference::TombstoneExpired { user: edge.user, author: edge.author, rev: edge.rev })
}

//! Facts against facts, user by user.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde::Serialize;

use super::{FactDifference, GRACE_SECONDS, Off};
use crate::domain::{
    AuthorHead, DeliveryState, Edge, NoticeId, Post, PostId, Reaction, ReactionCounts, ReactionState, ReadState, Relation, Seq,
    Timestamp, UserId, ids::SHARDS, invariants, model::TOMBSTONE_SECONDS,
};

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

/// The reactions that the users of one shard have given to one author.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReactionShard {
    /// What each user thinks.
    pub users: Vec<ReactionState>,
    /// The count of each post.
    pub posts: HashMap<Seq, ReactionCounts>,
    /// The count of all posts.
    pub total: ReactionCounts,
}

/// All that the facts say of one user, as follower, author and reader. A shard that is `None` has more in it than is looked at: its numbers are exact by
/// construction, and to prove it would take longer than they stand still.
#[derive(Debug, Clone)]
pub struct UserFacts {
    /// Who.
    pub user: UserId,
    /// Live edges.
    pub following: Vec<Edge>,
    /// How many authors the user is counted to follow.
    pub followings: u64,
    /// Since when the authors followed list the user.
    pub listed: HashMap<UserId, Timestamp>,
    /// Followers as listed, shard by shard.
    pub followers: Vec<Option<Vec<Relation>>>,
    /// Which of them have a live edge.
    pub live_followers: HashSet<UserId>,
    /// How many are counted, shard by shard.
    pub follower_counts: [u64; SHARDS as usize],
    /// The user's head as an author.
    pub head: AuthorHead,
    /// The newest posts.
    pub posts: Vec<StoredPost>,
    /// Which of the deleted ones have a body.
    pub bodies: HashSet<PostId>,
    /// What the user has read, with the latest post of each author.
    pub reads: Vec<(UserId, ReadState, AuthorHead)>,
    /// Reactions received, shard by shard.
    pub reactions: Vec<Option<ReactionShard>>,
}

/// What is wrong. `missing` are edges (user, author) that are known not to be listed: their authors' counts count them.
pub fn differences(facts: &UserFacts, missing: &BTreeSet<(UserId, UserId)>) -> Vec<FactDifference> {
    let mut found = edges(facts, missing);
    found.extend(posts(facts));
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
            Some(listed) if *listed != since => found.push(FactDifference::FollowerSince { user, author, since, rev }),
            Some(_) => {}
        }
    }
    if let Some(off) = Off::of(facts.followings, facts.following.len() as u64) {
        found.push(FactDifference::FollowingsCount { user, off });
    }
    for (shard, followers) in facts.followers.iter().enumerate() {
        let Some(followers) = followers else { continue };
        let ghosts = followers.iter().filter(|follower| !facts.live_followers.contains(&follower.user));
        found.extend(ghosts.map(|ghost| FactDifference::FollowerGhost { user: ghost.user, author: user, since: ghost.since }));
        let live = followers.iter().filter(|follower| facts.live_followers.contains(&follower.user)).count();
        let missing = missing.iter().filter(|(follower, author)| *author == user && usize::from(follower.shard()) == shard);
        let right = (live + missing.count()) as u64;
        if let Some(off) = Off::of(facts.follower_counts[shard], right) {
            found.push(FactDifference::FollowersCount { author: user, shard: shard as u16, off });
        }
    }
    found
}

fn posts(facts: &UserFacts) -> Vec<FactDifference> {
    let UserFacts { user: author, head, .. } = facts;
    let mut found = Vec::new();
    let mut implied = head.implied_posts();
    for StoredPost { post, unfinished } in &facts.posts {
        let id = post.id;
        let left_out = !post.is_in_feeds();
        if head.deleted.contains(id.seq) != left_out {
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
    if let Some(off) = Off::of(head.posts, implied) {
        found.push(FactDifference::HeadPosts { author: *author, off });
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
            let seen = stored.posts.get(&seq).map_or(0, |counts| counts.of(reaction));
            if let Some(off) = Off::of(seen, right) {
                found.push(FactDifference::PostReactions { post: PostId::new(author, seq), shard, reaction, off });
            }
        }
        if let Some(off) = Off::of(stored.total.of(reaction), total) {
            found.push(FactDifference::AuthorReactions { author, shard, reaction, off });
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

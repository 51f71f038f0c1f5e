//! Ports of the facts: edges, lists, posts, read states, reactions, and the outage note.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use async_trait::async_trait;
use tidemark_domain::{
    AuthorHead, Edge, FeedKey, NewPost, Post, PostId, PostText, Reaction, ReactionCounts, ReactionState, ReadState, Relation,
    Seq, Step, Timestamp, UserId, UserLists,
};

use super::tasks::FanOutKind;
use crate::error::Result;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    Created(Edge),
    /// The edge existed before.
    Existing(Edge),
    /// The user follows the maximum number of authors.
    LimitReached,
    /// One of the two blocks the other.
    Blocked,
    /// The author has left.
    Erased,
}

/// Returns the next state of a stored pair; `None` if the pair stays as it is. It may run several times.
pub type ChangeOfPair<'a> = &'a (dyn Fn(Option<&Edge>) -> Option<Edge> + Sync);

/// Follow edges and their counts.
#[async_trait]
pub trait Edges: Send + Sync {
    /// Returns the edges of one user to these authors, tombstones included. Pairs without an edge are left out.
    async fn edges(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, Edge>>;
    /// Returns all live edges of one user.
    async fn following(&self, user: UserId) -> Result<Vec<Edge>>;
    /// Creates edges to distinct authors, each with both directions and counts in one transaction. Reads the authors'
    /// heads for base and floor. Returns one outcome for each author, in order.
    async fn follow(&self, user: UserId, authors: &[UserId], now: Timestamp) -> Result<Vec<Followed>>;
    /// Ends a follow. Returns the tombstone, or `None` if there was no follow.
    async fn unfollow(&self, user: UserId, author: UserId, now: Timestamp) -> Result<Option<Edge>>;
    /// Returns the edges and tombstones of the authors whom the user mutes or blocks.
    async fn hidden(&self, user: UserId) -> Result<Vec<Edge>>;
    /// Changes one pair. Returns the pair after it; `None` if there is neither an edge nor a tombstone.
    async fn change(&self, user: UserId, author: UserId, change: ChangeOfPair<'_>) -> Result<Option<Edge>>;
    /// Blocks or unblocks a user. A block also ends the follows in both directions, in the same transaction. Returns
    /// the pair and the reverse pair after it; `None` for one that has neither an edge nor a tombstone.
    async fn set_blocked(&self, user: UserId, other: UserId, blocked: bool, now: Timestamp) -> Result<[Option<Edge>; 2]>;
    /// Returns the exact number of followers in each shard.
    async fn follower_counts(&self, author: UserId) -> Result<[u64; 16]>;
    /// Returns those of these pairs (follower, followee) that follow. One round trip reads a hundred pairs.
    async fn live(&self, pairs: &[(UserId, UserId)]) -> Result<HashSet<(UserId, UserId)>>;
    /// Returns the exact number of followed authors.
    async fn followings(&self, user: UserId) -> Result<u64>;
    /// Returns at most `limit` followers below `before`, newest first.
    async fn followers_by_time(&self, author: UserId, before: Option<Relation>, limit: usize) -> Result<Vec<Relation>>;
    /// Returns all followers whose bucket lies in `buckets`, in bucket order. It does not depend on the counts.
    async fn followers_in(&self, author: UserId, buckets: Range<u16>) -> Result<Vec<UserId>>;
}

/// The idempotency key of a request, with a hash of its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub key: String,
    /// SHA-256 of the body as it was parsed.
    pub fingerprint: String,
}

/// What is stored of a request with an idempotency key ([`crate::once`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub user: UserId,
    pub operation: &'static str,
    pub key: String,
    pub fingerprint: String,
    /// Names the request. Every attempt at it has the same.
    pub token: u64,
    /// The bound of what the request changes.
    pub bound: Vec<u64>,
    /// The numbers in the response; `None` until the request is done.
    pub answer: Option<Vec<u64>>,
    /// The time of the attempt.
    pub now: Timestamp,
}

impl Record {
    pub fn new(user: UserId, operation: &'static str, of: &IdempotencyKey, token: u64, bound: Vec<u64>, now: Timestamp) -> Self {
        let (key, fingerprint) = (of.key.clone(), of.fingerprint.clone());
        Self { user, operation, key, fingerprint, token, bound, answer: None, now }
    }
}

/// Records of requests with idempotency keys. They last 24 hours.
#[async_trait]
pub trait Records: Send + Sync {
    /// Returns the record of a request; `None` if there is none, or if it has expired by now.
    async fn record(&self, user: UserId, operation: &'static str, key: &str, now: Timestamp) -> Result<Option<Record>>;
    /// Writes a record. It replaces only an expired one, and one of its own token without an answer. Otherwise it
    /// writes nothing and returns false.
    async fn put_record(&self, record: &Record) -> Result<bool>;
}

#[derive(Debug, Clone, PartialEq)]
pub enum Published {
    /// The new post, and its author's head after it.
    Created(Post, AuthorHead),
    /// An earlier request with the same key and body published this post.
    Repeated(Post),
    /// An earlier request with the same key published something else.
    KeyReused,
    /// The author has used all sequence numbers.
    Full,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Deleted {
    /// The post is a tombstone, and its retraction has to be started. Contains the author's head after the deletion.
    Deleted(Post, AuthorHead),
    /// The post was a tombstone before, and its retraction is finished.
    Already(Post),
    /// No such post was ever published.
    Unknown,
}

/// The result of a look at an unfinished fan-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Its pages wait in the queue, at the latest since this time.
    Waiting(Timestamp),
    /// This many pages are done, more than before.
    Moving(u64),
    /// The missing pages are about to be sent again. If [`Delivery::sent_at`](tidemark_domain::Delivery) is no longer
    /// `before`, another run was first. The token names this run, because two runs may have the same time.
    Sending { before: Option<Timestamp>, at: Timestamp, token: u64 },
    /// The pages of [`Look::Sending`] with this token were sent. This many other pages were done.
    Sent { token: u64, attempts: u32, pages_done: u64 },
    /// Some of its pages are not in the queue, because the queue was unavailable.
    Unsent,
    /// Its pages were sent as often as allowed. It leaves the list of fan-outs that are resumed.
    GivenUp,
}

/// Posts, heads, and the state of fan-outs.
#[async_trait]
pub trait Posts: Send + Sync {
    /// Returns the heads of these authors. An author without a head gets an empty one.
    async fn heads(&self, authors: &[UserId]) -> Result<HashMap<UserId, AuthorHead>>;
    async fn head_of(&self, author: UserId) -> Result<AuthorHead> {
        Ok(self.heads(&[author]).await?.remove(&author).unwrap_or_default())
    }
    /// Publishes a post: head, post, body and idempotency record in one transaction.
    async fn publish(
        &self,
        post: &NewPost,
        followers: u64,
        idempotency: Option<&IdempotencyKey>,
        now: Timestamp,
    ) -> Result<Published>;
    /// Makes a post a tombstone: post, body and head in one transaction. May be repeated. `followers` decides how many
    /// pages the retraction has.
    async fn delete(&self, post: PostId, followers: u64) -> Result<Deleted>;
    /// Returns these posts, tombstones included. Unknown posts are left out.
    async fn posts(&self, posts: &[PostId]) -> Result<HashMap<PostId, Post>>;
    /// Returns these posts, tombstones included, each with the text of the same revision; `None` instead of a text that
    /// cannot be read or is of another revision. Unknown posts are left out.
    async fn with_texts(&self, posts: &[PostId]) -> Result<HashMap<PostId, (Post, Option<PostText>)>>;
    /// Replaces title and text of a live post, also a damaged text: post and body in one transaction. Writes nothing if
    /// they are equal. Returns the post after it; `None` if there is no such live post.
    async fn edit(&self, post: PostId, title: &str, text: &PostText, now: Timestamp) -> Result<Option<Post>>;
    /// Returns at most `limit` posts of one author in `after+1..=upto`, newest first, tombstones included.
    async fn timeline(&self, author: UserId, after: Seq, upto: Seq, limit: usize) -> Result<Vec<Post>>;
    /// Returns these posts of one author in the order of `seqs`, which must descend. Tombstones are included, unknown
    /// posts are left out. Uses one range query if the numbers are dense, else reads by key, a hundred in a request.
    async fn posts_of(&self, author: UserId, seqs: &[Seq]) -> Result<Vec<Post>>;
    /// Returns the place of the author's last post or tombstone at or before `at`.
    async fn last_at(&self, author: UserId, at: Timestamp) -> Result<Option<FeedKey>>;
    /// Returns a post or its tombstone, and the token of the last change of its step.
    async fn ranked_by(&self, post: PostId) -> Result<Option<(Post, Option<u64>)>>;
    /// Sets the step of a live post if it has changed `step.changes - 1` times. Otherwise it writes nothing and returns
    /// false. A repetition after a lost response returns false too; then [`Self::ranked_by`] returns this token.
    async fn set_step(&self, post: PostId, step: Step, token: u64) -> Result<bool>;
    /// Stores the result of a look at an unfinished fan-out. Writes nothing and returns false if it is finished by now,
    /// if the post has another one, or if another run is sending its pages.
    async fn note_look(&self, kind: FanOutKind, post: PostId, look: Look) -> Result<bool>;
    /// Sets a pending fan-out to done, with the followers handled. Returns whether it was pending.
    async fn finish_delivery(&self, post: PostId, followers: u64, now: Timestamp) -> Result<bool>;
    async fn finish_retraction(&self, post: PostId) -> Result<()>;
}

#[async_trait]
pub trait Reads: Send + Sync {
    /// Returns the user's read states of these authors. Missing ones are left out.
    async fn reads(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, ReadState>>;
    /// Returns at most `limit` read states of the user, from this author on, in the order of their authors.
    async fn reads_from(&self, user: UserId, author: UserId, limit: usize) -> Result<Vec<(UserId, ReadState)>>;
    async fn all_reads(&self, user: UserId) -> Result<HashMap<UserId, ReadState>>;
    /// Writes a state if its version is one above the stored version. Otherwise it writes nothing and returns false.
    async fn put(&self, user: UserId, author: UserId, state: &ReadState) -> Result<bool>;
    /// The same for a state that differs from the stored one only in the marks of these posts, which all are `read` or
    /// not. Returns the state as it is stored; `None` if nothing is written.
    async fn put_marks(
        &self,
        user: UserId,
        author: UserId,
        state: &ReadState,
        seqs: &[Seq],
        read: bool,
    ) -> Result<Option<ReadState>>;
    /// Marks posts read or unread without a condition. Returns the state before it and the state after it. If the state
    /// before it has the token, the response to an earlier write of it was lost.
    async fn mark(&self, user: UserId, author: UserId, seqs: &[Seq], read: bool, token: u64) -> Result<(ReadState, ReadState)>;
}

#[derive(Debug, Clone, PartialEq)]
pub enum Reacted {
    /// The user's reactions to the author's posts after the request, whether or not it changed them.
    Stands(ReactionState),
    /// The post does not exist, or a reaction was given and only its tombstone exists.
    Unknown,
    /// The user or the author of the post blocks the other. Nothing changed.
    Blocked,
}

/// Likes and favorites, and their counts.
#[async_trait]
pub trait Reactions: Send + Sync {
    /// Returns the user's reactions to these authors' posts. Missing ones are left out.
    async fn reactions(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, ReactionState>>;
    /// Gives a reaction to a live post, or removes one, also from a deleted post: state and counts in one transaction.
    /// May be repeated.
    async fn react(&self, user: UserId, post: PostId, reaction: Reaction, given: bool, now: Timestamp) -> Result<Reacted>;
    /// Returns those of these authors who block the user.
    async fn blockers(&self, user: UserId, authors: &[UserId]) -> Result<HashSet<UserId>>;
    /// Returns whether the author blocks the user.
    async fn is_blocked(&self, user: UserId, author: UserId) -> Result<bool> {
        Ok(self.blockers(user, &[author]).await?.contains(&author))
    }
    /// Returns at most `limit` posts with the times of the user's reactions below `before`, newest first.
    async fn reacted(&self, user: UserId, reaction: Reaction, before: Option<FeedKey>, limit: usize) -> Result<Vec<FeedKey>>;
    /// Returns the exact counts of one post.
    async fn counts(&self, post: PostId) -> Result<CountsVersion>;
    /// Returns the exact counts of all posts of an author, deleted ones included.
    async fn received(&self, author: UserId) -> Result<ReactionCounts>;
}

/// Reaction counts of a post with a version, which grows with every change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CountsVersion {
    pub version: u64,
    pub counts: ReactionCounts,
}

/// The outage note, which all processes share.
#[async_trait]
pub trait Outages: Send + Sync {
    /// Returns until when the note stands; a time long ago if there is none.
    async fn outage_until(&self) -> Result<Timestamp>;
    /// Writes a note that stands until this time at least.
    async fn note_outage(&self, until: Timestamp) -> Result<()>;
}

#[async_trait]
pub trait AuthorLists: Send + Sync {
    async fn lists(&self, user: UserId) -> Result<UserLists>;
    /// Stores a user's lists, and returns true, if their version is one greater than the stored one. The record is
    /// written with them, on its own condition.
    async fn put_lists(&self, user: UserId, lists: &UserLists, record: Option<&Record>) -> Result<bool>;
}

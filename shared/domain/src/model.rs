//! The facts as types: edges, posts, heads, read states, deliveries.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{FeedKey, PostId, Rank, Reference, Seq, SeqSet, Step, Timestamp, UserId, feed::BACKFILL};

/// The time that the tombstone of an unfollow is kept: much longer than a stream record lives.
pub const TOMBSTONE_SECONDS: u64 = 7 * 24 * 3600;

/// A follow edge, or its tombstone, which is kept for a week and as long as the user mutes or blocks the author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    pub user: UserId,
    pub author: UserId,
    /// False for a tombstone.
    pub following: bool,
    /// The time at which this follow began or ended. It is strictly later with every follow and unfollow.
    pub since: Timestamp,
    /// The revision of the pair. Every follow and unfollow raises it to `max(previous + 1, unix seconds)`, so it also
    /// grows past an expired tombstone.
    pub rev: u32,
    /// The revision with which this follow began, if the pair has changed since.
    pub begun: Option<u32>,
    /// The author's latest sequence number when the follow began. Posts up to it never count as unread.
    pub base: Seq,
    /// Posts up to it are not shown. It leaves the newest 100 live posts up to `base`.
    pub floor: Seq,
    /// The time since which the user mutes the author. `None` if not.
    pub muted: Option<Timestamp>,
    /// The time since which the user blocks the author. `None` if not. A block ends follows in both directions.
    pub blocked: Option<Timestamp>,
    /// The numbers of the user's lists that have the author; none after the follow. Those of deleted lists may remain.
    pub lists: BTreeSet<u32>,
    /// From -10 to 10. It moves the author's posts in the follower's ranked feed, and ends with the follow. A request
    /// may have the preference of the follow that it asks for.
    pub preference: i8,
    /// The time since which the user asks to follow the author, who is private or was. `None` if not. A request is no
    /// follow, and ends when a follow or a block begins.
    pub requested: Option<Timestamp>,
    /// Whether this follow began when the author accepted a request.
    pub accepted: bool,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AuthorHead {
    /// The last sequence number that was given; zero before the first post.
    pub latest_seq: Seq,
    /// The time of the latest post. It never decreases, so the order of times is the order of sequence numbers.
    pub latest_at: Timestamp,
    /// Live posts, archived ones included.
    pub posts: u64,
    /// Sequence numbers of deleted and [archived](Post::archived) posts, in no feed or unread count. Only grows.
    pub deleted: SeqSet,
    /// The delivery modes: of the next post, and of earlier ones.
    pub modes: Modes,
    /// The number of live posts in `deleted`: these are archived.
    pub archived: u64,
    /// Sequence numbers of archived posts.
    pub archive: SeqSet,
    /// The number of changes of the author's privacy. Even is public, odd is private, and [`AuthorHead::LEAVES`] is
    /// neither.
    pub privacy: u32,
}

/// Who sees an author's posts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Audience {
    #[default]
    Everyone,
    /// The author is private: the author, accepted followers and moderators.
    Followers,
    /// The author has asked to leave.
    Nobody,
}

impl AuthorHead {
    /// The `privacy` of an author who has asked to leave.
    pub const LEAVES: u32 = u32::MAX;

    /// Returns the part that views keep. Only the facts need the rest.
    pub fn for_views(&self) -> Self {
        Self { archived: 0, archive: SeqSet::default(), ..self.clone() }
    }

    pub fn audience(&self) -> Audience {
        match self.privacy {
            Self::LEAVES => Audience::Nobody,
            privacy if privacy.is_multiple_of(2) => Audience::Everyone,
            _ => Audience::Followers,
        }
    }

    /// Returns whether only accepted followers see the author's posts.
    pub fn is_private(&self) -> bool {
        self.audience() == Audience::Followers
    }

    /// Returns how many live posts the other fields imply.
    pub fn implied_posts(&self) -> u64 {
        (self.latest_seq + self.archived).saturating_sub(self.deleted.len())
    }

    /// Returns the number of elements of `deleted`, which is its version.
    pub fn deletions(&self) -> u32 {
        u32::try_from(self.deleted.len()).unwrap_or(u32::MAX)
    }

    /// Returns the newest posts in `after+1..=upto` that feeds show, newest first, at most `limit`.
    pub fn feed_seqs(&self, after: Seq, upto: Seq, limit: usize) -> Vec<Seq> {
        self.deleted.absent_between(after, upto.min(self.latest_seq)).take(limit).collect()
    }

    /// Returns the oldest posts in `after+1..=upto` that feeds show, oldest first, at most `limit`.
    pub fn oldest_feed_seqs(&self, after: Seq, upto: Seq, limit: usize) -> Vec<Seq> {
        self.deleted.absent_ascending(after, upto.min(self.latest_seq)).take(limit).collect()
    }

    /// Returns the newest posts up to `upto` of the author timeline, archived ones included, newest first.
    pub fn listed_seqs(&self, upto: Seq, limit: usize) -> Vec<Seq> {
        self.deleted.minus(&self.archive).absent_between(0, upto.min(self.latest_seq)).take(limit).collect()
    }

    /// Returns how many posts in `after+1..=latest_seq` feeds show.
    pub(crate) fn live_above(&self, after: Seq) -> u64 {
        self.latest_seq.saturating_sub(after) - self.deleted.count_between(after.saturating_add(1), self.latest_seq)
    }

    /// Returns the floor of a follow that begins now: it shows the newest [`BACKFILL`] live posts at most.
    pub fn backfill_floor(&self) -> Seq {
        self.backfill_floor_at(self.latest_seq)
    }

    /// The same for a follow that began when `base` was the author's latest post.
    pub fn backfill_floor_at(&self, base: Seq) -> Seq {
        let (mut low, mut high) = (0, base.min(self.latest_seq));
        let newer = self.live_above(high);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.live_above(middle) - newer <= BACKFILL {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }
}

/// The read state of one user for one author.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReadState {
    /// Grows by one with every change.
    pub version: u32,
    /// The watermark: the number up to which the user has marked the author read. No mark lowers it; only
    /// the repair of F3 does (see [`super::invariants`]).
    pub through: Seq,
    /// Every read sequence number, including those below the watermark, so that one of them can become unread again.
    pub read: SeqSet,
    /// The last changes, the newest first. They show a request that it was done, although it got no response.
    pub applied: Vec<Applied>,
}

/// A change of a read state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Names the request.
    pub token: u64,
    /// The number of posts that it changed.
    pub changed: u64,
}

/// The number of changes that a read state remembers. They take some 15 bytes each.
pub const MOST_APPLIED: usize = 8;

impl ReadState {
    /// Becomes the next version, by the request with this token, which has changed so many posts.
    pub fn advance(&mut self, token: u64, changed: u64) {
        self.version += 1;
        self.applied.insert(0, Applied { token, changed });
        self.applied.truncate(MOST_APPLIED);
    }

    /// Returns how many posts the request with this token has changed; `None` if it was not done.
    pub fn changed_by(&self, token: u64) -> Option<u64> {
        self.applied.iter().find(|applied| applied.token == token).map(|applied| applied.changed)
    }

    /// Marks posts read. This and the other marks return whether anything changed.
    pub fn mark(&mut self, seqs: impl IntoIterator<Item = Seq>) -> bool {
        seqs.into_iter().fold(false, |changed, seq| self.read.insert(seq) | changed)
    }

    pub fn unmark(&mut self, seq: Seq) -> bool {
        self.read.remove(seq)
    }

    /// Marks everything up to `seq` read. A `seq` below the watermark changes nothing: posts that are unread stay so.
    pub fn mark_through(&mut self, seq: Seq) -> bool {
        seq >= self.through && self.mark_all(seq)
    }

    /// Marks everything up to `seq` read, also posts that became unread again. Raises the watermark.
    pub fn mark_all(&mut self, seq: Seq) -> bool {
        let changed = seq > self.through || self.read.count_between(1, seq) < seq;
        self.through = self.through.max(seq);
        self.read.insert_range(1, seq);
        changed
    }
}

/// A post and its fan-out. Its [text](PostText) is a separate fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    pub id: PostId,
    /// 1 to 200 characters; empty in a repost and in a tombstone.
    pub title: String,
    /// The post that a repost or a quote names. It never changes. The tombstone of a quote has none.
    pub of: Option<Reference>,
    pub created_at: Timestamp,
    /// 1 when it is published. Every edit raises it by one.
    pub revision: u32,
    pub edited_at: Option<Timestamp>,
    /// From -100 to 100. It moves the post in ranked feeds.
    pub weight: i8,
    /// The part of the post's score in ranked feeds that comes from reactions.
    pub step: Step,
    /// Whether only the tombstone is left.
    pub deleted: bool,
    /// The post was migrated after its author had published something later. It keeps its time, is listed under its
    /// author, and is in no feed and no unread count, because these rely on times that do not decrease.
    pub archived: bool,
    pub delivery: Delivery,
}

impl Post {
    /// Returns the place of the post in a feed.
    pub fn key(&self) -> FeedKey {
        FeedKey { at: self.created_at, post: self.id }
    }

    /// Returns what the post adds to its score.
    pub fn rank(&self) -> Rank {
        Rank { weight: self.weight, step: self.step }
    }

    pub fn is_in_feeds(&self) -> bool {
        !self.deleted && !self.archived
    }
}

/// A post as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostSummary {
    pub id: PostId,
    /// 1 to 200 characters; empty in a repost, and if the post is deleted.
    pub title: String,
    /// The post that a repost or a quote names; `None` if the post is deleted.
    pub of: Option<Reference>,
    pub created_at: Timestamp,
    /// The revision of the title.
    pub revision: u32,
    /// The post's part of scores in ranked feeds: weight and step; zero if it is deleted.
    pub rank: Rank,
    pub deleted: bool,
}

impl PostSummary {
    pub fn key(&self) -> FeedKey {
        FeedKey { at: self.created_at, post: self.id }
    }

    /// Returns what remains of a deleted post.
    pub fn tombstone(post: FeedKey) -> Self {
        Self {
            id: post.post,
            title: String::new(),
            of: None,
            created_at: post.at,
            revision: 1,
            rank: Rank::default(),
            deleted: true,
        }
    }
}

impl From<Post> for PostSummary {
    fn from(post: Post) -> Self {
        if post.deleted {
            return Self::tombstone(post.key());
        }
        let rank = post.rank();
        let Post { id, title, of, created_at, revision, deleted, .. } = post;
        Self { id, title, of, created_at, revision, rank, deleted }
    }
}

/// A post before it is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPost {
    pub author: UserId,
    /// Empty for a repost.
    pub title: String,
    pub text: PostText,
    pub weight: i8,
    /// The post that it names. If that is a repost, its original takes its place.
    pub of: Option<Reference>,
}

impl NewPost {
    /// A post with nothing but a title.
    pub fn titled(author: UserId, title: &str) -> Self {
        Self { author, title: title.to_owned(), text: PostText::default(), weight: 0, of: None }
    }

    /// A repost of a post.
    pub fn repost(author: UserId, of: PostId) -> Self {
        Self { of: Some(Reference::Repost(of)), ..Self::titled(author, "") }
    }
}

/// The part of a post that a list has only with `include=body`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PostText {
    /// At most 64 KiB.
    pub body: Option<String>,
    /// A JSON object as text, for the application. At most 4 KiB.
    pub data: Option<String>,
}

impl PostText {
    /// Returns the length of body and data in UTF-8.
    pub fn bytes(&self) -> usize {
        [&self.body, &self.data].into_iter().flatten().map(String::len).sum()
    }
}

/// The delivery mode of a post. `push`: workers write it to live views. `pull`: the view fetches it when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum DeliveryMode {
    /// Workers write the post to live views.
    #[default]
    Push,
    /// Readers fetch the post.
    Pull,
}

/// The delivery modes of an author's posts. The numbers only grow, so a late message is recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Modes {
    /// The number of changes of the mode. Even is push, odd is pull.
    pub changes: u32,
    /// The last pulled post; zero if there is none.
    pub pulled: Seq,
}

impl Modes {
    /// Returns the mode of the next post.
    pub fn current(self) -> DeliveryMode {
        if self.changes.is_multiple_of(2) { DeliveryMode::Push } else { DeliveryMode::Pull }
    }

    /// Returns the modes after post `seq`. The mode becomes pull at the threshold, push again a fifth below it.
    #[must_use]
    pub fn after(self, seq: Seq, followers: u64, threshold: u64) -> Self {
        match self.current() {
            DeliveryMode::Push => Self { changes: self.changes + u32::from(followers >= threshold), ..self },
            DeliveryMode::Pull => {
                let falls = followers < threshold - threshold / 5;
                Self { changes: self.changes + u32::from(falls), pulled: seq }
            }
        }
    }

    /// Returns whether no post was pulled, and the next one is not.
    pub fn is_push_alone(&self) -> bool {
        self.changes == 0
    }
}

/// The progress of a fan-out. `cancelled`: the post was deleted before its delivery was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum DeliveryState {
    /// No page is done.
    #[default]
    Pending,
    /// Some pages are done.
    Running,
    /// All pages are done.
    Done,
    /// The post was deleted. Its retraction is in progress or done.
    Cancelled,
}

/// The fan-out of a post as a fact. The progress between `Pending` and `Done` is a view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delivery {
    pub mode: DeliveryMode,
    /// `Pending`, `Done` or `Cancelled`.
    pub state: DeliveryState,
    /// The number of followers when the fan-out was planned.
    pub followers: u64,
    /// The number of followers handled; final when done.
    pub delivered: u64,
    /// The number of pages of followers (see [`super::pages`]).
    pub pages: u16,
    /// The number of pages of the retraction. The deletion plans them.
    pub retraction_pages: u16,
    /// The number of times that reconcile has sent missing pages again.
    pub attempts: u32,
    /// The number of pages that were done when reconcile last stored progress.
    pub seen_pages: u64,
    /// The time at which reconcile last sent pages again, or first saw that they wait; `None` before. The beginning of
    /// time if pages are not in the queue because it was unavailable.
    pub sent_at: Option<Timestamp>,
    /// Whether a run of reconcile has begun at `sent_at` to send pages, and has not stored that they are sent.
    pub sending: bool,
    pub started_at: Timestamp,
    pub finished_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Relation {
    /// The time at which the follow began.
    pub since: Timestamp,
    pub user: UserId,
}

/// The two ways to hide a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hiding {
    /// Feeds and counts leave out the posts of the other. A follow stays as it is.
    Mute,
    /// Neither follows the other or reacts to the other's posts. The other does not see the user's posts.
    Block,
}

impl Hiding {
    /// Returns when this user hid the author; `None` if this is not so.
    pub fn since(self, edge: &Edge) -> Option<Timestamp> {
        match self {
            Self::Mute => edge.muted,
            Self::Block => edge.blocked,
        }
    }
}

/// One of the two sides of a request to follow a private author.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestSide {
    /// The author, to whom it is sent.
    Received,
    /// The user who has sent the request.
    Sent,
}

/// The most requests of one user that wait for an answer. Each takes an item of the user and one of the author.
pub const MOST_REQUESTS: u64 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    pub followings: u32,
    pub followers: u32,
    /// Posts that are not deleted.
    pub posts: u32,
    pub likes: u32,
    pub favorites: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FanOutKind {
    Deliver,
    Retract,
}

impl FanOutKind {
    /// A live post is delivered, a deleted one retracted.
    pub fn of(post: &Post) -> Self {
        if post.deleted { Self::Retract } else { Self::Deliver }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn through_never_goes_back() {
        let mut state = ReadState::default();
        assert!(state.mark_through(10));
        assert!(state.unmark(5));
        assert!(!state.mark_through(7), "an older watermark changes nothing");
        assert!(!state.read.contains(5));
        assert!(state.mark_through(10), "the same watermark covers posts that became unread again");
        assert!(state.read.contains(5));
        assert!(!state.mark_through(10), "a repetition changes nothing");
    }

    #[test]
    fn the_mode_changes_at_the_threshold_and_back_a_fifth_below_it() {
        let mut modes = Modes::default();
        for (seq, followers, mode, changes, pulled) in [
            (1, 99, DeliveryMode::Push, 0, 0),
            // The post that finds the threshold is pushed.
            (2, 100, DeliveryMode::Push, 1, 0),
            (3, 120, DeliveryMode::Pull, 1, 3),
            (4, 80, DeliveryMode::Pull, 1, 4),
            (5, 79, DeliveryMode::Pull, 2, 5),
            (6, 99, DeliveryMode::Push, 2, 5),
            (7, 100, DeliveryMode::Push, 3, 5),
        ] {
            assert_eq!(modes.current(), mode, "{seq}");
            modes = modes.after(seq, followers, 100);
            assert_eq!(modes, Modes { changes, pulled }, "{seq}");
        }
    }

    #[test]
    fn archived_posts_are_listed_and_in_no_feed() {
        let mut head = AuthorHead { latest_seq: 1_000, deleted: (3..=998).collect(), ..Default::default() };
        head.archive = [5, 7].into_iter().collect();
        assert_eq!(head.feed_seqs(0, 2_000, 10), [1_000, 999, 2, 1]);
        assert_eq!(head.feed_seqs(1, 999, 10), [999, 2]);
        assert_eq!(head.feed_seqs(0, 1_000, 3), [1_000, 999, 2]);
        assert_eq!(head.oldest_feed_seqs(0, 2_000, 10), [1, 2, 999, 1_000]);
        assert_eq!(head.oldest_feed_seqs(1, 999, 10), [2, 999]);
        assert_eq!(head.oldest_feed_seqs(2, 2_000, 1), [999]);
        assert_eq!(head.listed_seqs(2_000, 10), [1_000, 999, 7, 5, 2, 1]);
        assert_eq!(head.listed_seqs(6, 2), [5, 2]);
        assert_eq!(AuthorHead::default().listed_seqs(9, 9), [] as [Seq; 0]);
    }

    #[test]
    fn a_new_follower_sees_the_newest_hundred_live_posts() {
        let mut head = AuthorHead { latest_seq: 250, ..Default::default() };
        assert_eq!(head.backfill_floor(), 150);
        head.deleted = (201..=250).collect();
        assert_eq!(head.backfill_floor(), 100);
        assert_eq!(head.live_above(100), 100);
        assert_eq!(head.backfill_floor_at(150), 50, "a past follow has the backfill of its time");
        head.deleted = (3..=250).collect();
        assert_eq!(head.backfill_floor(), 0);
        assert_eq!(AuthorHead::default().backfill_floor(), 0);
    }
}

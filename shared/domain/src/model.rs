//! The facts as values: edges, posts, heads, read state, delivery.

use serde::{Deserialize, Serialize};

use super::{
    feed::{BACKLOG, FeedKey},
    ids::{PostId, Seq, UserId},
    seq_set::SeqSet,
    time::Timestamp,
};

/// How long an unfollow's tombstone is kept: far longer than a stream record lives.
pub const TOMBSTONE_SECONDS: u64 = 7 * 24 * 3600;

/// A follow edge, or the tombstone it leaves for a week.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// The follower.
    pub user: UserId,
    /// The followee.
    pub author: UserId,
    /// False for a tombstone.
    pub following: bool,
    /// When this follow began, or the unfollow happened; strictly later with every change of the pair.
    pub since: Timestamp,
    /// Revision of the pair, growing with every follow and unfollow: `max(previous + 1, unix seconds)`, so that it also grows past an expired tombstone.
    pub rev: u32,
    /// The author's latest sequence number when the follow began: posts up to it are never unread.
    pub base: Seq,
    /// Posts up to it are not shown at all: it leaves the newest 100 live ones up to `base`.
    pub floor: Seq,
}

/// What is known of an author as a whole; the head of the author's partition.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AuthorHead {
    /// The last sequence number given; zero before the first post.
    pub latest_seq: Seq,
    /// When it was given. Never before an earlier post of the author: time order is sequence order.
    pub latest_at: Timestamp,
    /// Live posts, archived ones included.
    pub posts: u64,
    /// Sequence numbers of deleted and of [archived](Post::archived) posts: those that take no part in feeds and counts. Only grows.
    pub deleted: SeqSet,
    /// How the next post will reach readers.
    pub modes: Modes,
    /// Live posts among `deleted`: archived ones.
    pub archived: u64,
    /// Their sequence numbers. It may hold deleted ones too: a head from before it was kept says all of `deleted`.
    pub archive: SeqSet,
    /// More posts from before are about to be appended by migration.
    pub importing: bool,
}

impl AuthorHead {
    /// What views keep of it: the rest is of use to the facts alone.
    pub fn for_views(&self) -> Self {
        Self { archived: 0, archive: SeqSet::default(), importing: false, ..self.clone() }
    }

    /// How many live posts there must be.
    pub fn implied_posts(&self) -> u64 {
        (self.latest_seq + self.archived).saturating_sub(self.deleted.len())
    }

    /// How many posts were deleted so far: the version of `deleted`.
    pub fn deletions(&self) -> u32 {
        u32::try_from(self.deleted.len()).unwrap_or(u32::MAX)
    }

    /// The newest posts in `after+1..=upto` that feeds show, newest first, at most `limit`.
    pub fn feed_seqs(&self, after: Seq, upto: Seq, limit: usize) -> Vec<Seq> {
        self.deleted.absent_between(after, upto.min(self.latest_seq)).take(limit).collect()
    }

    /// The newest posts up to `upto` that the author's own list shows, archived ones included, newest first, at most `limit`.
    pub fn listed_seqs(&self, upto: Seq, limit: usize) -> Vec<Seq> {
        self.deleted.minus(&self.archive).absent_between(0, upto.min(self.latest_seq)).take(limit).collect()
    }

    /// Live posts in `after+1..=latest_seq`.
    pub fn live_above(&self, after: Seq) -> u64 {
        self.latest_seq.saturating_sub(after) - self.deleted.count_between(after.saturating_add(1), self.latest_seq)
    }

    /// The floor of a follow that begins now: the smallest that shows at most the newest [`BACKLOG`] live posts.
    pub fn backlog_floor(&self) -> Seq {
        self.backlog_floor_at(self.latest_seq)
    }

    /// The same for a follow that began when `base` was the author's latest post.
    pub fn backlog_floor_at(&self, base: Seq) -> Seq {
        let (mut low, mut high) = (0, base.min(self.latest_seq));
        let newer = self.live_above(high);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.live_above(middle) - newer <= BACKLOG {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }
}

/// What one user has read of one author.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReadState {
    /// Grows by one with every change.
    pub version: u32,
    /// The watermark: how far the user has marked the author through. Never goes back.
    pub through: Seq,
    /// Every read sequence number, those below the watermark included, so that one of them can become unread again.
    pub read: SeqSet,
}

impl ReadState {
    /// Marks posts read; whether anything changed.
    pub fn mark(&mut self, seqs: impl IntoIterator<Item = Seq>) -> bool {
        seqs.into_iter().fold(false, |changed, seq| self.read.insert(seq) | changed)
    }

    /// Marks one post unread; whether anything changed.
    pub fn unmark(&mut self, seq: Seq) -> bool {
        self.read.remove(seq)
    }

    /// Marks everything up to `seq` read; whether anything changed. An older watermark changes nothing, not even posts unread since.
    pub fn mark_through(&mut self, seq: Seq) -> bool {
        if seq < self.through {
            return false;
        }
        let changed = seq > self.through || self.read.count_between(1, seq) < seq;
        self.through = seq;
        self.read.insert_range(1, seq);
        changed
    }

    /// Marks every post up to `seq` read, those below the watermark that were made unread again included; whether anything changed. The watermark rises to
    /// `seq` if it is lower.
    pub fn mark_all(&mut self, seq: Seq) -> bool {
        let changed = seq > self.through || self.read.count_between(1, seq) < seq;
        self.through = self.through.max(seq);
        self.read.insert_range(1, seq);
        changed
    }
}

/// A post and its fan-out; its body is a fact of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// Author and sequence number.
    pub id: PostId,
    /// 1 to 200 characters.
    pub title: String,
    /// When it was published.
    pub created_at: Timestamp,
    /// Whether only its tombstone is left.
    pub deleted: bool,
    /// Migrated after its author had published something later: it keeps its time, is listed among its author's posts and can be opened, but takes no part
    /// in feeds and counts, which rely on times that do not decrease.
    pub archived: bool,
    /// Its fan-out.
    pub delivery: Delivery,
}

impl Post {
    /// Where the post stands in a feed.
    pub fn key(&self) -> FeedKey {
        FeedKey { at: self.created_at, post: self.id }
    }

    /// Whether feeds show the post to those who follow its author.
    pub fn is_in_feeds(&self) -> bool {
        !self.deleted && !self.archived
    }
}

/// What a list shows of a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostSummary {
    /// Author and sequence number.
    pub id: PostId,
    /// 1 to 200 characters; empty when deleted.
    pub title: String,
    /// When it was published.
    pub created_at: Timestamp,
    /// Whether only its tombstone is left.
    pub deleted: bool,
}

impl PostSummary {
    /// Where the post stands in a feed.
    pub fn key(&self) -> FeedKey {
        FeedKey { at: self.created_at, post: self.id }
    }
}

impl From<Post> for PostSummary {
    fn from(post: Post) -> Self {
        Self { id: post.id, title: post.title, created_at: post.created_at, deleted: post.deleted }
    }
}

/// What a client publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPost {
    /// Who publishes.
    pub author: UserId,
    /// 1 to 200 characters.
    pub title: String,
    /// At most 64 KiB.
    pub body: Option<String>,
}

/// How a post reaches its readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryMode {
    /// Workers put it into live feeds.
    Push,
    /// Readers fetch it.
    Pull,
}

/// How an author's posts reach readers from now on, and how they did before. Only grows, so that whoever hears of it twice or late knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Modes {
    /// How often the mode has changed: even is push, odd is pull.
    pub changes: u32,
    /// The last post published for pull; zero when there is none.
    pub pulled: Seq,
}

impl Modes {
    /// The mode of the next post.
    pub fn current(self) -> DeliveryMode {
        if self.changes.is_multiple_of(2) { DeliveryMode::Push } else { DeliveryMode::Pull }
    }

    /// The modes after post `seq`, published in the current one to this many followers. It becomes pull at the threshold, and push again a fifth below it.
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

    /// Whether nothing was ever published for pull, nor will be next.
    pub fn is_push_alone(&self) -> bool {
        self.changes == 0
    }
}

/// How far a fan-out is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryState {
    /// No page is done.
    Pending,
    /// Some pages are.
    Running,
    /// All are.
    Done,
    /// The post was deleted; what was delivered is being, or has been, retracted.
    Cancelled,
}

/// A post's fan-out as a fact. Progress between `Pending` and `Done` is a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Push or pull.
    pub mode: DeliveryMode,
    /// `Pending`, `Done` or `Cancelled`.
    pub state: DeliveryState,
    /// Followers when it was planned.
    pub followers: u64,
    /// Followers handled; final when done.
    pub delivered: u64,
    /// Pages of followers (see [`super::pages`]).
    pub pages: u16,
    /// Pages of the retraction, planned by the deletion.
    pub retraction_pages: u16,
    /// How often reconcile has sent missing pages again.
    pub attempts: u32,
    /// Pages done when reconcile last noted some.
    pub seen_pages: u64,
    /// When reconcile last sent pages again, or first saw that they wait; `None` before that.
    pub sent_at: Option<Timestamp>,
    /// When the post was published.
    pub started_at: Timestamp,
    /// When the last page was done.
    pub finished_at: Option<Timestamp>,
}

/// One entry of a relation list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Relation {
    /// When the follow began.
    pub since: Timestamp,
    /// The other user.
    pub user: UserId,
}

/// The five counters of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Authors followed.
    pub followings: u32,
    /// Followers.
    pub followers: u32,
    /// Live posts.
    pub posts: u32,
    /// Likes received.
    pub likes: u32,
    /// Favorites received.
    pub favorites: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn through_never_goes_back() {
        let mut state = ReadState::default();
        assert!(state.mark_through(10));
        assert!(state.unmark(5));
        assert!(!state.mark_through(7), "older: changes nothing");
        assert!(!state.read.contains(5));
        assert!(state.mark_through(10), "the same again covers what was unread since");
        assert!(state.read.contains(5));
        assert!(!state.mark_through(10), "repeated: nothing left to change");
    }

    #[test]
    fn the_mode_changes_at_the_threshold_and_back_a_fifth_below_it() {
        let mut modes = Modes::default();
        let mut publish = |seq, followers| {
            let mode = modes.current();
            modes = modes.after(seq, followers, 100);
            (mode, modes)
        };
        assert_eq!(publish(1, 99), (DeliveryMode::Push, Modes { changes: 0, pulled: 0 }));
        assert_eq!(
            publish(2, 100),
            (DeliveryMode::Push, Modes { changes: 1, pulled: 0 }),
            "the post that finds the threshold is pushed"
        );
        assert_eq!(publish(3, 120), (DeliveryMode::Pull, Modes { changes: 1, pulled: 3 }));
        assert_eq!(publish(4, 80), (DeliveryMode::Pull, Modes { changes: 1, pulled: 4 }));
        assert_eq!(publish(5, 79), (DeliveryMode::Pull, Modes { changes: 2, pulled: 5 }));
        assert_eq!(publish(6, 99), (DeliveryMode::Push, Modes { changes: 2, pulled: 5 }));
        assert_eq!(publish(7, 100), (DeliveryMode::Push, Modes { changes: 3, pulled: 5 }));
    }

    #[test]
    fn archived_posts_are_listed_and_in_no_feed() {
        let mut head = AuthorHead { latest_seq: 1_000, deleted: (3..=998).collect(), ..Default::default() };
        head.archive = [5, 7].into_iter().collect();
        assert_eq!(head.feed_seqs(0, 2_000, 10), [1_000, 999, 2, 1]);
        assert_eq!(head.feed_seqs(1, 999, 10), [999, 2]);
        assert_eq!(head.feed_seqs(0, 1_000, 3), [1_000, 999, 2]);
        assert_eq!(head.listed_seqs(2_000, 10), [1_000, 999, 7, 5, 2, 1]);
        assert_eq!(head.listed_seqs(6, 2), [5, 2]);
        assert_eq!(AuthorHead::default().listed_seqs(9, 9), [] as [Seq; 0]);
    }

    #[test]
    fn a_new_follower_sees_the_newest_hundred_live_posts() {
        let mut head = AuthorHead { latest_seq: 250, ..Default::default() };
        assert_eq!(head.backlog_floor(), 150);
        head.deleted = (201..=250).collect();
        assert_eq!(head.backlog_floor(), 100);
        assert_eq!(head.live_above(100), 100);
        assert_eq!(head.backlog_floor_at(150), 50, "a follow of the past has the backlog of then");
        head.deleted = (3..=250).collect();
        assert_eq!(head.backlog_floor(), 0);
        assert_eq!(AuthorHead::default().backlog_floor(), 0);
    }
}

//! The results of a publish, a deletion and a follow, computed from the facts before them.

use std::collections::BTreeSet;

use crate::{
    AuthorHead, Delivery, DeliveryMode, DeliveryState, Edge, NewPost, Post, PostId, Reference, Seq, Step, Timestamp, UserId,
    ids::LAST_POST, model::TOMBSTONE_SECONDS, pages::page_count,
};

/// A follow whose edge is not written yet, with fields of the [`Edge`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFollow {
    pub author: UserId,
    pub since: Timestamp,
    pub base: Seq,
    pub floor: Seq,
    /// Zero leaves that of the request.
    pub preference: i8,
    /// Of a follow that was made elsewhere, whether it began when the author accepted a request.
    pub accepted: bool,
}

impl NewFollow {
    pub fn from_now(author: UserId, head: &AuthorHead, now: Timestamp) -> Self {
        Self { author, since: now, base: head.latest_seq, floor: head.backfill_floor(), preference: 0, accepted: false }
    }

    /// Returns the edge of `user`. Its `since` and its `rev` are greater than those of the pair's last change.
    pub fn edge(&self, user: UserId, known: Option<&Edge>, now: Timestamp) -> Edge {
        let (since, rev) = (next_since(known, self.since), next_rev(known, now));
        let (base, floor) = (self.base, self.floor);
        let pair = known.cloned().unwrap_or_else(|| Edge::never(user, self.author));
        let preference = if self.preference == 0 { pair.preference } else { self.preference };
        Edge { following: true, since, rev, begun: None, base, floor, preference, requested: None, accepted: false, ..pair }
    }
}

impl Edge {
    /// Returns the tombstone of an unfollow of this edge.
    #[must_use]
    pub fn ended(&self, now: Timestamp) -> Self {
        let (since, rev) = (next_since(Some(self), now), next_rev(Some(self), now));
        Self { following: false, since, rev, begun: None, lists: BTreeSet::new(), preference: 0, accepted: false, ..self.clone() }
    }

    /// Returns the pair of a user who never followed the author: a tombstone from before all times.
    pub fn never(user: UserId, author: UserId) -> Self {
        let (following, since) = (false, Timestamp::default());
        Self {
            user,
            author,
            following,
            since,
            rev: 0,
            begun: None,
            base: 0,
            floor: 0,
            muted: None,
            blocked: None,
            lists: BTreeSet::new(),
            preference: 0,
            requested: None,
            accepted: false,
        }
    }

    /// Returns the pair after the user has asked to follow the author.
    #[must_use]
    pub fn requesting(&self, now: Timestamp) -> Self {
        Self { requested: Some(now), ..self.changed(now) }
    }

    /// Returns the pair without its follow and without its request.
    #[must_use]
    pub fn parted(&self, now: Timestamp) -> Self {
        match self.following {
            true => self.ended(now),
            false => Self { requested: None, preference: 0, ..self.changed(now) },
        }
    }

    /// Returns whether the pair has a follow or a request: what lists and counters have of it.
    pub fn is_counted(&self) -> bool {
        self.following || self.requested.is_some()
    }

    /// Returns whether the pair has a request that may be accepted. A follow or a block ends it.
    pub fn asks(&self) -> bool {
        self.requested.is_some() && !self.following && self.blocked.is_none()
    }

    /// Returns whether the pair has a follow, a mute or a block.
    pub fn is_kept(&self) -> bool {
        self.following || self.muted.is_some() || self.blocked.is_some()
    }

    /// Returns the second in which a tombstone expires; `None` for a follow, and for a pair with a mute, a block or a
    /// request. The revision has the time of the last change, if that was the end of one of these.
    pub fn expires_at(&self) -> Option<u64> {
        let is_needed = self.is_kept() || self.requested.is_some();
        (!is_needed).then(|| self.since.seconds().max(self.rev.into()) + TOMBSTONE_SECONDS)
    }

    /// Returns the pair after the user has blocked or unblocked the author. A block ends the follow, or the request.
    #[must_use]
    pub fn with_block(&self, blocked: Option<Timestamp>, now: Timestamp) -> Self {
        Self { blocked, ..self.parted(now) }
    }

    /// Returns the revision with which this follow began. An earlier revision is of another follow.
    pub fn begun(&self) -> u32 {
        self.begun.unwrap_or(self.rev)
    }

    /// Returns the pair one revision later, for a change of lists, preference or mute. The follow stays as it is.
    #[must_use]
    pub fn changed(&self, now: Timestamp) -> Self {
        Self { rev: next_rev(Some(self), now), begun: self.following.then(|| self.begun()), ..self.clone() }
    }
}

/// Returns now, but at least a millisecond after the pair's last change, because the time also orders changes.
fn next_since(known: Option<&Edge>, now: Timestamp) -> Timestamp {
    known.map_or(now, |edge| now.max(edge.since.plus_ms(1)))
}

/// Returns `max(previous + 1, unix seconds)`.
fn next_rev(known: Option<&Edge>, now: Timestamp) -> u32 {
    let clock = u32::try_from(now.seconds()).unwrap_or(u32::MAX);
    known.map_or(clock, |edge| clock.max(edge.rev.saturating_add(1)))
}

/// Returns the number of pages of a fan-out; zero if readers pull.
pub(crate) fn pages_of(mode: DeliveryMode, followers: u64) -> u16 {
    match mode {
        DeliveryMode::Push => page_count(followers),
        DeliveryMode::Pull => 0,
    }
}

impl AuthorHead {
    /// Returns the author's next post and the head after it; `None` if all sequence numbers are used. The post is not
    /// earlier than the author's previous post, even if the clocks of two functions differ.
    pub fn publish(&self, new: &NewPost, followers: u64, pull_threshold: u64, now: Timestamp) -> Option<(Post, Self)> {
        if self.latest_seq >= LAST_POST {
            return None;
        }
        let (seq, at, mode) = (self.latest_seq + 1, now.max(self.latest_at), self.modes.current());
        let (id, delivery) = (PostId::new(new.author, seq), Delivery::planned(mode, followers, at));
        let post = Post { weight: new.weight, of: new.of, ..Post::new(id, new.title.clone(), at, delivery) };
        let modes = self.modes.after(seq, followers, pull_threshold);
        Some((post, Self { latest_seq: seq, latest_at: at, posts: self.posts + 1, modes, ..self.clone() }))
    }

    /// Makes a live post of the author a tombstone, in the post and in the head, and plans its retraction.
    pub fn delete(&mut self, post: &mut Post, followers: u64) {
        post.deleted = true;
        post.title.clear();
        post.of = post.of.and_then(Reference::after_deletion);
        let delivery = &mut post.delivery;
        (delivery.attempts, delivery.seen_pages) = (0, 0);
        (delivery.sent_at, delivery.sending) = (None, false);
        let pending = delivery.state == DeliveryState::Pending;
        // A pending push may not have told all views of a change of mode. Then the retraction does.
        let untold = pending && delivery.mode == DeliveryMode::Push;
        let mode = if untold { DeliveryMode::Push } else { self.modes.current() };
        delivery.retraction_pages = pages_of(mode, followers);
        if pending {
            delivery.state = DeliveryState::Cancelled;
        }
        self.deleted.insert(post.id.seq);
        self.posts = self.posts.saturating_sub(1);
        self.archived = self.archived.saturating_sub(u64::from(post.archived));
        self.archive.remove(post.id.seq);
    }
}

impl Post {
    /// Returns a live post that was never edited.
    pub fn new(id: PostId, title: String, created_at: Timestamp, delivery: Delivery) -> Self {
        Self {
            id,
            title,
            of: None,
            created_at,
            revision: 1,
            edited_at: None,
            weight: 0,
            step: Step::default(),
            deleted: false,
            archived: false,
            delivery,
        }
    }
}

impl Delivery {
    /// Returns a delivery that has not begun.
    pub fn planned(mode: DeliveryMode, followers: u64, started_at: Timestamp) -> Self {
        Self { mode, followers, pages: pages_of(mode, followers), started_at, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TOMBSTONE_SECONDS;

    #[test]
    fn a_request_becomes_a_follow_or_ends_and_keeps_nothing() {
        let [user, author] = [1, 2].map(|id| UserId::new(id).unwrap());
        let now = Timestamp::from_ms(1_700_000_000_000);
        let asked = Edge { preference: 3, ..Edge::never(user, author).requesting(now) };
        assert_eq!((asked.requested, asked.following, asked.asks(), asked.is_kept()), (Some(now), false, true, false));
        assert_eq!(asked.expires_at(), None);
        let follow = NewFollow::from_now(author, &AuthorHead::default(), now).edge(user, Some(&asked), now);
        assert_eq!((follow.requested, follow.following, follow.preference, follow.asks()), (None, true, 3, false));
        for ended in [asked.parted(now), asked.with_block(Some(now), now)] {
            assert_eq!((ended.requested, ended.following, ended.preference), (None, false, 0));
            assert!(ended.rev > asked.rev);
        }
        assert_eq!(asked.parted(now).expires_at(), Some(u64::from(asked.parted(now).rev) + TOMBSTONE_SECONDS));
    }

    #[test]
    fn revisions_grow_within_a_second_and_past_an_expired_tombstone() {
        let now = Timestamp::from_ms(1_700_000_000_500);
        let first = NewFollow::from_now(UserId::MIN, &AuthorHead::default(), now).edge(UserId::MIN, None, now);
        assert_eq!(first.rev, 1_700_000_000);
        let second = first.ended(now);
        assert_eq!((second.rev, second.since), (1_700_000_001, now.plus_ms(1)));
        assert_eq!(next_rev(Some(&second), now), 1_700_000_002);
        assert!(next_rev(None, now.plus_ms(TOMBSTONE_SECONDS * 1000)) > second.rev);
    }

    #[test]
    fn a_post_is_never_earlier_than_the_previous_one_and_no_number_follows_the_last() {
        let author = UserId::MIN;
        let new = NewPost::titled(author, "x");
        let (first, head) = AuthorHead::default().publish(&new, 2_500, 10_000, Timestamp::from_ms(50)).unwrap();
        let (second, head) = head.publish(&new, 2_500, 10_000, Timestamp::from_ms(40)).unwrap();
        assert_eq!((first.id.seq, second.id.seq, second.created_at, second.delivery.pages), (1, 2, Timestamp::from_ms(50), 3));
        assert!(AuthorHead { latest_seq: LAST_POST, ..head }.publish(&new, 0, 10_000, Timestamp::from_ms(60)).is_none());
    }

    #[test]
    fn a_deletion_lowers_the_counts_and_cancels_the_delivery() {
        let new = NewPost::titled(UserId::MIN, "x");
        let (mut post, mut head) = AuthorHead::default().publish(&new, 10, 10_000, Timestamp::from_ms(50)).unwrap();
        head.delete(&mut post, 1_500);
        assert_eq!((head.posts, head.deletions(), post.title.as_str()), (0, 1, ""));
        assert_eq!((post.delivery.state, post.delivery.retraction_pages), (DeliveryState::Cancelled, 2));
    }
}

//! Who may see whose posts. Every route, page, count and message that shows posts asks [`may_see`] or
//! [`may_see_author`], and every reaction asks [`may_react`].
//!
//! Feeds and unread counts need no further question: they have posts of followed authors only, and a block ends the
//! follow ([`Edge::with_block`](crate::Edge::with_block)). Who follows a private author is accepted.

use crate::{Audience, Post, PostSummary, UserId};

/// The blocks between a user and an author.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Blocks {
    /// The author blocks the user.
    pub by_author: bool,
    /// The user blocks the author.
    pub by_user: bool,
}

impl Blocks {
    /// Whether one of the two blocks the other. Then neither is shown to the other among those who reacted to a post.
    pub fn are_apart(self) -> bool {
        self.by_author || self.by_user
    }
}

/// The user of a request for posts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Viewer {
    pub user: UserId,
    /// Moderators see the posts of private authors.
    pub moderates: bool,
}

impl From<UserId> for Viewer {
    fn from(user: UserId) -> Self {
        Self { user, moderates: false }
    }
}

impl Viewer {
    /// Returns whether the posts of this author are kept from the viewer while the author is private.
    pub fn is_stranger_to(self, author: UserId, follows: bool) -> bool {
        !self.moderates && !follows && self.user != author
    }

    /// Returns why all posts of an author are kept from the viewer: [`Withheld::Private`] or [`Withheld::Gone`].
    pub fn kept_from(self, author: UserId, audience: Audience, follows: bool) -> Option<Withheld> {
        match audience {
            Audience::Everyone => None,
            Audience::Followers => self.is_stranger_to(author, follows).then_some(Withheld::Private),
            Audience::Nobody => Some(Withheld::Gone),
        }
    }
}

/// What decides about all posts of an author for one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Standing {
    #[default]
    Open,
    /// The author blocks the user.
    Blocked,
    /// The author is private. The user neither is the author, nor follows them, nor is a moderator.
    Private,
    /// The same, and the author blocks the user.
    BlockedAndPrivate,
    /// The author has asked to leave.
    Left,
}

impl Standing {
    /// `kept`: why the author's posts are [kept from](Viewer::kept_from) the user.
    pub fn of(blocks: Blocks, kept: Option<Withheld>) -> Self {
        match (blocks.by_author, kept) {
            (_, Some(Withheld::Gone)) => Self::Left,
            (false, None) => Self::Open,
            (true, None) => Self::Blocked,
            (false, Some(_)) => Self::Private,
            (true, Some(_)) => Self::BlockedAndPrivate,
        }
    }
}

/// What decides about one post for all users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostState {
    Live,
    /// Deleted, or never published.
    Gone,
}

/// The reason why a user does not see a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withheld {
    /// The post is deleted or unknown, or its author has asked to leave.
    Gone,
    /// The author blocks the user. For a reaction: one of the two blocks the other.
    Blocked,
    /// The author is private.
    Private,
}

/// What a user sees, if the user may see it.
pub type Seen<T> = Result<T, Withheld>;

/// Returns whether a user may see a post. Nobody sees a post that is gone, whatever the standing.
pub fn may_see(post: PostState, standing: Standing) -> Seen<()> {
    match post {
        PostState::Gone => Err(gone(standing)),
        PostState::Live => may_see_author(standing),
    }
}

/// Returns the reason why a user does not see a post that is gone. Of a private author the user does not learn that it
/// is.
pub fn gone(standing: Standing) -> Withheld {
    match standing {
        Standing::Open | Standing::Blocked | Standing::Left => Withheld::Gone,
        Standing::Private => Withheld::Private,
        Standing::BlockedAndPrivate => Withheld::Blocked,
    }
}

/// Returns whether a user may see an author's posts: their list, their deliveries, and each live one.
pub fn may_see_author(standing: Standing) -> Seen<()> {
    match standing {
        Standing::Open => Ok(()),
        Standing::Blocked | Standing::BlockedAndPrivate => Err(Withheld::Blocked),
        Standing::Private => Err(Withheld::Private),
        Standing::Left => Err(Withheld::Gone),
    }
}

/// Returns whether a user may react to a post. A block of either side goes before privacy.
pub fn may_react(post: PostState, blocks: Blocks, kept: Option<Withheld>) -> Seen<()> {
    let seen = may_see(post, Standing::of(blocks, kept));
    if blocks.are_apart() && seen != Err(Withheld::Gone) { Err(Withheld::Blocked) } else { seen }
}

/// Returns whether a user may repost or quote a post. Of a private author it is kept from all other users: accepted
/// followers see the post, and show it to nobody.
pub fn may_refer(post: PostState, blocks: Blocks, kept: Option<Withheld>) -> Seen<()> {
    may_react(post, blocks, kept)
}

/// Returns whether a user sees the original of a repost or a quote in its place. It is not enough that the user may see
/// the post: neither side of a block is shown the other's posts by others.
pub fn may_see_original(post: PostState, blocks: Blocks, kept: Option<Withheld>) -> bool {
    may_react(post, blocks, kept).is_ok()
}

/// Returns whether a user may take back a reaction that stands: from every post of an author whose posts the user may
/// see, also if it is deleted, or the user blocks the author.
pub fn may_take_back(blocks: Blocks, kept: Option<Withheld>) -> Seen<()> {
    may_see_author(Standing::of(blocks, kept))
}

/// Leaves out the posts of a list that a user may not see. `standing` returns the user's standing with an author.
pub fn retain_seen(posts: &mut Vec<PostSummary>, standing: impl Fn(UserId) -> Standing) {
    posts.retain(|post| may_see(post.state(), standing(post.id.author)).is_ok());
}

impl PostState {
    fn of(deleted: bool) -> Self {
        if deleted { Self::Gone } else { Self::Live }
    }
}

impl Post {
    pub fn state(&self) -> PostState {
        PostState::of(self.deleted)
    }
}

impl PostSummary {
    pub fn state(&self) -> PostState {
        PostState::of(self.deleted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FeedKey, PostId, Timestamp};

    #[test]
    fn a_post_that_is_gone_is_gone_for_everybody_and_a_block_hides_the_blocker() {
        for by_author in [false, true] {
            for by_user in [false, true] {
                let blocks = Blocks { by_author, by_user };
                let standing = Standing::of(blocks, None);
                assert_eq!(may_see(PostState::Gone, standing), Err(Withheld::Gone));
                assert_eq!(may_react(PostState::Gone, blocks, None), Err(Withheld::Gone));
                let (blocked, apart) = (Err(Withheld::Blocked), by_author || by_user);
                assert_eq!(blocks.are_apart(), apart);
                assert_eq!(may_see_author(standing), if by_author { blocked } else { Ok(()) }, "{blocks:?}");
                assert_eq!(may_see(PostState::Live, standing), may_see_author(standing));
                assert_eq!(may_react(PostState::Live, blocks, None), if apart { blocked } else { Ok(()) }, "{blocks:?}");
                assert_eq!(may_take_back(blocks, None), may_see_author(standing));
            }
        }
    }

    #[test]
    fn a_private_author_hides_whether_a_post_exists_and_a_block_goes_first() {
        for [by_author, by_user] in [[false, false], [false, true], [true, false], [true, true]] {
            let blocks = Blocks { by_author, by_user };
            let reason = |blocked| if blocked { Withheld::Blocked } else { Withheld::Private };
            let kept = Some(Withheld::Private);
            for state in [PostState::Live, PostState::Gone] {
                assert_eq!(may_see(state, Standing::of(blocks, kept)), Err(reason(by_author)));
                assert_eq!(may_react(state, blocks, kept), Err(reason(by_author || by_user)));
            }
            assert_eq!(may_take_back(blocks, kept), Err(reason(by_author)));
        }
    }

    #[test]
    fn the_posts_of_an_author_who_leaves_are_gone_for_everybody() {
        let [user, author] = [1, 2].map(|id| UserId::new(id).unwrap());
        let viewer = Viewer { user, moderates: true };
        let kept = viewer.kept_from(author, Audience::Nobody, true);
        for blocks in [Blocks::default(), Blocks { by_author: true, by_user: true }] {
            let gone = Err(Withheld::Gone);
            assert_eq!(may_see(PostState::Live, Standing::of(blocks, kept)), gone);
            assert_eq!([may_react(PostState::Live, blocks, kept), may_take_back(blocks, kept)], [gone; 2]);
        }
        assert_eq!(viewer.kept_from(author, Audience::Followers, false), None);
        assert_eq!(Viewer::from(user).kept_from(author, Audience::Followers, false), Some(Withheld::Private));
    }

    #[test]
    fn an_author_a_follower_and_a_moderator_are_no_strangers() {
        let [user, author] = [1, 2].map(|id| UserId::new(id).unwrap());
        let viewer = Viewer::from(user);
        assert!(viewer.is_stranger_to(author, false));
        assert!(!viewer.is_stranger_to(author, true) && !viewer.is_stranger_to(user, false));
        assert!(!Viewer { moderates: true, ..viewer }.is_stranger_to(author, false));
    }

    #[test]
    fn a_list_leaves_out_what_may_not_be_seen() {
        let [friend, blocker] = [1, 2].map(|id| UserId::new(id).unwrap());
        let tombstone =
            |author, seq| PostSummary::tombstone(FeedKey { at: Timestamp::default(), post: PostId::new(author, seq) });
        let live = |author, seq| PostSummary { deleted: false, ..tombstone(author, seq) };
        let mut posts = vec![live(friend, 2), live(blocker, 1), tombstone(friend, 1), tombstone(blocker, 2)];
        retain_seen(&mut posts, |author| if author == blocker { Standing::Blocked } else { Standing::Open });
        assert_eq!(posts, [live(friend, 2)]);
    }
}

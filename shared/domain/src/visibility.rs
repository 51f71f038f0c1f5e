//! Who may see whose posts. Every route, page, count and message that shows posts asks [`may_see`] or
//! [`may_see_author`], and every reaction asks [`may_react`].
//!
//! Feeds and unread counts need no further question: they have posts of followed authors only, and a block ends the
//! follow ([`Edge::with_block`](crate::Edge::with_block)).

use crate::{Post, PostSummary, UserId};

/// The blocks between a user and an author.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Blocks {
    /// The author blocks the user.
    pub by_author: bool,
    /// The user blocks the author.
    pub by_user: bool,
}

impl Blocks {
    pub fn standing(self) -> Standing {
        if self.by_author { Standing::Blocked } else { Standing::Open }
    }

    /// Whether one of the two blocks the other. Then neither is shown to the other among those who reacted to a post.
    pub fn are_apart(self) -> bool {
        self.by_author || self.by_user
    }
}

/// What decides about all posts of an author for one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Standing {
    #[default]
    Open,
    /// The author blocks the user.
    Blocked,
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
    /// The post is deleted or unknown.
    Gone,
    /// The author blocks the user. For a reaction: one of the two blocks the other.
    Blocked,
}

/// What a user sees, if the user may see it.
pub type Seen<T> = Result<T, Withheld>;

/// Returns whether a user may see a post. Nobody sees a post that is gone, whatever the standing.
pub fn may_see(post: PostState, standing: Standing) -> Seen<()> {
    match post {
        PostState::Gone => Err(Withheld::Gone),
        PostState::Live => may_see_author(standing),
    }
}

/// Returns whether a user may see an author's posts: their list, their deliveries, and each live one.
pub fn may_see_author(standing: Standing) -> Seen<()> {
    match standing {
        Standing::Open => Ok(()),
        Standing::Blocked => Err(Withheld::Blocked),
    }
}

/// Returns whether a user may react to a post. A reaction that stands may always be taken back.
pub fn may_react(post: PostState, blocks: Blocks) -> Seen<()> {
    may_see(post, blocks.standing())?;
    if blocks.are_apart() { Err(Withheld::Blocked) } else { Ok(()) }
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
                let standing = blocks.standing();
                assert_eq!(may_see(PostState::Gone, standing), Err(Withheld::Gone));
                assert_eq!(may_react(PostState::Gone, blocks), Err(Withheld::Gone));
                let (blocked, apart) = (Err(Withheld::Blocked), by_author || by_user);
                assert_eq!(blocks.are_apart(), apart);
                assert_eq!(may_see_author(standing), if by_author { blocked } else { Ok(()) }, "{blocks:?}");
                assert_eq!(may_see(PostState::Live, standing), may_see_author(standing));
                assert_eq!(may_react(PostState::Live, blocks), if apart { blocked } else { Ok(()) }, "{blocks:?}");
            }
        }
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

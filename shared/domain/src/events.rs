//! [`Event`]: a change of a fact, as others see it.

use super::{CommentId, Post, PostId, PostText, Profile, Reaction, Seq, SeqSet, Timestamp, UserId};

/// A change of a fact that leaves on the event bus. A repetition has the same [`id`](Event::id).
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Grows with every change of the subject.
    pub revision: u32,
    pub happened: Happened,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Happened {
    FollowBegan {
        user: UserId,
        author: UserId,
        since: Timestamp,
    },
    FollowEnded {
        user: UserId,
        author: UserId,
        at: Timestamp,
    },
    PostPublished(EventPost),
    PostEdited(EventPost),
    PostDeleted(PostId),
    ReactionGiven {
        user: UserId,
        post: PostId,
        reaction: Reaction,
        at: Timestamp,
    },
    ReactionRemoved {
        user: UserId,
        post: PostId,
        reaction: Reaction,
    },
    CommentAdded {
        comment: CommentId,
        author: UserId,
        text: String,
        at: Timestamp,
    },
    CommentDeleted(CommentId),
    /// The whole read state after the change.
    ReadChanged {
        user: UserId,
        author: UserId,
        through: Seq,
        /// The read posts; `None` if they are too many for an event.
        read: Option<SeqSet>,
    },
    ProfileChanged(Profile),
    PrivacyChanged {
        user: UserId,
        private: bool,
    },
    UserErased(UserId),
}

/// A post as its event shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct EventPost {
    pub post: Box<Post>,
    /// `None` if the post has changed again before its text was read. The event of that change has the newer text.
    pub text: Option<PostText>,
}

impl Event {
    /// The revision of an erasure. Nothing comes after it.
    pub const LAST: u32 = u32::MAX;

    /// The type of the event, `detail-type` on the bus.
    pub fn name(&self) -> &'static str {
        match &self.happened {
            Happened::FollowBegan { .. } => "follow.began",
            Happened::FollowEnded { .. } => "follow.ended",
            Happened::PostPublished(_) => "post.published",
            Happened::PostEdited(_) => "post.edited",
            Happened::PostDeleted(_) => "post.deleted",
            Happened::ReactionGiven { .. } => "reaction.given",
            Happened::ReactionRemoved { .. } => "reaction.removed",
            Happened::CommentAdded { .. } => "comment.added",
            Happened::CommentDeleted(_) => "comment.deleted",
            Happened::ReadChanged { .. } => "read.changed",
            Happened::ProfileChanged(_) => "profile.changed",
            Happened::PrivacyChanged { .. } => "privacy.changed",
            Happened::UserErased(_) => "user.erased",
        }
    }

    /// The thing that has changed, as text. Revisions order the events of one subject.
    fn subject(&self) -> String {
        match &self.happened {
            Happened::FollowBegan { user, author, .. }
            | Happened::FollowEnded { user, author, .. }
            | Happened::ReadChanged { user, author, .. } => format!("{user}/{author}"),
            Happened::PostPublished(EventPost { post, .. }) | Happened::PostEdited(EventPost { post, .. }) => post.id.to_string(),
            Happened::PostDeleted(post) => post.to_string(),
            Happened::ReactionGiven { user, post, reaction, .. } | Happened::ReactionRemoved { user, post, reaction } => {
                format!("{user}/{post}/{reaction}")
            }
            Happened::CommentAdded { comment, .. } | Happened::CommentDeleted(comment) => comment.to_string(),
            Happened::ProfileChanged(Profile { user, .. })
            | Happened::PrivacyChanged { user, .. }
            | Happened::UserErased(user) => user.to_string(),
        }
    }

    /// The same for every repetition, and different for every other event: `follow.began:1/2:1795161600`.
    pub fn id(&self) -> String {
        format!("{}:{}:{}", self.name(), self.subject(), self.revision)
    }

    /// The users whom the event names.
    pub fn users(&self) -> [UserId; 2] {
        match self.happened {
            Happened::FollowBegan { user, author, .. }
            | Happened::FollowEnded { user, author, .. }
            | Happened::ReadChanged { user, author, .. } => [user, author],
            Happened::PostPublished(EventPost { ref post, .. }) | Happened::PostEdited(EventPost { ref post, .. }) => {
                [post.id.author; 2]
            }
            Happened::PostDeleted(post) | Happened::CommentDeleted(CommentId { post, .. }) => [post.author; 2],
            Happened::ReactionGiven { user, post, .. } | Happened::ReactionRemoved { user, post, .. } => [user, post.author],
            Happened::CommentAdded { comment, author, .. } => [author, comment.post.author],
            Happened::ProfileChanged(Profile { user, .. })
            | Happened::PrivacyChanged { user, .. }
            | Happened::UserErased(user) => [user; 2],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_id_has_type_subject_and_revision() {
        let [user, author]: [UserId; 2] = [1, 2].map(|id| UserId::new(id).unwrap());
        let (post, at) = (PostId::new(author, 3), Timestamp::from_ms(5));
        let comment = CommentId::new(post, 4);
        let reaction = Reaction::Like;
        let events = [
            Happened::FollowBegan { user, author, since: at },
            Happened::FollowEnded { user, author, at },
            Happened::PostDeleted(post),
            Happened::ReactionGiven { user, post, reaction, at },
            Happened::ReactionRemoved { user, post, reaction: Reaction::Favorite },
            Happened::CommentAdded { comment, author: user, text: "t".to_owned(), at },
            Happened::CommentDeleted(comment),
            Happened::ReadChanged { user, author, through: 0, read: None },
            Happened::PrivacyChanged { user, private: true },
            Happened::UserErased(user),
        ];
        let ids: BTreeSet<String> = events.map(|happened| Event { revision: 9, happened }.id()).into();
        let expected = [
            "comment.added:2-3-4:9",
            "comment.deleted:2-3-4:9",
            "follow.began:1/2:9",
            "follow.ended:1/2:9",
            "post.deleted:2-3:9",
            "privacy.changed:1:9",
            "reaction.given:1/2-3/like:9",
            "reaction.removed:1/2-3/favorite:9",
            "read.changed:1/2:9",
            "user.erased:1:9",
        ];
        assert_eq!(ids, expected.map(str::to_owned).into());
    }
}

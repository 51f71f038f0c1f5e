//! Compares the comments on an author's posts with what counts and lists them.

use std::collections::{BTreeSet, HashMap};

use tidemark_domain::{Comment, CommentId, CommentNumber, PostId, Timestamp, UserId};

use super::{Correction, Counter, Difference, Kind, Subject, facts::StoredCount};

/// The comments on one post. The counts were read before the comments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PostComments {
    /// Those that stand.
    pub standing: Vec<Comment>,
    /// The last number that was given, and the highest that a comment has, a withdrawn one too.
    pub last: CommentNumber,
    pub highest: CommentNumber,
    /// By the number's remainder.
    pub lanes: Vec<StoredCount>,
    /// The numbers of comments of users; `None` if some of them cannot be read.
    pub of_users: Option<HashMap<UserId, StoredCount>>,
    /// The comments that the lists of their users lack, of those that are looked at today.
    pub unlisted: BTreeSet<CommentId>,
}

pub fn differences(post: PostId, comments: &PostComments) -> Vec<Difference> {
    let PostComments { standing, last, highest, lanes, of_users, unlisted } = comments;
    let mut found = Vec::new();
    for (lane, count) in lanes.iter().enumerate() {
        let of_lane = |comment: &&Comment| (comment.id.number - 1) % lanes.len() as u64 == lane as u64;
        let right = standing.iter().filter(of_lane).count() as u64;
        found.extend(count.differs(Kind::CommentCount, Counter::Comments { post, lane: lane as u64 }, right));
    }
    if let Some(of_users) = of_users {
        let users: BTreeSet<UserId> = standing.iter().map(|comment| comment.author).chain(of_users.keys().copied()).collect();
        found.extend(users.into_iter().filter_map(|user| {
            let right = standing.iter().filter(|comment| comment.author == user).count() as u64;
            let count = of_users.get(&user).copied().unwrap_or_default();
            count.differs(Kind::CommentCount, Counter::CommentsOf { post, user }, right)
        }));
    }
    if highest > last {
        let (seen, right) = (*last, *highest);
        let correction = Correction::RaiseCommentNumbers { post, seen, right };
        found.push(Difference::new(Kind::CommentNumbers, Subject::CommentNumbers { post, seen, right }, correction));
    }
    found.extend(standing.iter().filter(|comment| unlisted.contains(&comment.id)).map(|comment| {
        let (of, user, at) = (comment.id, comment.author, Some(comment.created_at));
        entry(Kind::CommentUnlisted, of, user, at)
    }));
    found
}

/// A comment that a user's list has, and that does not stand.
pub fn ghost(of: CommentId, user: UserId) -> Difference {
    entry(Kind::CommentGhost, of, user, None)
}

fn entry(kind: Kind, of: CommentId, user: UserId, at: Option<Timestamp>) -> Difference {
    Difference::new(kind, Subject::Comment { comment: of, user }, Correction::ListComment { of, user, at })
}

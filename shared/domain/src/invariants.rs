//! The invariants of the system, and predicates with which tests, debug builds or reconcile check some of them.
//!
//! Each predicate names its invariant; those of N1 and V2 are methods of their types. System tests and reconcile check
//! the others, which hold across stores.
//!
//! | id | invariant |
//! |---|---|
//! | F1 | An edge exists in both directions or in neither, and so does a request. Both counters agree with them. A pair has an edge, a request or a block, and never two of them. |
//! | F2 | An author's sequence numbers are 1, 2, 3, … without gaps. Their times never decrease, except those of archived posts. |
//! | F3 | A read state never covers a post that does not exist. |
//! | F4 | No mark lowers a watermark. Only the repair of F3 does. |
//! | F5 | A post's counts of likes and favorites agree with the users' reactions. An author's counts are the sums over all posts, deleted ones included. |
//! | F6 | The list of the users who have reacted to a post has each of them once, with the time of the user's own list. |
//! | F7 | A standing repost is in the list of its original and in that of its user, and in its original's count. A user has one repost of a post. |
//! | F8 | A post's count of comments, and that of each of its commenters, agree with the comments that stand, and so does the list of each commenter. No number of a comment is given twice. |
//! | N1 | A slot of a platform is given once. A notice is live if and only if the head lists it and it has not expired. |
//! | N2 | The number of readers of a live notice is the number of read states that contain its slot. |
//! | N3 | A reader's unread notices are the live notices whose slot is not in the read state, both in the view and in the facts. |
//! | V1 | A view has a live field for an author only while the reader follows the author. A late message never brings it back. |
//! | V2 | A post counts as unread if and only if it is delivered, not read and not deleted. |
//! | V3 | A post that is in the counts is in the feed: one call changes both. Posts of muted authors are in neither. |
//! | V4 | Every operation on a view is idempotent and commutative. |
//! | V5 | A complete view equals what the facts imply when no task is queued. |
//! | V6 | A page of followers counts as delivered once, and only when all of its followers were handled. |
//! | V7 | A view of reactions contains a version of the fact, and never goes back to an older version. |
//! | V8 | A view belongs to the epoch in which it was written. Data from an older dump, from a replica that took over, or from another server has another epoch: it counts as missing, and a write deletes it. |
//! | V9 | A ranked feed has only entries of the feed. If it has all of them, their scores are those that the facts imply, as soon as no rank or rescore task is queued. |

use crate::{AuthorHead, Edge, ReadState, ReaderState, UserId};

/// F3: returns whether no mark is beyond the author's latest post.
pub fn reads_only_what_exists(head: &AuthorHead, reads: &ReadState) -> bool {
    reads.through <= head.latest_seq && reads.read.above(head.latest_seq).next().is_none()
}

/// V1, V2 and V5 for one author: returns how the view's field differs from what the facts imply.
pub fn view_differs(
    view: &ReaderState,
    author: UserId,
    edge: Option<&Edge>,
    head: &AuthorHead,
    reads: &ReadState,
) -> Option<String> {
    let state = view.authors.get(&author);
    let Some(edge) = edge.filter(|edge| edge.following) else {
        return state.map(|_| format!("{author}: a field without an edge (V1)"));
    };
    let Some(state) = state else { return Some(format!("{author}: an edge without a field (V5)")) };
    let unread = || format!("{author}: unread {:?}, which the facts do not imply (V2)", state.unread_seqs().collect::<Vec<_>>());
    (!state.counts_unread(edge, head, reads)).then(unread)
}

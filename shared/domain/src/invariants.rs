//! The invariants of the system, one line each, and the predicates that property tests, `debug_assert!` and repair share.
//!
//! | id | invariant |
//! |---|---|
//! | F1 | An edge exists in both directions or in neither, and both counters agree with the edges. |
//! | F2 | An author's sequence numbers are 1, 2, 3, … without gaps, and their times never decrease, archived posts left out. |
//! | F3 | A read fact never covers a post that does not exist. |
//! | F4 | A watermark never goes back. |
//! | F5 | A post's likes and favorites are as many as users' reaction facts say so, and an author's are those of all posts, deleted ones included. |
//! | N1 | A slot of a platform is given once. A notice is live when the head lists it and it has not expired, and nothing else says so. |
//! | N2 | The number of readers of a live notice is the number of read states that hold its slot. |
//! | N3 | A reader's unread notices are the live ones whose slot the read state does not hold, in the view as in the facts. |
//! | V1 | A view has a field for an author only while the reader follows it: an unfollow leaves no ghost, whatever arrives late. |
//! | V2 | Unread = delivered, not read, not deleted, and nothing else counts. |
//! | V3 | A post is in the feed when it is in the counts: both change in the same call. |
//! | V4 | Every view operation is idempotent and commutative. |
//! | V5 | A complete view equals what the facts imply, once nothing is queued. |
//! | V6 | A page of followers counts as delivered once, and only when all of it was handled. |
//! | V7 | What a reader's view says of an author's reactions is a version of the fact, and never an older one than it has said. |
//! | V8 | What a view says was merged in the epoch of the node that holds it: what an older dump or a replica that took over brings is of another epoch, and is not there. |

use super::{
    ids::UserId,
    model::{AuthorHead, Edge, ReadState},
    reader_state::ReaderState,
};

/// F3: no read fact beyond the author's latest post.
pub fn reads_only_what_exists(head: &AuthorHead, reads: &ReadState) -> bool {
    reads.through <= head.latest_seq && reads.read.above(head.latest_seq).next().is_none()
}

/// V1 and V5 for one author: the view's field against what the facts imply. `None` is agreement, else what differs.
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
    let implied = super::AuthorState::from_facts(edge, head, reads);
    let (have, want): (Vec<_>, Vec<_>) = (state.unread_seqs().collect(), implied.unread_seqs().collect());
    (have != want).then(|| format!("{author}: unread {have:?}, facts imply {want:?} (V5)"))
}

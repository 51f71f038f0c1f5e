//! Live updates: what a reader's connections are told.

use serde::{Deserialize, Serialize};

use crate::{Platform, PostId, ReaderState, Timestamp, UserId};

/// A change of a reader's unread counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadChange {
    /// The time at which the counts were read. A later change of the same reader has a later time.
    pub at: Timestamp,
    pub total: u64,
    /// The newest post, or the one that was marked or deleted last, if that was later, with its author's unread posts.
    pub post: Option<(PostId, u64)>,
}

impl UnreadChange {
    /// Returns the change that has led to this state. A mark or a deletion was noted with its post and time. A delivery
    /// was not: the newest post was delivered last, if it is newer.
    pub fn of(state: &ReaderState, noted: Option<(PostId, Timestamp)>, at: Timestamp) -> Self {
        let delivered = state.heard().filter(|(_, author)| author.newest_at > Timestamp::default());
        let newest = delivered.map(|(id, author)| (PostId::new(id, author.newest_delivered()), author.newest_at));
        let last = noted.into_iter().chain(newest).max_by_key(|(_, at)| *at);
        let post = last.map(|(post, _)| (post, state.unread_of(post.author)));
        Self { at, total: state.unread_total(), post }
    }
}

/// A fingerprint of all unread counts of a reader (FNV-1a, 64 bits). A connection that was told the same one knows the
/// counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountsDigest(pub u64);

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

impl CountsDigest {
    pub fn of(state: &ReaderState) -> Self {
        let unread = |(author, state): (UserId, &super::AuthorState)| (author, state.unread());
        let mut counts: Vec<(UserId, u64)> = state.heard().map(unread).filter(|(_, unread)| *unread > 0).collect();
        counts.sort_unstable();
        let bytes = counts.into_iter().flat_map(|(author, unread)| [author.get(), unread]).flat_map(u64::to_le_bytes);
        Self(bytes.fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME)))
    }
}

/// What a connection was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    pub counts: CountsDigest,
    /// The unread groups of the inbox.
    pub inbox: u32,
}

/// The end of a message to a reader, and the connections that know what it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub user: UserId,
    pub connections: Vec<String>,
    /// The time of the message that told them.
    pub at: Timestamp,
    pub counts: CountsDigest,
    /// The unread groups of the inbox.
    #[serde(default)]
    pub inbox: u32,
    /// The unread notices that connections know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<UnreadNotices>,
}

/// The number of a reader's unread notices on a platform, for some of the reader's connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadNotices {
    pub connections: Vec<String>,
    pub platform: Platform,
    pub unread: u64,
}

impl Told {
    /// The end of a message that no connection knows yet.
    pub fn nobody(user: UserId, at: Timestamp, Known { counts, inbox }: Known) -> Self {
        Self { user, connections: Vec::new(), at, counts, inbox, notices: Vec::new() }
    }

    pub fn known(&self) -> Known {
        Known { counts: self.counts, inbox: self.inbox }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AuthorState;

    fn user(id: u64) -> UserId {
        UserId::new(id).unwrap()
    }

    fn state(authors: &[(u64, u64)]) -> ReaderState {
        let author = |&(id, through): &(u64, u64)| {
            (user(id), AuthorState { live: true, through, newest_at: Timestamp::from_ms(id), ..AuthorState::default() })
        };
        ReaderState { authors: authors.iter().map(author).collect(), ..ReaderState::default() }
    }

    #[test]
    fn a_change_names_the_post_that_was_noted_or_delivered_last() {
        let at = Timestamp::from_ms(50);
        let two = state(&[(7, 2), (9, 3)]);
        let named = |noted: Option<u64>| {
            let noted = noted.map(|at| (PostId::new(user(7), 1), Timestamp::from_ms(at)));
            let UnreadChange { total, post, .. } = UnreadChange::of(&two, noted, at);
            assert_eq!(total, 5);
            post.unwrap()
        };
        assert_eq!(named(Some(10)), (PostId::new(user(7), 1), 2));
        assert_eq!([named(Some(8)), named(None)], [(PostId::new(user(9), 3), 3); 2]);
        assert_eq!(UnreadChange::of(&state(&[]), None, at), UnreadChange { at, total: 0, post: None });
        let mut before_the_follow = state(&[(7, 2)]);
        before_the_follow.authors.get_mut(&user(7)).unwrap().newest_at = Timestamp::default();
        assert_eq!(UnreadChange::of(&before_the_follow, None, at).post, None);
    }

    #[test]
    fn a_digest_depends_on_the_counts_of_the_authors_alone() {
        let digest = |authors: &[(u64, u64)]| CountsDigest::of(&state(authors));
        assert_eq!(digest(&[(7, 2), (9, 3)]), digest(&[(9, 3), (7, 2), (8, 0)]));
        for other in [&[][..], &[(7, 2)], &[(7, 3), (9, 2)], &[(7, 2), (9, 4)]] {
            assert_ne!(digest(&[(7, 2), (9, 3)]), digest(other));
        }
        let mut muted = state(&[(7, 2), (9, 3)]);
        muted.authors.get_mut(&user(9)).unwrap().muted = true;
        assert_eq!(CountsDigest::of(&muted), digest(&[(7, 2)]));
    }
}

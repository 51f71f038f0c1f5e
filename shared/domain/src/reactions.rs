//! Likes and favorites: one user's reactions to one author's posts, and how many users have reacted.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ids::Seq, seq_set::SeqSet, visibility::Blocks};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ReactionName))]
#[serde(rename_all = "lowercase")]
pub enum Reaction {
    Like,
    Favorite,
}

impl Reaction {
    pub const ALL: [Self; 2] = [Self::Like, Self::Favorite];
}

impl fmt::Display for Reaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Like => "like",
            Self::Favorite => "favorite",
        })
    }
}

/// The posts of one author that one user has liked and favorited. Posts that were deleted later are still in it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReactionState {
    /// Grows by one with every change.
    pub version: u32,
    pub liked: SeqSet,
    pub favorited: SeqSet,
    /// The blocks between the user and the author. A change of them is a change of the state.
    pub blocks: Blocks,
}

/// Bytes before the sets: the version, the length of the first set, and the blocks.
const HEADER: usize = 9;

/// The blocks as bits of the last byte of the header.
const BY_AUTHOR: u8 = 1;
const BY_USER: u8 = 2;

impl ReactionState {
    pub fn of(&self, reaction: Reaction) -> &SeqSet {
        match reaction {
            Reaction::Like => &self.liked,
            Reaction::Favorite => &self.favorited,
        }
    }

    /// Returns the state with a reaction given or removed, one version later; `None` if nothing changes.
    #[must_use]
    pub fn changed(&self, seq: Seq, reaction: Reaction, given: bool) -> Option<Self> {
        let mut state = self.clone();
        let set = match reaction {
            Reaction::Like => &mut state.liked,
            Reaction::Favorite => &mut state.favorited,
        };
        let changed = if given { set.insert(seq) } else { set.remove(seq) };
        state.version += 1;
        changed.then_some(state)
    }

    /// Returns whether the user has reacted to none of the author's posts.
    pub fn is_empty(&self) -> bool {
        self.liked.is_empty() && self.favorited.is_empty()
    }

    /// Encodes the value of one field of a reader's reactions in Redis: the version and the length of `liked` (4 bytes
    /// each, little-endian; `shared/views/src/lua/react.lua` reads the version), the blocks, then both sets in
    /// roaring's format. An empty set has no bytes.
    pub fn encode(&self) -> Vec<u8> {
        let bytes = |set: &SeqSet| if set.is_empty() { Vec::new() } else { set.to_bytes() };
        let (liked, favorited) = (bytes(&self.liked), bytes(&self.favorited));
        let length = u32::try_from(liked.len()).unwrap_or(u32::MAX);
        let blocks = if self.blocks.by_author { BY_AUTHOR } else { 0 } | if self.blocks.by_user { BY_USER } else { 0 };
        [&self.version.to_le_bytes()[..], &length.to_le_bytes(), &[blocks], &liked, &favorited].concat()
    }

    /// Decodes the result of [`encode`](Self::encode); `None` if the bytes are damaged.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (header, sets) = bytes.split_first_chunk::<HEADER>()?;
        let [version, length] = [0, 4].map(|at| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]));
        let (liked, favorited) = sets.split_at_checked(length as usize)?;
        let set = |bytes| SeqSet::from_bytes(bytes).ok();
        let flags = header[HEADER - 1];
        let blocks = Blocks { by_author: flags & BY_AUTHOR != 0, by_user: flags & BY_USER != 0 };
        (flags <= BY_AUTHOR | BY_USER).then_some(Self { version, liked: set(liked)?, favorited: set(favorited)?, blocks })
    }
}

/// The numbers of users who have reacted to one post and who repost it, or have reacted to all posts of an author.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReactionCounts {
    pub likes: u64,
    pub favorites: u64,
    /// Standing reposts of the post. Always 0 of all posts of an author.
    pub reposts: u64,
    /// The standing comments on one post. Those of an author's posts together are not counted.
    pub comments: u64,
}

impl ReactionCounts {
    pub fn of(&self, reaction: Reaction) -> u64 {
        match reaction {
            Reaction::Like => self.likes,
            Reaction::Favorite => self.favorites,
        }
    }
}

impl std::iter::Sum for ReactionCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, one| Self {
            likes: sum.likes + one.likes,
            favorites: sum.favorites + one.favorites,
            reposts: sum.reposts + one.reposts,
            comments: sum.comments + one.comments,
        })
    }
}

/// Reaction counts of a post with a version, which grows with every change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CountsVersion {
    pub version: u64,
    pub counts: ReactionCounts,
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_set, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn an_encoded_state_decodes_to_itself(
            version: u32, liked in btree_set(1..1u64 << 53, 0..20), favorited in btree_set(1..90u64, 0..40),
            by_author: bool, by_user: bool,
        ) {
            let blocks = Blocks { by_author, by_user };
            let (liked, favorited) = (liked.into_iter().collect(), favorited.into_iter().collect());
            let state = ReactionState { version, liked, favorited, blocks };
            prop_assert_eq!(ReactionState::decode(&state.encode()), Some(state));
        }
    }

    #[test]
    fn a_repeated_change_changes_nothing() {
        let state = ReactionState::default();
        assert_eq!(state.changed(3, Reaction::Like, false), None);
        let liked = state.changed(3, Reaction::Like, true).unwrap();
        assert_eq!((liked.version, liked.changed(3, Reaction::Like, true)), (1, None));
        assert!(liked.of(Reaction::Like).contains(3) && !liked.of(Reaction::Favorite).contains(3));
        let back = liked.changed(3, Reaction::Like, false).unwrap();
        assert_eq!((back.version, back.liked.is_empty()), (2, true));
    }

    #[test]
    fn an_empty_state_takes_nine_bytes_and_damaged_bytes_are_rejected() {
        assert_eq!(ReactionState::default().encode().len(), 9);
        let bytes = ReactionState::default().changed(5, Reaction::Favorite, true).unwrap().encode();
        assert!(bytes.len() < 40, "{}", bytes.len());
        for cut in [0, 3, 7, 8, 10, bytes.len() - 1] {
            assert!(ReactionState::decode(&bytes[..cut]).is_none(), "{cut}");
        }
        for (at, damage) in [(4, 200), (8, 4)] {
            let mut damaged = bytes.clone();
            damaged[at] = damage;
            assert!(ReactionState::decode(&damaged).is_none(), "{at}");
        }
    }
}

//! What Redis knows for a page, a post, and a reader and an author.

use std::collections::HashMap;

use tidemark_domain::{Audience, AuthorState, Card, PostId, PostSummary, PostText, ReactionCounts, UserId};

use crate::{KnownReactions, Marks};

/// The parts of a page that are read only if they are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageParts {
    pub cards: bool,
    pub texts: bool,
    /// Reaction counts.
    pub counts: bool,
}

/// The data for a page that Redis has.
#[derive(Debug, Clone, Default)]
pub struct KnownPage {
    pub summaries: HashMap<PostId, PostSummary>,
    pub reactions: KnownReactions,
    /// The cards of the authors; `None` for an author who has no profile.
    pub cards: HashMap<UserId, Option<Card>>,
    /// Texts in the revisions of the summaries.
    pub texts: HashMap<PostId, PostText>,
    pub counts: HashMap<PostId, ReactionCounts>,
}

/// The data that Redis has of the originals of a page, and of the reader and their authors.
#[derive(Debug, Clone, Default)]
pub struct KnownOriginals {
    pub summaries: HashMap<PostId, PostSummary>,
    /// Who sees the posts of each author.
    pub audiences: HashMap<UserId, Audience>,
    /// With the blocks between the reader and each author.
    pub reactions: KnownReactions,
    pub cards: HashMap<UserId, Option<Card>>,
    pub counts: HashMap<PostId, ReactionCounts>,
    /// Whether a change of the reader was noted within the last seconds.
    pub changed_lately: bool,
}

/// The data of one post that Redis has.
#[derive(Debug, Clone, Default)]
pub struct KnownPost {
    pub summary: Option<PostSummary>,
    /// The text in the revision of the summary.
    pub text: Option<PostText>,
    pub counts: Option<ReactionCounts>,
    /// Whether the counts may lack reactions of this moment.
    pub counts_in_motion: bool,
    /// The author's card, if it is known; `None` if the author has no profile.
    pub cards: HashMap<UserId, Option<Card>>,
}

/// What a reader's view says about the follow of an author.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum KnownFollow {
    /// There is no usable view.
    #[default]
    Unknown,
    NotFollowing,
    Following(AuthorState),
}

impl From<Option<AuthorState>> for KnownFollow {
    /// What a complete view says.
    fn from(state: Option<AuthorState>) -> Self {
        state.map_or(Self::NotFollowing, Self::Following)
    }
}

/// The data about one reader and one author that Redis has.
#[derive(Debug, Clone, Default)]
pub struct KnownReader {
    pub follow: KnownFollow,
    pub reactions: KnownReactions,
    /// The reader's marks, if it is known that the reader does not follow the author.
    pub marks: Option<Marks>,
    /// Whether a change of the reader was noted within the last seconds.
    pub changed_lately: bool,
    /// Who sees the author's posts; `None` if Redis does not have the author's head, or was not asked for it.
    pub audience: Option<Audience>,
}

//! What Redis knows for a page, a post, and a reader and an author.

use std::collections::HashMap;

use tidemark_domain::{AuthorState, Card, PostId, PostSummary, PostText, ReactionCounts, UserId};

use crate::{KnownReactions, Marks};

/// The parts of a page that are read only if they are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageParts {
    pub cards: bool,
    /// Texts and reaction counts.
    pub texts: bool,
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

/// The data of one post that Redis has.
#[derive(Debug, Clone, Default)]
pub struct KnownPost {
    pub summary: Option<PostSummary>,
    /// The text in the revision of the summary.
    pub text: Option<PostText>,
    pub counts: Option<ReactionCounts>,
    /// Whether the counts may lack reactions of this moment.
    pub counts_in_motion: bool,
    /// The author's card, if it is known that there is one or none.
    pub card: Option<Option<Card>>,
}

/// The data about one reader and one author that Redis has.
#[derive(Debug, Clone, Default)]
pub struct KnownReader {
    /// The author's state in the view. Outer `None`: there is no usable view. Inner `None`: no follow.
    pub state: Option<Option<AuthorState>>,
    pub reactions: KnownReactions,
    /// The reader's marks, if it is known that the reader does not follow the author.
    pub marks: Option<Marks>,
    /// Whether a change of the reader was noted within the last seconds (`Views::changed_lately`).
    pub changed_lately: bool,
}

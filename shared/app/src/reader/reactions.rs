//! What a reader thinks of the posts of a page.

use crate::error::StoreError;
use std::collections::{BTreeSet, HashMap};

use tracing::warn;

use super::Readers;
use crate::ports::KnownReactions;
use tidemark_domain::{PostSummary, ReactionState, UserId};

impl Readers {
    /// What a user thinks of an author's posts, from the facts.
    ///
    /// # Errors
    /// The facts do not answer.
    pub async fn reactions_to(&self, user: UserId, author: UserId) -> Result<ReactionState, StoreError> {
        Ok(self.stores.reactions.reactions(user, &[author]).await?.remove(&author).unwrap_or_default())
    }

    /// Brings the view of a user's reactions to one author in line with the facts.
    ///
    /// # Errors
    /// Facts or Redis do not answer; to be repeated.
    pub async fn sync_reactions(&self, user: UserId, author: UserId) -> Result<(), StoreError> {
        let state = self.reactions_to(user, author).await?;
        self.stores.reaction_views.change(user, author, &state).await
    }

    /// The reader's reactions to the authors of these posts. `known` is what came with the posts from the view, `None` when they came from the facts; what it lacks is
    /// one read of the facts, kept for the next page.
    pub(super) async fn reactions_of_page(
        &self,
        user: UserId,
        posts: &[PostSummary],
        known: Option<KnownReactions>,
    ) -> Result<HashMap<UserId, ReactionState>, StoreError> {
        let (mut of, view) = match known {
            Some(known) => (known.of, Some(known.token)),
            None => (HashMap::new(), None),
        };
        let authors: BTreeSet<UserId> =
            posts.iter().map(|post| post.id.author).filter(|author| !of.contains_key(author)).collect();
        if authors.is_empty() {
            return Ok(of);
        }
        // Before the facts are read: what is lost in between is not filled.
        let token = match view {
            Some(None) => self.kept(user, self.stores.reaction_views.open(user, (self.stores.random)()).await),
            Some(token) => token,
            None => None,
        };
        let authors: Vec<UserId> = authors.into_iter().collect();
        let mut found = self.stores.reactions.reactions(user, &authors).await?;
        for author in authors {
            // That there are none is worth keeping, too.
            found.entry(author).or_default();
        }
        if let Some(token) = token {
            self.kept(user, self.stores.reaction_views.fill(user, token, &found).await);
        }
        of.extend(found);
        Ok(of)
    }

    /// A page does not fail because what it read cannot be kept.
    fn kept<T>(&self, user: UserId, outcome: Result<T, StoreError>) -> Option<T> {
        outcome.map_err(|error| warn!(%user, error = &error as &dyn std::error::Error, "reactions not kept")).ok()
    }
}

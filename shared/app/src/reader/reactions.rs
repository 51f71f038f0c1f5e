//! A reader's reactions to the posts of a page.

use std::collections::{BTreeSet, HashMap};

use tidemark_domain::{PostSummary, ReactionState, UserId};
use tracing::warn;

use super::Readers;
use crate::{error::StoreError, ports::KnownReactions};

impl Readers {
    /// Returns a user's reactions to an author's posts, from the facts.
    pub(crate) async fn reactions_to(&self, user: UserId, author: UserId) -> Result<ReactionState, StoreError> {
        Ok(self.stores.reactions.reactions(user, &[author]).await?.remove(&author).unwrap_or_default())
    }

    /// Updates the view of a user's reactions to one author from the facts. May be repeated.
    pub async fn sync_reactions(&self, user: UserId, author: UserId) -> Result<(), StoreError> {
        let state = self.reactions_to(user, author).await?;
        self.stores.reaction_views.change(user, author, &state).await
    }

    /// Returns the reader's reactions to the authors of these posts. `known` is what the view returned with the posts;
    /// `None` if the posts come from the facts. One read of the facts returns the missing reactions and stores them for
    /// the next page.
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
        // The view is opened before the facts are read. If it is lost in between, the facts are not stored.
        let token = match view {
            Some(None) => self.kept(user, self.stores.reaction_views.open(user, (self.stores.random)()).await),
            Some(token) => token,
            None => None,
        };
        let authors: Vec<UserId> = authors.into_iter().collect();
        let mut found = self.stores.reactions.reactions(user, &authors).await?;
        for author in authors {
            // An empty state is stored, too: it saves the next read.
            found.entry(author).or_default();
        }
        if let Some(token) = token {
            self.kept(user, self.stores.reaction_views.fill(user, token, &found).await);
        }
        of.extend(found);
        Ok(of)
    }

    /// Logs an error. A page does not fail because its reactions cannot be stored.
    fn kept<T>(&self, user: UserId, outcome: Result<T, StoreError>) -> Option<T> {
        outcome.map_err(|error| warn!(%user, error = &error as &dyn std::error::Error, "reactions not stored")).ok()
    }
}

//! Facts that name a user whose erasure has ended. Every write is kept from that, so there should be none: a table that
//! was restored, an operator, or a bug.

use tidemark_domain::{Erasure, Reaction, Timestamp, UserId, store::Result};

use super::{Leaving, task};

/// An erasure that ended less than this before is looked at in every walk.
const RECENT_MS: u64 = 2 * 24 * 3600 * 1000;

impl Leaving {
    /// Whether an erasure ended at `at`, not long ago.
    pub fn is_recent(&self, at: Timestamp) -> bool {
        at.plus_ms(RECENT_MS) > self.stores.clock.now()
    }

    /// Returns the kinds of facts that name a user whose erasure has ended. There should be none. Of other users it
    /// returns none, because they have facts.
    pub async fn left(&self, user: UserId) -> Result<Vec<&'static str>> {
        let stores = &self.stores;
        let facts = &stores.facts;
        if facts.erasure(user).await?.is_none_or(|erasure| erasure.finished_at.is_none()) {
            return Ok(Vec::new());
        }
        let users = [user];
        let (related, heads, likes, favorites, given, reposts) = futures::try_join!(
            facts.related_users(user, 1),
            stores.facts.heads(&users),
            stores.facts.reacted(user, Reaction::Like, None, 1),
            stores.facts.reacted(user, Reaction::Favorite, None, 1),
            facts.reactions_to(user, 1),
            facts.listed_reposts(user, 1),
        )?;
        let (comments, commenters, blocks) =
            futures::try_join!(facts.comment_entries(user, 1), facts.has_commenters(user), facts.blocks_of(user))?;
        let (own, others, platforms, profiles, counters, counts, inbox) = futures::try_join!(
            facts.marked_authors(user, 1),
            facts.markers(user, 1),
            facts.read_platforms(user),
            stores.facts.profiles(&users),
            facts.has_counters(user),
            facts.has_reaction_counts(user),
            facts.has_inbox(user),
        )?;
        let found = [
            ("relation", !related.is_empty() || blocks.iter().any(|users| !users.is_empty())),
            ("post", heads.get(&user).is_some_and(|head| !head.listed_seqs(u64::MAX, 1).is_empty())),
            ("reaction", !likes.is_empty() || !favorites.is_empty() || !given.is_empty() || counts),
            ("repost", !reposts.is_empty()),
            ("comment", !comments.is_empty() || commenters),
            ("read state", !own.is_empty() || !others.is_empty()),
            ("read state of notices", !platforms.is_empty()),
            ("profile", !profiles.is_empty()),
            ("counter", counters),
            ("inbox", inbox),
        ];
        Ok(found.into_iter().filter(|(_, is_left)| *is_left).map(|(kind, _)| kind).collect())
    }

    /// Starts a finished erasure again. Returns false if it is not finished.
    pub async fn again(&self, user: UserId) -> Result<bool> {
        let stores = &self.stores;
        let Some(erasure) = stores.facts.erasure(user).await?.filter(|erasure| erasure.finished_at.is_some()) else {
            return Ok(false);
        };
        let next = Erasure {
            finished_at: None,
            swept_at: None,
            cleared: 0,
            touched_at: stores.clock.now(),
            chain: erasure.chain + 1,
            version: erasure.version + 1,
            ..erasure
        };
        if !stores.facts.reopen_erasure(user, &next).await? {
            return Ok(false);
        }
        // If the task is lost, reconcile sends another one.
        logged!(stores.queues.tasks.send(&[task(user, &next, false)]).await, "the erasure is left to reconcile", %user);
        Ok(true)
    }
}

//! [`People`]: profiles and handles. [`Callers`]: the user ids of the claims of tokens.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use moka::sync::Cache;
use tidemark_domain::{Card, Profile, ProfileContent, Store, StoreError, UserId, store::Result};
use tidemark_facts::ProfileSet;
use tidemark_views::CardVersion;
use tracing::warn;

use crate::{Stores, outage::Outage};

/// Use cases of profiles. Clones share the stores.
#[derive(Clone)]
pub struct People {
    stores: Arc<Stores>,
    outage: Outage,
}

/// The cards of the users of a page. Users without a profile are left out.
#[derive(Debug, Clone, Default)]
pub struct Cards {
    pub of: HashMap<UserId, Card>,
    pub degraded: bool,
}

impl People {
    pub fn new(stores: Arc<Stores>, outage: Outage) -> Self {
        Self { stores, outage }
    }

    pub async fn profile(&self, user: UserId) -> Result<Option<Profile>> {
        Ok(self.stores.facts.profiles(&[user]).await?.remove(&user))
    }

    pub async fn set(&self, user: UserId, content: &ProfileContent) -> Result<ProfileSet> {
        let set = self.stores.facts.set_profile(user, content, self.stores.clock.now()).await?;
        // Even if the facts had the content: an earlier request may have ended before its view.
        if let ProfileSet::Stands(profile) = &set
            && let Err(error) = self.stores.views.replace_card(user, &CardVersion::of(Some(profile.clone()))).await
        {
            self.outage.instead(&error).await?;
        }
        Ok(set)
    }

    pub async fn is_private(&self, user: UserId) -> Result<bool> {
        Ok(self.stores.facts.head_of(user).await?.is_private())
    }

    /// Makes a user private or public. Afterwards no request that begins shows a title to a stranger of a private user:
    /// the head in Redis says so, or the outage is noted.
    pub async fn set_privacy(&self, user: UserId, is_private: bool) -> Result<()> {
        let stores = &self.stores;
        stores.facts.set_privacy(user, is_private).await?;
        // Even if the facts had it: an earlier request may have ended before its view.
        let head = stores.facts.head_of(user).await?;
        self.outage.or_later(stores.views.replace_head(user, &head).await).await
    }

    /// Updates the view of a user's card from the facts. May be repeated.
    pub async fn sync(&self, user: UserId) -> Result<()> {
        let card = CardVersion::of(self.profile(user).await?);
        self.stores.views.replace_card(user, &card).await
    }

    /// Returns the cards of exactly these users. `known` are cards that the views have returned already, perhaps with
    /// those of other users. The others come from the facts.
    pub async fn cards(&self, users: BTreeSet<UserId>, known: Option<HashMap<UserId, Option<Card>>>) -> Result<Cards> {
        let all: Vec<UserId> = users.iter().copied().collect();
        let mut known = match known {
            Some(known) => known,
            None => match self.outage.checked(self.stores.views.cards(&all)).await {
                Ok(known) => known,
                Err(error) => return self.instead(&all, &error).await,
            },
        };
        known.retain(|user, _| users.contains(user));
        let missing: Vec<UserId> = all.into_iter().filter(|user| !known.contains_key(user)).collect();
        let mut of: HashMap<UserId, Card> = known.into_iter().filter_map(|(user, card)| Some((user, card?))).collect();
        if missing.is_empty() {
            return Ok(Cards { of, degraded: false });
        }
        let filled = match self.fill(&missing).await {
            Err(error) if error.store() == Store::Views => self.instead(&missing, &error).await?,
            filled => filled?,
        };
        of.extend(filled.of);
        Ok(Cards { of, degraded: filled.degraded })
    }

    /// Takes the leases before it reads the facts, so outdated facts are not stored.
    async fn fill(&self, users: &[UserId]) -> Result<Cards> {
        let token = (self.stores.random)();
        let leased = self.stores.views.lease_cards(users, token).await?;
        let found = self.stores.facts.profiles(users).await?;
        let card = |user: UserId| (user, CardVersion::of(found.get(&user).cloned()));
        let filled: Vec<(UserId, CardVersion)> = leased.into_iter().map(card).collect();
        logged!(self.stores.views.fill_cards(&filled, token).await, "cards not stored");
        Ok(Cards { of: cards_of(found), degraded: false })
    }

    async fn instead(&self, users: &[UserId], error: &StoreError) -> Result<Cards> {
        warn!(error = error as &dyn std::error::Error, "cards unavailable, responding from the facts");
        Ok(Cards { of: cards_of(self.stores.facts.profiles(users).await?), degraded: error.is_unavailable() })
    }
}

fn cards_of(profiles: HashMap<UserId, Profile>) -> HashMap<UserId, Card> {
    profiles.into_iter().map(|(user, profile)| (user, profile.content.card)).collect()
}

/// Claims whose user ids a process keeps in memory.
const REMEMBERED: u64 = 100_000;

/// A new user id is below this number, so that a double represents it exactly.
const IDS: u64 = 1 << 53;

/// The user ids of the claims of tokens. Clones share the memory.
#[derive(Clone)]
pub struct Callers {
    stores: Arc<Stores>,
    known: Cache<String, UserId>,
}

impl Callers {
    pub fn new(stores: Arc<Stores>) -> Self {
        Self { stores, known: Cache::new(REMEMBERED) }
    }

    /// Returns the user id of a claim. The first call gives it one, which never changes.
    pub async fn user_of(&self, claim: &str) -> Result<UserId> {
        if let Some(user) = self.known.get(claim) {
            return Ok(user);
        }
        let known = self.stores.views.known_identity(claim).await;
        let stored = logged!(known, "identity unavailable, reading the facts").flatten();
        let user = match stored {
            Some(user) => user,
            None => {
                let user = self.identity(claim).await?;
                logged!(self.stores.views.remember_identity(claim, user).await, "identity not stored");
                user
            }
        };
        self.known.insert(claim.to_owned(), user);
        Ok(user)
    }

    async fn identity(&self, claim: &str) -> Result<UserId> {
        if let Some(user) = self.stores.facts.identity(claim).await? {
            return Ok(user);
        }
        let mut attempts = self.stores.attempts("assign");
        loop {
            attempts.next().await?;
            // Zero is not a user id.
            if let Some(candidate) = UserId::new((self.stores.random)() % IDS)
                && let Some(user) = self.stores.facts.assign_identity(claim, candidate).await?
            {
                return Ok(user);
            }
        }
    }
}

//! [`AccessCheck`]: who may call, and how much work of each kind one user may ask for.
//!
//! A limit is a token bucket: a number of tokens a minute in the long run, and as many at once. A request takes a token
//! for each subject that it names, and afterwards for the read units that these do not pay for. The buckets are in
//! Redis. While Redis is unavailable, or returns an error, no request is refused for its number.

use std::{sync::Arc, time::Duration};

use tidemark_domain::{Budget, StoreError, UserId, store::Result};
use tidemark_views::Spent;

use crate::{Stores, outage::Outage};

/// Tokens a minute of each kind, in the order of [`Budget::ALL`]. 0 means no limit.
pub type PerMinute = [u32; Budget::ALL.len()];

/// Read units that the first token of a request pays for, and those of each other token. A request that took more units
/// takes more tokens when its response is complete.
const UNITS_OF_THE_FIRST_TOKEN: f64 = 100.0;
const UNITS_OF_A_TOKEN: f64 = 25.0;

/// A request beyond a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverLimit {
    pub budget: Budget,
    pub per_minute: u32,
    /// The tokens that the request takes, and those in the bucket.
    pub tokens: u32,
    pub left: u64,
    /// The time until the request is allowed.
    pub wait: Duration,
}

/// The reason why a request is refused.
#[derive(Debug)]
pub enum Denied {
    OverLimit(OverLimit),
    Erased,
    /// It is unknown whether the caller has asked to leave.
    Unknown(StoreError),
}

/// The tokens that a request takes from a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    pub budget: Budget,
    pub tokens: u32,
}

/// Whether callers who have asked to leave are let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErasedCallers {
    Refused,
    Allowed,
}

/// Lets requests in: callers who have not asked to leave, within their limits. Clones share the stores.
#[derive(Clone)]
pub struct AccessCheck {
    stores: Arc<Stores>,
    /// While the outage note stands, Redis may not know yet that a user has asked to leave. Then the facts are read.
    outage: Outage,
    per_minute: PerMinute,
}

impl AccessCheck {
    pub fn new(stores: Arc<Stores>, outage: Outage, per_minute: PerMinute) -> Self {
        Self { stores, outage, per_minute }
    }

    /// Takes the tokens of a request from the user's bucket, and returns whether Redis responded.
    pub async fn pass(&self, user: UserId, price: Price, erased: ErasedCallers) -> Result<bool, Denied> {
        let Price { budget, tokens } = price;
        let per_minute = self.per_minute[budget as usize];
        let spent = self.stores.views.spend(user, (budget, per_minute), tokens, self.stores.clock.now()).await;
        let (responds, is_away) = (spent.is_ok(), spent.as_ref().is_err_and(StoreError::is_unavailable));
        let Spent { wait, left, access } = logged!(spent, "a request is not counted", %user).unwrap_or_default();
        if let Some(wait) = wait {
            return Err(Denied::OverLimit(OverLimit { budget, per_minute, tokens, left, wait }));
        }
        let may = match access {
            _ if erased == ErasedCallers::Allowed => true,
            Some(false) => false,
            Some(true) if self.outage.check().await.is_ok() => true,
            Some(true) | None => self.ask(user, responds).await.map_err(Denied::Unknown)?,
        };
        if may { Ok(!is_away) } else { Err(Denied::Erased) }
    }

    /// Takes tokens for the read units of a request beyond those for which it has taken tokens.
    pub async fn charge(&self, user: UserId, Price { budget, tokens }: Price, units: f64) {
        let paid = UNITS_OF_THE_FIRST_TOKEN + f64::from(tokens.saturating_sub(1)) * UNITS_OF_A_TOKEN;
        let tokens = ((units - paid) / UNITS_OF_A_TOKEN).ceil();
        let per_minute = self.per_minute[budget as usize];
        if tokens >= 1.0 && per_minute > 0 {
            let owed = self.stores.views.owe(user, (budget, per_minute), tokens as u32, self.stores.clock.now());
            logged!(owed.await, "read units are not counted", %user, units);
        }
    }

    /// Reads the receipt, and stores in Redis what it says if Redis responds.
    async fn ask(&self, user: UserId, responds: bool) -> Result<bool> {
        let may = self.stores.facts.erasure(user).await?.is_none();
        if responds {
            logged!(self.stores.views.note_access(user, may).await, "access is not stored", %user);
        }
        Ok(may)
    }
}

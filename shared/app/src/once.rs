//! Requests with an idempotency key are done once.
//!
//! A record among the facts has the fingerprint of the first request, the bound of what it was about to change, and,
//! when it is done, its answer. A repetition gets the answer. If there is none yet, the process of the first attempt
//! has died, or it is still at work: then the repetition does the same, up to the same bound, with the same token. The
//! token is stored with what is changed, or the answer is written in the transaction of the change, so each change is
//! made once, whichever attempt makes it. A use case:
//!
//! 1. calls [`Stores::begin`], which returns the attempt, or the answer of an earlier one;
//! 2. changes what lies within [`Attempt::bound`], and shows [`Attempt::token`] to what it changes;
//! 3. writes [`Attempt::done`] with the change, or after it.

use tidemark_domain::{IdempotencyKey, StoreError, UserId, store::Result};
use tidemark_facts::Record;

use crate::Stores;

/// The outcome of a request that may have an idempotency key.
#[derive(Debug, Clone, PartialEq)]
pub enum Once<T> {
    /// The response of this request, or of an earlier one with the same key and body.
    Done(T),
    /// An earlier request with the same key had another body.
    KeyReused,
}

/// An attempt at a request.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Names the request: the same for every attempt at it.
    pub token: u64,
    /// The bound that the first attempt has set.
    pub bound: Vec<u64>,
    /// `None` without an idempotency key.
    record: Option<Record>,
}

impl Attempt {
    /// The record with the answer; `None` without an idempotency key.
    pub fn done(&self, answer: Vec<u64>) -> Option<Record> {
        self.record.clone().map(|record| Record { answer: Some(answer), ..record })
    }
}

/// The beginning of a request.
#[derive(Debug, Clone)]
pub enum Begun {
    Attempt(Attempt),
    /// An earlier attempt has finished with this answer.
    Answered(Vec<u64>),
    KeyReused,
}

impl Stores {
    /// Begins a request of a user. With a key, the bound is stored before anything is changed.
    pub(crate) async fn begin(
        &self,
        user: UserId,
        operation: &'static str,
        key: Option<&IdempotencyKey>,
        bound: Vec<u64>,
    ) -> Result<Begun> {
        let token = (self.random)();
        let Some(of) = key else { return Ok(Begun::Attempt(Attempt { token, bound, record: None })) };
        let new = Record::new(user, operation, of, token, bound, self.clock.now());
        // A second look finds the record of a request that was a moment earlier.
        for _ in 0..2 {
            match self.begun(user, operation, key).await? {
                Some(begun) => return Ok(begun),
                None if self.facts.put_record(&new).await? => return Ok(Begun::Attempt(new.into())),
                None => {}
            }
        }
        Err(StoreError::Contention { operation })
    }

    /// Returns what an earlier attempt with this key has begun; `None` if there was none.
    pub(crate) async fn begun(
        &self,
        user: UserId,
        operation: &'static str,
        key: Option<&IdempotencyKey>,
    ) -> Result<Option<Begun>> {
        let Some(key) = key else { return Ok(None) };
        let known = self.facts.record(user, operation, &key.key, self.clock.now()).await?;
        Ok(known.map(|known| match known {
            known if known.fingerprint != key.fingerprint => Begun::KeyReused,
            Record { answer: Some(answer), .. } => Begun::Answered(answer),
            known => Begun::Attempt(known.into()),
        }))
    }

    /// Writes the answer of an attempt that has not written it together with its change. Returns the first answer,
    /// which may be that of another attempt.
    pub(crate) async fn finish(&self, attempt: &Attempt, answer: Vec<u64>) -> Result<Vec<u64>> {
        match attempt.done(answer.clone()) {
            Some(record) if !self.facts.put_record(&record).await? => Ok(self.answer(attempt).await?.unwrap_or(answer)),
            _ => Ok(answer),
        }
    }

    /// Returns the answer, if another attempt at the same request has written one.
    pub(crate) async fn answer(&self, attempt: &Attempt) -> Result<Option<Vec<u64>>> {
        let Some(Record { user, operation, key, now, .. }) = &attempt.record else { return Ok(None) };
        Ok(self.facts.record(*user, operation, key, *now).await?.and_then(|record| record.answer))
    }
}

impl From<Record> for Attempt {
    fn from(record: Record) -> Self {
        Self { token: record.token, bound: record.bound.clone(), record: Some(record) }
    }
}

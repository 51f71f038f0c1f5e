//! Idempotency records: what earlier requests were about to do, and their responses. They last 24 hours.

use tidemark_domain::{IdempotencyKey, Timestamp, UserId};

use super::{
    Facts, Result,
    item::{Item, encode, number},
    read,
    schema::{self, RecordItem},
    write::{Write, absent, at_most, is},
};

/// What is stored of a request with an idempotency key (`tidemark_app::once`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub user: UserId,
    pub operation: &'static str,
    pub key: String,
    pub fingerprint: String,
    /// Names the request. Every attempt at it has the same.
    pub token: u64,
    /// The bound of what the request changes.
    pub bound: Vec<u64>,
    /// The numbers in the response; `None` until the request is done.
    pub answer: Option<Vec<u64>>,
    /// The time of the attempt.
    pub now: Timestamp,
}

impl Record {
    pub fn new(user: UserId, operation: &'static str, of: &IdempotencyKey, token: u64, bound: Vec<u64>, now: Timestamp) -> Self {
        let (key, fingerprint) = (of.key.clone(), of.fingerprint.clone());
        Self { user, operation, key, fingerprint, token, bound, answer: None, now }
    }
}

impl Facts {
    /// Returns the record of a request; `None` if there is none, or if it has expired by now.
    pub async fn record(&self, user: UserId, operation: &'static str, key: &str, now: Timestamp) -> Result<Option<Record>> {
        let name = schema::request_record(user, operation, key);
        let stored = self.get_one("record", &self.tables.idempotency, schema::record(&name)).await?;
        let Some(record) = valid_record(stored.into_iter().collect(), now)? else { return Ok(None) };
        let token = record.token.ok_or_else(|| RecordItem::token.damaged_at(record.key))?;
        let (fingerprint, bound, answer) = (record.fingerprint, record.bound.unwrap_or_default(), record.answer);
        Ok(Some(Record { user, operation, key: key.to_owned(), fingerprint, token, bound, answer, now }))
    }

    /// Writes a record. It replaces only an expired one, and one of its own token without an answer. Otherwise it
    /// writes nothing and returns false.
    pub async fn put_record(&self, record: &Record) -> Result<bool> {
        self.send("put_record", self.record_write(record)).await
    }
}

impl Facts {
    /// The write of a record. It replaces only an expired one, and one of its own token without an answer.
    pub(crate) fn record_write(&self, record: &Record) -> Write {
        let Record { user, operation, key, fingerprint, token, bound, answer, now } = record;
        let item = new_record(schema::request_record(*user, operation, key), fingerprint, *now);
        let bound = Some(bound.clone()).filter(|bound| !bound.is_empty());
        let item = RecordItem { token: Some(*token), bound, answer: answer.clone(), ..item };
        let expired = || at_most(RecordItem::expires_at, number(now.seconds()));
        Write::put(&self.tables.idempotency, encode(&item))
            .when(absent(RecordItem::fingerprint).or(is(RecordItem::token, number(*token))).or(expired()))
            .when(absent(RecordItem::answer).or(expired()))
    }

    /// The write of an idempotency record. It replaces only an expired one.
    pub(crate) fn record_item_write(&self, record: &RecordItem, now: Timestamp) -> Write {
        let expired = at_most(RecordItem::expires_at, number(now.seconds()));
        Write::put(&self.tables.idempotency, encode(record)).when(absent(RecordItem::fingerprint).or(expired))
    }
}

/// An idempotency record without what the request has published.
pub(crate) fn new_record(key: String, fingerprint: &str, now: Timestamp) -> RecordItem {
    let user = schema::record_user(&key).map(Into::into);
    let (fingerprint, expires_at) = (fingerprint.to_owned(), now.seconds() + schema::IDEMPOTENCY_SECONDS);
    RecordItem { key, fingerprint, expires_at, post: None, notices: None, at: None, token: None, bound: None, answer: None, user }
}

/// The idempotency record among the items with its key; `None` if it is absent or expired.
pub(crate) fn valid_record(found: Vec<Item>, now: Timestamp) -> Result<Option<RecordItem>> {
    let record = found.into_iter().next().map(|item| read(item, Ok::<RecordItem, _>)).transpose()?;
    Ok(record.filter(|record| record.expires_at > now.seconds()))
}

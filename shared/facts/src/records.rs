//! Idempotency records: the responses to earlier requests.

use tidemark_domain::Timestamp;

use super::{
    DynamoFacts, Result,
    item::{Item, encode, number},
    read,
    schema::{self, RecordItem},
    write::{Write, absent, at_most},
};

impl DynamoFacts {
    /// The write of an idempotency record. It replaces only an expired one.
    pub(crate) fn put_record(&self, record: &RecordItem, now: Timestamp) -> Write {
        let expired = at_most(RecordItem::expires_at, number(now.seconds()));
        Write::put(&self.tables.idempotency, encode(record)).when(absent(RecordItem::fingerprint).or(expired))
    }
}

/// An idempotency record without what the request has published.
pub(crate) fn new_record(key: String, fingerprint: &str, now: Timestamp) -> RecordItem {
    let (fingerprint, expires_at) = (fingerprint.to_owned(), now.seconds() + schema::IDEMPOTENCY_SECONDS);
    RecordItem { key, fingerprint, expires_at, post: None, notices: None, at: None }
}

/// The idempotency record among the items with its key; `None` if it is absent or expired.
pub(crate) fn valid_record(found: Vec<Item>, now: Timestamp) -> Result<Option<RecordItem>> {
    let record = found.into_iter().next().map(|item| read(item, Ok::<RecordItem, _>)).transpose()?;
    Ok(record.filter(|record| record.expires_at > now.seconds()))
}

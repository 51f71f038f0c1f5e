//! Reads attributes of items. A missing attribute or one of another type makes a damaged item.

use std::collections::HashMap;
use tidemark_app::ports::StoreError;

use aws_sdk_dynamodb::types::AttributeValue;
use tracing::warn;

use super::schema;
use tidemark_domain::{SeqSet, Timestamp, UserId};

pub type Item = HashMap<String, AttributeValue>;

pub struct Reader<'a> {
    pub table: &'static str,
    pub item: &'a Item,
}

impl Reader<'_> {
    pub fn text(&self, name: &str) -> Result<&str, StoreError> {
        self.item.get(name).and_then(|value| value.as_s().ok()).map(String::as_str).ok_or_else(|| self.damaged(name))
    }

    pub fn optional_text(&self, name: &str) -> Result<Option<&str>, StoreError> {
        if self.item.contains_key(name) { self.text(name).map(Some) } else { Ok(None) }
    }

    pub fn number(&self, name: &str) -> Result<u64, StoreError> {
        self.optional_number(name)?.ok_or_else(|| self.damaged(name))
    }

    pub fn optional_number(&self, name: &str) -> Result<Option<u64>, StoreError> {
        let Some(value) = self.item.get(name) else { return Ok(None) };
        value.as_n().ok().and_then(|text| text.parse().ok()).map(Some).ok_or_else(|| self.damaged(name))
    }

    /// A count. It is zero if the attribute is absent, negative or cannot be read, until reconcile repairs it, so that
    /// no response fails because of it.
    pub fn count(&self, name: &str) -> u64 {
        let count = self.optional_number(name).unwrap_or_else(|_| {
            warn!(table = self.table, key = schema::key_text(self.table, self.item), name, "a count cannot be read");
            None
        });
        count.unwrap_or(0)
    }

    pub fn small(&self, name: &str) -> Result<u32, StoreError> {
        u32::try_from(self.number(name)?).map_err(|_| self.damaged(name))
    }

    pub fn time(&self, name: &str) -> Result<Timestamp, StoreError> {
        self.number(name).map(Timestamp::from_ms)
    }

    pub fn user(&self, name: &str) -> Result<UserId, StoreError> {
        UserId::new(self.number(name)?).ok_or_else(|| self.damaged(name))
    }

    pub fn flag(&self, name: &str) -> bool {
        self.item.get(name).and_then(|value| value.as_bool().ok()).copied().unwrap_or(false)
    }

    pub fn seqs(&self, name: &str) -> Result<SeqSet, StoreError> {
        let Some(value) = self.item.get(name) else { return Ok(SeqSet::default()) };
        let bytes = value.as_b().map_err(|_| self.damaged(name))?;
        SeqSet::from_bytes(bytes.as_ref()).map_err(|_| self.damaged(name))
    }

    /// The numbers of a set attribute; empty if the attribute is absent.
    pub fn numbers(&self, name: &str) -> Result<Vec<u64>, StoreError> {
        let Some(value) = self.item.get(name) else { return Ok(Vec::new()) };
        let numbers = value.as_ns().map_err(|_| self.damaged(name))?;
        numbers.iter().map(|number| number.parse().map_err(|_| self.damaged(name))).collect()
    }

    pub fn bytes(&self, name: &str) -> Result<&[u8], StoreError> {
        self.item.get(name).and_then(|value| value.as_b().ok()).map(AsRef::as_ref).ok_or_else(|| self.damaged(name))
    }

    pub fn damaged(&self, name: &str) -> StoreError {
        let key = schema::key_text(self.table, self.item);
        StoreError::DamagedItem { table: self.table, key, detail: format!("attribute {name}") }
    }
}

/// The user and the author of a stream record of the table `following`; `None` if the keys are not those of an edge.
pub fn edge_of_record(keys: &serde_dynamo::Item) -> Option<(UserId, UserId)> {
    let user = |name: &str| match keys.get(name) {
        Some(serde_dynamo::AttributeValue::N(text)) => text.parse().ok(),
        _ => None,
    };
    Some((user("user")?, user("author")?))
}

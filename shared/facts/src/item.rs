//! Items and their attributes, and the encodings of values. [`schema`](super::schema) has the types of the items.

use std::{collections::HashMap, fmt};

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_bytes::ByteBuf;
use tidemark_domain::{Seq, SeqSet, seq_set::DecodeSeqSetError};
use tracing::warn;

pub type Item = HashMap<String, AttributeValue>;

/// The type of an item.
pub trait Stored: DeserializeOwned {
    const TABLE: &'static str;
}

/// An attribute of a table's items. The schemas declare all of them (`attribute_names_are_spelled_in_schemas_only`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute {
    pub(crate) table: &'static str,
    pub(crate) name: &'static str,
}

impl Attribute {
    #[doc(hidden)]
    pub const fn declared(table: &'static str, name: &'static str) -> Self {
        Self { table, name }
    }

    pub fn name(self) -> &'static str {
        self.name
    }

    pub fn of(self, item: &Item) -> Option<&AttributeValue> {
        item.get(self.name)
    }
}

/// Encodes a struct of numbers, texts, flags and bytes, which cannot fail. DynamoDB would refuse an empty item.
pub fn encode(item: &impl Serialize) -> Item {
    let encoded = serde_dynamo::to_item(item);
    debug_assert!(encoded.is_ok());
    encoded.unwrap_or_default()
}

/// Encodes the variant of an enum by its name.
pub(crate) fn variant(variant: impl Serialize) -> AttributeValue {
    let encoded = serde_dynamo::to_attribute_value(variant);
    debug_assert!(encoded.is_ok());
    encoded.unwrap_or(AttributeValue::Null(true))
}

pub fn number(value: impl Into<i128>) -> AttributeValue {
    AttributeValue::N(value.into().to_string())
}

pub fn string(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub fn flag(value: bool) -> AttributeValue {
    AttributeValue::Bool(value)
}

pub(crate) fn bits(set: &SeqSet) -> AttributeValue {
    AttributeValue::B(Blob::new(set.to_bytes()))
}

pub(crate) fn numbers(seqs: &[Seq]) -> AttributeValue {
    AttributeValue::Ns(seqs.iter().map(Seq::to_string).collect())
}

/// Decodes an optional attribute that is present. `NULL` is not the absence of an attribute, but a wrong type.
pub fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A set of numbers as roaring bytes, runs compressed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "ByteBuf", into = "ByteBuf")]
pub struct Bits(pub SeqSet);

impl TryFrom<ByteBuf> for Bits {
    type Error = DecodeSeqSetError;

    fn try_from(bytes: ByteBuf) -> Result<Self, DecodeSeqSetError> {
        SeqSet::from_bytes(&bytes).map(Self)
    }
}

impl From<Bits> for ByteBuf {
    fn from(bits: Bits) -> Self {
        Self::from(bits.0.to_bytes())
    }
}

/// A count, or a set of numbers; `None` if it is not of this type. No response fails for that. Reconcile repairs the
/// count.
#[derive(Debug, Clone, Copy)]
pub struct Count<N = u64>(pub Option<N>);

impl<'de, N: Deserialize<'de>> Deserialize<'de> for Count<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(N::deserialize(deserializer).ok()))
    }
}

impl Count {
    /// Zero if the count is absent or cannot be read.
    pub fn or_zero(count: Option<Self>, attribute: Attribute, key: impl fmt::Display) -> u64 {
        let Some(Self(count)) = count else { return 0 };
        if count.is_none() {
            warn!(table = attribute.table, %key, name = attribute.name, "a count cannot be read");
        }
        count.unwrap_or(0)
    }
}

//! Encodes and decodes items. [`schema`] has their types. An attribute of another type, or the lack of one that is
//! required, makes a damaged item.

use std::{collections::HashMap, fmt, num::NonZeroU64};

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_bytes::ByteBuf;
use tidemark_app::ports::StoreError;
use tidemark_domain::{PostId, Seq, SeqSet, UserId, seq_set::DecodeSeqSetError};
use tracing::warn;

use super::schema::{self, EdgeItem, EdgeKey, PostKey};

pub type Item = HashMap<String, AttributeValue>;

/// The type of an item.
pub trait Stored: DeserializeOwned {
    const TABLE: &'static str;
}

/// An attribute of a table's items. The schemas declare all of them (`attribute_names_are_spelled_in_schemas_only`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute {
    table: &'static str,
    name: &'static str,
}

impl Attribute {
    #[doc(hidden)]
    pub const fn declared(table: &'static str, name: &'static str) -> Self {
        Self { table, name }
    }

    pub fn name(self) -> &'static str {
        self.name
    }

    /// The attribute as it is stored.
    pub fn of(self, item: &Item) -> Option<&AttributeValue> {
        item.get(self.name)
    }

    /// Decodes this attribute alone.
    pub fn read<T: DeserializeOwned>(self, item: &Item) -> Result<T, StoreError> {
        self.optional(item)?.ok_or_else(|| self.damaged(item))
    }

    pub fn optional<T: DeserializeOwned>(self, item: &Item) -> Result<Option<T>, StoreError> {
        let value = self.of(item).cloned().map(serde_dynamo::from_attribute_value);
        value.transpose().map_err(|_| self.damaged(item))
    }

    /// Decodes this attribute as a user id.
    pub fn user(self, item: &Item) -> Result<UserId, StoreError> {
        self.read::<NonZeroU64>(item).map(UserId::from)
    }

    pub fn damaged(self, item: &Item) -> StoreError {
        self.damaged_at(schema::key_text(self.table, item))
    }

    pub(crate) fn damaged_at(self, key: String) -> StoreError {
        StoreError::DamagedItem { table: self.table, key, detail: format!("attribute {}", self.name) }
    }
}

/// Decodes an item, and makes a fact of it. `fact` returns the attribute that has a wrong value.
pub fn read<T: Stored, F>(item: Item, fact: impl FnOnce(T) -> Result<F, Attribute>) -> Result<F, StoreError> {
    let key = schema::key_text(T::TABLE, &item);
    let item = serde_dynamo::AttributeValue::M(serde_dynamo::Item::from(item).into_inner());
    match serde_path_to_error::deserialize(serde_dynamo::Deserializer::from_attribute_value(item)) {
        Ok(item) => fact(item).map_err(|attribute| attribute.damaged_at(key)),
        Err(error) => Err(StoreError::DamagedItem { table: T::TABLE, key, detail: error.to_string() }),
    }
}

/// Encodes an item. A struct of numbers, texts, flags and bytes has an encoding. An empty item would be refused by
/// DynamoDB, because it has no key.
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

/// A count; `None` if it is not a number of this type. That does not damage its item, so that no response fails until
/// reconcile repairs the count.
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

/// The user and the author of a stream record of the table `following`; `None` if the keys are not those of an edge.
pub fn edge_of_record(keys: &serde_dynamo::Item) -> Option<(UserId, UserId)> {
    let EdgeKey { user, author } = serde_dynamo::from_item(keys.clone()).ok()?;
    Some((user.into(), author.into()))
}

/// The post of a stream record of the table `posts`; `None` if the keys are those of another item.
pub fn post_of_record(keys: &serde_dynamo::Item) -> Option<PostId> {
    let PostKey { author, item } = serde_dynamo::from_item(keys.clone()).ok()?;
    Some(PostId::new(author.into(), schema::post_seq(&item)?))
}

/// Whether a stream record of the table `following`, with these images, may have begun or ended a follow. It is false
/// if only a mute, a block, a list or a preference has changed.
pub fn may_change_follow(old: &serde_dynamo::Item, new: &serde_dynamo::Item) -> bool {
    let follow = |image: &serde_dynamo::Item| {
        let EdgeItem { following, since, .. } = serde_dynamo::from_item(image.clone()).ok()?;
        following.unwrap_or(false).then_some(since)
    };
    (old.is_empty() && new.is_empty()) || follow(old) != follow(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{HeadItem, PostItem};

    fn head(with: &[(Attribute, AttributeValue)]) -> Item {
        let user = UserId::new(u64::MAX).unwrap();
        let mut item = schema::head(user);
        let latest = [(HeadItem::latest_seq, number(3_u64)), (HeadItem::latest_at, number(u64::MAX))];
        item.extend(latest.iter().chain(with).map(|(attribute, value)| (attribute.name().to_owned(), value.clone())));
        item
    }

    fn decoded(item: Item) -> Result<HeadItem, String> {
        read(item, Ok).map_err(|error| match error {
            StoreError::DamagedItem { table, key, detail } => format!("{table} {key}: {detail}"),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn absent_attributes_and_attributes_of_later_versions_do_no_damage() {
        let other = Attribute::declared("posts", "of a later version");
        let item = decoded(head(&[(other, AttributeValue::L(vec![AttributeValue::Null(true), bits(&SeqSet::default())]))]));
        let item = item.unwrap();
        assert_eq!((UserId::from(item.author).get(), item.latest_at), (u64::MAX, u64::MAX));
        assert!(item.deleted.is_none() && item.pulled.is_none() && item.posts.is_none());
        let set: SeqSet = [1, 70_000].into_iter().collect();
        assert_eq!(decoded(head(&[(HeadItem::deleted, bits(&set))])).unwrap().deleted.unwrap().0, set);
    }

    #[test]
    fn a_missing_or_wrong_attribute_damages_its_item_and_is_named() {
        let mut item = head(&[]);
        item.remove(HeadItem::latest_at.name());
        let of = |detail: &str| format!("posts 18446744073709551615 head: {detail}");
        assert_eq!(decoded(item).unwrap_err(), of("missing field `latest_at`"));
        let (null, wrong) = (AttributeValue::Null(true), AttributeValue::B(Blob::new([1_u8])));
        for (attribute, value) in [
            (HeadItem::latest_at, string("5")),
            (HeadItem::latest_seq, AttributeValue::N("-1".to_owned())),
            (HeadItem::mode_changes, number(u64::MAX)),
            (HeadItem::pulled, null.clone()),
            (HeadItem::deleted, null.clone()),
            (HeadItem::deleted, wrong.clone()),
        ] {
            let error = decoded(head(&[(attribute, value.clone())])).unwrap_err();
            assert!(error.starts_with(&of(&format!("{}: ", attribute.name()))), "{value:?}: {error}");
        }
        let error = read(head(&[]), |_: HeadItem| Err::<(), _>(HeadItem::item)).unwrap_err();
        assert!(matches!(error, StoreError::DamagedItem { detail, .. } if detail == "attribute item"));
    }

    #[test]
    fn a_count_that_cannot_be_read_is_zero() {
        for value in [AttributeValue::N("-1".to_owned()), string("many"), AttributeValue::Null(true)] {
            let item = decoded(head(&[(HeadItem::posts, value)])).unwrap();
            assert!(matches!(item.posts, Some(Count(None))));
            assert_eq!(Count::or_zero(item.posts, HeadItem::posts, "key"), 0);
        }
        assert_eq!(Count::or_zero(decoded(head(&[(HeadItem::posts, number(7_u64))])).unwrap().posts, HeadItem::posts, ""), 7);
    }

    #[test]
    fn one_attribute_is_decoded_alone() {
        let item = head(&[(HeadItem::posts, string("many")), (PostItem::write_token, number(u64::MAX))]);
        assert_eq!(PostItem::write_token.read::<u64>(&item).unwrap(), u64::MAX);
        assert!(HeadItem::posts.optional::<u64>(&item).is_err());
        assert!(matches!(HeadItem::pulled.optional::<u64>(&item), Ok(None)));
        assert!(HeadItem::pulled.read::<u64>(&item).is_err());
    }

    #[test]
    fn a_stream_record_names_its_edge() {
        let keys = |user: &str| {
            let number = |text: &str| serde_dynamo::AttributeValue::N(text.to_owned());
            serde_dynamo::Item::from(HashMap::from([("user".to_owned(), number(user)), ("author".to_owned(), number("7"))]))
        };
        let pair = edge_of_record(&keys("18446744073709551615")).map(|(user, author)| (user.get(), author.get()));
        assert_eq!((pair, edge_of_record(&keys("0"))), (Some((u64::MAX, 7)), None));
    }
}

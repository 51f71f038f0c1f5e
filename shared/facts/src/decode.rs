//! Decodes items. An attribute of another type, or the lack of one that is required, makes a damaged item. A request
//! fails then, unless it can leave the item out. Reconcile reports the item and continues with the others.

use std::num::NonZeroU64;

use serde::de::DeserializeOwned;
use tidemark_domain::{StoreError, UserId};

use super::{
    Result,
    item::{Attribute, Item, Stored},
    schema,
};

impl Attribute {
    /// Decodes this attribute alone.
    pub fn read<T: DeserializeOwned>(self, item: &Item) -> Result<T> {
        self.optional(item)?.ok_or_else(|| self.damaged(item))
    }

    pub fn optional<T: DeserializeOwned>(self, item: &Item) -> Result<Option<T>> {
        let value = self.of(item).cloned().map(serde_dynamo::from_attribute_value);
        value.transpose().map_err(|_| self.damaged(item))
    }

    pub fn user(self, item: &Item) -> Result<UserId> {
        self.read::<NonZeroU64>(item).map(UserId::from)
    }

    /// Decodes this attribute, a text, with `parse`.
    pub fn parsed<T>(self, item: &Item, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        parse(&self.read::<String>(item)?).ok_or_else(|| self.damaged(item))
    }

    pub fn damaged(self, item: &Item) -> StoreError {
        self.damaged_at(schema::key_text(self.table, item))
    }

    pub(crate) fn damaged_at(self, key: String) -> StoreError {
        StoreError::DamagedItem { table: self.table, key, detail: format!("attribute {}", self.name) }
    }
}

/// Decodes an item, and makes a fact of it. `fact` returns the attribute that has a wrong value.
pub fn read<T: Stored, F>(item: Item, fact: impl FnOnce(T) -> Result<F, Attribute>) -> Result<F> {
    let key = schema::key_text(T::TABLE, &item);
    let item = serde_dynamo::AttributeValue::M(serde_dynamo::Item::from(item).into_inner());
    match serde_path_to_error::deserialize(serde_dynamo::Deserializer::from_attribute_value(item)) {
        Ok(item) => fact(item).map_err(|attribute| attribute.damaged_at(key)),
        Err(error) => Err(StoreError::DamagedItem { table: T::TABLE, key, detail: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
    use tidemark_domain::SeqSet;

    use super::*;
    use crate::{
        item::{Count, bits, number, string},
        schema::{HeadItem, PostItem},
    };

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
}

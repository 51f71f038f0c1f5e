//! Items of DynamoDB that a test reads and writes without a function.

use std::{collections::HashMap, fmt::Display};

use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use futures::{StreamExt as _, stream};

use crate::World;

pub type Item = HashMap<String, AttributeValue>;

/// A number (`N`).
pub fn n(number: impl Display) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// A text (`S`).
pub fn s(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

/// An item with this key and these attributes.
pub fn with_attributes(key: Item, attributes: &[(&str, AttributeValue)]) -> Item {
    let mut item = key;
    item.extend(attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    item
}

impl World {
    pub async fn item(&self, table: &str, key: Item) -> Option<Item> {
        let get = self.dynamodb().await.get_item().table_name(table).set_key(Some(key)).consistent_read(true).send().await;
        get.expect("DynamoDB responds").item
    }

    pub async fn put_item(&self, table: &str, item: Item) {
        let put = self.dynamodb().await.put_item().table_name(table).set_item(Some(item)).send().await;
        put.expect("the item is written");
    }

    /// Writes items, as many in one request as DynamoDB takes.
    pub async fn put_items(&self, table: &str, items: impl IntoIterator<Item = Item>) {
        let (dynamodb, items) = (self.dynamodb().await, items.into_iter().collect::<Vec<_>>());
        let put = |item: &Item| {
            let put = PutRequest::builder().set_item(Some(item.clone())).build().expect("an item");
            WriteRequest::builder().put_request(put).build()
        };
        let write = async |items: &[Item]| {
            let write = dynamodb.batch_write_item().request_items(table, items.iter().map(put).collect());
            let response = write.send().await.expect("the items are written");
            assert!(response.unprocessed_items().is_none_or(HashMap::is_empty));
        };
        stream::iter(items.chunks(25)).for_each_concurrent(8, write).await;
    }

    pub async fn delete_item(&self, table: &str, key: Item) {
        let delete = self.dynamodb().await.delete_item().table_name(table).set_key(Some(key)).send().await;
        delete.expect("the item is deleted");
    }

    /// Sets and removes attributes of an item.
    pub async fn update_item(&self, table: &str, key: Item, set: &[(&str, AttributeValue)], remove: &[&str]) {
        let mut update = self.dynamodb().await.update_item().table_name(table).set_key(Some(key));
        let mut expression = String::new();
        for (index, (name, value)) in set.iter().enumerate() {
            expression += if index == 0 { "SET " } else { ", " };
            expression += &format!("#s{index} = :s{index}");
            update = update
                .expression_attribute_names(format!("#s{index}"), *name)
                .expression_attribute_values(format!(":s{index}"), value.clone());
        }
        for (index, name) in remove.iter().enumerate() {
            expression += if index == 0 { " REMOVE " } else { ", " };
            expression += &format!("#r{index}");
            update = update.expression_attribute_names(format!("#r{index}"), *name);
        }
        update.update_expression(expression).send().await.expect("the item is updated");
    }
}

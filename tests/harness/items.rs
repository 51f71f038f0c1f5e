//! Items of DynamoDB, and messages in queues by the logical id of the queue, that a test uses without a function.

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

    fn queue_url(&self, queue: &str) -> &str {
        &self.stack.queue(queue).expect("the template has the queue").url
    }

    pub async fn sqs(&self) -> aws_sdk_sqs::Client {
        aws_sdk_sqs::Client::new(&crate::aws_config(self.stack.sqs_endpoint()).await)
    }

    /// The number of messages that no function is working on.
    pub async fn waiting(&self, queue: &str) -> usize {
        self.stack.status().await.expect("a status").queues[queue].visible
    }

    /// Returns the bodies of up to ten messages. They stay in the queue.
    pub async fn messages(&self, queue: &str) -> Vec<String> {
        let receive = self.sqs().await.receive_message().queue_url(self.queue_url(queue));
        let received = receive.max_number_of_messages(10).visibility_timeout(0).send().await.expect("SQS responds");
        received.messages().iter().map(|message| message.body().expect("a body").to_owned()).collect()
    }

    pub async fn send_message(&self, queue: &str, body: &str) {
        let send = self.sqs().await.send_message().queue_url(self.queue_url(queue)).message_body(body);
        send.send().await.expect("the message is sent");
    }

    /// Deletes all messages of a queue.
    pub async fn empty_queue(&self, queue: &str) {
        let purge = self.sqs().await.purge_queue().queue_url(self.queue_url(queue));
        purge.send().await.expect("the queue is emptied");
    }
}

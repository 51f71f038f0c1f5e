//! The items and partitions that a request touches.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::template::{Table, Template};

/// The keys of the tables, by name.
pub(super) struct Schema(HashMap<String, Keys>);

struct Keys {
    hash: String,
    range: Option<String>,
    indexes: HashMap<String, String>,
}

fn key_attribute(schema: &Value, role: &str) -> Option<String> {
    let mut keys = schema.as_array()?.iter().filter(|key| key["KeyType"] == role);
    keys.next()?["AttributeName"].as_str().map(str::to_owned)
}

impl Schema {
    pub(super) fn of(template: &Template) -> Self {
        let keys = |table: &Table| {
            let indexes = table.global_indexes.iter().chain(&table.local_indexes);
            let indexes =
                indexes.filter_map(|index| Some((index.name.clone(), key_attribute(&index.definition["KeySchema"], "HASH")?)));
            let hash = key_attribute(&table.key_schema, "HASH")?;
            let keys = Keys { hash, range: key_attribute(&table.key_schema, "RANGE"), indexes: indexes.collect() };
            Some((table.name.clone(), keys))
        };
        Self(template.tables.values().filter_map(keys).collect())
    }

    fn item(&self, table: &str, attributes: &Value) -> Option<Touched> {
        let keys = self.0.get(table)?;
        let partition = format!("{table}/{}", attributes.get(&keys.hash)?);
        let range = keys.range.as_ref().map_or(&Value::Null, |range| &attributes[range]);
        let item = Some(format!("{partition}/{range}"));
        Some(Touched { table: table.to_owned(), partition, item })
    }

    fn query(&self, request: &Value) -> Option<Touched> {
        let table = request.get("TableName")?.as_str()?;
        let keys = self.0.get(table)?;
        let index = request.get("IndexName").and_then(Value::as_str);
        let hash = match index {
            Some(index) => keys.indexes.get(index)?,
            None => &keys.hash,
        };
        let value = request["KeyConditionExpression"].as_str()?.split(" AND ").find_map(|clause| {
            let (name, value) = clause.split_once('=')?;
            let name = request["ExpressionAttributeNames"][name.trim()].as_str().unwrap_or(name.trim());
            (name == hash).then(|| value.trim())
        })?;
        let value = request.get("ExpressionAttributeValues")?.get(value)?;
        let partition = format!("{table}{}/{value}", index.map(|index| format!(".{index}")).unwrap_or_default());
        Some(Touched { table: table.to_owned(), partition, item: None })
    }
}

/// One item, or the partition that a query reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Touched {
    pub(super) table: String,
    /// The table or index, and the value of the partition key.
    pub(super) partition: String,
    /// The partition and the value of the sort key.
    pub(super) item: Option<String>,
}

/// The form of a request. Limits differ by form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Single,
    Batch,
    Transaction,
}

/// The items of a request, in the request's order. A scan touches no specific partition.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) form: Form,
    pub(super) writes: bool,
    pub(super) touched: Vec<Touched>,
}

impl Access {
    /// Returns `None` if the operation does not read or write items.
    pub(super) fn of(schema: &Schema, operation: &str, request: &Value) -> Option<Self> {
        let table = request.get("TableName").and_then(Value::as_str).unwrap_or_default();
        let one = |attributes: &str| request.get(attributes).and_then(|key| schema.item(table, key)).into_iter().collect();
        let (form, touched) = match operation {
            "GetItem" | "UpdateItem" | "DeleteItem" => (Form::Single, one("Key")),
            "PutItem" => (Form::Single, one("Item")),
            "Query" => (Form::Single, schema.query(request).into_iter().collect()),
            "Scan" => (Form::Single, Vec::new()),
            "BatchGetItem" | "BatchWriteItem" => (Form::Batch, batch(schema, request)),
            "TransactGetItems" | "TransactWriteItems" => (Form::Transaction, transaction(schema, request)),
            _ => return None,
        };
        let writes = !matches!(operation, "GetItem" | "Query" | "Scan" | "BatchGetItem" | "TransactGetItems");
        Some(Self { form, writes, touched })
    }
}

fn transaction(schema: &Schema, request: &Value) -> Vec<Touched> {
    let actions = request.get("TransactItems").and_then(Value::as_array).into_iter().flatten();
    let item = |action: &Value| {
        let action = action.as_object()?.values().find(|action| !action.is_null())?;
        schema.item(action.get("TableName")?.as_str()?, action.get("Key").or_else(|| action.get("Item"))?)
    };
    actions.filter_map(item).collect()
}

fn batch(schema: &Schema, request: &Value) -> Vec<Touched> {
    let tables = request.get("RequestItems").and_then(Value::as_object).into_iter().flatten();
    let item = |table, entry| schema.item(table, attributes(entry));
    tables.flat_map(|(table, items)| entries(items).iter().filter_map(move |entry| item(table, entry))).collect()
}

/// The keys or writes of one table in a batch.
fn entries(items: &Value) -> &[Value] {
    items.get("Keys").unwrap_or(items).as_array().map(Vec::as_slice).unwrap_or_default()
}

fn attributes(entry: &Value) -> &Value {
    entry.pointer("/PutRequest/Item").or_else(|| entry.pointer("/DeleteRequest/Key")).unwrap_or(entry)
}

/// Splits a batch into the items to process and the items to leave unprocessed, each in the form of `RequestItems`.
pub(super) fn part(schema: &Schema, request: &Value, mut leave: impl FnMut(&Touched) -> bool) -> (Value, Value) {
    let (mut done, mut left) = (Map::new(), Map::new());
    let tables = request.get("RequestItems").and_then(Value::as_object).into_iter().flatten();
    for (table, items) in tables {
        let is_left = |entry: &Value| schema.item(table, attributes(entry)).is_some_and(|touched| leave(&touched));
        let (leaving, doing): (Vec<Value>, Vec<Value>) = entries(items).iter().cloned().partition(is_left);
        for (part, list) in [(&mut done, doing), (&mut left, leaving)] {
            if list.is_empty() {
                continue;
            }
            let mut whole = items.clone();
            let place = if items.get("Keys").is_some() { &mut whole["Keys"] } else { &mut whole };
            *place = Value::Array(list);
            part.insert(table.clone(), whole);
        }
    }
    (Value::Object(done), Value::Object(left))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Schema {
        Schema::of(&crate::dynamodb::tests::template())
    }

    fn partitions(operation: &str, request: &Value) -> Vec<String> {
        Access::of(&schema(), operation, request).unwrap().touched.into_iter().map(|touched| touched.partition).collect()
    }

    #[test]
    fn a_request_touches_the_partitions_of_its_items() {
        let key = json!({ "user": { "N": "1" }, "author": { "N": "2" } });
        let get = json!({ "TableName": "FollowingTable", "Key": key });
        assert_eq!(partitions("GetItem", &get), [r#"FollowingTable/{"N":"1"}"#]);
        let item = Access::of(&schema(), "UpdateItem", &get).unwrap().touched[0].item.clone();
        assert_eq!(item.as_deref(), Some(r#"FollowingTable/{"N":"1"}/{"N":"2"}"#));
        let query = json!({
            "TableName": "FollowersTable", "IndexName": "by-time",
            "KeyConditionExpression": "#shard = :shard AND since < :end",
            "ExpressionAttributeNames": { "#shard": "shard" },
            "ExpressionAttributeValues": { ":shard": { "S": "2#3" }, ":end": { "S": "z" } },
        });
        assert_eq!(partitions("Query", &query), [r#"FollowersTable.by-time/{"S":"2#3"}"#]);
        let counter = json!({ "counter": { "S": "c" } });
        let transaction = json!({ "TransactItems": [
            { "Put": { "TableName": "CountersTable", "Item": counter } },
            { "ConditionCheck": { "TableName": "FollowingTable", "Key": key } },
        ] });
        assert_eq!(partitions("TransactWriteItems", &transaction), [r#"CountersTable/{"S":"c"}"#, r#"FollowingTable/{"N":"1"}"#]);
        assert!(partitions("Scan", &json!({ "TableName": "CountersTable" })).is_empty());
        assert!(Access::of(&schema(), "DescribeTable", &json!({ "TableName": "CountersTable" })).is_none());
    }

    #[test]
    fn a_batch_is_split_into_processed_and_unprocessed_items() {
        let keys = [json!({ "counter": { "S": "a" } }), json!({ "counter": { "S": "b" } })];
        let request = json!({ "RequestItems": { "CountersTable": { "Keys": keys, "ConsistentRead": true } } });
        let is_b = |touched: &Touched| touched.partition.contains("\"b\"");
        let (done, left) = part(&schema(), &request, is_b);
        assert_eq!(done, json!({ "CountersTable": { "Keys": [keys[0]], "ConsistentRead": true } }));
        assert_eq!(left, json!({ "CountersTable": { "Keys": [keys[1]], "ConsistentRead": true } }));
        let write = |key: &Value| json!({ "PutRequest": { "Item": key } });
        let request = json!({ "RequestItems": { "CountersTable": [write(&keys[0]), write(&keys[1])] } });
        let (done, left) = part(&schema(), &request, is_b);
        assert_eq!((done, left), (json!({ "CountersTable": [write(&keys[0])] }), json!({ "CountersTable": [write(&keys[1])] })));
        assert_eq!(part(&schema(), &request, |_| false).1, json!({}));
    }
}

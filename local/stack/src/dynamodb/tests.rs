//! Tests of the database endpoint through the AWS SDK.

use std::collections::HashMap;

use aws_sdk_dynamodb::{
    Client,
    config::{BehaviorVersion, Credentials, Region, retry::RetryConfig},
    error::ProvideErrorMetadata as _,
    operation::transact_write_items::TransactWriteItemsError,
    types::{AttributeValue, Get, KeysAndAttributes, Put, TransactGetItem, TransactWriteItem, Update},
};

use tempfile::TempDir;

use super::*;
use crate::{
    template::{Bindings, Template},
    weather::{Fault, FaultAction, Weather},
};

pub(super) fn template() -> Template {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../template.yaml")).unwrap();
    Template::parse(&text, &Bindings::default()).unwrap()
}

fn start(surroundings: &Surroundings) -> (TempDir, DynamoDb, Client) {
    let folder = tempfile::tempdir().unwrap();
    let (engine, client) = start_in(folder.path(), surroundings);
    (folder, engine, client)
}

fn start_in(folder: &Path, surroundings: &Surroundings) -> (DynamoDb, Client) {
    let (path, template, metrics) = (folder.join("dynamodb.sqlite"), template(), Arc::new(Metrics::new().unwrap()));
    let engine = DynamoDb::start(&path, &template, surroundings, &metrics).unwrap();
    for table in template.tables.values() {
        engine.ensure(table).unwrap();
    }
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(&engine.endpoint)
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "test"))
        .retry_config(RetryConfig::disabled())
        .build();
    (engine, Client::from_conf(config))
}

fn number(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

/// Four items in four tables, as a follow writes them.
fn four_items(user: u64) -> Vec<TransactWriteItem> {
    let put = |table: &str, keys: [(&str, AttributeValue); 2]| {
        let mut put = Put::builder().table_name(table);
        for (name, value) in keys {
            put = put.item(name, value);
        }
        TransactWriteItem::builder().put(put.build().unwrap()).build()
    };
    let count = |counter: String| {
        let update =
            Update::builder().table_name("CountersTable").key("counter", text(counter)).update_expression("ADD amount :one");
        TransactWriteItem::builder().update(update.expression_attribute_values(":one", number(1)).build().unwrap()).build()
    };
    vec![
        put("FollowingTable", [("user", number(user)), ("author", number(2))]),
        put("FollowersTable", [("shard", text(format!("2#{}", user % 16))), ("follower", text(format!("{user:020}")))]),
        count(format!("2#{}", user % 16)),
        count(format!("following#{user}")),
    ]
}

fn follow(client: &Client, user: u64) -> impl Future<Output = ()> + use<> {
    let request = client.transact_write_items().set_transact_items(Some(four_items(user)));
    async move {
        request.send().await.unwrap();
    }
}

fn sequences(log: &StreamLog, after: i64) -> Vec<Record> {
    log.read("FollowingTable", "KEYS_ONLY", "arn", after, 100).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_atomic_and_in_the_stream_at_once() {
    let (_folder, engine, client) = start(&Surroundings::default());
    let log = &engine.log;
    let writes = log.writes();
    follow(&client, 1).await;
    follow(&client, 3).await;
    assert!(writes.has_changed().unwrap(), "readers of the stream are woken");

    let records = sequences(log, 0);
    assert_eq!(records.len(), 2);
    assert_eq!(records[0].event["eventName"], "INSERT");
    assert_eq!(records[0].event["dynamodb"]["Keys"]["user"]["N"], "1");
    assert_eq!(records[0].sequence_number().len(), 21);
    assert_eq!(log.behind("FollowingTable", records[0].sequence).unwrap(), 1);
    assert_eq!(log.newest("FollowingTable").unwrap(), records[1].sequence);
    let typed: aws_lambda_events::dynamodb::Event =
        serde_json::from_value(serde_json::json!({ "Records": [records[0].event] })).unwrap();
    assert_eq!(typed.records[0].change.sequence_number.as_deref(), Some(records[0].sequence_number()));

    let refused = client.put_item().table_name("FollowingTable").item("user", number(1)).item("author", number(2));
    let refused = refused.condition_expression("attribute_not_exists(author)").send().await;
    assert!(refused.unwrap_err().into_service_error().is_conditional_check_failed_exception());
    assert_eq!(sequences(log, 0).len(), 2, "a refused write has no stream record");

    let counted = client.get_item().table_name("CountersTable").key("counter", text("2#1")).send().await.unwrap();
    assert_eq!(counted.item.unwrap()["amount"], number(1));
    let indexed = client.query().table_name("PostsTable").index_name("by-time").key_condition_expression("author = :a");
    assert_eq!(indexed.expression_attribute_values(":a", number(9)).send().await.unwrap().count, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn consumed_records_are_dropped_and_numbering_continues() {
    let (_folder, engine, client) = start(&Surroundings::default());
    let log = &engine.log;
    for user in 1..=5 {
        follow(&client, user).await;
    }
    let newest = log.newest("FollowingTable").unwrap();
    log.consumed("FollowingTable", "a", newest);
    log.consumed("FollowingTable", "b", sequences(log, 0)[2].sequence);
    log.prune().unwrap();
    assert_eq!(sequences(log, 0).len(), 3, "the slower reader needs them");
    log.consumed("FollowingTable", "b", newest);
    log.prune().unwrap();
    assert_eq!(sequences(log, 0).len(), 1, "the newest record stays");
    follow(&client, 6).await;
    let next = sequences(log, newest);
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].event["dynamodb"]["Keys"]["user"]["N"], "6");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_start_keeps_all_data() {
    let folder = tempfile::tempdir().unwrap();
    let (mut engine, client) = start_in(folder.path(), &Surroundings::default());
    follow(&client, 1).await;
    let arn = engine.ensure(&template().tables["FollowingTable"]).unwrap().unwrap();
    drop(client);
    engine.stop();
    drop(engine);

    let (engine, client) = start_in(folder.path(), &Surroundings::default());
    assert_eq!(engine.ensure(&template().tables["FollowingTable"]).unwrap().unwrap(), arn);
    let item =
        client.get_item().table_name("FollowingTable").key("user", number(1)).key("author", number(2)).send().await.unwrap();
    assert!(item.item.is_some());
    assert_eq!(sequences(&engine.log, 0).len(), 1);

    let mut other = template().tables["FollowingTable"].clone();
    other.key_schema = serde_json::json!([{ "AttributeName": "author", "KeyType": "HASH" }]);
    let error = format!("{:#}", engine.ensure(&other).unwrap_err());
    assert!(error.contains("FollowingTable") && error.contains("another key"), "{error}");
}

/// The codes of a cancelled transaction, item by item.
fn reasons(error: &TransactWriteItemsError) -> Vec<&str> {
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = error else { panic!("{error:?}") };
    cancelled.cancellation_reasons().iter().filter_map(|reason| reason.code()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_overloaded_partition_is_throttled() {
    let surroundings = Surroundings::default();
    let (_folder, _engine, client) = start(&surroundings);
    let key = |author: u64, item: &str| HashMap::from([("author".to_owned(), number(author)), ("item".to_owned(), text(item))]);
    let large = ["a", "b", "c", "d", "e"];
    for item in large {
        let put =
            client.put_item().table_name("PostsTable").set_item(Some(key(9, item))).item("large", text("x".repeat(390 << 10)));
        put.send().await.unwrap();
    }
    surroundings.conditions.set(Weather::Aws, 1);
    let update = |author: u64, item: &str| {
        let update = Update::builder().table_name("PostsTable").set_key(Some(key(author, item))).update_expression("ADD n :n");
        TransactWriteItem::builder().update(update.expression_attribute_values(":n", number(1)).build().unwrap()).build()
    };
    // Five times twice 391 units: the capacity of the partition for four seconds.
    let items = large.iter().map(|item| update(9, item)).collect();
    client.transact_write_items().set_transact_items(Some(items)).send().await.unwrap();
    let put = |author: u64| client.put_item().table_name("PostsTable").set_item(Some(key(author, "small"))).send();
    assert_eq!(put(9).await.unwrap_err().into_service_error().code(), Some("ThrottlingException"));
    put(10).await.unwrap();
    let both = client.transact_write_items().transact_items(update(10, "small")).transact_items(update(9, "a"));
    assert_eq!(reasons(&both.send().await.unwrap_err().into_service_error()), ["None", "ThrottlingError"]);

    let get = async || {
        let keys = KeysAndAttributes::builder().keys(key(9, "a")).keys(key(10, "small")).consistent_read(true).build().unwrap();
        client.batch_get_item().request_items("PostsTable", keys).send().await.unwrap()
    };
    assert_eq!(get().await.responses.unwrap()["PostsTable"].len(), 2, "reads have a bucket of their own");
    // Each read of the large items in a transaction costs five times twice 98 units.
    let get_all = || {
        let get = |item: &&str| Get::builder().table_name("PostsTable").set_key(Some(key(9, item))).build().unwrap();
        let items = large.iter().map(|item| TransactGetItem::builder().get(get(item)).build()).collect();
        client.transact_get_items().set_transact_items(Some(items)).send()
    };
    let left = loop {
        // In parallel. Otherwise the partition would recover in between.
        let (_, left) = tokio::join!(futures::future::join_all((0..8).map(|_| get_all())), get());
        if left.unprocessed_keys.as_ref().is_some_and(|keys| !keys.is_empty()) {
            break left;
        }
    };
    let found = &left.responses.unwrap()["PostsTable"];
    assert_eq!(found.iter().map(|item| &item["item"]).collect::<Vec<_>>(), [&text("small")]);
    assert_eq!(left.unprocessed_keys.unwrap()["PostsTable"].keys(), [key(9, "a")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_holds_its_items_until_its_response() {
    let surroundings = Surroundings::new(Weather::Aws, 1);
    let (_folder, _engine, client) = start(&surroundings);
    let (go, held) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let signals = (Arc::clone(&held), Arc::clone(&go));
    surroundings.faults.add(Fault::new(
        "TransactWriteItems",
        FaultAction::run_then(move || {
            let (held, go) = signals.clone();
            async move {
                held.notify_one();
                go.notified().await;
            }
        }),
    ));
    let token = || client.transact_write_items().set_transact_items(Some(four_items(1))).client_request_token("same");
    let first = tokio::spawn(token().send());
    held.notified().await;
    // The transaction continues without its caller.
    first.abort();
    let error = token().send().await.unwrap_err().into_service_error();
    assert!(error.is_transaction_in_progress_exception(), "{error:?}");
    let other = client.transact_write_items().set_transact_items(Some(four_items(17))).send().await.unwrap_err();
    let error = other.into_service_error();
    assert_eq!(reasons(&error), ["None", "None", "TransactionConflict", "None"], "the transactions share a counter");
    let put = client.put_item().table_name("CountersTable").item("counter", text("2#1"));
    assert_eq!(put.send().await.unwrap_err().into_service_error().code(), Some("TransactionConflictException"));
    assert_eq!(surroundings.open.count(), 1);
    go.notify_one();
    surroundings.open.end().await;
    client.transact_write_items().set_transact_items(Some(four_items(17))).send().await.unwrap();
    let counter = client.get_item().table_name("CountersTable").key("counter", text("2#1")).consistent_read(true);
    assert_eq!(counter.send().await.unwrap().item.unwrap()["amount"], number(2), "both were done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_disturbs_requests_and_calm_weather_does_not() {
    let surroundings = Surroundings::new(Weather::Storm, 5);
    let (_folder, _engine, client) = start(&surroundings);
    let add = async || {
        let update = client.update_item().table_name("CountersTable").key("counter", text("n")).update_expression("ADD n :n");
        update.expression_attribute_values(":n", number(1)).send().await
    };
    let (mut done, mut refused) = (0, Vec::new());
    for _ in 0..600 {
        match add().await {
            Ok(_) => done += 1,
            Err(error) => refused.push(error.into_service_error().code().map(str::to_owned)),
        }
    }
    surroundings.conditions.set(Weather::Calm, 0);
    assert!(refused.contains(&None), "some connections were closed: {refused:?}");
    assert!(refused.contains(&Some("InternalServerError".to_owned())), "{refused:?}");
    let get = client.get_item().table_name("CountersTable").key("counter", text("n")).consistent_read(true);
    let item = get.send().await.unwrap().item.unwrap();
    let counted: usize = item["n"].as_n().unwrap().parse().unwrap();
    assert!(
        (done + 1..done + refused.len()).contains(&counted),
        "{done} successful, {counted} counted, {} refused",
        refused.len()
    );
    for _ in 0..100 {
        add().await.unwrap();
    }
    assert_eq!(surroundings.open.count(), 0);
}

#[test]
fn a_search_for_expired_items_takes_a_twentieth_of_the_time_or_rests_an_hour() {
    for took in [1, 30, 180].map(Duration::from_secs) {
        assert_eq!(took + rest_after(took), 20 * took);
    }
    assert_eq!(rest_after(Duration::from_secs(600)), LONGEST_REST);
}

//! The counted cost of one publish. `docs/fan-out.md` uses these numbers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};
use aws_sdk_sqs::types::QueueAttributeName;
use futures::FutureExt;
use tidemark_tests::{World, world};

use crate::damage::proxy::{Fate, world_behind_a_proxy};

const FOLLOWERS: u64 = 1_200;

/// The number of calls of Redis functions.
async fn calls(world: &World) -> u64 {
    world.redis_calls().await.get("fcall").copied().unwrap_or(0)
}

/// The number of waiting messages, and their bytes.
async fn queued(world: &World) -> (usize, usize) {
    let (sqs, url) = (world.sqs().await, world.stack.queue("FanOutQueue").unwrap().url.clone());
    let name = QueueAttributeName::ApproximateNumberOfMessages;
    let answer = sqs.get_queue_attributes().queue_url(&url).attribute_names(name.clone()).send().await.unwrap();
    let count = answer.attributes().unwrap()[&name].parse().unwrap();
    let received = sqs.receive_message().queue_url(&url).max_number_of_messages(10).visibility_timeout(0).send().await.unwrap();
    (count, received.messages().iter().map(|message| message.body().unwrap().len()).sum())
}

#[tokio::test]
async fn a_small_authors_publish_reads_counters_head_and_each_shard_once() {
    world_behind_a_proxy(async |world, proxy| {
        world.follow(1..=3, 10).await;
        let asked = Arc::new(Mutex::new(BTreeMap::<String, usize>::new()));
        let seen = Arc::clone(&asked);
        proxy.rule(move |request| {
            if request.function == "publish" {
                *seen.lock().unwrap().entry(request.operation).or_default() += 1;
            }
            async { Fate::Forwarded }.boxed()
        });
        world.user(10).publish("counted").await;
        let asked = std::mem::take(&mut *asked.lock().unwrap());
        let expected = [("BatchGetItem", 2), ("Query", 16), ("TransactWriteItems", 1)];
        assert_eq!(asked, BTreeMap::from(expected.map(|(operation, count)| (operation.to_owned(), count))));
    })
    .await;
}

#[tokio::test]
async fn a_publish_costs_what_the_page_says() {
    world(async |world| {
        // The longest possible ids, because the document states the largest cost.
        let first = u64::MAX - FOLLOWERS;
        futures::future::join_all((0..8).map(async |lane| {
            for follower in (0..FOLLOWERS).filter(|follower| follower % 8 == lane) {
                world.user(first + follower).put("/v1/following/10").await.ok();
            }
        }))
        .await;
        world.idle().await;
        world.user(10).publish("loads the library").await;
        world.idle().await;

        world.stack.pause("fan-out").await.unwrap();
        world.user(10).publish("counted").await;
        let (messages, bytes) = queued(world).await;
        assert_eq!(messages, 2, "one message for each page of 1,000 followers");
        assert!((20 * FOLLOWERS..23 * FOLLOWERS).contains(&(bytes as u64)), "about 21 bytes for each follower: {bytes}");
        let before = calls(world).await;
        world.stack.resume("fan-out").unwrap();
        world.idle().await;
        let made = calls(world).await - before;
        // A deliver call covers 70 followers, the last call of a page fewer. One more call for each page stores the
        // progress.
        assert!((20..=22).contains(&made), "{made}");

        let dynamodb = world.dynamodb().await;
        let page = dynamodb
            .query()
            .table_name("FollowersTable")
            .consistent_read(true)
            .key_condition_expression("#shard = :shard")
            .expression_attribute_names("#shard", "shard")
            .expression_attribute_values(":shard", AttributeValue::S("10#03".to_owned()))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .unwrap();
        let units = page.consumed_capacity().unwrap().capacity_units().unwrap();
        let per_thousand = units / page.items().len() as f64 * 1000.0;
        println!("{units} units for {} followers: {per_thousand:.1} a thousand", page.items().len());
        assert!((20.0..=30.0).contains(&per_thousand), "{per_thousand}");
    })
    .await;
}

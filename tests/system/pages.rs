//! Pages of long feeds and of many posts at one time: each post once and in order, in the view, across its end, from
//! facts, and while posts arrive.

use futures::future::join_all;
use serde_json::Value;
use tidemark::domain::Timestamp;
use tidemark_local::RedisData;
use tidemark_tests::{Post, User, World, user_id, world};

use crate::{delivery::publish_in_facts, operations::post_of};

/// 2026-01-01, in milliseconds since the epoch.
const PAST: u64 = 1_767_225_600_000;

/// Publishes posts at these times, author by author, as the publish function does with its own clock.
async fn publish_at(world: &World, author: u64, times: impl IntoIterator<Item = u64>) {
    let (app, author) = (world.stack.app("publish").unwrap(), user_id(author));
    for at in times {
        let followers = app.stores.facts.follower_counts(author).await.unwrap().iter().sum();
        let (post, fan_out) = publish_in_facts(app, author, followers, Timestamp::from_ms(at)).await;
        assert_eq!(post.created_at.ms(), at);
        app.fan_outs.start(fan_out).await.unwrap();
    }
}

fn key(item: &Value) -> (String, Post) {
    (item["created_at"].as_str().unwrap().to_owned(), post_of(item))
}

/// Reads all pages of a feed and asserts that each item appears once, newest first. Returns the number of items.
async fn walked(reader: &User, status: &str, limit: usize) -> usize {
    let items = reader.walk(&format!("/v1/feed?status={status}"), limit).await;
    let keys: Vec<_> = items.iter().map(key).collect();
    assert!(keys.is_sorted_by(|newer, older| newer > older), "each once, newest first");
    keys.len()
}

/// Authors publish posts of one millisecond. The reader's view is made by deliveries, is rebuilt, and is not there.
fn posts_of_one_millisecond_appear_once_each(posts: [(u64, usize); 3], limit: usize) {
    world(async |world| {
        let reader = world.live_reader(1, posts.map(|(author, _)| author)).await;
        join_all(posts.map(|(author, count)| publish_at(world, author, vec![PAST; count]))).await;
        world.idle().await;
        for redis in ["delivered", "rebuilt", "unavailable"] {
            match redis {
                "rebuilt" => world.flush_redis().await,
                "unavailable" => world.stack.stop_redis(RedisData::Lose).await.unwrap(),
                _ => {}
            }
            for status in ["all", "unread"] {
                let all = posts.iter().map(|(_, count)| count).sum::<usize>();
                assert_eq!(walked(&reader, status, limit).await, all, "{status}, {redis}");
            }
        }
        world.stack.start_redis().await.unwrap();
    });
}

#[test]
fn a_thousand_posts_of_one_millisecond_appear_once_each() {
    posts_of_one_millisecond_appear_once_each([(10, 334), (20, 333), (30, 333)], 7);
}

#[test]
fn more_posts_of_one_millisecond_than_fit_into_a_view_appear_once_each() {
    posts_of_one_millisecond_appear_once_each([(10, 700), (20, 700), (30, 0)], 97);
}

#[test]
fn pages_of_three_thousand_posts_are_complete_while_fifty_posts_arrive() {
    world(async |world| {
        let authors: Vec<u64> = (10..16).collect();
        // One reader's view is built by deliveries, one reader's is rebuilt, one reader has none before the pages.
        for reader in 1..=3 {
            world.user(reader).follow(&authors).await;
        }
        world.user(1).feed_ids().await;
        join_all(authors.iter().enumerate().map(|(index, &author)| {
            // The authors' posts alternate at intervals of an hour, so every page has posts of several authors.
            publish_at(world, author, (0..500).map(move |number| PAST + number * 600_000 + index as u64 * 100_000))
        }))
        .await;
        world.idle().await;
        world.user(2).feed_ids().await;
        let mut arrived = 0;
        for reader in 1..=3 {
            let reader = world.user(reader);
            let (mut keys, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
            let before = 3000 + arrived;
            loop {
                let page = reader.get(&format!("/v1/feed?limit=40{cursor}")).await.ok();
                keys.extend(page["items"].as_array().unwrap().iter().map(key));
                pages += 1;
                // Five posts arrive after each of the first ten pages.
                if pages <= 10 {
                    join_all((0..5).map(async |index| world.user(authors[index]).publish("meanwhile").await)).await;
                    world.idle().await;
                    arrived += 5;
                }
                let Some(next) = page["next_cursor"].as_str() else { break };
                cursor = format!("&cursor={next}");
            }
            assert!(keys.is_sorted_by(|newer, older| newer > older), "each once, newest first");
            assert_eq!(keys.len(), before, "all earlier posts; new posts are on pages before these");
            assert_eq!(reader.unread_total().await as usize, 3000 + arrived);
            assert_eq!(walked(&reader, "unread", 100).await, 3000 + arrived);
        }
    });
}

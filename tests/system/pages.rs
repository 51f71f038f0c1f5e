//! Pages of long and crowded feeds: each post once and in order, within the view, across its low end, from the facts, and while posts arrive.

use futures::future::join_all;
use serde_json::Value;
use tidemark::{
    domain::{NewPost, Timestamp},
    ports::{FanOut, Published},
};
use tidemark_local::RedisData;
use tidemark_tests::{User, World, world};

/// 2026-01-01.
const PAST: u64 = 1_767_225_600_000;

/// Publishes at these times, one author after the other's clock, as the publish function does with its own clock.
async fn publish_at(world: &World, author: u64, times: impl IntoIterator<Item = u64>) {
    let app = world.stack.app("publish").unwrap();
    let author = author.to_string().parse().unwrap();
    for at in times {
        let post = NewPost { author, title: "timed".to_owned(), body: None };
        let followers = app.stores.edges.follower_counts(author).await.unwrap().iter().sum();
        let published = app.stores.posts.publish(&post, followers, None, Timestamp::from_ms(at)).await.unwrap();
        let Published::Created(post, head) = published else { panic!("{published:?}") };
        assert_eq!(post.created_at.ms(), at);
        app.fan_outs.start(FanOut::of(&post, &head)).await.unwrap();
    }
}

fn key(item: &Value) -> (String, u64, u64) {
    let number = |text: &str| text.parse::<u64>().unwrap();
    let (author, seq) = item["id"].as_str().unwrap().split_once('-').unwrap();
    (item["created_at"].as_str().unwrap().to_owned(), number(author), number(seq))
}

/// All pages of a feed: how many items, each once and newest first.
async fn walked(reader: &User, status: &str, limit: usize) -> usize {
    let items = reader.walk(&format!("/v1/feed?status={status}"), limit).await;
    let keys: Vec<_> = items.iter().map(key).collect();
    assert!(keys.is_sorted_by(|newer, older| newer > older), "each once, newest first");
    keys.len()
}

#[tokio::test]
async fn a_thousand_posts_of_one_millisecond_are_walked_each_once() {
    world(async |world| {
        let reader = world.user(1);
        for author in [10, 20, 30] {
            reader.put(&format!("/v1/following/{author}")).await.ok();
        }
        reader.feed_ids().await;
        join_all([(10, 334), (20, 333), (30, 333)].map(|(author, count)| publish_at(world, author, vec![PAST; count]))).await;
        world.idle().await;
        // As delivered one by one, as rebuilt, and from the facts alone.
        for redis in ["delivered", "rebuilt", "away"] {
            match redis {
                "rebuilt" => world.flush_redis().await,
                "away" => world.stack.stop_redis(RedisData::Lose).await.unwrap(),
                _ => {}
            }
            for status in ["all", "unread"] {
                assert_eq!(walked(&reader, status, 7).await, 1000, "{status}, {redis}");
            }
        }
        world.stack.start_redis().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn more_posts_of_one_millisecond_than_a_view_holds_are_walked_each_once() {
    world(async |world| {
        let reader = world.user(1);
        for author in [10, 20] {
            reader.put(&format!("/v1/following/{author}")).await.ok();
        }
        reader.feed_ids().await;
        join_all([10, 20].map(|author| publish_at(world, author, vec![PAST; 700]))).await;
        world.idle().await;
        for rebuilt in [false, true] {
            if rebuilt {
                world.flush_redis().await;
            }
            for status in ["all", "unread"] {
                assert_eq!(walked(&reader, status, 97).await, 1400, "{status}, rebuilt: {rebuilt}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn three_thousand_posts_are_walked_across_the_cap_while_fifty_arrive() {
    world(async |world| {
        let authors: Vec<u64> = (10..16).collect();
        // One whose view is built by deliveries, one whose is rebuilt, one without any until the walk.
        for reader in 1..=3 {
            for author in &authors {
                world.user(reader).put(&format!("/v1/following/{author}")).await.ok();
            }
        }
        world.user(1).feed_ids().await;
        join_all(authors.iter().enumerate().map(|(index, &author)| {
            // Interleaved, an hour of posts apart, so that every page mixes authors.
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
                // Five arrive after each of the first ten pages.
                if pages <= 10 {
                    join_all((0..5).map(async |index| world.user(authors[index]).publish("meanwhile").await)).await;
                    world.idle().await;
                    arrived += 5;
                }
                let Some(next) = page["next_cursor"].as_str() else { break };
                cursor = format!("&cursor={next}");
            }
            assert!(keys.is_sorted_by(|newer, older| newer > older), "each once, newest first");
            assert_eq!(keys.len(), before, "all that were there; those that arrived lie above");
            assert_eq!(reader.unread_total().await as usize, 3000 + arrived);
            assert_eq!(walked(&reader, "unread", 100).await, 3000 + arrived);
        }
    })
    .await;
}

//! Many readers of one big author need the author's facts at once. They lie in one partition of DynamoDB, which returns
//! 3,000 read units a second.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use futures::{FutureExt, join};
use redis::AsyncCommands;
use serde_json::json;
use tidemark::{
    domain::{NewPost, ids::SHARDS},
    facts::schema,
    views::keys,
};
use tidemark_local::{RedisData, Weather};
use tidemark_tests::{World, items::n, number_from, parameter, until, user_id, world};

use crate::{
    at_once,
    damage::proxy::{Fate, world_behind_a_proxy_with},
    delivery::delivery,
    publish_and_deliver_all,
};

const AUTHOR: u64 = 1_000_000;
const POSTS: u64 = 120;
const AT_ONCE: usize = 24;

/// The read units that requests have taken from the author's partition of posts since the weather changed.
fn units(world: &World) -> f64 {
    world.stack.consumption().read_of("PostsTable", AUTHOR)
}

/// Sets the follower count to 1,600, so that the author counts as big. The test's readers are few.
async fn make_big(world: &World) {
    for shard in 0..SHARDS {
        let counter = schema::followers_counter(user_id(AUTHOR), shard);
        world.update_item("CountersTable", counter, &[("count", n(100))], &[]).await;
    }
}

async fn lose_view(world: &World, reader: u64) {
    let keys = [keys::reader_state(user_id(reader)), keys::feed(user_id(reader))];
    world.redis().await.del::<_, ()>(&keys).await.unwrap();
}

async fn publish(world: &World, posts: std::ops::RangeInclusive<u64>) {
    publish_and_deliver_all(world, [AUTHOR], posts).await;
}

/// Each of the two requests knows a head without the change of the other, and both heads have the same version.
#[test]
fn a_delete_in_the_middle_of_a_publish_leaves_redis_with_both() {
    for pulled in [false, true] {
        let threshold = if pulled { "1000" } else { "1000000" }.to_owned();
        world_behind_a_proxy_with(parameter("PullThreshold", threshold), async |world, proxy| {
            make_big(world).await;
            let reader = world.reader(1, [AUTHOR]).await;
            publish(world, 1..=3).await;
            lose_view(world, 1).await;
            assert_eq!(reader.unread_total().await, 3, "Redis has the head now");
            let begun = AtomicBool::new(false);
            let deleting = world.user(AUTHOR);
            proxy.rule(move |asked| {
                let first = asked.is("publish", "TransactWriteItems", "PostsTable") && !begun.swap(true, Ordering::SeqCst);
                let deleting = first.then(|| deleting.clone());
                async move {
                    if let Some(author) = deleting {
                        author.delete(&format!("/v1/posts/{AUTHOR}-2")).await.ok();
                    }
                    Fate::Forwarded
                }
                .boxed()
            });
            publish(world, 4..=4).await;
            if !pulled {
                lose_view(world, 1).await;
            }
            let expected = [4, 3, 1].map(|seq| format!("{AUTHOR}-{seq}"));
            assert_eq!((reader.feed_ids().await, reader.unread_total().await), (expected.to_vec(), 3), "pulled: {pulled}");
        });
    }
}

/// Redis loses everything, and every reader reads, while the author publishes, deletes and is followed.
/// `TIDEMARK_READERS` sets the number of readers.
#[test]
fn readers_of_a_big_author_rebuild_without_a_hot_partition() {
    world(async |world| {
        let readers = number_from("TIDEMARK_READERS", 300);
        at_once(AT_ONCE, 1..=readers, async |reader| drop(world.live_reader(reader, [AUTHOR]).await)).await;
        make_big(world).await;
        publish(world, 1..=POSTS).await;
        world.stack.stop_redis(RedisData::Lose).await.unwrap();
        world.stack.start_redis().await.unwrap();
        world.redis_is_asked_again().await;

        world.stack.set_weather(Weather::Aws, 7);
        let started = Instant::now();
        let read = at_once(AT_ONCE, 1..=readers, async |reader| {
            let page = world.user(reader).get("/v1/feed?limit=100").await;
            assert_eq!((page.status, page.header("degraded")), (200, None), "reader {reader}");
            assert!(page.body["unread_total"].as_u64().unwrap() >= POSTS, "reader {reader}: {}", page.body);
        });
        let author = world.user(AUTHOR);
        join!(read, author.publish_all(POSTS + 1..=POSTS + 5));
        let (units, throttled) = (units(world), world.stack.consumption().throttled);
        world.calm_down().await;
        println!(
            "{readers} readers in {:.1} s: {units:.0} read units of the author's partition, {:.2} a reader, {throttled} throttled",
            started.elapsed().as_secs_f64(),
            units / readers as f64
        );
        // A reader alone takes 10, and 100 for the page. Those who begin before times and summaries are stored take
        // some 20.
        assert!(units < 10.0 * readers as f64, "{units}");
        assert_eq!(throttled, 0);
        let expected: Vec<(String, bool)> = (1..=POSTS + 5).rev().map(|seq| (format!("{AUTHOR}-{seq}"), false)).collect();
        at_once(AT_ONCE, 1..=readers, async |reader| {
            let caller = world.user(reader);
            let (feed, total) = (caller.feed("all").await, caller.unread_total().await);
            assert_eq!((total, &feed), (POSTS + 5, &expected), "reader {reader}");
        })
        .await;
    });
}

/// New followers who have views are shown the author's newest posts.
#[test]
fn follows_of_a_big_author_by_readers_with_views_take_a_read_unit_or_two() {
    world(async |world| {
        const OTHER: u64 = 2_000_000;
        let followers = number_from("TIDEMARK_FOLLOWS", 100);
        world.user(OTHER).publish("of another").await;
        make_big(world).await;
        publish(world, 1..=POSTS).await;
        at_once(AT_ONCE, 1..=followers, async |reader| {
            assert_eq!(world.reader(reader, [OTHER]).await.feed_ids().await.len(), 1);
        })
        .await;
        world.idle().await;
        world.stack.set_weather(Weather::Aws, 3);
        let path = format!("/v1/following/{AUTHOR}");
        at_once(AT_ONCE, 1..=followers, async |reader| while world.user(reader).put(&path).await.status == 503 {}).await;
        let units = units(world);
        world.calm_down().await;
        println!("{followers} follows: {units:.0} read units of the author's partition, {:.2} each", units / followers as f64);
        assert!(units < 200.0 + 2.5 * followers as f64, "{units}");
        for reader in 1..=followers {
            let feed = world.user(reader).feed("all").await;
            assert_eq!((feed.len(), feed.iter().filter(|(_, read)| *read).count()), (101, 101), "reader {reader}");
        }
    });
}

/// A mark of a post whose summary and head Redis knows reads nothing of the author's facts. A minute after the author's
/// last change the head expires. Then one mark stores it for the others.
#[test]
fn marks_of_a_big_authors_posts_read_nothing_of_the_author() {
    world(async |world| {
        const READERS: u64 = 20;
        world.follow(1..=READERS, AUTHOR).await;
        world.read_feeds(1..=READERS).await;
        publish(world, 1..=20).await;
        world.user(1).feed_ids().await;
        world.user(1).get(&format!("/v1/authors/{AUTHOR}/posts")).await.ok();
        let [head, _] = keys::head(user_id(AUTHOR));
        world.redis().await.del::<_, ()>(head).await.unwrap();
        world.stack.set_weather(Weather::Aws, 5);
        let marks = (1..=READERS).flat_map(|reader| (1..=20).map(move |seq| (reader, seq)));
        at_once(AT_ONCE, marks, async |(reader, seq)| {
            let response = world.user(reader).put(&format!("/v1/posts/{AUTHOR}-{seq}/read")).await.ok();
            assert_eq!(response["read"], true);
        })
        .await;
        let units = units(world);
        world.stack.set_weather(Weather::Calm, 1);
        println!("{} marks: {units:.0} read units of the author's partition", READERS * 20);
        assert!(units < 60.0, "{units}");
        world.assert_unread(1..=READERS, 0).await;
    });
}

/// Redis has an older head of the author than the facts, as after a publish that was killed. A rebuild that uses it
/// misses nothing: the post is delivered only after Redis has the head.
#[test]
fn a_post_that_a_rebuild_does_not_know_yet_is_delivered_to_the_view() {
    world(async |world| {
        make_big(world).await;
        world.follow(1..=3, AUTHOR).await;
        publish(world, 1..=30).await;
        // One reader's rebuild stores the times, the next one fills the head.
        for reader in 1..=2 {
            lose_view(world, reader).await;
            assert_eq!(world.user(reader).unread_total().await, 30);
        }
        let author = user_id(AUTHOR);
        let ([head, _], [times, _]) = (keys::head(author), keys::times(author));
        let exist: u64 = world.redis().await.exists(&[head, times]).await.unwrap();
        assert_eq!(exist, 2, "the head and the times are known");

        // The publish is killed after its transaction, and the projector is late: neither Redis nor the queue knows of
        // the post.
        world.stack.pause("projector").await.unwrap();
        let (stores, post) = (&world.stack.app("publish").unwrap().stores, NewPost::titled(author, "killed"));
        let followers: u64 = stores.facts.follower_counts(author).await.unwrap().iter().sum();
        stores.facts.publish_post(&post, followers, None, stores.clock.now()).await.unwrap();
        lose_view(world, 3).await;
        assert_eq!(world.user(3).unread_total().await, 30, "the head in Redis does not have the post");
        until("reconcile resumes the fan-out", async || {
            world.resume_fan_outs().await;
            delivery(world, &format!("{AUTHOR}-31"), &["state"]).await == json!(["done"])
        })
        .await;
        world.assert_unread(1..=3, 31).await;
        // A view that is rebuilt after the delivery knows the post too.
        world.stack.resume("projector").unwrap();
        lose_view(world, 3).await;
        assert_eq!(world.user(3).unread_total().await, 31);
    });
}

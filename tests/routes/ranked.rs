//! `GET /v1/feed?order=ranked`, and preferences.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tidemark::{App, Settings, domain::Timestamp, reader::FeedQuery};
use tidemark_local::RedisData;
use tidemark_tests::{User, World, ids, parameter, user_id, world, world_with};

const READER: u64 = 7;
const RANKED: &str = "/v1/feed?order=ranked";
const HALF_LIFE_MS: f64 = 12.0 * 3_600_000.0;

fn id(item: &Value) -> String {
    item["id"].as_str().unwrap().to_owned()
}

/// Weight, preference and step of an item, which its score contains besides the time.
fn points(item: &Value) -> f64 {
    let time = Timestamp::parse(item["created_at"].as_str().unwrap()).unwrap();
    let points = item["score"].as_f64().unwrap() - time.ms() as f64 / HALF_LIFE_MS;
    assert!((points - points.round()).abs() < 1e-9, "{item}");
    points.round()
}

async fn prefer(reader: &User, author: u64, preference: i64) -> Value {
    reader.put_body(&format!("/v1/following/{author}"), &json!({ "preference": preference })).await.ok()
}

async fn publish(author: &User, weight: i64) -> String {
    id(&author.post("/v1/posts", &json!({ "title": "x", "weight": weight })).await.ok())
}

/// Publishes posts of these authors with these weights, and waits until no work is left.
async fn publish_all(world: &World, posts: impl IntoIterator<Item = (u64, i64)>) {
    for (author, weight) in posts {
        publish(&world.user(author), weight).await;
    }
    world.idle().await;
}

async fn react(world: &World, users: impl IntoIterator<Item = u64>, post: &str, what: &str) {
    for user in users {
        world.user(user).put(&format!("/v1/posts/{post}/{what}")).await.ok();
    }
    world.idle().await;
}

/// Asserts that the ranked feed has exactly these posts with these points, by score, on pages of any size.
async fn assert_ranked(reader: &User, expected: &[(&str, i32)]) {
    let all = reader.walk(RANKED, 100).await;
    assert!(all.is_sorted_by(|a, b| a["score"].as_f64() >= b["score"].as_f64()), "{all:?}");
    let found: BTreeMap<String, f64> = all.iter().map(|item| (id(item), points(item))).collect();
    let expected: BTreeMap<String, f64> = expected.iter().map(|(post, points)| (post.to_string(), (*points).into())).collect();
    assert_eq!((found, all.len()), (expected.clone(), expected.len()));
    for limit in [1, 2, 3] {
        assert_eq!(ids(&reader.walk(RANKED, limit).await), ids(&all), "limit {limit}");
    }
    let unread: Vec<&Value> = all.iter().filter(|item| item["read"] == false).collect();
    assert_eq!(reader.walk(&format!("{RANKED}&status=unread"), 2).await.iter().collect::<Vec<_>>(), unread);
    // The same items as in the order of time, except for the score.
    let (mut by_time, mut ranked) = (reader.walk("/v1/feed", 100).await, all);
    ranked.iter_mut().for_each(|item| drop(item.as_object_mut().unwrap().remove("score")));
    by_time.sort_by_key(id);
    ranked.sort_by_key(id);
    assert_eq!(ranked, by_time);
}

#[test]
fn scores_are_sums_of_weight_preference_reactions_and_age() {
    world(async |world| {
        let reader = world.user(READER);
        assert_eq!(prefer(&reader, 1, 4).await["preference"], 4);
        reader.follow([2]).await;
        assert_ranked(&reader, &[]).await;
        publish_all(world, [(1, 0), (1, -100), (2, 5), (2, 0)]).await;
        assert_ranked(&reader, &[("1-1", 4), ("1-2", -96), ("2-1", 5), ("2-2", 0)]).await;
        // One post arrives at a feed that is ranked already.
        publish_all(world, [(2, 100)]).await;
        assert_ranked(&reader, &[("1-1", 4), ("1-2", -96), ("2-1", 5), ("2-2", 0), ("2-3", 100)]).await;
        // 1 + 1 like is a power of two, 1 + 2 likes is none, and a favorite counts twice.
        react(world, [20], "2-2", "like").await;
        react(world, [20, 21], "2-1", "like").await;
        react(world, [20, 21], "1-1", "favorite").await;
        react(world, [22], "1-1", "like").await;
        let expected = [("1-1", 4 + 2), ("1-2", -96), ("2-1", 5 + 1), ("2-2", 1), ("2-3", 100)];
        assert_ranked(&reader, &expected).await;
        reader.put("/v1/posts/2-3/read").await.ok();
        reader.put("/v1/posts/1-2/like").await.ok();
        world.user(2).delete("/v1/posts/2-1").await;
        world.idle().await;
        let expected = [("1-1", 6), ("1-2", -95), ("2-2", 1), ("2-3", 100)];
        assert_ranked(&reader, &expected).await;

        let path = format!("{RANKED}&limit=1&include=body");
        let page = reader.get(&path).await;
        let tag = page.header("etag").unwrap();
        let again = reader.request_with(&[("if-none-match", tag)], &format!("GET {path}")).await;
        assert_eq!(again.status, 304, "{} {}", page.body, again.body);
        assert!(page.header("link").unwrap().contains("order=ranked"));
        assert!(page.has(json!({ "items": [{ "revision": 1 }] }))["first_cursor"].is_string());
        assert_eq!(reader.get("/v1/feed?order=time").await.items()[0].get("score"), None);

        // A view that is rebuilt, and pages from the facts, have the same scores.
        world.flush_redis().await;
        assert_ranked(&reader, &expected).await;
        world.stack.stop_redis(RedisData::Lose).await.unwrap();
        assert_eq!(reader.get(RANKED).await.header("degraded"), Some("redis"));
        assert_ranked(&reader, &expected).await;
        world.user(23).put("/v1/posts/2-2/favorite").await.ok();
        assert_eq!(reader.walk(RANKED, 100).await.len(), 4);
        world.stack.start_redis().await.unwrap();
        world.redis_is_asked_again().await;
        world.idle().await;
        assert_ranked(&reader, &[("1-1", 6), ("1-2", -95), ("2-2", 2), ("2-3", 100)]).await;
    });
}

#[test]
fn a_preference_moves_an_authors_posts_and_ends_with_the_follow() {
    world(async |world| {
        let reader = world.user(READER);
        for author in [1, 2] {
            assert_eq!(reader.put(&format!("/v1/following/{author}")).await.ok()["preference"], 0);
            publish_all(world, [(author, 0), (author, 1)]).await;
        }
        assert_ranked(&reader, &[("1-1", 0), ("1-2", 1), ("2-1", 0), ("2-2", 1)]).await;
        let response = prefer(&reader, 1, 10).await;
        assert_eq!(json!([response["preference"], response["created"]]), json!([10, false]));
        assert_ranked(&reader, &[("1-1", 10), ("1-2", 11), ("2-1", 0), ("2-2", 1)]).await;
        // Without a preference it stays as it is.
        for body in ["", " null", " {}", r#" {"preference": null}"#] {
            reader.request(&format!("PUT /v1/following/1{body}")).await.has(json!({ "preference": 10 }));
        }
        prefer(&reader, 2, -10).await;
        let listed = json!({ "items": [{ "preference": -10 }, { "preference": 10 }] });
        reader.get("/v1/users/7/following").await.has(listed);
        assert_eq!(world.user(1).get("/v1/users/7/following").await.items()[0].get("preference"), None);
        assert_eq!(reader.get("/v1/users/1/followers").await.items()[0].get("preference"), None);

        // A mute hides an author in both orders, and does not end the preference.
        reader.put("/v1/mutes/1").await.ok();
        assert_ranked(&reader, &[("2-1", -10), ("2-2", -9)]).await;
        publish_all(world, [(1, 2)]).await;
        reader.delete("/v1/mutes/1").await.ok();
        let expected = [("1-1", 10), ("1-2", 11), ("1-3", 12), ("2-1", -10), ("2-2", -9)];
        assert_ranked(&reader, &expected).await;
        world.flush_redis().await;
        assert_ranked(&reader, &expected).await;

        reader.delete("/v1/following/1").await.ok();
        assert_ranked(&reader, &[("2-1", -10), ("2-2", -9)]).await;
        assert_eq!(reader.put("/v1/following/1").await.ok()["preference"], 0);
        assert_ranked(&reader, &[("1-1", 0), ("1-2", 1), ("1-3", 2), ("2-1", -10), ("2-2", -9)]).await;
        prefer(&reader, 1, -1).await;
        prefer(&reader, 2, 0).await;
        assert_ranked(&reader, &[("1-1", -1), ("1-2", 0), ("1-3", 1), ("2-1", 0), ("2-2", 1)]).await;
    });
}

#[test]
fn since_returns_what_has_entered_the_feed_by_score() {
    world(async |world| {
        let reader = world.reader(READER, [1]).await;
        let first = async |path: &str| reader.cursor("first_cursor", path).await;
        let empty = first(RANKED).await;
        publish_all(world, [(1, 3), (1, 0)]).await;
        let since = first(&format!("{RANKED}&limit=1")).await;
        publish_all(world, [(1, 3), (1, -100), (1, 5), (1, 4)]).await;
        // A post that rises has entered the feed before.
        react(world, 20..28, "1-2", "favorite").await;
        let newer = ["1-5", "1-6", "1-3", "1-4"];
        for order in [RANKED.to_owned(), format!("{RANKED}&status=unread")] {
            assert_eq!(ids(&reader.walk(&format!("{order}&since={since}"), 1).await), newer);
        }
        assert_eq!(reader.walk(&format!("{RANKED}&since={empty}"), 4).await.len(), 6);
        let top = first(RANKED).await;
        reader.get(&format!("{RANKED}&since={top}")).await.has(json!({ "items": [], "first_cursor": top }));
        assert_eq!(first("/v1/feed").await, top, "it is the same in both orders");
        world
            .at_each_loss_of_redis(async || assert_eq!(ids(&reader.walk(&format!("{RANKED}&since={since}"), 3).await), newer))
            .await;
    });
}

#[test]
fn cursors_belong_to_one_order() {
    world(async |world| {
        let reader = world.reader(READER, [1]).await;
        publish_all(world, [(1, 0); 3]).await;
        let ranked = reader.cursor("next_cursor", &format!("{RANKED}&limit=1")).await;
        let time = reader.cursor("next_cursor", "/v1/feed?limit=1").await;
        // A cursor whose score is not a number.
        let mut bytes = URL_SAFE_NO_PAD.decode(&ranked).unwrap();
        bytes[9..17].fill(0xff);
        let damaged = URL_SAFE_NO_PAD.encode(bytes);
        for (path, cursor) in [("/v1/feed?", &ranked), ("/v1/feed?order=ranked&", &time), ("/v1/feed?order=ranked&", &damaged)] {
            for field in ["cursor", "since"] {
                assert_eq!(reader.get(&format!("{path}{field}={cursor}")).await.field(), field);
            }
        }
        assert_eq!(world.stranger(None).get(RANKED).await.status, 401);
    });
}

#[test]
fn a_walk_returns_each_post_once_while_scores_rise_and_fall() {
    const POSTS: usize = 24;
    world(async |world| {
        let reader = world.user(READER);
        let mut all = BTreeSet::new();
        for author in 1..=4 {
            prefer(&reader, author, author as i64).await;
        }
        for post in 0..POSTS {
            all.insert(publish(&world.user(post as u64 % 4 + 1), (post as i64 * 7) % 11).await);
        }
        world.idle().await;
        for round in 0..3_u64 {
            let mut seen: Vec<String> = Vec::new();
            let mut moved: BTreeSet<String> = BTreeSet::new();
            let mut path = format!("{RANKED}&limit=3");
            for step in 0.. {
                let page = reader.get(&path).await.ok();
                seen.extend(ids(page["items"].as_array().unwrap()));
                let Some(next) = page["next_cursor"].as_str() else { break };
                path = format!("{RANKED}&limit=3&cursor={next}");
                match step {
                    // A post that was on a page falls below the cursor, and one that was not rises above it.
                    0 => {
                        prefer(&reader, 4, -10 + round as i64).await;
                        moved.extend(all.iter().filter(|post| post.starts_with("4-")).cloned());
                    }
                    1 => {
                        let low = all.iter().find(|post| !seen.contains(post) && !post.starts_with("4-")).unwrap().clone();
                        react(world, 100 + round * 10..108 + round * 10, &low, "favorite").await;
                        moved.insert(low);
                    }
                    2 => drop(reader.put(&format!("/v1/posts/{}/read", seen[0])).await.ok()),
                    _ => {}
                }
            }
            let once: BTreeSet<String> = seen.iter().cloned().collect();
            assert_eq!(once.len(), seen.len(), "round {round}: {seen:?}");
            let missing: BTreeSet<&String> = all.difference(&once).collect();
            assert!(missing.iter().all(|post| moved.contains(*post)), "round {round}: {missing:?} have not moved");
            assert_eq!(reader.walk(RANKED, 5).await.len(), POSTS, "a new walk has all posts");
        }
    });
}

#[test]
fn posts_of_big_authors_are_ranked_as_those_of_others_and_stay_in_their_places_during_a_walk() {
    world_with(parameter("PullThreshold", 3), async |world| {
        world.follow([10, 11, 12, READER], 1).await;
        publish_all(world, [(1, 1), (1, 2), (1, 3)]).await;
        let reader = world.user(READER);
        let cursor = reader.cursor("next_cursor", &format!("{RANKED}&limit=1")).await;
        react(world, [20, 21, 22], "1-1", "like").await;
        assert_eq!(ids(&reader.get(&format!("{RANKED}&limit=2&cursor={cursor}")).await.items()), ["1-2", "1-1"]);
        assert_ranked(&reader, &[("1-1", 3), ("1-2", 2), ("1-3", 3)]).await;
        prefer(&reader, 2, 1).await;
        publish_all(world, [(2, 0), (1, 0)]).await;
        assert_ranked(&reader, &[("1-1", 3), ("1-2", 2), ("1-3", 3), ("1-4", 0), ("2-1", 1)]).await;
        prefer(&reader, 1, 5).await;
        react(world, [20], "1-2", "like").await;
        react(world, [20], "2-1", "favorite").await;
        assert_ranked(&reader, &[("1-1", 8), ("1-2", 8), ("1-3", 8), ("1-4", 5), ("2-1", 2)]).await;
        // The author becomes small again. Its posts are still compared.
        for follower in [10, 11, 12] {
            world.user(follower).delete("/v1/following/1").await.ok();
        }
        publish_all(world, [(1, 0), (1, 0)]).await;
        react(world, 30..37, "1-6", "like").await;
        react(world, 30..37, "1-3", "like").await;
        for _ in 0..2 {
            let expected = [("1-1", 8), ("1-2", 8), ("1-3", 11), ("1-4", 5), ("1-5", 5), ("1-6", 8), ("2-1", 2)];
            assert_ranked(&reader, &expected).await;
            world.flush_redis().await;
        }
    });
}

#[test]
fn another_half_life_scores_again() {
    world(async |world| {
        let reader = world.reader(READER, [1]).await;
        publish_all(world, [(1, 3)]).await;
        assert_ranked(&reader, &[("1-1", 3)]).await;
        let app = world.stack.app("read-feed").unwrap();
        let settings = Settings { rank_half_life: std::time::Duration::from_secs(60), ..app.settings.clone() };
        let readers = App::new(settings, app.stores.clone()).readers;
        let (status, parts) = Default::default();
        let query = FeedQuery { list: None, status, own: false, before: None, since: None, limit: 5, parts };
        let page = readers.ranked_page(user_id(READER), query).await.unwrap();
        let score = page.items[0].score.unwrap().get();
        assert!((score - 3.0 - page.items[0].post.created_at.ms() as f64 / 60_000.0).abs() < 1e-6, "{score}");
        assert_ranked(&reader, &[("1-1", 3)]).await;
    });
}

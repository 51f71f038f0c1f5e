//! `GET /v1/feed?own=true`: the caller's own posts in the caller's feed.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidemark::domain::{NewPost, PostId, Timestamp};
use tidemark_tests::{User, World, ids, parameter, texts, user_id, world, world_with};

const READER: u64 = 7;
const ORDERS: [&str; 3] = ["time", "oldest", "ranked"];

fn sorted(mut posts: Vec<String>) -> Vec<PostId> {
    posts.sort();
    posts.iter().map(|post| post.parse().unwrap()).collect()
}

async fn walk(reader: &User, order: &str, rest: &str) -> Vec<Value> {
    reader.walk(&format!("/v1/feed?order={order}&own=true{rest}"), 3).await
}

/// Asserts that each order has these posts, and that own ones are read and not counted.
async fn assert_feed(reader: &User, rest: &str, expected: &[&str], unread: u64) {
    for order in ORDERS {
        let items = walk(reader, order, rest).await;
        assert_eq!(sorted(ids(&items)), sorted(expected.iter().map(|post| (*post).to_owned()).collect()), "{order}{rest}");
        let author = READER.to_string();
        let own: Vec<&Value> = items.iter().filter(|item| item["author"] == author.as_str()).collect();
        assert!(own.iter().all(|item| item["read"] == true), "{own:?}");
        let page = reader.get(&format!("/v1/feed?order={order}&own=true{rest}")).await.ok();
        assert_eq!(page["unread_total"], unread, "{order}{rest}");
    }
    let by_time = walk(reader, "time", rest).await;
    let key = |item: &Value| {
        let post: PostId = item["id"].as_str().unwrap().parse().unwrap();
        (item["created_at"].as_str().unwrap().to_owned(), post)
    };
    assert!(by_time.is_sorted_by(|newer, older| key(newer) > key(older)), "{by_time:?}");
    let oldest = walk(reader, "oldest", rest).await;
    assert!(oldest.iter().eq(by_time.iter().rev()), "{oldest:?}");
    let ranked = walk(reader, "ranked", rest).await;
    assert!(ranked.is_sorted_by(|higher, lower| higher["score"].as_f64() >= lower["score"].as_f64()), "{ranked:?}");
}

#[test]
fn own_posts_are_in_every_order_read_and_not_counted() {
    world(async |world| {
        let reader = world.live_reader(READER, [10, 20]).await;
        reader.post("/v1/lists", &json!({ "name": "x" })).await.ok();
        reader.put("/v1/lists/7-1/authors/20").await.ok();
        for author in [10, READER, 20, READER, 10] {
            world.publish_and_deliver(author, "x").await;
        }
        reader.post("/v1/posts", &json!({ "title": "heavy", "weight": 50 })).await.ok();
        world.idle().await;
        let all = ["10-1", "7-1", "20-1", "7-2", "10-2", "7-3"];
        let check = async || {
            assert_feed(&reader, "", &all, 3).await;
            assert_feed(&reader, "&list=7-1", &["7-1", "20-1", "7-2", "7-3"], 1).await;
            assert_feed(&reader, "&status=unread", &["10-1", "20-1", "10-2"], 3).await;
            assert_eq!(ids(&walk(&reader, "ranked", "").await)[0], "7-3");
            assert_eq!(ids(&reader.walk("/v1/feed?own=false", 3).await), ["10-2", "20-1", "10-1"]);
            assert_eq!(reader.unread_total().await, 3);
        };
        check().await;
        world.at_each_loss_of_redis(check).await;
        // The caller's next read has an own change, while the workers do nothing.
        world.pause_workers().await;
        let new = reader.publish("new").await;
        reader.delete("/v1/posts/7-1").await;
        reader.put("/v1/posts/7-2/like").await.ok();
        assert_feed(&reader, "", &["10-1", "20-1", "7-2", "10-2", "7-3", &new], 3).await;
        let items = reader.get("/v1/feed?own=true&include=counts").await.items();
        let liked = items.iter().find(|item| item["id"] == "7-2").unwrap();
        assert_eq!(json!([liked["liked"], liked["likes"], liked["favorites"]]), json!([true, 1, 0]));
        world.resume_workers();
        assert_eq!(reader.get("/v1/feed?own=yes").await.field(), "own");
        assert_eq!(reader.get("/v1/feed?own=").await.field(), "own");
    });
}

#[test]
fn a_ranked_walk_returns_own_posts_once_while_their_scores_rise_and_fall() {
    world(async |world| {
        // The second reader follows nobody, and no ranked feed is stored.
        for (reader, follows) in [(READER, true), (8, false)] {
            let caller = world.user(reader);
            let mut all = BTreeSet::new();
            if follows {
                let author = 10 + reader;
                caller.put(&format!("/v1/following/{author}")).await.ok();
                for weight in [3, 6] {
                    let post = world.user(author).post("/v1/posts", &json!({ "title": "x", "weight": weight })).await.ok();
                    all.insert(post["id"].as_str().unwrap().to_owned());
                }
            }
            let react = async |post: &str, likers: std::ops::Range<u64>, likes: bool| {
                for liker in likers {
                    let liker = world.user(liker);
                    let path = format!("/v1/posts/{post}/like");
                    let response = if likes { liker.put(&path).await } else { liker.delete(&path).await };
                    response.ok();
                }
            };
            let mut own = Vec::new();
            for weight in 0..8 {
                let post = caller.post("/v1/posts", &json!({ "title": "own", "weight": weight })).await.ok();
                own.push(post["id"].as_str().unwrap().to_owned());
                react(own.last().unwrap(), 100..103, true).await;
            }
            all.extend(own.iter().cloned());
            world.idle().await;
            // In the first walks the steps are not noted yet, later they are.
            for round in 0..3 {
                let (mut seen, mut moved, mut path) = (Vec::new(), BTreeSet::new(), String::new());
                for step in 0.. {
                    let page = caller.get(&format!("/v1/feed?order=ranked&own=true&limit=2{path}")).await.ok();
                    seen.extend(ids(page["items"].as_array().unwrap()));
                    let Some(next) = page["next_cursor"].as_str() else { break };
                    path = format!("&cursor={next}");
                    if step == 1 {
                        // One that was on a page falls below the cursor, and one that was not falls and rises.
                        let shown = own.iter().find(|post| seen.contains(post)).unwrap();
                        react(shown, 100..103, round % 2 == 1).await;
                        let low = own.iter().find(|post| !seen.contains(post)).unwrap();
                        react(low, 200 + round * 10..207 + round * 10, true).await;
                        moved.extend([shown.clone(), low.clone()]);
                        world.idle().await;
                    }
                }
                let once: BTreeSet<String> = seen.iter().cloned().collect();
                assert_eq!(once.len(), seen.len(), "{reader}, round {round}: {seen:?}");
                let missing: BTreeSet<&String> = all.difference(&once).collect();
                assert!(missing.iter().all(|post| moved.contains(*post)), "{reader}, round {round}: {missing:?} have not moved");
            }
            assert_eq!(walk(&caller, "ranked", "").await.len(), all.len(), "a new walk has all posts");
        }
    });
}

#[test]
fn a_user_who_follows_nobody_sees_own_posts() {
    world(async |world| {
        let reader = world.user(READER);
        reader.publish_all(["one", "two", "three", "four"]).await;
        let check = async || assert_feed(&reader, "", &["7-1", "7-2", "7-3", "7-4"], 0).await;
        check().await;
        world.at_each_loss_of_redis(check).await;
    });
}

/// More posts than a view stores, of the reader or of others.
#[test]
fn all_own_posts_are_in_the_feed_however_many_there_are() {
    for (own, others) in [(250, 30), (30, 250), (140, 140)] {
        world_with(parameter("FeedCap", 40), async |world| {
            let reader = world.reader(READER, [10]).await;
            let facts = &world.stack.app("publish").unwrap().stores.facts;
            for (author, posts) in [(READER, own), (10, others)] {
                for seq in 0..posts {
                    let post = NewPost::titled(user_id(author), "x");
                    // The last posts lie within some minutes.
                    let at = Timestamp::from_ms(1_000 + (280 - posts + seq) * 20_000);
                    facts.publish_post(&post, 1, None, at).await.unwrap();
                }
            }
            world.idle().await;
            world
                .at_each_loss_of_redis(async || {
                    let by_time = reader.walk("/v1/feed?own=true", 7).await;
                    assert!(texts(&by_time, "created_at").is_sorted_by(|newer, older| newer >= older));
                    assert_eq!(by_time.len() as u64, own + others, "{own} own posts");
                    let of_reader = by_time.iter().filter(|item| item["author"] == "7").count();
                    assert_eq!(of_reader as u64, own);
                    assert!(walk(&reader, "oldest", "").await.iter().eq(by_time.iter().rev()), "{own} own posts");
                    // The best of the newest posts.
                    let ranked = sorted(ids(&walk(&reader, "ranked", "").await));
                    assert!((40..=50).contains(&ranked.len()), "{} of {own} own posts", ranked.len());
                    assert_eq!(ranked, sorted(ids(&by_time[..ranked.len()])), "{own} own posts");
                })
                .await;
        });
    }
}

/// Own posts and those of others, while a client polls.
#[test]
fn own_posts_are_in_one_poll_each() {
    world(async |world| {
        let reader = world.live_reader(READER, [10]).await;
        let mut chains = Vec::new();
        for order in ["time", "ranked"] {
            let path = format!("/v1/feed?order={order}&own=true");
            chains.push((path.clone(), reader.cursor("first_cursor", &path).await));
        }
        for round in 1..=4 {
            let mut new = vec![reader.publish("own").await, world.publish_and_deliver(10, "x").await];
            new.extend(reader.publish_all(vec!["own"; round % 3]).await);
            for (path, since) in &mut chains {
                let pages = reader.pages(&format!("{path}&since={since}"), 2).await;
                let got = pages.iter().flat_map(|page| ids(page["items"].as_array().unwrap())).collect();
                assert_eq!(sorted(got), sorted(new.clone()), "{path}");
                *since = pages[0]["first_cursor"].as_str().unwrap().to_owned();
                let nothing = json!({ "items": [], "next_cursor": null, "first_cursor": since });
                reader.get(&format!("{path}&since={since}")).await.has(nothing);
            }
        }
    });
}

#[test]
fn an_own_page_does_not_shift_while_posts_arrive() {
    world(async |world| {
        let reader = world.live_reader(READER, [10]).await;
        for _ in 0..6 {
            world.publish_and_deliver(READER, "own").await;
            world.publish_and_deliver(10, "x").await;
        }
        for order in ["time", "ranked"] {
            let expected = ids(&walk(&reader, order, "").await);
            let first = reader.get(&format!("/v1/feed?order={order}&own=true&limit=5")).await.ok();
            arrive(world).await;
            let (mut got, mut next) = (ids(first["items"].as_array().unwrap()), first["next_cursor"].clone());
            while let Some(cursor) = next.as_str() {
                let mut page = reader.get(&format!("/v1/feed?order={order}&own=true&limit=5&cursor={cursor}")).await.ok();
                got.extend(ids(page["items"].as_array().unwrap()));
                next = page["next_cursor"].take();
            }
            assert_eq!(got, expected, "{order}");
        }
    });
}

async fn arrive(world: &World) {
    for author in [READER, 10] {
        world.publish_and_deliver(author, "new").await;
    }
}

//! Users who leave: the export, and the erasure of every trace.

mod faults;
mod left;

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tidemark_local::{Fault, FaultAction};
use tidemark_tests::{World, number_from, texts, until, world};

use crate::damage::{items, walk};

/// No other id contains these digits.
const LEAVING: u64 = 777_777_777;

const NOT_FOUND: (u16, &str) = (404, "/problems/not-found");

/// The user follows and is followed, publishes, reacts and marks, mutes and blocks, in both directions.
pub(crate) async fn live(world: &World) {
    let user = world.user(LEAVING);
    world.follow(1..=5, LEAVING).await;
    user.follow([66, 60, 61]).await;
    user.delete("/v1/following/66").await.ok();
    world.user(1).follow([60, 61]).await;
    let profile = user.put_body("/v1/me/profile", &json!({ "name": "Ada", "handle": "ada_leaves" })).await;
    assert_eq!(profile.ok()["user"], LEAVING.to_string());
    let mut posts = user.publish_all(["one", "two"]).await;
    let keyed = user.post_with_key("/v1/posts", "leaving", &json!({ "title": "three" })).await.ok();
    posts.push(keyed["id"].as_str().unwrap().to_owned());
    user.delete(&format!("/v1/posts/{}", posts[2])).await.ok();
    let theirs = world.user(60).publish_all(["theirs", "deleted later"]).await;
    world.idle().await;
    let put = async |user: u64, path: String| drop(world.user(user).put(&path).await.ok());
    for (reader, post) in [(LEAVING, &theirs[0]), (LEAVING, &theirs[1]), (1, &posts[0]), (2, &posts[0]), (9, &posts[0])] {
        put(reader, format!("/v1/posts/{post}/like")).await;
        put(reader, format!("/v1/posts/{post}/read")).await;
    }
    put(LEAVING, format!("/v1/posts/{}/favorite", theirs[0])).await;
    for (commenter, post) in [(LEAVING, &theirs[0]), (9, &theirs[0]), (3, &posts[0])] {
        let path = format!("/v1/posts/{post}/comments");
        world.user(commenter).post_with_key(&path, "leaving", &json!({ "text": "text" })).await.ok();
    }
    user.post(&format!("/v1/posts/{}/comments", posts[0]), &json!({ "text": "own" })).await.ok();
    let second = user.post(&format!("/v1/posts/{}/comments", theirs[0]), &json!({ "text": "withdrawn" })).await.ok();
    let number = second["id"].as_str().unwrap().rsplit_once('-').unwrap().1;
    user.delete(&format!("/v1/posts/{}/comments/{number}", theirs[0])).await.ok();
    world.user(60).delete(&format!("/v1/posts/{}", theirs[1])).await.ok();
    world.read_feeds([1, 2, 9]).await;
    for (one, what, other) in
        [(LEAVING, "mutes", 62), (63, "mutes", LEAVING), (1, "mutes", LEAVING), (LEAVING, "blocks", 65), (64, "blocks", LEAVING)]
    {
        put(one, format!("/v1/{what}/{other}")).await;
    }
    for (private, asking) in [(LEAVING, 67), (66, LEAVING)] {
        let privacy =
            async |is_private: bool| world.user(private).put_body("/v1/me/privacy", &json!({ "private": is_private })).await.ok();
        privacy(true).await;
        put(asking, format!("/v1/following/{private}")).await;
        privacy(false).await;
    }
    for (owner, author) in [(LEAVING, 60), (3, LEAVING)] {
        let list = world.user(owner).post_with_key("/v1/lists", "leaving", &json!({ "name": "all" })).await.ok();
        put(owner, format!("/v1/lists/{}/authors/{author}", list["id"].as_str().unwrap())).await;
    }
    let notices = world.administrator().post("/v1/notices", &json!({ "platforms": [3], "title": "read by the user" })).await.ok();
    let through = json!({ "platform": 3, "through": notices["items"][0]["seq"] });
    user.post_with_key("/v1/notices/reads", "leaving", &through).await.ok();
    user.post_with_key("/v1/reads", "leaving", &json!({ "posts": [theirs[0]] })).await.ok();
    assert_eq!(user.get("/v1/notices/unread?platform=3").await.ok()["unread"], 0);
    user.post("/v1/inbox/reads", &json!({ "before": "2099-01-01T00:00:00Z" })).await.ok();
    world.idle().await;
}

/// Everything that an export and an erasure call.
pub(crate) async fn leave(world: &World) {
    live(world).await;
    let user = world.user(LEAVING);
    user.walk("/v1/me/export", 20).await;
    world.stack.pause("fan-out").await.unwrap();
    user.delete("/v1/me").await.ok();
    faults::reconcile_hours_later(world).await;
    world.stack.resume("fan-out").unwrap();
    erased(world).await;
}

async fn erased(world: &World) -> Value {
    finished(world, LEAVING).await
}

/// Waits until the erasure of a user is done. Returns the receipt.
pub(crate) async fn finished(world: &World, user: u64) -> Value {
    let user = world.user(user);
    let mut receipt = Value::Null;
    until("the erasure is done", async || {
        receipt = user.get("/v1/me/erasure").await.ok();
        receipt["state"] == "done"
    })
    .await;
    world.idle().await;
    receipt
}

/// Every item with the user's id, and every key of Redis with it.
async fn traces(world: &World) -> Vec<String> {
    let mut found: Vec<String> = items(world).await.into_iter().map(|(table, item)| format!("{table} {item:?}")).collect();
    let redis = &world.stack.app("fan-out").unwrap().stores.views;
    let mut cursor = 0;
    loop {
        let (next, keys) = redis.scan("scan", cursor, &[]).await.unwrap();
        found.extend(keys.iter().map(|key| format!("key {}", String::from_utf8_lossy(key))));
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    found.retain(|text| text.contains(&LEAVING.to_string()));
    found.sort();
    found
}

/// Checks that only the receipt, the erased id, and the number of the last post remain.
async fn check_traces(world: &World) {
    let access = format!(":a:{LEAVING}");
    // The projector notes for a second or two that a post has got reactions and that a user has made a change.
    until("notes expire", async || traces(world).await.iter().all(|text| !text.starts_with("key ") || text.ends_with(&access)))
        .await;
    let mut left = traces(world).await;
    left.retain(|text| !text.ends_with(&access));
    let before = left.len();
    left.retain(|text| !text.contains("left#"));
    assert_eq!(before - left.len(), 16, "beside the receipt");
    let [receipt, head] = left.as_slice() else { panic!("{left:#?}") };
    assert!(receipt.starts_with("IdentitiesTable"), "{receipt}");
    assert!(head.starts_with("PostsTable") && head.contains("S(\"head\")"), "{head}");
}

async fn have_empty_feeds(world: &World, readers: RangeInclusive<u64>) {
    for reader in readers {
        assert!(world.user(reader).feed_ids().await.is_empty());
        assert_eq!(world.user(reader).unread_total().await, 0);
    }
}

/// Checks that no feed, list or counter of other users has a trace.
async fn check_others(world: &World) {
    let counters = async |user: u64| world.user(8).get(&format!("/v1/users/{user}/counters")).await.ok();
    for reader in 1..=5 {
        let followings = if reader == 1 { 2 } else { 0 };
        assert_eq!(counters(reader).await["followings"], followings, "{reader}");
    }
    let theirs = counters(60).await;
    assert_eq!([&theirs["followers"], &theirs["likes_received"], &theirs["favorites_received"]], [1, 0, 0]);
    let comments = world.user(1).get("/v1/posts/60-1/comments").await.ok();
    assert_eq!((texts(comments["items"].as_array().unwrap(), "author"), &comments["total"]), (vec!["9".to_owned()], &json!(1)));
    assert_eq!(world.user(1).get("/v1/posts/60-1").await.ok()["comments"], 1);
    assert_eq!(world.user(1).feed_ids().await, ["60-1"]);
    assert_eq!(world.user(1).unread_total().await, 1);
    have_empty_feeds(world, 2..=5).await;
    let posts = format!("/v1/authors/{LEAVING}/posts");
    for (user, list) in [(3, "/v1/mutes"), (64, "/v1/blocks"), (2, "/v1/me/likes"), (2, &posts)] {
        assert!(world.user(user).walk(list, 20).await.is_empty(), "{list}");
    }
    for (user, direction) in [(67, "sent"), (66, "received")] {
        let page = world.user(user).get(&format!("/v1/follow-requests?direction={direction}")).await;
        page.has(json!({ "items": [], "total": 0 }));
    }
    let reader = world.user(2);
    for path in [format!("posts/{LEAVING}-1"), "handles/ada_leaves".to_owned()] {
        assert_eq!(reader.get(&format!("/v1/{path}")).await.problem(), NOT_FOUND, "{path}");
    }
    for path in ["following", "mutes", "blocks"] {
        assert_eq!(reader.put(&format!("/v1/{path}/{LEAVING}")).await.problem(), NOT_FOUND, "{path}");
    }
    let through = json!({ "author": LEAVING.to_string(), "through": 2 });
    assert_eq!(reader.post("/v1/reads", &through).await.ok()["changed"], 0);
    assert_eq!(reader.get(&format!("/v1/users/{LEAVING}")).await.ok()["profile"], Value::Null);
    assert_eq!(walk(world, true, 1_000).await["differences"], json!([]));
}

#[test]
fn an_export_has_everything_and_an_erasure_leaves_only_its_receipt() {
    world(async |world| {
        live(world).await;
        let user = world.user(LEAVING);
        let export = user.walk("/v1/me/export", 3).await;
        assert_eq!(export, user.walk("/v1/me/export", 100).await, "pages of any size are the same");
        let mut kinds = BTreeMap::<_, u64>::new();
        for item in &export {
            *kinds.entry(item["kind"].as_str().unwrap()).or_default() += 1;
        }
        let expected = json!({
            "profile": 1, "follow": 2, "follower": 5, "post": 2, "like": 2, "favorite": 1, "read": 1, "list": 1, "mute": 1, "block": 1,
            "request": 2, "comment": 2,
        });
        assert_eq!(json!(kinds), expected);
        assert_eq!(user.get("/v1/me/erasure").await.problem(), NOT_FOUND);

        let begun = user.delete("/v1/me").await;
        assert_eq!((begun.status, &begun.body["state"]), (202, &json!("running")));
        assert_eq!(user.get("/v1/feed").await.problem(), (403, "/problems/erased"));
        assert_eq!(user.put("/v1/following/61").await.problem(), (403, "/problems/erased"));
        let receipt = erased(world).await;
        let removed = json!({
            "posts": 2, "follows": 2, "followers": 5, "likes": 2, "favorites": 1, "reads": 1, "lists": 1, "mutes": 1, "blocks": 1,
            "comments": 2,
        });
        assert_eq!(receipt["removed"], removed);
        assert_eq!(user.delete("/v1/me").await.body["state"], "done", "a repetition returns the receipt");
        check_traces(world).await;
        check_others(world).await;
        world.flush_redis().await;
        assert_eq!(user.get("/v1/me").await.problem(), (403, "/problems/erased"), "the facts know it");
        check_others(world).await;
        // Requests that name the id leave views of nothing, which expire.
        let items = traces(world).await.into_iter().filter(|text| !text.starts_with("key ")).count();
        assert_eq!(items, 18, "the receipt, 16 items beside it, and the head");
    });
}

#[test]
fn an_erasure_that_loses_responses_and_is_killed_is_completed() {
    world(async |world| {
        live(world).await;
        let faults = world.stack.faults();
        // Every eighth write of the worker is done without a response, and every eleventh is not done.
        for operation in ["TransactWriteItems", "PutItem", "DeleteItem", "UpdateItem"] {
            for round in 0..30 {
                faults.add(Fault::new(operation, FaultAction::LoseResponse).of("fan-out").after(round * 8));
                let fail = FaultAction::FailBefore("InternalServerError".to_owned());
                faults.add(Fault::new(operation, fail).of("fan-out").after(round * 11 + 3).times(4));
            }
        }
        world.user(LEAVING).delete("/v1/me").await.ok();
        erased(world).await;
        faults.clear();
        check_traces(world).await;
        check_others(world).await;
    });
}

#[test]
fn deliveries_that_were_under_way_and_an_old_redis_bring_nothing_back() {
    world(async |world| {
        world.follow(1..=5, LEAVING).await;
        world.read_feeds(1..=5).await;
        // The deliveries wait in the queue, before the task of the erasure.
        world.stack.pause("fan-out").await.unwrap();
        world.user(LEAVING).publish_all(["one", "two"]).await;
        world.user(LEAVING).delete("/v1/me").await.ok();
        world.stack.resume("fan-out").unwrap();
        erased(world).await;
        have_empty_feeds(world, 1..=5).await;
        check_traces(world).await;
    });
}

#[tokio::test]
async fn an_author_leaves_beside_traffic_kills_and_lost_responses() {
    big_author(80, 20, 3, Duration::ZERO, Duration::from_millis(200)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes an hour"]
async fn a_big_author_leaves_beside_traffic_kills_and_lost_responses() {
    let (followers, posts) = (number_from("TIDEMARK_FOLLOWERS", 100_000), number_from("TIDEMARK_POSTS", 1_000));
    // A killed task waits for its message's visibility timeout of three minutes.
    big_author(followers, posts, usize::MAX, Duration::from_secs(240), Duration::from_secs(15)).await;
}

/// The other author whom a reader follows.
fn other(reader: u64) -> u64 {
    900_001 + reader % 3
}

/// Posts of the user who leaves, and readers of them.
async fn live_with_followers(world: &World, followers: u64, posts: u64) {
    const LATE: u64 = 5;
    const LIVE: u64 = 30;
    let user = world.user(LEAVING);
    user.publish_all(1..=posts - LATE).await;
    let follow = async |reader: u64| {
        let authors = json!({ "authors": [LEAVING.to_string(), other(reader).to_string()] });
        world.user(reader).post("/v1/following", &authors).await.ok();
    };
    stream::iter(1..=followers).for_each_concurrent(16, follow).await;
    world.read_feeds(1..=LIVE).await;
    user.publish_all(posts - LATE + 1..=posts).await;
    world.stack.idle_within(Duration::from_secs(3_600)).await.unwrap();
    for reader in 1..=LIVE {
        assert_eq!(world.user(reader).unread_total().await, LATE);
        world.user(reader).put(&format!("/v1/posts/{LEAVING}-{}/read", posts)).await.ok();
        world.user(reader).put(&format!("/v1/posts/{LEAVING}-1/like")).await.ok();
    }
    let export = user.walk("/v1/me/export", 100).await;
    let of = |kind: &str| export.iter().filter(|item| item["kind"] == kind).count() as u64;
    assert_eq!((of("post"), of("follower"), export.len() as u64), (posts, followers, posts + followers));
}

/// Checks the follows, counts and feeds of all readers. Each has this number of posts of another author.
async fn check_readers(world: &World, followers: u64, posts: u64) {
    for author in 0..3 {
        let readers = (1..=followers).filter(|reader| other(*reader) == other(author)).count();
        let counters = world.user(8).get(&format!("/v1/users/{}/counters", other(author))).await.ok();
        assert_eq!(counters["followers"], readers);
    }
    let check = async |reader: u64| {
        let reads = world.user(reader);
        assert_eq!(reads.unread_total().await, posts, "{reader}");
        assert_eq!(reads.get(&format!("/v1/users/{reader}/counters")).await.ok()["followings"], 1, "{reader}");
        let foreign = format!("{}-", other(reader));
        assert!(reads.feed_ids().await.iter().all(|id| id.starts_with(&foreign)), "{reader}");
    };
    stream::iter(1..=followers).for_each_concurrent(16, check).await;
    println!("the counts of {followers} readers are right");
}

/// Readers follow the user who leaves, and one of three other authors, who publish after each pause. A few of them are
/// live. Kills are at least `apart` from each other.
async fn big_author(followers: u64, posts: u64, kills: usize, apart: Duration, pause: Duration) {
    World::run(async |world| {
        let (user, started) = (world.user(LEAVING), Instant::now());
        live_with_followers(world, followers, posts).await;
        println!("{followers} followers and {posts} posts, exported, after {:?}", started.elapsed());

        let faults = world.stack.faults();
        for operation in ["TransactWriteItems", "PutItem", "DeleteItem", "UpdateItem"] {
            for round in 0..100 {
                let after = round * usize::try_from(followers / 10).unwrap();
                faults.add(Fault::new(operation, FaultAction::LoseResponse).of("fan-out").after(after));
            }
        }
        let started = Instant::now();
        user.delete("/v1/me").await.ok();
        let (mut published, mut killed, mut last_kill) = (0, 0, started);
        while user.get("/v1/me/erasure").await.ok()["state"] != "done" {
            assert!(started.elapsed() < Duration::from_secs(3_600), "the erasure ends");
            for author in 0..3 {
                world.user(other(author)).publish("beside").await;
            }
            published += 1;
            // After five receives the task would be a dead letter, which reconcile replaces after two minutes.
            if killed < kills && last_kill.elapsed() >= apart {
                let now = world.stack.kill_invocations("fan-out");
                (killed, last_kill) = (killed + now, if now > 0 { Instant::now() } else { last_kill });
            }
            tokio::time::sleep(pause).await;
        }
        faults.clear();
        println!("erased in {:?}, {killed} invocations killed, {published} posts of each other author", started.elapsed());
        assert!(killed > 0);
        world.stack.idle_within(Duration::from_secs(3_600)).await.unwrap();
        // Fan-outs of killed workers are resumed by the minute job.
        world.resume_fan_outs().await;
        world.stack.idle_within(Duration::from_secs(3_600)).await.unwrap();
        check_traces(world).await;
        check_readers(world, followers, published).await;
        // The dry run compares about 50 users a second.
        if followers <= 1_000 {
            assert_eq!(walk(world, true, 1_000).await["differences"], json!([]));
        }
    })
    .await;
}

//! Random histories through the API against the model: deliveries held back, repeated and reordered, Redis flushed, stopped and started, the whole stack
//! stopped and started, all while others go on.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tidemark_local::RedisData;
use tidemark_tests::{Kind, Model, User, World};
use tokio::sync::{Mutex, RwLock};

use crate::delivery::resend;

/// Histories in one run; `TIDEMARK_HISTORIES` of the tests' own build asks for more.
const HISTORIES: u64 = match option_env!("TIDEMARK_HISTORIES") {
    Some(_) => 2_000,
    None => 60,
};

/// Histories that share a stack at the same time, and operations in each.
const TOGETHER: u64 = 20;
const OPERATIONS: usize = 60;

const WORKERS: [&str; 2] = ["fan-out", "relation-projector"];

#[tokio::test]
async fn random_histories_end_as_the_model_says() {
    histories(HISTORIES, None).await;
}

/// Two or three followers make an author big, one or none small again: hardly a post is published without the mode changing around it.
#[tokio::test]
async fn random_histories_across_the_threshold_end_as_the_model_says() {
    histories(HISTORIES.min(200), Some(3)).await;
}

async fn histories(count: u64, pull_threshold: Option<u64>) {
    let configure = |options: &mut tidemark_local::Options| {
        // A task that Redis did not take is tried again for longer than it is away.
        options.retry_delay = Duration::from_secs(2);
        options.parameters.extend(pull_threshold.map(|threshold| ("PullThreshold".to_owned(), threshold.to_string())));
    };
    let mut world = World::start(configure).await;
    for first in (0..count).step_by(TOGETHER as usize) {
        println!("histories with seeds {first} to {}", first + TOGETHER - 1);
        world = batch(world, first).await;
    }
    // Nothing that any of it has left is a difference to reconcile, and nothing that is right is taken for one.
    let report = json!(world.walk_over_everybody(true, Duration::ZERO).await);
    assert_eq!((&report["differences"], &report["failed"]), (&json!([]), &json!(0)));
    assert!(report["looked_at"].as_u64() > Some(count * 6), "{}", report["looked_at"]);
    world.finish().await;
}

/// What histories share.
struct Shared {
    /// Whoever stops something takes it for writing; empty only then.
    world: RwLock<Option<World>>,
    /// Whether the workers are held; false at every start.
    held: Mutex<bool>,
    redis_is_up: Mutex<bool>,
    /// Operations done.
    done: AtomicUsize,
}

async fn batch(world: World, first: u64) -> World {
    let shared = Shared {
        world: RwLock::new(Some(world)),
        held: Mutex::new(false),
        redis_is_up: Mutex::new(true),
        done: AtomicUsize::new(0),
    };
    let histories = join_all((first..first + TOGETHER).map(|seed| history(&shared, seed)));
    let (models, ()) = futures::join!(histories, disturb(&shared, first));
    let world = shared.world.into_inner().unwrap();
    for worker in WORKERS {
        world.stack.resume(worker).unwrap();
    }
    world.idle().await;
    // What an outage, or a slow moment of Redis, has cut off, the minute's run resumes.
    let resumed = world.stack.fire("reconcile", Some(json!({ "job": "fan-outs", "overdue_ms": 0 }))).await.unwrap();
    println!("unfinished: {}", resumed["found"]);
    world.idle().await;
    let comparisons = models.iter().enumerate().map(|(index, (users, model))| {
        let (world, seed) = (&world, first + index as u64);
        async move {
            for &user in users {
                compare(&world.user(user), model, user, seed).await;
            }
        }
    });
    join_all(comparisons).await;
    world
}

/// Stops and starts Redis, losing its data or not, in one batch, the whole stack in the next, nothing in the third; somewhere in the middle of it all.
async fn disturb(shared: &Shared, seed: u64) {
    let mut rng = StdRng::seed_from_u64(!seed);
    let last = TOGETHER as usize * OPERATIONS;
    let (stop, start, restart) = (rng.random_range(0..last / 2), rng.random_range(0..last / 2), rng.random_range(0..last));
    let data = if rng.random() { RedisData::Keep } else { RedisData::Lose };
    let outage = async {
        if !seed.is_multiple_of(3 * TOGETHER) {
            return;
        }
        reached(shared, stop).await;
        let world = shared.world.write().await;
        world.as_ref().unwrap().stack.stop_redis(data).await.unwrap();
        *shared.redis_is_up.lock().await = false;
        drop(world);
        reached(shared, stop + start / 4).await;
        let world = shared.world.write().await;
        let mut up = shared.redis_is_up.lock().await;
        if !*up {
            world.as_ref().unwrap().stack.start_redis().await.unwrap();
            *up = true;
        }
    };
    let restart = async {
        if seed % (3 * TOGETHER) != TOGETHER {
            return;
        }
        reached(shared, restart).await;
        let mut world = shared.world.write().await;
        let old = world.take().unwrap();
        *world = Some(old.restart().await);
        *shared.held.lock().await = false;
        *shared.redis_is_up.lock().await = true;
    };
    futures::join!(outage, restart);
}

async fn reached(shared: &Shared, operations: usize) {
    while shared.done.load(Ordering::Relaxed) < operations {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// One history, on users of its own: small ids and the greatest there are.
async fn history(shared: &Shared, seed: u64) -> (Vec<u64>, Model) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut model = Model::default();
    let base = if seed % 4 == 3 { u64::MAX - seed * 10 - 6 } else { (seed + 1) * 1_000_007 };
    let users: Vec<u64> = (0..6).map(|index| base + index).collect();
    for _ in 0..OPERATIONS {
        let guard = shared.world.read().await;
        operate(shared, guard.as_ref().unwrap(), &mut rng, &mut model, &users).await;
        shared.done.fetch_add(1, Ordering::Relaxed);
    }
    (users, model)
}

async fn operate(shared: &Shared, world: &World, rng: &mut StdRng, model: &mut Model, users: &[u64]) {
    let user = users[rng.random_range(0..users.len())];
    let author = users[rng.random_range(0..users.len())];
    let seq = rng.random_range(1..=model.latest(author).max(1));
    let caller = world.user(user);
    match rng.random_range(0..100) {
        0..16 if user != author => {
            caller.put(&format!("/v1/following/{author}")).await.ok();
            model.follow(user, author);
        }
        16..18 => {
            let authors: Vec<String> = users.iter().map(u64::to_string).collect();
            caller.post("/v1/following", &json!({ "authors": authors })).await.ok();
            users.iter().for_each(|&author| model.follow(user, author));
        }
        18..26 => {
            caller.delete(&format!("/v1/following/{author}")).await.ok();
            model.unfollow(user, author);
        }
        26..46 => {
            let id = caller.publish("x").await;
            assert_eq!(id, format!("{user}-{}", model.publish(user)));
        }
        46..52 => {
            let (kind, name) = reaction(rng);
            let given = rng.random_bool(0.7);
            let path = format!("/v1/posts/{author}-{seq}/{name}");
            let answer = if given { caller.put(&path).await } else { caller.delete(&path).await };
            assert_eq!(answer.status == 200, model.is_live((author, seq)), "{path}: {}", answer.body);
            model.react(user, (author, seq), kind, given);
        }
        52..57 if model.latest(user) > 0 => {
            let seq = rng.random_range(1..=model.latest(user));
            caller.delete(&format!("/v1/posts/{user}-{seq}")).await.ok();
            model.delete((user, seq));
        }
        57..66 => {
            let read = rng.random_bool(0.7);
            let path = format!("/v1/posts/{author}-{seq}/read");
            let answer = if read { caller.put(&path).await } else { caller.delete(&path).await };
            assert_eq!(answer.status == 200, model.is_live((author, seq)), "{path}: {}", answer.body);
            model.mark(user, (author, seq), read);
        }
        66..70 => {
            let posts: Vec<(u64, u64)> = users.iter().map(|&author| (author, rng.random_range(1..8))).collect();
            let ids: Vec<String> = posts.iter().map(|(author, seq)| format!("{author}-{seq}")).collect();
            caller.post("/v1/reads", &json!({ "posts": ids })).await.ok();
            posts.into_iter().for_each(|post| model.mark(user, post, true));
        }
        70..75 => {
            caller.post("/v1/reads", &json!({ "author": author.to_string(), "through": seq })).await.ok();
            model.through(user, author, seq);
        }
        75..78 => {
            caller.post("/v1/reads", &json!({ "all": true })).await.ok();
            model.all(user);
        }
        78..83 => drop(caller.get(["/v1/feed?limit=3", "/v1/feed?limit=100"][rng.random_range(0..2)]).await.ok()),
        // It hits the views of all histories: were it frequent, nothing else would ever be wrong in them.
        83..85 => {
            let up = shared.redis_is_up.lock().await;
            if *up && rng.random_range(0..TOGETHER * 2) == 0 {
                world.flush_redis().await;
            }
        }
        // A worker is held when it has done what it is at, which it cannot without Redis.
        85..92 if *shared.redis_is_up.lock().await => {
            let mut held = shared.held.lock().await;
            for worker in WORKERS {
                if *held { world.stack.resume(worker).unwrap() } else { world.stack.pause(worker).await.unwrap() }
            }
            *held = !*held;
        }
        92..95 => {
            let held = shared.held.lock().await;
            if *held {
                resend(world, 2).await;
            }
        }
        _ => burst(world, rng, model, user, author).await,
    }
}

/// One of the two, and what its path ends with.
fn reaction(rng: &mut StdRng) -> (Kind, &'static str) {
    if rng.random() { (Kind::Like, "like") } else { (Kind::Favorite, "favorite") }
}

/// What several devices and the author do at once: marks and deletions end the same in whatever order they happen.
async fn burst(world: &World, rng: &mut StdRng, model: &mut Model, user: u64, author: u64) {
    let (reader, writer, latest) = (world.user(user), world.user(author), model.latest(author));
    if latest == 0 {
        return;
    }
    let plan: Vec<(u8, u64)> =
        (0..rng.random_range(2..9)).map(|_| (rng.random_range(0..10), rng.random_range(1..=latest))).collect();
    for &(kind, seq) in &plan {
        match kind {
            0 => model.delete((author, seq)),
            1 => model.through(user, author, seq),
            8.. => {}
            _ => model.mark(user, (author, seq), true),
        }
    }
    let liked = join_all(plan.into_iter().map(async |(kind, seq)| {
        // A deletion at the same time may come first.
        let put = async |what: &str| {
            let status = reader.put(&format!("/v1/posts/{author}-{seq}/{what}")).await.status;
            assert!(matches!(status, 200 | 404), "{status}");
            status == 200
        };
        match kind {
            0 => drop(writer.delete(&format!("/v1/posts/{author}-{seq}")).await.ok()),
            1 => drop(reader.post("/v1/reads", &json!({ "author": author.to_string(), "through": seq })).await.ok()),
            8.. => return put("like").await.then_some(seq),
            _ => drop(put("read").await),
        }
        None
    }))
    .await;
    for seq in liked.into_iter().flatten() {
        model.react_before_deletion(user, (author, seq), Kind::Like, true);
    }
}

/// Everything that the API says of one reader, against the model.
async fn compare(caller: &User, model: &Model, user: u64, seed: u64) {
    // The counts first: a page that meets a deleted post mends them.
    assert_eq!(caller.unread_total_once().await, model.unread_total(user), "seed {seed}, count of {user}");
    let (feed, unread) = (caller.walk("/v1/feed", 7).await, caller.walk("/v1/feed?status=unread", 7).await);
    let expected = model.feed(user);
    let keys: Vec<(&str, (u64, u64))> = feed.iter().map(|item| (item["created_at"].as_str().unwrap(), post_of(item))).collect();
    assert!(keys.is_sorted_by(|newer, older| newer > older), "seed {seed}, order of the feed of {user}: {keys:?}");
    let mut found: Vec<_> = feed.iter().map(|item| (post_of(item), item["read"] == true)).collect();
    found.sort_unstable();
    let mut wanted = expected.clone();
    wanted.sort_unstable();
    assert_eq!(found, wanted, "seed {seed}, feed of {user}");
    let unread_of_feed: Vec<&Value> = feed.iter().filter(|item| item["read"] == false).collect();
    assert_eq!(unread.iter().collect::<Vec<_>>(), unread_of_feed, "seed {seed}, unread of {user}");
    assert_eq!(caller.unread_total().await, model.unread_total(user), "seed {seed}, total of {user}");
    assert_reactions(&feed, model, user, seed);
    let counters = caller.get(&format!("/v1/users/{user}/counters")).await.ok();
    let expected = json!({
        "followings": model.following(user).len(),
        "followers": model.followers(user),
        "posts": model.posts(user),
        "likes_received": model.received(user, Kind::Like),
        "favorites_received": model.received(user, Kind::Favorite),
    });
    assert_eq!(counters, expected, "seed {seed}, counters of {user}");
    if let Some(item) = feed.first() {
        let post = caller.get(&format!("/v1/posts/{}", item["id"].as_str().unwrap())).await.ok();
        let counts = [Kind::Like, Kind::Favorite].map(|kind| model.reactions_to(post_of(item), kind));
        assert_eq!(json!([post["likes"], post["favorites"]]), json!(counts), "seed {seed}, {}", item["id"]);
        assert_reactions(&[post], model, user, seed);
    }
    for author in model.following(user) {
        let count = caller.get(&format!("/v1/unread/{author}")).await.ok();
        assert_eq!(count["unread"], model.unread_of(user, author), "seed {seed}, {user} of {author}");
        for status in ["all", "unread"] {
            let page = caller.get(&format!("/v1/authors/{author}/posts?status={status}&limit=100")).await.ok();
            assert_reactions(page["items"].as_array().unwrap(), model, user, seed);
            let unread = status == "unread";
            let of_author: Vec<_> =
                page["items"].as_array().unwrap().iter().map(|item| (post_of(item), item["read"] == true)).collect();
            let wanted: Vec<_> = model.timeline(user, author).into_iter().filter(|(_, read)| !(unread && *read)).collect();
            assert_eq!(of_author, wanted, "seed {seed}, {status} of {author} for {user}");
            assert_eq!(page["total"], wanted.len(), "seed {seed}, {status} of {author} for {user}");
        }
    }
}

/// The flags of the reader's reactions.
fn assert_reactions(items: &[Value], model: &Model, user: u64, seed: u64) {
    for item in items {
        let expected = [Kind::Like, Kind::Favorite].map(|kind| model.has_reacted(user, post_of(item), kind));
        assert_eq!(json!([item["liked"], item["favorited"]]), json!(expected), "seed {seed}, {} for {user}", item["id"]);
    }
}

fn post_of(item: &Value) -> (u64, u64) {
    let (author, seq) = item["id"].as_str().unwrap().split_once('-').unwrap();
    (author.parse().unwrap(), seq.parse().unwrap())
}

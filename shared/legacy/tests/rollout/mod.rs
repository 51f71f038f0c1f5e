//! Users move from a legacy system to this one in steps, and back, while both are in use: the two sides agree whenever
//! no change is in flight, and no request is lost.

mod absence;
mod legacy;
mod sides;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use futures::future::{join, join_all};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};
use tidemark_legacy_tools as compare;
use tidemark_local::Options;
use tidemark_tests::{LegacyRedis, PATIENCE, World, number_from, parameter};
use tidemark_tools::api::Api;

use crate::migration::migrate;
use legacy::LegacySystem;

/// Users who act at the same time. Each user belongs to one of them.
const CLIENTS: usize = 8;

/// The users of one client, who act one after another.
struct Client {
    rng: StdRng,
    users: Vec<u64>,
    /// The results of the users' actions, which both sides must have in the end.
    follows: BTreeMap<u64, BTreeSet<u64>>,
    /// Titles of live posts by author.
    posts: BTreeMap<u64, BTreeSet<String>>,
    /// Titles of posts that a user has read.
    read: BTreeMap<u64, BTreeSet<String>>,
    /// Pairs that have changed in this phase, and when. A user does not follow and unfollow an author within a second,
    /// which the legacy lists cannot tell apart.
    touched: BTreeMap<(u64, u64), Instant>,
    /// The members that each user has removed there since the last passes. More wait for a confirmation.
    removed: BTreeMap<u64, u32>,
    acted: BTreeSet<u64>,
    number: u64,
}

impl Client {
    /// Whether passes give up one more member of the user's list without an operator's word.
    fn may_remove(&mut self, user: u64) -> bool {
        let removed = self.removed.entry(user).or_default();
        *removed += 1;
        *removed <= 2
    }
}

struct Scene<'a> {
    world: &'a World,
    legacy: &'a LegacySystem,
    authors: &'a [u64],
    /// The actions on each side, and the requests that failed.
    here: AtomicU64,
    there: AtomicU64,
    failed: AtomicU64,
}

impl Scene<'_> {
    /// Returns the body of the response. A failed request counts.
    async fn request(&self, user: u64, request: &str) -> Value {
        let response = self.world.user(user).request(request).await;
        if !(200..300).contains(&response.status) {
            println!("failed: {request} by {user}: {} {}", response.status, response.body);
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        response.body
    }

    async fn get(&self, user: u64, path: &str) -> Value {
        self.request(user, &format!("GET {path}")).await
    }

    /// Any post of a page: its id and its title.
    async fn any_post(&self, client: &mut Client, user: u64, path: &str) -> Option<[String; 2]> {
        let page = self.get(user, path).await;
        let post = page["items"].as_array().unwrap().choose(&mut client.rng)?;
        Some(["id", "title"].map(|name| post[name].as_str().unwrap().to_owned()))
    }

    /// One action of a user, in the system that the application uses for the user.
    async fn act(&self, client: &mut Client) {
        let user = *client.users.choose(&mut client.rng).unwrap();
        client.acted.insert(user);
        let on = self.get(user, "/v1/me").await["rollout"] == "on";
        (if on { &self.here } else { &self.there }).fetch_add(1, Ordering::Relaxed);
        // `None` if there is nothing to act on.
        let _: Option<()> = match client.rng.random_range(0..100) {
            0..50 => self.read(client, user, on).await,
            50..70 => self.follow(client, user, on).await,
            70..80 => self.unfollow(client, user, on).await,
            80..97 => self.publish(client).await,
            _ => self.delete(client).await,
        };
    }

    async fn read(&self, client: &mut Client, user: u64, on: bool) -> Option<()> {
        let title = if on {
            let [id, title] = self.any_post(client, user, "/v1/feed?status=unread&limit=20").await?;
            // The author may delete the post in the meantime.
            let response = self.world.user(user).put(&format!("/v1/posts/{id}/read")).await;
            if response.status == 404 {
                return None;
            }
            response.ok();
            title
        } else {
            self.legacy.read_one(user).await?
        };
        client.read.entry(user).or_default().insert(title);
        Some(())
    }

    async fn follow(&self, client: &mut Client, user: u64, on: bool) -> Option<()> {
        let author = *self.authors.choose(&mut client.rng)?;
        if author == user || client.touched.insert((user, author), Instant::now()).is_some() {
            return None;
        }
        if on {
            self.request(user, &format!("PUT /v1/following/{author}")).await;
        } else {
            self.legacy.follow(user, author).await;
        }
        client.follows.entry(user).or_default().insert(author);
        Some(())
    }

    /// Users unfollow authors whom they see in their list.
    async fn unfollow(&self, client: &mut Client, user: u64, on: bool) -> Option<()> {
        let listed: Vec<u64> = if on {
            let page = self.get(user, &format!("/v1/users/{user}/following?limit=100")).await;
            page["items"].as_array().unwrap().iter().map(|item| item["user"].as_str().unwrap().parse().unwrap()).collect()
        } else {
            self.legacy.following(user).await
        };
        let author = *listed.choose(&mut client.rng)?;
        // There, a list without members is absent, and what has gone with it waits for a confirmation.
        if !on && (listed.len() == 1 || !client.may_remove(user)) {
            return None;
        }
        if client.touched.insert((user, author), Instant::now()).is_some() {
            return None;
        }
        if on {
            self.request(user, &format!("DELETE /v1/following/{author}")).await;
        } else {
            self.legacy.unfollow(user, author).await;
        }
        client.follows.entry(user).or_default().remove(&author);
        Some(())
    }

    /// An author of this client publishes, where the author is.
    async fn publish(&self, client: &mut Client) -> Option<()> {
        let (author, on) = self.author(client).await?;
        client.number += 1;
        let title = format!("{author} number {} of {}", client.number, client.users[0]);
        if on {
            self.request(author, &format!("POST /v1/posts {}", json!({ "title": title }))).await;
        } else {
            self.legacy.publish(author, &title).await;
        }
        client.posts.entry(author).or_default().insert(title);
        Some(())
    }

    async fn delete(&self, client: &mut Client) -> Option<()> {
        let (author, on) = self.author(client).await?;
        let title = if on {
            let [id, title] = self.any_post(client, author, &format!("/v1/authors/{author}/posts?limit=20")).await?;
            self.request(author, &format!("DELETE /v1/posts/{id}")).await;
            title
        } else {
            if !client.may_remove(author) {
                return None;
            }
            self.legacy.delete_one(author).await?
        };
        client.posts.entry(author).or_default().remove(&title);
        Some(())
    }

    async fn author(&self, client: &mut Client) -> Option<(u64, bool)> {
        let own: Vec<u64> = client.users.iter().copied().filter(|user| self.authors.contains(user)).collect();
        let author = *own.choose(&mut client.rng)?;
        client.acted.insert(author);
        Some((author, self.get(author, "/v1/me").await["rollout"] == "on"))
    }
}

/// A pass over the legacy lists. Returns how many facts it wrote, and how many removals wait for the next pass.
async fn pass(world: &World) -> u64 {
    let mut event = json!({ "follow": true });
    loop {
        let response = world.stack.invoke("migrate", event).await.unwrap();
        assert_eq!(response["overtaken"], false, "{response}");
        if response["done"] == true {
            return ["written", "waiting"].iter().filter_map(|name| response["totals"][name].as_u64()).sum();
        }
        event = response["next"].clone();
    }
}

/// Waits until no change is in flight in either direction.
async fn settle(world: &World) {
    let started = Instant::now();
    loop {
        world.stack.idle_within(PATIENCE * 5).await.unwrap();
        if pass(world).await == 0 {
            world.stack.idle_within(PATIENCE * 5).await.unwrap();
            return;
        }
        assert!(started.elapsed() < PATIENCE * 5, "passes do not end");
    }
}

/// Passes find no list of follows and posts, as after a flush. Then all are back. Returns how many members were missed.
async fn without_lists(world: &World, redis: &LegacyRedis) -> u64 {
    const LISTS: [&str; 2] = ["u_follow:", "author:blogs:"];
    for list in LISTS {
        assert!(absence::rename(redis, &format!("{list}*"), list, &format!("away:{list}")).await > 0);
    }
    for _ in 0..2 {
        pass(world).await;
    }
    let report = world.stack.invoke("migrate", json!({ "follow": true })).await.unwrap();
    for list in LISTS {
        absence::rename(redis, &format!("away:{list}*"), "away:", "").await;
    }
    assert_eq!(report["totals"]["written"], 0, "{report}");
    assert_eq!(pass(world).await, 0);
    report["totals"]["held"].as_u64().unwrap()
}

async fn compared(world: &World, legacy: &LegacyRedis, users: usize) -> compare::Report {
    let api = Api::new(&world.stack.base_url().parse().unwrap()).unwrap();
    compare::run(&api, &legacy.url(), users, 7, compare::Unread::Auto).await.unwrap()
}

/// Runs `actions` actions of each client, with passes all the time.
async fn traffic(scene: &Scene<'_>, clients: &mut [Client], actions: usize, passes: bool) {
    clients.iter_mut().for_each(|client| client.touched.retain(|_, at| at.elapsed() < Duration::from_millis(1_100)));
    let over = AtomicBool::new(!passes);
    let act = async {
        join_all(clients.iter_mut().map(async |client| {
            for _ in 0..actions {
                scene.act(client).await;
            }
        }))
        .await;
        over.store(true, Ordering::Relaxed);
    };
    let follow = async {
        while !over.load(Ordering::Relaxed) {
            pass(scene.world).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    join(act, follow).await;
}

#[tokio::test]
async fn compare_finds_every_kind_of_difference() {
    let (redis, legacy) = LegacySystem::start().await;
    for reader in [1, 2] {
        legacy.follow(reader, 9).await;
    }
    for number in 0..3 {
        legacy.publish(9, &format!("{number}")).await;
    }
    legacy.read_one(1).await.unwrap();
    legacy.read_one(2).await.unwrap();
    legacy.unfollow(2, 9).await;
    World::run_with(parameter("LegacyRedisUrl", redis.url()), async |world| {
        while pass(world).await > 0 {}
        world.idle().await;
        let report = compared(world, &redis, 10).await;
        assert!(report.is_empty() && report.users == 3 && report.compared > 10, "{report}");
        for (command, kind, only_here, only_there) in [
            ("ZADD u_follow:1 1700000000 8", compare::Kind::Follow, 0, 1),
            ("ZREM u_follow:1 8", compare::Kind::Follow, 0, 0),
            ("HSET user:unread:count:1 9 7", compare::Kind::Count, 1, 0),
            ("HSET user:unread:count:1 9 2", compare::Kind::Count, 0, 0),
            ("SADD user:read:1 1000000 1000001 1000002", compare::Kind::Unread, 2, 0),
            ("SADD user:read:2 1000000 1000001 1000002", compare::Kind::Read, 0, 2),
            ("SREM author:blogs:9 1000000 1000001", compare::Kind::Post, 2, 0),
        ] {
            legacy.run(command).await;
            let report = compared(world, &redis, 10).await;
            let found = report.differences.get(&kind).cloned().unwrap_or_default();
            assert_eq!((found.only_here, found.only_there), (only_here, only_there), "{command:?}: {report}");
        }
    })
    .await;
}

/// Returns the number of actions of users that one of the sides does not have.
async fn lost(world: &World, legacy: &LegacySystem, clients: &[Client], authors: &[u64]) -> u64 {
    let mut lost = 0;
    for client in clients {
        for &user in &client.acted {
            let caller = world.user(user);
            let following = caller.walk(&format!("/v1/users/{user}/following"), 100).await;
            let here: BTreeSet<u64> = following.iter().map(|item| item["user"].as_str().unwrap().parse().unwrap()).collect();
            let there: BTreeSet<u64> = legacy.following(user).await.into_iter().collect();
            let expected = client.follows.get(&user).cloned().unwrap_or_default();
            let mut missing = here.symmetric_difference(&expected).count() + there.symmetric_difference(&expected).count();
            if authors.contains(&user) {
                let posts = caller.walk(&format!("/v1/authors/{user}/posts"), 100).await;
                let here: BTreeSet<String> = posts.iter().map(|post| post["title"].as_str().unwrap().to_owned()).collect();
                let expected = client.posts.get(&user).cloned().unwrap_or_default();
                missing += here.symmetric_difference(&expected).count();
                missing += legacy.titles(&format!("author:blogs:{user}")).await.symmetric_difference(&expected).count();
            }
            if let Some(read) = client.read.get(&user) {
                let unread = caller.walk("/v1/feed?status=unread", 100).await;
                missing += unread.iter().filter(|post| read.contains(post["title"].as_str().unwrap())).count();
                missing += legacy.unread_titles(user).await.intersection(read).count();
            }
            if missing > 0 {
                println!("user {user}: {missing} changes lost");
            }
            lost += missing as u64;
        }
    }
    lost
}

/// Divides the users between clients.
fn clients(users: &[u64], rng: &mut StdRng) -> Vec<Client> {
    let client = |number: usize| {
        let (rng, users) = (StdRng::seed_from_u64(rng.random()), users.iter().copied().skip(number).step_by(CLIENTS).collect());
        let (follows, posts, read, touched, removed, acted, number) = Default::default();
        Client { rng, users, follows, posts, read, touched, removed, acted, number }
    };
    (0..CLIENTS).map(client).collect()
}

/// Follows and posts in the legacy system before the migration.
async fn past(legacy: &LegacySystem, clients: &mut [Client], authors: &[u64], follows: f64, posts: u64) {
    let share = (follows / authors.len() as f64).min(1.0);
    for client in &mut *clients {
        for &user in &client.users {
            for &author in authors {
                if author != user && client.rng.random_bool(share) {
                    legacy.follow(user, author).await;
                    client.follows.entry(user).or_default().insert(author);
                }
            }
        }
    }
    for client in clients {
        for &author in client.users.iter().filter(|user| authors.contains(user)) {
            for number in 0..posts {
                let title = format!("{author} before {number}");
                legacy.publish(author, &title).await;
                client.posts.entry(author).or_default().insert(title);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_move_in_steps_and_back_without_a_difference_or_a_lost_request() {
    let users = number_from("ROLLOUT_TEST_USERS", 60);
    let actions = number_from("ROLLOUT_TEST_ACTIONS", 20) as usize;
    let sample = number_from("ROLLOUT_TEST_SAMPLE", 60) as usize;
    let (follows, posts) = (number_from("ROLLOUT_TEST_FOLLOWS", 4) as f64, number_from("ROLLOUT_TEST_POSTS", 5));
    let seed = number_from("SEED", rand::random());
    println!("seed {seed}");
    let (redis, legacy) = LegacySystem::start().await;
    let all: Vec<u64> = (1..=users).map(|user| user * 7).collect();
    let authors: Vec<u64> = all.iter().copied().step_by(10).collect();
    let mut clients = clients(&all, &mut StdRng::seed_from_u64(seed));
    past(&legacy, &mut clients, &authors, follows, posts).await;

    let mut world = World::start(|options: &mut Options| {
        sides::with(&redis, true)(options);
        parameter("RolloutPercent", 0)(options);
    })
    .await;
    let started = Instant::now();
    migrate(&world, json!({})).await;
    settle(&world).await;
    println!("{users} users migrated in {:?}", started.elapsed());

    let (mut failed, mut held) = (0, 0);
    for percent in [0, 10, 100, 0] {
        world = world.restart_with("RolloutPercent", &percent.to_string()).await;
        let started = Instant::now();
        let [here, there, failures] = [0, 0, 0].map(AtomicU64::new);
        let scene = Scene { world: &world, legacy: &legacy, authors: &authors, here, there, failed: failures };
        traffic(&scene, &mut clients, actions, true).await;
        let took = started.elapsed();
        settle(&world).await;
        clients.iter_mut().for_each(|client| client.removed.clear());
        let settled = started.elapsed() - took;
        let report = compared(&world, &redis, sample).await;
        let [here, there, lost] = [&scene.here, &scene.there, &scene.failed].map(|count| count.load(Ordering::Relaxed));
        println!("{percent} %: {here} actions here, {there} there, {lost} failed, in {took:?}; idle after {settled:?}; {report}");
        assert!(report.is_empty() && report.users > 0, "{percent} %: {report}");
        assert!((here > 0 || percent == 0) && (there > 0 || percent == 100), "{percent} %");
        held += without_lists(&world, &redis).await;
        // Changes that no pass has seen when the users move.
        traffic(&scene, &mut clients, actions / 8, false).await;
        failed += scene.failed.into_inner();
    }
    settle(&world).await;
    let report = compared(&world, &redis, sample * 5).await;
    let lost = lost(&world, &legacy, &clients, &authors).await;
    println!("at the end: {report}; {failed} requests failed, {lost} changes lost, {held} members were missed");
    assert!(report.is_empty(), "{report}");
    assert_eq!((failed, lost), (0, 0));
    world.finish().await;
}

//! Traffic while Redis is stopped, started empty, and hangs. No request fails, no response is wrong, no request takes
//! long.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tidemark_local::RedisData;
use tidemark_tests::{PATIENCE, Response, User, World, deployed_timeouts, world_with};

const READERS: std::ops::RangeInclusive<u64> = 1..=8;
const AUTHORS: std::ops::RangeInclusive<u64> = 11..=16;
const POSTS: u64 = 20;

/// The slowest requests wait for a few timeouts of Redis at most, one for every call until the breaker opens. A busy
/// machine needs more: this factor multiplies the slowest time without a failure.
const WAITS: Duration = Duration::from_secs(3);
const TIMES: u32 = 4;

/// The counts of one phase.
#[derive(Default)]
struct Tally {
    requests: AtomicUsize,
    degraded: AtomicUsize,
    errors: AtomicUsize,
    wrong: AtomicUsize,
    slowest_ms: AtomicUsize,
}

impl Tally {
    async fn count(&self, request: impl Future<Output = Response>) -> Response {
        let started = Instant::now();
        let response = request.await;
        self.slowest_ms.fetch_max(started.elapsed().as_millis() as usize, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.degraded.fetch_add(usize::from(response.header("degraded") == Some("redis")), Ordering::Relaxed);
        self.errors.fetch_add(usize::from(response.status >= 500), Ordering::Relaxed);
        response
    }

    fn check(&self, what: &str, found: &Value, expected: Value) {
        if *found != expected {
            println!("wrong: {what}: {found}, expected {expected}");
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Checks a phase. No request may take longer than `bound`. Returns the number of degraded responses and the
    /// slowest time.
    fn report(&self, phase: &str, bound: Duration) -> (usize, Duration) {
        let [requests, degraded, errors, wrong, slowest] =
            [&self.requests, &self.degraded, &self.errors, &self.wrong, &self.slowest_ms]
                .map(|count| count.load(Ordering::Relaxed));
        println!("{phase}: {requests} requests, {degraded} degraded, {errors} errors, {wrong} wrong, slowest {slowest} ms");
        assert!(requests > 0, "the phase has requests");
        let slowest = Duration::from_millis(slowest as u64);
        assert!(slowest < bound, "{phase}: {slowest:?}, not {bound:?}");
        assert_eq!((errors, wrong), (0, 0), "{phase}");
        (degraded, slowest)
    }
}

/// A reader of authors who do not publish. The reader knows every expected response.
struct Reader {
    user: User,
    id: u64,
    read: BTreeSet<(u64, u64)>,
    /// The number through which each author is marked read.
    through: BTreeMap<u64, u64>,
}

impl Reader {
    fn unread_of(&self, author: u64) -> usize {
        (1..=POSTS).filter(|&seq| !self.read.contains(&(author, seq))).count()
    }

    fn unread(&self) -> usize {
        AUTHORS.map(|author| self.unread_of(author)).sum()
    }

    async fn request(&mut self, rng: &mut StdRng, tally: &Tally) {
        let (author, seq) = (rng.random_range(AUTHORS), rng.random_range(1..=POSTS));
        let user = self.user.clone();
        match rng.random_range(0..10) {
            0..3 => {
                let page = tally.count(user.get("/v1/feed?limit=100")).await.body;
                tally.check("total of the feed", &page["unread_total"], json!(self.unread()));
                let items = page["items"].as_array().cloned().unwrap_or_default();
                tally.check("length of the page", &json!(items.len()), json!(100));
                for item in items {
                    let (author, seq) = item["id"].as_str().unwrap().split_once('-').unwrap();
                    let post = (author.parse().unwrap(), seq.parse().unwrap());
                    tally.check("flag in the feed", &item["read"], json!(self.read.contains(&post)));
                }
            }
            3 => {
                let unread = tally.count(user.get("/v1/unread")).await.body;
                tally.check("total", &unread["total"], json!(self.unread()));
            }
            4 => {
                let unread = tally.count(user.get(&format!("/v1/unread/{author}"))).await.body;
                tally.check("count of an author", &unread["unread"], json!(self.unread_of(author)));
            }
            5 => {
                let relation = tally.count(user.get(&format!("/v1/relations/{author}"))).await.body;
                tally.check("relation", &relation["following"], json!(true));
                let list = tally.count(user.get(&format!("/v1/users/{}/following?limit=100", self.id))).await.body;
                tally.check("list", &json!(list["items"].as_array().map(Vec::len)), json!(AUTHORS.count()));
            }
            6 => {
                let counters = tally.count(user.get(&format!("/v1/users/{author}/counters"))).await.body;
                tally.check("counters", &json!([counters["followers"], counters["posts"]]), json!([READERS.count(), POSTS]));
            }
            7 => {
                let response =
                    tally.count(user.post("/v1/reads", &json!({ "author": author.to_string(), "through": seq / 4 }))).await;
                let mark = self.through.entry(author).or_default();
                if seq / 4 >= *mark {
                    *mark = seq / 4;
                    self.read.extend((1..=seq / 4).map(|seq| (author, seq)));
                }
                tally.check("total after through", &response.body["unread"]["total"], json!(self.unread()));
            }
            kind => {
                let path = format!("/v1/posts/{author}-{seq}/read");
                let response = if kind == 8 { tally.count(user.put(&path)).await } else { tally.count(user.delete(&path)).await };
                if kind == 8 {
                    self.read.insert((author, seq))
                } else {
                    self.read.remove(&(author, seq))
                };
                let expected =
                    json!({ "read": kind == 8, "unread": { "author": self.unread_of(author), "total": self.unread() } });
                tally.check("mark", &response.body, expected);
            }
        }
    }
}

/// Other users follow and publish at the same time. None of their requests may fail.
async fn write(world: &World, number: u64, tally: &Tally) {
    let (reader, author) = (1000 + number % 5, 2000 + number);
    let followed = tally.count(world.user(reader).put(&format!("/v1/following/{author}"))).await;
    let published = tally.count(world.user(author).post("/v1/posts", &json!({ "title": "during an outage of Redis" }))).await;
    tally.check("writes", &json!([followed.status, published.status]), json!([200, 201]));
}

/// Runs traffic until `until` has ended.
async fn traffic(world: &World, readers: &mut [Reader], writes: &AtomicUsize, until: impl Future<Output = ()>) -> Tally {
    let (tally, over) = (Tally::default(), AtomicBool::new(false));
    let goes_on = || !over.load(Ordering::Relaxed);
    let reading = join_all(readers.iter_mut().map(async |reader| {
        let mut rng = StdRng::seed_from_u64(reader.id);
        while goes_on() {
            reader.request(&mut rng, &tally).await;
        }
    }));
    let writing = async {
        while goes_on() {
            write(world, writes.fetch_add(1, Ordering::Relaxed) as u64, &tally).await;
        }
    };
    let end = async {
        until.await;
        over.store(true, Ordering::Relaxed);
    };
    futures::join!(reading, writing, end);
    tally
}

#[test]
fn redis_may_stop_hang_and_start_empty_during_traffic() {
    world_with(
        |options| {
            deployed_timeouts(options);
            options.retry_delay = Duration::from_secs(3);
        },
        async |world| {
            for author in AUTHORS {
                world.follow(READERS, author).await;
                world.user(author).publish_all((0..POSTS).map(|_| "quiet")).await;
            }
            world.idle().await;
            let mut readers: Vec<Reader> =
                READERS.map(|id| Reader { user: world.user(id), id, read: BTreeSet::new(), through: BTreeMap::new() }).collect();
            let writes = AtomicUsize::new(0);
            let pause = || tokio::time::sleep(Duration::from_millis(1500));

            let (_, slowest) = traffic(world, &mut readers, &writes, pause()).await.report("with Redis", PATIENCE);
            let bound = WAITS + TIMES * slowest;
            let outage = async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                world.stack.stop_redis(RedisData::Lose).await.unwrap();
                pause().await;
                world.stack.start_redis().await.unwrap();
                pause().await;
            };
            let (degraded, _) = traffic(world, &mut readers, &writes, outage).await.report("stopped, and started empty", bound);
            assert!(degraded > 0);
            world.idle().await;

            // Redis hangs, with open connections, until the last request has its response. A Redis that returns with
            // its data is stale until the tasks of the failed updates are done.
            let hang = world.hang_redis().await;
            let (degraded, _) = traffic(world, &mut readers, &writes, pause()).await.report("hanging", bound);
            hang.end();
            assert!(degraded > 0);
            world.redis_recovers().await;
            // The attempts of a task last longer than the hang and the open breaker. A dead letter would be missing
            // below.
            assert_eq!(world.stack.status().await.unwrap().queues["FanOutDeadLetters"].visible, 0);
            traffic(world, &mut readers, &writes, pause()).await.report("afterwards", bound);
        },
    );
}

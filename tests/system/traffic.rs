//! Traffic while Redis is stopped, started empty, and hangs. No request fails, no response is wrong, no request takes
//! long.

use std::{
    cell::{Cell, RefCell},
    time::{Duration, Instant},
};

use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tidemark_local::RedisData;
use tidemark_tests::{Model, PATIENCE, Response, User, World, deployed_timeouts, world_with};

use crate::operations::{post_of, put_or_delete};

const READERS: std::ops::RangeInclusive<u64> = 1..=8;
const AUTHORS: std::ops::RangeInclusive<u64> = 11..=16;
const POSTS: u64 = 20;

/// The slowest requests wait for a few timeouts of Redis at most, one for every call until the breaker opens. A busy
/// machine needs more: this factor multiplies the slowest time without a failure.
const WAITS: Duration = Duration::from_secs(3);
const TIMES: u32 = 4;

#[derive(Default)]
struct Tally {
    /// The time of each request, and whether its response was degraded and an error.
    seen: RefCell<Vec<(Duration, bool, bool)>>,
    wrong: Cell<usize>,
}

impl Tally {
    async fn count(&self, request: impl Future<Output = Response>) -> Response {
        let started = Instant::now();
        let response = request.await;
        let degraded = response.header("degraded") == Some("redis");
        self.seen.borrow_mut().push((started.elapsed(), degraded, response.status >= 500));
        response
    }

    fn check(&self, what: &str, found: &Value, expected: Value) {
        if *found != expected {
            println!("wrong: {what}: {found}, expected {expected}");
            self.wrong.set(self.wrong.get() + 1);
        }
    }

    /// Checks a phase. No request may take longer than `bound`. Returns the number of degraded responses and the
    /// slowest time.
    fn report(&self, phase: &str, bound: Duration) -> (usize, Duration) {
        let (seen, wrong) = (self.seen.borrow(), self.wrong.get());
        let degraded = seen.iter().filter(|(_, degraded, _)| *degraded).count();
        let errors = seen.iter().filter(|(_, _, error)| *error).count();
        let slowest = seen.iter().map(|(took, _, _)| *took).max().expect("the phase has requests");
        println!("{phase}: {} requests, {degraded} degraded, {errors} errors, {wrong} wrong, slowest {slowest:.0?}", seen.len());
        assert!(slowest < bound, "{phase}: {slowest:?}, not {bound:?}");
        assert_eq!((errors, wrong), (0, 0), "{phase}");
        (degraded, slowest)
    }
}

/// A reader of authors who do not publish. The model gives every expected response.
struct Reader {
    user: User,
    id: u64,
    model: Model,
}

impl Reader {
    fn new(world: &World, id: u64) -> Self {
        let mut model = Model::default();
        for author in AUTHORS {
            model.follow(id, author);
            (0..POSTS).for_each(|_| _ = model.publish(author));
        }
        Self { user: world.user(id), id, model }
    }

    fn unread(&self) -> u64 {
        self.model.unread_total(self.id)
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
                    tally.check("flag in the feed", &item["read"], json!(!self.model.is_unread(self.id, post_of(&item))));
                }
            }
            3 => {
                let unread = tally.count(user.get("/v1/unread")).await.body;
                tally.check("total", &unread["total"], json!(self.unread()));
            }
            4 => {
                let unread = tally.count(user.get(&format!("/v1/unread/{author}"))).await.body;
                tally.check("count of an author", &unread["unread"], json!(self.model.unread_of(self.id, author)));
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
                let through = json!({ "author": author.to_string(), "through": seq / 4 });
                let response = tally.count(user.post("/v1/reads", &through)).await;
                self.model.through(self.id, author, seq / 4);
                tally.check("total after through", &response.body["unread"]["total"], json!(self.unread()));
            }
            kind => {
                let path = format!("/v1/posts/{author}-{seq}/read");
                let response = tally.count(put_or_delete(&user, &path, kind == 8)).await;
                self.model.mark(self.id, (author, seq), kind == 8);
                let unread = json!({ "author": self.model.unread_of(self.id, author), "total": self.unread() });
                tally.check("mark", &response.body, json!({ "read": kind == 8, "unread": unread }));
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

async fn traffic(world: &World, readers: &mut [Reader], writes: &Cell<u64>, until: impl Future<Output = ()>) -> Tally {
    let (tally, over) = (Tally::default(), Cell::new(false));
    let reading = join_all(readers.iter_mut().map(async |reader| {
        let mut rng = StdRng::seed_from_u64(reader.id);
        while !over.get() {
            reader.request(&mut rng, &tally).await;
        }
    }));
    let writing = async {
        while !over.get() {
            writes.set(writes.get() + 1);
            write(world, writes.get(), &tally).await;
        }
    };
    let end = async {
        until.await;
        over.set(true);
    };
    futures::join!(reading, writing, end);
    tally
}

#[test]
fn redis_may_stop_hang_and_start_empty_during_traffic() {
    let configure = |options: &mut tidemark_local::Options| {
        deployed_timeouts(options);
        options.retry_delay = Duration::from_secs(3);
    };
    world_with(configure, async |world| {
        for author in AUTHORS {
            world.follow(READERS, author).await;
            world.user(author).publish_all((0..POSTS).map(|_| "quiet")).await;
        }
        world.idle().await;
        let mut readers: Vec<Reader> = READERS.map(|id| Reader::new(world, id)).collect();
        let writes = Cell::new(0);
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
        assert_eq!(world.waiting("FanOutDeadLetters").await, 0);
        traffic(world, &mut readers, &writes, pause()).await.report("afterwards", bound);
    });
}

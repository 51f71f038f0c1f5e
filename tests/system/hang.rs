//! Redis hangs and recovers, in AWS weather. The test compares every response with the changes that were acknowledged
//! before its request was sent.
//!
//! Each line of clients works on users of its own, one request at a time, so the model gives exactly one expected
//! response. One thing is open: a post whose delivery is not yet seen to be done may or may not be in a feed and its
//! counts.
//!
//! In other traffic nobody publishes posts that these clients read, and Redis is stopped, started empty, and hangs. No
//! request fails, no response is wrong, no request takes long.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng};
use reqwest::Method;
use serde_json::{Value, json};
use tidemark::{
    Clock as _, SystemClock,
    domain::{Timestamp, feed::FeedCap},
};
use tidemark_local::{RedisData, Weather};
use tidemark_tests::{Kind, Model, PATIENCE, Post, Response, World, deployed_timeouts, world_with};

use crate::{
    operations::{self, posts_and_flags},
    publish_and_deliver_all,
};

/// The number of lines of clients, and of users in each.
const LINES: u64 = 12;
const USERS: u64 = 4;

/// The time of undisturbed traffic before the hang.
const WELL: Duration = Duration::from_secs(1);

/// The longest wait of a post for its delivery after the last request. It is much less than the queue's visibility
/// timeout.
const DELIVERED_WITHIN: Duration = Duration::from_secs(60);

const PAGE: usize = 100;
const FEED: &str = "/v1/feed?limit=100";

#[tokio::test(flavor = "multi_thread")]
async fn no_response_is_wrong_during_and_after_a_hang_of_redis() {
    hang(Duration::from_secs(4), Duration::from_secs(8)).await;
}

/// Measures the numbers in docs/redis.md.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute"]
async fn no_response_is_wrong_during_and_after_a_hang_of_twenty_seconds() {
    hang(Duration::from_secs(20), Duration::from_secs(10)).await;
}

struct Seen {
    sent: Instant,
    took: Duration,
    degraded: bool,
    wrong: Option<String>,
}

struct Run<'a> {
    world: &'a World,
    seen: RefCell<Vec<Seen>>,
    /// Counts the attempts without a final response.
    unanswered: Arc<AtomicUsize>,
    /// The times at which deliveries began and finished.
    delivered: RefCell<Vec<(Timestamp, Timestamp)>>,
    over: Cell<bool>,
}

impl<'a> Run<'a> {
    fn new(world: &'a World) -> Self {
        let (seen, unanswered, delivered, over) = Default::default();
        Self { world, seen, unanswered, delivered, over }
    }
}

async fn hang(time: Duration, after: Duration) {
    World::run_with(deployed_timeouts, async |world| {
        world.stack.set_weather(Weather::Aws, 1);
        let run = Run::new(world);
        let lines = join_all((0..LINES).map(|seed| line(&run, seed)));
        let disturb = async {
            tokio::time::sleep(WELL).await;
            let hang = world.hang_redis().await;
            let began = Instant::now();
            tokio::time::sleep(time).await;
            hang.end();
            let back = (Instant::now(), SystemClock.now());
            tokio::time::sleep(after).await;
            run.over.set(true);
            (began, back)
        };
        let (lines, (began, back)) = futures::join!(lines, disturb);
        let wrong = report(&run, began, back);
        let waiting: usize = lines.iter().map(|line| line.pending.len()).sum();
        assert_eq!(waiting, 0, "posts are not delivered long after the hang");
        world.stack.set_weather(Weather::Calm, 1);
        world.redis_recovers().await;
        for line in &lines {
            join_all(line.users.iter().map(async |&user| {
                operations::compare(&world.user(user), &line.model, user, line.seed, (7, FeedCap::GREATEST)).await;
            }))
            .await;
        }
        assert!(wrong.is_empty(), "{} wrong responses, the first: {}", wrong.len(), wrong[0]);
    })
    .await;
}

/// The readers, and authors whom they follow and who do not publish, of other traffic.
const READERS: RangeInclusive<u64> = 1..=8;
const AUTHORS: RangeInclusive<u64> = 11..=16;
const POSTS: u64 = 20;

/// The slowest requests wait for a few timeouts of Redis at most, one for every call until the breaker opens. A busy
/// machine needs more: this factor multiplies the slowest time without a failure.
const WAITS: Duration = Duration::from_secs(3);
const TIMES: u32 = 4;

#[test]
fn redis_may_stop_hang_and_start_empty_during_traffic() {
    let configure = |options: &mut tidemark_local::Options| {
        deployed_timeouts(options);
        options.retry_delay = Duration::from_secs(3);
    };
    world_with(configure, async |world| {
        let mut model = Model::default();
        for author in AUTHORS {
            world.follow(READERS, author).await;
            READERS.for_each(|reader| model.follow(reader, author));
            (0..POSTS).for_each(|_| _ = model.publish(author));
        }
        publish_and_deliver_all(world, AUTHORS, ["quiet"; POSTS as usize]).await;
        let run = Run::new(world);
        // The last one writes.
        let mut lines: Vec<Line<'_>> = READERS.map(|reader| Line::new(&run, reader, vec![reader], model.clone())).collect();
        lines.push(Line::new(&run, 0, Vec::new(), Model::default()));
        let pause = || tokio::time::sleep(Duration::from_millis(1500));

        let (_, slowest) = traffic(&mut lines, "with Redis", PATIENCE, pause()).await;
        let bound = WAITS + TIMES * slowest;
        let outage = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            world.stack.stop_redis(RedisData::Lose).await.unwrap();
            pause().await;
            world.stack.start_redis().await.unwrap();
            pause().await;
        };
        let (degraded, _) = traffic(&mut lines, "stopped, and started empty", bound, outage).await;
        assert!(degraded > 0);
        world.idle().await;

        // Redis hangs, with open connections, until the last request has its response. A Redis that returns with its
        // data is stale until the tasks of the failed updates are done.
        let hang = world.hang_redis().await;
        let (degraded, _) = traffic(&mut lines, "hanging", bound, pause()).await;
        hang.end();
        assert!(degraded > 0);
        world.redis_recovers().await;
        // The attempts of a task last longer than the hang and the open breaker. A dead letter would be missing below.
        assert_eq!(world.waiting("FanOutDeadLetters").await, 0);
        traffic(&mut lines, "afterwards", bound, pause()).await;
    });
}

/// Clients read and mark, and others follow and publish, until `until` has ended. No request may fail or take longer
/// than `bound`, and no response may be wrong. Returns the number of degraded responses and the slowest time.
async fn traffic(lines: &mut [Line<'_>], phase: &str, bound: Duration, until: impl Future<Output = ()>) -> (usize, Duration) {
    let (writer, readers) = lines.split_last_mut().unwrap();
    let run = writer.run;
    run.over.set(false);
    let reading = join_all(readers.iter_mut().map(async |line| {
        while !run.over.get() {
            let (author, seq) = (line.rng.random_range(AUTHORS), line.rng.random_range(1..=POSTS));
            match line.rng.random_range(0..10) {
                kind @ 0..2 => line.mark(line.seed, (author, seq), kind == 0).await,
                2 => line.mark_through(line.seed, author, seq / 4).await,
                3 => line.relation(line.seed, author).await,
                _ => line.read(line.seed, author).await,
            }
        }
    }));
    let writing = async {
        while !run.over.get() {
            let number = writer.pending.len() as u64;
            writer.follow(1_000 + number % 5, 2_000 + number, true).await;
            writer.publish(2_000 + number).await;
        }
    };
    let end = async {
        until.await;
        run.over.set(true);
    };
    futures::join!(reading, writing, end);
    let seen = run.seen.take();
    let degraded = seen.iter().filter(|seen| seen.degraded).count();
    let slowest = seen.iter().map(|seen| seen.took).max().expect("the phase has requests");
    let wrong: Vec<&String> = seen.iter().filter_map(|seen| seen.wrong.as_ref()).collect();
    let errors = run.unanswered.load(Ordering::Relaxed);
    println!("{phase}: {} requests, {degraded} degraded, {errors} errors, slowest {slowest:.0?}", seen.len());
    assert!(slowest < bound, "{phase}: {slowest:?}, not {bound:?}");
    assert!(wrong.is_empty() && errors == 0, "{phase}: {errors} errors, wrong: {wrong:?}");
    (degraded, slowest)
}

/// Prints the numbers. Returns the wrong responses.
fn report(run: &Run<'_>, began: Instant, (back, back_at): (Instant, Timestamp)) -> Vec<String> {
    let seen = run.seen.borrow();
    let phases = [("before", None, Some(began)), ("during", Some(began), Some(back)), ("after", Some(back), None)];
    for (name, from, to) in phases {
        let of = || seen.iter().filter(|seen| from.is_none_or(|from| seen.sent >= from) && to.is_none_or(|to| seen.sent < to));
        let [(count, wrong), (degraded, degraded_wrong)] = [false, true].map(|degraded| {
            let of = || of().filter(|seen| seen.degraded == degraded);
            (of().count(), of().filter(|seen| seen.wrong.is_some()).count())
        });
        println!("{name} the hang: {count} responses, {wrong} wrong; {degraded} degraded, {degraded_wrong} wrong");
    }
    let finished = run.delivered.borrow();
    let late = finished.iter().filter(|(published, _)| *published < back_at).map(|(_, at)| at.ms().saturating_sub(back_at.ms()));
    let delivered = late.max().unwrap_or_default();
    let last = |of: &dyn Fn(&&Seen) -> bool| {
        seen.iter().filter(of).map(|seen| seen.sent.saturating_duration_since(back)).max().unwrap_or_default().as_secs_f64()
    };
    println!(
        "after the hang: last wrong response {:.2} s, last degraded response {:.2} s, last delivery of an earlier post {:.2} s",
        last(&|seen| seen.wrong.is_some()),
        last(&|seen| seen.degraded),
        delivered as f64 / 1_000.0
    );
    let wrong = seen.iter().filter_map(|seen| {
        let when = seen.sent.saturating_duration_since(began).as_secs_f64();
        seen.wrong.as_ref().map(|wrong| format!("{when:.2} s after the hang began, degraded {}: {wrong}", seen.degraded))
    });
    let wrong: Vec<String> = wrong.collect();
    wrong.iter().take(20).for_each(|wrong| println!("  {wrong}"));
    wrong
}

/// Checks a body that was read for a user, of an author or not. Returns the error.
type Wrong<'a> = fn(&Line<'a>, u64, u64, &Value) -> Option<String>;

/// A line: users of its own, with one request at a time.
struct Line<'a> {
    run: &'a Run<'a>,
    seed: u64,
    rng: StdRng,
    users: Vec<u64>,
    model: Model,
    /// Posts whose delivery is not yet seen to be done.
    pending: BTreeSet<Post>,
}

async fn line<'a>(run: &'a Run<'a>, seed: u64) -> Line<'a> {
    let users = (1..=USERS).map(|index| seed * 10 + index).collect();
    let mut line = Line::new(run, seed, users, Model::default());
    for user in line.users.clone() {
        for author in line.users.clone() {
            line.follow(user, author, true).await;
        }
        line.get(user, user, FEED, Line::wrong_page).await;
    }
    while !run.over.get() {
        line.step().await;
    }
    let started = Instant::now();
    while let Some(&post) = line.pending.first()
        && started.elapsed() < DELIVERED_WITHIN
    {
        line.delivery(post).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    line
}

impl<'a> Line<'a> {
    fn new(run: &'a Run<'a>, seed: u64, users: Vec<u64>, model: Model) -> Self {
        Self { run, seed, rng: StdRng::seed_from_u64(seed), users, model, pending: BTreeSet::new() }
    }

    async fn step(&mut self) {
        let [user, author] = [(); 2].map(|()| self.users[self.rng.random_range(0..self.users.len())]);
        let seq = self.rng.random_range(1..=self.model.latest(author).max(1));
        match self.rng.random_range(0..100) {
            0..6 => self.follow(user, author, true).await,
            6..10 => self.follow(user, author, false).await,
            10..20 => self.publish(user).await,
            20..32 => {
                let read = self.rng.random_bool(0.7);
                self.mark(user, (author, seq), read).await;
            }
            32..37 => self.mark_through(user, author, seq).await,
            37..39 => self.mark_many(user, json!({ "all": true }), None).await,
            39..43 => self.like(user, (author, seq)).await,
            43..92 => self.read(user, author).await,
            _ if !self.pending.is_empty() => {
                let any = self.rng.random_range(0..self.pending.len());
                let post = self.pending.iter().nth(any).copied();
                self.delivery(post.unwrap()).await;
            }
            _ => {}
        }
    }

    async fn read(&mut self, user: u64, author: u64) {
        let (path, wrong): (String, Wrong<'a>) = match self.rng.random_range(0..49) {
            0..9 => ("/v1/unread".to_owned(), |line, user, _, body| line.wrong_total(user, &body["total"])),
            9..15 => {
                (format!("/v1/unread/{author}"), |line, user, author, body| line.wrong_count(&body["unread"], user, &[author]))
            }
            15..23 => (format!("/v1/users/{author}/counters"), Self::wrong_counters),
            23..27 => (format!("/v1/users/{user}/following?limit=100"), Self::wrong_following),
            27..31 => (format!("/v1/authors/{author}/posts?limit={PAGE}"), Self::wrong_timeline),
            _ => (FEED.to_owned(), Self::wrong_page),
        };
        self.get(user, author, &path, wrong).await;
    }

    /// Sends a request and records its response. `wrong` brings the model in line, and returns the response's error.
    async fn request(
        &mut self,
        user: u64,
        (method, path): (Method, &str),
        body: Option<Value>,
        wrong: impl FnOnce(&mut Self, &Response) -> Option<String>,
    ) -> Response {
        let (key, sent, world) = (format!("{:x}", rand::random::<u64>()), Instant::now(), self.run.world);
        let headers = [("idempotency-key", key.as_str())];
        // The writer of other traffic has no users, and publishes without a key.
        let headers = if path == "/v1/posts" && self.users.contains(&user) { &headers[..] } else { &[] };
        let caller = world.user(user).patiently(world.stack.open_requests(), Arc::clone(&self.run.unanswered));
        let response = caller.send(method, path, headers, body.map(|body| body.to_string())).await;
        let (took, degraded) = (sent.elapsed(), response.header("degraded").is_some());
        let wrong = wrong(self, &response).map(|wrong| format!("{path} of {user}: {wrong}"));
        // After the end, lines only look whether their posts are delivered. That is no traffic.
        if !(self.run.over.get() && path.ends_with("/delivery")) {
            self.run.seen.borrow_mut().push(Seen { sent, took, degraded, wrong });
        }
        response
    }

    async fn get(&mut self, user: u64, author: u64, path: &str, wrong: Wrong<'a>) -> Response {
        let wrong = |line: &mut Self, response: &Response| match response.status {
            200 => wrong(line, user, author, &response.body),
            status => Some(format!("status {status}")),
        };
        self.request(user, (Method::GET, path), None, wrong).await
    }

    async fn relation(&mut self, user: u64, author: u64) {
        let wrong: Wrong<'a> = |_, _, _, body| (body["following"] != true).then(|| body.to_string());
        self.get(user, author, &format!("/v1/relations/{author}"), wrong).await;
    }

    async fn follow(&mut self, user: u64, author: u64, follows: bool) {
        if user == author && follows {
            return;
        }
        let (path, method) = (format!("/v1/following/{author}"), if follows { Method::PUT } else { Method::DELETE });
        let wrong = |line: &mut Self, response: &Response| {
            if follows {
                line.model.follow(user, author)
            } else {
                line.model.unfollow(user, author)
            }
            (response.body["following"] != follows).then(|| response.body.to_string())
        };
        self.request(user, (method, &path), None, wrong).await;
    }

    async fn publish(&mut self, user: u64) {
        let wrong = |line: &mut Self, response: &Response| {
            let seq = line.model.publish(user);
            line.pending.insert((user, seq));
            let right = response.status == 201 && response.body["seq"].to_string().trim_matches('"') == seq.to_string();
            (!right).then(|| format!("{seq}, and it is {}", response.body))
        };
        self.request(user, (Method::POST, "/v1/posts"), Some(json!({ "title": "x" })), wrong).await;
    }

    async fn mark(&mut self, user: u64, post: Post, read: bool) {
        let path = format!("/v1/posts/{}-{}/read", post.0, post.1);
        let method = if read { Method::PUT } else { Method::DELETE };
        let wrong = |line: &mut Self, response: &Response| {
            line.model.mark(user, post, read);
            let live = line.model.is_live(post);
            if !live || response.status != 200 {
                return (live || response.status != 404).then(|| format!("status {}", response.status));
            }
            // Own posts, and posts from before the follow, always show as read.
            let follows = line.model.following(user).contains(&post.0);
            let shown = user == post.0 || if follows { !line.model.is_unread(user, post) } else { read };
            let flag = (response.body["read"] != shown).then(|| format!("read: {}", response.body["read"]));
            let of_author = flag.or_else(|| line.wrong_count(&response.body["unread"], user, &[post.0]));
            of_author.or_else(|| line.wrong_total(user, &response.body["total"]))
        };
        self.request(user, (method, &path), None, wrong).await;
    }

    async fn mark_through(&mut self, user: u64, author: u64, seq: u64) {
        self.mark_many(user, json!({ "author": author.to_string(), "through": seq }), Some((author, seq))).await;
    }

    async fn mark_many(&mut self, user: u64, body: Value, through: Option<Post>) {
        let wrong = |line: &mut Self, response: &Response| {
            match through {
                Some((author, seq)) => line.model.through(user, author, seq),
                None => line.model.all(user),
            }
            match response.status {
                200 => line.wrong_total(user, &response.body["total"]),
                status => Some(format!("{through:?}: status {status}")),
            }
        };
        self.request(user, (Method::POST, "/v1/reads"), Some(body), wrong).await;
    }

    async fn like(&mut self, user: u64, post: Post) {
        let path = format!("/v1/posts/{}-{}/like", post.0, post.1);
        let wrong = |line: &mut Self, response: &Response| {
            line.model.react(user, post, Kind::Like, true);
            ((response.status == 200) != line.model.is_live(post)).then(|| format!("status {}", response.status))
        };
        self.request(user, (Method::PUT, &path), None, wrong).await;
    }

    /// Reads the delivery of a post, which is no longer pending if it is done.
    async fn delivery(&mut self, post: Post) {
        let path = format!("/v1/posts/{}-{}/delivery", post.0, post.1);
        let response = self.get(post.0, post.0, &path, |_, _, _, _| None).await;
        if response.body["state"] == "done" {
            self.pending.remove(&post);
            let at = |name: &str| serde_json::from_value::<Timestamp>(response.body[name].clone()).unwrap();
            self.run.delivered.borrow_mut().push((at("started_at"), at("finished_at")));
        }
    }

    /// Checks a count of these authors, which may lack pending posts. Returns the error.
    fn wrong_count(&self, found: &Value, user: u64, authors: &[u64]) -> Option<String> {
        let most: u64 = authors.iter().map(|&author| self.model.unread_of(user, author)).sum();
        let open = |post: &&Post| authors.contains(&post.0) && self.model.is_unread(user, **post);
        let least = most - self.pending.iter().filter(open).count() as u64;
        let right = found.as_u64().is_some_and(|found| (least..=most).contains(&found));
        (!right).then(|| format!("{found} unread instead of {least}..={most}"))
    }

    fn wrong_total(&self, user: u64, found: &Value) -> Option<String> {
        self.wrong_count(found, user, &self.model.following(user))
    }

    fn wrong_page(&self, user: u64, _: u64, page: &Value) -> Option<String> {
        let items = posts_and_flags(page["items"].as_array()?);
        let found: BTreeMap<Post, bool> = items.iter().copied().collect();
        let expected = self.model.feed(user);
        let whole = items.len() < PAGE;
        let last = items.last().and_then(|(last, _)| expected.iter().position(|(post, _)| post == last));
        let end = if whole { expected.len() } else { last.map_or(0, |last| last + 1) };
        let known: BTreeMap<Post, bool> = expected[..end].iter().copied().collect();
        let missing = |post: &&Post| !found.contains_key(*post) && !self.pending.contains(*post);
        let missing: Vec<&Post> = known.keys().filter(missing).collect();
        let other: Vec<_> = items.iter().filter(|(post, read)| known.get(post) != Some(read)).collect();
        let doubled = items.len() - found.len();
        if missing.is_empty() && other.is_empty() && doubled == 0 {
            return self.wrong_total(user, &page["unread_total"]);
        }
        Some(format!("missing {missing:?}, with another flag or unexpected {other:?}, doubled {doubled}"))
    }

    fn wrong_counters(&self, _: u64, of: u64, body: &Value) -> Option<String> {
        let expected = json!({
            "followings": self.model.following(of).len(), "followers": self.model.followers(of),
            "posts": self.model.posts(of), "likes_received": self.model.received(of, Kind::Like), "favorites_received": 0,
        });
        (*body != expected).then(|| format!("{body} instead of {expected}"))
    }

    fn wrong_following(&self, user: u64, _: u64, body: &Value) -> Option<String> {
        let items = body["items"].as_array()?;
        let found: BTreeSet<u64> = items.iter().map(|item| item["user"].as_str().unwrap().parse().unwrap()).collect();
        let expected: BTreeSet<u64> = self.model.following(user).into_iter().collect();
        (found != expected).then(|| format!("{found:?} instead of {expected:?}"))
    }

    fn wrong_timeline(&self, user: u64, author: u64, body: &Value) -> Option<String> {
        let found: BTreeMap<Post, bool> = posts_and_flags(body["items"].as_array()?).into_iter().collect();
        let follows = self.model.following(user).contains(&author);
        let differs = |&(post, read): &(Post, bool)| match found.get(&post) {
            None => user == author || !self.pending.contains(&post),
            Some(found) => follows && *found != read,
        };
        let timeline = self.model.timeline(user, author);
        let wrong: Vec<_> = timeline.into_iter().take(PAGE).filter(differs).collect();
        (!wrong.is_empty()).then(|| format!("{wrong:?} are missing or have another flag"))
    }
}

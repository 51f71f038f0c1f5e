//! Redis hangs and recovers, in AWS weather. The test compares every response with the changes that were acknowledged
//! before its request was sent.
//!
//! Each line of clients works on users of its own, one request at a time, so the model gives exactly one expected
//! response. One thing is open: a post whose delivery is not yet seen to be done may or may not be in a feed and its
//! counts.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng};
use reqwest::Method;
use serde_json::{Value, json};
use tidemark::{SystemClock, domain::Timestamp, ports::Clock as _};
use tidemark_local::Weather;
use tidemark_tests::{Kind, Model, Post, Response, World, deployed_timeouts};

use crate::operations::{self, posts_and_flags};

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
    degraded: bool,
    wrong: Option<String>,
}

struct Run<'a> {
    world: &'a World,
    seen: RefCell<Vec<Seen>>,
    /// The times at which deliveries began and finished.
    delivered: RefCell<Vec<(Timestamp, Timestamp)>>,
    over: Cell<bool>,
}

async fn hang(time: Duration, after: Duration) {
    World::run_with(deployed_timeouts, async |world| {
        world.stack.set_weather(Weather::Aws, 1);
        let run = Run { world, seen: RefCell::default(), delivered: RefCell::default(), over: Cell::new(false) };
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
                operations::compare(&world.user(user), &line.model, user, line.seed, 7).await;
            }))
            .await;
        }
        assert!(wrong.is_empty(), "{} wrong responses, the first: {}", wrong.len(), wrong[0]);
    })
    .await;
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
        println!(
            "{name} the hang: {count} responses, {wrong} of them wrong; {degraded} degraded, {degraded_wrong} of them wrong"
        );
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
    let users: Vec<u64> = (1..=USERS).map(|index| seed * 10 + index).collect();
    let (rng, model, pending) = (StdRng::seed_from_u64(seed), Model::default(), BTreeSet::new());
    let mut line = Line { run, seed, rng, users, model, pending };
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
    while let Some(&post) = line.pending.first() {
        line.delivery(post).await;
        if started.elapsed() > DELIVERED_WITHIN {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    line
}

impl<'a> Line<'a> {
    fn any(&mut self) -> u64 {
        self.users[self.rng.random_range(0..self.users.len())]
    }

    async fn step(&mut self) {
        let (user, author) = (self.any(), self.any());
        let seq = self.rng.random_range(1..=self.model.latest(author).max(1));
        let (path, wrong): (String, Wrong<'a>) = match self.rng.random_range(0..100) {
            0..6 => return self.follow(user, author, true).await,
            6..10 => return self.follow(user, author, false).await,
            10..20 => return self.publish(user).await,
            20..32 => {
                let read = self.rng.random_bool(0.7);
                return self.mark(user, (author, seq), read).await;
            }
            32..37 => {
                let through = json!({ "author": author.to_string(), "through": seq });
                return self.mark_many(user, through, Some((author, seq))).await;
            }
            37..39 => return self.mark_many(user, json!({ "all": true }), None).await,
            39..43 => return self.like(user, (author, seq)).await,
            43..61 => (FEED.to_owned(), Self::wrong_page),
            61..70 => ("/v1/unread".to_owned(), |line, user, _, body| line.wrong_total(user, &body["total"])),
            70..76 => {
                (format!("/v1/unread/{author}"), |line, user, author, body| line.wrong_count(&body["unread"], user, &[author]))
            }
            76..84 => (format!("/v1/users/{author}/counters"), Self::wrong_counters),
            84..88 => (format!("/v1/users/{user}/following?limit=100"), Self::wrong_following),
            88..92 => (format!("/v1/authors/{author}/posts?limit={PAGE}"), Self::wrong_timeline),
            _ if !self.pending.is_empty() => {
                let any = self.rng.random_range(0..self.pending.len());
                let post = self.pending.iter().nth(any).copied();
                return self.delivery(post.unwrap()).await;
            }
            _ => return,
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
        let key = format!("{:x}", rand::random::<u64>());
        let headers = [("idempotency-key", key.as_str())];
        let headers = if path == "/v1/posts" { &headers[..] } else { &[] };
        let (sent, world) = (Instant::now(), self.run.world);
        let caller = world.user(user).patiently(world.stack.open_requests(), Default::default());
        let response = caller.send(method, path, headers, body.map(|body| body.to_string())).await;
        let wrong = wrong(self, &response).map(|wrong| format!("{path} of {user}: {wrong}"));
        self.run.seen.borrow_mut().push(Seen { sent, degraded: response.header("degraded").is_some(), wrong });
        response
    }

    async fn get(&mut self, user: u64, author: u64, path: &str, wrong: Wrong<'a>) -> Response {
        let wrong = |line: &mut Self, response: &Response| match response.status {
            200 => wrong(line, user, author, &response.body),
            status => Some(format!("status {status}")),
        };
        self.request(user, (Method::GET, path), None, wrong).await
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
            let (live, unread) = (line.model.is_live(post), &response.body["unread"]);
            if !live || response.status != 200 {
                return (live || response.status != 404).then(|| format!("status {}", response.status));
            }
            let of_author = line.wrong_count(&unread["author"], user, &[post.0]);
            of_author.or_else(|| line.wrong_total(user, &unread["total"]))
        };
        self.request(user, (method, &path), None, wrong).await;
    }

    async fn mark_many(&mut self, user: u64, body: Value, through: Option<Post>) {
        let wrong = |line: &mut Self, response: &Response| {
            match through {
                Some((author, seq)) => line.model.through(user, author, seq),
                None => line.model.all(user),
            }
            match response.status {
                200 => line.wrong_total(user, &response.body["unread"]["total"]),
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

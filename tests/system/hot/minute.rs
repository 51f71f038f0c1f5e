//! A minute in which everybody turns to one author, at the rates of a deployment. This machine is too slow for these
//! rates, so DynamoDB runs in slow motion: a minute takes `TIDEMARK_SLOWDOWN` minutes. Each rate, and each limit of a
//! partition, is that much lower, and each latency is that much longer. So as many requests meet each other, and a
//! partition is as busy. The timeouts and the waits of the functions are not longer, which makes the test stricter.
//!
//! `cargo test -p tidemark-tests --test system -- --ignored --exact --nocapture hot::minute::<test>`, with
//! `TIDEMARK_SECONDS` of deployment time.

use std::{
    pin::pin,
    sync::Mutex,
    time::{Duration, Instant},
};

use futures::{
    StreamExt,
    future::{self, Either},
    stream,
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tidemark_local::Weather;
use tidemark_tests::{Response, World, deployed_timeouts, number_from};

use super::{AUTHOR, Readers, are_all_published};
use crate::{inbox, percentiles};

const FIRST: u64 = 2_000_000;
/// Requests that are open at once at most. More means that the machine does not keep up.
const MOST_OPEN: usize = 2_000;
/// A client waits this long in deployment time before it repeats a request.
const PAUSE: Duration = Duration::from_millis(200);

struct Minute<'a> {
    world: &'a World,
    slowdown: u32,
    seconds: u64,
}

impl Minute<'_> {
    /// Sends requests at `rate` a second, at random times, and repeats those that are refused. Returns their number.
    /// One in a hundred may be refused at first.
    async fn send(&self, what: &str, rate: u64, request: impl AsyncFn(u64) -> Response) -> u64 {
        self.world.stack.set_weather(Weather::Aws, 1);
        self.world.stack.slow_down(self.slowdown);
        let (number, mut random) = (rate * self.seconds, StdRng::seed_from_u64(rate));
        let length = Duration::from_secs(self.seconds) * self.slowdown;
        let mut times: Vec<Duration> = (0..number).map(|_| length.mul_f64(random.random::<f64>())).collect();
        times.sort_unstable();
        let started = tokio::time::Instant::now();
        let arrivals = stream::iter(times.into_iter().zip(0..)).then(async |(at, number)| {
            tokio::time::sleep_until(started + at).await;
            (started + at, number)
        });
        let answered = arrivals.map(async |(at, number)| {
            let mut refused = 0_u64;
            loop {
                let response = request(number).await;
                match response.status {
                    200 | 201 | 204 => break,
                    503 => refused += 1,
                    _ => panic!("{what}: {response:?}"),
                }
                tokio::time::sleep(PAUSE * self.slowdown).await;
            }
            (at.elapsed() / self.slowdown, refused)
        });
        let (latencies, refusals): (Vec<_>, Vec<_>) = answered.buffer_unordered(MOST_OPEN).unzip().await;
        let took = started.elapsed();
        let refused = refusals.iter().filter(|refused| **refused > 0).count() as u64;
        let consumed = self.world.stack.consumption();
        let busiest = |write: bool| {
            let of = consumed.units.iter().filter(|((_, is_write), _)| *is_write == write);
            let (partition, units) = of.max_by(|a, b| a.1.total_cmp(b.1)).map_or(("", 0.0), |((key, _), units)| (key, *units));
            format!("{partition} {:.0} a second", units / self.seconds as f64)
        };
        let share = refused as f64 * 100.0 / number as f64;
        println!("{what}: {number} in {took:.0?} (slowdown {}), {refused} refused at first ({share:.3} %)", self.slowdown);
        println!("{} refusals, at most {} of one", refusals.iter().sum::<u64>(), refusals.iter().max().unwrap());
        println!("{}", percentiles(latencies));
        println!("{} requests to DynamoDB throttled", consumed.throttled);
        println!("busiest partitions: reads {}, writes {}", busiest(false), busiest(true));
        assert!(took < length + Duration::from_secs(10), "{what}: the machine does not keep up");
        self.world.stack.slow_down(1);
        self.world.stack.set_weather(Weather::Calm, 1);
        self.world.stack.idle_within(Duration::from_secs(600)).await.unwrap();
        assert!(refused * 100 <= number, "{refused}");
        number
    }

    async fn follow(&self, author: u64) {
        let path = format!("/v1/following/{author}");
        let follows = self.send("follows", 1_667, async |number| self.world.user(FIRST + number).put(&path).await).await;
        assert_eq!(self.world.follower_count(author).await, follows);
        let counters = self.world.user(author).get(&format!("/v1/users/{author}/counters")).await.ok();
        assert_eq!(counters["followers"], follows);
        assert_eq!(self.world.user(author).walk(&format!("/v1/users/{author}/followers"), 100).await.len() as u64, follows);
        assert_eq!(self.acts(author).await, follows);
    }

    /// The number of acts that the author's inbox shows.
    async fn acts(&self, author: u64) -> u64 {
        inbox::counts(&self.world.user(author)).await.values().sum()
    }

    /// Likes one post at `rate` a second, while its author looks at the group of these likes.
    async fn like(&self, rate: u64) {
        let world = self.world;
        let post = world.user(AUTHOR).publish("hot").await;
        world.idle().await;
        let (path, acknowledged) = (format!("/v1/posts/{post}/like"), Mutex::new(Vec::new()));
        let seen = Mutex::new(Vec::new());
        let look = async {
            loop {
                tokio::time::sleep(PAUSE).await;
                let asked = Instant::now();
                let count = self.acts(AUTHOR).await;
                seen.lock().unwrap().push((asked, count));
            }
        };
        let started = Instant::now();
        let likes = self.send("likes", rate, async |number| {
            let response = world.user(FIRST + number).put(&path).await;
            if response.status == 200 {
                acknowledged.lock().unwrap().push(Instant::now());
            }
            response
        });
        let likes = match future::select(pin!(likes), pin!(look)).await {
            Either::Left((likes, _)) => likes,
            Either::Right((never, _)) => never,
        };
        let seconds = started.elapsed().as_secs();
        assert_eq!(self.acts(AUTHOR).await, likes);
        // How old the count was that each look showed: the time since the first like that it lacked.
        let (acknowledged, seen) = (acknowledged.into_inner().unwrap(), seen.into_inner().unwrap());
        let lag = |&(asked, count): &(Instant, u64)| {
            let missing = acknowledged.get(usize::try_from(count).unwrap());
            missing.map_or(Duration::ZERO, |at| asked.saturating_duration_since(*at))
        };
        let lags: Vec<Duration> = seen.iter().map(lag).collect();
        let writes = inbox::version(world, AUTHOR, "like-1".parse().unwrap()).await;
        println!("{} looks, lag {}", lags.len(), percentiles(lags));
        println!("{writes} writes of the group in {seconds} s");
        assert!(writes <= seconds + 2, "{writes} writes in {seconds} s");
    }

    /// Publishes posts at `rate` a second, with texts of `bytes`.
    async fn publish(&self, rate: u64, bytes: usize) {
        const READERS: u64 = 20;
        let (world, text) = (self.world, "x".repeat(bytes));
        world.follow(1..=READERS, AUTHOR).await;
        world.read_feeds(1..=READERS).await;
        // An empty text would be stored too.
        let text = (bytes > 0).then_some(text.as_str());
        let posts = self.send("posts", rate, async |number| super::publish(world, number, text).await).await;
        are_all_published(world, posts).await;
        world.assert_unread(1..=READERS, posts).await;
    }
}

async fn minute(test: impl AsyncFnOnce(Minute<'_>)) {
    World::run_with(deployed_timeouts, async |world| {
        let slowdown = number_from("TIDEMARK_SLOWDOWN", 10) as u32;
        test(Minute { world, slowdown, seconds: number_from("TIDEMARK_SECONDS", 60) }).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "ten minutes; it measures"]
async fn a_hundred_thousand_follows_of_an_author_with_posts() {
    minute(async |minute| {
        minute.world.user(AUTHOR).publish("before").await;
        minute.follow(AUTHOR).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "ten minutes; it measures"]
async fn a_hundred_thousand_follows_of_an_author_without_posts() {
    minute(async |minute| minute.follow(AUTHOR).await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "ten minutes; it measures"]
async fn many_likes_of_one_post() {
    // A hundred thousand in two minutes.
    minute(async |minute| minute.like(833).await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "ten minutes; it measures"]
async fn a_thousand_comments_a_second_on_one_post() {
    minute(async |minute| {
        let world = minute.world;
        world.user(AUTHOR).publish("before").await;
        world.idle().await;
        let comments = minute.send("comments", 1_000, async |number| super::comment(world, number).await).await;
        super::are_all_commented(world, comments).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "ten minutes; it measures"]
async fn thirty_posts_a_second() {
    minute(async |minute| minute.publish(30, 0).await).await;
}

/// Each costs about 140 write units of the author's partition.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "ten minutes; it measures"]
async fn six_posts_a_second_with_the_longest_texts() {
    minute(async |minute| minute.publish(6, 64 * 1024).await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "ten minutes; it measures"]
async fn five_thousand_marks_a_second() {
    minute(async |minute| {
        const READERS: u64 = 5_000;
        const POSTS: u64 = 100;
        let world = minute.world;
        world.follow_at_once(FIRST..FIRST + READERS, AUTHOR).await;
        world.stack.idle_within(Duration::from_secs(600)).await.unwrap();
        world.user(AUTHOR).publish_all(0..POSTS).await;
        world.stack.idle_within(Duration::from_secs(600)).await.unwrap();
        let started = Instant::now();
        let readers = Readers { world, first: FIRST, number: READERS, posts: POSTS };
        readers.have_marked(0).await;
        println!("{READERS} readers have their views after {:.0?}", started.elapsed());
        let marks = minute.send("marks", 5_000, async |number| readers.mark(number).await).await;
        readers.have_marked(marks).await;
    })
    .await;
}

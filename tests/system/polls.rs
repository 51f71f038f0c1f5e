//! Clients that chain polls: each poll asks for what has entered the feed since the last one. No post is lost or listed
//! twice, however late it becomes visible.

use std::{cell::Cell, collections::BTreeSet};

use futures::future::join_all;
use serde_json::{Value, json};
use tidemark::domain::{FeedKey, PostId};
use tidemark_local::{RedisData, Weather};
use tidemark_tests::{User, World, ids, parameter, until, user_id, world, world_with};

use crate::{damage::proxy::world_behind_a_proxy, publish_and_deliver_all, request};

const READER: u64 = 7;
const FEEDS: [&str; 3] = ["/v1/feed?", "/v1/feed?status=unread&", "/v1/feed?order=ranked&"];
const OWN: [&str; 2] = ["/v1/feed?own=true&", "/v1/feed?order=ranked&own=true&"];
const LISTED: &str = "/v1/feed?list=7-1&";
const UNREAD_OF_10: &str = "/v1/authors/10/posts?status=unread&";

/// A client that has read the first page of a list, and polls.
struct Poll<'a> {
    user: &'a User,
    path: &'a str,
    since: String,
    /// What all polls have returned.
    got: Vec<String>,
}

impl<'a> Poll<'a> {
    async fn start(user: &'a User, path: &'a str) -> Self {
        Self { user, path, since: user.cursor("first_cursor", path).await, got: Vec::new() }
    }

    /// Walks one poll to its end. Returns what is new.
    async fn next(&mut self, limit: usize) -> Vec<String> {
        let pages = self.user.pages(&format!("{}since={}", self.path, self.since), limit).await;
        self.since = pages[0]["first_cursor"].as_str().unwrap().to_owned();
        let new: Vec<String> = pages.iter().flat_map(|page| ids(page["items"].as_array().unwrap())).collect();
        self.got.extend(new.clone());
        new
    }

    /// Returns all posts that the polls have returned, in order. Asserts that each came once.
    fn once(&self) -> BTreeSet<String> {
        let once: BTreeSet<String> = self.got.iter().cloned().collect();
        assert_eq!(once.len(), self.got.len(), "{} returned a post twice: {:?}", self.path, self.got);
        once
    }
}

async fn polls<'a>(user: &'a User, paths: impl IntoIterator<Item = &'a str>) -> Vec<Poll<'a>> {
    let mut polls = Vec::new();
    for path in paths {
        polls.push(Poll::start(user, path).await);
    }
    polls
}

/// Asserts that the next poll of each of these returns exactly these posts.
async fn assert_new(polls: &mut [Poll<'_>], expected: &[&str]) {
    for poll in polls {
        let new: BTreeSet<String> = poll.next(1).await.into_iter().collect();
        assert_eq!(new, expected.iter().map(|post| (*post).to_owned()).collect(), "{}", poll.path);
        poll.once();
    }
}

/// Delivers a post to the reader's view while the queue holds all deliveries back.
async fn deliver(world: &World, post: &str) {
    let stores = &world.stack.app("read-feed").unwrap().stores;
    let id: PostId = post.parse().unwrap();
    let found = stores.facts.posts(&[id]).await.unwrap().remove(&id).unwrap();
    let key = FeedKey { at: found.created_at, post: id };
    stores.views.deliver(&[user_id(READER)], key, Default::default(), false).await.unwrap();
}

/// Five authors publish at the same time, while the client polls. Two of them are on a list of the reader.
async fn nothing_is_lost(world: &World, weather: Weather) {
    let reader = world.live_reader(READER, 10..15).await;
    reader.post("/v1/lists", &json!({ "name": "x" })).await.ok();
    for author in [10, 11] {
        reader.put(&format!("/v1/lists/7-1/authors/{author}")).await.ok();
    }
    let mut polls = polls(&reader, FEEDS.into_iter().chain([LISTED, UNREAD_OF_10]).chain(OWN)).await;
    world.stack.set_weather(weather, 1);
    let over = Cell::new(false);
    let publishing = async {
        let authors = (10..15).chain([READER]);
        let published = join_all(authors.map(async |author| world.user(author).publish_all(["x"; 8]).await)).await;
        over.set(true);
        published.concat()
    };
    let polling = join_all(polls.iter_mut().map(async |poll| {
        while !over.get() {
            poll.next(3).await;
        }
    }));
    let (published, _) = futures::join!(publishing, polling);
    world.calm_down().await;
    for poll in &mut polls {
        poll.next(100).await;
        let authors: &[&str] = match poll.path {
            LISTED => &["10-", "11-"],
            UNREAD_OF_10 => &["10-"],
            path if OWN.contains(&path) => &[""],
            _ => &["10-", "11-", "12-", "13-", "14-"],
        };
        let is_of_poll = |post: &&String| authors.iter().any(|author| post.starts_with(author));
        let lost: Vec<&String> = published.iter().filter(is_of_poll).filter(|post| !poll.got.contains(post)).collect();
        assert!(lost.is_empty(), "{} lost {lost:?} of {} posts", poll.path, published.len());
        poll.once();
    }
}

#[test]
fn chained_polls_list_each_post_of_authors_who_publish_at_once_exactly_once() {
    world(async |world| nothing_is_lost(world, Weather::Calm).await);
}

#[test]
fn chained_polls_list_each_post_of_authors_who_publish_at_once_exactly_once_in_the_weather_of_aws() {
    world(async |world| nothing_is_lost(world, Weather::Aws).await);
}

#[test]
fn chained_polls_list_each_post_of_pulled_and_pushed_authors_exactly_once() {
    world_with(parameter("PullThreshold", 3), async |world| {
        world.follow([1, 2, 3], 10).await;
        world.follow([1, 2, 3], 12).await;
        publish_and_deliver_all(world, [10, 12], ["the last pushed one"]).await;
        nothing_is_lost(world, Weather::Calm).await;
    });
}

/// The reader follows 10, 20 and 30. The deliveries of the posts `10-1`, `20-1` and `30-1` are held back, and the
/// reader's view has `20-1`.
async fn held_back(world: &World) -> User {
    let reader = world.live_reader(READER, [10, 20, 30]).await;
    for path in FEEDS {
        reader.get(path).await.ok();
    }
    world.stack.pause("fan-out").await.unwrap();
    for author in [10, 20, 30] {
        world.user(author).publish("x").await;
    }
    deliver(world, "20-1").await;
    reader
}

/// The facts have posts that the view does not have yet. The first page came from the facts.
#[test]
fn a_walk_that_began_with_the_facts_loses_no_post_that_the_view_lacks() {
    world(async |world| {
        let reader = held_back(world).await;
        for path in FEEDS {
            let refusal = world.refuse_redis().await;
            let first = reader.get(&format!("{path}limit=1")).await;
            assert_eq!((first.header("degraded"), first.body["items"].as_array().unwrap().len()), (Some("redis"), 1), "{path}");
            refusal.end().await;
            world.redis_is_asked_again().await;
            let mut pages = vec![first.body];
            while let Some(cursor) = pages.last().and_then(|page| page["next_cursor"].as_str()) {
                pages.push(reader.get(&format!("{path}limit=1&cursor={cursor}")).await.ok());
            }
            let since = pages[0]["first_cursor"].as_str().unwrap();
            pages.extend(reader.pages(&format!("{path}since={since}"), 1).await);
            let got: Vec<String> = pages.iter().flat_map(|page| ids(page["items"].as_array().unwrap())).collect();
            let once: BTreeSet<&str> = got.iter().map(String::as_str).collect();
            assert_eq!((once, got.len()), (["10-1", "20-1", "30-1"].into(), 3), "{path}: {got:?}");
        }
        world.stack.resume("fan-out").unwrap();
    });
}

#[test]
fn a_post_that_becomes_visible_below_others_is_in_the_next_poll_and_in_no_other() {
    world(async |world| {
        let reader = held_back(world).await;
        let mut polls = polls(&reader, FEEDS).await;
        let seen = polls.iter().map(|poll| poll.since.clone()).collect::<Vec<_>>();
        assert_new(&mut polls, &[]).await;
        assert_eq!(polls.iter().map(|poll| poll.since.clone()).collect::<Vec<_>>(), seen, "nothing is new");
        deliver(world, "10-1").await;
        assert_new(&mut polls, &["10-1"]).await;
        assert_new(&mut polls, &[]).await;
        deliver(world, "30-1").await;
        assert_new(&mut polls, &["30-1"]).await;
        world.resume("fan-out").await;
        assert_new(&mut polls, &[]).await;
    });
}

/// A walk from the oldest post on, and the polls that go on with it.
#[test]
fn a_walk_from_the_oldest_post_has_a_post_that_becomes_visible_below_its_place() {
    world(async |world| {
        let reader = held_back(world).await;
        world.user(20).publish("x").await;
        deliver(world, "20-2").await;
        let page = async |cursor: &str| reader.get(&format!("/v1/feed?order=oldest&limit=1{cursor}")).await.ok();
        let mut last = page("").await;
        let mut walked = ids(last["items"].as_array().unwrap());
        deliver(world, "10-1").await;
        while let Some(next) = last["next_cursor"].as_str() {
            last = page(&format!("&cursor={next}")).await;
            walked.extend(ids(last["items"].as_array().unwrap()));
        }
        assert_eq!(walked, ["20-1", "10-1", "20-2"]);
        let since = last["first_cursor"].as_str().unwrap().to_owned();
        let mut poll = Poll { user: &reader, path: FEEDS[0], since, got: walked };
        assert_new(std::slice::from_mut(&mut poll), &[]).await;
        deliver(world, "30-1").await;
        assert_new(std::slice::from_mut(&mut poll), &["30-1"]).await;
        world.resume("fan-out").await;
    });
}

/// The view has the newest posts alone, and none of them is in the feed any more, or in this selection of it.
#[test]
fn a_poll_lists_no_post_from_below_the_view_twice() {
    for leave in ["DELETE /v1/following/20", "PUT /v1/blocks/20", "PUT /v1/mutes/20", ""] {
        world_with(parameter("FeedCap", 10), async |world| {
            let reader = world.live_reader(READER, [10, 20]).await;
            reader.post("/v1/lists", &json!({ "name": "x" })).await.ok();
            reader.put("/v1/lists/7-1/authors/10").await.ok();
            publish_and_deliver_all(world, [10], ["older"; 5]).await;
            publish_and_deliver_all(world, [20], ["newer"; 15]).await;
            for path in FEEDS {
                reader.get(path).await.ok();
            }
            if !leave.is_empty() {
                request(world, &format!("{READER}: {leave}"), &[]).await.ok();
            }
            let paths = FEEDS.into_iter().chain([LISTED]).filter(|path| !leave.is_empty() || *path == LISTED);
            let mut polls = polls(&reader, paths).await;
            assert_new(&mut polls, &[]).await;
            publish_and_deliver_all(world, [10], ["new"]).await;
            assert_new(&mut polls, &["10-6"]).await;
            assert_new(&mut polls, &[]).await;
        });
    }
}

#[test]
fn polls_neither_lose_nor_repeat_posts_when_redis_is_lost_or_unavailable() {
    world(async |world| {
        let reader = held_back(world).await;
        let mut polls = polls(&reader, FEEDS).await;
        // The facts have posts that the view does not have yet.
        world.stack.stop_redis(RedisData::Keep).await.unwrap();
        assert_new(&mut polls, &["10-1", "30-1"]).await;
        world.stack.start_redis().await.unwrap();
        world.resume("fan-out").await;
        world.redis_is_asked_again().await;
        assert_new(&mut polls, &[]).await;
        world.stack.pause("fan-out").await.unwrap();
        for author in [10, 20, 30] {
            world.user(author).publish("x").await;
        }
        deliver(world, "30-2").await;
        assert_new(&mut polls, &["30-2"]).await;
        world.flush_redis().await;
        assert_new(&mut polls, &["10-2", "20-2"]).await;
        world.resume("fan-out").await;
        assert_new(&mut polls, &[]).await;
    });
}

#[test]
fn a_post_that_arrives_between_two_pages_is_in_the_next_poll_alone() {
    world(async |world| {
        let reader = held_back(world).await;
        world.user(20).publish("x").await;
        deliver(world, "20-2").await;
        // A walk, and a poll, of which the first page is read before the post arrives.
        let empty = async |path: &str| {
            let stranger = world.user(8);
            stranger.cursor("first_cursor", path).await
        };
        for (path, post) in [(FEEDS[0], "10-1"), (FEEDS[2], "30-1")] {
            let empty = empty(path).await;
            let starts = [path.to_owned(), format!("{path}since={empty}&")];
            let mut firsts = Vec::new();
            for start in &starts {
                firsts.push(reader.get(&format!("{start}limit=1")).await.ok());
            }
            deliver(world, post).await;
            for (start, first) in starts.iter().zip(firsts) {
                let next = first["next_cursor"].as_str().unwrap();
                let rest = ids(&reader.walk(&format!("{start}cursor={next}"), 2).await);
                assert!(!rest.contains(&post.to_owned()) && !rest.is_empty(), "{start}: {rest:?}");
                let mut poll =
                    Poll { user: &reader, path, since: first["first_cursor"].as_str().unwrap().to_owned(), got: Vec::new() };
                assert_eq!(poll.next(5).await, [post], "{start}");
            }
        }
        world.resume("fan-out").await;
    });
}

#[test]
fn polls_go_on_when_the_newest_post_or_its_author_goes_and_comes_back() {
    world(async |world| {
        let reader = world.live_reader(READER, [10, 20]).await;
        publish_and_deliver_all(world, [10, 20], ["x"]).await;
        let mut polls = polls(&reader, FEEDS).await;
        reader.put("/v1/mutes/20").await.ok();
        assert_new(&mut polls, &[]).await;
        reader.delete("/v1/mutes/20").await.ok();
        assert_new(&mut polls, &[]).await;
        world.publish_and_deliver(10, "x").await;
        assert_new(&mut polls, &["10-2"]).await;
        for _ in 0..2 {
            world.user(10).delete("/v1/posts/10-2").await;
            world.idle().await;
            assert_new(&mut polls, &[]).await;
        }
        reader.delete("/v1/following/20").await.ok();
        assert_new(&mut polls, &[]).await;
        reader.follow([20]).await;
        assert_new(&mut polls, &[]).await;
        world.publish_and_deliver(20, "x").await;
        assert_new(&mut polls, &["20-2"]).await;
        // The posts from before a follow enter the feed, as read.
        world.publish_and_deliver(30, "x").await;
        reader.follow([30]).await;
        for (poll, new) in polls.iter_mut().zip([1, 0, 1]) {
            assert_new(std::slice::from_mut(poll), &["30-1"][..new]).await;
        }
        for path in FEEDS {
            let wrong = reader.get(&format!("{path}limit=1")).await.ok()["next_cursor"].take();
            let wrong = reader.get(&format!("{path}since={}", wrong.as_str().unwrap())).await;
            assert_eq!(wrong.field(), "since", "a next_cursor is not the start of a page");
        }
    });
}

#[test]
fn a_late_post_of_an_author_is_in_one_poll_of_the_unread_timeline() {
    world(async |world| {
        let reader = world.live_reader(READER, [10]).await;
        world.stack.pause("fan-out").await.unwrap();
        world.user(10).publish_all(["one", "two"]).await;
        deliver(world, "10-2").await;
        let mut poll = Poll::start(&reader, UNREAD_OF_10).await;
        let first = reader.walk(UNREAD_OF_10.trim_end_matches('&'), 1).await;
        poll.got.extend(ids(&first));
        world.resume("fan-out").await;
        poll.next(1).await;
        assert_eq!(poll.once(), BTreeSet::from(["10-1".to_owned(), "10-2".to_owned()]));
    });
}

/// Bytes that API Gateway accepts in a request line and headers together are 10,240. A token needs some of them.
const MOST_BYTES: usize = 7_000;

/// Each of eight authors publishes so many posts. More than a trail has in all.
async fn burst(world: &World, posts_of_each: usize) {
    join_all((10..18).map(async |author| world.user(author).publish_all(vec!["x"; posts_of_each]).await)).await;
    world.idle().await;
}

#[test]
fn a_poll_of_a_busy_feed_fits_a_request_line_and_costs_as_much_as_a_first_page() {
    world_behind_a_proxy(async |world, proxy| {
        let reader = world.live_reader(READER, 10..18).await;
        burst(world, 50).await;
        let firsts = polls(&reader, FEEDS).await;
        burst(world, 50).await;
        for Poll { path, since, .. } in firsts {
            let page = reader.get(&format!("{path}since={since}&limit=100")).await;
            let link = page.header("link").unwrap().to_owned();
            let url = link.split(['<', '>']).nth(1).unwrap();
            println!("{path}: {} bytes of a request line", url.len());
            assert!(url.len() < MOST_BYTES, "{}", url.len());
            assert_eq!(reader.walk(&format!("{path}since={since}"), 100).await.len(), 400);

            // The cost in commands and in units of the facts.
            let since = reader.cursor("first_cursor", path).await;
            let mut costs = Vec::new();
            for request in [path.to_owned(), format!("{path}since={since}")] {
                reader.get(&request).await.ok();
                world.forget_redis_calls().await;
                proxy.meter();
                let page = reader.get(&request).await.ok();
                assert_eq!(page["items"].as_array().unwrap().is_empty(), request.contains("since"));
                let calls: u64 = world.redis_calls().await.into_values().sum();
                costs.push((calls, proxy.meter().units));
            }
            println!("{path}: a first page and a poll without news cost {costs:?} commands and units");
            assert!(costs[1].0 <= costs[0].0 && costs[1].1 <= costs[0].1, "{path}: {costs:?}");
        }
    });
}

/// Without Redis, a page reads the posts of the last minutes up to a bound.
#[test]
fn a_poll_without_redis_reads_a_bounded_number_of_posts() {
    world_behind_a_proxy(async |world, proxy| {
        let reader = world.live_reader(READER, 10..18).await;
        burst(world, 60).await;
        world.stack.stop_redis(RedisData::Lose).await.unwrap();
        let first: Value = reader.get("/v1/feed").await.ok();
        proxy.meter();
        let poll = format!("/v1/feed?since={}", first["first_cursor"].as_str().unwrap());
        reader.get(&poll).await.has(json!({ "items": [], "next_cursor": null, "first_cursor": first["first_cursor"] }));
        let units = proxy.meter().units;
        println!("a poll without news and without Redis: {units} units");
        assert!(units < 150.0, "{units} units");
        world.stack.start_redis().await.unwrap();
        world.redis_recovers().await;
        until("the view is back", async || reader.get(&poll).await.header("degraded").is_none()).await;
        reader.get(&poll).await.has(json!({ "items": [] }));
    });
}

//! The most that one token of a limit can cost. `docs/limits.md` states it in a table, and this test compares the table
//! with what it measures.

use std::{collections::BTreeMap, time::Instant};

use serde_json::json;
use tidemark_tests::{User, World, request_limits, text_of};

use crate::{
    at_once,
    damage::proxy::{Proxy, world_behind_a_proxy, world_behind_a_proxy_with},
};

const READER: u64 = 1;

/// The reader follows the first of these, with a post each. The others have a post each too.
const FOLLOWED: u64 = 100;
const AUTHORS: u64 = 250;

/// An author with so many followers that Redis does not have all of them, and a post that some of them like and repost.
const BIG_AUTHOR: u64 = 400;
/// An author with 20 reposts of posts of others.
const REPOSTING_AUTHOR: u64 = 401;
const FOLLOWERS: std::ops::Range<u64> = 10_000..11_100;
const LIKERS: u64 = 110;
/// The first of the last two of them, who are private.
const PRIVATE: u64 = 348;

/// Read units, write units and Redis commands.
type Cost = [f64; 3];

/// Commands of the test and of connections, not of requests.
const OTHERS: [&str; 8] = ["info", "client", "hello", "config", "ping", "function", "cluster", "command"];

async fn cost(world: &World, proxy: &Proxy, act: impl AsyncFnOnce()) -> Cost {
    world.idle().await;
    let commands = async || {
        let calls = world.redis_calls().await;
        calls.iter().filter(|(name, _)| !OTHERS.iter().any(|other| name.starts_with(other))).map(|(_, calls)| calls).sum::<u64>()
    };
    proxy.meter();
    let before = commands().await;
    act().await;
    world.idle().await;
    let meter = proxy.meter();
    [meter.units - meter.written, meter.written, (commands().await - before) as f64]
}

fn listed(name: &str, values: impl Iterator<Item = String>) -> String {
    values.map(|value| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// A name, the tokens, and the request of each turn. Each turn of a change names other subjects.
type Row = (&'static str, u64, Box<dyn Fn(u64) -> String>);

/// The rows of the table.
#[expect(clippy::too_many_lines, reason = "a table")]
fn requests() -> Vec<Row> {
    let posts = |from: u64, count: u64| (from..from + count).map(|author| format!("{author}-1"));
    let first = 100;
    let other = first + FOLLOWED;
    let users = move |from: u64, count: u64| (from..from + count).map(|user| user.to_string()).collect::<Vec<_>>();
    let mut rows: Vec<Row> = Vec::new();
    let mut row = |name, tokens, request: Box<dyn Fn(u64) -> String>| rows.push((name, tokens, request));
    for (name, path) in [
        ("a page of the feed", "/v1/feed?limit=100"),
        ("a page of the feed with texts", "/v1/feed?limit=100&include=body"),
        ("a page of the ranked feed", "/v1/feed?limit=100&order=ranked"),
        ("a page of the feed, oldest first", "/v1/feed?limit=100&order=oldest"),
        ("a page of the feed with own posts", "/v1/feed?limit=100&own=true"),
        ("unread counts", "/v1/unread"),
        ("a post of a followed author", "/v1/posts/100-1"),
        ("a post of another author", "/v1/posts/220-1"),
        ("a timeline", "/v1/authors/100/posts?limit=100"),
        ("counters", "/v1/users/100/counters"),
        ("a page of followers", "/v1/users/100/followers?limit=100"),
        ("a page of followers with relations", "/v1/users/400/followers?relation=true&limit=100"),
        ("a page of known followers of a big author", "/v1/users/400/followers?known=true&limit=100"),
        ("a page of common authors", "/v1/users/10001/following?common=true&limit=100"),
        ("a user", "/v1/users/100"),
        ("a user who is a big author", "/v1/users/400"),
        ("a page of likers", "/v1/posts/400-1/likes?limit=100"),
        ("a page of reposters", "/v1/posts/400-1/reposts?limit=100"),
        ("a timeline of 20 reposts", "/v1/authors/401/posts?limit=100&include=counts"),
        ("a page of comments", "/v1/posts/400-1/comments?limit=100"),
        ("a page of follow requests", "/v1/follow-requests?limit=100"),
    ] {
        row(name, 1, Box::new(move |_| format!("GET {path}")));
    }
    let notices = "/v1/notices?platform=1&limit=100&include=body";
    row("a page of notices with texts", 1, Box::new(move |_| format!("GET {notices}")));
    let platforms = |_| format!("GET /v1/notices/unread?{}", listed("platform", (1..=100).map(|number| number.to_string())));
    row("100 counts of notices", 100, Box::new(platforms));
    row("100 posts of followed authors", 100, Box::new(move |_| format!("GET /v1/posts?{}", listed("post", posts(first, 100)))));
    row("100 posts of other authors", 100, Box::new(move |_| format!("GET /v1/posts?{}", listed("post", posts(other, 100)))));
    row("100 unknown posts", 100, Box::new(move |_| format!("GET /v1/posts?{}", listed("post", posts(9_000, 100)))));
    row("100 relations", 100, Box::new(move |_| format!("GET /v1/relations?{}", listed("user", users(first, 100).into_iter()))));
    row("100 users", 100, Box::new(move |_| format!("GET /v1/users?{}", listed("user", users(first, 100).into_iter()))));
    let mark =
        move |turn: u64| format!("POST /v1/reads {}", json!({ "posts": posts(first + turn * 30, 30).collect::<Vec<_>>() }));
    row("30 marks", 30, Box::new(mark));
    let mark =
        move |turn: u64| format!("POST /v1/reads {}", json!({ "posts": posts(other + turn * 50, 50).collect::<Vec<_>>() }));
    row("50 marks on posts of other authors", 50, Box::new(mark));
    row("a mark", 1, Box::new(move |turn| format!("PUT /v1/posts/{}-1/read", first + 70 + turn)));
    let before = |turn: u64| if turn == 0 { "2001-01-01T00:00:00Z" } else { "2100-01-01T00:00:00Z" };
    let mark = move |turn: u64| format!("POST /v1/reads {}", json!({ "all": true, "before": before(turn) }));
    row("a mark of everything", 1, Box::new(mark));
    row(
        "50 follows",
        50,
        Box::new(move |turn| format!("POST /v1/following {}", json!({ "authors": users(5_000 + turn * 50, 50) }))),
    );
    row("a follow", 1, Box::new(move |turn| format!("PUT /v1/following/{}", other + turn)));
    row("a request to follow", 1, Box::new(move |turn| format!("PUT /v1/following/{}", PRIVATE + turn)));
    row("a change of privacy", 1, Box::new(|turn| format!("PUT /v1/me/privacy {}", json!({ "private": turn == 0 }))));
    row("an unfollow", 1, Box::new(move |turn| format!("DELETE /v1/following/{}", other + turn)));
    row("a like", 1, Box::new(move |turn| format!("PUT /v1/posts/{}-1/like", other + 10 + turn)));
    row("a repost", 1, Box::new(move |turn| format!("PUT /v1/posts/{}-1/repost", other + 20 + turn)));
    let text = "x".repeat(500);
    let comment = move |turn| format!("POST /v1/posts/{}-1/comments {}", other + 10 + turn, json!({ "text": text }));
    row("a comment", 1, Box::new(comment));
    row("a withdrawn comment", 1, Box::new(move |turn| format!("DELETE /v1/posts/{}-1/comments/1", other + 10 + turn)));
    row("a block", 1, Box::new(move |turn| format!("PUT /v1/blocks/{}", 9_000 + turn)));
    row(
        "a post",
        1,
        Box::new(|turn| format!("POST /v1/posts {}", json!({ "title": format!("{turn}"), "body": "x".repeat(1_000) }))),
    );
    rows
}

/// The stated costs by name: tokens, then cold and warm.
fn stated() -> BTreeMap<String, (u64, [Cost; 2])> {
    let text = text_of("docs/limits.md");
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.trim_end_matches('|').split('|').map(str::trim).collect();
        let numbers: Vec<f64> = cells.get(1..8)?.iter().filter_map(|cell| cell.replace(',', "").parse().ok()).collect();
        let [tokens, costs @ ..] = numbers.as_slice() else { return None };
        let (cold, warm) = costs.split_first_chunk::<3>()?;
        Some((cells[0].to_owned(), (*tokens as u64, [*cold, *warm.first_chunk()?])))
    });
    rows.collect()
}

#[test]
fn a_token_costs_what_the_page_says() {
    world_behind_a_proxy(async |world, proxy| {
        let reader = world.user(READER);
        let ids = |from: u64| (from..from + 50).map(|author| author.to_string()).collect::<Vec<_>>();
        at_once(8, 100..100 + AUTHORS, async |author| {
            world.user(author).post("/v1/posts", &json!({ "title": "one", "body": "text" })).await.ok();
        })
        .await;
        for author in [PRIVATE, PRIVATE + 1] {
            world.user(author).put_body("/v1/me/privacy", &json!({ "private": true })).await.ok();
        }
        for from in [100, 150] {
            reader.post("/v1/following", &json!({ "authors": ids(from) })).await.ok();
            world.user(FOLLOWERS.start + 1).post("/v1/following", &json!({ "authors": ids(from + 50) })).await.ok();
        }
        world.follow_at_once(FOLLOWERS, BIG_AUTHOR).await;
        world.user(BIG_AUTHOR).publish("liked").await;
        at_once(8, FOLLOWERS.take(LIKERS as usize), async |liker| {
            world.user(liker).put(&format!("/v1/posts/{BIG_AUTHOR}-1/like")).await.ok();
            world.user(liker).put(&format!("/v1/posts/{BIG_AUTHOR}-1/repost")).await.ok();
            let comment = json!({ "text": "x".repeat(200) });
            world.user(liker).post(&format!("/v1/posts/{BIG_AUTHOR}-1/comments"), &comment).await.ok();
        })
        .await;
        for author in 100..120 {
            world.user(REPOSTING_AUTHOR).put(&format!("/v1/posts/{author}-1/repost")).await.ok();
        }
        for _ in 0..100 {
            let notice = json!({ "platforms": [1], "title": "one", "body": "text" });
            world.administrator().post("/v1/notices", &notice).await.ok();
        }
        world.idle().await;
        let sent = async |reader: &User, request: String| {
            let response = reader.request(&request).await;
            assert!(response.status < 300 || response.status == 404, "{request}: {} {}", response.status, response.body);
        };
        let (stated, mut measured) = (stated(), Vec::new());
        for (name, tokens, request) in requests() {
            world.flush_redis().await;
            let cold = cost(world, proxy, async || sent(&reader, request(0)).await).await;
            // On a busy machine, one request may lose the leases for what it has read.
            let is_read = request(0).starts_with("GET");
            for _ in 0..3 {
                sent(&reader, if is_read { request(0) } else { "GET /v1/unread".to_owned() }).await;
            }
            let warm = cost(world, proxy, async || sent(&reader, request(1)).await).await;
            let cells: Vec<String> = cold.iter().chain(&warm).map(|cost| format!("{cost:.0}")).collect();
            println!("| {name} | {tokens} | {} |", cells.join(" | "));
            measured.push((name, tokens, [cold, warm]));
        }
        for (name, tokens, costs) in measured {
            let Some((of, most)) = stated.get(name) else { panic!("docs/limits.md does not state: {name}") };
            assert_eq!(*of, tokens, "{name}");
            // On a quick machine the projector gets large batches of these marks, and has little to do.
            let slack = if name == "30 marks" { 1.8 } else { 1.5 };
            for (cost, most) in costs.as_flattened().iter().zip(most.as_flattened()) {
                assert!(cost <= most && *most <= slack * cost + 12.0, "{name}: {costs:?}, stated {most:?}");
            }
        }
    });
}

/// Read units that a request's first token pays for, and those of each other token (docs/limits.md).
const UNITS_OF_THE_FIRST_TOKEN: f64 = 100.0;
const UNITS_OF_A_TOKEN: f64 = 25.0;
const READS_A_MINUTE: u32 = 8;

#[test]
fn a_request_pays_for_the_facts_that_it_reads() {
    world_behind_a_proxy_with(request_limits([0, 0, 0, 0, READS_A_MINUTE]), async |world, proxy| {
        let (reader, light) = (world.user(READER), world.user(READER + 1));
        at_once(8, 100..140, async |author| {
            world.user(author).post("/v1/posts", &json!({ "title": "one", "body": "text" })).await.ok();
        })
        .await;
        let authors: Vec<String> = (100..140).map(|author: u64| author.to_string()).collect();
        reader.post("/v1/following", &json!({ "authors": authors })).await.ok();
        light.follow([100, 101]).await;
        world.idle().await;
        world.flush_redis().await;
        proxy.meter();
        reader.get("/v1/feed?limit=100&include=body").await.ok();
        let meter = proxy.meter();
        let units = meter.units - meter.written;
        let owed = ((units - UNITS_OF_THE_FIRST_TOKEN) / UNITS_OF_A_TOKEN).ceil();
        let refused = reader.get("/v1/unread").await;
        assert_eq!(refused.status, 429, "{units} units");
        // The bucket has paid a token and owes the others. The next request needs one.
        let expected = (owed + 2.0 - f64::from(READS_A_MINUTE)) * 60.0 / f64::from(READS_A_MINUTE);
        let wait: f64 = refused.header("retry-after").unwrap().parse().unwrap();
        println!("{units} units: the next request is allowed in {wait} s, expected {expected:.0} s");
        assert!(wait > 0.8 * expected - 5.0 && wait <= expected + 1.0, "{units} units: {wait} s, expected {expected} s");
        // Requests that read little take one token each, the first ones without views too.
        let (started, mut allowed) = (Instant::now(), 0);
        while light.get("/v1/feed").await.status == 200 {
            allowed += 1;
        }
        let most = READS_A_MINUTE + 1 + (started.elapsed().as_secs_f64() * f64::from(READS_A_MINUTE) / 60.0) as u32;
        assert!((READS_A_MINUTE..=most).contains(&allowed), "{allowed} requests");
    });
}

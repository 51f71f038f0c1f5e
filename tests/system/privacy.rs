//! One pair of a private author and a reader, and eight clients at once: privacy, requests, withdrawals, acceptances,
//! rejections, blocks and unfollows, in weather that loses responses and kills processes. Afterwards all facts agree.
//! Nobody sees a title of an author who was private all the time and has not accepted them.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures::{FutureExt, future::join_all};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tidemark_local::{Fault, FaultAction};
use tidemark_tests::{Response, World, number_from, texts, world};

use crate::damage::proxy::{Fate, world_behind_a_proxy};

/// `TIDEMARK_PRIVACY_STORMS` of them.
const STORMS: u64 = 20;

const CLIENTS: usize = 8;

/// Sends a request until it has a final response.
async fn patiently(world: &World, user: u64, request: &str) -> Response {
    loop {
        let response = world.user(user).request(request).await;
        if response.is_final() {
            return response;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn requests_follows_and_blocks_exclude_each_other_after_a_storm() {
    world(async |world| {
        for seed in 0..number_from("TIDEMARK_PRIVACY_STORMS", STORMS) {
            storm(world, seed).await;
        }
    });
}

/// What a client does. The last word is the number of the user: 0 for the reader, 1 for the author.
const STEPS: [(&str, usize); 12] = [
    (r#"PUT /v1/me/privacy {"private": true}"#, 1),
    (r#"PUT /v1/me/privacy {"private": false}"#, 1),
    ("PUT /v1/following/$author", 0),
    ("PUT /v1/following/$author", 0),
    (r#"POST /v1/following {"authors": ["$author"]}"#, 0),
    ("DELETE /v1/following/$author", 0),
    ("PUT /v1/follow-requests/$reader", 1),
    ("PUT /v1/follow-requests/$reader", 1),
    ("DELETE /v1/follow-requests/$reader", 1),
    ("PUT /v1/blocks/$reader", 1),
    ("DELETE /v1/blocks/$reader", 1),
    ("DELETE /v1/blocks/$reader", 1),
];

async fn storm(world: &World, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let (reader, author) = (5_000_000 + seed * 2, 5_000_001 + seed * 2);
    world.user(author).publish("secret").await;
    patiently(world, author, r#"PUT /v1/me/privacy {"private": true}"#).await.ok();
    if rng.random() {
        world.user(reader).feed_ids().await;
    }
    // A request and its end, a change of the head, and a fence.
    let writes = [("TransactWriteItems", "FollowingTable"), ("UpdateItem", "PostsTable"), ("UpdateItem", "CountersTable")];
    for _ in 0..4 {
        let action = if rng.random() { FaultAction::LoseResponse } else { FaultAction::Kill };
        let (operation, table) = writes[rng.random_range(0..writes.len())];
        world.stack.faults().add(Fault::new(operation, action).on(table));
    }
    let plans: Vec<Vec<usize>> = (0..CLIENTS).map(|_| (0..4).map(|_| rng.random_range(0..STEPS.len())).collect()).collect();
    join_all(plans.into_iter().map(async |plan| {
        for step in plan {
            let (request, who) = STEPS[step];
            let request = request.replace("$author", &author.to_string()).replace("$reader", &reader.to_string());
            let response = patiently(world, [reader, author][who], &request).await;
            assert!(matches!(response.status, 200 | 403 | 404), "storm {seed}: {request}: {}", response.body);
        }
    }))
    .await;
    world.stack.faults().clear();
    world.idle().await;
    assert_agrees(world, reader, author, seed).await;
}

/// Asserts that lists, counters, pages of requests and posts say the same of the pair, with views and without.
async fn assert_agrees(world: &World, reader: u64, author: u64, seed: u64) {
    let [one, other] = [reader, author].map(|user| world.user(user));
    for _ in 0..2 {
        let user = one.get(&format!("/v1/users/{author}")).await.ok();
        let [following, requested] = ["following", "requested"].map(|state| user["relation"][state] == true);
        let blocked = other.get(&format!("/v1/users/{reader}")).await.ok()["relation"]["blocked"] == true;
        let states = [following, requested, blocked];
        assert!(states.iter().filter(|state| **state).count() <= 1, "storm {seed}: {states:?}");
        for (caller, query, listed) in [(&other, "", reader), (&one, "?direction=sent", author)] {
            let page = caller.get(&format!("/v1/follow-requests{query}")).await.ok();
            let expected: Vec<String> = requested.then(|| listed.to_string()).into_iter().collect();
            assert_eq!(texts(page["items"].as_array().unwrap(), "user"), expected, "storm {seed}");
            assert_eq!(page["total"], expected.len(), "storm {seed}");
        }
        let edges = usize::from(following);
        for (of, list, counter) in [(reader, "following", "followings"), (author, "followers", "followers")] {
            assert_eq!(one.walk(&format!("/v1/users/{of}/{list}"), 9).await.len(), edges, "storm {seed}: {list}");
            let counters = one.get(&format!("/v1/users/{of}/counters")).await.ok();
            assert_eq!(counters[counter], edges, "storm {seed}: {counter}");
        }
        let status = match (blocked, user["private"] == true && !following) {
            (true, _) => (403, "/problems/blocked"),
            (false, true) => (403, "/problems/private"),
            (false, false) => (200, ""),
        };
        for path in [format!("posts/{author}-1"), format!("authors/{author}/posts")] {
            let response = one.get(&format!("/v1/{path}")).await;
            let problem = if response.status == 200 { (200, "") } else { response.problem() };
            assert_eq!(problem, status, "storm {seed}: {path}");
        }
        assert_eq!(one.feed_ids().await.len(), edges, "storm {seed}: feed");
        world.flush_redis().await;
    }
}

/// While the author is private and accepts nobody, no interleaving of requests and blocks shows a title, whatever the
/// views of the reader are, and whatever is lost.
#[test]
fn nobody_sees_a_title_after_privacy_was_acknowledged() {
    world(async |world| {
        for seed in 0..number_from("TIDEMARK_PRIVACY_STORMS", STORMS) {
            let mut rng = StdRng::seed_from_u64(seed);
            let author = 6_000_000 + seed;
            let readers: Vec<u64> = (0..CLIENTS as u64).map(|number| 7_000_000 + seed * 100 + number).collect();
            let post = world.user(author).publish("secret").await;
            let flush = rng.random_bool(0.3);
            let plans: Vec<Vec<u8>> = readers.iter().map(|_| (0..6).map(|_| rng.random_range(0..6)).collect()).collect();
            let acknowledged = std::cell::Cell::new(false);
            let turn_private = async {
                patiently(world, author, r#"PUT /v1/me/privacy {"private": true}"#).await.ok();
                let followers = world.user(author).walk(&format!("/v1/users/{author}/followers"), 100).await;
                acknowledged.set(true);
                if flush {
                    world.flush_redis().await;
                }
                followers
            };
            let storm = join_all(readers.iter().zip(plans).map(async |(&reader, plan)| {
                let mut late = Vec::new();
                for step in plan {
                    let request = match step {
                        0 => format!("PUT /v1/following/{author}"),
                        1 => format!("GET /v1/posts/{post}"),
                        2 => format!("GET /v1/authors/{author}/posts"),
                        3 => format!("GET /v1/posts?post={post}"),
                        4 => "GET /v1/feed".to_owned(),
                        _ => format!("PUT /v1/posts/{post}/like"),
                    };
                    let began_after = acknowledged.get();
                    let response = patiently(world, reader, &request).await;
                    if began_after && response.body.to_string().contains("secret") {
                        late.push((reader, request));
                    }
                }
                late
            }));
            let (followers, late) = futures::join!(turn_private, storm);
            let accepted = texts(&followers, "user");
            // Who follows in time, or a moment before the list was read, is accepted.
            let wrong: Vec<&(u64, String)> =
                late.iter().flatten().filter(|(reader, _)| !accepted.contains(&reader.to_string())).collect();
            assert!(wrong.is_empty(), "storm {seed}: {wrong:?}");
            world.idle().await;
            let after: Value =
                json!(texts(&world.user(author).walk(&format!("/v1/users/{author}/followers"), 100).await, "user"));
            assert_eq!(after, json!(accepted), "storm {seed}: a follow began after privacy was acknowledged");
        }
    });
}

/// Pages whose posts are read from the facts. Meanwhile the author removes the reader, and writes the title.
#[test]
fn a_title_that_came_after_the_reader_was_removed_is_not_shown() {
    const AUTHOR: u64 = 6_100_000;
    const READER: u64 = 6_100_001;
    const QUOTING: u64 = 6_100_002;
    let of_own = ["/v1/posts/6100000-1", "/v1/posts?post=6100000-1"];
    let of_others = ["/v1/authors/6100002/posts", "/v1/feed"];
    let cases = of_own.map(|path| (path, false)).into_iter().chain(of_others.map(|path| (path, true)));
    for (path, is_quoted) in cases {
        world_behind_a_proxy(async |world, proxy| {
            let (author, reader) = (world.user(AUTHOR), world.user(READER));
            reader.follow([QUOTING]).await;
            if is_quoted {
                author.publish("public").await;
                world.user(QUOTING).post("/v1/posts", &json!({ "title": "see", "of": "6100000-1" })).await.ok();
            } else {
                reader.follow([AUTHOR]).await;
                author.put_body("/v1/me/privacy", &json!({ "private": true })).await.ok();
            }
            world.idle().await;
            // Redis knows what the reader follows.
            reader.feed_ids().await;
            if is_quoted {
                world.stack.app("read-feed").unwrap().stores.views.clear_posts(&["6100000-1".parse().unwrap()]).await.unwrap();
            }
            let function = if is_quoted { "read-feed" } else { "publish" };
            let (writing, begun) = (author.clone(), AtomicBool::new(false));
            proxy.rule(move |asked| {
                let first = asked.is(function, "BatchGetItem", "6100000") && !begun.swap(true, Ordering::SeqCst);
                let writing = first.then(|| writing.clone());
                async move {
                    if let Some(author) = writing {
                        let title = json!({ "title": "secret" });
                        if is_quoted {
                            author.put_body("/v1/me/privacy", &json!({ "private": true })).await.ok();
                            author.put_body("/v1/posts/6100000-1", &title).await.ok();
                        } else {
                            author.delete(&format!("/v1/followers/{READER}")).await.ok();
                            author.post("/v1/posts", &title).await.ok();
                        }
                    }
                    Fate::Forwarded
                }
                .boxed()
            });
            let page = reader.get(path).await;
            proxy.forward_all();
            assert!(author.get("/v1/posts/6100000-1").await.ok()["title"] == "secret", "{path}: it was written meanwhile");
            assert!(!page.body.to_string().contains("secret"), "{path}: {page:?}");
        });
    }
}

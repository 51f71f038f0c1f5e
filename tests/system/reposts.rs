//! Reposts and quotes while their originals come and go, and while requests are disturbed.

use std::{
    cell::Cell,
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use futures::{FutureExt, future::join_all};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tidemark_local::{Fault, FaultAction};
use tidemark_tests::{World, texts, world};

use crate::{
    damage::proxy::{Fate, world_behind_a_proxy},
    request,
};

const AUTHOR: u64 = 10;
const REPOSTER: u64 = 2;

/// Whether a page shows the title of an original.
fn shows_a_title(page: &Value) -> bool {
    page["items"].as_array().unwrap().iter().any(|item| item["of"].get("title").is_some())
}

/// What the author or a reader does, and what takes it back.
const WITHHOLDS: [[&str; 2]; 2] = [
    ["10: PUT /v1/blocks/$reader", "10: DELETE /v1/blocks/$reader"],
    ["$reader: PUT /v1/blocks/10", "$reader: DELETE /v1/blocks/10"],
];

#[test]
fn no_page_that_begins_after_the_response_shows_a_title_that_it_withholds() {
    world(async |world| {
        world.user(AUTHOR).publish("secret").await;
        let reposter = world.user(REPOSTER);
        reposter.put("/v1/posts/10-1/repost").await.ok();
        reposter.post("/v1/posts", &json!({ "title": "see", "of": "10-1" })).await.ok();
        join_all((100..108).map(async |reader| world.user(reader).follow([REPOSTER]).await)).await;
        world.idle().await;
        let changing = Cell::new(8);
        let readers = join_all((100..108).map(async |reader: u64| {
            // Odd while the original is withheld from the reader.
            let (state, withheld, done) = (Cell::new(0_u64), Cell::new(0), Cell::new(false));
            let change = async {
                let mut rng = StdRng::seed_from_u64(reader);
                for round in 1..=30 {
                    let [withhold, show] = WITHHOLDS[rng.random_range(0..2)];
                    let cast = |line: &str| line.replace("$reader", &reader.to_string());
                    request(world, &cast(withhold), &[]).await.ok();
                    state.set(state.get() + 1);
                    while withheld.get() < round {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    tokio::time::sleep(Duration::from_millis(rng.random_range(0..40))).await;
                    state.set(state.get() + 1);
                    request(world, &cast(show), &[]).await.ok();
                }
                done.set(true);
            };
            let read = async {
                let user = world.user(reader);
                while !done.get() {
                    for path in ["/v1/feed", "/v1/authors/2/posts", "/v1/feed?order=ranked", "/v1/posts?post=2-1&post=2-2"] {
                        let before = state.get();
                        let page = user.get(path).await.ok();
                        assert_eq!(page["items"].as_array().unwrap().len(), 2, "{path}: items stay");
                        if before % 2 == 1 && state.get() == before {
                            withheld.set(withheld.get() + 1);
                            assert!(!shows_a_title(&page), "{path} of {reader}: {page}");
                        }
                    }
                }
            };
            futures::join!(change, read);
            changing.set(changing.get() - 1);
        }));
        let flush = async {
            while changing.get() > 0 {
                tokio::time::sleep(Duration::from_millis(700)).await;
                world.flush_redis().await;
            }
        };
        futures::join!(readers, flush);
    });
}

/// The same for all readers at once. One author after another ends the title of a post, and the last one leaves.
#[test]
fn no_page_shows_a_title_after_its_author_is_private_has_deleted_it_or_leaves() {
    world(async |world| {
        let reposter = world.user(REPOSTER);
        reposter.publish("own").await;
        join_all((100..108).map(async |reader| world.user(reader).follow([REPOSTER]).await)).await;
        for round in 1..=9 {
            let author = world.user(AUTHOR + round);
            let post = author.publish("secret").await;
            reposter.put(&format!("/v1/posts/{post}/repost")).await.ok();
            world.idle().await;
            let is_withheld = Cell::new(false);
            let change = async {
                tokio::time::sleep(Duration::from_millis(round * 7 % 40)).await;
                match round {
                    9 => author.delete("/v1/me").await.ok(),
                    _ if round % 2 == 0 => author.delete(&format!("/v1/posts/{post}")).await.ok(),
                    _ => author.put_body("/v1/me/privacy", &json!({ "private": true })).await.ok(),
                };
                is_withheld.set(true);
            };
            let read = join_all((100..108).map(async |reader: u64| {
                let (user, begun) = (world.user(reader), Instant::now());
                while begun.elapsed() < Duration::from_millis(300) {
                    let before = is_withheld.get();
                    let page = user.get("/v1/feed?limit=1").await.ok();
                    assert_eq!(page["items"][0]["of"]["id"], *post, "{page}");
                    assert!(!(before && shows_a_title(&page)), "round {round}, {reader}: {page}");
                }
            }));
            futures::join!(change, read);
        }
    });
}

/// It was public when the repost was allowed. The repost stands, and shows nothing.
#[test]
fn an_original_that_turns_private_during_its_repost_is_not_shown() {
    world_behind_a_proxy(async |world, proxy| {
        let post = world.user(AUTHOR).publish("secret").await;
        let (reposter, reader) = (world.user(REPOSTER), world.user(100));
        reader.follow([REPOSTER]).await;
        world.idle().await;
        let (author, begun) = (world.user(AUTHOR), AtomicBool::new(false));
        proxy.rule(move |asked| {
            let first = asked.is("publish", "TransactWriteItems", "PostsTable") && !begun.swap(true, Ordering::SeqCst);
            let turning = first.then(|| author.clone());
            async move {
                if let Some(author) = turning {
                    author.put_body("/v1/me/privacy", &json!({ "private": true })).await.ok();
                }
                Fate::Forwarded
            }
            .boxed()
        });
        let path = format!("/v1/posts/{post}/repost");
        reposter.put(&path).await.ok();
        assert_eq!(world.user(AUTHOR).get("/v1/me").await.ok()["private"], true, "it was during the repost");
        proxy.forward_all();
        for _ in 0..2 {
            world.idle().await;
            for path in ["/v1/feed", "/v1/authors/2/posts"] {
                let page = reader.get(path).await.ok();
                assert_eq!(page["items"].as_array().unwrap().len(), 1, "{path}: {page}");
                assert!(!shows_a_title(&page), "{path}: {page}");
            }
            world.flush_redis().await;
        }
        reposter.delete(&path).await.ok();
        world.idle().await;
        assert_eq!(reader.get("/v1/feed").await.ok()["items"], json!([]));
    });
}

const STORMS: u64 = 10;

/// What a client of a storm sends, as one of the users.
const STEPS: [&str; 8] = [
    "PUT /v1/posts/$post/repost",
    "PUT /v1/posts/$post/repost",
    "PUT /v1/posts/$post/repost",
    "DELETE /v1/posts/$post/repost",
    "DELETE /v1/posts/$post/repost",
    r#"POST /v1/posts {"title": "see", "of": "$post"}"#,
    "DELETE /v1/posts/$post",
    "PUT /v1/posts/$post/like",
];

#[test]
fn posts_lists_and_counts_of_reposts_agree_after_a_storm() {
    world(async |world| {
        for seed in 0..STORMS {
            storm(world, seed).await;
        }
        let report = world.walk_over_all_users(true, Duration::ZERO).await;
        assert_eq!((report.differences, report.failed), (BTreeSet::new(), 0));
    });
}

async fn storm(world: &World, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let users: Vec<u64> = (0..4).map(|index| 1_000 + seed * 10 + index).collect();
    for user in &users {
        world.user(*user).publish("one").await;
    }
    for _ in 0..5 {
        let action = if rng.random() { FaultAction::LoseResponse } else { FaultAction::Kill };
        let table = ["ReactedTable", "PostsTable", "ReactionsTable"][rng.random_range(0..3)];
        world.stack.faults().add(Fault::new("TransactWriteItems", action).of("publish").on(table));
    }
    let plans: Vec<Vec<(u64, String)>> = (0..8)
        .map(|_| {
            let step = |_| {
                let [user, author] = [(); 2].map(|()| users[rng.random_range(0..users.len())]);
                let post = format!("{author}-{}", rng.random_range(1..4));
                (user, STEPS[rng.random_range(0..STEPS.len())].replace("$post", &post))
            };
            (0..6).map(step).collect()
        })
        .collect();
    join_all(plans.into_iter().map(async |plan| {
        for (user, request) in plan {
            let response = loop {
                let response = world.user(user).request(&request).await;
                if response.is_final() {
                    break response;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            };
            assert!(matches!(response.status, 200 | 201 | 204 | 403 | 404), "storm {seed}: {request}: {}", response.body);
        }
    }))
    .await;
    world.stack.faults().clear();
    world.idle().await;
    assert_agrees(world, &users, seed).await;
}

/// Each live post is reposted by exactly the users who have a live repost of it, once each.
async fn assert_agrees(world: &World, users: &[u64], seed: u64) {
    let reader = world.user(1);
    let mut live = Vec::new();
    for user in users {
        live.extend(reader.walk(&format!("/v1/authors/{user}/posts?include=counts"), 100).await);
    }
    for post in live.iter().filter(|post| !post["title"].is_null()) {
        let id = post["id"].as_str().unwrap();
        let of = |other: &&Value| other["title"].is_null() && other["of"]["id"] == id;
        let mut expected = texts(live.iter().filter(of), "author");
        expected.sort_unstable();
        let mut listed = texts(&reader.walk(&format!("/v1/posts/{id}/reposts"), 2).await, "user");
        listed.sort_unstable();
        assert_eq!(listed, expected, "storm {seed}, {id}");
        assert_eq!(post["reposts"], expected.len(), "storm {seed}, {id}");
        expected.dedup();
        assert_eq!(expected.len(), listed.len(), "storm {seed}, {id}: once each");
    }
}

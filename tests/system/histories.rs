//! Random histories through the API, with deliveries held back, repeated and reordered and Redis flushed, against the model.

use std::collections::BTreeSet;

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::json;
use tidemark_tests::{Model, World, world};

use crate::delivery::resend;

/// Histories in one run, and operations in each.
const HISTORIES: u64 = 30;
const OPERATIONS: usize = 60;

#[tokio::test]
async fn random_histories_end_as_the_model_says() {
    world(async |world| {
        for seed in 0..HISTORIES {
            history(world, seed).await;
        }
    })
    .await;
}

async fn history(world: &World, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut model = Model::default();
    // Users of this history alone: 6 who read and write.
    let users: Vec<u64> = (0..6).map(|index| (seed + 1) * 1_000_000_007 + index).collect();
    let mut held = false;
    for _ in 0..OPERATIONS {
        let user = users[rng.random_range(0..users.len())];
        let author = users[rng.random_range(0..users.len())];
        let latest = model.latest(author);
        let seq = rng.random_range(1..=latest.max(1));
        let caller = world.user(user);
        match rng.random_range(0..100) {
            0..18 if user != author => {
                caller.put(&format!("/v1/following/{author}")).await.ok();
                model.follow(user, author);
            }
            18..26 => {
                caller.delete(&format!("/v1/following/{author}")).await.ok();
                model.unfollow(user, author);
            }
            26..52 => {
                let id = caller.publish("x").await;
                assert_eq!(id, format!("{user}-{}", model.publish(user)));
            }
            52..57 if model.latest(user) > 0 => {
                let seq = rng.random_range(1..=model.latest(user));
                caller.delete(&format!("/v1/posts/{user}-{seq}")).await.ok();
                model.delete((user, seq));
            }
            57..68 => {
                let read = rng.random_bool(0.7);
                let path = format!("/v1/posts/{author}-{seq}/read");
                let answer = if read { caller.put(&path).await } else { caller.delete(&path).await };
                assert_eq!(answer.status == 200, model.is_live((author, seq)), "{path}: {}", answer.body);
                model.mark(user, (author, seq), read);
            }
            68..74 => {
                caller.post("/v1/reads", &json!({ "author": author.to_string(), "through": seq })).await.ok();
                model.through(user, author, seq);
            }
            74..77 => {
                caller.post("/v1/reads", &json!({ "all": true })).await.ok();
                model.all(user);
            }
            77..82 => drop(caller.get("/v1/feed?limit=3").await.ok()),
            82..85 => world.flush_redis().await,
            85..92 => {
                for function in ["fan-out", "relation-projector"] {
                    if held { world.stack.resume(function).unwrap() } else { world.stack.pause(function).await.unwrap() }
                }
                held = !held;
            }
            92..95 if held => drop(resend(world, 2).await),
            _ => {}
        }
    }
    for function in ["fan-out", "relation-projector"] {
        world.stack.resume(function).unwrap();
    }
    world.idle().await;
    for &user in &users {
        compare(world, &model, user, seed).await;
    }
}

async fn compare(world: &World, model: &Model, user: u64, seed: u64) {
    let caller = world.user(user);
    let parse = |id: &str| {
        let (author, seq) = id.split_once('-').unwrap();
        (author.parse::<u64>().unwrap(), seq.parse::<u64>().unwrap())
    };
    let feed: Vec<_> = caller.feed("all").await.iter().map(|(id, read)| (parse(id), *read)).collect();
    let expected: BTreeSet<_> = model.feed(user).into_iter().collect();
    assert_eq!(feed.iter().copied().collect::<BTreeSet<_>>(), expected, "seed {seed}, feed of {user}");
    assert_eq!(feed.len(), expected.len(), "seed {seed}, feed of {user}: an entry twice");
    let unread: BTreeSet<_> = caller.feed("unread").await.iter().map(|(id, _)| parse(id)).collect();
    let expected: BTreeSet<_> = expected.into_iter().filter(|(_, read)| !read).map(|(post, _)| post).collect();
    assert_eq!(unread, expected, "seed {seed}, unread of {user}");
    assert_eq!(caller.unread_total().await, model.unread_total(user), "seed {seed}, total of {user}");
    for author in model.following(user) {
        let count = caller.get(&format!("/v1/unread/{author}")).await.ok();
        assert_eq!(count["unread"], model.unread_of(user, author), "seed {seed}, {user} of {author}");
        let page = caller.get(&format!("/v1/authors/{author}/posts?status=unread")).await.ok();
        assert_eq!(page["total"], model.unread_of(user, author), "seed {seed}, {user} of {author}");
    }
}

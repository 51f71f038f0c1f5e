//! Tests across routes: repeated, late, reordered and interrupted work; loss of Redis; a restart of the stack; random
//! histories compared with a model.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod attack;
mod burst;
mod cells;
mod chaos;
mod cluster;
mod cost;
mod damage;
mod delivery;
mod entries;
mod epochs;
mod events;
mod growth;
mod hang;
mod herd;
mod histories;
mod hot;
mod iam;
mod inbox;
mod leaving;
mod likes;
mod live;
mod losses;
#[path = "../../shared/legacy/tests/migration/mod.rs"]
mod migration;
mod notice_counts;
mod notice_histories;
mod notice_readers;
mod notices;
mod once;
mod operations;
mod outage;
mod pages;
mod permissions;
mod polls;
mod privacy;
mod pull;
mod ranked;
mod rebuild;
mod refill;
mod repeats;
mod reposts;
mod restore;
mod resumption;
#[path = "../../shared/legacy/tests/rollout/mod.rs"]
mod rollout;
mod slots;
mod stack;
mod start;
mod storms;
mod token;
mod transfer;
mod turns;
mod views;
mod windows;

use std::{fmt::Display, time::Duration};

use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use tidemark_local::{Fault, FaultAction};
use tidemark_tests::{Response, World};

/// The values of these fields of an object, as an array.
fn fields(object: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| object[*name].clone()).collect()
}

/// Each of these authors publishes a post with each of these titles. Waits until no work is left.
async fn publish_and_deliver_all(
    world: &World,
    authors: impl IntoIterator<Item = u64>,
    titles: impl IntoIterator<Item: ToString> + Clone,
) {
    for author in authors {
        world.user(author).publish_all(titles.clone()).await;
    }
    world.idle().await;
}

/// Publishes a notice with each of these titles.
async fn publish_notices(world: &World, platforms: &[u16], titles: impl IntoIterator<Item: Display>) {
    for title in titles {
        let notice = json!({ "platforms": platforms, "title": title.to_string() });
        world.administrator().post("/v1/notices", &notice).await.ok();
    }
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: f64| times.get((times.len().saturating_sub(1) as f64 * share) as usize).copied().unwrap_or_default();
    format!("p50 {:.0?}, p99 {:.0?}, longest {:.0?}", at(0.5), at(0.99), at(1.0))
}

/// Lets an operation of DynamoDB or SQS fail, also when the SDK repeats it.
fn refusal(operation: &str) -> Fault {
    Fault::new(operation, FaultAction::FailBefore("InternalServerError".to_owned())).times(usize::MAX)
}

/// Sends a request, which is written as `token: METHOD path body`.
async fn request(world: &World, request: &str, headers: &[(&str, &str)]) -> Response {
    let (token, request) = request.split_once(": ").unwrap();
    world.stranger(Some(token)).request_with(headers, request).await
}

/// Does something for each of these, at most `most` at a time.
async fn at_once<T>(most: usize, all: impl IntoIterator<Item = T>, act: impl AsyncFn(T)) {
    stream::iter(all).for_each_concurrent(most, async |one| act(one).await).await;
}

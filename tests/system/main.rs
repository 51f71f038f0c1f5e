//! Tests across routes: repeated, late, reordered and interrupted work; loss of Redis; a restart of the stack; random
//! histories compared with a model.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod attack;
mod cells;
mod chaos;
mod cluster;
mod cost;
mod damage;
mod delivery;
mod epochs;
mod events;
mod hang;
mod herd;
mod histories;
mod hot;
mod lag;
mod leaving;
mod likes;
mod live;
mod migration;
mod notice_counts;
mod notice_histories;
mod notices;
mod operations;
mod outage;
mod pages;
mod permissions;
mod pull;
mod pull_histories;
mod ranked;
mod rebuild;
mod repeats;
mod resumption;
mod rollout;
mod storms;
mod traffic;
mod turns;
mod upgrade;
mod views;
mod warm;
mod weather;
mod windows;

use std::fmt::Display;

use serde_json::{Value, json};
use tidemark_tests::World;

/// The values of these fields of an object, as an array.
fn fields(object: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| object[*name].clone()).collect()
}

/// Publishes a notice with each of these titles.
async fn publish_notices(world: &World, platforms: &[u16], titles: impl IntoIterator<Item: Display>) {
    for title in titles {
        let notice = json!({ "platforms": platforms, "title": title.to_string() });
        world.administrator().post("/v1/notices", &notice).await.ok();
    }
}

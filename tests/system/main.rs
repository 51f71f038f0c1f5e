//! Tests across routes: repeated, late, reordered and interrupted work; loss of Redis; a restart of the stack; random
//! histories compared with a model.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod attack;
mod cells;
mod chaos;
mod claims;
mod cluster;
mod cost;
mod damage;
mod deleted_runs;
mod delivery;
mod epochs;
mod events;
mod hang;
mod histories;
mod hot;
mod killed;
mod lag;
mod leaving;
mod likes;
mod live;
mod migration;
mod notice_counts;
mod notice_histories;
mod notice_model;
mod notices;
mod operations;
mod outage;
mod pages;
mod permissions;
mod poison;
mod pull;
mod pull_histories;
mod ranked;
mod rebuild;
mod repeats;
mod restart;
mod resumption;
mod rollout;
mod silence;
mod storms;
mod traffic;
mod views;
mod warm;
mod weather;
mod windows;

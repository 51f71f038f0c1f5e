//! What holds across routes: repeated, late, reordered, half done and cut off; Redis lost; the stack started again; random histories against a model.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod cluster;
mod cost;
mod delivery;
mod events;
mod histories;
mod killed;
mod likes;
mod notice_counts;
mod notices;
mod outage;
mod pages;
mod poison;
mod pull;
mod rebuild;
mod restart;
mod resumption;
mod silence;
mod storms;
mod traffic;
mod views;

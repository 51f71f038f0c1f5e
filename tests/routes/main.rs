//! The HTTP API, route by route. Each module tests a group of routes on a whole stack.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod authors;
mod blocks;
mod browsers;
mod errors;
mod feed;
mod following;
mod limits;
mod lines;
mod lists;
mod metrics;
mod mistakes;
mod mutes;
mod notices;
mod openapi;
mod people;
mod post_texts;
mod posts;
mod ranked;
mod reactions;
mod reads;
mod relations;
mod samples;
mod since;
mod smoke;
mod template;

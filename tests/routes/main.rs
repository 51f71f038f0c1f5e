//! The HTTP API, route by route. Each module tests a group of routes on a whole stack.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod comments;
mod events;
mod every_route;
mod feed;
mod hiding;
mod inbox;
mod keys;
mod likers;
mod limits;
mod lists;
mod metrics;
mod mistakes;
mod notices;
mod oldest;
mod openapi;
mod own;
mod people;
mod posts;
mod private;
mod profiles;
mod ranked;
mod reactions;
mod reads;
mod relations;
mod reposts;
mod smoke;
mod strict;
mod template;
mod visibility;

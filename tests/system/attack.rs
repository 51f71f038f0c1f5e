//! A caller far beyond the limits: what a refused request costs. `make load-test` measures what other callers feel.

use std::sync::{Arc, Mutex};

use tidemark_tests::{World, request_limits};

use crate::{
    damage::proxy::{Fate, world_behind_a_proxy_with},
    request,
};

/// The author of the posts, whom all users follow.
const AUTHOR: u64 = 2;

const POST: &str = r#"POST /v1/posts {"title": "x"}"#;
const READ_ALL: &str = r#"POST /v1/reads {"all": true}"#;

async fn send(world: &World, user: u64, line: &str) -> u16 {
    request(world, &format!("{user}: {line}"), &[]).await.status
}

/// A path of every kind of read.
const READS: &str = "
    /v1/feed /v1/feed?order=ranked /v1/feed?list=1-1 /v1/unread /v1/unread?list=1-1 /v1/unread/2
    /v1/authors/2/posts /v1/authors/2/posts?status=unread&include=body
    /v1/posts/2-1 /v1/posts?post=2-1 /v1/posts/2-1/delivery
    /v1/me /v1/me/likes /v1/users/2 /v1/users?user=2 /v1/handles/ada
    /v1/users/2/following /v1/users/2/followers?offset=1 /v1/users/2/counters /v1/relations/2 /v1/mutes /v1/blocks
    /v1/lists /v1/lists/1-1/authors
    /v1/notices?platform=1 /v1/notices/1-1 /v1/notices/unread?platform=1";

#[test]
fn a_request_over_its_limit_reads_no_facts() {
    let reads = READS.split_whitespace().map(|path| ("GET /v1/unread", format!("GET {path}")));
    let changes = [
        ("PUT /v1/mutes/5", "PUT /v1/following/2"),
        ("PUT /v1/posts/2-1/like", "PUT /v1/posts/2-1/favorite"),
        ("PUT /v1/posts/2-1/read", READ_ALL),
        (POST, POST),
    ];
    let requests = reads.chain(changes.map(|(allowed, refused)| (allowed, refused.to_owned())));
    world_behind_a_proxy_with(request_limits([1; 5]), async |world, proxy| {
        world.user(AUTHOR).publish("one").await;
        let asked = Arc::new(Mutex::new(Vec::new()));
        for (caller, (allowed, refused)) in (10..).zip(requests) {
            assert_ne!(send(world, caller, allowed).await, 429, "{allowed}");
            world.idle().await;
            let seen = Arc::clone(&asked);
            proxy.decide(move |request| {
                if !request.is_of_the_outage_note() {
                    seen.lock().unwrap().push(format!("{} {}", request.operation, request.body));
                }
                Fate::Forwarded
            });
            assert_eq!(send(world, caller, &refused).await, 429, "{refused}");
            world.idle().await;
            let asked = std::mem::take(&mut *asked.lock().unwrap());
            proxy.forward_all();
            assert!(asked.is_empty(), "{refused}: {asked:?}");
        }
    });
}

//! Who sees whose posts, route by route: a user whom the author blocks, one who blocks the author, and anybody, of a
//! live post, of a deleted one, of an author who has left, and of a private author whom the user does not follow.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidemark_tests::{Response, World, has, world};

use crate::openapi;

const AUTHOR: u64 = 1;
const LEAVING: u64 = 5;
const PRIVATE: u64 = 6;

/// A request, and its outcome for each of [`CASES`]: a status, and the problem or some fields of the body. `-` stands
/// for a case that is none, because the request names no post.
type Row = (&'static str, [&'static str; 6]);

/// The user whom the author blocks, the user who blocks the author, and a reader of a live post, of a deleted post,
/// of a post whose author has left, and of a post of a private author.
const CASES: [&str; 6] = ["blocked", "blocking", "live", "deleted", "left", "private"];

const ROWS: &[Row] = &[
    (
        "GET /v1/posts/{post}",
        ["403 blocked", r#"200 {"id": "1-1"}"#, r#"200 {"id": "1-1"}"#, "404 not-found", "404 not-found", "403 private"],
    ),
    (
        "GET /v1/posts?post={post}",
        [NO_ITEMS, r#"200 {"items": [{"id": "1-1"}]}"#, r#"200 {"items": [{"id": "1-1"}]}"#, NO_ITEMS, NO_ITEMS, NO_ITEMS],
    ),
    ("GET /v1/posts/{post}/delivery", ["403 blocked", "200", "200", "200", "404 not-found", "403 private"]),
    (
        "PUT /v1/posts/{post}/read",
        ["403 blocked", r#"200 {"read": true}"#, r#"200 {"read": true}"#, "404 not-found", "404 not-found", "403 private"],
    ),
    (
        "DELETE /v1/posts/{post}/read",
        ["403 blocked", r#"200 {"read": false}"#, r#"200 {"read": false}"#, "404 not-found", "404 not-found", "403 private"],
    ),
    (
        "PUT /v1/posts/{post}/like",
        ["403 blocked", "403 blocked", r#"200 {"liked": true}"#, "404 not-found", "404 not-found", "403 private"],
    ),
    ("GET /v1/posts/{post}/likes", ["403 blocked", "200", "200", "404 not-found", "404 not-found", "403 private"]),
    ("GET /v1/posts/{post}/favorites", ["403 blocked", "200", "200", "404 not-found", "404 not-found", "403 private"]),
    (
        r#"POST /v1/posts/{post}/comments {"text": "x"}"#,
        ["403 blocked", "403 blocked", r#"201 {"post": "1-1"}"#, "404 not-found", "404 not-found", "403 private"],
    ),
    ("GET /v1/posts/{post}/comments", ["403 blocked", "200", "200", "404 not-found", "404 not-found", "403 private"]),
    // The comment of another user, and an unknown one. A stranger to a private author does not learn which.
    (
        "DELETE /v1/posts/{post}/comments/{number}",
        ["403 forbidden", "403 forbidden", "403 forbidden", "403 forbidden", "404 not-found", "403 forbidden"],
    ),
    (
        "PUT /v1/posts/{post}/favorite",
        ["403 blocked", "403 blocked", r#"200 {"favorited": true}"#, "404 not-found", "404 not-found", "403 private"],
    ),
    // A reaction that stands can be taken back. The author who left has taken it along.
    ("DELETE /v1/posts/{post}/like", ["403 blocked", UNLIKED, UNLIKED, UNLIKED, "404 not-found", "403 private"]),
    ("DELETE /v1/posts/{post}/favorite", ["403 blocked", UNFAVORITED, UNFAVORITED, UNFAVORITED, "404 not-found", "403 private"]),
    // The callers repost none of the posts. Of those that they may not see, they do not see the count.
    ("DELETE /v1/posts/{post}/repost", [WITHDRAWN; 6]),
    (
        "PUT /v1/posts/{post}/repost",
        ["403 blocked", "403 blocked", r#"200 {"reposted": true}"#, "404 not-found", "404 not-found", "403 private"],
    ),
    ("GET /v1/posts/{post}/reposts", ["403 blocked", "200", "200", "404 not-found", "404 not-found", "403 private"]),
    (
        r#"POST /v1/posts {"title": "x", "of": "{post}"}"#,
        ["403 blocked", "403 blocked", r#"201 {"of": {"id": "1-1"}}"#, "404 not-found", "404 not-found", "403 private"],
    ),
    (
        r#"PUT /v1/posts/{post} {"title": "x"}"#,
        ["403 forbidden", "403 forbidden", "403 forbidden", "404 not-found", "404 not-found", "403 forbidden"],
    ),
    (
        "DELETE /v1/posts/{post}",
        ["403 forbidden", "403 forbidden", "403 forbidden", "403 forbidden", "404 not-found", "403 forbidden"],
    ),
    (
        "GET /v1/authors/{author}/posts",
        ["403 blocked", ONE_POST, ONE_POST, "-", r#"200 {"items": [], "total": 0}"#, "403 private"],
    ),
    (
        "GET /v1/authors/{author}/posts?status=unread&include=body",
        ["403 blocked", NO_ITEMS, ONE_POST, "-", r#"200 {"items": [], "total": 0}"#, "403 private"],
    ),
    ("GET /v1/unread/{author}", [NOT_UNREAD, NOT_UNREAD, r#"200 {"unread": 1}"#, "-", NOT_UNREAD, NOT_UNREAD]),
    (r#"POST /v1/reads {"posts": ["{post}"]}"#, [UNCHANGED, UNCHANGED, r#"200 {"changed": 1}"#, UNCHANGED, UNCHANGED, UNCHANGED]),
    (
        r#"POST /v1/reads {"author": "{author}", "through": 9}"#,
        [UNCHANGED, UNCHANGED, r#"200 {"changed": 1}"#, "-", UNCHANGED, UNCHANGED],
    ),
    (
        "PUT /v1/following/{author}",
        [
            "403 blocked",
            "403 blocked",
            r#"200 {"created": false}"#,
            "-",
            "404 not-found",
            r#"200 {"following": false, "requested": true, "since": null}"#,
        ],
    ),
    ("DELETE /v1/following/{author}", [UNFOLLOWED, UNFOLLOWED, UNFOLLOWED, "-", UNFOLLOWED, UNFOLLOWED]),
    ("DELETE /v1/followers/{user}", [REMOVED, REMOVED, REMOVED, "-", REMOVED, REMOVED]),
    (
        r#"POST /v1/following {"authors": ["{author}"]}"#,
        [
            REFUSED,
            REFUSED,
            r#"200 {"results": [{"following": true}]}"#,
            "-",
            r#"200 {"results": [{"error": {"status": 404}}]}"#,
            r#"200 {"results": [{"following": false, "requested": true, "since": null}]}"#,
        ],
    ),
    // Nobody has asked the callers.
    (
        "PUT /v1/follow-requests/{user}",
        ["404 not-found", "404 not-found", "404 not-found", "-", "404 not-found", "404 not-found"],
    ),
    ("DELETE /v1/follow-requests/{user}", [NOT_ACCEPTED, NOT_ACCEPTED, NOT_ACCEPTED, "-", NOT_ACCEPTED, NOT_ACCEPTED]),
    (
        "PUT /v1/lists/{list}/authors/{author}",
        ["422 not-following", "422 not-following", r#"200 {"member": true}"#, "-", "422 not-following", "422 not-following"],
    ),
    ("DELETE /v1/lists/{list}/authors/{author}", [NO_MEMBER, NO_MEMBER, NO_MEMBER, "-", NO_MEMBER, NO_MEMBER]),
    ("PUT /v1/mutes/{user}", [MUTED, MUTED, MUTED, "-", "404 not-found", MUTED]),
    ("DELETE /v1/mutes/{user}", [UNMUTED, UNMUTED, UNMUTED, "-", UNMUTED, UNMUTED]),
    ("PUT /v1/blocks/{user}", [BLOCKED, BLOCKED, BLOCKED, "-", "404 not-found", BLOCKED]),
    ("DELETE /v1/blocks/{user}", [UNBLOCKED, UNBLOCKED, UNBLOCKED, "-", UNBLOCKED, UNBLOCKED]),
    // A block hides posts. Neither users nor relations are hidden, and the blocked user is not told.
    (
        "GET /v1/users/{user}",
        [
            NAMED,
            r#"200 {"relation": {"blocked": true}}"#,
            NAMED,
            "-",
            r#"200 {"profile": null}"#,
            r#"200 {"private": true, "relation": {"requested": false}}"#,
        ],
    ),
    (
        "GET /v1/users?user={user}",
        [LISTED, LISTED, LISTED, "-", r#"200 {"items": [{"profile": null}]}"#, r#"200 {"items": [{"profile": null}]}"#],
    ),
    (
        "GET /v1/users/{user}/counters",
        [r#"200 {"posts": 1}"#, r#"200 {"posts": 1}"#, r#"200 {"posts": 1}"#, "-", r#"200 {"posts": 0}"#, r#"200 {"posts": 1}"#],
    ),
    ("GET /v1/users/{user}/followers", ["200", "200", "200", "-", NO_ITEMS, NO_ITEMS]),
    ("GET /v1/users/{user}/following", [NO_ITEMS, NO_ITEMS, NO_ITEMS, "-", NO_ITEMS, NO_ITEMS]),
    ("GET /v1/relations/{user}", [UNFOLLOWED, UNFOLLOWED, r#"200 {"following": true}"#, "-", UNFOLLOWED, UNFOLLOWED]),
    (
        "GET /v1/relations?user={user}",
        [STRANGERS, STRANGERS, r#"200 {"items": [{"following": true}]}"#, "-", STRANGERS, STRANGERS],
    ),
    // These name no post and no author, and show posts.
    ("GET /v1/feed", [NO_ITEMS, NO_ITEMS, ONE_POST, "-", "-", "-"]),
    ("GET /v1/feed?order=ranked", [NO_ITEMS, NO_ITEMS, ONE_POST, "-", "-", "-"]),
    ("GET /v1/feed?status=unread", [NO_ITEMS, NO_ITEMS, ONE_POST, "-", "-", "-"]),
    ("GET /v1/unread", [r#"200 {"total": 0}"#, r#"200 {"total": 0}"#, r#"200 {"total": 1}"#, "-", "-", "-"]),
    ("GET /v1/me/likes", [NO_ITEMS, ONE_POST, ONE_POST, "-", "-", "-"]),
    ("GET /v1/me/favorites?include=body", [NO_ITEMS, ONE_POST, ONE_POST, "-", "-", "-"]),
];

const NO_ITEMS: &str = r#"200 {"items": []}"#;
const ONE_POST: &str = r#"200 {"items": [{"id": "1-1"}]}"#;
const UNLIKED: &str = r#"200 {"liked": false}"#;
const WITHDRAWN: &str = r#"200 {"reposted": false, "post": null, "reposts": 0}"#;
const UNFAVORITED: &str = r#"200 {"favorited": false}"#;
const NOT_UNREAD: &str = r#"200 {"unread": 0}"#;
const UNCHANGED: &str = r#"200 {"changed": 0}"#;
const UNFOLLOWED: &str = r#"200 {"following": false}"#;
const REMOVED: &str = r#"200 {"follower": false}"#;
const REFUSED: &str = r#"200 {"results": [{"error": {"type": "/problems/blocked"}}]}"#;
const NOT_ACCEPTED: &str = r#"200 {"accepted": false}"#;
const NO_MEMBER: &str = r#"200 {"member": false}"#;
const MUTED: &str = r#"200 {"muted": true}"#;
const UNMUTED: &str = r#"200 {"muted": false}"#;
const BLOCKED: &str = r#"200 {"blocked": true}"#;
const UNBLOCKED: &str = r#"200 {"blocked": false}"#;
const NAMED: &str = r#"200 {"profile": {"name": "Ada"}, "relation": {"blocked": false}}"#;
const LISTED: &str = r#"200 {"items": [{"profile": {"name": "Ada"}}]}"#;
const STRANGERS: &str = r#"200 {"items": [{"following": false}]}"#;

/// Method and path of a request, as a route has them.
fn route_of(request: &str) -> &str {
    let (method, rest) = request.split_once(' ').unwrap();
    let path = rest.split([' ', '?']).next().unwrap();
    &request[..method.len() + 1 + path.len()]
}

#[test]
fn the_table_has_every_route_that_names_a_post_or_an_author() {
    let document = openapi::document();
    let names = |name: &Value| ["post", "author", "user", "posts", "authors"].iter().any(|known| name == known);
    let named = openapi::operations(&document).into_iter().filter(|(_, operation)| {
        let mut parameters = operation["parameters"].as_array().into_iter().flatten();
        let fields = openapi::forms(&document, operation).into_iter().flatten();
        parameters.any(|parameter| names(&openapi::resolved(&document, parameter)["name"]))
            || fields.map(Value::from).any(|field| names(&field))
    });
    let named: BTreeSet<String> = named.map(|(key, _)| key).collect();
    let table: BTreeSet<String> = ROWS.iter().map(|(request, _)| route_of(request).to_owned()).collect();
    let missing: Vec<&String> = named.difference(&table).collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
}

/// The callers of one row: blocked, blocking, and a reader. They followed the author and reacted to both posts before.
fn callers(row: u64) -> [u64; 3] {
    [1_000, 2_000, 3_000].map(|first| first + row)
}

async fn prepare(world: &World) {
    let (author, leaving, rows) = (world.user(AUTHOR), world.user(LEAVING), ROWS.len() as u64);
    author.put_body("/v1/me/profile", &json!({ "name": "Ada" })).await.ok();
    for followed in [AUTHOR, LEAVING] {
        world.follow_at_once((0..rows).flat_map(callers), followed).await;
    }
    author.publish_all(["one", "two"]).await;
    leaving.publish("three").await;
    world.user(PRIVATE).publish("four").await;
    world.idle().await;
    for user in (0..rows).flat_map(callers) {
        let user = world.user(user);
        user.post("/v1/lists", &json!({ "name": "list" })).await.ok();
        for post in ["1-1", "1-2", "5-1", "6-1"] {
            user.put(&format!("/v1/posts/{post}/like")).await.ok();
            user.put(&format!("/v1/posts/{post}/favorite")).await.ok();
        }
    }
    for post in ["1-1", "1-2", "5-1", "6-1"] {
        world.user(7).post(&format!("/v1/posts/{post}/comments"), &json!({ "text": "first" })).await.ok();
    }
    author.delete("/v1/posts/1-2").await.ok();
    leaving.delete("/v1/me").await.ok();
    world.user(PRIVATE).put_body("/v1/me/privacy", &json!({ "private": true })).await.ok();
    for row in 0..rows {
        let [blocked, blocking, _] = callers(row);
        author.put(&format!("/v1/blocks/{blocked}")).await.ok();
        world.user(blocking).put(&format!("/v1/blocks/{AUTHOR}")).await.ok();
    }
    world.idle().await;
}

#[test]
fn a_block_of_either_side_goes_before_privacy() {
    world(async |world| {
        let (author, reader) = (world.user(PRIVATE), world.user(2));
        author.publish("one").await;
        author.put_body("/v1/me/privacy", &json!({ "private": true })).await.ok();
        reader.put(&format!("/v1/blocks/{PRIVATE}")).await.ok();
        for request in [
            "PUT /v1/posts/6-1/like",
            "PUT /v1/posts/6-1/favorite",
            "PUT /v1/posts/6-1/repost",
            r#"POST /v1/posts/6-1/comments {"text": "x"}"#,
            r#"POST /v1/posts {"title": "x", "of": "6-1"}"#,
            "PUT /v1/posts/6-9/like",
            "PUT /v1/following/6",
        ] {
            assert_eq!(reader.request(request).await.problem(), (403, "/problems/blocked"), "{request}");
        }
        // Who blocks may read what they could read before.
        assert_eq!(reader.get("/v1/posts/6-1").await.problem(), (403, "/problems/private"));
    });
}

/// Returns whether a response is as expected.
fn is_as(response: &Response, expected: &str) -> bool {
    let (status, rest) = expected.split_once(' ').unwrap_or((expected, "{}"));
    if response.status != status.parse::<u16>().unwrap() {
        return false;
    }
    match serde_json::from_str::<Value>(rest) {
        Ok(body) => has(&response.body, &body),
        Err(_) => response.problem().1 == format!("/problems/{rest}"),
    }
}

#[test]
fn every_route_withholds_what_a_caller_may_not_see() {
    world(async |world| {
        prepare(world).await;
        let mut wrong = Vec::new();
        for (row, (request, outcomes)) in (0..).zip(ROWS) {
            let [blocked, blocking, reader] = callers(row);
            let users = [blocked, blocking, reader, reader, reader, reader];
            for ((case, expected), user) in CASES.iter().zip(outcomes).zip(users) {
                let (author, post) = match *case {
                    "deleted" => (AUTHOR, "1-2"),
                    "left" => (LEAVING, "5-1"),
                    "private" => (PRIVATE, "6-1"),
                    _ => (AUTHOR, "1-1"),
                };
                if *expected == "-" {
                    continue;
                }
                let author = author.to_string();
                let sent = request.replace("{post}", post).replace("{author}", &author).replace("{user}", &author);
                let sent = sent.replace("{list}", &format!("{user}-1")).replace("{number}", "1");
                let response = world.user(user).request(&sent).await;
                if !is_as(&response, expected) {
                    wrong.push(format!("{request}, {case}: {} {}, not {expected}", response.status, response.body));
                }
            }
        }
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    });
}

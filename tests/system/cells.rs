//! Every operation, its write disturbed in three ways: the answer is lost, comes too late, or the process is killed right after it. Then the same request once more: its
//! answer is right, and the views equal the facts.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tidemark_local::{Fault, FaultAction};
use tidemark_tests::{Answer, World, world_with};

/// How a write is disturbed.
#[derive(Debug, Clone, Copy)]
enum Disturbance {
    LostAnswer,
    TimedOut,
    Killed,
}

/// An operation: the request, the write that is disturbed (function, operation and table), and what the last answer must say.
struct Operation {
    name: &'static str,
    write: (&'static str, &'static str, &'static str),
    /// What comes before, undisturbed.
    before: Option<fn(Cast) -> Request>,
    request: fn(Cast) -> Request,
    right: fn(&Answer) -> bool,
}

/// Who takes part in one cell: nobody of another cell.
#[derive(Clone, Copy)]
struct Cast {
    reader: u64,
    author: u64,
    other: u64,
    platform: u64,
}

struct Request {
    caller: String,
    method: Method,
    path: String,
    headers: &'static [(&'static str, &'static str)],
    body: Option<Value>,
}

fn request(caller: impl ToString, method: Method, path: String) -> Request {
    Request { caller: caller.to_string(), method, path, headers: &[], body: None }
}

fn of_reader(cast: Cast, method: Method, path: String) -> Request {
    request(cast.reader, method, path)
}

fn marks(cast: Cast, body: Value) -> Request {
    Request { body: Some(body), ..of_reader(cast, Method::POST, "/v1/reads".to_owned()) }
}

/// The author's fourth post.
fn publish(cast: Cast) -> Request {
    Request {
        headers: &[("idempotency-key", "once")],
        body: Some(json!({ "title": "four" })),
        ..request(cast.author, Method::POST, "/v1/posts".to_owned())
    }
}

fn is_fourth(answer: &Answer) -> bool {
    answer.status == 201 && answer.body["seq"] == 4
}

fn total(answer: &Answer, expected: u64) -> bool {
    answer.body["unread"]["total"] == expected
}

const MARK: (&str, &str, &str) = ("mark-read", "UpdateItem", "ReadsTable");

/// A reader follows an author with three posts and another with one; four posts are unread.
const OPERATIONS: [Operation; 15] = [
    Operation {
        name: "mark one read",
        write: MARK,
        before: None,
        request: |cast| of_reader(cast, Method::PUT, format!("/v1/posts/{}-1/read", cast.author)),
        right: |answer| total(answer, 3),
    },
    Operation {
        name: "mark one unread",
        write: MARK,
        before: Some(|cast| of_reader(cast, Method::PUT, format!("/v1/posts/{}-1/read", cast.author))),
        request: |cast| of_reader(cast, Method::DELETE, format!("/v1/posts/{}-1/read", cast.author)),
        right: |answer| total(answer, 4),
    },
    Operation {
        name: "mark many",
        write: MARK,
        before: None,
        request: |cast| marks(cast, json!({ "posts": [format!("{}-1", cast.author), format!("{}-1", cast.other)] })),
        right: |answer| total(answer, 2),
    },
    Operation {
        name: "mark through",
        write: MARK,
        before: None,
        request: |cast| marks(cast, json!({ "author": cast.author.to_string(), "through": 2 })),
        right: |answer| total(answer, 2),
    },
    Operation {
        name: "mark all",
        write: MARK,
        before: None,
        request: |cast| marks(cast, json!({ "all": true })),
        right: |answer| total(answer, 0),
    },
    Operation {
        name: "follow",
        write: ("follow", "TransactWriteItems", "FollowingTable"),
        before: None,
        request: |cast| of_reader(cast, Method::PUT, format!("/v1/following/{}", cast.platform + 5_000_000)),
        right: |answer| answer.body["following"] == true,
    },
    Operation {
        name: "unfollow",
        write: ("follow", "TransactWriteItems", "FollowingTable"),
        before: None,
        request: |cast| of_reader(cast, Method::DELETE, format!("/v1/following/{}", cast.author)),
        right: |answer| answer.body["following"] == false,
    },
    Operation {
        name: "publish",
        write: ("publish", "TransactWriteItems", "PostsTable"),
        before: None,
        request: publish,
        right: is_fourth,
    },
    Operation {
        name: "delete",
        write: ("publish", "TransactWriteItems", "PostsTable"),
        before: None,
        request: |cast| request(cast.author, Method::DELETE, format!("/v1/posts/{}-2", cast.author)),
        right: |answer| answer.status == 204,
    },
    Operation {
        name: "edit a notice",
        write: ("notice", "TransactWriteItems", "NoticesTable"),
        before: None,
        request: |cast| Request {
            body: Some(json!({ "title": "edited" })),
            ..request("9 notices:write", Method::PUT, format!("/v1/notices/{}-1", cast.platform))
        },
        right: |answer| answer.body["title"] == "edited",
    },
    Operation {
        name: "mark a notice",
        write: ("notice", "TransactWriteItems", "NoticeReadsTable"),
        before: None,
        request: |cast| of_reader(cast, Method::PUT, format!("/v1/notices/{}-1/read", cast.platform)),
        right: |answer| answer.body == json!({ "read": true, "unread": 1 }),
    },
    Operation {
        name: "like",
        write: ("publish", "TransactWriteItems", "ReactionsTable"),
        before: None,
        request: |cast| of_reader(cast, Method::PUT, format!("/v1/posts/{}-3/like", cast.author)),
        right: |answer| answer.body["liked"] == true,
    },
    Operation {
        name: "favorite",
        write: ("publish", "TransactWriteItems", "ReactionsTable"),
        before: None,
        request: |cast| of_reader(cast, Method::PUT, format!("/v1/posts/{}-3/favorite", cast.author)),
        right: |answer| answer.body["favorited"] == true,
    },
    Operation {
        name: "fan-out",
        write: ("fan-out", "UpdateItem", "PostsTable"),
        before: None,
        request: publish,
        right: is_fourth,
    },
    Operation {
        name: "projector",
        write: ("relation-projector", "BatchGetItem", "FollowingTable"),
        before: None,
        request: |cast| of_reader(cast, Method::DELETE, format!("/v1/following/{}", cast.other)),
        right: |answer| answer.body["following"] == false,
    },
];

#[tokio::test]
async fn a_disturbed_write_and_the_same_request_once_more_end_right() {
    let configure = |options: &mut tidemark_local::Options| {
        options.environment.insert("AWS_ATTEMPT_TIMEOUT_MS".to_owned(), "1500".to_owned());
        options.environment.insert("AWS_OPERATION_TIMEOUT_MS".to_owned(), "6000".to_owned());
    };
    world_with(configure, async |world| {
        let mut platform = 0;
        for operation in &OPERATIONS {
            for disturbance in [Disturbance::LostAnswer, Disturbance::TimedOut, Disturbance::Killed] {
                platform += 1;
                cell(world, operation, disturbance, platform).await;
            }
        }
        println!("{platform} cells");
    })
    .await;
}

async fn cell(world: &World, operation: &Operation, disturbance: Disturbance, platform: u64) {
    let cast =
        Cast { reader: platform * 10 + 1_000_001, author: platform * 10 + 1_000_002, other: platform * 10 + 1_000_003, platform };
    let cell = format!("{}, {disturbance:?}", operation.name);
    prepare(world, cast).await;
    if let Some(before) = operation.before {
        send(world, before(cast)).await.ok();
    }
    let action = match disturbance {
        Disturbance::LostAnswer => FaultAction::LoseAnswer,
        Disturbance::TimedOut => FaultAction::Hang(Duration::from_secs(2)),
        Disturbance::Killed => FaultAction::Kill,
    };
    let (function, write, table) = operation.write;
    let planted = world.stack.faults().add(Fault::new(write, action).of(function).on(table));
    let first = send(world, (operation.request)(cast)).await;
    world.idle().await;
    assert_eq!(planted.fired(), 1, "{cell}: the write was disturbed");
    let second = send(world, (operation.request)(cast)).await;
    assert!((operation.right)(&second), "{cell}: {} {}, after {} {}", second.status, second.body, first.status, first.body);
    world.idle().await;
    let views = seen(world, cast).await;
    world.flush_redis().await;
    let facts = seen(world, cast).await;
    assert_eq!(views, facts, "{cell}: views and facts");
}

/// Four unread posts of two authors, two notices, and everything in the views.
async fn prepare(world: &World, cast: Cast) {
    let reader = world.user(cast.reader);
    for (author, posts) in [(cast.author, 3), (cast.other, 1)] {
        reader.put(&format!("/v1/following/{author}")).await.ok();
        for number in 1..=posts {
            world.user(author).publish(&format!("{number}")).await;
        }
    }
    for title in ["one", "two"] {
        let notice = json!({ "platforms": [cast.platform], "title": title });
        world.stranger(Some("9 notices:write")).post("/v1/notices", &notice).await.ok();
    }
    world.idle().await;
    let seen = seen(world, cast).await;
    assert_eq!(seen[1]["total"], 4, "{seen}");
}

async fn send(world: &World, request: Request) -> Answer {
    let caller = world.stranger(Some(&request.caller));
    caller.send(request.method, &request.path, request.headers, request.body.map(|body| body.to_string())).await
}

/// All that the reader sees.
async fn seen(world: &World, cast: Cast) -> Value {
    let reader = world.user(cast.reader);
    let feed = reader.get("/v1/feed?limit=100").await.ok();
    let unread = reader.get("/v1/unread").await.ok();
    let mut seen = vec![json!([feed["items"], feed["unread_total"]]), unread];
    let following = format!("/v1/users/{}/following?limit=100", cast.reader);
    let followers = format!("/v1/users/{}/followers?limit=100", cast.author);
    let counters = [cast.reader, cast.author, cast.other].map(|user| format!("/v1/users/{user}/counters"));
    let notices = ["", "/unread"].map(|what| format!("/v1/notices{what}?platform={}", cast.platform));
    for path in [following, followers].into_iter().chain(counters).chain(notices) {
        seen.push(reader.get(&path).await.ok());
    }
    json!(seen)
}

//! Disturbs a write of every operation in three ways: the response is lost, the response is late, or the process is
//! killed after the write. Then the test sends the same request again. Its response must be right, and the views must
//! agree with the facts. A `sync` task and the projector write no facts, so one of their reads is disturbed.

use std::time::Duration;

use reqwest::{Method, header::HeaderMap};
use serde_json::{Value, json};
use tidemark::domain::UserId;
use tidemark_local::{Fault, FaultAction};
use tidemark_migrate::legacy::Layout;
use tidemark_tests::{LegacyRedis, Response, World, world_with};

use crate::hot::set_contended;

/// The disturbance of a write.
#[derive(Debug, Clone, Copy)]
enum Disturbance {
    LostResponse,
    TimedOut,
    Killed,
}

/// An operation: the request, the disturbed call to DynamoDB (function, operation and table), and the check of the
/// last response.
struct Operation {
    name: &'static str,
    write: (&'static str, &'static str, &'static str),
    /// Undisturbed requests that precede the operation.
    before: Option<fn(Cast) -> Step>,
    request: fn(Cast) -> Step,
    right: fn(&Response) -> bool,
}

/// The users and the platform of a cell. Cells do not share users or platforms.
#[derive(Clone, Copy)]
struct Cast {
    reader: u64,
    author: u64,
    other: u64,
    /// An author without posts whom the reader does not follow.
    new: u64,
    platform: u64,
}

/// The request of an operation.
enum Step {
    Api(Request),
    /// Marks the author's first post read in the facts but in no view, as a killed function leaves it.
    Fact(Cast),
    /// Lets the author's head say that posts have to wait for it.
    Contended(Cast),
    /// Sends a `sync` task of reader and author to the queue. The response is the reader's view of the result.
    Task(Cast),
    /// Legacy keys in which the reader follows the new author, who has three posts, and has read one of them. The
    /// test invokes `migrate` until it is done or fails.
    Import(Cast),
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

fn of_reader(cast: Cast, method: Method, path: String) -> Step {
    Step::Api(request(cast.reader, method, path))
}

fn marks(cast: Cast, body: Value) -> Step {
    Step::Api(Request { body: Some(body), ..request(cast.reader, Method::POST, "/v1/reads".to_owned()) })
}

fn publish(cast: Cast) -> Step {
    Step::Api(Request {
        headers: &[("idempotency-key", "once")],
        body: Some(json!({ "title": "four" })),
        ..request(cast.author, Method::POST, "/v1/posts".to_owned())
    })
}

fn make_list(cast: Cast) -> Step {
    Step::Api(Request {
        headers: &[("idempotency-key", "once")],
        body: Some(json!({ "name": "friends" })),
        ..request(cast.reader, Method::POST, "/v1/lists".to_owned())
    })
}

fn is_fourth(response: &Response) -> bool {
    response.status == 201 && response.body["seq"] == 4
}

fn total(response: &Response, expected: u64) -> bool {
    response.body["unread"]["total"] == expected
}

const MARK: (&str, &str, &str) = ("mark-read", "UpdateItem", "ReadsTable");

/// The reader follows an author with three posts and another with one. Four posts are unread.
const OPERATIONS: [Operation; 30] = [
    Operation {
        name: "mark one read",
        write: MARK,
        before: None,
        request: |cast| of_reader(cast, Method::PUT, format!("/v1/posts/{}-1/read", cast.author)),
        right: |response| total(response, 3),
    },
    Operation {
        name: "mark one unread",
        write: MARK,
        before: Some(|cast| of_reader(cast, Method::PUT, format!("/v1/posts/{}-1/read", cast.author))),
        request: |cast| of_reader(cast, Method::DELETE, format!("/v1/posts/{}-1/read", cast.author)),
        right: |response| total(response, 4),
    },
    Operation {
        name: "mark many",
        write: MARK,
        before: None,
        request: |cast| marks(cast, json!({ "posts": [format!("{}-1", cast.author), format!("{}-1", cast.other)] })),
        right: |response| total(response, 2),
    },
    Operation {
        name: "mark through",
        write: MARK,
        before: None,
        request: |cast| marks(cast, json!({ "author": cast.author.to_string(), "through": 2 })),
        right: |response| total(response, 2),
    },
    Operation {
        name: "mark all",
        write: MARK,
        before: None,
        request: |cast| marks(cast, json!({ "all": true })),
        right: |response| total(response, 0),
    },
    Operation {
        name: "follow",
        write: ("follow", "TransactWriteItems", "FollowingTable"),
        before: None,
        request: |cast| of_reader(cast, Method::PUT, format!("/v1/following/{}", cast.new)),
        right: |response| response.body["following"] == true,
    },
    Operation {
        name: "unfollow",
        write: ("follow", "TransactWriteItems", "FollowingTable"),
        before: None,
        request: |cast| of_reader(cast, Method::DELETE, format!("/v1/following/{}", cast.author)),
        right: |response| response.body["following"] == false,
    },
    Operation {
        name: "mute",
        write: ("follow", "TransactWriteItems", "FollowingTable"),
        before: None,
        request: |cast| of_reader(cast, Method::PUT, format!("/v1/mutes/{}", cast.author)),
        right: |response| response.body["muted"] == true,
    },
    Operation {
        name: "unmute",
        write: ("follow", "TransactWriteItems", "FollowingTable"),
        before: Some(|cast| of_reader(cast, Method::PUT, format!("/v1/mutes/{}", cast.author))),
        request: |cast| of_reader(cast, Method::DELETE, format!("/v1/mutes/{}", cast.author)),
        right: |response| response.body["muted"] == false,
    },
    Operation {
        name: "block by the author",
        write: ("follow", "TransactWriteItems", "FollowingTable"),
        before: None,
        request: |cast| Step::Api(request(cast.author, Method::PUT, format!("/v1/blocks/{}", cast.reader))),
        right: |response| response.body["blocked"] == true,
    },
    Operation {
        name: "unblock by the author",
        write: ("follow", "TransactWriteItems", "FollowingTable"),
        before: Some(|cast| Step::Api(request(cast.author, Method::PUT, format!("/v1/blocks/{}", cast.reader)))),
        request: |cast| Step::Api(request(cast.author, Method::DELETE, format!("/v1/blocks/{}", cast.reader))),
        right: |response| response.body["blocked"] == false,
    },
    Operation {
        name: "make a list",
        write: ("follow", "PutItem", "CountersTable"),
        before: None,
        request: make_list,
        right: |response| response.body["id"].as_str().is_some_and(|id| id.ends_with("-1")),
    },
    Operation {
        name: "put on a list",
        write: ("follow", "TransactWriteItems", "FollowingTable"),
        before: Some(make_list),
        request: |cast| of_reader(cast, Method::PUT, format!("/v1/lists/{}-1/authors/{}", cast.reader, cast.author)),
        right: |response| response.body["member"] == true,
    },
    Operation {
        name: "delete a list",
        write: ("follow", "PutItem", "CountersTable"),
        before: Some(make_list),
        request: |cast| of_reader(cast, Method::DELETE, format!("/v1/lists/{}-1", cast.reader)),
        right: |response| response.status == 204,
    },
    Operation {
        name: "edit a post",
        write: ("publish", "TransactWriteItems", "PostsTable"),
        before: None,
        request: |cast| {
            let edit = request(cast.author, Method::PUT, format!("/v1/posts/{}-2", cast.author));
            Step::Api(Request { body: Some(json!({ "title": "edited" })), ..edit })
        },
        right: |response| response.body["title"] == "edited" && response.body["revision"] == 2,
    },
    Operation {
        name: "set a profile",
        write: ("profile", "TransactWriteItems", "ProfilesTable"),
        before: None,
        request: |cast| {
            let set = request(cast.author, Method::PUT, "/v1/me/profile".to_owned());
            Step::Api(Request { body: Some(json!({ "name": "Ann", "handle": format!("ann{}", cast.author) })), ..set })
        },
        right: |response| response.body["handle"].as_str().is_some_and(|handle| handle.starts_with("ann")),
    },
    Operation {
        name: "publish",
        write: ("publish", "TransactWriteItems", "PostsTable"),
        before: None,
        request: publish,
        right: is_fourth,
    },
    Operation {
        name: "publish in a group",
        write: ("publish", "TransactWriteItems", "PostsTable"),
        before: Some(Step::Contended),
        request: publish,
        right: is_fourth,
    },
    Operation {
        name: "wait for a group",
        write: ("publish", "PutItem", "IdempotencyTable"),
        before: Some(Step::Contended),
        request: publish,
        right: is_fourth,
    },
    Operation {
        name: "delete",
        write: ("publish", "TransactWriteItems", "PostsTable"),
        before: None,
        request: |cast| Step::Api(request(cast.author, Method::DELETE, format!("/v1/posts/{}-2", cast.author))),
        right: |response| response.status == 204,
    },
    Operation {
        name: "edit a notice",
        write: ("notice", "TransactWriteItems", "NoticesTable"),
        before: None,
        request: |cast| {
            let edit = request("9 notices:write", Method::PUT, format!("/v1/notices/{}-1", cast.platform));
            Step::Api(Request { body: Some(json!({ "title": "edited" })), ..edit })
        },
        right: |response| response.body["title"] == "edited",
    },
    Operation {
        name: "mark a notice",
        write: ("notice", "TransactWriteItems", "NoticeReadsTable"),
        before: None,
        request: |cast| of_reader(cast, Method::PUT, format!("/v1/notices/{}-1/read", cast.platform)),
        right: |response| response.body == json!({ "read": true, "unread": 1 }),
    },
    Operation {
        name: "like",
        write: ("publish", "TransactWriteItems", "ReactionsTable"),
        before: None,
        request: |cast| of_reader(cast, Method::PUT, format!("/v1/posts/{}-3/like", cast.author)),
        right: |response| response.body["liked"] == true,
    },
    Operation {
        name: "favorite",
        write: ("publish", "TransactWriteItems", "ReactionsTable"),
        before: None,
        request: |cast| of_reader(cast, Method::PUT, format!("/v1/posts/{}-3/favorite", cast.author)),
        right: |response| response.body["favorited"] == true,
    },
    Operation {
        name: "prefer",
        write: ("follow", "TransactWriteItems", "FollowingTable"),
        before: None,
        request: |cast| {
            let follow = request(cast.reader, Method::PUT, format!("/v1/following/{}", cast.author));
            Step::Api(Request { body: Some(json!({ "preference": 7 })), ..follow })
        },
        right: |response| response.body["preference"] == 7,
    },
    Operation {
        name: "step",
        write: ("fan-out", "UpdateItem", "PostsTable"),
        before: None,
        request: |cast| of_reader(cast, Method::PUT, format!("/v1/posts/{}-3/favorite", cast.author)),
        right: |response| response.body["favorited"] == true,
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
        right: |response| response.body["following"] == false,
    },
    Operation {
        name: "sync",
        write: ("fan-out", "BatchGetItem", "ReadsTable"),
        before: Some(Step::Fact),
        request: Step::Task,
        right: |response| response.body["total"] == 3,
    },
    Operation {
        name: "migrate",
        write: ("migrate", "TransactWriteItems", "PostsTable"),
        before: None,
        request: Step::Import,
        right: |response| response.body["unreadable"] == 0 && response.body["titles"] == json!(["Blog 3", "Blog 2", "Blog 1"]),
    },
];

#[tokio::test]
async fn a_repeated_request_after_a_disturbed_write_gives_the_right_result() {
    let configure = |options: &mut tidemark_local::Options| {
        options.environment.insert("AWS_ATTEMPT_TIMEOUT_MS".to_owned(), "1500".to_owned());
        options.environment.insert("AWS_OPERATION_TIMEOUT_MS".to_owned(), "6000".to_owned());
    };
    world_with(configure, async |world| {
        let stage = Stage { world, legacy: LegacyRedis::start().await };
        let mut platform = 0;
        for operation in &OPERATIONS {
            for disturbance in [Disturbance::LostResponse, Disturbance::TimedOut, Disturbance::Killed] {
                platform += 1;
                stage.cell(operation, disturbance, platform).await;
            }
        }
        println!("{platform} cells");
        assert_eq!(platform, 90);
    })
    .await;
}

/// State that all cells share.
struct Stage<'a> {
    world: &'a World,
    legacy: LegacyRedis,
}

impl Stage<'_> {
    async fn cell(&self, operation: &Operation, disturbance: Disturbance, platform: u64) {
        let world = self.world;
        let first = platform * 10 + 1_000_000;
        let cast = Cast { reader: first + 1, author: first + 2, other: first + 3, new: first + 4, platform };
        let cell = format!("{}, {disturbance:?}", operation.name);
        prepare(world, cast).await;
        if let Some(before) = operation.before {
            self.take(before(cast)).await.ok();
        }
        let action = match disturbance {
            Disturbance::LostResponse => FaultAction::LoseResponse,
            Disturbance::TimedOut => FaultAction::Hang(Duration::from_secs(2)),
            Disturbance::Killed => FaultAction::Kill,
        };
        let (function, write, table) = operation.write;
        let planted = world.stack.faults().add(Fault::new(write, action).of(function).on(table));
        let first = self.take((operation.request)(cast)).await;
        world.idle().await;
        assert_eq!(planted.fired(), 1, "{cell}: the call was disturbed");
        let second = self.take((operation.request)(cast)).await;
        assert!((operation.right)(&second), "{cell}: {} {}, after {} {}", second.status, second.body, first.status, first.body);
        world.idle().await;
        let views = seen(world, cast).await;
        world.flush_redis().await;
        let facts = seen(world, cast).await;
        assert_eq!(views, facts, "{cell}: views and facts");
    }

    async fn take(&self, step: Step) -> Response {
        match step {
            Step::Api(request) => {
                let caller = self.world.stranger(Some(&request.caller));
                caller.send(request.method, &request.path, request.headers, request.body.map(|body| body.to_string())).await
            }
            Step::Contended(cast) => {
                set_contended(self.world, cast.author).await;
                response(Ok(Value::Null))
            }
            Step::Fact(cast) => {
                let reads = &self.world.stack.app("mark-read").unwrap().stores.reads;
                let [reader, author] = [cast.reader, cast.author].map(|id| UserId::new(id).unwrap());
                reads.mark(reader, author, &[1], true).await.unwrap();
                response(Ok(Value::Null))
            }
            Step::Task(cast) => {
                let queue = &self.world.stack.queue("FanOutQueue").unwrap().url;
                let task = json!({ "v": 1, "type": "sync", "user": cast.reader.to_string(), "author": cast.author.to_string() });
                self.world.sqs().await.send_message().queue_url(queue).message_body(task.to_string()).send().await.unwrap();
                self.world.idle().await;
                self.world.user(cast.reader).get("/v1/unread").await
            }
            Step::Import(cast) => response(self.import(cast).await),
        }
    }

    async fn import(&self, cast: Cast) -> Result<Value, String> {
        let at = |number: u64| (1_748_736_000_000 + number * 1_000).to_string();
        let mut commands = vec![redis::cmd("FLUSHALL")];
        for number in 1..=3 {
            let blog = cast.new * 10 + number;
            commands.push(redis::cmd("SADD").arg(Layout::AuthorBlogs.key(cast.new)).arg(blog).to_owned());
            let mut info = redis::cmd("HSET");
            info.arg(Layout::BlogInfo.key(blog)).arg("id").arg(blog).arg("userId").arg(cast.new);
            commands.push(info.arg("title").arg(format!("Blog {number}")).arg("createTime").arg(at(number)).to_owned());
        }
        let following = redis::cmd("ZADD").arg(Layout::Following.key(cast.reader)).arg(at(1)).arg(cast.new).to_owned();
        let read = redis::cmd("SADD").arg(Layout::UserRead.key(cast.reader)).arg(cast.new * 10 + 3).to_owned();
        commands.extend([following, read]);
        self.legacy.run(&commands).await;
        let mut event = json!({ "source": self.legacy.url() });
        loop {
            let response = self.world.stack.invoke("migrate", event).await.map_err(|error| error.to_string())?;
            if response["done"] == true {
                self.world.idle().await;
                let posts = self.world.user(cast.reader).walk(&format!("/v1/authors/{}/posts", cast.new), 10).await;
                let titles: Vec<&Value> = posts.iter().map(|post| &post["title"]).collect();
                return Ok(json!({ "unreadable": response["totals"]["unreadable"], "titles": titles }));
            }
            event = response["next"].clone();
        }
    }
}

fn response(result: Result<Value, String>) -> Response {
    match result {
        Ok(body) => Response { status: 200, headers: HeaderMap::new(), body },
        Err(error) => Response { status: 500, headers: HeaderMap::new(), body: json!(error) },
    }
}

/// The state before an operation: four unread posts of two authors and two notices, all of them in views.
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

/// All data that the API shows the reader.
async fn seen(world: &World, cast: Cast) -> Value {
    let reader = world.user(cast.reader);
    let feed = reader.get("/v1/feed?limit=100").await.ok();
    let unread = reader.get("/v1/unread").await.ok();
    let ranked = reader.get("/v1/feed?order=ranked&limit=100").await.ok();
    let mut seen = vec![json!([feed["items"], feed["unread_total"]]), unread, ranked["items"].clone()];
    let following = format!("/v1/users/{}/following?limit=100", cast.reader);
    let followers = [cast.author, cast.new].map(|author| format!("/v1/users/{author}/followers?limit=100"));
    let counters = [cast.reader, cast.author, cast.other, cast.new].map(|user| format!("/v1/users/{user}/counters"));
    let notices = ["", "/unread"].map(|what| format!("/v1/notices{what}?platform={}", cast.platform));
    for path in [following].into_iter().chain(followers).chain(counters).chain(notices) {
        seen.push(reader.get(&path).await.ok());
    }
    json!(seen)
}

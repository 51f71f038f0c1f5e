//! Disturbs a write of every operation in three ways: the response is lost, the response is late, or the process is
//! killed after the write. Then the test sends the same request again. Its response must be right, and the views must
//! agree with the facts. A `sync` task and the projector write no facts, so one of their reads is disturbed.

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tidemark_local::{Fault, FaultAction};
use tidemark_migrate::legacy::Layout;
use tidemark_tests::{LegacyRedis, Response, World, user_id, world_with};

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
    write: Write,
    /// Undisturbed requests that precede the operation.
    before: Option<Step>,
    step: Step,
    right: fn(&Response) -> bool,
}

type Write = (&'static str, &'static str, &'static str);

const fn operation(name: &'static str, write: Write, step: Step, right: fn(&Response) -> bool) -> Operation {
    Operation { name, write, before: None, step, right }
}

impl Operation {
    const fn after(self, before: Step) -> Self {
        Self { before: Some(before), ..self }
    }
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
#[derive(Clone, Copy)]
enum Step {
    /// `token: METHOD path body`. `$reader`, `$author`, `$other`, `$new` and `$platform` are those of the cast. A post
    /// and a list are made with an idempotency key.
    Api(&'static str),
    /// Marks the author's first post read in the facts but in no view, as a killed function leaves it.
    Fact,
    /// Lets the author's head say that posts have to wait for it.
    Contended,
    /// Sends a `sync` task of reader and author to the queue. The response is the reader's view of the result.
    Task,
    /// Legacy keys in which the reader follows the new author, who has three posts, and has read one of them. The
    /// test invokes `migrate` until it is done or fails.
    Import,
}

use Step::Api;

const PUBLISH: Step = Api(r#"$author: POST /v1/posts {"title": "four"}"#);
const MAKE_LIST: Step = Api(r#"$reader: POST /v1/lists {"name": "friends"}"#);
const MUTE: Step = Api("$reader: PUT /v1/mutes/$author");
const BLOCK: Step = Api("$author: PUT /v1/blocks/$reader");
const MARK_ONE: Step = Api("$reader: PUT /v1/posts/$author-1/read");

fn is_fourth(response: &Response) -> bool {
    response.status == 201 && response.body["seq"] == 4
}

fn total(response: &Response, expected: u64) -> bool {
    response.body["unread"]["total"] == expected
}

const MARK: Write = ("mark-read", "UpdateItem", "ReadsTable");
const RELATE: Write = ("follow", "TransactWriteItems", "FollowingTable");
const LIST: Write = ("follow", "PutItem", "CountersTable");
const POST: Write = ("publish", "TransactWriteItems", "PostsTable");
const REACT: Write = ("publish", "TransactWriteItems", "ReactionsTable");
const NOTICE: Write = ("notice", "TransactWriteItems", "NoticesTable");
const STEP: Write = ("fan-out", "UpdateItem", "PostsTable");

/// The reader follows an author with three posts and another with one. Four posts are unread.
const OPERATIONS: [Operation; 30] = [
    operation("mark one read", MARK, MARK_ONE, |response| total(response, 3)),
    operation("mark one unread", MARK, Api("$reader: DELETE /v1/posts/$author-1/read"), |response| total(response, 4))
        .after(MARK_ONE),
    operation("mark many", MARK, Api(r#"$reader: POST /v1/reads {"posts": ["$author-1", "$other-1"]}"#), |response| {
        total(response, 2)
    }),
    operation("mark through", MARK, Api(r#"$reader: POST /v1/reads {"author": "$author", "through": 2}"#), |response| {
        total(response, 2)
    }),
    operation("mark all", MARK, Api(r#"$reader: POST /v1/reads {"all": true}"#), |response| total(response, 0)),
    operation("follow", RELATE, Api("$reader: PUT /v1/following/$new"), |response| response.body["following"] == true),
    operation("unfollow", RELATE, Api("$reader: DELETE /v1/following/$author"), |response| response.body["following"] == false),
    operation("mute", RELATE, MUTE, |response| response.body["muted"] == true),
    operation("unmute", RELATE, Api("$reader: DELETE /v1/mutes/$author"), |response| response.body["muted"] == false).after(MUTE),
    operation("block by the author", RELATE, BLOCK, |response| response.body["blocked"] == true),
    operation("unblock by the author", RELATE, Api("$author: DELETE /v1/blocks/$reader"), |response| {
        response.body["blocked"] == false
    })
    .after(BLOCK),
    operation("make a list", LIST, MAKE_LIST, |response| response.body["id"].as_str().is_some_and(|id| id.ends_with("-1"))),
    operation("put on a list", RELATE, Api("$reader: PUT /v1/lists/$reader-1/authors/$author"), |response| {
        response.body["member"] == true
    })
    .after(MAKE_LIST),
    operation("delete a list", LIST, Api("$reader: DELETE /v1/lists/$reader-1"), |response| response.status == 204)
        .after(MAKE_LIST),
    operation("edit a post", POST, Api(r#"$author: PUT /v1/posts/$author-2 {"title": "edited"}"#), |response| {
        response.body["title"] == "edited" && response.body["revision"] == 2
    }),
    operation(
        "set a profile",
        ("profile", "TransactWriteItems", "ProfilesTable"),
        Api(r#"$author: PUT /v1/me/profile {"name": "Ann", "handle": "ann$author"}"#),
        |response| response.body["handle"].as_str().is_some_and(|handle| handle.starts_with("ann")),
    ),
    operation("publish", POST, PUBLISH, is_fourth),
    operation("publish in a group", POST, PUBLISH, is_fourth).after(Step::Contended),
    operation("wait for a group", ("publish", "PutItem", "IdempotencyTable"), PUBLISH, is_fourth).after(Step::Contended),
    operation("delete", POST, Api("$author: DELETE /v1/posts/$author-2"), |response| response.status == 204),
    operation("edit a notice", NOTICE, Api(r#"9 notices:write: PUT /v1/notices/$platform-1 {"title": "edited"}"#), |response| {
        response.body["title"] == "edited"
    }),
    operation(
        "mark a notice",
        ("notice", "TransactWriteItems", "NoticeReadsTable"),
        Api("$reader: PUT /v1/notices/$platform-1/read"),
        |response| response.body == json!({ "read": true, "unread": 1 }),
    ),
    operation("like", REACT, Api("$reader: PUT /v1/posts/$author-3/like"), |response| response.body["liked"] == true),
    operation("favorite", REACT, Api("$reader: PUT /v1/posts/$author-3/favorite"), |response| response.body["favorited"] == true),
    operation("prefer", RELATE, Api(r#"$reader: PUT /v1/following/$author {"preference": 7}"#), |response| {
        response.body["preference"] == 7
    }),
    operation("step", STEP, Api("$reader: PUT /v1/posts/$author-3/favorite"), |response| response.body["favorited"] == true),
    operation("fan-out", STEP, PUBLISH, is_fourth),
    operation(
        "projector",
        ("relation-projector", "BatchGetItem", "FollowingTable"),
        Api("$reader: DELETE /v1/following/$other"),
        |response| response.body["following"] == false,
    ),
    operation("sync", ("fan-out", "BatchGetItem", "ReadsTable"), Step::Task, |response| response.body["total"] == 3)
        .after(Step::Fact),
    operation("migrate", ("migrate", "TransactWriteItems", "PostsTable"), Step::Import, |response| {
        response.body["unreadable"] == 0 && response.body["titles"] == json!(["Blog 3", "Blog 2", "Blog 1"])
    }),
];

#[test]
fn a_repeated_request_after_a_disturbed_write_gives_the_right_result() {
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
    });
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
            self.take(before, cast).await.ok();
        }
        let action = match disturbance {
            Disturbance::LostResponse => FaultAction::LoseResponse,
            Disturbance::TimedOut => FaultAction::Hang(Duration::from_secs(2)),
            Disturbance::Killed => FaultAction::Kill,
        };
        let (function, write, table) = operation.write;
        let planted = world.stack.faults().add(Fault::new(write, action).of(function).on(table));
        let first = self.take(operation.step, cast).await;
        world.idle().await;
        assert_eq!(planted.fired(), 1, "{cell}: the call was disturbed");
        let second = self.take(operation.step, cast).await;
        assert!((operation.right)(&second), "{cell}: {} {}, after {} {}", second.status, second.body, first.status, first.body);
        world.idle().await;
        let views = seen(world, cast).await;
        world.flush_redis().await;
        let facts = seen(world, cast).await;
        assert_eq!(views, facts, "{cell}: views and facts");
    }

    async fn take(&self, step: Step, cast: Cast) -> Response {
        match step {
            Step::Api(request) => self.send(request, cast).await,
            Step::Contended => {
                set_contended(self.world, cast.author).await;
                response(Ok(Value::Null))
            }
            Step::Fact => {
                let reads = &self.world.stack.app("mark-read").unwrap().stores.reads;
                let [reader, author] = [cast.reader, cast.author].map(user_id);
                reads.mark(reader, author, &[1], true).await.unwrap();
                response(Ok(Value::Null))
            }
            Step::Task => {
                let task = json!({ "v": 1, "type": "sync", "user": cast.reader.to_string(), "author": cast.author.to_string() });
                self.world.send_message("FanOutQueue", &task.to_string()).await;
                self.world.idle().await;
                self.world.user(cast.reader).get("/v1/unread").await
            }
            Step::Import => response(self.import(cast).await),
        }
    }

    async fn send(&self, request: &str, cast: Cast) -> Response {
        let names = [
            ("$reader", cast.reader),
            ("$author", cast.author),
            ("$other", cast.other),
            ("$new", cast.new),
            ("$platform", cast.platform),
        ];
        let request = names.iter().fold(request.to_owned(), |text, (name, value)| text.replace(name, &value.to_string()));
        let (token, request) = request.split_once(": ").unwrap();
        let mut parts = request.splitn(3, ' ');
        let (method, path, body) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().map(str::to_owned));
        let makes = request.starts_with("POST /v1/posts ") || request.starts_with("POST /v1/lists ");
        let key: &[_] = if makes { &[("idempotency-key", "once")] } else { &[] };
        self.world.stranger(Some(token)).send(method.parse().unwrap(), path, key, body).await
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
    world.user(cast.reader).follow([cast.author, cast.other]).await;
    for (author, posts) in [(cast.author, 3), (cast.other, 1)] {
        world.user(author).publish_all(1..=posts).await;
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

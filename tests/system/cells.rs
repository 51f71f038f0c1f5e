//! Disturbs a write of every operation in three ways: the response is lost, the response is late, or the process is
//! killed after the write. Then the test sends the same request again. Its response must be right, and the views must
//! agree with the facts. The projector writes no facts, so one of its reads is disturbed.

use std::time::{Duration, Instant};

use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tidemark::domain::ReadState;
use tidemark_legacy::legacy::Layout;
use tidemark_local::{Fault, FaultAction};
use tidemark_tests::{LegacyRedis, Response, World, has, user_id, world, world_with};

use crate::{
    at_once,
    migration::{Blog, THEN, author_blogs, command},
    publish_notices, request,
};

/// An operation: its name, the disturbed call to DynamoDB (function, operation and table), undisturbed steps before it,
/// separated by ` && `, or nothing, its step, and the status of the last response with a part of the body.
///
/// A step is a request, `token: METHOD path body`, in which `$reader`, `$author`, `$other`, `$new` and `$platform` are
/// those of the cast, or one of these words:
///
/// - `fact` marks the author's first post read in the facts but in no view, as a killed function leaves it. The
///   response is the reader's view of the result.
/// - `import` migrates legacy keys in which the reader follows the new author, who has three posts, and has read one of
///   them. The test invokes `migrate` until it is done or fails.
type Operation = (&'static str, [&'static str; 3], &'static str, &'static str, &'static str);

const PUBLISH: &str = r#"$author: POST /v1/posts {"title": "four"}"#;
const QUOTE: &str = r#"$author: POST /v1/posts {"title": "four", "of": "$other-1"}"#;
const REPOSTED: &str = "$reader: PUT /v1/posts/$author-3/repost";
const MAKE_LIST: &str = r#"$reader: POST /v1/lists {"name": "friends"}"#;
const SET_PROFILE: &str = r#"$author: PUT /v1/me/profile {"name": "Ann", "handle": "ann$author"}"#;
const MUTE: &str = "$reader: PUT /v1/mutes/$author";
const BLOCK: &str = "$author: PUT /v1/blocks/$reader";
const ASKED: &str = r#"$new: PUT /v1/me/privacy {"private": true} && $reader: PUT /v1/following/$new"#;
const ASKED_READER: &str = r#"$reader: PUT /v1/me/privacy {"private": true} && $new: PUT /v1/following/$reader"#;
const READ_ALL: &str = r#"$reader: POST /v1/inbox/reads {"before": "2099-01-01T00:00:00Z"}"#;
const MARK_ONE: &str = "$reader: PUT /v1/posts/$author-1/read";
const COMMENT: &str = r#"$reader: POST /v1/posts/$author-3/comments {"text": "first"}"#;
const FAVORITE: &str = "$reader: PUT /v1/posts/$author-3/favorite";

const MARK: [&str; 3] = ["mark-read", "UpdateItem", "ReadsTable"];
const RELATE: [&str; 3] = ["follow", "TransactWriteItems", "FollowingTable"];
const LIST: [&str; 3] = ["follow", "TransactWriteItems", "CountersTable"];
const DELETE_LIST: [&str; 3] = ["follow", "PutItem", "CountersTable"];
const POST: [&str; 3] = ["publish", "TransactWriteItems", "PostsTable"];
const REPOST: [&str; 3] = ["publish", "TransactWriteItems", "ReactedTable"];
const REACT: [&str; 3] = ["publish", "TransactWriteItems", "ReactionsTable"];
const PRIVACY: [&str; 3] = ["profile", "UpdateItem", "PostsTable"];
const PROFILE: [&str; 3] = ["profile", "TransactWriteItems", "ProfilesTable"];
const EDIT_NOTICES: &str = r#"9 notices:write: PUT /v1/notices?id=$platform-2&id=$platform-1 {"title": "new", "renotify": true}"#;
const NOTICE: [&str; 3] = ["notice", "TransactWriteItems", "NoticesTable"];
const MARK_NOTICE: [&str; 3] = ["notice", "TransactWriteItems", "NoticeReadsTable"];
const STEP: [&str; 3] = ["projector", "UpdateItem", "PostsTable"];
const DELIVER: [&str; 3] = ["fan-out", "UpdateItem", "PostsTable"];
const PROJECT: [&str; 3] = ["projector", "BatchGetItem", "FollowingTable"];
const PROJECT_MARK: [&str; 3] = ["projector", "BatchGetItem", "ReadsTable"];
const READ_INBOX: [&str; 3] = ["mark-read", "UpdateItem", "InboxTable"];
const PROJECT_GROUP: [&str; 3] = ["projector", "UpdateItem", "InboxTable"];
const MIGRATE: [&str; 3] = ["migrate", "TransactWriteItems", "PostsTable"];

/// The reader follows an author with three posts and another with one. Four posts are unread.
const OPERATIONS: [Operation; 44] = [
    ("mark one read", MARK, "", MARK_ONE, r#"200 {"total":3}"#),
    ("mark one unread", MARK, MARK_ONE, "$reader: DELETE /v1/posts/$author-1/read", r#"200 {"total":4}"#),
    ("mark many", MARK, "", r#"$reader: POST /v1/reads {"posts": ["$author-1", "$other-1"]}"#, r#"200 {"total":2}"#),
    ("mark through", MARK, "", r#"$reader: POST /v1/reads {"author": "$author", "through": 2}"#, r#"200 {"total":2}"#),
    ("mark all", MARK, "", r#"$reader: POST /v1/reads {"all": true}"#, r#"200 {"total":0}"#),
    ("follow", RELATE, "", "$reader: PUT /v1/following/$new", r#"200 {"following": true}"#),
    ("unfollow", RELATE, "", "$reader: DELETE /v1/following/$author", r#"200 {"following": false}"#),
    ("remove a follower", RELATE, "", "$author: DELETE /v1/followers/$reader", r#"200 {"follower": false}"#),
    ("turn private", PRIVACY, "", r#"$new: PUT /v1/me/privacy {"private": true}"#, r#"200 {"private": true}"#),
    (
        "ask",
        RELATE,
        r#"$new: PUT /v1/me/privacy {"private": true}"#,
        "$reader: PUT /v1/following/$new",
        r#"200 {"following": false, "requested": true}"#,
    ),
    ("withdraw", RELATE, ASKED, "$reader: DELETE /v1/following/$new", r#"200 {"following": false}"#),
    ("accept", RELATE, ASKED, "$new: PUT /v1/follow-requests/$reader", r#"200 {"accepted": true}"#),
    ("reject", RELATE, ASKED, "$new: DELETE /v1/follow-requests/$reader", r#"200 {"accepted": false}"#),
    ("mute", RELATE, "", MUTE, r#"200 {"muted": true}"#),
    ("unmute", RELATE, MUTE, "$reader: DELETE /v1/mutes/$author", r#"200 {"muted": false}"#),
    ("block by the author", RELATE, "", BLOCK, r#"200 {"blocked": true}"#),
    ("unblock by the author", RELATE, BLOCK, "$author: DELETE /v1/blocks/$reader", r#"200 {"blocked": false}"#),
    ("make a list", LIST, "", MAKE_LIST, r#"201 {"id": "$reader-1"}"#),
    ("put on a list", RELATE, MAKE_LIST, "$reader: PUT /v1/lists/$reader-1/authors/$author", r#"200 {"member": true}"#),
    ("delete a list", DELETE_LIST, MAKE_LIST, "$reader: DELETE /v1/lists/$reader-1", "204 null"),
    ("edit a post", POST, "", r#"$author: PUT /v1/posts/$author-2 {"title": "new"}"#, r#"200 {"title": "new", "revision": 2}"#),
    ("set a profile", PROFILE, "", SET_PROFILE, r#"200 {"handle": "ann$author"}"#),
    ("publish", POST, "", PUBLISH, r#"201 {"seq": 4}"#),
    ("repost", REPOST, "", "$reader: PUT /v1/posts/$author-3/repost", r#"200 {"post": "$reader-1", "reposts": 1}"#),
    ("withdraw a repost", REPOST, REPOSTED, "$reader: DELETE /v1/posts/$author-3/repost", r#"200 {"post": null, "reposts": 0}"#),
    ("delete a repost", REPOST, REPOSTED, "$reader: DELETE /v1/posts/$reader-1", "204 null"),
    ("quote", POST, "", QUOTE, r#"201 {"seq": 4, "of": {"id": "$other-1", "title": "1"}}"#),
    ("delete", POST, "", "$author: DELETE /v1/posts/$author-2", "204 null"),
    ("edit a notice", NOTICE, "", r#"9 notices:write: PUT /v1/notices/$platform-1 {"title": "new"}"#, r#"200 {"title": "new"}"#),
    ("edit notices", NOTICE, "", EDIT_NOTICES, r#"200 {"items": [{"title": "new"}, {"title": "new"}]}"#),
    ("mark a notice", MARK_NOTICE, "", "$reader: PUT /v1/notices/$platform-1/read", r#"200 {"read": true, "unread": 1}"#),
    ("like", REACT, "", "$reader: PUT /v1/posts/$author-3/like", r#"200 {"liked": true}"#),
    ("favorite", REACT, "", FAVORITE, r#"200 {"favorited": true}"#),
    ("comment", REACT, "", COMMENT, r#"201 {"id": "$author-3-1", "text": "first"}"#),
    ("withdraw a comment", REACT, COMMENT, "$reader: DELETE /v1/posts/$author-3/comments/1", "204 null"),
    ("prefer", RELATE, "", r#"$reader: PUT /v1/following/$author {"preference": 7}"#, r#"200 {"preference": 7}"#),
    ("step", STEP, "", FAVORITE, r#"200 {"favorited": true}"#),
    ("fan-out", DELIVER, "", PUBLISH, r#"201 {"seq": 4}"#),
    ("projector", PROJECT, "", "$reader: DELETE /v1/following/$other", r#"200 {"following": false}"#),
    ("projector of a mark", PROJECT_MARK, "", "fact", r#"200 {"total": 3}"#),
    ("read a group", READ_INBOX, ASKED_READER, "$reader: PUT /v1/inbox/request/read", r#"200 {"unread": 0}"#),
    ("read the inbox", READ_INBOX, ASKED_READER, READ_ALL, r#"200 {"unread": 0}"#),
    ("projector of a group", PROJECT_GROUP, "", "$other: PUT /v1/following/$author", r#"200 {"following": true}"#),
    ("migrate", MIGRATE, "", "import", r#"200 {"unreadable": 0, "titles": ["Blog $new3", "Blog $new2", "Blog $new1"]}"#),
];

#[test]
fn a_repeated_request_after_a_disturbed_write_gives_the_right_result() {
    let configure = |options: &mut tidemark_local::Options| {
        options.environment.insert("AWS_ATTEMPT_TIMEOUT_MS".to_owned(), "1500".to_owned());
        options.environment.insert("AWS_OPERATION_TIMEOUT_MS".to_owned(), "6000".to_owned());
    };
    world_with(configure, async |world| {
        let legacy = LegacyRedis::start().await;
        let actions = [FaultAction::LoseResponse, FaultAction::Hang(Duration::from_secs(2)), FaultAction::Kill];
        for (round, action) in (0..).zip(actions) {
            let cells = Cell::for_each(world, &legacy, round, &OPERATIONS).await;
            assert_eq!(cells.len(), 44);
            let mut views = Vec::new();
            for (operation, cell) in &cells {
                views.push(cell.run(operation, &action).await);
            }
            assert_views_are_as_the_facts(world, &cells, &views).await;
        }
    });
}

/// The longest time from a write until all views have it, if its process was killed after it: the stream's delay, and
/// the delay of a `rank` task.
const WINDOW: Duration = Duration::from_secs(3);

#[test]
fn a_change_whose_process_was_killed_reaches_its_views_within_seconds() {
    world(async |world| {
        let legacy = LegacyRedis::start().await;
        let pace = world.pace().await;
        let changes = OPERATIONS.iter().filter(|(_, [function, ..], ..)| !["fan-out", "projector", "migrate"].contains(function));
        let cells = Cell::for_each(world, &legacy, 0, changes).await;
        let (mut times, mut views) = (Vec::new(), Vec::new());
        for ((name, [function, operation, table], before, step, _), cell) in &cells {
            cell.take_before(before).await;
            let planted = world.stack.faults().add(Fault::new(operation, FaultAction::Kill).of(function).on(table));
            let started = Instant::now();
            cell.take(step).await;
            assert_eq!(planted.fired(), 1, "{name}: the process was killed");
            world.idle().await;
            let took = started.elapsed();
            println!("{name}: {:.1} s", took.as_secs_f64());
            times.push((took, name));
            views.push(cell.seen().await);
        }
        assert_views_are_as_the_facts(world, &cells, &views).await;
        // A change that only reconcile finds takes minutes. A busy machine stands still for a second now and then.
        times.sort_unstable();
        let (median, longest) = (times[times.len() / 2].0, times[times.len() - 1].0);
        assert!(median < WINDOW + pace * 20 && longest < WINDOW * 5 + pace * 20, "{times:?}, pace {pace:?}");
    });
}

/// Cells that are prepared at a time.
const SIDE_BY_SIDE: usize = 8;

/// Nothing has changed what the views showed after each cell, and the facts say the same.
async fn assert_views_are_as_the_facts(world: &World, cells: &[(&Operation, Cell<'_>)], views: &[Value]) {
    let assert_seen = async |when: &str| {
        for (((name, ..), cell), views) in cells.iter().zip(views) {
            assert_eq!(*views, cell.seen().await, "{name}, {when}");
        }
    };
    assert_seen("later").await;
    world.flush_redis().await;
    assert_seen("in the facts").await;
}

/// A cell has users and a platform of its own.
struct Cell<'a> {
    world: &'a World,
    legacy: &'a LegacyRedis,
    reader: u64,
    author: u64,
    other: u64,
    /// An author without posts whom the reader does not follow.
    new: u64,
    platform: u16,
}

impl<'a> Cell<'a> {
    /// Prepares a cell for each operation: four unread posts of two authors and two notices, all of them in views.
    async fn for_each(
        world: &'a World,
        legacy: &'a LegacyRedis,
        round: u16,
        operations: impl IntoIterator<Item = &'a Operation>,
    ) -> Vec<(&'a Operation, Self)> {
        let cells: Vec<_> = (1..)
            .zip(operations)
            .map(|(number, operation)| {
                let platform = round * 1_000 + number;
                let [reader, author, other, new] = [1, 2, 3, 4].map(|user| 1_000_000 + u64::from(platform) * 10 + user);
                (operation, Self { world, legacy, reader, author, other, new, platform })
            })
            .collect();
        let all: Vec<&Self> = cells.iter().map(|(_, cell)| cell).collect();
        at_once(SIDE_BY_SIDE, &all, async |cell| cell.prepare().await).await;
        world.idle().await;
        at_once(SIDE_BY_SIDE, &all, async |cell| {
            let seen = cell.seen().await;
            assert_eq!(seen[1]["total"], 4, "{seen}");
        })
        .await;
        cells
    }

    /// Sends the request twice, the first one disturbed, and returns what the views show then.
    async fn run(&self, (name, call, before, step, expected): &Operation, action: &FaultAction) -> Value {
        let (world, cell) = (self.world, format!("{name}, {action:?}"));
        self.take_before(before).await;
        let [function, operation, table] = *call;
        let planted = world.stack.faults().add(Fault::new(operation, action.clone()).of(function).on(table));
        let first = self.take(step).await;
        world.idle().await;
        assert_eq!(planted.fired(), 1, "{cell}: the call was disturbed");
        let second = self.take(step).await;
        let expected = self.cast(expected);
        let (status, part) = expected.split_once(' ').unwrap();
        let right = second.status.to_string() == status && has(&second.body, &serde_json::from_str(part).unwrap());
        assert!(right, "{cell}: {} {}, after {} {}", second.status, second.body, first.status, first.body);
        world.idle().await;
        self.seen().await
    }

    async fn prepare(&self) {
        let world = self.world;
        world.user(self.reader).follow([self.author, self.other]).await;
        world.user(self.author).publish_all(1..=3).await;
        world.user(self.other).publish("1").await;
        publish_notices(world, &[self.platform], ["one", "two"]).await;
    }

    async fn take_before(&self, before: &str) {
        for step in before.split(" && ").filter(|step| !step.is_empty()) {
            self.take(step).await.ok();
            self.world.idle().await;
        }
    }

    /// Replaces the names of the cast.
    fn cast(&self, line: &str) -> String {
        let users = [("$reader", self.reader), ("$author", self.author), ("$other", self.other), ("$new", self.new)];
        let names = users.into_iter().chain([("$platform", u64::from(self.platform))]);
        names.fold(line.to_owned(), |line, (name, value)| line.replace(name, &value.to_string()))
    }

    async fn take(&self, step: &str) -> Response {
        let world = self.world;
        match step {
            "fact" => {
                let facts = &world.stack.app("mark-read").unwrap().stores.facts;
                let state = ReadState { version: 1, read: [1].into_iter().collect(), ..ReadState::default() };
                // The second time, the state is there.
                facts.put_reads(user_id(self.reader), user_id(self.author), &state).await.unwrap();
                world.idle().await;
                world.user(self.reader).get("/v1/unread").await
            }
            "import" => response(self.import().await),
            line => {
                let keyed = [PUBLISH, QUOTE, MAKE_LIST, COMMENT].contains(&line);
                let key: &[_] = if keyed { &[("idempotency-key", "once")] } else { &[] };
                request(world, &self.cast(line), key).await
            }
        }
    }

    async fn import(&self) -> Result<Value, String> {
        let (reader, author) = (self.reader, self.new);
        let blogs = [1, 2, 3].map(|number| Blog { at: THEN + number * 1_000, id: author * 10 + number });
        let mut commands = vec![command("FLUSHALL")];
        commands.extend(author_blogs(author, &blogs));
        commands.push(command(&format!("ZADD {} {} {author}", Layout::Following.key(reader), blogs[0].at)));
        commands.push(command(&format!("SADD {} {}", Layout::UserRead.key(reader), blogs[2].id)));
        self.legacy.run(&commands).await;
        let mut event = json!({ "source": self.legacy.url() });
        loop {
            let response = self.world.stack.invoke("migrate", event).await.map_err(|error| error.to_string())?;
            if response["done"] == true {
                self.world.idle().await;
                let posts = self.world.user(reader).walk(&format!("/v1/authors/{author}/posts"), 10).await;
                let titles: Vec<&Value> = posts.iter().map(|post| &post["title"]).collect();
                return Ok(json!({ "unreadable": response["totals"]["unreadable"], "titles": titles }));
            }
            event = response["next"].clone();
        }
    }

    /// All data that the API shows the reader.
    async fn seen(&self) -> Value {
        let reader = self.world.user(self.reader);
        let feed = reader.get("/v1/feed?limit=100").await.ok();
        let unread = reader.get("/v1/unread").await.ok();
        let ranked = reader.get("/v1/feed?order=ranked&limit=100").await.ok();
        let mut seen = vec![json!([feed["items"], feed["unread_total"]]), unread, ranked["items"].clone()];
        let following = format!("/v1/users/{}/following?limit=100", self.reader);
        let followers = [self.author, self.new].map(|author| format!("/v1/users/{author}/followers?limit=100"));
        let counters = [self.reader, self.author, self.other, self.new].map(|user| format!("/v1/users/{user}/counters"));
        let notices = ["", "/unread"].map(|what| format!("/v1/notices{what}?platform={}", self.platform));
        let requests = ["/v1/follow-requests?direction=sent".to_owned(), format!("/v1/users/{}", self.new)];
        let own = "/v1/feed?own=true&include=counts&limit=100".to_owned();
        for path in [following, own].into_iter().chain(followers).chain(counters).chain(notices).chain(requests) {
            seen.push(reader.get(&path).await.ok());
        }
        // The author may block the reader.
        for path in [format!("/v1/posts/{}-3", self.author), format!("/v1/posts/{}-3/reposts", self.author)] {
            let response = reader.get(&path).await;
            seen.push(json!([response.status, response.body["reposts"], response.body["items"]]));
        }
        seen.push(self.world.user(self.new).get("/v1/follow-requests").await.ok());
        let post = format!("/v1/posts/{}-3", self.author);
        for path in [post.clone(), format!("{post}/comments"), format!("/v1/authors/{}/posts?include=counts", self.author)] {
            // A block by the author hides them.
            seen.push(reader.get(&path).await.body["items"].clone());
        }
        for user in [self.reader, self.author, self.new] {
            seen.push(self.world.user(user).get("/v1/inbox").await.ok());
        }
        json!(seen)
    }
}

fn response(result: Result<Value, String>) -> Response {
    let (status, body) = result.map_or_else(|error| (500, json!(error)), |body| (200, body));
    Response { status, headers: HeaderMap::new(), body }
}

//! Everything out of a stack and into another: the same lines, whatever interrupts the import, and right views.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde_json::{Value, json};
use tidemark::{
    domain::Timestamp,
    facts::{Facts, schema},
};
use tidemark_tests::{World, in_one_thread, items::n, parameter, until, user_id, world};
use tidemark_transfer::{Report, export, import};

use crate::damage::{
    items,
    proxy::{Fate, world_behind_a_proxy},
};

fn facts(world: &World) -> &Facts {
    &world.stack.app("publish").unwrap().stores.facts
}

/// A file beside the data of a test.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tidemark_tests::data_dir())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, lines: &[String]) -> PathBuf {
        std::fs::write(self.path(name), lines.join("\n")).unwrap();
        self.path(name)
    }
}

/// Exports a stack. Returns the lines, sorted.
async fn exported(world: &World, path: &Path) -> Vec<String> {
    let report = export::to_file(facts(world), path).await.unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert_eq!((report.written, report.damaged), (lines.len() as u64, 0), "{report:?}");
    lines.sort();
    lines
}

async fn imported(world: &World, path: &Path) -> Report {
    let bad = Mutex::new(Vec::new());
    let tell = |line: u64, reason: &str| bad.lock().unwrap().push(format!("line {line}: {reason}"));
    let report = import::from_file_telling(facts(world), path, import::PARALLEL, &tell).await.unwrap();
    assert_eq!((report.bad, report.read), (0, report.written + report.already_there), "{:?}", bad.lock().unwrap());
    report
}

/// Imports a file with bad lines. Returns their reasons too.
async fn with_bad(world: &World, path: &Path) -> (Report, BTreeMap<u64, String>) {
    let bad = Mutex::new(BTreeMap::new());
    let tell = |line: u64, reason: &str| drop(bad.lock().unwrap().insert(line, reason.to_owned()));
    let report = import::from_file_telling(facts(world), path, import::PARALLEL, &tell).await.unwrap();
    (report, bad.into_inner().unwrap())
}

/// What users ask for, one after the other.
const REQUESTS: &[(u64, &str)] = &[
    (1, "PUT /v1/posts/10-3/like"),
    (5, "PUT /v1/posts/10-2/like"),
    (5, "PUT /v1/posts/10-2/favorite"),
    (6, "PUT /v1/posts/11-7/favorite"),
    (1, "PUT /v1/posts/10-4/read"),
    (5, "POST /v1/reads {\"author\":\"10\",\"through\":3}"),
    (5, "DELETE /v1/posts/10-2/read"),
    (1, "POST /v1/reads {\"posts\":[\"11-1\",\"11-2\",\"11-30\"]}"),
    (7, "PUT /v1/posts/10-1/read"),
    (5, "POST /v1/posts/10-2/comments {\"text\":\"on a post that is deleted\"}"),
    (10, "DELETE /v1/posts/10-2"),
    (10, "DELETE /v1/posts/10-5"),
    (1, "POST /v1/lists {\"name\":\"few\"}"),
    (1, "POST /v1/lists {\"name\":\"none\"}"),
    (1, "PUT /v1/lists/1-1/authors/11"),
    (1, "PUT /v1/mutes/11"),
    (7, "PUT /v1/mutes/99"),
    (5, "PUT /v1/blocks/12"),
    (8, "PUT /v1/following/2"),
    (9, "PUT /v1/following/2"),
    (2, "PUT /v1/follow-requests/8"),
    (6, "DELETE /v1/following/1"),
    (2, "POST /v1/posts {\"title\":\"for few\"}"),
    (90, "POST /v1/posts {\"title\":\"of a user who leaves\"}"),
    (6, "PUT /v1/posts/10-1/repost"),
    (6, "PUT /v1/posts/11-1/repost"),
    (6, "DELETE /v1/posts/11-1/repost"),
    (5, "PUT /v1/posts/11-2/repost"),
    (11, "PUT /v1/posts/11-3/repost"),
    (6, "POST /v1/posts {\"title\":\"a quote\",\"of\":\"10-1\"}"),
    (1, "POST /v1/posts {\"title\":\"another\",\"of\":\"10-1\"}"),
    (5, "POST /v1/posts {\"title\":\"a third\",\"of\":\"10-3\"}"),
    (5, "DELETE /v1/posts/5-2"),
    (6, "POST /v1/posts/10-1/comments {\"text\":\"first \\\"comment\\\"\"}"),
    (1, "POST /v1/posts/10-1/comments {\"text\":\"second\"}"),
    (10, "POST /v1/posts/10-1/comments {\"text\":\"own\"}"),
    (90, "POST /v1/posts/10-1/comments {\"text\":\"of a user who leaves\"}"),
    (6, "POST /v1/posts/10-1/comments {\"text\":\"withdrawn\"}"),
    (6, "DELETE /v1/posts/10-1/comments/5"),
    (90, "PUT /v1/following/10"),
    (5, "PUT /v1/following/90"),
];

/// Everything that people can do here, among few users.
async fn a_rich_stack(world: &World) {
    let user = |id| world.user(id);
    let profile =
        json!({ "name": "Ada", "handle": "ada", "picture": "https://x.example/a", "bio": "b\n", "data": { "n": 1.50 } });
    user(1).put_body("/v1/me/profile", &profile).await.ok();
    for handle in ["old_one", "new_one"] {
        user(4).put_body("/v1/me/profile", &json!({ "name": "Four", "handle": handle })).await.ok();
    }
    user(2).put_body("/v1/me/profile", &json!({ "name": "Two" })).await.ok();
    for private in [2, 3] {
        user(private).put_body("/v1/me/privacy", &json!({ "private": true })).await.ok();
    }
    user(5).follow([10]).await;
    user(10).publish_all(["one", "two"]).await;
    user(1).follow([10, 11]).await;
    user(1).put_body("/v1/following/10", &json!({ "preference": -3 })).await.ok();
    let rich = json!({ "title": "three", "body": "a \"body\"", "data": { "b": [1, 2] }, "weight": 7 });
    user(10).post("/v1/posts", &rich).await.ok();
    user(10).publish_all(["four", "five"]).await;
    user(11).publish_all((0..40).map(|number| format!("post {number}"))).await;
    user(10).put_body("/v1/posts/10-3", &json!({ "title": "three again", "data": { "b": 2 } })).await.ok();
    user(6).follow([10, 11, 1]).await;
    for (reader, request) in REQUESTS {
        let response = user(*reader).request(request).await;
        assert!((200..300).contains(&response.status), "{request}: {} {}", response.status, response.body);
    }
    crate::publish_notices(world, &[1, 2], ["first", "second", "third"]).await;
    let administrator = world.administrator();
    administrator.put_body("/v1/notices/1-1", &json!({ "title": "first again", "renotify": true })).await.ok();
    administrator.delete("/v1/notices/1-3").await;
    user(1).put("/v1/notices/1-2/read").await.ok();
    user(5).post("/v1/notices/reads", &json!({ "platform": 1, "through": 2 })).await.ok();
    user(90).delete("/v1/me").await.ok();
    until("the erasure is done", async || user(90).get("/v1/me/erasure").await.ok()["state"] == "done").await;
    world.idle().await;
    // One group of author 10 was read, and has no act since. The inbox of author 11 was read, and has.
    user(10).put("/v1/inbox/like-3/read").await.ok();
    let before = user(11).get("/v1/inbox").await.items()[0]["latest_at"].clone();
    user(11).post("/v1/inbox/reads", &json!({ "before": before })).await.ok();
    user(1).put("/v1/posts/11-9/like").await.ok();
    world.idle().await;
}

const USERS: [u64; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

/// What the API says to every user.
async fn said(world: &World) -> BTreeMap<String, Value> {
    let mut said = BTreeMap::new();
    for user in USERS {
        for path in [
            "/v1/feed?limit=100&include=body&order=time",
            "/v1/feed?status=unread&limit=100",
            "/v1/unread",
            "/v1/authors/10/posts?limit=100",
            "/v1/authors/2/posts",
            "/v1/posts/10-3",
            "/v1/posts/10-2",
            "/v1/lists",
            "/v1/lists/1-1/authors",
            "/v1/mutes",
            "/v1/blocks",
            "/v1/me/likes",
            "/v1/me/favorites",
            "/v1/follow-requests",
            "/v1/follow-requests?direction=sent",
            "/v1/notices?platform=1",
            "/v1/notices/unread?platform=1",
            "/v1/notices/unread?platform=2",
            "/v1/handles/ada",
            "/v1/users/2",
            "/v1/users/10",
            "/v1/users/10/followers",
            "/v1/posts/10-3/likes",
            "/v1/posts/10-1",
            "/v1/posts/10-1/reposts",
            "/v1/posts/10-1/comments",
            "/v1/posts/11-41",
            "/v1/authors/6/posts",
            "/v1/me/export?limit=100",
            "/v1/inbox?limit=100",
            "/v1/inbox/unread",
        ] {
            let response = world.user(user).get(path).await;
            let mut body = response.body;
            for field in ["next_cursor", "first_cursor", "request_id"] {
                body.as_object_mut().and_then(|body| body.remove(field));
            }
            said.insert(format!("{user} {path}"), json!([response.status, body]));
        }
    }
    said
}

/// Every item of every table as its sorted characters: maps in items have no order as text.
async fn stored(world: &World) -> Vec<String> {
    let text = |(table, item)| {
        let mut characters: Vec<char> = format!("{table} {item:?}").chars().collect();
        characters.sort_unstable();
        characters.into_iter().collect()
    };
    let mut stored: Vec<String> = items(world).await.into_iter().map(text).collect();
    stored.sort();
    stored
}

#[test]
fn a_stack_that_was_imported_says_the_same_and_has_the_same_lines() {
    in_one_thread(async {
        let files = Files::new();
        let (from, to) = (World::start(|_| {}).await, World::start(|_| {}).await);
        a_rich_stack(&from).await;
        let lines = exported(&from, &files.path("a")).await;
        // The lines of the contract have exactly these fields.
        let start = |text: &str| assert!(lines.iter().any(|line| line.starts_with(text)), "{text}: {lines:#?}");
        start(r#"{"kind":"mute","user":"1","other":"11","since":"#);
        start(r#"{"kind":"follow","user":"1","author":"10","since":"#);
        assert!(
            lines.iter().any(|line| line.contains(r#""author":"10"#) && line.ends_with(r#"Z","preference":-3}"#)),
            "{lines:#?}"
        );
        for text in [
            r#"{"kind":"repost","user":"6","id":"6-1","of":"10-1","created_at":"#,
            r#"{"kind":"comment","user":"6","id":"10-1-1","post":"10-1","text":"first \"comment\"","created_at":"#,
            r#"{"kind":"comment","id":"10-1-4","post":"10-1","text":null,"created_at":"#,
            r#"{"kind":"comment","user":"6","id":"10-1-5","post":"10-1","text":null,"created_at":"#,
            r#"{"kind":"inbox-read","user":"10","id":"like-3","at":"#,
            r#"{"kind":"inbox-read","user":"11","at":"#,
        ] {
            start(text);
        }
        assert!(lines.iter().any(|line| line.contains(r#""id":"6-3","title":"a quote""#) && line.ends_with(r#""of":"10-1"}"#)));
        let report = imported(&to, &files.path("a")).await;
        assert_eq!((report.read, report.written), (lines.len() as u64, lines.len() as u64), "{report:?}");
        assert_eq!(exported(&to, &files.path("b")).await, lines);
        to.idle().await;

        let (before, after) = (said(&from).await, said(&to).await);
        let differences: Vec<_> = before.iter().filter(|(what, said)| after[*what] != **said).collect();
        for (what, said) in &differences {
            println!("{what}\n  {said}\n  {}", after[*what]);
        }
        assert!(differences.is_empty());
        let report = json!(to.walk_over_all_users(true, std::time::Duration::from_millis(50)).await);
        assert_eq!((&report["found"], &report["failed"]), (&json!({}), &json!(0)), "{report}");

        // Again, and the file of a stack into the stack itself.
        for world in [&to, &from] {
            let before = stored(world).await;
            let report = imported(world, &files.path("a")).await;
            assert_eq!((report.written, report.already_there), (0, lines.len() as u64), "{report:?}");
            assert!(stored(world).await == before, "an import of what is there changes nothing");
        }
        // Numbers go on, and who has left stays away.
        for world in [&from, &to] {
            assert_eq!(world.user(10).publish("six").await, "10-6");
            let notice = json!({ "platforms": [1], "title": "fourth" });
            assert_eq!(world.administrator().post("/v1/notices", &notice).await.items()[0]["id"], "1-4");
            assert_eq!(world.user(90).get("/v1/feed").await.problem(), (403, "/problems/erased"));
            let comment = world.user(1).post("/v1/posts/10-1/comments", &json!({ "text": "sixth" })).await;
            assert_eq!(comment.body["id"], "10-1-6");
            world.user(6).delete("/v1/posts/10-1/repost").await.ok();
            assert_eq!(world.user(1).get("/v1/posts/10-1/reposts").await.items(), [] as [Value; 0]);
            world.idle().await;
            assert_eq!(world.user(5).feed("unread").await.len(), world.user(5).unread_total().await as usize);
        }
        assert_eq!(from.user(5).feed("all").await, to.user(5).feed("all").await);
        from.finish().await;
        to.finish().await;
    });
}

#[test]
fn an_import_that_was_killed_is_completed_by_the_same_command() {
    in_one_thread(async {
        let files = Files::new();
        let from = World::start(|_| {}).await;
        a_rich_stack(&from).await;
        let mut lines = exported(&from, &files.path("a")).await;
        from.finish().await;
        let expected = lines.clone();
        lines.shuffle(&mut StdRng::seed_from_u64(7));
        let file = files.write("shuffled", &lines);
        World::run(async |to| {
            let facts = facts(to);
            let (reader, author) = (user_id(1), user_id(10));
            let moments: [(&str, &dyn AsyncHolds); 6] = [
                ("a profile", &async || facts.profiles(&[reader]).await.unwrap().len() == 1),
                ("posts", &async || facts.head_of(user_id(11)).await.unwrap().latest_seq > 20),
                ("reads", &async || !facts.all_reads(reader).await.unwrap().is_empty()),
                ("follows", &async || facts.edges(reader, &[author]).await.unwrap().len() == 1),
                ("lists", &async || !facts.lists(reader).await.unwrap().lists.is_empty()),
                ("notices", &async || facts.platform_head("1".parse().unwrap()).await.unwrap().latest_seq > 0),
            ];
            for (what, moment) in moments {
                let seen = async {
                    while !moment.holds().await {
                        tokio::task::yield_now().await;
                    }
                };
                tokio::select! {
                    done = import::from_file(facts, &file, import::PARALLEL) => assert_eq!(done.unwrap().bad, 0, "not killed at {what}"),
                    () = seen => {}
                }
            }
            imported(to, &file).await;
            assert_eq!(imported(to, &file).await.written, 0);
            assert_eq!(exported(to, &files.path("b")).await, expected);
            to.idle().await;
            let report = json!(to.walk_over_all_users(true, std::time::Duration::from_millis(50)).await);
            assert_eq!((&report["found"], &report["failed"]), (&json!({}), &json!(0)), "{report}");
        })
        .await;
    });
}

/// A condition that is asked again and again.
trait AsyncHolds {
    fn holds(&self) -> std::pin::Pin<Box<dyn Future<Output = bool> + '_>>;
}

impl<F: AsyncFn() -> bool> AsyncHolds for F {
    fn holds(&self) -> std::pin::Pin<Box<dyn Future<Output = bool> + '_>> {
        Box::pin(self())
    }
}

fn post(author: u64, seq: u64, second: u64) -> String {
    let at = format!("2025-06-01T00:{:02}:{:02}.000Z", second / 60, second % 60);
    json!({ "kind": "post", "user": author.to_string(), "id": format!("{author}-{seq}"), "title": format!("post {seq}"), "created_at": at })
        .to_string()
}

fn follow(user: u64, author: u64, since: &str) -> String {
    json!({ "kind": "follow", "user": user.to_string(), "author": author.to_string(), "since": since }).to_string()
}

#[test]
fn views_of_a_stack_in_use_show_what_was_imported() {
    world(async |world| {
        let files = Files::new();
        // Reader 1 follows an author who has no posts yet, and reads the feed. Reader 2 has a view without the author.
        world.live_reader(1, [20, 21]).await;
        world.live_reader(2, [21]).await;
        let here = world.publish_and_deliver(21, "here").await;
        let mut lines: Vec<String> = (1..=70).map(|seq| post(20, seq, seq)).collect();
        lines.extend([follow(2, 20, "2025-06-01T00:01:00.000Z"), follow(3, 20, "2025-05-01T00:00:00.000Z")]);
        lines.shuffle(&mut StdRng::seed_from_u64(1));
        let report = imported(world, &files.write("file", &lines)).await;
        assert_eq!(report.written, 72);
        world.idle().await;
        world.resume_fan_outs().await;
        world.idle().await;
        // Posts from before the follow are read.
        world.assert_unread([1], 1).await;
        world.assert_unread([2], 11).await;
        world.assert_unread([3], 70).await;
        for reader in [1, 2, 3] {
            let user = world.user(reader);
            let live = (user.feed("all").await, user.feed("unread").await);
            world.flush_redis().await;
            assert_eq!((user.feed("all").await, user.feed("unread").await), live, "reader {reader}");
            assert_eq!(live.0.iter().any(|(id, _)| *id == here), reader < 3);
            assert_eq!(live.0.iter().filter(|(id, _)| id.starts_with("20-")).count(), 70, "reader {reader}");
        }
        assert_eq!(world.user(20).publish("next").await, "20-71");
        world.idle().await;
        world.assert_unread([1], 2).await;
        let report = json!(world.walk_over_all_users(true, std::time::Duration::from_millis(50)).await);
        assert_eq!((&report["found"], &report["failed"]), (&json!({}), &json!(0)), "{report}");
    });
}

#[test]
fn a_bad_line_is_reported_with_its_number_and_stops_no_other() {
    in_one_thread(World::run_with(parameter("FollowingLimit", "2"), async |world| {
        let files = Files::new();
        world.user(30).publish("here").await;
        world.user(9).delete("/v1/me").await.ok();
        let since = "2025-06-02T00:00:00.000Z";
        let like = |post: &str| json!({ "kind": "like", "user": "1", "post": post, "at": since }).to_string();
        let read =
            |through: u64| json!({ "kind": "read", "user": "1", "author": "40", "through": through, "ranges": [] }).to_string();
        let lines = [
            post(40, 1, 1),
            "no JSON".to_owned(),
            String::new(),
            post(40, 2, 2),
            r#"{"kind":"folow","user":"1"}"#.to_owned(),
            follow(1, 40, since),
            follow(1, 41, since),
            follow(1, 42, since),
            post(30, 1, 1),
            like("40-1"),
            like("40-7"),
            read(2),
            read(3),
            follow(9, 40, since),
            post(40, 2, 2),
            follow(2, 40, "2099-06-02T00:00:00.000Z"),
            json!({ "kind": "list", "user": "2", "id": "2-1", "name": "x", "authors": ["40"] }).to_string(),
            "\u{feff}{}".to_owned(),
            follow(3, 40, since),
        ];
        let (report, bad) = with_bad(world, &files.write("file", &lines)).await;
        let expected = [
            (2, "expected ident"),
            (5, "unknown kind \"folow\""),
            (9, "the author has another post with this number"),
            (11, "there is no such post"),
            (13, "post 40-3 does not exist"),
            (14, "one of the users has left"),
            (16, "`since` is more than a day ahead"),
            (17, "user 2 does not follow 40"),
            (18, "expected value"),
        ];
        for (line, reason) in expected {
            assert!(bad.get(&line).is_some_and(|told| told.starts_with(reason)), "line {line}: {bad:#?}");
        }
        // One of three follows is over the limit of two.
        let over: Vec<&u64> =
            bad.iter().filter(|(_, told)| told.contains("maximum number of authors")).map(|(line, _)| line).collect();
        assert!(over.len() == 1 && (6..=8).contains(over[0]), "{bad:#?}");
        assert_eq!((report.read, report.written, report.already_there, report.bad), (18, 7, 1, 10), "{report:?}");
        assert_eq!((report.kinds[&tidemark_transfer::line::Kind::Post].already_there, bad.len()), (1, 10));
        world.idle().await;
        assert_eq!(world.user(3).feed("all").await.len(), 2);
        assert_eq!(world.user(1).get("/v1/users/1/counters").await.ok()["followings"], 2);
    }));
}

const OLD: &str = "2025-06-02T00:00:00.000Z";

/// A follow from after a block, privacy that has ended, a list, a notice, and users who have only one thing.
async fn what_lines_do_not_fit(world: &World) {
    let user = |id| world.user(id);
    user(2).follow([1]).await;
    for private in [true, false] {
        user(3).put_body("/v1/me/privacy", &json!({ "private": private })).await.ok();
    }
    user(1).follow([4, 5]).await;
    user(1).post("/v1/lists", &json!({ "name": "mine" })).await.ok();
    crate::publish_notices(world, &[1], ["first"]).await;
    user(6).put_body("/v1/me/profile", &json!({ "name": "Six" })).await.ok();
    user(4).publish_all(["one"]).await;
    user(7).put("/v1/posts/4-1/like").await.ok();
}

/// Lines whose subjects are here, and have changed since or are others.
#[test]
fn lines_that_do_not_fit_what_is_here_change_nothing_and_stop_no_other() {
    world(async |world| {
        let (files, user) = (Files::new(), |id| world.user(id));
        what_lines_do_not_fit(world).await;
        let notice = |id: &str, rest: Value| {
            let mut line = json!({ "kind": "notice", "id": id, "title": "a", "created_at": OLD });
            line.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            line.to_string()
        };
        let erased = |user: &str| json!({ "kind": "erased", "user": user, "started_at": OLD, "finished_at": OLD }).to_string();
        let private = |user: &str| {
            json!({ "kind": "profile", "user": user, "name": null, "updated_at": null, "private": true }).to_string()
        };
        let comment = |number: u64| {
            json!({ "kind": "comment", "user": "7", "id": format!("4-1-{number}"), "post": "4-1", "text": "a", "created_at": OLD })
                .to_string()
        };
        let lines = [
            json!({ "kind": "block", "user": "1", "other": "2", "since": OLD }).to_string(),
            private("3"),
            json!({ "kind": "list", "user": "1", "id": "1-1", "name": "theirs", "authors": ["4"] }).to_string(),
            notice("1-1", json!({})),
            notice("1-2", json!({ "expires_at": "2025-07-01T00:00:00.000Z" })),
            erased("6"),
            erased("7"),
            erased("20"),
            comment(2_000_000),
            comment(2),
        ];
        let file = files.write("file", &lines);
        let (report, bad) = with_bad(world, &file).await;
        let expected = [
            (3, "another list of the user has this number"),
            (4, "another notice has this number"),
            (6, "the user is here"),
            (7, "the user is here"),
            (9, "more than a million numbers before it are missing"),
        ];
        let expected: BTreeMap<u64, String> = expected.map(|(line, reason)| (line, reason.to_owned())).into();
        assert_eq!(bad, expected);
        assert_eq!((report.written, report.already_there), (2, 3), "{report:?}");
        world.idle().await;
        assert_eq!(user(2).get("/v1/relations/1").await.ok()["following"], true);
        assert_eq!(user(1).get("/v1/blocks").await.items(), [] as [Value; 0]);
        assert_eq!(facts(world).head_of(user_id(3)).await.unwrap().privacy, 2);
        assert_eq!(user(1).get("/v1/lists/1-1/authors").await.items(), [] as [Value; 0]);
        assert_eq!(user(1).get("/v1/notices?platform=1").await.items().len(), 1);
        assert_eq!(user(20).get("/v1/feed").await.problem(), (403, "/problems/erased"));
        let next = user(7).post("/v1/posts/4-1/comments", &json!({ "text": "next" })).await;
        assert_eq!(next.body["id"], "4-1-3");
        // A killed import has made a user private without the fence; the same line raises it.
        let head = [("privacy", n(1)), ("latest_seq", n(0)), ("latest_at", n(0))];
        world.update_item("PostsTable", schema::head(user_id(21)), &head, &[]).await;
        let (report, _) = with_bad(world, &files.write("private", &[private("21"), private("22")])).await;
        assert_eq!((report.written, report.already_there), (1, 1), "{report:?}");
        for user in [21, 22] {
            let counter = world.item("CountersTable", schema::followers_counter(user_id(user), 0)).await;
            assert_eq!(counter.unwrap()["privacy"], n(1));
        }
        let report = json!(world.walk_over_all_users(true, std::time::Duration::from_millis(50)).await);
        assert_eq!((&report["found"], &report["failed"]), (&json!({}), &json!(0)), "{report}");
    });
}

#[test]
fn requests_over_the_limit_are_bad_lines() {
    world(async |world| {
        let files = Files::new();
        let request =
            |other: u64| json!({ "kind": "request", "user": "1", "other": other.to_string(), "direction": "sent", "since": OLD });
        let lines: Vec<String> = (2..=1_003).map(|other| request(other).to_string()).collect();
        let (report, bad) = with_bad(world, &files.write("file", &lines)).await;
        assert_eq!((report.written, report.bad), (1_000, 2), "{report:?}");
        assert!(bad.values().all(|reason| reason == "the user has the maximum number of requests"), "{bad:?}");
    });
}

#[test]
fn a_post_whose_line_was_bad_is_imported_once_the_line_is_corrected() {
    world(async |world| {
        let files = Files::new();
        let mut lines: Vec<String> = (1..=4).map(|seq| post(20, seq, seq)).collect();
        lines.push(post(21, 1, 1));
        lines[1] = lines[1].replace("post 2", "");
        let (report, bad) = with_bad(world, &files.write("file", &lines)).await;
        assert_eq!((report.written, report.bad), (2, 3), "{report:?}");
        assert_eq!(bad.keys().copied().collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(bad[&3], "an earlier post of the author is bad");
        lines[1] = post(20, 2, 2);
        let report = imported(world, &files.write("corrected", &lines)).await;
        assert_eq!((report.written, report.already_there), (3, 2), "{report:?}");
        assert_eq!(world.user(1).get("/v1/authors/20/posts").await.items().len(), 4);
    });
}

/// A migration has years of follows. An inbox has the acts of 90 days.
#[test]
fn follows_from_before_the_days_of_an_inbox_cost_it_nothing() {
    world_behind_a_proxy(async |world, proxy| {
        let now = world.stack.app("publish").unwrap().stores.clock.now();
        let of_the_inbox = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&of_the_inbox);
        proxy.decide(move |asked| {
            let is_of_the_inbox = asked.function == "projector" && asked.body.to_string().contains("InboxTable");
            seen.fetch_add(usize::from(is_of_the_inbox), Ordering::SeqCst);
            Fate::Forwarded
        });
        let import = async |first: u64, days: u64| {
            let since = Timestamp::from_ms(now.ms() - days * 24 * 3_600_000);
            let line =
                |user: u64| json!({ "kind": "follow", "user": user.to_string(), "author": "10", "since": since }).to_string();
            let files = Files::new();
            imported(world, &files.write("follows", &(first..first + 20).map(line).collect::<Vec<_>>())).await;
            world.idle().await;
            of_the_inbox.load(Ordering::SeqCst)
        };
        assert_eq!(import(100, 92).await, 0);
        assert_ne!(import(200, 1).await, 0);
        let groups = world.user(10).get("/v1/inbox").await.items();
        assert_eq!((groups.len(), &groups[0]["count"]), (1, &json!(20)));
        assert_eq!(world.follower_count(10).await, 40);
    });
}

//! A request with an idempotency key is done once. Its repetition gets the first response, and does not touch what has
//! arrived or changed in between, also if the process of the first attempt was killed after any of its writes.

use std::time::Duration;

use serde_json::{Value, json};
use tidemark_local::{Fault, FaultAction};
use tidemark_tests::{Response, World, has, until, world};

use crate::{publish_notices, request};

/// A change between a request and its repetition: a step, and what a path shows from then on, with a part of it.
type Between = (&'static str, &'static str, &'static str);

/// A request: its name, the function, the step, the changes in between, and another body for the same key.
type Keyed = (&'static str, &'static str, &'static str, &'static [Between], &'static str);

const UNREAD: &str = "$reader: DELETE /v1/posts/$author-1/read";
const UNREAD_POST: Between = (UNREAD, "/v1/posts/$author-1", r#"{"read": false}"#);
const NEW_POST: Between = (r#"$author: POST /v1/posts {"title": "later"}"#, "/v1/posts/$author-4", r#"{"read": false}"#);
const UNREAD_NOTICE: Between = ("$reader: DELETE /v1/notices/$platform-2/read", "/v1/notices/$platform-2", r#"{"read": false}"#);
const RENOTIFIED: Between = (
    r#"9 notices:write: PUT /v1/notices/$platform-1 {"title": "again", "renotify": true}"#,
    "/v1/notices/$platform-1",
    r#"{"title": "again", "read": false}"#,
);
const NEW_NOTICE: Between = (
    r#"9 notices:write: POST /v1/notices {"platforms": [$platform], "title": "three"}"#,
    "/v1/notices/$platform-3",
    r#"{"read": false}"#,
);

/// The reader follows an author with three posts and another with one, and has a platform with two notices.
const KEYED: [Keyed; 8] = [
    (
        "mark all",
        "mark-read",
        r#"$reader: POST /v1/reads {"all": true}"#,
        &[NEW_POST, UNREAD_POST],
        r#"$reader: POST /v1/reads {"all": true, "before": "2020-01-01T00:00:00Z"}"#,
    ),
    (
        "mark all before a time to come",
        "mark-read",
        r#"$reader: POST /v1/reads {"all": true, "before": "2099-01-01T00:00:00Z"}"#,
        &[NEW_POST, UNREAD_POST],
        r#"$reader: POST /v1/reads {"all": true}"#,
    ),
    (
        "mark through a number that is still to come",
        "mark-read",
        r#"$reader: POST /v1/reads {"author": "$author", "through": 99}"#,
        &[NEW_POST, UNREAD_POST],
        r#"$reader: POST /v1/reads {"author": "$other", "through": 99}"#,
    ),
    (
        "mark posts",
        "mark-read",
        r#"$reader: POST /v1/reads {"posts": ["$author-1", "$author-2", "$other-1"]}"#,
        &[UNREAD_POST],
        r#"$reader: POST /v1/reads {"posts": ["$author-1"]}"#,
    ),
    (
        "mark notices through a number that is still to come",
        "notice",
        r#"$reader: POST /v1/notices/reads {"platform": $platform, "through": 99}"#,
        &[NEW_NOTICE, UNREAD_NOTICE, RENOTIFIED],
        r#"$reader: POST /v1/notices/reads {"platform": $platform, "through": 1}"#,
    ),
    (
        "notify again",
        "notice",
        r#"9 notices:write: PUT /v1/notices/$platform-1 {"title": "new", "renotify": true}"#,
        &[
            ("$reader: PUT /v1/notices/$platform-1/read", "/v1/notices/$platform-1", r#"{"read": true}"#),
            (
                "9 notices:write: GET /v1/notices/$platform-1",
                "/v1/notices/unread?platform=$platform",
                r#"{"unread": 1, "read": 1}"#,
            ),
        ],
        r#"9 notices:write: PUT /v1/notices/$platform-2 {"title": "new", "renotify": true}"#,
    ),
    (
        "edit a notice",
        "notice",
        r#"9 notices:write: PUT /v1/notices/$platform-1 {"title": "new"}"#,
        &[(
            r#"9 notices:write: PUT /v1/notices/$platform-1 {"title": "newer", "body": "b"}"#,
            "/v1/notices/$platform-1",
            r#"{"title": "newer", "body": "b"}"#,
        )],
        r#"9 notices:write: PUT /v1/notices/$platform-1 {"title": "new", "renotify": true}"#,
    ),
    (
        "make a list",
        "follow",
        r#"$reader: POST /v1/lists {"name": "friends"}"#,
        &[("$reader: DELETE /v1/lists/$reader-1", "/v1/lists", r#"{"items": []}"#)],
        r#"$reader: POST /v1/lists {"name": "foes"}"#,
    ),
];

/// The users and the platform of one case.
struct Case<'a> {
    world: &'a World,
    number: u64,
}

impl Case<'_> {
    async fn begin(world: &World, number: u64) -> Case<'_> {
        let case = Case { world, number };
        let [reader, author, other] = ["$reader", "$author", "$other"].map(|name| case.cast(name).parse::<u64>().unwrap());
        world.user(reader).follow([author, other]).await;
        world.user(author).publish_all(1..=3).await;
        world.user(other).publish("1").await;
        publish_notices(world, &[number as u16], ["one", "two"]).await;
        world.idle().await;
        assert_eq!(world.user(reader).unread_total().await, 4);
        case
    }

    fn cast(&self, line: &str) -> String {
        let user = |index: u64| (2_000_000 + self.number * 10 + index).to_string();
        let names = [("$reader", user(1)), ("$author", user(2)), ("$other", user(3)), ("$platform", self.number.to_string())];
        names.into_iter().fold(line.to_owned(), |line, (name, value)| line.replace(name, &value))
    }

    async fn take(&self, step: &str, key: Option<&str>) -> Response {
        // A key of this case alone: all cases have the same administrator.
        let key = key.map(|key| format!("{key} {}", self.number));
        let headers: Vec<_> = key.iter().map(|key| ("idempotency-key", key.as_str())).collect();
        request(self.world, &self.cast(step), &headers).await
    }

    async fn shown(&self, path: &str) -> Value {
        self.take(&format!("$reader: GET {path}"), None).await.body
    }

    /// Makes the changes. Returns those that changed what their path shows: an "unread" of what was never read does
    /// not.
    async fn change(&self, between: &[Between]) -> Vec<Between> {
        let mut made = Vec::new();
        for &(step, path, part) in between {
            let before = self.shown(path).await;
            self.take(step, None).await;
            self.world.idle().await;
            if self.shown(path).await != before || step.contains(": GET ") {
                made.push((step, path, part));
            }
        }
        made
    }

    /// The changes that do not stand.
    async fn undone(&self, between: &[Between]) -> Vec<String> {
        let mut undone = Vec::new();
        for &(step, path, part) in between {
            let (shown, part) = (self.shown(path).await, self.cast(part));
            if !has(&shown, &serde_json::from_str(&part).unwrap()) {
                undone.push(format!("after {step}: {path} has not {part}: {shown}"));
            }
        }
        undone
    }
}

#[test]
fn a_repetition_gets_the_first_response_and_touches_nothing_that_changed_in_between() {
    world(async |world| {
        let mut wrong = Vec::new();
        for (index, (name, _, step, between, other)) in KEYED.iter().enumerate() {
            let case = Case::begin(world, 1 + index as u64).await;
            let first = case.take(step, Some("once")).await;
            world.idle().await;
            let made = case.change(between).await;
            assert_eq!(made.len(), between.len(), "{name}: each change shows");
            assert_eq!(case.undone(&made).await, [""; 0], "{name}: the changes themselves");
            for round in 0..2 {
                let second = case.take(step, Some("once")).await;
                if (first.status, &first.body) != (second.status, &second.body) {
                    wrong.push(format!(
                        "{name}, {round}: {} {}, then {} {}",
                        first.status, first.body, second.status, second.body
                    ));
                }
                world.idle().await;
                wrong.extend(case.undone(&made).await.into_iter().map(|undone| format!("{name}, {round}: {undone}")));
            }
            let reused = case.take(other, Some("once")).await;
            if reused.status != 422 {
                wrong.push(format!("{name}: the key with another body: {} {}", reused.status, reused.body));
            }
            wrong.extend(case.undone(&made).await.into_iter().map(|undone| format!("{name}, reused key: {undone}")));
        }
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    });
}

#[test]
fn a_request_whose_process_was_killed_after_any_write_is_completed_once_by_its_repetition() {
    world(async |world| {
        let (mut wrong, mut number, mut kills) = (Vec::new(), 100, 0);
        for (name, function, step, between, _) in KEYED {
            for operation in ["PutItem", "UpdateItem", "TransactWriteItems"] {
                for writes in 0.. {
                    number += 1;
                    let case = Case::begin(world, number).await;
                    let kill = Fault::new(operation, FaultAction::Kill).of(function).after(writes);
                    let planted = world.stack.faults().add(kill);
                    let first = case.take(step, Some("once")).await;
                    world.stack.faults().clear();
                    if planted.fired() == 0 {
                        first.ok();
                        break;
                    }
                    kills += 1;
                    assert!(first.status >= 500, "{name}: {}", first.status);
                    world.idle().await;
                    let made = case.change(between).await;
                    let second = case.take(step, Some("once")).await;
                    let third = case.take(step, Some("once")).await;
                    let all = [second.status, third.status].iter().all(|status| (200..300).contains(status));
                    let cell = format!("{name}, killed after write {writes} of {operation}");
                    if !all || second.body != third.body {
                        wrong.push(format!("{cell}: {} {}, then {} {}", second.status, second.body, third.status, third.body));
                    }
                    world.idle().await;
                    wrong.extend(case.undone(&made).await.into_iter().map(|undone| format!("{cell}: {undone}")));
                }
            }
        }
        println!("{kills} kills");
        assert!(wrong.is_empty() && kills >= 2 * KEYED.len(), "{kills}\n{}", wrong.join("\n"));
    });
}

#[test]
fn two_requests_with_one_key_at_once_are_done_once() {
    world(async |world| {
        for (index, (name, _, step, ..)) in KEYED.iter().enumerate() {
            let case = Case::begin(world, 1 + index as u64).await;
            let all = futures::future::join_all((0..5).map(|_| case.take(step, Some("once")))).await;
            let bodies: Vec<&Value> = all.iter().map(|response| &response.body).collect();
            assert!(all.iter().all(|response| response.status < 300 && response.body == all[0].body), "{name}: {bodies:?}");
        }
    });
}

#[test]
fn changed_is_right_although_the_response_to_the_write_was_lost() {
    world(async |world| {
        let mut wrong = Vec::new();
        let marks = [
            (r#"$reader: POST /v1/reads {"posts": ["$author-1", "$author-2", "$author-3"]}"#, 3),
            (r#"$reader: POST /v1/reads {"author": "$author", "through": 2}"#, 2),
            (r#"$reader: POST /v1/reads {"all": true}"#, 4),
            (r#"$reader: POST /v1/notices/reads {"platform": $platform, "through": 2}"#, 2),
        ];
        for (index, (step, changed)) in marks.into_iter().enumerate() {
            for key in [None, Some("once")] {
                let case = Case::begin(world, 10 + index as u64 * 2 + u64::from(key.is_some())).await;
                let operation = if step.contains("notices") { "TransactWriteItems" } else { "UpdateItem" };
                let planted = world.stack.faults().add(Fault::new(operation, FaultAction::LoseResponse));
                let response = case.take(step, key).await;
                assert_eq!(planted.fired(), 1);
                if response.body["changed"] != changed {
                    wrong.push(format!("{step} {key:?}: {} {}", response.status, response.body));
                }
            }
        }
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    });
}

/// The second device marks while the SDK of the first waits to repeat a write that was done.
#[test]
fn two_devices_count_each_post_once_although_a_response_was_lost_between_their_writes() {
    world(async |world| {
        for (index, form) in
            [r#"{"posts": ["$author-1", "$author-2"]}"#, r#"{"author": "$author", "through": 2}"#].iter().enumerate()
        {
            let case = Case::begin(world, 1 + index as u64).await;
            let planted = world.stack.faults().add(Fault::new("UpdateItem", FaultAction::LoseResponse));
            let first = format!("$reader: POST /v1/reads {form}");
            let second = async {
                until("the first write", async || planted.fired() == 1).await;
                let of_three = case.take(r#"$reader: POST /v1/reads {"posts": ["$author-2", "$author-3"]}"#, None).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
                of_three
            };
            let (first, second) = futures::join!(case.take(&first, None), second);
            let changed = [first.ok(), second.ok()].map(|body| body["changed"].clone());
            assert_eq!(changed, [json!(2), json!(1)], "{form}");
        }
    });
}

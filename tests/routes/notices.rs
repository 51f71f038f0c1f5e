//! `/v1/notices`.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::{Value, json};
use tidemark_tests::{User, ids, ids_and_flags, texts, world};

async fn publish(admin: &User, platforms: &[u16], title: &str) -> Vec<String> {
    ids(&admin.post("/v1/notices", &json!({ "platforms": platforms, "title": title })).await.items())
}

async fn list(user: &User, platform: u16) -> Vec<(String, bool)> {
    ids_and_flags(&user.walk(&format!("/v1/notices?platform={platform}"), 3).await)
}

async fn readers(admin: &User, notice: &str) -> u64 {
    admin.get(&format!("/v1/notices/{notice}")).await.ok()["readers"].as_u64().unwrap()
}

#[test]
fn a_notice_is_published_on_platforms_read_and_deleted() {
    world(async |world| {
        let (admin, reader) = (world.administrator(), world.user(u64::MAX));
        let body = json!({ "platforms": [7, "65535", 7.0], "title": "Maintenance", "body": "On Sunday.", "expires_at": "2099-01-01T00:00:00Z" });
        let response = admin.post("/v1/notices", &body).await;
        assert_eq!(response.status, 201);
        let items = response.items();
        let created_at = &items[0]["created_at"];
        let expected = |id: &str, platform: u16| {
            json!({
                "id": id, "platform": platform, "seq": 1, "title": "Maintenance", "body": "On Sunday.",
                "created_at": created_at, "expires_at": "2099-01-01T00:00:00.000Z",
            })
        };
        assert_eq!(items, [expected("7-1", 7), expected("65535-1", 65_535)], "one notice for each platform");

        let page = reader.get("/v1/notices?platform=7").await.ok();
        let item = json!({ "id": "7-1", "title": "Maintenance", "created_at": created_at, "read": false });
        assert_eq!(page, json!({ "items": [item], "next_cursor": null }));
        for _ in 0..2 {
            assert_eq!(reader.put("/v1/notices/7-1/read").await.ok(), json!({ "read": true, "unread": 0 }));
        }
        for (platform, counts) in [(7, (0, 1)), (65_535, (1, 0)), (8, (0, 0))] {
            assert_eq!(reader.notice_counts(platform).await, counts, "{platform}");
        }
        let mut whole = expected("7-1", 7);
        whole["read"] = json!(true);
        let seen = reader.get("/v1/notices/7-1").await.ok();
        assert_eq!(seen, whole, "only an administrator sees the number of readers");
        assert_eq!(readers(&admin, "7-1").await, 1);
        for _ in 0..2 {
            assert_eq!(reader.delete("/v1/notices/7-1/read").await.ok(), json!({ "read": false, "unread": 1 }));
        }
        assert_eq!((reader.notice_counts(7).await, readers(&admin, "7-1").await), ((1, 0), 0));

        for _ in 0..2 {
            assert_eq!(admin.delete("/v1/notices/7-1").await.status, 204);
        }
        assert_eq!((list(&reader, 7).await, reader.notice_counts(7).await), (vec![], (0, 0)));
        for notice in ["7-1", "7-2"] {
            for (method, end) in [("GET", ""), ("PUT", "/read"), ("DELETE", "/read")] {
                let response = reader.request(&format!("{method} /v1/notices/{notice}{end}")).await;
                assert_eq!(response.problem(), (404, "/problems/not-found"), "{method} {notice}{end}");
            }
            let edited = admin.put_body(&format!("/v1/notices/{notice}"), &json!({ "title": "x" })).await;
            assert_eq!(edited.problem(), (404, "/problems/not-found"));
        }
        assert_eq!(publish(&admin, &[7], "Next").await, ["7-2"], "a number is never reused");
    });
}

#[test]
fn only_a_caller_with_the_scope_can_write() {
    world(async |world| {
        publish(&world.administrator(), &[1], "x").await;
        let new = r#"POST /v1/notices {"platforms": [1], "title": "x"}"#;
        let edit = r#"PUT /v1/notices/1-1 {"title": "y"}"#;
        for token in ["7", "7 notices:read", "7 notices", "7 notices:writes"] {
            let user = world.stranger(Some(token));
            for request in [new, edit, "DELETE /v1/notices/1-1", "DELETE /v1/notices?id=1-1", "POST /v1/notices {}"] {
                assert_eq!(user.request(request).await.problem(), (403, "/problems/forbidden"), "{token}: {request}");
            }
            let seen = user.get("/v1/notices/1-1").await.has(json!({ "title": "x" }));
            assert_eq!(seen.get("readers"), None, "{token}");
        }
        world.stranger(Some("7 posts:write notices:write")).get("/v1/notices/1-1").await.has(json!({ "readers": 0 }));
        for request in ["POST /v1/notices", "GET /v1/notices/unread?platform=1", "PUT /v1/notices/1-1/read"] {
            assert_eq!(world.stranger(None).request(request).await.refusal(), (401, "Unauthorized"));
        }
    });
}

#[test]
fn an_edit_replaces_a_notice_and_renotify_makes_it_unread_for_all_readers() {
    world(async |world| {
        let (admin, one, two) = (world.administrator(), world.user(1), world.user(2));
        for title in ["a", "b", "c"] {
            publish(&admin, &[5], title).await;
        }
        for reader in [&one, &two] {
            reader.post("/v1/notices/reads", &json!({ "platform": 5, "through": 3 })).await.ok();
        }
        let titles = async || texts(&one.walk("/v1/notices?platform=5", 2).await, "title");
        assert_eq!(titles().await, ["c", "b", "a"]);
        let edited = admin.put_body("/v1/notices/5-2", &json!({ "title": "B", "body": "new" })).await;
        edited.has(json!({ "title": "B", "body": "new", "expires_at": null }));
        let seen = (one.notice_counts(5).await, readers(&admin, "5-2").await);
        assert_eq!(seen, ((0, 3), 2), "an edit without renotify leaves it read");
        assert_eq!(titles().await, ["c", "B", "a"]);

        admin.put_body("/v1/notices/5-2", &json!({ "title": "B!", "renotify": true })).await.ok();
        let expected = [("5-3".to_owned(), true), ("5-2".to_owned(), false), ("5-1".to_owned(), true)];
        for reader in [&one, &two] {
            assert_eq!((list(reader, 5).await, reader.notice_counts(5).await), (expected.to_vec(), (1, 2)));
            reader.get("/v1/notices/5-2").await.has(json!({ "read": false }));
        }
        assert_eq!(readers(&admin, "5-2").await, 0);
        assert_eq!(admin.get("/v1/notices/5-2").await.ok()["body"], Value::Null, "a field that a PUT omits is removed");
        one.put("/v1/notices/5-2/read").await.ok();
        assert_eq!((readers(&admin, "5-2").await, one.notice_counts(5).await, two.notice_counts(5).await), (1, (0, 3), (1, 2)));
    });
}

#[test]
fn through_marks_all_earlier_notices_and_never_goes_back() {
    world(async |world| {
        let (admin, reader) = (world.administrator(), world.user(1));
        for _ in 1..=6 {
            publish(&admin, &[5], "x").await;
        }
        let through = async |seq: Value| reader.post("/v1/notices/reads", &json!({ "platform": "5", "through": seq })).await.ok();
        for changed in [4, 0] {
            assert_eq!(through(json!(4)).await, json!({ "changed": changed, "unread": 2, "read": 4 }));
        }
        reader.delete("/v1/notices/5-2/read").await.ok();
        assert_eq!(through(json!("3")).await, json!({ "changed": 0, "unread": 3, "read": 3 }), "an older one changes nothing");
        admin.put_body("/v1/notices/5-1", &json!({ "title": "again", "renotify": true })).await.ok();
        assert_eq!(reader.notice_counts(5).await, (4, 2));
        // It covers a notice with a new slot.
        assert_eq!(through(json!(3)).await, json!({ "changed": 1, "unread": 3, "read": 3 }));
        assert_eq!(through(json!(1000.0)).await, json!({ "changed": 3, "unread": 0, "read": 6 }));
        publish(&admin, &[5], "later").await;
        assert_eq!(reader.notice_counts(5).await, (1, 6), "later notices stay unread");
        for (seq, expected) in (1..=6).map(|seq| (seq, 1)).chain([(7, 0)]) {
            assert_eq!(readers(&admin, &format!("5-{seq}")).await, expected, "{seq}");
        }
        assert_eq!(world.user(2).post("/v1/notices/reads", &json!({ "platform": 6, "through": 9 })).await.ok()["unread"], 0);
    });
}

#[test]
fn one_request_deletes_many_notices() {
    world(async |world| {
        let (admin, reader) = (world.administrator(), world.user(1));
        for _ in 0..60 {
            publish(&admin, &[1, 2], "x").await;
        }
        reader.post("/v1/notices/reads", &json!({ "platform": 1, "through": 30 })).await.ok();
        let ids: Vec<String> = (1..=50).flat_map(|seq| [format!("id=1-{seq}"), format!("id=2-{}", seq + 5)]).collect();
        for _ in 0..2 {
            assert_eq!(admin.delete(&format!("/v1/notices?{}", ids.join("&"))).await.status, 204);
        }
        assert_eq!((reader.notice_counts(1).await, reader.notice_counts(2).await), ((10, 0), (10, 0)));
        let left = [60, 59, 58, 57, 56, 5, 4, 3, 2, 1];
        assert_eq!(list(&reader, 2).await, left.map(|seq| (format!("2-{seq}"), false)));
        assert_eq!(admin.delete("/v1/notices?id=1-999&id=9-1&id=1-51&id=1-51").await.status, 204);
        assert_eq!(reader.notice_counts(1).await, (9, 0));
    });
}

#[test]
fn pages_show_each_notice_once_while_notices_arrive() {
    world(async |world| {
        let (admin, reader) = (world.administrator(), world.user(1));
        for number in 1..=11 {
            publish(&admin, &[5], &number.to_string()).await;
        }
        let (mut seen, mut path) = (Vec::new(), "/v1/notices?platform=5&limit=3".to_owned());
        for round in 0.. {
            let page = reader.get(&path).await;
            let next = page.header("link").map(|link| link.trim_start_matches('<').split_once('>').unwrap().0.to_owned());
            assert_eq!(page.body["next_cursor"].is_string(), next.is_some());
            seen.extend(texts(&page.items(), "title"));
            publish(&admin, &[5], "new").await;
            if round == 1 {
                // A notice with `renotify` keeps its place. A notice deleted in the meantime is not shown.
                admin.put_body("/v1/notices/5-10", &json!({ "title": "10", "renotify": true })).await.ok();
                admin.delete("/v1/notices/5-4").await.ok();
            }
            let Some(next) = next else { break };
            path = next;
        }
        assert_eq!(seen, ["11", "10", "9", "8", "7", "6", "5", "3", "2", "1"]);
        let cursor = reader.cursor("next_cursor", "/v1/notices?platform=5&limit=3").await;
        assert_eq!(reader.get(&format!("/v1/feed?cursor={cursor}")).await.field(), "cursor", "a cursor of another list");
        reader.get("/v1/notices?platform=5&limit=20").await.has(json!({ "next_cursor": null }));
    });
}

#[test]
fn concurrent_publishes_leave_no_gap_and_all_concurrent_readers_count() {
    world(async |world| {
        let admin = world.administrator();
        let published = join_all((0..20).map(|_| publish(&admin, &[3], "x"))).await;
        let published: BTreeSet<String> = published.into_iter().flatten().collect();
        assert_eq!(published, (1..=20).map(|seq| format!("3-{seq}")).collect());
        // Each reader uses four devices at once. Some readers mark the notice unread again.
        let marks = (1..=30_u64).flat_map(|user| (0..4).map(move |device| (user, device)));
        let all = r#"POST /v1/notices/reads {"platform": 3, "through": 20}"#;
        let request = |device| if device == 0 { all } else { "PUT /v1/notices/3-7/read" };
        join_all(marks.map(async |(user, device)| world.user(user).request(request(device)).await.ok())).await;
        join_all((1..=10).map(async |user| world.user(user).delete("/v1/notices/3-7/read").await.ok())).await;
        assert_eq!((readers(&admin, "3-7").await, readers(&admin, "3-20").await), (20, 30));
        assert_eq!((world.user(5).notice_counts(3).await, world.user(15).notice_counts(3).await), ((1, 19), (0, 20)));
    });
}

/// The query with each of these ids.
fn of_ids(ids: impl IntoIterator<Item: std::fmt::Display>) -> String {
    ids.into_iter().map(|id| format!("id={id}")).collect::<Vec<_>>().join("&")
}

#[test]
fn several_notices_are_edited_at_once_or_none_is() {
    world(async |world| {
        let (admin, reader) = (world.administrator(), world.user(1));
        for title in ["a", "b", "c"] {
            publish(&admin, &[5, 6], title).await;
        }
        for platform in [5, 6] {
            reader.post("/v1/notices/reads", &json!({ "platform": platform, "through": 3 })).await.ok();
        }
        let before = admin.get("/v1/notices/6-1").await.ok();
        let edit = json!({ "title": "new", "body": "text", "expires_at": "2099-01-01T00:00:00Z", "renotify": true });
        let edited = admin.put_body("/v1/notices?id=6-1&id=5-2&id=6-1&id=5-3", &edit).await.items();
        assert_eq!(ids(&edited), ["6-1", "5-2", "6-1", "5-3"], "in the order of the request");
        let expected = json!({
            "id": "6-1", "platform": 6, "seq": 1, "title": "new", "body": "text", "created_at": before["created_at"],
            "expires_at": "2099-01-01T00:00:00.000Z",
        });
        assert_eq!(edited[0], expected);
        let flags =
            |platform: u16, unread: &[u64]| [3, 2, 1].map(|seq| (format!("{platform}-{seq}"), !unread.contains(&seq))).to_vec();
        assert_eq!([list(&reader, 5).await, list(&reader, 6).await], [flags(5, &[2, 3]), flags(6, &[1])]);
        assert_eq!(texts(&reader.walk("/v1/notices?platform=5", 2).await, "title"), ["new", "new", "a"]);
        for notice in ["5-2", "5-3", "6-1"] {
            admin.get(&format!("/v1/notices/{notice}")).await.has(json!({ "title": "new", "body": "text", "readers": 0 }));
        }
        let one = admin.put_body("/v1/notices?id=5-1", &json!({ "title": "one" })).await.items();
        assert_eq!((ids(&one), &one[0]["expires_at"]), (vec!["5-1".to_owned()], &Value::Null));

        admin.delete("/v1/notices/6-3").await.ok();
        for unknown in ["6-3", "5-4", "9-1"] {
            let response = admin.put_body(&format!("/v1/notices?id=5-1&id={unknown}&id=6-2"), &json!({ "title": "x" })).await;
            assert_eq!(response.problem(), (404, "/problems/not-found"), "{unknown}");
            assert!(response.body["detail"].as_str().unwrap().contains(unknown), "{}", response.body);
        }
        assert_eq!(texts(&reader.walk("/v1/notices?platform=5", 9).await, "title"), ["new", "new", "one"]);
        assert_eq!(texts(&reader.walk("/v1/notices?platform=6", 9).await, "title"), ["b", "new"]);
    });
}

#[test]
fn a_repeated_edit_of_several_notices_with_a_key_does_not_touch_what_came_after_it() {
    world(async |world| {
        let (admin, reader) = (world.administrator(), world.user(1));
        publish(&admin, &[5, 6], "a").await;
        let edit = async |title: &str| {
            let body = json!({ "title": title, "renotify": true });
            admin.request_with(&[("idempotency-key", "k")], &format!("PUT /v1/notices?id=6-1&id=5-1 {body}")).await
        };
        let first = edit("b").await.ok();
        for platform in [5, 6] {
            reader.put(&format!("/v1/notices/{platform}-1/read")).await.ok();
        }
        admin.put_body("/v1/notices/5-1", &json!({ "title": "c" })).await.ok();
        assert_eq!(edit("b").await.ok(), first);
        assert_eq!(edit("c").await.problem(), (422, "/problems/idempotency-key-reused"));
        assert_eq!((reader.notice_counts(5).await, reader.notice_counts(6).await), ((0, 1), (0, 1)));
        assert_eq!(admin.get("/v1/notices/5-1").await.ok()["title"], "c");
        admin.delete("/v1/notices?id=5-1&id=6-1").await.ok();
        assert_eq!(edit("b").await.ok(), first, "also after they are deleted");
    });
}

/// One transaction takes 100 items, and these notices have heads besides.
#[test]
fn a_hundred_notices_of_many_platforms_are_edited_at_once() {
    world(async |world| {
        let (admin, reader) = (world.administrator(), world.user(1));
        let platforms: Vec<u16> = (1..=32).collect();
        for _ in 0..3 {
            publish(&admin, &platforms, "old").await;
        }
        for _ in 0..97 {
            publish(&admin, &[1], "old").await;
        }
        let spread: Vec<String> =
            platforms.iter().flat_map(|platform| (1..=3).map(move |seq| format!("{platform}-{seq}"))).collect();
        let one: Vec<String> = (1..=100).map(|seq| format!("1-{seq}")).collect();
        for (round, (notices, watched)) in [(spread, 7), (one, 1)].into_iter().enumerate() {
            reader.post("/v1/notices/reads", &json!({ "platform": watched, "through": 100 })).await.ok();
            let title = format!("edited {round}");
            let body = json!({ "title": title, "body": "b".repeat(5_000), "renotify": true });
            let path = format!("/v1/notices?{}", of_ids(&notices));
            let edited = admin.put_body(&path, &body).await.items();
            assert_eq!(ids(&edited), notices);
            let page = reader.get(&format!("/v1/notices?platform={watched}&include=body&limit=100")).await.items();
            assert!(page.iter().all(|item| item["title"] == title && item["body"] == body["body"] && item["read"] == false));
            assert_eq!(reader.notice_counts(watched).await, (page.len() as u64, 0));
            let unknown = format!("{path}&id=9-999").replacen(&format!("id={}&", notices[0]), "", 1);
            assert_eq!(admin.put_body(&unknown, &json!({ "title": "x" })).await.status, 404);
            admin.get(&format!("/v1/notices/{}", notices[1])).await.has(json!({ "title": title, "readers": 0 }));
            world.idle().await;
            admin.get(&format!("/v1/notices/{}", notices[1])).await.has(json!({ "title": title, "body": body["body"] }));
        }
    });
}

#[test]
fn a_list_may_have_unread_notices_alone_and_their_texts() {
    world(async |world| {
        let (admin, reader) = (world.administrator(), world.user(1));
        for number in 1..=9 {
            let body = if number % 2 == 0 { json!("text") } else { Value::Null };
            let expires_at = if number == 8 { json!("2099-01-01T00:00:00Z") } else { Value::Null };
            let notice = json!({ "platforms": [5], "title": number.to_string(), "body": body, "expires_at": expires_at });
            admin.post("/v1/notices", &notice).await.ok();
        }
        for seq in [1, 4, 8, 9] {
            reader.put(&format!("/v1/notices/5-{seq}/read")).await.ok();
        }
        let unread = "/v1/notices?platform=5&status=unread";
        assert_eq!(texts(&reader.walk(unread, 2).await, "title"), ["7", "6", "5", "3", "2"]);
        let first = reader.get(&format!("{unread}&limit=2")).await;
        let cursor = first.body["next_cursor"].as_str().unwrap().to_owned();
        assert!(first.header("link").unwrap().contains("status=unread"));
        // Marks and notices in the meantime do not move the rest.
        reader.put("/v1/notices/5-7/read").await.ok();
        reader.delete("/v1/notices/5-8/read").await.ok();
        publish(&admin, &[5], "10").await;
        let rest = reader.get(&format!("{unread}&limit=3&cursor={cursor}")).await.ok();
        assert_eq!(
            (texts(rest["items"].as_array().unwrap(), "title"), &rest["next_cursor"]),
            (vec!["5".into(), "3".into(), "2".into()], &Value::Null)
        );

        for _ in 0..2 {
            let items = reader.get("/v1/notices?platform=5&include=body&limit=4").await.items();
            let bodies: Vec<&Value> = items.iter().map(|item| &item["body"]).collect();
            assert_eq!(bodies, [&Value::Null, &Value::Null, &json!("text"), &Value::Null]);
            assert_eq!(items[2], reader.get("/v1/notices/5-8").await.ok(), "an item has what the notice has");
            assert_eq!(world.user(2).get("/v1/notices?platform=5&include=body&status=all").await.items().len(), 10);
        }
        admin.put_body("/v1/notices/5-8", &json!({ "title": "8", "body": "edited" })).await.ok();
        let edited = reader.get("/v1/notices?platform=5&include=body&limit=4").await.items();
        assert_eq!((&edited[2]["body"], &edited[2]["expires_at"]), (&json!("edited"), &Value::Null));
    });
}

#[test]
fn a_page_ends_before_its_texts_are_too_long_for_a_response() {
    world(async |world| {
        let (admin, reader) = (world.administrator(), world.user(1));
        let text = "\u{1}".repeat(40_000);
        for number in 1..=25 {
            admin.post("/v1/notices", &json!({ "platforms": [5], "title": number.to_string(), "body": text })).await.ok();
        }
        let page = reader.get("/v1/notices?platform=5&include=body&limit=25").await.ok();
        assert_eq!(page["items"].as_array().unwrap().len(), 20);
        let all = reader.walk("/v1/notices?platform=5&include=body", 25).await;
        assert_eq!(texts(&all, "title"), (1..=25).rev().map(|number| number.to_string()).collect::<Vec<_>>());
        assert!(all.iter().all(|item| item["body"] == text));
        reader.get("/v1/notices?platform=5&limit=25").await.has(json!({ "next_cursor": null }));
    });
}

#[test]
fn one_request_counts_several_platforms() {
    world(async |world| {
        let (admin, reader) = (world.administrator(), world.user(1));
        publish(&admin, &[1, 2], "x").await;
        publish(&admin, &[2], "y").await;
        reader.put("/v1/notices/2-1/read").await.ok();
        let counts = async |query: &str| reader.get(&format!("/v1/notices/unread?{query}")).await.ok();
        let of = |platform: u16| {
            let (unread, read) = [(1, 0), (1, 1), (0, 0)][usize::from(platform) - 1];
            json!({ "platform": platform, "unread": unread, "read": read })
        };
        let expected = json!({ "unread": 2, "read": 1, "platforms": [of(3), of(1), of(2)] });
        assert_eq!(counts("platform=3&platform=1&platform=2").await, expected, "in the order of the request");
        assert_eq!(counts("platform=2").await, json!({ "unread": 1, "read": 1, "platforms": [of(2)] }));
        let twice = json!({ "unread": 2, "read": 2, "platforms": [of(2), of(2)] });
        assert_eq!(counts("platform=2&platform=2").await, twice, "as often as it is named");
        let hundred = (1..=100).map(|platform| format!("platform={platform}")).collect::<Vec<_>>().join("&");
        assert_eq!(counts(&hundred).await["unread"], 2);
        let response = reader.get("/v1/notices/unread?platform=1&platform=2").await;
        let tag = response.header("etag").unwrap().to_owned();
        let again = reader.request_with(&[("if-none-match", &tag)], "GET /v1/notices/unread?platform=1&platform=2").await;
        assert_eq!(again.status, 304);
    });
}

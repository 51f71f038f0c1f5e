//! Mistakes of a client. Each response names the field and says what to change, and nothing has changed.

use reqwest::Method;
use serde_json::json;
use tidemark_tests::{User, has, world};

const ID: &str = "must be a decimal number from 1 to 18446744073709551615, without sign or leading zeros";
const POST_ID: &str = "must be {author}-{seq}, two decimal numbers without sign or leading zeros";
const PLATFORM: &str = "must be a decimal number from 1 to 65535, without sign or leading zeros";
const NOTICE_ID: &str = "must be {platform}-{seq}, two decimal numbers without sign or leading zeros, the first at most 65535";
const HANDLE: &str = "must be 3 to 30 characters of a-z, 0-9 and _, with a letter";
const CURSOR: &str = "is not a cursor of this list";
const LIMIT: &str = "must be 1 to 100";
const TIMES: &str = "must be given 1 to 100 times";
const OBJECT: &str = "must be a JSON object";
const STRING: &str = "must be a string";
const WEIGHT: &str = "must be an integer from -100 to 100";
const PREFERENCE: &str = "must be an integer from -10 to 10";
const TITLE: &str = "must have 1 to 200 characters";
const NAME: &str = "must have 1 to 100 characters";
const TEXT: &str = "must have at most 65536 bytes";
const DATA: &str = "must have at most 4096 bytes";
const AUTHORS: &str = "must be a list of 1 to 50 ids";
const PLATFORMS: &str = "must be a list of 1 to 32 ids";
const ALONE: &str = "is allowed only together with all";
const HTTPS: &str = "must be an https URL";
const SEQ: &str = "must be a sequence number";
const TIME: &str = "must be an RFC 3339 time";
const FUTURE: &str = "must lie in the future";
const FORMS: &str = "is one of three forms (posts, author with through, all): send exactly one";
const PARAMETERS: &str = "is not a parameter: this route has order, own, list, status, limit, cursor, since, include, profiles";

/// A field, the rule that it breaks, the beginning of some requests, and how each of them goes on.
type Invalid<'a> = (&'a str, &'a str, &'a str, &'a [&'a str]);

/// Asserts that each request is a 400 with this one field and this rule. Compares all responses before it fails.
async fn are_invalid(user: &User, mistakes: &[Invalid<'_>]) {
    let mut wrong = Vec::new();
    for (field, rule, beginning, ends) in mistakes {
        let errors = json!([{ "field": field, "message": rule }]);
        let detail = format!("{field} {rule}");
        let expected = json!({ "type": "/problems/invalid-request", "status": 400, "detail": detail, "errors": errors });
        for end in *ends {
            let response = user.request(&format!("{beginning}{end}")).await;
            if has(&response.body, &expected) {
                assert_eq!(response.problem().0, 400);
            } else {
                wrong.push(format!("{beginning}{end:.60}\n     {} {}\n not {expected}", response.status, response.body));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Asserts that each request gets a problem with this status and this `detail`.
async fn are_refused(user: &User, mistakes: &[(&str, u16, &str)]) {
    for (request, status, detail) in mistakes {
        let response = user.request(request).await;
        assert_eq!((response.problem().0, &response.body["detail"]), (*status, &json!(detail)), "{request:.90}");
    }
}

/// A body with a text of this length, and what it needs besides.
fn long(needed: &str, field: &str, length: usize) -> String {
    format!("{{{needed}\"{field}\": \"{}\"}}", "x".repeat(length))
}

/// A hundred and one times the same parameter.
fn too_many(parameter: &str) -> String {
    vec![parameter; 101].join("&")
}

#[test]
#[expect(clippy::too_many_lines, reason = "two tables")]
fn wrong_ids_parameters_paths_and_methods_are_named() {
    world(async |world| {
        world.user(2).publish_all(0..3).await;
        world.follow([10, 11], 2).await;
        let user = world.user(1);
        let of_timeline = &user.cursor("next_cursor", "/v1/authors/2/posts?limit=1").await;
        let of_followers = &user.cursor("next_cursor", "/v1/users/2/followers?limit=1").await;
        let ids = &["0", "01", "007", "+7", "-7", "-1", "x", "alice", "18446744073709551616", "%20", "%D9%A1"];
        let mistakes: &[Invalid<'_>] = &[
            ("author", ID, "PUT /v1/following/", ids),
            ("author", ID, "GET /v1/unread/", ids),
            ("author", ID, "GET /v1/authors/", &["0/posts"]),
            ("author", ID, "PUT /v1/lists/1-1/authors/", &["x"]),
            ("user", ID, "GET /v1/users", &["/0/following", "/1%2F2", "?user=0", "?user=1,2"]),
            ("user", ID, "GET /v1/relations?user=", &["x", "0"]),
            ("user", TIMES, "GET /v1/", &["users", "relations?", &format!("relations?{}", too_many("user=1"))]),
            ("only", "must be following", "GET /v1/relations?user=2&only=", &["followers"]),
            ("user", ID, "PUT /v1/", &["mutes/x", "blocks/x"]),
            ("user", "must be another user", "PUT /v1/", &["mutes/1", "blocks/1"]),
            ("post", POST_ID, "GET /v1/posts", &["/1", "/1-0", "/2-0", "/x-1", "/1-1-1", "?post=1"]),
            ("post", POST_ID, "PUT /v1/posts/", &["2-1-1/like", "10/like", "10-0/like", "x-1/like", "ten/read"]),
            ("post", POST_ID, "PUT /v1/posts/", &["10/favorite", "10-0/favorite", "x-1/favorite"]),
            ("post", TIMES, "GET /v1/posts?", &["", &too_many("post=1-1")]),
            ("handle", HANDLE, "GET /v1/handles/", &["Ada-1", "AB", "123", "@_1_"]),
            ("limit", LIMIT, "GET /v1/feed?limit=", &["0", "101", "-1", "x", "", "1.0", "010"]),
            ("limit", LIMIT, "GET /v1/feed?order=ranked&limit=", &["101"]),
            ("limit", "must be given once", "GET /v1/feed?limit=1&limit=", &["2"]),
            ("status", "must be all or unread", "GET /v1/feed?", &["status=new", "status=read", "order=ranked&status=x"]),
            ("order", "must be time, ranked or oldest", "GET /v1/feed?order=", &["best"]),
            ("own", "must be true or false", "GET /v1/feed?own=", &["yes", "", "1&order=oldest"]),
            (
                "include",
                "must be body or counts",
                "GET /v1/",
                &["feed?include=text", "authors/2/posts?include=", "me/likes?include=x"],
            ),
            ("profiles", "must be true or false", "GET /v1/feed?profiles=", &["maybe"]),
            ("page", PARAMETERS, "GET /v1/feed?page=", &["2"]),
            ("full", "is not a parameter: this route has none", "GET /v1/me?full=", &["true"]),
            ("cursor", CURSOR, "GET /v1/feed?cursor=", &["2", "x", "AAAA", "%00", "", of_timeline, of_followers]),
            ("cursor", CURSOR, "GET /v1/feed?order=ranked&cursor=", &["%21"]),
            ("cursor", CURSOR, "GET /v1/users/2/followers?cursor=", &[of_timeline]),
            ("cursor", CURSOR, "GET /v1/me/likes?cursor=", &[of_timeline]),
            ("since", CURSOR, "GET /v1/authors/1/posts?since=", &["%21"]),
            ("offset", "must be 0 to 10000", "GET /v1/users/2/followers?offset=", &["-1", "10001", "x", ""]),
            ("offset", "does not go with a cursor", "GET /v1/users/2/followers?offset=1&cursor=", &[of_followers]),
        ];
        are_invalid(&user, mistakes).await;
        let refused: &[(&str, u16, &str)] = &[
            ("GET /v1/feed?status=all&limit=1&status=unread&limit=1", 400, "status must be given once; limit must be given once"),
            ("PUT /v1/following/1", 422, "an author is not their own follower"),
            ("GET /v1/posts/2-9", 404, "no post 2-9"),
            ("GET /v1/handles/ada", 404, "no user ada"),
            ("GET /v1/feed/", 404, "no route has the path /v1/feed/; did you mean /v1/feed?"),
            ("GET //v1//feed", 404, "no route has the path //v1//feed; did you mean /v1/feed?"),
            ("GET /feed", 404, "no route has the path /feed; did you mean /v1/feed?"),
            ("GET /v1/timeline", 404, "no route has the path /v1/timeline"),
            ("POST /v1/feed", 405, "this path does not have POST, only GET"),
            ("GET /v1/posts/2-1/like", 405, "this path does not have GET, only DELETE, PUT"),
            ("PATCH /v1/posts/2-1", 405, "this path does not have PATCH, only DELETE, GET, PUT"),
        ];
        are_refused(&user, refused).await;
        user.get("/v1/users/1/counters").await.has(json!({ "followings": 0 }));
        assert_eq!(user.put("/v1/following/18446744073709551615").await.status, 200, "the largest id");
    });
}

#[test]
fn a_route_without_a_body_refuses_every_text_and_changes_nothing() {
    world(async |world| {
        let user = world.user(1);
        world.user(2).publish("one").await;
        for (method, path) in [(Method::PUT, "/v1/posts/2-1/like"), (Method::DELETE, "/v1/me")] {
            for body in [r#"{"dry_run": true"#, r#"{"dry_run": true}"#, "[1]", "[]", "1", r#""x""#, "x"] {
                let response = user.send(method.clone(), path, &[], Some(body.to_owned())).await;
                assert_eq!(response.status, 400, "{path} {body}: {}", response.body);
            }
        }
        assert_eq!(user.get("/v1/me/erasure").await.problem(), (404, "/problems/not-found"));
        assert_eq!(user.get("/v1/posts/2-1").await.ok()["liked"], false);
        for body in ["", " ", "null", "{}"] {
            user.send(Method::PUT, "/v1/posts/2-1/like", &[], Some(body.to_owned())).await.ok();
        }
    });
}

#[test]
fn wrong_bodies_of_posts_and_follows_are_named() {
    world(async |world| {
        let user = world.user(1);
        let large = json!({ "title": "x", "body": "y".repeat(300 * 1024) });
        let mistakes: &[Invalid<'_>] = &[
            ("body", "must be a JSON object, and the request has none", "POST /v1/posts ", &[""]),
            ("body", "must be a JSON object: expected ident at line 1 column 2", "POST /v1/posts ", &["title=Hello"]),
            ("body", OBJECT, "POST /v1/posts ", &[r#""Hello""#, "[]", "[1]", "null"]),
            ("body", OBJECT, "PUT /v1/following/3 ", &["[]", "7"]),
            ("body", "must be a JSON object: trailing comma at line 1 column 15", "POST /v1/posts ", &[r#"{"title": "x",}"#]),
            ("title", "is required", "POST /v1/posts ", &["{}", r#"{"body": "x"}"#]),
            ("title", STRING, "POST /v1/posts ", &[r#"{"title": 7}"#]),
            ("title", TITLE, "POST /v1/posts ", &[r#"{"title": ""}"#, &long("", "title", 201)]),
            ("body", STRING, "POST /v1/posts ", &[r#"{"title": "x", "body": 5}"#]),
            ("body", "must have 0 to 65536 characters", "POST /v1/posts ", &[&long(r#""title": "x", "#, "body", 65_537)]),
            ("body", TEXT, "POST /v1/posts ", &[&json!({ "title": "x", "body": "ü".repeat(40_000) }).to_string()]),
            ("data", OBJECT, "POST /v1/posts ", &[r#"{"title": "x", "data": []}"#, r#"{"title": "x", "data": 1}"#]),
            ("data", DATA, "POST /v1/posts ", &[&json!({ "title": "x", "data": { "a": "y".repeat(4_096) } }).to_string()]),
            ("weight", WEIGHT, r#"POST /v1/posts {"title": "x", "weight": "#, &["101}", "-101}", "0.5}", r#""1"}"#]),
            ("authors", "is required", "POST /v1/following ", &["{}"]),
            ("authors", AUTHORS, r#"POST /v1/following {"authors": "#, &[r#""2"}"#, "[]}"]),
            ("authors", AUTHORS, "POST /v1/following ", &[&json!({ "authors": vec!["2"; 51] }).to_string()]),
            ("authors[0]", ID, r#"POST /v1/following {"authors": ["x"]}"#, &[""]),
            ("authors[1]", STRING, r#"POST /v1/following {"authors": ["2", 3]}"#, &[""]),
            ("preference", PREFERENCE, r#"PUT /v1/following/3 {"preference": "#, &["11}", "-11}", "1.5}", r#""1"}"#]),
        ];
        are_invalid(&user, mistakes).await;
        let over = "x".repeat(256 * 1024 + 1);
        // The last request is on a route without a body.
        for request in [format!("POST /v1/posts {over}"), format!("POST /v1/posts {large}"), format!("GET /v1/feed {over}")] {
            let response = user.request(&request).await;
            assert_eq!(response.problem(), (413, "/problems/body-too-large"), "{request:.60}");
            assert_eq!(response.body["detail"], "a body may have at most 262144 bytes", "{request:.60}");
        }
        for body in ["{", "{\"title\": ", "{\"title\":\"\u{0}ok\"}"] {
            assert_eq!(user.request(&format!("POST /v1/posts {body}")).await.field(), "body", "{body}");
        }
        assert_eq!(user.request("PUT /v1/following/3 {").await.field(), "body");
        let empty_key = user.post_with_key("/v1/posts", "", &json!({ "title": "x" })).await;
        assert_eq!(empty_key.body["detail"], "Idempotency-Key must be 1 to 128 printable ASCII characters");
        user.get("/v1/users/1/counters").await.has(json!({ "posts": 0, "followings": 0 }));
        let most = json!({ "title": "ü".repeat(200), "body": "y".repeat(65_536) });
        user.post("/v1/posts", &most).await.has(json!({ "id": "1-1" }));
    });
}

#[test]
fn wrong_marks_profiles_and_lists_are_named() {
    world(async |world| {
        let user = world.user(1);
        let posts = json!({ "posts": vec!["1-1"; 501] }).to_string();
        let picture = json!({ "name": "x", "picture": format!("https://example.org/{}", "a".repeat(2_048)) }).to_string();
        let mistakes: &[Invalid<'_>] = &[
            ("posts", FORMS, "POST /v1/reads ", &["{}", r#"{"posts": ["1-1"], "all": true}"#, r#"{"author": "2", "all": true}"#]),
            ("posts", FORMS, r#"POST /v1/reads {"author": "10", "through": 1, "all": true}"#, &[""]),
            ("posts", "must be a list of 1 to 500 ids", "POST /v1/reads ", &[r#"{"posts": []}"#, &posts]),
            ("posts[0]", POST_ID, "POST /v1/reads ", &[r#"{"posts": ["x"]}"#]),
            ("through", "is required", "POST /v1/reads ", &[r#"{"author": "10"}"#]),
            ("author", "is required", "POST /v1/reads ", &[r#"{"through": 1}"#]),
            ("author", ID, "POST /v1/reads ", &[r#"{"author": "0", "through": 1}"#]),
            ("through", SEQ, "POST /v1/reads ", &[r#"{"author": "10", "through": -1}"#]),
            ("all", "must be true", "POST /v1/reads ", &[r#"{"all": false}"#]),
            ("before", TIME, "POST /v1/reads ", &[r#"{"all": true, "before": "yesterday"}"#]),
            ("before", ALONE, "POST /v1/reads ", &[r#"{"before": "2026-11-20T08:00:00Z"}"#]),
            ("before", ALONE, "POST /v1/reads ", &[r#"{"posts": ["1-1"], "before": "2026-11-20T08:00:00Z"}"#]),
            ("before", ALONE, "POST /v1/reads ", &[r#"{"author": "10", "through": 1, "before": "2026-11-20T08:00:00Z"}"#]),
            ("name", "is required", "PUT /v1/me/profile ", &["{}"]),
            ("name", NAME, "PUT /v1/me/profile ", &[r#"{"name": ""}"#, &long("", "name", 101)]),
            ("handle", HANDLE, r#"PUT /v1/me/profile {"name": "x", "handle": "#, &[r#""ab"}"#, r#""Ada"}"#]),
            ("handle", STRING, r#"PUT /v1/me/profile {"name": "x", "handle": 7}"#, &[""]),
            ("picture", HTTPS, r#"PUT /v1/me/profile {"name": "x", "picture": "#, &[r#""https://"}"#, r#""http://x"}"#]),
            ("picture", HTTPS, r#"PUT /v1/me/profile {"name": "x", "picture": "http://example.org/a.png"}"#, &[""]),
            ("picture", "must have 1 to 2048 characters", "PUT /v1/me/profile ", &[&picture]),
            ("bio", "must have 0 to 500 characters", "PUT /v1/me/profile ", &[&long(r#""name": "x", "#, "bio", 501)]),
            ("data", OBJECT, r#"PUT /v1/me/profile {"name": "x", "data": []}"#, &[""]),
            ("data", DATA, "PUT /v1/me/profile ", &[&json!({ "name": "x", "data": { "a": "y".repeat(4_096) } }).to_string()]),
            ("name", "is required", "POST /v1/lists ", &["{}"]),
            ("name", NAME, "POST /v1/lists ", &[r#"{"name": ""}"#, &long("", "name", 101)]),
            ("name", STRING, "POST /v1/lists ", &[r#"{"name": 1}"#]),
        ];
        are_invalid(&user, mistakes).await;
        user.get("/v1/me").await.has(json!({ "profile": null }));
        user.get("/v1/lists").await.has(json!({ "items": [] }));
    });
}

#[test]
fn wrong_requests_for_notices_are_named() {
    world(async |world| {
        let admin = world.stranger(Some("1 notices:write"));
        let long_text = json!({ "platforms": [1], "title": "x", "body": "ü".repeat(40_000) }).to_string();
        let platforms = json!({ "title": "x", "platforms": (1..=33).collect::<Vec<_>>() }).to_string();
        let notice = json!({ "platforms": [1], "title": "ü".repeat(200) });
        admin.post("/v1/notices", &notice).await.has(json!({ "items": [{ "id": "1-1" }] }));
        let new = r#"POST /v1/notices {"platforms": [1], "title": "x", "expires_at": "#;
        let ids = |ids: &mut dyn Iterator<Item = String>| ids.collect::<Vec<_>>().join("&");
        let many_platforms = ids(&mut (1..=33).map(|platform| format!("id={platform}-1"))) + r#" {"title": "x"}"#;
        let long_texts = ids(&mut (1..=100).map(|seq| format!("id=1-{seq}")));
        let long_texts = format!("{long_texts} {}", json!({ "title": "x", "body": "x".repeat(8_193) }));
        let of_ids = ["1", "0-1", "1-0", "65536-1", "01-1", "x-1", "unknown"];
        let of_ids = of_ids.map(|id| [format!(r#"{id} {{"title": "x"}}"#), format!("{id}/read")]);
        let of_ids: Vec<&str> = of_ids.iter().flatten().map(String::as_str).collect();
        let mistakes: &[Invalid<'_>] = &[
            ("platforms", "is required", r#"POST /v1/notices {"title": "x"}"#, &[""]),
            ("platforms", PLATFORMS, r#"POST /v1/notices {"title": "x", "platforms": "#, &["[]}", "1}"]),
            ("platforms", PLATFORMS, "POST /v1/notices ", &[&platforms]),
            ("platforms[0]", PLATFORM, r#"POST /v1/notices {"title": "x", "platforms": "#, &["[65536]}", r#"["01"]}"#]),
            ("platforms[0]", "must be a platform", r#"POST /v1/notices {"title": "x", "platforms": "#, &["[1.5]}", "[-1]}"]),
            ("platforms[1]", PLATFORM, r#"POST /v1/notices {"title": "x", "platforms": [1, 0]}"#, &[""]),
            ("title", "is required", r#"POST /v1/notices {"platforms": [1]}"#, &[""]),
            ("title", TITLE, r#"POST /v1/notices {"platforms": [1], "title": ""}"#, &[""]),
            ("title", TITLE, "POST /v1/notices ", &[&long(r#""platforms": [1], "#, "title", 201)]),
            ("body", TEXT, "POST /v1/notices ", &[&long_text]),
            ("expires_at", TIME, new, &[r#""tomorrow"}"#, "5}"]),
            ("expires_at", FUTURE, new, &[r#""2020-01-01T00:00:00Z"}"#]),
            ("title", "is required", "PUT /v1/notices/1-1 ", &["{}"]),
            ("renotify", "must be true or false", r#"PUT /v1/notices/1-1 {"title": "x", "renotify": "yes"}"#, &[""]),
            ("expires_at", FUTURE, r#"PUT /v1/notices/1-1 {"title": "x", "expires_at": "2020-01-01T00:00:00Z"}"#, &[""]),
            ("platform", "is required", r#"POST /v1/notices/reads {"through": 1}"#, &[""]),
            ("platform", PLATFORM, r#"POST /v1/notices/reads {"platform": 0, "through": 1}"#, &[""]),
            ("through", "is required", r#"POST /v1/notices/reads {"platform": 1}"#, &[""]),
            ("through", SEQ, r#"POST /v1/notices/reads {"platform": 1, "through": "#, &[r#""-1"}"#, "1.5}", "-1.0}", "1e300}"]),
            ("notice", NOTICE_ID, "PUT /v1/notices/", &of_ids),
            ("platform", "is required", "GET /v1/notices", &[""]),
            ("platform", TIMES, "GET /v1/notices/unread", &["", &format!("?{}", too_many("platform=1"))]),
            ("platform", PLATFORM, "GET /v1/notices/unread?platform=1&platform=", &["", "0"]),
            ("platform", "must be given once", "GET /v1/notices?platform=1&platform=2", &[""]),
            ("status", "must be all or unread", "GET /v1/notices?platform=1&status=", &["", "read", "Unread"]),
            ("include", "must be body", "GET /v1/notices?platform=1&include=", &["", "counts"]),
            ("platform", PLATFORM, "GET /v1/notices?platform=", &["", "0", "65536", "x", "01"]),
            ("platform", PLATFORM, "GET /v1/notices/unread?platform=", &["", "0", "65536", "x", "01"]),
            ("limit", LIMIT, "GET /v1/notices?platform=1&limit=", &["0", "101"]),
            ("cursor", CURSOR, "GET /v1/notices?platform=1&cursor=", &["x"]),
            ("id", NOTICE_ID, r#"PUT /v1/notices?id=1-1&id=x {"title": "x"}"#, &[""]),
            ("id", TIMES, "PUT /v1/notices", &[r#" {"title": "x"}"#, &format!(r#"?{} {{"title": "x"}}"#, too_many("id=1-1"))]),
            ("id", "must name at most 32 platforms", "PUT /v1/notices?", &[&many_platforms]),
            ("title", "is required", "PUT /v1/notices?id=1-1 ", &["{}"]),
            ("body", "must have at most 8192 bytes for 100 notices", "PUT /v1/notices?", &[&long_texts]),
            ("expires_at", FUTURE, r#"PUT /v1/notices?id=1-1 {"title": "x", "expires_at": "2020-01-01T00:00:00Z"}"#, &[""]),
            ("id", NOTICE_ID, "DELETE /v1/notices?", &["id=1", "id=1-1&id=x"]),
            ("id", TIMES, "DELETE /v1/notices", &["", &format!("?{}", too_many("id=1-1"))]),
        ];
        are_invalid(&admin, mistakes).await;
        let plain = r#"POST /v1/notices {"platforms": [1], "title": "x"}"#;
        are_refused(&world.user(1), &[(plain, 403, "the token lacks the scope notices:write")]).await;
        assert_eq!(admin.notice_counts(1).await, (1, 0));
        admin.post("/v1/notices", &notice).await.has(json!({ "items": [{ "id": "1-2" }] }));
    });
}

//! Typical mistakes of a client. Each gets a response that says what to change, and changes nothing.

use serde_json::{Value, json};
use tidemark_tests::{Response, World, world};

const USER_ID: &str = "must be a decimal number from 1 to 18446744073709551615, without sign or leading zeros";
const POST_ID: &str = "must be {author}-{seq}, two decimal numbers without sign or leading zeros";

/// A request as user 1 without a body, its status, and the `detail` of the problem or API Gateway's `message`.
type Mistake<'a> = (&'a str, u16, &'a str);

async fn send(world: &World, token: Option<&str>, request: &str, headers: &[(&str, &str)], body: Option<&str>) -> Response {
    let (method, path) = request.split_once(' ').unwrap();
    world.stranger(token).send(method.parse().unwrap(), path, headers, body.map(str::to_owned)).await
}

fn told(response: &Response) -> (u16, Value) {
    let text = &response.body[if response.header("content-type") == Some("application/json") { "message" } else { "detail" }];
    (response.status, text.clone())
}

/// A request, its status and text, and those that it should have.
type Compared = (String, (u16, Value), (u16, String));

/// Compares all responses before it fails.
fn compare(found: Vec<Compared>) {
    let wrong: Vec<String> = found
        .into_iter()
        .filter(|(_, (status, text), (wanted, words))| status != wanted || text != words)
        .map(|(request, found, wanted)| format!("{request}\n     {found:?}\n not {wanted:?}"))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[tokio::test]
async fn wrong_ids_parameters_paths_and_methods_are_named() {
    world(async |world| {
        let author = world.user(2);
        for number in 0..3 {
            author.publish(&number.to_string()).await;
        }
        let page = world.user(1).get("/v1/authors/2/posts?limit=1").await.ok();
        let cursor = page["next_cursor"].as_str().unwrap();
        let (of_timeline, of_followers) =
            (format!("GET /v1/feed?cursor={cursor}"), format!("GET /v1/users/2/followers?cursor={cursor}"));
        let (user, author_id, post) = (format!("user {USER_ID}"), format!("author {USER_ID}"), format!("post {POST_ID}"));
        let cases: Vec<Mistake<'_>> = vec![
            // ids
            ("PUT /v1/following/0", 400, &author_id),
            ("PUT /v1/following/007", 400, &author_id),
            ("PUT /v1/following/+7", 400, &author_id),
            ("PUT /v1/following/-7", 400, &author_id),
            ("PUT /v1/following/18446744073709551616", 400, &author_id),
            ("PUT /v1/following/alice", 400, &author_id),
            ("PUT /v1/following/%D9%A1", 400, &author_id),
            ("PUT /v1/following/1", 422, "an author is not their own follower"),
            ("GET /v1/users/1%2F2", 400, &user),
            ("GET /v1/users?user=1,2", 400, &user),
            ("GET /v1/users", 400, "user must be given 1 to 100 times"),
            ("GET /v1/posts/1", 400, &post),
            ("GET /v1/posts/2-0", 400, &post),
            ("PUT /v1/posts/2-1-1/like", 400, &post),
            ("GET /v1/posts/2-9", 404, "no post 2-9"),
            ("GET /v1/handles/Ada", 400, "handle must be 3 to 30 characters of a-z, 0-9 and _"),
            ("GET /v1/handles/ada", 404, "no user ada"),
            // query parameters
            ("GET /v1/feed?limit=0", 400, "limit must be 1 to 100"),
            ("GET /v1/feed?limit=101", 400, "limit must be 1 to 100"),
            ("GET /v1/feed?limit=x", 400, "limit must be 1 to 100"),
            ("GET /v1/feed?limit=1&limit=2", 400, "limit must be given once"),
            ("GET /v1/feed?status=new", 400, "status must be all or unread"),
            (
                "GET /v1/feed?page=2",
                400,
                "page is not a parameter: this route has order, list, status, limit, cursor, since, include, profiles",
            ),
            ("GET /v1/me?full=true", 400, "full is not a parameter: this route has none"),
            ("GET /v1/feed?cursor=2", 400, "cursor is not a cursor of this list"),
            (&of_timeline, 400, "cursor is not a cursor of this list"),
            (&of_followers, 400, "cursor is not a cursor of this list"),
            ("GET /v1/notices", 400, "platform is required"),
            ("GET /v1/users/2/followers?offset=10001", 400, "offset must be 0 to 10000"),
            // paths and methods
            ("GET /v1/feed/", 404, "no route has the path /v1/feed/; did you mean /v1/feed?"),
            ("GET //v1//feed", 404, "no route has the path //v1//feed; did you mean /v1/feed?"),
            ("GET /feed", 404, "no route has the path /feed; did you mean /v1/feed?"),
            ("GET /v1/timeline", 404, "no route has the path /v1/timeline"),
            ("POST /v1/feed", 405, "this path does not have POST, only GET"),
            ("GET /v1/posts/2-1/like", 405, "this path does not have GET, only DELETE, PUT"),
            ("PATCH /v1/posts/2-1", 405, "this path does not have PATCH, only DELETE, GET, PUT"),
        ];
        let mut found = Vec::new();
        for (request, status, words) in cases {
            let response = send(world, Some("1"), request, &[], None).await;
            found.push((request.to_owned(), told(&response), (status, words.to_owned())));
        }
        compare(found);
        assert_eq!(world.user(1).get("/v1/users/1/counters").await.ok()["followings"], 0);
    })
    .await;
}

#[tokio::test]
async fn wrong_bodies_are_named() {
    world(async |world| {
        let (long_title, long_text) = ("x".repeat(201), "x".repeat(65_537));
        let cases: Vec<(&str, String, u16, &str)> = vec![
            ("POST /v1/posts", String::new(), 400, "body must be a JSON object, and the request has none"),
            ("POST /v1/posts", "title=Hello".to_owned(), 400, "body must be a JSON object: expected ident at line 1 column 2"),
            ("POST /v1/posts", "\"Hello\"".to_owned(), 400, "body must be a JSON object"),
            ("POST /v1/posts", "[]".to_owned(), 400, "body must be a JSON object"),
            (
                "POST /v1/posts",
                "{\"title\": \"x\",}".to_owned(),
                400,
                "body must be a JSON object: trailing comma at line 1 column 15",
            ),
            ("POST /v1/posts", "{}".to_owned(), 400, "title is required"),
            ("POST /v1/posts", json!({ "titel": "x" }).to_string(), 400, "title is required"),
            ("POST /v1/posts", json!({ "title": 7 }).to_string(), 400, "title must be a string"),
            ("POST /v1/posts", json!({ "title": "" }).to_string(), 400, "title must have 1 to 200 characters"),
            ("POST /v1/posts", json!({ "title": long_title }).to_string(), 400, "title must have 1 to 200 characters"),
            (
                "POST /v1/posts",
                json!({ "title": "x", "body": long_text }).to_string(),
                400,
                "body must have 0 to 65536 characters",
            ),
            ("POST /v1/posts", json!({ "title": "x", "data": [] }).to_string(), 400, "data must be a JSON object"),
            (
                "POST /v1/posts",
                json!({ "title": "x", "weight": 101 }).to_string(),
                400,
                "weight must be an integer from -100 to 100",
            ),
            ("POST /v1/posts", "x".repeat(256 * 1024 + 1), 413, "a body may have at most 262144 bytes"),
            ("POST /v1/following", json!({ "authors": "2" }).to_string(), 400, "authors must be a list of 1 to 50 ids"),
            ("POST /v1/following", json!({ "authors": ["2", 3] }).to_string(), 400, "authors[1] must be a string"),
            ("POST /v1/following", json!({ "authors": [] }).to_string(), 400, "authors must be a list of 1 to 50 ids"),
            (
                "POST /v1/reads",
                json!({ "author": "2", "all": true }).to_string(),
                400,
                "posts is one of three forms (posts, author with through, all): send exactly one",
            ),
            (
                "POST /v1/notices",
                json!({ "platforms": [1], "title": "x" }).to_string(),
                403,
                "the token lacks the scope notices:write",
            ),
            (
                "PUT /v1/me/profile",
                json!({ "name": "Ada", "picture": "http://x" }).to_string(),
                400,
                "picture must be an https URL",
            ),
        ];
        let mut found = Vec::new();
        for (request, body, status, words) in cases {
            let response = send(world, Some("1"), request, &[], Some(&body)).await;
            let shown: String = body.chars().take(60).collect();
            found.push((format!("{request} {shown}"), told(&response), (status, words.to_owned())));
        }
        let key = send(world, Some("1"), "POST /v1/posts", &[("idempotency-key", "")], Some("{\"title\":\"x\"}")).await;
        let words = "Idempotency-Key must be 1 to 128 printable ASCII characters";
        found.push(("an empty key".to_owned(), told(&key), (400, words.to_owned())));
        compare(found);
        assert_eq!(world.user(1).get("/v1/users/1/counters").await.ok()["posts"], 0);
    })
    .await;
}

#[tokio::test]
async fn wrong_tokens_are_unauthorized() {
    world(async |world| {
        let mut found = Vec::new();
        for token in [None, Some(""), Some("alice"), Some("0"), Some("-1"), Some("eyJhbGciOiJub25lIn0.e30.")] {
            let response = send(world, token, "GET /v1/feed", &[], None).await;
            found.push((format!("Bearer {token:?}"), told(&response), (401, "Unauthorized".to_owned())));
        }
        for header in ["1", "Basic MTox", "Token 1"] {
            let response = send(world, None, "GET /v1/feed", &[("authorization", header)], None).await;
            found.push((header.to_owned(), told(&response), (401, "Unauthorized".to_owned())));
        }
        compare(found);
    })
    .await;
}

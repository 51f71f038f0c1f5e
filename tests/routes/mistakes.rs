//! Typical mistakes of a client. Each gets a response that says what to change, and changes nothing.

use tidemark_tests::{Response, World, world};

const USER_ID: &str = "must be a decimal number from 1 to 18446744073709551615, without sign or leading zeros";
const POST_ID: &str = "must be {author}-{seq}, two decimal numbers without sign or leading zeros";

/// A request of user 1 and its body, its status, and the `detail` of the problem or API Gateway's `message`.
type Mistake<'a> = (&'a str, u16, &'a str);

/// Sends `METHOD path body`.
async fn send(world: &World, token: Option<&str>, request: &str, headers: &[(&str, &str)]) -> Response {
    let mut parts = request.splitn(3, ' ');
    let (method, path, body) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().map(str::to_owned));
    world.stranger(token).send(method.parse().unwrap(), path, headers, body).await
}

/// Compares all responses before it fails.
fn compare<'a>(responses: impl IntoIterator<Item = (String, Response, u16, &'a str)>) {
    let mut wrong = Vec::new();
    for (request, response, status, words) in responses {
        let name = if response.header("content-type") == Some("application/json") { "message" } else { "detail" };
        if response.status != status || response.body[name] != words {
            wrong.push(format!("{request:.90}\n     {} {}\n not {status} {words}", response.status, response.body[name]));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

async fn are_named(world: &World, mistakes: &[Mistake<'_>]) {
    let mut responses = Vec::new();
    for (request, status, words) in mistakes {
        responses.push(((*request).to_owned(), send(world, Some("1"), request, &[]).await, *status, *words));
    }
    compare(responses);
}

#[test]
fn wrong_ids_parameters_paths_and_methods_are_named() {
    world(async |world| {
        world.user(2).publish_all(0..3).await;
        let page = world.user(1).get("/v1/authors/2/posts?limit=1").await.ok();
        let cursor = page["next_cursor"].as_str().unwrap();
        let (of_timeline, of_followers) =
            (format!("GET /v1/feed?cursor={cursor}"), format!("GET /v1/users/2/followers?cursor={cursor}"));
        let (user, author_id, post) = (format!("user {USER_ID}"), format!("author {USER_ID}"), format!("post {POST_ID}"));
        let mistakes: &[Mistake<'_>] = &[
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
        are_named(world, mistakes).await;
        assert_eq!(world.user(1).get("/v1/users/1/counters").await.ok()["followings"], 0);
    });
}

#[test]
fn wrong_bodies_are_named() {
    world(async |world| {
        let long_title = format!(r#"POST /v1/posts {{"title": "{}"}}"#, "x".repeat(201));
        let long_text = format!(r#"POST /v1/posts {{"title": "x", "body": "{}"}}"#, "x".repeat(65_537));
        let huge = format!("POST /v1/posts {}", "x".repeat(256 * 1024 + 1));
        let mistakes: &[Mistake<'_>] = &[
            ("POST /v1/posts ", 400, "body must be a JSON object, and the request has none"),
            ("POST /v1/posts title=Hello", 400, "body must be a JSON object: expected ident at line 1 column 2"),
            (r#"POST /v1/posts "Hello""#, 400, "body must be a JSON object"),
            ("POST /v1/posts []", 400, "body must be a JSON object"),
            (r#"POST /v1/posts {"title": "x",}"#, 400, "body must be a JSON object: trailing comma at line 1 column 15"),
            ("POST /v1/posts {}", 400, "title is required"),
            (r#"POST /v1/posts {"titel": "x"}"#, 400, "title is required"),
            (r#"POST /v1/posts {"title": 7}"#, 400, "title must be a string"),
            (r#"POST /v1/posts {"title": ""}"#, 400, "title must have 1 to 200 characters"),
            (&long_title, 400, "title must have 1 to 200 characters"),
            (&long_text, 400, "body must have 0 to 65536 characters"),
            (r#"POST /v1/posts {"title": "x", "data": []}"#, 400, "data must be a JSON object"),
            (r#"POST /v1/posts {"title": "x", "weight": 101}"#, 400, "weight must be an integer from -100 to 100"),
            (&huge, 413, "a body may have at most 262144 bytes"),
            (r#"POST /v1/following {"authors": "2"}"#, 400, "authors must be a list of 1 to 50 ids"),
            (r#"POST /v1/following {"authors": ["2", 3]}"#, 400, "authors[1] must be a string"),
            (r#"POST /v1/following {"authors": []}"#, 400, "authors must be a list of 1 to 50 ids"),
            (
                r#"POST /v1/reads {"author": "2", "all": true}"#,
                400,
                "posts is one of three forms (posts, author with through, all): send exactly one",
            ),
            (r#"POST /v1/notices {"platforms": [1], "title": "x"}"#, 403, "the token lacks the scope notices:write"),
            (r#"PUT /v1/me/profile {"name": "Ada", "picture": "http://x"}"#, 400, "picture must be an https URL"),
        ];
        are_named(world, mistakes).await;
        let empty_key = send(world, Some("1"), r#"POST /v1/posts {"title":"x"}"#, &[("idempotency-key", "")]).await;
        let words = "Idempotency-Key must be 1 to 128 printable ASCII characters";
        compare([("an empty key".to_owned(), empty_key, 400, words)]);
        assert_eq!(world.user(1).get("/v1/users/1/counters").await.ok()["posts"], 0);
    });
}

#[test]
fn wrong_tokens_are_unauthorized() {
    world(async |world| {
        let mut responses = Vec::new();
        for token in [None, Some(""), Some("alice"), Some("0"), Some("-1"), Some("eyJhbGciOiJub25lIn0.e30.")] {
            let response = send(world, token, "GET /v1/feed", &[]).await;
            responses.push((format!("Bearer {token:?}"), response, 401, "Unauthorized"));
        }
        for header in ["1", "Basic MTox", "Token 1"] {
            let response = send(world, None, "GET /v1/feed", &[("authorization", header)]).await;
            responses.push((header.to_owned(), response, 401, "Unauthorized"));
        }
        compare(responses);
    });
}

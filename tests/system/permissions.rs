//! Compares the permissions of each function's role with the observed calls to DynamoDB, SQS and EventBridge. Every
//! call must be allowed, and every permission must be used.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, OnceLock},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::HeaderMap,
    response::Response,
};
use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark::{domain::UserId, views::keys};
use tidemark_tests::{
    LegacyRedis, World,
    template::{BY_LAMBDA, Permissions, permissions, statements, template_document},
};

use crate::{
    damage::{
        self,
        proxy::{pass_on, sender_and_target, serve},
    },
    delivery::{deliver, project, publish_in_facts},
    migration,
};

/// Permissions that this test does not observe, with the reason for each.
const UNSEEN: [(&str, &str, &str, &str); 24] = [
    ("fan-out", "sqs:GetQueueAttributes", "FanOutQueue", "used by Lambda while it polls"),
    ("projector", "sqs:GetQueueAttributes", "ActsQueue", "the same"),
    ("projector", "sqs:SendMessage", "ProjectorFailuresQueue", "used by Lambda when it gives up a record"),
    ("migrate", "sqs:SendMessage", "ProjectorFailuresQueue", "the same"),
    ("projector", "dynamodb:UpdateItem", "CountersTable", "a batch that meets an outage of Redis extends the outage note"),
    ("projector", "dynamodb:Query", "FollowingTable/index/kept", "rebuild of a view that has more than the facts"),
    ("projector", "dynamodb:Query", "ReadsTable", "the same"),
    ("fan-out", "dynamodb:PutItem", "PostsTable", "windows of an author with very many deleted posts"),
    ("fan-out", "dynamodb:ConditionCheckItem", "FollowingTable", "two runs of an erasure end one block"),
    ("profile", "dynamodb:BatchGetItem", "ReadsTable", "windows of a very large read state"),
    ("migrate", "dynamodb:Query", "FollowingTable/index/kept", "rebuild of a view that has more than the facts"),
    ("migrate", "dynamodb:Query", "ReadsTable", "the same"),
    ("migrate", "dynamodb:BatchGetItem", "IdentitiesTable", "a reader leaves while marks of notices are imported"),
    ("mark-read", "dynamodb:PutItem", "ReadsTable", "windows of a read state that has outgrown its item"),
    ("migrate", "dynamodb:PutItem", "ReadsTable", "the same"),
    ("reconcile", "dynamodb:PutItem", "ReadsTable", "the same"),
    ("reconcile", "dynamodb:PutItem", "PostsTable", "windows of a head that has outgrown its item"),
    ("reconcile", "sqs:GetQueueAttributes", "WalkQueue", "used by Lambda while it polls"),
    ("live", "sqs:GetQueueAttributes", "LiveQueue", "the same"),
    ("live-sender", "sqs:GetQueueAttributes", "LivePostsQueue", "the same"),
    (
        "live-sender",
        "execute-api:ManageConnections",
        "arn:AWS::Partition:execute-api:AWS::Region:AWS::AccountId:LiveApi/live/POST/@connections/*",
        "neither DynamoDB nor SQS",
    ),
    ("live", "dynamodb:BatchGetItem", "FollowingTable", "Readers::view merges the facts of a follow that is just made"),
    ("live", "dynamodb:BatchGetItem", "ReadsTable", "the same"),
    ("reconcile", "sqs:SendMessage", "LiveQueue", "a group that was wrong, of a user who is watched"),
];

type Seen = BTreeMap<String, Permissions>;

/// A proxy in front of a service. It records the function and the action of each request.
struct Tap {
    service: OnceLock<String>,
    http: reqwest::Client,
    seen: Arc<Mutex<Seen>>,
}

impl Tap {
    async fn start(seen: &Arc<Mutex<Seen>>) -> (String, Arc<Self>) {
        let tap = Arc::new(Self { service: OnceLock::new(), http: reqwest::Client::new(), seen: Arc::clone(seen) });
        (serve(Router::new().fallback(forward).with_state(Arc::clone(&tap))).await, tap)
    }
}

async fn forward(State(tap): State<Arc<Tap>>, headers: HeaderMap, body: Bytes) -> Response {
    let [caller, target] = sender_and_target(&headers);
    let asked = asked(&target, &serde_json::from_slice(&body).unwrap());
    tap.seen.lock().unwrap().entry(caller).or_default().extend(asked);
    let (response, reply) = pass_on(&tap.http, &tap.service, &headers, body).await;
    response.body(Body::from(reply)).unwrap()
}

/// The IAM actions and resources of a request.
fn asked(target: &str, request: &Value) -> Permissions {
    let operation = target.rsplit('.').next().unwrap();
    let queue = || request["QueueUrl"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let table = |value: &Value| value["TableName"].as_str().unwrap().to_owned();
    let one = |action: &str, resource: String| BTreeSet::from([(action.to_owned(), resource)]);
    match operation {
        "SendMessage" | "SendMessageBatch" => one("sqs:SendMessage", queue()),
        "PutEvents" => {
            let bus = "arn:AWS::Partition:events:AWS::Region:AWS::AccountId:event-bus/EventBus";
            one("events:PutEvents", bus.to_owned())
        }
        "GetQueueAttributes" => one("sqs:GetQueueAttributes", queue()),
        "BatchGetItem" => {
            let tables = request["RequestItems"].as_object().unwrap().keys();
            tables.map(|table| ("dynamodb:BatchGetItem".to_owned(), table.clone())).collect()
        }
        "Query" => match request["IndexName"].as_str() {
            Some(index) => one("dynamodb:Query", format!("{}/index/{index}", table(request))),
            None => one("dynamodb:Query", table(request)),
        },
        // A transaction needs the permissions of all its parts.
        "TransactWriteItems" => {
            let part = |item: &Value| {
                let (name, body) = item.as_object().unwrap().iter().find(|(_, body)| !body.is_null()).unwrap();
                let action = if name == "ConditionCheck" { "ConditionCheckItem".to_owned() } else { format!("{name}Item") };
                (format!("dynamodb:{action}"), table(body))
            };
            request["TransactItems"].as_array().unwrap().iter().map(part).collect()
        }
        other => one(&format!("dynamodb:{other}"), table(request)),
    }
}

#[tokio::test]
async fn roles_allow_exactly_the_calls_that_functions_make() {
    let seen = Arc::new(Mutex::new(Seen::new()));
    let (dynamodb, facts) = Tap::start(&seen).await;
    let (sqs, queues) = Tap::start(&seen).await;
    let (events, bus) = Tap::start(&seen).await;
    let configure = |options: &mut tidemark_local::Options| {
        options.environment.insert("AWS_ENDPOINT_URL_DYNAMODB".to_owned(), dynamodb);
        options.environment.insert("AWS_ENDPOINT_URL_SQS".to_owned(), sqs);
        options.environment.insert("AWS_ENDPOINT_URL_EVENTBRIDGE".to_owned(), events);
        options.parameters.insert("ReconcileConcurrency".to_owned(), "3".to_owned());
    };
    World::run_with(configure, async |world| {
        facts.service.set(world.stack.dynamodb_endpoint().to_owned()).unwrap();
        queues.service.set(world.stack.sqs_endpoint().to_owned()).unwrap();
        bus.service.set(world.stack.events_endpoint().to_owned()).unwrap();
        follow_publish_and_read(world, || world.flush_redis()).await;
        mark(world, || world.flush_redis()).await;
        live(world).await;
        notices(world, || world.flush_redis()).await;
        people(world).await;
        inbox(world).await;
        without_redis(world).await;
        crate::leaving::leave(world).await;
        what_is_left_to_others(world).await;
        repairs(world, &seen).await;
        migration::a_little_of_everything(world).await;
        // A follow checks the head while an import is open.
        migration::imports(world).begin_import("77".parse().unwrap()).await.unwrap();
        world.follow([78], 77).await;
    })
    .await;
    let (dynamodb, facts) = Tap::start(&seen).await;
    let mapped = |options: &mut tidemark_local::Options| {
        options.environment.insert("AWS_ENDPOINT_URL_DYNAMODB".to_owned(), dynamodb);
        options.parameters.insert("UserIds".to_owned(), "mapped".to_owned());
    };
    World::run_with(mapped, async |world| {
        facts.service.set(world.stack.dynamodb_endpoint().to_owned()).unwrap();
        identities(world).await;
        world.try_live(Some("a new claim")).await.unwrap();
    })
    .await;

    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let wrong = wrong_permissions(&seen);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// All differences between the calls and the roles, because a run takes long.
fn wrong_permissions(seen: &Seen) -> Vec<String> {
    let mut wrong = Vec::new();
    for (function, statements) in statements(&template_document()) {
        let allowed = permissions(&statements);
        let seen = seen.get(&function).cloned().unwrap_or_default();
        let of_function = UNSEEN.iter().filter(|(of, ..)| *of == function);
        let excused: Permissions = of_function.map(|(_, action, on, _)| ((*action).to_owned(), (*on).to_owned())).collect();
        let mut differs = |what: &str, (action, resource): &(String, String)| {
            wrong.push(format!("{function} {what}: {action} {resource}"));
        };
        for permission in seen.difference(&allowed) {
            differs("makes a call that its role does not allow", permission);
        }
        for permission in allowed.iter().filter(|(action, _)| !BY_LAMBDA.contains(&action.as_str())) {
            if !seen.contains(permission) && !excused.contains(permission) {
                differs("has a permission that no call uses", permission);
            }
        }
        for permission in excused.iter().filter(|excused| seen.contains(*excused) || !allowed.contains(*excused)) {
            differs("makes a call that is listed as unobserved, or lacks its permission", permission);
        }
    }
    wrong
}

/// `forget` deletes all data in Redis.
async fn follow_publish_and_read(world: &World, forget: impl AsyncFn()) {
    let (reader, author) = (world.user(1), world.user(10));
    author.publish("before the follow").await;
    reader.feed_ids().await;
    reader.put("/v1/following/10").await.ok();
    for _ in 0..2 {
        assert_eq!(author.post_with_key("/v1/posts", "once", &json!({ "title": "one", "body": "text" })).await.status, 201);
    }
    world.publish_and_deliver(10, "to delete").await;
    author.delete("/v1/posts/10-3").await;
    reader.put("/v1/posts/10-2/like").await.ok();
    let paths = ["/v1/posts/10-2", "/v1/posts/10-2/delivery", "/v1/authors/10/posts", "/v1/feed", "/v1/unread", "/v1/health"];
    let relations = ["/v1/users/10/followers", "/v1/users/1/following", "/v1/users/10/counters", "/v1/relations/10"];
    for path in paths.into_iter().chain(relations) {
        reader.get(path).await.ok();
    }
    world.idle().await;
    forget().await;
    reader.feed_ids().await;
}

async fn mark(world: &World, forget: impl AsyncFn()) {
    let reader = world.user(1);
    let before = world.user(10).get("/v1/posts/10-2").await.ok()["created_at"].clone();
    world.publish_and_deliver(10, "later").await;
    forget().await;
    reader.post("/v1/reads", &json!({ "all": true, "before": before })).await.ok();
    reader.put("/v1/posts/10-4/read").await.ok();
}

async fn live(world: &World) {
    world.flush_redis().await;
    let mut connection = world.live(1).await;
    let post = world.user(10).publish("to a connection").await;
    connection.unread().await;
    world.user(1).put(&format!("/v1/posts/{post}/read")).await.ok();
    connection.unread().await;
    world.flush_redis().await;
    connection.ping().await;
    connection.unread().await;
    world.stack.drop_live_connections();
    world.publish_and_deliver(10, "to nobody").await;
}

async fn notices(world: &World, forget: impl AsyncFn()) {
    let (editor, reader) = (world.stranger(Some("7 notices:write")), world.user(1));
    for _ in 0..2 {
        let notice = json!({ "platforms": [3], "title": "maintenance" });
        assert_eq!(editor.post_with_key("/v1/notices", "once", &notice).await.status, 201);
    }
    reader.put("/v1/notices/3-1/read").await.ok();
    editor.get("/v1/notices/3-1").await.ok();
    reader.get("/v1/notices?platform=3").await.ok();
    // Marks are told at once, and views that are lost are filled when the connection pings.
    let mut connection = world.live(1).await;
    connection.ping_platforms(&[3]).await;
    reader.delete("/v1/notices/3-1/read").await.ok();
    forget().await;
    connection.ping_platforms(&[3]).await;
    editor.delete("/v1/notices/3-1").await;
    // More notices than one transaction takes.
    let platforms: Vec<u16> = (101..=132).collect();
    for _ in 0..3 {
        editor.post("/v1/notices", &json!({ "platforms": platforms, "title": "many" })).await.ok();
    }
    let ids = platforms.iter().flat_map(|platform| (1..=3).map(move |seq| format!("id={platform}-{seq}")));
    let path = format!("/v1/notices?{}", ids.collect::<Vec<_>>().join("&"));
    editor.put_body(&path, &json!({ "title": "edited" })).await.ok();
    world.idle().await;
}

async fn people(world: &World) {
    let reader = world.user(1);
    for _ in 0..2 {
        reader.post_with_key("/v1/posts/10-2/comments", "once", &json!({ "text": "first" })).await.ok();
        reader.post("/v1/posts/10-2/comments", &json!({ "text": "another" })).await.ok();
    }
    reader.delete("/v1/posts/10-2/comments/2").await.ok();
    reader.get("/v1/posts/10-2/comments").await.ok();
    for handle in ["first", "second"] {
        reader.put_body("/v1/me/profile", &json!({ "name": "One", "handle": handle })).await.ok();
    }
    for path in ["/v1/me", "/v1/users/10", "/v1/users?user=1", "/v1/handles/second", "/v1/me/likes", "/v1/feed?include=body"] {
        reader.get(path).await.ok();
    }
    reader.get("/v1/posts/10-2/likes").await.ok();
    reader.delete("/v1/posts/10-2/like").await.ok();
    reader.put("/v1/posts/10-2/like").await.ok();
    // A repost, its page and its withdrawal, and a quote.
    reader.put("/v1/posts/10-2/repost").await.ok();
    reader.get("/v1/posts/10-2/reposts").await.ok();
    reader.delete("/v1/posts/10-2/repost").await.ok();
    reader.post("/v1/posts", &json!({ "title": "quote", "of": "10-2" })).await.ok();
    for _ in 0..2 {
        reader.put("/v1/blocks/9").await.ok();
    }
    let list = reader.post("/v1/lists", &json!({ "name": "friends" })).await.ok()["id"].as_str().unwrap().to_owned();
    reader.put(&format!("/v1/lists/{list}/authors/10")).await.ok();
    reader.get(&format!("/v1/feed?list={list}")).await.ok();
    world.user(10).put_body("/v1/posts/10-2", &json!({ "title": "one, edited", "body": "text" })).await.ok();
    // A follower without a view opens a post.
    world.user(2).put("/v1/following/10").await.ok();
    world.flush_redis().await;
    world.user(2).get("/v1/posts/10-2").await.ok();
}

/// Acts of one second: the projector writes the first, and a task the others. A connection is told.
async fn inbox(world: &World) {
    let owner = world.user(10);
    let post = owner.publish("liked").await;
    let connection = world.live(10).await;
    let path = format!("/v1/posts/{post}/like");
    for _ in 0..3 {
        // Few acts are counted one by one, many by their counter.
        for user in 100..118 {
            world.user(user).put(&path).await.ok();
        }
        owner.get("/v1/inbox").await.ok();
        owner.get("/v1/me").await.ok();
        world.idle().await;
        for user in 100..118 {
            world.user(user).delete(&path).await.ok();
        }
        world.idle().await;
    }
    for user in 300..318 {
        world.user(user).put(&format!("/v1/posts/{post}/repost")).await.ok();
    }
    world.idle().await;
    owner.put("/v1/blocks/310").await.ok();
    world.user(100).put(&path).await.ok();
    owner.put("/v1/mutes/100").await.ok();
    owner.put("/v1/mutes/101").await.ok();
    world.idle().await;
    for _ in 0..2 {
        owner.put(&format!("/v1/inbox/like-{}/read", post.split_once('-').unwrap().1)).await.ok();
    }
    assert_eq!(owner.put("/v1/inbox/like-999/read").await.status, 404);
    owner.post("/v1/inbox/reads", &json!({ "before": "2099-01-01T00:00:00Z" })).await.ok();
    world.user(100).delete(&path).await.ok();
    world.idle().await;
    connection.close().await;
}

/// Each function with routes finds out the user id of a claim that no function knows.
async fn identities(world: &World) {
    let calls = ["/v1/me", "/v1/relations/1", "/v1/posts/1-1/delivery", "/v1/feed", "/v1/notices?platform=1"];
    for (caller, path) in calls.into_iter().enumerate() {
        world.stranger(Some(&format!("caller-{caller}"))).get(path).await;
    }
    world.stranger(Some("marking")).post("/v1/reads", &json!({ "all": true })).await.ok();
}

/// Reads later pages from facts, and does all work that is left to workers.
async fn without_redis(world: &World) {
    let (reader, editor) = (world.user(1), world.stranger(Some("7 notices:write")));
    world.user(11).publish("by another user").await;
    world.publish_and_deliver(12, "by another user").await;
    // On a busy machine the first response may come from facts.
    tidemark_tests::until("the reader has a view", async || {
        reader.feed_ids().await;
        world.redis().await.exists(keys::reader_state(UserId::MIN)).await.unwrap()
    })
    .await;
    let next = reader.get("/v1/feed?limit=2").await.ok()["next_cursor"].as_str().unwrap().to_owned();
    world.pause_workers().await;
    let refusal = world.refuse_redis().await;
    reader.get(&format!("/v1/feed?limit=2&cursor={next}")).await.ok();
    for path in ["/v1/authors/10/posts", "/v1/posts/10-2"] {
        reader.get(path).await.ok();
    }
    reader.follow([11, 12]).await;
    reader.delete("/v1/posts/10-2/read").await.ok();
    reader.put("/v1/posts/10-2/favorite").await.ok();
    reader.put_body("/v1/me/profile", &json!({ "name": "Two" })).await.ok();
    editor.post("/v1/notices", &json!({ "platforms": [4], "title": "during an outage of Redis" })).await;
    reader.post("/v1/notices/reads", &json!({ "platform": 4, "through": 1 })).await.ok();
    refusal.end().await;
    world.redis_is_asked_again().await;
    // Each reader opens the view of reactions to one of the authors.
    assert_eq!(project(world, 1, 11, 1).await["batchItemFailures"], json!([]));
    world.resume_workers();
    world.idle().await;
}

async fn work(world: &World, task: Value) {
    assert_eq!(deliver(world, &[task.to_string()]).await["batchItemFailures"], json!([]));
}

async fn what_is_left_to_others(world: &World) {
    let reader = world.user(1);
    reader.delete("/v1/following/10").await.ok();
    world.stack.pause("fan-out").await.unwrap();
    world.user(11).publish("nobody delivers it").await;
    world.resume_fan_outs().await;
    world.resume("fan-out").await;
    let fan_out = json!({ "kind": "deliver", "post": "11-2", "at": "2026-01-01T00:00:00.000Z", "pages": 1, "deletions": 0 });
    work(world, json!({ "v": 1, "type": "list", "fan_out": fan_out, "from": 0, "to": 1 })).await;
    // Two publishes die after their transactions, one without followers.
    let app = world.stack.app("publish").unwrap();
    for (author, followers) in [(11, 1), (14, 0)] {
        publish_in_facts(app, tidemark_tests::user_id(author), followers, app.stores.clock.now()).await;
    }
    world.idle().await;
}

/// Every kind of repair, and every part of a walk.
async fn repairs(world: &World, seen: &Mutex<Seen>) {
    const FUNCTION: &str = "reconcile";
    let before = seen.lock().unwrap().get(FUNCTION).cloned().unwrap_or_default();
    damage::plant_everything(world).await;
    // The test does the damage through reconcile's connection. These calls are not counted.
    seen.lock().unwrap().insert(FUNCTION.to_owned(), before);
    let fire = async |job: &str, overdue_ms: u64| {
        let event = json!({ "job": job, "share": 1.0, "settle_ms": 50, "overdue_ms": overdue_ms });
        let reply = world.stack.fire(FUNCTION, Some(event)).await.unwrap();
        assert_eq!(reply["failed"], 0, "{reply}");
        reply
    };
    // A group that is wrong, and one without acts.
    for seq in [1, 2] {
        let key = tidemark::facts::schema::group(tidemark_tests::user_id(10), format!("like-{seq}").parse().unwrap());
        world
            .put_item("InboxTable", tidemark_tests::items::with_attributes(key, &[("version", tidemark_tests::items::n(seq))]))
            .await;
    }
    fire("fan-outs", 0).await;
    fire("users", 0).await;
    world.idle().await;
    // As many runs of the minute job as the segments need.
    while !fire("minute", 30_000).await["users"].is_null() {
        world.idle().await;
    }
}

/// A delivery to several readers, one of whom has a connection and one a ranked feed; the post is liked, and deleted.
async fn several_readers(world: &World) {
    world.follow(2..=4, 11).await;
    world.read_feeds(2..=4).await;
    world.user(3).get("/v1/feed?order=ranked").await.ok();
    let mut live = world.live(2).await;
    let post = world.user(11).publish("to several").await;
    live.total(1).await;
    world.user(4).put(&format!("/v1/posts/{post}/like")).await.ok();
    world.idle().await;
    world.user(3).get("/v1/feed?order=ranked").await.ok();
    world.user(11).delete(&format!("/v1/posts/{post}")).await.ok();
    live.total(0).await;
    live.close().await;
    world.idle().await;
}

#[tokio::test]
async fn the_redis_user_of_the_functions_allows_exactly_their_commands() {
    let user = template_document()["Resources"]["RedisUser"]["Properties"].clone();
    let name = user["UserName"].as_str().unwrap().to_owned();
    let rules: Vec<&str> = user["AccessString"].as_str().unwrap().split_whitespace().collect();
    // A second server, without legacy data.
    let server = LegacyRedis::start().await;
    // The default user has all permissions in this test. It runs what no function runs, and repeats refused commands.
    let mut connection = server.connect().await;
    redis::cmd("ACL").arg("SETUSER").arg(&name).arg(">secret").arg(rules).exec_async(&mut connection).await.unwrap();
    let url = server.url().replace("redis://", &format!("redis://{name}:secret@"));
    let emptying = connection.clone();
    let forget = || {
        let mut connection = emptying.clone();
        async move { redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap() }
    };
    let configure = |options: &mut tidemark_local::Options| options.redis_url = Some(url);
    World::run_with(configure, async |world| {
        follow_publish_and_read(world, forget).await;
        mark(world, forget).await;
        notices(world, forget).await;
        several_readers(world).await;
        world.user(1).delete("/v1/following/10").await.ok();
        world.idle().await;
    })
    .await;
    let refused: Vec<redis::Value> = redis::cmd("ACL").arg("LOG").query_async(&mut connection).await.unwrap();
    assert!(refused.is_empty(), "{refused:?}");
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.unwrap();
    assert!(stats.contains("cmdstat_fcall:") && stats.contains("cmdstat_function|load:"), "{stats}");
}

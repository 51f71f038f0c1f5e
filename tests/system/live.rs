//! Live updates: what reaches a connection, and what happens without Redis, without a worker and without a connection.
//! A connection receives what it missed after its next ping, whatever other connections have received.

mod many;
mod notices;
mod pace;

use std::time::{Duration, Instant};

use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark::{
    domain::{CountsDigest, Known, Modes, PostId, Timestamp, Told},
    queue::{Connection, LiveTask, decode},
    views::{ClaimedUpdate, Notified, keys},
};
use tidemark_tests::{LiveConnection, PATIENCE, World, parameter, request_limits, until, user_id, world, world_with};

const AUTHOR: u64 = 42;
const READER: u64 = 7;

/// A reader with a live view who follows the author.
async fn reader(world: &World) {
    world.follow([READER], AUTHOR).await;
    world.user(READER).get("/v1/unread").await.ok();
    world.idle().await;
}

/// Runs a test with a connection of the same reader.
fn watched(test: impl AsyncFnOnce(&World, LiveConnection)) {
    world(async |world| {
        reader(world).await;
        test(world, world.live(READER).await).await;
    });
}

fn told(total: u64, unread: u64, post: &str) -> Value {
    json!({ "type": "unread", "total": total, "author": AUTHOR.to_string(), "unread": unread, "post": post })
}

/// Publishes until an invocation of this function is killed while a post is delivered and told. Returns the number of
/// posts. An invocation takes milliseconds, so some attempts miss it.
async fn kill(world: &World, author: u64, function: &str) -> u64 {
    let (started, mut posts) = (Instant::now(), 0);
    loop {
        world.user(author).publish("while a worker dies").await;
        posts += 1;
        let published = Instant::now();
        while published.elapsed() < Duration::from_millis(500) {
            if world.stack.kill_invocations(function) > 0 {
                return posts;
            }
            tokio::task::yield_now().await;
        }
        assert!(started.elapsed() < PATIENCE, "no invocation of {function} was killed");
    }
}

/// The ids of the registered connections.
async fn connections(world: &World) -> Vec<String> {
    let mut fields: Vec<String> = world.redis().await.hkeys(keys::connections(user_id(READER))).await.unwrap();
    fields.retain(|field| field != "@");
    fields
}

#[test]
fn a_bad_token_is_refused_at_the_handshake() {
    world(async |world| {
        for token in [None, Some(""), Some("x"), Some("0"), Some("07"), Some("-1"), Some("18446744073709551616")] {
            assert_eq!(world.try_live(token).await.err(), Some(401), "{token:?}");
        }
        assert_eq!(world.user(READER).get("/v1/live").await.status, 404, "without an upgrade there is no such route");
    });
    world_with(parameter("JwtScope", "feed"), async |world| {
        assert_eq!(world.try_live(Some("7")).await.err(), Some(403));
        world.try_live(Some("7 feed")).await.unwrap().ping().await;
    });
}

#[test]
fn a_post_a_deletion_and_a_mark_of_another_device_reach_every_connection() {
    world(async |world| {
        reader(world).await;
        let (mut phone, mut desk) = (world.live(READER).await, world.live(READER).await);
        let mut both_are_told = async |told: Value| {
            for connection in [&mut phone, &mut desk] {
                assert_eq!(connection.unread().await, told);
            }
        };
        let author = world.user(AUTHOR);
        let first = author.publish("one").await;
        both_are_told(told(1, 1, &first)).await;
        let second = author.publish("two").await;
        both_are_told(told(2, 2, &second)).await;
        world.user(READER).put(&format!("/v1/posts/{first}/read")).await.ok();
        both_are_told(told(1, 1, &first)).await;
        author.delete(&format!("/v1/posts/{second}")).await;
        both_are_told(told(0, 0, &second)).await;
        let third = author.publish("three").await;
        both_are_told(told(1, 1, &third)).await;
        world.user(READER).post("/v1/reads", &json!({ "all": true })).await.ok();
        both_are_told(told(0, 0, &third)).await;
        world.user(READER).post("/v1/reads", &json!({ "all": true })).await.ok();
        world.idle().await;
        assert!(phone.is_silent().await && desk.is_silent().await, "counts that have not changed are not told");
    });
}

/// The last post that a mark names is of an author who blocks the reader.
#[test]
fn a_message_after_a_mark_names_no_post_of_an_author_who_blocks_the_reader() {
    const BLOCKER: u64 = 43;
    world(async |world| {
        reader(world).await;
        world.follow([READER], BLOCKER).await;
        let seen = world.user(AUTHOR).publish_all(["one", "two", "three"]).await;
        let hidden = world.user(BLOCKER).publish("hidden").await;
        world.user(BLOCKER).put(&format!("/v1/blocks/{READER}")).await.ok();
        world.idle().await;
        let mut connection = world.live(READER).await;
        let marking = world.user(READER);
        let both = json!({ "posts": [&seen[0], &hidden] });
        marking.post("/v1/reads", &both).await.has(json!({ "changed": 1, "total": 2 }));
        assert_eq!(connection.unread().await, told(2, 2, &seen[0]));
        for mark in [json!({ "author": BLOCKER.to_string(), "through": 1 }), json!({ "posts": [&hidden] })] {
            marking.post("/v1/reads", &mark).await.has(json!({ "changed": 0, "total": 2 }));
        }
        world.idle().await;
        assert!(connection.is_silent().await);
    });
}

#[test]
fn there_is_at_most_one_message_a_second_and_the_last_state_arrives() {
    const POSTS: u64 = 30;
    watched(async |world, mut connection| {
        let author = world.user(AUTHOR);
        let publish = async {
            for _ in 0..POSTS {
                author.publish("one of many").await;
                tokio::time::sleep(Duration::from_millis(70)).await;
            }
        };
        let listen = async {
            let (mut arrivals, mut total) = (Vec::new(), 0);
            while total < POSTS {
                let message = connection.unread().await;
                arrivals.push(Instant::now());
                total = message["total"].as_u64().unwrap();
                assert_eq!(message["unread"], total);
            }
            arrivals
        };
        let ((), arrivals) = tokio::join!(publish, listen);
        let took = arrivals.last().unwrap().duration_since(arrivals[0]);
        assert!(arrivals.len() >= 2 && arrivals.len() as u64 <= took.as_secs() + 2, "{} in {took:?}", arrivals.len());
        for pair in arrivals.windows(2) {
            assert!(pair[1].duration_since(pair[0]) > Duration::from_millis(500), "{:?}", pair[1].duration_since(pair[0]));
        }
        world.idle().await;
        assert!(connection.is_silent().await);
    });
}

#[test]
fn a_ping_renews_a_connection_and_other_messages_get_an_error() {
    world(async |world| {
        let mut connection = world.live(READER).await;
        let key = keys::connections(user_id(READER));
        let mut redis = world.redis().await;
        let _: bool = redis.pexpire(&key, 1_000_000).await.unwrap();
        connection.ping().await;
        let left: i64 = redis.pttl(&key).await.unwrap();
        assert!((1..=600_000).contains(&left) && connections(world).await.len() == 1, "{left}");
        for wrong in ["", "ping", "{}", "[1]", r#"{"type":"pong"}"#, r#"{"type":7}"#] {
            connection.send(wrong).await;
            let response = connection.next().await;
            assert_eq!([&response["type"], &response["error"]], ["error", "invalid-message"], "{wrong}: {response}");
            assert!(response["detail"].is_string());
        }
        connection.ping().await;
        connection.close().await;
        until("the closed connection is removed", async || connections(world).await.is_empty()).await;
    });
}

#[test]
fn pings_are_counted_among_the_reads_of_a_user() {
    world_with(request_limits([0, 0, 0, 0, 2]), async |world| {
        let mut connection = world.live(READER).await;
        connection.ping().await;
        connection.send(r#"{"type":"ping"}"#).await;
        assert_eq!(connection.next().await["error"], "too-many-requests");
        connection.send("no message").await;
        assert_eq!(connection.next().await["error"], "too-many-requests", "whatever it sends");
        assert_eq!(world.try_live(Some("7")).await.err(), Some(429));
    });
}

#[test]
fn a_view_that_is_rebuilt_or_has_lost_its_feed_stays_watched() {
    watched(async |world, mut connection| {
        let mut redis = world.redis().await;
        let _: u64 = redis.del(keys::reader_state(user_id(READER))).await.unwrap();
        world.user(READER).get("/v1/unread").await.ok();
        let post = world.user(AUTHOR).publish("after the rebuild, in the list").await;
        assert_eq!(connection.unread().await, told(1, 1, &post));
        let recent = world.user(AUTHOR).publish("in the state").await;
        connection.total(2).await;
        let _: u64 = redis.del(keys::feed(user_id(READER))).await.unwrap();
        world.user(AUTHOR).delete(&format!("/v1/posts/{recent}")).await.ok();
        assert_eq!(connection.unread().await, told(1, 1, &recent));
    });
}

#[test]
fn a_delivery_without_an_announcement_does_not_delay_a_message() {
    watched(async |world, mut connection| {
        let post: PostId = world.user(AUTHOR).publish("delivered again").await.parse().unwrap();
        connection.total(1).await;
        world.idle().await;
        let stores = world.stack.app("fan-out").unwrap().stores.clone();
        let key = stores.facts.posts(&[post]).await.unwrap()[&post].key();
        let readers = [user_id(READER)];
        let deliver = async |announce| stores.views.deliver(&readers, key, Modes::default(), announce).await.unwrap().notified;
        let nobody = Notified::default();
        assert_eq!(deliver(false).await, nobody);
        let announced = deliver(true).await;
        assert_eq!([announced.now, announced.later].concat(), readers, "nobody had a task on its way");
        deliver(true).await;
        assert_eq!(deliver(true).await, nobody, "now the view relies on a later one");
    });
}

#[test]
fn a_connection_that_vanishes_is_removed_and_deliveries_continue() {
    watched(async |world, _connection| {
        assert_eq!(world.stack.drop_live_connections(), 1);
        assert_eq!(connections(world).await.len(), 1, "nobody has told that it is gone");
        world.user(AUTHOR).publish("to nobody").await;
        until("the connection is removed", async || connections(world).await.is_empty()).await;
        world.idle().await;
        world.publish_and_deliver(AUTHOR, "to nobody again").await;
        assert_eq!(world.user(READER).get("/v1/unread").await.ok()["total"], 2);
    });
}

#[test]
fn a_worker_that_waits_or_is_killed_does_not_lose_the_last_state() {
    watched(async |world, mut connection| {
        world.stack.pause("live").await.unwrap();
        world.user(AUTHOR).publish_all(["while nobody works"; 3]).await;
        assert!(connection.is_silent().await);
        world.stack.resume("live").unwrap();
        assert_eq!(connection.total(3).await["unread"], 3);
        // An invocation of these posts would be killed instead of a later one.
        world.idle().await;
        let mut posts = 3;
        for function in ["live", "live-sender"] {
            posts += kill(world, AUTHOR, function).await;
            assert_eq!(connection.total(posts).await["unread"], posts, "{function}");
        }
    });
}

#[test]
fn unwatched_readers_cost_no_message() {
    world(async |world| {
        reader(world).await;
        world.stack.pause("live").await.unwrap();
        let post = world.user(AUTHOR).publish("unwatched").await;
        world.user(READER).put(&format!("/v1/posts/{post}/read")).await.ok();
        world.user(AUTHOR).delete(&format!("/v1/posts/{post}")).await;
        until("the deliveries are done", async || {
            let status = world.stack.status().await.unwrap();
            status.queues["FanOutQueue"].is_empty() && status.functions["fan-out"].in_flight == 0
        })
        .await;
        let status = world.stack.status().await.unwrap();
        assert!(status.queues["LiveQueue"].is_empty() && status.queues["LivePostsQueue"].is_empty());
        // A watched reader beside it: one message.
        let _connection = world.live(READER).await;
        world.user(AUTHOR).publish("watched").await;
        until("one task", async || {
            let bodies: Vec<LiveTask> = world.messages("LiveQueue").await.iter().map(|body| decode(body).unwrap()).collect();
            let expected = LiveTask::Changed { users: vec![user_id(READER)] };
            assert!(bodies.is_empty() || bodies == [expected], "{bodies:?}");
            !bodies.is_empty()
        })
        .await;
        world.empty_queue("LiveQueue").await;
        world.stack.resume("live").unwrap();
    });
}

#[test]
fn mapped_users_receive_messages() {
    world_with(parameter("UserIds", "mapped"), async |world| {
        let bob = world.stranger(Some("bob"));
        let author = bob.get("/v1/me").await.ok()["id"].as_str().unwrap().to_owned();
        // HTTP and WebSocket take the same claims for the same users.
        for claim in ["alice", "auth0|5f7c", "zoë✓|名前", "a%20b"] {
            let reader = world.stranger(Some(claim));
            reader.put(&format!("/v1/following/{author}")).await.ok();
            let mut connection = world.try_live(Some(claim)).await.unwrap();
            let post = bob.publish("to the reader").await;
            let expected = json!({ "type": "unread", "total": 1, "author": author, "unread": 1, "post": post });
            assert_eq!(connection.unread().await, expected, "{claim}");
            connection.ping().await;
            connection.close().await;
            world.idle().await;
        }
    });
}

/// Waits for messages in a queue whose function is paused, and loses them.
async fn lose_messages(world: &World, queue: &str) {
    until(&format!("messages in {queue}"), async || world.waiting(queue).await > 0).await;
    world.empty_queue(queue).await;
}

#[test]
fn each_connection_is_told_what_it_missed_by_its_own_ping() {
    world(async |world| {
        reader(world).await;
        let (mut phone, mut desk) = (world.live(READER).await, world.live(READER).await);
        world.flush_redis().await;
        let missed = world.publish_and_deliver(AUTHOR, "in the silence").await;
        assert!(phone.is_silent().await && desk.is_silent().await);
        for connection in [&mut phone, &mut desk] {
            connection.ping().await;
            assert_eq!(connection.unread().await, told(1, 1, &missed));
            world.idle().await;
        }
        assert!(phone.is_silent().await, "it knows the counts");
        let mut late = world.live(READER).await;
        world.idle().await;
        assert!(phone.is_silent().await && late.is_silent().await, "a new connection reads the counts itself");
        late.ping().await;
        world.idle().await;
        assert!(late.is_silent().await);
        let next = world.user(AUTHOR).publish("after the pings").await;
        for connection in [&mut phone, &mut desk] {
            assert_eq!(connection.unread().await, told(2, 2, &next));
        }
        world.idle().await;
        phone.ping().await;
        world.idle().await;
        assert!(phone.is_silent().await, "a ping alone tells nothing that is known");
    });
}

#[test]
fn a_reader_has_at_most_twenty_connections_and_a_displaced_one_is_told_after_its_ping() {
    watched(async |world, mut displaced| {
        let mut others = Vec::new();
        for _ in 0..20 {
            others.push(world.live(READER).await);
        }
        assert_eq!(connections(world).await.len(), 20);
        let post = world.user(AUTHOR).publish("to twenty").await;
        for other in &mut others {
            assert_eq!(other.unread().await, told(1, 1, &post));
        }
        world.idle().await;
        assert!(displaced.is_silent().await);
        displaced.ping().await;
        assert_eq!(displaced.unread().await, told(1, 1, &post));
        assert_eq!(connections(world).await.len(), 20, "a ping registers it again, in place of another");
    });
}

#[test]
fn a_message_that_nobody_posted_is_told_after_the_next_ping() {
    watched(async |world, mut connection| {
        world.stack.pause("live-sender").await.unwrap();
        let post = world.user(AUTHOR).publish("never posted").await;
        lose_messages(world, "LivePostsQueue").await;
        world.resume("live-sender").await;
        assert!(connection.is_silent().await);
        connection.ping().await;
        assert_eq!(connection.unread().await, told(1, 1, &post));
    });
}

#[test]
fn a_note_that_is_late_does_not_hide_a_later_message() {
    watched(async |world, _connection| {
        world.idle().await;
        let views = world.stack.app("live").unwrap().stores.views.clone();
        let claim = async || {
            let mut claimed = None;
            until("a second is over", async || {
                if let Ok(ClaimedUpdate::Claimed { at, connections, .. }) =
                    views.claim_updates(&[user_id(READER)]).await.remove(0)
                {
                    claimed = Some((at, connections.into_iter().next().unwrap()));
                }
                claimed.is_some()
            })
            .await;
            claimed.unwrap()
        };
        let (first, (connection, known)) = claim().await;
        assert!(known.is_some(), "the connection read the counts when it was made");
        let (second, (_, known)) = claim().await;
        assert_eq!(known, None, "a message is on its way");
        for (at, counts) in [(second, CountsDigest(2)), (first, CountsDigest(1))] {
            let known = Known { counts, inbox: 3 };
            let told = Told { connections: vec![connection.clone()], ..Told::nobody(user_id(READER), at, known) };
            views.note_told(&[told], None).await.unwrap();
        }
        assert_eq!(claim().await.1.1, Some(Known { counts: CountsDigest(2), inbox: 3 }));
    });
}

/// Publishes a post whose message, and the one after it, are lost with their workers. Returns its id. `live` is paused.
async fn lose_a_post(world: &World) -> String {
    world.stack.pause("live").await.unwrap();
    let post = world.user(AUTHOR).publish("never told").await;
    lose_messages(world, "LiveQueue").await;
    let views = world.stack.app("live").unwrap().stores.views.clone();
    let claim = async || views.claim_updates(&[user_id(READER)]).await.remove(0).unwrap();
    until("a message begins", async || matches!(claim().await, ClaimedUpdate::Claimed { .. })).await;
    assert_eq!(claim().await, ClaimedUpdate::TooEarly);
    post
}

#[test]
fn neither_a_ping_nor_a_repeated_task_relies_on_a_task_that_was_lost() {
    watched(async |world, mut connection| {
        let post = lose_a_post(world).await;
        world.stack.resume("live").unwrap();
        connection.ping().await;
        assert_eq!(connection.unread().await, told(1, 1, &post));
        world.idle().await;
        let post = lose_a_post(world).await;
        let live = world.stack.app("live").unwrap().live.clone();
        live.run(&LiveTask::Changed { users: vec![user_id(READER)] }, true).await.unwrap();
        world.stack.resume("live").unwrap();
        assert_eq!(connection.unread().await, told(2, 2, &post));
    });
}

#[test]
fn what_an_old_redis_says_of_a_connection_is_not_believed() {
    watched(async |world, mut connection| {
        if !world.is_one_node() {
            return;
        }
        world.user(AUTHOR).publish("before the dump").await;
        connection.total(1).await;
        world.idle().await;
        world.stack.dump_redis().await.unwrap();
        let second = world.user(AUTHOR).publish("after the dump").await;
        connection.total(2).await;
        world.idle().await;
        world.stack.restart_redis_from_dump().await.unwrap();
        world.redis_is_asked_again().await;
        world.user(AUTHOR).delete(&format!("/v1/posts/{second}")).await.ok();
        world.idle().await;
        connection.ping().await;
        connection.total(1).await;
    });
}

#[test]
fn a_damaged_registration_holds_no_other_reader_back() {
    const OTHER: u64 = 8;
    world(async |world| {
        reader(world).await;
        world.follow([OTHER], AUTHOR).await;
        world.user(OTHER).get("/v1/unread").await.ok();
        let (mut connection, _damaged) = (world.live(READER).await, world.live(OTHER).await);
        world.idle().await;
        let (mut redis, key) = (world.redis().await, keys::connections(user_id(OTHER)));
        let _: () = redis.set(&key, "not a hash").await.unwrap();
        let post = world.user(AUTHOR).publish("to both").await;
        assert_eq!(connection.unread().await, told(1, 1, &post));
        let _: u64 = redis.del(&key).await.unwrap();
        world.idle().await;
    });
}

#[test]
fn a_connection_that_was_found_gone_and_then_pinged_stays() {
    watched(async |world, mut connection| {
        connection.ping().await;
        let live = world.stack.app("live").unwrap().live.clone();
        let gone = |connection: &str, at| LiveTask::Gone {
            connections: vec![Connection { user: user_id(READER), connection: connection.to_owned(), at }],
        };
        let own = connections(world).await.remove(0);
        live.run(&gone(&own, Some(Timestamp::from_ms(1))), false).await.unwrap();
        let post = world.user(AUTHOR).publish("it is there").await;
        assert_eq!(connection.unread().await, told(1, 1, &post));
        live.run(&gone(&own, None), false).await.unwrap();
        assert_eq!(connections(world).await.len(), 0);
    });
}

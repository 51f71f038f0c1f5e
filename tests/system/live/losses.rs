//! Changes that a connection missed. It receives them after its next ping, whatever other connections have received.

use redis::AsyncCommands;
use tidemark::{
    domain::{CountsDigest, Timestamp},
    ports::{ClaimedUpdate, Connection, LiveTask, Told},
    views::keys,
};
use tidemark_tests::{World, until, user_id, world};

use super::{AUTHOR, READER, connections, reader, told, watched_reader};

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
    world(async |world| {
        let mut displaced = watched_reader(world).await;
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
    world(async |world| {
        let mut connection = watched_reader(world).await;
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
    world(async |world| {
        let _connection = watched_reader(world).await;
        world.idle().await;
        let views = world.stack.app("live").unwrap().stores.live_views.clone();
        let claim = async || {
            let mut claimed = None;
            until("a second is over", async || {
                if let Ok(ClaimedUpdate::Claimed { at, connections, .. }) = views.claim(&[user_id(READER)]).await.remove(0) {
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
            views.told(&[Told { user: user_id(READER), connections: vec![connection.clone()], at, counts }]).await.unwrap();
        }
        assert_eq!(claim().await.1.1, Some(CountsDigest(2)));
    });
}

/// Publishes a post whose message, and the one after it, are lost with their workers. Returns its id. `live` is paused.
async fn lose_a_post(world: &World) -> String {
    world.stack.pause("live").await.unwrap();
    let post = world.user(AUTHOR).publish("never told").await;
    lose_messages(world, "LiveQueue").await;
    let views = world.stack.app("live").unwrap().stores.live_views.clone();
    let claim = async || views.claim(&[user_id(READER)]).await.remove(0).unwrap();
    until("a message begins", async || matches!(claim().await, ClaimedUpdate::Claimed { .. })).await;
    assert_eq!(claim().await, ClaimedUpdate::TooEarly);
    post
}

#[test]
fn neither_a_ping_nor_a_repeated_task_relies_on_a_task_that_was_lost() {
    world(async |world| {
        let mut connection = watched_reader(world).await;
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
    world(async |world| {
        if !world.is_one_node() {
            return;
        }
        let mut connection = watched_reader(world).await;
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
    world(async |world| {
        let mut connection = watched_reader(world).await;
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

//! Unread notices of the platforms that a connection names.

use std::time::Duration;

use redis::AsyncCommands;
use serde_json::json;
use tidemark::views::keys;
use tidemark_tests::{request_limits, until, user_id, world, world_with};

use super::READER;
use crate::publish_notices;

/// The number of platforms that Redis knows of the reader's connections.
async fn named(world: &tidemark_tests::World) -> usize {
    world.redis().await.hlen(keys::told_notices(user_id(READER))).await.unwrap()
}

#[test]
fn a_ping_is_followed_by_a_message_for_each_platform_whose_count_has_changed() {
    world(async |world| {
        publish_notices(world, &[1], ["a", "b"]).await;
        let mut connection = world.live(READER).await;
        assert_eq!(connection.ping_platforms(&[1, 2]).await, [json!(null); 0]);
        assert_eq!(connection.notices().await, (1, 2), "and none for a platform without unread notices");
        world.idle().await;
        connection.ping_platforms(&[2, 1]).await;
        world.idle().await;
        assert!(connection.is_silent().await, "nothing has changed");

        publish_notices(world, &[1, 2, 3], ["c"]).await;
        world.idle().await;
        assert!(connection.is_silent().await, "a notice is told after the next ping");
        connection.ping_platforms(&[1, 2]).await;
        assert_eq!([connection.notices().await, connection.notices().await], [(1, 3), (2, 1)]);
        world.idle().await;
        connection.ping().await;
        world.administrator().delete("/v1/notices/1-1").await.ok();
        connection.ping_platforms(&[1, 2]).await;
        assert_eq!(connection.notices().await, (1, 2));
        world.idle().await;
        assert!(connection.is_silent().await);
    });
}

#[test]
fn a_mark_of_another_device_is_told_at_once() {
    world(async |world| {
        publish_notices(world, &[1, 2], ["a", "b", "c"]).await;
        let (mut phone, mut desk, mut plain) = (world.live(READER).await, world.live(READER).await, world.live(READER).await);
        plain.ping().await;
        phone.ping_platforms(&[1]).await;
        assert_eq!(phone.notices().await, (1, 3));
        desk.ping_platforms(&[1, 2]).await;
        assert_eq!([desk.notices().await, desk.notices().await], [(1, 3), (2, 3)]);
        world.idle().await;
        let reader = world.user(READER);
        reader.put("/v1/notices/1-2/read").await.ok();
        assert_eq!([phone.notices().await, desk.notices().await], [(1, 2); 2]);
        reader.delete("/v1/notices/1-2/read").await.ok();
        assert_eq!([phone.notices().await, desk.notices().await], [(1, 3); 2]);
        reader.post("/v1/notices/reads", &json!({ "platform": 2, "through": 2 })).await.ok();
        assert_eq!(desk.notices().await, (2, 1));
        world.user(8).put("/v1/notices/1-1/read").await.ok();
        world.idle().await;
        assert!(phone.is_silent().await && desk.is_silent().await && plain.is_silent().await);
    });
}

#[test]
fn many_marks_are_at_most_one_message_a_second_and_the_last_count_arrives() {
    world(async |world| {
        publish_notices(world, &[1], 1..=30).await;
        let mut connection = world.live(READER).await;
        connection.ping_platforms(&[1]).await;
        assert_eq!(connection.notices().await, (1, 30));
        let reader = world.user(READER);
        let mark = async {
            for seq in 1..=30 {
                reader.put(&format!("/v1/notices/1-{seq}/read")).await.ok();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let listen = async {
            let mut messages = 0;
            while connection.notices().await != (1, 0) {
                messages += 1;
            }
            messages
        };
        let ((), messages) = tokio::join!(mark, listen);
        assert!(messages < 15, "{messages}");
        world.idle().await;
        assert!(connection.is_silent().await);
    });
}

#[test]
fn a_connection_that_redis_has_lost_is_told_any_count_after_its_ping() {
    world(async |world| {
        publish_notices(world, &[1], ["a"]).await;
        let mut connection = world.live(READER).await;
        connection.ping_platforms(&[1]).await;
        assert_eq!(connection.notices().await, (1, 1));
        world.idle().await;
        world.flush_redis().await;
        world.user(READER).put("/v1/notices/1-1/read").await.ok();
        world.idle().await;
        assert!(connection.is_silent().await, "nobody knows the connection");
        connection.ping_platforms(&[1]).await;
        assert_eq!(connection.notices().await, (1, 0), "it may show another number");
        world.idle().await;
        connection.arrived().await;
        connection.ping_platforms(&[1]).await;
        world.idle().await;
        assert!(connection.is_silent().await);
    });
}

#[test]
fn a_message_that_is_lost_is_sent_again_after_the_next_ping() {
    world(async |world| {
        publish_notices(world, &[1], ["a"]).await;
        let mut connection = world.live(READER).await;
        world.stack.pause("live-sender").await.unwrap();
        connection.ping_platforms(&[1]).await;
        super::lose_messages(world, "LivePostsQueue").await;
        world.stack.resume("live-sender").unwrap();
        assert!(connection.is_silent().await);
        // The message counts as lost after ten seconds.
        until("the count is told", async || {
            connection.ping_platforms(&[1]).await;
            connection.arrived().await.iter().any(|message| message["type"] == "notices" && message["unread"] == 1)
        })
        .await;
    });
}

#[test]
fn a_connection_names_at_most_ten_platforms_and_a_wrong_ping_changes_nothing() {
    world(async |world| {
        let mut connection = world.live(READER).await;
        connection.ping_platforms(&(1..=10).collect::<Vec<u16>>()).await;
        assert_eq!(named(world).await, 10);
        for wrong in ["[1,2,3,4,5,6,7,8,9,10,11]", "[0]", "[65536]", "[1.5]", "1", r#"["x"]"#, "{}"] {
            connection.send(&format!(r#"{{"type":"ping","platforms":{wrong}}}"#)).await;
            let response = connection.next().await;
            assert_eq!([&response["type"], &response["error"]], ["error", "invalid-message"], "{wrong}: {response}");
        }
        connection.ping().await;
        assert_eq!(named(world).await, 10, "a ping without platforms keeps them");
        connection.ping_platforms(&[65_535, 2]).await;
        assert_eq!(named(world).await, 2, "others replace them");
        // A connection that is gone leaves nothing behind when another one pings.
        connection.close().await;
        let mut other = world.live(READER).await;
        until("the closed connection is removed", async || {
            other.ping_platforms(&[3]).await;
            named(world).await == 1
        })
        .await;
        other.ping_platforms(&[]).await;
        assert_eq!(named(world).await, 0);
    });
}

#[test]
fn a_ping_takes_a_token_for_each_platform() {
    world_with(request_limits([0, 0, 0, 0, 12]), async |world| {
        let mut connection = world.live(READER).await;
        connection.ping_platforms(&(1..=10).collect::<Vec<u16>>()).await;
        connection.ping().await;
        connection.send(r#"{"type":"ping","platforms":[1,2]}"#).await;
        assert_eq!(connection.next().await["error"], "too-many-requests");
    });
}

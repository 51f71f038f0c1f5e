//! Single changes on one side, and what the other side has of them.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use aws_sdk_dynamodb::types::AttributeValue;
use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark_local::{Fault, FaultAction, Options};
use tidemark_tests::{LegacyRedis, World, until};

use super::{compared, legacy::LegacySystem, pass, settle};

/// Connects the stack with a legacy Redis.
pub(super) fn with(redis: &LegacyRedis, write_back: bool) -> impl FnOnce(&mut Options) {
    let (url, write_back) = (redis.url(), write_back.to_string());
    move |options| options.parameters.extend([("LegacyRedisUrl".to_owned(), url), ("LegacyWriteBack".to_owned(), write_back)])
}

/// Every key of the legacy Redis with its content, sets in order.
async fn contents(redis: &LegacyRedis) -> BTreeMap<String, Vec<String>> {
    let mut connection = redis.connect().await;
    let mut all = BTreeMap::new();
    for key in connection.keys::<_, Vec<String>>("*").await.unwrap() {
        let kind: String = redis::cmd("TYPE").arg(&key).query_async(&mut connection).await.unwrap();
        let content: Vec<String> = match kind.as_str() {
            "set" => redis::cmd("SORT").arg(&key).arg("ALPHA").query_async(&mut connection).await.unwrap(),
            "zset" => connection.zrange_withscores(&key, 0, -1).await.unwrap(),
            "hash" => redis::cmd("HGETALL").arg(&key).query_async(&mut connection).await.unwrap(),
            _ => vec![connection.get(&key).await.unwrap()],
        };
        all.insert(key, content);
    }
    all
}

#[tokio::test]
async fn changes_here_wait_for_a_legacy_redis_that_is_unavailable() {
    let (redis, legacy) = LegacySystem::start().await;
    World::run_with(with(&redis, true), async |world| {
        // Connections that are open stay, and new ones are refused.
        legacy.run("CONFIG SET requirepass other").await;
        let (reader, author) = (world.reader(1, [9]).await, world.user(9));
        reader.put("/v1/following/8").await.ok();
        let posts = author.publish_all(["first", "second", "third"]).await;
        reader.put(&format!("/v1/posts/{}/read", posts[0])).await.ok();
        author.delete(&format!("/v1/posts/{}", posts[1])).await;
        reader.delete("/v1/following/8").await.ok();
        until("the streams wait", async || {
            let streams = world.stack.status().await.unwrap().streams;
            ["FollowingTable", "PostsTable", "ReadsTable"].iter().all(|table| streams[*table].behind > 0)
        })
        .await;
        // An empty password.
        legacy.run("CONFIG SET requirepass ").await;
        world.idle().await;
        assert_eq!(legacy.following(1).await, [9]);
        assert_eq!(legacy.titles("author:blogs:9").await, ["first".to_owned(), "third".to_owned()].into());
        assert_eq!(legacy.unread_titles(1).await, ["third".to_owned()].into());
        let contents_now = contents(&redis).await;
        assert_eq!(contents_now["user:unread:count:1"], ["9", "1"]);
        assert_eq!(contents_now["user:read:1"].len(), 1);

        // Everything again changes nothing there, and nothing comes back.
        let response = world.stack.invoke("migrate", json!({ "mirror": ["1", "9", "8"] })).await.unwrap();
        assert_eq!(response, json!({ "mirrored": 3 }));
        assert_eq!(contents(&redis).await, contents_now);
        assert_eq!(pass(world).await, 0);
        assert!(compared(world, &redis, 10).await.is_empty());

        // A mark is taken back, and a title changes.
        reader.delete(&format!("/v1/posts/{}/read", posts[0])).await.ok();
        author.put_body(&format!("/v1/posts/{}", posts[2]), &json!({ "title": "3rd" })).await.ok();
        world.idle().await;
        assert_eq!(legacy.unread_titles(1).await, ["first".to_owned(), "3rd".to_owned()].into());
        settle(world).await;
        assert_eq!(reader.unread_total().await, 2, "the mark does not come back");
        // The legacy system marks it again.
        while legacy.read_one(1).await.is_some() {}
        settle(world).await;
        assert_eq!(reader.unread_total().await, 0);
    })
    .await;
}

/// The posts and the read states have streams of their own, whose workers do not wait for each other.
#[tokio::test]
async fn a_deletion_that_is_mirrored_during_a_mark_leaves_no_unread_blog() {
    let redis = LegacyRedis::start().await;
    World::run_with(with(&redis, true), async |world| {
        let (reader, author) = (world.reader(1, [9]).await, world.user(9));
        let post = format!("/v1/posts/{}", world.publish_and_deliver(9, "short-lived").await);
        reader.put(&format!("{post}/read")).await.ok();
        world.idle().await;
        let (dynamodb, path) = (world.dynamodb().await, post.clone());
        let delete = FaultAction::run_then(move || {
            let (dynamodb, author, path) = (dynamodb.clone(), author.clone(), path.clone());
            async move {
                author.delete(&path).await.ok();
                // The followers are told when this is noted.
                let is_told = |place: &HashMap<_, _>| place.get("told") == Some(&AttributeValue::Bool(true));
                while !dynamodb.scan().table_name("MigrationTable").send().await.unwrap().items().iter().any(is_told) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        });
        let planted = world.stack.faults().add(Fault::new("BatchGetItem", delete).of("migrate").on("MigrationTable"));
        // Makes the post unread, which the mirror has read when the post is deleted.
        reader.delete(&format!("{post}/read")).await.ok();
        world.idle().await;
        assert_eq!(planted.fired(), 1);
        let left: (Vec<u64>, Option<u64>) = redis::pipe()
            .smembers("user:unread:1:9")
            .hget("user:unread:count:1", 9)
            .query_async(&mut redis.connect().await)
            .await
            .unwrap();
        assert_eq!(left, (vec![], Some(0)));
    })
    .await;
}

#[tokio::test]
async fn a_pass_imports_removals_and_keeps_what_was_done_here() {
    let (mut redis, legacy) = LegacySystem::start().await;
    for author in [8, 9] {
        legacy.follow(1, author).await;
        legacy.follow(2, author).await;
    }
    legacy.follow(3, 9).await;
    legacy.publish(9, "only").await;
    let world = World::start(with(&redis, false)).await;
    while pass(&world).await > 0 {}
    let following = async |user: u64| -> Vec<Value> { world.user(user).walk(&format!("/v1/users/{user}/following"), 10).await };
    assert_eq!((following(1).await.len(), world.user(1).unread_total().await), (2, 1));

    // Without write-back, an unfollow here stays, although the legacy list has the author.
    world.user(2).delete("/v1/following/8").await.ok();
    // One of several members is removed, and the only one.
    legacy.unfollow(1, 8).await;
    legacy.unfollow(3, 9).await;
    assert!(legacy.delete_one(9).await.is_some());
    while pass(&world).await > 0 {}
    world.idle().await;
    assert_eq!((following(1).await.len(), following(2).await.len(), following(3).await.len()), (1, 1, 0));
    assert_eq!((world.user(1).unread_total().await, world.user(1).get("/v1/posts/9-1").await.status), (0, 404));
    assert_eq!(pass(&world).await, 0, "a pass without changes writes nothing");

    // A server that has lost its data ends no follow.
    redis.restart().await;
    let refused = world.stack.invoke("migrate", json!({ "follow": true })).await.unwrap_err();
    assert!(refused.to_string().contains("was restarted"), "{refused}");
    assert_eq!((following(1).await.len(), following(2).await.len()), (1, 1));
    world.finish().await;
}

#[tokio::test]
async fn a_follow_and_an_unfollow_on_both_sides_end_with_the_later_one() {
    let (redis, legacy) = LegacySystem::start().await;
    World::run_with(with(&redis, true), async |world| {
        let reader = world.user(1);
        for author in [7, 8, 9] {
            legacy.follow(1, author).await;
        }
        settle(world).await;
        // Ended there, and nothing here. Ended here, and nothing there. Ended here, and begun there later.
        legacy.unfollow(1, 7).await;
        reader.delete("/v1/following/8").await.ok();
        reader.delete("/v1/following/9").await.ok();
        settle(world).await;
        assert_eq!(legacy.following(1).await, Vec::<u64>::new());
        // The legacy lists have whole seconds.
        tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
        legacy.follow(1, 9).await;
        settle(world).await;
        let followed = reader.walk("/v1/users/1/following", 10).await;
        assert_eq!((followed.len(), &followed[0]["user"]), (1, &json!("9")));
        assert_eq!(legacy.following(1).await, [9]);
        assert!(compared(world, &redis, 10).await.is_empty());

        // A pass learns of an unfollow after it happened. A follow that the legacy system made since is later.
        reader.follow([5]).await;
        legacy.follow(1, 6).await;
        settle(world).await;
        tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
        for author in [5, 6] {
            legacy.unfollow(1, author).await;
        }
        while pass(world).await > 0 {}
        for author in [5, 6] {
            legacy.follow(1, author).await;
        }
        settle(world).await;
        assert_eq!((legacy.following(1).await.len(), reader.walk("/v1/users/1/following", 10).await.len()), (3, 3));
        assert!(compared(world, &redis, 10).await.is_empty());
    })
    .await;
}

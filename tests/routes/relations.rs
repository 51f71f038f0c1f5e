//! `/v1/users/{user}/…` and `/v1/relations…`.

use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark_tests::{until, world};

fn users(items: &[Value]) -> Vec<u64> {
    items.iter().map(|item| item["user"].as_str().unwrap().parse().unwrap()).collect()
}

#[test]
fn lists_are_newest_first_and_show_the_callers_change_at_once() {
    world(async |world| {
        // The workers are paused: the handler alone must update the lists.
        world.stack.pause("relation-projector").await.unwrap();
        let reader = world.user(1);
        let following = async || users(&reader.walk("/v1/users/1/following", 2).await);
        assert!(following().await.is_empty());
        for author in [30, 10, 20] {
            reader.put(&format!("/v1/following/{author}")).await.ok();
            assert_eq!(following().await[0], author);
        }
        assert_eq!(following().await, [20, 10, 30]);
        assert_eq!(users(&reader.walk("/v1/users/10/followers", 2).await), [1]);
        reader.delete("/v1/following/10").await.ok();
        assert_eq!(following().await, [20, 30]);
        assert!(reader.walk("/v1/users/10/followers", 2).await.is_empty());
        world.user(2).put("/v1/following/10").await.ok();
        reader.put("/v1/following/10").await.ok();
        assert_eq!(users(&reader.walk("/v1/users/10/followers", 1).await), [1, 2]);
        world.stack.resume("relation-projector").unwrap();
    });
}

#[test]
fn followers_continue_past_the_cached_thousand_without_gap_or_repetition() {
    world(async |world| {
        world.follow_at_once(1_000..3_500, 9).await;
        world.idle().await;
        let anybody = world.user(1);
        for _ in 0..2 {
            let items = anybody.walk("/v1/users/9/followers", 100).await;
            let since: Vec<&str> = items.iter().map(|item| item["since"].as_str().unwrap()).collect();
            assert!(since.is_sorted_by(|newer, older| newer >= older));
            let mut all = users(&items);
            all.sort_unstable();
            assert_eq!(all, (1_000..3_500).collect::<Vec<_>>());
        }
        let walked = users(&anybody.walk("/v1/users/9/followers", 100).await);
        for offset in [0, 7, 950, 999, 1_000, 2_450] {
            let page = anybody.get(&format!("/v1/users/9/followers?offset={offset}&limit=100")).await.items();
            let expected = &walked[offset..(offset + 100).min(walked.len())];
            assert_eq!(users(&page), expected, "offset {offset}");
        }
        let beyond = anybody.get("/v1/users/9/followers?offset=10000").await.ok();
        assert_eq!((&beyond["items"], &beyond["next_cursor"]), (&json!([]), &json!(null)));

        let mut redis = world.redis().await;
        let keys: Vec<String> = redis.keys("*:fans:9").await.unwrap();
        let cached: usize = redis.zcard(&keys[0]).await.unwrap();
        assert!(cached <= 1_001, "{cached} entries cached");
        world.follow_at_once(5_000..5_050, 9).await;
        assert_eq!(users(&anybody.walk("/v1/users/9/followers", 100).await).len(), 2_550);
        let cached: usize = redis.zcard(&keys[0]).await.unwrap();
        assert!(cached <= 1_001, "{cached} entries cached after more follows");
    });
}

#[test]
fn pages_show_each_lasting_follower_exactly_once_while_others_come_and_go() {
    world(async |world| {
        world.follow_at_once(10_000..11_600, 9).await;
        world.idle().await;
        let change = async {
            world.follow_at_once(20_000..20_100, 9).await;
            for leaver in (10_000..11_600).step_by(16) {
                world.user(leaver).delete("/v1/following/9").await.ok();
            }
        };
        let reader = world.user(1);
        let walk = async {
            let mut walks = Vec::new();
            for _ in 0..4 {
                walks.push(users(&reader.walk("/v1/users/9/followers", 37).await));
            }
            walks
        };
        let ((), walks) = futures::join!(change, walk);
        let stayed: Vec<u64> = (10_000..11_600).filter(|user| (user - 10_000) % 16 != 0).collect();
        for walked in walks {
            let mut distinct = walked.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), walked.len(), "nobody twice");
            assert!(stayed.iter().all(|user| distinct.binary_search(user).is_ok()), "every lasting follower is listed");
        }
    });
}

#[test]
fn status_shows_relations_of_the_caller() {
    world(async |world| {
        let caller = world.user(1);
        caller.put("/v1/following/2").await.ok();
        caller.put("/v1/following/3").await.ok();
        for follower in [3, 4] {
            world.user(follower).put("/v1/following/1").await.ok();
        }
        let item = |user: &str, following: bool, followed_by: bool| json!({ "user": user, "following": following, "followed_by": followed_by, "mutual": following && followed_by });
        let expected = [item("2", true, false), item("3", true, true), item("4", false, true), item("5", false, false)];
        for expected in &expected {
            assert_eq!(&caller.get(&format!("/v1/relations/{}", expected["user"].as_str().unwrap())).await.ok(), expected);
        }
        let many = caller.get("/v1/relations?user=5&user=3&user=5&user=2").await.ok();
        let items = json!([expected[3], expected[1], expected[3], expected[0]]);
        assert_eq!(many, json!({ "items": items }));
        let only = caller.get("/v1/relations?user=4&user=2&only=following").await.ok();
        assert_eq!(only, json!({ "items": [{ "user": "4", "following": false }, { "user": "2", "following": true }] }));

        let hundred: String = (1..=100).map(|user| format!("&user={user}")).collect();
        assert_eq!(caller.get(&format!("/v1/relations?{}", &hundred[1..])).await.ok()["items"].as_array().unwrap().len(), 100);
        for bad in ["", "user=x", "user=0", "user=2&only=followers", &format!("user=7{hundred}")] {
            let field = if bad.contains("only") { "only" } else { "user" };
            assert_eq!(caller.get(&format!("/v1/relations?{bad}")).await.field(), field, "{bad:.30}");
        }
    });
}

#[test]
fn counters_are_exact_and_a_damaged_record_is_restored() {
    world(async |world| {
        world.follow_at_once(100..123, 9).await;
        let author = world.user(9);
        author.put("/v1/following/50").await.ok();
        author.publish_all(0..4).await;
        author.delete("/v1/posts/9-2").await.ok();
        let counters = async || author.get("/v1/users/9/counters").await.ok();
        let expected = json!({ "followings": 1, "followers": 23, "posts": 3, "likes_received": 0, "favorites_received": 0 });
        assert_eq!(counters().await, expected);
        world.idle().await;
        assert_eq!(counters().await, expected);

        let mut redis = world.redis().await;
        let key = redis.keys::<_, Vec<String>>("*:counters:9").await.unwrap().remove(0);
        let record: Vec<u8> = redis.get(&key).await.unwrap();
        for damage in [record[..7].to_vec(), vec![0xaa; 24], vec![0; 20], b"garbage".to_vec()] {
            redis.set::<_, _, ()>(&key, damage).await.unwrap();
            assert_eq!(counters().await, expected);
            assert_eq!(redis.get::<_, Vec<u8>>(&key).await.unwrap(), record, "restored");
        }
        redis.del::<_, ()>(&key).await.unwrap();
        assert_eq!(counters().await, expected);
        assert_eq!(redis.get::<_, Vec<u8>>(&key).await.unwrap(), record, "restored");

        world.user(100).delete("/v1/following/9").await.ok();
        assert_eq!(counters().await["followers"], 22);
        assert_eq!(world.user(1).get("/v1/users/777/counters").await.ok()["followers"], 0);
    });
}

#[test]
fn an_empty_list_is_cached_until_the_first_follow() {
    world(async |world| {
        let reader = world.user(1);
        assert!(reader.walk("/v1/users/9/followers", 5).await.is_empty());
        let mut redis = world.redis().await;
        let key = redis.keys::<_, Vec<String>>("*:fans:9").await.unwrap().remove(0);
        let seconds: i64 = redis.ttl(&key).await.unwrap();
        assert!((200..=300).contains(&seconds), "{seconds} s");
        reader.put("/v1/following/9").await.ok();
        assert_eq!(users(&reader.walk("/v1/users/9/followers", 5).await), [1]);
        let seconds: i64 = redis.ttl(&key).await.unwrap();
        assert!(seconds > 7_000, "{seconds} s");
    });
}

#[test]
fn cursors_and_offsets_are_checked() {
    world(async |world| {
        let reader = world.user(1);
        for offset in ["-1", "10001", "x", ""] {
            assert_eq!(reader.get(&format!("/v1/users/2/followers?offset={offset}")).await.field(), "offset");
        }
        world.follow_at_once(10..13, 2).await;
        let page = reader.get("/v1/users/2/followers?limit=1").await.ok();
        let cursor = page["next_cursor"].as_str().unwrap();
        assert_eq!(reader.get(&format!("/v1/feed?cursor={cursor}")).await.field(), "cursor");
        assert_eq!(reader.get(&format!("/v1/users/2/followers?cursor={cursor}&offset=1")).await.field(), "offset");
        assert_eq!(reader.get("/v1/users/0/following").await.field(), "user");
    });
}

#[test]
fn lists_work_without_redis() {
    world(async |world| {
        world.follow_at_once(10..14, 2).await;
        world.idle().await;
        let reader = world.user(1);
        let before = users(&reader.walk("/v1/users/2/followers", 2).await);
        world.stack.stop_redis(tidemark_local::RedisData::Lose).await.unwrap();
        let response = reader.get("/v1/users/2/followers").await;
        assert_eq!(response.header("degraded"), Some("redis"));
        assert_eq!(users(&response.items()), before);
        assert_eq!(reader.get("/v1/users/2/counters").await.ok()["followers"], 4);
        assert_eq!(reader.get("/v1/relations/2").await.ok()["following"], false);
        world.stack.start_redis().await.unwrap();
    });
}

#[test]
fn a_hot_list_is_cached_in_the_process_and_never_stale_for_the_user_who_changed_it() {
    world(async |world| {
        world.follow_at_once(10..14, 2).await;
        world.idle().await;
        let reader = world.user(1);
        let path = "/v1/users/2/followers?limit=9";
        for _ in 0..30 {
            reader.get(path).await.ok();
        }
        let lists = async || world.redis_calls().await["zrange"];
        // On a slow machine the page may leave the memory between two requests.
        until("Redis is not called for the list", async || {
            let before = lists().await;
            for _ in 0..10 {
                assert_eq!(users(&reader.get(path).await.items()).len(), 4);
            }
            lists().await == before
        })
        .await;
        for (change, expected) in [(true, 5), (false, 4), (true, 5)] {
            let path_of_change = "/v1/following/2";
            if change {
                reader.put(path_of_change).await.ok()
            } else {
                reader.delete(path_of_change).await.ok()
            };
            assert_eq!(users(&reader.get(path).await.items()).len(), expected);
        }
    });
}

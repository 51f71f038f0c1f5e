//! `/v1/following…`, `/v1/users/{user}/…` and `/v1/relations…`.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark_tests::{User, World, has, texts, user_id, world};

fn users(items: &[Value]) -> Vec<u64> {
    texts(items, "user").iter().map(|user| user.parse().unwrap()).collect()
}

async fn walked(reader: &User, path: &str, limit: usize) -> Vec<u64> {
    users(&reader.walk(path, limit).await)
}

#[test]
fn lists_are_newest_first_and_show_the_callers_change_at_once() {
    world(async |world| {
        // The workers are paused: the handler alone must update the lists.
        world.stack.pause("projector").await.unwrap();
        let reader = world.user(1);
        let following = async || walked(&reader, "/v1/users/1/following", 2).await;
        assert!(following().await.is_empty());
        for author in [30, 10, 20] {
            reader.put(&format!("/v1/following/{author}")).await.ok();
            assert_eq!(following().await[0], author);
        }
        assert_eq!(following().await, [20, 10, 30]);
        assert_eq!(walked(&reader, "/v1/users/10/followers", 2).await, [1]);
        reader.delete("/v1/following/10").await.ok();
        assert_eq!(following().await, [20, 30]);
        assert!(reader.walk("/v1/users/10/followers", 2).await.is_empty());
        world.user(2).put("/v1/following/10").await.ok();
        reader.put("/v1/following/10").await.ok();
        assert_eq!(walked(&reader, "/v1/users/10/followers", 1).await, [1, 2]);
        world.stack.resume("projector").unwrap();
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
            assert!(texts(&items, "since").is_sorted_by(|newer, older| newer >= older));
            let mut all = users(&items);
            all.sort_unstable();
            assert_eq!(all, (1_000..3_500).collect::<Vec<_>>());
        }
        let all = walked(&anybody, "/v1/users/9/followers", 100).await;
        for offset in [0, 7, 950, 999, 1_000, 2_450] {
            let page = anybody.get(&format!("/v1/users/9/followers?offset={offset}&limit=100")).await.items();
            assert_eq!(users(&page), all[offset..(offset + 100).min(all.len())], "offset {offset}");
        }
        anybody.get("/v1/users/9/followers?offset=10000").await.has(json!({ "items": [], "next_cursor": null }));

        let are_few = async || {
            let mut redis = world.redis().await;
            let keys: Vec<String> = redis.keys("*:followers:9").await.unwrap();
            let cached: usize = redis.zcard(&keys[0]).await.unwrap();
            assert!(cached <= 1_001, "{cached} entries cached");
        };
        are_few().await;
        world.follow_at_once(5_000..5_050, 9).await;
        assert_eq!(walked(&anybody, "/v1/users/9/followers", 100).await.len(), 2_550);
        are_few().await;
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
                walks.push(walked(&reader, "/v1/users/9/followers", 37).await);
            }
            walks
        };
        let ((), walks) = futures::join!(change, walk);
        let stayed = (10_000..11_600).filter(|user| (user - 10_000) % 16 != 0).collect();
        for walked in walks {
            let distinct: BTreeSet<u64> = walked.iter().copied().collect();
            assert_eq!(distinct.len(), walked.len(), "nobody twice");
            assert!(distinct.is_superset(&stayed), "every lasting follower is listed");
        }
    });
}

#[test]
fn status_shows_relations_of_the_caller() {
    world(async |world| {
        let caller = world.reader(1, [2, 3]).await;
        world.follow([3, 4], 1).await;
        let item = |user: &str, following: bool, followed_by: bool| {
            let mutual = following && followed_by;
            json!({ "user": user, "following": following, "followed_by": followed_by, "mutual": mutual })
        };
        let expected = [item("2", true, false), item("3", true, true), item("4", false, true), item("5", false, false)];
        for (user, expected) in (2..=5).zip(&expected) {
            assert_eq!(caller.get(&format!("/v1/relations/{user}")).await.ok(), *expected);
        }
        let many = caller.get("/v1/relations?user=5&user=3&user=5&user=2").await.ok();
        assert_eq!(many, json!({ "items": [expected[3], expected[1], expected[3], expected[0]] }));
        let only = caller.get("/v1/relations?user=4&user=2&only=following").await.ok();
        assert_eq!(only, json!({ "items": [{ "user": "4", "following": false }, { "user": "2", "following": true }] }));

        let hundred: String = (1..=100).map(|user| format!("&user={user}")).collect();
        assert_eq!(caller.get(&format!("/v1/relations?{}", &hundred[1..])).await.items().len(), 100);
    });
}

#[test]
fn a_removed_follower_follows_no_more_and_may_follow_again() {
    world(async |world| {
        let (author, follower) = (world.user(10), world.live_reader(1, [10, 20]).await);
        let list = follower.post("/v1/lists", &json!({ "name": "Friends" })).await.ok()["id"].as_str().unwrap().to_owned();
        follower.put(&format!("/v1/lists/{list}/authors/10")).await.ok();
        world.deliver_posts([10, 20], 2).await;
        assert_eq!(follower.unread_total().await, 4);
        // The workers are paused: the handler alone must update the views.
        world.pause_workers().await;
        assert_eq!(walked(&author, "/v1/users/10/followers", 2).await, [1]);
        for _ in 0..2 {
            assert_eq!(author.delete("/v1/followers/1").await.ok(), json!({ "follower": false }));
            assert_eq!(walked(&author, "/v1/users/10/followers", 2).await, [0_u64; 0]);
            assert_eq!(walked(&author, "/v1/users/1/following", 2).await, [20]);
            author.get("/v1/me").await.has(json!({ "counters": { "followers": 0 } }));
            follower.get("/v1/me").await.has(json!({ "counters": { "followings": 1 } }));
            author.get("/v1/users/1").await.has(json!({ "relation": { "followed_by": false } }));
            assert_eq!(follower.unread_total().await, 2);
            assert_eq!(follower.feed_ids().await, ["20-2", "20-1"]);
            assert_eq!(walked(&follower, &format!("/v1/lists/{list}/authors"), 2).await, [0_u64; 0]);
        }
        world.resume_workers();
        // Nothing keeps the user from following again.
        follower.put("/v1/following/10").await.has(json!({ "created": true }));
        assert_eq!(world.follower_count(10).await, 1);
        for nobody in ["2", "10"] {
            assert_eq!(author.delete(&format!("/v1/followers/{nobody}")).await.ok(), json!({ "follower": false }));
        }
        assert_eq!(author.delete("/v1/followers/0").await.field(), "user");
        assert_eq!(world.stranger(None).delete("/v1/followers/1").await.refusal(), (401, "Unauthorized"));
        assert_eq!(walked(&author, "/v1/users/10/followers", 2).await, [1]);
    });
}

/// Users 1 to `users`, each of whom follows about 40 % of the others, in no order.
async fn random_graph(world: &World, users: u64) -> BTreeMap<(u64, u64), String> {
    let mut edges = BTreeMap::new();
    for step in 0..users * users {
        let pair = step * 97 % (users * users);
        let [follower, author] = [pair / users + 1, pair % users + 1];
        if follower != author && pair * 2_654_435_761 % 101 < 40 {
            let followed = world.user(follower).put(&format!("/v1/following/{author}")).await.ok();
            edges.insert((follower, author), followed["since"].as_str().unwrap().to_owned());
        }
    }
    edges
}

/// Compares what two users have in common, and the known followers of one of them, with the edges.
async fn compare_pair(world: &World, edges: &BTreeMap<(u64, u64), String>, [caller, user]: [u64; 2], degraded: bool) {
    let newest_first = |entries: BTreeSet<(&String, u64)>| -> Vec<Value> {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.reverse();
        entries.iter().map(|(since, user)| json!({ "user": user.to_string(), "since": since })).collect()
    };
    let follows = |user: u64, author: u64| edges.contains_key(&(user, author));
    let common = edges.iter().filter(|((follower, author), _)| *follower == user && follows(caller, *author));
    let common = newest_first(common.map(|((_, author), since)| (since, *author)).collect());
    let known = edges.iter().filter(|((follower, author), _)| *author == user && follows(caller, *follower));
    let known = newest_first(known.map(|((follower, _), since)| (since, *follower)).collect());
    let reader = world.user(caller);
    for (path, expected) in [("following?common=true", &common), ("followers?known=true", &known)] {
        let mut items = reader.walk(&format!("/v1/users/{user}/{path}"), 3).await;
        items.iter_mut().for_each(|item| drop(item.as_object_mut().unwrap().remove("preference")));
        assert_eq!(items, *expected, "{path} of {user} for {caller}");
        let page = reader.get(&format!("/v1/users/{user}/{path}&offset=1&limit=2")).await;
        assert_eq!(page.header("degraded").is_some(), degraded, "{path}");
        let offset = expected.iter().skip(1).take(2).map(|entry| entry["user"].as_str().unwrap().parse::<u64>().unwrap());
        assert_eq!(users(&page.items()), offset.collect::<Vec<_>>(), "{path} of {user} for {caller}");
    }
    let shown = reader.get(&format!("/v1/users/{user}")).await.ok()["known_followers"].take();
    let newest: Vec<&Value> = known.iter().take(3).map(|entry| &entry["user"]).collect();
    assert_eq!(shown, json!({ "count": known.len(), "users": newest }), "{user} for {caller}");
}

#[test]
fn common_authors_and_known_followers_are_those_that_the_edges_imply() {
    world(async |world| {
        const USERS: u64 = 14;
        let edges = random_graph(world, USERS).await;
        world.idle().await;
        for caller in 1..=USERS {
            for user in 1..=USERS {
                compare_pair(world, &edges, [caller, user], false).await;
            }
        }
        world.flush_redis().await;
        compare_pair(world, &edges, [3, 5], false).await;
        world.stack.stop_redis(tidemark_local::RedisData::Lose).await.unwrap();
        compare_pair(world, &edges, [3, 5], true).await;
        world.stack.start_redis().await.unwrap();
    });
}

#[test]
fn known_followers_past_the_cached_thousand_are_found() {
    world(async |world| {
        world.follow_at_once([100, 101], 9).await;
        world.follow_at_once(1_000..2_100, 9).await;
        world.follow_at_once([102], 9).await;
        let caller = world.reader(1, [100, 102, 103, 1_500]).await;
        world.idle().await;
        for _ in 0..2 {
            let known = walked(&caller, "/v1/users/9/followers?known=true", 1).await;
            assert_eq!((known[0], BTreeSet::from_iter(known)), (102, BTreeSet::from([100, 102, 1_500])));
        }
        caller.get("/v1/users/9").await.has(json!({ "known_followers": { "count": 3 } }));
        world.user(100).delete("/v1/following/9").await.ok();
        caller.get("/v1/users/9").await.has(json!({ "known_followers": { "count": 2 } }));
        caller.delete("/v1/following/102").await.ok();
        assert_eq!(walked(&caller, "/v1/users/9/followers?known=true", 5).await, [1_500]);
    });
}

#[test]
fn entries_have_the_relation_that_the_user_has() {
    world(async |world| {
        let caller = world.reader(1, [2, 3, 4]).await;
        world.follow([3, 6], 1).await;
        world.follow(1..=6, 9).await;
        world.user(9).follow([1, 2, 3, 5]).await;
        let list = caller.post("/v1/lists", &json!({ "name": "Friends" })).await.ok()["id"].clone();
        let deleted = caller.post("/v1/lists", &json!({ "name": "Others" })).await.ok()["id"].clone();
        for list in [&list, &deleted] {
            caller.put(&format!("/v1/lists/{}/authors/3", list.as_str().unwrap())).await.ok();
        }
        caller.delete(&format!("/v1/lists/{}", deleted.as_str().unwrap())).await.ok();
        caller.put("/v1/mutes/4").await.ok();
        caller.put("/v1/blocks/5").await.ok();
        world.idle().await;
        for path in
            ["/v1/users/9/followers", "/v1/users/9/following", "/v1/users/9/followers?known=true", "/v1/users/1/following"]
        {
            let join = if path.contains('?') { '&' } else { '?' };
            let items = caller.walk(&format!("{path}{join}relation=true"), 2).await;
            assert!(items.len() >= 3, "{path}: {items:?}");
            for item in items {
                let user = caller.get(&format!("/v1/users/{}", item["user"].as_str().unwrap())).await.ok();
                assert_eq!(item["relation"], user["relation"], "{path}: {}", item["user"]);
            }
            let without = caller.get(&format!("{path}{join}relation=false")).await.items();
            assert!(without.iter().all(|item| item.get("relation").is_none()));
        }
        let relation = caller.get("/v1/users/3").await.ok()["relation"].take();
        assert!(has(&relation, &json!({ "mutual": true, "lists": [list] })), "{relation}");
        for (path, field) in [
            ("following?common=1", "common"),
            ("followers?known=yes", "known"),
            ("following?relation=", "relation"),
            ("following?known=true", "known"),
            ("followers?common=true", "common"),
            ("followers?known=true&offset=x", "offset"),
            ("followers?known=true&cursor=x", "cursor"),
        ] {
            assert_eq!(caller.get(&format!("/v1/users/9/{path}")).await.field(), field, "{path}");
        }
    });
}

#[test]
fn counters_are_exact_and_a_damaged_record_is_restored() {
    world(async |world| {
        world.follow_at_once(100..123, 9).await;
        let author = world.reader(9, [50]).await;
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
        let damaged = [record[..7].to_vec(), vec![0xaa; 24], vec![0; 20], b"garbage".to_vec()];
        for damage in damaged.map(Some).into_iter().chain([None]) {
            match damage {
                Some(damage) => redis.set::<_, _, ()>(&key, damage).await.unwrap(),
                None => redis.del(&key).await.unwrap(),
            }
            assert_eq!(counters().await, expected);
            assert_eq!(redis.get::<_, Vec<u8>>(&key).await.unwrap(), record, "restored");
        }

        world.user(100).delete("/v1/following/9").await.ok();
        assert_eq!(counters().await["followers"], 22);
        world.user(1).get("/v1/users/777/counters").await.has(json!({ "followers": 0 }));
    });
}

#[test]
fn an_empty_list_is_cached_until_the_first_follow_and_lists_work_without_redis() {
    world(async |world| {
        let reader = world.user(1);
        assert!(reader.walk("/v1/users/9/followers", 5).await.is_empty());
        let mut redis = world.redis().await;
        let key = redis.keys::<_, Vec<String>>("*:followers:9").await.unwrap().remove(0);
        let seconds: i64 = redis.ttl(&key).await.unwrap();
        assert!((200..=300).contains(&seconds), "{seconds} s");
        reader.follow([9]).await;
        assert_eq!(walked(&reader, "/v1/users/9/followers", 5).await, [1]);
        let seconds: i64 = redis.ttl(&key).await.unwrap();
        assert!(seconds > 7_000, "{seconds} s");

        world.follow_at_once(10..14, 9).await;
        world.idle().await;
        let before = walked(&reader, "/v1/users/9/followers", 2).await;
        world.stack.stop_redis(tidemark_local::RedisData::Lose).await.unwrap();
        let response = reader.get("/v1/users/9/followers").await;
        assert_eq!((response.header("degraded"), users(&response.clone().items())), (Some("redis"), before));
        reader.get("/v1/users/9/counters").await.has(json!({ "followers": 5 }));
        reader.get("/v1/relations/9").await.has(json!({ "following": true }));
        world.stack.start_redis().await.unwrap();
    });
}

#[test]
fn a_hot_list_is_stale_for_nobody() {
    world(async |world| {
        world.follow_at_once(10..14, 2).await;
        world.idle().await;
        let (reader, stranger) = (world.user(1), world.user(3));
        let path = "/v1/users/2/followers?limit=9";
        for _ in 0..30 {
            assert_eq!(stranger.get(path).await.items().len(), 4);
        }
        for (method, expected) in [("PUT", 5), ("DELETE", 4), ("PUT", 5)] {
            reader.request(&format!("{method} /v1/following/2")).await.ok();
            for user in [&reader, &stranger] {
                assert_eq!(user.get(path).await.items().len(), expected);
            }
        }
    });
}

#[test]
fn repeated_and_concurrent_follows_and_unfollows_count_once() {
    world(async |world| {
        world.follow(3..=4, 2).await;
        let reader = world.user(1);
        let first = reader.put("/v1/following/2").await.has(json!({ "following": true }));
        reader.put("/v1/following/2").await.has(json!({ "since": first["since"] }));
        assert_eq!(world.follower_count(2).await, 3);
        for at_once in [8, 1] {
            let unfollow = async |_| assert_eq!(reader.delete("/v1/following/2").await.ok(), json!({ "following": false }));
            join_all((0..at_once).map(unfollow)).await;
            assert_eq!(world.follower_count(2).await, 2);
        }
    });
}

#[test]
fn each_follow_of_a_batch_succeeds_or_fails_on_its_own() {
    world(async |world| {
        let reader = world.user(1);
        let followed = |author: &str| json!({ "author": author, "following": true });
        let refused = json!({ "author": "1", "following": false, "error": { "type": "/problems/self-follow" } });
        let batch = reader.post("/v1/following", &json!({ "authors": ["2", "1", "3", "2"] })).await;
        batch.has(json!({ "results": [followed("2"), refused, followed("3"), followed("2")] }));
        assert_eq!(reader.put("/v1/following/1").await.problem(), (422, "/problems/self-follow"));
    });
}

#[test]
fn six_hundred_concurrent_follows_make_five_hundred_edges() {
    world(async |world| {
        let reader = world.user(1);
        let responses = join_all((2..=601).map(async |author| {
            // All change the same count. A client repeats a request that found it busy for eight seconds.
            loop {
                let response = reader.put(&format!("/v1/following/{author}")).await;
                if response.status != 503 {
                    return response;
                }
            }
        }))
        .await;
        let (made, refused): (Vec<_>, Vec<_>) = (2..).zip(&responses).partition(|(_, response)| response.status == 200);
        assert_eq!((made.len(), refused.len()), (500, 100));
        assert!(refused.iter().all(|(_, response)| response.problem() == (422, "/problems/following-limit")));
        let facts = &world.stack.app("follow").unwrap().stores.facts;
        assert_eq!(facts.following(user_id(1)).await.unwrap().len(), 500);

        // Exactly one place is free again.
        reader.delete(&format!("/v1/following/{}", made[0].0)).await.ok();
        let more = reader.post("/v1/following", &json!({ "authors": ["1001", "1002", "1003"] })).await.ok();
        let following: Vec<bool> = more["results"].as_array().unwrap().iter().map(|result| result["following"] == true).collect();
        assert_eq!(following, [true, false, false]);
    });
}

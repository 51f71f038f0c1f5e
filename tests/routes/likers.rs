//! `GET /v1/posts/{post}/likes` and `…/favorites`.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tidemark_tests::{User, World, number_from, texts, until, world};

const LIKES: &str = "/v1/posts/10-1/likes";

fn users(items: &[Value]) -> Vec<u64> {
    texts(items, "user").iter().map(|user| user.parse().unwrap()).collect()
}

async fn walked(caller: &User, path: &str, limit: usize) -> Vec<u64> {
    users(&caller.walk(path, limit).await)
}

/// These users send a request, some at once.
async fn each(world: &World, users: impl IntoIterator<Item = u64>, request: &str) {
    let send = async |user| drop(world.user(user).request(request).await.ok());
    stream::iter(users).map(send).buffer_unordered(8).collect::<Vec<()>>().await;
}

async fn counts(caller: &User) -> [Value; 2] {
    let post = caller.get("/v1/posts/10-1").await.ok();
    ["likes", "favorites"].map(|kind| post[kind].clone())
}

#[test]
fn likers_are_as_many_as_the_count_and_a_repetition_keeps_the_time() {
    world(async |world| {
        let (author, reader) = (world.user(10), world.user(5));
        author.publish_all(["one", "two"]).await;
        assert_eq!(walked(&reader, LIKES, 7).await, [0_u64; 0]);
        for user in 101..=140 {
            world.user(user).put("/v1/posts/10-1/like").await.ok();
        }
        each(world, 120..130, "PUT /v1/posts/10-1/favorite").await;
        each(world, 101..105, "PUT /v1/posts/10-2/like").await;
        for limit in [1, 7, 39, 40, 41, 100] {
            let items = reader.walk(LIKES, limit).await;
            assert_eq!(users(&items), (101..=140).rev().collect::<Vec<_>>(), "limit {limit}");
            assert!(texts(&items, "since").is_sorted_by(|newer, older| newer >= older));
        }
        let favorites = walked(&reader, "/v1/posts/10-1/favorites", 3).await;
        assert_eq!(BTreeSet::from_iter(favorites), (120..130).collect());
        assert_eq!(counts(&reader).await, [json!(40), json!(10)]);

        let first = reader.walk(LIKES, 100).await;
        each(world, [101, 120], "PUT /v1/posts/10-1/like").await;
        assert_eq!(reader.walk(LIKES, 100).await, first, "the first time stays");
        let taken_back = world.user(101);
        for _ in 0..2 {
            taken_back.delete("/v1/posts/10-1/like").await.ok();
            assert_eq!(walked(&reader, LIKES, 100).await, (102..=140).rev().collect::<Vec<_>>());
        }
        taken_back.put("/v1/posts/10-1/like").await.ok();
        assert_eq!(walked(&reader, LIKES, 100).await[..2], [101, 140]);
    });
}

#[test]
fn users_in_a_block_with_the_caller_are_left_out_in_both_directions() {
    world(async |world| {
        world.user(10).publish("one").await;
        each(world, 101..=106, "PUT /v1/posts/10-1/like").await;
        let caller = world.user(101);
        caller.put("/v1/blocks/102").await.ok();
        world.user(103).put("/v1/blocks/101").await.ok();
        let expected = BTreeSet::from([101, 104, 105, 106]);
        for limit in [1, 2, 100] {
            assert_eq!(BTreeSet::from_iter(walked(&caller, LIKES, limit).await), expected, "limit {limit}");
        }
        assert_eq!(walked(&world.user(5), LIKES, 2).await.len(), 6, "others see all");
        caller.delete("/v1/blocks/102").await.ok();
        assert_eq!(walked(&caller, LIKES, 100).await.len(), 5);
        // A page of users in a block is empty, and not the end.
        let pages = world.user(103).pages(LIKES, 1).await;
        assert!(pages.len() == 6 && pages.iter().any(|page| page["items"] == json!([])), "{pages:?}");
    });
}

#[test]
fn a_page_of_likers_has_profiles_and_needs_no_redis() {
    world(async |world| {
        let (author, liker) = (world.user(10), world.user(2));
        author.publish("one").await;
        liker.put_body("/v1/me/profile", &json!({ "name": "Grace" })).await.ok();
        liker.put("/v1/posts/10-1/like").await.ok();
        let card = json!({ "2": { "name": "Grace", "handle": null, "picture": null } });
        let page = author.get(LIKES).await.ok();
        assert_eq!((&page["profiles"], &page["next_cursor"]), (&card, &Value::Null));
        assert_eq!(author.get(&format!("{LIKES}?profiles=false")).await.ok().get("profiles"), None);
        world.user(3).put("/v1/posts/10-1/like").await.ok();
        let first = author.get(&format!("{LIKES}?limit=1")).await;
        assert!(first.header("link").is_some_and(|link| link.ends_with("rel=\"next\"")));
        world.stack.stop_redis(tidemark_local::RedisData::Lose).await.unwrap();
        let response = author.get(LIKES).await;
        assert_eq!(response.header("degraded"), Some("redis"));
        assert_eq!((&response.body["profiles"], users(&response.clone().items())), (&card, vec![3, 2]));
        world.stack.start_redis().await.unwrap();
    });
}

#[test]
fn likers_of_a_post_that_the_caller_may_not_see_are_refused() {
    world(async |world| {
        let (author, reader) = (world.user(10), world.user(5));
        author.publish_all(["one", "two"]).await;
        each(world, [5, 6], "PUT /v1/posts/10-2/like").await;
        author.delete("/v1/posts/10-2").await.ok();
        for kind in ["likes", "favorites"] {
            for post in ["10-2", "10-3", "11-1"] {
                assert_eq!(reader.get(&format!("/v1/posts/{post}/{kind}")).await.problem(), (404, "/problems/not-found"));
            }
            let path = format!("/v1/posts/10-1/{kind}");
            assert_eq!(world.stranger(None).get(&path).await.refusal(), (401, "Unauthorized"));
            let feed = reader.get(&format!("{path}?cursor=AQAAAAAAAAAB")).await;
            for (response, field) in [
                (reader.get(&format!("{path}?limit=0")).await, "limit"),
                (reader.get(&format!("{path}?limit=101")).await, "limit"),
                (feed, "cursor"),
                (reader.get(&format!("{path}?cursor=x")).await, "cursor"),
                (reader.get(&format!("{path}?profiles=1")).await, "profiles"),
                (reader.get(&format!("{path}?order=oldest")).await, "order"),
                (reader.get(&format!("/v1/posts/10/{kind}")).await, "post"),
            ] {
                assert_eq!(response.field(), field);
            }
            assert_eq!(reader.post(&path, &json!({})).await.status, 405);
        }
        author.put("/v1/blocks/5").await.ok();
        assert_eq!(reader.get(LIKES).await.problem(), (403, "/problems/blocked"));
        assert_eq!(walked(&author, LIKES, 5).await, [0_u64; 0]);
        // Who blocks the author sees the post, and so the others who like it.
        reader.put("/v1/blocks/11").await.ok();
        world.user(11).publish("three").await;
        each(world, [6], "PUT /v1/posts/11-1/like").await;
        assert_eq!(walked(&reader, "/v1/posts/11-1/likes", 5).await, [6]);
    });
}

#[test]
fn an_erasure_takes_the_users_likes_out() {
    world(async |world| {
        let reader = world.user(5);
        world.user(10).publish("one").await;
        each(world, 101..=104, "PUT /v1/posts/10-1/like").await;
        each(world, [102], "PUT /v1/posts/10-1/favorite").await;
        world.user(102).delete("/v1/me").await.ok();
        until("the like is gone", async || walked(&reader, LIKES, 2).await.len() == 3).await;
        world.idle().await;
        assert_eq!(counts(&reader).await, [json!(3), json!(0)]);
        assert_eq!(walked(&reader, "/v1/posts/10-1/favorites", 2).await, [0_u64; 0]);
        // With the author, the lists go.
        world.user(10).delete("/v1/me").await.ok();
        world.idle().await;
        assert_eq!(reader.get(LIKES).await.problem(), (404, "/problems/not-found"));
    });
}

/// `TIDEMARK_LIKERS` likers, an eighth of whom come or go during the walks.
#[test]
fn pages_show_each_lasting_liker_exactly_once_while_others_come_and_go() {
    world(async |world| {
        let likers = number_from("TIDEMARK_LIKERS", 400);
        let (first, later) = (1_000..1_000 + likers, 10_000_000..10_000_000 + likers / 8);
        world.user(10).publish("one").await;
        each(world, first.clone(), "PUT /v1/posts/10-1/like").await;
        let change = async {
            each(world, later.clone(), "PUT /v1/posts/10-1/like").await;
            each(world, first.clone().step_by(8), "DELETE /v1/posts/10-1/like").await;
            each(world, later, "DELETE /v1/posts/10-1/like").await;
        };
        let reader = world.user(5);
        let limit = if likers > 1_000 { 100 } else { 23 };
        let walk = async {
            let mut walks = Vec::new();
            for _ in 0..4 {
                walks.push(walked(&reader, LIKES, limit).await);
            }
            walks
        };
        let ((), walks) = futures::join!(change, walk);
        let stayed: BTreeSet<u64> = first.filter(|user| user % 8 != 0).collect();
        for walked in walks {
            let distinct: BTreeSet<u64> = walked.iter().copied().collect();
            assert_eq!(distinct.len(), walked.len(), "nobody twice");
            assert!(distinct.is_superset(&stayed), "every lasting liker is listed");
        }
        let left = walked(&reader, LIKES, 100).await;
        assert_eq!(counts(&reader).await[0], stayed.len());
        assert_eq!(BTreeSet::from_iter(left), stayed);
    });
}

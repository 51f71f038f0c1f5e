//! `/v1/following`.

use futures::future::join_all;
use serde_json::json;
use tidemark_tests::{World, user_id, world};

/// The number of followers that the facts count.
async fn followers(world: &World, author: u64) -> u64 {
    let edges = &world.stack.app("follow").unwrap().stores.edges;
    edges.follower_counts(user_id(author)).await.unwrap().iter().sum()
}

#[test]
fn follow_and_unfollow_may_be_repeated() {
    world(async |world| {
        let reader = world.user(1);
        let first = reader.put("/v1/following/2").await.has(json!({ "following": true }));
        reader.put("/v1/following/2").await.has(json!({ "since": first["since"] }));
        for _ in 0..2 {
            assert_eq!(reader.delete("/v1/following/2").await.ok(), json!({ "following": false }));
        }
        assert_eq!(followers(world, 2).await, 0);
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
        let edges = &world.stack.app("follow").unwrap().stores.edges;
        assert_eq!(edges.following(user_id(1)).await.unwrap().len(), 500);

        // Exactly one place is free again.
        reader.delete(&format!("/v1/following/{}", made[0].0)).await.ok();
        let more = reader.post("/v1/following", &json!({ "authors": ["1001", "1002", "1003"] })).await.ok();
        let following: Vec<bool> = more["results"].as_array().unwrap().iter().map(|result| result["following"] == true).collect();
        assert_eq!(following, [true, false, false]);
    });
}

#[test]
fn concurrent_unfollows_of_one_edge_count_once() {
    world(async |world| {
        world.follow(1..=3, 9).await;
        let reader = world.user(1);
        join_all((0..8).map(async |_| reader.delete("/v1/following/9").await.ok())).await;
        assert_eq!(followers(world, 9).await, 2);
    });
}

//! `/v1/following`.

use futures::future::join_all;
use serde_json::json;
use tidemark_tests::world;

#[test]
fn follow_and_unfollow_may_be_repeated() {
    world(async |world| {
        let reader = world.user(1);
        let first = reader.put("/v1/following/2").await.ok();
        assert_eq!(first["following"], true);
        let again = reader.put("/v1/following/2").await.ok();
        assert_eq!(again["since"], first["since"]);
        for _ in 0..2 {
            assert_eq!(reader.delete("/v1/following/2").await.ok(), json!({ "following": false }));
        }
        let counts = world.stack.app("follow").unwrap().stores.edges.follower_counts("2".parse().unwrap()).await.unwrap();
        assert_eq!(counts.iter().sum::<u64>(), 0);
    });
}

#[test]
fn a_user_cannot_follow_themselves() {
    world(async |world| {
        let response = world.user(1).put("/v1/following/1").await;
        assert_eq!(response.problem(), (422, "/problems/self-follow"));
    });
}

#[test]
fn each_follow_of_a_batch_succeeds_or_fails_on_its_own() {
    world(async |world| {
        let results = world.user(1).post("/v1/following", &json!({ "authors": ["2", "1", "3", "2"] })).await.ok();
        let results = results["results"].as_array().unwrap().clone();
        let following: Vec<bool> = results.iter().map(|result| result["following"] == true).collect();
        assert_eq!(following, [true, false, true, true]);
        assert_eq!(results[1]["error"]["type"], "/problems/self-follow");
        assert_eq!(results[0]["author"], "2");
        for body in [json!({}), json!({ "authors": [] }), json!({ "authors": ["x"] }), json!({ "authors": vec!["2"; 51] })] {
            assert!(world.user(1).post("/v1/following", &body).await.field().starts_with("authors"));
        }
    });
}

#[test]
fn six_hundred_concurrent_follows_make_five_hundred_edges() {
    world(async |world| {
        let reader = world.user(1);
        let responses = join_all((2..=601).map(|author| {
            let reader = reader.clone();
            async move {
                // All change the same count. A client repeats a request that found it busy for eight seconds.
                loop {
                    let response = reader.put(&format!("/v1/following/{author}")).await;
                    if response.status != 503 {
                        return response;
                    }
                }
            }
        }))
        .await;
        let refused: Vec<_> = responses.iter().filter(|response| response.status != 200).collect();
        assert_eq!((responses.len() - refused.len(), refused.len()), (500, 100));
        assert!(refused.iter().all(|response| response.problem() == (422, "/problems/following-limit")));
        let app = world.stack.app("follow").unwrap();
        assert_eq!(app.stores.edges.following("1".parse().unwrap()).await.unwrap().len(), 500);

        // Exactly one place is free again.
        let made = responses.iter().position(|response| response.status == 200).unwrap() + 2;
        reader.delete(&format!("/v1/following/{made}")).await.ok();
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
        join_all((0..8).map(|_| {
            let reader = reader.clone();
            async move { reader.delete("/v1/following/9").await.ok() }
        }))
        .await;
        let counts = world.stack.app("follow").unwrap().stores.edges.follower_counts("9".parse().unwrap()).await.unwrap();
        assert_eq!(counts.iter().sum::<u64>(), 2);
    });
}

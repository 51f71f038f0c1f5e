//! Races for handles and for user ids, while Redis loses its data.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use serde_json::json;
use tidemark_tests::{User, World, parameter, world_with};

const CLIENTS: usize = 500;
const WANTED: usize = 50;

fn mapped(test: impl AsyncFnOnce(&World)) {
    world_with(parameter("UserIds", "mapped"), test);
}

async fn id(user: &User) -> String {
    user.get("/v1/me").await.ok()["id"].as_str().unwrap().to_owned()
}

/// Runs all requests at once, and empties Redis in their middle.
async fn at_once<T>(world: &World, requests: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut requests: Vec<_> = requests.into_iter().collect();
    let second = requests.split_off(requests.len() / 2);
    let ((mut first, ()), second) =
        futures::join!(async { futures::join!(join_all(requests), world.flush_redis()) }, join_all(second));
    first.extend(second);
    first
}

#[test]
fn five_hundred_first_calls_of_fifty_claims_get_fifty_user_ids() {
    mapped(async |world| {
        let callers: Vec<User> = (0..CLIENTS).map(|client| world.stranger(Some(&format!("claim-{}", client % WANTED)))).collect();
        let ids = at_once(world, callers.iter().map(id)).await;
        let mut by_claim = BTreeMap::<usize, BTreeSet<&String>>::new();
        for (client, id) in ids.iter().enumerate() {
            by_claim.entry(client % WANTED).or_default().insert(id);
        }
        assert!(by_claim.values().all(|ids| ids.len() == 1), "each claim has one id: {by_claim:?}");
        assert_eq!(by_claim.values().flatten().collect::<BTreeSet<_>>().len(), WANTED, "each id has one claim");
        world.flush_redis().await;
        let again = join_all(callers[..WANTED].iter().map(id)).await;
        assert_eq!(again, ids[..WANTED]);
    });
}

#[test]
fn five_hundred_clients_get_fifty_handles_once_each() {
    mapped(async |world| {
        let callers: Vec<User> = (0..CLIENTS).map(|client| world.stranger(Some(&format!("client-{client}")))).collect();
        let ids = join_all(callers.iter().map(id)).await;
        let handle = |client: usize| format!("handle_{}", client % WANTED);
        let claims = callers.iter().enumerate().map(async |(client, caller)| {
            caller.put_body("/v1/me/profile", &json!({ "name": "x", "handle": handle(client) })).await
        });
        let responses = at_once(world, claims).await;
        let mut owners = BTreeMap::<String, Vec<&String>>::new();
        for (client, response) in responses.iter().enumerate() {
            match response.status {
                200 => owners.entry(handle(client)).or_default().push(&ids[client]),
                _ => assert_eq!(response.problem(), (409, "/problems/handle-taken")),
            }
        }
        assert_eq!(owners.len(), WANTED);
        assert!(owners.values().all(|owners| owners.len() == 1), "{owners:?}");
        // Three callers agree about every handle, and with the profiles.
        for caller in &callers[..3] {
            for (handle, owner) in &owners {
                let found = caller.get(&format!("/v1/handles/{handle}")).await.ok();
                assert_eq!((&found["id"], &found["profile"]["handle"]), (&json!(owner[0]), &json!(handle)));
            }
        }
    });
}

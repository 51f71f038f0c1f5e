//! Many clients at once: they follow and unfollow the same pair, with repeated and delayed stream records; they race
//! for handles and for user ids while Redis loses its data; and they react to posts. Interrupted reactions, and
//! reactions while views are lost and rebuilt.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tidemark::{
    domain::{Reaction, ReactionState, Timestamp, UserId},
    views::{KnownReactions, PageParts},
};
use tidemark_tests::{User, World, parameter, until, user_id, world, world_with};

use crate::{delivery::project, fields, operations::put_or_delete};

const STORMS: u64 = if option_env!("TIDEMARK_STORMS").is_some() { 1_000 } else { 40 };

#[test]
fn facts_lists_counters_and_feed_agree_after_a_storm() {
    world(async |world| {
        for seed in 0..STORMS {
            storm(world, seed).await;
        }
    });
}

async fn storm(world: &World, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let (user, author) = (1_000_000 + seed * 2, 1_000_001 + seed * 2);
    let (reader, writer) = (world.user(user), world.user(author));
    writer.publish("before").await;
    // In some runs the feed is live and lists and counters are cached, in others not.
    if rng.random() {
        reader.feed_ids().await;
        for list in [format!("{author}/followers"), format!("{user}/following"), format!("{author}/counters")] {
            reader.get(&format!("/v1/users/{list}")).await.ok();
        }
    }
    let held = rng.random();
    if held {
        world.stack.pause("projector").await.unwrap();
    }
    let plans: Vec<Vec<u8>> = (0..8).map(|_| (0..4).map(|_| rng.random_range(0..10)).collect()).collect();
    let path = format!("/v1/following/{author}");
    join_all(plans.into_iter().map(async |plan| {
        for step in plan {
            match step {
                0..5 => reader.put(&path).await.ok(),
                5..9 => reader.delete(&path).await.ok(),
                _ => project(world, user, author, 2).await,
            };
        }
    }))
    .await;
    if held {
        world.stack.resume("projector").unwrap();
    }
    world.idle().await;
    project(world, user, author, 2).await;
    let following = reader.get(&format!("/v1/relations/{author}")).await.ok()["following"] == true;
    assert_edge(world, user, author, following, seed).await;
    let edges = usize::from(following);
    assert_eq!((reader.feed_ids().await.len(), reader.unread_total().await), (edges, 0), "storm {seed}");
    world.publish_and_deliver(author, "after").await;
    let after = (reader.feed_ids().await.len(), reader.unread_total().await);
    assert_eq!(after, (edges * 2, edges as u64), "storm {seed}: a post after the storm");
}

/// On one pair, eight clients block, unblock and follow in both directions. Whenever a block stands, no edge does.
#[test]
fn no_follow_stands_beside_a_block() {
    world(async |world| {
        for seed in 0..STORMS {
            let mut rng = StdRng::seed_from_u64(seed);
            let pair = [3_000_000 + seed * 2, 3_000_001 + seed * 2];
            let users = pair.map(|user| world.user(user));
            let plans: Vec<Vec<(usize, u8)>> =
                (0..8).map(|_| (0..4).map(|_| (rng.random_range(0..2), rng.random_range(0..10))).collect()).collect();
            join_all(plans.into_iter().map(async |plan| {
                for (who, step) in plan {
                    let (user, other) = (&users[who], pair[1 - who]);
                    let (follow, block) = (format!("/v1/following/{other}"), format!("/v1/blocks/{other}"));
                    let response = match step {
                        0..5 => user.put(&follow).await,
                        5 => user.delete(&follow).await,
                        6..8 => user.put(&block).await,
                        _ => user.delete(&block).await,
                    };
                    assert!(matches!(response.status, 200 | 403), "{}", response.body);
                }
            }))
            .await;
            world.idle().await;
            let mut blocked = false;
            let mut edges = [false; 2];
            for who in 0..2 {
                let relation = users[who].get(&format!("/v1/users/{}", pair[1 - who])).await.ok()["relation"].clone();
                blocked |= relation["blocked"] == true;
                edges[who] = relation["following"] == true;
            }
            assert!(!blocked || edges == [false; 2], "storm {seed}: blocked, and edges {edges:?}");
            for who in 0..2 {
                assert_edge(world, pair[who], pair[1 - who], edges[who], seed).await;
            }
            let put = users[0].put(&format!("/v1/following/{}", pair[1])).await;
            assert_eq!(put.status == 403, blocked, "storm {seed}: {}", put.body);
        }
    });
}

/// Asserts that the lists and counters of both users have the edge of this pair, or none.
async fn assert_edge(world: &World, user: u64, author: u64, exists: bool, seed: u64) {
    let (reader, edges) = (world.user(user), usize::from(exists));
    for (of, list, counter) in [(user, "following", "followings"), (author, "followers", "followers")] {
        assert_eq!(reader.walk(&format!("/v1/users/{of}/{list}"), 10).await.len(), edges, "storm {seed}: {list}");
        let counters = reader.get(&format!("/v1/users/{of}/counters")).await.ok();
        assert_eq!(counters[counter], edges, "storm {seed}: counter of {counter}");
    }
}

const CLIENTS: usize = 500;
const WANTED: usize = 50;

async fn id(user: &User) -> String {
    user.get("/v1/me").await.ok()["id"].as_str().unwrap().to_owned()
}

/// Runs all requests at once, and empties Redis in their middle.
async fn beside_a_flush<T>(world: &World, requests: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut requests: Vec<_> = requests.into_iter().collect();
    let second = requests.split_off(requests.len() / 2);
    let ((mut first, ()), second) =
        futures::join!(async { futures::join!(join_all(requests), world.flush_redis()) }, join_all(second));
    first.extend(second);
    first
}

#[test]
fn five_hundred_first_calls_of_fifty_claims_get_fifty_user_ids() {
    world_with(parameter("UserIds", "mapped"), async |world| {
        let callers: Vec<User> = (0..CLIENTS).map(|client| world.stranger(Some(&format!("claim-{}", client % WANTED)))).collect();
        let ids = beside_a_flush(world, callers.iter().map(id)).await;
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
    world_with(parameter("UserIds", "mapped"), async |world| {
        let callers: Vec<User> = (0..CLIENTS).map(|client| world.stranger(Some(&format!("client-{client}")))).collect();
        let ids = join_all(callers.iter().map(id)).await;
        let handle = |client: usize| format!("handle_{}", client % WANTED);
        let claims = callers.iter().enumerate().map(async |(client, caller)| {
            caller.put_body("/v1/me/profile", &json!({ "name": "x", "handle": handle(client) })).await
        });
        let responses = beside_a_flush(world, claims).await;
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

const STORMS_OF_LIKES: u64 = if option_env!("TIDEMARK_STORMS").is_some() { 200 } else { 8 };

const LIKING_CLIENTS: usize = 8;

#[test]
fn after_a_storm_of_likes_the_count_is_the_number_of_distinct_likers() {
    world(async |world| {
        let mut requests = 0;
        for seed in 0..STORMS_OF_LIKES {
            requests += storm_of_likes(world, seed).await;
        }
        println!("{STORMS_OF_LIKES} storms, {requests} reactions by {LIKING_CLIENTS} clients at once, every count exact");
    });
}

/// The likes and favorites that an author has received.
async fn received(world: &World, author: u64) -> Value {
    let counters = world.user(1).get(&format!("/v1/users/{author}/counters")).await.ok();
    fields(&counters, &["likes_received", "favorites_received"])
}

async fn storm_of_likes(world: &World, seed: u64) -> usize {
    let mut rng = StdRng::seed_from_u64(seed);
    let author = 5_000 + seed;
    let post = world.user(author).publish("liked by many").await;
    let users: Vec<u64> = (0..40).map(|_| rng.random_range(1..=u64::MAX)).collect();
    // First all clients like at once, with repetitions. The order does not matter.
    let plans: Vec<Vec<u64>> =
        (0..LIKING_CLIENTS).map(|_| (0..30).map(|_| users[rng.random_range(0..users.len())]).collect()).collect();
    let mut likers: BTreeSet<u64> = plans.iter().flatten().copied().collect();
    let counts = async || fields(&world.user(1).get(&format!("/v1/posts/{post}")).await.ok(), &["likes", "favorites"]);
    let like = format!("/v1/posts/{post}/like");
    join_all(plans.iter().map(async |plan| {
        for &user in plan {
            let liked = world.user(user).put(&like).await.has(json!({ "liked": true }));
            assert!((1..=likers.len() as u64).contains(&liked["likes"].as_u64().unwrap()), "{liked}");
        }
    }))
    .await;
    assert_eq!(counts().await, json!([likers.len(), 0]), "storm {seed}");

    // Then every client has users of its own, and the last request for each user counts. A step is a user, true for a
    // like, and true for a reaction that is given.
    let plans: Vec<Vec<(u64, bool, bool)>> = (0..LIKING_CLIENTS)
        .map(|client| {
            let own: Vec<u64> = users.iter().copied().skip(client).step_by(LIKING_CLIENTS).collect();
            (0..20).map(|_| (own[rng.random_range(0..own.len())], rng.random(), rng.random())).collect()
        })
        .collect();
    join_all(plans.iter().map(async |plan| {
        for &(user, likes, given) in plan {
            let path = format!("/v1/posts/{post}/{}", if likes { "like" } else { "favorite" });
            put_or_delete(&world.user(user), &path, given).await.ok();
        }
    }))
    .await;
    let mut favorites = BTreeSet::new();
    for &(user, likes, given) in plans.iter().flatten() {
        let set = if likes { &mut likers } else { &mut favorites };
        _ = if given { set.insert(user) } else { set.remove(&user) };
    }
    // After many reactions, others may see older counts for a moment.
    let (started, expected) = (Instant::now(), json!([likers.len(), favorites.len()]));
    while counts().await != expected {
        assert!(started.elapsed() < Duration::from_secs(5), "storm {seed}: {expected:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(received(world, author).await, expected, "storm {seed}");
    for &user in &users {
        let seen = world.user(user).get(&format!("/v1/posts/{post}")).await.ok();
        let expected = json!([likers.contains(&user), favorites.contains(&user)]);
        assert_eq!(fields(&seen, &["liked", "favorited"]), expected, "storm {seed}, {user}");
    }
    plans.iter().map(Vec::len).sum::<usize>() + LIKING_CLIENTS * 30
}

#[test]
fn a_reaction_enqueues_a_task_until_one_is_noted_and_when_that_may_have_begun() {
    world(async |world| {
        let views = world.patient_redis();
        let post = "10-1".parse().unwrap();
        let due = async || views.expire_counts(post, 1).await.unwrap();
        let now = due().await.unwrap();
        assert!(due().await.is_some(), "a repetition, or another reaction");
        views.note_rank(post, now.plus_ms(60_000)).await.unwrap();
        assert_eq!(due().await, None);
        // A sender that was slow notes a task that may have begun.
        views.note_rank(post, Timestamp::from_ms(now.ms() - 1)).await.unwrap();
        assert!(due().await.is_some());
        views.note_rank(post, now.plus_ms(200)).await.unwrap();
        until("the task may have begun", async || due().await.is_some()).await;
    });
}

#[test]
fn reactions_of_one_user_on_several_devices_are_all_kept() {
    world(async |world| {
        world.user(10).publish_all(["x"; 30]).await;
        let reader = world.user(1);
        join_all((1..=30).map(async |seq| {
            let kind = if seq % 3 == 0 { "favorite" } else { "like" };
            reader.put(&format!("/v1/posts/10-{seq}/{kind}")).await.ok();
        }))
        .await;
        for item in reader.walk("/v1/authors/10/posts", 100).await {
            let third = item["seq"].as_u64().unwrap() % 3 == 0;
            assert_eq!(fields(&item, &["liked", "favorited"]), json!([!third, third]), "{item}");
        }
        assert_eq!(received(world, 10).await, json!([20, 10]));
    });
}

#[test]
fn likes_during_a_deletion_do_not_delay_it_and_counts_stay_exact() {
    world(async |world| {
        let author = world.user(10);
        for round in 1..=5 {
            let post = author.publish("regretted").await;
            let like = format!("/v1/posts/{post}/like");
            let likes = join_all((1..=40).map(async |user| world.user(round * 100 + user).put(&like).await.status == 200));
            let delete = async { assert_eq!(author.delete(&format!("/v1/posts/{post}")).await.status, 204) };
            let (liked, ()) = futures::join!(likes, delete);
            let liked = liked.into_iter().filter(|liked| *liked).count();
            let facts = world.stack.app("publish").unwrap().stores.facts.clone();
            let counts = facts.reaction_counts(post.parse().unwrap()).await.unwrap();
            assert_eq!(counts.counts.likes, liked as u64, "round {round}");
            assert_eq!(world.user(1).put(&like).await.status, 404);
        }
    });
}

#[test]
fn repeating_a_request_that_died_after_its_transaction_updates_the_views() {
    world(async |world| {
        let reader = world.reader(1, [10]).await;
        let post = world.publish_and_deliver(10, "one").await;
        let seen = async || {
            let page = reader.get("/v1/feed").await.ok();
            json!([page["items"][0]["liked"], received(world, 10).await])
        };
        assert_eq!(seen().await, json!([false, [0, 0]]));
        let facts = world.stack.app("publish").unwrap().stores.facts.clone();
        world.stack.pause("projector").await.unwrap();
        let reacted = facts.react(UserId::MIN, post.parse().unwrap(), Reaction::Like, true, Timestamp::default()).await.unwrap();
        assert!(matches!(reacted, Ok((_, state)) if state.version == 1));
        assert_eq!(seen().await, json!([false, [0, 0]]), "the views are stale");
        reader.put(&format!("/v1/posts/{post}/like")).await.ok();
        assert_eq!(seen().await, json!([true, [1, 0]]));
        world.stack.resume("projector").unwrap();
    });
}

#[test]
fn facts_read_before_the_loss_of_a_view_are_not_stored_in_the_next_view() {
    world(async |world| {
        let views = world.patient_redis();
        let (user, author) = (UserId::MIN, user_id(10));
        let known = async || views.known_page(user, &["10-1".parse().unwrap()], PageParts::default()).await.unwrap().reactions;
        let mut states = vec![ReactionState::default()];
        for seq in 1..4 {
            states.push(states[states.len() - 1].changed(seq, Reaction::Like, true).unwrap());
        }
        // Without a view there is nothing to change. A reader who opens a view later reads the facts afterwards.
        views.change_reactions(user, author, &states[1]).await.unwrap();
        assert_eq!(known().await, KnownReactions::default());
        assert_eq!(
            (views.open_reactions(user, 7).await.unwrap(), views.open_reactions(user, 8).await.unwrap()),
            (7, 7),
            "both get the first token"
        );
        // A change happens before the fill.
        views.change_reactions(user, author, &states[2]).await.unwrap();
        views.fill_reactions(user, 7, &[(author, states[1].clone())].into()).await.unwrap();
        assert_eq!(known().await.of[&author], states[2]);
        // The view is lost between the read and the fill, and another caller has opened a new view.
        world.flush_redis().await;
        views.open_reactions(user, 9).await.unwrap();
        views.fill_reactions(user, 7, &[(author, states[2].clone())].into()).await.unwrap();
        assert_eq!(known().await, KnownReactions { token: Some(9), ..Default::default() });
        views.fill_reactions(user, 9, &[(author, states[3].clone())].into()).await.unwrap();
        assert_eq!(known().await.of[&author], states[3]);
    });
}

#[test]
fn a_view_of_too_many_authors_is_emptied() {
    world(async |world| {
        let views = world.patient_redis();
        let user = UserId::MIN;
        let authors = |range: std::ops::Range<u64>| -> std::collections::HashMap<UserId, ReactionState> {
            range.map(|id| (user_id(id), ReactionState::default())).collect()
        };
        views.open_reactions(user, 7).await.unwrap();
        views.fill_reactions(user, 7, &authors(1..501)).await.unwrap();
        views.fill_reactions(user, 7, &authors(501..1_001)).await.unwrap();
        let known = async |id: u64| {
            views.known_page(user, &[format!("{id}-1").parse().unwrap()], PageParts::default()).await.unwrap().reactions
        };
        assert_eq!((known(1).await.of.len(), known(1_000).await.of.len()), (1, 1), "a thousand are kept");
        views.fill_reactions(user, 7, &authors(1_001..1_002)).await.unwrap();
        assert_eq!(known(1).await, KnownReactions::default());
    });
}

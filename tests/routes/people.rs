//! `/v1/me…`, `/v1/users…`, `/v1/handles/…`, and the profiles on pages.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::{Value, json};
use tidemark::{LegacySettings, facts::schema};
use tidemark_legacy::rollout::is_on;
use tidemark_tests::{Response, User, has, items::s, parameter, user_id, world, world_with};

async fn set(user: &User, profile: Value) -> Response {
    user.put_body("/v1/me/profile", &profile).await
}

#[test]
fn me_says_whether_an_application_serves_the_user_from_here() {
    let configure = |options: &mut tidemark_local::Options| {
        parameter("RolloutPercent", 10)(options);
        parameter("RolloutUsers", "7,9")(options);
    };
    world_with(configure, async |world| {
        let users: Vec<u64> = (1..=60).collect();
        let said = join_all(users.iter().map(async |user| world.user(*user).get("/v1/me").await.ok()["rollout"].clone())).await;
        let rollout_users = [7, 9].map(user_id).into();
        let share = LegacySettings { rollout_percent: 10, rollout_users, ..LegacySettings::default() };
        let expected = users.iter().map(|user| if is_on(&share, user_id(*user)) { "on" } else { "off" });
        assert_eq!(said, expected.collect::<Vec<_>>());
        assert!((said[6] == "on" && said[8] == "on") && said.iter().filter(|said| *said == "off").count() > 40);
    });
}

#[test]
fn a_profile_is_set_replaced_and_shown() {
    world(async |world| {
        let (ada, bob) = (world.user(1042), world.user(7));
        let counters = json!({ "followings": 0, "followers": 0, "posts": 0, "likes_received": 0, "favorites_received": 0 });
        let me = json!({
            "id": "1042", "profile": null, "private": false, "counters": counters, "inbox_unread": 0, "rollout": "on",
        });
        assert_eq!(ada.get("/v1/me").await.ok(), me);
        let data = json!({ "theme": 2, "big": 18_446_744_073_709_551_615_u64 });
        let content = json!({
            "name": "Ada Ü", "handle": "ada_1", "picture": "https://example.org/a.png", "bio": "Notes.", "data": data,
        });
        let profile = set(&ada, content.clone()).await.ok();
        assert!(has(&profile, &content) && profile["data"] == data && profile["user"] == "1042", "{profile}");
        assert_eq!(set(&ada, content).await.ok(), profile, "the same request again changes nothing");
        assert_eq!(ada.get("/v1/me").await.ok()["profile"], profile);

        bob.follow([1042]).await;
        let relation = json!({
            "following": true, "followed_by": false, "mutual": false, "muted": false, "blocked": false, "requested": false,
            "lists": [],
        });
        let seen = bob.get("/v1/users/1042").await.has(json!({ "id": "1042", "counters": { "followers": 1 } }));
        assert_eq!((&seen["profile"], &seen["relation"]), (&profile, &relation));
        assert_eq!(bob.get("/v1/handles/ada_1").await.ok(), seen);
        let users = bob.get("/v1/users?user=8&user=1042").await.ok();
        assert_eq!(users["items"], json!([{ "id": "8", "profile": null }, { "id": "1042", "profile": profile }]));

        let replaced = json!({ "name": "Ada", "handle": null, "picture": null, "bio": null, "data": null });
        set(&ada, json!({ "name": "Ada" })).await.has(replaced);
        assert_eq!(bob.get("/v1/handles/ada_1").await.problem(), (404, "/problems/not-found"));
    });
}

#[test]
fn a_handle_has_a_letter_and_is_found_as_people_write_it() {
    world(async |world| {
        let (grace, other) = (world.user(1234), world.user(7));
        for handle in ["1234", "___", "_12", "Grace", "@grace", "gr"] {
            assert_eq!(set(&grace, json!({ "name": "x", "handle": handle })).await.field(), "handle", "{handle}");
        }
        set(&grace, json!({ "name": "Grace", "handle": "grace" })).await.ok();
        for mention in ["grace", "@grace", "@Grace", "GRACE", "%40Grace"] {
            other.get(&format!("/v1/handles/{mention}")).await.has(json!({ "id": "1234" }));
        }
        for mention in ["1234", "@1234", "@@grace", "@"] {
            assert_eq!(other.get(&format!("/v1/handles/{mention}")).await.field(), "handle", "{mention}");
        }
        assert_eq!(other.get("/v1/handles/@nobody").await.problem(), (404, "/problems/not-found"));
    });
}

#[test]
fn a_handle_from_before_the_rule_is_still_shown() {
    world(async |world| {
        let (old, reader) = (world.user(1), world.reader(7, [1]).await);
        set(&old, json!({ "name": "Old" })).await.ok();
        world.update_item("ProfilesTable", schema::profile(user_id(1)), &[("handle", s("1234"))], &[]).await;
        world.flush_redis().await;
        for _ in 0..2 {
            let page = reader.get("/v1/users/7/following").await.ok();
            assert_eq!(page["profiles"], json!({ "1": { "name": "Old", "handle": "1234", "picture": null } }));
        }
        reader.get("/v1/users/1").await.has(json!({ "profile": { "handle": "1234" } }));
        assert_eq!(set(&old, json!({ "name": "New", "handle": "1234" })).await.field(), "handle");
        set(&old, json!({ "name": "New", "handle": "new" })).await.has(json!({ "handle": "new" }));
    });
}

#[test]
fn a_user_shows_the_newest_followers_whom_the_caller_follows_with_their_cards() {
    world(async |world| {
        let caller = world.reader(1, [2, 3, 4, 5]).await;
        set(&world.user(5), json!({ "name": "Five" })).await.ok();
        for follower in [5, 2, 8, 3, 4] {
            world.user(follower).follow([9]).await;
        }
        let known = async || {
            let user = caller.get("/v1/users/9").await.ok();
            (user["known_followers"].clone(), user["profiles"].clone())
        };
        assert_eq!(known().await, (json!({ "count": 4, "users": ["4", "3", "2"] }), json!({})));
        world.user(3).delete("/v1/following/9").await.ok();
        let card = json!({ "5": { "name": "Five", "handle": null, "picture": null } });
        let expected = (json!({ "count": 3, "users": ["4", "2", "5"] }), card);
        assert_eq!(known().await, expected);
        world.stack.stop_redis(tidemark_local::RedisData::Lose).await.unwrap();
        assert_eq!(known().await, expected);
        for path in ["/v1/users/9", "/v1/me"] {
            assert_eq!(caller.get(path).await.header("degraded"), Some("redis"), "{path}");
        }
        world.stack.start_redis().await.unwrap();
    });
}

#[test]
fn one_of_many_gets_a_handle_and_a_given_up_handle_rests_for_others() {
    world(async |world| {
        let users: Vec<User> = (1..=12).map(|id| world.user(id)).collect();
        let responses = join_all(users.iter().map(|user| set(user, json!({ "name": "x", "handle": "popular" })))).await;
        let first = responses.iter().position(|response| response.status == 200).unwrap();
        for (index, response) in responses.iter().enumerate().filter(|(index, _)| *index != first) {
            assert_eq!(response.problem(), (409, "/problems/handle-taken"), "{index}");
        }
        let [winner, other] = [first, (first + 1) % 12].map(|index| &users[index]);
        other.get("/v1/handles/popular").await.has(json!({ "id": (first + 1).to_string() }));
        // A refused request changes nothing.
        other.get("/v1/me").await.has(json!({ "profile": null }));

        set(winner, json!({ "name": "x", "handle": "other" })).await.ok();
        assert_eq!(other.get("/v1/handles/popular").await.problem(), (404, "/problems/not-found"));
        assert_eq!(set(other, json!({ "name": "y", "handle": "popular" })).await.problem(), (409, "/problems/handle-taken"));
        set(winner, json!({ "name": "x", "handle": "popular" })).await.ok();
        // Its last owner takes it back.
        other.get("/v1/handles/popular").await.has(json!({ "profile": { "handle": "popular" } }));
        assert_eq!(other.get("/v1/handles/other").await.problem(), (404, "/problems/not-found"));
    });
}

#[test]
fn pages_have_the_profiles_of_their_users() {
    world(async |world| {
        let (ada, reader) = (world.user(1), world.user(7));
        reader.follow([1, 2]).await;
        world.deliver_posts([1, 2], 1).await;
        reader.put("/v1/posts/1-1/like").await.ok();
        let card = |name: &str| json!({ "1": { "name": name, "handle": null, "picture": null } });
        let pages = ["feed", "authors/1/posts", "posts/1-1", "posts?post=1-1&post=2-1", "users/7/following", "me/likes"];
        let profiles = async |page: &str| reader.get(&format!("/v1/{page}")).await.ok()["profiles"].take();
        for page in pages {
            assert_eq!(profiles(page).await, json!({}), "{page} before there is a profile");
        }
        for name in ["Ada", "Lovelace"] {
            set(&ada, json!({ "name": name })).await.ok();
            for page in pages {
                // Twice: from the facts, and from the view.
                for _ in 0..2 {
                    assert_eq!(profiles(page).await, card(name), "{page}");
                }
                let join = if page.contains('?') { '&' } else { '?' };
                let without = reader.get(&format!("/v1/{page}{join}profiles=false")).await.ok();
                assert_eq!(without.get("profiles"), None, "{page}");
            }
        }
        world.flush_redis().await;
        assert_eq!(profiles("users/7/following").await, card("Lovelace"));
    });
}

#[test]
fn any_word_is_a_user_if_claims_have_user_ids() {
    world_with(parameter("UserIds", "mapped"), async |world| {
        let long = "x".repeat(255);
        let names = ["alice", "bob", "auth0|5f7c8ec7c33c6c004bbafe82", "7", &long];
        let me = async |name: &str| world.stranger(Some(name)).get("/v1/me").await.ok()["id"].as_str().unwrap().to_owned();
        let first = join_all(names.iter().flat_map(|name| [me(name), me(name), me(name)])).await;
        let ids: Vec<&String> = first.iter().step_by(3).collect();
        assert!(first.chunks(3).zip(&ids).all(|(same, id)| same.iter().all(|other| other == *id)), "{first:?}");
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), names.len());
        world.flush_redis().await;
        let again = join_all(names.iter().map(|name| me(name))).await;
        assert_eq!(again.iter().collect::<Vec<_>>(), ids, "the mapping survives the loss of Redis");

        let (alice, bob) = (world.stranger(Some("alice")), world.stranger(Some("bob")));
        bob.follow([ids[0]]).await;
        alice.publish("hello").await;
        world.idle().await;
        assert_eq!(bob.unread_total().await, 1);
        let too_long = world.stranger(Some(&"x".repeat(256)));
        assert_eq!(too_long.get("/v1/me").await.problem(), (401, "/problems/unauthorized"));
    });
}

#[test]
fn notices_are_for_the_callers_platforms_only() {
    world_with(parameter("PlatformsClaim", "platforms"), async |world| {
        let admin = world.stranger(Some("1 notices:write"));
        admin.post("/v1/notices", &json!({ "platforms": [1, 2], "title": "Hello" })).await.ok();
        let reader = world.stranger(Some("7 platforms=2,3"));
        assert_eq!(reader.notice_counts(2).await, (1, 0));
        reader.put("/v1/notices/2-1/read").await.ok();
        for request in [
            "GET /v1/notices?platform=1",
            "GET /v1/notices/unread?platform=1",
            "GET /v1/notices/unread?platform=2&platform=1",
            "GET /v1/notices/1-1",
            "PUT /v1/notices/1-1/read",
            "DELETE /v1/notices/1-1/read",
            r#"POST /v1/notices/reads {"platform": 1, "through": 1}"#,
        ] {
            assert_eq!(reader.request(request).await.problem(), (403, "/problems/forbidden"), "{request}");
        }
        let without_the_claim = world.stranger(Some("7")).get("/v1/notices?platform=2").await;
        assert_eq!(without_the_claim.problem(), (403, "/problems/forbidden"));
        let mut connection = world.try_live(Some("7 platforms=2,3")).await.unwrap();
        for (platforms, kind) in [("[2, 1]", "error"), ("[2, 3]", "pong"), ("[1]", "error")] {
            connection.send(&format!(r#"{{"type": "ping", "platforms": {platforms}}}"#)).await;
            let response = connection.next().await;
            let refusal = if kind == "error" { json!("forbidden") } else { Value::Null };
            assert_eq!((&response["type"], &response["error"]), (&json!(kind), &refusal), "{platforms}");
        }
        // An administrator sees every notice.
        admin.get("/v1/notices/1-1").await.has(json!({ "readers": 0 }));
    });
}

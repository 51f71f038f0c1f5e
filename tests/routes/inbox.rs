//! The inbox: `/v1/inbox…`, and `inbox_unread` of `GET /v1/me`.

use serde_json::{Value, json};
use tidemark::{
    domain::{NewFollow, Timestamp},
    facts::{edges::Kind, schema},
};
use tidemark_tests::{User, World, items::n, texts, user_id, world};

const OWNER: u64 = 1;
const DAY: u64 = 24 * 3600 * 1000;

/// The groups of all pages, when all acts are derived. The count, the list and the profile of the caller agree.
async fn groups(world: &World, user: &User) -> Vec<Value> {
    world.idle().await;
    let pages = user.pages("/v1/inbox", 2).await;
    let groups: Vec<Value> = pages.iter().flat_map(|page| page["items"].as_array().unwrap().clone()).collect();
    let unread: Vec<&Value> = groups.iter().filter(|group| group["read"] == false).collect();
    assert!(pages.iter().all(|page| page["unread_total"] == unread.len()), "{pages:?}");
    assert_eq!(user.get("/v1/inbox/unread").await.ok(), json!({ "unread": unread.len() }));
    assert_eq!(user.get("/v1/me").await.ok()["inbox_unread"], unread.len());
    let listed = user.walk("/v1/inbox?status=unread", 3).await;
    assert_eq!(listed.iter().collect::<Vec<_>>(), unread, "one predicate");
    groups
}

/// What the tests compare: kind, post, users, count, and whether the group is read.
fn short(group: &Value) -> String {
    let users = group["users"].as_array().unwrap().iter().map(|user| user.as_str().unwrap()).collect::<Vec<_>>().join(" ");
    let (kind, post) = (group["kind"].as_str().unwrap(), group["post"].as_str().unwrap_or("-"));
    format!("{kind} {post} [{users}] {} {}", group["count"], if group["read"] == true { "read" } else { "unread" })
}

async fn shorts(world: &World, user: &User) -> Vec<String> {
    groups(world, user).await.iter().map(short).collect()
}

async fn like(world: &World, user: u64, post: &str) {
    world.user(user).put(&format!("/v1/posts/{post}/like")).await.ok();
}

#[test]
fn acts_of_others_are_grouped_by_post_and_by_day() {
    world(async |world| {
        let owner = world.user(OWNER);
        assert!(groups(world, &owner).await.is_empty());
        let posts = owner.publish_all(["one", "two"]).await;
        world.user(5).put_body("/v1/me/profile", &json!({ "name": "Five" })).await.ok();
        for user in 2..=5 {
            like(world, user, &posts[0]).await;
        }
        like(world, OWNER, &posts[0]).await;
        world.user(4).put(&format!("/v1/posts/{}/favorite", posts[1])).await.ok();
        world.user(3).put("/v1/following/1").await.ok();
        world.user(2).put("/v1/following/1").await.ok();
        let found = groups(world, &owner).await;
        assert_eq!(
            found.iter().map(short).collect::<Vec<_>>(),
            ["follow - [2 3] 2 unread", "favorite 1-2 [4] 1 unread", "like 1-1 [5 4 3] 4 unread"]
        );
        let follow = owner.get("/v1/users/1/followers?limit=1").await.items().remove(0);
        assert_eq!(found[0]["latest_at"], follow["since"]);
        let page = owner.get("/v1/inbox?limit=2").await.ok();
        assert_eq!(page["profiles"], json!({}), "the users on this page have none");
        let page = owner.get("/v1/inbox").await.ok();
        assert_eq!(page["profiles"], json!({ "5": { "name": "Five", "handle": null, "picture": null } }));
        assert_eq!(owner.get("/v1/inbox?profiles=false").await.ok().get("profiles"), None);
        assert!(groups(world, &world.user(2)).await.is_empty(), "others have their own inboxes");

        // What is taken back is in no group.
        for user in 3..=5 {
            world.user(user).delete("/v1/posts/1-1/like").await.ok();
        }
        world.user(4).delete("/v1/posts/1-2/favorite").await.ok();
        world.user(2).delete("/v1/following/1").await.ok();
        assert_eq!(shorts(world, &owner).await, ["follow - [3] 1 unread", "like 1-1 [2] 1 unread"]);
        owner.delete("/v1/posts/1-1").await;
        owner.delete("/v1/followers/3").await.ok();
        assert!(groups(world, &owner).await.is_empty(), "a deleted post has no acts");
    });
}

async fn quote(world: &World, user: u64, post: &str) -> String {
    let quote = world.user(user).post("/v1/posts", &json!({ "title": "a quote", "of": post })).await;
    quote.body["id"].as_str().unwrap_or_else(|| panic!("{} {}", quote.status, quote.body)).to_owned()
}

async fn comment(world: &World, user: u64, post: &str) -> String {
    let comment = world.user(user).post(&format!("/v1/posts/{post}/comments"), &json!({ "text": "a comment" })).await;
    let id = comment.body["id"].as_str().unwrap_or_else(|| panic!("{} {}", comment.status, comment.body));
    format!("/v1/posts/{post}/comments/{}", id.rsplit('-').next().unwrap())
}

#[test]
fn reposts_quotes_and_comments_are_acts_until_they_are_taken_back() {
    world(async |world| {
        let owner = world.user(OWNER);
        owner.publish("one").await;
        world.user(2).put("/v1/posts/1-1/repost").await.ok();
        let mut quotes = Vec::new();
        for user in [3, 3, 4, OWNER] {
            quotes.push(quote(world, user, "1-1").await);
        }
        let mut comments = Vec::new();
        for user in [2, 2, 5, OWNER] {
            comments.push(comment(world, user, "1-1").await);
        }
        let shown = ["comment 1-1 [5 2] 2 unread", "quote 1-1 [4 3] 2 unread", "repost 1-1 [2] 1 unread"];
        assert_eq!(shorts(world, &owner).await, shown);

        // A user in a block is out of all groups, and comes back into all.
        for (user, left) in [
            (2, &["comment 1-1 [5] 1 unread", "quote 1-1 [4 3] 2 unread"][..]),
            (3, &["comment 1-1 [5 2] 2 unread", "quote 1-1 [4] 1 unread", "repost 1-1 [2] 1 unread"]),
        ] {
            world.user(user).put("/v1/blocks/1").await.ok();
            assert_eq!(shorts(world, &owner).await, left);
            world.user(user).delete("/v1/blocks/1").await.ok();
            assert_eq!(shorts(world, &owner).await, shown);
        }
        // One of a user's two acts still stands.
        let delete = async |user: u64, path: &str| assert_eq!(world.user(user).delete(path).await.status, 204, "{path}");
        delete(3, &format!("/v1/posts/{}", quotes[0])).await;
        delete(2, &comments[0]).await;
        assert_eq!(shorts(world, &owner).await, shown);
        delete(3, &format!("/v1/posts/{}", quotes[1])).await;
        delete(2, &comments[1]).await;
        world.user(2).delete("/v1/posts/1-1/repost").await.ok();
        assert_eq!(shorts(world, &owner).await, ["comment 1-1 [5] 1 unread", "quote 1-1 [4] 1 unread"]);
        delete(OWNER, "/v1/posts/1-1").await;
        assert!(groups(world, &owner).await.is_empty(), "a deleted post has no acts");
    });
}

#[test]
fn many_quotes_and_comments_are_counted_by_user_without_those_in_a_block() {
    world(async |world| {
        let owner = world.user(OWNER);
        owner.publish("one").await;
        let mut last = (String::new(), String::new());
        for user in [OWNER].into_iter().chain(100..120).chain([119]) {
            last = (quote(world, user, "1-1").await, comment(world, user, "1-1").await);
        }
        let shown = |kind: &str, users: &str, count: u64| format!("{kind} 1-1 [{users}] {count} unread");
        let both = |users: &str, count: u64| ["comment", "quote"].map(|kind| shown(kind, users, count));
        assert_eq!(shorts(world, &owner).await, both("119 118 117", 20));
        for user in [100, 118] {
            owner.put(&format!("/v1/blocks/{user}")).await.ok();
        }
        assert_eq!(shorts(world, &owner).await, both("119 117 116", 18));
        owner.delete("/v1/blocks/118").await.ok();
        assert_eq!(shorts(world, &owner).await, both("119 118 117", 19));
        world.user(119).delete(&format!("/v1/posts/{}", last.0)).await;
        world.user(119).delete(&last.1).await;
        let mut found = shorts(world, &owner).await;
        found.sort();
        assert_eq!(found, both("119 118 117", 19), "119 has another of each");
    });
}

#[test]
fn a_group_is_read_until_a_later_act_and_read_again_when_that_is_taken_back() {
    world(async |world| {
        let owner = world.user(OWNER);
        owner.publish("one").await;
        like(world, 2, "1-1").await;
        world.user(2).put("/v1/following/1").await.ok();
        let found = groups(world, &owner).await;
        let ids = texts(&found, "id");
        let path = |id: &str| format!("/v1/inbox/{id}/read");
        for _ in 0..2 {
            assert_eq!(owner.put(&path(&ids[1])).await.ok(), json!({ "unread": 1 }));
        }
        assert_eq!(shorts(world, &owner).await, ["follow - [2] 1 unread", "like 1-1 [2] 1 read"]);
        like(world, 3, "1-1").await;
        let found = groups(world, &owner).await;
        assert_eq!((short(&found[0]), &texts(&found, "id")[0]), ("like 1-1 [3 2] 2 unread".to_owned(), &ids[1]));
        world.user(3).delete("/v1/posts/1-1/like").await.ok();
        assert_eq!(shorts(world, &owner).await, ["follow - [2] 1 unread", "like 1-1 [2] 1 read"]);

        // A group that was emptied remembers when it was read.
        world.user(2).delete("/v1/posts/1-1/like").await.ok();
        assert_eq!(shorts(world, &owner).await, ["follow - [2] 1 unread"]);
        assert_eq!(owner.put(&path(&ids[1])).await.problem(), (404, "/problems/not-found"));
        like(world, 2, "1-1").await;
        assert_eq!(shorts(world, &owner).await, ["like 1-1 [2] 1 unread", "follow - [2] 1 unread"]);

        let latest = groups(world, &owner).await[1]["latest_at"].clone();
        for _ in 0..2 {
            let read = owner.post("/v1/inbox/reads", &json!({ "before": latest })).await;
            assert_eq!(read.ok(), json!({ "unread": 1 }), "later acts stay unread");
        }
        assert_eq!(
            owner.post("/v1/inbox/reads", &json!({ "before": "2099-01-01T00:00:00Z" })).await.ok(),
            json!({ "unread": 0 })
        );
        world.user(4).put("/v1/following/1").await.ok();
        like(world, 4, "1-1").await;
        assert_eq!(shorts(world, &owner).await, ["like 1-1 [4 2] 2 unread", "follow - [4 2] 2 unread"], "that meant now");
        let read = owner.post("/v1/inbox/reads", &json!({ "before": "2020-01-01T00:00:00Z" })).await;
        assert_eq!(read.ok(), json!({ "unread": 2 }), "it does not go back");
    });
}

#[test]
fn reads_of_the_inbox_are_done_once_for_a_key() {
    world(async |world| {
        let owner = world.user(OWNER);
        owner.publish("one").await;
        like(world, 2, "1-1").await;
        let id = texts(&groups(world, &owner).await, "id").remove(0);
        let key = [("idempotency-key", "k")];
        let all = r#"POST /v1/inbox/reads {"before": "2099-01-01T00:00:00Z"}"#.to_owned();
        for request in [format!("PUT /v1/inbox/{id}/read"), all] {
            like(world, 2, "1-1").await;
            let first = owner.request_with(&key, &request).await.ok();
            assert_eq!(first, json!({ "unread": 0 }));
            like(world, 3, "1-1").await;
            assert_eq!(shorts(world, &owner).await, ["like 1-1 [3 2] 2 unread"]);
            assert_eq!(owner.request_with(&key, &request).await.ok(), first);
            assert_eq!(shorts(world, &owner).await, ["like 1-1 [3 2] 2 unread"], "the repetition touches nothing");
            world.user(3).delete("/v1/posts/1-1/like").await.ok();
        }
        like(world, 2, "1-1").await;
        let other = owner.request_with(&key, "PUT /v1/inbox/request/read").await;
        assert_eq!(other.problem(), (422, "/problems/idempotency-key-reused"));
        let other = owner.request_with(&key, r#"POST /v1/inbox/reads {"before": "2098-01-01T00:00:00Z"}"#).await;
        assert_eq!(other.problem(), (422, "/problems/idempotency-key-reused"));
    });
}

#[test]
fn requests_of_the_inbox_refuse_what_they_do_not_know() {
    world(async |world| {
        let owner = world.user(OWNER);
        for (request, field) in [
            ("POST /v1/inbox/reads {}", "before"),
            (r#"POST /v1/inbox/reads {"before": null}"#, "before"),
            (r#"POST /v1/inbox/reads {"before": "yesterday"}"#, "before"),
            (r#"POST /v1/inbox/reads {"before": "2026-11-20T08:00:00Z", "all": true}"#, "all"),
            ("GET /v1/inbox?status=read", "status"),
            ("GET /v1/inbox?limit=101", "limit"),
            ("GET /v1/inbox?cursor=AgAAAAAAAAAH", "cursor"),
            ("GET /v1/inbox?kind=like", "kind"),
        ] {
            assert_eq!(owner.request(request).await.field(), field, "{request}");
        }
        for id in ["like-1", "request", "follow-20784", "nothing", "like-07"] {
            assert_eq!(owner.put(&format!("/v1/inbox/{id}/read")).await.problem(), (404, "/problems/not-found"), "{id}");
        }
        assert_eq!(world.stranger(None).get("/v1/inbox").await.status, 401);
    });
}

#[test]
fn a_request_and_its_acceptance_are_acts_of_both_sides() {
    world(async |world| {
        let (author, other) = (world.user(OWNER), world.user(OWNER + 1));
        for author in [&author, &other] {
            author.put_body("/v1/me/privacy", &json!({ "private": true })).await.ok();
        }
        for user in [7, 8] {
            world.user(user).follow([1, 2]).await;
        }
        assert_eq!(shorts(world, &author).await, ["request - [8 7] 2 unread"]);
        assert!(groups(world, &world.user(7)).await.is_empty());
        author.put("/v1/follow-requests/7").await.ok();
        other.put("/v1/follow-requests/7").await.ok();
        assert_eq!(shorts(world, &author).await, ["follow - [7] 1 unread", "request - [8] 1 unread"]);
        let accepted = groups(world, &world.user(7)).await;
        assert_eq!(accepted.iter().map(short).collect::<Vec<_>>(), ["accepted - [2 1] 2 unread"]);
        let relation = world.user(7).get("/v1/users/7/following").await.items().remove(0);
        assert_eq!((&relation["user"], &relation["since"]), (&json!("2"), &accepted[0]["latest_at"]));
        author.delete("/v1/follow-requests/8").await.ok();
        other.delete("/v1/followers/7").await.ok();
        assert_eq!(shorts(world, &author).await, ["follow - [7] 1 unread"]);
        assert_eq!(shorts(world, &world.user(7)).await, ["accepted - [1] 1 unread"]);

        // A follow of a public author is no acceptance, also if it ends a request.
        other.put_body("/v1/me/privacy", &json!({ "private": false })).await.ok();
        world.user(8).put("/v1/following/2").await.has(json!({ "following": true }));
        assert!(groups(world, &world.user(8)).await.is_empty());
        // A request that is withdrawn, and a follow of a private author that ends.
        world.user(9).put("/v1/following/1").await.has(json!({ "requested": true }));
        assert_eq!(shorts(world, &author).await, ["request - [9] 1 unread", "follow - [7] 1 unread"]);
        world.user(9).delete("/v1/following/1").await.ok();
        world.user(7).delete("/v1/following/1").await.ok();
        assert!(groups(world, &author).await.is_empty());
        assert!(groups(world, &world.user(7)).await.is_empty());
    });
}

#[test]
fn muted_users_make_nothing_unread_and_blocked_users_are_in_nothing() {
    world(async |world| {
        let owner = world.user(OWNER);
        owner.publish("one").await;
        like(world, 2, "1-1").await;
        like(world, 3, "1-1").await;
        world.user(3).put("/v1/following/1").await.ok();
        owner.put("/v1/mutes/3").await.ok();
        assert_eq!(shorts(world, &owner).await, ["follow - [3] 1 read", "like 1-1 [3 2] 2 unread"]);
        owner.put("/v1/mutes/2").await.ok();
        assert_eq!(shorts(world, &owner).await, ["follow - [3] 1 read", "like 1-1 [3 2] 2 read"]);
        like(world, 4, "1-1").await;
        assert_eq!(shorts(world, &owner).await, ["like 1-1 [4 3 2] 3 unread", "follow - [3] 1 read"]);
        for user in [2, 3] {
            owner.delete(&format!("/v1/mutes/{user}")).await.ok();
        }
        assert_eq!(shorts(world, &owner).await, ["like 1-1 [4 3 2] 3 unread", "follow - [3] 1 unread"]);

        owner.post("/v1/inbox/reads", &json!({ "before": "2099-01-01T00:00:00Z" })).await.ok();
        // A block ends the follow for good. Acts of before it come back with its end, as they were.
        for (blocker, blocked) in [(OWNER, 3), (3, OWNER)] {
            let (blocker, path) = (world.user(blocker), format!("/v1/blocks/{blocked}"));
            blocker.put(&path).await.ok();
            assert_eq!(shorts(world, &owner).await, ["like 1-1 [4 2] 2 read"]);
            blocker.delete(&path).await.ok();
            assert_eq!(shorts(world, &owner).await, ["like 1-1 [4 3 2] 3 read"]);
        }
        for user in [2, 3, 4] {
            world.user(user).put("/v1/blocks/1").await.ok();
        }
        assert!(groups(world, &owner).await.is_empty());
        world.user(2).delete("/v1/blocks/1").await.ok();
        assert_eq!(shorts(world, &owner).await, ["like 1-1 [2] 1 read"]);
        // The blocked user takes a like back.
        world.user(3).delete("/v1/blocks/1").await.ok();
        owner.put("/v1/blocks/3").await.ok();
        world.user(3).delete("/v1/posts/1-1/like").await;
        owner.delete("/v1/blocks/3").await.ok();
        world.idle().await;
        let likers = owner.walk("/v1/posts/1-1/likes", 9).await.len();
        assert_eq!(groups(world, &owner).await[0]["count"], likers);
    });
}

#[test]
fn many_likers_are_counted_without_those_in_a_block() {
    world(async |world| {
        let owner = world.user(OWNER);
        owner.publish("one").await;
        for user in 2..=31 {
            like(world, user, "1-1").await;
        }
        like(world, OWNER, "1-1").await;
        assert_eq!(shorts(world, &owner).await, ["like 1-1 [31 30 29] 30 unread"]);
        owner.put("/v1/blocks/31").await.ok();
        owner.put("/v1/blocks/2").await.ok();
        world.user(3).put("/v1/blocks/1").await.ok();
        assert_eq!(shorts(world, &owner).await, ["like 1-1 [30 29 28] 27 unread"], "old likers too");
        world.user(4).delete("/v1/posts/1-1/like").await.ok();
        world.user(32).put("/v1/posts/1-1/like").await.ok();
        assert_eq!(shorts(world, &owner).await, ["like 1-1 [32 30 29] 27 unread"], "the group remembers whom it leaves out");
        world.user(3).delete("/v1/blocks/1").await.ok();
        owner.delete("/v1/blocks/31").await.ok();
        assert_eq!(shorts(world, &owner).await, ["like 1-1 [32 31 30] 29 unread"]);
        // All of the newest are muted.
        for user in 10..=32 {
            owner.put(&format!("/v1/mutes/{user}")).await.ok();
        }
        let latest = groups(world, &owner).await[0]["latest_at"].clone();
        owner.post("/v1/inbox/reads", &json!({ "before": latest })).await.ok();
        owner.put("/v1/mutes/40").await.ok();
        like(world, 40, "1-1").await;
        assert_eq!(shorts(world, &owner).await, ["like 1-1 [40 32 31] 30 read"]);
        like(world, 41, "1-1").await;
        assert_eq!(shorts(world, &owner).await, ["like 1-1 [41 40 32] 31 unread"]);
    });
}

#[test]
fn an_inbox_lasts_ninety_days_and_has_a_group_for_each_day() {
    world(async |world| {
        let owner = world.user(OWNER);
        let app = world.stack.app("migrate").unwrap();
        let now = app.stores.clock.now();
        let follow = |user, days_ago: u64| {
            let at = Timestamp::from_ms(now.ms() - days_ago * DAY);
            let follow = NewFollow { author: user_id(OWNER), since: at, base: 0, floor: 0, preference: 0, accepted: false };
            async move {
                app.stores.facts.make_follows(user_id(user), vec![follow], now, Kind::Imported).await.unwrap();
            }
        };
        for (user, days_ago) in [(2, 0), (3, 1), (4, 1), (5, 89), (6, 91)] {
            follow(user, days_ago).await;
        }
        let found = groups(world, &owner).await;
        let expected = ["follow - [2] 1 unread", "follow - [4 3] 2 unread", "follow - [5] 1 unread"];
        // Both follows of one day have the same time.
        assert_eq!(found.iter().map(short).collect::<Vec<_>>(), expected);
        assert_eq!(owner.walk("/v1/inbox", 1).await.len(), 3);
        // The time of the newest act decides, whatever else is stored.
        let id = found[2]["id"].as_str().unwrap().parse().unwrap();
        let old = now.ms() - 91 * DAY;
        world.update_item("InboxTable", schema::group(user_id(OWNER), id), &[("latest_at", n(old))], &[]).await;
        assert_eq!(owner.walk("/v1/inbox", 9).await.len(), 2);
    });
}

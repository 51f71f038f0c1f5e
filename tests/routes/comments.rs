//! `POST`, `GET /v1/posts/{post}/comments` and `DELETE …/comments/{number}`.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tidemark_local::{Fault, FaultAction};
use tidemark_tests::{User, World, items::n, texts, until, user_id, world};

const COMMENTS: &str = "/v1/posts/10-1/comments";

async fn comment(user: &User, post: &str, text: &str) -> Value {
    user.post(&format!("/v1/posts/{post}/comments"), &json!({ "text": text })).await.ok()
}

/// The numbers of the comments on post 10-1, as this caller's pages list them.
async fn numbers(caller: &User, query: &str, limit: usize) -> Vec<u64> {
    let items = caller.walk(&format!("{COMMENTS}{query}"), limit).await;
    texts(&items, "id").iter().map(|id| id.strip_prefix("10-1-").unwrap().parse().unwrap()).collect()
}

/// Asserts that every place agrees on the number of comments on post 10-1, for a caller without blocks.
async fn assert_count(caller: &User, count: u64) {
    let pages = caller.pages(COMMENTS, 7).await;
    assert_eq!(pages.iter().map(|page| page["items"].as_array().unwrap().len() as u64).sum::<u64>(), count);
    assert!(pages.iter().all(|page| page["total"] == count), "{pages:?}");
    caller.get("/v1/posts/10-1").await.has(json!({ "comments": count }));
    caller.get("/v1/posts?post=10-1").await.has(json!({ "items": [{ "comments": count }] }));
    for include in ["counts", "body"] {
        let timeline = format!("/v1/authors/10/posts?include={include}");
        let items = caller.get(&timeline).await.items();
        assert!(items.iter().any(|item| item["id"] == "10-1" && item["comments"] == count), "{items:?}");
    }
}

#[test]
fn comments_are_numbered_from_1_and_pages_have_them_from_both_ends() {
    world(async |world| {
        let (author, reader) = (world.user(10), world.user(5));
        author.publish("one").await;
        reader.follow([10]).await;
        world.idle().await;
        reader.get(COMMENTS).await.has(json!({ "items": [], "next_cursor": null, "total": 0 }));
        assert_count(&reader, 0).await;
        let response = world.user(2).post(COMMENTS, &json!({ "text": "first ✓" })).await;
        assert_eq!((response.status, response.header("location")), (201, Some("/v1/posts/10-1/comments/1")));
        let first = response.ok();
        assert_eq!(
            first,
            json!({ "id": "10-1-1", "post": "10-1", "author": "2", "text": "first ✓", "created_at": first["created_at"] })
        );
        // More than two blocks of numbers.
        for number in 2..=140 {
            let stands = comment(&world.user(2 + number % 7), "10-1", &format!("comment {number}")).await;
            assert_eq!(stands["id"], format!("10-1-{number}"));
        }
        for limit in [1, 7, 63, 64, 65, 100] {
            let newest = numbers(&reader, "", limit).await;
            assert_eq!(newest, (1..=140).rev().collect::<Vec<_>>(), "limit {limit}");
            assert_eq!(numbers(&reader, "?order=newest", limit).await, newest);
            assert_eq!(numbers(&reader, "?order=oldest", limit).await, (1..=140).collect::<Vec<_>>(), "limit {limit}");
        }
        let page = reader.get(&format!("{COMMENTS}?order=oldest&limit=1")).await;
        assert!(page.header("link").is_some_and(|link| link.contains("order=oldest") && link.ends_with("rel=\"next\"")));
        assert_eq!(page.ok()["items"], json!([first]));
        assert_count(&reader, 140).await;
        reader.get("/v1/feed?include=counts").await.has(json!({ "items": [{ "comments": 140, "likes": 0 }] }));
    });
}

#[test]
fn a_withdrawn_comment_leaves_lists_and_counts_and_its_number_is_not_given_again() {
    world(async |world| {
        let (author, reader) = (world.user(10), world.user(5));
        author.publish("one").await;
        for user in [2, 3, 4, 4, 4] {
            comment(&world.user(user), "10-1", "text").await;
        }
        let of = |number: u64| format!("{COMMENTS}/{number}");
        // Its author, the author of the post, and a moderator; also repeatedly.
        let moderator = world.stranger(Some("7 posts:moderate"));
        for (caller, number) in [(&world.user(2), 1), (&author, 2), (&moderator, 3)] {
            for _ in 0..2 {
                assert_eq!(caller.delete(&of(number)).await.status, 204);
            }
            assert_eq!(reader.delete(&of(number)).await.problem(), (403, "/problems/forbidden"), "a stranger");
        }
        assert_eq!(world.user(4).delete(&of(3)).await.status, 204, "its author, after the moderator");
        assert_eq!(reader.delete(&of(4)).await.problem(), (403, "/problems/forbidden"));
        for unknown in [of(6), "/v1/posts/10-2/comments/1".to_owned(), "/v1/posts/11-1/comments/1".to_owned()] {
            for caller in [&reader, &author, &moderator] {
                assert_eq!(caller.delete(&unknown).await.problem(), (404, "/problems/not-found"), "{unknown}");
            }
        }
        assert_eq!(numbers(&reader, "", 1).await, [5, 4]);
        assert_count(&reader, 2).await;
        assert_eq!(comment(&world.user(2), "10-1", "again").await["id"], "10-1-6");
        for number in 4..=6 {
            author.delete(&of(number)).await.ok();
        }
        assert_count(&reader, 0).await;
        assert_eq!(comment(&world.user(2), "10-1", "again").await["id"], "10-1-7");
        assert_eq!((numbers(&reader, "", 1).await, numbers(&reader, "?order=oldest", 1).await), (vec![7], vec![7]));
    });
}

#[test]
fn a_comment_is_withdrawn_although_its_post_is_no_longer_seen() {
    world(async |world| {
        let (author, commenter) = (world.user(10), world.user(2));
        author.publish_all(["one", "two", "three"]).await;
        for post in ["10-1", "10-2", "10-3"] {
            comment(&commenter, post, "text").await;
            comment(&world.user(3), post, "text").await;
        }
        author.delete("/v1/posts/10-1").await.ok();
        commenter.delete("/v1/posts/10-1/comments/1").await.ok();
        author.put("/v1/blocks/2").await.ok();
        commenter.delete("/v1/posts/10-2/comments/1").await.ok();
        author.put_body("/v1/me/privacy", &json!({ "private": true })).await.ok();
        commenter.delete("/v1/posts/10-3/comments/1").await.ok();
        // The comment of another user, or none: a stranger to a private author does not learn which.
        for number in [2, 9] {
            let refused = commenter.delete(&format!("/v1/posts/10-3/comments/{number}")).await;
            assert_eq!(refused.problem(), (403, "/problems/forbidden"));
        }
        author.delete("/v1/posts/10-1/comments/2").await.ok();
        author.get("/v1/posts/10-3/comments").await.has(json!({ "items": [{ "id": "10-3-2" }], "total": 1 }));
    });
}

#[test]
fn comments_of_users_in_a_block_with_the_caller_are_left_out_of_list_and_total() {
    world(async |world| {
        let author = world.user(10);
        author.publish("one").await;
        let caller = world.user(101);
        for user in [101, 102, 103, 102, 104, 103, 105, 102] {
            comment(&world.user(user), "10-1", "text").await;
        }
        let assert_lists = async |caller: &User, expected: &[u64]| {
            for limit in [1, 2, 100] {
                let pages = caller.pages(COMMENTS, limit).await;
                let items = pages.iter().flat_map(|page| page["items"].as_array().unwrap());
                let listed: Vec<u64> = items.map(|item| item["id"].as_str().unwrap()[5..].parse().unwrap()).collect();
                assert_eq!(listed, expected, "limit {limit}");
                assert!(pages.iter().all(|page| page["total"] == expected.len()), "{pages:?}");
            }
            caller.get("/v1/posts/10-1").await.has(json!({ "comments": 8 }));
        };
        assert_lists(&caller, &[8, 7, 6, 5, 4, 3, 2, 1]).await;
        caller.put("/v1/blocks/102").await.ok();
        assert_lists(&caller, &[7, 6, 5, 3, 1]).await;
        world.user(103).put("/v1/blocks/101").await.ok();
        assert_lists(&caller, &[7, 5, 1]).await;
        assert_lists(&world.user(102), &[8, 7, 6, 5, 4, 3, 2]).await;
        assert_lists(&world.user(103), &[8, 7, 6, 5, 4, 3, 2]).await;
        assert_lists(&world.user(104), &[8, 7, 6, 5, 4, 3, 2, 1]).await;
        // Both block each other: one end does not show them again.
        world.user(102).put("/v1/blocks/101").await.ok();
        caller.delete("/v1/blocks/102").await.ok();
        assert_lists(&caller, &[7, 5, 1]).await;
        world.user(102).delete("/v1/blocks/101").await.ok();
        assert_lists(&caller, &[8, 7, 5, 4, 2, 1]).await;
        // More users in a block than the post has comments: the total comes from the other side.
        for other in 201..=230 {
            world.user(other).put("/v1/blocks/101").await.ok();
        }
        assert_lists(&caller, &[8, 7, 5, 4, 2, 1]).await;
    });
}

#[test]
fn a_repeated_comment_with_a_key_is_one_comment_on_each_post() {
    world(async |world| {
        let (author, commenter) = (world.user(10), world.user(2));
        author.publish_all(["one", "two"]).await;
        let body = json!({ "text": "once" });
        let first = commenter.post_with_key(COMMENTS, "key", &body).await;
        let location = first.header("location").map(str::to_owned);
        let first = first.ok();
        comment(&commenter, "10-1", "in between").await;
        for _ in 0..3 {
            let again = commenter.post_with_key(COMMENTS, "key", &body).await;
            assert_eq!((again.status, again.header("location")), (201, location.as_deref()));
            assert_eq!(again.ok(), first);
        }
        for (path, body) in [(COMMENTS, json!({ "text": "other" })), ("/v1/posts/10-2/comments", body.clone())] {
            let reused = commenter.post_with_key(path, "key", &body).await;
            assert_eq!(reused.problem(), (422, "/problems/idempotency-key-reused"));
        }
        assert_eq!(world.user(3).post_with_key(COMMENTS, "key", &body).await.ok()["id"], "10-1-3", "a key is of one user");
        let many = stream::iter(0..16).map(async |_| commenter.post_with_key(COMMENTS, "at once", &body).await.ok());
        let ids: BTreeSet<String> = texts(&many.buffer_unordered(16).collect::<Vec<_>>().await, "id").into_iter().collect();
        assert_eq!(ids.len(), 1, "{ids:?}");
        assert_count(&author, 4).await;
        let repost = world.user(3).put("/v1/posts/10-2/repost").await.ok()["post"].as_str().unwrap().to_owned();
        let through = format!("/v1/posts/{repost}/comments");
        let of_original = commenter.post_with_key(&through, "through", &body).await.ok();
        assert_eq!(of_original["post"], "10-2");
        world.user(3).put("/v1/blocks/2").await.ok();
        assert_eq!(commenter.post_with_key(&through, "through", &body).await.ok(), of_original);
        // The first response again, whatever became of comment and post.
        commenter.delete(&format!("{COMMENTS}/1")).await.ok();
        author.delete("/v1/posts/10-1").await.ok();
        author.put("/v1/blocks/2").await.ok();
        assert_eq!(commenter.post_with_key(COMMENTS, "key", &body).await.ok(), first);
    });
}

/// The process dies after it has a number, and before it writes the comment.
#[test]
fn a_repetition_after_a_killed_process_uses_the_same_number() {
    world(async |world| {
        world.user(10).publish("one").await;
        world.stack.faults().add(Fault::new("PutItem", FaultAction::Kill).of("publish").on("IdempotencyTable"));
        let body = json!({ "text": "killed" });
        let first = world.user(2).post_with_key(COMMENTS, "key", &body).await;
        assert!(first.status >= 500, "{first:?}");
        assert_eq!(comment(&world.user(3), "10-1", "text").await["id"], "10-1-2");
        assert_eq!(world.user(2).post_with_key(COMMENTS, "key", &body).await.ok()["id"], "10-1-1");
        assert_eq!(numbers(&world.user(5), "", 100).await, [2, 1]);
        assert_count(&world.user(5), 2).await;
    });
}

#[test]
fn comments_at_once_have_numbers_without_gaps_and_doubles() {
    world(async |world| {
        world.user(10).publish("one").await;
        let users = stream::iter(100..400_u64).map(async |user| comment(&world.user(user), "10-1", &user.to_string()).await);
        let given = users.buffer_unordered(32).collect::<Vec<_>>().await;
        let given: BTreeSet<u64> = texts(&given, "id").iter().map(|id| id[5..].parse().unwrap()).collect();
        assert_eq!(given, (1..=300).collect());
        let items = world.user(5).walk(COMMENTS, 100).await;
        assert_eq!(texts(&items, "text").into_iter().collect::<BTreeSet<_>>().len(), 300);
        assert_count(&world.user(5), 300).await;
    });
}

/// A request that ends after it got its number leaves a gap. A page that shows the gap frees the number, and the next
/// comment takes it.
#[test]
fn a_number_of_a_request_that_has_ended_is_given_to_a_later_comment() {
    world(async |world| {
        let (author, reader) = (world.user(10), world.user(5));
        author.publish("one").await;
        let facts = &world.stack.app("publish").unwrap().stores.facts;
        let (post, now) = ("10-1".parse().unwrap(), tidemark::domain::Timestamp::default());
        for _ in 0..3 {
            let known = facts.comment_numbers(&[post]).await.unwrap().remove(&post).unwrap_or_default();
            facts.give_number(post, &known, now).await.unwrap();
            comment(&reader, "10-1", "text").await;
        }
        facts.give_number(post, &Default::default(), now).await.unwrap();
        assert_eq!(numbers(&reader, "", 100).await, [6, 4, 2]);
        assert_count(&reader, 3).await;
        // The last number is old now. The gaps below are as old as the comments above them.
        let left = until_free(facts, &reader, post, &[1, 3, 5, 7]).await;
        for _ in 0..left {
            comment(&reader, "10-1", "text").await;
        }
        assert_eq!(numbers(&reader, "?order=oldest", 100).await, [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(comment(&reader, "10-1", "text").await["id"], "10-1-8");
        assert_count(&reader, 8).await;
    });
}

async fn until_free(facts: &tidemark::facts::Facts, reader: &User, post: tidemark::domain::PostId, expected: &[u64]) -> usize {
    until("the numbers are free", async || {
        numbers(reader, "", 3).await;
        let free = facts.comment_numbers(&[post]).await.unwrap().remove(&post).unwrap().free;
        free.iter().copied().collect::<BTreeSet<_>>() == expected.iter().copied().collect()
    })
    .await;
    expected.len()
}

#[test]
fn comments_are_refused_to_those_who_may_not_see_or_react() {
    world(async |world| {
        let (author, reader) = (world.user(10), world.user(5));
        author.publish_all(["one", "two"]).await;
        comment(&reader, "10-2", "text").await;
        author.delete("/v1/posts/10-2").await.ok();
        let (body, path) = (json!({ "text": "text" }), |post: &str| format!("/v1/posts/{post}/comments"));
        for post in ["10-2", "10-3", "11-1"] {
            assert_eq!(reader.get(&path(post)).await.problem(), (404, "/problems/not-found"));
            assert_eq!(reader.post(&path(post), &body).await.problem(), (404, "/problems/not-found"));
        }
        assert_eq!(world.stranger(None).post(COMMENTS, &body).await.refusal(), (401, "Unauthorized"));
        reader.put("/v1/blocks/10").await.ok();
        assert_eq!(reader.post(COMMENTS, &body).await.problem(), (403, "/problems/blocked"), "the commenter blocks");
        reader.get(COMMENTS).await.has(json!({ "total": 0 }));
        reader.delete("/v1/blocks/10").await.ok();
        author.put("/v1/blocks/5").await.ok();
        for response in [reader.get(COMMENTS).await, reader.post(COMMENTS, &body).await] {
            assert_eq!(response.problem(), (403, "/problems/blocked"));
        }
        author.put_body("/v1/me/privacy", &json!({ "private": true })).await.ok();
        for (user, problem) in [(5, "/problems/blocked"), (6, "/problems/private")] {
            for post in ["10-1", "10-2", "10-9"] {
                for response in [world.user(user).get(&path(post)).await, world.user(user).post(&path(post), &body).await] {
                    assert_eq!(response.problem(), (403, problem));
                }
            }
        }
        world.stranger(Some("6 posts:moderate")).get(COMMENTS).await.has(json!({ "total": 0 }));
        comment(&author, "10-1", "my own").await;
    });
}

#[test]
fn requests_that_are_wrong_are_refused_by_field() {
    world(async |world| {
        let user = world.user(10);
        user.publish("one").await;
        let (longest, longer) = ("ä".repeat(2_000), "ä".repeat(2_001));
        assert_eq!(comment(&user, "10-1", &longest).await["text"], longest);
        for (body, field) in [
            (json!({}), "text"),
            (json!({ "text": "" }), "text"),
            (json!({ "text": longer }), "text"),
            (json!({ "text": 7 }), "text"),
            (json!({ "text": "a", "title": "b" }), "title"),
        ] {
            assert_eq!(user.post(COMMENTS, &body).await.field(), field);
        }
        for (path, field) in [
            ("?limit=0", "limit"),
            ("?limit=101", "limit"),
            ("?order=time", "order"),
            ("?cursor=AgAAAAAAAAAH", "cursor"),
            ("?status=all", "status"),
        ] {
            assert_eq!(user.get(&format!("{COMMENTS}{path}")).await.field(), field);
        }
        for number in ["0", "01", "x", "-1", "9007199254740992"] {
            assert_eq!(user.delete(&format!("{COMMENTS}/{number}")).await.field(), "number");
        }
        assert_eq!(user.get(&format!("{COMMENTS}/1")).await.status, 405);
        assert_eq!(user.delete("/v1/posts/10/comments/1").await.field(), "post");
    });
}

#[test]
fn a_page_of_comments_has_profiles_and_needs_no_redis() {
    world(async |world| {
        let (author, commenter) = (world.user(10), world.user(2));
        author.publish("one").await;
        commenter.put_body("/v1/me/profile", &json!({ "name": "Grace" })).await.ok();
        comment(&commenter, "10-1", "text").await;
        let card = json!({ "2": { "name": "Grace", "handle": null, "picture": null } });
        author.get(COMMENTS).await.has(json!({ "profiles": card }));
        assert_eq!(author.get(&format!("{COMMENTS}?profiles=false")).await.ok().get("profiles"), None);
        world.stack.stop_redis(tidemark_local::RedisData::Lose).await.unwrap();
        let response = author.get(COMMENTS).await;
        assert_eq!(response.header("degraded"), Some("redis"));
        response.has(json!({ "profiles": card, "total": 1 }));
        assert_eq!(comment(&commenter, "10-1", "without Redis").await["id"], "10-1-2");
        author.get("/v1/posts/10-1").await.has(json!({ "comments": 2 }));
        world.stack.start_redis().await.unwrap();
    });
}

#[test]
fn a_commenter_who_leaves_takes_the_comments_out_and_an_author_takes_all() {
    world(async |world| {
        let (author, reader) = (world.user(10), world.user(5));
        author.publish_all(["one", "two"]).await;
        for number in 0..70 {
            comment(&world.user(2 + number % 3), "10-1", &format!("comment {number}")).await;
        }
        comment(&world.user(3), "10-2", "elsewhere").await;
        world.user(3).delete(&format!("{COMMENTS}/2")).await.ok();
        world.user(3).delete("/v1/me").await.ok();
        until("the comments are gone", async || numbers(&reader, "", 100).await.len() == 47).await;
        world.idle().await;
        assert_count(&reader, 47).await;
        assert!(texts(&reader.walk(COMMENTS, 100).await, "author").iter().all(|author| author != "3"));
        let removed = world.user(3).get("/v1/me/erasure").await.ok();
        assert_eq!((&removed["state"], &removed["removed"]["comments"]), (&json!("done"), &json!(23)));
        assert_eq!(reader.delete(&format!("{COMMENTS}/2")).await.problem(), (403, "/problems/forbidden"));
        author.delete(&format!("{COMMENTS}/2")).await.ok();
        author.get("/v1/posts/10-2/comments").await.has(json!({ "items": [], "total": 0 }));

        author.delete("/v1/me").await.ok();
        world.idle().await;
        assert_eq!(reader.get(COMMENTS).await.problem(), (404, "/problems/not-found"));
        let facts = &world.stack.app("publish").unwrap().stores.facts;
        let posts = ["10-1".parse().unwrap(), "10-2".parse().unwrap()];
        assert!(facts.comment_numbers(&posts).await.unwrap().is_empty());
        assert!(!facts.has_commenters(user_id(10)).await.unwrap());
        for post in posts {
            assert_eq!(facts.comments_between(post, 1..=128).await.unwrap(), []);
            assert_eq!(facts.comment_count(post, 64).await.unwrap(), (0, 0));
        }
        let export = world.user(2).walk("/v1/me/export", 100).await;
        assert!(export.iter().all(|item| item["kind"] != "comment"), "{export:?}");
    });
}

#[test]
fn the_export_has_the_comments_that_stand() {
    world(async |world| {
        let commenter = world.user(2);
        world.user(10).publish("one").await;
        for number in 1..=9 {
            comment(&commenter, "10-1", &format!("comment {number}")).await;
        }
        commenter.delete(&format!("{COMMENTS}/4")).await.ok();
        for limit in [1, 2, 100] {
            let items = commenter.walk("/v1/me/export", limit).await;
            let comments: Vec<&Value> = items.iter().filter(|item| item["kind"] == "comment").collect();
            let ids: BTreeSet<String> = texts(comments.iter().copied(), "id").into_iter().collect();
            assert_eq!((comments.len(), ids.len(), ids.contains("10-1-4")), (8, 8, false), "limit {limit}");
            let first = comments.iter().find(|comment| comment["id"] == "10-1-1").unwrap();
            assert_eq!((&first["post"], &first["text"]), (&json!("10-1"), &json!("comment 1")));
        }
    });
}

#[test]
fn comments_take_tokens_of_posts() {
    tidemark_tests::world_with(tidemark_tests::request_limits([3, 0, 0, 0, 0]), async |world: &World| {
        let user = world.user(10);
        user.publish("one").await;
        comment(&user, "10-1", "text").await;
        user.delete(&format!("{COMMENTS}/1")).await.ok();
        let refused = user.post(COMMENTS, &json!({ "text": "text" })).await;
        assert_eq!(refused.problem(), (429, "/problems/too-many-requests"));
        user.get(COMMENTS).await.ok();
    });
}

/// The item of the numbers can be lost: then numbers begin again, and skip those that are taken.
#[test]
fn numbers_that_are_taken_are_skipped() {
    world(async |world| {
        let user = world.user(10);
        user.publish("one").await;
        for _ in 0..5 {
            comment(&user, "10-1", "text").await;
        }
        let key = tidemark::facts::schema::comment_numbers("10-1".parse().unwrap());
        world.update_item("CountersTable", key, &[("last_number", n(2))], &[]).await;
        assert_eq!(comment(&user, "10-1", "text").await["id"], "10-1-6");
        assert_count(&user, 6).await;
    });
}

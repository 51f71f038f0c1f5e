//! Facts that contradict each other, and interrupted fan-outs and retractions.

use aws_sdk_dynamodb::types::AttributeValue;
use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark::{
    domain::{CommentId, Edge, Erasure, FanOutKind, Post, PostId, Reaction, Relation, UserId},
    facts::{Deleted, Look, schema},
    queue::{FanOut, Task},
    views::keys,
};
use tidemark_tests::items::{Item, n, s};

use super::{Damage, GROUP, Scene, scene::seqs, views::of_author};
use crate::delivery::publish_in_facts;

/// Publishes a post. The function dies after the transaction.
pub(super) async fn publish(scene: &Scene<'_>, followers: u64) -> (Post, FanOut) {
    publish_in_facts(scene.app, scene.author, followers, scene.now()).await
}

/// The reader asks the stranger, who becomes private.
async fn ask(scene: &Scene<'_>) -> (UserId, UserId) {
    scene.caller(scene.stranger).put_body("/v1/me/privacy", &json!({ "private": true })).await.ok();
    scene.caller(scene.reader).follow([scene.stranger]).await;
    (scene.reader, scene.stranger)
}

/// The reader reposts a post of the author. Returns the repost, and the key of its entry in the list of the post.
async fn repost(scene: &Scene<'_>) -> (Post, Item) {
    let reposted = scene.caller(scene.reader).put(&format!("/v1/posts/{}/repost", scene.post(2))).await.ok();
    let repost = scene.fact(reposted["post"].as_str().unwrap().parse().unwrap()).await;
    let listed = schema::reposter(scene.post(2), Relation { since: repost.created_at, user: scene.reader });
    (repost, listed)
}

/// A quote of post 2 by the reader, and its entry in the list of the post.
async fn quote(scene: &Scene<'_>) -> (Post, Item) {
    let new = json!({ "title": "see", "of": scene.post(2) });
    let quoted = scene.caller(scene.reader).post("/v1/posts", &new).await.ok();
    let quote = scene.fact(quoted["id"].as_str().unwrap().parse().unwrap()).await;
    let by = Relation { since: quote.created_at, user: scene.reader };
    (quote.clone(), schema::quoter(scene.post(2), by, quote.id.seq))
}

pub(super) const ALL: &[Damage] = &[
    ("an edge that the author does not list", &async |scene: &Scene| {
        scene.world.delete_item("FollowersTable", schema::follower(scene.author, scene.reader)).await;
        json!({ "kind": "follower-missing", "user": scene.reader, "author": scene.author })
    }),
    ("a follower who does not follow", &async |scene: &Scene| {
        let since = s(schema::follower_since(scene.stranger, scene.now()));
        scene.put("FollowersTable", schema::follower(scene.author, scene.stranger), &[("since", since)]).await;
        json!({ "kind": "follower-ghost", "user": scene.stranger, "author": scene.author })
    }),
    ("a follower listed with another time", &async |scene: &Scene| {
        let since = s(schema::follower_since(scene.follower, scene.now().plus_ms(1_000)));
        scene.set("FollowersTable", schema::follower(scene.author, scene.follower), &[("since", since)]).await;
        json!({ "kind": "follower-since", "user": scene.follower, "author": scene.author })
    }),
    ("a request that the author does not list", &async |scene: &Scene| {
        let (user, author) = ask(scene).await;
        let [by_author, _] = schema::requests(user, author);
        scene.world.delete_item("FollowersTable", by_author).await;
        json!({ "kind": "request-missing", "user": user, "author": author })
    }),
    ("a request that its user does not list", &async |scene: &Scene| {
        let (user, author) = ask(scene).await;
        let [_, by_user] = schema::requests(user, author);
        scene.world.delete_item("FollowersTable", by_user).await;
        json!({ "kind": "request-missing", "user": user, "author": author })
    }),
    ("an author lists a request that does not exist", &async |scene: &Scene| {
        let [by_author, _] = schema::request_items(scene.stranger, scene.author, scene.now());
        scene.world.put_item("FollowersTable", by_author).await;
        json!({ "kind": "request-ghost", "user": scene.stranger, "author": scene.author })
    }),
    ("a user lists a request that does not exist", &async |scene: &Scene| {
        let [_, by_user] = schema::request_items(scene.follower, scene.other, scene.now());
        scene.world.put_item("FollowersTable", by_user).await;
        json!({ "kind": "request-ghost", "user": scene.follower, "author": scene.other })
    }),
    ("a request beside a follow", &async |scene: &Scene| {
        scene.set("FollowingTable", schema::edge(scene.follower, scene.author), &[("requested_at", n(5))]).await;
        json!({ "kind": "request-beside", "user": scene.follower, "author": scene.author })
    }),
    ("a user's requests counted too high", &async |scene: &Scene| {
        scene.set("CountersTable", schema::followings_counter(scene.reader), &[("requests", n(3))]).await;
        json!({ "kind": "requests-count", "user": scene.reader, "seen": 3, "right": 0 })
    }),
    ("an author's requests counted too high", &async |scene: &Scene| {
        let (author, shard) = (scene.author, scene.follower.shard());
        scene.set("CountersTable", schema::followers_counter(author, shard), &[("requests", n(3))]).await;
        json!({ "kind": "requests-count", "author": author, "shard": shard, "seen": 3, "right": 0 })
    }),
    ("half an unfollow: without the edge, with the list and both counts", &async |scene: &Scene| {
        let (user, author) = (scene.follower, scene.author);
        // The user has no edge any more. The walk finds the user by a key in Redis.
        scene.counters(user).await;
        scene.world.delete_item("FollowingTable", schema::edge(user, author)).await;
        let (shard, seen) = (user.shard(), followers_of(scene, user.shard()));
        json!([
            { "kind": "follower-ghost", "user": user, "author": author },
            { "kind": "followings-count", "user": user, "seen": 1, "right": 0 },
            { "kind": "followers-count", "author": author, "shard": shard, "seen": seen, "right": seen - 1 },
        ])
    }),
    ("followings counted too high", &async |scene: &Scene| {
        scene.set("CountersTable", schema::followings_counter(scene.reader), &[("count", n(4))]).await;
        json!({ "kind": "followings-count", "user": scene.reader, "seen": 4, "right": 2 })
    }),
    ("followers counted too high", &async |scene: &Scene| {
        let (author, shard) = (scene.author, scene.follower.shard());
        scene.set("CountersTable", schema::followers_counter(author, shard), &[("count", n(7))]).await;
        json!({ "kind": "followers-count", "author": author, "shard": shard, "seen": 7, "right": followers_of(scene, shard) })
    }),
    ("followers counted too high in a part of a split counter", &async |scene: &Scene| {
        let (author, shard) = (scene.author, scene.follower.shard());
        scene.set("CountersTable", schema::followers_counter(author, shard), &[("parts", n(4))]).await;
        scene.put("CountersTable", schema::followers_part(author, shard, 2), &[("count", n(3))]).await;
        let right = followers_of(scene, shard);
        json!({ "kind": "followers-count", "author": author, "shard": shard, "seen": right + 3, "right": right })
    }),
    ("followers not counted at all", &async |scene: &Scene| {
        scene.world.delete_item("CountersTable", schema::followers_counter(scene.other, scene.reader.shard())).await;
        json!({ "kind": "followers-count", "author": scene.other, "shard": scene.reader.shard(), "seen": 0, "right": 1 })
    }),
    ("followers counted in an empty shard", &async |scene: &Scene| {
        let (author, shard) = (scene.other, (scene.reader.shard() + 1) % 16);
        scene.put("CountersTable", schema::followers_counter(author, shard), &[("count", n(3))]).await;
        json!({ "kind": "followers-count", "author": author, "shard": shard, "seen": 3, "right": 0 })
    }),
    ("posts counted wrong in the head", &async |scene: &Scene| {
        scene.set("PostsTable", schema::head(scene.author), &[("posts", n(9))]).await;
        json!({ "kind": "head-posts", "author": scene.author, "seen": 9, "right": 5 })
    }),
    ("a deletion that the head lacks", &async |scene: &Scene| {
        scene.delete(3).await;
        scene.without_view().await;
        scene.world.update_item("PostsTable", schema::head(scene.author), &[], &["deleted", "deletions"]).await;
        json!({ "kind": "head-deletion", "post": scene.post(3), "deleted": true })
    }),
    ("a live post among the head's deleted ones", &async |scene: &Scene| {
        scene.without_view().await;
        let deleted = [("deleted", seqs([2])), ("deletions", n(1))];
        scene.set("PostsTable", schema::head(scene.author), &deleted).await;
        json!({ "kind": "head-deletion", "post": scene.post(2), "deleted": false })
    }),
    ("posts read that do not exist", &async |scene: &Scene| {
        let key = schema::reads(scene.reader, scene.author);
        scene.set("ReadsTable", key, &[("read", seqs([1, 9])), ("through", n(8))]).await;
        json!({ "kind": "reads-beyond", "user": scene.reader, "author": scene.author, "latest": 5 })
    }),
    ("likes of a post counted too high", &async |scene: &Scene| {
        scene.set("ReactionsTable", schema::post_reactions(scene.post(2), 0), &[("likes", n(7))]).await;
        json!({ "kind": "post-reactions", "post": scene.post(2), "reaction": "like", "seen": 7, "right": 1 })
    }),
    ("likes of a post counted too high in a part of split counts", &async |scene: &Scene| {
        scene.set("ReactionsTable", schema::post_reactions(scene.post(2), 0), &[("parts", n(4))]).await;
        scene.put("ReactionsTable", schema::post_reactions(scene.post(2), 3), &[("likes", n(6))]).await;
        json!({ "kind": "post-reactions", "post": scene.post(2), "reaction": "like", "seen": 7, "right": 1 })
    }),
    ("a part of counts that no response reads", &async |scene: &Scene| {
        scene.world.delete_item("ReactionsTable", schema::post_reactions(scene.post(2), 0)).await;
        scene.put("ReactionsTable", schema::post_reactions(scene.post(2), 3), &[("likes", n(1))]).await;
        json!({ "kind": "post-reactions", "post": scene.post(2), "reaction": "like", "seen": 0, "right": 1 })
    }),
    ("a shard of users whom the list of a post would not read", &async |scene: &Scene| {
        let other = AttributeValue::Ns(vec![((scene.reader.shard() + 1) % 16).to_string()]);
        scene.set("ReactionsTable", schema::post_reactions(scene.post(2), 0), &[("listed", other)]).await;
        json!({ "kind": "post-reactions", "post": scene.post(2), "reaction": "like", "seen": null, "right": 1 })
    }),
    ("favorites of a post counted without a favorite", &async |scene: &Scene| {
        scene.put("ReactionsTable", schema::post_reactions(scene.post(3), 0), &[("favorites", n(2))]).await;
        json!({ "kind": "post-reactions", "post": scene.post(3), "reaction": "favorite", "seen": 2, "right": 0 })
    }),
    ("a favorite of a post not counted", &async |scene: &Scene| {
        scene.world.delete_item("ReactionsTable", schema::post_reactions(scene.post(4), 0)).await;
        json!({ "kind": "post-reactions", "post": scene.post(4), "reaction": "favorite", "seen": 0, "right": 1 })
    }),
    ("likes of an author counted too high", &async |scene: &Scene| {
        let shard = scene.reader.shard();
        scene.set("ReactionsTable", schema::author_reactions(scene.author, shard), &[("likes", n(5))]).await;
        json!({ "kind": "author-reactions", "author": scene.author, "shard": shard, "reaction": "like", "seen": 5, "right": 1 })
    }),
    ("favorites of an author not counted", &async |scene: &Scene| {
        let (author, shard) = (scene.author, scene.reader.shard());
        scene.world.update_item("ReactionsTable", schema::author_reactions(author, shard), &[], &["favorites"]).await;
        json!({ "kind": "author-reactions", "author": author, "shard": shard, "reaction": "favorite", "seen": 0, "right": 1 })
    }),
    ("a like that the reader's list lacks", &async |scene: &Scene| {
        scene.world.delete_item("ReactedTable", schema::reacted(scene.reader, Reaction::Like, scene.post(2))).await;
        json!({ "kind": "reaction-unlisted", "user": scene.reader, "post": scene.post(2), "reaction": "like" })
    }),
    ("a listed favorite that was never given", &async |scene: &Scene| {
        let item = schema::reacted_item(scene.reader, Reaction::Favorite, scene.fact(scene.post(5)).await.key());
        scene.world.put_item("ReactedTable", item).await;
        json!({ "kind": "reaction-ghost", "user": scene.reader, "post": scene.post(5), "reaction": "favorite" })
    }),
    ("a like that the list of the post lacks", &async |scene: &Scene| {
        scene.world.delete_item("ReactionsTable", liker(scene, 2, Reaction::Like).await).await;
        json!({ "kind": "liker-missing", "user": scene.reader, "post": scene.post(2), "reaction": "like" })
    }),
    ("a favorite in the list of a post that was never given", &async |scene: &Scene| {
        let given = Relation { since: scene.now(), user: scene.reader };
        scene.world.put_item("ReactionsTable", schema::liker(scene.post(5), Reaction::Favorite, given)).await;
        json!({ "kind": "liker-ghost", "user": scene.reader, "post": scene.post(5), "reaction": "favorite" })
    }),
    ("a like twice in the list of the post", &async |scene: &Scene| {
        let earlier = Relation { since: scene.fact(scene.post(1)).await.created_at, user: scene.reader };
        scene.world.put_item("ReactionsTable", schema::liker(scene.post(2), Reaction::Like, earlier)).await;
        json!({ "kind": "liker-ghost", "user": scene.reader, "post": scene.post(2), "reaction": "like" })
    }),
    ("a like in the list of the post at another time", &async |scene: &Scene| {
        scene.world.delete_item("ReactionsTable", liker(scene, 2, Reaction::Like).await).await;
        let earlier = Relation { since: scene.fact(scene.post(1)).await.created_at, user: scene.reader };
        scene.world.put_item("ReactionsTable", schema::liker(scene.post(2), Reaction::Like, earlier)).await;
        let like = |kind| json!({ "kind": kind, "user": scene.reader, "post": scene.post(2), "reaction": "like" });
        json!([like("liker-missing"), like("liker-ghost")])
    }),
    ("a repost that the list of its original lacks", &async |scene: &Scene| {
        let (repost, listed) = repost(scene).await;
        scene.world.delete_item("ReactionsTable", listed).await;
        json!({ "kind": "repost-missing", "repost": repost.id, "original": scene.post(2) })
    }),
    ("a repost that the list of its user lacks", &async |scene: &Scene| {
        let (repost, _) = repost(scene).await;
        scene.world.delete_item("ReactedTable", schema::repost(scene.reader, scene.post(2))).await;
        json!({ "kind": "repost-missing", "repost": repost.id, "original": scene.post(2) })
    }),
    ("a repost that was never published in the list of a post", &async |scene: &Scene| {
        let by = Relation { since: scene.now(), user: scene.reader };
        scene.world.put_item("ReactionsTable", schema::reposter_item(scene.post(5), by, 99)).await;
        let repost = PostId::new(scene.reader, 99);
        json!({ "kind": "repost-ghost", "repost": repost, "original": scene.post(5) })
    }),
    ("a deleted repost in the list of its user", &async |scene: &Scene| {
        let (repost, _) = repost(scene).await;
        scene.caller(scene.reader).delete(&format!("/v1/posts/{}", repost.id)).await.ok();
        let item = schema::repost_item(scene.reader, scene.post(2), repost.created_at, repost.id.seq);
        scene.world.put_item("ReactedTable", item).await;
        json!({ "kind": "repost-ghost", "repost": repost.id, "original": scene.post(2) })
    }),
    ("a repost in the list of a post at another time", &async |scene: &Scene| {
        let (repost, listed) = repost(scene).await;
        scene.world.delete_item("ReactionsTable", listed).await;
        let earlier = Relation { since: scene.fact(scene.post(1)).await.created_at, user: scene.reader };
        scene.world.put_item("ReactionsTable", schema::reposter_item(scene.post(2), earlier, repost.id.seq)).await;
        let of = |kind| json!({ "kind": kind, "repost": repost.id, "original": scene.post(2) });
        json!([of("repost-missing"), of("repost-ghost")])
    }),
    ("a quote that the list of its original lacks", &async |scene: &Scene| {
        let (quote, listed) = quote(scene).await;
        scene.world.delete_item("ReactionsTable", listed).await;
        json!({ "kind": "quote-missing", "quote": quote.id, "original": scene.post(2) })
    }),
    ("a deleted quote in the list of its original", &async |scene: &Scene| {
        let (quote, listed) = quote(scene).await;
        scene.caller(scene.reader).delete(&format!("/v1/posts/{}", quote.id)).await.ok();
        scene.world.put_item("ReactionsTable", listed).await;
        json!({ "kind": "quote-ghost", "quote": quote.id, "original": scene.post(2) })
    }),
    ("a quote in the list of another post", &async |scene: &Scene| {
        let (quote, listed) = quote(scene).await;
        scene.world.delete_item("ReactionsTable", listed).await;
        let by = Relation { since: quote.created_at, user: scene.reader };
        scene.world.put_item("ReactionsTable", schema::quoter(scene.post(1), by, quote.id.seq)).await;
        let of = |kind, post| json!({ "kind": kind, "quote": quote.id, "original": scene.post(post) });
        json!([of("quote-missing", 2), of("quote-ghost", 1)])
    }),
    ("reposts of a post counted too high", &async |scene: &Scene| {
        let original = scene.post(2);
        scene.set("ReactionsTable", schema::post_reactions(original, 0), &[("reposts", n(5))]).await;
        json!({ "kind": "post-reposts", "original": original, "seen": 5, "right": 0 })
    }),
    ("reposts of a post not counted", &async |scene: &Scene| {
        let original = scene.post(2);
        repost(scene).await;
        scene.world.update_item("ReactionsTable", schema::post_reactions(original, 0), &[], &["reposts"]).await;
        json!({ "kind": "post-reposts", "original": original, "seen": 0, "right": 1 })
    }),
    ("comments counted too high", &async |scene: &Scene| {
        let id = comment(scene).await;
        scene.set("ReactionsTable", schema::comment_count(id), &[("comments", n(5))]).await;
        json!([
            { "kind": "comment-count", "post": id.post, "lane": 0, "seen": 5, "right": 1 },
            lost_group(scene, "comment-3"),
        ])
    }),
    ("a comment that is not counted for its user", &async |scene: &Scene| {
        let id = comment(scene).await;
        scene.world.delete_item("ReactionsTable", schema::commented(id.post, scene.reader)).await;
        json!({ "kind": "comment-count", "post": id.post, "user": scene.reader, "seen": 0, "right": 1 })
    }),
    ("comments counted that were withdrawn", &async |scene: &Scene| {
        let id = comment(scene).await;
        scene.world.update_item("ReactionsTable", schema::comment(id), &[], &["text"]).await;
        let counted = |of: serde_json::Value| {
            let mut count = json!({ "kind": "comment-count", "post": id.post, "seen": 1, "right": 0 });
            count.as_object_mut().unwrap().extend(of.as_object().unwrap().clone());
            count
        };
        json!([
            counted(json!({ "lane": 0 })),
            counted(json!({ "user": scene.reader })),
            { "kind": "comment-ghost", "comment": id, "user": scene.reader },
        ])
    }),
    ("a comment that its user's list lacks", &async |scene: &Scene| {
        let id = comment(scene).await;
        scene.world.delete_item("ReactedTable", schema::comment_entry(scene.reader, id)).await;
        json!([{ "kind": "comment-unlisted", "comment": id, "user": scene.reader }, lost_group(scene, "comment-3")])
    }),
    ("a listed comment that was never written", &async |scene: &Scene| {
        let id = CommentId::new(scene.post(3), 9);
        scene.world.put_item("ReactedTable", schema::comment_entry_item(scene.reader, id, scene.now())).await;
        json!({ "kind": "comment-ghost", "comment": id, "user": scene.reader })
    }),
    ("numbers of comments that are lost", &async |scene: &Scene| {
        let id = comment(scene).await;
        scene.world.delete_item("CountersTable", schema::comment_numbers(id.post)).await;
        json!([{ "kind": "comment-numbers", "post": id.post, "seen": 0, "right": 1 }, lost_group(scene, "comment-3")])
    }),
    ("a block that the blocked user's list lacks", &async |scene: &Scene| {
        scene.caller(scene.stranger).put(&format!("/v1/blocks/{}", scene.other)).await.ok();
        let [_, of_blocked] = schema::block_entries(scene.stranger, scene.other);
        scene.world.delete_item("FollowersTable", of_blocked).await;
        json!({ "kind": "block-flags-wrong", "user": scene.stranger, "author": scene.other })
    }),
    ("a listed block that does not exist", &async |scene: &Scene| {
        let [own, _] = schema::block_entries(scene.author, scene.other);
        scene.world.put_item("FollowersTable", own).await;
        json!({ "kind": "block-flags-wrong", "user": scene.author, "author": scene.other })
    }),
    ("a step without reactions", &async |scene: &Scene| {
        scene.set("PostsTable", schema::post(scene.post(5)), &[("step", n(3)), ("step_changes", n(2))]).await;
        // A cached summary would have the step from before.
        scene.redis().del::<_, ()>(&keys::post(scene.post(5))[0]).await.unwrap();
        json!({ "kind": "step-wrong", "post": scene.post(5) })
    }),
    ("a block without the flag that keeps the other from following", &async |scene: &Scene| {
        scene.caller(scene.stranger).put(&format!("/v1/blocks/{}", scene.other)).await.ok();
        scene.world.update_item("ReactionsTable", schema::reaction(scene.other, scene.stranger), &[], &["blocked"]).await;
        json!({ "kind": "block-flags-wrong", "user": scene.stranger, "author": scene.other })
    }),
    ("flags of a block that does not exist", &async |scene: &Scene| {
        let set = AttributeValue::Bool(true);
        scene.set("ReactionsTable", schema::reaction(scene.other, scene.author), &[("blocks", set)]).await;
        json!({ "kind": "block-flags-wrong", "user": scene.other, "author": scene.author })
    }),
    ("a handle that its user no longer has", &async |scene: &Scene| {
        let (user, handle) = (scene.author, format!("author_{}", scene.author));
        let profile = json!({ "name": "Author", "handle": handle });
        scene.caller(user).put_body("/v1/me/profile", &profile).await.ok();
        scene.world.delete_item("HandlesTable", schema::handle(&handle.parse().unwrap())).await;
        json!({ "kind": "handle-lost", "user": user, "handle": handle })
    }),
    ("a finished fan-out in the index of unfinished ones", &async |scene: &Scene| {
        scene.set("PostsTable", schema::post(scene.post(4)), &[("unfinished", s("1"))]).await;
        json!({ "kind": "unfinished-left", "post": scene.post(4) })
    }),
    ("the body of a deleted post", &async |scene: &Scene| {
        scene.delete(5).await;
        scene.put("PostsTable", schema::body(scene.post(5)), &[("body", s("should be gone"))]).await;
        json!({ "kind": "body-left", "post": scene.post(5) })
    }),
    ("an unreadable idempotency record", &async |scene: &Scene| {
        let key = format!("{}#publish#half", scene.author);
        scene.put("IdempotencyTable", schema::record(&key), &[("fingerprint", s("f"))]).await;
        json!({ "kind": "record-damaged", "record": key })
    }),
    ("an idempotency record of a post that does not exist", &async |scene: &Scene| {
        let key = format!("{}#publish#ghost", scene.author);
        let expires_at = scene.now().seconds() + 3_600;
        let says = [("fingerprint", s("f")), ("post", s(scene.post(99).to_string())), ("expires_at", n(expires_at))];
        scene.put("IdempotencyTable", schema::record(&key), &says).await;
        json!({ "kind": "record-of-nothing", "record": key })
    }),
    ("a post and a mute of a user whose erasure has ended", &async |scene: &Scene| {
        let (user, now, facts) = (scene.stranger, scene.now(), &scene.app.stores.facts);
        let begun = facts.begin_erasure(user, now).await.unwrap();
        let ended = Erasure { finished_at: Some(now), version: begun.version + 1, ..begun };
        assert!(facts.put_erasure(user, &ended).await.unwrap());
        let mute = Edge { muted: Some(now), ..Edge::never(user, scene.other) };
        scene.world.put_item("FollowingTable", schema::edge_item(&mute)).await;
        json!({ "kind": "fact-names-erased", "user": user, "facts": ["relation", "post"] })
    }),
    ("a tombstone that is not removed", &async |scene: &Scene| {
        let since = scene.now().ms() - 20 * 24 * 3_600_000;
        let following = ("following", AttributeValue::Bool(false));
        let tombstone = [following, ("since", n(since)), ("rev", n(since / 1000)), ("base", n(0)), ("floor", n(0))];
        scene.put("FollowingTable", schema::edge(scene.follower, scene.stranger), &tombstone).await;
        json!({ "kind": "tombstone-expired", "user": scene.follower, "author": scene.stranger })
    }),
    ("a fan-out that never began", &async |scene: &Scene| {
        let (post, _) = publish(scene, 2).await;
        json!({ "kind": "delivery-unfinished", "post": post.id, "pages": 1 })
    }),
    ("a half-finished fan-out", &async |scene: &Scene| {
        let (post, fan_out) = publish(scene, 2_500).await;
        scene.app.worker.run(&Task::List { fan_out, from: 1, to: 2 }, &|| false).await.unwrap();
        super::idle_without_projector(scene.world).await;
        scene.app.stores.facts.note_look(FanOutKind::Deliver, post.id, Look::Moving(1)).await.unwrap();
        json!({ "kind": "delivery-unfinished", "post": post.id, "pages": 2 })
    }),
    ("a finished fan-out that is not stored as done", &async |scene: &Scene| {
        let (post, fan_out) = publish(scene, 2).await;
        let users = [scene.reader, scene.follower];
        scene.app.stores.views.deliver(&users, post.key(), fan_out.modes, false).await.unwrap();
        scene.app.stores.views.page_done(FanOutKind::Deliver, post.id, 0, 2).await.unwrap();
        json!({ "kind": "delivery-unfinished", "post": post.id, "pages": 0 })
    }),
    ("a retraction that never began", &async |scene: &Scene| {
        let Deleted::Deleted(..) = scene.app.stores.facts.delete_post(scene.post(4), 2).await.unwrap() else { panic!() };
        json!([{ "kind": "retraction-unfinished", "post": scene.post(4), "pages": 1 }, lost_group(scene, "favorite-4")])
    }),
    ("a fan-out that is not in the index of unfinished ones", &async |scene: &Scene| {
        let (post, _) = publish(scene, 2).await;
        scene.world.update_item("PostsTable", schema::post(post.id), &[], &["unfinished"]).await;
        json!({ "kind": "unfinished-missing", "post": post.id })
    }),
    ("a stream record that the projector gave up, and its follow", &async |scene: &Scene| {
        scene.world.send_message("ProjectorFailuresQueue", "{}").await;
        scene.redis().hdel::<_, _, ()>(&scene.state_key, scene.other.get()).await.unwrap();
        json!([
            { "kind": "records-given-up", "records": 1 },
            of_author(scene, "authors", scene.other),
        ])
    }),
];

/// The reader comments on the third post. No view has its counts.
async fn comment(scene: &Scene<'_>) -> CommentId {
    let path = format!("/v1/posts/{}/comments", scene.post(3));
    scene.caller(scene.reader).post(&path, &json!({ "text": "first" })).await.ok();
    CommentId::new(scene.post(3), 1)
}

/// A group of the author that the projector has not derived, because it has lost the record of an act or of a deletion.
fn lost_group(scene: &Scene<'_>, id: &str) -> Value {
    json!({ "kind": GROUP, "user": scene.author, "group": id })
}

/// The key of the reader's entry in the list of a post.
async fn liker(scene: &Scene<'_>, seq: u64, reaction: Reaction) -> Item {
    let facts = &scene.app.stores.facts;
    let likers = facts.likers(scene.post(seq), reaction, None, 10).await.unwrap();
    let own = likers.into_iter().find(|liker| liker.user == scene.reader).unwrap();
    schema::liker(scene.post(seq), reaction, own)
}

/// The number of the author's two followers in a shard.
fn followers_of(scene: &Scene, shard: u16) -> u64 {
    [scene.reader, scene.follower].iter().filter(|user| user.shard() == shard).count() as u64
}

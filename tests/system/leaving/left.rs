//! What an erasure leaves, and facts that come after it.

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::json;
use tidemark::{
    Hiding,
    domain::{Card, CommentId, Edge, NewPost, PostId, ProfileContent, Reaction, Relation},
    facts::schema,
};
use tidemark_tests::{
    World,
    items::{Item, n, s, with_attributes},
    until, user_id, world,
};

use super::{LEAVING, check_others, check_traces, erased, live, traces};
use crate::damage::walk;

#[test]
fn idempotency_records_of_an_erased_author_are_no_difference() {
    world(async |world| {
        let user = world.user(LEAVING);
        for key in ["one", "two", "three"] {
            user.post_with_key("/v1/posts", key, &json!({ "title": key })).await.ok();
        }
        world.idle().await;
        user.delete("/v1/me").await.ok();
        erased(world).await;
        // Any other record of the user, whatever it names.
        for (operation, of) in [("publish", "post"), ("notices", "notices"), ("lists", "post")] {
            let key = schema::record(&format!("{LEAVING}#{operation}#gone"));
            let says = [("fingerprint", s("f")), (of, s("9-99")), ("at", n(1)), ("expires_at", n(4_000_000_000_u64))];
            world.put_item("IdempotencyTable", with_attributes(key, &says)).await;
        }
        assert_eq!(walk(world, true, 1_000).await["differences"], json!([]));
    });
}

/// Requests that were let in before the erasure, and write at the last moment.
async fn write_late(world: &World) {
    let user = user_id(LEAVING);
    let app = world.stack.app("fan-out").unwrap();
    let (stores, now) = (&app.stores, app.stores.clock.now());
    let theirs = PostId::new(user_id(60), 1);
    let own = PostId::new(user, 1);
    stores.facts.mark_posts(user, theirs.author, &[1], true, 7).await.unwrap();
    stores.facts.mark_posts(user_id(2), user, &[1], true, 7).await.unwrap();
    stores.facts.follow(user, &[user_id(61)], now).await.unwrap();
    app.following.hide(user, user_id(62), Hiding::Mute, true).await.unwrap();
    app.following.hide(user, user_id(65), Hiding::Block, true).await.unwrap();
    stores.facts.react(user, theirs, Reaction::Like, true, now).await.unwrap().unwrap();
    app.publishing.repost(user, theirs).await.unwrap();
    app.commenting.comment(user.into(), theirs, "late".to_owned(), None).await.unwrap();
    app.following.make_list(user, "late", None).await.unwrap();
    app.notices.mark_through(user, "3".parse().unwrap(), 1, None).await.unwrap();
    let card = Card { name: "late".to_owned(), handle: Some("ada_leaves".parse().unwrap()), picture: None };
    app.people.set(user, &ProfileContent { card, bio: None, data: None }).await.unwrap();
    app.publishing.publish(&NewPost::titled(user, "late"), None).await.unwrap();
    // Of the others, those that read a post from a cache.
    assert!(stores.facts.posts(&[own]).await.unwrap().remove(&own).is_none_or(|post| post.deleted));
}

#[test]
fn requests_that_were_let_in_before_an_erasure_leave_nothing_after_it() {
    world(async |world| {
        live(world).await;
        world.user(LEAVING).delete("/v1/me").await.ok();
        until("nothing was left for the first time", async || {
            let receipt = world.item("IdentitiesTable", schema::erasure(user_id(LEAVING))).await.unwrap();
            receipt.contains_key("swept_at")
        })
        .await;
        write_late(world).await;
        let found = traces(world).await;
        for table in ["Following", "Followers", "Reads", "Reactions", "Reacted", "Counters", "NoticeReads", "Profiles"] {
            assert!(found.iter().any(|trace| trace.starts_with(&format!("{table}Table"))), "{table}: {found:#?}");
        }
        erased(world).await;
        check_traces(world).await;
        check_others(world).await;
    });
}

/// Facts that name the erased user: the kind, the table, the attributes of its key, and the item.
#[expect(clippy::too_many_lines, reason = "a table")]
fn planted() -> [(&'static str, &'static str, [&'static str; 2], Item); 23] {
    let user = user_id(LEAVING);
    let live = |one, other| Edge { following: true, ..Edge::never(user_id(one), user_id(other)) };
    let muted = |one, other| {
        let at = Some(tidemark::domain::Timestamp::from_ms(5));
        Edge { muted: at, ..Edge::never(user_id(one), user_id(other)) }
    };
    let at = tidemark::domain::Timestamp::from_ms(5);
    let marks = |one, other: u64| {
        let by = schema::follower_shard(user_id(other), user_id(one).shard());
        let marked = AttributeValue::Ns(vec!["1".to_owned()]);
        with_attributes(schema::reads(user_id(one), user_id(other)), &[("version", n(1)), ("marked", marked), ("by", s(by))])
    };
    let ([received, _], [_, sent]) = (schema::request_items(user_id(3), user, at), schema::request_items(user, user_id(3), at));
    let ([blocked, _], [_, blocker]) = (schema::block_entries(user, user_id(3)), schema::block_entries(user_id(3), user));
    let theirs = CommentId::new(PostId::new(user_id(60), 1), 9);
    let commented = with_attributes(schema::commented(PostId::new(user, 1), user_id(3)), &[("comments", n(1))]);
    let like = tidemark::domain::FeedKey { at, post: PostId::new(user_id(60), 1) };
    let profile = [("version", n(1)), ("name", s("back")), ("updated_at", n(1))];
    let notices = [("version", n(1)), ("through", n(0)), ("through_slot", n(0))];
    [
        ("relation", "FollowingTable", ["user", "author"], schema::edge_item(&live(LEAVING, 60))),
        ("relation", "FollowingTable", ["user", "author"], schema::edge_item(&muted(3, LEAVING))),
        ("relation", "FollowingTable", ["user", "author"], schema::edge_item(&muted(LEAVING, 3))),
        ("relation", "FollowersTable", ["shard", "follower"], schema::follower_item(user_id(3), user, at)),
        ("relation", "FollowersTable", ["shard", "follower"], received),
        ("relation", "FollowersTable", ["shard", "follower"], sent),
        ("relation", "FollowersTable", ["shard", "follower"], blocked),
        ("relation", "FollowersTable", ["shard", "follower"], blocker),
        (
            "reaction",
            "ReactionsTable",
            ["shard", "item"],
            with_attributes(schema::reaction(user_id(3), user), &[("version", n(1))]),
        ),
        (
            "reaction",
            "ReactionsTable",
            ["shard", "item"],
            schema::liker(PostId::new(user, 1), Reaction::Like, Relation { since: at, user: user_id(3) }),
        ),
        ("reaction", "ReactedTable", ["user", "post"], schema::reacted_item(user, Reaction::Like, like)),
        ("reaction", "ReactedTable", ["user", "post"], schema::reacted_item(user, Reaction::Favorite, like)),
        (
            "reaction",
            "ReactionsTable",
            ["shard", "item"],
            schema::reposter_item(PostId::new(user, 1), Relation { since: at, user: user_id(3) }, 1),
        ),
        ("repost", "ReactedTable", ["user", "post"], schema::repost_item(user, PostId::new(user_id(60), 1), at, 4)),
        ("comment", "ReactedTable", ["user", "post"], schema::comment_entry_item(user, theirs, at)),
        ("comment", "ReactionsTable", ["shard", "item"], commented),
        ("read state", "ReadsTable", ["user", "author"], marks(LEAVING, 60)),
        ("read state", "ReadsTable", ["user", "author"], marks(3, LEAVING)),
        (
            "read state of notices",
            "NoticeReadsTable",
            ["user", "platform"],
            with_attributes(schema::notice_reads(user, "3".parse().unwrap()), &notices),
        ),
        ("profile", "ProfilesTable", ["user", "user"], with_attributes(schema::profile(user), &profile)),
        (
            "counter",
            "CountersTable",
            ["counter", "counter"],
            with_attributes(schema::followings_counter(user), &[("count", n(1))]),
        ),
        (
            "counter",
            "CountersTable",
            ["counter", "counter"],
            with_attributes(schema::followers_counter(user, 3), &[("count", n(1))]),
        ),
        ("inbox", "InboxTable", ["user", "item"], with_attributes(schema::inbox_read(user), &[("read_before", n(5))])),
    ]
}

#[test]
fn a_fact_that_names_an_erased_user_is_found_and_the_erasure_starts_again() {
    world(async |world| {
        live(world).await;
        world.user(LEAVING).delete("/v1/me").await.ok();
        erased(world).await;
        let app = world.stack.app("reconcile").unwrap();
        let left = async || app.leaving.left(user_id(LEAVING)).await.unwrap();
        assert_eq!(left().await, Vec::<&str>::new());
        // Each fact alone is found.
        let mut kinds = Vec::new();
        for (kind, table, keys, item) in planted() {
            world.put_item(table, item.clone()).await;
            until("the indexes have the fact", async || left().await == [kind]).await;
            let key = item.into_iter().filter(|(name, _)| keys.contains(&name.as_str())).collect();
            world.delete_item(table, key).await;
            until("the indexes lack the fact", async || left().await.is_empty()).await;
            kinds.push(kind);
        }
        assert_eq!(kinds.len(), 23);
        kinds.dedup();
        for (_, table, _, item) in planted() {
            world.put_item(table, item).await;
        }
        app.publishing.publish(&NewPost::titled(user_id(LEAVING), "late"), None).await.unwrap();
        kinds.insert(1, "post");
        until("the indexes have all facts", async || left().await == kinds).await;
        for dry_run in [true, false] {
            // The same walk removes the entry of a repost that does not stand.
            kinds.retain(|kind| dry_run || *kind != "repost");
            let expected = json!({ "kind": "fact-names-erased", "user": LEAVING.to_string(), "facts": kinds });
            let report = walk(world, dry_run, 0).await;
            assert!(report["differences"].as_array().unwrap().contains(&expected), "{report:#}");
            assert_eq!(report["repaired"]["fact-names-erased"].as_u64(), (!dry_run).then_some(1));
        }
        erased(world).await;
        assert_eq!(left().await, Vec::<&str>::new());
        check_traces(world).await;
    });
}

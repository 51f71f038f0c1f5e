//! One item of every kind that cannot be decoded. Every job continues, reports it, and repairs all other damage.

use serde_json::{Value, json};
use tidemark::{
    domain::{CommentId, PostText, Reaction},
    facts::schema,
    views::keys,
};
use tidemark_tests::{
    World, ids,
    items::{Item, n, s},
    user_id, world,
};

use super::{Scene, facts, fire, walk};
use crate::{notices::content, publish_and_deliver_all};

/// Scenes whose readers have read a notice and repost a post.
async fn scenes_with_notices(world: &World) -> Vec<Scene<'_>> {
    let scenes = Scene::several(world, 17).await;
    for scene in &scenes {
        for title in ["one", "two"] {
            scene.app.notices.publish(scene.author, &[scene.platform], &content(title, None), None).await.unwrap();
        }
        scene.app.notices.mark(scene.reader, scene.notice(1), true).await.unwrap().unwrap();
        scene.caller(scene.reader).put(&format!("/v1/posts/{}/repost", scene.post(2))).await.ok();
    }
    // The walk finds readers by their views. The projector takes the lease of a reader who fills one meanwhile.
    world.idle().await;
    for scene in &scenes {
        scene.caller(scene.reader).get(&format!("/v1/notices?platform={}", scene.platform)).await.ok();
    }
    scenes
}

/// One unreadable item in each scene.
async fn make_unreadable(scenes: &[Scene<'_>]) {
    let [edge, listed, head, post, pending, reads, reaction, record, rest @ ..] = scenes else { panic!() };
    let [notice_head, notice, notice_reads, profile, liked, reposted, commented, text, other_text] = rest else { panic!() };
    let (orphan, _) = facts::publish(pending, 2).await;
    let key = format!("{}#publish#k", record.author);
    record.put("IdempotencyTable", schema::record(&key), &[("fingerprint", n(1))]).await;
    let comment = CommentId::new(commented.post(2), 1);
    commented.caller(commented.reader).post(&format!("/v1/posts/{}/comments", comment.post), &json!({ "text": "x" })).await.ok();
    let items: [(&Scene, &str, Item, &str); 15] = [
        (edge, "FollowingTable", schema::edge(edge.reader, edge.author), "since"),
        (listed, "FollowersTable", schema::follower(listed.author, listed.reader), "since"),
        (head, "PostsTable", schema::head(head.author), "latest_at"),
        (post, "PostsTable", schema::post(post.post(3)), "mode"),
        (pending, "PostsTable", schema::post(orphan.id), "at"),
        (reads, "ReadsTable", schema::reads(reads.reader, reads.author), "version"),
        (reaction, "ReactionsTable", schema::reaction(reaction.reader, reaction.author), "version"),
        (notice_head, "NoticesTable", schema::platform_head(notice_head.platform), "version"),
        (notice, "NoticesTable", schema::notice(notice.notice(1)), "until"),
        (notice_reads, "NoticeReadsTable", schema::notice_reads(notice_reads.reader, notice_reads.platform), "version"),
        (profile, "ProfilesTable", schema::profile(profile.reader), "version"),
        (liked, "ReactedTable", schema::reacted(liked.reader, Reaction::Like, liked.post(2)), "at"),
        (reposted, "ReactedTable", schema::repost(reposted.reader, reposted.post(2)), "repost"),
        (commented, "ReactionsTable", schema::comment(comment), "at"),
        (text, "PostsTable", schema::body(text.post(3)), "revision"),
    ];
    for (scene, table, key, name) in items {
        scene.set(table, key, &[(name, s("not what it should be"))]).await;
    }
    // A text of another revision than its post.
    other_text.set("PostsTable", schema::body(other_text.post(3)), &[("revision", n(9))]).await;
    for scene in [text, other_text] {
        shows_all_but_the_text(scene).await;
    }
}

#[test]
fn unreadable_items_of_every_kind_do_not_stop_a_job() {
    world(async |world| {
        let scenes = scenes_with_notices(world).await;
        world.idle().await;
        assert_eq!(walk(world, false, 0).await["differences"], json!([]));

        make_unreadable(&scenes).await;
        // And one repairable damage in each scene, of the same users.
        for scene in &scenes {
            scene.set("CountersTable", schema::followings_counter(scene.follower), &[("count", n(7))]).await;
            scene.put("CountersTable", schema::followings_counter(scene.author), &[("count", n(5))]).await;
        }
        let lost = world.user(90).publish("lost on its way").await;
        let unfinished = [("state", s("pending")), ("unfinished", s("2"))];
        world.update_item("PostsTable", schema::post(lost.parse().unwrap()), &unfinished, &[]).await;
        for walk in ["users", "marks"] {
            world.update_item("CountersTable", schema::walk(walk), &[("position", n(1))], &[]).await;
        }

        // Tasks of groups that wait for their second count as a backlog, in which no fan-out is resumed.
        world.idle().await;
        let fan_outs = fire(world, json!({ "job": "fan-outs", "overdue_ms": 0 })).await;
        assert_eq!(fan_outs["found"]["item-damaged"], 1, "{fan_outs}");
        world.idle().await;
        let delivery = world.user(90).get(&format!("/v1/posts/{lost}/delivery")).await.ok();
        assert_eq!(delivery["state"], "done", "the other fan-out continues");
        fire(world, json!({ "job": "marks", "settle_ms": 0 })).await;
        let minute = fire(world, json!({ "job": "minute", "overdue_ms": 0, "settle_ms": 0 })).await;
        assert_eq!(minute["found"]["item-damaged"], 1, "{minute}");

        let report = walk(world, false, 0).await;
        assert_eq!(report["found"]["item-damaged"], 16, "{report}");
        assert_eq!(report["found"]["record-damaged"], 1);
        assert_eq!(report["repaired"]["followings-count"], 34, "{report}");
        assert_eq!(report["repaired"]["item-damaged"], Value::Null, "only an operator can repair it");
        let again = walk(world, false, 0).await;
        assert_eq!(again["found"], json!({ "item-damaged": 16 }), "{again}");
        assert_eq!(again["repaired"], json!({}));
        println!("{}", again["differences"]);
    });
}

/// Only the third post's text cannot be read.
async fn shows_all_but_the_text(scene: &Scene<'_>) {
    let (reader, post) = (scene.caller(scene.reader), scene.post(3));
    let page = reader.get(&format!("/v1/authors/{}/posts?include=body", scene.author)).await.ok();
    for item in page["items"].as_array().unwrap() {
        let damaged = item["id"] == post.to_string();
        assert_eq!(item.get("body").is_none(), damaged, "{item}");
        assert_eq!(item.get("likes").is_none(), damaged, "{item}");
    }
    let one = reader.get(&format!("/v1/posts/{post}")).await;
    assert_eq!(one.problem(), (500, "/problems/internal"));
    let many = reader.get(&format!("/v1/posts?post={post}&post={}", scene.post(2))).await.items();
    assert_eq!(ids(&many), [scene.post(2).to_string()]);
}

#[test]
fn an_edit_replaces_a_damaged_text() {
    world(async |world| {
        let scene = Scene::settled(world).await;
        let post = scene.post(3);
        scene.set("PostsTable", schema::body(post), &[("revision", n(9))]).await;
        let text = PostText { body: Some("Whole again".to_owned()), data: None };
        scene.app.publishing.edit(scene.author, post, "Third", &text).await.unwrap();
        let seen = scene.caller(scene.reader).get(&format!("/v1/posts/{post}")).await.ok();
        assert_eq!((&seen["body"], &seen["title"], &seen["revision"]), (&json!("Whole again"), &json!("Third"), &json!(2)));
    });
}

/// A field of one reader that no script can read. It must not hold back the other readers of the same page, and the
/// reader gets a new view.
#[test]
fn a_damaged_field_holds_back_no_other_reader() {
    world(async |world| {
        let pairs: Vec<(u64, u64)> = (1..=40).map(|reader| (reader, 99)).chain([(41, 98)]).collect();
        for &(reader, author) in &pairs {
            world.follow([reader], author).await;
        }
        publish_and_deliver_all(world, [99, 98], ["one"]).await;
        world.read_feeds(1..=41).await;
        let damage = async || {
            for (reader, author) in [(20, 99), (41, 98)] {
                let state = keys::reader_state(user_id(reader));
                // The flag says that the author is followed. Everything after it is missing.
                let wrong = redis::cmd("HSET").arg(state).arg(author).arg(b"\x01").clone();
                world.stack.app("fan-out").unwrap().stores.views.query::<u64>("damage", wrong).await.unwrap();
            }
        };
        damage().await;
        publish_and_deliver_all(world, [99, 98], ["two"]).await;
        for &(reader, author) in &pairs {
            assert_eq!(world.user(reader).feed_ids().await, [format!("{author}-2"), format!("{author}-1")], "{reader}");
        }
        damage().await;
        for author in [99, 98] {
            world.user(author).delete(&format!("/v1/posts/{author}-1")).await.ok();
        }
        world.idle().await;
        for (reader, author) in pairs {
            assert_eq!(world.user(reader).feed_ids().await, [format!("{author}-2")], "{reader}");
            assert_eq!(world.user(reader).unread_total().await, 1, "{reader}");
        }
    });
}

/// The item of a repost or a quote stays, without its original.
#[test]
fn a_damaged_original_takes_no_other_item_off_a_page() {
    world(async |world| {
        let [author, reposter] = [world.user(99), world.user(98)];
        let [damaged, other] = [author.publish("one").await, author.publish("two").await];
        world.follow([1], 98).await;
        for post in [&damaged, &other] {
            reposter.put(&format!("/v1/posts/{post}/repost")).await.ok();
            reposter.post("/v1/posts", &json!({ "title": "see", "of": post })).await.ok();
        }
        world.idle().await;
        let key = schema::post(damaged.parse().unwrap());
        world.update_item("PostsTable", key, &[("title", n(1))], &[]).await;
        world.flush_redis().await;
        for path in ["/v1/feed", "/v1/authors/98/posts"] {
            let page = world.user(1).get(path).await.ok();
            let originals: Vec<&Value> = page["items"].as_array().unwrap().iter().map(|item| &item["of"]).collect();
            let unavailable = json!({ "id": damaged, "unavailable": true });
            assert_eq!([originals[2], originals[3]], [&unavailable; 2], "{path}");
            assert_eq!([&originals[0]["id"], &originals[1]["title"]], [&json!(other), &json!("two")], "{path}");
        }
    });
}

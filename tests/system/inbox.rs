//! Groups of inboxes under kills, losses, damage and bursts.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aws_sdk_dynamodb::types::AttributeValue;
use futures::{FutureExt as _, StreamExt as _, stream};
use serde_json::{Value, json};
use tidemark::{
    Clock as _, SystemClock,
    domain::{GroupId, GroupKind, Timestamp, UserId},
    facts::schema,
};
use tidemark_local::Weather;
use tidemark_tests::{
    User, World, deployed_timeouts,
    items::{n, s},
    number_from, until, user_id, world, world_with,
};

use crate::damage::{
    fire,
    proxy::{Fate, world_behind_a_proxy},
    repair,
};

const OWNER: u64 = 1;
const INBOX: &str = "InboxTable";

fn like_group(seq: u64) -> GroupId {
    GroupId::of_post(GroupKind::Like, seq)
}

async fn like(world: &World, user: u64, post: &str) {
    world.user(user).put(&format!("/v1/posts/{post}/like")).await.ok();
}

async fn groups(user: &User) -> Vec<Value> {
    user.walk("/v1/inbox", 100).await
}

/// The number of acts of each group.
pub(crate) async fn counts(user: &User) -> BTreeMap<String, u64> {
    let count = |group: &Value| (group["id"].as_str().unwrap().to_owned(), group["count"].as_u64().unwrap());
    groups(user).await.iter().map(count).collect()
}

/// The number of times that a group was written.
pub(crate) async fn version(world: &World, owner: u64, id: GroupId) -> u64 {
    let item = world.item(INBOX, schema::group(user_id(owner), id)).await;
    let version = item.and_then(|item| item["version"].as_n().ok().and_then(|version| version.parse().ok()));
    version.unwrap_or_default()
}

/// Otherwise one that takes longer than its pause would be followed by the next at once.
#[test]
fn the_pause_of_a_group_begins_when_its_acts_have_been_read() {
    world_behind_a_proxy(async |world, proxy| {
        let post = world.user(OWNER).publish("liked").await;
        world.idle().await;
        let read_at = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&read_at);
        proxy.rule(move |asked| {
            let seen = asked.is("projector", "Query", "").then(|| Arc::clone(&seen));
            async move {
                if let Some(seen) = seen.filter(|seen| seen.load(Ordering::SeqCst) == 0) {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    seen.store(SystemClock.now().ms(), Ordering::SeqCst);
                }
                Fate::Forwarded
            }
            .boxed()
        });
        like(world, 2, &post).await;
        world.idle().await;
        proxy.forward_all();
        let group = world.item(INBOX, schema::group(user_id(OWNER), like_group(1))).await.unwrap();
        let [written_at, read_at] = [group["written_at"].as_n().unwrap().parse().unwrap(), read_at.load(Ordering::SeqCst)];
        assert!(read_at > 0 && written_at >= read_at, "{written_at} {read_at}");
    });
}

#[test]
fn the_group_of_a_hot_post_is_written_once_a_second_and_is_exact_at_the_end() {
    world(async |world| {
        let likes = number_from("TIDEMARK_LIKES", 2_000);
        let (owner, post) = (world.user(OWNER), world.user(OWNER).publish("hot").await);
        let started = std::time::Instant::now();
        stream::iter(2..likes + 2).for_each_concurrent(32, async |user| like(world, user, &post).await).await;
        world.idle().await;
        let seconds = started.elapsed().as_secs();
        let written = version(world, OWNER, like_group(1)).await;
        assert_eq!(counts(&owner).await, BTreeMap::from([("like-1".to_owned(), likes)]));
        assert!(written <= seconds + 2, "{written} writes in {seconds} seconds");
        println!("{likes} likes in {seconds} s: {written} writes of the group");

        // All of them are taken back, and one remains.
        let started = std::time::Instant::now();
        let unlike = async |user: u64| drop(world.user(user).delete(&format!("/v1/posts/{post}/like")).await.ok());
        stream::iter(3..likes + 2).for_each_concurrent(32, unlike).await;
        world.idle().await;
        let rewritten = version(world, OWNER, like_group(1)).await - written;
        assert!(rewritten <= started.elapsed().as_secs() + 2, "{rewritten}");
        assert_eq!(counts(&owner).await, BTreeMap::from([("like-1".to_owned(), 1)]));
    });
}

#[test]
fn many_follows_of_a_day_are_exact_while_some_end() {
    world(async |world| {
        let follows = number_from("TIDEMARK_FOLLOWS", 200);
        let owner = world.user(OWNER);
        world.follow(2..follows + 2, OWNER).await;
        world.idle().await;
        let day = groups(&owner).await[0]["id"].as_str().unwrap().to_owned();
        let is_counted = async |follows: u64| {
            world.idle().await;
            assert_eq!(counts(&owner).await, BTreeMap::from([(day.clone(), follows)]));
        };
        is_counted(follows).await;
        let unfollow = async |user: u64| drop(world.user(user).delete("/v1/following/1").await.ok());
        stream::iter(2..32).for_each_concurrent(8, unfollow).await;
        is_counted(follows - 30).await;
        world.user(2).put("/v1/following/1").await.ok();
        is_counted(follows - 29).await;
    });
}

#[test]
fn a_group_reaches_its_state_although_its_tasks_and_views_are_lost() {
    world(async |world| {
        let (owner, post) = (world.user(OWNER), world.user(OWNER).publish("one").await);
        // The projector alone, without Redis: the inbox is made of facts.
        let refusal = world.refuse_redis().await;
        like(world, 2, &post).await;
        until("the act is in the inbox", async || counts(&owner).await.get("like-1") == Some(&1)).await;
        refusal.end().await;
        world.redis_is_asked_again().await;
        world.idle().await;
        // A group of many entries was written a moment ago, and its task is lost. What relies on that task is in no
        // group.
        world.follow(2..4, OWNER).await;
        world.idle().await;
        let day = groups(&owner).await[0]["id"].as_str().unwrap().to_owned();
        let key = schema::group(user_id(OWNER), day.parse().unwrap());
        let write = async |written_at| {
            let written = [("entries", n(40_000_000)), ("count", n(7)), ("written_at", n(written_at))];
            world.update_item(INBOX, key.clone(), &written, &[]).await;
        };
        write(tidemark_now(world)).await;
        world.follow(4..5, OWNER).await;
        world.flush_redis().await;
        world.user(4).feed_ids().await;
        owner.feed_ids().await;
        world.idle().await;
        assert_eq!(counts(&owner).await[&day], 7);
        // Reconcile waits for the task, and then makes up for it.
        assert_eq!(world.stack.app("reconcile").unwrap().inboxes.wrong_groups(user_id(OWNER), 0).await.unwrap(), []);
        write(1).await;
        repair(world).await;
        assert_eq!(counts(&owner).await, BTreeMap::from([("like-1".to_owned(), 1), (day, 3)]));
    });
}

/// Some acts of each kind on the owner, and how the inbox shows them.
async fn some_acts(world: &World) -> Vec<Value> {
    let owner = world.user(OWNER);
    let posts = owner.publish_all(["one", "two"]).await;
    for user in 2..=4 {
        like(world, user, &posts[0]).await;
        world.user(user).put(&format!("/v1/posts/{}/favorite", posts[1])).await.ok();
        world.user(user).put("/v1/following/1").await.ok();
    }
    owner.put_body("/v1/me/privacy", &json!({ "private": true })).await.ok();
    world.user(5).put("/v1/following/1").await.has(json!({ "requested": true }));
    world.user(6).put_body("/v1/me/privacy", &json!({ "private": true })).await.ok();
    owner.put("/v1/following/6").await.ok();
    world.user(6).put("/v1/follow-requests/1").await.ok();
    // The walk of reconcile finds users by their views.
    owner.feed_ids().await;
    world.idle().await;
    let groups = groups(&owner).await;
    assert_eq!(groups.len(), 5, "{groups:?}");
    groups
}

#[test]
fn reconcile_derives_groups_that_are_lost_wrong_or_damaged() {
    world(async |world| {
        let owner = world.user(OWNER);
        let expected = some_acts(world).await;
        let report = repair(world).await;
        assert_eq!(report["found"], json!({}), "nothing is wrong");
        let key = |id: &Value| schema::group(user_id(OWNER), id.as_str().unwrap().parse().unwrap());
        let keys: Vec<_> = expected.iter().map(|group| key(&group["id"])).collect();
        world.delete_item(INBOX, keys[0].clone()).await;
        world.update_item(INBOX, keys[1].clone(), &[("count", n(9))], &[]).await;
        world.update_item(INBOX, keys[2].clone(), &[("version", s("x"))], &[]).await;
        world.update_item(INBOX, keys[3].clone(), &[("latest_at", n(5)), ("heard_at", n(5))], &[]).await;
        let ghost = schema::group(user_id(OWNER), like_group(2));
        let users = AttributeValue::L(vec![n(7)]);
        let now = world.stack.app("follow").unwrap().stores.clock.now();
        let acts = [("version", n(1)), ("written_at", n(1)), ("count", n(1)), ("users", users), ("latest_at", n(now.ms()))];
        world.update_item(INBOX, ghost.clone(), &acts, &[]).await;
        // Groups of days whose acts are too old.
        let [wrong, damaged] = [100, 101].map(|days| GroupId::follow(Timestamp::from_ms(now.ms() - days * 24 * 3_600_000)));
        world.update_item(INBOX, schema::group(user_id(OWNER), wrong), &acts, &[]).await;
        world.update_item(INBOX, schema::group(user_id(OWNER), damaged), &[("version", s("x"))], &[]).await;
        // A damaged group hides no other.
        assert!(groups(&owner).await.len() >= 2);
        let report = fire(world, json!({ "job": "users", "share": 1.0, "settle_ms": 0, "dry_run": true })).await;
        assert_eq!(report["found"]["group-wrong"], 7, "{report}");
        let report = repair(world).await;
        assert_eq!((&report["found"]["group-wrong"], &report["repaired"]["group-wrong"]), (&json!(7), &json!(7)), "{report}");
        assert_eq!(groups(&owner).await, expected);
        // All are lost, with the time up to which they were read.
        for key in keys {
            world.delete_item(INBOX, key).await;
        }
        repair(world).await;
        assert_eq!(groups(&owner).await, expected);
        assert_eq!(repair(world).await["found"], json!({}));
    });
}

#[test]
fn a_repair_of_the_list_of_followers_derives_its_groups() {
    world(async |world| {
        let owner = world.user(OWNER);
        let expected = some_acts(world).await;
        world.stack.pause("projector").await.unwrap();
        let ghost = schema::follower_item(user_id(9), user_id(OWNER), Timestamp::from_ms(tidemark_now(world)));
        world.put_item("FollowersTable", ghost).await;
        world.delete_item("FollowersTable", schema::follower(user_id(OWNER), user_id(2))).await;
        let [request, _] = schema::request_items(user_id(8), user_id(OWNER), Timestamp::from_ms(tidemark_now(world)));
        world.put_item("FollowersTable", request).await;
        world.resume("projector").await;
        // Another act makes the groups wrong.
        let inboxes = &world.stack.app("reconcile").unwrap().inboxes;
        let day = expected.iter().find(|group| group["kind"] == "follow").unwrap();
        for id in [day["id"].as_str().unwrap().parse().unwrap(), GroupId::REQUEST] {
            inboxes.derive_anew(user_id(OWNER), id).await.unwrap();
        }
        let shown = groups(&owner).await;
        assert!(shown.iter().any(|group| group["users"][0] == "9") && shown.iter().any(|group| group["users"][0] == "8"));
        repair(world).await;
        world.idle().await;
        assert_eq!(groups(&owner).await, expected);
    });
}

fn tidemark_now(world: &World) -> u64 {
    world.stack.app("follow").unwrap().stores.clock.now().ms()
}

#[test]
fn an_erasure_takes_its_user_out_of_every_inbox_and_removes_the_own_one() {
    world(async |world| {
        let owner = world.user(OWNER);
        some_acts(world).await;
        let of_two = world.user(2).publish("by two").await;
        like(world, OWNER, &of_two).await;
        world.idle().await;
        assert_eq!(groups(&world.user(2)).await.len(), 1);
        owner.put("/v1/inbox/like-1/read").await.ok();
        world.user(2).delete("/v1/me").await.ok();
        crate::leaving::finished(world, 2).await;
        let shown = groups(&owner).await;
        assert!(shown.iter().all(|group| !group["users"].as_array().unwrap().contains(&json!("2"))), "{shown:?}");
        assert!(
            shown
                .iter()
                .filter(|group| group["kind"] != "request" && group["kind"] != "accepted")
                .all(|group| group["count"] == 2)
        );
        assert_eq!(world.item(INBOX, schema::group(user_id(2), like_group(1))).await, None);
        owner.delete("/v1/me").await.ok();
        crate::leaving::finished(world, OWNER).await;
        let facts = &world.stack.app("reconcile").unwrap().stores.facts;
        assert!(!facts.has_inbox(user_id(OWNER)).await.unwrap());
        assert!(groups(&world.user(6)).await.is_empty());
    });
}

#[test]
fn trimmed_groups_stay_away() {
    world(async |world| {
        let owner = world.user(OWNER);
        some_acts(world).await;
        let now = tidemark_now(world);
        // A thousand groups that are newer than all others, of posts that exist in the table of groups alone.
        let group = |seq: u64| {
            let mut item = schema::group(user_id(OWNER), like_group(seq));
            let users = AttributeValue::L(vec![n(7)]);
            let at = now + 1_000 + seq;
            let acts = [("version", n(1)), ("written_at", n(1)), ("count", n(1)), ("users", users), ("latest_at", n(at))];
            item.extend(acts.map(|(name, value)| (name.to_owned(), value)));
            item
        };
        world.put_items(INBOX, (1_000..2_000).map(group)).await;
        assert_eq!(groups(&owner).await.len(), 1_000);
        let inboxes = &world.stack.app("reconcile").unwrap().inboxes;
        let wrong = inboxes.wrong_groups(UserId::MIN, 0).await.unwrap();
        assert!(
            wrong.iter().all(|(id, _)| id.seq().is_some_and(|seq| seq >= 1_000)),
            "what the inbox does not show is not missed"
        );
    });
}

#[test]
fn live_connections_are_told_the_unread_groups() {
    world(async |world| {
        let post = world.user(OWNER).publish("one").await;
        let mut first = world.live(OWNER).await;
        let mut second = world.live(OWNER).await;
        first.ping().await;
        second.ping().await;
        like(world, 2, &post).await;
        assert_eq!([first.inbox().await, second.inbox().await], [1; 2]);
        like(world, 3, &post).await;
        world.idle().await;
        assert!(first.is_silent().await, "it is one group");
        world.user(2).put("/v1/following/1").await.ok();
        assert_eq!([first.inbox().await, second.inbox().await], [2; 2]);
        world.user(OWNER).put("/v1/inbox/like-1/read").await.ok();
        assert_eq!([first.inbox().await, second.inbox().await], [1; 2]);
        world.user(OWNER).post("/v1/inbox/reads", &json!({ "before": "2099-01-01T00:00:00Z" })).await.ok();
        assert_eq!([first.inbox().await, second.inbox().await], [0; 2]);
        // A connection that missed a message is told after a ping.
        world.flush_redis().await;
        like(world, 4, &post).await;
        world.idle().await;
        first.ping().await;
        assert_eq!(first.inbox().await, 1);
    });
}

/// What a like costs the group of its post, and how late the badge is, in the weather of AWS.
#[test]
fn the_badge_follows_a_burst_in_the_weather_of_aws() {
    world_with(deployed_timeouts, async |world| {
        world.stack.set_weather(Weather::Aws, 1);
        let likes = number_from("TIDEMARK_BURST", 400);
        let (owner, post) = (world.user(OWNER), world.user(OWNER).publish("hot").await);
        stream::iter(2..likes + 2).for_each_concurrent(16, async |user| like(world, user, &post).await).await;
        let ended = std::time::Instant::now();
        until("the group has every like", async || counts(&owner).await.get("like-1") == Some(&likes)).await;
        println!(
            "{likes} likes: exact {} ms after the last, {} writes",
            ended.elapsed().as_millis(),
            version(world, OWNER, like_group(1)).await
        );
    });
}

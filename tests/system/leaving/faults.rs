//! Erasures beside damage, outages and repetitions.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::json;
use tidemark::{
    domain::{FanOutKind, PostId, Reaction, Timestamp},
    facts::{Trace, schema},
    queue::{self, FanOut, Task},
};
use tidemark_tests::{
    World,
    items::{Item, n, s, with_attributes},
    until, user_id, world,
};

use super::{LEAVING, NOT_FOUND, check_others, check_traces, erased, live, traces};
use crate::damage::{
    proxy::{CANCELLED, Fate, world_behind_a_proxy},
    walk,
};

/// Replaces one attribute. Returns the item before.
async fn damage(world: &World, table: &str, key: Item, attribute: &str, value: AttributeValue) -> Item {
    let before = world.item(table, key).await.unwrap();
    assert!(before.contains_key(attribute), "{before:?}");
    world.put_item(table, with_attributes(before.clone(), &[(attribute, value)])).await;
    before
}

/// Makes the erasure look as if no worker had touched it for long, and runs reconcile's minute job.
pub(super) async fn reconcile_hours_later(world: &World) {
    let long_ago = n(1);
    damage(world, "IdentitiesTable", schema::erasure(user_id(LEAVING)), "touched_at", long_ago).await;
    world.resume_fan_outs().await;
}

async fn receipt(world: &World) -> Item {
    world.item("IdentitiesTable", schema::erasure(user_id(LEAVING))).await.unwrap()
}

fn erase(chain: u64, closes: bool) -> Task {
    Task::Erase { user: user_id(LEAVING), chain, closes }
}

/// The tasks that wait in the queue. The workers are paused.
async fn waiting(world: &World) -> Vec<Task> {
    world.messages("FanOutQueue").await.iter().map(|body| queue::decode(body).unwrap()).collect()
}

#[test]
fn a_blocked_user_sees_no_post_while_the_author_leaves() {
    const BLOCKED: u64 = 65;
    world_behind_a_proxy(async |world, proxy| {
        live(world).await;
        let deletions = ["fan-out", "TransactWriteItems", "PostsTable"];
        let tried = proxy.decide_about(deletions, |_| Fate::Refused("InternalServerError"));
        world.user(LEAVING).delete("/v1/me").await.ok();
        until("a post was to be deleted", async || tried.load(Ordering::SeqCst) > 0).await;
        let blocked = world.user(BLOCKED);
        for post in ["1", "2"] {
            assert_eq!(blocked.get(&format!("/v1/posts/{LEAVING}-{post}")).await.problem(), NOT_FOUND);
            assert_eq!(blocked.put(&format!("/v1/posts/{LEAVING}-{post}/like")).await.problem(), NOT_FOUND);
        }
        assert!(blocked.walk(&format!("/v1/authors/{LEAVING}/posts"), 20).await.is_empty());
        proxy.forward_all();
        erased(world).await;
        check_traces(world).await;
        check_others(world).await;
        assert_eq!(blocked.get(&format!("/v1/posts/{LEAVING}-1")).await.problem(), NOT_FOUND);
    });
}

/// The worker dies between the fact and the view. The item that had the version of the reactions is gone.
#[test]
fn removed_reactions_leave_the_view_although_the_worker_was_killed() {
    world(async |world| {
        world.user(60).publish("liked").await;
        let reader = world.user(2);
        reader.put("/v1/posts/60-1/like").await.ok();
        world.idle().await;
        let shown = async || reader.get("/v1/authors/60/posts").await.ok()["items"][0]["liked"].clone();
        assert_eq!(shown().await, true, "a view has it");
        let facts = &world.stack.app("fan-out").unwrap().stores.facts;
        let [author, user] = [60, 2].map(user_id);
        let given = facts.reactions(user, &[author]).await.unwrap().remove(&author).unwrap();
        facts.remove_reactions_to(author, user, &given).await.unwrap();
        world.idle().await;
        assert_eq!(shown().await, false);
    });
}

#[test]
fn a_damaged_receipt_stops_neither_fan_outs_nor_other_erasures() {
    world(async |world| {
        live(world).await;
        world.stack.pause("fan-out").await.unwrap();
        let lost = world.user(60).publish("its pages are lost").await;
        world.user(LEAVING).delete("/v1/me").await.ok();
        world.empty_queue("FanOutQueue").await;
        // The user is listed beside one without a receipt. Another part is damaged.
        let own = schema::running_part(user_id(LEAVING));
        let other = (1..).map(|user| schema::running_part(user_id(user))).find(|part| *part != own).unwrap();
        let users = AttributeValue::Ns([LEAVING, 5].map(|user| user.to_string()).to_vec());
        let wrong = AttributeValue::Ss(vec!["6".to_owned()]);
        for (part, running) in [(own.clone(), users.clone()), (other, wrong)] {
            world.put_item("IdentitiesTable", with_attributes(part, &[("running", running)])).await;
        }
        world.put_item("IdentitiesTable", schema::erasure(user_id(5))).await;
        world.stack.resume("fan-out").unwrap();
        reconcile_hours_later(world).await;
        until("the lost page is delivered", async || world.user(1).feed_ids().await.contains(&lost)).await;
        erased(world).await;
        let left = world.item("IdentitiesTable", own.clone()).await.unwrap();
        assert_eq!(left["running"], AttributeValue::Ns(vec!["5".to_owned()]));
        // As after a restore of the table, which copies its items at different moments.
        world.put_item("IdentitiesTable", with_attributes(own.clone(), &[("running", users)])).await;
        world.resume_fan_outs().await;
        let left = world.item("IdentitiesTable", own).await.unwrap();
        assert_eq!(left["running"], AttributeValue::Ns(vec!["5".to_owned()]));
    });
}

#[test]
fn an_erasure_whose_end_conflicts_with_another_one_ends() {
    world_behind_a_proxy(async |world, proxy| {
        world.publish_and_deliver(LEAVING, "one").await;
        let ends = ["fan-out", "TransactWriteItems", "finished_at"];
        let conflicts = proxy.decide_about(ends, |before| if before < 2 { Fate::Refused(CANCELLED) } else { Fate::Forwarded });
        world.user(LEAVING).delete("/v1/me").await.ok();
        erased(world).await;
        assert_eq!(conflicts.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn repeated_calls_and_looks_leave_one_chain_of_tasks() {
    world(async |world| {
        live(world).await;
        world.stack.pause("fan-out").await.unwrap();
        for _ in 0..20 {
            assert_eq!(world.user(LEAVING).delete("/v1/me").await.status, 202);
        }
        assert_eq!(waiting(world).await, [erase(0, false)]);
        reconcile_hours_later(world).await;
        for _ in 0..5 {
            world.resume_fan_outs().await;
        }
        let mut tasks = waiting(world).await;
        tasks.sort_by_key(|task| matches!(task, Task::Erase { chain: 1, .. }));
        assert_eq!(tasks, [erase(0, false), erase(1, false)], "the second look finds that it was resumed");
        // The task of the first chain does nothing.
        let worker = world.stack.app("fan-out").unwrap().worker.clone();
        let before = receipt(world).await;
        worker.run(&erase(0, false), &|| false).await.unwrap();
        assert_eq!(receipt(world).await, before);
        world.stack.resume("fan-out").unwrap();
        erased(world).await;
        check_traces(world).await;
    });
}

#[test]
fn damaged_items_keep_an_erasure_incomplete_and_hold_nothing_else_back() {
    world(async |world| {
        live(world).await;
        let edge = schema::edge(user_id(3), user_id(LEAVING));
        let post = schema::post(PostId::new(user_id(LEAVING), 1));
        let mut damaged = Vec::new();
        for (table, key, attribute) in [("FollowingTable", edge, "since"), ("PostsTable", post, "at")] {
            damaged.push((table, damage(world, table, key, attribute, s("damaged")).await));
        }
        world.user(LEAVING).delete("/v1/me").await.ok();
        until("the erasure is left", async || receipt(world).await.contains_key("incomplete")).await;
        world.idle().await;
        for reader in [2, 4, 5] {
            let counters = world.user(8).get(&format!("/v1/users/{reader}/counters")).await.ok();
            assert_eq!(counters["followings"], 0, "{reader}");
        }
        let other = world.user(2);
        assert_eq!(other.get(&format!("/v1/posts/{LEAVING}-2")).await.problem(), NOT_FOUND);
        assert_eq!(other.get("/v1/handles/ada_leaves").await.problem(), NOT_FOUND);
        assert_eq!(other.get(&format!("/v1/users/{LEAVING}")).await.ok()["profile"], json!(null));
        assert_eq!(world.user(LEAVING).get("/v1/me/erasure").await.ok()["state"], "running");
        // An operator mends the items.
        for (table, before) in damaged {
            world.put_item(table, before).await;
        }
        reconcile_hours_later(world).await;
        erased(world).await;
        assert!(!receipt(world).await.contains_key("incomplete"));
        check_traces(world).await;
        check_others(world).await;
    });
}

#[test]
fn access_is_closed_while_redis_may_not_know_it() {
    world(async |world| {
        let (user, app) = (world.user(LEAVING), world.stack.app("profile").unwrap());
        user.publish("before").await;
        // What `DELETE /v1/me` leaves if its call to Redis fails: a receipt, the note of an outage, and a task.
        let now = app.stores.clock.now();
        app.stores.facts.begin_erasure(user_id(LEAVING), now).await.unwrap();
        app.stores.facts.note_outage(now.plus_ms(600_000)).await.unwrap();
        until("the note is read", async || user.get("/v1/unread").await.status == 403).await;
        for path in ["/v1/following/61", "/v1/posts/60-1/like", "/v1/mutes/62"] {
            until("the note is read", async || user.put(path).await.status == 403).await;
        }
        assert_eq!(
            [true, false].map(|closes| erase(0, closes).is_missed_by_views()),
            [true, false],
            "the task extends the note until access is closed"
        );
    });
}

#[test]
fn a_page_that_comes_after_the_erasure_writes_nothing() {
    world(async |world| {
        let user = world.user(LEAVING);
        world.follow([1], LEAVING).await;
        user.publish("kept").await;
        user.publish("deleted").await;
        user.delete(&format!("/v1/posts/{LEAVING}-2")).await.ok();
        world.idle().await;
        user.delete("/v1/me").await.ok();
        erased(world).await;
        let keys = async || traces(world).await.into_iter().filter(|text| text.starts_with("key ")).collect::<Vec<_>>();
        let before = keys().await;
        let worker = world.stack.app("fan-out").unwrap().worker.clone();
        for (kind, seq) in [(FanOutKind::Deliver, 1), (FanOutKind::Retract, 2)] {
            let (post, at) = (PostId::new(user_id(LEAVING), seq), Timestamp::from_ms(1));
            let fan_out = FanOut { kind, post, at, pages: 1, deletions: 2, modes: Default::default() };
            for task in
                [Task::Batch { fan_out, page: 0, followers: vec![1] }, Task::Batch { fan_out, page: 0, followers: vec![] }]
            {
                worker.run(&task, &|| false).await.unwrap();
            }
        }
        assert_eq!(keys().await, before);
    });
}

#[test]
fn a_follow_that_overlaps_the_erasure_leaves_a_complete_view() {
    const READER: u64 = 3;
    world(async |world| {
        let reader = world.live_reader(READER, [60]).await;
        // The edge of a request that stalled before it updated the view. The erasure has removed the edge since.
        world.follow([4], 61).await;
        let app = world.stack.app("follow").unwrap();
        let mut edge = app.stores.facts.edges(user_id(4), &[user_id(61)]).await.unwrap().remove(&user_id(61)).unwrap();
        (edge.user, edge.author) = (user_id(READER), user_id(LEAVING));
        app.readers.sync_edges(user_id(READER), vec![edge]).await.unwrap();
        assert_ne!(reader.get("/v1/feed").await.ok()["rebuilding"], true);
        assert_eq!(walk(world, true, 1_000).await["differences"], json!([]));
    });
}

#[test]
fn a_page_of_an_export_reads_as_many_read_states_as_it_has() {
    world_behind_a_proxy(async |world, proxy| {
        let user = world.user(LEAVING);
        for author in 1..=30 {
            world.user(author).publish("read").await;
            user.put(&format!("/v1/posts/{author}-1/read")).await.ok();
        }
        let whole = user.walk("/v1/me/export", 100).await;
        assert_eq!(whole.iter().filter(|item| item["kind"] == "read").count(), 30);
        let unbounded = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&unbounded);
        proxy.decide(move |asked| {
            let is_bounded = asked.body["Limit"].as_u64().is_some_and(|most| most <= 5);
            seen.fetch_or(asked.is("profile", "Query", "\"ReadsTable\"") && !is_bounded, Ordering::SeqCst);
            Fate::Forwarded
        });
        assert_eq!(user.walk("/v1/me/export", 4).await, whole);
        assert!(!unbounded.load(Ordering::SeqCst));
    });
}

#[test]
fn what_is_removed_is_counted_over_several_slices() {
    world(async |world| {
        live(world).await;
        let app = world.stack.app("fan-out").unwrap();
        let count = async |after| {
            app.stores.facts.count_some_traces(user_id(LEAVING), Trace::Reactions(Reaction::Like), after).await.unwrap()
        };
        let first =
            schema::reacted(user_id(LEAVING), Reaction::Like, PostId::new(user_id(60), 1))["post"].as_s().unwrap().clone();
        assert_eq!([count(None).await, count(Some(first)).await], [(2, None), (1, None)]);
        world.stack.pause("fan-out").await.unwrap();
        world.user(LEAVING).delete("/v1/me").await.ok();
        for slice in 1..=5 {
            app.worker.run(&erase(0, false), &|| true).await.unwrap();
            let receipt = receipt(world).await;
            assert_eq!([receipt.contains_key("counting"), receipt.contains_key("removed")], [slice < 5, slice == 5], "{slice}");
        }
        world.stack.resume("fan-out").unwrap();
        let removed = erased(world).await["removed"].clone();
        assert_eq!([&removed["likes"], &removed["favorites"], &removed["reads"]], [2, 1, 1]);
        check_traces(world).await;
    });
}

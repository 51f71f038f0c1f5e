//! Interrupted fan-outs: lost messages, lost progress, and a publish that died after its transaction.

use std::{
    cell::Cell,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use futures::{StreamExt, future::join_all, stream};
use serde_json::{Value, json};
use tidemark::{
    App, Stores,
    domain::{FanOutKind, Post, PostId, Timestamp},
    facts::schema,
    queue::{FanOut, Task},
};
use tidemark_local::{Fault, FaultAction};
use tidemark_tests::{
    PATIENCE, World,
    items::{n, s, with_attributes},
    number_from, user_id, world,
};
use tokio::time::MissedTickBehavior;

use crate::{
    delivery::{delivery, publish_in_facts, resend},
    fields,
    notice_histories::TestClock,
    refusal, windows,
};

/// A look at the fan-outs. It gives up those that were resumed this often.
async fn look(world: &World, most_attempts: u32) -> Value {
    world.reconcile(json!({ "job": "fan-outs", "overdue_ms": 0, "most_attempts": most_attempts })).await
}

/// Removes all messages, and looks at the fan-outs.
async fn look_after_a_loss(world: &World, most_attempts: u32) -> Value {
    resend(world, 0).await;
    look(world, most_attempts).await
}

/// Publishes something of which the projector does not learn. Only reconcile finds it.
async fn unseen<T>(world: &World, publish: impl AsyncFnOnce() -> T) -> T {
    world.stack.pause("projector").await.unwrap();
    let published = publish().await;
    world.stack.lose_records("projector").unwrap();
    world.stack.resume("projector").unwrap();
    published
}

async fn publish_unsent(world: &World) -> String {
    refuse(world, "SendMessageBatch", "publish");
    let post = unseen(world, async || world.user(99).publish("not sent").await).await;
    world.stack.faults().clear();
    post
}

/// A post whose pages nobody has sent, as a publish that died after its transaction leaves it.
async fn publish_and_die(world: &World, followers: u64) -> (Post, FanOut) {
    let app = world.stack.app("publish").unwrap();
    unseen(world, async || publish_in_facts(app, user_id(99), followers, app.stores.clock.now()).await).await
}

/// The state of a post's delivery, and the number of readers who have the post.
async fn state(world: &World, post: &str) -> Value {
    delivery(world, post, &["state", "delivered"]).await
}

/// Resumes all fan-outs. Returns these numbers of the report.
async fn resumed(world: &World, numbers: &[&str]) -> Value {
    fields(&world.resume_fan_outs().await, numbers)
}

/// A stack on which four readers follow the author.
fn followed(test: impl AsyncFnOnce(&World)) {
    world(async |world| {
        world.follow(1..=4, 99).await;
        test(world).await;
    });
}

#[test]
fn only_lost_messages_are_sent_again() {
    world(async |world| {
        world.follow(1..=9, 99).await;
        world.user(1).feed_ids().await;
        world.stack.pause("fan-out").await.unwrap();
        let post = world.user(99).publish("lost").await;
        let gone = world.user(99).publish("lost and deleted").await;
        world.user(99).delete(&format!("/v1/posts/{gone}")).await.ok();
        assert_eq!(resend(world, 0).await, 3, "all messages are lost");
        world.stack.resume("fan-out").unwrap();
        assert_eq!(world.user(1).feed_ids().await.len(), 0);

        assert_eq!(resumed(world, &["unfinished", "pages_sent", "failed"]).await, json!([2, 2, 0]));
        world.idle().await;
        assert_eq!(state(world, &post).await, json!(["done", 9]));
        assert_eq!(delivery(world, &gone, &["state"]).await, json!(["cancelled"]));
        assert_eq!((world.user(1).feed_ids().await, world.user(1).unread_total().await), (vec![post], 1));
        assert_eq!(world.resume_fan_outs().await["unfinished"], 0);
    });
}

#[test]
fn a_publish_that_died_after_its_transaction_is_resumed() {
    followed(async |world| {
        world.user(1).feed_ids().await;
        let (post, _) = publish_and_die(world, 4).await;
        assert_eq!(world.user(1).unread_total().await, 0);
        assert_eq!(world.resume_fan_outs().await["pages_sent"], 1);
        world.idle().await;
        assert_eq!(world.user(1).unread_total().await, 1);
        assert_eq!(state(world, &post.id.to_string()).await, json!(["done", 4]));
    });
}

#[test]
fn progress_that_redis_lost_is_made_again() {
    followed(async |world| {
        world.stack.pause("fan-out").await.unwrap();
        let post = world.user(99).publish("one").await;
        // The page is delivered. Its worker died before it stored that in the fact, and Redis lost the progress.
        let app = world.stack.app("fan-out").unwrap();
        app.stores.views.page_done(FanOutKind::Deliver, post.parse().unwrap(), 0, 4).await.unwrap();
        assert_eq!(state(world, &post).await, json!(["running", 4]));
        world.flush_redis().await;
        resend(world, 0).await;
        world.stack.resume("fan-out").unwrap();
        assert_eq!(world.resume_fan_outs().await["pages_sent"], 1);
        world.idle().await;
        assert_eq!(state(world, &post).await, json!(["done", 4]));
        world.assert_unread(1..=4, 1).await;
    });
}

#[test]
fn attempts_are_bounded_and_visible() {
    followed(async |world| {
        world.user(1).feed_ids().await;
        world.stack.pause("fan-out").await.unwrap();
        let post = world.user(99).publish("again and again").await;
        let sent_and_given_up = async |most: u32| fields(&look_after_a_loss(world, most).await, &["pages_sent", "given_up"]);
        for expected in [[1, 0], [1, 0], [0, 1]] {
            assert_eq!(sent_and_given_up(2).await, json!(expected));
        }
        assert_eq!(delivery(world, &post, &["state", "attempts"]).await, json!(["pending", 2]));
        // An operator has removed the cause and resumes the fan-out.
        assert_eq!(sent_and_given_up(1000).await, json!([1, 0]));
        world.resume("fan-out").await;
        assert_eq!(state(world, &post).await, json!(["done", 4]));
    });
}

#[test]
fn a_finished_fan_out_no_longer_counts_as_given_up() {
    followed(async |world| {
        world.stack.pause("fan-out").await.unwrap();
        let post: PostId = world.user(99).publish("given up").await.parse().unwrap();
        assert_eq!(look_after_a_loss(world, 0).await["given_up"], 1);
        // It is finished, and the index still lists it.
        world.update_item("PostsTable", schema::post(post), &[("state", s("done"))], &[]).await;
        let report = fields(&look_after_a_loss(world, 1_000).await, &["given_up", "found", "repaired"]);
        assert_eq!(report, json!([0, { "unfinished-left": 1 }, { "unfinished-left": 1 }]));
        world.stack.resume("fan-out").unwrap();
    });
}

#[test]
fn a_fan_out_with_recent_progress_is_not_resumed() {
    followed(async |world| {
        let (post, _) = publish_and_die(world, 2_500).await;
        let app = world.stack.app("publish").unwrap();
        app.stores.views.page_done(FanOutKind::Deliver, post.id, 1, 2).await.unwrap();
        assert_eq!(resumed(world, &["moving", "pages_sent"]).await, json!([1, 0]));
        // There was no progress since. Only the missing pages are sent.
        assert_eq!(resumed(world, &["moving", "pages_sent"]).await, json!([0, 2]));
        world.idle().await;
        assert_eq!(delivery(world, &post.id.to_string(), &["state", "pages_done"]).await, json!(["done", 3]));
    });
}

#[test]
fn a_thousand_fan_outs_that_were_given_up_do_not_delay_others() {
    followed(async |world| {
        // Old posts whose pages always fail.
        let old = (10_001..=11_000).map(|author| {
            let at = Timestamp::from_ms(1_000_000 + author);
            let attributes = [
                ("at", n(at.ms())),
                ("time", s(schema::post_time(at, 1))),
                ("state", s("pending")),
                ("followers", n(1)),
                ("pages", n(1)),
                ("attempts", n(30)),
                ("unfinished", s(schema::unfinished_shard(author % 4))),
            ];
            with_attributes(windows::post(user_id(author), 1, false, false), &attributes)
        });
        world.put_items("PostsTable", old).await;
        world.stack.pause("fan-out").await.unwrap();
        let later = world.user(99).publish("later").await;
        assert_eq!(resend(world, 0).await, 1, "lost");
        world.stack.resume("fan-out").unwrap();
        let mut looks = Vec::new();
        for _ in 0..2 {
            looks.push(world.resume_fan_outs().await);
            world.idle().await;
        }
        assert_eq!(state(world, &later).await, json!(["done", 4]), "{looks:?}");
        let third = resumed(world, &["given_up", "unfinished", "pages_sent", "found"]).await;
        assert_eq!(third, json!([1_000, 0, 0, { "fan-outs-given-up": 1 }]), "they are still reported");
        // An operator has removed the cause.
        assert_eq!(fields(&look(world, 1_000).await, &["pages_sent", "given_up"]), json!([1_000, 0]));
        world.idle().await;
        assert_eq!(world.resume_fan_outs().await["unfinished"], 0);
    });
}

#[test]
fn a_backlog_does_not_multiply() {
    world(async |world| {
        const MESSAGES: usize = 2_000;
        join_all((101..=120).map(|author| world.follow(1..=2, author))).await;
        world.stack.pause("fan-out").await.unwrap();
        join_all((101..=120).map(async |author| world.user(author).publish_all(["waits"; MESSAGES / 20]).await)).await;
        for _ in 0..31 {
            world.resume_fan_outs().await;
        }
        let messages = world.waiting("FanOutQueue").await;
        println!("{MESSAGES} messages held for 31 looks: {messages}");
        assert!(messages <= MESSAGES * 11 / 10, "{messages}");
        world.resume("fan-out").await;
        assert_eq!(world.resume_fan_outs().await["unfinished"], 0);
        assert_eq!(world.user(1).unread_total().await, MESSAGES as u64);
    });
}

/// Lets requests of a function fail, until the faults are cleared.
fn refuse(world: &World, operation: &str, function: &str) {
    world.stack.faults().add(refusal(operation).of(function));
}

/// Makes the last look at these posts a minute older.
async fn a_minute_passes(world: &World, posts: [&str; 2]) {
    let dynamodb = world.dynamodb().await;
    for post in posts {
        let update = dynamodb.update_item().table_name("PostsTable").set_key(Some(schema::post(post.parse().unwrap())));
        let update = update.update_expression("ADD sent_at :minute").expression_attribute_values(":minute", n(-60_000));
        update.condition_expression("attribute_exists(sending)").send().await.unwrap();
    }
}

#[test]
fn pages_that_were_never_sent_do_not_wait_until_the_queue_is_empty() {
    followed(async |world| {
        world.follow(1..=4, 98).await;
        world.user(1).feed_ids().await;
        world.stack.pause("fan-out").await.unwrap();
        let waits = world.user(98).publish("waits in the queue").await;
        refuse(world, "SendMessageBatch", "publish");
        let publish = async || {
            let post = world.user(99).publish("not sent").await;
            let gone = world.user(99).publish("not sent, and deleted").await;
            world.user(99).delete(&format!("/v1/posts/{gone}")).await.ok();
            (post, gone)
        };
        let (post, gone) = unseen(world, publish).await;
        // The queue still refuses: nothing is sent, and no attempt counts.
        refuse(world, "SendMessageBatch", "reconcile");
        for _ in 0..3 {
            assert_eq!(resumed(world, &["pages_sent", "failed"]).await, json!([0, 2]));
            // Until a minute has passed, the run may still be sending.
            assert_eq!(resumed(world, &["moving", "failed"]).await, json!([3, 0]));
            a_minute_passes(world, [&post, &gone]).await;
        }
        world.stack.faults().clear();
        assert_eq!(world.waiting("FanOutQueue").await, 1);
        // Two runs at once send each page once.
        let (one, other) = tokio::join!(world.resume_fan_outs(), world.resume_fan_outs());
        assert_eq!(world.waiting("FanOutQueue").await, 3, "{one} {other}");
        assert_eq!(delivery(world, &post, &["state", "attempts"]).await, json!(["pending", 1]));
        world.resume("fan-out").await;
        assert_eq!(world.user(1).feed_ids().await, [post, waits]);
        assert_eq!(world.resume_fan_outs().await["unfinished"], 0);
    });
}

#[test]
fn two_runs_of_the_same_millisecond_send_each_page_once() {
    followed(async |world| {
        world.stack.pause("fan-out").await.unwrap();
        let post: PostId = publish_unsent(world).await.parse().unwrap();
        let app = world.stack.app("reconcile").unwrap();
        let clock = TestClock(Arc::new(AtomicU64::new(app.stores.clock.now().ms())));
        let stores = Arc::new(Stores { clock: Arc::new(clock), ..(*app.stores).clone() });
        let fan_outs = App::new(app.settings.clone(), stores).fan_outs;
        let head = &app.stores.facts.heads(&[post.author]).await.unwrap()[&post.author];
        let post = &app.stores.facts.posts(&[post]).await.unwrap()[&post];
        let inspected = fan_outs.inspect(post, head, 8).await.unwrap();
        for resumed in [true, false] {
            assert_eq!(fan_outs.resume(post, head, &inspected).await.unwrap(), resumed);
        }
        assert_eq!(world.waiting("FanOutQueue").await, 1);
        world.stack.resume("fan-out").unwrap();
    });
}

#[test]
fn a_lost_response_of_a_look_keeps_no_page_from_being_sent() {
    followed(async |world| {
        let post = publish_unsent(world).await;
        let lose = |after| Fault::new("UpdateItem", FaultAction::LoseResponse).of("reconcile").on("PostsTable").after(after);
        // The note that pages are being sent, and after its repetition the note that they are sent.
        let (sending, sent) = (world.stack.faults().add(lose(0)), world.stack.faults().add(lose(1)));
        assert_eq!(world.resume_fan_outs().await["pages_sent"], 1);
        assert_eq!((sending.fired(), sent.fired()), (1, 1));
        world.idle().await;
        assert_eq!(delivery(world, &post, &["state", "attempts"]).await, json!(["done", 1]));
    });
}

#[test]
fn nothing_is_resumed_while_the_queue_is_unavailable() {
    followed(async |world| {
        let post = publish_unsent(world).await;
        refuse(world, "GetQueueAttributes", "reconcile");
        assert_eq!(resumed(world, &["unfinished", "failed"]).await, json!([0, 1]));
        world.stack.faults().clear();
        assert_eq!(world.resume_fan_outs().await["pages_sent"], 1);
        world.idle().await;
        assert_eq!(state(world, &post).await, json!(["done", 4]));
    });
}

#[test]
fn a_list_task_sends_no_page_that_is_done() {
    followed(async |world| {
        let app = world.stack.app("fan-out").unwrap();
        let (post, fan_out) = publish_and_die(world, 3_500).await;
        world.stack.pause("fan-out").await.unwrap();
        for page in [0, 2] {
            app.stores.views.page_done(FanOutKind::Deliver, post.id, page, 1).await.unwrap();
        }
        app.worker.run(&Task::List { fan_out, from: 0, to: 4 }, &|| false).await.unwrap();
        assert_eq!(world.waiting("FanOutQueue").await, 2, "only the other two pages");
        world.resume("fan-out").await;
    });
}

#[test]
fn a_deletion_starts_with_new_attempts_after_its_delivery_was_given_up() {
    followed(async |world| {
        world.user(1).feed_ids().await;
        world.stack.pause("fan-out").await.unwrap();
        let post = world.user(99).publish("given up").await;
        for given_up in [0, 0, 1] {
            assert_eq!(look_after_a_loss(world, 2).await["given_up"], given_up);
        }
        world.user(99).delete(&format!("/v1/posts/{post}")).await.ok();
        assert_eq!(fields(&look_after_a_loss(world, 2).await, &["pages_sent", "given_up"]), json!([1, 0]));
        world.resume("fan-out").await;
        assert_eq!(world.resume_fan_outs().await["unfinished"], 0);
    });
}

/// Minutes until nothing is pending after an outage of SQS, and messages that are sent for each that was refused. Posts
/// arrive all the time, and the minute job runs every minute. `cargo test --profile measured -p tidemark-tests --test
/// system -- --ignored --exact --nocapture resumption::an_outage_of_the_queue_under_traffic`; `OUTAGE_SECONDS` and
/// `POSTS` a second change the numbers.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a quarter of an hour; it measures"]
async fn an_outage_of_the_queue_under_traffic() {
    const AUTHORS: u64 = 200;
    const READERS: u64 = 40;
    let (outage, rate) = (Duration::from_secs(number_from("OUTAGE_SECONDS", 600)), number_from("POSTS", 100));
    World::run(async |world| {
        let (author, reads) = (|post: u64| 1_000 + post % AUTHORS, |reader: u64, author: u64| author % 10 == reader % 10);
        for reader in 1..=READERS {
            world.user(reader).follow((0..AUTHORS).map(author).filter(|author| reads(reader, *author))).await;
            world.user(reader).feed_ids().await;
        }
        let refused = ["SendMessage", "SendMessageBatch", "GetQueueAttributes"]
            .map(|operation| world.stack.faults().add(refusal(operation).on("FanOutQueue")));
        let (started, ended, published) = (tokio::time::Instant::now(), Cell::new(false), Cell::new(0));
        let publish = stream::unfold(0, async |post| {
            tokio::time::sleep_until(started + Duration::from_secs(1) * post as u32 / rate as u32).await;
            (!ended.get()).then_some((post, post + 1))
        });
        let publish = publish.for_each_concurrent(256, async |post| {
            world.user(author(post)).publish("during the outage").await;
            published.set(published.get() + 1);
        });
        let minutes = async {
            let (mut sent, mut lost, mut over, mut looks) = (0, 0, None, tokio::time::interval(Duration::from_secs(60)));
            looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                looks.tick().await;
                if lost == 0 && started.elapsed() >= outage {
                    world.stack.faults().clear();
                    over = Some(Instant::now());
                    lost = published.get();
                    let refused = refused.each_ref().map(|fault| fault.fired());
                    println!("{lost} posts in {:?}; refused: {refused:?}", started.elapsed());
                }
                let look = Instant::now();
                let report = world.reconcile(json!({ "job": "minute" })).await;
                let numbers = ["unfinished", "pages_sent", "moving", "failed"].map(|name| &report[name]);
                println!("{:?}, a look of {:?}: {numbers:?}", started.elapsed(), look.elapsed());
                sent += report["pages_sent"].as_u64().unwrap();
                let after = over.map_or(Duration::ZERO, |over| over.elapsed());
                assert!(after < outage + PATIENCE, "posts arrive faster than they are delivered");
                if lost > 0 && report["unfinished"] == 0 {
                    ended.set(true);
                    return (sent, lost, after);
                }
            }
        };
        let ((), (sent, lost, after)) = futures::join!(publish, minutes);
        println!("nothing is pending {after:?} after the outage; {sent} messages for {lost} that were lost");
        world.stack.idle_within(Duration::from_secs(600)).await.unwrap();
        let published = published.get();
        for reader in 1..=READERS {
            let posts = (0..published).filter(|post| reads(reader, author(*post))).count();
            assert_eq!(world.user(reader).unread_total().await, posts as u64, "{reader}");
        }
        assert!(sent * 10 <= lost * 11);
    })
    .await;
}

#[test]
fn an_unknown_job_is_refused() {
    world(async |world| {
        assert!(world.stack.fire("reconcile", Some(json!({ "job": "everything" }))).await.is_err());
    });
}

//! Events: those of random histories, in calm weather and in a storm, shuffled and repeated, tell what the API returns.
//! A bus that refuses events, projectors that are killed and a restart lose none.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, channel},
    },
    time::Duration,
};

use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde_json::{Value, json};
use tidemark::{Clock, PendingEvent, Stores, domain::Timestamp, facts::StreamRecord};
use tidemark_app::EventsOut;
use tidemark_local::{Fault, FaultAction, Options, Weather};
use tidemark_tests::{Folded, Model, World, deployed_redis_timeouts, number_from, told_lines, world};

use crate::{
    operations::{self, Callers, OPERATIONS},
    percentiles,
};

/// The number of histories of one test, of those that share a stack, and the operations in each.
const HISTORIES: u64 = 16;
const TOGETHER: u64 = 8;
const LENGTH: usize = 60;
const USERS: u64 = 4;

#[tokio::test(flavor = "multi_thread")]
async fn events_of_histories_tell_what_the_api_returns() {
    histories(Weather::Calm).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_histories_in_a_storm_tell_what_the_api_returns() {
    histories(Weather::Storm).await;
}

async fn histories(weather: Weather) {
    let (sender, lines) = channel();
    let configure = |options: &mut Options| {
        deployed_redis_timeouts(options);
        options.lines = Some(sender);
    };
    let world = World::start(configure).await;
    let (mut folded, mut last, mut seen) = (Folded::default(), None, 0);
    for first in (0..number_from("TIDEMARK_HISTORIES", HISTORIES)).step_by(TOGETHER as usize) {
        world.stack.set_weather(weather, first);
        let users = join_all((first..first + TOGETHER).map(|seed| history(&world, seed, weather))).await;
        world.calm_down().await;
        // In a storm a pass of reconcile resumes what nobody else does.
        world.resume_fan_outs().await;
        world.idle().await;
        let events = world.events_after(last.as_deref()).await;
        seen += events.len();
        last = events.last().map(|event| event["id"].as_str().unwrap().to_owned()).or(last);
        let mut repeated = [&events[..], &events[..]].concat();
        repeated.shuffle(&mut StdRng::seed_from_u64(first));
        repeated.iter().for_each(|event| folded.fold(event));
        for user in users.into_iter().flatten() {
            let export = world.user(user).walk("/v1/me/export", 100).await;
            let (told, expected) = (folded.export_of(user), told_lines(user, export));
            let differences: BTreeSet<&String> =
                told.keys().chain(expected.keys()).filter(|name| told.get(*name) != expected.get(*name)).collect();
            let shown: Vec<_> = differences.iter().map(|name| (*name, told.get(*name), expected.get(*name))).collect();
            assert!(shown.is_empty(), "{weather}, user {user}: {shown:#?}");
        }
    }
    println!("{weather}: {seen} events, lag {}", percentiles(lags(&lines)));
    world.finish().await;
}

/// The times from the changes to the bus.
fn lags(lines: &Receiver<String>) -> Vec<Duration> {
    let lines: Vec<Value> = lines.try_iter().map(|line| serde_json::from_str(&line).unwrap()).collect();
    let lags = lines.iter().flat_map(|line| match &line["EventLag"] {
        Value::Array(lags) => lags.as_slice(),
        lag => std::slice::from_ref(lag),
    });
    lags.filter_map(Value::as_f64).map(|ms| Duration::from_secs_f64(ms / 1_000.0)).collect()
}

/// Runs one history with users of its own. Returns those who are still there.
async fn history(world: &World, seed: u64, weather: Weather) -> Vec<u64> {
    let (mut rng, mut model, findings) = (StdRng::seed_from_u64(seed), Model::default(), RefCell::default());
    let mut users: Vec<u64> = (0..USERS).map(|index| (seed + 1) * 1_000_003 + index).collect();
    let callers = Callers { world, findings: (weather != Weather::Calm).then_some(&findings), unanswered: Arc::default() };
    for _ in 0..LENGTH {
        let dice = rng.random_range(0..OPERATIONS);
        operations::operate(&callers, &mut rng, &mut model, &users, dice).await;
    }
    if seed % TOGETHER == 3 {
        let left = users.remove(0);
        callers.user(left).delete("/v1/me").await.ok();
        // The others go on.
        for _ in 0..LENGTH / 4 {
            let dice = rng.random_range(0..OPERATIONS);
            model.forget(left);
            operations::operate(&callers, &mut rng, &mut model, &users, dice).await;
        }
    }
    users
}

/// Some changes of each kind by users 1 and 2.
async fn some_changes(world: &World, round: u64) {
    let (reader, author) = (world.user(1), world.user(2));
    reader.put("/v1/following/2").await.ok();
    let post = author.publish(&format!("round {round}")).await;
    reader.put(&format!("/v1/posts/{post}/like")).await.ok();
    reader.put(&format!("/v1/posts/{post}/read")).await.ok();
    author.put_body(&format!("/v1/posts/{post}"), &json!({ "title": format!("round {round}, edited") })).await.ok();
    author.put_body("/v1/me/profile", &json!({ "name": format!("round {round}") })).await.ok();
    reader.delete(&format!("/v1/posts/{post}/like")).await.ok();
    reader.delete("/v1/following/2").await.ok();
}

/// The events of one round, by type.
const OF_ROUND: [&str; 8] = [
    "follow.began",
    "follow.ended",
    "post.edited",
    "post.published",
    "profile.changed",
    "reaction.given",
    "reaction.removed",
    "read.changed",
];

fn types(events: &[Value]) -> Vec<&str> {
    let mut types: Vec<&str> = events.iter().map(|event| event["detail-type"].as_str().unwrap()).collect();
    types.sort_unstable();
    types
}

#[test]
fn a_bus_that_refuses_events_gets_all_of_them_later() {
    world(async |world| {
        let put = |action| Fault::new("PutEvents", action).of("projector").times(3);
        let faults = [
            put(FaultAction::LeaveUnprocessed),
            put(FaultAction::FailBefore("ThrottlingException".to_owned())),
            put(FaultAction::LoseResponse),
            put(FaultAction::FailAfter("InternalException".to_owned())),
        ];
        let mut last = None;
        for (round, fault) in (1..).zip(faults) {
            let planted = world.stack.faults().add(fault);
            some_changes(world, round).await;
            world.idle().await;
            assert!(planted.fired() > 0, "round {round}");
            world.stack.faults().clear();
            let events = world.events_after(last.as_deref()).await;
            assert_eq!(types(&events), OF_ROUND, "round {round}");
            last = events.last().map(|event| event["id"].as_str().unwrap().to_owned());
        }
    });
}

#[tokio::test]
async fn projectors_that_are_killed_and_a_restart_lose_no_event() {
    let mut world = World::start(|_| {}).await;
    let mut expected = Vec::new();
    for round in 1..=3 {
        world.stack.pause("projector").await.unwrap();
        some_changes(&world, round).await;
        expected.extend(OF_ROUND);
        let killed = world.stack.faults().add(Fault::new("PutEvents", FaultAction::Kill).of("projector").times(2));
        if round == 2 {
            // A restart ends the pause, and repeats what was not noted as sent.
            world = world.restart().await;
        } else {
            world.resume("projector").await;
            assert!(killed.fired() > 0, "round {round}");
        }
        world.idle().await;
    }
    let events = world.events().await;
    expected.sort_unstable();
    assert_eq!(types(&events), expected);
    world.finish().await;
}

/// Views are in line while the bus accepts nothing.
#[test]
fn views_do_not_wait_for_the_bus() {
    world(async |world| {
        let reader = world.live_reader(1, [2]).await;
        world.idle().await;
        let refused = world.stack.faults().add(crate::refusal("PutEvents").of("projector"));
        // Neither the request nor its tasks show the post: the projector starts the fan-out of an interrupted publish.
        let app = world.stack.app("publish").unwrap();
        crate::delivery::publish_in_facts(app, tidemark_tests::user_id(2), 1, app.stores.clock.now()).await;
        tidemark_tests::until("the post is delivered", async || reader.feed_ids().await == ["2-1"]).await;
        tidemark_tests::until("the bus is asked", async || refused.fired() > 0).await;
        assert_eq!(types(&world.events_after(None).await), ["follow.began"]);
        world.stack.faults().clear();
        assert_eq!(types(&world.events().await), ["follow.began", "post.published"]);
    });
}

/// A clock that a test sets.
struct Hands(AtomicU64);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.0.load(Ordering::SeqCst))
    }
}

/// After five minutes of a bus that accepts nothing, events go to the failure queue, as requests that can be sent.
#[test]
fn events_that_a_bus_never_accepts_become_requests_in_the_failure_queue() {
    world(async |world| {
        let (start, clock) = (1_800_000_000_000, Arc::new(Hands(AtomicU64::new(1_800_000_000_000))));
        let stores = Stores { clock: Arc::clone(&clock) as _, ..(*world.stack.app("projector").unwrap().stores).clone() };
        let (tables, events) = (stores.facts.tables.clone(), EventsOut::new(Arc::new(stores.clone())));
        let edge = json!({
            "user": { "N": "1" }, "author": { "N": "2" }, "since": { "N": "5" }, "rev": { "N": "7" }, "base": { "N": "0" },
            "floor": { "N": "0" }, "following": { "BOOL": true },
        });
        let new: serde_dynamo::Item = serde_json::from_value(edge).unwrap();
        let (arn, none) = (format!("arn:aws:dynamodb:a:1:table/{}/stream/x", tables.following), serde_dynamo::Item::default());
        let record = StreamRecord { arn: Some(&arn), keys: &none, old: &none, new: &new };
        let pending = || {
            let event = record.events(&tables).unwrap().pop().unwrap();
            vec![PendingEvent { record: 4, at: Timestamp::from_ms(start), event }]
        };
        let waiting = async || stores.queues.failures.waiting().await.unwrap();
        world.stack.faults().add(crate::refusal("PutEvents"));
        for minutes in 0..5 {
            clock.0.store(start + minutes * 60_000, Ordering::SeqCst);
            assert_eq!(events.send(pending()).await, BTreeSet::from([4]), "minute {minutes}");
        }
        assert_eq!(waiting().await, 0);
        clock.0.store(start + 5 * 60_000, Ordering::SeqCst);
        assert_eq!((events.send(pending()).await, waiting().await), (BTreeSet::new(), 1));
        // The bus accepts events again, and the next failure is given time again.
        world.stack.faults().clear();
        assert_eq!((events.send(pending()).await, waiting().await), (BTreeSet::new(), 1));
        world.stack.faults().add(crate::refusal("PutEvents"));
        assert_eq!((events.send(pending()).await, waiting().await), (BTreeSet::from([4]), 1));
        // Without a try in between, ten minutes are no refusal.
        clock.0.store(start + 15 * 60_000, Ordering::SeqCst);
        assert_eq!((events.send(pending()).await, waiting().await), (BTreeSet::from([4]), 1));
        world.stack.faults().clear();
        let message = world.given_up().await;
        let request: Value = serde_json::from_str(&message[0]).unwrap();
        let entry = &request["Entries"][0];
        assert_eq!([&entry["Source"], &entry["DetailType"], &entry["EventBusName"]], ["tidemark", "follow.began", "local"]);
        let detail: Value = serde_json::from_str(entry["Detail"].as_str().unwrap()).unwrap();
        let since = "1970-01-01T00:00:00.005Z";
        let expected = json!({ "id": "follow.began:1/2:7", "revision": 7, "user": "1", "author": "2", "since": since });
        assert_eq!((detail, &entry["Time"]), (expected, &json!("2027-01-15T08:00:00.000Z")));
    });
}

/// Without an end of the wait, the record of an item that nobody can read would hold up all later ones.
#[test]
fn an_item_that_cannot_be_read_holds_up_no_event() {
    world(async |world| {
        world.user(1).follow([2]).await;
        world.idle().await;
        let dynamodb = world.dynamodb().await;
        let number = |number: &str| aws_sdk_dynamodb::types::AttributeValue::N(number.to_owned());
        let update = dynamodb.update_item().table_name(&world.stack.template().tables["FollowingTable"].name);
        let update = update.key("user", number("1")).key("author", number("2")).update_expression("SET since = :text");
        let text = aws_sdk_dynamodb::types::AttributeValue::S("yesterday".to_owned());
        update.expression_attribute_values(":text", text).send().await.unwrap();
        world.user(3).follow([4]).await;
        tidemark_tests::until("later events leave", async || world.events_after(None).await.len() == 2).await;
        world.idle().await;
        let notes = world.given_up().await;
        assert!(notes.contains(&"no event, because an item is damaged: following 1 2".to_owned()), "{notes:?}");
    });
}

//! Tables that come back as they were at an earlier second: all of them, or one beside newer others. The stack serves
//! from the restored tables, forgets all views, and reconciles while requests continue, as `make restore` does it.

use std::{
    cell::Cell,
    collections::BTreeMap,
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tidemark::domain::feed::FeedCap;
use tidemark_tests::{
    LegacyRedis, Model, User, World, in_one_thread,
    items::Item,
    template::{resources, template_document},
};

use crate::{
    at_once,
    operations::{self, Callers, OPERATIONS, compare},
};

const GROUPS: u64 = 6;
const USERS: u64 = 5;
const OPERATIONS_OF_EACH: usize = 50;

/// An author with three followers, whose post after the restored second is lost.
const AUTHOR: u64 = 99;

/// A few users who have to do with each other only.
struct Group {
    seed: u64,
    users: Vec<u64>,
    model: Model,
    rng: StdRng,
}

fn groups(seeds: RangeInclusive<u64>) -> Vec<Group> {
    let group = |seed: u64| {
        let users = (1..=USERS).map(|index| seed * 1_000_003 + index).collect();
        Group { seed, users, model: Model::default(), rng: StdRng::seed_from_u64(seed) }
    };
    seeds.map(group).collect()
}

/// Random operations, which the models know. Returns their number.
async fn serve(world: &World, groups: &mut [Group], operations: usize) -> usize {
    let callers = Callers { world, findings: None, unanswered: Default::default() };
    join_all(groups.iter_mut().map(async |Group { users, model, rng, .. }| {
        for _ in 0..operations {
            let dice = rng.random_range(0..OPERATIONS);
            operations::operate(&callers, rng, model, users, dice).await;
        }
    }))
    .await;
    operations * groups.len()
}

async fn assert_agreement(world: &World, groups: &[Group], models: &[Model]) {
    for (group, model) in groups.iter().zip(models) {
        for &user in &group.users {
            compare(&world.user(user), model, user, group.seed, (7, FeedCap::GREATEST)).await;
        }
    }
}

/// The number of users whose feed or count is not that of the model.
async fn stale_readers(world: &World, groups: &[Group]) -> usize {
    let mut stale = 0;
    for Group { users, model, .. } in groups {
        for &user in users {
            let caller = world.user(user);
            let mut feed = operations::posts_and_flags(&caller.walk("/v1/feed", 100).await);
            let mut expected = model.feed(user);
            feed.sort_unstable();
            expected.sort_unstable();
            stale += usize::from((feed, caller.unread_total_once().await) != (expected, model.unread_total(user)));
        }
    }
    stale
}

fn models(groups: &[Group]) -> Vec<Model> {
    groups.iter().map(|group| group.model.clone()).collect()
}

/// The items of every table, by logical id.
type Copy = BTreeMap<String, Vec<Item>>;

async fn copy(world: &World) -> Copy {
    let dynamodb = world.dynamodb().await;
    let mut copy = Copy::new();
    for (id, table) in &world.stack.template().tables {
        let scan = dynamodb.scan().table_name(&table.name).into_paginator().items().send();
        copy.insert(id.clone(), scan.try_collect().await.unwrap());
    }
    copy
}

fn restored_name(id: &str) -> String {
    format!("{id}-restored")
}

/// The template whose tables `restored` have other names.
fn with_restored(mut template: Value, restored: &[&str]) -> Value {
    for id in restored {
        template["Resources"][id]["Properties"]["TableName"] = json!(restored_name(id));
    }
    template
}

/// Point-in-time restore makes tables without streams and expiry.
fn as_restored(restored: &[&str]) -> Value {
    let mut template = with_restored(template_document(), restored);
    let tables = template["Resources"].as_object_mut().unwrap();
    tables.retain(|id, _| restored.contains(&id.as_str()));
    for table in tables.values_mut() {
        for setting in ["StreamSpecification", "TimeToLiveSpecification"] {
            table["Properties"].as_object_mut().unwrap().remove(setting);
        }
    }
    for section in ["Globals", "Outputs"] {
        template.as_object_mut().unwrap().remove(section);
    }
    template
}

/// A stack whose Redis, and so its views, stay while the stack is stopped.
async fn start(redis: &LegacyRedis) -> World {
    World::start(|options| options.redis_url = Some(redis.url())).await
}

/// Stops the functions, empties the queues, and starts the functions on the restored tables.
async fn switch(world: World, copy: &Copy, restored: &[&str]) -> World {
    world.idle().await;
    let world = world.restart_with_template(&as_restored(restored)).await;
    for id in restored {
        world.put_items(&restored_name(id), copy[*id].clone()).await;
    }
    world.restart_with_template(&with_restored(template_document(), restored)).await
}

#[derive(Default)]
struct Requests {
    all: Cell<usize>,
    refused: Cell<usize>,
    degraded: Cell<usize>,
}

impl Requests {
    fn count(&self, response: &tidemark_tests::Response) {
        self.all.set(self.all.get() + 1);
        self.refused.set(self.refused.get() + usize::from(response.status >= 500));
        self.degraded.set(self.degraded.get() + usize::from(response.headers.contains_key("degraded")));
    }
}

/// Forgets all views, and walks over all users and facts, as the script lets reconcile do it.
async fn forget_and_reconcile(world: &World) -> Value {
    let mut event = json!({ "job": "forget" });
    loop {
        let forgotten = world.reconcile(event.clone()).await;
        if forgotten["next"].is_null() {
            break;
        }
        event["from"] = forgotten["next"].clone();
    }
    let mut report = world.reconcile(json!({ "job": "users", "share": 1, "settle_ms": 1_000, "from": "keys 0" })).await;
    let found = report["found"].clone();
    while !report["next"].is_null() {
        report = world.reconcile(json!({ "job": "minute", "settle_ms": 1_000 })).await["users"].clone();
    }
    found
}

/// Requests that read, one after another for each group, until the work has ended.
async fn read_during<T>(world: &World, groups: &[Group], work: impl Future<Output = T>) -> (T, Requests) {
    let (requests, done) = (Requests::default(), Cell::new(false));
    let work = async {
        let outcome = work.await;
        done.set(true);
        outcome
    };
    let read = groups.iter().map(async |group| {
        for round in 0.. {
            for &user in &group.users {
                let path = ["/v1/feed", "/v1/unread", "/v1/feed?order=ranked", "/v1/me/likes"][round % 4];
                requests.count(&world.user(user).get(path).await);
                let counters = format!("/v1/users/{user}/counters");
                requests.count(&world.user(user).get(&counters).await);
            }
            if done.get() {
                break;
            }
        }
    });
    let (outcome, _) = futures::join!(work, join_all(read));
    (outcome, requests)
}

fn tables() -> Vec<String> {
    resources(&template_document(), "AWS::DynamoDB::Table").into_keys().collect()
}

/// Everything that the API shows of these users, first by views and then without them.
async fn shown(user: &User, others: &[u64]) -> Vec<Value> {
    let mut shown = vec![
        json!(user.walk("/v1/feed", 9).await),
        json!(user.walk("/v1/feed?status=unread", 9).await),
        user.get("/v1/unread").await.ok(),
        json!(user.walk("/v1/me/likes", 9).await),
        json!(user.walk("/v1/lists", 9).await),
    ];
    for other in others {
        for path in [format!("/v1/users/{other}/counters"), format!("/v1/relations/{other}")] {
            shown.push(user.get(&path).await.ok());
        }
        for list in ["followers", "following"] {
            shown.push(json!(user.walk(&format!("/v1/users/{other}/{list}"), 9).await));
        }
        let timeline = user.get(&format!("/v1/authors/{other}/posts?limit=100")).await;
        shown.push(json!([timeline.status, timeline.body["items"]]));
    }
    shown
}

async fn assert_views_are_as_the_facts(world: &World, groups: &[Group], restored: &str) {
    let all = async || {
        let mut all = Vec::new();
        for Group { users, .. } in groups {
            for &user in users {
                all.push(shown(&world.user(user), users).await);
            }
        }
        all
    };
    let by_views = all().await;
    world.flush_redis().await;
    for (views, facts) in by_views.into_iter().zip(all().await) {
        assert_eq!(views, facts, "{restored}");
    }
}

#[test]
fn after_a_restore_of_all_tables_to_one_second_everything_is_as_it_was_then() {
    in_one_thread(async {
        let redis = LegacyRedis::start().await;
        let (world, mut groups) = (start(&redis).await, groups(1..=GROUPS));
        serve(&world, &mut groups, OPERATIONS_OF_EACH).await;
        world.follow([1, 2, 3], AUTHOR).await;
        world.read_feeds([1, 2, 3]).await;
        world.idle().await;
        let (copy, then) = (copy(&world).await, models(&groups));
        serve(&world, &mut groups, OPERATIONS_OF_EACH).await;
        let lost = world.publish_and_deliver(AUTHOR, "lost").await;

        let tables = tables();
        let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
        let started = Instant::now();
        let world = switch(world, &copy, &tables).await;
        let switched = started.elapsed();
        for (group, then) in groups.iter_mut().zip(then) {
            group.model = then;
        }
        // Without that, views of later facts would count as current.
        let stale = stale_readers(&world, &groups).await;
        assert!(stale > 0, "the views are those of the lost facts");
        let forgotten = world.reconcile(json!({ "job": "forget" })).await;
        assert!(forgotten["looked_at"].as_u64() > Some(GROUPS * USERS), "{forgotten}");
        let (found, operations) = futures::join!(forget_and_reconcile(&world), serve(&world, &mut groups, OPERATIONS_OF_EACH));
        assert_eq!(found, json!({}), "tables of one second do not contradict each other");
        world.idle().await;
        assert_agreement(&world, &groups, &models(&groups)).await;
        // The number of a lost post is given again, and what its fan-out had done does not count.
        world.read_feeds([1, 2, 3]).await;
        assert_eq!(world.publish_and_deliver(AUTHOR, "again").await, lost);
        let delivery = world.user(AUTHOR).get(&format!("/v1/posts/{lost}/delivery")).await.ok();
        assert_eq!((&delivery["state"], &delivery["delivered"]), (&json!("done"), &json!(3)), "{delivery}");
        let report = world.walk_over_all_users(true, Duration::from_millis(500)).await;
        assert_eq!((report.differences.len(), report.failed), (0, 0), "{report:?}");
        println!(
            "{} tables: {:.1?} to switch, {:.1?} in all; {operations} operations of {} users during reconcile, 0 refused, 0 wrong; \
             {stale} readers had wrong views before all were forgotten",
            tables.len(),
            switched,
            started.elapsed(),
            GROUPS * USERS
        );
        world.finish().await;
    });
}

/// The tables that can be restored alone. The others give numbers or ids, which would be given a second time.
const ALONE: [&str; 11] = [
    "FollowingTable",
    "FollowersTable",
    "CountersTable",
    "ReadsTable",
    "NoticeReadsTable",
    "ReactionsTable",
    "ReactedTable",
    "ProfilesTable",
    "HandlesTable",
    "IdempotencyTable",
    "InboxTable",
];

#[test]
fn an_older_table_beside_newer_ones_is_reconciled_while_requests_continue() {
    // Each table has histories of its own.
    let tables = (1..).step_by(2).zip(ALONE);
    in_one_thread(at_once(3, tables, async |(seed, restored)| restored_alone(restored, groups(seed..=seed + 1)).await));
}

async fn restored_alone(restored: &str, mut groups: Vec<Group>) {
    let redis = LegacyRedis::start().await;
    let world = start(&redis).await;
    let notice = world.administrator().post("/v1/notices", &json!({ "platforms": [1], "title": "one" })).await;
    assert_eq!(notice.status, 201);
    serve(&world, &mut groups, OPERATIONS_OF_EACH).await;
    world.idle().await;
    let (before, then) = (copy(&world).await, models(&groups));
    serve(&world, &mut groups, OPERATIONS_OF_EACH).await;
    // The histories have no notices.
    world.user(1).put("/v1/notices/1-1/read").await.ok();
    world.idle().await;
    assert!(copy(&world).await[restored] != before[restored], "{restored} has not changed");

    let started = Instant::now();
    let world = switch(world, &before, &[restored]).await;
    let switched = started.elapsed();
    let (found, requests) = read_during(&world, &groups, forget_and_reconcile(&world)).await;
    world.idle().await;
    let now = models(&groups);
    let expected: Option<Vec<Model>> = match restored {
        "ReadsTable" => Some(now.into_iter().zip(&then).map(|(now, then)| now.with_read_state_of(then)).collect()),
        "FollowingTable" => Some(now.into_iter().zip(&then).map(|(now, then)| now.with_relations_of(then)).collect()),
        // These can be made from the others.
        "FollowersTable" | "ReactedTable" | "IdempotencyTable" => Some(now),
        _ => None,
    };
    if let Some(expected) = expected {
        assert_agreement(&world, &groups, &expected).await;
    }
    assert_views_are_as_the_facts(&world, &groups, restored).await;
    let report = world.walk_over_all_users(true, Duration::from_millis(500)).await;
    assert_eq!((report.differences.len(), report.failed), (0, 0), "{restored}: {report:?}");
    println!(
        "{restored}: {:.1?} to switch, {:.1?} in all; reconcile found {found}; {} requests meanwhile, {} refused, {} degraded",
        switched,
        started.elapsed(),
        requests.all.get(),
        requests.refused.get(),
        requests.degraded.get()
    );
    assert_eq!(requests.refused.get(), 0, "{restored}");
    world.finish().await;
}

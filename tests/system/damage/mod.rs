//! Plants every kind of damage at once, each among users of its own. Reconcile must list and repair all of it, and
//! must then find no difference.

mod facts;
mod notices;
mod poison;
pub(crate) mod proxy;
mod races;
mod scene;
mod views;
mod walks;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use aws_sdk_dynamodb::types::AttributeValue;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use tidemark::views::keys;
use tidemark_reconcile_lib::{Plan, Reconcile};
use tidemark_tests::{World, items::Item, until, world};

use scene::Scene;

/// One kind of damage: its name, and a function that plants it into a scene and returns the expected difference, or an
/// array of differences.
type Damage = (&'static str, &'static dyn Plant);

trait Plant: Sync {
    fn plant<'a>(&'a self, scene: &'a Scene<'a>) -> LocalBoxFuture<'a, Value>;
}

impl<F: AsyncFn(&Scene<'_>) -> Value + Sync> Plant for F {
    fn plant<'a>(&'a self, scene: &'a Scene<'a>) -> LocalBoxFuture<'a, Value> {
        Box::pin(self(scene))
    }
}

/// The kind of difference that a dry run looks for only if it finds no other: groups are derived from facts.
const GROUP: &str = "group-wrong";

fn damages() -> Vec<Damage> {
    [facts::ALL, views::ALL, notices::ALL, notices::OF_A_BOARD].concat()
}

/// Creates scenes in which all data is cached, so that it can be damaged.
async fn scenes(world: &World, count: usize) -> Vec<Scene<'_>> {
    let scenes = Scene::several(world, count).await;
    for scene in &scenes {
        for key in [&scene.state_key, &keys::reactions(scene.reader)] {
            scene.until_cached("/v1/feed", key).await;
        }
    }
    scenes
}

/// Plants one kind of damage into each scene. Returns the expected differences, each with the kind of damage.
async fn plant(scenes: &[Scene<'_>], damages: &[Damage]) -> BTreeMap<String, &'static str> {
    let mut expected = BTreeMap::new();
    let Some(world) = scenes.first().map(|scene| scene.world) else { return expected };
    // The projector would mend views at once. It loses the records of the damage.
    world.stack.pause("projector").await.unwrap();
    for (scene, (name, damage)) in scenes.iter().zip(damages) {
        scene.without_head().await;
        if notices::OF_A_BOARD.iter().any(|(of_a_board, _)| of_a_board == name) {
            notices::board(scene).await;
        }
        let differences = match damage.plant(scene).await {
            Value::Array(several) => several,
            one => vec![one],
        };
        assert!(!differences.is_empty(), "{name}");
        expected.extend(differences.into_iter().map(|difference| (difference.to_string(), *name)));
    }
    idle_without_projector(world).await;
    world.stack.resume("projector").unwrap();
    expected
}

/// Waits until no work is left. The projector is paused, and loses its records.
async fn idle_without_projector(world: &World) {
    until("no work is left but that of the projector", async || {
        world.stack.lose_records("projector").unwrap();
        world.stack.status().await.unwrap().idle
    })
    .await;
}

/// Plants every kind of damage, among users from 1,000 on.
pub(super) async fn plant_everything(world: &World) {
    let damages = damages();
    plant(&scenes(world, damages.len()).await, &damages).await;
}

/// Looks at every fan-out, and walks over all users.
async fn run(world: &World, dry_run: bool) -> Vec<Value> {
    let fan_outs = fire(world, json!({ "job": "fan-outs", "dry_run": dry_run, "overdue_ms": 0 })).await;
    assert_eq!(fan_outs["dry_run"], dry_run, "{fan_outs}");
    vec![fan_outs, walk(world, dry_run, 50).await]
}

/// Runs a whole walk over all users without a deadline.
pub(crate) async fn walk(world: &World, dry_run: bool, settle_ms: u64) -> Value {
    let plan = Plan { dry_run, share: 1.0, settle: Duration::from_millis(settle_ms), ..Plan::default() };
    let reconcile = Reconcile::new(world.stack.app("reconcile").unwrap());
    let report = json!(reconcile.walk(&plan, None, false, &|| false).await.unwrap().unwrap());
    assert_eq!(report["failed"], 0, "{report}");
    report
}

/// Compares the data of all users and repairs it.
pub(crate) async fn repair(world: &World) -> Value {
    fire(world, json!({ "job": "users", "share": 1.0, "settle_ms": 0, "slice": 100_000 })).await
}

pub(crate) async fn fire(world: &World, job: Value) -> Value {
    let report = world.reconcile(job).await;
    assert_eq!(report["failed"], 0, "{report}");
    report
}

/// The differences of reports as text, sorted.
fn listed(reports: &[Value]) -> BTreeSet<String> {
    reports.iter().flat_map(|report| report["differences"].as_array().unwrap()).map(Value::to_string).collect()
}

/// The walk may reach an author and the reader whose edge, request or repost the author does not list in different
/// steps. Then it reports a wrong count too. It may also look at an inbox before the projector has derived the group of
/// a fact that it has repaired.
fn assert_listed(found: &BTreeSet<String>, expected: &BTreeMap<String, &'static str>) {
    let difference = |text: &String| serde_json::from_str::<Value>(text).unwrap();
    let counts = [
        ("follower-missing", "followers-count", "author"),
        ("request-missing", "requests-count", "author"),
        ("repost-missing", "post-reposts", "original"),
    ];
    let owner = |known: &Value| {
        let post = ["post", "original"].iter().find_map(|of| known[of].as_str()).unwrap_or_default();
        post.split('-').next().unwrap_or_default().to_owned()
    };
    let may_follow = |found: Value| {
        let acts = ["repost-missing", "quote-missing", "quote-ghost", "comment-count", "liker-missing"];
        let is_act = |known: &Value| acts.iter().any(|kind| known["kind"] == *kind);
        let mut known = expected.keys().map(difference);
        if found["kind"] == GROUP && known.any(|known| is_act(&known) && found["user"] == owner(&known)) {
            return true;
        }
        counts.iter().filter(|(_, count, _)| found["kind"] == *count).any(|(missing, _, of)| {
            expected.keys().map(difference).any(|known| known["kind"] == *missing && known[*of] == found[*of])
        })
    };
    let missing: Vec<_> = expected.iter().filter(|(text, _)| !found.contains(*text)).collect();
    let more: Vec<_> = found.iter().filter(|text| !expected.contains_key(*text) && !may_follow(difference(text))).collect();
    assert!(missing.is_empty() && more.is_empty(), "not listed: {missing:#?}\nnot planted: {more:#?}");
}

/// Every item of every table: the table's name, and the attributes in order.
pub(crate) async fn items(world: &World) -> Vec<(String, BTreeMap<String, AttributeValue>)> {
    let (dynamodb, mut all) = (world.dynamodb().await, Vec::new());
    for table in world.stack.template().tables.values() {
        let scan = dynamodb.scan().table_name(&table.name).into_paginator().items().send();
        let items: Vec<Item> = scan.collect::<Result<_, _>>().await.unwrap();
        all.extend(items.into_iter().map(|item| (table.name.clone(), item.into_iter().collect())));
    }
    all
}

/// All data in both stores.
async fn everything(world: &World) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (table, item) in items(world).await {
        let keys = ["user", "author", "platform", "shard", "follower", "counter", "item", "key"].map(|key| item.get(key));
        all.insert(format!("{table} {keys:?}"), format!("{item:?}"));
    }
    let mut redis = world.redis().await;
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut redis).await.unwrap();
    for key in keys {
        let lifetime: i64 = redis::cmd("TTL").arg(&key).query_async(&mut redis).await.unwrap();
        if (0..=60).contains(&lifetime) {
            // This key will expire during the comparison.
            continue;
        }
        let dump: Option<Vec<u8>> = redis::cmd("DUMP").arg(&key).query_async(&mut redis).await.unwrap();
        all.extend(dump.map(|dump| (key, format!("{dump:?}"))));
    }
    all
}

#[test]
fn every_kind_of_damage_is_listed_and_repaired() {
    world(async |world| {
        let damages = damages();
        let names: BTreeSet<&str> = damages.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), damages.len());
        assert!(damages.len() >= 50, "{}", damages.len());

        let scenes = scenes(world, damages.len()).await;
        assert_eq!(listed(&run(world, true).await), BTreeSet::new(), "no difference before the damage");

        let expected = plant(&scenes, &damages).await;
        let stored = everything(world).await;
        let of_facts =
            expected.iter().filter(|(text, _)| !text.contains(GROUP)).map(|(text, name)| (text.clone(), *name)).collect();
        assert_listed(&listed(&run(world, true).await), &of_facts);
        let after = everything(world).await;
        let changed: Vec<&String> = stored.keys().chain(after.keys()).filter(|key| stored.get(*key) != after.get(*key)).collect();
        assert!(changed.is_empty(), "a dry run must not change {changed:?}");

        let reports = run(world, false).await;
        assert_listed(&listed(&reports), &expected);
        assert_eq!(reports[1]["repaired"], reports[1]["found"], "every repair of the walk has an effect");
        world.empty_queue("ProjectorFailuresQueue").await;
        world.idle().await;
        // The walk puts fan-outs into the index of unfinished ones. The next minute resumes them.
        let resumed = fire(world, json!({ "job": "fan-outs", "overdue_ms": 0 })).await;
        assert_eq!(resumed["found"], json!({ "delivery-unfinished": 1 }));
        world.idle().await;

        let again = run(world, false).await;
        assert_eq!(listed(&again), BTreeSet::new(), "no difference after the repair");
        assert_eq!((&again[0]["repaired"], &again[1]["repaired"]), (&json!({}), &json!({})));
        for (scene, (name, _)) in scenes.iter().zip(&damages) {
            scene.agrees(name).await;
        }
        assert_eq!(listed(&run(world, true).await), BTreeSet::new(), "no difference after readers have rebuilt their views");
        println!("{} kinds of damage, {} differences: all listed and repaired", damages.len(), expected.len());
    });
}

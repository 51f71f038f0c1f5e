//! Counts of notices: many readers of any id, every count compared with an independent one, the Redis commands of a
//! count, and the memory in Redis.

use std::collections::BTreeMap;

use futures::{StreamExt, future::join_all, stream};
use rand::{Rng, SeedableRng, rngs::StdRng};
use redis::AsyncCommands;
use serde_json::json;
use tidemark::{
    App,
    domain::{NoticeReads, UserId},
    views::{NoticeRecord, NoticeView},
};
use tidemark_tests::{World, user_id, while_leased, world};

use crate::{
    notice_histories::Model,
    notices::{patient, platform},
    publish_notices,
};

const SEED: u64 = 20_261_121;
const PLATFORMS: [u16; 3] = [1, 2, 65_535];
const NOTICES: u64 = 100;

/// The number of readers with ids spread over all 64 bits, and of readers with the smallest ids.
const READERS: u64 = 2_000;

const LANES: usize = 16;

type Models = BTreeMap<u16, Model>;

async fn largest_key(world: &World) -> (u64, String) {
    let (mut redis, mut largest) = (world.redis().await, (0, String::new()));
    let keys: Vec<String> = redis.keys("*").await.unwrap();
    for keys in keys.chunks(1_000) {
        let mut pipeline = redis::pipe();
        for key in keys {
            pipeline.cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0);
        }
        let sizes: Vec<Option<u64>> = pipeline.query_async(&mut redis).await.unwrap();
        let sizes = sizes.into_iter().zip(keys).filter_map(|(size, key)| Some((size?, key.clone())));
        largest = sizes.chain([largest]).max().unwrap();
    }
    largest
}

/// One random mark of every reader, many at once. If `again` is set, Redis is flushed halfway. A mark through a
/// notice happens only once, because another test covers lower ones.
async fn marks(world: &World, models: &mut Models, readers: &[u64], rng: &mut StdRng, again: bool) {
    let kinds = if again { 3..10 } else { 0..10 };
    let plan: Vec<(u64, u16, u64, u8)> = readers
        .iter()
        .map(|&user| (user, PLATFORMS[rng.random_range(0..3)], rng.random_range(1..=NOTICES), rng.random_range(kinds.clone())))
        .collect();
    for &(user, platform, seq, kind) in &plan {
        let model = models.get_mut(&platform).unwrap();
        if kind < 3 { model.mark_through(user, seq, 1, 0) } else { model.mark(user, seq, kind < 8, 0) }
    }
    let half = plan.len() / 2;
    let requests = plan.into_iter().enumerate().map(async |(index, (user, platform, seq, kind))| {
        if again && index == half {
            world.flush_redis().await;
        }
        let (user, path) = (world.user(user), format!("/v1/notices/{platform}-{seq}/read"));
        let response = match kind {
            0..3 => user.post("/v1/notices/reads", &json!({ "platform": platform, "through": seq })).await,
            3..8 => user.put(&path).await,
            _ => user.delete(&path).await,
        };
        // A deleted notice is neither read nor unread.
        assert!(matches!(response.status, 200 | 404), "{}", response.body);
    });
    stream::iter(requests).buffer_unordered(LANES).collect::<Vec<()>>().await;
}

async fn compare(world: &World, models: &Models, readers: &[u64]) -> u64 {
    // On a busy machine the update of a view may have become a task.
    world.idle().await;
    let wanted = readers.iter().flat_map(|&user| PLATFORMS.map(|platform| (user, platform)));
    let compared = stream::iter(wanted.map(async |(user, platform)| {
        assert_eq!(world.user(user).notice_counts(platform).await, models[&platform].counts(user, 0), "{user} on {platform}");
    }));
    compared.buffer_unordered(LANES).count().await as u64
}

#[test]
fn every_count_equals_an_independent_count_also_after_a_flush_of_redis() {
    println!("seed {SEED}");
    world(async |world| {
        let mut rng = StdRng::seed_from_u64(SEED);
        let admin = world.administrator();
        let mut models: Models = PLATFORMS.map(|platform| (platform, Model::default())).into();
        publish_notices(world, &PLATFORMS, 1..=NOTICES).await;
        models.values_mut().for_each(|model| (0..NOTICES).for_each(|_| model.publish(None, 0)));
        let sparse = (0..READERS - 1).map(|_| rng.random_range(READERS + 1..u64::MAX));
        let readers: Vec<u64> = sparse.chain([u64::MAX]).chain(1..=READERS).collect();

        marks(world, &mut models, &readers, &mut rng, false).await;
        let compared = compare(world, &models, &readers).await;

        // Some notices are deleted, some get a new slot. Then more marks follow, and Redis is flushed during them.
        for (platform, model) in &mut models {
            for seq in [3, 50, 99] {
                admin.delete(&format!("/v1/notices/{platform}-{seq}")).await.ok();
                model.notices.remove(&seq);
            }
            admin.put_body(&format!("/v1/notices/{platform}-7"), &json!({ "title": "again", "renotify": true })).await.ok();
            model.edit(7, None, Some(2));
        }
        marks(world, &mut models, &readers, &mut rng, true).await;
        let compared = compared + compare(world, &models, &readers).await;
        world.flush_redis().await;
        let compared = compared + compare(world, &models, &readers).await;

        for (platform, model) in &models {
            join_all(model.notices.iter().map(async |(seq, notice)| {
                let found = admin.get(&format!("/v1/notices/{platform}-{seq}")).await.ok();
                assert_eq!(found["readers"], notice.read_by.len(), "{platform}-{seq}");
            }))
            .await;
        }
        let (bytes, key) = largest_key(world).await;
        let counted: usize = models.values().map(|model| model.notices.len()).sum();
        println!("{compared} counts and {counted} numbers of readers are right; largest key {key}: {bytes} bytes");
        assert!(bytes < 1 << 20);
    });
}

/// 100,000 readers with views and without facts. A count from facts would be wrong.
#[test]
fn a_count_costs_one_round_trip_of_two_commands_with_a_hundred_thousand_readers() {
    const MANY: u64 = 100_000;
    const ASKED: u64 = 500;
    println!("seed {SEED}");
    world(async |world| {
        let mut rng = StdRng::seed_from_u64(SEED);
        publish_notices(world, &[9], 1..=300).await;
        let App { notices: board, stores, .. } = patient(world);
        let (views, platform) = (&stores.views, platform(9));
        let used = async || world.redis_sum::<u64>("memory", "used_memory").await;
        let before = used().await;
        let mut expected = BTreeMap::new();
        for first in (0..MANY).step_by(100) {
            let readers: Vec<NoticeView> = (first..first + 100)
                .map(|number| {
                    let id = if number % 2 == 0 { number + 10 } else { rng.random_range(MANY * 2..u64::MAX) };
                    // Some readers have read nothing, some everything, most a part.
                    let share: f64 = [0.0, 1.0, rng.random(), rng.random()][(number % 4) as usize];
                    let read = (1..=300).filter(|_| rng.random_bool(share)).collect();
                    let reads = NoticeReads { version: 1, read, ..NoticeReads::default() };
                    expected.insert(id, 300 - reads.read.len());
                    NoticeView::Reads(user_id(id), platform, reads)
                })
                .collect();
            let records: Vec<NoticeRecord> = readers.iter().map(NoticeView::record).collect();
            while_leased(async || {
                assert_eq!(views.lease_notices(&records, first).await.unwrap().len(), 100);
                views.fill_notices(&readers, first).await.unwrap();
            })
            .await;
        }
        let each = (used().await - before) / MANY;
        let asked: Vec<(u64, u64)> =
            expected.iter().step_by((MANY / ASKED) as usize).map(|(&id, &unread)| (id, unread)).collect();
        // Only here, because a head lives for a minute, which the views of the readers may take.
        board.board(platform, UserId::MIN).await.unwrap();
        world.forget_redis_calls().await;
        let trips = async || world.redis_sum::<u64>("stats", "total_reads_processed").await;
        let before = trips().await;
        for &(id, unread) in &asked {
            let counts = board.board(platform, user_id(id)).await.unwrap().counts();
            assert_eq!((counts.unread, counts.read), (unread, 300 - unread), "{id}");
        }
        let (mut made, trips) = (world.redis_calls().await, trips().await - before);
        made.retain(|name, _| !matches!(name.as_str(), "info" | "client|setinfo" | "select" | "config|resetstat"));
        println!("{} counts: {made:?}, {trips} reads of a socket; {each} bytes a reader", asked.len());
        assert_eq!(made, BTreeMap::from([("get".to_owned(), asked.len() as u64 * 2)]));
        // The test's own connections, also those that end only now, add a few reads. A second trip would add 500.
        assert!(trips <= asked.len() as u64 + 100);
        let (bytes, key) = largest_key(world).await;
        println!("largest key {key}: {bytes} bytes");
        assert!(bytes < 8_000);
    });
}

//! Counts of notices: many readers of any id, every count compared with an independent one, the Redis commands of a
//! count, and the memory in Redis.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use futures::{StreamExt, future::join_all, stream};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::json;
use tidemark::{
    domain::{NoticeReads, UserId},
    ports::{NoticeRecord, NoticeView},
};
use tidemark_tests::{World, user_id, world};

use crate::notices::{board, platform};

const SEED: u64 = 20_261_121;
const PLATFORMS: [u16; 3] = [1, 2, 65_535];
const NOTICES: u64 = 100;

/// The number of readers with ids spread over all 64 bits, and of readers with the smallest ids.
const READERS: u64 = 2_000;

/// Requests at the same time.
const LANES: usize = 16;

/// The commands that Redis has run, by name, and the number of reads from its connections.
async fn activity(world: &World) -> (BTreeMap<String, u64>, u64) {
    (world.redis_calls().await, world.redis_sum("stats", "total_reads_processed").await)
}

/// The key with the largest memory usage.
async fn largest_key(world: &World) -> (u64, String) {
    let (mut redis, mut largest, mut cursor) = (world.redis().await, (0, String::new()), 0_u64);
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("COUNT").arg(1_000);
        let (next, keys): (u64, Vec<String>) = scan.query_async(&mut redis).await.unwrap();
        let mut pipeline = redis::pipe();
        for key in &keys {
            pipeline.cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0);
        }
        // A step of SCAN may return no key, and an empty pipeline is an error.
        let sizes: Vec<Option<u64>> = if keys.is_empty() { Vec::new() } else { pipeline.query_async(&mut redis).await.unwrap() };
        let sizes = sizes.into_iter().zip(keys).filter_map(|(size, key)| Some((size?, key)));
        largest = sizes.chain([largest]).max().unwrap();
        cursor = next;
        if cursor == 0 {
            return largest;
        }
    }
}

/// The slots that each reader has read, as plain sets.
#[derive(Default)]
struct Ledger {
    live: BTreeSet<(u16, u64)>,
    read: HashSet<(u64, u16, u64)>,
}

impl Ledger {
    fn counts(&self, user: u64, platform: u16) -> (u64, u64) {
        let live = self.live.range((platform, 0)..=(platform, u64::MAX)).count() as u64;
        let read = self.live.iter().filter(|(of, seq)| *of == platform && self.read.contains(&(user, *of, *seq))).count() as u64;
        (live - read, read)
    }
}

/// One random mark of every reader, many at once. If `again` is set, Redis is flushed halfway. A mark through a
/// notice happens only once, because another test covers lower ones.
async fn marks(world: &World, ledger: &mut Ledger, readers: &[u64], rng: &mut StdRng, again: bool) {
    let kinds = if again { 3..10 } else { 0..10 };
    let plan: Vec<(u64, u16, u64, u8)> = readers
        .iter()
        .map(|&user| (user, PLATFORMS[rng.random_range(0..3)], rng.random_range(1..=NOTICES), rng.random_range(kinds.clone())))
        .collect();
    for &(user, platform, seq, kind) in &plan {
        match kind {
            0..3 => {
                let live = ledger.live.range((platform, 0)..=(platform, seq)).map(|(_, seq)| (user, platform, *seq));
                ledger.read.extend(live);
            }
            3..8 if ledger.live.contains(&(platform, seq)) => {
                ledger.read.insert((user, platform, seq));
            }
            _ => {
                ledger.read.remove(&(user, platform, seq));
            }
        }
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

async fn compare(world: &World, ledger: &Ledger, readers: &[u64]) -> u64 {
    // On a busy machine the update of a view may have become a task.
    world.idle().await;
    let wanted = readers.iter().flat_map(|&user| PLATFORMS.map(|platform| (user, platform)));
    let compared = stream::iter(wanted.map(async |(user, platform)| {
        assert_eq!(world.user(user).notice_counts(platform).await, ledger.counts(user, platform), "{user} on {platform}");
    }));
    compared.buffer_unordered(LANES).count().await as u64
}

#[test]
fn every_count_equals_an_independent_count_also_after_a_flush_of_redis() {
    println!("seed {SEED}");
    world(async |world| {
        let mut rng = StdRng::seed_from_u64(SEED);
        let admin = world.administrator();
        let mut ledger = Ledger::default();
        for seq in 1..=NOTICES {
            admin.post("/v1/notices", &json!({ "platforms": PLATFORMS, "title": format!("{seq}") })).await.ok();
            ledger.live.extend(PLATFORMS.map(|platform| (platform, seq)));
        }
        let sparse = (0..READERS - 1).map(|_| rng.random_range(READERS + 1..u64::MAX));
        let readers: Vec<u64> = sparse.chain([u64::MAX]).chain(1..=READERS).collect();

        marks(world, &mut ledger, &readers, &mut rng, false).await;
        let compared = compare(world, &ledger, &readers).await;

        // Some notices are deleted, some get a new slot. Then more marks follow, and Redis is flushed during them.
        for platform in PLATFORMS {
            for seq in [3, 50, 99] {
                admin.delete(&format!("/v1/notices/{platform}-{seq}")).await.ok();
                ledger.live.remove(&(platform, seq));
            }
            admin.put_body(&format!("/v1/notices/{platform}-7"), &json!({ "title": "again", "renotify": true })).await.ok();
            ledger.read.retain(|(_, of, seq)| (*of, *seq) != (platform, 7));
        }
        marks(world, &mut ledger, &readers, &mut rng, true).await;
        let compared = compared + compare(world, &ledger, &readers).await;
        world.flush_redis().await;
        let compared = compared + compare(world, &ledger, &readers).await;

        for platform in PLATFORMS {
            let wanted = (1..=NOTICES).filter(|seq| ledger.live.contains(&(platform, *seq)));
            join_all(wanted.map(async |seq| {
                let notice = admin.get(&format!("/v1/notices/{platform}-{seq}")).await.ok();
                let expected = readers.iter().filter(|&&user| ledger.read.contains(&(user, platform, seq))).count();
                assert_eq!(notice["readers"], expected, "{platform}-{seq}");
            }))
            .await;
        }
        let (bytes, key) = largest_key(world).await;
        println!("{compared} counts and {} numbers of readers are right; largest key {key}: {bytes} bytes", ledger.live.len());
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
        let (admin, mut rng) = (world.administrator(), StdRng::seed_from_u64(SEED));
        for seq in 1..=300 {
            admin.post("/v1/notices", &json!({ "platforms": [9], "title": format!("{seq}") })).await.ok();
        }
        let (board, platform) = (board(world), platform(9));
        let views = board.stores.notice_views.clone();
        board.board(platform, UserId::MIN).await.unwrap();
        let used = async || world.redis_sum("memory", "used_memory").await;
        let before = used().await;
        let mut expected = BTreeMap::new();
        // Few at once, because a lease lives for a second.
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
            assert_eq!(views.lease_notices(&records, first).await.unwrap().len(), 100);
            views.fill_notices(&readers, first).await.unwrap();
        }
        let each = (used().await - before) / MANY;
        let asked: Vec<(u64, u64)> =
            expected.iter().step_by((MANY / ASKED) as usize).map(|(&id, &unread)| (id, unread)).collect();
        let (commands, trips) = activity(world).await;
        for &(id, unread) in &asked {
            let counts = board.board(platform, user_id(id)).await.unwrap().counts();
            assert_eq!((counts.unread, counts.read), (unread, 300 - unread), "{id}");
        }
        let (after, trips_after) = activity(world).await;
        let made: BTreeMap<&String, u64> = after
            .iter()
            .map(|(name, calls)| (name, calls - commands.get(name).copied().unwrap_or(0)))
            .filter(|(name, calls)| *calls > 0 && !matches!(name.as_str(), "info" | "client|setinfo" | "select"))
            .collect();
        println!("{} counts: {made:?}, {} reads of a socket; {each} bytes a reader", asked.len(), trips_after - trips);
        assert_eq!(made, BTreeMap::from([(&"get".to_owned(), asked.len() as u64 * 2)]));
        // The test's own connections add a few reads.
        assert!(trips_after - trips <= asked.len() as u64 + 12);
        let (bytes, key) = largest_key(world).await;
        println!("largest key {key}: {bytes} bytes");
        assert!(bytes < 8_000);
    });
}

//! Random histories through the API, compared with the model. Clients chain polls and repeat requests with idempotency
//! keys. Deliveries are held back, repeated and reordered; Redis is flushed, stopped and started; the whole stack is
//! stopped and started. Authors of many posts leave. Other histories continue during all of this.

mod polls;
mod repeats;

use std::{
    collections::BTreeSet,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::json;
use tidemark::domain::feed::FeedCap;
use tidemark_tests::{Model, RedisOutage, TITLE, World, number_from, repository, until};
use tokio::sync::{Mutex, RwLock};

use crate::{
    delivery::{binaries, resend},
    operations::{self, Callers, Done, OPERATIONS, compare},
};
use polls::Polls;
use repeats::Repeats;

/// The number of histories of one test.
fn histories() -> u64 {
    number_from("TIDEMARK_HISTORIES", TOGETHER)
}

/// The number of concurrent histories that share a stack, and the operations in each.
const TOGETHER: u64 = 20;
const LENGTH: usize = 60;

/// In every so many batches, a user of each history leaves before these last operations. An erasure takes 20 seconds.
const BATCHES_WITH_ERASURES: u64 = 4;
const OPERATIONS_AFTER_ERASURE: usize = 10;

/// The number of posts in the views of histories of full feeds.
const SMALL_CAP: u64 = 10;

const OPERATIONS_TOGETHER: usize = TOGETHER as usize * LENGTH;

#[tokio::test]
async fn random_histories_end_in_agreement_with_the_model() {
    histories_with(histories(), &[]).await;
}

/// Authors publish more posts than a view stores, and readers remove them again in every way.
#[tokio::test]
async fn random_histories_of_full_feeds_end_in_agreement_with_the_model() {
    histories_with(histories(), &[("FeedCap", SMALL_CAP)]).await;
}

/// The same with authors who become big and small.
#[tokio::test]
async fn random_histories_of_full_feeds_across_the_threshold_end_in_agreement_with_the_model() {
    histories_with(histories().min(200), &[("FeedCap", SMALL_CAP), ("PullThreshold", 3)]).await;
}

/// Two or three followers make an author big; with one or none the author is small again. The mode changes around
/// nearly every post.
#[tokio::test]
async fn random_histories_across_the_threshold_end_in_agreement_with_the_model() {
    histories_with(histories().min(200), &[("PullThreshold", 3)]).await;
}

async fn histories_with(count: u64, parameters: &[(&str, u64)]) {
    let configure = |options: &mut tidemark_local::Options| {
        // The attempts of a task last longer than the outage of Redis.
        options.retry_delay = Duration::from_secs(2);
        options.parameters.extend(parameters.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())));
    };
    let mut world = World::start(configure).await;
    let cap = parameters.iter().find(|(name, _)| *name == "FeedCap").map(|(_, cap)| FeedCap::new(*cap));
    let seed = number_from("TIDEMARK_SEED", 0);
    for first in (seed..seed + count).step_by(TOGETHER as usize) {
        println!("histories with seeds {first} to {}", first + TOGETHER - 1);
        world = batch_beside(world, (first, cap), async |shared| disturb(shared, first).await).await;
    }
    // The histories leave no difference, and reconcile reports none.
    let report = world.walk_over_all_users(true, Duration::ZERO).await;
    assert_eq!((report.differences, report.failed), (BTreeSet::new(), 0));
    assert!(report.looked_at > count * 6, "{}", report.looked_at);
    world.finish().await;
}

struct Shared {
    /// The disturbance takes the write lock while it stops the stack. Only then the option is empty.
    world: RwLock<Option<World>>,
    /// True if the workers are paused. False after every start.
    held: Mutex<bool>,
    redis_outage: Mutex<Option<RedisOutage>>,
    done: Done,
    /// If views store fewer posts than usual. Authors then publish many posts at a time.
    cap: Option<FeedCap>,
}

/// Runs [`TOGETHER`] histories beside a disturbance, and compares what is left with the model.
async fn batch_beside(world: World, (first, cap): (u64, Option<FeedCap>), disturbance: impl AsyncFnOnce(&Shared)) -> World {
    let shared = Shared {
        world: RwLock::new(Some(world)),
        held: Mutex::new(false),
        redis_outage: Mutex::new(None),
        done: Done::default(),
        cap,
    };
    let histories = join_all((first..first + TOGETHER).map(|seed| history(&shared, seed)));
    let (histories, ()) = futures::join!(histories, disturbance(&shared));
    let world = shared.world.into_inner().unwrap();
    world.resume_workers();
    world.idle().await;
    // Resumes the fan-outs that an outage or a slow Redis interrupted, as the minute job does.
    let resumed = world.resume_fan_outs().await;
    println!("unfinished: {}", resumed["found"]);
    world.idle().await;
    join_all(histories.into_iter().map(|history| history.end(&world, cap))).await;
    world
}

/// Disturbs one batch at a random point: an outage of Redis with or without loss of its views, a restart of the whole
/// stack, or nothing, in turn.
async fn disturb(shared: &Shared, seed: u64) {
    let mut rng = StdRng::seed_from_u64(!seed);
    let last = OPERATIONS_TOGETHER;
    let (stop, start, restart) = (rng.random_range(0..last / 2), rng.random_range(0..last / 2), rng.random_range(0..last));
    let views_survive = rng.random();
    let outage = async {
        if !seed.is_multiple_of(3 * TOGETHER) {
            return;
        }
        shared.done.reached(stop).await;
        let world = shared.world.write().await;
        *shared.redis_outage.lock().await = Some(world.as_ref().unwrap().redis_outage(views_survive).await);
        drop(world);
        shared.done.reached(stop + start / 4).await;
        let world = shared.world.write().await;
        if let Some(outage) = shared.redis_outage.lock().await.take() {
            outage.end(world.as_ref().unwrap()).await;
        }
    };
    let restart = async {
        if seed % (3 * TOGETHER) != TOGETHER {
            return;
        }
        shared.done.reached(restart).await;
        let mut world = shared.world.write().await;
        let old = world.take().unwrap();
        *world = Some(old.restart().await);
        *shared.held.lock().await = false;
        *shared.redis_outage.lock().await = None;
    };
    futures::join!(outage, restart);
}

/// One history with users of its own.
struct History {
    seed: u64,
    users: Vec<u64>,
    /// The user who left.
    left: Option<u64>,
    model: Model,
    repeats: Repeats,
    polls: Polls,
}

/// Runs one history. The ids of its users are the smallest or the largest.
async fn history(shared: &Shared, seed: u64) -> History {
    let mut rng = StdRng::seed_from_u64(seed);
    let base = if seed % 4 == 3 { u64::MAX - seed * 10 - 6 } else { (seed + 1) * 1_000_007 };
    let users = (0..6).map(|index| base + index).collect();
    let (left, model, repeats) = Default::default();
    let mut history = History { seed, users, left, model, repeats, polls: Polls::new(seed) };
    let leaves = (seed / TOGETHER).is_multiple_of(BATCHES_WITH_ERASURES);
    for step in 0..LENGTH {
        let guard = shared.world.read().await;
        let world = guard.as_ref().unwrap();
        if leaves && step == LENGTH - OPERATIONS_AFTER_ERASURE {
            history.leave(world).await;
        }
        history.operate(shared, world, &mut rng).await;
        history.polls.observe(&history.model);
        if rng.random_ratio(1, 4) {
            history.polls.poll(world, &mut rng, &history.model, &history.users).await;
        }
        shared.done.add_one();
    }
    history
}

impl History {
    async fn operate(&mut self, shared: &Shared, world: &World, rng: &mut StdRng) {
        let callers = Callers { world, findings: None, unanswered: Default::default() };
        if rng.random_ratio(1, 15) {
            return self.publish_at_once(world, rng.random_range(1..3)).await;
        }
        let (model, users) = (&mut self.model, &self.users);
        if shared.cap.is_some() && rng.random_ratio(1, 4) {
            return operations::fill_or_empty(&callers, rng, model, users).await;
        }
        if rng.random_ratio(1, 8) {
            return self.repeats.operate(&callers, rng, model, users).await;
        }
        match rng.random_range(0..100) {
            dice if dice < OPERATIONS => operations::operate(&callers, rng, model, users, dice).await,
            // A flush removes the views of all histories. If it were frequent, it would hide most errors in views.
            88..90 => {
                let outage = shared.redis_outage.lock().await;
                if outage.is_none() && rng.random_range(0..TOGETHER * 2) == 0 {
                    world.flush_redis().await;
                }
            }
            // A pause waits until the worker has finished its task. The worker cannot finish without Redis.
            90..97 if shared.redis_outage.lock().await.is_none() => {
                let mut held = shared.held.lock().await;
                if *held {
                    world.resume_workers()
                } else {
                    world.pause_workers().await
                }
                *held = !*held;
            }
            _ => {
                let held = shared.held.lock().await;
                if *held {
                    resend(world, 2).await;
                }
            }
        }
    }

    /// All users publish so many posts at the same time, while the chains poll.
    async fn publish_at_once(&mut self, world: &World, posts_of_each: usize) {
        let publish = async |&user: &u64| world.user(user).publish_all(vec![TITLE; posts_of_each]).await;
        let (published, ()) = futures::join!(join_all(self.users.iter().map(publish)), self.polls.poll_all(world));
        let model = &mut self.model;
        let expected =
            self.users.iter().map(|user| (0..posts_of_each).map(|_| format!("{user}-{}", model.publish(*user))).collect());
        assert_eq!(published, expected.collect::<Vec<Vec<String>>>(), "seed {}", self.seed);
    }

    /// The author of the most posts leaves.
    async fn leave(&mut self, world: &World) {
        let model = &mut self.model;
        let user = *self.users.iter().max_by_key(|user| model.posts(**user)).unwrap();
        world.user(user).delete("/v1/me").await.ok();
        model.forget(user);
        self.repeats.forget(user);
        self.polls.forget(user);
        self.users.retain(|other| *other != user);
        // The first user names the handles of a history. Whether those of the user who leaves are free is not known
        // yet.
        self.users.reverse();
        self.left = Some(user);
    }

    /// Compares what is left with the model, when no work is left.
    async fn end(self, world: &World, cap: Option<FeedCap>) {
        if let Some(user) = self.left {
            world.user(user).get("/v1/me/erasure").await.has(json!({ "state": "done" }));
            assert_eq!(world.user(user).get("/v1/feed").await.problem(), (403, "/problems/erased"), "{user}");
        }
        for &user in &self.users {
            compare(&world.user(user), &self.model, user, self.seed, (7, cap.unwrap_or(FeedCap::GREATEST))).await;
        }
        self.polls.end(world, &self.model, cap).await;
    }
}

const PROCESSES: usize = 2;

/// `make upgrade-check` builds the other release. One process of a function is replaced, as a canary, and later the
/// others. `fan-out` comes first, as in docs/upgrading.md. Only reconcile, which looks for differences, is always of
/// this release.
#[tokio::test]
#[ignore = "needs the functions of another release: make upgrade-check"]
async fn histories_agree_with_the_model_while_releases_replace_each_other() {
    let new = binaries();
    let old = PathBuf::from(std::env::var_os("TIDEMARK_OTHER_RELEASE").expect("TIDEMARK_OTHER_RELEASE is a folder"));
    let folders = std::fs::read_dir(repository().join("functions")).unwrap();
    let all = folders.map(|folder| folder.unwrap().file_name().into_string().unwrap()).filter(|name| name != "reconcile");
    // A function that the other release lacks is always of this one.
    let (mut both, only_new): (Vec<String>, Vec<String>) = all.partition(|name| old.join(name).is_file());
    both.sort_by_key(|name| (name != "fan-out", name.clone()));
    let serving = tempfile::tempdir().unwrap();
    let link = |name: &str, release: &Path| {
        let (link, next) = (serving.path().join(name), serving.path().join("next"));
        symlink(release.join(name), &next).unwrap();
        std::fs::rename(next, link).unwrap();
    };
    both.iter().for_each(|name| link(name, &old));
    only_new.iter().for_each(|name| link(name, &new));
    let mut world = World::start(|options: &mut tidemark_local::Options| {
        options.process_functions = both.iter().chain(&only_new).cloned().collect();
        options.processes = PROCESSES;
        options.bin_dir = Some(serving.path().to_owned());
        options.retry_delay = Duration::from_secs(2);
    })
    .await;
    println!("in both releases: {both:?}; only in this one: {only_new:?}");
    for round in 0..number_from("TIDEMARK_ROUNDS", 3) {
        let release = if round % 2 == 0 { &new } else { &old };
        let steps = both.len() * PROCESSES;
        let roll = async |shared: &Shared| {
            for step in 0..steps {
                shared.done.reached(step * OPERATIONS_TOGETHER / steps).await;
                let name = &both[step / PROCESSES];
                link(name, release);
                let world = shared.world.read().await;
                let stack = &world.as_ref().unwrap().stack;
                let replaced = async || {
                    // A process that had ended by itself was replaced by one of the new release.
                    let pids = stack.process_ids(name).into_iter();
                    let old = pids.into_iter().find(|pid| release_of(*pid).is_some_and(|of| of != *release));
                    old.is_none_or(|pid| stack.replace_process(name, pid))
                };
                until(name, replaced).await;
            }
        };
        world = batch_beside(world, (round * TOGETHER, None), roll).await;
        for pid in both.iter().flat_map(|name| world.stack.process_ids(name)) {
            assert_eq!(release_of(pid).as_ref(), Some(release));
        }
        println!("{OPERATIONS_TOGETHER} operations while the functions became those of {}", release.display());
        let report = world.walk_over_all_users(true, Duration::from_secs(1)).await;
        assert_eq!((report.differences, report.failed), (BTreeSet::new(), 0), "after round {round}");
    }
    world.finish().await;
}

/// The folder of a process's binary; `None` if the process has ended.
fn release_of(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()?.parent().map(Path::to_owned)
}

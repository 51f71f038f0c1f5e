//! Random histories through the API, compared with the model. Deliveries are held back, repeated and reordered; Redis
//! is flushed, stopped and started; the whole stack is stopped and started. Other histories continue during all of
//! this.

use std::{collections::BTreeSet, sync::atomic::Ordering, time::Duration};

use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng};
use tidemark_tests::{Model, RedisOutage, World};
use tokio::sync::{Mutex, RwLock};

use crate::{
    delivery::resend,
    operations::{self, Callers, Done, OPERATIONS, compare},
};

/// The number of histories in a run. A build with `TIDEMARK_HISTORIES` sets another number.
const HISTORIES: u64 = match option_env!("TIDEMARK_HISTORIES") {
    Some(_) => 2_000,
    None => 60,
};

/// The number of concurrent histories that share a stack, and the operations in each.
pub(crate) const TOGETHER: u64 = 20;
const LENGTH: usize = 60;

/// The operations of the histories that share a stack.
pub(crate) const OPERATIONS_TOGETHER: usize = TOGETHER as usize * LENGTH;

#[tokio::test]
async fn random_histories_end_in_agreement_with_the_model() {
    histories(HISTORIES, None).await;
}

/// Two or three followers make an author big; with one or none the author is small again. The mode changes around
/// nearly every post.
#[tokio::test]
async fn random_histories_across_the_threshold_end_in_agreement_with_the_model() {
    histories(HISTORIES.min(200), Some(3)).await;
}

async fn histories(count: u64, pull_threshold: Option<u64>) {
    let configure = |options: &mut tidemark_local::Options| {
        // The attempts of a task last longer than the outage of Redis.
        options.retry_delay = Duration::from_secs(2);
        options.parameters.extend(pull_threshold.map(|threshold| ("PullThreshold".to_owned(), threshold.to_string())));
    };
    let mut world = World::start(configure).await;
    for first in (0..count).step_by(TOGETHER as usize) {
        println!("histories with seeds {first} to {}", first + TOGETHER - 1);
        world = batch_beside(world, first, async |shared| disturb(shared, first).await).await;
    }
    // The histories leave no difference, and reconcile reports none.
    let report = world.walk_over_all_users(true, Duration::ZERO).await;
    assert_eq!((report.differences, report.failed), (BTreeSet::new(), 0));
    assert!(report.looked_at > count * 6, "{}", report.looked_at);
    world.finish().await;
}

/// State that histories share.
pub(crate) struct Shared {
    /// The disturbance takes the write lock while it stops the stack. Only then the option is empty.
    world: RwLock<Option<World>>,
    /// True if the workers are paused. False after every start.
    held: Mutex<bool>,
    redis_outage: Mutex<Option<RedisOutage>>,
    pub(crate) done: Done,
}

/// Runs [`TOGETHER`] histories beside a disturbance, and compares what is left with the model.
pub(crate) async fn batch_beside(world: World, first: u64, disturbance: impl AsyncFnOnce(&Shared)) -> World {
    let shared = Shared {
        world: RwLock::new(Some(world)),
        held: Mutex::new(false),
        redis_outage: Mutex::new(None),
        done: Done::default(),
    };
    let histories = join_all((first..first + TOGETHER).map(|seed| history(&shared, seed)));
    let (models, ()) = futures::join!(histories, disturbance(&shared));
    let world = shared.world.into_inner().unwrap();
    world.resume_workers();
    world.idle().await;
    // Resumes the fan-outs that an outage or a slow Redis interrupted, as the minute job does.
    let resumed = world.resume_fan_outs().await;
    println!("unfinished: {}", resumed["found"]);
    world.idle().await;
    join_all(models.iter().zip(first..).map(async |((users, model), seed)| {
        for &user in users {
            compare(&world.user(user), model, user, seed, 7).await;
        }
    }))
    .await;
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

impl Shared {
    pub(crate) async fn in_world(&self, act: impl AsyncFnOnce(&World)) {
        act(self.world.read().await.as_ref().unwrap()).await;
    }
}

/// One history with users of its own: the smallest and the largest ids.
async fn history(shared: &Shared, seed: u64) -> (Vec<u64>, Model) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut model = Model::default();
    let base = if seed % 4 == 3 { u64::MAX - seed * 10 - 6 } else { (seed + 1) * 1_000_007 };
    let users: Vec<u64> = (0..6).map(|index| base + index).collect();
    for _ in 0..LENGTH {
        let guard = shared.world.read().await;
        operate(shared, guard.as_ref().unwrap(), &mut rng, &mut model, &users).await;
        shared.done.0.fetch_add(1, Ordering::SeqCst);
    }
    (users, model)
}

async fn operate(shared: &Shared, world: &World, rng: &mut StdRng, model: &mut Model, users: &[u64]) {
    match rng.random_range(0..100) {
        dice if dice < OPERATIONS => {
            let callers = Callers { world, findings: None, unanswered: Default::default() };
            operations::operate(&callers, rng, model, users, dice).await;
        }
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

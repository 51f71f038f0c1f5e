//! Random histories in a storm: stores fail, lose responses, throttle, repeat and delay; invocations are killed in
//! flight; Redis loses its data or returns with older data. Every caller repeats a request until it has a final
//! response. When the weather is calm again, all data must agree with the model.

use std::{
    cell::RefCell,
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use futures::{FutureExt as _, future::join_all};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::json;
use tidemark::domain::feed::FeedCap;
use tidemark_local::Weather;
use tidemark_tests::{Model, Response, User, World, deployed_redis_timeouts, ids_and_flags, number_from};

use crate::{
    notice_histories,
    operations::{self, Callers, Done, OPERATIONS, compare, put_or_delete},
};

/// The number of concurrent histories that share a stack, in `make chaos` and in the suite.
const TOGETHER: u64 = 32;
const TOGETHER_IN_SHORT: u64 = 8;
const LENGTH: usize = 50;
/// The number of users of a history. It is small, so that many operations affect the same pair.
const USERS: u64 = 4;

/// The page size of the comparison of feeds. Other tests cover small pages.
const PAGE: usize = 40;

const IDLE_WITHIN: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread")]
async fn random_histories_in_a_storm_end_in_agreement_with_the_model() {
    chaos(1, TOGETHER_IN_SHORT, Duration::ZERO).await;
}

/// `make chaos`: runs rounds until the given time is over. The first round uses the given seed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs for a given time: make chaos"]
async fn chaos_for_a_while() {
    let time = Duration::from_secs(number_from("TIDEMARK_CHAOS_SECONDS", 60));
    chaos(number_from("TIDEMARK_CHAOS_SEED", 1), number_from("TIDEMARK_CHAOS_TOGETHER", TOGETHER), time).await;
}

async fn chaos(first: u64, together: u64, time: Duration) {
    let started = Instant::now();
    let world = World::start(deployed_redis_timeouts).await;
    let (mut seed, mut wrong) = (first, Vec::new());
    loop {
        let found = round(&world, seed, together).await;
        println!("round with seed {seed}: {} differences, {:.0?} so far", found.len(), started.elapsed());
        found.iter().for_each(|finding| println!("  {finding}"));
        wrong.extend(found);
        seed += together;
        if started.elapsed() >= time {
            break;
        }
    }
    println!("{} histories of {LENGTH} operations, seeds {first} to {}: {} differences", seed - first, seed - 1, wrong.len());
    assert!(wrong.is_empty(), "{} differences, the first: {}", wrong.len(), wrong[0]);
    world.finish().await;
}

struct Round<'a> {
    world: &'a World,
    findings: &'a RefCell<Vec<String>>,
    seed: u64,
    together: u64,
    done: Done,
}

struct Ended {
    seed: u64,
    users: Vec<u64>,
    model: Model,
    notices: notice_histories::Model,
    /// The number of attempts without a final response.
    unanswered: usize,
}

async fn round(world: &World, seed: u64, together: u64) -> Vec<String> {
    let findings = RefCell::new(Vec::new());
    let round = Round { world, findings: &findings, seed, together, done: Done::default() };
    let (started, faults) = (Instant::now(), world.stack.storm_faults());
    world.stack.set_weather(Weather::Storm, seed);
    let histories = async {
        let all = join_all((seed..seed + together).map(|seed| caught(&findings, seed, history(&round, seed)))).await;
        // The round has ended. Release all tasks that wait for more operations.
        round.done.0.set(usize::MAX);
        all
    };
    let (histories, killed, redis) = futures::join!(histories, kill(&round), disturb_redis(&round));
    world.stack.set_weather(Weather::Calm, seed);
    let (stormed, faults) = (started.elapsed(), world.stack.storm_faults() - faults);
    let histories: Vec<Ended> = histories.into_iter().flatten().collect();
    let settled = caught(&findings, seed, settle(world)).await.is_some();
    let calm = started.elapsed();
    if settled {
        compare_round(world, &histories, &findings).await;
    }
    let fewest = histories.iter().map(|ended| ended.unanswered).min().unwrap_or_default();
    let unanswered: usize = histories.iter().map(|ended| ended.unanswered).sum();
    println!(
        "seed {seed}: Redis {redis}; {killed} invocations killed, {faults} faults, {unanswered} requests without a final response, at least {fewest} of each history; \
         storm {stormed:.1?}, until idle {:.1?}, comparison {:.1?}",
        calm - stormed,
        started.elapsed() - calm
    );
    findings.into_inner()
}

/// Compares every reader of a round with the model. If a reader differs, compares all again without their views. So
/// the report separates differences of facts from differences of views.
async fn compare_round(world: &World, histories: &[Ended], findings: &RefCell<Vec<String>>) {
    let unexpected = findings.borrow().len();
    join_all(histories.iter().map(|ended| compare_all(world, ended, findings))).await;
    if findings.borrow().len() > unexpected {
        world.flush_redis().await;
        let of_facts = RefCell::new(Vec::new());
        join_all(histories.iter().map(|ended| compare_all(world, ended, &of_facts))).await;
        println!("without views, {} differences remain: these are in the facts", of_facts.into_inner().len());
    }
}

/// Records a difference instead of a panic.
pub(crate) async fn caught<T>(findings: &RefCell<Vec<String>>, seed: u64, work: impl Future<Output = T>) -> Option<T> {
    let panic = match AssertUnwindSafe(work).catch_unwind().await {
        Ok(result) => return Some(result),
        Err(panic) => panic,
    };
    let text = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    findings.borrow_mut().push(format!("seed {seed}: {}", text.unwrap_or_default()));
    None
}

/// Waits until no work is left. Resumes interrupted fan-outs, as the minute job does.
pub(crate) async fn settle(world: &World) {
    world.stack.idle_within(IDLE_WITHIN).await.unwrap();
    world.redis_is_asked_again().await;
    world.resume_fan_outs().await;
    world.stack.idle_within(IDLE_WITHIN).await.unwrap();
}

async fn compare_all(world: &World, ended: &Ended, findings: &RefCell<Vec<String>>) {
    for &user in &ended.users {
        let caller = world.user(user);
        caught(findings, ended.seed, compare(&caller, &ended.model, user, ended.seed, (PAGE, FeedCap::GREATEST))).await;
        caught(findings, ended.seed, compare_notices(&caller, ended, user)).await;
    }
}

/// Kills the invocations in flight of one function after the other, one invocation for every two operations
/// on any machine. Returns their number.
async fn kill(round: &Round<'_>) -> usize {
    let mut rng = StdRng::seed_from_u64(round.seed ^ 0x6b69_6c6c);
    let stack = &round.world.stack;
    let functions: Vec<&str> = stack.template().functions.values().map(|function| function.binary.as_str()).collect();
    let mut killed = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(rng.random_range(5..40))).await;
        match round.done.0.get() {
            usize::MAX => return killed,
            done if killed <= done.div_ceil(2) => {
                killed += stack.kill_invocations(functions[rng.random_range(0..functions.len())]);
            }
            _ => {}
        }
    }
}

/// Disturbs Redis: empties it, restarts it from an older dump, replaces it by a replica that was cut off, or leaves
/// it to the storm. Returns the kind. Afterwards Redis refuses all clients twice, for one or two seconds each, and
/// keeps its views. Workers then fail too, and no rebuild of all views follows that could hide what they left undone.
async fn disturb_redis(round: &Round<'_>) -> &'static str {
    let (mut rng, stack) = (StdRng::seed_from_u64(round.seed ^ 0x7265_6469), &round.world.stack);
    let last = round.together as usize * LENGTH;
    let early = rng.random_range(0..last / 2);
    let late = rng.random_range(early..last * 3 / 4);
    round.done.reached(early).await;
    let done = match (round.seed / round.together) % 4 {
        0 => {
            while stack.dump_redis().await.is_err() {}
            round.done.reached(late).await;
            stack.restart_redis_from_dump().await.unwrap();
            "restarted from an older dump"
        }
        1 if round.world.is_one_node() => {
            while stack.start_redis_replica().await.is_err() {}
            round.done.reached(late).await;
            while stack.promote_redis_replica().await.is_err() {}
            "replaced by a replica"
        }
        2 => {
            round.done.reached(late).await;
            while !flushed(round.world).await {}
            "emptied"
        }
        _ => "left to the storm",
    };
    for part in [75, 90] {
        round.done.reached(last * part / 100).await;
        let refusal = round.world.refuse_redis().await;
        tokio::time::sleep(Duration::from_millis(rng.random_range(1_000..2_000))).await;
        refusal.end().await;
    }
    done
}

async fn flushed(world: &World) -> bool {
    for options in world.stack.redis_nodes() {
        let client = options.clients().unwrap().remove(0);
        let Ok(mut connection) = client.get_multiplexed_async_connection().await else { return false };
        if redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.is_err() {
            return false;
        }
    }
    true
}

/// One history with users and a platform of its own.
async fn history(round: &Round<'_>, seed: u64) -> Ended {
    let callers = Callers { world: round.world, findings: Some(round.findings), unanswered: Arc::default() };
    let mut rng = StdRng::seed_from_u64(seed);
    let base = 1_000_000 + (seed % (1 << 40)) * 10;
    let users: Vec<u64> = (0..USERS).map(|index| base + index).collect();
    let mut ended = Ended { seed, users, model: Model::default(), notices: Default::default(), unanswered: 0 };
    // Loads the views, so that later changes must update them.
    let all: Vec<String> = ended.users.iter().map(u64::to_string).collect();
    for &user in &ended.users {
        let caller = callers.user(user);
        caller.post("/v1/following", &json!({ "authors": all })).await.ok();
        ended.users.iter().for_each(|&author| ended.model.follow(user, author));
        caller.get("/v1/feed?limit=1").await.ok();
    }
    for step in 1..=LENGTH {
        match rng.random_range(0..100) {
            dice if dice < OPERATIONS => {
                operations::operate(&callers, &mut rng, &mut ended.model, &ended.users, dice).await;
            }
            dice if dice < 94 => notice(&callers, &mut rng, &mut ended, step).await,
            _ => drop(callers.user(ended.users[rng.random_range(0..ended.users.len())]).get("/v1/feed?limit=5").await.ok()),
        }
        round.done.add_one();
    }
    ended.unanswered = callers.unanswered.load(Ordering::Relaxed);
    ended
}

fn platform(seed: u64) -> u16 {
    100 + (seed % 60_000) as u16
}

async fn notice(callers: &Callers<'_>, rng: &mut StdRng, ended: &mut Ended, step: usize) {
    let platform = platform(ended.seed);
    let administrator = callers.as_in_weather(callers.world.stranger(Some("900 notices:write")));
    let user = ended.users[rng.random_range(0..ended.users.len())];
    let (reader, model) = (callers.user(user), &mut ended.notices);
    let seq = rng.random_range(1..=model.latest + 1);
    let path = format!("/v1/notices/{platform}-{seq}");
    let live = model.is_live(seq, 0);
    let right = |response: &Response, expected: u16| {
        callers.check(response.status == expected, || format!("seed {}: {path}: {response:?}", ended.seed));
    };
    match rng.random_range(0..10) {
        0..3 => {
            let (key, notice) = (format!("{:x}", rng.random::<u64>()), json!({ "platforms": [platform], "title": "x" }));
            let response = administrator.post_with_key("/v1/notices", &key, &notice).await.ok();
            model.publish(None, step);
            let expected = format!("{platform}-{}", model.latest);
            callers.check(response["items"][0]["id"] == *expected, || format!("published {expected}, and it is {response}"));
        }
        3 => {
            let renotify = rng.random::<bool>();
            let response = administrator.put_body(&path, &json!({ "title": "edited", "renotify": renotify })).await;
            right(&response, if live { 200 } else { 404 });
            model.edit(seq, None, renotify.then_some(step));
        }
        4 => {
            let response = administrator.delete(&path).await;
            right(&response, 204);
            model.notices.remove(&seq);
        }
        5..8 => {
            let read = rng.random_bool(0.7);
            let response = put_or_delete(&reader, &format!("{path}/read"), read).await;
            right(&response, if live { 200 } else { 404 });
            model.mark(user, seq, read, 0);
        }
        8 => {
            reader.post("/v1/notices/reads", &json!({ "platform": platform, "through": seq })).await.ok();
            model.mark_through(user, seq, step, 0);
        }
        _ => drop(reader.get(&format!("/v1/notices?platform={platform}&limit=3")).await.ok()),
    }
}

async fn compare_notices(caller: &User, ended: &Ended, user: u64) {
    let (seed, platform) = (ended.seed, platform(ended.seed));
    let counts = caller.notice_counts(platform).await;
    let listed = ids_and_flags(&caller.walk(&format!("/v1/notices?platform={platform}"), 7).await);
    let id = |(seq, read)| (format!("{platform}-{seq}"), read);
    let expected: Vec<(String, bool)> = ended.notices.list(user, 0).into_iter().map(id).collect();
    assert_eq!(listed, expected, "seed {seed}, notices of {user}");
    assert_eq!(counts, ended.notices.counts(user, 0), "seed {seed}, count of notices of {user}");
}

//! A caller who sends dear requests of each kind, up to every limit and beyond, beside callers who read.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures::{StreamExt, future::join_all, stream};
use serde::Serialize;
use serde_json::json;
use tidemark_tools::{
    api::{Api, Call},
    progress::Progress,
    status::{consumed, set_weather, wait_idle},
    text::{short, thousands},
};

use super::{
    meter::{DYNAMODB, REDIS, Times},
    output::Subject,
    single::IDLE_WITHIN,
    summary::{Outcome, Summary, two_decimals},
    table::Table,
    traffic::Traffic,
    unit_prices::{READ_UNIT, WRITE_UNIT},
    world::World,
};

/// The limits that the template has if nobody sets others, in requests a minute and user.
pub(crate) const LIMITS: [(&str, u32); 5] =
    [("LimitPosts", 60), ("LimitFollows", 300), ("LimitReactions", 600), ("LimitMarks", 1_200), ("LimitReads", 3_000)];
/// Requests of each kind that the attacker has open at once.
const CONNECTIONS: usize = 20;
/// Callers who stay within their limits, and the pause after each of their requests.
const CALLERS: usize = 20;
const PAUSE: Duration = Duration::from_millis(500);
/// The author whose posts all of them read: the one with the most followers.
const AUTHOR: u64 = 1;
const MINUTE: Duration = Duration::from_secs(60);

/// The callers alone, or beside the attacker.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct State {
    seconds: f64,
    /// The requests of the callers.
    #[serde(flatten)]
    summary: Summary,
    /// The 99th percentile of each minute. The attacker begins with all that the limits have saved up.
    minutes_p99_ms: Vec<f64>,
    /// Requests of the attacker by outcome.
    attacks: u64,
    refused: u64,
    attacks_failed: u64,
    read_units: f64,
    write_units: f64,
    /// Processors busy: with functions, Redis, the stand-ins for DynamoDB and for the rest, and the clients.
    functions: f64,
    redis: f64,
    dynamodb: f64,
    others: f64,
    #[serde(skip)]
    reads: Vec<Read>,
}

/// A request of a caller. Its kind is the minute since the callers began.
type Read = Outcome<u64>;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct AttackReport {
    #[serde(flatten)]
    subject: Subject,
    alone: State,
    attacked: State,
    /// The 99th percentile beside the attacker, in those alone.
    ratio: f64,
    /// What the attacker costs in DynamoDB in a day.
    dollars_a_day: f64,
}

/// Attacks for `time` in the weather of AWS. The callers are alone for a fifth of that before and after it, because
/// machines are not equally fast for long.
pub(crate) async fn measure(world: &mut World, traffic: &Traffic, time: Duration) -> anyhow::Result<AttackReport> {
    let api = Arc::clone(&world.stack.api);
    let users: Vec<u64> = traffic.readers.iter().take(CALLERS + 1).map(|user| u64::from(*user)).collect();
    let [attacker, callers @ ..] = users.as_slice() else { anyhow::bail!("there are no readers") };
    for user in &users {
        api.fetch(Call::put(format!("/v1/following/{AUTHOR}")).caller(*user), 200).await?;
    }
    set_weather(&api, "aws").await?;
    let (mut alone, mut attacked) = (State::default(), State::default());
    let mut progress = Progress::start("attack", "parts");
    run(world, callers, None, time / 5, &mut alone).await?;
    progress.set(1, 3, "");
    run(world, callers, Some(*attacker), time, &mut attacked).await?;
    progress.set(2, 3, "");
    run(world, callers, None, time / 5, &mut alone).await?;
    progress.finish();
    set_weather(&api, "calm").await?;
    Ok(AttackReport {
        subject: Subject::of(world, traffic).await?,
        ratio: two_decimals(attacked.summary.p99_ms / alone.summary.p99_ms),
        dollars_a_day: two_decimals(dollars_a_day(&alone, &attacked)),
        alone,
        attacked,
    })
}

/// Runs the callers for `length`, and adds what they see to `state`.
async fn run(
    world: &mut World,
    callers: &[u64],
    attacker: Option<u64>,
    length: Duration,
    state: &mut State,
) -> anyhow::Result<()> {
    let api = Arc::clone(&world.stack.api);
    wait_idle(&api, IDLE_WITHIN).await?;
    let (before, units) = (world.meter.times(&api).await?, consumed(&api).await?);
    let (started, over) = (Instant::now(), AtomicBool::new(false));
    let seen = Mutex::new(Vec::new());
    let attack = async {
        if let Some(attacker) = attacker {
            attack(&api, attacker, started, length, &over, &seen).await;
        }
    };
    let normal = join_all((0..).zip(callers).map(|(index, user)| read(&api, *user, index, &over)));
    let end = async {
        tokio::time::sleep(length).await;
        over.store(true, Ordering::Relaxed);
    };
    let (reads, (), ()) = futures::join!(normal, attack, end);
    let spent = world.meter.times(&api).await?.since(&before);
    let seconds = started.elapsed().as_secs_f64();
    wait_idle(&api, IDLE_WITHIN).await?;
    let after = consumed(&api).await?;
    let statuses = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    state.attacks += statuses.len() as u64;
    state.refused += statuses.iter().filter(|status| **status == 429).count() as u64;
    state.attacks_failed += statuses.iter().filter(|status| **status >= 500 || **status == 0).count() as u64;
    state.read_units += after.read - units.read;
    state.write_units += after.written - units.written;
    state.add(seconds, reads.concat(), &spent);
    Ok(())
}

impl State {
    fn add(&mut self, seconds: f64, reads: Vec<Read>, spent: &Times) {
        self.minutes_p99_ms.extend(Summary::by_kind(&reads).into_values().map(|of_minute| of_minute.p99_ms));
        self.reads.extend(reads);
        self.summary = Summary::of(&self.reads);
        let before = self.seconds;
        self.seconds += seconds;
        let average = |old: f64, added: f64| two_decimals((old * before + added) / (before + seconds));
        let all: f64 = spent.0.values().map(|cpu| cpu.total()).sum();
        let [functions, redis, dynamodb] = [spent.functions().total(), spent.of(REDIS).total(), spent.of(DYNAMODB).total()];
        self.functions = average(self.functions, functions);
        self.redis = average(self.redis, redis);
        self.dynamodb = average(self.dynamodb, dynamodb);
        self.others = average(self.others, all - functions - redis - dynamodb);
    }
}

/// What the time beside the attacker costs beyond the time alone.
fn dollars_a_day(alone: &State, attacked: &State) -> f64 {
    let beyond = |attacked_units: f64, alone_units: f64| attacked_units / attacked.seconds - alone_units / alone.seconds;
    let read = beyond(attacked.read_units, alone.read_units) * READ_UNIT;
    let written = beyond(attacked.write_units, alone.write_units) * WRITE_UNIT;
    (read + written) * 86_400.0
}

/// Sends as many requests of each kind a minute as its limit has tokens, if the connections suffice.
async fn attack(api: &Api, attacker: u64, started: Instant, length: Duration, over: &AtomicBool, seen: &Mutex<Vec<u16>>) {
    join_all(LIMITS.iter().enumerate().map(async |(kind, (_, limit))| {
        let pause = MINUTE / *limit;
        let turns = (0..).map(|turn| (turn, started + pause * turn as u32)).take_while(|(_, at)| *at < started + length);
        let requests = stream::iter(turns).map(async |(turn, at)| {
            tokio::time::sleep_until(at.into()).await;
            if !over.load(Ordering::Relaxed) {
                let call = dear(kind, turn).caller(attacker);
                let status = api.once(&call).await.map_or(0, |response| response.status);
                seen.lock().unwrap_or_else(PoisonError::into_inner).push(status);
            }
        });
        requests.buffer_unordered(CONNECTIONS).for_each(async |()| ()).await;
    }))
    .await;
}

/// A request of one kind that costs much for each of its tokens. No change is one that stands already, and no page of
/// posts is read twice within some minutes, so that Redis does not have it.
fn dear(kind: usize, turn: u64) -> Call {
    let n = turn / 3;
    let change = |path: String, n: u64| if (n / 20).is_multiple_of(2) { Call::put(path) } else { Call::delete(path) };
    match (kind, turn % 3) {
        (0, _) => Call::post("/v1/posts").json(json!({"title": "x"})),
        (1, 0) => change(format!("/v1/following/{}", 3_000 + n % 20), n),
        (1, 1) => change(format!("/v1/blocks/{}", 4_000 + n % 20), n),
        (1, _) => change(format!("/v1/mutes/{}", 5_000 + n % 20), n),
        (2, _) => change(format!("/v1/posts/{AUTHOR}-{}/like", turn % 20 + 1), turn),
        (3, 0) => Call::post("/v1/reads").json(json!({"all": true})),
        (3, 1) => {
            let posts = (0..500).map(|post| format!("{}-{}", n % 80 * 25 + post / 20 + 1, post % 20 + 1));
            Call::post("/v1/reads").json(json!({"posts": posts.collect::<Vec<_>>()}))
        }
        (3, _) => change(format!("/v1/posts/{AUTHOR}-{}/read", n % 20 + 1), n),
        (_, 0) => {
            let first = n % 20 * 100 + 1;
            let posts: Vec<String> = (first..first + 100).map(|author| format!("post={author}-{}", n / 20 % 20 + 1)).collect();
            Call::get(format!("/v1/posts?{}", posts.join("&")))
        }
        (_, 1) => Call::get(format!("/v1/users/{AUTHOR}/followers?known=true&limit=100")),
        (_, _) => Call::get(format!("/v1/users/{AUTHOR}/followers?relation=true&limit=100&offset={}", 1 + turn % 900)),
    }
}

/// A caller who reads one thing after the other.
async fn read(api: &Api, user: u64, index: usize, over: &AtomicBool) -> Vec<Read> {
    let paths =
        ["/v1/feed".to_owned(), "/v1/unread".to_owned(), format!("/v1/posts/{AUTHOR}-20"), format!("/v1/authors/{AUTHOR}/posts")];
    let (began, mut reads) = (Instant::now(), Vec::new());
    // The callers begin one after the other.
    tokio::time::sleep(PAUSE * index as u32 / CALLERS as u32).await;
    for turn in index.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let asked = Instant::now();
        let response = api.once(&Call::get(paths[turn % paths.len()].as_str()).caller(user)).await;
        let status = response.ok().map(|response| response.status);
        reads.push(Read { kind: (asked - began).as_secs() / MINUTE.as_secs(), took: asked.elapsed(), status });
        tokio::time::sleep(PAUSE).await;
    }
    reads
}

impl fmt::Display for AttackReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, alone, attacked, ratio, dollars_a_day } = self;
        writeln!(f, "{subject}\n")?;
        let time = short(Duration::from_secs_f64(attacked.seconds));
        writeln!(f, "{CALLERS} callers who read, one attacker at every limit, {time} in all, weather aws\n")?;
        let numbers = ["requests", "failed", "p50 ms", "p99 ms", "functions", "Redis", "DynamoDB", "others"];
        let mut table = Table::new(&["callers; processors busy"], &numbers);
        for (name, state) in [("alone", alone), ("beside the attacker", attacked)] {
            let State { summary, functions, redis, dynamodb, others, .. } = state;
            table.push([
                name.to_owned(),
                thousands(summary.requests),
                summary.errors_text(),
                summary.p50_ms.to_string(),
                summary.p99_ms.to_string(),
                functions.to_string(),
                redis.to_string(),
                dynamodb.to_string(),
                others.to_string(),
            ]);
        }
        writeln!(f, "{table}")?;
        let (attacks, refused) = (thousands(attacked.attacks), thousands(attacked.refused));
        writeln!(f, "p99 beside the attacker: {ratio} times that alone.")?;
        write!(
            f,
            "Attacker: {attacks} requests, {refused} refused, {} failed, {dollars_a_day} dollars a day in DynamoDB.",
            attacked.attacks_failed
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attacker_costs_what_the_callers_alone_do_not() {
        let state = |seconds, read_units, write_units| State { seconds, read_units, write_units, ..State::default() };
        let (alone, attacked) = (state(100.0, 1_000.0, 100.0), state(200.0, 3_000.0, 600.0));
        // 5 read units and 2 write units a second.
        let expected = (5.0 * 0.125 + 2.0 * 0.625) * 86_400.0 / 1e6;
        assert!((dollars_a_day(&alone, &attacked) - expected).abs() < 1e-9);
    }

    #[test]
    fn the_limits_are_those_of_the_template() {
        let template = include_str!("../../../template.yaml");
        for (name, limit) in LIMITS {
            let (_, parameter) = template.split_once(&format!("\n  {name}:\n")).unwrap();
            let default = parameter.lines().find_map(|line| line.trim().strip_prefix("Default: "));
            assert_eq!(default, Some(limit.to_string().as_str()), "{name}");
        }
    }

    #[test]
    fn parts_add_up() {
        let mut state = State::default();
        let cpu = |user| crate::meter::Cpu { user, system: 0.0 };
        for (seconds, took, functions) in [(10.0, 10, 5.0), (30.0, 30, 3.0)] {
            let spent = Times([("publish".to_owned(), cpu(functions)), (crate::meter::GATEWAY.to_owned(), cpu(2.0))].into());
            let status = |minute| Some(if minute == 1 { 500 } else { 200 });
            let read = |kind, took| Read { kind, took: Duration::from_millis(took), status: status(kind) };
            state.add(seconds, vec![read(0, took), read(1, took + 1)], &spent);
        }
        assert_eq!(state.minutes_p99_ms, [10.0, 11.0, 30.0, 31.0]);
        let summary = state.summary;
        assert_eq!((summary.p50_ms, summary.p99_ms, summary.requests, summary.failed()), (11.0, 31.0, 4, 2));
        assert_eq!((state.functions, state.others), (0.2, 0.1));
    }
}

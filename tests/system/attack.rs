//! A caller far beyond the limits: what a refused request costs, and what other callers feel.

use std::{
    cell::{Cell, RefCell},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::{StreamExt, future::join_all, stream};
use serde_json::json;
use tidemark::domain::NewPost;
use tidemark_local::Weather;
use tidemark_tests::{World, number_from, request_limits, user_id};

use crate::{
    damage::proxy::{Fate, Meter, Proxy, world_behind_a_proxy_with},
    request,
};

/// The limits of posts, follows, reactions, marks and reads in the template.
const LIMITS: [u32; 5] = [60, 300, 600, 1_200, 3_000];

/// Dollars for a million read and write units.
const PRICES: [f64; 2] = [0.125, 0.625];

/// The limits, divided by `TIDEMARK_ATTACK_DIVISOR`.
fn limits() -> [u32; 5] {
    LIMITS.map(|limit| limit / number_from("TIDEMARK_ATTACK_DIVISOR", 20) as u32)
}

const ATTACKER: u64 = 1;

/// The author of the posts, whom all users follow.
const AUTHOR: u64 = 2;

/// The attacker's connections for each kind of request.
const CONNECTIONS: usize = 20;

/// Callers who stay within their limits.
const CALLERS: u64 = 20;

const POST: &str = r#"POST /v1/posts {"title": "x"}"#;
const READ_ALL: &str = r#"POST /v1/reads {"all": true}"#;

async fn send(world: &World, user: u64, line: &str) -> u16 {
    request(world, &format!("{user}: {line}"), &[]).await.status
}

/// A path of every kind of read.
const READS: &str = "
    /v1/feed /v1/feed?order=ranked /v1/feed?list=1-1 /v1/unread /v1/unread?list=1-1 /v1/unread/2
    /v1/authors/2/posts /v1/authors/2/posts?status=unread&include=body
    /v1/posts/2-1 /v1/posts?post=2-1 /v1/posts/2-1/delivery
    /v1/me /v1/me/likes /v1/users/2 /v1/users?user=2 /v1/handles/ada
    /v1/users/2/following /v1/users/2/followers?offset=1 /v1/users/2/counters /v1/relations/2 /v1/mutes /v1/blocks
    /v1/lists /v1/lists/1-1/authors
    /v1/notices?platform=1 /v1/notices/1-1 /v1/notices/unread?platform=1";

#[test]
fn a_request_over_its_limit_reads_no_facts() {
    let reads = READS.split_whitespace().map(|path| ("GET /v1/unread", format!("GET {path}")));
    let changes = [
        ("PUT /v1/mutes/5", "PUT /v1/following/2"),
        ("PUT /v1/posts/2-1/like", "PUT /v1/posts/2-1/favorite"),
        ("PUT /v1/posts/2-1/read", READ_ALL),
        (POST, POST),
    ];
    let requests = reads.chain(changes.map(|(allowed, refused)| (allowed, refused.to_owned())));
    world_behind_a_proxy_with(request_limits([1; 5]), async |world, proxy| {
        world.user(AUTHOR).publish("one").await;
        let asked = Arc::new(Mutex::new(Vec::new()));
        for (caller, (allowed, refused)) in (10..).zip(requests) {
            assert_ne!(send(world, caller, allowed).await, 429, "{allowed}");
            world.idle().await;
            let seen = Arc::clone(&asked);
            proxy.decide(move |request| {
                // Every process looks for the note of an outage once a second, for any caller.
                if !request.body.to_string().contains("outage") {
                    seen.lock().unwrap().push(format!("{} {}", request.operation, request.body));
                }
                Fate::Forwarded
            });
            assert_eq!(send(world, caller, &refused).await, 429, "{refused}");
            world.idle().await;
            let asked = std::mem::take(&mut *asked.lock().unwrap());
            proxy.forward_all();
            assert!(asked.is_empty(), "{refused}: {asked:?}");
        }
    });
}

struct State {
    /// 99 of 100 requests of the normal callers are faster.
    p99: Duration,
    /// Requests of the attacker: sent, refused, and failed because the machine was overloaded.
    sent: usize,
    refused: usize,
    failed: usize,
    time: Duration,
    meter: Meter,
}

/// The attacker's next request of one kind: the requests that cost most.
fn costly(kind: usize, turn: u64) -> String {
    let (post, other) = (turn % 30 + 1, 1_000 + turn);
    let add = if (turn / 30).is_multiple_of(2) { "PUT" } else { "DELETE" };
    match (kind, turn % 3) {
        (0, _) => POST.to_owned(),
        (1, 0) => {
            let authors: Vec<String> = (other * 50..other * 50 + 50).map(|user| user.to_string()).collect();
            format!("POST /v1/following {}", json!({ "authors": authors }))
        }
        (1, 1) => format!("PUT /v1/blocks/{other}"),
        (1, _) => format!("PUT /v1/mutes/{other}"),
        (2, _) => format!("{add} /v1/posts/{AUTHOR}-{post}/like"),
        (3, 0) => READ_ALL.to_owned(),
        (3, 1) => {
            let posts: Vec<String> = (1..=500).map(|post| format!("{}-{post}", turn + 10)).collect();
            format!("POST /v1/reads {}", json!({ "posts": posts }))
        }
        (3, _) => format!("{add} /v1/posts/{AUTHOR}-{post}/read"),
        (_, 0) => {
            let posts: Vec<String> = (other..other + 100).map(|author| format!("post={author}-1")).collect();
            format!("GET /v1/posts?{}", posts.join("&"))
        }
        (_, 1) => {
            let users: Vec<String> = (other..other + 100).map(|user| format!("user={user}")).collect();
            format!("GET /v1/relations?{}", users.join("&"))
        }
        (_, _) => format!("GET /v1/users/{AUTHOR}/followers?limit=100&offset=10"),
    }
}

/// Runs the normal callers for some time, alone or beside the attacker, who sends each kind of request at a multiple
/// of its limit if the connections suffice.
async fn run(world: &World, proxy: &Proxy, time: Duration, attacked: bool) -> State {
    world.idle().await;
    proxy.meter();
    let (started, over, statuses) = (Instant::now(), Cell::new(false), RefCell::new(Vec::new()));
    let times = number_from("TIDEMARK_ATTACK_TIMES", 10) as u32;
    let attack = join_all(limits().into_iter().enumerate().filter(|_| attacked).map(async |(kind, limit)| {
        let pause = Duration::from_secs(60) / (times * limit);
        let turns = (0..).map(|turn| (turn, started + pause * turn as u32)).take_while(|(_, at)| *at < started + time);
        let requests = stream::iter(turns).map(async |(turn, at)| {
            tokio::time::sleep_until(at.into()).await;
            if !over.get() {
                let status = send(world, ATTACKER, &costly(kind, turn)).await;
                statuses.borrow_mut().push(status);
            }
        });
        requests.buffer_unordered(CONNECTIONS).for_each(async |()| ()).await;
    }));
    let normal = join_all((0..CALLERS).map(async |index| {
        let (caller, mut took) = (world.user(100 + index), Vec::new());
        let paths = ["/v1/feed", "/v1/unread", "/v1/posts/2-30", "/v1/authors/2/posts"];
        for turn in index as usize.. {
            tokio::time::sleep(Duration::from_millis(500)).await;
            if over.get() {
                return took;
            }
            let asked = Instant::now();
            caller.get(paths[turn % paths.len()]).await.ok();
            took.push(asked.elapsed());
        }
        took
    }));
    let end = async {
        tokio::time::sleep(time).await;
        over.set(true);
    };
    let (took, _, ()) = futures::join!(normal, attack, end);
    world.idle().await;
    let mut took: Vec<Duration> = took.into_iter().flatten().collect();
    took.sort_unstable();
    let statuses = statuses.into_inner();
    let count = |counts: fn(u16) -> bool| statuses.iter().filter(|status| counts(**status)).count();
    let (refused, failed) = (count(|status| status == 429), count(|status| status >= 500));
    State { p99: took[took.len() * 99 / 100], sent: statuses.len(), refused, failed, time, meter: proxy.meter() }
}

async fn prepare(world: &World) {
    world.follow((100..100 + CALLERS).chain([ATTACKER]), AUTHOR).await;
    // The limit of posts holds for the author too.
    let app = world.stack.app("publish").unwrap();
    for number in 1..=30 {
        app.publishing.publish(&NewPost::titled(user_id(AUTHOR), &format!("post {number}")), None).await.unwrap();
    }
    world.idle().await;
    world.stack.set_weather(Weather::Aws, 1);
}

/// `TIDEMARK_ATTACK_SECONDS` for the run with limits, a fifth of them for each other run, `TIDEMARK_ATTACK_DIVISOR`: 1
/// for the limits of the template, and `TIDEMARK_ATTACK_TIMES`: how many times each limit the attacker sends. The
/// callers run alone before the limited run and after it, on the same stack: machines are not equally fast for long.
#[test]
#[ignore = "three minutes; it measures"]
fn an_attacker_beside_normal_callers() {
    let time = Duration::from_secs(number_from("TIDEMARK_ATTACK_SECONDS", 60));
    let (mut alone, mut unlimited, mut limited, mut after) = (None, None, None, None);
    world_behind_a_proxy_with(request_limits(limits()), async |world, proxy| {
        prepare(world).await;
        alone = Some(run(world, proxy, time / 5, false).await);
        limited = Some(run(world, proxy, time, true).await);
        after = Some(run(world, proxy, time / 5, false).await);
    });
    world_behind_a_proxy_with(request_limits([0; 5]), async |world, proxy| {
        prepare(world).await;
        unlimited = Some(run(world, proxy, time / 5, true).await);
    });
    let (alone, unlimited, limited, after) = (alone.unwrap(), unlimited.unwrap(), limited.unwrap(), after.unwrap());
    println!(
        "{CALLERS} normal callers, one attacker at {} times each limit, for {time:?}",
        number_from("TIDEMARK_ATTACK_TIMES", 10)
    );
    for (name, State { p99, sent, refused, failed, time, meter }) in
        [("alone", &alone), ("limited", &limited), ("alone again", &after), ("unlimited", &unlimited)]
    {
        let share = time.as_secs_f64() / alone.time.as_secs_f64();
        let written = meter.written - alone.meter.written * share;
        let read = meter.units - alone.meter.units * share - written;
        let dollars = (read * PRICES[0] + written * PRICES[1]) / 1e6 * 86_400.0 / time.as_secs_f64();
        println!(
            "{name}: p99 {p99:.1?}; attacker: {refused} of {sent} requests refused, {failed} failed, {read:.0} read and {written:.0} write units, {dollars:.2} dollars a day"
        );
    }
    assert!(limited.refused > 0 && unlimited.refused == 0);
    let rate = |state: &State| state.meter.units / state.time.as_secs_f64();
    assert!(rate(&limited) < rate(&unlimited), "{} and {} units a second", rate(&limited), rate(&unlimited));
}

//! What single requests of each kind cost: one client, one kind after the other.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use serde::Serialize;
use tidemark_tools::{progress::Progress, status::wait_idle};

use super::{
    arrivals::closed_loop,
    meter::{DYNAMODB, GATEWAY, REDIS, Times},
    summary::{Summary, two_decimals},
    traffic::{Kind, Traffic},
    world::World,
};

const IDLE_FOR: Duration = Duration::from_secs(5);
pub(crate) const IDLE_WITHIN: Duration = Duration::from_secs(300);
/// Before the first measurement of a kind, so that all processes have connections.
const WARM_UP: u32 = 20;
/// The most rebuilds, which are slow.
const REBUILDS: u32 = 200;

/// Processor time of 1,000 requests of a kind, in milliseconds, with what follows until the stack is idle.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Cost {
    pub(crate) kind: Kind,
    pub(crate) summary: Summary,
    /// The function that responds.
    pub(crate) function_ms: f64,
    /// The functions that work afterwards.
    pub(crate) workers_ms: f64,
    pub(crate) redis_ms: f64,
    /// The stand-in for DynamoDB.
    pub(crate) dynamodb_ms: f64,
    /// The stand-ins for API Gateway, Lambda and SQS.
    pub(crate) gateway_ms: f64,
    /// Every process, by name.
    pub(crate) by_process_ms: std::collections::BTreeMap<String, f64>,
}

/// Measures every kind. The processor time of the idle stack is subtracted.
pub(crate) async fn measure(world: &mut World, traffic: &Arc<Traffic>, requests: u32) -> anyhow::Result<Vec<Cost>> {
    let mut costs = Vec::new();
    if requests == 0 {
        return Ok(costs);
    }
    let api = Arc::clone(&world.stack.api);
    wait_idle(&api, IDLE_WITHIN).await?;
    let before = world.meter.times(&api).await?;
    tokio::time::sleep(IDLE_FOR).await;
    let idle = world.meter.times(&api).await?.since(&before);
    let mut progress = Progress::start("single requests", "kinds");
    for (done, kind) in Kind::ALL.into_iter().enumerate() {
        let requests = if kind == Kind::Rebuild { requests.min(REBUILDS) } else { requests };
        run(world, traffic, kind, WARM_UP).await;
        wait_idle(&api, IDLE_WITHIN).await?;
        let (started, before) = (Instant::now(), world.meter.times(&api).await?);
        let outcomes = run(world, traffic, kind, requests).await;
        wait_idle(&api, IDLE_WITHIN).await?;
        let spent = world.meter.times(&api).await?.since(&before);
        let idle_times = started.elapsed().as_secs_f64() / IDLE_FOR.as_secs_f64();
        costs.push(cost(kind, Summary::of(&outcomes), &spent, &idle, idle_times));
        progress.set(done as u64 + 1, Kind::ALL.len() as u64, kind.name());
    }
    progress.finish();
    let failed = costs.iter().find(|cost| cost.summary.failed() > 0);
    failed
        .map_or(Ok(()), |cost| Err(anyhow::anyhow!("{}: {}", cost.kind.name(), cost.summary.errors_text())))
        .context("single requests failed")?;
    Ok(costs)
}

async fn run(world: &World, traffic: &Arc<Traffic>, kind: Kind, requests: u32) -> Vec<super::summary::Outcome> {
    let left = Arc::new(AtomicU32::new(requests));
    let is_over = move || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err();
    closed_loop(&world.stack.api, traffic, kind, 1, is_over).await
}

fn cost(kind: Kind, summary: Summary, spent: &Times, idle: &Times, idle_times: f64) -> Cost {
    let ms =
        |seconds: f64, idle: f64| two_decimals(((seconds - idle * idle_times).max(0.0)) * 1e6 / summary.requests.max(1) as f64);
    let of = |name: &str| ms(spent.of(name).total(), idle.of(name).total());
    let function_ms = of(kind.function());
    let all = ms(spent.functions().total(), idle.functions().total());
    let by_process_ms = spent.0.keys().map(|name| (name.clone(), of(name))).collect();
    Cost {
        kind,
        function_ms,
        workers_ms: two_decimals((all - function_ms).max(0.0)),
        redis_ms: of(REDIS),
        dynamodb_ms: of(DYNAMODB),
        gateway_ms: of(GATEWAY),
        by_process_ms,
        summary,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Cpu;

    #[test]
    fn a_cost_is_of_a_thousand_requests_without_the_idle_time() {
        let times = |all: &[(&str, f64)]| {
            Times(all.iter().map(|(name, user)| ((*name).to_owned(), Cpu { user: *user, system: 0.0 })).collect())
        };
        let spent = times(&[("publish", 2.0), ("fan-out", 1.0), (REDIS, 0.5), (DYNAMODB, 4.0), (GATEWAY, 3.0)]);
        let idle = times(&[("publish", 0.0), (REDIS, 0.05), (GATEWAY, 0.1)]);
        let summary = Summary { requests: 500, ..Summary::default() };
        let cost = cost(Kind::Publish, summary, &spent, &idle, 2.0);
        assert_eq!((cost.function_ms, cost.workers_ms, cost.redis_ms), (4_000.0, 2_000.0, 800.0));
        assert_eq!((cost.dynamodb_ms, cost.gateway_ms), (8_000.0, 5_600.0));
        assert_eq!(cost.by_process_ms["fan-out"], 2_000.0);
    }
}

//! Sends requests: at random moments, or by clients without pauses.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, Exp};
use tidemark_tools::api::Api;
use tokio::task::JoinSet;

use super::{
    summary::Outcome,
    traffic::{Kind, Mix, Traffic},
};

/// Requests that are open at once at most. A stack that is this far behind is not measured further.
const MOST_OPEN: u32 = 20_000;
/// Timers are exact to a millisecond. A request that is sent later than this counts from the moment when it was due.
const LATE: Duration = Duration::from_millis(3);

/// What the requests have become so far.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(Mutex<Vec<Outcome>>);

impl Outcomes {
    fn push(&self, outcome: Outcome) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
    }

    /// Returns those since the last call.
    pub(crate) fn take(&self) -> Vec<Outcome> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Sends requests at random moments (Poisson), whether or not earlier ones have ended, and waits for the last.
pub(crate) async fn open_loop(
    api: &Arc<Api>,
    traffic: &Arc<Traffic>,
    mix: &Mix,
    rate: f64,
    time: Duration,
    outcomes: &Arc<Outcomes>,
) -> anyhow::Result<()> {
    let (sample, between) = (mix.sampler()?, Exp::new(rate)?);
    let mut random = StdRng::seed_from_u64(rand::rng().random());
    let (open, mut requests) = (Arc::new(AtomicU32::new(0)), JoinSet::new());
    let (started, mut due) = (Instant::now(), Duration::ZERO);
    loop {
        due += Duration::from_secs_f64(between.sample(&mut random));
        if due >= time {
            break;
        }
        tokio::time::sleep_until((started + due).into()).await;
        while requests.try_join_next().is_some() {}
        let kind = sample(&mut random);
        if open.fetch_add(1, Ordering::Relaxed) >= MOST_OPEN {
            open.fetch_sub(1, Ordering::Relaxed);
            outcomes.push(Outcome { kind, took: Duration::ZERO, status: None });
            continue;
        }
        let late = started.elapsed().saturating_sub(due);
        let since = if late > LATE { started + due } else { Instant::now() };
        let (api, traffic, outcomes, open) = (Arc::clone(api), Arc::clone(traffic), Arc::clone(outcomes), Arc::clone(&open));
        requests.spawn(async move {
            outcomes.push(send(&api, &traffic, kind, since).await);
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
    while requests.join_next().await.is_some() {}
    Ok(())
}

/// Clients that send one request after the other, until `until`.
pub(crate) async fn closed_loop(
    api: &Arc<Api>,
    traffic: &Arc<Traffic>,
    kind: Kind,
    clients: u16,
    until: impl Fn() -> bool + Clone + Send + Sync + 'static,
) -> Vec<Outcome> {
    let outcomes = Arc::new(Outcomes::default());
    let mut running = JoinSet::new();
    for _ in 0..clients {
        let (api, traffic, outcomes, until) = (Arc::clone(api), Arc::clone(traffic), Arc::clone(&outcomes), until.clone());
        running.spawn(async move {
            while !until() {
                outcomes.push(send(&api, &traffic, kind, Instant::now()).await);
            }
        });
    }
    while running.join_next().await.is_some() {}
    outcomes.take()
}

async fn send(api: &Api, traffic: &Traffic, kind: Kind, since: Instant) -> Outcome {
    let planned = traffic.plan(kind);
    let response = api.once(&planned.call).await;
    let took = since.elapsed();
    if let Ok(response) = &response {
        traffic.ended(kind, &planned, response);
    }
    Outcome { kind, took, status: response.ok().map(|response| response.status) }
}

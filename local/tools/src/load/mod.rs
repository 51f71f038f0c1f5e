//! Loads a follow graph through the public API.

pub mod report;
pub mod window;

use std::{path::PathBuf, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use serde_json::json;

use self::{
    report::{Outcome, Report, read_results},
    window::Window,
};
use super::{
    api::{Api, Call},
    edges::EdgeReader,
    progress::Progress,
};

/// The largest number of edges that wait for a free request.
const WINDOW_EDGES: usize = 8_192;
/// The number of times that authors of a batch with the result 429 or 503 are sent again.
const ITEM_ATTEMPTS: u32 = 6;
const ITEM_PAUSE: Duration = Duration::from_millis(250);
/// After this number of consecutive requests without a response, each with its retries, the stack counts as
/// unavailable.
const GONE_AFTER: u32 = 8;

#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The edge file, plain or gzip.
    pub edges: PathBuf,
    /// The number of lines to read.
    #[arg(long, value_name = "LINES")]
    pub limit: Option<u64>,
    /// The number of concurrent requests.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,
}

/// Follows every edge of the file. One follower's requests are sent one after another in the file's order, so that an
/// account with more authors than the limit keeps the first ones. Different followers' requests are concurrent. A
/// repeated load changes nothing. Fails if the file cannot be read; all other failures are in the report.
pub async fn run(api: &Api, options: &Options) -> anyhow::Result<Report> {
    let mut edges = EdgeReader::open(&options.edges, options.limit)?;
    let mut progress = Progress::start("load", "lines");
    let mut window = Window::new(WINDOW_EDGES);
    let mut report = Report::default();
    let mut in_flight = FuturesUnordered::new();
    let mut unanswered = 0;
    let mut file_ended = false;
    loop {
        while !file_ended && !window.is_full() {
            match edges.next_edge()? {
                Some(edge) => report.repeated += u64::from(!window.push(edge)),
                None => file_ended = true,
            }
        }
        while unanswered < GONE_AFTER && in_flight.len() < options.concurrency.into() {
            let Some((follower, authors)) = window.take() else { break };
            in_flight.push(follow(api, follower, authors));
        }
        let Some(done) = in_flight.next().await else {
            break;
        };
        window.release(done.follower);
        unanswered = if done.answered { 0 } else { unanswered + 1 };
        report.add(done.follower, done.outcomes);
        let counts = &edges.counts;
        let finished = report.asked + report.repeated + counts.skipped + counts.malformed;
        let remark = format!("({} refused, {} failed)", report.refused_total(), report.failed_total());
        progress.set(finished, edges.expected_lines(), &remark);
    }
    report.not_asked = window.len() as u64;
    report.gave_up = unanswered >= GONE_AFTER;
    report.lines = edges.counts;
    report.retried = api.retried();
    report.took = progress.finish();
    Ok(report)
}

struct Done {
    follower: u64,
    outcomes: Vec<Outcome>,
    answered: bool,
}

async fn follow(api: &Api, follower: u64, mut pending: Vec<u64>) -> Done {
    let mut outcomes = Vec::with_capacity(pending.len());
    let mut answered = true;
    for attempt in 1..=ITEM_ATTEMPTS {
        let authors: Vec<String> = pending.iter().map(u64::to_string).collect();
        let call = Call::post("/v1/following").caller(follower).json(json!({ "authors": authors }));
        let failed = |reason: &str| vec![Outcome::Failed(reason.to_owned()); pending.len()];
        let results = match api.send(call).await {
            Ok(response) if response.status == 200 => read_results(&pending, &response.body),
            Ok(response) => failed(format!("{} {}", response.status, response.slug()).trim_end()),
            Err(unanswered) => {
                answered = false;
                failed(&unanswered.to_string())
            }
        };
        let last = attempt == ITEM_ATTEMPTS;
        let mut again = Vec::new();
        for (author, outcome) in pending.into_iter().zip(results) {
            match outcome {
                Outcome::Busy(_) if !last => again.push(author),
                Outcome::Busy(reason) => outcomes.push(Outcome::Failed(reason)),
                settled => outcomes.push(settled),
            }
        }
        pending = again;
        if pending.is_empty() {
            break;
        }
        tokio::time::sleep(ITEM_PAUSE * attempt).await;
    }
    Done { follower, outcomes, answered }
}

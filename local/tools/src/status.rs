//! The `/_local` routes of the local stack.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use serde::Deserialize;

use super::{
    api::{Api, Call},
    progress::Progress,
};

/// The queue that the fan-out function consumes, named as in the template.
pub(crate) const FAN_OUT_QUEUE: &str = "FanOutQueue";
const POLL: Duration = Duration::from_millis(100);

/// The parts of the response of `GET /_local/status` that the tools use.
#[derive(Debug, Clone, Deserialize)]
pub struct Status {
    /// True if nothing is queued, in flight or unread.
    pub idle: bool,
    #[serde(default)]
    pub queues: BTreeMap<String, QueueDepth>,
    pub redis_url: String,
    pub sqs_endpoint: String,
    #[serde(default)]
    pub streams: BTreeMap<String, StreamLag>,
    #[serde(default)]
    pub processes: BTreeMap<String, Vec<u32>>,
}

/// The backlog of the slowest reader of a stream.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub struct StreamLag {
    /// Records that the reader has not handled.
    pub behind: u64,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub struct QueueDepth {
    pub visible: u64,
    /// Messages received and neither deleted nor visible again.
    pub in_flight: u64,
    /// Messages sent with a delay that has not passed.
    #[serde(default)]
    pub delayed: u64,
}

impl QueueDepth {
    /// All messages that are not done.
    pub fn total(&self) -> u64 {
        self.visible + self.in_flight + self.delayed
    }
}

impl Status {
    /// Fetches the status of the stack.
    pub async fn of(api: &Api) -> anyhow::Result<Self> {
        let body = api.fetch(Call::get("/_local/status"), 200).await?;
        serde_json::from_value(body).context("GET /_local/status has an unexpected form")
    }

    fn left_total(&self) -> u64 {
        let queued: u64 = self.queues.values().map(QueueDepth::total).sum();
        queued + self.streams.values().map(|stream| stream.behind).sum::<u64>()
    }

    fn left(&self) -> Vec<String> {
        let queues = self.queues.iter().filter(|(_, depth)| depth.total() > 0);
        let streams = self.streams.iter().filter(|(_, stream)| stream.behind > 0);
        let queues = queues.map(|(name, depth)| format!("{name}: {} visible, {} in flight", depth.visible, depth.in_flight));
        queues.chain(streams.map(|(name, stream)| format!("{name}: {} unread", stream.behind))).collect()
    }

    /// The depth of the queue that the fan-out function consumes.
    pub(crate) fn fan_out_queue(&self) -> anyhow::Result<QueueDepth> {
        self.queues.get(FAN_OUT_QUEUE).copied().context("GET /_local/status lists no fan-out queue")
    }
}

/// Waits until the stack is idle in two consecutive looks. Returns the elapsed time. Fails after `limit`.
pub async fn wait_idle(api: &Api, limit: Duration) -> anyhow::Result<Duration> {
    let mut progress = Progress::start("wait until idle", "messages and records");
    let started = Instant::now();
    let (mut seen, mut most) = (0, 0);
    loop {
        let status = Status::of(api).await?;
        seen = if status.idle { seen + 1 } else { 0 };
        if seen == 2 {
            return Ok(progress.finish());
        }
        if started.elapsed() >= limit {
            bail!("the stack is not idle after {} s ({})", limit.as_secs(), status.left().join("; "));
        }
        let left = status.left_total();
        most = most.max(left);
        progress.set(most - left, most, "");
        tokio::time::sleep(POLL).await;
    }
}

/// Calls a `/_local` route that pauses or resumes a function's sources, or fires its schedule.
pub async fn post(api: &Api, path: &str) -> anyhow::Result<()> {
    let response = api.send(Call::post(path)).await.with_context(|| format!("POST {path}"))?;
    if !(200..300).contains(&response.status) {
        bail!("POST {path} returned {} {}", response.status, response.body["detail"].as_str().unwrap_or_default());
    }
    Ok(())
}

/// The units that DynamoDB has consumed since the weather changed last.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Consumed {
    /// Read units.
    pub read: f64,
    /// Write units.
    pub written: f64,
}

/// Fetches what DynamoDB has consumed. In calm weather that is nothing.
pub async fn consumed(api: &Api) -> anyhow::Result<Consumed> {
    let mut body = api.fetch(Call::get("/_local/weather"), 200).await?;
    serde_json::from_value(body["consumed"].take()).context("GET /_local/weather has an unexpected form")
}

/// Changes the weather of the stores.
pub async fn set_weather(api: &Api, weather: &str) -> anyhow::Result<()> {
    let change = Call::put("/_local/weather").json(serde_json::json!({ "weather": weather }));
    api.fetch(change, 200).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fan_out_queue_is_not_confused_with_its_dead_letter_queue() {
        let body = serde_json::json!({
            "idle": false, "redis_url": "redis://127.0.0.1:1", "dynamodb_endpoint": "x", "sqs_endpoint": "y",
            "queues": {
                "FanOutDeadLetters": {"visible": 9, "in_flight": 0, "delayed": 0},
                "FanOutQueue": {"visible": 2, "in_flight": 1, "delayed": 4},
            },
            "streams": {"FollowingTable": {"behind": 0}},
            "processes": {"fan-out": [71, 72]},
        });
        let status: Status = serde_json::from_value(body).unwrap();
        assert_eq!(status.fan_out_queue().unwrap().total(), 7);
        assert_eq!(status.processes["fan-out"], [71, 72]);
    }
}

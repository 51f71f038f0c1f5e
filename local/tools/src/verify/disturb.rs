//! Planned disturbances: messages delivered twice, workers killed, Redis emptied. They affect only what the stack's
//! own status names, and only on this machine.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use aws_sdk_sqs::{
    config::{BehaviorVersion, Credentials, Region},
    types::{Message, MessageSystemAttributeName},
};
use rand::{
    rngs::StdRng,
    seq::{IndexedRandom, SliceRandom},
};

use crate::{
    address::require_loopback,
    api::Api,
    signal,
    status::{FAN_OUT_QUEUE, Status, post},
};

const FAN_OUT: &str = "fan-out";
const MOST_MESSAGES: usize = 100_000;
/// Long enough to copy every message before the first one becomes visible again.
const HIDE_SECONDS: i32 = 900;
const KILL_PAUSE: Duration = Duration::from_millis(20);
const MIDDLE_POLL: Duration = Duration::from_millis(5);

/// Pauses the sources of fan-out while `work` runs. Resumes them afterwards, also after an error.
pub async fn held<T>(api: &Api, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    post(api, "/_local/sources/fan-out/pause").await?;
    let outcome = work.await;
    release(api).await?;
    outcome
}

/// Resumes the sources of fan-out. Does nothing if they are not paused.
pub async fn release(api: &Api) -> anyhow::Result<()> {
    post(api, "/_local/sources/fan-out/resume").await
}

/// Replaces every message of the paused fan-out's queue by two copies, shuffled. Returns the number of messages.
pub async fn double(api: &Api, random: &mut StdRng) -> anyhow::Result<usize> {
    let status = Status::of(api).await?;
    let depth = status.fan_out_queue()?;
    require_loopback(&status.sqs_endpoint, "http")?;
    let sqs = client(&status.sqs_endpoint);
    let url = sqs
        .get_queue_url()
        .queue_name(FAN_OUT_QUEUE)
        .send()
        .await
        .with_context(|| format!("SQS has no queue {FAN_OUT_QUEUE}"))?;
    let url = url.queue_url().context("SQS gives no queue URL")?;

    let mut originals = Vec::new();
    loop {
        let request = sqs.receive_message().queue_url(url).max_number_of_messages(10).visibility_timeout(HIDE_SECONDS);
        let request = request.message_attribute_names("All").message_system_attribute_names(MessageSystemAttributeName::All);
        let received = request.wait_time_seconds(0).send().await.context("cannot receive from the fan-out queue")?;
        let messages = received.messages.unwrap_or_default();
        if messages.is_empty() || originals.len() > MOST_MESSAGES {
            break;
        }
        originals.extend(messages);
    }
    if (originals.len() as u64) < depth.total() {
        bail!("received {} of {} messages from the fan-out queue", originals.len(), depth.total());
    }

    let mut copies: Vec<&Message> = originals.iter().chain(&originals).collect();
    copies.shuffle(random);
    for message in copies {
        let group = message.attributes().and_then(|all| all.get(&MessageSystemAttributeName::MessageGroupId));
        let request = sqs.send_message().queue_url(url).message_body(message.body().unwrap_or_default());
        let request = request.set_message_attributes(message.message_attributes.clone()).set_message_group_id(group.cloned());
        request.send().await.context("cannot send to the fan-out queue")?;
    }
    for message in &originals {
        let handle = message.receipt_handle().context("a message without a receipt handle")?;
        let request = sqs.delete_message().queue_url(url).receipt_handle(handle);
        request.send().await.context("cannot delete from the fan-out queue")?;
    }
    Ok(originals.len())
}

fn client(endpoint: &str) -> aws_sdk_sqs::Client {
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "local"))
        .build();
    aws_sdk_sqs::Client::from_conf(config)
}

/// Fails unless fan-out runs as processes, which can be killed.
pub(crate) async fn require_processes(api: &Api) -> anyhow::Result<()> {
    if workers(&Status::of(api).await?).is_empty() {
        bail!("this stack has no fan-out process to kill; start it with `make run TIDEMARK_PROCESS_FUNCTIONS=fan-out`");
    }
    Ok(())
}

fn workers(status: &Status) -> &[u32] {
    status.processes.get(FAN_OUT).map_or(&[], Vec::as_slice)
}

/// Kills at most `most` fan-out processes, one by one, while the fan-out runs. Returns their number.
pub(crate) async fn kill_workers(api: &Api, most: u32, limit: Duration, random: &mut StdRng) -> anyhow::Result<u32> {
    let started = Instant::now();
    let mut killed = 0;
    while killed < most && started.elapsed() < limit {
        let status = Status::of(api).await?;
        if status.fan_out_queue()?.total() == 0 {
            break;
        }
        if let Some(pid) = workers(&status).choose(random)
            && kill(*pid).await?
        {
            killed += 1;
        }
        tokio::time::sleep(KILL_PAUSE).await;
    }
    Ok(killed)
}

/// Kills one process with SIGKILL if it is a fan-out worker. Returns false if it had ended already.
async fn kill(pid: u32) -> anyhow::Result<bool> {
    if pid <= 1 || pid == std::process::id() {
        bail!("the stack names process {pid} as a fan-out worker");
    }
    if std::path::Path::new("/proc/self/cmdline").exists() {
        match std::fs::read(format!("/proc/{pid}/cmdline")) {
            Ok(line) if String::from_utf8_lossy(&line).contains(FAN_OUT) => {}
            Ok(line) if !line.is_empty() => bail!("process {pid} is not a fan-out worker: {}", String::from_utf8_lossy(&line)),
            _ => return Ok(false),
        }
    }
    signal(pid, "KILL").await
}

/// Waits until at least half of the fan-out queue is done. Returns the remaining and the total number of messages.
pub(crate) async fn middle_of_fan_out(api: &Api, limit: Duration) -> anyhow::Result<(u64, u64)> {
    let started = Instant::now();
    let mut most = 0;
    loop {
        let left = Status::of(api).await?.fan_out_queue()?.total();
        most = most.max(left);
        if left * 2 <= most || started.elapsed() >= limit {
            return Ok((left, most));
        }
        tokio::time::sleep(MIDDLE_POLL).await;
    }
}

pub async fn flush(redis_url: &str) -> anyhow::Result<()> {
    require_loopback(redis_url, "redis")?;
    let client = redis::Client::open(redis_url).context("the stack's redis_url")?;
    let mut connection = client.get_multiplexed_async_connection().await.context("cannot reach the stack's Redis")?;
    let info: String = redis::cmd("INFO").arg("cluster").query_async(&mut connection).await.context("INFO")?;
    if info.contains("cluster_enabled:1") {
        bail!("this flushes one node, and the stack's Redis is a cluster");
    }
    redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.context("FLUSHALL")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_fan_out_workers_are_killed() {
        for pid in [0, 1, std::process::id()] {
            assert!(kill(pid).await.is_err());
        }
        let mut child = tokio::process::Command::new("sleep").arg("30").kill_on_drop(true).spawn().unwrap();
        assert!(!matches!(kill(child.id().unwrap()).await, Ok(true)));
        assert!(child.try_wait().unwrap().is_none());
        child.kill().await.unwrap();
    }

    #[tokio::test]
    async fn redis_on_another_machine_is_never_flushed() {
        assert!(flush("redis://cache.example.com:6379").await.is_err());
    }
}

//! The whole stack: starts its parts in order, and stops them in the opposite order.

mod start;

use std::{fmt, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;
use tidemark::{App, views::RedisOptions};
use tokio::{
    sync::Mutex,
    task::{JoinHandle, JoinSet},
    time::Instant,
};
use tokio_util::sync::DropGuard;

use crate::{
    core::{Core, Unit, error_payload},
    data_dir::DataDir,
    dynamodb::DynamoDb,
    pollers::{advance, position_key},
    redis::{Redis, RedisData},
    runner::RuntimeApi,
    status::Status,
    template::{Queue, Template},
    weather::{Consumption, Faults, OpenRequests, Weather},
};

/// The time that a server has to finish open requests when the stack stops.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

/// A running local stack.
///
/// Several stacks can run in one process, each on its own data directory. [`Stack::stop`] ends a stack cleanly. A
/// drop ends its children and threads at once.
pub struct Stack {
    core: Arc<Core>,
    redis: Arc<Mutex<Redis>>,
    redis_nodes: Vec<RedisOptions>,
    dynamodb: DynamoDb,
    runtime_api: Option<RuntimeApi>,
    pollers: JoinSet<()>,
    gateway: JoinHandle<()>,
    queue_server: JoinHandle<()>,
    bus_server: JoinHandle<()>,
    closing: DropGuard,
    stopping: DropGuard,
    ending: DropGuard,
    data: DataDir,
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack").field("data", &self.data_dir()).finish_non_exhaustive()
    }
}

impl Stack {
    /// The API's address, without a trailing slash.
    pub fn base_url(&self) -> String {
        self.core.endpoints.gateway.clone()
    }

    pub fn redis_url(&self) -> &str {
        &self.core.endpoints.redis.url
    }

    /// The options with which the functions connect to Redis.
    pub fn redis_options(&self) -> &RedisOptions {
        &self.core.endpoints.redis
    }

    /// Connection options for each Redis node: in an own cluster the masters, then one replica of each, and so on.
    pub fn redis_nodes(&self) -> &[RedisOptions] {
        &self.redis_nodes
    }

    pub fn dynamodb_endpoint(&self) -> &str {
        &self.core.endpoints.dynamodb
    }

    pub fn sqs_endpoint(&self) -> &str {
        &self.core.endpoints.sqs
    }

    /// The endpoint of the event bus.
    pub fn events_endpoint(&self) -> &str {
        &self.core.endpoints.events
    }

    pub fn data_dir(&self) -> &Path {
        &self.data.path
    }

    pub fn template(&self) -> &Template {
        &self.core.template
    }

    pub fn queue(&self, logical_id: &str) -> Option<&Queue> {
        self.core.template.queues.get(logical_id)
    }

    /// The state of a function, by binary name or logical id. `None` if it has none.
    ///
    /// # Panics
    /// Panics if the function runs as processes.
    pub fn app(&self, function: &str) -> Option<&App> {
        let runner = &self.core.unit(function)?.runner;
        assert!(runner.pids().is_empty(), "`{function}` does not run in this process");
        runner.app()
    }

    /// The processes of a function. If one is killed, its invocation fails and another process replaces it.
    pub fn process_ids(&self, function: &str) -> Vec<u32> {
        self.core.unit(function).map(|unit| unit.runner.pids()).unwrap_or_default()
    }

    /// Replaces a process by one of what the binary is now, unless it handles an invocation. Returns whether it did.
    #[must_use]
    pub fn replace_process(&self, function: &str, pid: u32) -> bool {
        self.core.unit(function).is_some_and(|unit| unit.runner.retire(pid))
    }

    /// The requests to DynamoDB and SQS that are delayed or otherwise disturbed.
    pub fn open_requests(&self) -> OpenRequests {
        self.must_own_stores();
        self.core.surroundings.open.clone()
    }

    /// Kills all invocations in flight of a function, as if their processes were killed. Returns their number.
    pub fn kill_invocations(&self, function: &str) -> usize {
        self.core.surroundings.faults.kill(function)
    }

    /// Drops all live connections without telling the functions, as a network that fails does. Returns their number.
    pub fn drop_live_connections(&self) -> usize {
        self.core.connections.drop_all()
    }

    /// The weather and the seed of its randomness.
    pub fn weather(&self) -> (Weather, u64) {
        self.core.weather()
    }

    /// The number of faults that storms have caused since the start of the stack. It counts requests that failed,
    /// lost their response or were left unprocessed, messages that were repeated, delayed or reordered, and
    /// disturbances of Redis.
    pub fn storm_faults(&self) -> u64 {
        self.core.surroundings.conditions.faults()
    }

    /// The requests that DynamoDB has served and refused since the weather changed last.
    pub fn consumption(&self) -> Consumption {
        self.core.surroundings.conditions.consumption().clone()
    }

    /// Changes the weather and starts its randomness from `seed`. In calm weather, messages that failed in other
    /// weather return after the stack's retry delay.
    pub fn set_weather(&self, weather: Weather, seed: u64) {
        self.must_own_stores();
        self.core.set_weather(weather, seed);
    }

    /// Lets DynamoDB run in slow motion: in other weather than calm, each latency is `slowdown` times as long, and each
    /// limit of a partition that many times as low. Requests at a rate that is as much lower meet each other as often.
    pub fn slow_down(&self, slowdown: u32) {
        self.must_own_stores();
        self.core.surroundings.conditions.slow_down(slowdown);
    }

    /// The planted faults of requests to DynamoDB and SQS.
    pub fn faults(&self) -> &Faults {
        self.must_own_stores();
        &self.core.surroundings.faults
    }

    /// Returns what the stack is doing. Fails if the stream records or the queues cannot be read.
    pub async fn status(&self) -> Result<Status> {
        self.core.status().await.context("cannot read streams or queues")
    }

    /// Waits until nothing is queued, in flight or unread. The error of a longer wait than the limit has the status.
    pub async fn idle_within(&self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            let status = self.status().await?;
            if status.idle {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("not idle after {limit:?}: {}", serde_json::to_string(&status)?);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Stops the stack: accepts no new requests, lets invocations in flight finish, writes and closes everything. All
    /// other parts are stopped too if Redis cannot be stopped.
    pub async fn stop(mut self) -> Result<()> {
        self.core.connections.drop_all();
        self.closing.token().cancel();
        drain(&mut self.gateway, "the gateway").await;
        self.stopping.token().cancel();
        while let Some(ended) = self.pollers.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a poller failed");
            }
        }
        for unit in self.core.units.values() {
            unit.runner.stop().await;
        }
        if let Some(runtime_api) = self.runtime_api.take() {
            runtime_api.stop().await;
        }
        self.ending.token().cancel();
        drain(&mut self.queue_server, "the queue endpoint").await;
        drain(&mut self.bus_server, "the event bus").await;
        let redis = self.redis.lock().await.stop(RedisData::Keep).await;
        let (mut dynamodb, store) = (self.dynamodb, Arc::clone(&self.core.store));
        tokio::task::spawn_blocking(move || {
            store.close();
            dynamodb.stop();
        })
        .await?;
        redis
    }

    /// Panics if the stores are elsewhere: a test that plants faults there would pass without them.
    fn must_own_stores(&self) {
        assert!(self.core.queues.elsewhere.is_none(), "stores elsewhere have neither weather nor planted faults");
    }
}

/// Control of single functions, by binary name or logical id. A call fails if the template has no such function.
impl Stack {
    /// Holds back a function's queues, streams and schedules. Returns when none of their invocations is in flight.
    pub async fn pause(&self, function: &str) -> Result<()> {
        self.unit(function)?.gate.pause().await;
        Ok(())
    }

    /// Lets a function's sources continue.
    pub fn resume(&self, function: &str) -> Result<()> {
        self.unit(function)?.gate.resume();
        Ok(())
    }

    /// Drops the stream records that a paused function has not read, as if they had been lost, also for a stack that
    /// starts on this data.
    pub fn lose_records(&self, function: &str) -> Result<()> {
        let of_function = position_key(&self.unit(function)?.function.logical_id, "");
        for (key, position) in self.core.positions.iter().filter(|(key, _)| key.starts_with(&of_function)) {
            advance(&self.core, key, position, self.core.log.newest(&position.table_name)?);
        }
        Ok(())
    }

    /// Fires a function's schedule now and returns the function's result. `input` replaces the schedule's input. Fails
    /// if the function has no schedule, or fails.
    pub async fn fire(&self, function: &str, input: Option<Value>) -> Result<Value> {
        let fired = self.core.fire(self.unit(function)?, input).await;
        let response = fired.ok_or_else(|| anyhow!("`{function}` has no schedule"))?;
        response.map_err(|error| anyhow!("{}", error_payload(&error)))
    }

    /// Invokes a function with any event and returns its result. Fails if the function fails.
    pub async fn invoke(&self, function: &str, event: Value) -> Result<Value> {
        let response = self.core.invoke(self.unit(function)?, event).await;
        response.map_err(|error| anyhow!("{}", error_payload(&error)))
    }

    fn unit(&self, function: &str) -> Result<&Unit> {
        self.core.unit(function).ok_or_else(|| anyhow!("the template has no function `{function}`"))
    }
}

/// Control of the stack's own Redis. A call fails if the stack does not own Redis, or if a server does not respond or
/// start. A `node` is an index in [`Stack::redis_nodes`]. A start is at the same address as before.
impl Stack {
    pub async fn stop_redis(&self, data: RedisData) -> Result<()> {
        self.redis.lock().await.stop(data).await
    }

    pub async fn start_redis(&self) -> Result<()> {
        self.redis.lock().await.restart().await
    }

    /// Makes Redis hang for `time` and returns when the hang has begun. The server accepts connections and does not
    /// respond. It runs commands that it receives meanwhile at the end of the hang.
    pub async fn hang_redis(&self, time: Duration) -> Result<()> {
        self.redis.lock().await.hang(time).await
    }

    /// Saves a snapshot on every node, for [`Stack::restart_redis_from_dump`].
    pub async fn dump_redis(&self) -> Result<()> {
        self.redis.lock().await.dump().await
    }

    /// Kills Redis and starts it with the data of [`Stack::dump_redis`]. The snapshot stays. Fails if there is none.
    pub async fn restart_redis_from_dump(&self) -> Result<()> {
        self.redis.lock().await.restart_from_dump(None).await
    }

    /// Does the same as [`Stack::restart_redis_from_dump`] for one node.
    pub async fn restart_redis_node_from_dump(&self, node: usize) -> Result<()> {
        self.redis.lock().await.restart_from_dump(Some(node)).await
    }

    /// Starts a replica of the only node, waits until it has all data, and cuts it off. Later writes do not reach it.
    /// Fails if Redis is a cluster, or if a replica exists already.
    pub async fn start_redis_replica(&self) -> Result<()> {
        self.redis.lock().await.start_replica().await
    }

    /// Kills the node and starts the replica of [`Stack::start_redis_replica`] in its place. The result is a Redis
    /// without the last writes. Fails if no replica exists.
    pub async fn promote_redis_replica(&self) -> Result<()> {
        self.redis.lock().await.promote_replica().await
    }

    pub async fn kill_redis_node(&self, node: usize) -> Result<()> {
        self.redis.lock().await.node(node)?.stop(RedisData::Lose).await
    }

    pub async fn start_redis_node(&self, node: usize) -> Result<()> {
        self.redis.lock().await.node(node)?.start().await
    }
}

async fn drain(server: &mut JoinHandle<()>, name: &str) {
    if tokio::time::timeout(DRAIN_WITHIN, &mut *server).await.is_err() {
        tracing::warn!("{name} still has open requests; the stack ends without them");
        server.abort();
    }
}

#[cfg(test)]
mod tests;

//! The measured server: its connections, its memory usage and its INFO.

use std::{path::Path, time::Duration};

use anyhow::{Context, bail};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue};
use tempfile::TempDir;
use tidemark::views::{RedisOptions, Views};

use tidemark_local::{Redis, RedisData, RedisSetup};

pub(super) use crate::info::Info;

/// A longer timeout than a reader's, because a load may keep the server busy.
const PATIENCE: Duration = Duration::from_secs(30);
/// Commands that are sent before the first response is awaited.
const PIPELINE: usize = 2_000;
/// Memory is stable when this number of consecutive readings are equal.
const SAME_READINGS: usize = 3;
const BETWEEN_READINGS: Duration = Duration::from_millis(20);
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// A server with the default configuration and without persistence. Its files are in a temporary folder.
#[derive(Debug)]
pub(super) struct Server {
    redis: Redis,
    folder: TempDir,
}

impl Server {
    pub(super) async fn start(binary: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("tidemark-bench-").tempdir().context("no temporary folder")?;
        let redis = Redis::start(None, RedisSetup::default(), false, binary, folder.path()).await?;
        Ok(Self { redis, folder })
    }

    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        self.redis.stop(RedisData::Lose).await?;
        self.folder.close().context("cannot remove the server's folder")
    }

    pub(super) fn url(&self) -> String {
        self.redis.options().url
    }

    /// Tidemark's own views on this server.
    pub(super) fn views(&self) -> anyhow::Result<Views> {
        let options = RedisOptions { connect_timeout: PATIENCE, response_timeout: PATIENCE, ..self.redis.options() };
        Views::new(&options).context("cannot use the server's URL")
    }

    pub(super) async fn connect(&self) -> anyhow::Result<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
        let client = Client::open(self.url())?;
        client.get_multiplexed_async_connection_with_config(&config).await.context("cannot connect to the server")
    }

    pub(super) async fn info(&self, sections: &[&str]) -> anyhow::Result<Info> {
        info(&mut self.connect().await?, sections).await
    }

    /// Deletes all data. Functions stay loaded.
    pub(super) async fn flush(&self) -> anyhow::Result<()> {
        Ok(redis::cmd("FLUSHALL").arg("SYNC").query_async(&mut self.connect().await?).await?)
    }

    /// `used_memory` when no other client is connected and the value is stable. First drops what the server keeps of
    /// commands (latency histograms, the slow log), because that grows with calls and not with data.
    pub(super) async fn settled_memory(&self) -> anyhow::Result<u64> {
        let mut connection = self.connect().await?;
        let settled = async {
            let mut readings = Vec::new();
            loop {
                reset(&mut connection).await?;
                let info = info(&mut connection, &["clients", "memory"]).await?;
                if info.number::<u64>("connected_clients")? > 1 {
                    readings.clear();
                } else {
                    readings.push(info.number::<u64>("used_memory")?);
                }
                if let Some(last) = readings.len().checked_sub(SAME_READINGS)
                    && readings[last..].iter().all(|reading| *reading == readings[last])
                {
                    return Ok(readings[last]);
                }
                tokio::time::sleep(BETWEEN_READINGS).await;
            }
        };
        match tokio::time::timeout(SETTLED_WITHIN, settled).await {
            Ok(memory) => memory,
            Err(_) => bail!("the server's memory does not become stable"),
        }
    }
}

/// Reads these sections of INFO.
pub(super) async fn info(connection: &mut MultiplexedConnection, sections: &[&str]) -> anyhow::Result<Info> {
    let text: String = redis::cmd("INFO").arg(sections).query_async(connection).await?;
    Ok(Info::parse(&text))
}

/// Resets what `INFO` and `SLOWLOG` have counted.
pub(super) async fn reset(connection: &mut MultiplexedConnection) -> anyhow::Result<()> {
    redis::pipe().cmd("CONFIG").arg("RESETSTAT").cmd("SLOWLOG").arg("RESET").exec_async(connection).await?;
    Ok(())
}

/// Runs all commands in pipelines. Returns their responses in order.
pub(super) async fn run_all<T: FromRedisValue>(
    connection: &mut MultiplexedConnection,
    commands: &[Cmd],
) -> anyhow::Result<Vec<T>> {
    let mut responses = Vec::with_capacity(commands.len());
    for commands in commands.chunks(PIPELINE) {
        let mut pipeline = redis::pipe();
        for command in commands {
            pipeline.add_command(command.clone());
        }
        responses.extend(pipeline.query_async::<Vec<T>>(connection).await?);
    }
    Ok(responses)
}

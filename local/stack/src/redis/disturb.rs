//! Disturbances of a Redis: it hangs, it drops connections, it restarts with older data.
//!
//! All disturbances use the real server's own commands, without a proxy. A calm stack therefore pays nothing, and TLS
//! and clusters can be disturbed too. A hang is `DEBUG SLEEP`: the server accepts connections and reads no commands.
//! It runs the commands that it received when the hang ends, although their callers have given up. A dropped
//! connection is `CLIENT KILL`.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::{join_all, try_join_all};
use redis::aio::MultiplexedConnection;
use tidemark::views::RedisOptions;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Redis, RedisData, command, free_ports,
    server::{DUMP, Server},
};
use crate::weather::Conditions;

/// The snapshot that [`Redis::restart_from_dump`] starts from.
const EARLIER: &str = "earlier.rdb";
/// The time to wait until a server hangs, or until a replica has all data.
const PATIENCE: Duration = Duration::from_secs(10);

/// In a storm, the pause between two disturbances of one server.
const STORM_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(400));
/// Of 100 disturbances in a storm, the number that drop one connection, that drop all, and that delay. The rest hang.
/// Hangs are rare because a function does not call a hanging Redis for some time: with frequent hangs it would rarely
/// use a view.
const STORM_DROPS_ONE: usize = 45;
const STORM_DROPS_ALL: usize = 5;
const STORM_DELAYS: usize = 47;
/// The duration of delays and hangs. A function waits 0.5 s for Redis.
const STORM_DELAY: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(30));
const STORM_HANG: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(900));
/// The longest time of a disturbance.
const STORM_PATIENCE: Duration = Duration::from_secs(2);

pub(crate) async fn storms(node: RedisOptions, conditions: Arc<Conditions>, stop: CancellationToken) {
    let mut changes = conditions.changes();
    loop {
        let storm = async {
            // An error would mean that there is no sender, and `conditions` holds one.
            let _ = changes.wait_for(|weather| *weather == crate::Weather::Storm).await;
            tokio::time::sleep(conditions.between(STORM_PAUSE.0, STORM_PAUSE.1)).await;
        };
        let Some(()) = stop.run_until_cancelled(storm).await else { return };
        if !conditions.is_storm() {
            continue;
        }
        // A server that is down or hangs already is not disturbed.
        let disturbed = tokio::time::timeout(STORM_PATIENCE, disturb(&node, &conditions));
        match stop.run_until_cancelled(disturbed).await {
            None => return,
            Some(Ok(Ok(()))) => conditions.count_fault(),
            Some(_) => {}
        }
    }
}

async fn disturb(node: &RedisOptions, conditions: &Conditions) -> Result<()> {
    match conditions.below(100) {
        dice if dice < STORM_DROPS_ONE => {
            let clients: String = command(node, redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("NORMAL")).await?;
            let ids: Vec<&str> = clients.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next()).collect();
            if let Some(id) = ids.get(conditions.below(ids.len())) {
                command::<()>(node, redis::cmd("CLIENT").arg("KILL").arg("ID").arg(id)).await?;
            }
        }
        dice if dice < STORM_DROPS_ONE + STORM_DROPS_ALL => {
            command::<u64>(node, redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("NORMAL").arg("SKIPME").arg("YES")).await?;
        }
        dice if dice < STORM_DROPS_ONE + STORM_DROPS_ALL + STORM_DELAYS => {
            sleep(node, conditions.between(STORM_DELAY.0, STORM_DELAY.1)).await?;
        }
        _ => sleep(node, conditions.between(STORM_HANG.0, STORM_HANG.1)).await?,
    }
    Ok(())
}

async fn sleep(node: &RedisOptions, time: Duration) -> Result<()> {
    command(node, redis::cmd("DEBUG").arg("SLEEP").arg(time.as_secs_f64())).await
}

/// Empties every master among the nodes. A replica refuses, and follows its master.
pub(crate) async fn flush(nodes: &[RedisOptions]) -> Result<()> {
    for node in nodes {
        let flushed = command::<()>(node, &redis::cmd("FLUSHALL")).await;
        let is_replica =
            |error: &anyhow::Error| error.downcast_ref().is_some_and(|e: &redis::RedisError| e.code() == Some("READONLY"));
        if let Err(error) = flushed
            && !is_replica(&error)
        {
            return Err(error);
        }
    }
    Ok(())
}

async fn connect(node: &RedisOptions) -> Result<MultiplexedConnection> {
    let client = node.clients()?.into_iter().next().context("no address")?;
    let config = redis::AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(None);
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

/// Makes a server hang. Returns when the hang has begun.
async fn hang(node: &RedisOptions, time: Duration) -> Result<()> {
    let (mut sleeper, mut probe) = (connect(node).await?, connect(node).await?);
    tokio::spawn(async move {
        // The connection may be lost during the hang. The server continues to sleep.
        let _ = redis::cmd("DEBUG").arg("SLEEP").arg(time.as_secs_f64()).query_async::<()>(&mut sleeper).await;
    });
    let deadline = Instant::now() + PATIENCE.min(time);
    let responds = async |probe: &mut MultiplexedConnection| {
        let ping = redis::cmd("PING");
        tokio::time::timeout(Duration::from_millis(20), ping.query_async::<()>(probe)).await.is_ok()
    };
    while responds(&mut probe).await {
        ensure!(Instant::now() < deadline, "Redis still responds");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

impl Redis {
    pub(crate) async fn hang(&mut self, time: Duration) -> Result<()> {
        try_join_all(self.own()?.servers.iter().map(async |server| hang(&server.options(), time).await)).await?;
        Ok(())
    }

    pub(crate) async fn dump(&mut self) -> Result<()> {
        try_join_all(self.own()?.servers.iter().map(dump)).await?;
        Ok(())
    }

    /// Kills one server or all, and restarts them from their snapshots, at the same addresses.
    pub(crate) async fn restart_from_dump(&mut self, node: Option<usize>) -> Result<()> {
        let servers = match node {
            Some(node) => std::slice::from_mut(self.node(node)?),
            None => self.own()?.servers.as_mut_slice(),
        };
        let stopped = join_all(servers.iter_mut().map(|server| server.stop(RedisData::Lose))).await;
        stopped.into_iter().collect::<Result<()>>()?;
        for server in &*servers {
            let snapshot = server.folder.join(EARLIER);
            std::fs::copy(&snapshot, server.folder.join(DUMP)).context("no snapshot exists: take one first")?;
        }
        try_join_all(servers.iter_mut().map(Server::start)).await?;
        self.is_whole().await
    }

    /// Starts a replica, waits until it has all data, and cuts it off from the master. Later writes do not reach it.
    pub(crate) async fn start_replica(&mut self) -> Result<()> {
        let own = self.own()?;
        ensure!(!own.is_cluster(), "only a single node can have a replica that is cut off");
        ensure!(own.replica.is_none(), "a replica exists already");
        let master = own.servers.first().context("the stack has no Redis server")?;
        let folder = replica_folder(master)?;
        let [port] = free_ports()?;
        let mut replica =
            Server::new(&master.binary, &folder, port, master.certificates.clone(), None, Arc::clone(&master.guard));
        replica.start().await?;
        let replica_of = |host: &str, port: &str| redis::cmd("REPLICAOF").arg(host).arg(port).clone();
        command::<()>(&replica.options(), &replica_of("127.0.0.1", &master.port.to_string())).await?;
        let deadline = Instant::now() + PATIENCE;
        while !has_everything(master, &replica).await? {
            ensure!(Instant::now() < deadline, "the replica does not have all data");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        command::<()>(&replica.options(), &replica_of("NO", "ONE")).await?;
        own.replica = Some(replica);
        Ok(())
    }

    /// Kills the master and starts the replica in its place, at the same address.
    pub(crate) async fn promote_replica(&mut self) -> Result<()> {
        let own = self.own()?;
        let Some(mut replica) = own.replica.take() else { bail!("no replica exists: start one first") };
        let master = own.servers.first_mut().context("the stack has no Redis server")?;
        master.stop(RedisData::Lose).await?;
        replica.move_to(master.port, &master.folder).await?;
        *master = replica;
        Ok(())
    }
}

async fn dump(server: &Server) -> Result<()> {
    command::<()>(&server.options(), &redis::cmd("SAVE")).await?;
    // A later start without a snapshot is empty, as after a crash.
    std::fs::rename(server.folder.join(DUMP), server.folder.join(EARLIER)).context("cannot keep the snapshot")
}

fn replica_folder(master: &Server) -> Result<PathBuf> {
    let folder = (0..).map(|index| master.folder.join(format!("replica-{index}"))).find(|folder| !folder.exists());
    let folder = folder.context("the stack has no folder for the replica")?;
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Returns true if the replica has all data that the master had at the time of the call.
async fn has_everything(master: &Server, replica: &Server) -> Result<bool> {
    let field = async |server: &Server, name: &str| {
        let info: String = command(&server.options(), redis::cmd("INFO").arg("replication")).await?;
        anyhow::Ok(info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(|v| v.trim().to_owned())))
    };
    let offset = field(master, "master_repl_offset").await?;
    let up = field(replica, "master_link_status").await?.as_deref() == Some("up");
    let number = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok());
    Ok(up && number(field(replica, "slave_repl_offset").await?) >= number(offset))
}

//! What happens to a Redis: it hangs, it drops connections, it comes back with data older than it had.
//!
//! Everything is done to the real server and by its own commands, with no proxy in between: a calm stack pays nothing for it, and TLS
//! and clusters can be disturbed as well. A hang is `DEBUG SLEEP`: connections are accepted, commands are not read, and those that were
//! sent are run when it ends, though their caller has given up. A dropped connection is `CLIENT KILL`.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::{join_all, try_join_all};
use redis::aio::MultiplexedConnection;
use tidemark::views::RedisOptions;
use tokio::time::Instant;

use super::{
    Children, Redis, RedisData, command, free_ports,
    server::{DUMP, Server},
};
use crate::{stop::Stop, weather::Conditions};

/// The snapshot that [`Redis::restart_from_dump`] starts from.
const EARLIER: &str = "earlier.rdb";
/// How long a server may take to be seen hanging, or a replica to have all data.
const PATIENCE: Duration = Duration::from_secs(10);

/// In a storm, the pause between two disturbances of one server.
const STORM_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(400));
/// Of a hundred disturbances in a storm so many drop one connection, so many drop all, so many delay; the rest hang. Functions leave a
/// Redis that hangs alone for a while: were hangs frequent, hardly a view would be used at all.
const STORM_DROPS_ONE: usize = 45;
const STORM_DROPS_ALL: usize = 5;
const STORM_DELAYS: usize = 47;
/// How long delays and hangs take. Functions wait for half a second.
const STORM_DELAY: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(30));
const STORM_HANG: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(900));

/// Disturbs a server whenever there is a storm, until `stop`.
pub(crate) async fn storms(node: RedisOptions, conditions: Arc<Conditions>, stop: Stop) {
    let mut changes = conditions.changes();
    loop {
        let storm = async {
            // An error means that no sender is left, and `conditions` has it.
            let _ = changes.wait_for(|weather| *weather == crate::Weather::Storm).await;
            tokio::time::sleep(conditions.between(STORM_PAUSE.0, STORM_PAUSE.1)).await;
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = storm => {}
        }
        if !conditions.is_storm() {
            continue;
        }
        // A server that is down or hangs cannot be disturbed more.
        if disturb(&node, &conditions).await.is_ok() {
            conditions.count_fault();
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
        dice if dice < STORM_DROPS_ONE + STORM_DROPS_ALL => drop(drop_connections(node).await?),
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

async fn drop_connections(node: &RedisOptions) -> Result<u64> {
    command(node, redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("NORMAL").arg("SKIPME").arg("YES")).await
}

async fn connect(node: &RedisOptions) -> Result<MultiplexedConnection> {
    let client = node.clients()?.into_iter().next().context("no address")?;
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

/// Lets a server hang; returns when it does.
async fn hang(node: &RedisOptions, time: Duration) -> Result<()> {
    let (mut sleeper, mut probe) = (connect(node).await?, connect(node).await?);
    tokio::spawn(async move {
        // Its connection may be lost meanwhile; the server sleeps on.
        let _ = redis::cmd("DEBUG").arg("SLEEP").arg(time.as_secs_f64()).query_async::<()>(&mut sleeper).await;
    });
    let deadline = Instant::now() + PATIENCE.min(time);
    let answers = async |probe: &mut MultiplexedConnection| {
        let ping = redis::cmd("PING");
        tokio::time::timeout(Duration::from_millis(20), ping.query_async::<()>(probe)).await.is_ok()
    };
    while answers(&mut probe).await {
        ensure!(Instant::now() < deadline, "Redis does not hang");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

impl Redis {
    /// Lets every server hang for so long; returns when they do.
    pub(crate) async fn hang(&self, time: Duration) -> Result<()> {
        try_join_all(self.own()?.servers.iter().map(|server| async move { hang(&server.options(), time).await })).await?;
        Ok(())
    }

    /// Closes every client's connection; returns how many.
    pub(crate) async fn drop_connections(&self) -> Result<u64> {
        let servers = self.own()?.servers.iter().filter(|server| server.is_running());
        let dropped = servers.map(|server| async move { drop_connections(&server.options()).await });
        Ok(try_join_all(dropped).await?.into_iter().sum())
    }

    /// Keeps a snapshot of every server as it is now.
    pub(crate) async fn dump(&self) -> Result<()> {
        try_join_all(self.own()?.servers.iter().map(dump)).await?;
        Ok(())
    }

    /// Kills servers and starts them on their snapshots, at the same addresses: all, or one of them.
    pub(crate) async fn restart_from_dump(&mut self, node: Option<usize>) -> Result<()> {
        let servers = match node {
            Some(node) => std::slice::from_mut(self.node(node)?),
            None => self.children()?.servers.as_mut_slice(),
        };
        let stopped = join_all(servers.iter_mut().map(|server| server.stop(RedisData::Lose))).await;
        stopped.into_iter().collect::<Result<()>>()?;
        for server in &*servers {
            let snapshot = server.folder.join(EARLIER);
            std::fs::copy(&snapshot, server.folder.join(DUMP)).context("there is no snapshot: take one first")?;
        }
        try_join_all(servers.iter_mut().map(Server::start)).await?;
        Ok(())
    }

    /// Starts a replica, waits until it has everything, and cuts it off: it gets no later write.
    pub(crate) async fn start_replica(&mut self) -> Result<()> {
        let children = self.children()?;
        ensure!(!children.is_cluster(), "only a single node can be given a replica that is cut off");
        ensure!(children.replica.is_none(), "there is a replica already");
        let master = children.servers.first().context("there is no server")?;
        let folder = replica_folder(master)?;
        let [port] = free_ports()?;
        let mut replica = Server::new(&master.binary, &folder, port, master.certificates.clone(), None);
        replica.start().await?;
        let replica_of = |host: &str, port: &str| redis::cmd("REPLICAOF").arg(host).arg(port).clone();
        command::<()>(&replica.options(), &replica_of("127.0.0.1", &master.port.to_string())).await?;
        let deadline = Instant::now() + PATIENCE;
        while !has_everything(master, &replica).await? {
            ensure!(Instant::now() < deadline, "the replica does not get the data");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        command::<()>(&replica.options(), &replica_of("NO", "ONE")).await?;
        children.replica = Some(Box::new(replica));
        Ok(())
    }

    /// Kills the master and puts the replica in its place, at the same address.
    pub(crate) async fn promote_replica(&mut self) -> Result<()> {
        let children = self.children()?;
        let Some(mut replica) = children.replica.take() else { bail!("there is no replica: start one first") };
        let master = children.servers.first_mut().context("there is no server")?;
        master.stop(RedisData::Lose).await?;
        replica.move_to(master.port, &master.folder).await?;
        *master = *replica;
        Ok(())
    }

    fn own(&self) -> Result<&Children> {
        match self {
            Self::External(_) => bail!("the Redis at REDIS_URL is not this stack's to disturb"),
            Self::Children(children) => Ok(children),
        }
    }
}

async fn dump(server: &Server) -> Result<()> {
    command::<()>(&server.options(), &redis::cmd("SAVE")).await?;
    // A later start without a snapshot is empty, as after a crash.
    std::fs::rename(server.folder.join(DUMP), server.folder.join(EARLIER)).context("the snapshot cannot be kept")
}

fn replica_folder(master: &Server) -> Result<PathBuf> {
    let folder = (0..).map(|index| master.folder.join(format!("replica-{index}"))).find(|folder| !folder.exists());
    let folder = folder.context("no folder for the replica")?;
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Whether the replica has all that the master had when it was asked.
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

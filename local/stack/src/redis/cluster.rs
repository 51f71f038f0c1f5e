//! Forms a cluster of child servers: assigns slots, connects nodes, attaches replicas.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::future::try_join_all;

use super::{command, server::Server};

const SLOTS: usize = 16_384;
const FORMED_WITHIN: Duration = Duration::from_secs(30);

/// Forms a cluster of running servers that do not know each other. `servers` lists the masters first, then the first
/// replica of each master, and so on.
pub(super) async fn form(servers: &[Server], masters: usize) -> Result<()> {
    for (index, server) in servers[..masters].iter().enumerate() {
        let (first, last) = (index * SLOTS / masters, (index + 1) * SLOTS / masters - 1);
        cluster::<()>(server, &["ADDSLOTSRANGE", &first.to_string(), &last.to_string()]).await?;
        // Different epochs. With equal ones the nodes would have to resolve a conflict first.
        cluster::<()>(server, &["SET-CONFIG-EPOCH", &(index + 1).to_string()]).await?;
    }
    let Some((first, others)) = servers.split_first() else { return Ok(()) };
    for server in others {
        let bus_port = server.clustered.as_ref().map_or(0, |clustered| clustered.bus_port);
        cluster::<()>(first, &["MEET", "127.0.0.1", &server.port.to_string(), &bus_port.to_string()]).await?;
    }
    is_whole(servers).await?;
    for (index, replica) in servers[masters..].iter().enumerate() {
        let master: String = cluster(&servers[index % masters], &["MYID"]).await?;
        cluster::<()>(replica, &["REPLICATE", &master]).await?;
    }
    try_join_all(servers[masters..].iter().map(is_attached)).await?;
    // Wait until every node knows all replicas.
    until("some nodes do not know all replicas", || async move {
        for server in servers {
            let slots: Vec<Vec<redis::Value>> = cluster(server, &["SLOTS"]).await?;
            if slots.iter().map(|range| range.len() - 2).sum::<usize>() != servers.len() {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await
}

/// Waits until every running node reports that all slots are served.
pub(super) async fn is_whole(servers: &[Server]) -> Result<()> {
    until("some nodes do not report a complete cluster", || async move {
        for server in servers {
            let info: String = cluster(server, &["INFO"]).await?;
            let says = |what: &str| info.lines().any(|line| line == what);
            let known = format!("cluster_known_nodes:{}", servers.len());
            if !says("cluster_state:ok") || !says(&known) || !says(&format!("cluster_slots_ok:{SLOTS}")) {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await
}

async fn is_attached(replica: &Server) -> Result<()> {
    until("a replica is not connected to its master", || async move {
        let info: String = command(&replica.options(), redis::cmd("INFO").arg("replication")).await?;
        Ok(info.lines().any(|line| line == "master_link_status:up"))
    })
    .await
}

/// Waits for a condition. In a storm, connections break while a node is asked, so an error means "not yet".
async fn until<F: Future<Output = Result<bool>>>(what: &str, mut is_so: impl FnMut() -> F) -> Result<()> {
    let started = Instant::now();
    loop {
        match is_so().await {
            Ok(true) => return Ok(()),
            Err(error) if started.elapsed() > FORMED_WITHIN => return Err(error.context(what.to_owned())),
            Ok(false) if started.elapsed() > FORMED_WITHIN => bail!("{what}"),
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn cluster<T: redis::FromRedisValue>(server: &Server, arguments: &[&str]) -> Result<T> {
    let response = command(&server.options(), redis::cmd("CLUSTER").arg(arguments)).await;
    response.with_context(|| format!("CLUSTER {} on port {}", arguments.join(" "), server.port))
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[tokio::test]
    async fn a_connection_that_breaks_does_not_end_the_wait() {
        let mut answers = [Err(anyhow::anyhow!("broken pipe")), Ok(false), Ok(true)].into_iter();
        until("never", || ready(answers.next().unwrap())).await.unwrap();
        assert!(answers.next().is_none());
    }
}

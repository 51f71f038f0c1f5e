//! A second server, with the data of the legacy systems.

use std::{net::TcpListener, process::Stdio};

use redis::{AsyncConnectionConfig, Cmd, aio::MultiplexedConnection};
use tokio::process::{Child, Command};

use crate::until;

/// The legacy Redis. A drop ends the server.
pub struct LegacyRedis {
    port: u16,
    child: Child,
}

impl LegacyRedis {
    /// Starts an empty server on a free port.
    pub async fn start() -> Self {
        loop {
            let port = TcpListener::bind(("127.0.0.1", 0)).expect("a port").local_addr().expect("its number").port();
            let mut legacy = Self { port, child: spawn(port) };
            if legacy.serves().await {
                return legacy;
            }
        }
    }

    /// Starts a server with the data of these commands.
    pub async fn with(commands: &[Cmd]) -> Self {
        let legacy = Self::start().await;
        legacy.run(commands).await;
        legacy
    }

    /// Ends the server and starts an empty one on the same port.
    pub async fn restart(&mut self) {
        self.child.kill().await.expect("the server ends");
        self.child = spawn(self.port);
        assert!(self.serves().await, "another process has taken the port");
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub async fn connect(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.url()).expect("a URL");
        let patience = Some(crate::PATIENCE);
        let patient = AsyncConnectionConfig::new().set_connection_timeout(patience).set_response_timeout(patience);
        client.get_multiplexed_async_connection_with_config(&patient).await.expect("the legacy server responds")
    }

    /// Runs commands in one pipeline.
    pub async fn run(&self, commands: &[Cmd]) {
        let mut connection = self.connect().await;
        for commands in commands.chunks(1_000) {
            let mut pipeline = redis::pipe();
            for command in commands {
                pipeline.add_command(command.clone()).ignore();
            }
            pipeline.exec_async(&mut connection).await.expect("the legacy server takes the data");
        }
    }

    /// Waits until the child serves the port. Returns false if another process has taken the port before it.
    async fn serves(&mut self) -> bool {
        let client = redis::Client::open(self.url()).expect("a URL");
        let own = format!("process_id:{}", self.child.id().expect("a child that nobody has waited for"));
        let mut serves = false;
        until("the legacy server starts", async || {
            if let Ok(mut connection) = client.get_multiplexed_async_connection().await
                && let Ok(info) = redis::cmd("INFO").arg("server").query_async::<String>(&mut connection).await
            {
                serves = info.lines().any(|line| line == own);
            }
            serves || self.child.try_wait().expect("its state").is_some()
        })
        .await;
        serves
    }
}

fn spawn(port: u16) -> Child {
    Command::new(tidemark_local::redis_server())
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("valkey-server or redis-server is installed")
}

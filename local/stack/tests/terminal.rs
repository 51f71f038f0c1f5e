//! What `make run` prints and leaves behind when its Redis or the stack itself is killed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{
    fs::Permissions,
    net::{TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidemark_local::redis_server;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdout, Command},
    time::{Instant, timeout},
};

const BINARY: &str = env!("CARGO_BIN_EXE_tidemark-local");

/// The longest wait for a line or a condition.
const PATIENCE: Duration = Duration::from_secs(60);

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn send_signal(name: &str, pid: impl ToString) {
    let sent = std::process::Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// The binary, running on a data directory of its own.
struct Terminal {
    stack: Child,
    log: Lines<BufReader<ChildStderr>>,
    /// Open, because the stack may still be writing to it.
    _announced: Lines<BufReader<ChildStdout>>,
    url: String,
    redis_url: String,
    _data: TempDir,
}

impl Terminal {
    async fn start(variables: &[(&str, &str)]) -> Self {
        Self::start_by(Command::new(BINARY), variables).await
    }

    async fn start_by(mut command: Command, variables: &[(&str, &str)]) -> Self {
        let data = tempfile::tempdir().unwrap();
        for (name, _) in std::env::vars_os() {
            if ["TIDEMARK_", "REDIS_", "RUST_LOG"].iter().any(|start| name.to_string_lossy().starts_with(start)) {
                command.env_remove(name);
            }
        }
        command.env("TIDEMARK_ADDR", "127.0.0.1:0").env("TIDEMARK_DATA", data.path()).envs(variables.iter().copied());
        command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
        let mut stack = command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut announced = BufReader::new(stack.stdout.take().unwrap()).lines();
        let mut value = async |name: &str| loop {
            let line = timeout(PATIENCE, announced.next_line()).await.unwrap().unwrap().expect("the stack starts");
            if let Some(value) = line.trim().strip_prefix(name) {
                return value.trim().to_owned();
            }
        };
        let (url, redis_url) = (value("page and API").await.trim_end_matches('/').to_owned(), value("Redis").await);
        let log = BufReader::new(stack.stderr.take().unwrap()).lines();
        Self { stack, log, _announced: announced, url, redis_url, _data: data }
    }

    /// Reads the log up to the line with these words. Returns all lines.
    async fn lines_to(&mut self, words: &str) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        while lines.last().is_none_or(|line| !line.contains(words)) {
            let next = timeout(PATIENCE, self.log.next_line()).await;
            let line = next.unwrap_or_else(|_| panic!("no line has `{words}`: {lines:#?}")).unwrap();
            lines.push(line.unwrap_or_else(|| panic!("the stack ended without `{words}`: {lines:#?}")));
        }
        lines
    }

    async fn call(&self, user: u64, method: Method, path: &str, body: Value) -> reqwest::Response {
        let request = reqwest::Client::new().request(method, format!("{}{path}", self.url)).bearer_auth(user);
        request.json(&body).send().await.unwrap().error_for_status().unwrap()
    }

    /// The ids of a user's feed, and whether the response was made with Redis.
    async fn feed(&self, user: u64) -> (Vec<String>, bool) {
        let response = self.call(user, Method::GET, "/v1/feed", Value::Null).await;
        let with_redis = !response.headers().contains_key("degraded");
        let page: Value = response.json().await.unwrap();
        (page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect(), with_redis)
    }

    fn redis_pid(&self) -> u32 {
        let mut connection = redis::Client::open(&*self.redis_url).unwrap().get_connection().unwrap();
        let info: redis::InfoDict = redis::cmd("INFO").arg("server").query(&mut connection).unwrap();
        info.get("process_id").unwrap()
    }

    /// Ends the stack and waits until nothing serves its Redis.
    async fn end(mut self, signal: &str) -> ExitStatus {
        send_signal(signal, self.stack.id().unwrap());
        let status = timeout(PATIENCE, self.stack.wait()).await.expect("the stack ends").unwrap();
        for url in self.redis_url.split(',') {
            let address = url.split_once("://").unwrap().1;
            until("Redis has ended", async || TcpStream::connect(address).is_err()).await;
        }
        status
    }
}

#[tokio::test]
async fn a_killed_redis_is_started_again_the_log_says_so_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (server, broken) = (folder.path().join("valkey-server"), folder.path().join("broken"));
    let script = format!("#!/bin/sh\n[ ! -e '{}' ] || exit 1\nexec '{}' \"$@\"\n", broken.display(), redis_server().display());
    std::fs::write(&server, script).unwrap();
    std::fs::set_permissions(&server, Permissions::from_mode(0o755)).unwrap();
    let (_, path) = std::env::vars().find(|(name, _)| name == "PATH").unwrap();
    let path = format!("{}:{path}", folder.path().display());
    let mut terminal = Terminal::start(&[("PATH", &path)]).await;
    terminal.call(1, Method::PUT, "/v1/following/2", Value::Null).await;
    terminal.call(2, Method::POST, "/v1/posts", json!({ "title": "before" })).await;
    until("the first post is delivered", async || terminal.feed(1).await == (vec!["2-1".to_owned()], true)).await;

    std::fs::write(&broken, "").unwrap();
    send_signal("KILL", terminal.redis_pid());
    let port = terminal.redis_url.rsplit_once(':').unwrap().1.to_owned();
    terminal.lines_to(&format!(" WARN Redis at 127.0.0.1:{port} ended (signal: 9 (SIGKILL)); it is started again")).await;
    terminal.call(2, Method::POST, "/v1/posts", json!({ "title": "meanwhile" })).await;
    let both = vec!["2-2".to_owned(), "2-1".to_owned()];
    assert_eq!(terminal.feed(1).await, (both.clone(), false));
    // The projector tries to bring views in line every second, and a warning of each attempt would be a line.
    const KIND: &str = " WARN views are not updated: ";
    let mut lines = Vec::new();
    while !lines.iter().any(|line: &String| line.contains(KIND) && line.ends_with(" more in 5 s")) {
        lines.extend(terminal.lines_to(" more in 5 s").await);
    }
    let attempts = lines.iter().filter(|line| line.contains("Redis cannot be started: Redis ended during its start"));
    let pauses: Vec<_> = attempts.filter_map(|line| line.split("next attempt in ").nth(1)).collect();
    assert!(pauses.starts_with(&["200ms", "400ms", "800ms"]), "{lines:#?}");
    let first: Vec<_> = lines.iter().filter(|line| line.contains(KIND) && !line.ends_with(" more in 5 s")).collect();
    assert!(first.len() == 1 && first[0].contains("the view store is unavailable"), "{lines:#?}");

    std::fs::remove_file(&broken).unwrap();
    terminal.lines_to(" INFO Redis responds again after ").await;
    until("the views have both posts", async || terminal.feed(1).await == (both.clone(), true)).await;
    assert!(terminal.end("TERM").await.success());
}

#[tokio::test]
async fn the_end_of_the_stack_ends_its_redis_also_when_it_is_killed() {
    assert!(Terminal::start(&[]).await.end("HUP").await.success());
    assert_eq!(Terminal::start(&[]).await.end("KILL").await.signal(), Some(9));
    for setup in ["tls", "cluster"] {
        let cluster = Terminal::start(&[("TIDEMARK_REDIS", setup)]).await;
        assert_eq!(cluster.end("KILL").await.signal(), Some(9));
    }
}

/// As of a terminal that is closed after `nohup make run &`.
#[tokio::test]
async fn a_stack_that_ignores_hangups_lives_on() {
    let mut nohup = Command::new("nohup");
    nohup.arg(BINARY);
    let stack = Terminal::start_by(nohup, &[]).await;
    send_signal("HUP", stack.stack.id().unwrap());
    assert_eq!(stack.feed(1).await, (Vec::new(), true));
    assert!(stack.end("TERM").await.success());
}

#[tokio::test]
async fn a_redis_that_is_not_of_the_stack_is_not_started_and_its_outage_is_told_in_the_same_words() {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let start = async || {
        let mut server = Command::new(redis_server());
        server.args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()]).stdout(Stdio::null());
        let server = server.kill_on_drop(true).spawn().unwrap();
        until("the server listens", async || TcpStream::connect(("127.0.0.1", port)).is_ok()).await;
        server
    };
    let mut server = start().await;
    let url = format!("redis://127.0.0.1:{port}");
    let mut terminal = Terminal::start(&[("REDIS_URL", &url)]).await;
    server.kill().await.unwrap();
    terminal.lines_to(&format!(" WARN Redis does not respond at 127.0.0.1:{port} (REDIS_URL): ")).await;
    let _server = start().await;
    terminal.lines_to(" INFO Redis responds again after ").await;
}

//! Tests of processes behind the Runtime API. The processes do nothing; the tests send the requests of a worker.

use std::{os::unix::fs::PermissionsExt as _, time::Duration};

use serde_json::json;
use tempfile::TempDir;
use tokio::time::Instant;

use super::*;

fn function(timeout_seconds: u64) -> Function {
    Function {
        logical_id: "Fn".to_owned(),
        binary: "fn".to_owned(),
        timeout_seconds,
        memory_mib: 128,
        environment: BTreeMap::new(),
        events: Vec::new(),
    }
}

async fn start(script: &str, timeout_seconds: u64) -> (TempDir, RuntimeApi, Arc<Processes>) {
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("fn");
    std::fs::write(&binary, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
    let api = RuntimeApi::start().await.unwrap();
    let settings = WorkerSettings {
        binary,
        count: 1,
        environment: Arc::default(),
        runtime_api: api.address.clone(),
        log: folder.path().join("fn.log"),
    };
    let processes = Arc::new(Processes::start(&function(timeout_seconds), settings).unwrap());
    api.add("fn", &processes);
    (folder, api, processes)
}

fn invoke(processes: &Arc<Processes>, id: &'static str) -> tokio::task::JoinHandle<Result<Value, InvokeError>> {
    let processes = Arc::clone(processes);
    tokio::spawn(async move { processes.invoke(id, json!({ "for": id })).await })
}

struct Worker<'a>(&'a RuntimeApi, u64);

impl Worker<'_> {
    fn url(&self, rest: &str) -> String {
        format!("http://{}/fn/{}/2018-06-01/runtime/invocation/{rest}", self.0.address, self.1)
    }

    async fn next(&self) -> reqwest::Response {
        reqwest::get(self.url("next")).await.unwrap()
    }

    async fn post(&self, rest: &str, body: Value) -> u16 {
        reqwest::Client::new().post(self.url(rest)).json(&body).send().await.unwrap().status().as_u16()
    }
}

async fn pid(processes: &Processes, other_than: Option<u32>) -> u32 {
    let deadline = Instant::now() + Duration::from_secs(180);
    loop {
        match processes.pids().first() {
            Some(pid) if Some(*pid) != other_than => return *pid,
            _ => assert!(Instant::now() < deadline, "no process"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_worker_receives_an_invocation_and_its_result_reaches_the_caller() {
    let (_folder, api, processes) = start("exec sleep 1000", 20).await;
    pid(&processes, None).await;
    let worker = Worker(&api, 1);
    let invocation = invoke(&processes, "one");
    let given = worker.next().await;
    assert_eq!(given.headers()["lambda-runtime-aws-request-id"], "one");
    assert_eq!(given.headers()["lambda-runtime-invoked-function-arn"], "arn:aws:lambda:us-east-1:000000000000:function:fn");
    assert_eq!(given.json::<Value>().await.unwrap(), json!({ "for": "one" }));
    assert_eq!(worker.post("other/response", json!({})).await, 410);
    assert_eq!(worker.post("one/response", json!({ "ok": true })).await, 202);
    assert_eq!(invocation.await.unwrap().unwrap(), json!({ "ok": true }));

    let invocation = invoke(&processes, "two");
    worker.next().await;
    worker.post("two/error", json!({ "errorType": "Bad", "errorMessage": "luck" })).await;
    assert_eq!(invocation.await.unwrap().unwrap_err().to_string(), "Bad: luck");
}

#[tokio::test]
async fn a_killed_process_fails_its_invocation_at_once_and_is_replaced() {
    let (_folder, api, processes) = start("exec sleep 1000", 600).await;
    let first = pid(&processes, None).await;
    let invocation = invoke(&processes, "one");
    Worker(&api, 1).next().await;
    assert!(tokio::process::Command::new("kill").args(["-9", &first.to_string()]).status().await.unwrap().success());
    assert!(matches!(invocation.await.unwrap(), Err(InvokeError::Exited(how)) if how.contains('9')));
    pid(&processes, Some(first)).await;
    assert_eq!(Worker(&api, 1).next().await.status(), 410, "a dead worker gets no work");
    let invocation = invoke(&processes, "two");
    assert_eq!(Worker(&api, 2).next().await.headers()["lambda-runtime-aws-request-id"], "two");
    Worker(&api, 2).post("two/response", json!(2)).await;
    assert_eq!(invocation.await.unwrap().unwrap(), json!(2));
}

#[tokio::test]
async fn a_process_that_exceeds_its_timeout_is_killed() {
    let (_folder, api, processes) = start("exec sleep 1000", 1).await;
    let first = pid(&processes, None).await;
    let invocation = invoke(&processes, "one");
    Worker(&api, 1).next().await;
    assert!(matches!(invocation.await.unwrap(), Err(InvokeError::TimedOut(1))));
    pid(&processes, Some(first)).await;
}

#[tokio::test]
async fn a_process_that_cannot_start_fails_the_waiting_invocation() {
    let (folder, _api, processes) = start("echo no; exit 3", 600).await;
    let response = invoke(&processes, "one").await.unwrap();
    assert!(matches!(&response, Err(InvokeError::Exited(how)) if how.contains('3')), "{response:?}");
    processes.stop().await;
    assert_eq!(processes.pids(), Vec::<u32>::new());
    assert!(std::fs::read_to_string(folder.path().join("fn.log")).unwrap().contains("no"));
}

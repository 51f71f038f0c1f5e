//! Functions as processes: their start, before the first invocation, and their traces.

use std::{
    collections::BTreeSet,
    net::{TcpListener, UdpSocket},
};

use serde_json::{Value, json};
use tidemark_local::Options;
use tidemark_tests::{until, world_with};

use crate::delivery::{binaries, deliver};

/// Runs one function as a process. No other function connects to Redis before a request.
fn as_a_process(options: &mut Options) {
    options.process_functions.insert("fan-out".to_owned());
    options.bin_dir = Some(binaries());
    options.processes = 1;
}

#[test]
fn a_function_connects_to_redis_before_its_first_invocation() {
    world_with(as_a_process, async |world| {
        until("the function asks Redis for its epoch", async || world.redis_calls().await.contains_key("fcall")).await;
    });
}

#[test]
fn a_function_starts_without_redis() {
    // Its connections are accepted by the kernel and never served.
    let hanging = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    for port in [hanging.local_addr().unwrap().port(), 1] {
        let configure = |options: &mut Options| {
            as_a_process(options);
            // The start must not wait for them.
            let ever = "86400000";
            let url = format!("redis://127.0.0.1:{port}");
            for (name, value) in
                [("REDIS_URL", url.as_str()), ("REDIS_CONNECT_TIMEOUT_MS", ever), ("REDIS_RESPONSE_TIMEOUT_MS", ever)]
            {
                options.environment.insert(name.to_owned(), value.to_owned());
            }
        };
        world_with(configure, async |world| {
            let response = deliver(world, &["nonsense".to_owned()]).await;
            assert_eq!(response["batchItemFailures"], json!([{ "itemIdentifier": "late-0" }]));
        });
    }
}

#[test]
fn the_calls_of_an_invocation_are_subsegments_of_its_trace() {
    let daemon = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    daemon.set_nonblocking(true).unwrap();
    let address = daemon.local_addr().unwrap().to_string();
    let configure = |options: &mut Options| {
        as_a_process(options);
        options.environment.insert("AWS_XRAY_DAEMON_ADDRESS".to_owned(), address);
    };
    world_with(configure, async |world| {
        world.live_reader(1, [2]).await;
        world.publish_and_deliver(2, "for one reader").await;
        let (mut datagram, mut calls) = ([0; 4_000], BTreeSet::new());
        until("a delivery and its end are traced", async || {
            while let Ok(length) = daemon.recv(&mut datagram) {
                let text = std::str::from_utf8(&datagram[..length]).unwrap();
                let document: Value = serde_json::from_str(text.split_once('\n').unwrap().1).unwrap();
                let (trace, parent) = (document["trace_id"].as_str().unwrap(), document["parent_id"].as_str().unwrap());
                assert!(trace.starts_with("1-") && parent.len() == 16, "{document}");
                let [started, ended] = ["start_time", "end_time"].map(|time| document[time].as_f64().unwrap());
                assert!(started <= ended && ended < started + 60.0, "{document}");
                let operation = [&document["aws"]["operation"], &document["metadata"]["redis"]["operation"]];
                let operation = operation.iter().find_map(|operation| operation.as_str()).unwrap();
                calls.insert(format!("{} {operation}", document["name"].as_str().unwrap()));
            }
            calls.contains("Redis deliver") && calls.iter().any(|call| call.starts_with("DynamoDB "))
        })
        .await;
    });
}

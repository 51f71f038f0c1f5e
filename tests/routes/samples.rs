//! Every route and every other trigger of a function has a sample event, and every sample belongs to an existing
//! route.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tidemark_local::template::EventSource;
use tidemark_tests::{has, repository};

#[test]
fn every_route_and_trigger_has_a_sample_event() {
    let template = crate::template::resolved();
    for function in template.functions.values() {
        let samples = samples(&function.binary);
        assert!(!samples.is_empty(), "{} has no sample event", function.binary);
        let mut sampled: BTreeSet<&str> = samples.values().filter_map(|sample| sample["routeKey"].as_str()).collect();
        for event in &function.events {
            let found = match &event.source {
                EventSource::Http(route) if route.path == "$default" => true,
                EventSource::Http(route) => sampled.remove(format!("{} {}", route.method, route.path).as_str()),
                EventSource::Sqs(_) => from(&samples, "eventSource", "aws:sqs"),
                EventSource::Stream(_) => from(&samples, "eventSource", "aws:dynamodb"),
                EventSource::Schedule(schedule) => samples.values().any(|sample| *sample == schedule.input),
            };
            assert!(found, "no sample in events/{} for {}", function.binary, event.name);
        }
        for (key, _) in template.live.iter().filter(|(_, id)| **id == function.logical_id) {
            let found = samples.values().any(|sample| sample["requestContext"]["routeKey"] == **key);
            assert!(found, "no sample in events/{} for {key}", function.binary);
        }
        assert!(sampled.is_empty(), "{} does not have the routes of these samples: {sampled:?}", function.binary);
        for (path, sample) in samples.iter().filter(|(_, sample)| sample.get("routeKey").is_some()) {
            let method = sample["routeKey"].as_str().unwrap().split(' ').next();
            let http = json!({ "method": method, "path": sample["rawPath"] });
            let context = json!({ "routeKey": sample["routeKey"], "http": http });
            assert!(has(&sample["requestContext"], &context), "{path:?}");
        }
    }
}

fn from(samples: &BTreeMap<PathBuf, Value>, key: &str, source: &str) -> bool {
    samples.values().any(|sample| sample["Records"][0][key] == source)
}

fn samples(function: &str) -> BTreeMap<PathBuf, Value> {
    let read = |path: &Path| serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let Ok(dir) = std::fs::read_dir(repository().join("events").join(function)) else { return BTreeMap::new() };
    dir.map(|entry| entry.unwrap().path()).map(|path| (path.clone(), read(&path))).collect()
}

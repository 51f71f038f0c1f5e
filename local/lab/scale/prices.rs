//! The bill of a month. On-demand list prices of us-east-1 in US dollars, without free tiers, as of March 2026 (SQS)
//! and 2025 (the others): the same as in docs/deployment.md. docs/scale.md names the pages.

use std::cmp::Ordering;

use super::{
    demand::{DAY, Demand},
    sim::Outcome,
    unit_prices::{READ_UNIT, WRITE_UNIT},
};

const MONTH: f64 = 30.0 * DAY;
const HOURS: f64 = 730.0;
const MILLION: f64 = 1e6;
const GB: f64 = 1e9;

/// HTTP API: a request. Prices that fall with volume are pairs: up to which volume, and dollars for one.
const API: [(f64, f64); 2] = [(300.0 * MILLION, 1.0 / MILLION), (f64::INFINITY, 0.9 / MILLION)];
/// Lambda on arm64: a GB-second.
const LAMBDA_GB_SECOND: [(f64, f64); 3] = [(7.5e9, 0.0000133334), (18.75e9, 0.0000120001), (f64::INFINITY, 0.0000106667)];
const LAMBDA_INVOCATION: f64 = 0.20 / MILLION;
const STORED_GB: f64 = 0.25;
/// SQS: a request to a fair queue.
const SQS_REQUEST: f64 = 0.50 / MILLION;
/// Data to the internet: a GB.
const TRANSFER: [(f64, f64); 4] = [(10_240.0, 0.09), (51_200.0, 0.085), (153_600.0, 0.07), (f64::INFINITY, 0.05)];
const LOG_GB: f64 = 0.50;
const TRACE: f64 = 5.0 / MILLION;
/// The endpoint of SQS in two zones, alarms and the password (docs/deployment.md).
const FIXED: f64 = 14.60 + 7.40;

/// GB of memory of a function of the API, and of a worker (template.yaml).
const API_GB: f64 = 0.5;
const WORKER_GB: f64 = 1.0;
const LOG_BYTES: f64 = 250.0;
/// Requests for one trace.
const TRACED: f64 = 20.0;
/// Assumed bytes of an edge in both directions with indexes, and the days whose posts are stored.
const EDGE_BYTES: f64 = 500.0;
const STORED_DAYS: f64 = 365.0;

/// A type of ElastiCache node, with Valkey.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Node {
    pub(crate) name: &'static str,
    gib: f64,
    /// The share of a core that may be used for ever. A t4g.small earns 20 % of two.
    pub(crate) core: f64,
    hour: f64,
}

/// The share of a node's memory that ElastiCache leaves for data, and the share of that at which `RedisMemoryAlarm`
/// goes off.
const UNRESERVED: f64 = 0.75;
const ALARM: f64 = 0.8;

impl Node {
    /// Bytes for views before an alarm goes off.
    pub(crate) fn bytes(&self) -> f64 {
        self.gib * UNRESERVED * ALARM * 1024.0 * 1024.0 * 1024.0
    }
}

pub(crate) const SMALL: Node = Node { name: "t4g.small", gib: 1.37, core: 0.4, hour: 0.0256 };
pub(crate) const LARGEST: Node = Node { name: "r7g.xlarge", gib: 26.32, core: 1.0, hour: 0.3496 };
const NODES: [Node; 3] = [SMALL, Node { name: "r7g.large", gib: 13.07, core: 1.0, hour: 0.1752 }, LARGEST];
/// Nodes of each shard: a master and its replica.
const NODES_OF_SHARD: f64 = 2.0;

/// The masters that hold the views and are busy up to `headroom` at the peak. As many as the template allows are
/// preferred, then the cheapest. A number of masters that is given stays, even if the views do not fit.
pub(crate) fn cheapest(demand: &Demand) -> (Node, u32) {
    let rank = |(node, shards): &(Node, u32)| (*shards > TEMPLATE_MASTERS, node.hour * f64::from(*shards));
    let plans = NODES.iter().filter_map(|&node| Some((node, shards(demand, node)?)));
    plans
        .min_by(|a, b| rank(a).partial_cmp(&rank(b)).unwrap_or(Ordering::Equal))
        .unwrap_or((LARGEST, demand.inputs.shards.unwrap_or(MOST_SHARDS)))
}

const MOST_SHARDS: u32 = 10_000;
/// `RedisShards` at most (template.yaml).
pub(crate) const TEMPLATE_MASTERS: u32 = 5;

fn shards(demand: &Demand, node: Node) -> Option<u32> {
    let fits = |shards: u32| {
        demand.memory <= node.bytes() * f64::from(shards) && demand.utilisation(shards) <= demand.inputs.headroom * node.core
    };
    if let Some(shards) = demand.inputs.shards {
        return (demand.memory <= node.bytes() * f64::from(shards)).then_some(shards);
    }
    let (mut low, mut high) = (0, MOST_SHARDS);
    while high - low > 1 {
        let middle = u32::midpoint(low, high);
        if fits(middle) { high = middle } else { low = middle }
    }
    fits(high).then_some(high)
}

/// Dollars a month by service.
pub(crate) type Bill = Vec<(&'static str, f64)>;

/// The bill of a demand. An event has the messages and seconds that it had in the simulation.
pub(crate) fn bill(demand: &Demand, node: Node, shards: u32, simulated: &Outcome) -> Bill {
    let inputs = &demand.inputs;
    let simulated_events = simulated.events.max(1) as f64;
    let per_event = simulated.messages.max(1) as f64 / simulated_events;
    let requests = demand.requests() * MONTH;
    let events = demand.messages / per_event * MONTH;
    let worker_seconds = events * (simulated.worker_seconds / simulated_events);
    // The projector runs for each mark, like and follow, and again for the task that follows an act.
    let acts = (demand.likes + demand.follows) * MONTH;
    let projections = demand.marks * MONTH + 2.0 * acts;
    let gb_seconds = (requests + projections) * inputs.request_ms / 1e3 * API_GB + worker_seconds * WORKER_GB;
    let invocations = requests + events + projections;
    // A message is sent, and its event is received and deleted. An event is one to two times 64 KB.
    let sqs = demand.messages * MONTH + 2.0 * events + 3.0 * acts;
    let stored = demand.users * inputs.following * EDGE_BYTES + demand.publishes * inputs.post_kb * 1024.0 * DAY * STORED_DAYS;
    let bytes = demand.feeds * MONTH * demand.measured.page_bytes.few;
    vec![
        ("API Gateway", tiered(&API, requests)),
        ("Lambda", invocations * LAMBDA_INVOCATION + tiered(&LAMBDA_GB_SECOND, gb_seconds)),
        ("DynamoDB, units", (demand.rru * READ_UNIT + demand.wru * WRITE_UNIT) * MONTH),
        ("DynamoDB, storage", stored / GB * STORED_GB),
        ("SQS", sqs * SQS_REQUEST),
        ("ElastiCache", f64::from(shards) * NODES_OF_SHARD * node.hour * HOURS),
        ("logs, traces, fixed", requests * (LOG_BYTES / GB * LOG_GB + TRACE / TRACED) + FIXED),
        ("transfer", tiered(&TRANSFER, bytes / GB)),
    ]
}

fn tiered(tiers: &[(f64, f64)], amount: f64) -> f64 {
    let (mut from, mut dollars) = (0.0, 0.0);
    for &(to, price) in tiers {
        dollars += (amount.min(to) - from).max(0.0) * price;
        from = to;
    }
    dollars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{inputs::Inputs, measured::Measured};

    #[test]
    fn prices_fall_by_tier() {
        assert!((tiered(&API, 69.3e6) - 69.30).abs() < 1e-9);
        assert!((tiered(&API, 1e9) - 930.0).abs() < 1e-6, "300 million at 1.00 and 700 million at 0.90");
        assert!((tiered(&TRANSFER, 20_480.0) - (921.6 + 870.4)).abs() < 1e-6, "10 TB at 0.09 and 10 TB at 0.085");
    }

    /// 1,000 users who each publish once a day and have one follower, computed by hand.
    #[test]
    fn a_small_bill_is_what_a_calculator_says() {
        let inputs = Inputs {
            live: 1.0,
            following: 1.0,
            publishes_per_day: 1.0,
            feeds_per_day: 10.0,
            rebuilds: 1e-6,
            marks_per_day: 2.0,
            likes_per_day: 1.0,
            follows_per_day: 1.0,
            ..Inputs::default()
        };
        let demand = Demand::new(&inputs, &Measured::read().unwrap(), 1_000.0);
        let simulated = Outcome { messages: 1, events: 1, worker_seconds: 0.1, ..Outcome::default() };
        let bill = bill(&demand, SMALL, 1, &simulated);
        let dollars = |service: &str| bill.iter().find(|line| line.0 == service).unwrap().1;
        // 15 requests of each user and day.
        assert!((dollars("API Gateway") - 0.45).abs() < 1e-6);
        // 450,000 requests, 30,000 events and 180,000 of the projector; 6,300 and 3,000 GB-seconds.
        assert!((dollars("Lambda") - (0.66 * 0.20 + 9_300.0 * 0.0000133334)).abs() < 1e-6);
        assert!((dollars("SQS") - 0.135).abs() < 1e-6, "90,000 sends, receives and deletes each");
        // A post is 13 WRU and 36.023 RRU, a mark 1 and 4, a like 12 and 58, a follow 13 and 64, a walk 56.3 RRU.
        let units = 30_000.0 * ((13.0 + 2.0 + 12.0 + 13.0) * 0.625 + (36.023 + 8.0 + 58.0 + 64.0 + 56.3) * 0.125) / 1e6;
        assert!((dollars("DynamoDB, units") - units).abs() < 1e-3, "{} instead of {units}", dollars("DynamoDB, units"));
        assert!((dollars("ElastiCache") - 37.376).abs() < 1e-6);
    }

    #[test]
    fn masters_are_added_until_memory_and_threads_suffice() {
        for users in [1e5, 1e7, 1e9] {
            let demand = Demand::new(&Inputs::default(), &Measured::read().unwrap(), users);
            let (node, shards) = cheapest(&demand);
            assert!(demand.memory <= node.bytes() * f64::from(shards));
            assert!(demand.utilisation(shards) <= 0.6 * node.core);
            if shards > 1 {
                let less = shards - 1;
                assert!(demand.memory > node.bytes() * f64::from(less) || demand.utilisation(less) > 0.6 * node.core);
            }
        }
    }
}

//! The limits of the bundle and of AWS, and how many users reach each.

use super::{
    demand::{DAY, Demand},
    inputs::Inputs,
    measured::Measured,
    prices::{LARGEST, SMALL, TEMPLATE_MASTERS},
};

/// Posts a second of the index `unfinished`. Each of its 64 partitions has 1,000 write units, and a post takes two: it
/// enters and leaves.
const INDEX_POSTS: f64 = 64.0 * 500.0;
/// Masters that ElastiCache allows: 500 nodes in a cluster, two for each shard.
const MOST_MASTERS: u32 = 250;
/// Segments of reconcile's walk, at most.
const MOST_SEGMENTS: f64 = 32.0;
/// Units a second of a table, by default.
const TABLE_UNITS: f64 = 40_000.0;
const LARGER_QUOTA: &str = "a larger quota from AWS";

/// A limit. The demand is compared at the peak.
pub(crate) struct Limit {
    pub(crate) name: &'static str,
    pub(crate) capacity: f64,
    pub(crate) demand: fn(&Demand) -> f64,
    /// The change that raises the limit.
    pub(crate) lift: &'static str,
    /// Whether AWS refuses demand above it.
    is_quota: bool,
}

impl Limit {
    /// The number of users who reach the limit. `None` above 10^11.
    pub(crate) fn users(&self, inputs: &Inputs, measured: &Measured) -> Option<f64> {
        let reached = |exponent: f64| (self.demand)(&Demand::new(inputs, measured, 10_f64.powf(exponent))) >= self.capacity;
        let (mut low, mut high) = (3.0, 11.0);
        if !reached(high) {
            return None;
        }
        while high - low > 1e-4 {
            let middle = f64::midpoint(low, high);
            if reached(middle) { high = middle } else { low = middle }
        }
        Some(10_f64.powf(high))
    }
}

/// Limits with the number of users who reach each, the first one first.
pub(crate) fn in_order(inputs: &Inputs, measured: &Measured) -> Vec<(Limit, Option<f64>)> {
    let mut limits: Vec<_> = all(inputs).into_iter().map(|limit| (limit.users(inputs, measured), limit)).collect();
    limits.sort_by(|(a, _), (b, _)| a.unwrap_or(f64::INFINITY).total_cmp(&b.unwrap_or(f64::INFINITY)));
    limits.into_iter().map(|(users, limit)| (limit, users)).collect()
}

/// Limits of AWS by default. AWS refuses demand above them.
pub(crate) fn quotas(inputs: &Inputs) -> Vec<Limit> {
    all(inputs).into_iter().filter(|limit| limit.is_quota).collect()
}

/// Every limit, service by service. Limits of Redis are those of the template's default, of its largest values, and of
/// the largest cluster. A walk of reconcile must end within a day.
pub(crate) fn all(inputs: &Inputs) -> Vec<Limit> {
    let headroom = inputs.headroom;
    let [template, most] = [TEMPLATE_MASTERS, MOST_MASTERS].map(|masters| LARGEST.bytes() * f64::from(masters));
    let follows = inputs.counter_shards * inputs.item_transactions;
    let segment = inputs.walk_per_minute * DAY / 60.0;
    let small = "`RedisNodeType` and `RedisShards`";
    let shards = "more than 5 `RedisShards` in the template";
    let shards_or_nodes = "more than 5 `RedisShards` in the template, or larger nodes";
    let queues = "several queues by author, or a lower `PullThreshold`";
    let quota_or_pull = "a larger quota from AWS, or a lower `PullThreshold`";
    vec![
        limit("`RequestRate` 1,000 a second", 1_000.0, requests, "raise `RequestRate`, up to the account's quota"),
        quota("API Gateway, 10,000 requests a second of an account", 10_000.0, requests, "a larger quota from AWS, in steps"),
        limit("memory of one `cache.t4g.small`", SMALL.bytes(), |demand| demand.memory, small),
        limit("thread of one `cache.t4g.small`", headroom * SMALL.core, |demand| demand.utilisation(1), small),
        limit("memory of 5 `cache.r7g.xlarge`", template, |demand| demand.memory, shards_or_nodes),
        limit("threads of 5 masters", headroom, |demand| demand.utilisation(TEMPLATE_MASTERS), shards),
        limit("memory of 250 `cache.r7g.xlarge`", most, |demand| demand.memory, "larger nodes, or several clusters by bucket"),
        limit(
            "threads of 250 masters, ElastiCache's 500 nodes of a cluster",
            headroom,
            |demand| demand.utilisation(MOST_MASTERS),
            "several clusters by bucket, or a lower `PullThreshold`",
        ),
        limit("`FanOutConcurrency` 40", 40.0 * headroom, workers, "`FanOutConcurrency`, up to 800"),
        limit("`FanOutConcurrency` 800, its largest value", 800.0 * headroom, workers, queues),
        quota("Lambda, 1,000 executions of an account", 1_000.0, executions, LARGER_QUOTA),
        quota("follows of one author in a minute", follows, viral, "more parts of each shard (`--counter-shards`)"),
        quota(
            "posts in the index `unfinished`",
            INDEX_POSTS,
            |demand| peak(demand, demand.publishes),
            "more partitions of the index",
        ),
        quota("table `followers`, 40,000 RRU", TABLE_UNITS, |demand| peak(demand, demand.followers_rru), quota_or_pull),
        quota("table `posts`, 40,000 RRU", TABLE_UNITS, |demand| peak(demand, demand.posts_rru), LARGER_QUOTA),
        quota("table `posts`, 40,000 WRU", TABLE_UNITS, |demand| peak(demand, demand.posts_wru), LARGER_QUOTA),
        limit("reconcile's walk within a day, `ReconcileConcurrency` 2", segment, keys, "`ReconcileConcurrency`, up to 33"),
        limit(
            "reconcile's walk within a day, `ReconcileConcurrency` 33, its largest value",
            MOST_SEGMENTS * segment,
            keys,
            "a walk that takes longer than a day",
        ),
    ]
}

fn limit(name: &'static str, capacity: f64, demand: fn(&Demand) -> f64, lift: &'static str) -> Limit {
    Limit { name, capacity, demand, lift, is_quota: false }
}

fn quota(name: &'static str, capacity: f64, demand: fn(&Demand) -> f64, lift: &'static str) -> Limit {
    Limit { is_quota: true, ..limit(name, capacity, demand, lift) }
}

fn peak(demand: &Demand, average: f64) -> f64 {
    demand.inputs.peak * average
}

fn requests(demand: &Demand) -> f64 {
    peak(demand, demand.requests())
}

/// Busy workers, with as many masters of the largest node as the views need.
fn workers(demand: &Demand) -> f64 {
    demand.busy_workers(((demand.memory / LARGEST.bytes()).ceil() as u32).clamp(1, MOST_MASTERS))
}

fn executions(demand: &Demand) -> f64 {
    requests(demand) * demand.inputs.request_ms / 1e3 + workers(demand)
}

fn viral(demand: &Demand) -> f64 {
    demand.inputs.viral * demand.users / 60.0
}

/// Keys of Redis of all live views: state, feed, reactions.
fn keys(demand: &Demand) -> f64 {
    3.0 * demand.users * demand.inputs.live
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users_at(name: &str, inputs: &Inputs, measured: &Measured) -> Option<f64> {
        all(inputs).iter().find(|limit| limit.name.starts_with(name)).unwrap().users(inputs, measured)
    }

    #[test]
    fn limits_bind_where_a_calculator_says() {
        let (inputs, measured) = (Inputs::default(), Measured::read().unwrap());
        let users = |name: &str| users_at(name, &inputs, &measured);
        let near = |a: Option<f64>, b: f64| assert!((a.unwrap() / b - 1.0).abs() < 1e-3, "{a:?} instead of {b}");
        // 0.2 posts and 0.3 × 24.2 other requests of a user in a day, three times as many at the peak.
        near(users("`RequestRate`"), 1_000.0 / 3.0 * 86_400.0 / (0.2 + 0.3 * 24.2));
        near(users("API Gateway"), 10_000.0 / 3.0 * 86_400.0 / (0.2 + 0.3 * 24.2));
        // A thousandth of the users in 60 s, 256 items at 50 transactions a second.
        near(users("follows of one author"), 768e6);
        near(users("posts in the index"), 32_000.0 / 3.0 * 86_400.0 / 0.2);
        near(users("reconcile"), 5_000.0 * 1_440.0 / 0.9);
    }

    #[test]
    fn limits_are_in_order_and_lifting_one_makes_room() {
        let measured = Measured::read().unwrap();
        let ordered: Vec<f64> = in_order(&Inputs::default(), &measured).into_iter().filter_map(|(_, users)| users).collect();
        assert!(ordered.len() > 10 && ordered.is_sorted());
        let lifted = Inputs { counter_shards: 4_096.0, ..Inputs::default() };
        let follows = |inputs: &Inputs| users_at("follows", inputs, &measured).unwrap();
        assert!((follows(&lifted) / follows(&Inputs::default()) - 16.0).abs() < 0.01);
    }
}

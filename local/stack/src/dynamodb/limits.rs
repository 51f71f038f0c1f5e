//! DynamoDB's limits: the throughput of a partition, and conflicts between transactions.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use serde_json::Value;
use tokio::time::Instant;

use super::access::{Access, Kind, Touched};
use crate::{lock::lock, weather::Consumption};

/// Capacity units for each partition key value and second.
const WRITE_UNITS: f64 = 1_000.0;
const READ_UNITS: f64 = 3_000.0;
/// Above this number of buckets, full buckets are dropped.
const FORGET_AT: usize = 50_000;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    units: f64,
    at: Instant,
}

impl Bucket {
    fn full(rate: f64, now: Instant) -> Self {
        Self { units: rate, at: now }
    }

    fn refill(&mut self, rate: f64, now: Instant) {
        self.units = (self.units + now.duration_since(self.at).as_secs_f64() * rate).min(rate);
        self.at = now;
    }
}

fn rate(write: bool) -> f64 {
    if write { WRITE_UNITS } else { READ_UNITS }
}

/// A token bucket for each partition key value and direction. A request is accepted while the bucket is not empty.
/// The consumed units are taken out afterwards, so the content of a bucket can be negative.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    buckets: Mutex<HashMap<(String, bool), Bucket>>,
}

impl Partitions {
    /// Returns true if the partition has no capacity left at `now`.
    pub(super) fn is_exhausted(&self, partition: &str, write: bool, now: Instant) -> bool {
        lock(&self.buckets).get_mut(&(partition.to_owned(), write)).is_some_and(|bucket| {
            bucket.refill(rate(write), now);
            bucket.units <= 0.0
        })
    }

    /// Subtracts the consumed capacity. `units` is by table; each item of a table pays an equal part.
    /// `spent` counts it.
    pub(super) fn charge(&self, access: &Access, units: &HashMap<String, f64>, now: Instant, spent: &mut Consumption) {
        let write = access.kind.writes();
        let mut buckets = lock(&self.buckets);
        if buckets.len() > FORGET_AT {
            buckets.retain(|(_, write), bucket| {
                bucket.refill(rate(*write), now);
                bucket.units < rate(*write)
            });
        }
        for touched in &access.touched {
            let items = access.touched.iter().filter(|other| other.table == touched.table).count();
            let least = if access.kind.is_transaction() { 2.0 } else { 1.0 };
            // A response without a number means that a condition refused the request. Such a request costs capacity
            // too.
            let units = units.get(&touched.table).map_or(least, |units| units / items.max(1) as f64);
            let bucket = buckets.entry((touched.partition.clone(), write)).or_insert_with(|| Bucket::full(rate(write), now));
            bucket.refill(rate(write), now);
            bucket.units -= units;
            spent.add(&touched.partition, write, units);
        }
    }
}

/// Returns the consumed capacity from a response, by table and without the table's indexes.
pub(super) fn consumed(response: &Value) -> HashMap<String, f64> {
    let capacity = response.get("ConsumedCapacity");
    let list = match capacity {
        Some(Value::Array(list)) => list.iter().collect(),
        Some(one) => vec![one],
        None => Vec::new(),
    };
    let units = |capacity: &Value| {
        let table = capacity.pointer("/Table/CapacityUnits").or_else(|| capacity.get("CapacityUnits"));
        Some((capacity.get("TableName")?.as_str()?.to_owned(), table?.as_f64()?))
    };
    list.into_iter().filter_map(units).collect()
}

#[derive(Clone, Copy, Debug, Default)]
struct Writers {
    transactions: usize,
    others: usize,
}

#[derive(Debug, Default)]
struct Ongoing {
    items: HashMap<String, Writers>,
    tokens: HashSet<String>,
}

/// The items that are being written, and the requests that write them.
#[derive(Clone, Debug, Default)]
pub(super) struct Transactions(Arc<Mutex<Ongoing>>);

/// The reason to refuse a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Conflict {
    /// For each item, true if another request is writing it.
    Items(Vec<bool>),
    /// A transaction with the same token has not ended.
    InProgress,
}

impl Transactions {
    /// Whether a transaction writes the item.
    pub(super) fn is_in_one(&self, touched: &Touched) -> bool {
        let ongoing = lock(&self.0);
        touched.item.as_ref().and_then(|item| ongoing.items.get(item)).is_some_and(|writers| writers.transactions > 0)
    }

    /// Registers the items that a request writes until the result is dropped. Fails on a conflict as AWS defines it:
    /// a write or a transaction conflicts with a transaction, and a transaction that reads conflicts with any write.
    pub(super) fn begin(&self, access: &Access, token: Option<&str>) -> Result<Ongoings, Conflict> {
        let mut ongoing = lock(&self.0);
        let token = token.filter(|_| access.kind == Kind::TransactionWrite).map(str::to_owned);
        if token.as_ref().is_some_and(|token| ongoing.tokens.contains(token)) {
            return Err(Conflict::InProgress);
        }
        let meets = |touched: &Touched| {
            let writers = touched.item.as_ref().and_then(|item| ongoing.items.get(item)).copied().unwrap_or_default();
            match access.kind {
                Kind::Write | Kind::TransactionWrite => writers.transactions > 0,
                Kind::TransactionRead => writers.transactions + writers.others > 0,
                Kind::Read | Kind::BatchRead | Kind::BatchWrite => false,
            }
        };
        let meetings: Vec<bool> = access.touched.iter().map(meets).collect();
        if meetings.contains(&true) {
            return Err(Conflict::Items(meetings));
        }
        let mut items = Vec::new();
        if access.kind.writes() {
            items.extend(access.touched.iter().filter_map(|touched| touched.item.clone()));
        }
        let transaction = access.kind.is_transaction();
        for item in &items {
            let writers = ongoing.items.entry(item.clone()).or_default();
            *if transaction { &mut writers.transactions } else { &mut writers.others } += 1;
        }
        ongoing.tokens.extend(token.clone());
        Ok(Ongoings { all: self.clone(), items, token, transaction })
    }
}

/// The items that one request writes. Dropping the value releases them.
#[derive(Debug)]
pub(super) struct Ongoings {
    all: Transactions,
    items: Vec<String>,
    token: Option<String>,
    transaction: bool,
}

impl Drop for Ongoings {
    fn drop(&mut self) {
        let mut ongoing = lock(&self.all.0);
        for item in &self.items {
            let Some(writers) = ongoing.items.get_mut(item) else { continue };
            let count = if self.transaction { &mut writers.transactions } else { &mut writers.others };
            *count = count.saturating_sub(1);
            if writers.transactions + writers.others == 0 {
                ongoing.items.remove(item);
            }
        }
        if let Some(token) = &self.token {
            ongoing.tokens.remove(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn access(kind: Kind, items: &[&str]) -> Access {
        let touched = |item: &&str| Touched { table: "T".into(), partition: "T/p".into(), item: Some((*item).to_owned()) };
        Access { kind, touched: items.iter().map(touched).collect() }
    }

    #[test]
    fn a_partition_refuses_requests_until_its_overdraft_is_refilled() {
        let (partitions, start) = (Partitions::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        let write = access(Kind::Write, &["a"]);
        let mut spent = Consumption::default();
        let mut charge = |units: f64| partitions.charge(&write, &HashMap::from([("T".to_owned(), units)]), start, &mut spent);
        assert!(!partitions.is_exhausted("T/p", true, start));
        charge(999.0);
        assert!(!partitions.is_exhausted("T/p", true, start), "one unit is left");
        charge(501.0);
        assert!(partitions.is_exhausted("T/p", true, start));
        assert!(!partitions.is_exhausted("T/p", false, start), "reads have a bucket of their own");
        assert!(!partitions.is_exhausted("T/other", true, start));
        assert!(partitions.is_exhausted("T/p", true, at(499)), "the bucket is still negative");
        assert!(!partitions.is_exhausted("T/p", true, at(505)));
        assert_eq!(spent.units[&("T/p".to_owned(), true)], 1_500.0);
    }

    #[test]
    fn transactions_conflict_as_documented() {
        let transactions = Transactions::default();
        let begin = |kind, items: &[&str]| transactions.begin(&access(kind, items), None);
        let first = begin(Kind::TransactionWrite, &["a", "b"]).unwrap();
        assert_eq!(begin(Kind::TransactionWrite, &["c", "b"]).unwrap_err(), Conflict::Items(vec![false, true]));
        assert!(begin(Kind::TransactionWrite, &["c"]).is_ok(), "a refused request holds no item");
        assert_eq!(begin(Kind::Write, &["a"]).unwrap_err(), Conflict::Items(vec![true]));
        assert!(begin(Kind::Read, &["a"]).is_ok());
        drop(first);
        let write = begin(Kind::Write, &["a"]).unwrap();
        assert!(begin(Kind::TransactionWrite, &["a"]).is_ok(), "a plain write does not block a transaction that writes");
        assert_eq!(begin(Kind::TransactionRead, &["a"]).unwrap_err(), Conflict::Items(vec![true]));
        drop(write);
        assert!(begin(Kind::TransactionRead, &["a"]).is_ok());
        let token = transactions.begin(&access(Kind::TransactionWrite, &["x"]), Some("t")).unwrap();
        let again = transactions.begin(&access(Kind::TransactionWrite, &["x"]), Some("t"));
        assert_eq!(again.unwrap_err(), Conflict::InProgress);
        drop(token);
        assert!(lock(&transactions.0).items.is_empty() && lock(&transactions.0).tokens.is_empty());
    }
}

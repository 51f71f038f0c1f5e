//! DynamoDB's limits: the throughput of a partition, and conflicts between transactions.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use serde_json::Value;
use tokio::time::Instant;

use super::access::{Access, Form, Touched};
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
    pub(super) fn is_exhausted(&self, partition: &str, write: bool, now: Instant) -> bool {
        lock(&self.buckets).get_mut(&(partition.to_owned(), write)).is_some_and(|bucket| {
            bucket.refill(rate(write), now);
            bucket.units <= 0.0
        })
    }

    /// Subtracts and counts the consumed capacity. Each item of a table pays an equal part. Indexes have partitions of
    /// their own, which have no bucket.
    pub(super) fn charge(&self, access: &Access, consumed: &Consumed, now: Instant, spent: &mut Consumption) {
        let write = access.writes;
        let mut buckets = lock(&self.buckets);
        if buckets.len() > FORGET_AT {
            buckets.retain(|(_, write), bucket| {
                bucket.refill(rate(*write), now);
                bucket.units < rate(*write)
            });
        }
        for touched in &access.touched {
            let items = access.touched.iter().filter(|other| other.table == touched.table).count();
            let least = if access.form == Form::Transaction { 2.0 } else { 1.0 };
            // A response without a number means that a condition refused the request, which costs capacity too.
            let units = consumed.tables.get(&touched.table).map_or(least, |units| units / items.max(1) as f64);
            let bucket =
                buckets.entry((touched.partition.clone(), write)).or_insert_with(|| Bucket { units: rate(write), at: now });
            bucket.refill(rate(write), now);
            bucket.units -= units;
            spent.add(&touched.partition, write, units);
            *spent.all(write) += units;
        }
        *spent.all(write) += consumed.indexes;
    }
}

/// The consumed capacity of a response.
#[derive(Debug, Default)]
pub(super) struct Consumed {
    /// By table, without the table's indexes.
    tables: HashMap<String, f64>,
    indexes: f64,
}

/// Reads the consumed capacity from a response.
pub(super) fn consumed(response: &Value) -> Consumed {
    let capacity = response.get("ConsumedCapacity");
    let list = match capacity {
        Some(Value::Array(list)) => list.as_slice(),
        one => one.map(std::slice::from_ref).unwrap_or_default(),
    };
    let mut consumed = Consumed::default();
    for capacity in list {
        let Some(all) = capacity.get("CapacityUnits").and_then(Value::as_f64) else { continue };
        let table = capacity.pointer("/Table/CapacityUnits").and_then(Value::as_f64).unwrap_or(all);
        let name = capacity.get("TableName").and_then(Value::as_str).unwrap_or_default();
        consumed.tables.insert(name.to_owned(), table);
        consumed.indexes += all - table;
    }
    consumed
}

#[derive(Clone, Copy, Debug, Default)]
struct Writers {
    transactions: usize,
    others: usize,
}

impl Writers {
    fn of(&mut self, transaction: bool) -> &mut usize {
        if transaction { &mut self.transactions } else { &mut self.others }
    }
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
    pub(super) fn is_in_one(&self, touched: &Touched) -> bool {
        let ongoing = lock(&self.0);
        touched.item.as_ref().and_then(|item| ongoing.items.get(item)).is_some_and(|writers| writers.transactions > 0)
    }

    /// Registers the items that a request writes until the result is dropped. Fails on a conflict as AWS defines it:
    /// a write or a transaction conflicts with a transaction, and a transaction that reads conflicts with any write.
    pub(super) fn begin(&self, access: &Access, token: Option<&str>) -> Result<Ongoings, Conflict> {
        let mut ongoing = lock(&self.0);
        let token = token.filter(|_| access.form == Form::Transaction && access.writes).map(str::to_owned);
        if token.as_ref().is_some_and(|token| ongoing.tokens.contains(token)) {
            return Err(Conflict::InProgress);
        }
        let meets = |touched: &Touched| {
            let writers = touched.item.as_ref().and_then(|item| ongoing.items.get(item)).copied().unwrap_or_default();
            match (access.form, access.writes) {
                (Form::Batch, _) | (Form::Single, false) => false,
                (Form::Transaction, false) => writers.transactions + writers.others > 0,
                (Form::Single | Form::Transaction, true) => writers.transactions > 0,
            }
        };
        let meetings: Vec<bool> = access.touched.iter().map(meets).collect();
        if meetings.contains(&true) {
            return Err(Conflict::Items(meetings));
        }
        let written = access.touched.iter().filter(|_| access.writes);
        let items: Vec<String> = written.filter_map(|touched| touched.item.clone()).collect();
        let transaction = access.form == Form::Transaction;
        for item in &items {
            *ongoing.items.entry(item.clone()).or_default().of(transaction) += 1;
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
            *writers.of(self.transaction) -= 1;
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

    use serde_json::json;

    use super::*;

    const READ: (Form, bool) = (Form::Single, false);
    const WRITE: (Form, bool) = (Form::Single, true);
    const TRANSACTION_READ: (Form, bool) = (Form::Transaction, false);
    const TRANSACTION_WRITE: (Form, bool) = (Form::Transaction, true);

    fn access((form, writes): (Form, bool), items: &[&str]) -> Access {
        let touched = |item: &&str| Touched { table: "T".into(), partition: "T/p".into(), item: Some((*item).to_owned()) };
        Access { form, writes, touched: items.iter().map(touched).collect() }
    }

    #[test]
    fn a_partition_refuses_requests_until_its_overdraft_is_refilled() {
        let (partitions, start) = (Partitions::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        let write = access(WRITE, &["a"]);
        let mut spent = Consumption::default();
        let mut charge = |units: f64| {
            let capacity = json!({ "TableName": "T", "CapacityUnits": units + 1.0, "Table": { "CapacityUnits": units } });
            partitions.charge(&write, &consumed(&json!({ "ConsumedCapacity": capacity })), start, &mut spent);
        };
        assert!(!partitions.is_exhausted("T/p", true, start));
        charge(999.0);
        assert!(!partitions.is_exhausted("T/p", true, start), "one unit is left");
        charge(501.0);
        assert!(partitions.is_exhausted("T/p", true, start));
        assert!(!partitions.is_exhausted("T/p", false, start), "reads have a bucket of their own");
        assert!(!partitions.is_exhausted("T/other", true, start));
        assert!(partitions.is_exhausted("T/p", true, at(499)), "the bucket is still negative");
        assert!(!partitions.is_exhausted("T/p", true, at(505)));
        assert_eq!((spent.units[&("T/p".to_owned(), true)], spent.written, spent.read), (1_500.0, 1_502.0, 0.0));
    }

    #[test]
    fn transactions_conflict_as_documented() {
        let transactions = Transactions::default();
        let begin = |kind, items: &[&str]| transactions.begin(&access(kind, items), None);
        let first = begin(TRANSACTION_WRITE, &["a", "b"]).unwrap();
        assert_eq!(begin(TRANSACTION_WRITE, &["c", "b"]).unwrap_err(), Conflict::Items(vec![false, true]));
        assert!(begin(TRANSACTION_WRITE, &["c"]).is_ok(), "a refused request holds no item");
        assert_eq!(begin(WRITE, &["a"]).unwrap_err(), Conflict::Items(vec![true]));
        assert!(begin(READ, &["a"]).is_ok());
        drop(first);
        let write = begin(WRITE, &["a"]).unwrap();
        assert!(begin(TRANSACTION_WRITE, &["a"]).is_ok(), "a plain write does not block a transaction that writes");
        assert_eq!(begin(TRANSACTION_READ, &["a"]).unwrap_err(), Conflict::Items(vec![true]));
        drop(write);
        assert!(begin(TRANSACTION_READ, &["a"]).is_ok());
        let token = transactions.begin(&access(TRANSACTION_WRITE, &["x"]), Some("t")).unwrap();
        let again = transactions.begin(&access(TRANSACTION_WRITE, &["x"]), Some("t"));
        assert_eq!(again.unwrap_err(), Conflict::InProgress);
        drop(token);
        assert!(lock(&transactions.0).items.is_empty() && lock(&transactions.0).tokens.is_empty());
    }
}

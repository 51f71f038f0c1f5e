//! Single faults at selected requests, for tests: the response of the next `UpdateItem` of mark-read is lost.
//!
//! Faults do not depend on the weather. They also happen in calm weather.

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use serde_json::Value;

use crate::lock::lock;

/// The request of a killed invocation stays open so long that the invocation ends before it sees a closed connection.
const UNANSWERED: Duration = Duration::from_secs(1);

/// Code of a test that runs during a request.
#[derive(Clone)]
pub struct Callback(Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>);

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}

/// The effect of a fault on a request to DynamoDB or SQS.
#[derive(Clone, Debug)]
pub enum FaultAction {
    /// The service does nothing and returns this error code, such as `ThrottlingException` or `InternalServerError`.
    FailBefore(String),
    /// The service performs the request and returns this error code.
    FailAfter(String),
    /// The service performs the request, and the connection closes without a response.
    LoseResponse,
    /// The service performs the request, and the response is delayed by this time.
    Hang(Duration),
    /// The service processes no item of a batch and returns all items as unprocessed.
    LeaveUnprocessed,
    /// The service performs the request, then the stack kills every invocation in flight of the calling function: a
    /// process by SIGKILL, an invocation in this process by dropping its future. The response is lost.
    Kill,
    /// The service performs the request, then the callback runs, then the response is sent.
    RunThen(Callback),
}

impl FaultAction {
    /// Builds [`FaultAction::RunThen`] from an asynchronous closure.
    pub fn run_then<F: Future<Output = ()> + Send + 'static>(callback: impl Fn() -> F + Send + Sync + 'static) -> Self {
        Self::RunThen(Callback(Arc::new(move || Box::pin(callback()))))
    }
}

/// A fault and the requests that it matches. A request must satisfy every condition that is set.
#[derive(Clone, Debug)]
pub struct Fault {
    function: Option<String>,
    operation: String,
    table: Option<String>,
    containing: Option<String>,
    after: usize,
    times: usize,
    action: FaultAction,
}

impl Fault {
    /// A fault of the next request of this operation, such as `UpdateItem` or `SendMessageBatch`, by any caller.
    pub fn new(operation: &str, action: FaultAction) -> Self {
        let operation = operation.to_owned();
        Self { function: None, operation, table: None, containing: None, after: 0, times: 1, action }
    }

    /// Matches only requests of this function, by the name of its binary.
    #[must_use]
    pub fn of(mut self, function: &str) -> Self {
        self.function = Some(function.to_owned());
        self
    }

    /// Matches only requests that name this table or queue.
    #[must_use]
    pub fn on(mut self, table: &str) -> Self {
        self.table = Some(table.to_owned());
        self
    }

    /// Matches only requests whose body contains this text.
    #[must_use]
    pub fn containing(mut self, text: &str) -> Self {
        self.containing = Some(text.to_owned());
        self
    }

    /// Lets this number of matching requests pass first.
    #[must_use]
    pub fn after(mut self, requests: usize) -> Self {
        self.after = requests;
        self
    }

    /// Affects this number of requests.
    #[must_use]
    pub fn times(mut self, requests: usize) -> Self {
        self.times = requests;
        self
    }

    fn matches(&self, request: &Call<'_>, body: &mut Option<Value>) -> bool {
        self.operation == request.operation
            && self.function.as_deref().is_none_or(|function| request.function == Some(function))
            && self.containing.as_ref().is_none_or(|text| request.body.contains(text.as_str()))
            && self.table.as_ref().is_none_or(|table| {
                let body = body.get_or_insert_with(|| serde_json::from_str(request.body).unwrap_or_default());
                names(body, table)
            })
    }
}

/// Returns true if a request to DynamoDB or SQS names this table or queue.
fn names(body: &Value, table: &str) -> bool {
    let is = |name: &Value| name.as_str().is_some_and(|name| name.rsplit('/').next() == Some(table));
    let items = body["TransactItems"].as_array().into_iter().flatten().filter_map(Value::as_object);
    let mut actions = items.flat_map(|item| item.values());
    is(&body["TableName"])
        || is(&body["QueueUrl"])
        || body["RequestItems"].get(table).is_some()
        || actions.any(|action| is(&action["TableName"]))
}

/// The parts of a request that faults match.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) function: Option<&'a str>,
    pub(crate) operation: &'a str,
    pub(crate) body: &'a str,
}

/// A planted fault. Dropping the handle does not remove the fault.
#[derive(Clone, Debug, Default)]
pub struct Planted(Arc<AtomicUsize>);

impl Planted {
    /// The number of requests that the fault has affected.
    pub fn fired(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

struct Rule {
    fault: Fault,
    seen: usize,
    planted: Planted,
}

type Killer = Box<dyn Fn(&str) -> usize + Send + Sync>;

#[derive(Default)]
pub struct Faults {
    rules: Mutex<Vec<Rule>>,
    killer: OnceLock<Killer>,
}

impl Faults {
    /// Plants a fault. If several match a request, the oldest one applies.
    pub fn add(&self, fault: Fault) -> Planted {
        let planted = Planted::default();
        if fault.times > 0 {
            lock(&self.rules).push(Rule { fault, seen: 0, planted: planted.clone() });
        }
        planted
    }

    /// Removes all faults that have not happened yet.
    pub fn clear(&self) {
        lock(&self.rules).clear();
    }

    /// Returns true if no fault is planted.
    pub fn is_empty(&self) -> bool {
        lock(&self.rules).is_empty()
    }

    /// Returns the effect on this request, if a fault matches.
    pub(crate) fn take(&self, request: &Call<'_>) -> Option<FaultAction> {
        let mut rules = lock(&self.rules);
        let mut body = None;
        let index = rules.iter_mut().position(|rule| {
            if !rule.fault.matches(request, &mut body) {
                return false;
            }
            rule.seen += 1;
            rule.seen > rule.fault.after
        })?;
        let rule = rules.get_mut(index)?;
        let action = rule.fault.action.clone();
        rule.planted.0.fetch_add(1, Ordering::SeqCst);
        if rule.seen >= rule.fault.after + rule.fault.times {
            rules.remove(index);
        }
        drop(rules);
        tracing::info!(operation = request.operation, function = request.function, ?action, "a planted fault happens");
        Some(action)
    }

    /// Performs a request of a function under a fault. Returns `None` if the response is lost. `refuse` builds the
    /// response for an error code, `unprocessed` the response that leaves a whole batch. The second part of the
    /// request's outcome is held until the response is due.
    pub(crate) async fn apply<R, H>(
        &self,
        fault: FaultAction,
        function: Option<&str>,
        request: impl Future<Output = (Option<R>, H)>,
        refuse: impl Fn(&str) -> R,
        unprocessed: impl FnOnce() -> R,
    ) -> Option<R> {
        match &fault {
            FaultAction::FailBefore(code) => return Some(refuse(code)),
            FaultAction::LeaveUnprocessed => return Some(unprocessed()),
            _ => {}
        }
        let (response, _held) = request.await;
        match fault {
            FaultAction::FailAfter(code) => return Some(refuse(&code)),
            FaultAction::LoseResponse => return None,
            FaultAction::Hang(time) => tokio::time::sleep(time).await,
            FaultAction::Kill => {
                self.kill(function.unwrap_or_default());
                tokio::time::sleep(UNANSWERED).await;
                return None;
            }
            FaultAction::RunThen(callback) => callback.0().await,
            _ => {}
        }
        response
    }

    /// Sets how invocations are killed. Until then, [`Faults::kill`] kills none.
    pub(crate) fn kill_with(&self, killer: impl Fn(&str) -> usize + Send + Sync + 'static) {
        let _ = self.killer.set(Box::new(killer));
    }

    /// Kills the invocations in flight of a function. Returns their number.
    pub(crate) fn kill(&self, function: &str) -> usize {
        self.killer.get().map_or(0, |kill| kill(function))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(operation: &'static str, body: &'static str) -> Call<'static> {
        Call { function: Some("follow"), operation, body }
    }

    #[test]
    fn a_fault_affects_the_given_number_of_matching_requests() {
        let faults = Faults::default();
        let fault = Fault::new("UpdateItem", FaultAction::LoseResponse).of("follow").on("A").after(1).times(2);
        let planted = faults.add(fault);
        assert!(faults.take(&call("UpdateItem", r#"{"TableName":"B"}"#)).is_none());
        assert!(faults.take(&call("PutItem", r#"{"TableName":"A"}"#)).is_none());
        let other = Call { function: Some("publish"), ..call("UpdateItem", r#"{"TableName":"A"}"#) };
        assert!(faults.take(&other).is_none());
        let fires = || faults.take(&call("UpdateItem", r#"{"TableName":"A"}"#)).is_some();
        assert_eq!([fires(), fires(), fires(), fires()], [false, true, true, false]);
        assert_eq!((planted.fired(), faults.is_empty()), (2, true));
    }

    #[test]
    fn a_fault_finds_the_table_or_queue_anywhere_in_a_request() {
        for body in [
            r#"{"TableName":"A"}"#,
            r#"{"RequestItems":{"A":{}}}"#,
            r#"{"TransactItems":[{"Put":{"TableName":"B"}},{"ConditionCheck":{"TableName":"A"}}]}"#,
            r#"{"QueueUrl":"http://127.0.0.1/000000000000/A"}"#,
        ] {
            let body = serde_json::from_str(body).unwrap();
            assert!(names(&body, "A") && !names(&body, "C"), "{body}");
        }
    }
}

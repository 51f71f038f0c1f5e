//! Single faults at chosen requests, for tests: "the answer of the next `UpdateItem` of mark-read is lost".
//!
//! Faults do not depend on the weather: they happen in calm too.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::watch;

/// How long a killed invocation's request stays unanswered, so that the invocation never sees its connection closed.
const UNANSWERED: Duration = Duration::from_secs(1);

/// What a test does in the middle of a request.
pub type Callback = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// What happens to a request to DynamoDB or SQS.
#[derive(Clone)]
pub enum FaultAction {
    /// The service does nothing and returns this error code, such as `ThrottlingException` or `InternalServerError`.
    FailBefore(String),
    /// The service does it and returns this error code.
    FailAfter(String),
    /// The service does it and the connection closes without an answer.
    LoseAnswer,
    /// The service does it, and the answer comes so much later.
    Hang(Duration),
    /// The service does it so much later, even if the caller has given up by then.
    DoLate(Duration),
    /// The service does none of a batch and returns all of it as unprocessed.
    LeaveUnprocessed,
    /// The service does it, then every invocation in flight of the calling function is killed: a process by SIGKILL, an invocation in this
    /// process by dropping it where it waits. The answer is lost.
    Kill,
    /// The service does it, the test does something, then the answer is sent.
    RunThen(Callback),
}

impl FaultAction {
    /// [`FaultAction::RunThen`] from an asynchronous closure.
    pub fn run_then<F: Future<Output = ()> + Send + 'static>(callback: impl Fn() -> F + Send + Sync + 'static) -> Self {
        Self::RunThen(Arc::new(move || Box::pin(callback())))
    }
}

impl fmt::Debug for FaultAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FailBefore(code) => write!(f, "FailBefore({code})"),
            Self::FailAfter(code) => write!(f, "FailAfter({code})"),
            Self::LoseAnswer => f.write_str("LoseAnswer"),
            Self::Hang(time) => write!(f, "Hang({time:?})"),
            Self::DoLate(time) => write!(f, "DoLate({time:?})"),
            Self::LeaveUnprocessed => f.write_str("LeaveUnprocessed"),
            Self::Kill => f.write_str("Kill"),
            Self::RunThen(_) => f.write_str("RunThen"),
        }
    }
}

/// A fault and the requests it happens to. Every condition that is given must hold.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The calling function by the name of its binary.
    pub function: Option<String>,
    /// The operation, such as `UpdateItem` or `SendMessageBatch`.
    pub operation: String,
    /// A table (or queue) that the request names.
    pub table: Option<String>,
    /// A text that the request's body contains, such as `"42"`.
    pub containing: Option<String>,
    /// Requests that match and are left alone before the first fault.
    pub after: usize,
    /// How many requests it happens to.
    pub times: usize,
    /// What happens.
    pub action: FaultAction,
}

impl Fault {
    /// A fault of the next request of this kind, of any sender.
    #[must_use]
    pub fn new(operation: &str, action: FaultAction) -> Self {
        let operation = operation.to_owned();
        Self { function: None, operation, table: None, containing: None, after: 0, times: 1, action }
    }

    /// Only for requests of this function.
    #[must_use]
    pub fn of(mut self, function: &str) -> Self {
        self.function = Some(function.to_owned());
        self
    }

    /// Only for requests that name this table or queue.
    #[must_use]
    pub fn on(mut self, table: &str) -> Self {
        self.table = Some(table.to_owned());
        self
    }

    /// Only for requests whose body contains this text.
    #[must_use]
    pub fn containing(mut self, text: &str) -> Self {
        self.containing = Some(text.to_owned());
        self
    }

    /// Leaves so many matching requests alone first.
    #[must_use]
    pub fn after(mut self, requests: usize) -> Self {
        self.after = requests;
        self
    }

    /// For so many requests.
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

/// Whether a request of DynamoDB or SQS names this table or queue.
fn names(body: &Value, table: &str) -> bool {
    let is = |value: Option<&Value>| value.and_then(Value::as_str).is_some_and(|name| name.rsplit('/').next() == Some(table));
    let in_actions = |actions: &Value| {
        let actions = actions.as_array().into_iter().flatten();
        actions.filter_map(Value::as_object).flat_map(|action| action.values()).any(|action| is(action.get("TableName")))
    };
    is(body.get("TableName"))
        || is(body.get("QueueUrl"))
        || body.get("RequestItems").is_some_and(|items| items.get(table).is_some())
        || body.get("TransactItems").is_some_and(in_actions)
}

/// A request as faults see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) function: Option<&'a str>,
    pub(crate) operation: &'a str,
    pub(crate) body: &'a str,
}

/// A fault that was added; dropping it changes nothing.
#[derive(Clone, Debug)]
pub struct Planted {
    fired: watch::Receiver<usize>,
}

impl Planted {
    /// How many requests it has happened to.
    #[must_use]
    pub fn fired(&self) -> usize {
        *self.fired.borrow()
    }

    /// Waits until it has happened to so many requests.
    pub async fn has_fired(&self, times: usize) {
        let mut fired = self.fired.clone();
        // The sender may be gone with its last firing; the value stays.
        let _ = fired.wait_for(|fired| *fired >= times).await;
    }
}

#[derive(Debug)]
struct Rule {
    fault: Fault,
    seen: usize,
    fired: Arc<watch::Sender<usize>>,
}

type Killer = Box<dyn Fn(&str) -> usize + Send + Sync>;

/// The faults of a stack.
#[derive(Default)]
pub struct Faults {
    rules: Mutex<Vec<Rule>>,
    /// How many rules there are, so that a request without any costs one look.
    count: AtomicUsize,
    killer: OnceLock<Killer>,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").field("rules", &self.count).finish_non_exhaustive()
    }
}

impl Faults {
    /// Adds a fault. Of several that match a request, the one added first happens.
    pub fn add(&self, fault: Fault) -> Planted {
        let (sender, fired) = watch::channel(0);
        let mut rules = self.lock();
        if fault.times > 0 {
            rules.push(Rule { fault, seen: 0, fired: Arc::new(sender) });
        }
        self.count.store(rules.len(), Ordering::SeqCst);
        Planted { fired }
    }

    /// Removes every fault that has not happened.
    pub fn clear(&self) {
        self.lock().clear();
        self.count.store(0, Ordering::SeqCst);
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What happens to this request, if anything does.
    pub(crate) fn take(&self, request: &Call<'_>) -> Option<FaultAction> {
        if self.is_empty() {
            return None;
        }
        let mut rules = self.lock();
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
        let fired = Arc::clone(&rule.fired);
        if rule.seen >= rule.fault.after + rule.fault.times {
            rules.remove(index);
            self.count.store(rules.len(), Ordering::SeqCst);
        }
        drop(rules);
        fired.send_modify(|fired| *fired += 1);
        tracing::info!(operation = request.operation, function = request.function, ?action, "a planted fault happens");
        Some(action)
    }

    /// Does a request of a function under a fault; `None` if its answer is lost. `refuse` makes the response of an error code, `unprocessed` the one that
    /// leaves a whole batch. What the request came to is held until it is answered.
    pub(crate) async fn apply<T: Into<Option<R>>, R>(
        &self,
        fault: FaultAction,
        function: Option<&str>,
        request: impl Future<Output = T>,
        refuse: impl Fn(&str) -> R,
        unprocessed: impl FnOnce() -> R,
    ) -> Option<R> {
        match &fault {
            FaultAction::FailBefore(code) => return Some(refuse(code)),
            FaultAction::LeaveUnprocessed => return Some(unprocessed()),
            FaultAction::DoLate(time) => tokio::time::sleep(*time).await,
            _ => {}
        }
        let outcome = request.await;
        match fault {
            FaultAction::FailAfter(code) => return Some(refuse(&code)),
            FaultAction::LoseAnswer => return None,
            FaultAction::Hang(time) => tokio::time::sleep(time).await,
            FaultAction::Kill => {
                self.kill(function.unwrap_or_default());
                tokio::time::sleep(UNANSWERED).await;
                return None;
            }
            FaultAction::RunThen(callback) => callback().await,
            _ => {}
        }
        outcome.into()
    }

    /// Says how invocations are killed; before that, nothing can be.
    pub(crate) fn kill_with(&self, killer: impl Fn(&str) -> usize + Send + Sync + 'static) {
        let _ = self.killer.set(Box::new(killer));
    }

    /// Kills the invocations in flight of a function; returns how many.
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
    fn a_fault_happens_to_the_requests_it_names_and_to_so_many() {
        let faults = Faults::default();
        let fault = Fault::new("UpdateItem", FaultAction::LoseAnswer).of("follow").on("A").after(1).times(2);
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
    fn tables_and_queues_are_found_wherever_a_request_names_them() {
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

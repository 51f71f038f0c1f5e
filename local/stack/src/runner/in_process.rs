//! Functions in this process: calls of the `handle` that each `main.rs` passes to the Lambda runtime.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, mpsc::Sender},
    time::Duration,
};

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use futures::{FutureExt as _, future::BoxFuture};
use lambda_runtime::{Config, Context, Diagnostic, LambdaEvent};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tidemark::{App, AuthorizerSettings, SenderSettings, Settings, SystemClock, telemetry::EmbeddedMetrics};
use tidemark_live_authorizer::Authorizer;
use tokio::task::{AbortHandle, JoinError};

use super::{InvokeError, Runner};
use crate::{clock, lock::lock, template::Function};

/// A handler with the state of its function.
type Program = Box<dyn Fn(Value, Context) -> BoxFuture<'static, Result<Value, InvokeError>> + Send + Sync>;

macro_rules! program {
    ($state:expr, $handle:path) => {{
        let state = Arc::clone($state);
        Box::new(move |payload, context| {
            let state = Arc::clone(&state);
            async move { written($handle(&state, read(payload, context)?).await) }.boxed()
        })
    }};
}

/// The functions with an `App`, by binary name; `None` for another binary.
fn inside(binary: &str, app: &Arc<App>) -> Option<Program> {
    Some(match binary {
        "follow" => program!(app, tidemark_follow::handle),
        "publish" => program!(app, tidemark_publish::handle),
        "fan-out" => program!(app, tidemark_fan_out::handle),
        "read-feed" => program!(app, tidemark_read_feed::handle),
        "mark-read" => program!(app, tidemark_mark_read::handle),
        "notice" => program!(app, tidemark_notice::handle),
        "profile" => program!(app, tidemark_profile::handle),
        "projector" => program!(app, tidemark_projector::handle),
        "reconcile" => program!(app, tidemark_reconcile::handle),
        "migrate" => program!(app, tidemark_legacy::handle),
        "live" => program!(app, tidemark_live::handle),
        _ => return None,
    })
}

fn read<E: DeserializeOwned>(payload: Value, context: Context) -> Result<LambdaEvent<E>, InvokeError> {
    let event = serde_json::from_value(payload).map_err(|error| InvokeError::Shape(format!("unreadable event: {error}")))?;
    Ok(LambdaEvent::new(event, context))
}

fn written<R: Serialize>(response: Result<R, impl Into<Diagnostic>>) -> Result<Value, InvokeError> {
    let response = response.map_err(|error| {
        let Diagnostic { error_type: kind, error_message: message } = error.into();
        InvokeError::Failed { kind, message }
    })?;
    serde_json::to_value(response).map_err(|error| InvokeError::Shape(format!("unreadable result: {error}")))
}

/// The functions that have no `App`, because they run outside of the VPC; `None` for another binary.
async fn outside(binary: &str, environment: &BTreeMap<String, String>, metrics: MetricLines) -> Result<Option<Program>> {
    let lookup = |name: &str| environment.get(name).cloned();
    Ok(match binary {
        "live-sender" => {
            let settings = SenderSettings::from_lookup(lookup)?;
            let metrics = EmbeddedMetrics::new(settings.metrics_namespace.clone(), metrics);
            let sender = Arc::new(tidemark_live_sender::Sender::connect(settings, Arc::new(metrics)).await);
            Some(program!(&sender, tidemark_live_sender::handle))
        }
        "live-authorizer" => {
            let settings = AuthorizerSettings::from_lookup(lookup)?;
            let metrics = EmbeddedMetrics::new(settings.metrics_namespace.clone(), metrics);
            let authorizer = Arc::new(Authorizer::new(settings, Arc::new(SystemClock), Arc::new(metrics))?);
            Some(program!(&authorizer, tidemark_live_authorizer::handle))
        }
        _ => None,
    })
}

/// Receives the lines of a function's invocations.
type MetricLines = Box<dyn Fn(&str) + Send + Sync>;

pub(crate) struct InProcess {
    program: Program,
    app: Option<Arc<App>>,
    context: Context,
    timeout_seconds: u64,
    /// Invocations in flight, by request id.
    running: Mutex<HashMap<String, AbortHandle>>,
}

impl InProcess {
    /// Builds the function's state from its environment, as a cold start does. `lines` gets its lines.
    pub(crate) async fn start(
        function: &Function,
        environment: &BTreeMap<String, String>,
        lines: Option<Sender<String>>,
    ) -> Result<Self> {
        let named = || format!("function `{}` does not start", function.logical_id);
        let metrics = || -> MetricLines {
            let lines = lines.clone();
            Box::new(move |line: &str| match &lines {
                // The receiver may be gone: it need not outlive the stack.
                Some(lines) => drop(lines.send(line.to_owned())),
                None => tracing::debug!(line),
            })
        };
        let (program, app) = match outside(&function.binary, environment, metrics()).await.with_context(named)? {
            Some(program) => (program, None),
            None => {
                let settings = Settings::from_lookup(|name| environment.get(name).cloned()).with_context(named)?;
                let metrics = EmbeddedMetrics::new(settings.metrics_namespace.clone(), metrics());
                let app = Arc::new(App::connect_with(settings, Arc::new(metrics)).await.with_context(named)?);
                let program = inside(&function.binary, &app).with_context(|| {
                    format!("function `{}`: no handler is registered for the binary `{}`", function.logical_id, function.binary)
                })?;
                (program, Some(app))
            }
        };
        let mut config = Config::default();
        config.function_name.clone_from(&function.binary);
        config.memory = i32::try_from(function.memory_mib).unwrap_or(i32::MAX);
        "$LATEST".clone_into(&mut config.version);
        let mut context = Context::default();
        context.invoked_function_arn = function.arn();
        context.env_config = Arc::new(config);
        let timeout_seconds = function.timeout_seconds;
        Ok(Self { program, app, context, timeout_seconds, running: Mutex::default() })
    }
}

#[async_trait]
impl Runner for InProcess {
    async fn invoke(&self, request_id: &str, payload: Value) -> Result<Value, InvokeError> {
        let timeout = Duration::from_secs(self.timeout_seconds);
        let mut context = self.context.clone();
        request_id.clone_into(&mut context.request_id);
        context.deadline = clock::now_ms() + self.timeout_seconds * 1_000;
        // The invocation is a task of its own, so a panic ends only this invocation.
        let mut task = tokio::spawn((self.program)(payload, context));
        lock(&self.running).insert(request_id.to_owned(), task.abort_handle());
        let running = Running { runner: self, request_id };
        let ended = tokio::time::timeout(timeout, &mut task).await;
        drop(running);
        match ended {
            Ok(Ok(response)) => response,
            Ok(Err(error)) if error.is_cancelled() => Err(InvokeError::Exited("killed".to_owned())),
            Ok(Err(error)) => Err(InvokeError::Panicked(panic_text(error))),
            Err(_) => {
                task.abort();
                Err(InvokeError::TimedOut(self.timeout_seconds))
            }
        }
    }

    fn app(&self) -> Option<&App> {
        self.app.as_deref()
    }

    /// Drops the futures of the invocations in flight. Unlike with a killed process, tasks that they spawned continue.
    fn kill(&self) -> usize {
        let running: Vec<AbortHandle> = lock(&self.running).drain().map(|(_, task)| task).collect();
        running.iter().for_each(AbortHandle::abort);
        running.len()
    }
}

/// An invocation that can be killed. Dropping the value removes it from the list.
struct Running<'a> {
    runner: &'a InProcess,
    request_id: &'a str,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        lock(&self.runner.running).remove(self.request_id);
    }
}

fn panic_text(error: JoinError) -> String {
    let Ok(payload) = error.try_into_panic() else { return "cancelled".to_owned() };
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}

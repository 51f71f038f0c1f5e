//! Wiring of the `live-authorizer` function.

use std::sync::Arc;

use lambda_runtime::{Error, run, service_fn};
use tidemark::{AuthorizerSettings, SystemClock, telemetry};
use tidemark_live_authorizer::Authorizer;

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let settings = AuthorizerSettings::from_env()?;
    let metrics = telemetry::EmbeddedMetrics::to_stdout(settings.metrics_namespace.clone());
    let authorizer = Authorizer::new(settings, Arc::new(SystemClock), Arc::new(metrics))?;
    let authorizer = &authorizer;
    run(service_fn(move |event| tidemark_live_authorizer::handle(authorizer, event))).await
}

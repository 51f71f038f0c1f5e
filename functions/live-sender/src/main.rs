//! Wiring of the `live-sender` function.

use lambda_runtime::{Error, run, service_fn};
use tidemark::{SenderSettings, telemetry};
use tidemark_live_sender::Sender;

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let settings = SenderSettings::from_env()?;
    let metrics = telemetry::EmbeddedMetrics::to_stdout(settings.metrics_namespace.clone());
    let sender = Sender::connect(settings, std::sync::Arc::new(metrics)).await;
    let sender = &sender;
    run(service_fn(move |event| tidemark_live_sender::handle(sender, event))).await
}

//! Wiring of the `live` function.

use lambda_runtime::{Error, run, service_fn};
use tidemark::{App, Settings, telemetry};

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let app = App::connect(Settings::from_env()?).await?;
    let app = &app;
    run(service_fn(move |event| tidemark_live::handle(app, event))).await
}

//! Wiring of the `profile` function.

use lambda_runtime::{Error, run, service_fn};
use tidemark::{App, Settings, telemetry};

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let app = App::connect(Settings::from_env()?).await?;
    let app = &app;
    run(service_fn(move |event| tidemark_profile::handle(app, event))).await
}

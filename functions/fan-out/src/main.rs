//! Wiring of the `fan-out` function.

use lambda_runtime::Error;

#[tokio::main]
async fn main() -> Result<(), Error> {
    tidemark::run(tidemark_fan_out::handle).await
}

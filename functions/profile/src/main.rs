//! Wiring of the `profile` function.

use lambda_runtime::Error;

#[tokio::main]
async fn main() -> Result<(), Error> {
    tidemark::run(tidemark_profile::handle).await
}

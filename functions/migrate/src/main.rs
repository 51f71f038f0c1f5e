//! Wiring of the `migrate` function.

use lambda_runtime::Error;

#[tokio::main]
async fn main() -> Result<(), Error> {
    tidemark::run(tidemark_migrate::handle).await
}

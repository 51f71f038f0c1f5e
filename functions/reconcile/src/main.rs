//! Wiring of the `reconcile` function.

use lambda_runtime::Error;

#[tokio::main]
async fn main() -> Result<(), Error> {
    tidemark::run(tidemark_reconcile::handle).await
}

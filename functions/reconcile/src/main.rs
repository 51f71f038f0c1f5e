//! Wiring of the `reconcile` function.

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_reconcile::handle).await
}

//! Wiring of the `migrate` function.

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_migrate::handle).await
}

//! Wiring of the `publish` function.

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_publish::handle).await
}

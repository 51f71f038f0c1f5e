//! Wiring of the `live` function.

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_live::handle).await
}

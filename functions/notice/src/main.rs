//! Wiring of the `notice` function.

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_notice::handle).await
}

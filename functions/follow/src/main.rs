//! Wiring of the `follow` function.

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_follow::handle).await
}

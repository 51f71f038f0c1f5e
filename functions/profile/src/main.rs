//! Wiring of the `profile` function.

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_profile::handle).await
}

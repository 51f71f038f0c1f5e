//! Wiring of the `relation-projector` function.

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_relation_projector::handle).await
}

//! Wiring of the `relation-projector` function.

use lambda_runtime::Error;

#[tokio::main]
async fn main() -> Result<(), Error> {
    tidemark::run(tidemark_relation_projector::handle).await
}

//! Wiring of the `notice` function.

use lambda_runtime::Error;

#[tokio::main]
async fn main() -> Result<(), Error> {
    tidemark::run(tidemark_notice::handle).await
}

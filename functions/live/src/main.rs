//! Wiring of the `live` function.

use lambda_runtime::Error;

#[tokio::main]
async fn main() -> Result<(), Error> {
    tidemark::run(tidemark_live::handle).await
}

//! Wiring of the `read-feed` function.

use lambda_runtime::Error;

#[tokio::main]
async fn main() -> Result<(), Error> {
    tidemark::run(tidemark_read_feed::handle).await
}

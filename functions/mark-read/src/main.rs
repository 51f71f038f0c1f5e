//! Wiring of the `mark-read` function.

use lambda_runtime::Error;

#[tokio::main]
async fn main() -> Result<(), Error> {
    tidemark::run(tidemark_mark_read::handle).await
}

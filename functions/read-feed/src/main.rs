//! Wiring of the `read-feed` function.

fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_read_feed::handle)
}

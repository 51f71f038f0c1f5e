//! Wiring of the `mark-read` function.

fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_mark_read::handle)
}

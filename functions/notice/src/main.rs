//! Wiring of the `notice` function.

fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_notice::handle)
}

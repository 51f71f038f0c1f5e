//! Wiring of the `migrate` function.

fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_legacy::handle)
}

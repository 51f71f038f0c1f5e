//! Wiring of the `publish` function.

fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_publish::handle)
}

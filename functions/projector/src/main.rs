//! Wiring of the `projector` function.

fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_projector::handle)
}

//! Wiring of the `live` function.

fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_live::handle)
}

//! Wiring of the `profile` function.

fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_profile::handle)
}

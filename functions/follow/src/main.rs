//! Wiring of the `follow` function.

fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_follow::handle)
}

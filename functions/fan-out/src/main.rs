//! Wiring of the `fan-out` function.

fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_fan_out::handle)
}

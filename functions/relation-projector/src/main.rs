//! Wiring of the `relation-projector` function.

fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_relation_projector::handle)
}

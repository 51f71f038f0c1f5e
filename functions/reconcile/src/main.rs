//! Wiring of the `reconcile` function.

fn main() -> Result<(), lambda_runtime::Error> {
    tidemark::run(tidemark_reconcile::handle)
}

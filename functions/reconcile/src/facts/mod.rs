//! The facts as they are stored, whatever state they are in, and their repairs.

mod audit;
mod notices;
mod repairs;

use std::ops::Deref;

use tidemark_facts::DynamoFacts;

/// The facts, item by item.
#[derive(Debug, Clone)]
pub struct StoredFacts(pub DynamoFacts);

impl Deref for StoredFacts {
    type Target = DynamoFacts;

    fn deref(&self) -> &DynamoFacts {
        &self.0
    }
}

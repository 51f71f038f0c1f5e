//! The facts as they are stored, damaged ones included, and their repairs.

mod audit;
mod notices;
mod repairs;

use std::ops::Deref;

use tidemark_facts::DynamoFacts;

#[derive(Debug, Clone)]
pub struct StoredFacts(pub DynamoFacts);

impl Deref for StoredFacts {
    type Target = DynamoFacts;

    fn deref(&self) -> &DynamoFacts {
        &self.0
    }
}

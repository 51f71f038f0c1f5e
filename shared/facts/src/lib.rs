//! The facts in DynamoDB. [`schema`] describes the items.

pub mod counters;
pub mod decode;
mod draft;
mod dynamo;
pub mod edges;
mod erasures;
pub mod followers;
pub mod heads;
pub mod item;
mod lists;
mod lookup;
pub mod notices;
mod outage;
pub mod people;
pub mod post_items;
pub mod posts;
pub mod reactions;
pub mod reads;
mod records;
pub mod schema;
mod stream;
pub mod windows;
pub mod write;

use tidemark_app::ports::StoreError;

use decode::read;
pub use dynamo::{DynamoFacts, Limits, Tables, attempts, distinct, unavailable};
pub use stream::{edge_of_record, may_change_follow, post_of_record};

type Result<T, E = StoreError> = std::result::Result<T, E>;

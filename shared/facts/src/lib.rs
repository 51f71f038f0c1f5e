//! The facts in DynamoDB. [`schema`] describes the items.
//!
//! Calls of the SDK are boxed, because their futures are large, and so deep that the compiler refuses use cases of
//! them. The views and the queue do the same.

mod blocks;
pub mod comments;
pub mod counters;
pub mod decode;
pub mod edges;
mod erasures;
mod events;
pub mod followers;
pub mod heads;
pub mod imports;
mod inbox;
pub mod item;
mod lists;
mod lookup;
mod merge;
mod notice_edits;
pub mod notices;
mod outage;
pub mod people;
mod post_counts;
pub mod post_items;
pub mod posts;
pub mod reactions;
pub mod reads;
mod records;
pub mod reposts;
pub mod retry;
mod scans;
pub mod schema;
mod stream;
mod times;
mod units;
pub mod windows;
pub mod work;
pub mod write;

use aws_sdk_dynamodb::Client;
use futures::FutureExt;
use tidemark_domain::{Store, StoreError};

use decode::read;
use retry::Attempts;

pub use comments::{Placed, StoredComment};
pub use edges::{ChangeOfPair, Followed};
pub use erasures::Trace;
pub use imports::{Import, Imported, ImportedReaction};
pub use inbox::{StoredGroup, StoredInbox};
pub use notice_edits::{KeyedEdit, NoticesWritten};
pub use notices::{NoticesPublished, PlatformChange};
pub use people::ProfileSet;
pub use posts::{Deleted, Look, Published};
pub use records::Record;
pub use scans::{Identity, Rest, Segment};
pub use stream::{Change, EdgePart, Hiding, MalformedRecord, PostWrite, StreamRecord, group_of};
pub use times::PostTimes;
pub use units::CountUnits;

type Result<T, E = StoreError> = std::result::Result<T, E>;

/// The names of the tables. [`schema`] describes their items.
#[derive(Debug, Clone)]
pub struct Tables {
    pub following: String,
    pub followers: String,
    pub counters: String,
    pub posts: String,
    pub reads: String,
    pub notices: String,
    pub notice_reads: String,
    pub reactions: String,
    pub idempotency: String,
    pub migration: String,
    pub profiles: String,
    pub handles: String,
    pub identities: String,
    pub reacted: String,
    pub inbox: String,
}

impl Tables {
    /// The names that `name` returns for the variables of the environment that have them.
    pub fn named<E>(name: impl Fn(&'static str) -> Result<String, E>) -> Result<Self, E> {
        Ok(Self {
            following: name("FOLLOWING_TABLE")?,
            followers: name("FOLLOWERS_TABLE")?,
            counters: name("COUNTERS_TABLE")?,
            posts: name("POSTS_TABLE")?,
            reads: name("READS_TABLE")?,
            notices: name("NOTICES_TABLE")?,
            notice_reads: name("NOTICE_READS_TABLE")?,
            reactions: name("REACTIONS_TABLE")?,
            idempotency: name("IDEMPOTENCY_TABLE")?,
            migration: name("MIGRATION_TABLE")?,
            profiles: name("PROFILES_TABLE")?,
            handles: name("HANDLES_TABLE")?,
            identities: name("IDENTITIES_TABLE")?,
            reacted: name("REACTED_TABLE")?,
            inbox: name("INBOX_TABLE")?,
        })
    }

    /// Each table has the name of its field.
    #[cfg(test)]
    fn of_tests() -> Self {
        let Ok(tables) = Self::named(|variable| Ok::<_, std::convert::Infallible>(variable.replace("_TABLE", "").to_lowercase()));
        tables
    }
}

/// The store of the facts, on one DynamoDB client. Each file of this crate adds the methods for its tables.
#[derive(Debug, Clone)]
pub struct Facts {
    pub client: Client,
    pub tables: Tables,
    pub limits: Limits,
}

/// The shards of a list that one operation reads at the same time, a page of each in memory.
const SHARDS_AT_ONCE: usize = 4;

/// Limits that affect what is written.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum number of authors that a user may follow.
    pub following: u64,
    /// An author with this many followers or more is pulled.
    pub pull_threshold: u64,
}

/// Starts the attempts of an optimistic change: it may read, decide and write again for six seconds.
pub fn attempts(operation: &'static str) -> Attempts {
    Attempts::begin(operation, |time| tokio::time::sleep(time).boxed(), rand::random)
}

/// Sorts and removes duplicates. BatchGetItem refuses duplicate keys.
pub fn distinct<T: Ord + Copy>(ids: &[T]) -> Vec<T> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    ids
}

pub fn unavailable(operation: &'static str, error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Unavailable { store: Store::Facts, operation, source: Box::new(error) }
}

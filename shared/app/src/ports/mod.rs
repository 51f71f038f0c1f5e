//! The ports of the use cases: one trait for each capability of a store, the queue or the clock, with domain types.

mod erasures;
mod facts;
mod limits;
mod live;
mod metrics;
mod notices;
mod people;
mod posts;
mod readers;
mod relations;
mod tasks;

use tidemark_domain::Timestamp;

pub use crate::error::{Source, Store, StoreError};
pub use erasures::{ErasureViews, Erasures};
pub use facts::{
    AuthorLists, ChangeOfPair, CountsVersion, Deleted, Edges, Followed, IdempotencyKey, Look, Outages, Posts, Published, Reacted,
    Reactions, Reads,
};
pub use limits::{Budget, LimitViews, Spent};
pub use live::{ClaimedUpdate, Connection, LivePost, LiveQueue, LiveTask, LiveViews, Notified, Told, Watched};
pub use metrics::{Line, MOST_VALUES, Metric, Metrics, Property, Unit, Values};
pub use notices::{NoticeRecord, NoticeView, NoticeViews, Notices, NoticesPublished};
pub use people::{CardVersion, CardViews, Identities, IdentityViews, ProfileSet, Profiles};
pub use posts::{
    HeadViews, KnownAuthor, KnownPage, KnownPost, KnownReactions, KnownReader, Moved, PageParts, PostViews, ReactionViews,
};
pub use readers::{Begun, Delivered, Gate, Marks, Ranked, ReaderViews, Retracted, Seed, Seeded, View};
pub use relations::{List, ListSlice, RelationViews, Start};
pub use tasks::{Backlog, Failures, FanOut, FanOutKind, MovedPost, Progress, ProgressViews, Task, TaskQueue};

/// Returns the time. `clippy.toml` forbids `SystemTime::now` elsewhere.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

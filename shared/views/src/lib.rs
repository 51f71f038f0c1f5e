//! The views in Redis. They are derived from the facts and can be rebuilt at any time. A view that could be stale
//! carries the epoch, and a version where copies compete. The methods of [`Views`] say what each call guarantees, and
//! the header of each script in `lua/` says what it keeps.
//!
//! A *lease* is the right to fill one record of a view. Its *token* is a random number that names the holder. Methods
//! with `lease` in their names take leases of missing records before the facts are read. Those of heads, times, cards
//! and notices take no lease that another process has, and return those that they took. `fill_…` or `store_…` stores
//! facts if the caller still has the lease: a change or a loss of the record takes it away. `replace_…` replaces a
//! stored record with a later version, and takes the lease from a process that fills it. A missing record stays
//! missing. The next read fills it.

mod connection;
pub mod heads;
pub mod keys;
mod known;
mod library;
mod limits;
pub mod live;
pub mod notices;
pub mod people;
pub mod post_records;
pub mod posts;
mod progress;
mod reactions;
pub mod readers;
pub mod record;
pub mod relations;
mod users;
mod view;

use tidemark_domain::StoreError;

pub use connection::{Views, transaction};
pub use heads::KnownAuthor;
pub use known::{KnownFollow, KnownOriginals, KnownPage, KnownPost, KnownReader, PageParts};
use library::Function;
pub use limits::Spent;
pub use live::{ClaimedUpdate, NamedPlatform, Notified, Watched};
pub use notices::{NoticeRecord, NoticeView};
pub use people::CardVersion;
pub use posts::{Moved, NotedStep};
pub use progress::Progress;
pub use reactions::KnownReactions;
pub use readers::Marks;
pub use redis_link::{IamLogin, RedisOptions};
pub use relations::{Among, FOLLOWERS_CAP, List, ListSlice, Start};
pub use users::USERS_PER_CALL;
pub use view::{Begun, Delivered, Gate, NEWEST, Ranked, Rebuild, Seed, View};

type Result<T, E = StoreError> = std::result::Result<T, E>;

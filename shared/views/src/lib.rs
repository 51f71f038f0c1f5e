//! The views in Redis. They are derived from the facts and can be rebuilt at any time. A view that could be stale
//! carries the epoch, and a version where copies compete. The traits in `tidemark_app::ports` say what each call
//! guarantees, and the header of each script in `lua/` says what it keeps.

mod connection;
pub mod heads;
pub mod keys;
mod library;
mod limits;
pub mod live;
pub mod notices;
pub mod people;
pub mod posts;
mod progress;
mod reactions;
pub mod readers;
pub mod record;
pub mod relations;
mod users;

use tidemark_app::ports::StoreError;

pub use connection::{Redis, transaction};
use library::Function;
pub use redis_link::{IamLogin, RedisOptions};
pub use users::USERS_PER_CALL;

type Result<T, E = StoreError> = std::result::Result<T, E>;

//! Use cases.
//!
//! - [`Publishing`]: publish, edit and delete posts; reposts; likes and favorites.
//! - [`Commenting`]: comments on posts.
//! - [`Following`]: follows, mutes, blocks; lists of followed authors.
//! - [`Marking`]: marks posts read and unread.
//! - [`reader::Readers`]: feeds, timelines, single posts and unread counts; rebuilds of views.
//! - [`relations::Relations`]: lists of followers and followed authors, and counters.
//! - [`notices::NoticeBoard`]: notices and their read states.
//! - [`Inboxes`]: groups of acts of others, their counts and read states.
//! - [`People`], [`Callers`]: profiles and handles; user ids of claims.
//! - [`AccessCheck`]: limits, and users who have left; `tidemark-http` asks it for each request.
//! - [`Leaving`]: export and erasure.
//! - [`fan_out::FanOuts`]: deliveries and retractions.
//! - [`Worker`]: the tasks of the queue.
//! - [`project::Projector`]: the changes of the streams.
//! - [`EventsOut`]: the events of these changes, for others.
//! - [`Live`]: messages to live connections.
//!
//! A use case that changes something fails if the facts fail, or if neither the views nor the queue accept the change.
//! If it changes several facts, some of them may then be changed. Two differ: a publish succeeds although its pages
//! cannot be sent, and reconcile sends them. A reaction also fails if its `rank` task cannot be sent.
//!
//! `degraded` in a result says that Redis was unavailable, or that the outage note stood ([`outage`]), and that the
//! result comes from the facts. Relations and delivery statuses set it after any error of Redis. In the result of a
//! mark, it says that the view did not accept the mark, and that the projector updates it.
//!
//! What they share:
//! - [`Stores`]: the facts, the views, the queues, the clock and the recorder. [`tidemark_domain::StoreError`] is the
//!   one error of all stores.
//! - [`ViewSync`]: updates views after a change of facts, or leaves the update to the projector.
//! - [`outage`]: leaves changes that Redis does not accept to the projector, and notes among the facts that views are
//!   stale until then.
//! - [`once`]: requests with an idempotency key.
//! - [`Recorder`]: collects the values of [`metrics::Metric`]s.
//!
//! A use case has what it calls, in private fields. It is built by `new`, and `App` builds them all.

/// Returns the value of a result; logs an error that must not fail the caller. Fields come after the message.
macro_rules! logged {
    ($result:expr, $message:literal $(, $($field:tt)+)?) => {
        match $result {
            Ok(value) => Some(value),
            Err(error) => {
                ::tracing::warn!($($($field)+,)? error = &error as &dyn std::error::Error, $message);
                None
            }
        }
    };
}

mod clock;
mod commenting;
mod events;
pub mod fan_out;
mod following;
mod inbox;
mod leaving;
mod limits;
mod live;
mod marking;
pub mod metrics;
pub mod notices;
pub mod once;
pub mod outage;
mod people;
pub mod project;
mod publishing;
pub mod reader;
mod recorder;
pub mod relations;
mod stores;
mod view_sync;
mod worker;

use futures::{StreamExt, future::BoxFuture, stream};
use tidemark_domain::Relation;

pub use clock::Clock;
pub use commenting::{Commenting, CommentsPage, Withdrawn};
pub use events::{EventsOut, PendingEvent};
pub use following::{Following, Hide, Hiding, MOST_HIDDEN, Membership};
pub use inbox::{InboxPage, Inboxes};
pub use leaving::{Exported, Leaving, Place, Resumed};
pub use limits::{AccessCheck, Denied, ErasedCallers, OverLimit, PerMinute, Price};
pub use live::Live;
pub use marking::{MarkForm, MarkedPost, MarkedPosts, Marking};
pub use people::{Callers, Cards, People};
pub use publishing::{PostChange, PostDelivery, Publishing, Reposting};
pub use recorder::{Invocation, Recorder};
pub use stores::Stores;
pub use tidemark_facts::work;
pub use view_sync::ViewSync;
pub use worker::Worker;

/// Returns whether the time of a piece of work is over. The work then stops, and leaves the rest to a later run.
pub type OutOfTime<'a> = &'a (dyn Fn() -> bool + Sync);

/// The number of authors, readers or posts that one request or task reads or changes in parallel.
const PARALLEL: usize = 16;

/// Runs all to their end, in any order, so that no failure interrupts another between its fact and the view.
async fn in_parallel<T>(futures: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    stream::iter(futures).buffer_unordered(PARALLEL).collect().await
}

/// Cuts a list, of which one item more was read, at the end of a page. Returns the last item if there are more.
pub fn cut<T: Clone>(items: &mut Vec<T>, limit: usize) -> Option<T> {
    let more = items.len() > limit;
    items.truncate(limit);
    items.last().filter(|_| more).cloned()
}

/// Returns the relations below `below`, newest first.
fn newest_first(relations: impl Iterator<Item = Relation>, below: Option<Relation>) -> Vec<Relation> {
    let mut relations: Vec<Relation> = relations.filter(|relation| below.is_none_or(|below| *relation < below)).collect();
    relations.sort_unstable_by(|a, b| b.cmp(a));
    relations
}

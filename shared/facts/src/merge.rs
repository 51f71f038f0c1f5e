//! Lists of users by time, merged from 16 shards.

use std::collections::VecDeque;

use futures::future::{BoxFuture, try_join_all};
use tidemark_domain::{Relation, ids::SHARDS};

use super::Result;

/// The maximum number of entries in one load of one shard.
const LOAD: usize = 1_000;

/// Entries of one shard, newest first.
pub(crate) struct Part {
    pub(crate) entries: VecDeque<Relation>,
    /// Whether the shard has no entries below these.
    pub(crate) is_last: bool,
}

/// The state of one shard in the merge.
struct Lane {
    shard: u16,
    before: Option<Relation>,
    loaded: Part,
}

/// Returns at most `limit` entries of all shards below `before`, newest first. `load` returns at most so many entries
/// of a shard below a place.
pub(crate) async fn merged<'a>(
    before: Option<Relation>,
    limit: usize,
    load: impl Fn(u16, Option<Relation>, i32) -> BoxFuture<'a, Result<Part>>,
) -> Result<Vec<Relation>> {
    let nothing = || Part { entries: VecDeque::new(), is_last: false };
    let mut lanes: Vec<Lane> = (0..SHARDS).map(|shard| Lane { shard, before, loaded: nothing() }).collect();
    // Users spread evenly over the shards: a sixteenth of the page and some more is usually enough from each.
    let some = (limit / usize::from(SHARDS) * 3 / 2 + 8).min(limit).min(LOAD);
    let some = i32::try_from(some).unwrap_or(i32::MAX);
    let mut relations = Vec::new();
    while relations.len() < limit {
        let empty = lanes.iter_mut().filter(|lane| lane.loaded.entries.is_empty() && !lane.loaded.is_last);
        let mut empty: Vec<&mut Lane> = empty.collect();
        let parts = try_join_all(empty.iter().map(|lane| load(lane.shard, lane.before, some))).await?;
        for (lane, part) in empty.iter_mut().zip(parts) {
            lane.before = part.entries.back().copied().or(lane.before);
            lane.loaded = part;
        }
        let newest = lanes.iter_mut().max_by_key(|lane| lane.loaded.entries.front().copied());
        let Some(newest) = newest.and_then(|lane| lane.loaded.entries.pop_front()) else { break };
        relations.push(newest);
    }
    Ok(relations)
}

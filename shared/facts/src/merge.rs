//! Lists that lie in several partitions, as one list.

use std::collections::VecDeque;

use futures::future::{BoxFuture, try_join_all};

use super::Result;

/// The maximum number of entries in one load of one partition.
const LOAD: usize = 1_000;

/// Entries of one partition, each with its place, the greatest first.
pub(crate) struct Part<P, E> {
    pub(crate) entries: VecDeque<(P, E)>,
    /// Whether the partition has no entries below these.
    pub(crate) is_last: bool,
}

/// The state of one partition in the merge.
struct Lane<P, E> {
    partition: String,
    before: Option<P>,
    loaded: Part<P, E>,
}

/// Returns at most `limit` entries of all partitions below `before`, the greatest place first. `load` returns at most
/// so many entries of a partition below a place.
pub(crate) async fn merged<'a, P: Ord + Copy, E>(
    partitions: impl IntoIterator<Item = String>,
    before: Option<P>,
    limit: usize,
    load: impl Fn(&str, Option<P>, i32) -> BoxFuture<'a, Result<Part<P, E>>>,
) -> Result<Vec<E>> {
    let lane = |partition| Lane { partition, before, loaded: Part { entries: VecDeque::new(), is_last: false } };
    let mut lanes: Vec<Lane<P, E>> = partitions.into_iter().map(lane).collect();
    // Users spread evenly over the shards: a sixteenth of the page and some more is usually enough from each.
    let some = (limit / lanes.len().max(1) * 3 / 2 + 8).min(limit).min(LOAD);
    let some = i32::try_from(some).unwrap_or(i32::MAX);
    let mut merged = Vec::new();
    while merged.len() < limit {
        let empty = lanes.iter_mut().filter(|lane| lane.loaded.entries.is_empty() && !lane.loaded.is_last);
        let mut empty: Vec<&mut Lane<P, E>> = empty.collect();
        let parts = try_join_all(empty.iter().map(|lane| load(&lane.partition, lane.before, some))).await?;
        for (lane, part) in empty.iter_mut().zip(parts) {
            lane.before = part.entries.back().map(|(place, _)| *place).or(lane.before);
            lane.loaded = part;
        }
        let newest = lanes.iter_mut().max_by_key(|lane| lane.loaded.entries.front().map(|(place, _)| *place));
        let Some((_, entry)) = newest.and_then(|lane| lane.loaded.entries.pop_front()) else { break };
        merged.push(entry);
    }
    Ok(merged)
}

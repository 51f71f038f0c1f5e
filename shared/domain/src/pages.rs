//! Divides an author's followers into pages for the fan-out.

use std::ops::Range;

use super::ids::{BUCKETS, SHARDS};

/// The number of followers that a page should have.
pub(crate) const PAGE_FOLLOWERS: u64 = 1_000;

/// Up to this many pages, publish sends the batches itself. For more, it sends tasks that list the pages.
pub const INLINE_PAGES: u16 = 5;

/// Returns the number of pages for this many followers: at least one, at most one for each bucket.
///
/// A page is a fixed range of buckets, so its identity does not depend on follows in the meantime. If two workers list
/// a page at two times, both results are valid. Its bit in the progress means that the whole range was handled.
pub fn page_count(followers: u64) -> u16 {
    u16::try_from(followers.div_ceil(PAGE_FOLLOWERS)).unwrap_or(BUCKETS).clamp(1, BUCKETS)
}

/// Returns the buckets of page `page` of `count`.
pub fn page_buckets(page: u16, count: u16) -> Range<u16> {
    let bound = |page: u16| (u32::from(page) * u32::from(BUCKETS) / u32::from(count.max(1))) as u16;
    bound(page)..bound(page + 1)
}

/// Splits the pages of `count` into ranges for parallel tasks, at most one for each shard and none empty.
pub fn page_tasks(count: u16) -> Vec<Range<u16>> {
    let tasks = count.min(SHARDS);
    let bound = |task: u16| (u32::from(task) * u32::from(count) / u32::from(tasks)) as u16;
    (0..tasks).map(|task| bound(task)..bound(task + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_cover_every_bucket_once_for_every_count() {
        for count in 1..=BUCKETS {
            let mut next = 0;
            for page in 0..count {
                let buckets = page_buckets(page, count);
                assert_eq!(buckets.start, next);
                assert!(!buckets.is_empty());
                next = buckets.end;
            }
            assert_eq!(next, BUCKETS);
        }
    }

    #[test]
    fn page_tasks_cover_every_page_once() {
        for count in [1, 2, 6, 15, 16, 17, 1000, BUCKETS] {
            let pages: Vec<u16> = page_tasks(count).into_iter().flatten().collect();
            assert_eq!(pages, (0..count).collect::<Vec<_>>());
        }
        assert_eq!(page_tasks(4096).len(), 16);
    }

    #[test]
    fn a_page_holds_about_a_thousand_followers() {
        assert_eq!([0, 1_000, 1_001, 1_000_000, 30_000_000].map(page_count), [1, 1, 2, 1_000, BUCKETS]);
    }
}

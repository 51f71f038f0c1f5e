//! First pages of the lists that are read most, in memory for a moment: a hot list is one hot key in Redis.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use moka::sync::Cache;

use super::RelationPage;
use crate::ports::List;

/// The maximum number of pages in memory, and of lists whose requests are counted.
const KEPT: u64 = 10_000;

/// How long a page stays in memory, and how long requests are counted.
const LIFETIME: Duration = Duration::from_secs(1);

/// A list is hot after this many requests within `LIFETIME`. Other lists are read from Redis at every request.
const HOT: u32 = 20;

/// A list and the size of its first page.
type Key = (List, usize);

/// First pages of hot lists. Their number is bounded.
#[derive(Clone)]
pub struct FirstPages {
    pages: Cache<Key, RelationPage>,
    requests: Cache<Key, Arc<AtomicU32>>,
}

impl Default for FirstPages {
    fn default() -> Self {
        Self {
            pages: Cache::builder().max_capacity(KEPT).time_to_live(LIFETIME).build(),
            requests: Cache::builder().max_capacity(KEPT).time_to_live(LIFETIME).build(),
        }
    }
}

impl FirstPages {
    /// Counts one request. Returns whether the list is hot.
    pub(super) fn is_hot(&self, list: List, limit: usize) -> bool {
        let requests = self.requests.get_with((list, limit), Arc::default);
        requests.fetch_add(1, Ordering::Relaxed) >= HOT
    }

    pub(super) fn get(&self, list: List, limit: usize) -> Option<RelationPage> {
        self.pages.get(&(list, limit))
    }

    pub(super) fn put(&self, list: List, limit: usize, page: RelationPage) {
        self.pages.insert((list, limit), page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_domain::UserId;

    #[test]
    fn a_list_is_hot_only_if_it_is_read_often() {
        let (pages, list) = (FirstPages::default(), List::Fans(UserId::MIN));
        assert!((0..HOT).all(|_| !pages.is_hot(list, 20)));
        assert!(pages.is_hot(list, 20));
        assert!(!pages.is_hot(list, 21) && !pages.is_hot(List::Following(UserId::MIN), 20));
    }
}

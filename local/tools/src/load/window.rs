//! A bounded window over the edge file. Requests are taken from it: each has one follower, a follower's requests go
//! one after another in the file's order, and requests of different followers are concurrent.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::edges::Edge;

/// The largest number of authors in a `POST /v1/following`.
pub const BATCH: usize = 50;

/// Edges that were read and not yet sent.
#[derive(Debug, Default)]
pub(crate) struct Window {
    capacity: usize,
    edges: usize,
    waiting: HashMap<u64, VecDeque<Vec<u64>>>,
    /// Followers with a waiting batch and none in flight, oldest first.
    ready: VecDeque<u64>,
    in_flight: HashSet<u64>,
}

impl Window {
    /// An empty window for this number of edges.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// The number of waiting edges.
    pub(crate) fn len(&self) -> usize {
        self.edges
    }

    /// Returns true if the window is full.
    pub(crate) fn is_full(&self) -> bool {
        self.edges >= self.capacity
    }

    /// Adds an edge to its follower's last batch. Returns false and drops the edge if this batch has it already.
    pub(crate) fn push(&mut self, edge: Edge) -> bool {
        let batches = self.waiting.entry(edge.follower).or_default();
        if batches.is_empty() && !self.in_flight.contains(&edge.follower) {
            self.ready.push_back(edge.follower);
        }
        match batches.back_mut() {
            Some(last) if last.contains(&edge.author) => return false,
            Some(last) if last.len() < BATCH => last.push(edge.author),
            _ => batches.push_back(vec![edge.author]),
        }
        self.edges += 1;
        true
    }

    /// Takes a follower without a batch in flight, and the next batch: at most [`BATCH`] authors in the file's order,
    /// each once. [`Window::release`] frees the follower again.
    pub(crate) fn take(&mut self) -> Option<(u64, Vec<u64>)> {
        let follower = self.ready.pop_front()?;
        let batches = self.waiting.get_mut(&follower)?;
        let authors = batches.pop_front()?;
        if batches.is_empty() {
            self.waiting.remove(&follower);
        }
        self.edges -= authors.len();
        self.in_flight.insert(follower);
        Some((follower, authors))
    }

    /// Frees a follower after the response to its batch.
    pub(crate) fn release(&mut self, follower: u64) {
        if self.in_flight.remove(&follower) && self.waiting.contains_key(&follower) {
            self.ready.push_back(follower);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(window: &mut Window, edges: impl IntoIterator<Item = (u64, u64)>) -> bool {
        edges.into_iter().all(|(follower, author)| window.push(Edge { follower, author }))
    }

    fn window(edges: impl IntoIterator<Item = (u64, u64)>) -> Window {
        let mut window = Window::new(1_000);
        assert!(push(&mut window, edges));
        window
    }

    fn batch(follower: u64, authors: impl IntoIterator<Item = u64>) -> Option<(u64, Vec<u64>)> {
        Some((follower, authors.into_iter().collect()))
    }

    #[test]
    fn consecutive_lines_of_one_follower_make_batches_of_fifty() {
        let mut window = window((1..=120).map(|author| (9_000, author)));
        for expected in [1..=50, 51..=100, 101..=120] {
            assert_eq!(window.take(), batch(9_000, expected));
            window.release(9_000);
        }
        assert_eq!(window.len(), 0);
        assert_eq!(window.take(), None);
    }

    #[test]
    fn a_follower_has_one_request_in_flight() {
        let mut window = window((1..=60).map(|author| (7, author)).chain([(8, 1)]));
        assert_eq!(window.take(), batch(7, 1..=50));
        assert_eq!(window.take(), batch(8, [1]));
        assert_eq!(window.take(), None);
        window.release(7);
        assert_eq!(window.take(), batch(7, 51..=60));
    }

    #[test]
    fn edges_that_arrive_while_the_follower_is_in_flight_wait_in_order() {
        let mut window = window([(7, 1)]);
        assert_eq!(window.take(), batch(7, [1]));
        assert!(push(&mut window, [(7, 2), (7, 3)]));
        assert_eq!(window.take(), None);
        window.release(7);
        assert_eq!(window.take(), batch(7, [2, 3]));
        window.release(7);
        assert_eq!(window.take(), None);
    }

    #[test]
    fn scattered_lines_of_one_follower_share_a_batch_without_repeated_ones() {
        let mut window = window([(7, 1), (8, 1), (7, 2), (8, 2)]);
        assert!(!push(&mut window, [(7, 1)]));
        assert_eq!(window.len(), 4);
        assert_eq!(window.take(), batch(7, [1, 2]));
        assert_eq!(window.take(), batch(8, [1, 2]));
    }

    #[test]
    fn the_window_is_bounded() {
        let mut window = Window::new(2);
        push(&mut window, [(7, 1)]);
        assert!(!window.is_full());
        push(&mut window, [(8, 1)]);
        assert!(window.is_full());
        window.take();
        assert!(!window.is_full());
    }
}

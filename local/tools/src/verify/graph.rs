//! The follow graph, computed from the edge file alone.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crate::{
    edges::{Edge, EdgeReader},
    text::largest,
};

/// The documented limit of followees.
pub const FOLLOWING_LIMIT: usize = 500;

/// The follows after a load of the file: for each follower, the first 500 distinct authors in the file's order, without
/// the follower.
#[derive(Debug, Default)]
pub struct Graph {
    following: BTreeMap<u64, Vec<u64>>,
    followers: HashMap<u64, u64>,
    pub edges: u64,
    /// The number of lines beyond the limit.
    pub over_limit: u64,
}

impl Graph {
    /// Reads the lines that the load read.
    pub fn read(path: &Path, limit: Option<u64>) -> anyhow::Result<Self> {
        let mut edges = EdgeReader::open(path, limit)?;
        let mut graph = Self::default();
        while let Some(edge) = edges.next_edge()? {
            graph.add(edge);
        }
        Ok(graph)
    }

    fn add(&mut self, Edge { follower, author }: Edge) {
        if follower == author {
            return;
        }
        let following = self.following.entry(follower).or_default();
        if following.contains(&author) {
            return;
        }
        if following.len() >= FOLLOWING_LIMIT {
            self.over_limit += 1;
            return;
        }
        following.push(author);
        *self.followers.entry(author).or_default() += 1;
        self.edges += 1;
    }

    /// All followers in ascending order.
    pub fn readers(&self) -> Vec<u64> {
        self.following.keys().copied().collect()
    }

    /// The authors that a reader follows.
    pub fn following(&self, reader: u64) -> &[u64] {
        self.following.get(&reader).map(Vec::as_slice).unwrap_or_default()
    }

    pub fn followers(&self, author: u64) -> u64 {
        self.followers.get(&author).copied().unwrap_or(0)
    }

    /// The most followed accounts, most followers first, equal counts by id.
    pub(crate) fn most_followed(&self, count: usize) -> Vec<u64> {
        largest(&self.followers, count).into_iter().map(|(author, _)| author).collect()
    }

    /// The same of the accounts that follow others.
    pub(crate) fn most_followed_readers(&self, count: usize) -> Vec<u64> {
        let readers = self.followers.iter().filter(|(user, _)| self.following.contains_key(user));
        let readers = readers.map(|(user, followers)| (*user, *followers)).collect();
        largest(&readers, count).into_iter().map(|(reader, _)| reader).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: impl IntoIterator<Item = (u64, u64)>) -> Graph {
        let mut graph = Graph::default();
        for (follower, author) in edges {
            graph.add(Edge { follower, author });
        }
        graph
    }

    #[test]
    fn the_first_five_hundred_distinct_authors_other_than_oneself_are_kept() {
        let wanted = [9_000].into_iter().chain((1..=3).flat_map(|_| 1..=400)).chain(401..=600);
        let graph = graph(wanted.map(|author| (9_000, author)));
        assert_eq!(graph.following(9_000), (1..=500).collect::<Vec<u64>>());
        assert_eq!((graph.edges, graph.over_limit), (500, 100));
        assert_eq!((graph.followers(500), graph.followers(501)), (1, 0));
    }

    #[test]
    fn the_most_followed_come_first_and_equals_by_id() {
        let graph = graph([(1, 10), (2, 10), (1, 30), (2, 20), (3, 20), (3, 10)]);
        assert_eq!(graph.most_followed(2), [10, 20]);
        assert_eq!(graph.most_followed(9), [10, 20, 30]);
        assert!(graph.most_followed_readers(9).is_empty());
        assert_eq!(graph.readers(), [1, 2, 3]);
    }
}

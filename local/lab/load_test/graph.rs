//! The follow graph: the numbers of followers are a power law, as docs/scale.md has it, and followers are random users.

use rand::{Rng, SeedableRng, rngs::StdRng, seq::index};
use tidemark::domain::UserId;

use super::followers::Followers;

/// The exponent, and the most followers as a share of the users (docs/scale.md).
const EXPONENT: f64 = 2.276;
const MOST_FOLLOWED: f64 = 0.3;

/// Users 1, 2, 3, … in the falling order of their followers. The same seed gives the same graph.
#[derive(Debug, Clone)]
pub(crate) struct Graph {
    seed: u64,
    /// The followers of the users up to each one, added up.
    sums: Vec<u64>,
}

impl Graph {
    /// A graph in which a user follows `following` others on average.
    pub(crate) fn new(users: u32, following: f64, seed: u64) -> Self {
        let law = Followers::with_mean(following, EXPONENT, f64::from(users) * MOST_FOLLOWED);
        let mut random = StdRng::seed_from_u64(seed);
        let mut sum = 0;
        let sums = (0..users).map(|rank| {
            let followers = law.quantile(1.0 - (f64::from(rank) + 0.5) / f64::from(users));
            // Rounded at random, so that the average stays what it is.
            sum += ((followers + random.random::<f64>()) as u64).min(u64::from(users) - 1);
            sum
        });
        Self { seed, sums: sums.collect() }
    }

    pub(crate) fn users(&self) -> u32 {
        self.sums.len() as u32
    }

    /// The number of all follows.
    pub(crate) fn edges(&self) -> u64 {
        self.sums.last().copied().unwrap_or(0)
    }

    /// The number of followers of a user.
    pub(crate) fn count(&self, user: u32) -> u64 {
        let index = user as usize - 1;
        self.sums[index] - if index == 0 { 0 } else { self.sums[index - 1] }
    }

    /// The followers of a user: different users, and not the user.
    pub(crate) fn followers(&self, user: u32) -> Vec<u32> {
        let mut random = StdRng::seed_from_u64(self.seed ^ (u64::from(user) << 20));
        let others = index::sample(&mut random, self.sums.len() - 1, self.count(user) as usize);
        others.into_iter().map(|other| other as u32 + 1).map(|other| if other >= user { other + 1 } else { other }).collect()
    }

    /// A user as a random follow finds one: twice as often with twice as many followers.
    pub(crate) fn followed(&self, random: &mut impl Rng) -> u32 {
        let place = random.random_range(0..self.edges().max(1));
        self.sums.partition_point(|sum| *sum <= place) as u32 + 1
    }
}

/// The id of a user.
pub(crate) fn id(user: u32) -> UserId {
    UserId::new(user.into()).unwrap_or(UserId::MIN)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn follows_have_the_average_and_the_exponent_of_the_model() {
        let graph = Graph::new(100_000, 20.0, 7);
        assert!((graph.edges() as f64 / 2e6 - 1.0).abs() < 0.02, "{}", graph.edges());
        assert!((1..=30_000).contains(&graph.count(1)) && graph.count(1) > 5_000, "{}", graph.count(1));
        // The maximum likelihood exponent of the users with at least 50 followers.
        let (mut logs, mut many) = (0.0, 0.0);
        for count in (1..=graph.users()).map(|user| graph.count(user) as f64).filter(|count| *count >= 50.0) {
            logs += (count / 49.5).ln();
            many += 1.0;
        }
        let exponent = 1.0 + many / logs;
        assert!((exponent - EXPONENT).abs() < 0.1, "{exponent}");
        assert!((2..=graph.users()).all(|user| graph.count(user) <= graph.count(user - 1) + 1));
    }

    #[test]
    fn followers_are_different_users_and_the_same_each_time() {
        let graph = Graph::new(500, 20.0, 1);
        for user in [1, 2, 250, 500] {
            let followers = graph.followers(user);
            assert_eq!(followers, graph.followers(user));
            assert_eq!(followers.len() as u64, graph.count(user));
            assert!(followers.iter().all(|follower| *follower != user && (1..=500).contains(follower)));
            assert_eq!(followers.iter().collect::<HashSet<_>>().len(), followers.len());
        }
    }

    #[test]
    fn a_random_follow_finds_users_by_their_followers() {
        let graph = Graph::new(1_000, 10.0, 3);
        let mut random = StdRng::seed_from_u64(1);
        let found = (0..100_000).filter(|_| graph.followed(&mut random) == 1).count() as f64 / 1e5;
        let share = graph.count(1) as f64 / graph.edges() as f64;
        assert!((found / share - 1.0).abs() < 0.1, "{found} {share}");
    }
}

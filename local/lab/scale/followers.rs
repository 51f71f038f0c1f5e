//! The numbers of followers of authors: a power law between a least and a most number.

/// The power law. The share of authors with more than n followers falls with n to the power of -`tail`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Followers {
    tail: f64,
    least: f64,
    most: f64,
}

/// Parts of the distribution that [`Followers::average`] adds up.
const PARTS: usize = 2_000;

impl Followers {
    /// The power law whose average is `mean`. The least number follows from the others.
    pub(crate) fn with_mean(mean: f64, exponent: f64, most: f64) -> Self {
        let of = |least| Self { tail: exponent - 1.0, least, most };
        let (mut low, mut high) = (mean * 1e-6, mean.min(most));
        for _ in 0..100 {
            let middle = f64::midpoint(low, high);
            if of(middle).mean() < mean { low = middle } else { high = middle }
        }
        of(low)
    }

    fn mean(&self) -> f64 {
        let Self { tail, least, most } = *self;
        let scale = least.powf(tail) / (1.0 - (least / most).powf(tail));
        scale * tail / (tail - 1.0) * (least.powf(1.0 - tail) - most.powf(1.0 - tail))
    }

    /// The number of followers that a share of `below` of the authors does not exceed.
    pub(crate) fn quantile(&self, below: f64) -> f64 {
        let cut = 1.0 - (self.least / self.most).powf(self.tail);
        (self.least * (1.0 - below * cut).powf(-1.0 / self.tail)).min(self.most)
    }

    fn share_below(&self, followers: f64) -> f64 {
        (1.0 - (self.least / followers).powf(self.tail)) / (1.0 - (self.least / self.most).powf(self.tail))
    }

    /// The average of `value` over all authors.
    pub(crate) fn average(&self, value: impl Fn(f64) -> f64) -> f64 {
        let step = (self.most / self.least).ln() / PARTS as f64;
        let edge = |part: usize| self.least * (part as f64 * step).exp();
        let part = |part: usize| {
            let (from, to) = (edge(part), edge(part + 1));
            value((from * to).sqrt()) * (self.share_below(to) - self.share_below(from))
        };
        (0..PARTS).map(part).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_follow_has_one_follower() {
        for users in [1e5, 1e7, 1e9] {
            let followers = Followers::with_mean(100.0, 2.276, users * 0.3);
            assert!((followers.mean() / 100.0 - 1.0).abs() < 1e-6);
            assert!((followers.average(|n| n) / 100.0 - 1.0).abs() < 1e-3, "followers and follows are the same edges");
            assert!((followers.average(|_| 1.0) - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn quantiles_and_shares_are_inverse() {
        let followers = Followers::with_mean(100.0, 2.276, 3e8);
        for share in [0.0, 0.5, 0.99, 1.0 - 1e-6] {
            assert!((followers.share_below(followers.quantile(share)) - share).abs() < 1e-9);
        }
        assert_eq!(followers.quantile(1.0), 3e8);
    }
}

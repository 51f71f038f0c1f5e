//! One master of Redis: a thread that runs commands in the order of their arrival.

use rand::rngs::StdRng;
use rand_distr::{Distribution, Exp};

/// The share of its time that a master may be busy with bulk work (decision 24).
pub(crate) const BUSY: f64 = 0.72;

/// Requests of readers that reach a master at random moments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Background {
    /// Requests a second, at one master.
    pub(crate) rate: f64,
    /// Seconds of the server for each.
    pub(crate) seconds: f64,
}

/// A master. Times are seconds since the start.
#[derive(Debug, Clone)]
pub(crate) struct Master {
    free_at: f64,
    /// The time at which the next bulk work may begin.
    turn: f64,
    arrivals: Option<(Exp<f64>, f64)>,
    next: f64,
    /// Seconds of all calls until now.
    work: f64,
}

impl Master {
    pub(crate) fn new(background: Background, random: &mut StdRng) -> Self {
        let arrivals = Exp::new(background.rate).ok().filter(|_| background.rate > 0.0).map(|gap| (gap, background.seconds));
        let next = arrivals.map_or(f64::INFINITY, |(gap, _)| gap.sample(random));
        Self { free_at: 0.0, turn: 0.0, arrivals, next, work: 0.0 }
    }

    /// Runs the readers' requests that arrive until `now`, and notes how long each waits.
    pub(crate) fn advance(&mut self, now: f64, random: &mut StdRng, waits: &mut Vec<f64>) {
        let Some((gap, seconds)) = self.arrivals else { return };
        while self.next <= now {
            let arrived = self.next;
            waits.push((self.free_at - arrived).max(0.0));
            self.run(arrived, seconds);
            self.next += gap.sample(random);
        }
    }

    /// Runs a call that arrives now. Returns when it is done. Call [`advance`](Self::advance) first.
    pub(crate) fn run(&mut self, now: f64, seconds: f64) -> f64 {
        self.free_at = self.free_at.max(now) + seconds;
        self.work += seconds;
        self.free_at
    }

    /// Notes that a call of bulk work arrives now. Returns until when its process rests.
    pub(crate) fn take_turn(&mut self, now: f64, seconds: f64) -> f64 {
        self.turn = self.turn.max(now) + seconds / BUSY;
        self.turn
    }

    /// Seconds until `now` in which the thread was busy.
    pub(crate) fn busy(&self, now: f64) -> f64 {
        self.work - (self.free_at - now).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    /// The mean wait of an M/D/1 queue is ρ s / 2 (1 - ρ).
    #[test]
    fn readers_wait_as_long_as_in_an_m_d_1_queue() {
        for load in [0.3, 0.6, 0.9] {
            let (mut random, mut waits) = (StdRng::seed_from_u64(1), Vec::new());
            let seconds = 1e-3;
            let mut master = Master::new(Background { rate: load / seconds, seconds }, &mut random);
            master.advance(2_000.0, &mut random, &mut waits);
            let mean = waits.iter().sum::<f64>() / waits.len() as f64;
            let expected = load * seconds / 2.0 / (1.0 - load);
            assert!((mean / expected - 1.0).abs() < 0.05, "{load}: {mean} instead of {expected}");
            assert!((master.busy(2_000.0) / 2_000.0 / load - 1.0).abs() < 0.01);
        }
    }

    /// Eight processes, each of which begins a call when its rest ends.
    #[test]
    fn bulk_work_leaves_a_part_of_the_time_to_readers() {
        let (mut random, mut waits, seconds) = (StdRng::seed_from_u64(1), Vec::new(), 2e-4);
        let mut master = Master::new(Background { rate: 1_000.0, seconds: 1e-6 }, &mut random);
        let mut next = [0.0_f64; 8];
        while let Some(begin) = next.iter_mut().min_by(|a, b| a.total_cmp(b)).filter(|begin| **begin < 10.0) {
            master.advance(*begin, &mut random, &mut waits);
            *begin = master.run(*begin, seconds).max(master.take_turn(*begin, seconds));
        }
        assert!((master.busy(10.0) / 10.0 / BUSY - 1.0).abs() < 0.02, "{}", master.busy(10.0));
        waits.sort_unstable_by(f64::total_cmp);
        assert!(waits[waits.len() * 99 / 100] < 8.0 * seconds);
    }

    #[test]
    fn calls_run_one_after_the_other() {
        let mut random = StdRng::seed_from_u64(1);
        let mut master = Master::new(Background { rate: 0.0, seconds: 0.0 }, &mut random);
        assert_eq!([(0.0, 2.0), (1.0, 2.0), (10.0, 1.0)].map(|(now, seconds)| master.run(now, seconds)), [2.0, 4.0, 11.0]);
        assert_eq!([10.5, 20.0].map(|now| master.busy(now)), [4.5, 5.0]);
    }
}

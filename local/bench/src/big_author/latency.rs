//! The cost of a publish with few followers and with many.

use std::time::Duration;

use rand::{Rng, rngs::StdRng};
use tidemark::domain::UserId;
use tidemark_tools::{
    api::Api,
    progress::Progress,
    verify::latency::{Comparison, Sample},
};

use super::delivery::publish;

const WARM_UP: u32 = 5;

/// An author, and the number of followers in the author's counters.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    pub author: UserId,
    pub followers: u64,
}

/// Measures publishes of both authors in pairs. The order within a pair is random. The time is the client's.
pub async fn measure(api: &Api, authors: [Counted; 2], publishes: u32, random: &mut StdRng) -> anyhow::Result<Comparison> {
    let mut took: [Vec<Duration>; 2] = Default::default();
    let mut progress = Progress::start("publish", "pairs");
    for round in 0..WARM_UP + publishes {
        for which in if random.random() { [0, 1] } else { [1, 0] } {
            let (_, one) = publish(api, authors[which].author, &format!("Post {round}")).await?;
            if round >= WARM_UP {
                took[which].push(one);
            }
        }
        progress.set(u64::from(round) + 1, u64::from(WARM_UP + publishes), "");
    }
    progress.finish();
    let [small, large] = took;
    Ok(Comparison::new(Sample::of(authors[0].followers, small), Sample::of(authors[1].followers, large)))
}

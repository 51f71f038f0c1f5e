//! Publishes of small authors, alone and during a big fan-out.

use std::time::{Duration, Instant};

use futures::future::{join_all, try_join};
use rand::{Rng, rngs::StdRng};
use tidemark::domain::PostId;
use tidemark_tools::{api::Api, progress::Progress};
use tokio::sync::watch;

use super::{
    cast::Author,
    delivery::{Delivery, follow, publish},
};

const POLL: Duration = Duration::from_millis(5);
const POLL_BIG: Duration = Duration::from_millis(50);
const LONGEST_PAUSE_MS: u64 = 50;
const LIMIT: Duration = Duration::from_secs(120);

/// The delivery of the big post, and the small posts published during it.
#[derive(Debug, Clone)]
pub(crate) struct Beside {
    /// The final state of the big delivery.
    pub(crate) big: Delivery,
    /// The duration of the big delivery, from the response of its publish.
    pub(crate) took: Duration,
    pub(crate) small: Vec<Small>,
}

/// One small publish. Both times start with the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Small {
    /// The time to the response.
    pub(crate) answered: Duration,
    /// The time until all followers have the post.
    pub(crate) done: Duration,
}

/// Each author publishes once while no other fan-out runs.
pub(crate) async fn alone(api: &Api, authors: &[Author], random: &mut StdRng) -> anyhow::Result<Vec<Small>> {
    let mut took = Vec::with_capacity(authors.len());
    for author in authors {
        tokio::time::sleep(Duration::from_millis(random.random_range(0..LONGEST_PAUSE_MS))).await;
        took.push(delivered(api, author, "alone").await?);
    }
    Ok(took)
}

/// Follows the big delivery to its end. Meanwhile each of the small authors publishes once, at a random moment in the
/// first nine tenths of the pages. Authors that have not begun when the big delivery ends are left out.
pub(crate) async fn beside(
    api: &Api,
    post: PostId,
    published: Instant,
    limit: Duration,
    authors: &[Author],
    random: &mut StdRng,
) -> anyhow::Result<Beside> {
    let (sender, moments) = watch::channel(Delivery::default());
    let small = join_all(authors.iter().map(|author| {
        let (share, mut moments) = (random.random_range(0.0..0.9), moments.clone());
        async move {
            let begun = |big: &Delivery| big.is_done() || (big.pages > 0 && big.pages_done as f64 >= big.pages as f64 * share);
            let running = moments.wait_for(begun).await.is_ok_and(|big| !big.is_done());
            if running { delivered(api, author, "beside").await.map(Some) } else { Ok(None) }
        }
    }));
    let mut progress = Progress::start("fan-out", "pages");
    let big = async {
        let seen = |big: &Delivery| {
            progress.set(big.pages_done, big.pages, "");
            sender.send_replace(big.clone());
        };
        let big = follow(api, post, POLL_BIG, limit, seen, Delivery::is_done).await;
        // After a failure, authors that wait for their moment stop waiting.
        drop(sender);
        big.map(|big| (big, published.elapsed()))
    };
    let small = async { small.await.into_iter().collect::<anyhow::Result<Vec<_>>>() };
    let ((big, took), small) = try_join(big, small).await?;
    Ok(Beside { big, took, small: small.into_iter().flatten().collect() })
}

/// Publishes a post and waits until all followers have it.
async fn delivered(api: &Api, author: &Author, title: &str) -> anyhow::Result<Small> {
    let started = Instant::now();
    let (post, answered) = publish(api, author.id, title).await?;
    follow(api, post, POLL, LIMIT, |_| (), Delivery::is_done).await?;
    Ok(Small { answered, done: started.elapsed() })
}

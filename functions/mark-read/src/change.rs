//! One author's read state: read, changed, written on the condition that nobody else changed it, brought into the view.

use tidemark::{
    App,
    domain::{ReadState, UserId},
    http::Problem,
    ports::{FactsError, Task},
    reader::{Flags, Origin, PairFacts, Snapshot},
};
use tracing::warn;

/// Attempts when several devices change the same author's state at once.
const ATTEMPTS: usize = 20;

/// What a change did.
pub(crate) struct Changed {
    /// The pair as it is now.
    pub(crate) flags: Flags,
    /// How many posts changed their flag.
    pub(crate) count: u64,
    /// Whether the view shows it. When it does not, the facts have to be counted.
    pub(crate) shown: bool,
}

/// Applies `change` to what `user` has read of `author`. `change` is given the facts and says how many posts it changed, or `None` for nothing to write; it may run
/// several times.
pub(crate) async fn apply(
    app: &App,
    user: UserId,
    author: UserId,
    change: impl Fn(&Flags, &mut ReadState) -> Option<u64>,
) -> Result<Changed, Problem> {
    let pair = app.readers.pair(user, author).await?;
    apply_to(app, user, author, pair, change).await
}

/// The same for facts that were just read.
pub(crate) async fn apply_to(
    app: &App,
    user: UserId,
    author: UserId,
    mut pair: PairFacts,
    change: impl Fn(&Flags, &mut ReadState) -> Option<u64>,
) -> Result<Changed, Problem> {
    for _ in 0..ATTEMPTS {
        let before = Flags::new(user, author, pair);
        let mut reads = before.reads().clone();
        let Some(count) = change(&before, &mut reads) else { return Ok(Changed { flags: before, count: 0, shown: true }) };
        reads.version += 1;
        if app.reads.put(user, author, &reads).await? {
            let pair = PairFacts { reads, ..before.into_facts() };
            let shown = bring_in_line(app, user, author, &pair).await;
            return Ok(Changed { flags: Flags::new(user, author, pair), count, shown });
        }
        pair = app.readers.pair(user, author).await?;
    }
    Err(FactsError::Contention { operation: "mark" }.into())
}

/// Counts after a change.
pub(crate) async fn counted(app: &App, user: UserId, shown: bool) -> Result<Snapshot, Problem> {
    let snapshot =
        if shown { app.readers.snapshot(user).await? } else { app.readers.snapshot_of_facts(user, Origin::Degraded).await? };
    Ok(snapshot)
}

/// Shows the change in the view; whether it does. The fact stands whatever happens here: what cannot be done now is left to a worker.
async fn bring_in_line(app: &App, user: UserId, author: UserId, pair: &PairFacts) -> bool {
    let error = match app.readers.seed_reads(user, pair).await {
        Ok(true) => return true,
        // The view knows of a later change.
        Ok(false) => match app.readers.sync_reads(user, author).await {
            Ok(()) => return true,
            Err(error) => error,
        },
        Err(error) => error,
    };
    warn!(%user, %author, error = &error as &dyn std::error::Error, "view not in line yet, leaving it to a worker");
    if let Err(error) = app.queue.send(&[Task::Sync { user, author }]).await {
        warn!(%user, %author, error = &error as &dyn std::error::Error, "view is in line after its next rebuild only");
    }
    false
}

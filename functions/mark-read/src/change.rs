//! One author's read state: read, changed, written on the condition that nobody else changed it; then the view, brought in line with all of them together.

use tidemark::{
    App,
    domain::{ReadState, Seq, UserId},
    http::Problem,
    ports::{FactsError, Task},
    reader::{Flags, Origin, PairFacts, Snapshot},
};

/// What became of one author's read state.
pub(crate) struct Changed {
    /// The facts of the pair after the change.
    pub(crate) pair: PairFacts,
    /// How many posts changed their flag.
    pub(crate) count: u64,
    /// Whether this request wrote the facts; if not, they said so before.
    written: bool,
}

/// Marks posts of one author read, or unread again. Any number of devices may do so at once: none of them waits for another.
pub(crate) async fn mark(app: &App, user: UserId, author: UserId, seqs: &[Seq], read: bool) -> Result<Changed, Problem> {
    let pair = app.readers.pair(user, author).await?;
    if seqs.iter().all(|&seq| pair.reads.read.contains(seq) == read) {
        return Ok(Changed { pair, count: 0, written: false });
    }
    let (before, after) = app.reads.mark(user, author, seqs, read).await?;
    let before = Flags::new(user, author, PairFacts { reads: before, ..pair.clone() });
    let count = seqs.iter().filter(|&&seq| before.is_read(seq) != read).count() as u64;
    Ok(Changed { pair: PairFacts { reads: after, ..pair }, count, written: true })
}

/// Applies `change` to what `user` has read of `author`. `change` gets the facts and returns how many posts it changed, or `None` if there is nothing to
/// write; it may run several times.
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
    let mut retries = app.retries();
    loop {
        let before = Flags::new(user, author, pair);
        let mut reads = before.reads().clone();
        let Some(count) = change(&before, &mut reads) else {
            return Ok(Changed { pair: before.into_facts(), count: 0, written: false });
        };
        reads.version += 1;
        pair = before.into_facts();
        if app.reads.put(user, author, &reads).await? {
            return Ok(Changed { pair: PairFacts { reads, ..pair }, count, written: true });
        }
        let stored = app.reads.reads(user, &[author]).await?.remove(&author).unwrap_or_default();
        if stored == reads {
            // The answer to our own first attempt was lost, and its repetition failed on what that attempt had written.
            return Ok(Changed { pair: PairFacts { reads, ..pair }, count, written: true });
        }
        pair.reads = stored;
        if !retries.again().await {
            return Err(FactsError::Contention { operation: "mark" }.into());
        }
    }
}

/// Brings the view in line with the facts of these pairs and returns the counts after it. Pairs that this request did not write are compared too: an earlier
/// request may have ended between its fact and the view. If the view cannot be read, it cannot be compared either, and is updated with all that was ever marked. If
/// the view cannot take them, a worker will, and the counts come from the facts.
pub(crate) async fn show(app: &App, user: UserId, changes: &[Changed]) -> Result<Snapshot, Problem> {
    let (written, others): (Vec<&Changed>, Vec<&Changed>) = changes.iter().partition(|change| change.written);
    let written: Vec<&PairFacts> = written.into_iter().map(|change| &change.pair).collect();
    let snapshot = match sync_or_enqueue(app, user, &written).await? {
        true => app.readers.snapshot(user).await?,
        false => app.readers.snapshot_of_facts(user, Origin::Degraded).await?,
    };
    let behind: Vec<&PairFacts> = match snapshot.origin {
        Origin::View => changes.iter().map(|change| &change.pair).filter(|pair| snapshot.lacks(pair)).collect(),
        Origin::Rebuilding | Origin::Degraded => {
            others.into_iter().map(|change| &change.pair).filter(|pair| pair.reads.version > 0).collect()
        }
    };
    if behind.is_empty() {
        return Ok(snapshot);
    }
    match (sync_or_enqueue(app, user, &behind).await?, snapshot.origin) {
        (true, Origin::View) => Ok(app.readers.snapshot(user).await?),
        (false, Origin::View) => Ok(app.readers.snapshot_of_facts(user, Origin::Degraded).await?),
        (_, Origin::Rebuilding | Origin::Degraded) => Ok(snapshot),
    }
}

/// Whether the view shows these facts now. If Redis is unavailable, a `sync` task updates it later.
async fn sync_or_enqueue(app: &App, user: UserId, pairs: &[&PairFacts]) -> Result<bool, Problem> {
    let Err(error) = app.readers.show_reads(user, pairs).await else { return Ok(true) };
    let tasks: Vec<Task> = pairs.iter().map(|pair| Task::sync(user, pair.author)).collect();
    app.later.instead(&error, &tasks).await?;
    Ok(false)
}

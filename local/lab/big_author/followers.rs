//! Makes followers, and makes some of them live.

use std::{collections::HashSet, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use rand::{rngs::StdRng, seq::IndexedRandom};
use tidemark::{
    App,
    domain::{AuthorHead, Edge, UserId},
    reader::Origin,
};
use tidemark_tools::{
    progress::Progress,
    verify::ledger::{Checks, Ledger},
};

use super::{
    cast::{Author, Cast},
    edge_writer::EdgeWriter,
};

/// Followers in the sample of edges.
const SAMPLE: usize = 1_000;
const LOOKUPS_SIDE_BY_SIDE: usize = 16;
const REBUILDS_SIDE_BY_SIDE: usize = 64;

/// Writes all edges of the cast with the current time. Returns the number of items and the elapsed time.
pub(crate) async fn write(app: &App, writer: &EdgeWriter, cast: &Cast) -> anyhow::Result<(u64, Duration)> {
    let ids: Vec<UserId> = cast.authors().map(|author| author.id).collect();
    let heads = app.stores.facts.heads(&ids).await?;
    let (now, unpublished) = (app.stores.clock.now(), AuthorHead::default());
    let edges: Vec<Edge> = cast
        .authors()
        .flat_map(|author| author.followers.iter().map(|user| (*user, author.id)))
        .map(|(user, author)| {
            let head = heads.get(&author).unwrap_or(&unpublished);
            let (rev, floor) = (u32::try_from(now.seconds()).unwrap_or(u32::MAX), head.backfill_floor());
            Edge { following: true, since: now, rev, base: head.latest_seq, floor, ..Edge::never(user, author) }
        })
        .collect();
    let mut progress = Progress::start("edges", "items");
    let items = writer.write(&edges, |done, total| progress.set(done, total, "")).await?;
    Ok((items, progress.finish()))
}

/// Compares a sample of the followers with the facts, in both directions.
pub(crate) async fn compare(app: &App, author: &Author, random: &mut StdRng) -> anyhow::Result<Ledger> {
    let facts = &app.stores.facts;
    let sample: Vec<UserId> = author.followers.choose_multiple(random, SAMPLE).copied().collect();
    let pairs: Vec<(UserId, UserId)> = sample.iter().map(|user| (*user, author.id)).collect();
    let live: HashSet<(UserId, UserId)> = facts.live_pairs(&pairs).await?;
    let live = &live;
    let lookups = stream::iter(sample).map(|user| async move {
        let bucket = user.bucket();
        let listed = facts.followers_in(author.id, bucket..bucket + 1).await?;
        let mut checks = Checks::of(user.get());
        checks.equal("follows", true, live.contains(&(user, author.id)));
        checks.equal("times among the followers", 1, listed.iter().filter(|listed| **listed == user).count());
        checks.equal("followings", 1, facts.followings(user).await?);
        anyhow::Ok(checks)
    });
    let mut lookups = lookups.buffer_unordered(LOOKUPS_SIDE_BY_SIDE);
    let mut ledger = Ledger::default();
    while let Some(checks) = lookups.try_next().await? {
        ledger.add(checks);
    }
    Ok(ledger)
}

/// Gives these readers a view, as a first read does. Returns the number of views and the elapsed time.
pub(crate) async fn enliven(app: &App, readers: &[UserId], title: &str) -> anyhow::Result<(u64, Duration)> {
    let mut progress = Progress::start(title, "readers");
    let mut snapshots = stream::iter(readers).map(|user| app.readers.snapshot(*user)).buffer_unordered(REBUILDS_SIDE_BY_SIDE);
    let (mut done, mut live) = (0, 0);
    while let Some(snapshot) = snapshots.try_next().await? {
        done += 1;
        live += u64::from(snapshot.origin == Origin::View);
        progress.set(done, readers.len() as u64, "");
    }
    Ok((live, progress.finish()))
}

//! One invocation. It continues from the saved position, group of keys by group of keys, and saves after each group.

use std::{collections::BTreeMap, sync::atomic::AtomicU64};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use moka::sync::Cache;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tidemark::{
    App,
    domain::{NoticeId, UserId},
};
use tracing::info;

use crate::{
    Imports, MigrateError, Request, StoredProgress,
    context::{Key, Run},
    edges,
    follow::{self, FOLLOWED},
    import::import,
    legacy::{self, Layout, LegacyNotice, Reason},
    notices, posts,
    progress::{Pending, Progress},
    report::{self, Tally},
    source::{Source, SourceError},
};

/// Keys that are imported concurrently.
const PARALLEL: usize = 16;
/// Keys of `blog:info`, which are small, that are looked up together.
const INFOS: usize = 200;

/// An invocation ends this long before its deadline.
const RESERVE_MS: u64 = 20_000;

/// A run that ends within this time finds the tombstones of all unfollows since it began. They live seven days.
const KNOWS_UNFOLLOWS_MS: u64 = 6 * 24 * 3600 * 1000;

/// Authors whose post times are cached.
const TIMES_KEPT: u64 = 1_000;

/// Works until the time or the limit is used up, all layouts are done, or another run has moved the progress.
pub(crate) async fn slice(app: &App, request: Request, deadline: u64) -> Result<Value, MigrateError> {
    let url = request.source.clone().or_else(|| app.settings.legacy_redis_url.clone());
    let url = url.ok_or_else(|| MigrateError::Invalid("`source` is missing and LEGACY_REDIS_URL is not set".to_owned()))?;
    let all: &[Layout] = if request.follow { &FOLLOWED } else { &Layout::ALL };
    let chosen = request.layout.as_deref().unwrap_or(all);
    let layouts: Vec<Layout> = all.iter().copied().filter(|layout| chosen.contains(layout)).collect();
    let name = name_of(&url, &layouts, request.follow);
    let source = Source::connect(&url).await?;
    let server = source.run_id().await?;
    let now = app.stores.clock.now();
    let run = Run {
        app,
        imports: Imports(app.facts.clone()),
        source,
        dry_run: request.dry_run,
        follow: request.follow,
        now,
        notices: notices(&request)?,
        times: Cache::new(TIMES_KEPT),
        stop_at: deadline.saturating_sub(RESERVE_MS),
        limit: request.limit.unwrap_or(u64::MAX),
        read: AtomicU64::new(0),
    };

    let (mut progress, mut version) = progress_of(&run, &request, (&url, &name), &server, &layouts).await?;
    progress.meet(&server);

    let mut overtaken = false;
    while !progress.is_done() {
        let is_late = now.ms() > progress.first_begun.ms() + KNOWS_UNFOLLOWS_MS;
        let worked = match progress.layout {
            // A pass looks at new members of a list alone, so an old unfollow is no new follow to it.
            Some(layout) if layout.is_of_follows() && is_late && !request.again && !request.follow => {
                return Err(MigrateError::TooLate(progress.first_begun));
            }
            Some(layout) => step(&run, &layouts, layout, &mut progress).await,
            None => sweep(&run, &mut progress).await,
        };
        match worked {
            Err(MigrateError::Overtaken) => overtaken = true,
            worked => worked?,
        }
        if !request.dry_run && !overtaken {
            version += 1;
            let stored = StoredProgress { version, text: serde_json::to_string(&progress)? };
            overtaken = !run.imports.save_progress(&name, &stored).await?;
        }
        if overtaken || run.is_over() {
            break;
        }
    }
    response(&request, &progress, overtaken)
}

/// The progress with which a slice begins, and its version: that of the cursor in a dry run, otherwise the stored one.
async fn progress_of(
    run: &Run<'_>,
    request: &Request,
    (url, name): (&str, &str),
    server: &str,
    layouts: &[Layout],
) -> Result<(Progress, u64), MigrateError> {
    let begin = |first_begun| Progress::begin(first_begun, server.to_owned(), layouts);
    if request.dry_run {
        let Some(cursor) = &request.cursor else { return Ok((begin(run.now), 0)) };
        let invalid = || MigrateError::Invalid("`cursor` was not returned by a dry run".to_owned());
        return Ok((Progress::from_cursor(cursor).ok_or_else(invalid)?, 0));
    }
    if request.cursor.is_some() {
        return Err(MigrateError::Invalid("`cursor` is for dry runs: a real run stores its position".to_owned()));
    }
    let stored = run.imports.progress(name).await?;
    if request.follow && !request.again {
        // The server of the last pass, or of the migration if this is the first pass.
        let migration = match stored {
            None => run.imports.progress(&name_of(url, &Layout::ALL, false)).await?,
            Some(_) => None,
        };
        if let Some(before) = stored.as_ref().or(migration.as_ref())
            && serde_json::from_str::<Progress>(&before.text)?.server != server
        {
            return Err(MigrateError::Restarted);
        }
    }
    let Some(stored) = stored else { return Ok((begin(run.now), 0)) };
    let known: Progress = serde_json::from_str(&stored.text)?;
    // If the stored run is done, a new run begins.
    Ok((if known.is_done() { begin(known.first_begun) } else { known }, stored.version))
}

/// One step: lists some keys, imports some of the listed keys, or begins the next layout.
async fn step(run: &Run<'_>, layouts: &[Layout], layout: Layout, progress: &mut Progress) -> Result<(), MigrateError> {
    if progress.scan.is_none() && progress.pending.is_empty() {
        let next = layouts.iter().copied().find(|next| *next > layout);
        info!(?layout, "layout finished");
        progress.enter(next);
        progress.sweep = (run.follow && next.is_none()).then(String::new);
        return Ok(());
    }
    let mut tally = Tally::default();
    if progress.pending.is_empty() {
        let (mut keys, next) = run.source.keys(layout, progress.scan.unwrap_or_default()).await?;
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            tally.keys += 1;
            match String::from_utf8(key) {
                Ok(key) => progress.pending.push(Pending { key, at: None }),
                Err(error) => tally.refuse(Reason::KeyWithoutId, error.as_bytes(), None),
            }
        }
        progress.scan = next;
    } else if layout == Layout::BlogInfo {
        let group: Vec<Pending> = progress.pending.drain(..INFOS.min(progress.pending.len())).collect();
        posts::infos(run, &group, &mut tally).await?;
    } else {
        let group: Vec<Pending> = progress.pending.drain(..PARALLEL.min(progress.pending.len())).collect();
        let work = group.into_iter().map(|pending| key(run, layout, pending).boxed());
        let done: Vec<(Tally, Option<Pending>)> = stream::iter(work.collect::<Vec<_>>()).buffered(PARALLEL).try_collect().await?;
        let mut rest = Vec::new();
        for (found, goes_on) in done {
            tally.add(found);
            rest.extend(goes_on);
        }
        progress.pending.splice(..0, rest);
    }
    progress.report.entry(layout).or_default().add(tally);
    Ok(())
}

/// Looks for lists that no longer exist.
async fn sweep(run: &Run<'_>, progress: &mut Progress) -> Result<(), MigrateError> {
    let after = progress.sweep.take().filter(|after| !after.is_empty());
    let (lists, next) = run.imports.lists_seen(after).await?;
    let mut tally = Tally::default();
    follow::vanished(run, lists, &mut tally).await?;
    progress.report.entry(Layout::UFollow).or_default().add(tally);
    progress.sweep = next;
    Ok(())
}

/// Imports one key. Returns the counts, and the rest of the key if time is up.
async fn key(run: &Run<'_>, layout: Layout, pending: Pending) -> Result<(Tally, Option<Pending>), MigrateError> {
    let mut key = Key { run, pending, tally: Tally::default() };
    let reason = match members(&mut key, layout).await {
        Ok(rest) => return Ok((key.tally, rest.map(|at| Pending { at: Some(at), ..key.pending }))),
        Err(MigrateError::Refused(reason)) => reason,
        Err(MigrateError::Source(SourceError::WrongType)) => Reason::WrongType,
        Err(error) => return Err(error),
    };
    key.tally.refuse(reason, key.pending.key.as_bytes(), None);
    Ok((key.tally, None))
}

/// Imports the members of one key. Returns the position where the next invocation continues; `None` at the end.
async fn members(key: &mut Key<'_>, layout: Layout) -> Result<Option<u64>, MigrateError> {
    let run = key.run;
    if layout == Layout::Notices {
        let notice = legacy::notice(&key.pending.key).map_err(MigrateError::Refused)?;
        return notices::bitmap(key, notice).await;
    }
    let id = layout.id_of(&key.pending.key).map_err(MigrateError::Refused)?;
    // The first piece alone: what is written for the members is checked again.
    if key.pending.at.is_none() && run.app.facts.erased(&[id]).await?.contains(&id) {
        return Err(MigrateError::Refused(Reason::Erased));
    }
    match layout {
        _ if run.follow => follow::list(key, layout, id).await,
        Layout::AuthorBlogs => posts::author(key, id).await,
        Layout::Feed => edges::feed(key, id).await,
        _ => pieces(key, layout, id).await,
    }
}

async fn pieces(key: &mut Key<'_>, layout: Layout, owner: UserId) -> Result<Option<u64>, MigrateError> {
    let run = key.run;
    let mut at = key.pending.at.unwrap_or_default();
    loop {
        let (members, next) = run.source.piece(layout.shape(), &key.pending.key, at).await?;
        run.has_read(members.len());
        let (imported, _) = import(key, layout, owner, &members).await?;
        run.note_seen(&key.pending.key, &imported).await?;
        match next {
            Some(next) if !run.is_over() => at = next,
            rest => return Ok(rest),
        }
    }
}

fn notices(request: &Request) -> Result<BTreeMap<LegacyNotice, NoticeId>, MigrateError> {
    let read = |(name, id): (&String, &NoticeId)| {
        let notice = legacy::notice(&format!("{}{name}", Layout::Notices.prefix()));
        notice.map(|notice| (notice, *id)).map_err(|_| MigrateError::Invalid(format!("`notices`: {name} is not platform:notice")))
    };
    request.notices.iter().map(read).collect()
}

/// The name of a run: a hash of source, layouts and kind, because the URL must not be stored.
fn name_of(url: &str, layouts: &[Layout], follow: bool) -> String {
    let kind = if follow { " follow" } else { "" };
    let digest = Sha256::digest(format!("{url} {layouts:?}{kind}"));
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn response(request: &Request, progress: &Progress, overtaken: bool) -> Result<Value, MigrateError> {
    let done = progress.is_done();
    let (layouts, totals) = report::response(&progress.report);
    let cursor = if request.dry_run { Some(progress.cursor()?) } else { None };
    let next = (!done).then(|| Request { cursor, ..request.clone() });
    info!(%totals, layout = ?progress.layout, overtaken, "migration slice");
    Ok(json!({
        "done": done,
        "dry_run": request.dry_run,
        "overtaken": overtaken,
        "layout": progress.layout,
        "layouts": layouts,
        "totals": totals,
        "next": next,
    }))
}

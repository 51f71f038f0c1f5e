//! One invocation. It continues from the saved position, group of keys by group of keys, and saves after each group.

use std::{
    collections::BTreeMap,
    sync::{OnceLock, atomic::AtomicU64},
};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tidemark::{
    App,
    domain::{NoticeId, Timestamp, UserId},
    facts::PostTimes,
};
use tracing::{info, warn};

use crate::{
    Imports, KnownSource, MigrateError, Request, StoredProgress,
    context::{Key, Run},
    edges,
    follow::{self, FOLLOWED, REMOVED},
    import::import,
    legacy::{self, Layout, LegacyNotice, Reason, Unread},
    likes, notices, posts,
    progress::{Pending, Progress},
    records::SeenList,
    removals::{PERCENT, Removals},
    report::{self, Tally},
    source::{self, Source, SourceError},
};

/// Keys that are imported concurrently.
const PARALLEL: usize = 16;
/// Keys of `blog:info`, which are small, that are looked up together.
const INFOS: usize = 200;

/// An invocation ends this long before its deadline.
const RESERVE_MS: u64 = 20_000;

/// A run that ends within this time finds the tombstones of all unfollows since it began. They live seven days.
const KNOWS_UNFOLLOWS_MS: u64 = 6 * 24 * 3600 * 1000;

/// An item holds 400 KB.
const MOST_PROGRESS_BYTES: usize = 390_000;

/// Works until the time or the limit is used up, all layouts are done, or another run has moved the progress.
pub(crate) async fn slice(app: &App, request: Request, deadline: u64) -> Result<Value, MigrateError> {
    let url = source::chosen(&app.settings, request.source.as_deref())?;
    let all: &[Layout] = if request.follow { &FOLLOWED } else { &Layout::ALL };
    let chosen = request.layout.as_deref().unwrap_or(all);
    let layouts: Vec<Layout> = all.iter().copied().filter(|layout| chosen.contains(layout)).collect();
    let name = name_of(&url, &layouts, &request);
    let (source, imports) = (Source::connect(&url).await?, Imports(app.stores.facts.clone()));
    let (server, now) = (source.run_id().await?, app.stores.clock.now());
    let known = meet_source(&imports, &request, &server, now).await?;
    let begun_at = known.begun_at.unwrap_or(now);
    let (mut progress, mut version) = progress_of(&imports, &name, &server, &layouts, now).await?;
    progress.meet(&server);
    let run = Run {
        app,
        imports,
        source,
        dry_run: request.dry_run,
        follow: request.follow,
        removals: removals(&request, &progress)?,
        now,
        begun_at,
        unread: OnceLock::new(),
        notices: notices(&request)?,
        times: PostTimes::default(),
        stop_at: deadline.saturating_sub(RESERVE_MS),
        limit: request.limit.unwrap_or(u64::MAX),
        read: AtomicU64::new(0),
    };

    let mut overtaken = false;
    while !progress.is_done() {
        let is_late = now.ms() > begun_at.ms() + KNOWS_UNFOLLOWS_MS;
        let layout = progress.layout;
        let worked = match layout {
            // A pass looks at new members of a list alone, so an old unfollow is no new follow to it.
            Some(layout) if layout.is_of_follows() && is_late && !request.again && !request.follow => {
                return Err(MigrateError::TooLate(begun_at));
            }
            Some(layout) if layout.is_of_follows() && !has_rule(&run, &request, &known, &mut progress).await? => Ok(()),
            Some(layout) => step(&run, &layouts, layout, &mut progress).await,
            None => sweep(&run, &mut progress).await,
        };
        match worked {
            Err(MigrateError::Overtaken) => overtaken = true,
            worked => worked?,
        }
        if !overtaken {
            version += 1;
            overtaken = !save(&run, &name, version, &progress).await?;
        }
        if overtaken || run.is_over() {
            break;
        }
    }
    Ok(response(&request, &progress, overtaken))
}

/// Compares the source with what is known of it, however the event spells it, and stores what is new. Returns when the
/// first import of follows began.
///
/// A pass compares the lists of one server process. Another process may be a restarted server or a promoted replica
/// that has lost data, or another source, whose missing lists would end follows.
async fn meet_source(imports: &Imports, request: &Request, server: &str, now: Timestamp) -> Result<KnownSource, MigrateError> {
    let source = imports.source().await?;
    let KnownSource { begun_at, server: known, .. } = &source;
    let is_other = known.as_ref().is_some_and(|known| known != server);
    if request.follow && is_other && !request.again {
        return Err(MigrateError::Restarted);
    }
    let trusted = request.follow && is_other;
    if !request.dry_run && (begun_at.is_none() || known.is_none() || trusted) {
        imports.note_source(now, server, trusted).await?;
    }
    Ok(source)
}

/// Decides the rule for unread posts, unless it is known. Returns false if the source has more keys to look at.
async fn has_rule(run: &Run<'_>, request: &Request, source: &KnownSource, progress: &mut Progress) -> Result<bool, MigrateError> {
    let named = Some(request.unread).filter(|rule| *rule != Unread::Auto);
    // Write-back adds unread lists to a source that had none.
    let earlier = source.unread.filter(|_| run.follow);
    let rule = match named.or(progress.unread).or(earlier) {
        Some(rule) => rule,
        None => match run.source.some_unread(progress.unread_scan).await? {
            (true, _) => Unread::Listed,
            (false, None) => Unread::Complement,
            (false, Some(next)) => {
                progress.unread_scan = next;
                return Ok(false);
            }
        },
    };
    if run.unread.set(rule).is_ok() {
        progress.unread = Some(rule);
        if !run.dry_run && source.unread != Some(rule) {
            run.imports.note_rule(rule).await?;
        }
    }
    Ok(true)
}

/// The progress with which a slice begins, and its version.
async fn progress_of(
    imports: &Imports,
    name: &str,
    server: &str,
    layouts: &[Layout],
    now: Timestamp,
) -> Result<(Progress, u64), MigrateError> {
    let begin = |last| Progress::begin(now, server.to_owned(), layouts, last);
    let Some(stored) = imports.progress(name).await? else { return Ok((begin(BTreeMap::new()), 0)) };
    let known: Progress = serde_json::from_str(&stored.text)?;
    // If the stored run is done, a new run begins.
    Ok((if known.is_done() { begin(known.absences()) } else { known }, stored.version))
}

/// Saves progress. Returns false if another run has moved it.
async fn save(run: &Run<'_>, name: &str, version: u64, progress: &Progress) -> Result<bool, MigrateError> {
    let stored = StoredProgress { version, text: serde_json::to_string(progress)? };
    if stored.text.len() > MOST_PROGRESS_BYTES {
        return Err(MigrateError::TooLarge(stored.text.len()));
    }
    Ok(run.imports.save_progress(name, &stored).await?)
}

fn removals(request: &Request, progress: &Progress) -> Result<Removals, MigrateError> {
    let percent = request.removals_percent.unwrap_or(PERCENT);
    if percent > 100 {
        return Err(MigrateError::Invalid("`removals_percent` is more than 100".to_owned()));
    }
    let confirmed = request.confirm_removals.clone();
    if confirmed.keys().any(|layout| !REMOVED.contains(layout)) {
        return Err(MigrateError::Invalid("`confirm_removals`: no pass removes members of such lists".to_owned()));
    }
    if !request.follow && (request.removals_percent.is_some() || !confirmed.is_empty()) {
        return Err(MigrateError::Invalid("`removals_percent` and `confirm_removals` go with `follow` alone".to_owned()));
    }
    Ok(Removals { pass: progress.begun_at, percent, confirmed, last: progress.last.clone() })
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
            // Only keys of the layout are stored, and these are short.
            match str::from_utf8(&key).map_err(|_| Reason::KeyWithoutId).and_then(|key| layout.judge(key).map(|()| key)) {
                Ok(key) => progress.pending.push(Pending { key: key.to_owned(), at: None }),
                Err(reason) => tally.refuse(reason, &key, None),
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
    for (layout, tally) in follow::vanished(run, lists).await? {
        progress.report.entry(layout).or_default().add(tally);
    }
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
    if layout != Layout::BlogLiked && key.pending.at.is_none() && run.app.stores.facts.erased(&[id]).await?.contains(&id) {
        return Err(MigrateError::Refused(Reason::Erased));
    }
    match layout {
        _ if run.follow => follow::list(key, layout, id).await,
        Layout::AuthorBlogs => posts::author(key, id).await,
        Layout::BlogLiked => likes::of_blog(key, id.get()).await,
        Layout::Feed | Layout::UserFeed => edges::feed(key, layout, id).await,
        _ => pieces(key, layout, id).await,
    }
}

async fn pieces(key: &mut Key<'_>, layout: Layout, owner: UserId) -> Result<Option<u64>, MigrateError> {
    let run = key.run;
    let mut at = key.pending.at.unwrap_or_default();
    loop {
        let (members, next) = run.source.piece(layout.shape(), &key.pending.key, at).await?;
        run.has_read(members.len());
        let (imported, _) = import(key, layout, owner, &members, &SeenList::default()).await?;
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

/// The name of a run: a hash of source, layouts, kind and the named rule for unread posts, because the URL must not be
/// stored. It names a position, and nothing that keeps data safe depends on it.
fn name_of(url: &str, layouts: &[Layout], request: &Request) -> String {
    let kind = if request.follow { " follow" } else { "" };
    let rule = if request.unread == Unread::Auto { String::new() } else { format!(" {:?}", request.unread) };
    let digest = Sha256::digest(format!("{url} {layouts:?}{kind}{rule}"));
    let name: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    if request.dry_run { format!("{name} dry") } else { name }
}

fn response(request: &Request, progress: &Progress, overtaken: bool) -> Value {
    let done = progress.is_done();
    let (layouts, totals) = report::response(&progress.report);
    let next = (!done).then_some(request);
    info!(%totals, layout = ?progress.layout, overtaken, "migration slice");
    if done && totals["held"].as_u64() > Some(0) {
        warn!(held = %totals["held"], "members that are missing in the legacy Redis wait for a confirmation");
    }
    json!({
        "done": done,
        "dry_run": request.dry_run,
        "overtaken": overtaken,
        "layout": progress.layout,
        "layouts": layouts,
        "totals": totals,
        "unread": report::unread(progress.unread, &progress.report),
        "next": next,
    })
}

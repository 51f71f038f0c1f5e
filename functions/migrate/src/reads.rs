//! Imports sets of read blogs as read marks.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tidemark::domain::{Seq, SeqSet, UserId};

use crate::{
    MigrateError,
    context::{Outcome, Run},
    legacy::{self, BlogId, Reason},
    posts,
    progress::Pending,
    report::Tally,
    source::{Member, Shape},
    sync_view,
};

/// Authors of one user whose read states are written concurrently.
const PARALLEL: usize = 4;

/// Imports `user:read:{user}` or `blog:read:{user}`.
pub(crate) async fn user(
    run: &Run<'_>,
    user: UserId,
    shape: Shape,
    pending: &Pending,
    tally: &mut Tally,
) -> Result<Outcome, MigrateError> {
    let mut at = pending.at.unwrap_or_default();
    loop {
        let piece = run.source.piece(shape, &pending.key, at).await?;
        run.has_read(piece.members.len());
        let marked = mark(run, user, &pending.key, &piece.members, tally).await?;
        run.note_seen(&pending.key, &marked).await?;
        match piece.next {
            None => return Ok(Outcome::Done),
            Some(next) if run.is_over() => return Ok(Outcome::GoesOn(next)),
            Some(next) => at = next,
        }
    }
}

/// Imports members as read marks. Returns the blogs that are posts.
pub(crate) async fn mark(
    run: &Run<'_>,
    user: UserId,
    key: &str,
    members: &[Member],
    tally: &mut Tally,
) -> Result<SeqSet, MigrateError> {
    let mut ids: BTreeSet<BlogId> = BTreeSet::new();
    for (member, _) in members {
        match legacy::id(member) {
            Ok(id) => drop(ids.insert(id)),
            Err(reason) => tally.refuse(reason, key.as_bytes(), Some(member)),
        }
    }
    let ids: Vec<BlogId> = ids.into_iter().collect();
    let known = posts::resolve(run, &ids).await?;
    let authors: Vec<UserId> = known.values().map(|(author, _)| *author).chain([user]).collect();
    let erased = run.erased(&authors).await?;
    let mut by_author: BTreeMap<UserId, SeqSet> = BTreeMap::new();
    let mut marked = SeqSet::default();
    for id in ids {
        match known.get(&id) {
            Some((author, _)) if erased.contains(author) || erased.contains(&user) => {
                tally.refuse(Reason::Erased, key.as_bytes(), Some(id.to_string().as_bytes()));
            }
            Some((author, Some(seq))) => {
                by_author.entry(*author).or_default().insert(*seq);
                marked.insert(id);
            }
            Some((_, None)) => tally.wrote(1),
            None => tally.refuse(Reason::UnknownPost, key.as_bytes(), Some(id.to_string().as_bytes())),
        }
    }
    let authors: Vec<UserId> = by_author.keys().copied().collect();
    let imported = run.imports.imported_reads(user, &authors).await?;
    let nothing = SeqSet::default();
    let news = by_author.iter().map(|(author, seqs)| (*author, seqs, seqs.minus(imported.get(author).unwrap_or(&nothing))));
    let (read, new): (Vec<u64>, Vec<(UserId, SeqSet)>) = news.map(|(author, seqs, new)| (seqs.len(), (author, new))).unzip();
    let read: u64 = read.iter().sum();
    if run.follow && !run.dry_run {
        mark_again(run, user, &by_author, &imported).await?;
    }
    let write = new.iter().filter(|(_, new)| !new.is_empty()).map(|(author, new)| write(run, user, *author, new).boxed());
    let written: Vec<u64> = stream::iter(write.collect::<Vec<_>>()).buffer_unordered(PARALLEL).try_collect().await?;
    let written: u64 = written.iter().sum();
    tally.wrote(written);
    tally.found(read - written);
    // Authors without new marks too: the run that wrote their marks may have been interrupted before it updated the
    // view.
    if !run.dry_run && !authors.is_empty() {
        sync_view::reads(run.app, user, &authors).await?;
    }
    Ok(marked)
}

/// Marks posts that were imported as read before, and have become unread here since.
async fn mark_again(
    run: &Run<'_>,
    user: UserId,
    by_author: &BTreeMap<UserId, SeqSet>,
    imported: &HashMap<UserId, SeqSet>,
) -> Result<(), MigrateError> {
    let authors: Vec<UserId> = imported.keys().copied().collect();
    let reads = &run.app.stores.reads;
    for (author, state) in reads.reads(user, &authors).await? {
        let (Some(seqs), Some(imported)) = (by_author.get(&author), imported.get(&author)) else { continue };
        let again: Vec<Seq> = seqs.minus(&state.read).iter().filter(|seq| imported.contains(*seq)).collect();
        if !again.is_empty() {
            reads.mark(user, author, &again, true).await?;
        }
    }
    Ok(())
}

async fn write(run: &Run<'_>, user: UserId, author: UserId, new: &SeqSet) -> Result<u64, MigrateError> {
    Ok(if run.dry_run { new.len() } else { run.imports.import_reads(user, author, new).await? })
}

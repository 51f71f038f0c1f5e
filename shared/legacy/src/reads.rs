//! Imports sets of read blogs as read marks.

use std::collections::BTreeMap;

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tidemark::domain::{SeqSet, UserId};

use crate::{MigrateError, context::Key, legacy::Reason, posts, source::Member};

/// Authors of one user whose read states are written concurrently.
const PARALLEL: usize = 4;

/// Imports members as read marks. Returns the blogs that are posts.
pub(crate) async fn mark(key: &mut Key<'_>, user: UserId, members: &[Member]) -> Result<SeqSet, MigrateError> {
    let run = key.run;
    let ids = posts::ids(members, &key.pending.key, &mut key.tally);
    let known = posts::resolve(run, &ids).await?;
    let authors: Vec<UserId> = known.values().map(|(author, _)| *author).chain([user]).collect();
    let erased = run.app.stores.facts.erased(&authors).await?;
    let mut by_author: BTreeMap<UserId, SeqSet> = BTreeMap::new();
    let mut marked = SeqSet::default();
    for id in ids {
        match known.get(&id) {
            Some((author, _)) if erased.contains(author) || erased.contains(&user) => {
                key.refuse(Reason::Erased, id.to_string().as_bytes());
            }
            Some((author, Some(seq))) => {
                by_author.entry(*author).or_default().insert(*seq);
                marked.insert(id);
            }
            Some((_, None)) => key.tally.wrote(1),
            None => key.refuse(Reason::UnknownPost, id.to_string().as_bytes()),
        }
    }
    let authors: Vec<UserId> = by_author.keys().copied().collect();
    let imported = run.imports.imported_reads(user, &authors).await?;
    let nothing = SeqSet::default();
    // The members that a pass imports are new there: it marks a post again that has become unread here since.
    let again = run.follow && !run.dry_run;
    let new = |(author, seqs): (&UserId, &SeqSet)| match again {
        true => (*author, seqs.clone()),
        false => (*author, seqs.minus(imported.get(author).unwrap_or(&nothing))),
    };
    let write = by_author.iter().map(new).filter(|(_, new)| !new.is_empty()).map(|(author, new)| {
        async move {
            let written = if run.dry_run { new.len() } else { run.imports.import_reads(user, author, &new, again).await? };
            Ok::<_, MigrateError>(written)
        }
        .boxed()
    });
    let written: Vec<u64> = stream::iter(write.collect::<Vec<_>>()).buffer_unordered(PARALLEL).try_collect().await?;
    let (read, written): (u64, u64) = (by_author.values().map(SeqSet::len).sum(), written.iter().sum());
    key.tally.wrote(written);
    key.tally.found(read - written);
    // Authors without new marks too: the run that wrote their marks may have ended before it updated the view.
    if !run.dry_run && !authors.is_empty() {
        run.sync_view(user, &authors).await?;
    }
    Ok(marked)
}

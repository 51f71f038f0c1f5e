//! Imports `blog:liked:{blog}`, the users who like a blog and when.
//!
//! The record of the list has the users whose likes were imported. So a like that was taken back here stays taken back.

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tidemark::domain::{PostId, Reaction, SeqSet, Timestamp, UserId};
use tidemark_facts::ImportedReaction;

use crate::{
    MigrateError,
    context::{Key, Run},
    legacy::{self, BlogId, Layout, Reason},
    posts,
};

/// Likes that are written concurrently.
const PARALLEL: usize = 8;

/// Imports the likes of a blog. Returns the position where the next invocation continues; `None` at the end.
pub(crate) async fn of_blog(key: &mut Key<'_>, blog: BlogId) -> Result<Option<u64>, MigrateError> {
    let run = key.run;
    let (author, seq) = posts::resolve(run, &[blog]).await?.remove(&blog).ok_or(MigrateError::Refused(Reason::UnknownPost))?;
    let known = run.imports.list(&key.pending.key).await?.members;
    let mut at = key.pending.at.unwrap_or_default();
    loop {
        let (members, next) = run.source.piece(Layout::BlogLiked.shape(), &key.pending.key, at).await?;
        run.has_read(members.len());
        let mut likes = Vec::with_capacity(members.len());
        for (member, score) in &members {
            match like(run, member, *score) {
                Ok((user, _)) if known.contains(user.get()) => key.tally.found(1),
                Ok(like) => likes.push(like),
                Err(reason) => key.refuse(reason, member),
            }
        }
        let imported = match seq {
            Some(seq) => write(key, PostId::new(author, seq), likes).await?,
            // A dry run has written no post.
            None => {
                key.tally.wrote(likes.len() as u64);
                SeqSet::default()
            }
        };
        run.note_seen(&key.pending.key, &imported).await?;
        match next {
            Some(next) if !run.is_over() => at = next,
            rest => return Ok(rest),
        }
    }
}

fn like(run: &Run<'_>, member: &[u8], score: Option<f64>) -> Result<(UserId, Timestamp), Reason> {
    let at = legacy::time_of_score(score.unwrap_or(f64::NAN), Layout::BlogLiked.unit_ms(), run.now)?;
    Ok((legacy::user(member)?, at))
}

/// Writes likes of a post. Returns the users whose likes need no further import.
async fn write(key: &mut Key<'_>, post: PostId, likes: Vec<(UserId, Timestamp)>) -> Result<SeqSet, MigrateError> {
    let run = key.run;
    let facts = &run.app.stores.facts;
    let work = likes.into_iter().map(|(user, at)| {
        async move {
            let outcome = match run.dry_run {
                true => ImportedReaction::Written,
                false => facts.import_reaction(user, post, Reaction::Like, at, true).await?,
            };
            Ok::<_, MigrateError>((user, outcome))
        }
        .boxed()
    });
    let done: Vec<(UserId, ImportedReaction)> =
        stream::iter(work.collect::<Vec<_>>()).buffer_unordered(PARALLEL).try_collect().await?;
    let mut imported = SeqSet::default();
    for (user, outcome) in done {
        let refused = match outcome {
            ImportedReaction::Written => {
                key.tally.wrote(1);
                None
            }
            ImportedReaction::Existing => {
                key.tally.found(1);
                None
            }
            ImportedReaction::UnknownPost => Some(Reason::UnknownPost),
            ImportedReaction::Blocked => Some(Reason::Blocked),
            ImportedReaction::Erased => Some(Reason::Erased),
        };
        match refused {
            Some(reason) => key.refuse(reason, user.to_string().as_bytes()),
            None => _ = imported.insert(user.get()),
        }
    }
    Ok(imported)
}

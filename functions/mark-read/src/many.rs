//! `POST /v1/reads`: many posts, one author through a post, or everything before a time.

use std::collections::{BTreeMap, BTreeSet};

use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use serde_json::json;
use tidemark::{
    App,
    domain::{AuthorHead, PostId, ReadState, Seq, Timestamp, UserId},
    http::{Answer, Body, Problem, Request},
    reader::{Flags, Origin, PairFacts},
};

use crate::change::{self, Changed};

/// Posts in one request.
const MAX_POSTS: usize = 500;

/// Authors whose read states are changed side by side.
const PARALLEL: usize = 16;

/// What changes of several authors' states did together.
struct Total {
    changed: u64,
    shown: bool,
}

impl From<Changed> for Total {
    fn from(changed: Changed) -> Self {
        Self { changed: changed.count, shown: changed.shown }
    }
}

/// Marks and answers how many posts changed, and the total after it.
pub(crate) async fn mark(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let body = request.body()?;
    let forms = [body.has("posts"), body.has("author") || body.has("through"), body.has("all")];
    if body.has("before") && !body.has("all") {
        return Err(Problem::invalid("before", "goes with all alone"));
    }
    let total = match forms {
        [true, false, false] => posts(app, caller, &body).await?,
        [false, true, false] => through(app, caller, &body).await?,
        [false, false, true] => all(app, caller, &body).await?,
        _ => return Err(Problem::invalid("posts", "must come alone, or author with through, or all: exactly one of the three")),
    };
    let snapshot = change::counted(app, caller, total.shown).await?;
    let answer = json!({ "changed": total.changed, "unread": { "total": snapshot.state.unread_total() } });
    Ok(Answer::json(200, &answer).degraded(snapshot.origin == Origin::Degraded))
}

async fn posts(app: &App, caller: UserId, body: &Body) -> Result<Total, Problem> {
    let asked: BTreeSet<PostId> = body.ids::<PostId>("posts", MAX_POSTS)?.into_iter().collect();
    let asked: Vec<PostId> = asked.into_iter().collect();
    let known = app.posts.posts(&asked).await?;
    let mut by_author: BTreeMap<UserId, Vec<Seq>> = BTreeMap::new();
    for id in asked {
        if known.get(&id).is_some_and(|post| !post.deleted) {
            by_author.entry(id.author).or_default().push(id.seq);
        }
    }
    let changes = by_author.into_iter().map(|(author, seqs)| mark_posts(app, caller, author, seqs).boxed()).collect();
    in_parallel(changes).await
}

async fn mark_posts(app: &App, caller: UserId, author: UserId, seqs: Vec<Seq>) -> Result<Total, Problem> {
    let changed = change::apply(app, caller, author, |flags, reads| {
        let count = seqs.iter().filter(|&&seq| !flags.is_read(seq)).count() as u64;
        reads.mark(seqs.iter().copied()).then_some(count)
    });
    changed.await.map(Total::from)
}

async fn through(app: &App, caller: UserId, body: &Body) -> Result<Total, Problem> {
    let author = body.user("author")?;
    let seq = body.seq("through")?;
    let changed = change::apply(app, caller, author, |flags, reads| mark_through(flags, reads, seq)).await?;
    Ok(changed.into())
}

async fn all(app: &App, caller: UserId, body: &Body) -> Result<Total, Problem> {
    if body.fields().get("all") != Some(&json!(true)) {
        return Err(Problem::invalid("all", "must be true"));
    }
    let before = body.optional_time("before")?.unwrap_or_else(|| app.clock.now());
    let pairs = app.readers.pairs(caller).await?;
    let changes = pairs
        .into_iter()
        .filter_map(|pair| Some((pair.edge.as_ref()?.author, pair)))
        .map(|(author, pair)| mark_before(app, caller, author, pair, before).boxed());
    in_parallel(changes.collect()).await
}

async fn mark_before(app: &App, caller: UserId, author: UserId, pair: PairFacts, before: Timestamp) -> Result<Total, Problem> {
    // When nothing of it is unread, no fact is needed to say so.
    if pair.state().is_none_or(|state| state.unread() == 0) {
        return Ok(Total { changed: 0, shown: true });
    }
    let upto = last_before(app, author, &pair.head, before).await?;
    let changed = change::apply_to(app, caller, author, pair, |flags, reads| {
        if flags.unread_upto(upto) == 0 { None } else { mark_through(flags, reads, upto) }
    });
    changed.await.map(Total::from)
}

/// The last post of the author that existed at `before`.
async fn last_before(app: &App, author: UserId, head: &AuthorHead, before: Timestamp) -> Result<Seq, Problem> {
    if head.latest_at <= before {
        return Ok(head.latest_seq);
    }
    Ok(app.posts.seq_at(author, before).await?)
}

/// Moves the watermark, at most to the last post there is: a post that arrives later stays unread.
fn mark_through(flags: &Flags, reads: &mut ReadState, seq: Seq) -> Option<u64> {
    let seq = seq.min(flags.head().latest_seq);
    let count = if seq < reads.through { 0 } else { flags.unread_upto(seq) };
    reads.mark_through(seq).then_some(count)
}

/// Runs changes of several authors' states side by side and adds up what they did.
async fn in_parallel(changes: Vec<BoxFuture<'_, Result<Total, Problem>>>) -> Result<Total, Problem> {
    let totals: Vec<Total> = stream::iter(changes).buffer_unordered(PARALLEL).try_collect().await?;
    Ok(Total { changed: totals.iter().map(|total| total.changed).sum(), shown: totals.iter().all(|total| total.shown) })
}

//! `POST /v1/reads`: many posts, one author through a post, or everything before a time.

use std::collections::{BTreeMap, BTreeSet};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use serde_json::json;
use tidemark::{
    App,
    domain::{AuthorHead, PostId, ReadState, Seq, Timestamp, UserId},
    http::{Answer, Body, Problem, Request},
    reader::{Origin, PairFacts},
};

use crate::change::{self, Changed};

/// Posts in one request.
const MAX_POSTS: usize = 500;

/// Authors whose read states are changed side by side.
const PARALLEL: usize = 16;

/// What became of each author's read state. One that failed does not hold off the others.
type Outcomes = Vec<Result<Changed, Problem>>;

/// Marks, and returns how many posts changed and the total after it.
pub(crate) async fn mark(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let body = request.body()?;
    let forms = [body.has("posts"), body.has("author") || body.has("through"), body.has("all")];
    if body.has("before") && !body.has("all") {
        return Err(Problem::invalid("before", "goes with all alone"));
    }
    let outcomes = match forms {
        [true, false, false] => posts(app, caller, &body).await?,
        [false, true, false] => vec![through(app, caller, &body).await],
        [false, false, true] => all(app, caller, &body).await?,
        _ => return Err(Problem::invalid("posts", "must come alone, or author with through, or all: exactly one of the three")),
    };
    let (changes, failures): (Outcomes, Outcomes) = outcomes.into_iter().partition(Result::is_ok);
    let changes: Vec<Changed> = changes.into_iter().flatten().collect();
    // Also when another author's change failed: what is a fact is shown.
    let snapshot = change::show(app, caller, &changes).await?;
    if let Some(problem) = failures.into_iter().find_map(Result::err) {
        return Err(problem);
    }
    let changed: u64 = changes.iter().map(|change| change.count).sum();
    let answer = json!({ "changed": changed, "unread": { "total": snapshot.state.unread_total() } });
    Ok(Answer::json(200, &answer).degraded(snapshot.origin == Origin::Degraded))
}

async fn posts(app: &App, caller: UserId, body: &Body) -> Result<Outcomes, Problem> {
    let asked: BTreeSet<PostId> = body.ids::<PostId>("posts", MAX_POSTS)?.into_iter().collect();
    let asked: Vec<PostId> = asked.into_iter().collect();
    let known = app.posts.posts(&asked).await?;
    let mut by_author: BTreeMap<UserId, Vec<Seq>> = BTreeMap::new();
    for id in asked {
        if known.get(&id).is_some_and(|post| !post.deleted) {
            by_author.entry(id.author).or_default().push(id.seq);
        }
    }
    let changes = by_author
        .into_iter()
        .map(|(author, seqs)| async move { change::mark(app, caller, author, &seqs, true).await }.boxed())
        .collect();
    Ok(in_parallel(changes).await)
}

async fn through(app: &App, caller: UserId, body: &Body) -> Result<Changed, Problem> {
    let author = body.user("author")?;
    let seq = body.seq("through")?;
    let changed = change::apply(app, caller, author, |flags, reads| {
        // At most to the last post there is: a post that arrives later stays unread.
        let seq = seq.min(flags.head().latest_seq);
        let count = if seq < reads.through { 0 } else { flags.unread_upto(seq) };
        reads.mark_through(seq).then_some(count)
    });
    changed.await
}

async fn all(app: &App, caller: UserId, body: &Body) -> Result<Outcomes, Problem> {
    if body.fields().get("all") != Some(&json!(true)) {
        return Err(Problem::invalid("all", "must be true"));
    }
    let before = body.optional_time("before")?.unwrap_or_else(|| app.clock.now());
    let pairs = app.readers.pairs(caller).await?;
    let changes = pairs.into_iter().map(|pair| mark_before(app, caller, pair, before).boxed());
    Ok(in_parallel(changes.collect()).await)
}

async fn mark_before(app: &App, caller: UserId, pair: PairFacts, before: Timestamp) -> Result<Changed, Problem> {
    let author = pair.author;
    // If nothing of the author is unread, no post has to be looked up by time.
    let unread = pair.state().is_some_and(|state| state.unread() > 0);
    let upto = if unread { last_before(app, author, &pair.head, before).await? } else { 0 };
    let changed = change::apply_to(app, caller, author, pair, |flags, reads: &mut ReadState| match flags.unread_upto(upto) {
        0 => None,
        count => reads.mark_all(upto).then_some(count),
    });
    changed.await
}

/// The last post of the author that existed at `before`.
async fn last_before(app: &App, author: UserId, head: &AuthorHead, before: Timestamp) -> Result<Seq, Problem> {
    if head.latest_at <= before {
        return Ok(head.latest_seq);
    }
    Ok(app.posts.seq_at(author, before).await?)
}

/// Runs changes of several authors' states side by side. All of them end before any failure is returned: none is cut off between its fact and the view.
async fn in_parallel(changes: Vec<BoxFuture<'_, Result<Changed, Problem>>>) -> Outcomes {
    stream::iter(changes).buffer_unordered(PARALLEL).collect().await
}

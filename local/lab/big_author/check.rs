//! Checks that readers have the big post.

use anyhow::Context;
use futures::{StreamExt, stream};
use tidemark::{
    App,
    domain::{PostId, UserId},
};
use tidemark_tools::{
    api::{Api, Call},
    progress::Progress,
    verify::ledger::{Checks, Ledger},
};

/// Entries to read from a view. A view has fewer.
const WHOLE_VIEW: usize = 2_000;
const SIDE_BY_SIDE: usize = 32;

/// The expected state of a reader: the post once and unread, and this number of unread posts of its author.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) post: PostId,
    /// Posts of its author that the reader has not read.
    pub(crate) unread: u64,
}

/// Checks existing views. Does not build views.
pub(crate) async fn views(app: &App, readers: &[UserId], expected: Expected) -> Ledger {
    judge("views", readers, async |user, checks| of_view(app, user, expected, checks).await).await
}

/// Checks the feeds of readers through the API.
pub(crate) async fn feeds(api: &Api, readers: &[UserId], expected: Expected) -> Ledger {
    judge("feeds", readers, async |user, checks| of_feed(api, user, expected, checks).await).await
}

/// Makes comparisons for each user, several users at a time. A failed request counts as a mismatch.
async fn judge(title: &str, readers: &[UserId], look: impl AsyncFn(UserId, &mut Checks) -> anyhow::Result<()>) -> Ledger {
    let mut progress = Progress::start(title, "readers");
    let look = &look;
    let checked = |user: UserId| Checks::make(user.get(), async move |checks| look(user, checks).await);
    let mut looks = stream::iter(readers.iter().copied()).map(checked).buffer_unordered(SIDE_BY_SIDE);
    let (mut ledger, mut done) = (Ledger::default(), 0);
    while let Some((checks, _)) = looks.next().await {
        ledger.add(checks);
        done += 1;
        progress.set(done, readers.len() as u64, "");
    }
    progress.finish();
    ledger
}

async fn of_view(app: &App, user: UserId, expected: Expected, checks: &mut Checks) -> anyhow::Result<()> {
    let view = app.stores.views.reader_view(user, WHOLE_VIEW).await.context("the view")?;
    let view = view.context("the reader has no view")?;
    let times = view.entries.iter().filter(|entry| entry.post == expected.post).count();
    checks.equal("view: times in the feed", 1, times);
    checks.equal("view: unread", true, view.state.is_unread(expected.post));
    checks.equal("view: unread of the author", expected.unread, view.state.unread_of(expected.post.author));
    Ok(())
}

async fn of_feed(api: &Api, user: UserId, expected: Expected, checks: &mut Checks) -> anyhow::Result<()> {
    let page = api.fetch(Call::get("/v1/feed?limit=100").caller(user.get()), 200).await?;
    let (id, items) = (expected.post.to_string(), page["items"].as_array().map_or(&[][..], Vec::as_slice));
    let found: Vec<Option<bool>> =
        items.iter().filter(|item| item["id"] == id.as_str()).map(|item| item["read"].as_bool()).collect();
    checks.equal("feed: the post once, unread", vec![Some(false)], found);
    checks.equal("feed: unread_total", Some(expected.unread), page["unread_total"].as_u64());
    Ok(())
}

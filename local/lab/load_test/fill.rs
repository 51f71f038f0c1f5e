//! Writes a graph and posts as facts into the folder of a stack that does not serve yet. Views are built by reads.

use std::{path::Path, time::Duration};

use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt, stream};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tidemark::{
    domain::{Edge, PostText, Timestamp},
    facts::{
        Facts,
        imports::{ImportedContent, ImportedPost, PostImport},
    },
};
use tidemark_local::{Options, Stack};
use tidemark_tools::progress::Progress;

use super::{
    edge_writer::EdgeWriter,
    graph::{Graph, id},
};

/// The function whose streams have what is written here. No view needs it.
const PROJECTOR: &str = "projector";
const HOUR_MS: u64 = 3_600_000;
/// All follows began so long ago, before the oldest post.
const FOLLOWED_MS: u64 = 7 * 24 * HOUR_MS;
const OLDEST_POST_MS: u64 = 6 * 24 * HOUR_MS;
/// The most posts of one import.
pub(crate) const MOST_POSTS: u16 = 31;
const AUTHORS_SIDE_BY_SIDE: usize = 16;
/// Stream records are dropped so often, before there are many.
const DROP_EVERY: Duration = Duration::from_secs(1);

/// What is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) graph: &'a Graph,
    /// The users with the most followers have posts.
    pub(crate) authors: u32,
    /// Posts of each of them.
    pub(crate) posts: u16,
    pub(crate) seed: u64,
}

/// Fills the stores in `folder`. Nothing is left to do for a stack that starts there.
pub(crate) async fn fill(folder: &Path, template: &Path, plan: &Plan<'_>) -> anyhow::Result<()> {
    let mut options = Options::new(folder);
    options.template = template.to_owned();
    options.schedules = false;
    let stack = Stack::start(options).await?;
    stack.pause(PROJECTOR).await?;
    let written = tokio::select! {
        written = write(&stack, plan) => written,
        dropped = drop_records(&stack) => dropped,
    };
    stack.lose_records(PROJECTOR)?;
    stack.stop().await?;
    written
}

async fn drop_records(stack: &Stack) -> anyhow::Result<()> {
    loop {
        tokio::time::sleep(DROP_EVERY).await;
        stack.lose_records(PROJECTOR)?;
    }
}

async fn write(stack: &Stack, plan: &Plan<'_>) -> anyhow::Result<()> {
    let app = stack.app("publish").context("the template has no function `publish`")?;
    let now = app.stores.clock.now();
    posts(&app.stores.facts, plan, now).await?;
    let since = Timestamp::from_ms(now.ms() - FOLLOWED_MS);
    let rev = u32::try_from(since.seconds()).unwrap_or(u32::MAX);
    let edges: Vec<Edge> = (1..=plan.graph.users())
        .flat_map(|author| plan.graph.followers(author).into_iter().map(move |user| (user, author)))
        .map(|(user, author)| Edge { following: true, since, rev, ..Edge::never(id(user), id(author)) })
        .collect();
    let mut progress = Progress::start("follows", "items");
    let writer = EdgeWriter::new(stack.dynamodb_endpoint(), app.settings.tables.clone());
    writer.write(&edges, |done, total| progress.set(done, total, "")).await?;
    progress.finish();
    Ok(())
}

/// Writes the posts, of authors whom nobody follows yet. So no fan-out is due.
async fn posts(facts: &Facts, plan: &Plan<'_>, now: Timestamp) -> anyhow::Result<()> {
    let mut progress = Progress::start("posts", "authors");
    let mut imports = stream::iter(1..=plan.authors.min(plan.graph.users()))
        .map(|author| async move {
            let posts = posts_of(author, plan, now);
            let imported = facts.import_posts_of(id(author), None, &posts, 0, now).await?;
            if imported.outcomes.iter().any(|outcome| *outcome != PostImport::Written) {
                bail!("the posts of {author} were not written: {imported:?}");
            }
            anyhow::Ok(())
        })
        .buffer_unordered(AUTHORS_SIDE_BY_SIDE);
    let mut done = 0;
    while imports.try_next().await?.is_some() {
        done += 1;
        progress.set(done, plan.authors.into(), "");
    }
    progress.finish();
    Ok(())
}

/// The posts of an author, spread evenly over six days.
fn posts_of(author: u32, plan: &Plan<'_>, now: Timestamp) -> Vec<ImportedPost> {
    let mut random = StdRng::seed_from_u64(plan.seed ^ u64::from(author));
    let step = OLDEST_POST_MS / u64::from(plan.posts.max(1));
    let post = |seq: u16| {
        let created_at = Timestamp::from_ms(now.ms() - OLDEST_POST_MS + u64::from(seq) * step + random.random_range(0..step));
        let title = format!("Post {} of {author}", seq + 1);
        let text = PostText { body: Some("As long as a short message is.".to_owned()), data: None };
        let content = ImportedContent { title, text, revision: 1, edited_at: None, weight: 0 };
        ImportedPost { seq: u64::from(seq) + 1, created_at, of: None, content: Some(content) }
    };
    (0..plan.posts).map(post).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posts_are_in_order_after_all_follows_and_before_now() {
        let graph = Graph::new(100, 5.0, 1);
        let now = Timestamp::from_ms(2_000_000_000_000);
        let posts = posts_of(3, &Plan { graph: &graph, authors: 10, posts: MOST_POSTS, seed: 9 }, now);
        assert_eq!(posts.len(), usize::from(MOST_POSTS));
        assert!(posts.windows(2).all(|two| two[0].created_at <= two[1].created_at && two[0].seq + 1 == two[1].seq));
        assert!(posts[0].created_at.ms() > now.ms() - FOLLOWED_MS && posts[30].created_at < now);
    }
}

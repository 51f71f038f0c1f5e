//! Bytes for each reader, by the growth of `used_memory`, which includes all overhead, and by MEMORY USAGE of the keys.

use std::fmt;

use anyhow::{Context, ensure};
use redis::Cmd;
use serde::Serialize;
use tidemark::views::keys;
use tidemark_tools::{progress::Progress, text::thousands};

use super::loading::{self, Origin};
use crate::{
    server::{Server, run_all},
    table::Table,
    world::{Followed, Ids, Shape, World},
};

const SHAPES: [Shape; 2] = [Shape { authors: 10, posts: 150 }, Shape { authors: 500, posts: 2 }];
const PEOPLE: [(Ids, Followed); 3] = [
    (Ids::UpTo100Million, Followed::FromTheFirstPost),
    (Ids::UpTo100Million, Followed::Later),
    (Ids::Above2To53, Followed::Later),
];

/// The sizes, case by case.
#[derive(Debug, Serialize)]
pub(super) struct Memory {
    readers: usize,
    cases: Vec<Case>,
}

#[derive(Debug, Serialize)]
struct Case {
    #[serde(flatten)]
    shape: Shape,
    author_ids: Ids,
    followed: Followed,
    /// Tidemark's unread state and feed, loaded from facts.
    seeded: View,
    /// The same, delivered post by post.
    delivered: View,
}

#[derive(Debug, Serialize)]
struct View {
    state: Bytes,
    feed: Bytes,
    feed_entries: u64,
}

/// Bytes for each reader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Bytes {
    used_memory: u64,
    memory_usage: u64,
}

pub(super) async fn measure(server: &Server, readers: usize, seed: u64) -> anyhow::Result<Memory> {
    let mut progress = Progress::start("memory", "cases");
    warm_up(server, seed).await?;
    let mut cases = Vec::new();
    for (author_ids, followed) in PEOPLE {
        for shape in SHAPES {
            let world = World::new(shape, author_ids, followed, readers, seed);
            cases.push(measure_case(server, &world, shape, (author_ids, followed)).await?);
            progress.set(cases.len() as u64, (PEOPLE.len() * SHAPES.len()) as u64, "");
        }
    }
    progress.finish();
    Ok(Memory { readers, cases })
}

/// Makes the server allocate memory that belongs to no reader: the functions and their buffers.
async fn warm_up(server: &Server, seed: u64) -> anyhow::Result<()> {
    for shape in SHAPES {
        let world = World::new(shape, Ids::Above2To53, Followed::Later, 1, seed);
        loading::load(&server.views()?, &world, Origin::Delivered).await?;
        loading::load(&server.views()?, &world, Origin::Seeded).await?;
    }
    Ok(())
}

async fn measure_case(server: &Server, world: &World, shape: Shape, people: (Ids, Followed)) -> anyhow::Result<Case> {
    Ok(Case {
        shape,
        author_ids: people.0,
        followed: people.1,
        seeded: measure_views(server, world, Origin::Seeded).await?,
        delivered: measure_views(server, world, Origin::Delivered).await?,
    })
}

/// Measures state and feed together, deletes the feeds, and measures the rest, which is the states.
async fn measure_views(server: &Server, world: &World, origin: Origin) -> anyhow::Result<View> {
    server.flush().await?;
    let before = server.settled_memory().await?;
    let views = server.views()?;
    loading::load(&views, world, origin).await?;
    drop(views);
    let (states, feeds): (Vec<String>, Vec<String>) =
        world.readers.iter().map(|&user| (keys::reader_state(user), keys::feed(user))).unzip();
    let (state_usage, feed_usage) = (memory_usage(server, &states).await?, memory_usage(server, &feeds).await?);
    let both = server.settled_memory().await?;

    let mut connection = server.connect().await?;
    let on_feeds = |command: &str| feeds.iter().map(|key| redis::cmd(command).arg(key).clone()).collect::<Vec<Cmd>>();
    let entries = run_all::<u64>(&mut connection, &on_feeds("LLEN")).await?.into_iter().sum::<u64>();
    let deleted = run_all::<u64>(&mut connection, &on_feeds("DEL")).await?.into_iter().sum::<u64>();
    ensure!(deleted == feeds.len() as u64, "only {deleted} readers had a feed");
    drop(connection);
    let alone = server.settled_memory().await?;

    let count = world.readers.len();
    let state = Bytes { used_memory: alone.saturating_sub(before), memory_usage: state_usage };
    let feed = Bytes { used_memory: both.saturating_sub(alone), memory_usage: feed_usage };
    Ok(View { state: state.per(count), feed: feed.per(count), feed_entries: entries / count as u64 })
}

async fn memory_usage<'a>(server: &Server, keys: impl IntoIterator<Item = &'a String>) -> anyhow::Result<u64> {
    let usage = |key: &String| redis::cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0).clone();
    let commands: Vec<Cmd> = keys.into_iter().map(usage).collect();
    let responses = run_all::<Option<u64>>(&mut server.connect().await?, &commands).await?;
    responses.into_iter().sum::<Option<u64>>().context("a key is missing")
}

impl Bytes {
    fn per(self, readers: usize) -> Self {
        let readers = readers as u64;
        Self { used_memory: self.used_memory / readers, memory_usage: self.memory_usage / readers }
    }
}

impl Case {
    fn shape(&self) -> String {
        format!("{} × {}", self.shape.authors, self.shape.posts)
    }

    fn people(&self) -> String {
        let ids = ids(self.author_ids);
        let followed = match self.followed {
            Followed::FromTheFirstPost => "at first",
            Followed::Later => "later",
        };
        format!("{ids}, {followed}")
    }
}

fn ids(ids: Ids) -> &'static str {
    match ids {
        Ids::UpTo100Million => "≤ 10^8",
        Ids::Above2To53 => "> 2^53",
    }
}

/// Both measures.
fn bytes(bytes: Bytes) -> String {
    format!("{} / {}", thousands(bytes.used_memory), thousands(bytes.memory_usage))
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Bytes per reader over {} readers (used_memory / MEMORY USAGE)\n", self.readers)?;
        let columns = ["state, seeded", "state, delivered", "feed, seeded", "feed, delivered", "entries"];
        let mut table = Table::new(&["authors × unread", "author ids, followed"], &columns);
        for case in &self.cases {
            let sizes = [case.seeded.state, case.delivered.state, case.seeded.feed, case.delivered.feed].map(bytes);
            let entries = thousands(case.delivered.feed_entries);
            table.push([case.shape(), case.people()].into_iter().chain(sizes).chain([entries]));
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn views_are_loaded_and_measured() {
        let server = Server::start(&tidemark_local::redis_server()).await.unwrap();
        warm_up(&server, 5).await.unwrap();
        let shape = Shape { authors: 3, posts: 60 };
        let world = World::new(shape, Ids::UpTo100Million, Followed::Later, 20, 5);
        let case = measure_case(&server, &world, shape, (Ids::UpTo100Million, Followed::Later)).await.unwrap();
        server.stop().await.unwrap();

        assert_eq!((case.seeded.feed_entries, case.delivered.feed_entries), (480, 480), "180 new and 300 from before");
        let [state, feed] = [case.seeded.state, case.seeded.feed];
        assert!((200..600).contains(&state.memory_usage), "{state:?}");
        assert!((480 * 13..480 * 30).contains(&feed.memory_usage), "{feed:?}");
        // Both measures must agree roughly. With few readers `used_memory` is coarse.
        for bytes in [feed, case.delivered.feed] {
            let [low, high] = [bytes.used_memory.min(bytes.memory_usage), bytes.used_memory.max(bytes.memory_usage)];
            assert!(low > 0 && high < 2 * low, "{bytes:?}");
        }
    }
}

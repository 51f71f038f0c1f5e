//! Bytes for each reader, by the growth of `used_memory`, which includes all overhead, and by MEMORY USAGE of the keys.

use std::fmt;

use anyhow::{Context, ensure};
use redis::Cmd;
use serde::Serialize;
use tidemark::{domain::UserId, views::keys};
use tidemark_tools::{progress::Progress, text::thousands};

use super::{
    layouts::{self, PostIds, Stored},
    loading::{self, Origin},
};
use crate::{
    server::{Server, run_all},
    stats::ratio,
    table::Table,
    world::{Followed, Ids, Shape, World},
};

const SHAPES: [Shape; 2] = [Shape { authors: 10, posts: 150 }, Shape { authors: 500, posts: 2 }];
const PEOPLE: [(Ids, Followed); 3] = [
    (Ids::UpTo100Million, Followed::FromTheFirstPost),
    (Ids::UpTo100Million, Followed::Later),
    (Ids::Above2To53, Followed::Later),
];
/// The aim for the size of a feed, in bytes.
const FEED_AIM: u64 = 30 * 1024;
/// The aim for authors with many unread posts: unread state is smaller than the unread sets by this factor.
const STATE_AIM: f64 = 20.0;

/// The sizes of all layouts, case by case.
#[derive(Debug, Serialize)]
pub(super) struct Memory {
    readers: usize,
    cases: Vec<Case>,
    aims: Vec<Aim>,
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
    /// The source's layout with integer ids and with string ids.
    unread_sets_of_integers: Bytes,
    unread_sets_of_strings: Bytes,
    /// A feed of 1,000 as one sorted set of integer ids, and as one sorted set for each day (the starting design).
    sorted_set: Bytes,
    daily_sorted_sets: Bytes,
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

/// The aims, for authors with ids of one kind.
#[derive(Debug, Serialize)]
struct Aim {
    aim: String,
    author_ids: Ids,
    /// The worst of the cases, by either measure.
    found: f64,
    met: bool,
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
    let aims = aims(&cases);
    Ok(Memory { readers, cases, aims })
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
    let stored = async |layout: &dyn Fn(UserId) -> Stored| {
        let stored: Vec<Stored> = world.readers.iter().map(|&user| layout(user)).collect();
        measure_stored(server, &stored).await
    };
    Ok(Case {
        shape,
        author_ids: people.0,
        followed: people.1,
        seeded: measure_views(server, world, Origin::Seeded).await?,
        delivered: measure_views(server, world, Origin::Delivered).await?,
        unread_sets_of_integers: stored(&|user| layouts::unread_sets(user, world, PostIds::Integers)).await?,
        unread_sets_of_strings: stored(&|user| layouts::unread_sets(user, world, PostIds::Strings)).await?,
        sorted_set: stored(&|user| layouts::sorted_set(user, world)).await?,
        daily_sorted_sets: stored(&|user| layouts::daily_sorted_sets(user, world)).await?,
    })
}

async fn measure_stored(server: &Server, readers: &[Stored]) -> anyhow::Result<Bytes> {
    server.flush().await?;
    let before = server.settled_memory().await?;
    let mut connection = server.connect().await?;
    for reader in readers {
        run_all::<redis::Value>(&mut connection, &reader.commands).await?;
    }
    let memory_usage = memory_usage(server, readers.iter().flat_map(|reader| &reader.keys)).await?;
    drop(connection);
    let used_memory = server.settled_memory().await?.saturating_sub(before);
    Ok(Bytes { used_memory, memory_usage }.per(readers.len()))
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

    /// The ratios to `other`, by both measures.
    fn over(self, other: Self) -> [Option<f64>; 2] {
        [ratio(self.used_memory as f64, other.used_memory as f64), ratio(self.memory_usage as f64, other.memory_usage as f64)]
    }

    fn most(self) -> u64 {
        self.used_memory.max(self.memory_usage)
    }
}

fn aims(cases: &[Case]) -> Vec<Aim> {
    let of_ids = |author_ids| {
        let cases: Vec<&Case> = cases.iter().filter(|case| case.author_ids == author_ids).collect();
        let smaller = |what: &str, sets: fn(&Case) -> Bytes| {
            let many = cases.iter().filter(|case| case.shape == SHAPES[0]);
            let ratios = many.flat_map(|case| [&case.seeded, &case.delivered].map(|view| sets(case).over(view.state)));
            let found = ratios.flatten().map(|ratio| ratio.unwrap_or(0.0)).fold(f64::INFINITY, f64::min);
            let aim = format!("unread state of 10 × 150 at least {STATE_AIM} times smaller than sets of {what}");
            Aim { aim, author_ids, found, met: found >= STATE_AIM }
        };
        let largest = cases.iter().map(|case| case.seeded.feed.most()).max().unwrap_or(0);
        let aim = format!("feed of 1,000 at most {} bytes", thousands(FEED_AIM));
        [
            smaller("integers", |case| case.unread_sets_of_integers),
            smaller("strings", |case| case.unread_sets_of_strings),
            Aim { aim, author_ids, found: largest as f64, met: largest <= FEED_AIM },
        ]
    };
    [Ids::UpTo100Million, Ids::Above2To53].into_iter().flat_map(of_ids).collect()
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

/// Both measures of one number.
fn both(values: [String; 2]) -> String {
    values.join(" / ")
}

fn bytes(bytes: Bytes) -> String {
    both([thousands(bytes.used_memory), thousands(bytes.memory_usage)])
}

fn times(ratios: [Option<f64>; 2]) -> String {
    both(ratios.map(|ratio| ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.1}"))))
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = "author ids, followed";
        writeln!(f, "Unread state, bytes per reader over {} readers (used_memory / MEMORY USAGE)\n", self.readers)?;
        let columns =
            ["state, seeded", "state, delivered", "sets of integers", "sets of strings", "integers ÷ state", "strings ÷ state"];
        let mut table = Table::new(&["authors × unread", about], &columns);
        for case in &self.cases {
            let (integers, strings) = (case.unread_sets_of_integers, case.unread_sets_of_strings);
            let state = case.seeded.state;
            let sizes = [state, case.delivered.state, integers, strings].map(bytes);
            let ratios = [integers, strings].map(|sets| times(sets.over(state)));
            table.push([case.shape(), case.people()].into_iter().chain(sizes).chain(ratios));
        }
        writeln!(f, "{table}")?;

        writeln!(f, "Feed of the newest 1,000, bytes per reader (used_memory / MEMORY USAGE)\n")?;
        let columns =
            ["feed, seeded", "feed, delivered", "entries", "one sorted set", "a sorted set a day", "one ÷ feed", "a day ÷ feed"];
        let mut table = Table::new(&["authors × unread", about], &columns);
        for case in &self.cases {
            let (one, daily, feed) = (case.sorted_set, case.daily_sorted_sets, case.seeded.feed);
            let ratios = [one, daily].map(|sets| times(sets.over(feed)));
            let cells = [case.shape(), case.people(), bytes(feed), bytes(case.delivered.feed)];
            let sizes = [thousands(case.delivered.feed_entries), bytes(one), bytes(daily)];
            table.push(cells.into_iter().chain(sizes).chain(ratios));
        }
        writeln!(f, "{table}")?;

        let mut table = Table::new(&["aim", "author ids"], &["worst case", "met"]);
        for Aim { aim, author_ids, found, met } in &self.aims {
            let found = if *found < 1_000.0 { format!("{found:.1}") } else { thousands(*found as u64) };
            let met = if *met { "yes" } else { "no" };
            table.push([aim.clone(), ids(*author_ids).to_owned(), found, met.to_owned()]);
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(state: u64, feed: u64) -> View {
        let same = |bytes| Bytes { used_memory: bytes, memory_usage: bytes };
        View { state: same(state), feed: same(feed), feed_entries: 1_000 }
    }

    fn case(shape: Shape, author_ids: Ids, seeded: View, delivered: View) -> Case {
        Case {
            shape,
            author_ids,
            followed: Followed::Later,
            seeded,
            delivered,
            unread_sets_of_integers: Bytes { used_memory: 3_000, memory_usage: 2_000 },
            unread_sets_of_strings: Bytes { used_memory: 9_000, memory_usage: 9_000 },
            sorted_set: Bytes::default(),
            daily_sorted_sets: Bytes::default(),
        }
    }

    #[test]
    fn aims_are_judged_by_the_worst_of_all_cases_and_measures() {
        let (ordinary, large) = (Ids::UpTo100Million, Ids::Above2To53);
        let cases = [
            case(SHAPES[0], ordinary, view(100, 30_720), view(100, 99_999)),
            case(SHAPES[0], large, view(100, 1), view(101, 1)),
            case(SHAPES[1], large, view(5_000, 30_721), view(5_000, 1)),
        ];
        let aims: Vec<(Ids, f64, bool)> = aims(&cases).iter().map(|aim| (aim.author_ids, aim.found, aim.met)).collect();
        assert_eq!(aims[..3], [(ordinary, 20.0, true), (ordinary, 90.0, true), (ordinary, 30_720.0, true)]);
        assert_eq!(aims[3..], [(large, 19.8, false), (large, 89.11, true), (large, 30_721.0, false)]);
    }

    #[tokio::test]
    async fn all_layouts_are_loaded_and_measured() {
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
        for sets in [case.unread_sets_of_integers, case.unread_sets_of_strings] {
            assert!(sets.memory_usage > 180 * 8 && sets.used_memory > state.used_memory, "{sets:?} {state:?}");
        }
        // Both measures must agree roughly. With few readers `used_memory` is coarse.
        for bytes in [feed, case.delivered.feed, case.unread_sets_of_strings, case.sorted_set, case.daily_sorted_sets] {
            let [low, high] = [bytes.used_memory.min(bytes.memory_usage), bytes.most()];
            assert!(low > 0 && high < 2 * low, "{bytes:?}");
        }
    }
}

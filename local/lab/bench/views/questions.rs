//! The measured reads, and the compared ways of each.

use anyhow::{Context, ensure};
use redis::{Cmd, Value, aio::MultiplexedConnection};
use serde::Serialize;
use tidemark::{
    domain::{FeedKey, PostId, PostSummary, Rank, UserId},
    views::{View, Views, keys},
};

use super::{
    layouts::{self, PostIds},
    loading::{self, Origin},
};
use crate::{
    server::{Server, run_all},
    world::{Followed, Ids, Shape, World},
};

/// Posts on a page, and the entries that `Readers::feed_page` reads for a first page and for a later one.
const PAGE: usize = 20;
const NEWEST_FIRST: usize = 31;
const NEWEST_DEEP: usize = 2_000;
/// Posts above the deep page.
const DEPTH: usize = 900;
const READERS: usize = 50;
const TITLE: &str = "A title of a usual length, some forty chars";

/// The kind of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Question {
    /// The newest 20 posts with titles, read flags and unread counts.
    FirstPage,
    /// The same for 20 posts far down.
    DeepPage,
    /// The number of unread posts.
    UnreadTotal,
}

/// The way of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Way {
    /// Tidemark's views, by the scripts of its functions.
    Views,
    /// The same data by bare commands, without a transaction.
    BareCommands,
    /// The source's layout, with the commands for all posts in one pipeline.
    SourcePipelined,
    /// The source's layout, one command after another.
    SourceSingly,
}

/// One kind of read in one way, by readers who follow this number of authors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Kind {
    pub(super) question: Question,
    pub(super) authors: usize,
    pub(super) way: Way,
}

const FEW: Shape = Shape { authors: 10, posts: 150 };
const MANY: Shape = Shape { authors: 500, posts: 2 };

/// All kinds. For each question and shape [`Way::Views`] comes first, because the others are compared with it.
pub(super) fn kinds() -> Vec<Kind> {
    use {Question::*, Way::*};
    let ways: [(Question, Shape, &[Way]); 6] = [
        (FirstPage, FEW, &[Views, BareCommands, SourcePipelined, SourceSingly]),
        (FirstPage, MANY, &[Views, BareCommands]),
        (DeepPage, FEW, &[Views]),
        (DeepPage, MANY, &[Views]),
        (UnreadTotal, FEW, &[Views, BareCommands, SourcePipelined]),
        (UnreadTotal, MANY, &[Views, BareCommands, SourcePipelined]),
    ];
    let of = |&(question, shape, ways): &(Question, Shape, &'static [Way])| {
        ways.iter().map(move |&way| Kind { question, authors: shape.authors, way })
    };
    ways.iter().flat_map(of).collect()
}

/// A server full of readers, and two connections to it.
pub(super) struct Readers {
    views: Views,
    plain: MultiplexedConnection,
    few: Followers,
    many: Followers,
    turn: usize,
}

/// Readers of one shape and the content of their first pages, newest first.
struct Followers {
    world: World,
    newest: Vec<FeedKey>,
    unread: u64,
}

impl Followers {
    fn new(shape: Shape, seed: u64) -> Self {
        let world = World::new(shape, Ids::UpTo100Million, Followed::Later, READERS, seed);
        let newest: Vec<FeedKey> = world.newest().into_iter().rev().collect();
        Self { unread: shape.authors as u64 * shape.posts, world, newest }
    }

    async fn load(&self, views: &Views, plain: &mut MultiplexedConnection) -> anyhow::Result<()> {
        loading::load(views, &self.world, Origin::Seeded).await?;
        let summary = |post: &FeedKey| PostSummary {
            id: post.post,
            title: TITLE.to_owned(),
            created_at: post.at,
            revision: 1,
            rank: Rank::default(),
            deleted: false,
        };
        views.remember_posts(&self.newest.iter().map(|post| (summary(post), None)).collect::<Vec<_>>(), None).await?;
        let title = |post: &FeedKey| redis::cmd("HSET").arg(source_post(post)).arg("title").arg(TITLE).clone();
        let mut commands: Vec<Cmd> = self.newest.iter().map(title).collect();
        for &user in &self.world.readers {
            commands.extend(layouts::unread_sets(user, &self.world, PostIds::Integers).commands);
            commands.extend(layouts::sorted_set(user, &self.world).commands);
        }
        run_all::<Value>(plain, &commands).await?;
        Ok(())
    }
}

impl Readers {
    pub(super) async fn load(server: &Server, seed: u64) -> anyhow::Result<Self> {
        server.flush().await?;
        let (views, mut plain) = (server.views()?, server.connect().await?);
        let (few, many) = (Followers::new(FEW, seed), Followers::new(MANY, seed + 1));
        few.load(&views, &mut plain).await?;
        many.load(&views, &mut plain).await?;
        Ok(Self { views, plain, few, many, turn: 0 })
    }

    /// Reads once, by another reader every time, and checks that the response is complete.
    pub(super) async fn ask(&mut self, kind: Kind) -> anyhow::Result<()> {
        self.turn += 1;
        let Self { views, plain, few, many, turn } = self;
        let of = if kind.authors == FEW.authors { few } else { many };
        let user = of.world.readers[*turn % READERS];
        let first = &of.newest[..PAGE];
        match (kind.question, kind.way) {
            (Question::FirstPage, Way::Views) => {
                let view = page(views, user, NEWEST_FIRST, 0).await?;
                ensure!(
                    view.entries == of.newest[..NEWEST_FIRST] && view.state.unread_total() == of.unread,
                    "a wrong first page"
                );
            }
            (Question::DeepPage, _) => {
                let view = page(views, user, NEWEST_DEEP, DEPTH).await?;
                ensure!(view.entries == of.newest && view.state.unread_total() == of.unread, "a wrong deep page");
            }
            (Question::UnreadTotal, Way::Views) => {
                let view = views.reader_view(user, 0).await?.context("no view")?;
                ensure!(view.state.unread_total() == of.unread, "a wrong total");
            }
            (Question::FirstPage, Way::BareCommands) => {
                let mut pipeline = redis::pipe();
                pipeline.cmd("HGETALL").arg(keys::reader_state(user));
                pipeline.cmd("LRANGE").arg(keys::feed(user)).arg(-(NEWEST_FIRST as i64)).arg(-1);
                let (state, entries): (Vec<Value>, Vec<Value>) = pipeline.query_async(plain).await?;
                ensure!(state.len() == 2 * kind.authors + 2 && entries.len() == NEWEST_FIRST, "a wrong first page");
                let posts: Vec<String> = first.iter().map(|post| keys::post(post.post)[0].clone()).collect();
                let titles: Vec<Vec<u8>> = redis::cmd("MGET").arg(posts).query_async(plain).await?;
                ensure!(titles.len() == PAGE, "titles are missing");
            }
            (Question::UnreadTotal, Way::BareCommands) => {
                let values: Vec<Value> = redis::cmd("HVALS").arg(keys::reader_state(user)).query_async(plain).await?;
                ensure!(values.len() == kind.authors + 1, "a wrong total");
            }
            (Question::FirstPage, Way::SourcePipelined | Way::SourceSingly) => {
                let mut newest = redis::cmd("ZREVRANGE");
                let ids: Vec<String> = newest.arg(layouts::feed(user)).arg(0).arg(PAGE - 1).query_async(plain).await?;
                let commands: Vec<Cmd> = ids.iter().zip(first).flat_map(|(id, post)| source_item(user, id, post)).collect();
                let responses = match kind.way {
                    Way::SourceSingly => singly(plain, &commands).await?,
                    _ => run_all(plain, &commands).await?,
                };
                ensure!(
                    responses.len() == 2 * PAGE && !responses.contains(&Value::Nil) && !responses.contains(&Value::Int(0)),
                    "a wrong page"
                );
            }
            (Question::UnreadTotal, Way::SourcePipelined | Way::SourceSingly) => {
                let counts: Vec<u64> = redis::cmd("HGETALL").arg(layouts::unread_counts(user)).query_async(plain).await?;
                ensure!(counts.iter().skip(1).step_by(2).sum::<u64>() == of.unread, "a wrong total");
            }
        }
        Ok(())
    }
}

/// A page of Tidemark's feed: the view and the summaries of its posts.
async fn page(views: &Views, user: UserId, newest: usize, depth: usize) -> anyhow::Result<View> {
    let view = views.reader_view(user, newest).await?.context("no view")?;
    let posts: Vec<PostId> = view.entries.iter().skip(depth).take(PAGE).map(|entry| entry.post).collect();
    ensure!(views.summaries(&posts).await?.len() == PAGE, "summaries are missing");
    Ok(view)
}

fn source_post(post: &FeedKey) -> String {
    format!("blog:{}", PostIds::Integers.of(post))
}

/// The read flag and the title of a post.
fn source_item(user: UserId, id: &str, post: &FeedKey) -> [Cmd; 2] {
    let unread = redis::cmd("SISMEMBER").arg(layouts::unread_set(user, post.post.author)).arg(id).clone();
    let title = redis::cmd("HGET").arg(source_post(post)).arg("title").clone();
    [unread, title]
}

async fn singly(connection: &mut MultiplexedConnection, commands: &[Cmd]) -> anyhow::Result<Vec<Value>> {
    let mut responses = Vec::with_capacity(commands.len());
    for command in commands {
        responses.push(command.query_async(connection).await?);
    }
    Ok(responses)
}

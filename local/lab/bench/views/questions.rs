//! The measured reads.

use anyhow::{Context, ensure};
use serde::Serialize;
use tidemark::{
    domain::{FeedKey, PostId, PostSummary, Rank, UserId},
    views::{View, Views},
};

use super::loading::{self, Origin};
use crate::{
    server::Server,
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

/// One kind of read, by readers who follow this number of authors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Kind {
    pub(super) question: Question,
    pub(super) authors: usize,
}

const FEW: Shape = Shape { authors: 10, posts: 150 };
const MANY: Shape = Shape { authors: 500, posts: 2 };

/// All kinds.
pub(super) fn kinds() -> Vec<Kind> {
    let questions = [Question::FirstPage, Question::DeepPage, Question::UnreadTotal];
    let of = |question| [FEW, MANY].map(|shape| Kind { question, authors: shape.authors });
    questions.into_iter().flat_map(of).collect()
}

/// A server full of readers, and a connection to it.
pub(super) struct Readers {
    views: Views,
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

    async fn load(&self, views: &Views) -> anyhow::Result<()> {
        loading::load(views, &self.world, Origin::Seeded).await?;
        let summary = |post: &FeedKey| PostSummary {
            id: post.post,
            title: TITLE.to_owned(),
            of: None,
            created_at: post.at,
            revision: 1,
            rank: Rank::default(),
            deleted: false,
        };
        Ok(views.remember_posts(&self.newest.iter().map(|post| (summary(post), None)).collect::<Vec<_>>(), None).await?)
    }
}

impl Readers {
    pub(super) async fn load(server: &Server, seed: u64) -> anyhow::Result<Self> {
        server.flush().await?;
        let views = server.views()?;
        let (few, many) = (Followers::new(FEW, seed), Followers::new(MANY, seed + 1));
        few.load(&views).await?;
        many.load(&views).await?;
        Ok(Self { views, few, many, turn: 0 })
    }

    /// Reads once, by another reader every time, and checks that the response is complete.
    pub(super) async fn ask(&mut self, kind: Kind) -> anyhow::Result<()> {
        self.turn += 1;
        let Self { views, few, many, turn } = self;
        let of = if kind.authors == FEW.authors { few } else { many };
        let user = of.world.readers[*turn % READERS];
        let (view, entries) = match kind.question {
            Question::FirstPage => (page(views, user, NEWEST_FIRST, 0).await?, NEWEST_FIRST),
            Question::DeepPage => (page(views, user, NEWEST_DEEP, DEPTH).await?, of.newest.len()),
            Question::UnreadTotal => (views.reader_view(user, 0).await?.context("no view")?, 0),
        };
        ensure!(
            view.entries == of.newest[..entries] && view.state.unread_total() == of.unread,
            "a wrong response to {:?}",
            kind.question
        );
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

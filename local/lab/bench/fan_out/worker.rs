//! The worker of this project: the `fan-out` function with the events of its queue.

use std::sync::Arc;

use anyhow::{Context, ensure};
use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use futures::{StreamExt, TryStreamExt, stream};
use lambda_runtime::LambdaEvent;
use tempfile::TempDir;
use tidemark::views::RedisOptions;
use tidemark::{
    App, Settings,
    domain::{
        AuthorHead, AuthorState, Edge, FeedKey, Modes, NewPost, PostId, ReadState, Timestamp, UserId, reader_state::RECENT_FIELDS,
    },
    facts::Published,
    queue::{self, FanOut, Task},
    telemetry::EmbeddedMetrics,
    views::{Rebuild, Seed},
};
use tidemark_local::{
    Options, Stack,
    template::{self, EventSource},
};

use super::{PAGE, Readers};
use crate::server::Server;

/// The publishing author. All followers also follow nine others.
const AUTHOR: u64 = 7_000_001;
const OTHERS: u64 = 9;
/// The time of the feeds' oldest entry, and the time between two entries.
const START_MS: u64 = 1_720_000_000_000;
const STEP_MS: u64 = 600_000;
/// Views that are prepared at the same time.
const PARALLEL: usize = 16;

/// An event of the queue.
pub(super) struct Event {
    event: SqsEvent,
    /// Followers in all its messages.
    followers: usize,
}

/// A stack on the measured Redis. Its worker is called directly, and does not pace itself.
pub(super) struct Worker {
    stack: Stack,
    pub(super) app: App,
    followers: Vec<UserId>,
    /// Messages of one event: the template's batch size.
    messages: usize,
    _data: TempDir,
}

impl Worker {
    /// Writes the facts, and gives every follower a live view with a feed.
    pub(super) async fn prepare(server: &Server, readers: &Readers) -> anyhow::Result<Self> {
        let data = crate::folder::in_ram()?;
        let mut options = Options::new(data.path());
        options.redis_url = Some(server.url());
        options.schedules = false;
        let stack = Stack::start(options).await?;
        let app = process(stack.app("fan-out").context("the template has no fan-out function")?, false).await?;
        let events = &stack.template().function("fan-out").context("the template has no fan-out function")?.events;
        let batch_size =
            |event: &template::Event| if let EventSource::Sqs(queue) = &event.source { Some(queue.batch_size) } else { None };
        let messages = events.iter().find_map(batch_size).context("fan-out has no queue")?;
        let worker = Self { stack, app, followers: readers.listed.clone(), messages, _data: data };
        let entries = feed(readers.entries);
        stream::iter(&readers.shuffled)
            .map(|&user| worker.make_live(user, &entries))
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await?;
        worker.spread(&entries).await?;
        Ok(worker)
    }

    /// Delivers none to eight more posts to each feed. A ninth delivery moves eight entries, and these readers are not
    /// to have theirs all at once.
    async fn spread(&self, entries: &[FeedKey]) -> anyhow::Result<()> {
        let author = UserId::new(AUTHOR + 1).context("an author")?;
        let posts = entries.iter().filter(|entry| entry.post.author == author).count() as u64;
        for number in 1..=RECENT_FIELDS.len() as u64 {
            let at = Timestamp::from_ms(START_MS + (entries.len() as u64 + number) * STEP_MS);
            let post = FeedKey { at, post: PostId::new(author, posts + number) };
            let users: Vec<UserId> = self.followers.iter().copied().filter(|user| user.get() % 9 >= number).collect();
            self.app.stores.views.deliver(&users, post, Modes::default(), false).await?;
        }
        Ok(())
    }

    async fn make_live(&self, user: UserId, entries: &[FeedKey]) -> anyhow::Result<()> {
        let views = &self.app.stores.views;
        let since = Timestamp::from_ms(START_MS);
        let authors: Vec<UserId> = (AUTHOR..=AUTHOR + OTHERS).filter_map(UserId::new).collect();
        let edge = |author| Edge { following: true, since, rev: 1, ..Edge::never(user, author) };
        let edges: Vec<Edge> = authors.iter().map(|&author| edge(author)).collect();
        let states = edges.iter().map(|edge| {
            let latest_seq = entries.iter().filter(|entry| entry.post.author == edge.author).count() as u64;
            let head = AuthorHead { latest_seq, latest_at: since, posts: latest_seq, ..AuthorHead::default() };
            (edge.author, AuthorState::from_facts(edge, &head, &ReadState::default()))
        });
        let seed = Seed { authors: states.collect(), entries: entries.to_vec(), token: Some(1), low: None };
        views.begin_rebuild(user, 1, since, Rebuild::Anew).await?;
        views.open_gate(user, &edges).await?;
        views.seed(user, &seed).await?;
        views.finish_rebuild(user, 1, self.app.stores.clock.now()).await?;
        Ok(())
    }

    /// The worker of another process.
    pub(super) async fn another(&self, paced: bool) -> anyhow::Result<App> {
        process(&self.app, paced).await
    }

    /// Publishes one more post. Returns the events of its fan-out: at least one for each of these processes, so that
    /// hardly ever two posts are on their way to the same followers.
    pub(super) async fn events(&self, processes: usize) -> anyhow::Result<Vec<Event>> {
        let author = UserId::new(AUTHOR).context("an author")?;
        let new = NewPost::titled(author, "measured");
        let followers = self.followers.len() as u64;
        let published = self.app.stores.facts.publish_post(&new, followers, None, self.app.stores.clock.now()).await?;
        let Published::Created(post, head) = published else { anyhow::bail!("{published:?}") };
        let fan_out = FanOut { pages: u16::try_from(self.followers.len().div_ceil(PAGE))?, ..FanOut::of(&post, &head) };
        let bodies: Vec<String> = self
            .followers
            .chunks(PAGE)
            .zip(0..)
            .map(|(followers, page)| {
                queue::encode(&Task::Batch { fan_out, page, followers: followers.iter().map(|user| user.get()).collect() })
            })
            .collect::<Result<_, _>>()?;
        ensure!(bodies.len() >= processes, "too few followers for {processes} processes");
        let messages = self.messages.min(bodies.len() / processes);
        let followers = self.followers.chunks(messages * PAGE).map(<[UserId]>::len);
        let events = bodies.chunks(messages).map(event).zip(followers);
        Ok(events.map(|(event, followers)| Event { event, followers }).collect())
    }

    /// Handles events as the process of `app`. Returns the number of followers.
    pub(super) async fn work(&self, app: &App, events: impl IntoIterator<Item = Event>) -> anyhow::Result<usize> {
        let mut handled = 0;
        for Event { event, followers } in events {
            let response = tidemark_fan_out::handle(app, LambdaEvent::new(event, context(app))).await;
            let response = response.map_err(|error| anyhow::anyhow!("{error}"))?;
            ensure!(response.batch_item_failures.is_empty(), "the worker reported failed messages");
            handled += followers;
        }
        Ok(handled)
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.stack.stop().await
    }
}

/// The same function in another process.
async fn process(app: &App, paced: bool) -> anyhow::Result<App> {
    let redis = RedisOptions { paced, ..app.settings.redis.clone() };
    let metrics = Arc::new(EmbeddedMetrics::new(String::new(), |_| {}));
    Ok(App::connect_with(Settings { redis, ..app.settings.clone() }, metrics).await?)
}

/// The entries of every feed: the nine other authors take turns.
fn feed(entries: usize) -> Vec<FeedKey> {
    (0..entries as u64)
        .filter_map(|number| {
            let author = UserId::new(AUTHOR + 1 + number % OTHERS)?;
            Some(FeedKey { at: Timestamp::from_ms(START_MS + number * STEP_MS), post: PostId::new(author, number / OTHERS + 1) })
        })
        .collect()
}

fn event(bodies: &[String]) -> SqsEvent {
    let message = |(number, body): (usize, &String)| {
        let mut message = SqsMessage::default();
        message.message_id = Some(number.to_string());
        message.body = Some(body.clone());
        message
    };
    let mut event = SqsEvent::default();
    event.records = bodies.iter().enumerate().map(message).collect();
    event
}

fn context(app: &App) -> lambda_runtime::Context {
    let mut context = lambda_runtime::Context::default();
    context.deadline = app.stores.clock.now().ms() + 30_000;
    context
}

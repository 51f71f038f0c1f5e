//! Mirrors changes of facts into the legacy Redis: follows, posts, deletions and marks.
//!
//! A stream record only shows what changed. The mirror reads the facts and makes the legacy keys agree with them, so
//! records may be repeated, late or out of order. A record whose mirror fails is returned, and the stream repeats it.
//! The mirror adds its writes to the lists of seen members ([`crate::follow`]), so that they do not come back as
//! changes of the legacy system.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use aws_lambda_events::{
    dynamodb::{Event, EventRecord},
    streams::{DynamoDbBatchItemFailure, DynamoDbEventResponse},
};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tidemark::{
    App,
    domain::{Post, PostId, Relation, Seq, SeqSet, UserId},
    facts::{self, StreamRecord},
    reader::PairFacts,
};
use tracing::{error, warn};

use crate::{
    Imports, MigrateError,
    facts::Placed,
    legacy::{self, BlogId, Layout, Shape},
    records::SeenList,
    source::{Mark, Source},
};

/// Changes that are mirrored concurrently, and followers of one post.
const PARALLEL: usize = 16;
/// Followers that are listed at a time.
const FOLLOWERS: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Post(PostId),
    Edge(UserId, UserId),
    Marks(UserId, UserId),
}

pub(crate) struct Mirror<'a> {
    app: &'a App,
    imports: Imports,
    legacy: Source,
}

/// Mirrors one batch of stream records. Returns the first record that failed.
pub(crate) async fn batch(app: &App, event: Event) -> Result<DynamoDbEventResponse, MigrateError> {
    let mirror = Mirror::connect(app).await?;
    let mut changes: BTreeMap<Change, usize> = BTreeMap::new();
    for (index, record) in event.records.iter().enumerate() {
        if let Some(change) = change_of(app, record) {
            changes.entry(change).or_insert(index);
        }
    }
    let work = changes.into_iter().map(|(change, index)| {
        let mirror = &mirror;
        async move { (index, change, mirror.change(change).await) }.boxed()
    });
    let done: Vec<_> = stream::iter(work.collect::<Vec<_>>()).buffer_unordered(PARALLEL).collect().await;
    let failed = done.into_iter().filter_map(|(index, change, outcome)| match outcome {
        Ok(()) => None,
        Err(error) if error.is_retryable() => {
            warn!(?change, error = &error as &dyn std::error::Error, "change not mirrored, the stream repeats it");
            Some(index)
        }
        // A repetition would fail too, and hold up all later changes.
        Err(error) => {
            error!(?change, error = &error as &dyn std::error::Error, "change cannot be mirrored");
            None
        }
    });
    let mut response = DynamoDbEventResponse::default();
    if let Some(index) = failed.min() {
        let mut failure = DynamoDbBatchItemFailure::default();
        failure.item_identifier = event.records[index].change.sequence_number.clone();
        response.batch_item_failures.push(failure);
    }
    Ok(response)
}

/// The change that a record shows. A head, a body, or a window shows none: its post or read state has a record of its
/// own. Neither does a malformed record, which stays malformed however often the stream repeats it.
fn change_of(app: &App, record: &EventRecord) -> Option<Change> {
    let (arn, change) = (record.event_source_arn.as_deref(), &record.change);
    let shown = StreamRecord { arn, keys: &change.keys, old: &change.old_image, new: &change.new_image };
    match shown.changes(&app.settings.tables) {
        Ok(changes) => changes.into_iter().find_map(|change| match change {
            facts::Change::Post { id, .. } => Some(Change::Post(id)),
            facts::Change::Reads { user, author, .. } => Some(Change::Marks(user, author)),
            facts::Change::Edge { user, author, .. } => Some(Change::Edge(user, author)),
            _ => None,
        }),
        Err(malformed) => {
            error!(event = record.event_id, %malformed, "not mirrored");
            None
        }
    }
}

impl<'a> Mirror<'a> {
    pub(crate) async fn connect(app: &'a App) -> Result<Self, MigrateError> {
        let url = app.settings.legacy.redis_url.as_deref();
        let url = url.ok_or_else(|| MigrateError::Invalid("LEGACY_REDIS_URL is not set".to_owned()))?;
        Ok(Self { app, imports: Imports(app.stores.facts.clone()), legacy: Source::connect(url).await? })
    }

    async fn change(&self, change: Change) -> Result<(), MigrateError> {
        match change {
            Change::Post(post) => self.post(post).await,
            Change::Edge(user, author) => {
                self.edge(user, author).await?;
                // The follow may have come from the legacy system after posts that it did not know were written.
                self.marks(user, author, None).await
            }
            Change::Marks(user, author) => self.marks(user, author, None).await,
        }
    }

    /// Mirrors everything of a user: posts, follows and marks. It repairs what a stream has given up.
    pub(crate) async fn user(&self, user: UserId) -> Result<(), MigrateError> {
        let latest = self.app.stores.facts.head_of(user).await?.latest_seq;
        for seq in 1..=latest {
            self.post(PostId::new(user, seq)).await?;
        }
        let authors = self.app.stores.facts.following(user).await?.into_iter().map(|edge| edge.author);
        let mut authors: BTreeSet<UserId> = authors.collect();
        for author in &authors {
            self.edge(user, *author).await?;
        }
        authors.extend(self.app.stores.facts.all_reads(user).await?.into_keys());
        let work = authors.into_iter().map(|author| self.marks(user, author, None).boxed());
        stream::iter(work.collect::<Vec<_>>()).buffer_unordered(PARALLEL).try_collect().await
    }

    /// An expired tombstone was mirrored when it was written.
    async fn edge(&self, user: UserId, author: UserId) -> Result<(), MigrateError> {
        let Some(edge) = self.app.stores.facts.edges(user, &[author]).await?.remove(&author) else { return Ok(()) };
        self.legacy.put_edge(&edge).await?;
        let one: SeqSet = [author.get()].into_iter().collect();
        let list = Layout::UFollow.key(user.get());
        let change = |list: &mut SeenList| if edge.following { list.add(&one) } else { list.drop(&one) };
        Ok(self.imports.change_list(&list, change).await?)
    }

    async fn post(&self, id: PostId) -> Result<(), MigrateError> {
        let Some(post) = self.app.stores.facts.posts(&[id]).await?.remove(&id) else { return Ok(()) };
        let placed = self.imports.placed(&[id]).await?.remove(&id);
        let placed = match placed {
            Some(placed) => placed,
            // The legacy system knows no reposts.
            None if post.deleted || post.reposted().is_some() => return Ok(()),
            None => self.imports.place(id).await?,
        };
        let one: SeqSet = [placed.blog].into_iter().collect();
        let list = Layout::AuthorBlogs.key(id.author.get());
        if post.deleted {
            // The blog may have become another post since, when it returned.
            if self.imports.mapped(&[placed.blog]).await?.get(&placed.blog) != Some(&id) {
                return Ok(());
            }
            self.legacy.retract_blog(placed.blog, id.author).await?;
            self.imports.change_list(&list, |list| list.drop(&one)).await?;
        } else {
            self.legacy.put_blog(placed.blog, &post, placed.new).await?;
            if placed.new {
                self.imports.change_list(&list, |list| list.add(&one)).await?;
            }
        }
        if placed.told != Some(post.deleted) {
            self.tell(&post, placed.blog).await?;
            self.imports.note_told(id, Placed { told: Some(post.deleted), new: false, ..placed }).await?;
        }
        Ok(())
    }

    /// Changes the unread sets of the author's followers. A follow after the list was read begins after the post.
    async fn tell(&self, post: &Post, blog: BlogId) -> Result<(), MigrateError> {
        let author = post.id.author;
        let mut before: Option<Relation> = None;
        loop {
            let page = self.app.stores.facts.followers_by_time(author, before, FOLLOWERS).await?;
            let work = page.iter().map(|follower| self.marks(follower.user, author, Some((post.id.seq, blog))).boxed());
            stream::iter(work.collect::<Vec<_>>()).buffer_unordered(PARALLEL).try_collect::<()>().await?;
            before = page.last().copied().filter(|_| page.len() == FOLLOWERS);
            if before.is_none() {
                return Ok(());
            }
        }
    }

    /// Makes the legacy read state of a pair agree with the facts, or that of one post. It does so again while the
    /// facts have changed in the meantime: the last of several writers has seen the latest facts.
    async fn marks(&self, user: UserId, author: UserId, one: Option<(Seq, BlogId)>) -> Result<(), MigrateError> {
        // A deletion may be mirrored by another stream between the read of the facts and this write.
        let version = |pair: &PairFacts| (pair.edge.as_ref().map(|edge| edge.rev), pair.reads.version, pair.head.deletions());
        let mut pair = self.app.readers.pair(user, author).await?;
        loop {
            let marks = match one {
                Some((seq, blog)) => vec![(mark_of(&pair, seq), blog)],
                None => self.differences(user, &pair).await?,
            };
            if marks.is_empty() {
                return Ok(());
            }
            self.legacy.put_marks(user, author, &marks).await?;
            let with = |wanted| marks.iter().filter(|(mark, _)| *mark == wanted).map(|(_, blog)| *blog).collect::<SeqSet>();
            let (read, unmarked) = (with(Mark::Read), with(Mark::Unmarked));
            let change = |list: &mut SeenList| {
                list.add(&read);
                list.forget(&unmarked);
            };
            self.imports.change_list(&Layout::UserRead.key(user.get()), change).await?;
            let now = self.app.readers.pair(user, author).await?;
            if version(&now) == version(&pair) {
                return Ok(());
            }
            pair = now;
        }
    }

    /// The blogs whose legacy state differs from the facts. Posts that are newer than these facts are left alone, and
    /// so are blogs that are no posts yet.
    async fn differences(&self, user: UserId, pair: &PairFacts) -> Result<Vec<(Mark, BlogId)>, MigrateError> {
        let (author, read) = (pair.author, &pair.reads.read);
        let here = unread(pair);
        let members = self.legacy.members(Shape::Set, &legacy::unread_key(user, author)).await?;
        let there: Vec<BlogId> = members.iter().filter_map(|(member, _)| legacy::id(member).ok()).collect();
        let there = self.imports.mapped(&there).await?.into_iter();
        let there: HashMap<BlogId, Seq> = there
            .filter(|(_, post)| post.author == author && post.seq <= pair.head.latest_seq)
            .map(|(blog, post)| (blog, post.seq))
            .collect();
        let settled = |seq: Seq| match read.contains(seq) {
            true => Some(Mark::Read),
            // An edge that is not here yet may come with the next pass.
            false => (pair.live_edge().is_some() || pair.head.deleted.contains(seq)).then_some(Mark::Gone),
        };
        let ended = there.iter().filter(|(_, seq)| !here.contains(**seq));
        let mut marks: Vec<(Mark, BlogId)> = ended.filter_map(|(blog, seq)| Some((settled(*seq)?, *blog))).collect();

        let there: SeqSet = there.into_values().collect();
        let base = pair.live_edge().map_or(0, |edge| edge.base);
        let mut marked: SeqSet = read.minus(&there).minus(&pair.head.deleted).above(base).collect();
        if !marked.is_empty() {
            let imported = self.imports.imported_reads(user, &[author]).await?.remove(&author).unwrap_or_default();
            marked = marked.minus(&imported);
        }
        let unread = here.minus(&there);
        if marked.is_empty() && unread.is_empty() {
            return Ok(marks);
        }
        let posts: Vec<PostId> = marked.union(&unread).iter().map(|seq| PostId::new(author, seq)).collect();
        let placed = self.imports.placed(&posts).await?;
        let seen = self.imports.list(&Layout::UserRead.key(user.get())).await?.members;
        for (post, Placed { blog, .. }) in placed {
            match (marked.contains(post.seq), seen.contains(blog)) {
                (true, true) => {}
                (true, false) => marks.push((Mark::Read, blog)),
                (false, true) => marks.push((Mark::Unmarked, blog)),
                (false, false) => marks.push((Mark::Unread, blog)),
            }
        }
        Ok(marks)
    }
}

fn mark_of(pair: &PairFacts, seq: Seq) -> Mark {
    if unread(pair).contains(seq) {
        Mark::Unread
    } else if pair.reads.read.contains(seq) && !pair.head.deleted.contains(seq) {
        Mark::Read
    } else {
        Mark::Gone
    }
}

/// The unread posts of a pair; none if the user does not follow the author.
fn unread(pair: &PairFacts) -> SeqSet {
    pair.state().map(|state| state.unread_seqs().collect()).unwrap_or_default()
}

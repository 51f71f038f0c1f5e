//! Imports blogs as posts. An author's blogs, ordered by time, take the author's next sequence numbers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tidemark::{
    domain::{AuthorHead, DeliveryMode, DeliveryState, Post, Relation, Seq, SeqSet, Timestamp, UserId},
    queue::FanOut,
};
use tidemark_facts::Import;
use tracing::warn;

use crate::{
    MigrateError,
    context::{Key, Run},
    facts::{BLOGS_PER_IMPORT, ImportedPosts},
    legacy::{self, Blog, BlogId, Layout, Reason, Shape},
    progress::Pending,
    report::Tally,
    source::{Info, Member, SourceError},
};

/// Followers that are listed at a time when imported posts are delivered.
const FOLLOWERS: usize = 1_000;
/// Followers whose read states are written concurrently.
const PARALLEL: usize = 8;

/// The position of an author's key when time was up. Only its entries that are mapped or unreadable were counted.
const REST: u64 = 0;

/// Imports `author:blogs:{author}`.
pub(crate) async fn author(key: &mut Key<'_>, author: UserId) -> Result<Option<u64>, MigrateError> {
    let members = key.run.source.members(Shape::Set, &key.pending.key).await?;
    let (imported, rest) = blogs(key, author, &members).await?;
    key.run.note_seen(&key.pending.key, &imported).await?;
    Ok(rest)
}

/// Imports blogs of an author. Returns those that are posts, and the position of the rest if time is up.
pub(crate) async fn blogs(
    Key { run, pending, tally }: &mut Key<'_>,
    author: UserId,
    members: &[Member],
) -> Result<(SeqSet, Option<u64>), MigrateError> {
    let first_time = pending.at.is_none();
    let mut seen = Tally::default();
    let ids = ids(members, &pending.key, &mut seen);
    let mapped = run.imports.mapped(&ids).await?;
    seen.found(mapped.len() as u64);
    let unmapped: Vec<BlogId> = ids.into_iter().filter(|id| !mapped.contains_key(id)).collect();
    let mut blogs = Vec::with_capacity(unmapped.len());
    for (id, blog) in infos_of(run, &unmapped).await? {
        match blog.and_then(|blog| if blog.author == author { Ok(blog) } else { Err(Reason::OtherAuthor) }) {
            Ok(blog) => blogs.push(blog),
            Err(reason) => seen.refuse(reason, pending.key.as_bytes(), Some(id.to_string().as_bytes())),
        }
    }
    if first_time {
        run.has_read(usize::try_from(seen.read).unwrap_or(usize::MAX));
        tally.add(seen);
    }
    let mut rest = None;
    if !has_left(run, author, &blogs, tally).await? {
        settle_leftovers(run, BTreeSet::from([author])).await?;
        rest = import(run, author, blogs, true, tally).await?;
        if rest.is_none() && !run.dry_run {
            run.app.stores.views.forget_counters(author, None).await?;
        }
    }
    let posts = if unmapped.is_empty() { HashMap::new() } else { run.imports.mapped(&unmapped).await? };
    Ok((mapped.into_keys().chain(posts.into_keys()).collect(), rest))
}

/// The blogs that these members name, each once.
pub(crate) fn ids(members: &[Member], key: &str, tally: &mut Tally) -> Vec<BlogId> {
    let mut ids: BTreeSet<BlogId> = BTreeSet::new();
    for (member, _) in members {
        match legacy::id(member) {
            Ok(id) => drop(ids.insert(id)),
            Err(reason) => tally.refuse(reason, key.as_bytes(), Some(member)),
        }
    }
    ids.into_iter().collect()
}

/// Imports `blog:info:{blog}`: blogs that no author's set names.
pub(crate) async fn infos(run: &Run<'_>, group: &[Pending], tally: &mut Tally) -> Result<(), MigrateError> {
    run.has_read(group.len());
    let mut ids: Vec<BlogId> = Vec::with_capacity(group.len());
    for pending in group {
        match Layout::BlogInfo.id_of(&pending.key) {
            Ok(id) => ids.push(id.get()),
            Err(reason) => tally.refuse(reason, pending.key.as_bytes(), None),
        }
    }
    let mapped = run.imports.mapped(&ids).await?;
    tally.found(mapped.len() as u64);
    let unmapped: Vec<BlogId> = ids.into_iter().filter(|id| !mapped.contains_key(id)).collect();
    let mut by_author: BTreeMap<UserId, Vec<Blog>> = BTreeMap::new();
    for (id, blog) in infos_of(run, &unmapped).await? {
        match blog {
            Ok(blog) => by_author.entry(blog.author).or_default().push(blog),
            // The blog has expired since it was listed.
            Err(Reason::NoInfo) => {}
            Err(reason) => tally.refuse(reason, Layout::BlogInfo.key(id).as_bytes(), None),
        }
    }
    let authors = mapped.values().map(|post| post.author).chain(by_author.keys().copied());
    settle_leftovers(run, authors.collect()).await?;
    for (author, blogs) in by_author {
        if !has_left(run, author, &blogs, tally).await? {
            import(run, author, blogs, false, tally).await?;
        }
    }
    Ok(())
}

/// The blogs with these ids, or the reason why each cannot be imported.
async fn infos_of(run: &Run<'_>, ids: &[BlogId]) -> Result<Vec<(BlogId, Result<Blog, Reason>)>, MigrateError> {
    let fields = run.source.infos(ids).await;
    let read = |(id, fields): (&BlogId, Result<Info, SourceError>)| match fields {
        Ok(fields) => Ok((*id, Blog::read(*id, &fields, run.now))),
        Err(SourceError::WrongType) => Ok((*id, Err(Reason::WrongType))),
        Err(error) => Err(error.into()),
    };
    ids.iter().zip(fields).map(read).collect()
}

/// Author and number of the posts that these blogs became. A dry run adds those that they would become, without number.
pub(crate) async fn resolve(run: &Run<'_>, ids: &[BlogId]) -> Result<HashMap<BlogId, (UserId, Option<Seq>)>, MigrateError> {
    let mapped = run.imports.mapped(ids).await?;
    let mut known: HashMap<_, _> = mapped.into_iter().map(|(id, post)| (id, (post.author, Some(post.seq)))).collect();
    if run.dry_run {
        let unmapped: Vec<BlogId> = ids.iter().copied().filter(|id| !known.contains_key(id)).collect();
        let infos = infos_of(run, &unmapped).await?;
        known.extend(infos.into_iter().filter_map(|(id, blog)| Some((id, (blog.ok()?.author, None)))));
    }
    Ok(known)
}

/// Imports blogs of one author in the order of time. If it `may_stop`, it obeys the limits and may return [`REST`].
async fn import(
    run: &Run<'_>,
    author: UserId,
    mut blogs: Vec<Blog>,
    may_stop: bool,
    tally: &mut Tally,
) -> Result<Option<u64>, MigrateError> {
    blogs.sort_unstable_by_key(Blog::order);
    let writes = !run.dry_run && !blogs.is_empty();
    let import = if writes { run.imports.begin_import(author).await? } else { None };
    if writes && import.is_none() {
        refuse_erased(&blogs, tally);
        return Ok(None);
    }
    for blogs in blogs.chunks(BLOGS_PER_IMPORT) {
        if may_stop {
            if run.is_over() {
                return Ok(Some(REST));
            }
            run.has_read(blogs.len());
        }
        import_some(run, author, import, blogs, tally).await?;
    }
    if let Some(import) = import {
        run.imports.end_import(import).await?;
    }
    Ok(None)
}

/// Whether the author has left. Then the blogs are refused.
async fn has_left(run: &Run<'_>, author: UserId, blogs: &[Blog], tally: &mut Tally) -> Result<bool, MigrateError> {
    let has_left = run.app.stores.facts.erased(&[author]).await?.contains(&author);
    if has_left {
        refuse_erased(blogs, tally);
    }
    Ok(has_left)
}

fn refuse_erased(blogs: &[Blog], tally: &mut Tally) {
    blogs.iter().for_each(|blog| tally.refuse(Reason::Erased, Layout::BlogInfo.key(blog.id).as_bytes(), None));
}

/// Ends the imports of these authors that an interrupted run has begun, and settles the posts that it imported and did
/// not settle. A later import would forget them.
async fn settle_leftovers(run: &Run<'_>, authors: BTreeSet<UserId>) -> Result<(), MigrateError> {
    if run.dry_run || authors.is_empty() {
        return Ok(());
    }
    let authors: Vec<UserId> = authors.into_iter().collect();
    for import in run.imports.open_imports(&authors).await? {
        run.imports.end_import(import).await?;
    }
    for (author, record) in run.imports.import_records(&authors).await? {
        if let Some((first, last)) = record.unsettled {
            let head = run.app.stores.facts.head_of(author).await?;
            settle(run, author, &head, first, last).await?;
        }
    }
    Ok(())
}

/// Imports blogs; without an import it only counts them.
async fn import_some(
    run: &Run<'_>,
    author: UserId,
    import: Option<Import>,
    blogs: &[Blog],
    tally: &mut Tally,
) -> Result<(), MigrateError> {
    let Some(import) = import else {
        tally.wrote(blogs.len() as u64);
        return Ok(());
    };
    let followers = run.app.stores.facts.follower_counts(author).await?.iter().sum();
    let imported = run.imports.import_posts(import, blogs, followers, !run.follow, run.now).await?;
    let Some(ImportedPosts { written, head, unsettled, has_left }) = imported else {
        // The other run may have ended this import before it had begun in all shards.
        run.imports.end_import(import).await?;
        return Err(MigrateError::Overtaken);
    };
    if has_left {
        refuse_erased(blogs, tally);
        return Ok(());
    }
    tally.wrote(written.len() as u64);
    tally.found((blogs.len() - written.len()) as u64);
    match unsettled {
        Some((first, last)) => settle(run, author, &head, first, last).await?,
        // Not the head of the import: the author may have become private since it was read.
        None => run.app.fan_outs.show_head(author).await?,
    }
    Ok(run.app.stores.views.forget_counters(author, None).await?)
}

/// Stores the head, of which timelines are computed, and delivers imported posts to the users who already follow the
/// author. Posts that are older than a follow are marked read before the delivery. The followers are listed after the
/// import: a follow from before the import is found, and a later follow has the posts already.
async fn settle(run: &Run<'_>, author: UserId, head: &AuthorHead, first: Seq, last: Seq) -> Result<(), MigrateError> {
    let (stores, imports) = (&run.app.stores, &run.imports);
    run.app.fan_outs.show_head(author).await?;
    let mut page = stores.facts.followers_by_time(author, None, FOLLOWERS).await?;
    if page.is_empty() {
        return Ok(imports.settle(author, last).await?);
    }
    let limit = usize::try_from(last.saturating_sub(first) + 1).unwrap_or(usize::MAX);
    let imported = stores.facts.author_timeline(author, first.saturating_sub(1), last, limit).await?;
    let told: Vec<&Post> = imported.iter().rev().filter(|post| post.is_in_feeds()).collect();
    // Posts that were imported when the author had no counted followers have no fan-out.
    let (pending, alone): (Vec<&Post>, Vec<&Post>) = told.iter().partition(|post| post.delivery.state == DeliveryState::Pending);
    while let Some(&oldest) = page.last() {
        let work = page.iter().map(|relation| mark_older(run, author, *relation, &told).boxed());
        stream::iter(work.collect::<Vec<_>>()).buffer_unordered(PARALLEL).try_collect::<()>().await?;
        let users: Vec<UserId> = page.iter().map(|relation| relation.user).collect();
        for post in alone.iter().filter(|post| post.delivery.mode == DeliveryMode::Push) {
            run.app.fan_outs.deliver(&users, post, head.modes, false).await?;
        }
        page = stores.facts.followers_by_time(author, Some(oldest), FOLLOWERS).await?;
    }
    for post in pending {
        if let Err(error) = run.app.fan_outs.start(FanOut::of(post, head)).await {
            warn!(post = %post.id, error = &error as &dyn std::error::Error, "fan-out is left to reconcile");
        }
    }
    Ok(imports.settle(author, last).await?)
}

/// Marks the posts read that are older than the follow.
async fn mark_older(run: &Run<'_>, author: UserId, follower: Relation, posts: &[&Post]) -> Result<(), MigrateError> {
    let is_older = |at: Timestamp| at <= follower.since;
    let seqs: SeqSet = posts.iter().filter(|post| is_older(post.created_at)).map(|post| post.id.seq).collect();
    if seqs.is_empty() {
        return Ok(());
    }
    run.imports.import_reads(follower.user, author, &seqs, false).await?;
    run.sync_view(follower.user, &[author]).await
}

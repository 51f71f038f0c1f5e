//! Imports `follows:{user}`, a list of followed users without times.
//!
//! A follow began just before the author's oldest post in the user's feed. If the user has a feed without posts of the
//! author, nothing was published since: the follow gets the time at which the first import of follows began. If the
//! user has no feed, it began before the author's first post, so that every unread post counts.

use std::collections::{BTreeMap, HashMap};

use tidemark::domain::{Post, PostId, SeqSet, Timestamp, UserId};

use crate::{
    MigrateError,
    context::{Key, Run},
    edges::{self, Follow, just_before},
    legacy::{self, BlogId, EMPTY_FEED_MARKER, Layout, Reason},
    posts,
    records::SeenList,
    source::{Member, SourceError},
};

/// Imports members of a user's list. Returns the authors who need no further import.
pub(crate) async fn follows(key: &mut Key<'_>, user: UserId, members: &[Member]) -> Result<SeqSet, MigrateError> {
    let mut authors = Vec::with_capacity(members.len());
    for (member, _) in members {
        match legacy::user(member) {
            Ok(author) if author == user => key.refuse(Reason::SelfFollow, member),
            Ok(author) => authors.push(author),
            Err(reason) => key.refuse(reason, member),
        }
    }
    authors.sort_unstable();
    authors.dedup();
    let times = times(key.run, user, &authors).await?;
    let follows: Vec<Follow> = authors.into_iter().zip(times).collect();
    let outcomes = edges::follow(key.run, user, &follows, &SeenList::default()).await?;
    Ok(edges::count_all(key, outcomes))
}

/// The times at which a user began to follow these authors.
async fn times(run: &Run<'_>, user: UserId, authors: &[UserId]) -> Result<Vec<Timestamp>, MigrateError> {
    if let Some(oldest) = oldest_in_feed(run, user).await? {
        let began = |author| oldest.get(author).map_or(run.begun_at, |at| just_before(*at));
        return Ok(authors.iter().map(began).collect());
    }
    let first: Vec<PostId> = authors.iter().map(|author| PostId::new(*author, 1)).collect();
    let posts: HashMap<PostId, Post> = run.app.stores.facts.posts(&first).await?;
    Ok(first.iter().map(|id| posts.get(id).map_or(run.begun_at, |post| just_before(post.created_at))).collect())
}

/// The time of each author's oldest post in the user's feed; `None` if the user has none.
async fn oldest_in_feed(run: &Run<'_>, user: UserId) -> Result<Option<BTreeMap<UserId, Timestamp>>, MigrateError> {
    let mut members = Vec::new();
    for layout in [Layout::UserFeed, Layout::Feed] {
        match run.source.members(layout.shape(), &layout.key(user.get())).await {
            Ok(found) => members.extend(found),
            Err(SourceError::WrongType) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if members.is_empty() {
        return Ok(None);
    }
    let blog = |(member, score): &Member| {
        let at = legacy::time_of_score(score.unwrap_or(f64::NAN), 1, run.now).ok()?;
        Some((legacy::id(member).ok()?, at)).filter(|_| member != EMPTY_FEED_MARKER)
    };
    let blogs: BTreeMap<BlogId, Timestamp> = members.iter().filter_map(blog).collect();
    let authors = posts::resolve(run, &blogs.keys().copied().collect::<Vec<_>>()).await?;
    let mut oldest = BTreeMap::new();
    for (blog, at) in blogs {
        if let Some((author, _)) = authors.get(&blog) {
            let known = oldest.entry(*author).or_insert(at);
            *known = at.min(*known);
        }
    }
    Ok(Some(oldest))
}

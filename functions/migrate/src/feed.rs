//! Imports feeds as follow edges, for users who have no relation list. A feed is a view and is not imported itself, but
//! its reader follows the authors in it.

use std::collections::BTreeMap;

use tidemark::domain::{Timestamp, UserId};

use crate::{
    MigrateError,
    edges::{self, Follow, FollowOutcome},
    legacy::{self, BlogId, EMPTY_FEED_MARKER, Layout, Reason},
    posts,
    run::{Key, Run},
    source::{Member, Shape},
};

/// The number of an author's posts in a feed, and the time of the oldest.
struct Shown {
    posts: u64,
    since: Timestamp,
}

/// Imports `focusFeedKey{user}`. It reads the feed to its end at once, because an edge begins at the oldest post of its
/// author. A feed has about a thousand entries.
pub(crate) async fn user(key: &mut Key<'_>, user: UserId) -> Result<Option<u64>, MigrateError> {
    let run = key.run;
    let members = run.source.members(Shape::SortedSet, &key.pending.key).await?;
    run.has_read(members.len());
    let mut shown = shown(key, &members).await?;
    shown.remove(&user).into_iter().for_each(|own| key.tally.found(own.posts));
    // If the user has a list, it decides whom the user follows. Other authors in the feed were left by unfollows.
    let lists = [Layout::Following, Layout::UFollow].map(|layout| layout.key(user.get()));
    let has_list = run.source.exist(&lists).await?.contains(&true);
    let follows: Vec<Follow> = shown.iter().map(|(author, shown)| (*author, shown.since)).collect();
    let outcomes = if has_list { judge(run, user, &follows).await? } else { edges::follow(run, user, &follows).await? };
    for ((author, _), outcome) in outcomes {
        let posts = shown.get(&author).map_or(0, |shown| shown.posts);
        match outcome {
            // One edge was written for all of the author's posts in the feed.
            FollowOutcome::Written => {
                key.tally.wrote(1);
                key.tally.found(posts - 1);
            }
            outcome => (0..posts).for_each(|_| edges::count(key, outcome, author)),
        }
    }
    Ok(None)
}

/// The authors of the posts in a feed.
async fn shown(key: &mut Key<'_>, members: &[Member]) -> Result<BTreeMap<UserId, Shown>, MigrateError> {
    let run = key.run;
    let mut shown: BTreeMap<UserId, Shown> = BTreeMap::new();
    let mut times: BTreeMap<BlogId, Timestamp> = BTreeMap::new();
    for (member, score) in members.iter().filter(|(member, _)| member != EMPTY_FEED_MARKER) {
        let at = legacy::time_of_score(score.unwrap_or(f64::NAN), 1, run.now);
        match legacy::id(member).and_then(|id| Ok((id, at?))) {
            Ok((id, at)) => drop(times.insert(id, at)),
            Err(reason) => key.refuse(reason, member),
        }
    }
    let ids: Vec<BlogId> = times.keys().copied().collect();
    let known = posts::resolve(run, &ids).await?;
    for (id, at) in times {
        match known.get(&id) {
            None => key.refuse(Reason::UnknownPost, id.to_string().as_bytes()),
            Some((author, _)) => {
                let shown = shown.entry(*author).or_insert(Shown { posts: 0, since: at });
                shown.posts += 1;
                shown.since = shown.since.min(at);
            }
        }
    }
    Ok(shown)
}

/// An author with an edge, live or ended, is already there. Other authors are refused.
async fn judge(run: &Run<'_>, user: UserId, follows: &[Follow]) -> Result<Vec<(Follow, FollowOutcome)>, MigrateError> {
    let authors: Vec<UserId> = follows.iter().map(|(author, _)| *author).collect();
    let known = run.app.stores.edges.edges(user, &authors).await?;
    let outcome = |follow: &Follow| {
        let is_there = known.contains_key(&follow.0);
        (*follow, if is_there { FollowOutcome::AlreadyThere } else { FollowOutcome::Refused(Reason::NotFollowed) })
    };
    Ok(follows.iter().map(outcome).collect())
}

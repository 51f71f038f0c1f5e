//! A pass over the lists of a legacy system that is still in use. It imports their changes since the last pass.
//!
//! Redis does not report changes. So each list has a record of its members that agree with the facts, the seen members.
//! Other members are new there and are imported. Seen members that are missing were removed there: an unfollow, a
//! deleted blog. A change that write-back ([`crate::mirror`]) made in a list is seen already.
//!
//! The record is read before the list. So a member that write-back adds in between is only looked at once more, and a
//! seen member that is missing was in the list before.

use tidemark::domain::{Edge, PostId, SeqSet, Timestamp, UserId};

use crate::{
    MigrateError,
    context::{Key, Run},
    import::import,
    legacy::{self, Layout},
    progress::Pending,
    report::Tally,
    source::Member,
};

/// The lists that a pass compares, in the order of import. Lists of followers are not among them, because a follower's
/// own list has the same follows, and feeds are not, because they are views.
pub(crate) const FOLLOWED: [Layout; 4] = [Layout::AuthorBlogs, Layout::UserRead, Layout::Following, Layout::UFollow];

pub(crate) async fn list(key: &mut Key<'_>, layout: Layout, owner: UserId) -> Result<Option<u64>, MigrateError> {
    let run = key.run;
    let seen = run.imports.seen(&key.pending.key).await?;
    let members = run.source.members(layout.shape(), &key.pending.key).await?;
    run.has_read(members.len());
    changes(key, layout, owner, &seen, members).await
}

/// Imports the removal of all members of lists that no longer exist: Redis deletes an empty list.
pub(crate) async fn vanished(run: &Run<'_>, lists: Vec<String>, tally: &mut Tally) -> Result<(), MigrateError> {
    let owned = |list: String| {
        let layout = [Layout::AuthorBlogs, Layout::UFollow].into_iter().find(|layout| layout.id_of(&list).is_ok())?;
        Some((layout, layout.id_of(&list).ok()?, list))
    };
    let lists: Vec<_> = lists.into_iter().filter_map(owned).collect();
    let keys: Vec<String> = lists.iter().map(|(_, _, list)| list.clone()).collect();
    let exist = run.source.exist(&keys).await?;
    for ((layout, owner, key), _) in lists.into_iter().zip(exist).filter(|(_, exists)| !exists) {
        let mut key = Key { run, pending: Pending { key, at: None }, tally: Tally::default() };
        let seen = run.imports.seen(&key.pending.key).await?;
        // It may have come back since.
        if !run.source.exist(std::slice::from_ref(&key.pending.key)).await?.contains(&true) {
            changes(&mut key, layout, owner, &seen, Vec::new()).await?;
        }
        tally.add(key.tally);
    }
    Ok(())
}

async fn changes(
    key: &mut Key<'_>,
    layout: Layout,
    owner: UserId,
    seen: &SeqSet,
    members: Vec<Member>,
) -> Result<Option<u64>, MigrateError> {
    let run = key.run;
    let id = |(member, _): &Member| legacy::id(member).ok();
    let there: SeqSet = members.iter().filter_map(id).collect();
    let (known, new): (Vec<Member>, Vec<Member>) =
        members.into_iter().partition(|member| id(member).is_some_and(|id| seen.contains(id)));
    key.tally.found(known.len() as u64);
    let (imported, rest) = if new.is_empty() { Default::default() } else { import(key, layout, owner, &new).await? };
    let missing = seen.minus(&there);
    let removed = match layout {
        Layout::AuthorBlogs => delete(run, owner, &missing, &mut key.tally).await?,
        Layout::UFollow => unfollow(run, owner, &missing, &mut key.tally).await?,
        // Read marks expire there. The lists in milliseconds are a cache, which expires too.
        _ => missing,
    };
    if !run.dry_run {
        run.imports.change_seen(&key.pending.key, &imported, &removed).await?;
    }
    Ok(rest)
}

/// Ends follows that were ended there. A follow that began here after this pass stays, and the next one looks at it.
async fn unfollow(run: &Run<'_>, user: UserId, missing: &SeqSet, tally: &mut Tally) -> Result<SeqSet, MigrateError> {
    let authors: Vec<UserId> = missing.iter().filter_map(UserId::new).collect();
    let edges = run.app.stores.edges.edges(user, &authors).await?;
    // An earlier pass that wrote tombstones may have ended before the views.
    let (live, mut tombstones): (Vec<Edge>, Vec<Edge>) = edges.into_values().partition(|edge| edge.following);
    let mut removed = missing.clone();
    for edge in live {
        let ended = if run.dry_run {
            ended_there(&edge, run.now)
        } else {
            run.imports.end_follow(user, edge.author, |edge| ended_there(edge, run.now)).await?
        };
        match ended {
            None => _ = removed.remove(edge.author.get()),
            Some(tombstone) => {
                tally.wrote(1);
                tombstones.push(tombstone);
            }
        }
    }
    if !run.dry_run {
        run.app.sync.edges(user, &tombstones).await?;
    }
    Ok(removed)
}

/// Deletes posts whose blogs were deleted there.
async fn delete(run: &Run<'_>, author: UserId, missing: &SeqSet, tally: &mut Tally) -> Result<SeqSet, MigrateError> {
    let blogs: Vec<u64> = missing.iter().collect();
    let posts: Vec<PostId> = run.imports.mapped(&blogs).await?.into_values().filter(|post| post.author == author).collect();
    let live = run.app.stores.posts.posts(&posts).await?.into_values().filter(|post| !post.deleted);
    for post in live {
        tally.wrote(1);
        if !run.dry_run {
            run.app.publishing.delete(author, false, post.id).await?;
        }
    }
    Ok(missing.clone())
}

/// The tombstone of a follow that was ended in the legacy system, as a pass that began at `now` sees it. Its time is
/// before the second of `now`: the scores of the legacy lists are seconds, and a follow there that the pass did not see
/// is later. `None` if the follow began here since `now`.
fn ended_there(edge: &Edge, now: Timestamp) -> Option<Edge> {
    let before = Timestamp::from_ms((now.seconds() * 1_000).saturating_sub(1));
    (edge.since < now).then(|| edge.ended(before))
}

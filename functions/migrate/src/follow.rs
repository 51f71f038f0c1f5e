//! A pass over the lists of a legacy system that is still in use. It imports their changes since the last pass.
//!
//! Redis does not report changes. So each list has a record of its members that agree with the facts, the seen members.
//! Other members are new there and are imported. Seen members that are missing were removed there: an unfollow, a
//! deleted blog. A change that write-back ([`crate::mirror`]) made in a list is seen already.
//!
//! The record is read before the list. So a member that write-back adds in between is only looked at once more, and a
//! seen member that is missing was in the list before.

use tidemark::domain::{Edge, PostId, SeqSet, UserId};

use crate::{
    MigrateError,
    context::{Outcome, Run},
    edges, imports,
    legacy::{self, Layout},
    posts,
    progress::Pending,
    reads,
    report::Tally,
    source::{Member, Shape},
};

/// The lists that a pass compares, in the order of import. Lists of followers are not among them, because a follower's
/// own list has the same follows, and feeds are not, because they are views.
pub(crate) const FOLLOWED: [Layout; 4] = [Layout::AuthorBlogs, Layout::UserRead, Layout::Following, Layout::UFollow];

/// Imports what has changed in one list.
pub(crate) async fn list(
    run: &Run<'_>,
    layout: Layout,
    owner: UserId,
    pending: &Pending,
    tally: &mut Tally,
) -> Result<Outcome, MigrateError> {
    let seen = run.imports.seen(&pending.key).await?;
    let shape = if matches!(layout, Layout::AuthorBlogs | Layout::UserRead) { Shape::Set } else { Shape::SortedSet };
    let members = run.source.members(shape, &pending.key).await?;
    run.has_read(members.len());
    changes(run, layout, owner, pending, &seen, members, tally).await
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
        let pending = Pending { key, at: None };
        let seen = run.imports.seen(&pending.key).await?;
        // It may have come back since.
        if !run.source.exist(std::slice::from_ref(&pending.key)).await?.contains(&true) {
            changes(run, layout, owner, &pending, &seen, Vec::new(), tally).await?;
        }
    }
    Ok(())
}

async fn changes(
    run: &Run<'_>,
    layout: Layout,
    owner: UserId,
    pending: &Pending,
    seen: &SeqSet,
    members: Vec<Member>,
    tally: &mut Tally,
) -> Result<Outcome, MigrateError> {
    let id = |(member, _): &Member| legacy::id(member).ok();
    let there: SeqSet = members.iter().filter_map(id).collect();
    let (known, new): (Vec<Member>, Vec<Member>) =
        members.into_iter().partition(|member| id(member).is_some_and(|id| seen.contains(id)));
    tally.found(known.len() as u64);
    let mut outcome = Outcome::Done;
    let imported = if new.is_empty() {
        SeqSet::default()
    } else {
        match layout {
            Layout::AuthorBlogs => {
                let (blogs, reached) = posts::blogs(run, owner, new, pending, tally).await?;
                outcome = reached;
                blogs
            }
            Layout::UserRead => reads::mark(run, owner, &pending.key, &new, tally).await?,
            Layout::Following => edges::own(run, owner, 1, &pending.key, &new, tally).await?,
            _ => edges::own(run, owner, 1_000, &pending.key, &new, tally).await?,
        }
    };
    let missing = seen.minus(&there);
    let removed = match layout {
        Layout::AuthorBlogs => delete(run, owner, &missing, tally).await?,
        Layout::UFollow => unfollow(run, owner, &missing, tally).await?,
        // Read marks expire there. The lists in milliseconds are a cache, which expires too.
        _ => missing,
    };
    if !run.dry_run {
        run.imports.change_seen(&pending.key, &imported, &removed).await?;
    }
    Ok(outcome)
}

/// Ends follows that were ended there. A follow that began here after this pass stays, and is looked at by the next
/// one.
async fn unfollow(run: &Run<'_>, user: UserId, missing: &SeqSet, tally: &mut Tally) -> Result<SeqSet, MigrateError> {
    let authors: Vec<UserId> = missing.iter().filter_map(UserId::new).collect();
    let edges = run.app.stores.edges.edges(user, &authors).await?;
    // An earlier pass that wrote tombstones may have ended before the views.
    let (live, mut tombstones): (Vec<Edge>, Vec<Edge>) = edges.into_values().partition(|edge| edge.following);
    let mut removed = missing.clone();
    for edge in live {
        let ended = if run.dry_run {
            imports::ended_there(&edge, run.now)
        } else {
            run.imports.import_unfollow(user, edge.author, run.now).await?
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

//! A pass over the lists of a legacy system that is still in use. It imports their changes since the last pass.
//!
//! Redis does not report changes. So each list has a record of its members that agree with the facts, the seen members.
//! Other members are new there and are imported. Seen members that are missing may have been removed there: an
//! unfollow, a deleted blog. [`crate::removals`] decides when the pass removes their facts here. If they return, the
//! pass restores them. A change that write-back ([`crate::mirror`]) made in a list is seen already.
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
    records::SeenList,
    report::Tally,
    source::Member,
};

/// The lists that a pass compares, in the order of import. Lists of followers are not among them, because a follower's
/// own list has the same follows, and feeds are not, because they are views.
pub(crate) const FOLLOWED: [Layout; 4] = [Layout::AuthorBlogs, Layout::UserRead, Layout::Following, Layout::UFollow];

/// The lists among them whose missing members are removed here. Read marks expire there, and the lists in milliseconds
/// are a cache, which expires too.
pub(crate) const REMOVED: [Layout; 2] = [Layout::AuthorBlogs, Layout::UFollow];

pub(crate) async fn list(key: &mut Key<'_>, layout: Layout, owner: UserId) -> Result<Option<u64>, MigrateError> {
    let run = key.run;
    let list = run.imports.list(&key.pending.key).await?;
    let members = run.source.members(layout.shape(), &key.pending.key).await?;
    run.has_read(members.len());
    changes(key, layout, owner, &list, members).await
}

/// Looks for all members of lists that no longer exist: Redis deletes an empty list.
pub(crate) async fn vanished(run: &Run<'_>, lists: Vec<String>) -> Result<Vec<(Layout, Tally)>, MigrateError> {
    let owned = |list: String| {
        let layout = FOLLOWED.into_iter().find(|layout| layout.id_of(&list).is_ok())?;
        Some((layout, layout.id_of(&list).ok()?, list))
    };
    let lists: Vec<_> = lists.into_iter().filter_map(owned).collect();
    let keys: Vec<String> = lists.iter().map(|(_, _, list)| list.clone()).collect();
    let exist = run.source.exist(&keys).await?;
    let mut tallies = Vec::new();
    for ((layout, owner, key), _) in lists.into_iter().zip(exist).filter(|(_, exists)| !exists) {
        let mut key = Key { run, pending: Pending { key, at: None }, tally: Tally::default() };
        let list = run.imports.list(&key.pending.key).await?;
        // It may have come back since.
        if !run.source.exist(std::slice::from_ref(&key.pending.key)).await?.contains(&true) {
            changes(&mut key, layout, owner, &list, Vec::new()).await?;
        }
        tallies.push((layout, key.tally));
    }
    Ok(tallies)
}

async fn changes(
    key: &mut Key<'_>,
    layout: Layout,
    owner: UserId,
    list: &SeenList,
    members: Vec<Member>,
) -> Result<Option<u64>, MigrateError> {
    let run = key.run;
    let id = |(member, _): &Member| legacy::id(member).ok();
    let there: SeqSet = members.iter().filter_map(id).collect();
    let is_known = |member: &Member| id(member).is_some_and(|id| list.members.contains(id)) || is_back(run, layout, list, member);
    let (known, new): (Vec<Member>, Vec<Member>) = members.into_iter().partition(is_known);
    key.tally.found(known.len() as u64);
    if layout == Layout::AuthorBlogs && !run.dry_run {
        let back: Vec<u64> = new.iter().filter_map(id).filter(|blog| list.gone.contains(*blog)).collect();
        release(run, &back).await?;
    }
    let (imported, rest) = if new.is_empty() { Default::default() } else { import(key, layout, owner, &new, list).await? };
    let missing = list.members.minus(&there);
    let due = match REMOVED.contains(&layout) {
        true => run.removals.due(layout, list, &missing, &mut key.tally, &key.pending.key),
        false => missing.clone(),
    };
    let given_up = match layout {
        Layout::AuthorBlogs => delete(run, owner, &due, &mut key.tally).await?,
        Layout::UFollow => unfollow(run, owner, &due, &mut key.tally).await?,
        _ => due,
    };
    if !run.dry_run {
        let imported = known.iter().filter_map(id).filter(|id| list.gone.contains(*id)).collect::<SeqSet>().union(&imported);
        let change = |list: &mut SeenList| {
            list.add(&imported);
            list.give_up(&given_up, run.now);
            list.miss(&missing.minus(&given_up), run.removals.pass);
        };
        run.imports.change_list(&key.pending.key, change).await?;
    }
    Ok(rest)
}

/// Whether a member has returned into a list that expires, and was imported before.
fn is_back(run: &Run<'_>, layout: Layout, list: &SeenList, (member, score): &Member) -> bool {
    let is_old = match layout {
        Layout::UserRead => true,
        Layout::Following => {
            let began = legacy::time_of_score(score.unwrap_or(f64::NAN), layout.unit_ms(), run.now);
            began.is_ok_and(|began| began <= list.gone_at)
        }
        _ => false,
    };
    is_old && legacy::id(member).is_ok_and(|id| list.gone.contains(id))
}

/// Lets blogs become posts once more whose posts a pass has deleted.
async fn release(run: &Run<'_>, blogs: &[u64]) -> Result<(), MigrateError> {
    let mapped = run.imports.mapped(blogs).await?;
    let posts: Vec<PostId> = mapped.values().copied().collect();
    let posts = run.app.stores.facts.posts(&posts).await?;
    for (blog, post) in mapped {
        if posts.get(&post).is_none_or(|post| post.deleted) {
            run.imports.release(blog, post).await?;
        }
    }
    Ok(())
}

/// Ends follows that were ended there. A follow that began here after this pass stays, and the next one looks at it.
async fn unfollow(run: &Run<'_>, user: UserId, missing: &SeqSet, tally: &mut Tally) -> Result<SeqSet, MigrateError> {
    let authors: Vec<UserId> = missing.iter().filter_map(UserId::new).collect();
    let edges = run.app.stores.facts.edges(user, &authors).await?;
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
        run.app.following.sync_views(user, &tombstones).await?;
    }
    Ok(removed)
}

/// Deletes posts whose blogs were deleted there.
async fn delete(run: &Run<'_>, author: UserId, missing: &SeqSet, tally: &mut Tally) -> Result<SeqSet, MigrateError> {
    let blogs: Vec<u64> = missing.iter().collect();
    let posts: Vec<PostId> = run.imports.mapped(&blogs).await?.into_values().filter(|post| post.author == author).collect();
    let live = run.app.stores.facts.posts(&posts).await?.into_values().filter(|post| !post.deleted);
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

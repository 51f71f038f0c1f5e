//! Imports relation lists as follow edges, in the transaction of a follow and with the time at which it began. For a
//! user who has no list, a feed serves: it is a view and is not imported itself, but its reader follows its authors.

use std::collections::BTreeMap;

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tidemark::{
    domain::{AuthorHead, Edge, NewFollow, SeqSet, Timestamp, UserId},
    facts::{Followed, edges::Kind},
    views::keys::View,
};

use crate::{
    MigrateError,
    context::{Key, Run},
    facts::ImportRecord,
    legacy::{self, BlogId, EMPTY_FEED_MARKER, Layout, Reason, Shape, Unread},
    posts,
    records::SeenList,
    source::{Member, SourceError},
};

/// Followers of one list that are imported concurrently.
const PARALLEL: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FollowOutcome {
    Written { has_unread_list: bool },
    AlreadyThere,
    Refused(Reason),
}

/// The other user and the start of a follow, as a legacy key has them.
pub(crate) type Follow = (UserId, Timestamp);

/// Imports members of a user's own list. Returns the authors who need no further import.
pub(crate) async fn own(
    key: &mut Key<'_>,
    user: UserId,
    unit_ms: u64,
    members: &[Member],
    list: &SeenList,
) -> Result<SeqSet, MigrateError> {
    let relations = relations(key, user, unit_ms, members);
    let outcomes = follow(key.run, user, &relations, list).await?;
    Ok(count_all(key, outcomes))
}

/// The other users in a piece of `owner`'s list, each once.
fn relations(key: &mut Key<'_>, owner: UserId, unit_ms: u64, members: &[Member]) -> Vec<Follow> {
    let other = |user| if user == owner { Err(Reason::SelfFollow) } else { Ok(user) };
    timed(key, unit_ms, members.iter(), |member| legacy::user(member).and_then(other)).into_iter().collect()
}

/// The ids that members have, each once, with the times that their scores have.
fn timed<'a, T: Ord>(
    key: &mut Key<'_>,
    unit_ms: u64,
    members: impl Iterator<Item = &'a Member>,
    id: impl Fn(&[u8]) -> Result<T, Reason>,
) -> BTreeMap<T, Timestamp> {
    let mut times = BTreeMap::new();
    for (member, score) in members {
        let at = legacy::time_of_score(score.unwrap_or(f64::NAN), unit_ms, key.run.now);
        match id(member).and_then(|id| Ok((id, at?))) {
            Ok((id, at)) => drop(times.insert(id, at)),
            Err(reason) => key.refuse(reason, member),
        }
    }
    times
}

pub(crate) fn count(key: &mut Key<'_>, outcome: FollowOutcome, member: UserId) {
    match outcome {
        FollowOutcome::Written { has_unread_list } => {
            key.tally.wrote(1);
            key.tally.without_unread_list += u64::from(!has_unread_list);
        }
        FollowOutcome::AlreadyThere => key.tally.found(1),
        FollowOutcome::Refused(reason) => key.refuse(reason, member.to_string().as_bytes()),
    }
}

/// Imports an author's followers. Most edges exist from the followers' own lists, so they are looked up first.
pub(crate) async fn followers(key: &mut Key<'_>, author: UserId, unit_ms: u64, members: &[Member]) -> Result<(), MigrateError> {
    let run = key.run;
    let relations = relations(key, author, unit_ms, members);
    let pairs: Vec<(UserId, UserId)> = relations.iter().map(|(user, _)| (*user, author)).collect();
    let live = run.app.stores.facts.live_pairs(&pairs).await?;
    let (there, missing): (Vec<Follow>, Vec<Follow>) =
        relations.into_iter().partition(|(user, _)| live.contains(&(*user, author)));
    key.tally.found(there.len() as u64);
    let work = missing.into_iter().map(|(user, since)| {
        async move {
            let outcomes = follow(run, user, &[(author, since)], &SeenList::default()).await?;
            Ok::<_, MigrateError>((user, outcomes))
        }
        .boxed()
    });
    let done: Vec<(UserId, Vec<(Follow, FollowOutcome)>)> =
        stream::iter(work.collect::<Vec<_>>()).buffered(PARALLEL).try_collect().await?;
    for (user, outcomes) in done {
        outcomes.into_iter().for_each(|(_, outcome)| count(key, outcome, user));
    }
    Ok(())
}

/// Counts the outcomes. Returns the authors who need no further import.
pub(crate) fn count_all(key: &mut Key<'_>, outcomes: Vec<(Follow, FollowOutcome)>) -> SeqSet {
    let mut imported = SeqSet::default();
    for ((author, _), outcome) in outcomes {
        count(key, outcome, author);
        if !matches!(outcome, FollowOutcome::Refused(_)) {
            imported.insert(author.get());
        }
    }
    imported
}

/// Imports follows of a user. A follow that a pass has ended, and nobody since, is made again as it was.
pub(crate) async fn follow(
    run: &Run<'_>,
    user: UserId,
    follows: &[Follow],
    list: &SeenList,
) -> Result<Vec<(Follow, FollowOutcome)>, MigrateError> {
    let authors: Vec<UserId> = follows.iter().map(|(author, _)| *author).collect();
    let known = run.app.stores.facts.edges(user, &authors).await?;
    let stays = |edge: &Edge, since| edge.following || edge.since >= since;
    let ended_by_pass = |edge: &Edge| !edge.following && list.gone.contains(edge.author.get()) && edge.since <= list.gone_at;
    let restored = |follow: &Follow| known.get(&follow.0).filter(|edge| stays(edge, follow.1) && ended_by_pass(edge));
    let is_there =
        |follow: &&Follow| known.get(&follow.0).is_some_and(|edge| stays(edge, follow.1)) && restored(follow).is_none();
    let (there, missing): (Vec<Follow>, Vec<Follow>) = follows.iter().partition(is_there);
    let erased =
        run.app.stores.facts.erased(&missing.iter().map(|(author, _)| *author).chain([user]).collect::<Vec<_>>()).await?;
    let has_left = |follow: &Follow| erased.contains(&user) || erased.contains(&follow.0);
    let (left, mut missing): (Vec<Follow>, Vec<Follow>) = missing.into_iter().partition(has_left);
    let all = |follows: Vec<Follow>, outcome| follows.into_iter().map(move |follow| (follow, outcome));
    let left = all(left, FollowOutcome::Refused(Reason::Erased));
    let mut outcomes: Vec<(Follow, FollowOutcome)> = all(there, FollowOutcome::AlreadyThere).chain(left).collect();
    if missing.is_empty() {
        return Ok(outcomes);
    }
    // Follows over the limit need no preparation. The transaction checks the limit again.
    let room = run.app.settings.following_limit.saturating_sub(run.app.stores.facts.followings(user).await?);
    let over = missing.split_off(missing.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
    outcomes.extend(all(over, FollowOutcome::Refused(Reason::FollowingLimit)));
    if run.dry_run {
        let has_list = has_unread_lists(run, user, &missing).await?;
        let written = |(follow, has_unread_list)| (follow, FollowOutcome::Written { has_unread_list });
        outcomes.extend(missing.into_iter().zip(has_list).map(written));
        return Ok(outcomes);
    }
    let (back, missing): (Vec<Follow>, Vec<Follow>) = missing.into_iter().partition(|follow| restored(follow).is_some());
    if !back.is_empty() {
        // Cached lists order changes by time, and the follow gets its old time.
        let views = back.iter().map(|(author, _)| View::Followers(*author)).chain([View::Following(user)]);
        run.app.stores.views.clear(&views.collect::<Vec<_>>()).await?;
        let as_before = |follow: &Follow| {
            let (base, floor) = restored(follow).map(|edge| (edge.base, edge.floor))?;
            Some(NewFollow { author: follow.0, since: follow.1, base, floor, preference: 0, accepted: false })
        };
        let new = back.iter().filter_map(as_before).collect();
        let followed = run.imports.make_follows(user, new, run.now, Kind::Restored { ended_at: list.gone_at }).await?;
        outcomes.extend(back.into_iter().zip(followed.into_iter().map(|followed| outcome_of(followed, true))));
    }
    let has_list = has_unread_lists(run, user, &missing).await?;
    let new = prepare(run, user, &missing, &has_list).await?;
    // An existing edge stays, and so does an unfollow that is not older than the follow: both are `Existing`.
    let followed = run.imports.make_follows(user, new, run.now, Kind::Imported).await?;
    let outcome = |(followed, has_list)| outcome_of(followed, has_list);
    outcomes.extend(missing.into_iter().zip(followed.into_iter().zip(has_list).map(outcome)));
    Ok(outcomes)
}

fn outcome_of(followed: Followed, has_unread_list: bool) -> FollowOutcome {
    match followed {
        Followed::Created(_) => FollowOutcome::Written { has_unread_list },
        Followed::Existing(_) => FollowOutcome::AlreadyThere,
        Followed::LimitReached | Followed::RequestLimitReached => FollowOutcome::Refused(Reason::FollowingLimit),
        // An import neither asks nor accepts.
        Followed::Blocked | Followed::Requested(_) | Followed::NoRequest => FollowOutcome::Refused(Reason::Blocked),
        Followed::Erased => FollowOutcome::Refused(Reason::Erased),
    }
}

/// Whether the source has an unread list of each of these authors.
async fn has_unread_lists(run: &Run<'_>, user: UserId, follows: &[Follow]) -> Result<Vec<bool>, MigrateError> {
    let keys: Vec<String> = follows.iter().map(|(author, _)| legacy::unread_key(user, *author)).collect();
    Ok(run.source.exist(&keys).await?)
}

/// Prepares the edges so that counts are right from the first moment: `base`, and under the rule `listed` read marks
/// for every legacy post after `base` that is not in the legacy unread set.
async fn prepare(run: &Run<'_>, user: UserId, follows: &[Follow], has_list: &[bool]) -> Result<Vec<NewFollow>, MigrateError> {
    let authors: Vec<UserId> = follows.iter().map(|(author, _)| *author).collect();
    let (heads, records) = futures::try_join!(run.app.stores.facts.heads(&authors), run.imports.import_records(&authors))?;
    let is_listed = run.unread.get() != Some(&Unread::Complement);
    let (no_head, no_record) = (AuthorHead::default(), ImportRecord::default());
    let mut new = Vec::with_capacity(follows.len());
    for (index, (author, since)) in follows.iter().enumerate() {
        let head = heads.get(author).unwrap_or(&no_head);
        let record = records.get(author).unwrap_or(&no_record);
        let base = run.times.latest_at(&run.app.stores.facts, *author, head, *since).await?;
        if is_listed {
            let key = legacy::unread_key(user, *author);
            let unread = if has_list[index] { unread(run, *author, &key).await? } else { SeqSet::default() };
            let read: SeqSet = record.posts.minus(&unread).above(base).collect();
            if !read.is_empty() {
                run.imports.import_reads(user, *author, &read, false).await?;
            }
        }
        let floor = head.backfill_floor_at(base);
        new.push(NewFollow { author: *author, since: *since, base, floor, preference: 0, accepted: false });
    }
    Ok(new)
}

/// The posts in a legacy unread set. Members that are not posts of the author are left out.
async fn unread(run: &Run<'_>, author: UserId, key: &str) -> Result<SeqSet, MigrateError> {
    let mut unread = SeqSet::default();
    let mut cursor = Some(0);
    while let Some(at) = cursor {
        let (members, next) = match run.source.piece(Shape::Set, key, at).await {
            Err(SourceError::WrongType) => return Ok(unread),
            piece => piece?,
        };
        let ids: Vec<BlogId> = members.iter().filter_map(|(member, _)| legacy::id(member).ok()).collect();
        for post in run.imports.mapped(&ids).await?.into_values().filter(|post| post.author == author) {
            unread.insert(post.seq);
        }
        cursor = next;
    }
    Ok(unread)
}

/// The number of an author's posts in a feed, and a time just before the oldest.
struct Shown {
    posts: u64,
    since: Timestamp,
}

/// The lists that decide whom a user follows. A feed then is a view.
const LISTS: [Layout; 3] = [Layout::Following, Layout::UFollow, Layout::Follows];

/// Imports `focusFeedKey{user}` or `feed:{user}`. It reads the feed to its end at once, because an edge begins at the
/// oldest post of its author. A feed has about a thousand entries.
pub(crate) async fn feed(key: &mut Key<'_>, layout: Layout, user: UserId) -> Result<Option<u64>, MigrateError> {
    let run = key.run;
    let members = run.source.members(layout.shape(), &key.pending.key).await?;
    run.has_read(members.len());
    let mut shown = shown(key, &members).await?;
    shown.remove(&user).into_iter().for_each(|own| key.tally.found(own.posts));
    // If the user has a list, it decides whom the user follows. Other authors in the feed were left by unfollows.
    let lists = LISTS.map(|layout| layout.key(user.get()));
    let has_list = run.source.exist(&lists).await?.contains(&true);
    let follows: Vec<Follow> = shown.iter().map(|(author, shown)| (*author, shown.since)).collect();
    let outcomes =
        if has_list { judge(run, user, &follows).await? } else { follow(run, user, &follows, &SeenList::default()).await? };
    for ((author, _), outcome) in outcomes {
        let posts = shown.get(&author).map_or(0, |shown| shown.posts);
        match outcome {
            // One edge was written for all of the author's posts in the feed.
            FollowOutcome::Written { .. } => {
                count(key, outcome, author);
                key.tally.found(posts - 1);
            }
            outcome => (0..posts).for_each(|_| count(key, outcome, author)),
        }
    }
    Ok(None)
}

/// The authors of the posts in a feed.
async fn shown(key: &mut Key<'_>, members: &[Member]) -> Result<BTreeMap<UserId, Shown>, MigrateError> {
    let mut shown: BTreeMap<UserId, Shown> = BTreeMap::new();
    let blogs = members.iter().filter(|(member, _)| member != EMPTY_FEED_MARKER);
    let times = timed(key, 1, blogs, legacy::id);
    let ids: Vec<BlogId> = times.keys().copied().collect();
    let known = posts::resolve(key.run, &ids).await?;
    for (id, at) in times {
        match known.get(&id) {
            None => key.refuse(Reason::UnknownPost, id.to_string().as_bytes()),
            Some((author, _)) => {
                let since = just_before(at);
                let shown = shown.entry(*author).or_insert(Shown { posts: 0, since });
                shown.posts += 1;
                shown.since = shown.since.min(since);
            }
        }
    }
    Ok(shown)
}

/// The latest time before a post, so that the post is one from after the follow.
pub(crate) fn just_before(at: Timestamp) -> Timestamp {
    Timestamp::from_ms(at.ms().saturating_sub(1))
}

/// An author with an edge, live or ended, is already there. Other authors are refused.
async fn judge(run: &Run<'_>, user: UserId, follows: &[Follow]) -> Result<Vec<(Follow, FollowOutcome)>, MigrateError> {
    let authors: Vec<UserId> = follows.iter().map(|(author, _)| *author).collect();
    let known = run.app.stores.facts.edges(user, &authors).await?;
    let outcome = |follow: &Follow| {
        let is_there = known.contains_key(&follow.0);
        (*follow, if is_there { FollowOutcome::AlreadyThere } else { FollowOutcome::Refused(Reason::NotFollowed) })
    };
    Ok(follows.iter().map(outcome).collect())
}

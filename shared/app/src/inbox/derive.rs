//! The derivation of one group from the facts of its acts.
//!
//! A derivation reads the newest acts. If these are all, they are counted, each with its block. If there are more, the
//! count comes from the counter that the facts have: likes of a post, requests of an author. The users in a block
//! with the group's user are taken out of it; the group remembers them, because only a block adds to them, and a block
//! names its user.
//!
//! Follows, comments and quotes have no counter. A derivation reads all of the group, and the pause after it is the
//! longer, the more they are ([`super::pause`]).

use std::collections::{BTreeSet, HashMap, HashSet};

use tidemark_domain::{
    Acts, CommentNumber, Group, GroupId, GroupKind, PostId, Reaction, ReactionState, Relation, RequestSide, Timestamp, UserId,
    inbox::{MOST_APART, SHOWN_USERS, lasts},
    store::Result,
};

use super::{Cause, Inboxes};

/// The acts of the first load. Groups with fewer are counted act by act.
const FEW: usize = 16;

/// The acts of a further load, and the most of all loads that look for three users, and for one who is not muted.
const MORE: usize = 100;
const MOST_ADDED: usize = 5_000;

/// The entries that cost as much to read as a comment.
const OF_COMMENT: u64 = 16;

/// Below which act a load of older ones begins.
#[derive(Debug, Clone, Copy)]
enum Below {
    Act(Relation),
    Comment(CommentNumber),
}

/// Some acts, newest first, and where older ones are; `None` after the last.
type Loaded = (Vec<Relation>, Option<Below>);

/// The newest acts of a group.
#[derive(Default)]
struct Newest {
    users: Vec<UserId>,
    latest_at: Option<Timestamp>,
    heard_at: Option<Timestamp>,
    /// All users of these acts who are neither the group's user nor in a block with them.
    seen: HashSet<UserId>,
    apart: BTreeSet<UserId>,
    /// The number of acts that were looked at, those of the group's user and of blocked users too.
    loaded: usize,
}

impl Newest {
    fn is_enough(&self) -> bool {
        self.users.len() == SHOWN_USERS && self.heard_at.is_some()
    }
}

impl Inboxes {
    /// Derives a group from its acts.
    pub(super) async fn derive(&self, user: UserId, known: &Group, cause: Cause) -> Result<Group> {
        let gone = Group { acts: None, apart: Vec::new(), entries: 0, ..known.clone() };
        let (id, facts) = (known.id, &self.stores.facts);
        if let Some(post) = id.post(user) {
            let found = facts.posts(&[post]).await?.remove(&post);
            if found.is_none_or(|post| post.deleted) {
                return Ok(gone);
            }
        }
        let first = self.acts(user, id, None, FEW).await?;
        let is_whole = first.1.is_none();
        let newest = self.newest(user, id, first).await?;
        let Newest { users, latest_at: Some(latest_at), heard_at, seen, apart, loaded } = newest else { return Ok(gone) };
        if !lasts(latest_at, self.stores.clock.now()) {
            return Ok(gone);
        }
        let (count, apart, read) = match id.kind() {
            _ if is_whole => (seen.len() as u64, apart.into_iter().collect(), 0),
            GroupKind::Follow => {
                let [start, end] = id.day().map(|at| Timestamp::from_ms(at.ms().saturating_sub(1)));
                let count = facts.follows_between(user, start, end).await?;
                (count, Vec::new(), count)
            }
            GroupKind::Request => (facts.request_count(user, RequestSide::Received).await?, Vec::new(), 0),
            GroupKind::Accepted => {
                let count = self.acts(user, id, None, usize::MAX).await?.0.len() as u64;
                (count, Vec::new(), count)
            }
            _ => self.count_apart(user, known, cause, apart).await?,
        };
        // The users were read after the count, or before it. The next derivation has both.
        let count = count.max(users.len() as u64);
        // The text of a comment makes it as big as many entries.
        let of_load = if id.kind() == GroupKind::Comment { OF_COMMENT } else { 1 };
        let entries = read + of_load * loaded as u64;
        Ok(Group { acts: Some(Acts { count, users, latest_at, heard_at }), apart, entries, ..gone })
    }

    /// Loads about `limit` acts of a group, newest first, those of blocked users too.
    async fn acts(&self, user: UserId, id: GroupId, below: Option<Below>, limit: usize) -> Result<Loaded> {
        let facts = &self.stores.facts;
        let before = match below {
            Some(Below::Act(before)) => Some(before),
            _ => None,
        };
        let acts = match (id.kind(), id.post(user)) {
            (GroupKind::Comment, Some(post)) => {
                let below = match below {
                    Some(Below::Comment(number)) => Some(number),
                    _ => None,
                };
                let (acts, rest) = facts.newest_comments(post, below, limit).await?;
                return Ok((acts, rest.map(Below::Comment)));
            }
            (GroupKind::Follow, _) => {
                let [start, end] = id.day();
                let before = before.unwrap_or(Relation { since: end, user: UserId::MIN });
                let mut follows = facts.followers_by_time(user, Some(before), limit).await?;
                follows.retain(|follow| follow.since >= start);
                follows
            }
            (GroupKind::Request, _) => facts.requests(user, RequestSide::Received, before, limit).await?,
            (GroupKind::Accepted, _) => {
                let accepted = facts.following(user).await?.into_iter().filter(|edge| edge.accepted);
                let accepted = accepted.map(|edge| Relation { since: edge.since, user: edge.author });
                let mut accepted = crate::newest_first(accepted, before);
                accepted.retain(|act| GroupId::accepted(act.since) == id);
                accepted.truncate(limit);
                accepted
            }
            (GroupKind::Like, Some(post)) => facts.likers(post, Reaction::Like, before, limit).await?,
            (GroupKind::Favorite, Some(post)) => facts.likers(post, Reaction::Favorite, before, limit).await?,
            (GroupKind::Repost, Some(post)) => {
                let reposters = facts.reposters(post, before, limit).await?;
                reposters.into_iter().map(|reposter| reposter.by).collect()
            }
            (GroupKind::Quote, Some(post)) => facts.quotes(post, before, limit).await?,
            (_, None) => Vec::new(),
        };
        let rest = acts.last().copied().filter(|_| acts.len() >= limit).map(Below::Act);
        Ok((acts, rest))
    }

    /// Of these acts and older ones, returns what the group shows. If there are no older ones, all users are looked at.
    async fn newest(&self, user: UserId, id: GroupId, first: Loaded) -> Result<Newest> {
        let is_whole = first.1.is_none();
        let (mut newest, (mut acts, mut rest), mut added) = (Newest::default(), first, 0);
        loop {
            newest.loaded += acts.len();
            for some in acts.chunks(if newest.loaded <= FEW { SHOWN_USERS + 1 } else { MORE }) {
                if newest.is_enough() && !is_whole {
                    return Ok(newest);
                }
                added += self.add(user, id, some, &mut newest).await?;
            }
            let Some(below) = rest.filter(|_| !newest.is_enough() && added < MOST_ADDED) else { return Ok(newest) };
            (acts, rest) = self.acts(user, id, Some(below), MORE).await?;
        }
    }

    /// Adds acts. Returns how many of them are neither the group's user's nor of users in a block with them.
    async fn add(&self, user: UserId, id: GroupId, acts: &[Relation], newest: &mut Newest) -> Result<usize> {
        let facts = &self.stores.facts;
        let users: Vec<UserId> = acts.iter().map(|act| act.user).collect();
        let wanted = if newest.heard_at.is_none() { users.as_slice() } else { &[] };
        // A block ends follows and requests.
        let of_post = if id.seq().is_some() { users.as_slice() } else { &[] };
        let (muted, reactors) = futures::try_join!(facts.muted(user, wanted), facts.reactors(user, of_post))?;
        let mut added = 0;
        for act in acts.iter().filter(|act| act.user != user) {
            if reactors.get(&act.user).is_some_and(|state| state.blocks.are_apart()) {
                newest.apart.insert(act.user);
                continue;
            }
            added += 1;
            newest.latest_at.get_or_insert(act.since);
            if newest.seen.insert(act.user) && newest.users.len() < SHOWN_USERS {
                newest.users.push(act.user);
            }
            if !muted.contains(&act.user) {
                newest.heard_at.get_or_insert(act.since);
            }
        }
        Ok(added)
    }

    /// Counts the users of a group of a post without those in a block with the user, whom it returns too, and
    /// the number of entries that it has read for it. `newest` are those among the newest acts.
    async fn count_apart(
        &self,
        user: UserId,
        known: &Group,
        cause: Cause,
        newest: BTreeSet<UserId>,
    ) -> Result<(u64, Vec<UserId>, u64)> {
        let Some(post) = known.id.post(user) else { return Ok((0, Vec::new(), 0)) };
        let facts = &self.stores.facts;
        let mut candidates = newest;
        candidates.extend(known.apart.iter().copied());
        candidates.insert(user);
        if let Cause::Apart(other) = cause {
            candidates.insert(other);
        }
        // A group without acts remembers nobody.
        if known.acts.is_none() || cause == Cause::Wrong {
            let blocks = facts.blocks_of(user).await?;
            candidates.extend(blocks.into_iter().flat_map(|users| users.into_iter().take(MOST_APART)));
        }
        let candidates: Vec<UserId> = candidates.into_iter().collect();
        let given = facts.reactors(user, &candidates).await?;
        let (total, acted, read) = self.acted(known.id.kind(), post, &given, &candidates).await?;
        let own = u64::from(acted.contains(&user));
        let is_apart = |other: &UserId| given.get(other).is_some_and(|state| state.blocks.are_apart());
        let mut apart: Vec<UserId> = acted.into_iter().filter(|other| *other != user && is_apart(other)).collect();
        apart.sort_unstable();
        let count = total.saturating_sub(own + apart.len() as u64);
        apart.truncate(MOST_APART);
        Ok((count, apart, read))
    }

    /// Returns how many users have acted on a post, those of these users who have, and the number of entries that it
    /// has read for it. `given` has their reactions.
    async fn acted(
        &self,
        kind: GroupKind,
        post: PostId,
        given: &HashMap<UserId, ReactionState>,
        users: &[UserId],
    ) -> Result<(u64, HashSet<UserId>, u64)> {
        let facts = &self.stores.facts;
        let pairs = || users.iter().map(|user| (*user, post)).collect::<Vec<(UserId, PostId)>>();
        let of_pairs = |acted: HashSet<(UserId, PostId)>| acted.into_iter().map(|(user, _)| user).collect();
        let reacted = async |reaction| {
            let acted = given.iter().filter(|(_, state)| state.of(reaction).contains(post.seq));
            let acted = acted.map(|(user, _)| *user).collect();
            Ok((facts.counts_without_comments(post).await?.of(reaction), acted, 0))
        };
        match kind {
            GroupKind::Like => reacted(Reaction::Like).await,
            GroupKind::Favorite => reacted(Reaction::Favorite).await,
            GroupKind::Repost => {
                let pairs = pairs();
                let (counts, acted) = futures::try_join!(facts.counts_without_comments(post), facts.reposting(&pairs))?;
                Ok((counts.reposts, of_pairs(acted), 0))
            }
            GroupKind::Quote => {
                let (all, quotes) = facts.quoters(post).await?;
                Ok((all.len() as u64, users.iter().copied().filter(|user| all.contains(user)).collect(), quotes))
            }
            GroupKind::Comment => {
                let pairs = pairs();
                let ([users, entries], acted) = futures::try_join!(facts.count_commenters(post), facts.commenting(&pairs))?;
                Ok((users, of_pairs(acted), entries))
            }
            GroupKind::Follow | GroupKind::Request | GroupKind::Accepted => Ok((0, HashSet::new(), 0)),
        }
    }
}

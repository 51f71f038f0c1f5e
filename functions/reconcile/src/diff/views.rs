//! Compares the smaller views with the facts: relation lists, counters, reactions, heads, summaries, and single keys.

use std::collections::{BTreeMap, HashMap};

use tidemark_domain::{Post, PostId, PostSummary, PostText, ReactionState, Relation, Timestamp, UserId};
use tidemark_views::{List, keys::View};

use super::{Difference, Kind, Remedy, Side, Stored, Subject, facts::StoredPost};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    pub key: String,
    pub view: View,
    /// Whether it has the type that its name says.
    pub right_type: bool,
    /// `None` if it has no lifetime.
    pub lifetime_ms: Option<u64>,
}

/// Checks type and lifetime of a key, regardless of its value.
pub fn of_key(stored: &StoredKey) -> Option<Difference> {
    let kind = match stored {
        StoredKey { right_type: false, .. } => Kind::KeyOfWrongType,
        StoredKey { lifetime_ms: None, .. } => Kind::KeyWithoutLifetime,
        _ => return None,
    };
    Some(Difference::new(kind, Subject::Key { key: stored.key.clone() }, Remedy::Forget(stored.view.clone())))
}

/// A key in a bucket where no request looks.
pub fn astray(key: &str) -> Difference {
    let key = key.to_owned();
    Difference::new(Kind::KeyAstray, Subject::Key { key: key.clone() }, Remedy::Forget(View::Key(key)))
}

/// A cached relation list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredList {
    /// The list is complete from this time on.
    pub low: Timestamp,
    pub members: Vec<Relation>,
}

/// Compares a list. `relations` are the newest relations in the facts, or all if `whole`.
pub fn of_list(list: List, stored: &Stored<StoredList>, relations: &[Relation], whole: bool) -> Vec<Difference> {
    let (user, list, view) = match list {
        List::Following(user) => (user, Side::Following, View::Following(user)),
        List::Fans(user) => (user, Side::Fans, View::Fans(user)),
    };
    let forget = Remedy::Forget(view);
    let differs = |kind, member| Difference::new(kind, Subject::Member { user, list, member }, forget.clone());
    let stored = match stored {
        Stored::Absent => return Vec::new(),
        Stored::Damaged => return vec![Difference::new(Kind::ListDamaged, Subject::List { user, list }, forget)],
        Stored::Present(stored) => stored,
    };
    let last = relations.iter().map(|relation| relation.since).min();
    // There may be more relations in the last millisecond that was read.
    let low = if whole { stored.low } else { stored.low.max(last.unwrap_or_default().plus_ms(1)) };
    let known: BTreeMap<UserId, Timestamp> = relations.iter().map(|relation| (relation.user, relation.since)).collect();
    let cached: BTreeMap<UserId, Timestamp> = stored.members.iter().map(|member| (member.user, member.since)).collect();
    let mut found = Vec::new();
    for (&member, &since) in known.iter().filter(|(_, since)| **since >= low) {
        match cached.get(&member) {
            None => found.push(differs(Kind::ListMissing, member)),
            Some(cached) if *cached != since => found.push(differs(Kind::ListTime, member)),
            Some(_) => {}
        }
    }
    for (&member, &since) in &cached {
        match known.get(&member) {
            None if since >= low || since < stored.low => found.push(differs(Kind::ListGhost, member)),
            Some(known) if *known != since && *known < low => found.push(differs(Kind::ListTime, member)),
            _ => {}
        }
    }
    found
}

pub(crate) fn of_reactions(
    user: UserId,
    stored: &Stored<HashMap<UserId, ReactionState>>,
    right: &HashMap<UserId, ReactionState>,
) -> Vec<Difference> {
    let forget = Remedy::Forget(View::Reactions(user));
    let stored = match stored {
        Stored::Absent => return Vec::new(),
        Stored::Damaged => return vec![Difference::new(Kind::ReactionsDamaged, Subject::User { user }, forget)],
        Stored::Present(stored) => stored,
    };
    let nothing = ReactionState::default();
    let differs = stored.iter().filter_map(|(&author, known)| {
        let right = right.get(&author).unwrap_or(&nothing);
        let subject = Subject::Pair { user, author };
        if known == right {
            None
        } else if known.version < right.version {
            let sync = Difference::new(Kind::ReactionsBehind, subject, Remedy::SyncPair { user, author });
            Some(sync.in_version(right.version.into()))
        } else {
            Some(Difference::new(Kind::ReactionsWrong, subject, forget.clone()))
        }
    });
    differs.collect()
}

/// Compares a view that is a copy of a fact in this version; zero if it has none.
pub(crate) fn of_copy<T: PartialEq>(
    kind: Kind,
    subject: Subject,
    view: View,
    (stored, right): (&Stored<T>, &T),
    version: u64,
) -> Option<Difference> {
    let is_right = *stored == Stored::Absent || stored.present() == Some(right);
    (!is_right).then(|| Difference::new(kind, subject, Remedy::Forget(view)).in_version(version))
}

/// Compares a text. An earlier revision is never shown, so it is no difference.
pub(crate) fn of_text(post: PostId, stored: &Stored<(u32, PostText)>, right: Option<&(Post, PostText)>) -> Option<Difference> {
    let is_right = match (stored, right.filter(|(right, _)| !right.deleted)) {
        (Stored::Absent, _) => true,
        (Stored::Present((revision, text)), Some((right, of_right))) => {
            *revision < right.revision || (*revision == right.revision && text == of_right)
        }
        (Stored::Damaged, _) | (Stored::Present(_), None) => false,
    };
    let difference = Difference::new(Kind::TextWrong, Subject::Post { post }, Remedy::Forget(View::Text(post)));
    (!is_right).then(|| difference.in_version(right.map_or(0, |(right, _)| right.revision.into())))
}

/// Compares a summary. If the retraction of the post is in progress, its summary is not a difference.
pub(crate) fn of_summary(post: PostId, stored: &Stored<PostSummary>, right: Option<&StoredPost>) -> Option<Difference> {
    let forget = Remedy::Forget(View::Summary(post));
    let (kind, remedy) = match (stored, right) {
        (Stored::Absent, _) => return None,
        (Stored::Damaged, _) => (Kind::SummaryDamaged, forget),
        (Stored::Present(_), None) => (Kind::SummaryOfNothing, forget),
        (Stored::Present(summary), Some(right)) if right.post.deleted && !summary.deleted => {
            if right.is_moving() {
                return None;
            }
            (Kind::SummaryOfDeleted, Remedy::StoreTombstone { post })
        }
        (Stored::Present(summary), Some(right)) if *summary == PostSummary::from(right.post.clone()) => return None,
        (Stored::Present(_), Some(_)) => (Kind::SummaryWrong, forget),
    };
    let version = right.map_or(0, |right| u64::from(right.post.revision) << 32 | u64::from(right.post.step.changes));
    Some(Difference::new(kind, Subject::Post { post }, remedy).in_version(version))
}

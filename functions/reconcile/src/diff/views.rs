//! Compares the smaller views with the facts: relation lists, counters, reactions, heads, summaries, and single keys.

use std::collections::{BTreeMap, HashMap};

use super::{Side, Stored, ViewDifference, facts::StoredPost};
use tidemark_domain::{AuthorHead, Counters, PostId, PostSummary, ReactionState, Relation, Timestamp, UserId};
use tidemark_views::keys::View;

/// A key in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    pub key: String,
    /// The view that it belongs to.
    pub view: View,
    /// Whether it has the type that its name says.
    pub right_type: bool,
    /// Whether it has a lifetime.
    pub expires: bool,
}

/// Checks type and lifetime of a key, regardless of its value.
pub fn of_key(stored: &StoredKey) -> Option<ViewDifference> {
    let StoredKey { key, view, .. } = stored.clone();
    if !stored.right_type {
        Some(ViewDifference::KeyOfWrongType { key, view })
    } else if !stored.expires {
        Some(ViewDifference::KeyWithoutLifetime { key, view })
    } else {
        None
    }
}

/// A cached relation list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredList {
    /// The list is complete from this time on.
    pub low: Timestamp,
    pub members: Vec<Relation>,
}

/// Compares a list. `relations` are the newest relations in the facts, or all if `whole`.
pub fn of_list(
    user: UserId,
    list: Side,
    stored: &Stored<StoredList>,
    relations: &[Relation],
    whole: bool,
) -> Vec<ViewDifference> {
    let stored = match stored {
        Stored::Absent => return Vec::new(),
        Stored::Damaged => return vec![ViewDifference::ListDamaged { user, list }],
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
            None => found.push(ViewDifference::ListMissing { user, list, member }),
            Some(cached) if *cached != since => found.push(ViewDifference::ListTime { user, list, member }),
            Some(_) => {}
        }
    }
    for (&member, &since) in &cached {
        let below = since < low && since >= stored.low;
        if !known.contains_key(&member) && !below {
            found.push(ViewDifference::ListGhost { user, list, member });
        } else if known.get(&member).is_some_and(|known| *known != since && *known < low) {
            found.push(ViewDifference::ListTime { user, list, member });
        }
    }
    found
}

pub fn of_counters(user: UserId, stored: &Stored<Counters>, right: Counters) -> Option<ViewDifference> {
    match stored {
        Stored::Damaged => Some(ViewDifference::CountersDamaged { user }),
        Stored::Present(counters) if *counters != right => Some(ViewDifference::CountersWrong { user }),
        Stored::Absent | Stored::Present(_) => None,
    }
}

/// Compares a reader's reactions to every author in the view.
pub fn of_reactions(
    user: UserId,
    stored: &Stored<HashMap<UserId, ReactionState>>,
    right: &HashMap<UserId, ReactionState>,
) -> Vec<ViewDifference> {
    let stored = match stored {
        Stored::Absent => return Vec::new(),
        Stored::Damaged => return vec![ViewDifference::ReactionsDamaged { user }],
        Stored::Present(stored) => stored,
    };
    let nothing = ReactionState::default();
    let differs = stored.iter().filter_map(|(&author, known)| {
        let right = right.get(&author).unwrap_or(&nothing);
        if known == right {
            None
        } else if known.version < right.version {
            Some(ViewDifference::ReactionsBehind { user, author, version: right.version.into() })
        } else {
            Some(ViewDifference::ReactionsWrong { user, author })
        }
    });
    differs.collect()
}

pub fn of_head(author: UserId, stored: &Stored<AuthorHead>, right: &AuthorHead) -> Option<ViewDifference> {
    match stored {
        Stored::Absent => None,
        Stored::Present(head) if *head == right.for_views() => None,
        Stored::Damaged | Stored::Present(_) => Some(ViewDifference::HeadWrong { author }),
    }
}

/// Compares a summary. If the retraction of the post is in progress, its summary is not a difference.
pub fn of_summary(post: PostId, stored: &Stored<PostSummary>, right: Option<&StoredPost>) -> Option<ViewDifference> {
    let summary = match stored {
        Stored::Absent => return None,
        Stored::Damaged => return Some(ViewDifference::SummaryDamaged { post }),
        Stored::Present(summary) => summary,
    };
    let Some(right) = right else { return Some(ViewDifference::SummaryOfNothing { post }) };
    if right.post.deleted && !summary.deleted {
        return (!right.is_moving()).then_some(ViewDifference::SummaryOfDeleted { post });
    }
    (*summary != PostSummary::from(right.post.clone())).then_some(ViewDifference::SummaryWrong { post })
}

//! The smaller views against the facts: relation lists, counters, reactions, heads, summaries, and keys as such.

use std::collections::{BTreeMap, HashMap};

use super::{Side, Stored, ViewDifference, facts::StoredPost};
use tidemark_domain::{AuthorHead, Counters, PostId, PostSummary, ReactionState, Relation, Timestamp, UserId};
use tidemark_views::keys::View;

/// A key as Redis has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    /// Its name.
    pub key: String,
    /// What it is part of.
    pub view: View,
    /// Whether it has the type that its name says.
    pub right_type: bool,
    /// Whether it ends by itself.
    pub expires: bool,
}

/// What is wrong with a key, whatever it holds.
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
    /// From when on it is complete.
    pub low: Timestamp,
    /// Who is in it.
    pub members: Vec<Relation>,
}

/// What is wrong with a list. `relations` are the newest that the facts have, all there are when `whole`.
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
    // Of the last millisecond that was read there may be more.
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

/// What is wrong with cached counters.
pub fn of_counters(user: UserId, stored: &Stored<Counters>, right: Counters) -> Option<ViewDifference> {
    match stored {
        Stored::Damaged => Some(ViewDifference::CountersDamaged { user }),
        Stored::Present(counters) if *counters != right => Some(ViewDifference::CountersWrong { user }),
        Stored::Absent | Stored::Present(_) => None,
    }
}

/// What is wrong with a reader's reactions: of every author in the view, the fact.
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

/// What is wrong with a cached head.
pub fn of_head(author: UserId, stored: &Stored<AuthorHead>, right: &AuthorHead) -> Option<ViewDifference> {
    match stored {
        Stored::Absent => None,
        Stored::Present(head) if *head == right.for_views() => None,
        Stored::Damaged | Stored::Present(_) => Some(ViewDifference::HeadWrong { author }),
    }
}

/// What is wrong with a cached summary. One of a post whose retraction is still to come is no difference.
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

//! Compares the views of one record, and relation lists and reactions, with the facts.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
};

use tidemark_domain::{Post, PostId, PostSummary, PostText, ReactionState, Relation, Timestamp, UserId};
use tidemark_views::keys::View;

use super::{Difference, Kind, Part, Stored, facts::StoredPost};

/// The most fields of one view that are reported.
pub(crate) const MOST_FIELDS: usize = 20;

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
pub(crate) fn of_key(stored: &StoredKey) -> Option<Difference> {
    let field = match stored {
        StoredKey { right_type: false, .. } => "type",
        StoredKey { lifetime_ms: None, .. } => "lifetime",
        _ => return None,
    };
    let part = Part::Key { key: stored.key.clone() };
    Some(Difference::of_view(Kind::ViewDamaged, stored.view.clone(), field, part))
}

/// A key in a bucket where no request looks.
pub(crate) fn astray(key: &str) -> Difference {
    Difference::of_view(Kind::ViewOrphan, View::Key(key.to_owned()), "bucket", Part::Whole {})
}

/// Compares a view of one record. `wrong` says whether one that can be read is wrong, and how.
pub(crate) fn of_record<T>(view: View, stored: &Stored<T>, wrong: impl FnOnce(&T) -> Option<Kind>) -> Option<Difference> {
    let kind = match stored {
        Stored::Absent => None,
        Stored::Damaged => Some(Kind::ViewDamaged),
        Stored::Present(stored) => wrong(stored),
    };
    kind.map(|kind| Difference::of_view(kind, view, "value", Part::Whole {}))
}

/// Compares a view that is a copy of facts in these versions.
pub(crate) fn of_copy<T: PartialEq>(view: View, stored: &Stored<T>, right: &T, versions: impl Hash) -> Option<Difference> {
    let differs = of_record(view, stored, |stored| (stored != right).then_some(Kind::ViewDiffers));
    differs.map(|found| found.in_version(versions))
}

/// A cached relation list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredList {
    /// The list is complete from this time on.
    pub low: Timestamp,
    pub members: Vec<Relation>,
}

/// Compares a list. `relations` are the newest relations in the facts, or all if `whole`.
pub(crate) fn of_list(view: &View, stored: &Stored<StoredList>, relations: &[Relation], whole: bool) -> Vec<Difference> {
    let Stored::Present(stored) = stored else {
        return of_record(view.clone(), stored, |_| None).into_iter().collect();
    };
    let last = relations.iter().map(|relation| relation.since).min();
    // There may be more relations in the last millisecond that was read.
    let low = if whole { stored.low } else { stored.low.max(last.unwrap_or_default().plus_ms(1)) };
    let known: BTreeMap<UserId, Timestamp> = relations.iter().map(|relation| (relation.user, relation.since)).collect();
    let cached: BTreeMap<UserId, Timestamp> = stored.members.iter().map(|member| (member.user, member.since)).collect();
    let missing = known.iter().filter(|(user, since)| **since >= low && !cached.contains_key(user));
    let wrong = cached.iter().filter(|(user, since)| match known.get(user) {
        Some(known) => known != *since,
        // The facts between the two ends were not read.
        None => **since >= low || **since < stored.low,
    });
    let differs = |(&member, since): (&UserId, &Timestamp)| {
        Difference::of_view(Kind::ViewDiffers, view.clone(), "members", Part::Member { member }).in_version(since)
    };
    missing.chain(wrong).map(differs).take(MOST_FIELDS).collect()
}

/// Compares a user's reactions. `right` are those to the authors in the view.
pub(crate) fn of_reactions(
    user: UserId,
    stored: &Stored<HashMap<UserId, ReactionState>>,
    right: &HashMap<UserId, ReactionState>,
) -> Vec<Difference> {
    let view = || View::Reactions(user);
    let Stored::Present(stored) = stored else {
        return of_record(view(), stored, |_| None).into_iter().collect();
    };
    let nothing = ReactionState::default();
    let of = |author: &UserId| right.get(author).unwrap_or(&nothing);
    let wrong = stored.iter().filter(|(author, known)| of(author) != *known).map(|(&author, _)| author);
    let differs = |author: UserId| {
        Difference::of_view(Kind::ViewDiffers, view(), "reactions", Part::Author { author }).in_version(of(&author).version)
    };
    wrong.collect::<BTreeSet<_>>().into_iter().map(differs).take(MOST_FIELDS).collect()
}

/// Compares a text. An earlier revision is never shown, so it is no difference.
pub(crate) fn of_text(post: PostId, stored: &Stored<(u32, PostText)>, right: Option<&(Post, PostText)>) -> Option<Difference> {
    let found = of_record(View::Text(post), stored, |(revision, text)| {
        let Some((right, of_right)) = right.filter(|(right, _)| !right.deleted) else { return Some(Kind::ViewOrphan) };
        let is_right = *revision < right.revision || (*revision == right.revision && text == of_right);
        (!is_right).then_some(Kind::ViewDiffers)
    });
    found.map(|found| found.in_version(right.map(|(right, _)| right.revision)))
}

/// Compares a summary. If the retraction of the post is in progress, its summary is not a difference.
pub(crate) fn of_summary(post: PostId, stored: &Stored<PostSummary>, right: Option<&StoredPost>) -> Option<Difference> {
    let found = of_record(View::Summary(post), stored, |summary| {
        let Some(right) = right else { return Some(Kind::ViewOrphan) };
        let is_retracted = right.post.deleted && !summary.deleted && right.is_moving();
        let is_right = is_retracted || *summary == PostSummary::from(right.post.clone());
        (!is_right).then_some(Kind::ViewDiffers)
    });
    found.map(|found| found.in_version(right.map(|right| (right.post.deleted, right.post.revision, right.post.step.changes))))
}

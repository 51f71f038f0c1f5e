//! Compares a reader's state and feed with the facts.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{Ghost, Stored, ViewDifference, facts::StoredPost};
use tidemark_domain::{AuthorHead, AuthorState, Edge, FeedKey, PostId, ReadState, ReaderState, Seq, Timestamp, UserId};

/// More missing entries than this are one difference.
pub const MOST_ENTRIES: usize = 20;

/// A reader's view as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredReader {
    /// `Absent` also if there are fields without the one that makes them a view.
    pub state: Stored<ReaderState>,
    /// Whether there are fields without the one that makes them a view.
    pub headless: bool,
    /// Oldest first.
    pub feed: Stored<Vec<FeedKey>>,
    /// Whether the feed expires no earlier than the state.
    pub feed_outlives: bool,
}

/// The facts of one followed author.
#[derive(Debug, Clone, PartialEq)]
pub struct Followed {
    /// A live edge.
    pub edge: Edge,
    pub head: AuthorHead,
    pub reads: ReadState,
}

/// The facts that a reader's view must agree with.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReaderFacts {
    pub authors: HashMap<UserId, Followed>,
    /// The newest entries that the feed must have.
    pub entries: BTreeSet<FeedKey>,
    /// The lowest of `entries`, if the feed has more.
    pub low: Option<FeedKey>,
    /// The posts that [`unsure`] has returned.
    pub posts: HashMap<PostId, StoredPost>,
}

impl ReaderFacts {
    /// Whether the post's delivery or retraction is in progress. Then its missing bits and entries are not differences.
    fn is_moving(&self, post: PostId) -> bool {
        self.posts.get(&post).is_some_and(StoredPost::is_moving)
    }
}

/// The posts whose fan-outs decide whether they are missing. The caller loads them into [`ReaderFacts::posts`].
pub fn unsure(user: UserId, stored: &StoredReader, facts: &ReaderFacts, now: Timestamp) -> Vec<PostId> {
    let found = differences(user, stored, facts, now);
    let mut posts: Vec<PostId> = found
        .iter()
        .filter_map(|difference| match difference {
            ViewDifference::Undelivered { post, .. }
            | ViewDifference::EntryMissing { post, .. }
            | ViewDifference::EntryGhost { post, why: Ghost::Deleted, .. }
            | ViewDifference::DeletionMissing { post, .. } => Some(*post),
            ViewDifference::ModesBehind { author, .. } => Some(PostId::new(*author, facts.authors.get(author)?.head.latest_seq)),
            _ => None,
        })
        .collect();
    if found.contains(&ViewDifference::FeedIncomplete { user }) {
        // Only a few entries can be in flight, the newest.
        posts.extend(facts.entries.iter().rev().take(MOST_ENTRIES * 5).map(|key| key.post));
    }
    posts
}

/// Returns the differences.
pub fn differences(user: UserId, stored: &StoredReader, facts: &ReaderFacts, now: Timestamp) -> Vec<ViewDifference> {
    let state = match &stored.state {
        Stored::Damaged => return vec![ViewDifference::StateDamaged { user }],
        Stored::Absent if stored.headless => return vec![ViewDifference::StateHeadless { user }],
        Stored::Absent if stored.feed != Stored::Absent => return vec![ViewDifference::FeedOrphan { user }],
        Stored::Absent => return Vec::new(),
        Stored::Present(state) => state,
    };
    if state.meta.building {
        let abandoned = state.meta.deadline < now;
        return abandoned.then_some(ViewDifference::RebuildAbandoned { user }).into_iter().collect();
    }
    let feed: &[FeedKey] = match (&stored.feed, state.meta.feed) {
        (Stored::Damaged, _) => return vec![ViewDifference::FeedDamaged { user }],
        (Stored::Absent, true) => return vec![ViewDifference::FeedLost { user }],
        (Stored::Present(_), false) => return vec![ViewDifference::FeedUnannounced { user }],
        (Stored::Absent, false) => &[],
        (Stored::Present(feed), true) => feed,
    };
    let mut found = Vec::new();
    if !feed.is_empty() && !stored.feed_outlives {
        found.push(ViewDifference::FeedShortLived { user });
    }
    let mut catching_up = HashSet::new();
    for (author, followed) in &facts.authors {
        let Some(field) = state.authors.get(author) else {
            found.push(ViewDifference::FieldMissing { user, author: *author });
            continue;
        };
        if field.is_behind(&followed.head) {
            // The next read fetches the posts and delivers them itself.
            catching_up.insert(*author);
        }
        found.extend(of_field(user, *author, field, followed, facts, catching_up.contains(author)));
    }
    let ghosts = state.authors.iter().filter(|(author, _)| !facts.authors.contains_key(author));
    found.extend(ghosts.map(|(author, field)| ViewDifference::FieldGhost { user, author: *author, rev: field.rev }));
    // If an entry is later than the noted newest time, the next post would be appended too early.
    let overtaking = feed.last().is_some_and(|last| last.at > state.meta.newest);
    if overtaking || !feed.is_sorted_by(|older, newer| older < newer) {
        found.push(ViewDifference::FeedDisordered { user });
    } else {
        found.extend(of_entries(user, state, feed, facts, &catching_up));
    }
    found
}

/// Compares one author's field.
fn of_field(
    user: UserId,
    author: UserId,
    field: &AuthorState,
    followed: &Followed,
    facts: &ReaderFacts,
    catching_up: bool,
) -> Vec<ViewDifference> {
    let Followed { edge, head, reads } = followed;
    if field.rev < edge.rev {
        return vec![ViewDifference::FieldOld { user, author }];
    }
    if field.rev > edge.rev || field.version > reads.version {
        return vec![ViewDifference::FieldAhead { user, author }];
    }
    if field.is_ahead_of(head) || field.newest_at > head.latest_at || field.asked.deletions > head.deletions() {
        return vec![ViewDifference::FieldAhead { user, author }];
    }
    if field.opening {
        return vec![ViewDifference::FieldOpening { user, author }];
    }
    let latest = head.latest_seq.max(edge.base);
    let mut found = Vec::new();
    if field.newest_delivered() > latest {
        found.push(ViewDifference::DeliveredAhead { user, author });
    }
    if field.floor != edge.floor {
        found.push(ViewDifference::FloorWrong { user, author });
    }
    if field.version < reads.version {
        found.push(ViewDifference::ReadsBehind { user, author, version: reads.version.into() });
    }
    if !field.asks() && field.modes.changes < head.modes.changes && !facts.is_moving(PostId::new(author, head.latest_seq)) {
        found.push(ViewDifference::ModesBehind { user, author });
    }
    if catching_up {
        return found;
    }
    let bits = |bitmap: &tidemark_domain::bitmap::Bitmap, seq: Seq| seq > field.base && bitmap.get(seq - field.base - 1);
    let mut wrong = BTreeSet::new();
    for seq in edge.floor + 1..=latest {
        let post = PostId::new(author, seq);
        let (read, deleted) = (seq <= edge.base || reads.read.contains(seq), head.deleted.contains(seq));
        let settled = seq <= field.base || bits(&field.read, seq) || bits(&field.deleted, seq);
        if settled && !read && !deleted {
            let base = seq <= field.base;
            let behind = !base && bits(&field.read, seq) && field.version < reads.version;
            if !behind {
                wrong.insert(if base {
                    ViewDifference::BaseWrong { user, author }
                } else {
                    ViewDifference::ReadsWrong { user, author }
                });
            }
        } else if !settled && deleted && !facts.is_moving(post) {
            wrong.insert(ViewDifference::DeletionMissing { user, post });
        } else if !settled && read && !deleted && field.version == reads.version {
            wrong.insert(ViewDifference::ReadsWrong { user, author });
        }
        if !deleted && !field.is_delivered(seq) && !facts.is_moving(post) {
            wrong.insert(ViewDifference::Undelivered { user, post });
        }
    }
    found.extend(wrong);
    found
}

/// Compares the entries in the range that both sides have completely.
fn of_entries(
    user: UserId,
    state: &ReaderState,
    feed: &[FeedKey],
    facts: &ReaderFacts,
    catching_up: &HashSet<UserId>,
) -> Vec<ViewDifference> {
    let low = facts.low.max(state.meta.low);
    let stored: BTreeSet<FeedKey> = feed.iter().copied().collect();
    let is_missing = |key: &&FeedKey| {
        low.is_none_or(|low| **key >= low)
            && !stored.contains(key)
            && !catching_up.contains(&key.post.author)
            && !facts.is_moving(key.post)
            // A missing field or delivered bit is a difference of its own.
            && state.authors.get(&key.post.author).is_some_and(|field| field.is_delivered(key.post.seq))
    };
    let missing: Vec<ViewDifference> =
        facts.entries.iter().filter(is_missing).map(|key| ViewDifference::EntryMissing { user, post: key.post }).collect();
    let mut found = if missing.len() > MOST_ENTRIES { vec![ViewDifference::FeedIncomplete { user }] } else { missing };
    for key in feed {
        let FeedKey { at, post } = *key;
        let implied = facts.entries.contains(key) || facts.low.is_some_and(|low| *key < low);
        if (implied && state.meta.low.is_none_or(|low| *key >= low)) || facts.is_moving(post) {
            continue;
        }
        let why = match facts.authors.get(&post.author) {
            None => Ghost::Unfollowed,
            Some(_) if catching_up.contains(&post.author) => continue,
            Some(followed) if followed.head.deleted.contains(post.seq) => {
                // A post that was deleted while the author was pulled has no retraction. The field hides it. Below its
                // base the field has no bits: there the page leaves the tombstone out.
                let below = state.authors.get(&post.author).is_some_and(|field| post.seq <= field.base);
                if !followed.head.modes.is_push_alone() && (below || !state.shows(key)) {
                    continue;
                }
                Ghost::Deleted
            }
            Some(_) => Ghost::Unknown,
        };
        found.push(ViewDifference::EntryGhost { user, post, why, at });
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_set, prelude::*};

    use super::*;
    use tidemark_domain::{bitmap::Bitmap, reader_state::ReaderMeta};

    const USER: UserId = UserId::MIN;

    fn author() -> UserId {
        UserId::new(2).unwrap()
    }

    /// A reader of one author, with the view that the facts imply.
    fn agreeing(base: Seq, new: Seq, read: BTreeSet<Seq>, deleted: BTreeSet<Seq>) -> (StoredReader, ReaderFacts) {
        let latest = base + new;
        let at = |seq: Seq| Timestamp::from_ms(1_000 + seq);
        let edge = Edge { user: USER, author: author(), following: true, since: at(base), rev: 7, base, floor: 0 };
        let only_there = |seqs: BTreeSet<Seq>| seqs.into_iter().filter(|&seq| seq <= latest).collect();
        let head =
            AuthorHead { latest_seq: latest, latest_at: at(latest), deleted: only_there(deleted), ..AuthorHead::default() };
        let reads = ReadState { version: 3, through: 0, read: only_there(read) };
        let live = (1..=latest).filter(|&seq| !head.deleted.contains(seq));
        let entries: BTreeSet<FeedKey> = live.map(|seq| FeedKey { at: at(seq), post: PostId::new(author(), seq) }).collect();
        let field = AuthorState::from_facts(&edge, &head, &reads);
        let newest = entries.last().map_or(Timestamp::default(), |key| key.at);
        let meta = ReaderMeta { feed: !entries.is_empty(), newest, ..ReaderMeta::default() };
        let feed = Stored::read((!entries.is_empty()).then_some(()), |()| Some(entries.iter().copied().collect()));
        let state = Stored::Present(ReaderState { meta, authors: HashMap::from([(author(), field)]) });
        let followed = HashMap::from([(author(), Followed { edge, head, reads })]);
        let facts = ReaderFacts { authors: followed, entries, ..ReaderFacts::default() };
        (StoredReader { state, headless: false, feed, feed_outlives: true }, facts)
    }

    proptest! {
        #[test]
        fn a_view_as_the_facts_imply_has_no_difference_and_one_wrong_bit_is_found(
            base in 0..20u64, new in 1..40u64, at in 0..40u64,
            read in btree_set(1..60u64, 0..30), deleted in btree_set(1..60u64, 0..10),
        ) {
            let (stored, facts) = agreeing(base, new, read, deleted);
            let now = Timestamp::from_ms(5_000);
            prop_assert_eq!(differences(USER, &stored, &facts, now), vec![]);
            let seq = base + 1 + at % new;
            let with = |change: &dyn Fn(&mut AuthorState)| {
                let mut damaged = stored.clone();
                if let Stored::Present(state) = &mut damaged.state {
                    state.authors.values_mut().for_each(change);
                }
                differences(USER, &damaged, &facts, now)
            };
            let is_unread = stored.state.present().is_some_and(|state| state.is_unread(PostId::new(author(), seq)));
            let marked = with(&|field| if is_unread { field.read.set(seq - field.base - 1) });
            prop_assert_eq!(!marked.is_empty(), is_unread, "{:?}", marked);
            let undelivered = with(&|field| (field.through, field.tail) = (seq - 1, Bitmap::default()));
            prop_assert_eq!(undelivered.is_empty(), (seq..=base + new).all(|seq| facts.authors[&author()].head.deleted.contains(seq)));
        }
    }

    #[test]
    fn a_feed_with_an_entry_after_its_newest_time_is_disordered() {
        let (mut stored, facts) = agreeing(0, 3, BTreeSet::new(), BTreeSet::new());
        if let Stored::Present(state) = &mut stored.state {
            state.meta.newest = Timestamp::from_ms(state.meta.newest.ms() - 1);
        }
        assert_eq!(
            differences(USER, &stored, &facts, Timestamp::from_ms(5_000)),
            [ViewDifference::FeedDisordered { user: USER }]
        );
    }

    #[test]
    fn a_deleted_entry_below_the_base_is_no_ghost_if_posts_were_pulled() {
        let (stored, mut facts) = agreeing(0, 12, (1..=12).collect(), BTreeSet::new());
        let post = PostId::new(author(), 3);
        let followed = facts.authors.get_mut(&author()).unwrap();
        followed.head.deleted.insert(3);
        facts.entries.retain(|entry| entry.post != post);
        let state = stored.state.present().unwrap();
        assert!(state.authors[&author()].base >= 3);
        let now = Timestamp::from_ms(5_000);
        let ghosts = |facts: &ReaderFacts| {
            let found = differences(USER, &stored, facts, now).into_iter();
            found.filter(|found| matches!(found, ViewDifference::EntryGhost { .. })).count()
        };
        assert_eq!(ghosts(&facts), 1, "a push would have retracted it");
        facts.authors.get_mut(&author()).unwrap().head.modes.changes = 2;
        assert_eq!(ghosts(&facts), 0);
    }

    #[test]
    fn changes_in_flight_are_no_difference() {
        let (mut stored, mut facts) = agreeing(0, 3, BTreeSet::new(), BTreeSet::new());
        let last = *facts.entries.last().unwrap();
        if let (Stored::Present(state), Stored::Present(feed)) = (&mut stored.state, &mut stored.feed) {
            state.authors.values_mut().for_each(|field| field.through = 2);
            feed.pop();
        }
        let now = Timestamp::default();
        let undelivered = ViewDifference::Undelivered { user: USER, post: last.post };
        assert_eq!(differences(USER, &stored, &facts, now), [undelivered]);
        assert_eq!(unsure(USER, &stored, &facts, now), [last.post]);
        let delivery = tidemark_domain::Delivery {
            mode: tidemark_domain::DeliveryMode::Push,
            state: tidemark_domain::DeliveryState::Pending,
            followers: 1,
            delivered: 0,
            pages: 1,
            retraction_pages: 0,
            attempts: 0,
            seen_pages: 0,
            sent_at: None,
            started_at: last.at,
            finished_at: None,
        };
        let post = tidemark_domain::Post {
            id: last.post,
            title: "x".to_owned(),
            created_at: last.at,
            revision: 1,
            edited_at: None,
            weight: 0,
            deleted: false,
            archived: false,
            delivery,
        };
        facts.posts.insert(last.post, StoredPost { post, unfinished: true });
        assert_eq!(differences(USER, &stored, &facts, now), []);
    }
}

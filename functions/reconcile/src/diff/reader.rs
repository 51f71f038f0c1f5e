//! Compares a reader's state and feed with the facts.

use std::collections::{BTreeSet, HashMap};

use tidemark_domain::{
    AuthorHead, AuthorState, Edge, FeedKey, HalfLife, PostId, Rank, ReadState, ReaderState, Score, Timestamp, UserId,
    bitmap::Bitmap,
};
use tidemark_views::keys::View;

use super::{Difference, Ghost, Kind, Remedy, Stored, Subject, facts::StoredPost};

/// More missing entries than this are one difference.
pub(crate) const MOST_ENTRIES: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredReader {
    /// `Absent` also if there are fields without the one that makes them a view.
    pub state: Stored<ReaderState>,
    /// Whether there are such fields.
    pub headless: bool,
    /// The entries of the cached feed, oldest first.
    pub feed: Stored<Vec<FeedKey>>,
    /// Whether the feed expires no earlier than the state.
    pub feed_outlives: bool,
    /// Absent if the state knows of none, or if its scores have another half-life.
    pub ranked: Stored<StoredRanks>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredRanks {
    pub half_life: Option<HalfLife>,
    pub scores: Vec<(FeedKey, Score)>,
}

/// The facts of one followed author.
#[derive(Debug, Clone, PartialEq)]
pub struct Followed {
    /// It is no tombstone.
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
    /// The ranks of these posts.
    pub ranks: HashMap<PostId, Rank>,
    /// The lowest of `entries`, if the feed has more.
    pub low: Option<FeedKey>,
    /// The posts that [`undecided`] has returned.
    pub posts: HashMap<PostId, StoredPost>,
}

/// The posts whose fan-outs decide whether they are missing. The caller loads them into [`ReaderFacts::posts`].
pub(crate) fn undecided(user: UserId, stored: &StoredReader, facts: &ReaderFacts, now: Timestamp) -> Vec<PostId> {
    let mut posts = Vec::new();
    for Difference { kind, subject, .. } in differences(user, stored, facts, now) {
        match subject {
            Subject::Entry { post, .. } | Subject::GhostEntry { post, why: Ghost::Deleted, .. } => posts.push(post),
            Subject::Pair { author, .. } if kind == Kind::ModesBehind => {
                posts.extend(facts.authors.get(&author).map(|followed| PostId::new(author, followed.head.latest_seq)));
            }
            // Only a few entries can be in flight, the newest.
            Subject::User { .. } if kind == Kind::FeedIncomplete => {
                posts.extend(facts.entries.iter().rev().take(MOST_ENTRIES * 5).map(|key| key.post));
            }
            _ => {}
        }
    }
    posts
}

pub fn differences(user: UserId, stored: &StoredReader, facts: &ReaderFacts, now: Timestamp) -> Vec<Difference> {
    let whole = |kind, remedy| Difference::new(kind, Subject::User { user }, remedy);
    let rebuild = |kind| whole(kind, Remedy::Rebuild { user, anew: true });
    let forget = |kind| whole(kind, Remedy::Forget(View::Reader(user)));
    let state = match &stored.state {
        Stored::Damaged => return vec![rebuild(Kind::StateDamaged)],
        Stored::Absent if stored.headless => return vec![forget(Kind::StateHeadless)],
        Stored::Absent if stored.feed != Stored::Absent => return vec![forget(Kind::FeedOrphan)],
        Stored::Absent => return Vec::new(),
        Stored::Present(state) => state,
    };
    if state.meta.building {
        let abandoned = || whole(Kind::RebuildAbandoned, Remedy::Rebuild { user, anew: false });
        return (state.meta.deadline < now).then(abandoned).into_iter().collect();
    }
    let feed: &[FeedKey] = match (&stored.feed, state.meta.feed) {
        (Stored::Damaged, _) => return vec![rebuild(Kind::FeedDamaged)],
        (Stored::Absent, true) => return vec![rebuild(Kind::FeedLost)],
        (Stored::Present(_), false) => return vec![rebuild(Kind::FeedUnannounced)],
        (Stored::Absent, false) => &[],
        (Stored::Present(feed), true) => feed,
    };
    let sides = Sides { user, state, facts };
    let mut found = Vec::new();
    if !feed.is_empty() && !stored.feed_outlives {
        found.push(whole(Kind::FeedShortLived, Remedy::Touch { user }));
    }
    for (&author, followed) in &facts.authors {
        match state.authors.get(&author) {
            Some(field) => found.extend(sides.of_field(author, field, followed)),
            None => found.push(sides.sync(Kind::FieldMissing, author)),
        }
    }
    let ghosts = state.authors.iter().filter(|(author, _)| !facts.authors.contains_key(author));
    found.extend(ghosts.map(|(&author, &AuthorState { rev, .. })| {
        Difference::new(Kind::FieldGhost, Subject::Pair { user, author }, Remedy::DropAuthor { user, author, rev })
    }));
    // If an entry is later than the noted newest time, the next post would be appended too early.
    let overtaking = feed.last().is_some_and(|last| last.at > state.meta.newest);
    if overtaking || !feed.is_sorted_by(|older, newer| older < newer) {
        found.push(rebuild(Kind::FeedDisordered));
        return found;
    }
    let missing = sides.missing_entries(feed);
    if missing.len() > MOST_ENTRIES {
        found.push(rebuild(Kind::FeedIncomplete));
    } else {
        found.extend(missing.into_iter().map(|post| sides.deliver(Kind::EntryMissing, post)));
    }
    found.extend(feed.iter().filter_map(|key| sides.of_entry(key)));
    match &stored.ranked {
        Stored::Damaged => found.push(whole(Kind::RankDamaged, Remedy::Forget(View::Ranked(user)))),
        Stored::Present(ranked) => found.extend(sides.of_ranks(feed, ranked)),
        Stored::Absent => {}
    }
    found
}

/// Both sides of a comparison, of a complete view.
struct Sides<'a> {
    user: UserId,
    state: &'a ReaderState,
    facts: &'a ReaderFacts,
}

impl Sides<'_> {
    fn sync(&self, kind: Kind, author: UserId) -> Difference {
        let user = self.user;
        Difference::new(kind, Subject::Pair { user, author }, Remedy::SyncPair { user, author })
    }

    fn deliver(&self, kind: Kind, post: PostId) -> Difference {
        let user = self.user;
        Difference::new(kind, Subject::Entry { user, post }, Remedy::Deliver { user, post })
    }

    /// Whether the post's delivery or retraction is in progress. Then its missing bits and entries are not differences.
    fn is_moving(&self, post: PostId) -> bool {
        self.facts.posts.get(&post).is_some_and(StoredPost::is_moving)
    }

    /// Whether the next read fetches posts of this author and delivers them itself.
    fn is_catching_up(&self, author: UserId) -> bool {
        let sides = self.state.authors.get(&author).zip(self.facts.authors.get(&author));
        sides.is_some_and(|(field, followed)| field.is_behind(&followed.head))
    }

    fn of_field(&self, author: UserId, field: &AuthorState, followed: &Followed) -> BTreeSet<Difference> {
        let user = self.user;
        let Followed { edge, head, reads } = followed;
        let sync = |kind| self.sync(kind, author);
        let rebuild = |kind| Difference::new(kind, Subject::Pair { user, author }, Remedy::Rebuild { user, anew: true });
        if field.rev < edge.rev {
            return BTreeSet::from([sync(Kind::FieldOld)]);
        }
        if field.rev > edge.rev
            || field.version > reads.version
            || field.is_ahead_of(head)
            || field.newest_at > head.latest_at
            || field.pull_cursor.deletions > head.deletions()
        {
            return BTreeSet::from([rebuild(Kind::FieldAhead)]);
        }
        if field.opening {
            return BTreeSet::from([sync(Kind::FieldOpening)]);
        }
        let latest = head.latest_seq.max(edge.base);
        let newest = PostId::new(author, head.latest_seq);
        let unknown_mode = !field.asks() && field.modes.changes < head.modes.changes && !self.is_moving(newest);
        let wrong_choice = field.muted != edge.muted.is_some() || field.lists != edge.lists;
        let checks = [
            (field.newest_delivered() > latest, rebuild(Kind::DeliveredAhead)),
            (field.floor != edge.floor, sync(Kind::FloorWrong)),
            (wrong_choice, rebuild(Kind::ChoiceWrong)),
            (field.preference != edge.preference, rebuild(Kind::PreferenceWrong)),
            (field.version < reads.version, sync(Kind::ReadsBehind).in_version(reads.version.into())),
            (unknown_mode, sync(Kind::ModesBehind)),
        ];
        let mut found: BTreeSet<Difference> =
            checks.into_iter().filter_map(|(found, difference)| found.then_some(difference)).collect();
        if !self.is_catching_up(author) {
            let bits = |seq| self.of_bits(PostId::new(author, seq), field, followed).into_iter().flatten();
            found.extend((edge.floor + 1..latest + 1).flat_map(bits));
        }
        found
    }

    fn of_bits(&self, post: PostId, field: &AuthorState, followed: &Followed) -> [Option<Difference>; 2] {
        let (user, PostId { author, seq }) = (self.user, post);
        let Followed { edge, head, reads } = followed;
        let sync = |kind| self.sync(kind, author);
        let (read, deleted) = (seq <= edge.base || reads.read.contains(seq), head.deleted.contains(seq));
        let in_base = seq <= field.base;
        let has = |bits: &Bitmap| !in_base && bits.get(seq - field.base - 1);
        let settled = in_base || has(&field.read) || has(&field.deleted);
        let wrong = match settled {
            true if read || deleted => None,
            true if in_base => Some(sync(Kind::BaseWrong)),
            // `ReadsBehind` covers a read bit of an earlier version.
            true => (!has(&field.read) || field.version == reads.version).then(|| sync(Kind::ReadsWrong)),
            false if deleted => (!self.is_moving(post)).then(|| {
                let retract = Remedy::Retract { user, post, at: None };
                Difference::new(Kind::DeletionMissing, Subject::Entry { user, post }, retract)
            }),
            false => (read && field.version == reads.version).then(|| sync(Kind::ReadsWrong)),
        };
        let undelivered = !deleted && !field.is_delivered(seq) && !self.is_moving(post);
        [wrong, undelivered.then(|| self.deliver(Kind::Undelivered, post))]
    }

    /// The posts whose entries the feed lacks, in the range that both sides have completely. A missing field or
    /// delivered bit is a difference of its own.
    fn missing_entries(&self, feed: &[FeedKey]) -> Vec<PostId> {
        let low = self.facts.low.max(self.state.meta.low);
        let stored: BTreeSet<&FeedKey> = feed.iter().collect();
        let entries = self.facts.entries.iter().filter(|key| low.is_none_or(|low| **key >= low) && !stored.contains(key));
        let posts = entries.map(|key| key.post).filter(|&post| {
            let field = self.state.authors.get(&post.author);
            !self.is_catching_up(post.author) && !self.is_moving(post) && field.is_some_and(|field| field.is_delivered(post.seq))
        });
        posts.collect()
    }

    /// Compares the scores of a ranked feed. Posts that it lacks are no difference: the next ranked read adds them. Nor
    /// are scores of posts by authors who were ever pulled: every ranked read compares them.
    fn of_ranks(&self, feed: &[FeedKey], ranked: &StoredRanks) -> Vec<Difference> {
        let user = self.user;
        let Some(half_life) = ranked.half_life.filter(|_| self.state.meta.ranked) else { return Vec::new() };
        let stored: BTreeSet<&FeedKey> = feed.iter().collect();
        let wrong = |(key, score): &&(FeedKey, Score)| {
            if !stored.contains(key) {
                return true;
            }
            let author = key.post.author;
            let (Some(rank), Some(followed)) = (self.facts.ranks.get(&key.post), self.facts.authors.get(&author)) else {
                return false;
            };
            let field = self.state.authors.get(&author);
            let pushed = |field: &AuthorState| field.modes.is_push_alone() && followed.head.modes.is_push_alone();
            // A field of an earlier follow is a difference of its own.
            let comparable = field.is_some_and(|field| pushed(field) && field.rev == followed.edge.rev);
            comparable && half_life.score(key.at, *rank, followed.edge.preference) != *score
        };
        let difference = |(key, _): &(FeedKey, Score)| {
            let post = key.post;
            let changes = self.facts.ranks.get(&post).map_or(0, |rank| rank.step.changes);
            Difference::new(Kind::RankWrong, Subject::Entry { user, post }, Remedy::Forget(View::Ranked(user)))
                .in_version(changes.into())
        };
        ranked.scores.iter().filter(wrong).take(MOST_ENTRIES).map(difference).collect()
    }

    fn of_entry(&self, key: &FeedKey) -> Option<Difference> {
        let Self { user, state, facts } = *self;
        let FeedKey { at, post } = *key;
        let author = post.author;
        let implied = facts.entries.contains(key) || facts.low.is_some_and(|low| *key < low);
        if (implied && state.meta.low.is_none_or(|low| *key >= low)) || self.is_moving(post) {
            return None;
        }
        let (why, remedy) = match facts.authors.get(&author) {
            None => (Ghost::Unfollowed, Remedy::DropAuthor { user, author, rev: 0 }),
            Some(_) if self.is_catching_up(author) => return None,
            Some(followed) if followed.head.deleted.contains(post.seq) => {
                // A post that was deleted while the author was pulled has no retraction. The field hides it. Below its
                // base the field has no bits: there the page leaves the tombstone out.
                let below = state.authors.get(&author).is_some_and(|field| post.seq <= field.base);
                if !followed.head.modes.is_push_alone() && (below || !state.shows(key)) {
                    return None;
                }
                (Ghost::Deleted, Remedy::Retract { user, post, at: Some(at) })
            }
            Some(_) => (Ghost::Unknown, Remedy::Rebuild { user, anew: true }),
        };
        Some(Difference::new(Kind::EntryGhost, Subject::GhostEntry { user, post, why }, remedy).in_version(at.ms()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_set, prelude::*};

    use super::*;
    use tidemark_domain::{Delivery, DeliveryMode, Post, Seq, Step, invariants, reader_state::ReaderMeta};

    const USER: UserId = UserId::MIN;

    fn found(stored: &StoredReader, facts: &ReaderFacts) -> Vec<Difference> {
        differences(USER, stored, facts, Timestamp::from_ms(5_000))
    }

    fn kinds(stored: &StoredReader, facts: &ReaderFacts) -> Vec<Kind> {
        found(stored, facts).iter().map(|found| found.kind).collect()
    }

    fn author() -> UserId {
        UserId::new(2).unwrap()
    }

    /// A reader of one author, with the view that the facts imply.
    fn agreeing(base: Seq, new: Seq, read: BTreeSet<Seq>, deleted: BTreeSet<Seq>) -> (StoredReader, ReaderFacts) {
        let latest = base + new;
        let at = |seq: Seq| Timestamp::from_ms(1_000 + seq);
        let edge = Edge { following: true, since: at(base), rev: 7, base, floor: 0, ..Edge::never(USER, author()) };
        let only_there = |seqs: BTreeSet<Seq>| seqs.into_iter().filter(|&seq| seq <= latest).collect();
        let head =
            AuthorHead { latest_seq: latest, latest_at: at(latest), deleted: only_there(deleted), ..AuthorHead::default() };
        let reads = ReadState { version: 3, read: only_there(read), ..ReadState::default() };
        let live = (1..=latest).filter(|&seq| !head.deleted.contains(seq));
        let entries: BTreeSet<FeedKey> = live.map(|seq| FeedKey { at: at(seq), post: PostId::new(author(), seq) }).collect();
        let field = AuthorState::from_facts(&edge, &head, &reads);
        let newest = entries.last().map_or(Timestamp::default(), |key| key.at);
        let meta = ReaderMeta { feed: !entries.is_empty(), newest, ..ReaderMeta::default() };
        let feed = Stored::read((!entries.is_empty()).then_some(()), |()| Some(entries.iter().copied().collect()));
        let state = Stored::Present(ReaderState { meta, authors: HashMap::from([(author(), field)]), recent: Vec::new() });
        let followed = HashMap::from([(author(), Followed { edge, head, reads })]);
        let facts = ReaderFacts { authors: followed, entries, ..ReaderFacts::default() };
        (StoredReader { state, feed, feed_outlives: true, ..StoredReader::default() }, facts)
    }

    proptest! {
        #[test]
        fn a_view_as_the_facts_imply_has_no_difference_and_one_wrong_bit_is_found(
            base in 0..20u64, new in 1..40u64, at in 0..40u64,
            read in btree_set(1..60u64, 0..30), deleted in btree_set(1..60u64, 0..10),
        ) {
            let (stored, facts) = agreeing(base, new, read, deleted);
            prop_assert_eq!(found(&stored, &facts), vec![]);
            let seq = base + 1 + at % new;
            let with = |change: &dyn Fn(&mut AuthorState)| {
                let mut damaged = stored.clone();
                let Stored::Present(state) = &mut damaged.state else { panic!("{damaged:?}") };
                state.authors.values_mut().for_each(change);
                let Followed { edge, head, reads } = &facts.authors[&author()];
                let differs = invariants::view_differs(state, author(), Some(edge), head, reads);
                let found = found(&damaged, &facts);
                assert!(differs.is_none() || !found.is_empty(), "not found: {differs:?}");
                found
            };
            let is_unread = stored.state.present().is_some_and(|state| state.is_unread(PostId::new(author(), seq)));
            let marked = with(&|field| if is_unread { field.read.set(seq - field.base - 1) });
            prop_assert_eq!(!marked.is_empty(), is_unread, "{:?}", marked);
            let undelivered = with(&|field| (field.through, field.tail) = (seq - 1, Bitmap::default()));
            prop_assert_eq!(undelivered.is_empty(), (seq..=base + new).all(|seq| facts.authors[&author()].head.deleted.contains(seq)));
        }
    }

    #[test]
    fn a_score_that_the_facts_do_not_imply_is_found_unless_reads_compare_it() {
        let (mut stored, mut facts) = agreeing(0, 3, BTreeSet::new(), BTreeSet::new());
        let half_life = HalfLife::new(std::time::Duration::from_secs(60));
        if let Stored::Present(state) = &mut stored.state {
            state.meta.ranked = true;
        }
        let rank = Rank { weight: 3, step: Step { level: 2, changes: 1 } };
        facts.ranks = facts.entries.iter().map(|key| (key.post, rank)).collect();
        let scores: Vec<(FeedKey, Score)> = facts.entries.iter().map(|key| (*key, half_life.score(key.at, rank, 0))).collect();
        let ranks =
            |scores: &[(FeedKey, Score)]| Stored::Present(StoredRanks { half_life: Some(half_life), scores: scores.to_vec() });
        stored.ranked = ranks(&scores[1..]);
        assert_eq!(kinds(&stored, &facts), [], "the next read adds what is missing");
        let mut wrong = scores.clone();
        wrong[1].1 = Score::new(wrong[1].1.get() + 1.0).unwrap();
        stored.ranked = ranks(&wrong);
        assert_eq!(kinds(&stored, &facts), [Kind::RankWrong]);
        for followed in facts.authors.values_mut() {
            followed.head.modes.changes = 2;
        }
        assert!(!kinds(&stored, &facts).contains(&Kind::RankWrong));
        let ghost = FeedKey { at: Timestamp::from_ms(5_000), post: PostId::new(author(), 99) };
        stored.ranked = ranks(&[(ghost, scores[0].1)]);
        assert!(kinds(&stored, &facts).contains(&Kind::RankWrong));
    }

    #[test]
    fn a_feed_with_an_entry_after_its_newest_time_is_disordered() {
        let (mut stored, facts) = agreeing(0, 3, BTreeSet::new(), BTreeSet::new());
        if let Stored::Present(state) = &mut stored.state {
            state.meta.newest = Timestamp::from_ms(state.meta.newest.ms() - 1);
        }
        assert_eq!(kinds(&stored, &facts), [Kind::FeedDisordered]);
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
        let ghosts = |facts: &ReaderFacts| kinds(&stored, facts).into_iter().filter(|kind| *kind == Kind::EntryGhost).count();
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
        let (user, post) = (USER, last.post);
        let undelivered = Difference::new(Kind::Undelivered, Subject::Entry { user, post }, Remedy::Deliver { user, post });
        assert_eq!(found(&stored, &facts), [undelivered]);
        assert_eq!(undecided(USER, &stored, &facts, Timestamp::default()), [last.post]);
        let delivery = Delivery::planned(DeliveryMode::Push, 1, last.at);
        let post = Post::new(last.post, "x".to_owned(), last.at, delivery);
        facts.posts.insert(last.post, StoredPost { post, unfinished: true });
        assert_eq!(found(&stored, &facts), []);
    }
}

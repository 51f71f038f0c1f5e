//! Compares a reader's view with the facts.

use std::collections::{BTreeSet, HashMap};

use tidemark_domain::{
    AuthorHead, AuthorState, Edge, FeedKey, HalfLife, PostId, Rank, ReadState, ReaderState, Score, Timestamp, UserId,
};
use tidemark_views::keys::View;

use super::{Difference, Kind, Part, Stored, Subject, facts::StoredPost};

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
    /// The posts of the differences that were found without them. If a fan-out of one is in progress, the view may lack
    /// it.
    pub posts: HashMap<PostId, StoredPost>,
}

/// The posts that these differences are about.
pub(crate) fn posts_of(differences: &BTreeSet<Difference>) -> Vec<PostId> {
    let post = |found: &Difference| match &found.subject {
        Subject::View(field) => {
            if let Part::Post { post } = field.part {
                Some(post)
            } else {
                None
            }
        }
        _ => None,
    };
    differences.iter().filter_map(post).collect()
}

pub(crate) fn differences(user: UserId, stored: &StoredReader, facts: &ReaderFacts, now: Timestamp) -> BTreeSet<Difference> {
    let whole = |kind, field| Difference::of_view(kind, View::Reader(user), field, Part::Whole {});
    let only = |kind, field| BTreeSet::from([whole(kind, field)]);
    let state = match &stored.state {
        Stored::Damaged => return only(Kind::ViewDamaged, "state"),
        Stored::Absent if stored.headless || stored.feed != Stored::Absent => return only(Kind::ViewOrphan, "state"),
        Stored::Absent => return BTreeSet::new(),
        Stored::Present(state) => state,
    };
    if state.meta.building {
        let abandoned = || whole(Kind::ViewOrphan, "rebuild").in_version(state.meta.token);
        return (state.meta.deadline < now).then(abandoned).into_iter().collect();
    }
    let feed: &[FeedKey] = match (&stored.feed, state.meta.feed) {
        (Stored::Damaged, _) => return only(Kind::ViewDamaged, "feed"),
        (Stored::Absent, true) => return only(Kind::ViewOrphan, "feed"),
        (Stored::Present(_), false) => return only(Kind::ViewOrphan, "state"),
        (Stored::Absent, false) => &[],
        (Stored::Present(feed), true) => feed,
    };
    // If an entry is later than the noted newest time, the next post would be appended too early.
    let is_overtaking = feed.last().is_some_and(|last| last.at > state.meta.newest);
    if is_overtaking || !feed.is_sorted_by(|older, newer| older < newer) {
        return only(Kind::ViewDamaged, "order");
    }
    let sides = Sides { user, state, facts };
    let mut found = BTreeSet::new();
    if !feed.is_empty() && !stored.feed_outlives {
        found.insert(whole(Kind::ViewDamaged, "lifetime"));
    }
    let authors: BTreeSet<UserId> = facts.authors.keys().chain(state.authors.keys()).copied().collect();
    found.extend(authors.into_iter().flat_map(|author| sides.of_author(author)));
    found.extend(sides.of_entries(feed));
    match &stored.ranked {
        Stored::Damaged => {
            found.insert(Difference::of_view(Kind::ViewDamaged, View::Ranked(user), "value", Part::Whole {}));
        }
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
    fn differs(&self, field: &'static str, part: Part) -> Difference {
        Difference::of_view(Kind::ViewDiffers, View::Reader(self.user), field, part)
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

    fn of_author(&self, author: UserId) -> Vec<Difference> {
        let differs = |field| self.differs(field, Part::Author { author });
        let (field, followed) = match (self.state.authors.get(&author), self.facts.authors.get(&author)) {
            (Some(field), Some(followed)) => (field, followed),
            (field, followed) => {
                return vec![differs("authors").in_version((field.map(|field| field.rev), followed.map(|one| one.edge.rev)))];
            }
        };
        let Followed { edge, head, reads } = followed;
        if field.rev != edge.rev {
            return vec![differs("rev").in_version((field.rev, edge.rev))];
        }
        if field.opening {
            // The next read merges the facts of a post that was deleted while it was only counted.
            let is_filled = field.older > 0;
            return if is_filled { Vec::new() } else { vec![differs("opening").in_version(edge.rev)] };
        }
        let is_ahead =
            field.is_ahead_of(head) || field.newest_at > head.latest_at || field.pull_cursor.deletions > head.deletions();
        let latest = head.latest_seq.max(edge.base);
        let [by_edge, by_reads] = [(edge.rev, None), (edge.rev, Some((reads.version, head.deletions())))];
        let checks = [
            (is_ahead, "head", by_edge),
            (field.newest_delivered() > latest, "through", by_edge),
            (field.floor != edge.floor, "floor", by_edge),
            (field.muted != edge.muted.is_some(), "muted", by_edge),
            (field.lists != edge.lists, "lists", by_edge),
            (field.preference != edge.preference, "preference", by_edge),
            (field.version != reads.version, "version", by_reads),
            (counts_older_wrong(field, followed), "older", by_reads),
        ];
        let wrong = checks.into_iter().filter(|(wrong, ..)| *wrong);
        let mut found: Vec<Difference> = wrong.map(|(_, name, versions)| differs(name).in_version(versions)).collect();
        let newest = PostId::new(author, head.latest_seq);
        if !field.asks() && field.modes.changes < head.modes.changes && !self.is_moving(newest) {
            found.push(self.differs("modes", Part::Post { post: newest }));
        }
        if !self.is_catching_up(author) {
            let posts = (edge.floor + 1..latest + 1).map(|seq| PostId::new(author, seq));
            found
                .extend(posts.filter_map(|post| Some(self.differs(self.wrong_bit(post, field, followed)?, Part::Post { post }))));
        }
        found
    }

    /// The bit of a post that is wrong: what is not delivered, not deleted, or read differently.
    fn wrong_bit(&self, post: PostId, field: &AuthorState, Followed { edge, head, reads }: &Followed) -> Option<&'static str> {
        let seq = post.seq;
        if head.deleted.contains(seq) {
            return (!field.is_settled(seq) && !self.is_moving(post)).then_some("deleted");
        }
        if !field.is_delivered(seq) && !self.is_moving(post) {
            return Some("delivered");
        }
        let is_read = seq <= edge.base || reads.read.contains(seq);
        // A read state of another version is a difference of its own.
        let comparable = field.version == reads.version && field.knows(seq);
        (comparable && field.is_settled(seq) != is_read).then_some("read")
    }

    /// The entries that the feed lacks, in the range that both sides have completely, and those that the facts do not
    /// imply. A missing field or delivered bit is a difference of its own.
    fn of_entries(&self, feed: &[FeedKey]) -> Vec<Difference> {
        let low = self.facts.low.max(self.state.meta.low);
        let stored: BTreeSet<&FeedKey> = feed.iter().collect();
        let is_missing = |key: &&FeedKey| {
            let PostId { author, seq } = key.post;
            let is_delivered = self.state.authors.get(&author).is_some_and(|field| field.is_delivered(seq));
            is_delivered && !self.is_catching_up(author) && !self.is_moving(key.post)
        };
        let expected = self.facts.entries.iter().filter(|key| low.is_none_or(|low| **key >= low) && !stored.contains(key));
        let wrong = expected.filter(is_missing).chain(feed.iter().filter(|key| self.is_ghost(key)));
        wrong.map(|key| self.differs("entries", Part::Post { post: key.post }).in_version(key.at)).collect()
    }

    fn is_ghost(&self, key: &FeedKey) -> bool {
        let Self { state, facts, .. } = *self;
        let PostId { author, seq } = key.post;
        let is_implied = facts.entries.contains(key) || facts.low.is_some_and(|low| *key < low);
        if (is_implied && state.meta.low.is_none_or(|low| *key >= low)) || self.is_moving(key.post) || self.is_catching_up(author)
        {
            return false;
        }
        let Some(Followed { head, .. }) = facts.authors.get(&author) else { return true };
        // A post that was deleted while the author was pulled has no retraction. The field hides it. Below its base the
        // field has no bits: there the page leaves the tombstone out.
        let is_hidden = || state.authors.get(&author).is_some_and(|field| seq <= field.base) || !state.shows(key);
        !head.deleted.contains(seq) || head.modes.is_push_alone() || !is_hidden()
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
            let changes = self.facts.ranks.get(&post).map(|rank| rank.step.changes);
            Difference::of_view(Kind::ViewDiffers, View::Ranked(user), "scores", Part::Post { post }).in_version(changes)
        };
        ranked.scores.iter().filter(wrong).map(difference).collect()
    }
}

/// Whether the number of unread posts that are only counted is wrong.
fn counts_older_wrong(field: &AuthorState, Followed { edge, head, reads }: &Followed) -> bool {
    let same_facts = field.version == reads.version && field.deletions == head.deletions();
    let right = || reads.read.union(&head.deleted).absent_between(edge.base, field.horizon).count();
    field.older > 0 && same_facts && right() != field.older as usize
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_set, prelude::*};

    use super::{super::InView, *};
    use tidemark_domain::{Delivery, DeliveryMode, Post, Seq, Step, bitmap::Bitmap, invariants, reader_state::ReaderMeta};

    const USER: UserId = UserId::MIN;

    fn found(stored: &StoredReader, facts: &ReaderFacts) -> BTreeSet<Difference> {
        differences(USER, stored, facts, Timestamp::from_ms(5_000))
    }

    /// The fields that differ, each once.
    fn fields(stored: &StoredReader, facts: &ReaderFacts) -> Vec<&'static str> {
        let field = |found: Difference| if let Subject::View(InView { field, .. }) = found.subject { field } else { panic!() };
        found(stored, facts).into_iter().map(field).collect::<BTreeSet<_>>().into_iter().collect()
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
            prop_assert_eq!(found(&stored, &facts), BTreeSet::new());
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
        assert!(found(&stored, &facts).is_empty(), "the next read adds what is missing");
        let mut wrong = scores.clone();
        wrong[1].1 = Score::new(wrong[1].1.get() + 1.0).unwrap();
        stored.ranked = ranks(&wrong);
        assert_eq!(fields(&stored, &facts), ["scores"]);
        for followed in facts.authors.values_mut() {
            followed.head.modes.changes = 2;
        }
        assert!(!fields(&stored, &facts).contains(&"scores"));
        let ghost = FeedKey { at: Timestamp::from_ms(5_000), post: PostId::new(author(), 99) };
        stored.ranked = ranks(&[(ghost, scores[0].1)]);
        assert!(fields(&stored, &facts).contains(&"scores"));
    }

    #[test]
    fn a_feed_with_an_entry_after_its_newest_time_is_disordered() {
        let (mut stored, facts) = agreeing(0, 3, BTreeSet::new(), BTreeSet::new());
        if let Stored::Present(state) = &mut stored.state {
            state.meta.newest = Timestamp::from_ms(state.meta.newest.ms() - 1);
        }
        assert_eq!(fields(&stored, &facts), ["order"]);
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
        let has_ghost = |facts: &ReaderFacts| fields(&stored, facts).contains(&"entries");
        assert!(has_ghost(&facts), "a push would have retracted it");
        facts.authors.get_mut(&author()).unwrap().head.modes.changes = 2;
        assert!(!has_ghost(&facts));
    }

    #[test]
    fn changes_in_flight_are_no_difference() {
        let (mut stored, mut facts) = agreeing(0, 3, BTreeSet::new(), BTreeSet::new());
        let last = *facts.entries.last().unwrap();
        if let (Stored::Present(state), Stored::Present(feed)) = (&mut stored.state, &mut stored.feed) {
            state.authors.values_mut().for_each(|field| field.through = 2);
            feed.pop();
        }
        assert_eq!(fields(&stored, &facts), ["delivered"]);
        assert_eq!(posts_of(&found(&stored, &facts)), [last.post]);
        let delivery = Delivery::planned(DeliveryMode::Push, 1, last.at);
        let post = Post::new(last.post, "x".to_owned(), last.at, delivery);
        facts.posts.insert(last.post, StoredPost { post, unfinished: true });
        assert!(found(&stored, &facts).is_empty());
    }

    #[test]
    fn posts_that_are_only_counted_are_compared_by_their_number() {
        let read = (2..=5_000).collect();
        let (mut stored, facts) = agreeing(0, 5_000, read, BTreeSet::new());
        let with = |stored: &mut StoredReader, change: fn(&mut AuthorState)| {
            let Stored::Present(state) = &mut stored.state else { panic!() };
            state.authors.values_mut().for_each(change);
        };
        with(&mut stored, |field| *field = field.clone().bounded());
        assert_eq!(stored.state.present().unwrap().authors[&author()].older, 1);
        assert!(found(&stored, &facts).is_empty());
        with(&mut stored, |field| field.older = 2);
        assert_eq!(fields(&stored, &facts), ["older"]);
        // A deletion of such a post leaves the facts to the next read.
        with(&mut stored, |field| field.opening = true);
        assert!(found(&stored, &facts).is_empty());
    }
}

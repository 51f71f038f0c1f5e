//! The scripts alone: any history of repeated and reordered operations ends in agreement with the facts (V1 to V5).

use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use redis::AsyncCommands;
use tidemark::{
    domain::{
        AuthorHead, AuthorState, Budget, Edge, FeedKey, HalfLife, Modes, PostId, Rank, ReadState, Timestamp, UserId, invariants,
        reader_state::RECENT_FIELDS,
    },
    views::{Rebuild, Seed, View, Views, keys},
};
use tidemark_tests::{Connection, user_id, world};

/// The events of one reader and one author, as operations on the view.
#[derive(Clone, Debug)]
enum Operation {
    Deliver(u64),
    Retract(u64, u32),
    Read(Box<Facts>),
    /// A mute, a preference or a change of lists.
    Choose(Edge),
}

fn at(seq: u64) -> Timestamp {
    Timestamp::from_ms(1_700_000_000_000 + seq * 7_000_000)
}

#[test]
fn operations_in_any_order_end_in_the_same_view() {
    world(async |world| {
        let views = world.patient_redis();
        for seed in 0..300_u64 {
            history(&views, seed).await;
        }
    });
}

async fn deliver(views: &Views, user: UserId, key: FeedKey) {
    views.deliver(&[user], key, Modes::default(), false).await.unwrap();
}

fn random_edge(rng: &mut StdRng, seed: u64) -> Edge {
    Edge {
        following: true,
        since: at(0),
        rev: 10,
        muted: rng.random_bool(0.5).then(|| at(1)),
        lists: if rng.random_bool(0.5) { [7].into() } else { [].into() },
        preference: if rng.random_bool(0.5) { rng.random_range(-10..=10) } else { 0 },
        ..Edge::never(user_id(seed + 1), user_id(900_000 + seed))
    }
}

/// A view without its list or a recent entry is damaged. Deliveries of these posts lose it.
async fn assert_is_lost(views: &Views, redis: &mut Connection, user: UserId, recent: bool, posts: impl Iterator<Item = FeedKey>) {
    if recent {
        redis.hdel::<_, _, ()>(keys::reader_state(user), RECENT_FIELDS[0]).await.unwrap();
    } else {
        redis.del::<_, ()>(keys::feed(user)).await.unwrap();
    }
    assert!(views.reader_view(user, 100).await.is_err(), "it is damaged");
    for key in posts {
        deliver(views, user, key).await;
    }
    assert!(views.reader_view(user, 100).await.unwrap().is_none(), "the view is lost");
}

/// Removes the entries of an author by an unfollow (3) or a mute (7), or those below a new low end.
async fn shrink(views: &Views, edge: &Edge, change: u64, entries: &mut Vec<FeedKey>) {
    match change {
        3 => views.drop_author(&edge.ended(at(1))).await.unwrap(),
        7 => {
            let mute = Edge { muted: Some(at(1)), ..edge.changed(at(1)) };
            views.open_gate(edge.user, &[mute]).await.unwrap();
        }
        _ => {
            entries.drain(..entries.len() / 2);
            views.seed(edge.user, &Seed { low: Some(entries[0]), ..Seed::default() }).await.unwrap();
            return;
        }
    }
    entries.retain(|key| key.post.author != edge.author);
}

/// The newest entries of a feed are in the state. Every script that changes the feed finds them.
#[test]
fn recent_entries_are_part_of_the_feed_for_every_script() {
    world(async |world| {
        let (views, mut redis, half_life) =
            (world.patient_redis(), world.redis().await, HalfLife::new(Duration::from_secs(3600)));
        let (author, other) = (user_id(900), user_id(901));
        let key = |number: u64| {
            let (of, seq) = if number.is_multiple_of(3) { (other, number / 3) } else { (author, number - number / 3) };
            FeedKey { at: at(number), post: PostId::new(of, seq) }
        };
        let between = FeedKey { at: at(1).plus_ms(1), post: PostId::new(author, 400) };
        for (posts, change) in (1..=20_u64).flat_map(|posts| (0..11).map(move |change| (posts, change))) {
            let user = user_id(posts * 100 + change);
            let edges = [author, other].map(|author| Edge { following: true, rev: 10, ..Edge::never(user, author) });
            open_view(&views, user, &edges).await;
            let deliver = async |key| deliver(&views, user, key).await;
            for number in 1..=posts {
                deliver(key(number)).await;
            }
            let mut expected: Vec<FeedKey> = (1..=posts).map(key).collect();
            let view = views.reader_view(user, 100).await.unwrap().unwrap();
            assert_eq!(view.state.recent.len() as u64, (posts - 1) % 9, "the first goes to the list, and the ninth moves eight");
            assert!(view.entries.iter().rev().eq(&expected));
            match change {
                0 | 1 => {
                    let retracted = expected.remove(if change == 0 { expected.len() - 1 } else { 0 });
                    views.retract(&[user], retracted, 1, Modes::default()).await.unwrap();
                }
                2 => views.touch(user, at(1), false).await.unwrap(),
                3 | 7 | 8 => shrink(&views, &edges[1], change, &mut expected).await,
                4 => {
                    expected.push(between);
                    views.seed(user, &Seed { entries: vec![between], ..Seed::default() }).await.unwrap();
                }
                5 => {
                    expected.push(between);
                    deliver(between).await;
                }
                6 => {
                    let all: Vec<_> = expected.iter().map(|key| (*key, Rank::default())).collect();
                    views.rank(&[user], half_life, &all, true).await.unwrap();
                    assert_eq!(views.unranked(user, half_life).await.unwrap(), []);
                }
                _ => {
                    let recent = change == 9 && !view.state.recent.is_empty();
                    assert_is_lost(&views, &mut redis, user, recent, (posts + 1..=posts + 9).map(key)).await;
                    continue;
                }
            }
            for number in posts + 1..=posts + 12 {
                deliver(key(number)).await;
            }
            expected
                .extend((posts + 1..=posts + 12).map(key).filter(|key| ![3, 7].contains(&change) || key.post.author == author));
            expected.sort_unstable_by(|a, b| b.cmp(a));
            assert_eq!(views.reader_view(user, 100).await.unwrap().unwrap().entries, expected, "{posts} posts, change {change}");
        }
    });
}

#[test]
fn a_clock_that_was_ahead_locks_no_user_out() {
    world(async |world| {
        let views = world.patient_redis();
        let user = user_id(1);
        let spend = async |after_ms: u64| views.spend(user, (Budget::Reads, 60), 1, at(1).plus_ms(after_ms)).await.unwrap().wait;
        let hour = 3_600_000;
        assert_eq!(spend(hour).await, None);
        // To a right clock the bucket is empty, and it fills from now on.
        assert_eq!(spend(0).await, Some(Duration::from_secs(1)));
        assert_eq!(spend(400).await, Some(Duration::from_millis(600)));
        assert_eq!([spend(1_000).await, spend(2_000).await], [None, None]);
        assert_eq!(spend(2_000).await, Some(Duration::from_secs(1)));
        // A minute later it is full.
        for _ in 0..60 {
            assert_eq!(spend(70_000).await, None);
        }
        assert_eq!(spend(70_000).await, Some(Duration::from_secs(1)));
    });
}

#[test]
fn a_request_of_more_tokens_than_a_bucket_holds_is_allowed_when_it_is_full_and_leaves_a_debt() {
    world(async |world| {
        let views = world.patient_redis();
        let user = user_id(1);
        let spend = async |tokens: u32, second: u64| {
            let spent = views.spend(user, (Budget::Marks, 60), tokens, at(1).plus_ms(second * 1_000)).await.unwrap();
            (spent.wait.map(|wait| wait.as_secs()), spent.left)
        };
        assert_eq!(spend(50, 0).await, (None, 10));
        assert_eq!(spend(20, 0).await, (Some(10), 10), "a refused request takes nothing");
        assert_eq!(spend(20, 10).await, (None, 0));
        assert_eq!(spend(200, 10).await, (Some(60), 0), "until the bucket is full");
        assert_eq!(spend(200, 69).await, (Some(1), 59));
        assert_eq!(spend(200, 70).await, (None, 0));
        // A debt of 140 tokens.
        assert_eq!(spend(1, 70).await, (Some(141), 0));
        assert_eq!(spend(1, 210).await, (Some(1), 0));
        assert_eq!(spend(1, 211).await, (None, 0));
        // A key lives as long as its debt.
        let left: i64 = world.redis().await.pttl(keys::limits(user)).await.unwrap();
        assert!((50_000..=60_000).contains(&left), "{left}");
        // Another kind has its own bucket, and the largest request takes as many tokens as the largest body names.
        let largest = views.spend(user, (Budget::Posts, 60), 100_000, at(1)).await.unwrap();
        assert_eq!(largest.wait, None);
        let after = views.spend(user, (Budget::Posts, 60), 1, at(1)).await.unwrap();
        assert_eq!(after.wait, Some(Duration::from_secs(441)));
    });
}

#[derive(Clone, Debug)]
struct Facts {
    edge: Edge,
    head: AuthorHead,
    reads: ReadState,
}

impl Facts {
    /// The author's field, without deliveries.
    fn seed(&self) -> Seed {
        let state = AuthorState::undelivered(&self.edge, &self.head, &self.reads);
        Seed { authors: vec![(self.edge.author, state)], ..Seed::default() }
    }

    fn key(&self, seq: u64) -> FeedKey {
        FeedKey { at: at(seq), post: PostId::new(self.edge.author, seq) }
    }
}

/// Rebuilds the view of a user with these edges.
async fn open_view(views: &Views, user: UserId, edges: &[Edge]) {
    views.begin_rebuild(user, 1, at(0), Rebuild::Missing).await.unwrap();
    views.open_gate(user, edges).await.unwrap();
    views.finish_rebuild(user, 1, at(0)).await.unwrap();
}

/// A true history, and the operations that carry it to the view.
fn true_history(rng: &mut StdRng, facts: &mut Facts) -> Vec<Operation> {
    let mut operations = Vec::new();
    for _ in 0..rng.random_range(1..40) {
        match rng.random_range(0..11) {
            10 => {
                facts.edge = match rng.random_range(0..3) {
                    0 => Edge { muted: facts.edge.muted.is_none().then(|| at(2)), ..facts.edge.changed(at(0)) },
                    1 => Edge { preference: rng.random_range(-10..=10), ..facts.edge.changed(at(0)) },
                    _ => Edge { lists: [rng.random_range(1..5)].into(), ..facts.edge.changed(at(0)) },
                };
                operations.push(Operation::Choose(facts.edge.clone()));
            }
            0..5 => {
                facts.head.latest_seq += 1;
                facts.head.latest_at = at(facts.head.latest_seq);
                operations.push(Operation::Deliver(facts.head.latest_seq));
            }
            5 if facts.head.latest_seq > 0 => {
                let seq = rng.random_range(1..=facts.head.latest_seq);
                if facts.head.deleted.insert(seq) {
                    operations.push(Operation::Retract(seq, facts.head.deletions()));
                }
            }
            6..8 if facts.head.latest_seq > 0 => {
                let seq = rng.random_range(1..=facts.head.latest_seq);
                let changed = if rng.random() { facts.reads.mark([seq]) } else { facts.reads.unmark(seq) };
                facts.reads.version += u32::from(changed);
                operations.push(Operation::Read(Box::new(facts.clone())));
            }
            8 => {
                let seq = rng.random_range(0..=facts.head.latest_seq);
                facts.reads.version += u32::from(facts.reads.mark_through(seq));
                operations.push(Operation::Read(Box::new(facts.clone())));
            }
            _ => {}
        }
    }
    operations
}

async fn apply(views: &Views, user: UserId, facts: &Facts, operation: &Operation) {
    match operation {
        Operation::Deliver(seq) => deliver(views, user, facts.key(*seq)).await,
        Operation::Retract(seq, deletions) => {
            views.retract(&[user], facts.key(*seq), *deletions, Modes::default()).await.unwrap();
        }
        Operation::Read(read) => {
            let seeded = views.seed(user, &read.seed()).await.unwrap();
            // A stale view is loaded again, as functions do.
            if seeded != Some(vec![]) {
                views.open_gate(user, std::slice::from_ref(&facts.edge)).await.unwrap();
                views.seed(user, &facts.seed()).await.unwrap();
            }
        }
        Operation::Choose(edge) => drop(views.open_gate(user, std::slice::from_ref(edge)).await.unwrap()),
    }
}

async fn history(views: &Views, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let base = rng.random_range(0..20_u64);
    let lists = if rng.random_bool(0.3) { [1, 70_000].into() } else { [].into() };
    let edge = Edge { since: at(base), base, floor: base.saturating_sub(5), lists, ..random_edge(&mut rng, seed) };
    let (user, author, first) = (edge.user, edge.author, edge.clone());
    let head = AuthorHead { latest_seq: base, latest_at: at(base), ..Default::default() };
    let mut facts = Facts { edge, head, reads: ReadState::default() };
    let operations = true_history(&mut rng, &mut facts);
    let mut repeated: Vec<Operation> =
        operations.iter().flat_map(|operation| vec![operation.clone(); rng.random_range(1..3)]).collect();
    repeated.shuffle(&mut rng);

    open_view(views, user, &[first]).await;
    for operation in &repeated {
        apply(views, user, &facts, operation).await;
    }
    let Facts { edge, head, reads } = &facts;
    let live = (base + 1..=head.latest_seq).rev().filter(|seq| !head.deleted.contains(*seq)).map(|seq| facts.key(seq));
    let live: Vec<FeedKey> = live.filter(|_| edge.muted.is_none()).collect();
    if views.reader_view(user, 0).await.unwrap().unwrap().state.authors[&author].opening {
        // The end of a mute opens the author again. The next read merges the facts, as functions do.
        let state = AuthorState::from_facts(edge, head, reads);
        let seed = Seed { authors: vec![(author, state)], entries: live.clone(), ..Seed::default() };
        assert_eq!(views.seed(user, &seed).await.unwrap(), Some(vec![]));
    }
    let View { state, entries: stored, whole, .. } = views.reader_view(user, 1000).await.unwrap().unwrap();
    let differs = invariants::view_differs(&state, author, Some(edge), head, reads);
    assert_eq!(differs, None, "seed {seed}: {repeated:?}");
    for seq in base + 1..=head.latest_seq {
        assert_eq!(state.is_unread(PostId::new(author, seq)), !reads.read.contains(seq) && !head.deleted.contains(seq));
    }
    // V3: live posts are stored once and in order, and so are unread ones. A deleted post may be left if it was read
    // before its late delivery. Of a muted author none are stored.
    assert!(whole && state.meta.feed != stored.is_empty());
    let stored: Vec<FeedKey> = stored.into_iter().filter(|key| !head.deleted.contains(key.post.seq)).collect();
    assert_eq!(stored, live, "seed {seed}: {repeated:?}");

    // An unfollow removes all of it, also before later operations.
    views.drop_author(&edge.ended(at(0))).await.unwrap();
    for operation in &repeated {
        if let Operation::Deliver(seq) = operation {
            deliver(views, user, facts.key(*seq)).await;
        }
    }
    views.open_gate(user, std::slice::from_ref(edge)).await.unwrap();
    let View { state, entries, .. } = views.reader_view(user, 1000).await.unwrap().unwrap();
    assert!(state.authors.is_empty() && entries.is_empty() && !state.meta.feed, "seed {seed}: {state:?}");
}

/// With any number of posts between the oldest unread one and the newest, the view has the count of the facts, knows
/// each of the newest posts, and stays small.
#[test]
fn a_view_with_an_old_unread_post_stays_exact_and_small() {
    world(async |world| {
        let views = world.patient_redis();
        for seed in 0..4 {
            long_history(&views, seed).await;
        }
    });
}

async fn long_history(views: &Views, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let edge = random_edge(&mut rng, seed);
    let (user, author) = (edge.user, edge.author);
    let mut head = AuthorHead::default();
    let mut reads = ReadState::default();
    let key = |seq| FeedKey { at: at(seq), post: PostId::new(author, seq) };
    open_view(views, user, std::slice::from_ref(&edge)).await;
    for _ in 0..7_000 {
        head.latest_seq += 1;
        head.latest_at = at(head.latest_seq);
        let latest = head.latest_seq;
        deliver(views, user, key(latest)).await;
        // The first post stays unread. Most others are read over time.
        match rng.random_range(0..100) {
            dice @ 0..4 => {
                if dice < 3 {
                    reads.mark((latest.saturating_sub(60)..=latest).filter(|seq| *seq > 1));
                } else {
                    reads.unmark(rng.random_range(2..=latest.max(2)));
                }
                reads.version += 1;
                let authors = vec![(author, AuthorState::undelivered(&edge, &head, &reads))];
                let seeded = views.seed(user, &Seed { authors, ..Seed::default() }).await.unwrap();
                assert_eq!(seeded, Some(vec![]));
            }
            4 => {
                let seq = rng.random_range(1..=latest);
                if head.deleted.insert(seq) {
                    views.retract(&[user], key(seq), head.deletions(), Modes::default()).await.unwrap();
                }
            }
            _ => {}
        }
        if latest % 500 == 0 {
            compare(views, &edge, &head, &reads, seed).await;
        }
    }
}

async fn compare(views: &Views, edge: &Edge, head: &AuthorHead, reads: &ReadState, seed: u64) {
    let Edge { user, author, .. } = *edge;
    let state = async || views.reader_view(user, 0).await.unwrap().unwrap().state.authors[&author].clone();
    let mut known = state().await;
    if known.opening {
        // Deletes a post that the view only counts. The next read reads the facts, as functions do.
        let facts = AuthorState::from_facts(edge, head, reads);
        views.seed(user, &Seed { authors: vec![(author, facts)], ..Seed::default() }).await.unwrap();
        known = state().await;
    }
    let exact = AuthorState::from_facts(edge, head, reads);
    let latest = head.latest_seq;
    assert_eq!(known.unread(), exact.unread(), "seed {seed}, {latest} posts");
    assert!(!known.opening && known.encode().len() < 1_200, "{} bytes", known.encode().len());
    for seq in latest.saturating_sub(1_000).max(1)..=latest {
        assert!(known.knows(seq));
        assert_eq!(known.is_unread(seq), exact.is_unread(seq), "seed {seed}, post {seq} of {latest}");
    }
}

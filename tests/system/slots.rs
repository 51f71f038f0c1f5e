//! Views whose slot goes to another server and returns, without a cluster: each view, each write, and damage. A write
//! that meets a view of another epoch, or one that it cannot read, deletes it. `cluster::scaling` does the same with
//! whole requests.

use std::{collections::HashMap, time::Duration};

use redis::{AsyncCommands, aio::MultiplexedConnection};
use tidemark::{
    domain::{
        self, AuthorHead, AuthorState, Budget, CountsVersion, Edge, FanOutKind, FeedKey, HalfLife, Modes, PlatformHead, PostId,
        PostSummary, Rank, Reaction, ReactionCounts, ReactionState, ReadState, Relation, Step, Timestamp, UserId,
        reader_state::META_FIELD,
    },
    views::{CardVersion, List, NoticeRecord, NoticeView, Rebuild, RedisOptions, Seed, Start, Views, keys},
};
use tidemark_tests::{LegacyRedis, in_one_thread, user_id, while_leased};

use crate::migration::command as command_of;

const TOKEN: u64 = 7;
const HALF_LIFE: Duration = Duration::from_secs(3_600);
const PER_MINUTE: (Budget, u32) = (Budget::Reads, 60);

/// A view of the reader, or of the author whom the reader follows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Reader,
    Following,
    Followers,
    Counters,
    Reactions,
    Head,
    Summary,
    Counts,
    Marks,
    Moved,
    Card,
    Platform,
    NoticeReads,
    Access,
}
use Kind::*;

/// Every kind of write to each view.
const WRITES: [(Kind, &str); 32] = [
    (Reader, "begin"),
    (Reader, "deliver"),
    (Reader, "deliver of another author"),
    (Reader, "retract"),
    (Reader, "open_gate"),
    (Reader, "seed"),
    (Reader, "finish"),
    (Reader, "drop"),
    (Reader, "touch"),
    (Reader, "rank"),
    (Reader, "beside"),
    (Reader, "watch"),
    (Reader, "unwatch"),
    (Reader, "notify"),
    (Reader, "claim"),
    (Following, "follow"),
    (Following, "unfollow"),
    (Followers, "follow"),
    (Followers, "unfollow"),
    (Counters, "follow"),
    (Counters, "forget_counters"),
    (Reactions, "react"),
    (Reactions, "fill reactions"),
    (Head, "replace_head"),
    (Summary, "remember"),
    (Counts, "expire_counts"),
    (Marks, "forget_marks"),
    (Moved, "settle"),
    (Card, "replace_card"),
    (Platform, "replace_notices"),
    (NoticeReads, "replace_notices"),
    (Access, "may not"),
];

fn at(seq: u64) -> Timestamp {
    Timestamp::from_ms(1_700_000_000_000 + seq * 1_000)
}

fn reader() -> UserId {
    user_id(1)
}

fn author() -> UserId {
    user_id(9)
}

fn post(seq: u64) -> PostId {
    PostId::new(author(), seq)
}

fn key(seq: u64) -> FeedKey {
    FeedKey { at: at(seq), post: post(seq) }
}

fn edge() -> Edge {
    Edge { following: true, since: at(0), rev: 10, ..Edge::never(reader(), author()) }
}

fn head(latest_seq: u64) -> AuthorHead {
    AuthorHead { latest_seq, latest_at: at(latest_seq), posts: latest_seq, ..AuthorHead::default() }
}

fn summary(revision: u32) -> PostSummary {
    let title = format!("title {revision}");
    PostSummary { id: post(1), title, of: None, created_at: at(1), revision, rank: Rank::default(), deleted: false }
}

fn reactions(liked: u64) -> ReactionState {
    (1..=liked).fold(ReactionState::default(), |state, seq| state.changed(seq, Reaction::Like, true).unwrap())
}

fn card(version: u32) -> CardVersion {
    CardVersion { version, card: Some(domain::Card { name: format!("name {version}"), handle: None, picture: None }) }
}

fn platform() -> domain::Platform {
    domain::Platform::new(3).unwrap()
}

fn notices(of: Kind, version: u64) -> NoticeView {
    if of == Platform {
        return NoticeView::Head(platform(), PlatformHead { version, ..PlatformHead::default() });
    }
    NoticeView::Reads(reader(), platform(), domain::NoticeReads { version, ..domain::NoticeReads::default() })
}

fn list(of: Kind) -> List {
    if of == Following { List::Following(reader()) } else { List::Followers(author()) }
}

impl Kind {
    /// The key that says whether there is a view.
    fn key(self) -> String {
        match self {
            Reader => keys::reader_state(reader()),
            Following | Followers => keys::list(list(self))[0].clone(),
            Counters => keys::counters(author())[0].clone(),
            Reactions => keys::reactions(reader()),
            Head => keys::head(author())[0].clone(),
            Summary => keys::post(post(1))[0].clone(),
            Counts => keys::counts(post(1))[0].clone(),
            Marks => keys::marks(reader(), author())[0].clone(),
            Moved => keys::moved(author()),
            Card => keys::card(author())[0].clone(),
            Platform => keys::notice_record(NoticeRecord::Head(platform()))[0].clone(),
            NoticeReads => keys::notice_record(NoticeRecord::Reads(reader(), platform()))[0].clone(),
            Access => keys::access(reader()),
        }
    }

    /// Takes the lease for storing the view, or begins to build it, before the facts are read.
    async fn lease(self, redis: &Views) {
        match self {
            Reader => drop(redis.begin_rebuild(reader(), TOKEN, at(0), Rebuild::Missing).await.unwrap()),
            Following | Followers => redis.lease_list(list(self), TOKEN).await.unwrap(),
            Counters => drop(redis.counters(author(), author(), TOKEN).await.unwrap()),
            Reactions => drop(redis.open_reactions(reader(), TOKEN).await.unwrap()),
            Head => drop(redis.lease_heads(&[author()], TOKEN).await.unwrap()),
            Summary => redis.lease_posts(&[post(1)], TOKEN).await.unwrap(),
            Counts => redis.lease_counts(&[post(1)], TOKEN).await.unwrap(),
            Marks => redis.lease_marks(reader(), &[author()], TOKEN).await.unwrap(),
            Card => drop(redis.lease_cards(&[author()], TOKEN).await.unwrap()),
            Platform | NoticeReads => drop(redis.lease_notices(&[notices(self, 1).record()], TOKEN).await.unwrap()),
            Moved | Access => {}
        }
    }

    /// Stores the view from the facts that were read after [`Self::lease`]. It may be refused.
    async fn store(self, redis: &Views) {
        match self {
            Reader => {
                if redis.open_gate(reader(), &[edge()]).await.unwrap().is_none() {
                    return;
                }
                let authors = vec![(author(), AuthorState::from_facts(&edge(), &head(1), &ReadState::default()))];
                let seed = Seed { authors, entries: vec![key(1)], token: Some(TOKEN), low: None };
                redis.seed(reader(), &seed).await.unwrap();
                redis.finish_rebuild(reader(), TOKEN, at(1)).await.unwrap();
                redis.rank(&[reader()], HalfLife::new(HALF_LIFE), &[(key(1), Rank::default())], true).await.unwrap();
            }
            Following | Followers => {
                let members = [Relation { since: at(0), user: user_id(30) }];
                redis.fill_list(list(self), TOKEN, &members, Timestamp::from_ms(0)).await.unwrap();
            }
            Counters => redis.store_counters(author(), domain::Counters::default(), TOKEN).await.unwrap(),
            Reactions => redis.fill_reactions(reader(), TOKEN, &HashMap::from([(author(), reactions(1))])).await.unwrap(),
            Head => redis.fill_heads(&[(author(), head(1))], TOKEN).await.unwrap(),
            Summary => redis.remember_posts(&[(summary(1), None)], Some(TOKEN)).await.unwrap(),
            Counts => {
                let counts = CountsVersion { version: 1, counts: ReactionCounts { likes: 1, ..ReactionCounts::default() } };
                redis.store_counts(&HashMap::from([(post(1), counts)]), TOKEN).await.unwrap();
            }
            Marks => redis.fill_marks(reader(), &[(author(), tidemark::views::Marks::default())], TOKEN).await.unwrap(),
            Moved => drop(redis.note_step(post(1), Step { level: 1, changes: 1 }, TOKEN, at(0)).await.unwrap()),
            Card => redis.fill_cards(&[(author(), card(1))], TOKEN).await.unwrap(),
            Platform | NoticeReads => redis.fill_notices(&[notices(self, 1)], TOKEN).await.unwrap(),
            Access => redis.note_access(reader(), true).await.unwrap(),
        }
    }

    /// Whether the view counts. A view that a read finds damaged does not: it is rebuilt.
    async fn is_known(self, redis: &Views) -> bool {
        match self {
            Reader => redis.reader_view(reader(), 10).await.is_ok_and(|view| view.is_some_and(|view| !view.state.meta.building)),
            Following | Followers => {
                let slice = redis.list_slice(user_id(40), list(self), Start::Below(None), 10).await;
                slice.is_ok_and(|slice| slice.is_some())
            }
            Counters => redis.counters(author(), author(), 0).await.unwrap().is_some(),
            Reactions => !redis.known_reader(reader(), author()).await.unwrap().reactions.of.is_empty(),
            Head => redis.heads(&[author()]).await.unwrap().contains_key(&author()),
            Summary => redis.summaries(&[post(1)]).await.unwrap().contains_key(&post(1)),
            Counts => redis.known_post(reader(), post(1)).await.unwrap().0.counts.is_some(),
            Marks => redis.known_reader(reader(), author()).await.unwrap().marks.is_some(),
            Moved => redis.moved_posts(author()).await.unwrap().life.is_some(),
            Card => redis.cards(&[author()]).await.unwrap().contains_key(&author()),
            Platform => redis.notice_head(platform()).await.unwrap().is_some(),
            NoticeReads => redis.notice_state(platform(), reader()).await.unwrap().1.is_some(),
            Access => redis.spend(reader(), PER_MINUTE, 1, at(0)).await.unwrap().access.is_some(),
        }
    }

    async fn make(self, redis: &Views) {
        while_leased(async || {
            self.lease(redis).await;
            self.store(redis).await;
        })
        .await;
        assert!(self.is_known(redis).await, "{self:?}");
    }

    /// A change of the facts arrives at Redis.
    async fn write(self, write: &str, redis: &Views) {
        let (user, users) = (reader(), [reader()]);
        let deliver = async |key| drop(redis.deliver(&users, key, Modes::default(), true).await.unwrap());
        let counters = async || redis.forget_counters(author(), None).await.unwrap();
        match write {
            "begin" => drop(redis.begin_rebuild(user, TOKEN + 1, at(2), Rebuild::Missing).await.unwrap()),
            "deliver" => deliver(key(2)).await,
            "deliver of another author" => deliver(FeedKey { at: at(2), post: PostId::new(user_id(10), 1) }).await,
            "retract" => drop(redis.retract(&users, key(1), 1, Modes::default()).await.unwrap()),
            "open_gate" => drop(redis.open_gate(user, &[Edge { rev: 11, preference: 3, ..edge() }]).await.unwrap()),
            "seed" => {
                let reads = ReadState { version: 1, through: 1, ..ReadState::default() };
                let authors = vec![(author(), AuthorState::undelivered(&edge(), &head(1), &reads))];
                redis.seed(user, &Seed { authors, ..Seed::default() }).await.unwrap();
            }
            "finish" => drop(redis.finish_rebuild(user, TOKEN, at(2)).await.unwrap()),
            "drop" => redis.drop_author(&edge().ended(at(2))).await.unwrap(),
            "touch" => redis.touch(user, at(2), true).await.unwrap(),
            "rank" => redis.rank(&users, HalfLife::new(HALF_LIFE), &[(key(1), Rank::default())], false).await.unwrap(),
            "beside" => {
                let rank = Rank { step: Step { level: 1, changes: 1 }, ..Rank::default() };
                redis.beside(user, HalfLife::new(HALF_LIFE), &[(key(1), rank)], None).await.unwrap();
            }
            "watch" => drop(redis.watch(user, "connection").await.unwrap()),
            "unwatch" => redis.unwatch(user, "connection", None).await.unwrap(),
            "notify" => drop(redis.notify(&users, None).await.unwrap()),
            "claim" => redis.claim_updates(&users).await.into_iter().for_each(|claimed| drop(claimed.unwrap())),
            "follow" => redis.apply_edges(&[Edge { since: at(2), ..edge() }]).await.unwrap(),
            "unfollow" => redis.apply_edges(&[edge().ended(at(2))]).await.unwrap(),
            "forget_counters" => counters().await,
            "react" => redis.change_reactions(user, author(), &reactions(2)).await.unwrap(),
            "fill reactions" => {
                redis.fill_reactions(user, TOKEN, &HashMap::from([(author(), reactions(2))])).await.unwrap();
            }
            "replace_head" => redis.replace_head(author(), &head(2)).await.unwrap(),
            "remember" => redis.remember_posts(&[(summary(2), None)], None).await.unwrap(),
            "expire_counts" => drop(redis.expire_counts(post(1), 1).await.unwrap()),
            "forget_marks" => redis.forget_marks(&[(user, author())]).await.unwrap(),
            "settle" => {
                let life = redis.moved_posts(author()).await.unwrap().life.unwrap_or_default();
                redis.settle_moved(author(), life, &HashMap::from([(1, 1)]), at(9)).await.unwrap();
            }
            "replace_card" => redis.replace_card(author(), &card(2)).await.unwrap(),
            "replace_notices" => redis.replace_notices(&notices(self, 2)).await.unwrap(),
            "may not" => redis.note_access(user, false).await.unwrap(),
            other => panic!("{other}"),
        }
    }
}

fn open(server: &LegacyRedis) -> Views {
    let patient = Duration::from_secs(10);
    let options = RedisOptions::new(server.url());
    Views::new(&RedisOptions { connect_timeout: patient, response_timeout: patient, ..options }).unwrap()
}

/// Two servers. A slot is on one of them.
struct Servers {
    servers: [LegacyRedis; 2],
    redis: [Views; 2],
}

impl Servers {
    async fn start() -> Self {
        let servers = [LegacyRedis::start().await, LegacyRedis::start().await];
        Self { redis: [open(&servers[0]), open(&servers[1])], servers }
    }

    async fn connections(&self) -> [MultiplexedConnection; 2] {
        [self.servers[0].connect().await, self.servers[1].connect().await]
    }

    /// Moves all keys to the other server, as `MIGRATE` does.
    async fn move_slot(&self, from: usize) {
        let mut connections = self.connections().await;
        let [first, second] = &mut connections;
        let (source, target) = if from == 0 { (first, second) } else { (second, first) };
        for key in source.keys::<_, Vec<String>>("*").await.unwrap() {
            let (data, lifetime): (Vec<u8>, i64) =
                redis::pipe().cmd("DUMP").arg(&key).cmd("PTTL").arg(&key).query_async(source).await.unwrap();
            let restore = redis::cmd("RESTORE").arg(&key).arg(lifetime.max(0)).arg(data).take();
            restore.exec_async(target).await.unwrap();
            source.del::<_, ()>(key).await.unwrap();
        }
    }

    async fn empty(&self) {
        for mut connection in self.connections().await {
            redis::cmd("FLUSHDB").exec_async(&mut connection).await.unwrap();
        }
    }
}

#[test]
fn a_view_that_was_changed_on_another_server_does_not_count_when_its_slot_returns() {
    in_one_thread(async {
        let servers = Servers::start().await;
        let [home, other] = &servers.redis;
        let mut stale = Vec::new();
        for (kind, write) in WRITES {
            servers.empty().await;
            kind.make(home).await;
            servers.move_slot(0).await;
            assert!(!kind.is_known(other).await, "{kind:?} of another epoch");
            kind.write(write, other).await;
            servers.move_slot(1).await;
            if kind.is_known(home).await {
                stale.push((kind, write));
            }
        }
        assert_eq!(stale, [], "{} of {} writes left a stale view", stale.len(), WRITES.len());
    });
}

#[test]
fn a_view_that_nothing_changes_on_another_server_counts_when_its_slot_returns() {
    in_one_thread(async {
        let servers = Servers::start().await;
        for (kind, _) in WRITES {
            servers.empty().await;
            kind.make(&servers.redis[0]).await;
            servers.move_slot(0).await;
            servers.move_slot(1).await;
            assert!(kind.is_known(&servers.redis[0]).await, "{kind:?}");
        }
    });
}

/// Facts that were read before a change are not stored after it.
#[test]
fn a_lease_from_before_a_change_on_another_server_is_lost_when_its_slot_returns() {
    in_one_thread(async {
        let servers = Servers::start().await;
        let [home, other] = &servers.redis;
        let mut stale = Vec::new();
        // Without the lease counts are kept for two seconds. Moved posts and access have no lease.
        for (kind, write) in WRITES.into_iter().filter(|(kind, _)| ![Counts, Moved, Access].contains(kind)) {
            servers.empty().await;
            kind.lease(home).await;
            servers.move_slot(0).await;
            kind.write(write, other).await;
            servers.move_slot(1).await;
            kind.store(home).await;
            if kind.is_known(home).await {
                stale.push((kind, write));
            }
        }
        assert_eq!(stale, [], "{} writes left a lease", stale.len());
    });
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Damage {
    /// Every value is cut in half, or a sorted set loses its lowest member.
    Cut,
    /// The same for the fields of a hash except the one that names its epoch.
    Fields,
    Type,
}

async fn damage(redis: &mut MultiplexedConnection, key: &str, damage: Damage) {
    let kind: String = redis::cmd("TYPE").arg(key).query_async(redis).await.unwrap();
    match kind.as_str() {
        "string" if damage == Damage::Type => {
            redis.del::<_, ()>(key).await.unwrap();
            redis.hset::<_, _, _, ()>(key, "x", "x").await.unwrap();
        }
        _ if damage == Damage::Type => redis.set::<_, _, ()>(key, "x").await.unwrap(),
        "string" => {
            let value: Vec<u8> = redis.get(key).await.unwrap();
            redis.set::<_, _, ()>(key, &value[..value.len() / 2]).await.unwrap();
        }
        "zset" => redis.zremrangebyrank::<_, ()>(key, 0, 0).await.unwrap(),
        _ => {
            for (field, value) in redis.hgetall::<_, HashMap<Vec<u8>, Vec<u8>>>(key).await.unwrap() {
                if damage == Damage::Cut || field != META_FIELD.as_bytes() {
                    redis.hset::<_, _, _, ()>(key, field, &value[..value.len() / 2]).await.unwrap();
                }
            }
        }
    }
}

#[test]
fn a_write_deletes_a_view_that_it_cannot_read() {
    in_one_thread(async {
        let servers = Servers::start().await;
        let (redis, mut connection) = (&servers.redis[0], servers.servers[0].connect().await);
        let mut stale = Vec::new();
        for (kind, write) in WRITES {
            for how in [Damage::Cut, Damage::Fields, Damage::Type] {
                if how == Damage::Fields && kind != Reader {
                    continue;
                }
                servers.empty().await;
                kind.make(redis).await;
                damage(&mut connection, &kind.key(), how).await;
                kind.write(write, redis).await;
                // These replace what is damaged, or store a whole record.
                let is_right = kind == Access || matches!((write, how), ("drop", Damage::Fields) | ("remember", Damage::Type));
                if kind.is_known(redis).await != is_right {
                    stale.push((kind, write, how));
                }
            }
        }
        assert_eq!(stale, [], "{} writes left a damaged view", stale.len());
    });
}

/// The server becomes a replica and master again, and one process does not notice it.
#[test]
fn a_write_of_a_process_that_knows_another_epoch_leaves_no_stale_view() {
    in_one_thread(async {
        let servers = Servers::start().await;
        let (server, old) = (&servers.servers[0], &servers.redis[0]);
        Card.make(old).await;
        let mut connection = server.connect().await;
        // Nothing listens there. The server keeps its data, and the connections of its clients.
        for command in ["REPLICAOF 127.0.0.1 1", "FCALL redis_link_epoch_1 0", "REPLICAOF NO ONE"] {
            command_of(command).exec_async(&mut connection).await.unwrap();
        }
        let new = &open(server);
        assert!(Card.is_known(old).await && !Card.is_known(new).await, "two epochs");
        let mut stale = Vec::new();
        for (kind, write) in WRITES {
            for (reader, writer) in [(old, new), (new, old)] {
                servers.empty().await;
                kind.make(reader).await;
                kind.write(write, writer).await;
                if kind.is_known(reader).await {
                    stale.push((kind, write));
                }
            }
        }
        assert_eq!(stale, [], "{} writes left a stale view", stale.len());
    });
}

/// Token buckets, the progress of a fan-out and a reader's connections have no epoch: they are no copies of facts.
#[test]
fn buckets_progress_and_connections_move_with_their_slot() {
    in_one_thread(async {
        let servers = Servers::start().await;
        let [home, other] = &servers.redis;
        let done = async |redis: &Views, page, handled| {
            let progress = redis.page_done(FanOutKind::Deliver, post(1), page, handled).await.unwrap();
            (progress.pages_done, progress.handled)
        };
        let spend = async |redis: &Views| redis.spend(reader(), PER_MINUTE, 20, at(0)).await.unwrap().left;
        assert_eq!((done(home, 0, 5).await, spend(home).await), ((1, 5), 40));
        home.watch(reader(), "connection").await.unwrap();
        servers.move_slot(0).await;
        assert_eq!((done(other, 1, 6).await, done(other, 0, 5).await, spend(other).await), ((2, 11), (2, 11), 20));
        assert_eq!(other.notify(&[reader()], None).await.unwrap().now, [reader()], "the reader is watched");
        servers.move_slot(1).await;
        assert_eq!((done(home, 1, 6).await, spend(home).await), ((2, 11), 0));
        assert_eq!(home.notify(&[reader()], None).await.unwrap().now, [reader()], "the reader is watched");
    });
}

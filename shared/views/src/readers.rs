//! Feeds and read states of live readers: reader state, feed and ranked feed.

use std::collections::{HashMap, HashSet};

use redis::{Cmd, Value};
use redis_link::Epoch;
use tidemark_domain::{
    AuthorState, Edge, FeedKey, HalfLife, Modes, PostId, Rank, RankedPlace, ReadState, ReaderState, Score, SeqSet, Timestamp,
    UserId,
    feed::author_prefix,
    reader_state::{META_FIELD, RECENT_FIELDS, ReaderMeta},
};

use super::{
    Function, Result, keys,
    live::LEAST_BETWEEN_MS,
    record::{self, decode_set, encode_set, store, take_lease},
    users::{USERS_PER_CALL, at_positions},
};
use crate::{
    Begun, Delivered, Gate, NEWEST, Ranked, Rebuild, Seed, View,
    connection::{MAX_ARGUMENTS, Views, damaged, ms, token_arg, transaction},
};

/// The maximum numbers of authors and entries in one seed call. Both together stay below [`MAX_ARGUMENTS`].
const AUTHORS_PER_SEED: usize = 600;
const ENTRIES_PER_SEED: usize = 1_900;

/// The maximum number of posts in one script call. Each takes about 5 µs for one user.
const POSTS_PER_CALL: usize = 250;

/// The maximum number of posts times users in one script call.
const PLACES_PER_CALL: usize = 8 * USERS_PER_CALL;

/// The fields of the moves, for each entry of a full feed, beyond which a first page forgets posts beside it.
const MOST_MOVES: usize = 4;

/// The time that a rebuild may take before another caller takes it over.
const REBUILD_DEADLINE_MS: u64 = 10_000;

/// The age from which on `touch` removes the tombstone of an unfollow from a view. A tombstone blocks a follow that was
/// read before the unfollow and is applied after it. A delivery needs none: without a field it changes nothing.
const VIEW_TOMBSTONE_SECONDS: u64 = 24 * 3600;

/// The lifetimes of a view's state and feed, in ms.
const LIFETIMES: (u64, u64) = (keys::STATE_LIFETIME.as_millis() as u64, keys::FEED_LIFETIME.as_millis() as u64);

/// The fields of a hash.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The posts of an author that a user who does not follow the author has marked read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Marks {
    /// The version of the read state.
    pub version: u32,
    pub read: SeqSet,
    /// Whether the author blocks the user. Whether the author is private is in the author's head.
    pub blocked: bool,
}

impl Marks {
    pub fn new(ReadState { version, read, .. }: ReadState, blocked: bool) -> Self {
        Self { version, read, blocked }
    }
}

impl Views {
    /// Returns the state and the `newest` entries of the feed, read atomically; `None` if there is no view.
    pub async fn reader_view(&self, user: UserId, newest: usize) -> Result<Option<View>> {
        let state_key = keys::reader_state(user);
        let ((fields, entries), epoch): ((Fields, Vec<Vec<u8>>), Epoch) = if newest == 0 {
            let (fields, epoch) = self.query_in_epoch("state", Cmd::hgetall(state_key)).await?;
            ((fields, Vec::new()), epoch)
        } else {
            // A transaction: a delivery between two separate commands would be in one result and not in the other.
            let newest = isize::try_from(newest).unwrap_or(isize::MAX);
            let commands = [Cmd::hgetall(state_key), Cmd::lrange(keys::feed(user), -newest, -1)];
            self.query_in_epoch("view", transaction(commands)).await?
        };
        let state = ReaderState::decode(fields).map_err(|error| damaged(error.to_string()))?;
        let Some(state) = state.filter(|state| state.meta.epoch == epoch.as_bytes()) else { return Ok(None) };
        if newest > 0 && state.meta.feed && entries.is_empty() {
            return Err(damaged("the feed is missing"));
        }
        let whole = entries.len() < newest;
        let recent: &[FeedKey] = if newest > 0 { &state.recent } else { &[] };
        let entries = newest_first(&entries, recent)?;
        let stored = whole.then_some(entries.len());
        Ok(Some(View { state, entries, whole, stored, ..View::default() }))
    }

    /// The same with at most `most` entries of the ranked feed below a place, or of its top. At the top, it has the
    /// newest entries of the feed too: `most`, and at least [`NEWEST`].
    pub async fn ranked_view(
        &self,
        user: UserId,
        half_life: HalfLife,
        below: Option<RankedPlace>,
        most: usize,
    ) -> Result<Option<View>> {
        let [ranked, moves] = keys::ranked(user);
        // Entries with the score of the place come first. Some of them may be above it.
        let top = below.map_or_else(|| "+inf".to_owned(), |place| place.score.get().to_string());
        let mut range = redis::cmd("ZREVRANGEBYSCORE");
        range.arg(&ranked).arg(top).arg("-inf").arg("WITHSCORES").arg("LIMIT").arg(0).arg(most);
        // Only later pages need to know what has moved.
        let moves = match below {
            Some(_) => Cmd::hgetall(moves),
            None => Cmd::hmget(moves, META_FIELD),
        };
        let state = Cmd::hgetall(keys::reader_state(user));
        let (feed, newest) = (keys::feed(user), if below.is_none() { most.max(NEWEST) } else { 1 });
        let listed = Cmd::lrange(&feed, -isize::try_from(newest).unwrap_or(isize::MAX), -1);
        let commands = [state, Cmd::llen(feed), listed, Cmd::zcard(ranked), range, moves];
        type All = (Fields, usize, Vec<Vec<u8>>, usize, Vec<(Vec<u8>, f64)>, Value);
        let ((fields, stored, listed, scored, entries, moves), epoch): (All, Epoch) =
            self.query_in_epoch("ranked", transaction(commands)).await?;
        let state = ReaderState::decode(fields).map_err(|error| damaged(error.to_string()))?;
        let Some(state) = state.filter(|state| state.meta.epoch == epoch.as_bytes()) else { return Ok(None) };
        if state.meta.feed && stored == 0 {
            return Err(damaged("the feed is missing"));
        }
        let fields: Fields = match below {
            Some(_) => redis::from_redis_value(moves).map_err(|_| damaged("moves"))?,
            None => {
                let marker: [Option<Vec<u8>>; 1] = redis::from_redis_value(moves).map_err(|_| damaged("moves"))?;
                marker.into_iter().flatten().map(|marker| (META_FIELD.as_bytes().to_vec(), marker)).collect()
            }
        };
        let moves = Moves::decode(fields).ok_or_else(|| damaged("moves"))?;
        let whole = entries.len() < most;
        let scored_entry = |(entry, score): (Vec<u8>, f64)| Some((FeedKey::from_entry(&entry)?, Score::new(score)?));
        let entries: Option<Vec<(FeedKey, Score)>> = entries.into_iter().map(scored_entry).collect();
        let mut entries = entries.ok_or_else(|| damaged("ranked entry"))?;
        entries.retain(|(key, score)| below.is_none_or(|place| place.is_above(*score, key)));
        let is_of_half_life = moves.marker.is_some_and(|(known, _)| known == half_life.ms());
        let ranked = Ranked {
            entries,
            whole,
            filled: stored == 0 || (state.meta.ranked && is_of_half_life && stored == scored && state.recent.is_empty()),
            stamp: moves.marker.map_or(0, |(_, stamp)| stamp),
            moved: moves.posts.into_iter().map(|(key, (_, stamp))| (key, stamp)).collect(),
            moved_authors: moves.authors,
        };
        let (entries, whole) = (newest_first(&listed, &state.recent)?, listed.len() < newest);
        let stored = Some(stored + state.recent.len());
        Ok(Some(View { state, entries, whole, stored, ranked }))
    }

    /// Returns the entries of the feed that the ranked feed lacks.
    pub async fn unranked(&self, user: UserId, half_life: HalfLife) -> Result<Vec<FeedKey>> {
        let [ranked, moves] = keys::ranked(user);
        let commands = [
            Cmd::lrange(keys::feed(user), 0, -1),
            Cmd::hmget(keys::reader_state(user), (META_FIELD, &RECENT_FIELDS)),
            Cmd::zrange(ranked, 0, -1),
            Cmd::hmget(moves, META_FIELD),
        ];
        type All = (Vec<Vec<u8>>, Vec<Option<Vec<u8>>>, HashSet<Vec<u8>>, [Option<Vec<u8>>; 1]);
        let ((mut entries, recent, mut known, [marker]), _): (All, Epoch) =
            self.query_in_epoch("unranked", transaction(commands)).await?;
        let mut recent = recent.into_iter();
        let meta = recent.next().flatten().and_then(|meta| ReaderMeta::decode(&meta));
        entries.extend(recent.take(meta.map_or(0, |meta| meta.recent.into())).flatten());
        let moves = Moves::decode(marker.map(|marker| (META_FIELD.as_bytes().to_vec(), marker)));
        let marker = moves.and_then(|moves| moves.marker);
        if marker.is_none_or(|(of, _)| of != half_life.ms()) {
            // The next call of `rank` begins anew.
            known.clear();
        }
        let missing = entries.iter().filter(|entry| !known.contains(*entry)).map(|entry| FeedKey::from_entry(entry));
        missing.collect::<Option<_>>().ok_or_else(|| damaged("feed entry"))
    }

    /// Puts posts into the ranked feeds of these users, or moves them there, unless a feed lacks the post or has a
    /// later step. With `create`, a user with a feed and without a ranked feed gets one.
    pub async fn rank(&self, users: &[UserId], half_life: HalfLife, posts: &[(FeedKey, Rank)], create: bool) -> Result<()> {
        let mut parts: Vec<&[(FeedKey, Rank)]> = posts.chunks(POSTS_PER_CALL).collect();
        if parts.is_empty() && create {
            parts.push(&[]);
        }
        for posts in parts {
            let lifetime = if create { ms(keys::FEED_LIFETIME).to_string() } else { String::new() };
            let per_call = (PLACES_PER_CALL / posts.len().max(1)).clamp(1, USERS_PER_CALL);
            let post = |(key, rank): &(FeedKey, Rank)| (key.post.author.get(), key.entry(), rank.points(), rank.step.changes);
            let args = (half_life.ms(), self.feed_cap.filled(), lifetime, posts.iter().map(post).collect::<Vec<_>>());
            self.for_users::<u64>(Function::Rank, (users, per_call), all_keys, &args).await?;
        }
        Ok(())
    }

    /// Notes the steps of posts that a page shows and the ranked feed does not store, so that a later page of the walk
    /// knows which have moved. `since` is the stamp of a first page. Returns the stamp for that page, and those of the
    /// posts; `None` instead of the first if other posts have moved since that stamp. `None` without a view.
    pub async fn beside(
        &self,
        user: UserId,
        half_life: HalfLife,
        posts: &[(FeedKey, Rank)],
        since: Option<u64>,
    ) -> Result<Option<(Option<u64>, HashMap<FeedKey, u64>)>> {
        let (mut last, mut moved) = (since, HashMap::new());
        let mut most = since.map(|_| MOST_MOVES * self.feed_cap.filled());
        for posts in posts.chunks(POSTS_PER_CALL) {
            let known = last.map_or_else(String::new, |stamp| stamp.to_string());
            let most = most.take().map_or_else(String::new, |most| most.to_string());
            let steps: Vec<_> = posts.iter().map(|(key, rank)| (key.entry(), rank.step.changes)).collect();
            let args = (half_life.ms(), ms(keys::FEED_LIFETIME), most, known, steps);
            let stamps: Option<Vec<u64>> = self.call(Function::Beside, &all_keys(user), args).await?;
            let Some((&stamp, stamps)) = stamps.as_ref().and_then(|stamps| stamps.split_first()) else { return Ok(None) };
            last = last.and(Some(stamp).filter(|stamp| *stamp > 0));
            moved.extend(posts.iter().map(|(key, _)| *key).zip(stamps.iter().copied()));
        }
        Ok(Some((last, moved)))
    }

    /// Starts a rebuild.
    pub async fn begin_rebuild(&self, user: UserId, token: u64, now: Timestamp, rebuild: Rebuild) -> Result<Begun> {
        let times = (now.ms(), now.plus_ms(REBUILD_DEADLINE_MS).ms());
        let rebuild = match rebuild {
            Rebuild::Missing => "missing",
            Rebuild::Short => "short",
            Rebuild::Anew => "anew",
        };
        let args = (times, token_arg(token), ms(keys::STATE_LIFETIME), rebuild, self.feed_cap.least());
        let mut keys = all_keys(user);
        keys.push(keys::connections(user));
        let response: String = self.call(Function::Begin, &keys, args).await?;
        match response.as_str() {
            "begun" => Ok(Begun::Begun),
            "building" => Ok(Begun::Building),
            "ready" => Ok(Begun::Ready),
            other => Err(damaged(format!("begin returned {other}"))),
        }
    }

    /// Opens the gate for these edges. Returns one result for each edge, in order; `None` if there is no view.
    pub async fn open_gate(&self, user: UserId, edges: &[Edge]) -> Result<Option<Vec<Gate>>> {
        let mut admitted = Vec::with_capacity(edges.len());
        for edges in edges.chunks(MAX_ARGUMENTS / 6) {
            let args = edges.iter().map(|edge| {
                let (state, prefix) = (AuthorState::opening(edge).encode(), author_prefix(edge.author));
                (edge.author.get(), edge.rev, edge.begun(), state, prefix)
            });
            let response: Option<Vec<i64>> = self.call(Function::OpenGate, &all_keys(user), args.collect::<Vec<_>>()).await?;
            let Some(response) = response else { return Ok(None) };
            admitted.extend(response.into_iter().map(|code| match code {
                1 | 2 => Gate::Opening,
                0 => Gate::Complete,
                _ => Gate::Stale,
            }));
        }
        Ok(Some(admitted))
    }

    /// Merges facts into the view. Returns the authors of whom the view has newer facts, or no field of this follow:
    /// their facts have to be loaded again, and their entries are not stored. `None` if there is no view, or the caller
    /// no longer owns the rebuild.
    pub async fn seed(&self, user: UserId, seed: &Seed) -> Result<Option<Vec<UserId>>> {
        let mut entries = seed.entries.clone();
        entries.sort_unstable();
        let mut stale = Vec::new();
        // Authors and entries share the calls. The last one carries the low end, when all entries above it are stored.
        let calls = seed.authors.len().div_ceil(AUTHORS_PER_SEED).max(entries.len().div_ceil(ENTRIES_PER_SEED)).max(1);
        for call in 0..calls {
            let authors = seed.authors.chunks(AUTHORS_PER_SEED).nth(call).unwrap_or_default();
            let token = seed.token.map_or_else(Vec::new, token_arg);
            let low = seed.low.filter(|_| call + 1 == calls).map_or_else(Vec::new, |low| low.entry());
            let states =
                authors.iter().map(|(author, state)| (author.get(), state.clone().bounded().encode(), author_prefix(*author)));
            let entries = entries.chunks(ENTRIES_PER_SEED).nth(call).unwrap_or_default().iter().map(FeedKey::entry);
            let facts = (authors.len(), states.collect::<Vec<_>>(), entries.collect::<Vec<_>>());
            let args = (LIFETIMES, self.feed_cap.filled(), token, low, facts);
            let response: Option<Vec<usize>> = self.call(Function::Seed, &all_keys(user), args).await?;
            let Some(response) = response else { return Ok(None) };
            stale.extend(response.into_iter().filter_map(|index| authors.get(index - 1)).map(|(author, _)| *author));
        }
        Ok(Some(stale))
    }

    /// Ends a rebuild. Returns false if the caller no longer owns it.
    pub async fn finish_rebuild(&self, user: UserId, token: u64, now: Timestamp) -> Result<bool> {
        let args = (token_arg(token), now.ms(), ms(keys::STATE_LIFETIME), ms(keys::SILENT_LIFETIME));
        self.call::<u8>(Function::Finish, &user_keys(user), args).await.map(|done| done == 1)
    }

    /// Removes an unfollowed author: state, counts and entries.
    pub async fn drop_author(&self, tombstone: &Edge) -> Result<()> {
        let args = (tombstone.author.get(), tombstone.rev, author_prefix(tombstone.author));
        self.call::<Option<i64>>(Function::Drop, &all_keys(tombstone.user), args).await.map(drop)
    }

    /// Takes the leases for storing the marks of authors whom the user does not follow.
    pub async fn lease_marks(&self, user: UserId, authors: &[UserId], token: u64) -> Result<()> {
        let lease = |&author: &UserId| take_lease(&keys::marks(user, author)[1], keys::SHORT_LEASE_LIFETIME, token);
        self.each::<Value>("lease_marks", authors.iter().map(lease).collect()).await.map(drop)
    }

    pub async fn fill_marks(&self, user: UserId, marks: &[(UserId, Marks)], token: u64) -> Result<()> {
        let store = |(author, marks): &(UserId, Marks)| {
            let flag = if marks.blocked { BLOCKED } else { OPEN };
            let record = [record::start(marks.version.into()), vec![flag], encode_set(&marks.read)].concat();
            store(keys::marks(user, *author), token, record, keys::MARKS_LIFETIME)
        };
        self.each::<Value>("fill_marks", marks.iter().map(store).collect()).await.map(drop)
    }

    /// Removes the marks of these users and authors, and the leases.
    pub async fn forget_marks(&self, pairs: &[(UserId, UserId)]) -> Result<()> {
        let forget = pairs.iter().map(|&(user, author)| Cmd::del(keys::marks(user, author).to_vec()));
        self.each::<Value>("forget_marks", forget.collect()).await.map(drop)
    }

    /// Extends the lifetimes of a view after a read, and of the ranked feed if that was read. Removes the oldest
    /// entries beyond the cap, and old tombstones.
    pub async fn touch(&self, user: UserId, now: Timestamp, ranked: bool) -> Result<()> {
        let oldest = now.seconds().saturating_sub(VIEW_TOMBSTONE_SECONDS);
        let args = (now.ms(), LIFETIMES, self.feed_cap.filled(), oldest, ranked);
        self.call::<Option<u64>>(Function::Touch, &all_keys(user), args).await.map(drop)
    }

    /// Adds a post to the views of these users, with its author's modes after it, except to ranked feeds. A damaged
    /// view is deleted, and the next read rebuilds it.
    pub async fn deliver(&self, users: &[UserId], post: FeedKey, modes: Modes, announce: bool) -> Result<Delivered> {
        let PostId { author, seq } = post.post;
        let least = if announce { LEAST_BETWEEN_MS.to_string() } else { String::new() };
        let of_post = (author.get(), seq, post.at.ms(), post.entry(), modes.changes, modes.pulled);
        let args = (LIFETIMES, self.feed_cap.filled(), of_post, least);
        let mut delivered = Delivered::default();
        for (users, response) in self.for_users(Function::Deliver, (users, USERS_PER_CALL), user_keys, &args).await? {
            let (reached, ranked, now, later): (u64, Vec<usize>, Vec<usize>, Vec<usize>) = response;
            delivered.reached += reached;
            delivered.ranked.extend(at_positions(users, ranked));
            delivered.notified.now.extend(at_positions(users, now));
            delivered.notified.later.extend(at_positions(users, later));
        }
        Ok(delivered)
    }

    /// Removes a deleted post from the views of these users. A damaged view is deleted. `deletions` is the author's
    /// number of deletions. Returns the watched readers who follow the author.
    pub async fn retract(&self, users: &[UserId], post: FeedKey, deletions: u32, modes: Modes) -> Result<Vec<UserId>> {
        let PostId { author, seq } = post.post;
        let args = (author.get(), seq, deletions, post.entry(), modes.changes, modes.pulled);
        let mut watched = Vec::new();
        for (users, response) in self.for_users(Function::Retract, (users, USERS_PER_CALL), all_keys, &args).await? {
            watched.extend(at_positions(users, response));
        }
        Ok(watched)
    }
}

/// Returns the entries of a feed: those of its list, and the recent ones.
fn newest_first(listed: &[Vec<u8>], recent: &[FeedKey]) -> Result<Vec<FeedKey>> {
    let listed = listed.iter().map(|entry| FeedKey::from_entry(entry)).collect::<Option<Vec<_>>>();
    let mut entries = listed.ok_or_else(|| damaged("feed entry"))?;
    entries.extend(recent);
    entries.sort_unstable_by(|a, b| b.cmp(a));
    // A release without recent entries, which may have written here, appends what is not in the list.
    entries.dedup();
    Ok(entries)
}

/// The hash of moves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moves {
    /// The half-life of the scores, in ms, and the last stamp; `None` if there is no ranked feed.
    pub marker: Option<(u64, u64)>,
    /// The number of changes of a post's step, and the stamp of the post's last move.
    pub posts: HashMap<FeedKey, (u32, u64)>,
    /// The stamp of the last change of an author's preference.
    pub authors: HashMap<UserId, u64>,
}

impl Moves {
    /// Decodes the hash, or a part of it; `None` if a field cannot be read.
    pub fn decode(fields: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Option<Self> {
        let mut moves = Self::default();
        for (field, value) in fields {
            if field == META_FIELD.as_bytes() {
                let (half_life, stamp) = value.split_first_chunk()?;
                moves.marker = Some((u64::from_le_bytes(*half_life), u64::from_le_bytes(stamp.try_into().ok()?)));
            } else if let Ok(stamp) = <[u8; 8]>::try_from(value.as_slice()) {
                moves.authors.insert(std::str::from_utf8(&field).ok()?.parse().ok()?, u64::from_le_bytes(stamp));
            } else {
                let (changes, stamp) = value.split_first_chunk()?;
                let stamp = u64::from_le_bytes(stamp.try_into().ok()?);
                moves.posts.insert(FeedKey::from_entry(&field)?, (u32::from_le_bytes(*changes), stamp));
            }
        }
        Some(moves)
    }
}

/// State and feed of one user.
fn user_keys(user: UserId) -> Vec<String> {
    vec![keys::reader_state(user), keys::feed(user)]
}

/// The keys of one user in the other scripts: state, feed, ranked feed and its moves.
pub(crate) fn all_keys(user: UserId) -> Vec<String> {
    let [ranked, moves] = keys::ranked(user);
    vec![keys::reader_state(user), keys::feed(user), ranked, moves]
}

/// The byte of marks that says whether the author blocks the user.
const BLOCKED: u8 = b'b';
const OPEN: u8 = b'-';

/// Decodes a record of marks: version, block, and [the posts](super::record). Returns `None` if it is damaged.
pub fn decode_marks(record: &[u8]) -> Option<Marks> {
    let (version, rest) = record::version(record)?;
    let (&flag, read) = rest.split_first()?;
    let blocked = match flag {
        BLOCKED => true,
        OPEN => false,
        _ => return None,
    };
    Some(Marks { version: version.try_into().ok()?, read: decode_set(read)?, blocked })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_without_a_flag_of_the_block_are_no_record() {
        let read = encode_set(&[3, 5].into_iter().collect());
        let record = |flag: &[u8]| [record::start(7).as_slice(), flag, &read].concat();
        for (flag, blocked) in [(b"b", true), (b"-", false)] {
            let marks = Marks { version: 7, read: [3, 5].into_iter().collect(), blocked };
            assert_eq!(decode_marks(&record(flag)), Some(marks));
        }
        for flag in [&b""[..], b"\0", b"\x01", b"B"] {
            assert_eq!(decode_marks(&record(flag)), None);
        }
    }

    #[test]
    fn moves_decode_and_damaged_moves_are_rejected() {
        let key = FeedKey { at: Timestamp::from_ms(5), post: "7-3".parse().unwrap() };
        let pair = |a: u64, b: u64| [a.to_le_bytes(), b.to_le_bytes()].concat();
        let entry = [&9_u32.to_le_bytes()[..], &77_u64.to_le_bytes()].concat();
        let fields = [
            (b"@".to_vec(), pair(43_200_000, 1 << 50)),
            (key.entry(), entry.clone()),
            (b"1042".to_vec(), 78_u64.to_le_bytes().to_vec()),
        ];
        let moves = Moves::decode(fields).unwrap();
        assert_eq!(moves.marker, Some((43_200_000, 1 << 50)));
        assert_eq!((moves.posts[&key], moves.authors[&UserId::new(1042).unwrap()]), ((9, 77), 78));
        for damaged in [(b"@".to_vec(), vec![1; 15]), (b"x".to_vec(), vec![0; 8]), (b"x".to_vec(), entry), (key.entry(), vec![])]
        {
            assert_eq!(Moves::decode([damaged]), None);
        }
    }
}

//! [`ReaderViews`] on Redis: reader state, feed and ranked feed.

use async_trait::async_trait;
use redis_link::Epoch;
use tidemark_app::ports::{Begun, Delivered, Gate, Marks, ReaderViews, Seed, StoreError, View};
use tidemark_domain::{
    AuthorState, Edge, FeedKey, HalfLife, Modes, Rank, RankedPlace, ReaderState, Timestamp, UserId,
    feed::{FEED_CAP, author_prefix},
};

use super::{
    keys,
    library::Function,
    live::LEAST_BETWEEN_MS,
    record,
    sets::{decode_set, encode_set},
    users::{USERS_PER_CALL, at_positions},
};
use crate::connection::{Arg, MAX_ARGUMENTS, Redis, ms, token_arg, transaction};

/// The maximum numbers of authors and entries in one seed call. Both together stay below [`MAX_ARGUMENTS`].
const AUTHORS_PER_SEED: usize = 1_000;
const ENTRIES_PER_SEED: usize = 1_900;

/// The time that a rebuild may take before another caller takes it over.
const REBUILD_DEADLINE_MS: u64 = 10_000;

/// The age from which on `touch` removes the tombstone of an unfollow from a view. That of the fact lives for seven
/// days. The tombstone blocks a follow that was read before the unfollow and is applied after it. A delivery needs
/// none: without a field it changes nothing.
const VIEW_TOMBSTONE_SECONDS: u64 = 24 * 3600;

#[async_trait]
impl ReaderViews for Redis {
    async fn view(&self, user: UserId, newest: usize) -> Result<Option<View>, StoreError> {
        let state_key = keys::reader_state(user);
        type Fields = Vec<(Vec<u8>, Vec<u8>)>;
        let ((fields, entries), epoch): ((Fields, Vec<Vec<u8>>), Epoch) = if newest == 0 {
            let (fields, epoch) = self.query_in_epoch("state", redis::cmd("HGETALL").arg(state_key).clone()).await?;
            ((fields, Vec::new()), epoch)
        } else {
            // A transaction: a delivery between two separate commands would be in one result and not in the other.
            let newest = i64::try_from(newest).unwrap_or(i64::MAX);
            let state = redis::cmd("HGETALL").arg(state_key).clone();
            let feed = redis::cmd("LRANGE").arg(keys::feed(user)).arg(-newest).arg(-1).clone();
            self.query_in_epoch("view", transaction([state, feed])).await?
        };
        let state = ReaderState::decode(fields).map_err(|error| StoreError::DamagedView { detail: error.to_string() })?;
        let Some(state) = state.filter(|state| state.meta.epoch == epoch.as_bytes()) else { return Ok(None) };
        if newest > 0 && state.meta.feed && entries.is_empty() {
            return Err(StoreError::DamagedView { detail: "the feed is missing".to_owned() });
        }
        let whole = entries.len() < newest;
        let listed = entries.iter().map(|entry| FeedKey::from_entry(entry)).collect::<Option<Vec<_>>>();
        let mut entries = listed.ok_or_else(|| StoreError::DamagedView { detail: "feed entry".to_owned() })?;
        if newest > 0 {
            entries.extend(&state.recent);
        }
        entries.sort_unstable_by(|a, b| b.cmp(a));
        // A release without recent entries, which may have written to the view, appends what it does not find in the
        // list.
        entries.dedup();
        Ok(Some(View { state, entries, whole, ..View::default() }))
    }

    async fn ranked(
        &self,
        user: UserId,
        half_life: HalfLife,
        below: Option<RankedPlace>,
        most: usize,
    ) -> Result<Option<View>, StoreError> {
        self.read_ranked(user, half_life, below, most).await
    }

    async fn unranked(&self, user: UserId, half_life: HalfLife) -> Result<Vec<FeedKey>, StoreError> {
        self.read_unranked(user, half_life).await
    }

    async fn rank(
        &self,
        users: &[UserId],
        half_life: HalfLife,
        posts: &[(FeedKey, Rank)],
        create: bool,
    ) -> Result<(), StoreError> {
        self.write_ranks(users, half_life, posts, create).await
    }

    async fn begin(&self, user: UserId, token: u64, now: Timestamp, anew: bool) -> Result<Begun, StoreError> {
        let args = [
            now.ms().into(),
            now.plus_ms(REBUILD_DEADLINE_MS).ms().into(),
            token_arg(token),
            ms(keys::STATE_LIFETIME),
            u64::from(anew).into(),
        ];
        let mut keys = all_keys(user);
        keys.push(keys::connections(user));
        let response: String = self.call(Function::Begin, &keys, &args).await?;
        match response.as_str() {
            "begun" => Ok(Begun::Begun),
            "building" => Ok(Begun::Building),
            "ready" => Ok(Begun::Ready),
            other => Err(StoreError::DamagedView { detail: format!("begin returned {other}") }),
        }
    }

    async fn open_gate(&self, user: UserId, edges: &[Edge]) -> Result<Option<Vec<Gate>>, StoreError> {
        let mut admitted = Vec::with_capacity(edges.len());
        for edges in edges.chunks(MAX_ARGUMENTS / 6) {
            let args: Vec<Arg> = edges
                .iter()
                .flat_map(|edge| {
                    let [rev, begun] = [edge.rev, edge.begun()].map(|rev| u64::from(rev).into());
                    let (state, prefix) = (AuthorState::opening(edge).encode(), author_prefix(edge.author));
                    [edge.author.get().into(), rev, begun, state.into(), prefix.into()]
                })
                .collect();
            let [ranked, moves] = keys::ranked(user);
            let keys = [keys::reader_state(user), ranked, moves];
            let response: Option<Vec<i64>> = self.call(Function::OpenGate, &keys, &args).await?;
            let Some(response) = response else { return Ok(None) };
            admitted.extend(response.into_iter().map(|code| match code {
                1 | 2 => Gate::Opening,
                0 => Gate::Complete,
                _ => Gate::Stale,
            }));
        }
        Ok(Some(admitted))
    }

    async fn seed(&self, user: UserId, seed: &Seed) -> Result<Option<Vec<UserId>>, StoreError> {
        let mut entries = seed.entries.clone();
        entries.sort_unstable();
        let mut stale = Vec::new();
        // Authors and entries share the smallest number of calls. The last call carries the low end, when all entries
        // above it are stored.
        let calls = seed.authors.len().div_ceil(AUTHORS_PER_SEED).max(entries.len().div_ceil(ENTRIES_PER_SEED)).max(1);
        for call in 0..calls {
            let authors = part(&seed.authors, call, AUTHORS_PER_SEED);
            let mut args: Vec<Arg> = vec![
                ms(keys::STATE_LIFETIME),
                ms(keys::FEED_LIFETIME),
                (FEED_CAP as u64).into(),
                seed.token.map_or_else(|| "".into(), token_arg),
                seed.low.filter(|_| call + 1 == calls).map_or_else(|| "".into(), |low| low.entry().into()),
                (authors.len() as u64).into(),
            ];
            args.extend(
                authors.iter().flat_map(|(author, state)| [author.get().into(), state.clone().bounded().encode().into()]),
            );
            args.extend(part(&entries, call, ENTRIES_PER_SEED).iter().map(|entry| Arg::from(entry.entry())));
            let response: Option<Vec<usize>> = self.call(Function::Seed, &all_keys(user), &args).await?;
            let Some(response) = response else { return Ok(None) };
            stale.extend(response.into_iter().filter_map(|index| authors.get(index - 1)).map(|(author, _)| *author));
        }
        Ok(Some(stale))
    }

    async fn finish(&self, user: UserId, token: u64, now: Timestamp) -> Result<bool, StoreError> {
        let args = [token_arg(token), now.ms().into(), ms(keys::STATE_LIFETIME), ms(keys::SILENT_LIFETIME)];
        self.call::<u8>(Function::Finish, &[keys::reader_state(user)], &args).await.map(|done| done == 1)
    }

    async fn drop_author(&self, tombstone: &Edge) -> Result<(), StoreError> {
        let args = [tombstone.author.get().into(), u64::from(tombstone.rev).into(), author_prefix(tombstone.author).into()];
        self.call::<Option<i64>>(Function::Drop, &all_keys(tombstone.user), &args).await.map(|_| ())
    }

    async fn lease_marks(&self, user: UserId, author: UserId, token: u64) -> Result<(), StoreError> {
        let [_, lease] = keys::marks(user, author);
        let args = [token_arg(token), ms(keys::SHORT_LEASE_LIFETIME), 0.into()];
        self.call::<u8>(Function::Lease, &[lease], &args).await.map(drop)
    }

    async fn fill_marks(&self, user: UserId, author: UserId, marks: &Marks, token: u64) -> Result<(), StoreError> {
        let blocked = if marks.blocked { BLOCKED } else { NOT_BLOCKED };
        let record = [record::start(marks.version.into()), vec![blocked], encode_set(&marks.read)].concat();
        let args = [token_arg(token), record.into(), ms(keys::NOTICE_READS_LIFETIME)];
        self.call::<u8>(Function::Store, &keys::marks(user, author), &args).await.map(drop)
    }

    async fn forget_marks(&self, pairs: &[(UserId, UserId)]) -> Result<(), StoreError> {
        if pairs.is_empty() {
            return Ok(());
        }
        let forget = pairs.iter().map(|&(user, author)| redis::Cmd::del(keys::marks(user, author).to_vec()));
        self.each::<redis::Value>("forget_marks", forget.collect()).await.map(drop)
    }

    async fn touch(&self, user: UserId, now: Timestamp, ranked: bool) -> Result<(), StoreError> {
        let args = [
            now.ms().into(),
            ms(keys::STATE_LIFETIME),
            ms(keys::FEED_LIFETIME),
            (FEED_CAP as u64).into(),
            now.seconds().saturating_sub(VIEW_TOMBSTONE_SECONDS).into(),
            u64::from(ranked).into(),
        ];
        self.call::<Option<u64>>(Function::Touch, &all_keys(user), &args).await.map(|_| ())
    }

    async fn deliver(&self, users: &[UserId], post: FeedKey, modes: Modes, announce: bool) -> Result<Delivered, StoreError> {
        let args: Vec<Arg> = vec![
            ms(keys::STATE_LIFETIME),
            ms(keys::FEED_LIFETIME),
            (FEED_CAP as u64).into(),
            post.post.author.get().into(),
            post.post.seq.into(),
            post.at.ms().into(),
            post.entry().into(),
            u64::from(modes.changes).into(),
            modes.pulled.into(),
            if announce { LEAST_BETWEEN_MS.into() } else { Arg::Bytes(Vec::new()) },
        ];
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

    async fn retract(&self, users: &[UserId], post: FeedKey, deletions: u32, modes: Modes) -> Result<Vec<UserId>, StoreError> {
        let args: Vec<Arg> = vec![
            post.post.author.get().into(),
            post.post.seq.into(),
            u64::from(deletions).into(),
            post.entry().into(),
            u64::from(modes.changes).into(),
            modes.pulled.into(),
        ];
        let mut watched = Vec::new();
        for (users, response) in self.for_users(Function::Retract, (users, USERS_PER_CALL), all_keys, &args).await? {
            let (_, positions): (u64, Vec<usize>) = response;
            watched.extend(at_positions(users, positions));
        }
        Ok(watched)
    }
}

/// State and feed: the keys of one user for a delivery.
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
const NOT_BLOCKED: u8 = b'-';

/// Decodes a record of marks: version, whether the author blocks the user, and [the posts](super::sets). Returns
/// `None` if it does not say whether the author blocks the user, as records of earlier releases.
pub fn decode_marks(record: &[u8]) -> Option<Marks> {
    let (version, rest) = record::version(record)?;
    let (&flag, read) = rest.split_first()?;
    let blocked = match flag {
        BLOCKED => true,
        NOT_BLOCKED => false,
        _ => return None,
    };
    Some(Marks { version: version.try_into().ok()?, read: decode_set(read)?, blocked })
}

/// The part of `all` for the call with number `call`; empty past the end.
fn part<T>(all: &[T], call: usize, size: usize) -> &[T] {
    all.chunks(size).nth(call).unwrap_or_default()
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
        // The byte of an earlier release, and records from before there was one.
        for flag in [&b""[..], b"\0", b"\x01", b"B"] {
            assert_eq!(decode_marks(&record(flag)), None);
        }
    }
}

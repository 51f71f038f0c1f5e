//! Ranked feeds on Redis, for [`ReaderViews`](tidemark_app::ports::ReaderViews).

use std::collections::HashMap;

use redis::Value;
use redis_link::Epoch;
use tidemark_app::ports::{Ranked, StoreError, View};
use tidemark_domain::{
    FeedKey, HalfLife, Rank, RankedPlace, ReaderState, Score, UserId,
    feed::FEED_CAP,
    reader_state::{META_FIELD, RECENT_FIELDS, ReaderMeta},
};

use super::{keys, library::Function, readers::all_keys, users::USERS_PER_CALL};
use crate::connection::{Arg, Redis, ms, transaction};

/// The maximum number of posts in one script call. Each takes about 5 µs for one user.
const POSTS_PER_CALL: usize = 250;

/// The maximum number of posts times users in one script call.
const PLACES_PER_CALL: usize = 8 * USERS_PER_CALL;

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

fn damaged(detail: &str) -> StoreError {
    StoreError::DamagedView { detail: detail.to_owned() }
}

impl Redis {
    pub(crate) async fn read_ranked(
        &self,
        user: UserId,
        half_life: HalfLife,
        below: Option<RankedPlace>,
        most: usize,
    ) -> Result<Option<View>, StoreError> {
        let [ranked, moves] = keys::ranked(user);
        // Entries with the score of the place come first. Some of them may be above it.
        let top = below.map_or_else(|| "+inf".to_owned(), |place| place.score.get().to_string());
        let mut range = redis::cmd("ZREVRANGEBYSCORE");
        range.arg(&ranked).arg(top).arg("-inf").arg("WITHSCORES").arg("LIMIT").arg(0).arg(most);
        // Only later pages need to know what has moved.
        let moves = match below {
            Some(_) => redis::cmd("HGETALL").arg(moves).clone(),
            None => redis::cmd("HMGET").arg(moves).arg(META_FIELD).clone(),
        };
        let commands = [
            redis::cmd("HGETALL").arg(keys::reader_state(user)).clone(),
            redis::cmd("LLEN").arg(keys::feed(user)).clone(),
            redis::cmd("ZCARD").arg(ranked).clone(),
            range,
            moves,
        ];
        type Fields = Vec<(Vec<u8>, Vec<u8>)>;
        type All = (Fields, usize, usize, Vec<(Vec<u8>, f64)>, Value);
        let ((fields, stored, scored, entries, moves), epoch): (All, Epoch) =
            self.query_in_epoch("ranked", transaction(commands)).await?;
        let state = ReaderState::decode(fields).map_err(|error| damaged(&error.to_string()))?;
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
        Ok(Some(View { state, ranked, ..View::default() }))
    }

    pub(crate) async fn read_unranked(&self, user: UserId, half_life: HalfLife) -> Result<Vec<FeedKey>, StoreError> {
        let [ranked, moves] = keys::ranked(user);
        let commands = [
            redis::cmd("LRANGE").arg(keys::feed(user)).arg(0).arg(-1).clone(),
            redis::cmd("HMGET").arg(keys::reader_state(user)).arg(META_FIELD).arg(&RECENT_FIELDS).clone(),
            redis::cmd("ZRANGE").arg(ranked).arg(0).arg(-1).clone(),
            redis::cmd("HMGET").arg(moves).arg(META_FIELD).clone(),
        ];
        type All = (Vec<Vec<u8>>, Vec<Option<Vec<u8>>>, std::collections::HashSet<Vec<u8>>, [Option<Vec<u8>>; 1]);
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

    pub(crate) async fn write_ranks(
        &self,
        users: &[UserId],
        half_life: HalfLife,
        posts: &[(FeedKey, Rank)],
        create: bool,
    ) -> Result<(), StoreError> {
        for posts in posts.chunks(POSTS_PER_CALL) {
            let lifetime = if create { ms(keys::FEED_LIFETIME) } else { "".into() };
            let mut args: Vec<Arg> = vec![half_life.ms().into(), (FEED_CAP as u64).into(), lifetime];
            for (key, rank) in posts {
                let points = rank.points().to_string();
                let changes = u64::from(rank.step.changes);
                args.extend([key.post.author.get().into(), key.entry().into(), points.as_str().into(), changes.into()]);
            }
            let per_call = (PLACES_PER_CALL / posts.len()).clamp(1, USERS_PER_CALL);
            self.for_users::<u64>(Function::Rank, (users, per_call), all_keys, &args).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_decode_and_damaged_moves_are_rejected() {
        let key = FeedKey { at: tidemark_domain::Timestamp::from_ms(5), post: "7-3".parse().unwrap() };
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

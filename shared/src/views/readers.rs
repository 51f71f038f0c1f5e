//! [`ReaderViews`] on Redis.

use async_trait::async_trait;

use super::{
    connection::{Arg, MAX_ARGUMENTS, Redis, ms},
    keys,
    library::Function,
};
use crate::{
    domain::{
        AuthorState, Edge, FeedKey, ReaderState, Timestamp, UserId,
        feed::{FEED_CAP, author_prefix},
    },
    ports::{Admitted, Begun, ReaderViews, Seed, Seeded, ViewError},
};

/// Users served by one script call: a call costs about 2 µs fixed, so more gains little and holds other readers up.
const USERS_PER_CALL: usize = 100;

/// Posts in one delivery call and entries in one seed call, so that a call stays below [`MAX_ARGUMENTS`].
const POSTS_PER_CALL: usize = 700;

/// How long a rebuild may take before somebody else takes it over.
const REBUILD_DEADLINE_MS: u64 = 10_000;

/// How long an unfollow's tombstone is kept in a view: longer than anything it holds off can be late.
const TOMBSTONE_SECONDS: u64 = 24 * 3600;

/// How often `drop_author` reads the days again when chunks keep appearing.
const DROP_ATTEMPTS: usize = 8;

#[async_trait]
impl ReaderViews for Redis {
    async fn state(&self, user: UserId) -> Result<Option<ReaderState>, ViewError> {
        let fields: Vec<(Vec<u8>, Vec<u8>)> = self.query("state", redis::cmd("HGETALL").arg(keys::reader_state(user))).await?;
        ReaderState::decode(fields).map_err(|error| ViewError::Damaged { detail: error.to_string() })
    }

    async fn chunks(
        &self,
        user: UserId,
        days: &[u16],
        before: Option<FeedKey>,
        limit: usize,
    ) -> Result<Vec<Option<Vec<FeedKey>>>, ViewError> {
        if days.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = redis::pipe();
        for &day in days {
            let key = keys::feed_chunk(user, day);
            let (below, tied) = match before {
                Some(before) => (format!("({}", before.at.ms()), before.at.ms().to_string()),
                None => ("+inf".to_owned(), "+inf".to_owned()),
            };
            // Entries of the cursor's own millisecond are asked for apart: the cursor may lie anywhere among them.
            pipeline.exists(&key);
            pipeline.cmd("ZRANGE").arg(&key).arg(&tied).arg(&tied).arg("BYSCORE").arg("REV").arg("WITHSCORES");
            pipeline.cmd("ZRANGE").arg(&key).arg(&below).arg("-inf").arg("BYSCORE").arg("REV");
            pipeline.arg("LIMIT").arg(0).arg(limit).arg("WITHSCORES");
        }
        let answers: Vec<redis::Value> = self.pipeline("chunks", &pipeline).await?;
        answers.chunks(3).map(|answer| chunk_entries(answer, before)).collect()
    }

    async fn begin(&self, user: UserId, token: u64, now: Timestamp, anew: bool) -> Result<Begun, ViewError> {
        let args = [
            now.ms().into(),
            now.plus_ms(REBUILD_DEADLINE_MS).ms().into(),
            token_arg(token),
            ms(keys::STATE_LIFETIME),
            u64::from(anew).into(),
        ];
        let answer: String = self.call(Function::Begin, &[keys::reader_state(user)], &args).await?;
        match answer.as_str() {
            "begun" => Ok(Begun::Begun),
            "building" => Ok(Begun::Building),
            "ready" => Ok(Begun::Ready),
            other => Err(ViewError::Damaged { detail: format!("begin answered {other}") }),
        }
    }

    async fn admit(&self, user: UserId, edges: &[Edge]) -> Result<Option<Vec<Admitted>>, ViewError> {
        let mut admitted = Vec::with_capacity(edges.len());
        for edges in edges.chunks(MAX_ARGUMENTS / 4) {
            let args: Vec<Arg> = edges
                .iter()
                .flat_map(|edge| {
                    [edge.author.get().into(), u64::from(edge.rev).into(), AuthorState::opening(edge).encode().into()]
                })
                .collect();
            let answer: Option<Vec<i64>> = self.call(Function::Admit, &[keys::reader_state(user)], &args).await?;
            let Some(answer) = answer else { return Ok(None) };
            admitted.extend(answer.into_iter().map(|code| match code {
                1 | 2 => Admitted::Opening,
                0 => Admitted::Complete,
                _ => Admitted::Stale,
            }));
        }
        Ok(Some(admitted))
    }

    async fn seed(&self, user: UserId, seed: &Seed) -> Result<Seeded, ViewError> {
        let mut stale = Vec::new();
        let calls = seed.entries.len().div_ceil(POSTS_PER_CALL).max(1);
        for call in 0..calls {
            let authors = if call == 0 { seed.authors.as_slice() } else { &[] };
            let from = call * POSTS_PER_CALL;
            let entries = &seed.entries[from..seed.entries.len().min(from + POSTS_PER_CALL)];
            let (days, slots) = days_of(entries);
            let keys = chunk_keys(user, &days);
            let mut args: Vec<Arg> = vec![
                ms(keys::CHUNK_LIFETIME),
                seed.token.map_or_else(|| "".into(), token_arg),
                seed.low.map_or_else(|| "".into(), |low| low.ms().into()),
                (days.len() as u64).into(),
            ];
            args.extend(days.iter().map(|&day| Arg::from(u64::from(day))));
            args.push((authors.len() as u64).into());
            args.extend(authors.iter().flat_map(|(author, state)| [author.get().into(), state.encode().into()]));
            args.extend(
                entries.iter().zip(slots).flat_map(|(entry, slot)| [slot.into(), entry.at.ms().into(), entry.member().into()]),
            );
            let answer: Option<Vec<usize>> = self.call(Function::Seed, &keys, &args).await?;
            let Some(answer) = answer else { return Ok(Seeded::Gone) };
            stale.extend(answer.into_iter().filter_map(|index| authors.get(index - 1)).map(|(author, _)| *author));
        }
        Ok(Seeded::Merged { stale })
    }

    async fn finish(&self, user: UserId, token: u64, now: Timestamp) -> Result<bool, ViewError> {
        let args = [token_arg(token), now.ms().into(), ms(keys::STATE_LIFETIME)];
        self.call::<u8>(Function::Finish, &[keys::reader_state(user)], &args).await.map(|done| done == 1)
    }

    async fn drop_author(&self, tombstone: &Edge) -> Result<(), ViewError> {
        for _ in 0..DROP_ATTEMPTS {
            let mut get = redis::cmd("HGET");
            get.arg(keys::reader_state(tombstone.user)).arg(crate::domain::reader_state::META_FIELD);
            let meta: Option<Vec<u8>> = self.query("days", &get).await?;
            let Some(meta) = meta else { return Ok(()) };
            let meta = crate::domain::reader_state::ReaderMeta::decode(&meta)
                .ok_or_else(|| ViewError::Damaged { detail: "reader meta".to_owned() })?;
            let mut args: Vec<Arg> = vec![
                tombstone.author.get().into(),
                u64::from(tombstone.rev).into(),
                author_prefix(tombstone.author).into(),
                (meta.days.len() as u64).into(),
            ];
            args.extend(meta.days.iter().map(|&day| Arg::from(u64::from(day))));
            let answer: Option<i64> = self.call(Function::Drop, &chunk_keys(tombstone.user, &meta.days), &args).await?;
            if answer != Some(-1) {
                return Ok(());
            }
        }
        Err(ViewError::Damaged { detail: "the days of a view kept changing".to_owned() })
    }

    async fn touch(&self, user: UserId, state: &ReaderState, now: Timestamp) -> Result<(), ViewError> {
        let days: Vec<u16> = state.meta.days.iter().rev().copied().collect();
        let mut args: Vec<Arg> = vec![
            now.ms().into(),
            ms(keys::STATE_LIFETIME),
            ms(keys::CHUNK_LIFETIME),
            (FEED_CAP as u64).into(),
            now.seconds().saturating_sub(TOMBSTONE_SECONDS).into(),
            (days.len() as u64).into(),
        ];
        args.extend(days.iter().map(|&day| Arg::from(u64::from(day))));
        self.call::<Option<u64>>(Function::Touch, &chunk_keys(user, &days), &args).await.map(|_| ())
    }

    async fn deliver(&self, users: &[UserId], posts: &[FeedKey]) -> Result<u64, ViewError> {
        let mut reached = 0;
        for posts in posts.chunks(POSTS_PER_CALL) {
            let (days, slots) = days_of(posts);
            let mut args: Vec<Arg> = vec![ms(keys::CHUNK_LIFETIME), (days.len() as u64).into()];
            args.extend(days.iter().map(|&day| Arg::from(u64::from(day))));
            let mut with_slots: Vec<_> = posts.iter().zip(slots).collect();
            with_slots.sort_by_key(|(post, _)| post.post);
            for of_author in with_slots.chunk_by(|(a, _), (b, _)| a.post.author == b.post.author) {
                args.extend([of_author[0].0.post.author.get().into(), (of_author.len() as u64).into()]);
                for (post, slot) in of_author {
                    args.extend([post.post.seq.into(), post.at.ms().into(), post.member().into(), (*slot).into()]);
                }
            }
            reached += self.for_users(Function::Deliver, users, &days, &args).await?;
        }
        Ok(reached)
    }

    async fn retract(&self, users: &[UserId], post: FeedKey, deletions: u32) -> Result<u64, ViewError> {
        let day = post.at.day();
        let args: Vec<Arg> = vec![
            1.into(),
            u64::from(day).into(),
            post.post.author.get().into(),
            post.post.seq.into(),
            u64::from(deletions).into(),
            post.member().into(),
            1.into(),
        ];
        self.for_users(Function::Retract, users, &[day], &args).await
    }
}

impl Redis {
    /// Calls a script over many users, some a call, one call after another: readers get their turn in between.
    async fn for_users(&self, function: Function, users: &[UserId], days: &[u16], args: &[Arg]) -> Result<u64, ViewError> {
        let per_call = ((MAX_ARGUMENTS - args.len()) / (days.len() + 1)).clamp(1, USERS_PER_CALL);
        let mut reached = 0;
        for users in users.chunks(per_call) {
            let keys: Vec<String> = users.iter().flat_map(|&user| chunk_keys(user, days)).collect();
            reached += self.call::<u64>(function, &keys, args).await?;
        }
        Ok(reached)
    }
}

/// The state hash and these chunks: the keys of one user in every script.
fn chunk_keys(user: UserId, days: &[u16]) -> Vec<String> {
    std::iter::once(keys::reader_state(user)).chain(days.iter().map(|&day| keys::feed_chunk(user, day))).collect()
}

/// The distinct days of the entries, and for every entry the index of its day, from 1.
fn days_of(entries: &[FeedKey]) -> (Vec<u16>, Vec<u64>) {
    let mut days: Vec<u16> = entries.iter().map(|entry| entry.at.day()).collect();
    days.sort_unstable();
    days.dedup();
    let slots = entries.iter().map(|entry| days.partition_point(|&day| day < entry.at.day()) as u64 + 1).collect();
    (days, slots)
}

pub(super) fn token_arg(token: u64) -> Arg {
    Arg::Bytes(token.to_le_bytes().to_vec())
}

fn chunk_entries(answer: &[redis::Value], before: Option<FeedKey>) -> Result<Option<Vec<FeedKey>>, ViewError> {
    let damaged = || ViewError::Damaged { detail: "feed chunk".to_owned() };
    let [exists, tied, below] = answer else { return Err(damaged()) };
    if !redis::from_redis_value_ref::<bool>(exists).map_err(|_| damaged())? {
        return Ok(None);
    }
    let mut entries = Vec::new();
    for part in [tied, below] {
        let pairs: Vec<(Vec<u8>, f64)> = redis::from_redis_value_ref(part).map_err(|_| damaged())?;
        for (member, score) in pairs {
            let key = FeedKey::from_member(Timestamp::from_ms(score as u64), &member).ok_or_else(damaged)?;
            if before.is_none_or(|before| key < before) {
                entries.push(key);
            }
        }
    }
    Ok(Some(entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_distinct_and_entries_know_theirs() {
        let entry = |day: u64, seq| FeedKey {
            at: Timestamp::from_ms(day * crate::domain::time::DAY_MS + 5),
            post: crate::domain::PostId::new(UserId::new(1).unwrap(), seq),
        };
        let (days, slots) = days_of(&[entry(9, 1), entry(3, 2), entry(9, 3)]);
        assert_eq!((days, slots), (vec![3, 9], vec![2, 1, 2]));
    }
}

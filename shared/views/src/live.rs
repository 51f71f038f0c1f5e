//! The live connections of readers, and the flag `watched` of the reader state. Redis alone has them; the pings of the
//! clients register them again.

use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};
use tidemark_domain::{CountsDigest, Known, Platform, PostId, Timestamp, Told, UnreadNotices, UserId};

use super::{
    Function, Result, keys,
    users::{USERS_PER_CALL, at_positions},
};
use crate::connection::{Views, damaged, fcall, ms};

/// The maximum number of connections of one reader. A further one takes the place of the one that expires first.
pub(crate) const MOST_CONNECTIONS: u64 = 20;

/// The least time between two messages to a reader's connections, in ms.
pub(crate) const LEAST_BETWEEN_MS: u64 = 1_000;

/// The longest time that a message waits for the end of the one before, in ms. The process that had to tell it was
/// killed, or its note is lost.
const LONGEST_WAIT_MS: u64 = 10_000;

/// The watched readers for whom the caller of a change sends a task. For the others, a queued task will have the
/// change, or the reader is not watched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notified {
    /// The caller sends a task now.
    pub now: Vec<UserId>,
    /// A message was built less than a second ago. The caller sends a task that is delayed by a second.
    pub later: Vec<UserId>,
}

/// The result of [`Views::claim_updates`] for one reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimedUpdate {
    /// The caller reads the counts and builds the message.
    Claimed {
        /// The post that was noted last, and when.
        noted: Option<(PostId, Timestamp)>,
        /// The time of the message, by the clock of Redis.
        at: Timestamp,
        /// The connections, each with what it was told; `None` if that is unknown.
        connections: Vec<(String, Option<Known>)>,
    },
    /// The last message was posted less than a second ago, or is still on its way. The caller sends a task that is
    /// delayed by a second.
    TooEarly,
    /// The same, and a later task is queued.
    OnItsWay,
    Unwatched,
}

/// A platform that a connection has named, and the number of unread notices that it was told; `None` if that is
/// unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPlatform {
    pub connection: String,
    pub platform: Platform,
    pub told: Option<u64>,
}

/// The result of [`Views::watch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// What the connection was told; `None` if that is unknown.
    pub known: Option<Known>,
    /// The time at which the reader's last message was built, by the clock of Redis.
    pub built: Timestamp,
}

impl Views {
    /// Registers a connection, or renews it, and marks the reader's view as watched, if there is one.
    pub async fn watch(&self, user: UserId, connection: &str) -> Result<Watched> {
        let args = (connection, ms(keys::CONNECTION_LIFETIME), MOST_CONNECTIONS);
        let [known, built]: [Vec<u8>; 2] =
            self.call(Function::Watch, &[own_keys(user), vec![keys::told_notices(user)]].concat(), args).await?;
        Ok(Watched { known: decode_known(&known), built: decode_ms(&built).unwrap_or_default() })
    }

    /// Removes a connection, unless it was renewed since a message found it gone at `found_at`. May be repeated.
    pub async fn unwatch(&self, user: UserId, connection: &str, found_at: Option<Timestamp>) -> Result<()> {
        let found_at = found_at.map_or_else(String::new, |at| at.ms().to_string());
        let args = (connection, found_at, ms(keys::CONNECTION_LIFETIME));
        self.call::<u64>(Function::Unwatch, &own_keys(user), args).await.map(drop)
    }

    /// Notes that counts of these readers have changed. A delivery notes this itself.
    pub async fn notify(&self, users: &[UserId], post: Option<PostId>) -> Result<Notified> {
        let args = (LEAST_BETWEEN_MS, post.map_or_else(Vec::new, encode_post));
        let mut notified = Notified::default();
        for (users, (now, later)) in self.for_users(Function::Notify, (users, USERS_PER_CALL), own_keys, &args).await? {
            notified.now.extend(at_positions(users, now));
            notified.later.extend(at_positions(users, later));
        }
        Ok(notified)
    }

    /// Begins to build the messages for these readers. From then on it is unknown what their connections know. Returns
    /// one result for each reader, in order.
    pub async fn claim_updates(&self, users: &[UserId]) -> Vec<Result<ClaimedUpdate>> {
        let calls = users.iter().map(|&user| fcall(Function::Claim, &own_keys(user), (LEAST_BETWEEN_MS, LONGEST_WAIT_MS)));
        self.results("claim", calls.collect()).await.into_iter().map(|response| decode_claim(response?.0)).collect()
    }

    /// Notes the platforms of whose unread notices a connection is told, instead of those that it named before. Returns
    /// for each the number that it was told; `None` if that is unknown. It comes before [`watch`](Self::watch), which
    /// registers a connection that Redis has lost.
    pub async fn name_platforms(&self, user: UserId, connection: &str, platforms: &[Platform]) -> Result<Vec<Option<u64>>> {
        let numbers: Vec<String> = platforms.iter().map(Platform::to_string).collect();
        let args = (connection, ms(keys::CONNECTION_LIFETIME), numbers);
        let told: Vec<String> = self.call(Function::NamePlatforms, &notice_keys(user), args).await?;
        Ok(told.iter().map(|told| told.parse().ok()).collect())
    }

    /// Whether a connection of the reader has named platforms.
    pub async fn names_platforms(&self, user: UserId) -> Result<bool> {
        let exists: Vec<bool> = self.each("names_platforms", vec![Cmd::exists(keys::told_notices(user))]).await?;
        Ok(exists == [true])
    }

    /// Returns the platforms that the reader's connections have named. From then on it is unknown what the connections
    /// know of them.
    pub async fn forget_notices(&self, user: UserId) -> Result<Vec<NamedPlatform>> {
        let fields: Vec<String> = self.call(Function::ForgetNotices, &[keys::told_notices(user)], Vec::<String>::new()).await?;
        let named = |pair: &[String]| {
            let (platform, connection) = pair[0].split_once(':')?;
            let (platform, connection) = (platform.parse().ok()?, connection.to_owned());
            Some(NamedPlatform { connection, platform, told: pair[1].parse().ok() })
        };
        Ok(fields.chunks_exact(2).filter_map(named).collect())
    }

    /// Stores what connections know. Readers of whom a later message was built are left out. `next` is the time after
    /// which their next messages may be built; `None` if these have not ended.
    pub async fn note_told(&self, told: &[Told], next: Option<Duration>) -> Result<()> {
        let next = next.map_or_else(String::new, |next| ms(next).to_string());
        let calls = told.iter().map(|told| {
            let args = (told.at.ms(), encode_known(told.known()), &next, &told.connections);
            fcall(Function::Told, &[keys::connections(told.user)], args)
        });
        let of_notices = told.iter().filter(|told| !told.notices.is_empty()).map(|Told { user, at, notices, .. }| {
            let known: Vec<(String, u64)> = notices.iter().flat_map(known_notices).collect();
            fcall(Function::ToldNotices, &notice_keys(*user), (at.ms(), known))
        });
        self.each::<u64>("told", calls.chain(of_notices).collect()).await.map(drop)
    }
}

fn own_keys(user: UserId) -> Vec<String> {
    vec![keys::connections(user), keys::reader_state(user), keys::feed(user)]
}

fn notice_keys(user: UserId) -> [String; 2] {
    [keys::connections(user), keys::told_notices(user)]
}

/// The fields of connections that know these notices, with the number.
fn known_notices(notices: &UnreadNotices) -> impl Iterator<Item = (String, u64)> {
    let UnreadNotices { connections, platform, unread } = notices;
    connections.iter().map(move |connection| (format!("{platform}:{connection}"), *unread))
}

/// Author and sequence number, little-endian.
fn encode_post(post: PostId) -> Vec<u8> {
    [post.author.get(), post.seq].map(u64::to_le_bytes).concat()
}

fn decode_post(bytes: &[u8]) -> Option<PostId> {
    let (author, seq) = bytes.split_first_chunk()?;
    let author = UserId::new(u64::from_le_bytes(*author))?;
    Some(PostId::new(author, u64::from_le_bytes(seq.try_into().ok()?)))
}

/// Digest and number, little-endian.
fn encode_known(Known { counts: CountsDigest(digest), inbox }: Known) -> Vec<u8> {
    [&digest.to_le_bytes()[..], &inbox.to_le_bytes()].concat()
}

fn decode_known(bytes: &[u8]) -> Option<Known> {
    let (digest, inbox) = bytes.split_first_chunk()?;
    let counts = CountsDigest(u64::from_le_bytes(*digest));
    Some(Known { counts, inbox: u32::from_le_bytes(inbox.try_into().ok()?) })
}

fn decode_ms(bytes: &[u8]) -> Option<Timestamp> {
    std::str::from_utf8(bytes).ok()?.parse().ok().map(Timestamp::from_ms)
}

fn decode_claim(response: Value) -> Result<ClaimedUpdate> {
    let damaged = |detail| damaged(format!("claim: {detail}"));
    match response {
        Value::Nil => Ok(ClaimedUpdate::Unwatched),
        Value::BulkString(word) if word == b"on its way" => Ok(ClaimedUpdate::OnItsWay),
        Value::BulkString(word) if word == b"later" => Ok(ClaimedUpdate::TooEarly),
        other => {
            let parts = Vec::<Vec<u8>>::from_redis_value(other).map_err(|_| damaged("unknown response"))?;
            let [post, noted, now, connections @ ..] = &parts[..] else { return Err(damaged("a short response")) };
            let connection = |pair: &[Vec<u8>]| {
                let id = String::from_utf8(pair[0].clone()).map_err(|_| damaged("a connection that is no text"))?;
                Ok((id, decode_known(&pair[1])))
            };
            Ok(ClaimedUpdate::Claimed {
                noted: decode_post(post).zip(decode_ms(noted)),
                at: decode_ms(now).ok_or_else(|| damaged("no time"))?,
                connections: connections.chunks_exact(2).map(connection).collect::<Result<_, _>>()?,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_post_round_trips_and_no_post_is_empty() {
        let post = PostId::new(UserId::new(u64::MAX).unwrap(), u64::from(u32::MAX));
        assert_eq!(decode_post(&encode_post(post)), Some(post));
        assert_eq!([decode_post(b""), decode_post(&[0; 16]), decode_post(&[1; 15])], [None; 3]);
    }

    #[test]
    fn a_claim_is_decoded() {
        let bytes = |text: &[u8]| Value::BulkString(text.to_vec());
        assert_eq!(decode_claim(Value::Nil).unwrap(), ClaimedUpdate::Unwatched);
        assert_eq!(decode_claim(bytes(b"on its way")).unwrap(), ClaimedUpdate::OnItsWay);
        assert_eq!(decode_claim(bytes(b"later")).unwrap(), ClaimedUpdate::TooEarly);
        let claimed = |post: &[u8]| {
            let known = encode_known(Known { counts: CountsDigest(7), inbox: 2 });
            let [known, unknown] = [&known[..], b""];
            let parts = [post, b"9", b"12", b"L0abc=", known, b"L1abc=", unknown];
            decode_claim(Value::Array(parts.map(bytes).to_vec())).unwrap()
        };
        let expected = |noted| ClaimedUpdate::Claimed {
            noted,
            at: Timestamp::from_ms(12),
            connections: vec![
                ("L0abc=".to_owned(), Some(Known { counts: CountsDigest(7), inbox: 2 })),
                ("L1abc=".to_owned(), None),
            ],
        };
        let post = PostId::new(UserId::new(3).unwrap(), 4);
        assert_eq!(claimed(b""), expected(None));
        assert_eq!(claimed(&encode_post(post)), expected(Some((post, Timestamp::from_ms(9)))));
        assert!(decode_claim(Value::Array(vec![bytes(b"")])).is_err());
    }
}

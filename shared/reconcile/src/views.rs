//! Reads the views as they are stored, damaged ones included.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use redis_link::{EPOCH_BYTES, Epoch};
use tidemark_domain::{
    AuthorHead, Counters, CountsVersion, FeedKey, HalfLife, NoticeId, Platform, PlatformHead, PostId, PostSummary, PostText,
    ReactionState, ReaderState, Relation, Score, StoreError, Timestamp, UserId,
    feed::author_of_prefix,
    reader_state::{META_FIELD, ReaderMeta},
};
use tidemark_views::{
    CardVersion, List, Marks, Views, heads,
    keys::{self, KeyType, Owner, View},
    notices, people, post_records,
    readers::{self, Moves},
    record,
    relations::{self, is_marker, is_marker_of},
    transaction,
};

use crate::diff::{
    Stored,
    notices::{StoredBody, StoredSlots, StoredTitle},
    reader::{StoredRanks, StoredReader},
    views::{StoredKey, StoredList},
};

#[derive(Debug, Clone)]
pub struct StoredViews(pub Views);

/// All that Redis has of one user: the keys that exist, and the views. One of a wrong type counts as absent.
#[derive(Debug, Clone, Default)]
pub struct StoredUser {
    pub keys: Vec<StoredKey>,
    pub reader: StoredReader,
    pub following: Stored<StoredList>,
    pub followers: Stored<StoredList>,
    pub counters: Stored<Counters>,
    pub reactions: Stored<HashMap<UserId, ReactionState>>,
    pub head: Stored<AuthorHead>,
    pub card: Stored<CardVersion>,
}

/// The keys of a view that exist, and its content, absent if it has a wrong type.
pub(crate) type StoredView<T> = (Vec<StoredKey>, Stored<T>);

#[derive(Debug, Clone, Default)]
pub struct StoredPostViews {
    pub keys: Vec<StoredKey>,
    pub summary: Stored<PostSummary>,
    /// The text and its revision.
    pub text: Stored<(u32, PostText)>,
    pub counts: Stored<CountsVersion>,
}

/// A string, a hash, and a sorted set in a reply of Redis.
type Record = Option<Vec<u8>>;
type Fields = Vec<(Vec<u8>, Vec<u8>)>;
type Scores = Vec<(Vec<u8>, f64)>;

/// The length in bytes of the token of a reader's reactions, with the epoch after it.
const TOKEN: usize = size_of::<u64>() + EPOCH_BYTES;

/// The key. If its value has a wrong type, the name of a key that never exists, so that the read returns nothing.
fn readable(found: &[StoredKey], key: String) -> String {
    if found.iter().any(|found| found.key == key && !found.right_type) { format!("{key}:unreadable") } else { key }
}

impl StoredViews {
    /// The owners of the next keys, about `count` keys, and the next cursor, zero at the end. A full pass finds every
    /// key that exists all the time.
    pub async fn owners(&self, cursor: u64, count: usize) -> Result<(BTreeSet<Owner>, u64), StoreError> {
        let (next, found) = self.0.scan("owners", cursor, &["COUNT", &count.to_string()]).await?;
        Ok((found.iter().filter_map(|key| keys::owner(std::str::from_utf8(key).ok()?)).collect(), next))
    }

    /// The views among the next keys, about `count` keys, and the next cursor, zero at the end.
    pub async fn names(&self, cursor: u64, count: usize) -> Result<(Vec<String>, u64), StoreError> {
        let (next, found) = self.0.scan("names", cursor, &["COUNT", &count.to_string()]).await?;
        Ok((found.into_iter().filter_map(|key| String::from_utf8(key).ok()).filter(|key| keys::is_view(key)).collect(), next))
    }

    /// Deletes views.
    pub async fn forget(&self, views: &[String]) -> Result<(), StoreError> {
        let unlink = |view: &String| redis::cmd("UNLINK").arg(view).take();
        self.0.each::<u64>("forget", views.iter().map(unlink).collect()).await.map(drop)
    }

    /// The readers among the next keys whose rebuild has passed its deadline, and the next cursor.
    pub async fn abandoned(&self, cursor: u64, count: usize, now: Timestamp) -> Result<(Vec<UserId>, u64), StoreError> {
        let options = ["MATCH", keys::ANY_READER_STATE, "COUNT", &count.to_string(), "TYPE", KeyType::Hash.name()];
        let (next, found) = self.0.scan("abandoned", cursor, &options).await?;
        let user = |key: &Vec<u8>| match keys::owner(std::str::from_utf8(key).ok()?) {
            Some(Owner::User(user)) => Some(user),
            _ => None,
        };
        let users: Vec<UserId> = found.iter().filter_map(user).collect();
        let get = |user: &UserId| redis::cmd("HGET").arg(keys::reader_state(*user)).arg(META_FIELD).clone();
        let metas: Vec<(Record, Epoch)> = self.0.each_in_epoch("abandoned", users.iter().map(get).collect()).await?;
        let abandoned = |(meta, epoch): &(Record, Epoch)| {
            let meta = meta.as_deref().and_then(ReaderMeta::decode);
            meta.is_some_and(|meta| meta.building && meta.deadline < now && meta.epoch == epoch.as_bytes())
        };
        Ok((users.into_iter().zip(metas).filter(|(_, meta)| abandoned(meta)).map(|(user, _)| user).collect(), next))
    }

    pub async fn of_user(&self, user: UserId) -> Result<StoredUser, StoreError> {
        let keys = self.found(keys::of_user(user)).await?;
        if keys.is_empty() {
            return Ok(StoredUser::default());
        }
        let (state, feed) = (keys::reader_state(user), keys::feed(user));
        let ([following, ..], [followers, ..]) = (keys::list(List::Following(user)), keys::list(List::Followers(user)));
        let ([counters, _], [ranked, moves]) = (keys::counters(user), keys::ranked(user));
        let ([head, _], [card, _]) = (keys::head(user), keys::card(user));
        let get = |name: &str, key: String| redis::cmd(name).arg(readable(&keys, key)).clone();
        let range = |name: &str, key: String| get(name, key).arg(0).arg(-1).clone();
        // A transaction, as for a page: state and feed are of the same moment.
        let commands = [
            get("HGETALL", state.clone()),
            range("LRANGE", feed.clone()),
            range("ZRANGE", following).arg("WITHSCORES").clone(),
            range("ZRANGE", followers).arg("WITHSCORES").clone(),
            get("GET", counters),
            get("GET", head),
            get("GET", card),
            get("HGETALL", keys::reactions(user)),
            range("ZRANGE", ranked).arg("WITHSCORES").clone(),
            get("HGETALL", moves),
        ];
        type All = (Fields, Vec<Vec<u8>>, Scores, Scores, Record, Record, Record, Fields, Scores, Fields);
        let (all, epoch): (All, _) = self.0.query_in_epoch("of_user", transaction(commands)).await?;
        let (fields, entries, following, followers, counters, head, card, reactions, scores, moves) = all;
        let lifetime = |key: &str| keys.iter().find(|found| found.key == key).and_then(|found| found.lifetime_ms);
        let outlives = lifetime(&feed).is_none_or(|ms| lifetime(&state).is_none_or(|state| ms >= state));
        // A feed lives longer than its state. The next rebuild deletes one that is left in that time.
        let is_left = fields.is_empty() && lifetime(&feed).is_some_and(|ms| u128::from(ms) <= keys::FEED_OUTLIVES.as_millis());
        let entries = if is_left { Vec::new() } else { entries };
        Ok(StoredUser {
            keys,
            reader: StoredReader { ranked: ranks(scores, moves), ..reader(fields, &entries, outlives, epoch) },
            following: list(&following, epoch),
            followers: list(&followers, epoch),
            counters: in_epoch(counters, epoch, relations::decode),
            reactions: reactions_of(&reactions, epoch),
            head: in_epoch(head, epoch, heads::decode),
            card: in_epoch(card, epoch, people::decode),
        })
    }

    pub async fn of_post(&self, post: PostId) -> Result<StoredPostViews, StoreError> {
        let keys = self.found(keys::of_post(post)).await?;
        let ([summary, _], [counts, ..]) = (keys::post(post), keys::counts(post));
        let get = |key: String| redis::cmd("GET").arg(readable(&keys, key)).clone();
        let commands = transaction([summary, keys::text(post), counts].map(get));
        let ((summary, text, counts), epoch): ((Record, Record, Record), _) = self.0.query_in_epoch("of_post", commands).await?;
        Ok(StoredPostViews {
            summary: in_epoch(summary, epoch, |bytes| post_records::decode(post, bytes)),
            text: in_epoch(text, epoch, post_records::decode_any_text),
            counts: in_epoch(counts, epoch, post_records::decode_counts),
            keys,
        })
    }

    pub(crate) async fn of_platform(&self, platform: Platform) -> Result<StoredView<PlatformHead>, StoreError> {
        self.record("of_platform", View::Platform(platform), notices::decode_head).await
    }

    pub(crate) async fn of_notice_reads(&self, user: UserId, platform: Platform) -> Result<StoredView<StoredSlots>, StoreError> {
        let decode =
            |record: &[u8]| Some(StoredSlots { version: record::version(record)?.0, read: notices::decode_reads(record)? });
        self.record("of_notice_reads", View::NoticeReads(user, platform), decode).await
    }

    pub(crate) async fn of_marks(&self, user: UserId, author: UserId) -> Result<StoredView<Marks>, StoreError> {
        self.record("of_marks", View::Marks(user, author), readers::decode_marks).await
    }

    pub(crate) async fn of_title(&self, notice: NoticeId, revision: u64) -> Result<StoredView<StoredTitle>, StoreError> {
        let (keys, title, _) = self.string("of_title", View::Title(notice, revision)).await?;
        Ok((keys, Stored::read(title, |title| notices::decode_title(&title))))
    }

    pub(crate) async fn of_notice_body(&self, notice: NoticeId, revision: u64) -> Result<StoredView<StoredBody>, StoreError> {
        let (keys, body, _) = self.string("of_notice_body", View::NoticeBody(notice, revision)).await?;
        Ok((keys, Stored::read(body, |body| notices::decode_body(&body))))
    }

    pub async fn exists(&self, key: &str) -> Result<bool, StoreError> {
        self.0.query("exists", redis::cmd("EXISTS").arg(key).clone()).await
    }

    /// Reads a view whose first key is a string that contains all of it.
    async fn record<T>(
        &self,
        operation: &'static str,
        view: View,
        decode: impl FnOnce(&[u8]) -> Option<T> + Send,
    ) -> Result<StoredView<T>, StoreError> {
        let (keys, record, epoch) = self.string(operation, view).await?;
        Ok((keys, in_epoch(record, epoch, decode)))
    }

    /// Reads the string in the first key of a view, and the keys of the view that exist.
    async fn string(&self, operation: &'static str, view: View) -> Result<(Vec<StoredKey>, Record, Epoch), StoreError> {
        let key = keys::of_view(&view).into_iter().next().map(|(key, _)| key).unwrap_or_default();
        let keys = self.found(vec![view]).await?;
        let get = redis::cmd("GET").arg(readable(&keys, key)).clone();
        let (record, epoch) = self.0.query_in_epoch(operation, get).await?;
        Ok((keys, record, epoch))
    }

    /// Reads type and lifetime of all keys of these views, in one round trip. Returns the keys that exist.
    async fn found(&self, views: Vec<View>) -> Result<Vec<StoredKey>, StoreError> {
        let keys_of = |view| keys::of_view(view).into_iter().map(move |(key, expected)| (key, view, expected));
        let keys: Vec<(String, &View, KeyType)> = views.iter().flat_map(keys_of).collect();
        let commands = |(key, ..): &(String, &View, KeyType)| ["TYPE", "PTTL"].map(|name| redis::cmd(name).arg(key).clone());
        let replies: Vec<redis::Value> = self.0.each("found", keys.iter().flat_map(commands).collect()).await?;
        let damaged = |_| StoreError::DamagedView { detail: "type or lifetime of a key".to_owned() };
        let mut found = Vec::with_capacity(keys.len());
        for ((key, view, expected), reply) in keys.into_iter().zip(replies.as_chunks::<2>().0) {
            let kind: String = redis::from_redis_value_ref(&reply[0]).map_err(damaged)?;
            // Negative if the key has no lifetime.
            let lifetime: i64 = redis::from_redis_value_ref(&reply[1]).map_err(damaged)?;
            if kind != "none" {
                let (right_type, lifetime_ms) = (kind == expected.name(), u64::try_from(lifetime).ok());
                found.push(StoredKey { key, view: view.clone(), right_type, lifetime_ms });
            }
        }
        Ok(found)
    }
}

/// Decodes a record without the epoch at its end. A record of another epoch that can be decoded counts as absent.
fn in_epoch<T>(record: Record, epoch: Epoch, decode: impl FnOnce(&[u8]) -> Option<T>) -> Stored<T> {
    let Some(record) = record else { return Stored::Absent };
    let read = record.len().checked_sub(epoch.as_bytes().len()).and_then(|end| decode(&record[..end]));
    match (read, epoch.current(&record)) {
        (None, _) => Stored::Damaged,
        (Some(_), None) => Stored::Absent,
        (Some(read), Some(_)) => Stored::Present(read),
    }
}

fn reader(fields: Fields, entries: &[Vec<u8>], feed_outlives: bool, epoch: Epoch) -> StoredReader {
    let there = !fields.is_empty();
    let (state, headless) = match ReaderState::decode(fields) {
        // A view of another epoch is never read: the next read rebuilds it.
        Ok(Some(state)) if state.meta.epoch != epoch.as_bytes() => return StoredReader::default(),
        Ok(Some(state)) => (Stored::Present(state), false),
        Ok(None) => (Stored::Absent, there),
        Err(_) => (Stored::Damaged, false),
    };
    let feed = Stored::read((!entries.is_empty()).then_some(entries), |entries| {
        let mut feed: Vec<FeedKey> = entries.iter().map(|entry| FeedKey::from_entry(entry)).collect::<Option<_>>()?;
        if let Stored::Present(state) = &state {
            feed.extend(&state.recent);
        }
        Some(feed)
    });
    StoredReader { state, headless, feed, feed_outlives, ranked: Stored::Absent }
}

fn ranks(scores: Scores, moves: Fields) -> Stored<StoredRanks> {
    Stored::read((!scores.is_empty() && !moves.is_empty()).then_some(()), |()| {
        let score = |(entry, score): (Vec<u8>, f64)| Some((FeedKey::from_entry(&entry)?, Score::new(score)?));
        let (half_life, _) = Moves::decode(moves)?.marker.unzip();
        let half_life = half_life.map(|ms| HalfLife::new(Duration::from_millis(ms)));
        Some(StoredRanks { half_life, scores: scores.into_iter().map(score).collect::<Option<_>>()? })
    })
}

fn list(scores: &Scores, epoch: Epoch) -> Stored<StoredList> {
    let of_another = |(member, _): &(Vec<u8>, f64)| is_marker(member) && !is_marker_of(member, epoch);
    if scores.iter().any(of_another) {
        return Stored::Absent;
    }
    Stored::read((!scores.is_empty()).then_some(scores), |scores| {
        let at = |score: f64| Timestamp::from_ms(score as u64);
        let low = scores.iter().find(|(member, _)| is_marker(member)).map(|(_, score)| at(*score))?;
        let members = scores.iter().filter(|(member, _)| !is_marker(member));
        let members = members.map(|(member, score)| Some(Relation { since: at(*score), user: author_of_prefix(member)? }));
        Some(StoredList { low, members: members.collect::<Option<_>>()? })
    })
}

fn reactions_of(fields: &Fields, epoch: Epoch) -> Stored<HashMap<UserId, ReactionState>> {
    let is_token = |field: &[u8]| field == META_FIELD.as_bytes();
    if fields.iter().any(|(field, token)| is_token(field) && token.len() == TOKEN && epoch.current(token).is_none()) {
        return Stored::Absent;
    }
    Stored::read((!fields.is_empty()).then_some(fields), |fields| {
        fields.iter().find(|(field, value)| is_token(field) && value.len() == TOKEN)?;
        let states = fields
            .iter()
            .filter(|(field, _)| !is_token(field))
            .map(|(field, value)| Some((std::str::from_utf8(field).ok()?.parse().ok()?, ReactionState::decode(value)?)));
        states.collect()
    })
}

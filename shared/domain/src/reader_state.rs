//! The whole state of a live reader: the gates that deliveries pass, and the source of every unread count.

use std::collections::HashMap;

use crate::{AuthorState, FeedKey, PostId, Timestamp, UserId};

/// The field of the reader state hash with [`ReaderMeta`]. Others are [recent entries](RECENT_FIELDS) or author ids.
pub const META_FIELD: &str = "@";

/// The fields with the newest entries of the feed, oldest first, which are not in its list yet. The meta has their
/// number. A field beyond it has an entry that is in the list too.
pub const RECENT_FIELDS: [&str; 8] = ["+1", "+2", "+3", "+4", "+5", "+6", "+7", "+8"];

const META_HEADER: usize = 27;
/// Bytes of the epoch in which the view was written, after the header. `shared/redis-link/src/epoch.rs` describes it.
const EPOCH: usize = 4;
const BUILDING: u8 = 1;
const FEED: u8 = 2;
const RANKED: u8 = 4;
const WATCHED: u8 = 8;
const RECENT: u8 = 16;

/// The part of a reader's view that concerns the whole view. Little-endian, shared with
/// `shared/views/src/lua/codec.lua`: flags (1 byte: 1 building, 2 feed, 4 ranked, 8 watched, and 16 times the number of
/// recent entries), touched, deadline (6 bytes each, ms), token (8 bytes), newest (6 bytes, ms), epoch (4 bytes), then
/// the [entry](FeedKey::entry) `low`, if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReaderMeta {
    /// A rebuild is in progress. Counts and feed are not complete.
    pub building: bool,
    /// The view has a feed. If Redis has none, the feed was lost.
    pub feed: bool,
    /// The reader has a ranked feed, or had one that has expired.
    pub ranked: bool,
    /// The reader has a live connection, or had one that has expired.
    pub watched: bool,
    pub recent: u8,
    /// The time at which the lifetimes were last extended.
    pub touched: Timestamp,
    /// During a rebuild, when another process may take it over. Later, from when the last message to the reader's
    /// connections may be built.
    pub deadline: Timestamp,
    /// The owner of the rebuild.
    pub token: u64,
    /// No entry of the feed, and not `low`, is later. A later post is appended without a comparison.
    pub newest: Timestamp,
    /// The epoch in which the view was written. In another epoch the view counts as missing.
    pub epoch: [u8; EPOCH],
    /// The feed has this entry and every later one. `None` if the facts have no older ones.
    pub low: Option<FeedKey>,
}

/// A reader's view is damaged and has to be rebuilt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("damaged reader state: field {0}")]
pub struct DecodeReaderStateError(String);

/// The meta field, one [`AuthorState`] for each followed author, and the recent entries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReaderState {
    pub meta: ReaderMeta,
    /// Followed authors, without tombstones.
    pub authors: HashMap<UserId, AuthorState>,
    /// The newest entries of the feed, which are not in its list yet, oldest first.
    pub recent: Vec<FeedKey>,
}

impl ReaderMeta {
    /// Decodes the layout above; `None` if the bytes do not have it.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(META_HEADER)?;
        let (epoch, low) = rest.split_first_chunk::<EPOCH>()?;
        let number = |range: std::ops::Range<usize>| header[range].iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
        Some(Self {
            building: header[0] & BUILDING != 0,
            feed: header[0] & FEED != 0,
            ranked: header[0] & RANKED != 0,
            watched: header[0] & WATCHED != 0,
            recent: header[0] / RECENT,
            touched: Timestamp::from_ms(number(1..7)),
            deadline: Timestamp::from_ms(number(7..13)),
            token: number(13..21),
            newest: Timestamp::from_ms(number(21..27)),
            epoch: *epoch,
            low: if low.is_empty() { None } else { Some(FeedKey::from_entry(low)?) },
        })
    }
}

impl ReaderState {
    /// Decodes a whole hash; `None` if there is no meta field, and thus no view.
    pub fn decode(fields: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<Option<Self>, DecodeReaderStateError> {
        let (mut meta, mut authors, mut known) = (None, HashMap::new(), HashMap::new());
        for (field, value) in fields {
            let damaged = || DecodeReaderStateError(String::from_utf8_lossy(&field).into_owned());
            if field == META_FIELD.as_bytes() {
                meta = Some(ReaderMeta::decode(&value).ok_or_else(damaged)?);
                continue;
            }
            if let Some(name) = RECENT_FIELDS.iter().find(|name| field == name.as_bytes()) {
                known.insert(*name, FeedKey::from_entry(&value).ok_or_else(damaged)?);
                continue;
            }
            let author = std::str::from_utf8(&field).ok().and_then(|text| text.parse::<UserId>().ok()).ok_or_else(damaged)?;
            let state = AuthorState::decode(&value).ok_or_else(damaged)?;
            if state.live {
                authors.insert(author, state);
            }
        }
        let Some(meta): Option<ReaderMeta> = meta else { return Ok(None) };
        let recent = RECENT_FIELDS.iter().take(meta.recent.into());
        let recent = recent.map(|name| known.remove(name).ok_or_else(|| DecodeReaderStateError((*name).to_owned())));
        Ok(Some(Self { recent: recent.collect::<Result<_, _>>()?, meta, authors }))
    }

    /// Returns whether counts and feed are complete.
    pub fn is_complete(&self) -> bool {
        !self.meta.building && self.authors.values().all(|state| !state.opening)
    }

    /// Returns the followed authors whom the reader does not mute. Feeds and counts have only these.
    pub fn heard(&self) -> impl Iterator<Item = (UserId, &AuthorState)> {
        self.authors.iter().filter(|(_, state)| !state.muted).map(|(author, state)| (*author, state))
    }

    /// Returns the time of the newest post in feeds and counts, which may be deleted.
    pub fn newest_at(&self) -> Timestamp {
        self.heard().map(|(_, state)| state.newest_at).max().unwrap_or_default()
    }

    /// Returns the part of the state that concerns the authors on a list of the reader; the whole state if `None`.
    #[must_use]
    pub fn of_list(mut self, list: Option<u32>) -> Self {
        if let Some(list) = list {
            self.authors.retain(|_, state| state.lists.contains(&list));
        }
        self
    }

    /// Returns the number of unread posts of all authors who are not muted.
    pub fn unread_total(&self) -> u64 {
        self.heard().map(|(_, state)| state.unread()).sum()
    }

    /// Returns the number of unread posts of one author; zero if the reader does not follow the author, or mutes them.
    pub fn unread_of(&self, author: UserId) -> u64 {
        self.authors.get(&author).filter(|state| !state.muted).map_or(0, AuthorState::unread)
    }

    /// Returns whether the feed shows this entry: not below `low`, of an author who is followed and not muted.
    pub fn shows(&self, key: &FeedKey) -> bool {
        self.meta.low.is_none_or(|low| *key >= low)
            && self.authors.get(&key.post.author).is_some_and(|state| !state.muted && state.shows(key.post.seq))
    }

    /// Returns whether the state knows if the post is unread (see [`AuthorState::knows`]).
    pub fn knows(&self, post: PostId) -> bool {
        self.authors.get(&post.author).is_none_or(|state| state.knows(post.seq))
    }

    pub fn is_unread(&self, post: PostId) -> bool {
        self.authors.get(&post.author).is_some_and(|state| state.is_unread(post.seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta_bytes(low: &[u8]) -> Vec<u8> {
        let mut bytes = vec![3];
        for ms in [22_u64, 33] {
            bytes.extend_from_slice(&ms.to_le_bytes()[..6]);
        }
        bytes.extend_from_slice(&44_u64.to_le_bytes());
        bytes.extend_from_slice(&55_u64.to_le_bytes()[..6]);
        bytes.extend_from_slice(b"life");
        bytes.extend_from_slice(low);
        bytes
    }

    #[test]
    fn meta_decodes_its_layout() {
        let low = FeedKey { at: Timestamp::from_ms(11), post: "7-3".parse().unwrap() };
        let meta = ReaderMeta::decode(&meta_bytes(&low.entry())).unwrap();
        assert!(meta.building && meta.feed && !meta.ranked && !meta.watched);
        assert!(ReaderMeta::decode(&[&[8], &meta_bytes(&[])[1..]].concat()).unwrap().watched);
        assert_eq!((meta.touched.ms(), meta.deadline.ms(), meta.token, meta.newest.ms(), meta.low), (22, 33, 44, 55, Some(low)));
        assert_eq!(ReaderMeta::decode(&meta_bytes(&[])).unwrap().low, None);
        assert_eq!(ReaderMeta::decode(&meta_bytes(&[1])), None);
        assert_eq!(ReaderMeta::decode(b""), None);
    }

    #[test]
    fn a_hash_without_meta_is_not_a_view_and_a_damaged_field_is_an_error() {
        let field = |name: &str, value: Vec<u8>| (name.as_bytes().to_vec(), value);
        let good = AuthorState { live: true, through: 8, ..Default::default() }.encode();
        assert_eq!(ReaderState::decode([field("7", good.clone())]), Ok(None));
        let state =
            ReaderState::decode([field("@", meta_bytes(&[])), field("7", good), field("8", AuthorState::default().encode())])
                .unwrap()
                .unwrap();
        assert_eq!(state.authors.len(), 1, "a tombstone is not a followed author");
        assert_eq!((state.unread_total(), state.unread_of(UserId::new(7).unwrap())), (8, 8));
        assert!(ReaderState::decode([field("@", meta_bytes(&[])), field("7", vec![1, 2])]).is_err());
        assert!(ReaderState::decode([field("@", vec![1])]).is_err());
        assert!(ReaderState::decode([field("x", AuthorState::default().encode())]).is_err());
        let entry = |seq: u64| FeedKey { at: Timestamp::from_ms(seq), post: format!("7-{seq}").parse().unwrap() };
        let recent = |count: u8, fields: &[u64]| {
            let meta = [&[3 + 16 * count], &meta_bytes(&[])[1..]].concat();
            let fields = fields.iter().map(|seq| field(&format!("+{seq}"), entry(*seq).entry()));
            ReaderState::decode(fields.chain([field("@", meta)])).map(|state| state.unwrap().recent)
        };
        assert_eq!(recent(2, &[3, 2, 1]), Ok(vec![entry(1), entry(2)]), "the third is in the list");
        assert_eq!(recent(0, &[1]), Ok(Vec::new()));
        assert_eq!(recent(2, &[1, 3]), Err(DecodeReaderStateError("+2".to_owned())));
    }
}

//! Heads of platforms and read states, which a count reads in one round trip, and titles, which a page reads in one.

use std::{collections::HashMap, time::Duration};

use integer_encoding::VarInt;
use redis::{Cmd, Value};
use redis_link::{Consistency, Epoch};
use tidemark_domain::{Notice, NoticeId, NoticeReads, Platform, PlatformHead, SeqSet, Timestamp, UserId};

use super::{
    Result, keys,
    record::{self, VERSION, decode_set, encode_set, store, take_number},
};
use crate::connection::{Views, set};

/// A record in the views of notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeRecord {
    Head(Platform),
    Reads(UserId, Platform),
}

/// A record with its content.
#[derive(Debug, Clone, PartialEq)]
pub enum NoticeView {
    Head(Platform, PlatformHead),
    Reads(UserId, Platform, NoticeReads),
}

impl NoticeView {
    pub fn record(&self) -> NoticeRecord {
        match self {
            Self::Head(platform, _) => NoticeRecord::Head(*platform),
            Self::Reads(user, platform, _) => NoticeRecord::Reads(*user, *platform),
        }
    }
}

impl Views {
    pub async fn notice_head(&self, platform: Platform) -> Result<Option<PlatformHead>> {
        let [head, _] = keys::notice_record(NoticeRecord::Head(platform));
        let mut records: Vec<(Option<Vec<u8>>, Epoch)> = self.each_in_epoch("notice_head", vec![Cmd::get(head)]).await?;
        Ok(records.pop().and_then(|(record, epoch)| decode_head(epoch.current(&record?)?)))
    }

    /// Returns the head and the slots that the user has read, in one round trip; `None` for a missing one.
    pub async fn notice_state(&self, platform: Platform, user: UserId) -> Result<(Option<PlatformHead>, Option<SeqSet>)> {
        let [head, _] = keys::notice_record(NoticeRecord::Head(platform));
        let [reads, _] = keys::notice_record(NoticeRecord::Reads(user, platform));
        // Reads from the master, because the publisher of a notice, or a reader who has marked one, reads this next.
        let gets = [head, reads].map(Cmd::get);
        let mut records: Vec<(Option<Vec<u8>>, Epoch)> = self.each_in_epoch("notice_state", gets.into()).await?;
        let mut next = || records.pop().and_then(|(record, epoch)| Some(epoch.current(&record?)?.to_vec()));
        let (reads, head) = (next(), next());
        // A record that cannot be read or is of another epoch counts as unknown. The facts replace it.
        Ok((head.as_deref().and_then(decode_head), reads.as_deref().and_then(decode_reads)))
    }

    pub async fn lease_notices(&self, records: &[NoticeRecord], token: u64) -> Result<Vec<NoticeRecord>> {
        self.free_leases("lease_notices", records, keys::notice_record, token).await
    }

    pub async fn fill_notices(&self, views: &[NoticeView], token: u64) -> Result<()> {
        let store = |view: &NoticeView| {
            let (_, record, lifetime) = encode(view);
            store(keys::notice_record(view.record()), token, record, lifetime)
        };
        self.each::<Value>("fill_notices", views.iter().map(store).collect()).await.map(drop)
    }

    pub async fn replace_notices(&self, view: &NoticeView) -> Result<()> {
        let (version, record, lifetime) = encode(view);
        self.replace(keys::notice_record(view.record()), version, record, lifetime).await
    }

    /// Returns the known titles and times of these notices in these revisions.
    pub async fn notice_titles(&self, notices: &[(NoticeId, u64)]) -> Result<HashMap<NoticeId, (String, Timestamp)>> {
        let keys: Vec<String> = notices.iter().map(|&(id, revision)| keys::notice_title(id, revision)).collect();
        // The key of a title contains its revision, so a stale title is never used.
        let values = self.strings("notice_titles", &keys, Consistency::Eventual).await?;
        Ok(notices.iter().zip(values).filter_map(|(&(id, _), value)| Some((id, decode_title(&value?.0)?))).collect())
    }

    /// Returns the known texts of these notices in these revisions; the text is `None` if a notice has none.
    pub async fn notice_bodies(&self, notices: &[(NoticeId, u64)]) -> Result<HashMap<NoticeId, Option<String>>> {
        let keys: Vec<String> = notices.iter().map(|&(id, revision)| keys::notice_body(id, revision)).collect();
        let values = self.strings("notice_bodies", &keys, Consistency::Eventual).await?;
        Ok(notices.iter().zip(values).filter_map(|(&(id, _), value)| Some((id, decode_body(&value?.0)?))).collect())
    }

    /// Stores texts. The text of a revision never changes.
    pub async fn remember_notice_bodies(&self, notices: &[Notice]) -> Result<()> {
        let set = |notice: &Notice| {
            let value = encode_body(notice.content.body.as_deref());
            set(&keys::notice_body(notice.id, notice.revision), value, keys::POST_LIFETIME)
        };
        self.each::<Value>("remember_notice_bodies", notices.iter().map(set).collect()).await.map(drop)
    }

    /// Stores titles. The title of a revision never changes.
    pub async fn remember_titles(&self, notices: &[Notice]) -> Result<()> {
        let set = |notice: &Notice| {
            let value = [&notice.created_at.ms().to_be_bytes()[2..], notice.content.title.as_bytes()].concat();
            set(&keys::notice_title(notice.id, notice.revision), value, keys::POST_LIFETIME)
        };
        self.each::<Value>("remember_titles", notices.iter().map(set).collect()).await.map(drop)
    }
}

/// Version, record and lifetime of a view.
fn encode(view: &NoticeView) -> (u64, Vec<u8>, Duration) {
    let (version, rest, lifetime) = match view {
        NoticeView::Head(_, head) => (head.version, encode_head(head), keys::HEAD_LIFETIME),
        NoticeView::Reads(_, _, reads) => (reads.version, encode_set(&reads.read), keys::NOTICE_READS_LIFETIME),
    };
    (version, [record::start(version), rest].concat(), lifetime)
}

fn encode_head(head: &PlatformHead) -> Vec<u8> {
    let numbers = [head.latest_seq, head.latest_slot, head.latest_at.ms()];
    let mut bytes: Vec<u8> = numbers.into_iter().flat_map(VarInt::encode_var_vec).collect();
    bytes.extend(head.encode_live());
    bytes
}

pub fn decode_head(record: &[u8]) -> Option<PlatformHead> {
    let (version, mut rest) = record::version(record)?;
    let mut next = || take_number(&mut rest);
    let (latest_seq, latest_slot, latest_at) = (next()?, next()?, Timestamp::from_ms(next()?));
    PlatformHead { version, latest_seq, latest_slot, latest_at, live: Vec::new() }.with_live(rest)
}

pub fn decode_reads(record: &[u8]) -> Option<SeqSet> {
    decode_set(record.get(VERSION..)?)
}

pub fn decode_title(value: &[u8]) -> Option<(String, Timestamp)> {
    let (at, title) = value.split_first_chunk::<6>()?;
    let at = Timestamp::from_ms(at.iter().fold(0, |at, &byte| at << 8 | u64::from(byte)));
    Some((String::from_utf8(title.to_vec()).ok()?, at))
}

/// 1 and the text; 0 alone for no text.
fn encode_body(body: Option<&str>) -> Vec<u8> {
    let text = body.map(|body| [&[1], body.as_bytes()].concat());
    text.unwrap_or_else(|| vec![0])
}

pub fn decode_body(value: &[u8]) -> Option<Option<String>> {
    match value {
        [0] => Some(None),
        [1, text @ ..] => Some(Some(String::from_utf8(text.to_vec()).ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_round_trip_and_damaged_heads_are_unknown() {
        let mut head = PlatformHead::default();
        for index in 0..300 {
            let expires_at = (index % 3 == 0).then(|| Timestamp::from_ms(1_900_000_000_000 + index));
            head.publish(Timestamp::from_ms(1_700_000_000_000 + index), expires_at).unwrap();
        }
        head.edit(&[7], None, true, Timestamp::from_ms(0)).unwrap();
        let record = [&head.version.to_le_bytes()[..VERSION], &encode_head(&head)].concat();
        assert!(record.len() < 3_200, "{} bytes", record.len());
        assert_eq!(decode_head(&record), Some(head));
        assert_eq!(decode_head(&record[..record.len() - 1]), None);
        assert_eq!(decode_head(&record[..9]), None);
        assert_eq!(decode_head(b""), None);
    }
    #[test]
    fn texts_round_trip_and_damaged_texts_are_unknown() {
        for body in [None, Some(""), Some("zoë")] {
            assert_eq!(decode_body(&encode_body(body)), Some(body.map(str::to_owned)));
        }
        assert_eq!([&b""[..], b"\x00x", b"\x01\xff", b"text"].map(decode_body), [None, None, None, None]);
    }
}

//! The records of posts in Redis: summaries, texts and reaction counts.

use integer_encoding::VarInt;
use tidemark_domain::{
    CountsVersion, FeedKey, PostId, PostSummary, PostText, Rank, ReactionCounts, Reference, Step, Timestamp, UserId,
};

use super::record;

/// Flags in the first byte of a summary: the post is deleted, and then nothing else; it was edited; it has a weight, or
/// a step that ever changed; it is a repost, or a quote. Six bytes of time (ms, big-endian) follow; the revision of an
/// edited post (4 bytes); weight, step and the number of its changes (1, 1, 4 bytes) of a ranked one; author and number
/// of the original (8 bytes each); and the title in UTF-8, which a repost does not have. Numbers are little-endian. The
/// script `remember` reads it too.
const DELETED: u8 = 1;
const EDITED: u8 = 2;
const RANKED: u8 = 4;
const REPOST: u8 = 8;
const QUOTE: u8 = 16;

pub(crate) fn encode(post: &PostSummary) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend_from_slice(&post.created_at.ms().to_be_bytes()[2..]);
    if post.deleted {
        bytes[0] = DELETED;
        return bytes;
    }
    if post.revision > 1 {
        bytes[0] |= EDITED;
        bytes.extend_from_slice(&post.revision.to_le_bytes());
    }
    if post.rank != Rank::default() {
        bytes[0] |= RANKED;
        let Rank { weight, step } = post.rank;
        bytes.extend_from_slice(&weight.to_le_bytes());
        bytes.push(step.level);
        bytes.extend_from_slice(&step.changes.to_le_bytes());
    }
    if let Some(of) = post.of {
        bytes[0] |= if of.reposted().is_some() { REPOST } else { QUOTE };
        let PostId { author, seq } = of.original();
        bytes.extend([author.get(), seq].iter().flat_map(|number| number.to_le_bytes()));
    }
    bytes.extend_from_slice(post.title.as_bytes());
    bytes
}

pub fn decode(id: PostId, bytes: &[u8]) -> Option<PostSummary> {
    let (&flags, rest) = bytes.split_first()?;
    let (at, mut rest) = rest.split_first_chunk::<6>()?;
    let at = Timestamp::from_ms(at.iter().fold(0, |at, &byte| at << 8 | u64::from(byte)));
    if flags == DELETED {
        return rest.is_empty().then(|| PostSummary::tombstone(FeedKey { at, post: id }));
    }
    if flags & !(EDITED | RANKED | REPOST | QUOTE) != 0 {
        return None;
    }
    let is = |flag| flags & flag != 0;
    let revision = if is(EDITED) { u32::from_le_bytes(take(&mut rest)?) } else { 1 };
    let rank = if is(RANKED) {
        let [weight, level] = take(&mut rest)?;
        let step = Step { level, changes: u32::from_le_bytes(take(&mut rest)?) };
        Rank { weight: i8::from_le_bytes([weight]), step }
    } else {
        Rank::default()
    };
    let mut original = || {
        let author = UserId::new(u64::from_le_bytes(take(&mut rest)?))?;
        Some(PostId::new(author, u64::from_le_bytes(take(&mut rest)?)))
    };
    let of = match (is(REPOST), is(QUOTE)) {
        (true, true) => return None,
        (true, false) => Some(Reference::Repost(original()?)),
        (false, true) => Some(Reference::Quote(original()?)),
        (false, false) => None,
    };
    let title = String::from_utf8(rest.to_vec()).ok()?;
    // Only a repost has no title.
    (title.is_empty() == is(REPOST)).then_some(PostSummary { id, title, of, created_at: at, revision, rank, deleted: false })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

/// The revision, the length of the body plus one (0 if it is absent), the body, and the data (empty if absent).
pub(crate) fn encode_text(revision: u32, text: &PostText) -> Vec<u8> {
    let mut bytes = revision.to_le_bytes().to_vec();
    let body = text.body.as_deref();
    bytes.extend(body.map_or(0, |body| body.len() + 1).encode_var_vec());
    bytes.extend_from_slice(body.unwrap_or_default().as_bytes());
    bytes.extend_from_slice(text.data.as_deref().unwrap_or_default().as_bytes());
    bytes
}

/// Returns `None` if the text is of another revision, or cannot be read.
pub(crate) fn decode_text(revision: u32, bytes: &[u8]) -> Option<PostText> {
    decode_any_text(bytes).filter(|(known, _)| *known == revision).map(|(_, text)| text)
}

pub fn decode_any_text(bytes: &[u8]) -> Option<(u32, PostText)> {
    let (revision, rest) = bytes.split_first_chunk()?;
    let (length, at) = usize::decode_var(rest)?;
    let (body, data) = rest[at..].split_at_checked(length.saturating_sub(1))?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let (body, data) = (text(body)?, text(data)?);
    let text = PostText { body: (length > 0).then_some(body), data: Some(data).filter(|data| !data.is_empty()) };
    Some((u32::from_le_bytes(*revision), text))
}

pub(crate) fn encode_counts(CountsVersion { version, counts }: CountsVersion) -> Vec<u8> {
    let ReactionCounts { likes, favorites, reposts, comments } = counts;
    let mut record = record::start(version);
    record.extend([likes, favorites, reposts, comments].into_iter().flat_map(VarInt::encode_var_vec));
    record
}

pub fn decode_counts(bytes: &[u8]) -> Option<CountsVersion> {
    let (version, mut rest) = record::version(bytes)?;
    let mut next = || {
        let (count, length) = u64::decode_var(rest)?;
        rest = &rest[length..];
        Some(count)
    };
    let counts = ReactionCounts { likes: next()?, favorites: next()?, reposts: next()?, comments: next()? };
    Some(CountsVersion { version, counts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_round_trip_and_damaged_summaries_are_unknown() {
        let id: PostId = "7-3".parse().unwrap();
        let (none, step) = (Rank::default(), Step { level: 17, changes: 70_000 });
        let ranked = Rank { weight: -100, step };
        let (post, created_at) = ("8-4".parse().unwrap(), Timestamp::from_ms(1_700_000_000_123));
        let (repost, quote) = (Some(Reference::Repost(post)), Some(Reference::Quote(post)));
        for (title, of, revision, rank) in [
            ("Grüße", None, 1, none),
            ("Grüße", None, 70_000, none),
            ("Grüße", None, 1, ranked),
            ("", repost, 1, none),
            ("Grüße", quote, 70_000, ranked),
        ] {
            let post = PostSummary { id, title: title.to_owned(), of, created_at, revision, rank, deleted: false };
            assert_eq!(decode(id, &encode(&post)), Some(post));
        }
        let tombstone = PostSummary::tombstone(FeedKey { at: created_at, post: id });
        assert_eq!(decode(id, &encode(&tombstone)), Some(tombstone));
        for damaged in [
            &b""[..],
            b"\x00abc",
            b"\x00abcdef",
            b"\x01abcdefg",
            b"\x02abcdefg",
            b"\x03abcdefghijklmnopq",
            b"\x04abcdefghijk",
            b"\x08abcdef01234567",
            b"\x08abcdef\0\0\0\0\0\0\0\x0001234567",
            b"\x08abcdef0123456701234567title",
            b"\x10abcdef0123456701234567",
            b"\x18abcdef0123456701234567title",
            b"\x20abcdefghijk",
            b"\x00abcdef\xff",
        ] {
            assert_eq!(decode(id, damaged), None, "{damaged:?}");
        }
    }

    #[test]
    fn texts_round_trip_and_count_only_in_their_revision() {
        for (body, data) in [(None, None), (Some(""), None), (Some("Grüße"), Some("{}")), (None, Some("{\"a\":1}"))] {
            let text = PostText { body: body.map(str::to_owned), data: data.map(str::to_owned) };
            let bytes = encode_text(7, &text);
            assert_eq!(decode_text(7, &bytes), Some(text));
            assert_eq!(decode_text(8, &bytes), None);
        }
        for damaged in [&b""[..], b"\x07\0\0\0", b"\x07\0\0\0\x09abc", b"\x07\0\0\0\x02\xff"] {
            assert_eq!(decode_text(7, damaged), None);
        }
    }
}

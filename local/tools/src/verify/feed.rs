//! Reads all pages of a list.

use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::model::{Item, Post, PostId};
use crate::api::{Api, Call};

const MOST_PAGES: usize = 2_000;
/// The number of times that a feed is read again while it is being rebuilt.
const REBUILD_POLLS: u32 = 600;
const REBUILD_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Default)]
pub struct Walk {
    /// All items in the order of the pages.
    pub items: Vec<Item>,
    /// The counter (`unread_total` of a feed, `total` of a timeline) of each page.
    pub totals: Vec<u64>,
}

/// Parses a time of the API (`2026-11-20T08:00:00.123Z`) to milliseconds since 1970.
pub fn millis(text: &str) -> anyhow::Result<i64> {
    if text.len() != 24 || !text.ends_with('Z') {
        bail!("{text:?} is not an RFC 3339 UTC time with milliseconds");
    }
    let time = OffsetDateTime::parse(text, &Rfc3339).with_context(|| format!("{text:?} is not a time"))?;
    Ok((time.unix_timestamp_nanos() / 1_000_000) as i64)
}

/// A 64-bit number that the API sends as a number or as a decimal string.
pub fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

impl Post {
    /// Parses an item of a page, or the response of `POST /v1/posts`. Author and seq must agree with the id.
    pub(super) fn parse(value: &Value) -> anyhow::Result<Self> {
        let text = |name: &str| value[name].as_str().with_context(|| format!("a post without {name}: {value}"));
        let id: PostId = text("id")?.parse().map_err(anyhow::Error::msg)?;
        if text("author")? != id.author.to_string() || number(&value["seq"]) != Some(id.seq) {
            bail!("author and seq do not agree with the id: {value}");
        }
        let created_at = text("created_at")?.to_owned();
        Ok(Self { id, title: text("title")?.to_owned(), at: millis(&created_at)?, created_at })
    }
}

impl Item {
    fn parse(value: &Value) -> anyhow::Result<Self> {
        let flag = |name: &str| value[name].as_bool().with_context(|| format!("an item without {name}: {value}"));
        flag("liked")?;
        flag("favorited")?;
        Ok(Self { post: Post::parse(value)?.into(), read: flag("read")? })
    }
}

/// Reads `path` (with its query, without `limit` and `cursor`) to the end, in pages of `limit`. While the feed is
/// being rebuilt, starts again from the first page.
pub async fn walk(api: &Api, caller: u64, path: &str, limit: u32) -> anyhow::Result<Walk> {
    match pages(api, caller, path, limit, MOST_PAGES).await? {
        (walk, true) => Ok(walk),
        (_, false) => bail!("GET {path} by {caller} does not end after {MOST_PAGES} pages"),
    }
}

/// Reads the first page under the rules of [`walk`].
pub async fn first_page(api: &Api, caller: u64, path: &str, limit: u32) -> anyhow::Result<Walk> {
    Ok(pages(api, caller, path, limit, 1).await?.0)
}

/// Reads at most `most` pages. Also returns true if the last one was the end.
async fn pages(api: &Api, caller: u64, path: &str, limit: u32, most: usize) -> anyhow::Result<(Walk, bool)> {
    let mark = if path.contains('?') { '&' } else { '?' };
    'again: for _ in 0..REBUILD_POLLS {
        let (mut walk, mut after) = (Walk::default(), String::new());
        for _ in 0..most {
            let page = api.fetch(Call::get(format!("{path}{mark}limit={limit}{after}")).caller(caller), 200).await?;
            if page["rebuilding"] == true {
                tokio::time::sleep(REBUILD_PAUSE).await;
                continue 'again;
            }
            let items = page["items"].as_array().with_context(|| format!("GET {path} has no items"))?;
            if items.len() > limit as usize {
                bail!("GET {path} by {caller}: a page of {} with limit {limit}", items.len());
            }
            for item in items {
                walk.items.push(Item::parse(item)?);
            }
            walk.totals.extend(number(&page["unread_total"]).or_else(|| number(&page["total"])));
            match &page["next_cursor"] {
                Value::Null => return Ok((walk, true)),
                Value::String(next) => after = format!("&cursor={}", escaped(next)),
                other => bail!("GET {path}: next_cursor is {other}"),
            }
        }
        return Ok((walk, false));
    }
    bail!("GET {path} by {caller} says \"rebuilding\" for {} s", (REBUILD_PAUSE * REBUILD_POLLS).as_secs())
}

/// Percent-encodes a cursor, because it is opaque and may have characters that are reserved in a URL.
pub fn escaped(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_item_must_agree_with_its_id() {
        let good = json!({"id": "7-3", "author": "7", "seq": 3, "title": "t", "created_at": "1970-01-01T00:00:01.005Z",
            "read": true, "liked": false, "favorited": false});
        let Item { post, read } = Item::parse(&good).unwrap();
        assert_eq!((post.id, post.at, read), (PostId { author: 7, seq: 3 }, 1_005, true));
        for (field, value) in [("author", json!("8")), ("seq", json!(4)), ("created_at", json!("now")), ("read", json!(null))] {
            let mut bad = good.clone();
            bad[field] = value;
            assert!(Item::parse(&bad).is_err(), "{field}");
        }
    }

    #[test]
    fn times_carry_milliseconds_and_utc() {
        assert_eq!(millis("1970-01-01T00:00:00.123Z").unwrap(), 123);
        for bad in ["1970-01-01T00:00:00Z", "1970-01-01T00:00:00.123456Z", "1970-01-01T00:00:00+00:00", ""] {
            assert!(millis(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn cursors_are_opaque() {
        assert_eq!(escaped("a+b/c=&"), "a%2Bb%2Fc%3D%26");
    }
}

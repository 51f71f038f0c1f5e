//! `GET /v1/feed`: one page of the caller's feed.

use serde_json::json;
use tidemark::{
    App,
    domain::Cursor,
    http::{Answer, Page, Problem, Request},
    reader::Origin,
};

pub(crate) async fn page(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let status = crate::status(request)?;
    let page = Page::of(request)?;
    let before = page.position(|cursor| match cursor {
        Cursor::Feed(key) => Some(key),
        Cursor::Author(_) | Cursor::Relation(_) | Cursor::Notice(_) => None,
    })?;
    let feed = app.readers.feed_page(caller, status, before, page.limit).await?;
    let items = feed.items.iter().map(crate::item).collect();
    let mut others = json!({ "unread_total": feed.unread_total });
    if feed.origin == Origin::Rebuilding {
        others["rebuilding"] = json!(true);
    }
    let answer = Page::answer(request, items, feed.next.map(Cursor::Feed), others);
    let answer = if before.is_none() { answer.tagged() } else { answer };
    Ok(answer.degraded(feed.origin == Origin::Degraded))
}

//! `GET /v1/feed`: one page of the caller's feed.

use tidemark::{
    App,
    domain::Cursor,
    http::{Answer, Page, Problem, Request, bodies::FeedPage},
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
    let items = feed.items.into_iter().map(crate::item).collect();
    let (unread_total, rebuilding) = (feed.unread_total, feed.origin == Origin::Rebuilding);
    let next = feed.next.map(Cursor::Feed);
    let answer = Page::answer(request, next, |next_cursor| FeedPage { items, next_cursor, unread_total, rebuilding });
    let answer = if before.is_none() { answer.tagged() } else { answer };
    Ok(answer.degraded(feed.origin == Origin::Degraded))
}

//! `GET /v1/feed`: one page of the caller's feed.

use tidemark::{
    App,
    domain::{Cursor, FeedKey, PostId, RankedPlace, Score, Timestamp, UserId},
    http::{
        Page, Problem, Request, Response,
        bodies::{FeedPage, FirstCursor},
    },
    ports::PageParts,
    reader::{self, FeedItem, FeedQuery, Origin},
};

pub(crate) async fn page(app: &App, request: &Request) -> Result<Response, Problem> {
    match request.query("order") {
        None | Some("time") => by_time(app, request).await,
        Some("ranked") => ranked(app, request).await,
        Some(_) => Err(Problem::invalid("order", "must be time or ranked")),
    }
}

async fn by_time(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let page = Page::of(request)?;
    let of_feed = |cursor| if let Cursor::Feed(key) = cursor { Some(key) } else { None };
    let (before, since) = (page.position(of_feed)?, page.end(of_feed)?);
    let (status, parts) = (crate::status(request)?, crate::parts(request)?);
    let list = crate::list(app, request).await?;
    let feed = app.readers.feed_page(caller, FeedQuery { list, status, before, limit: page.limit, since, parts }).await?;
    let first = before.is_none().then(|| feed.items.first().map_or_else(|| since.unwrap_or_else(oldest), |item| item.post.key()));
    let first_cursor = first.map(Cursor::Feed).map(Page::first);
    rendered(app, request, parts, feed, Cursor::Feed, first_cursor).await
}

async fn ranked(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let page = Page::of(request)?;
    let of_feed = |cursor| if let Cursor::Ranked(place) = cursor { Some(place) } else { None };
    let (below, since) = (page.position(of_feed)?, page.end(of_feed)?);
    let (status, parts) = (crate::status(request)?, crate::parts(request)?);
    let list = crate::list(app, request).await?;
    let query = FeedQuery { list, status, before: below, limit: page.limit, since, parts };
    let feed = app.readers.ranked_page(caller, query).await?;
    let place = |item: &FeedItem| Some(RankedPlace { since: 0, score: item.score?, key: item.post.key() });
    let lowest = RankedPlace { since: 0, score: Score::MIN, key: oldest() };
    let first = below.is_none().then(|| feed.items.first().and_then(place).or(since).unwrap_or(lowest));
    let first_cursor = first.map(Cursor::Ranked).map(Page::first);
    rendered(app, request, parts, feed, Cursor::Ranked, first_cursor).await
}

async fn rendered<Place>(
    app: &App,
    request: &Request,
    parts: PageParts,
    feed: reader::FeedPage<Place>,
    cursor: impl FnOnce(Place) -> Cursor,
    first_cursor: Option<FirstCursor>,
) -> Result<Response, Problem> {
    let shown = crate::shown(app, feed.items, feed.bodies, feed.cards, parts).await?;
    let response = Page::response(request, feed.next.map(cursor), |next_cursor| FeedPage {
        items: shown.items,
        next_cursor,
        first_cursor,
        profiles: shown.profiles,
        unread_total: feed.unread_total,
        rebuilding: feed.origin == Origin::Rebuilding,
    });
    let response = if request.query("cursor").is_none() { response.tagged() } else { response };
    Ok(response.degraded(feed.origin == Origin::Degraded || shown.degraded))
}

/// Returns a place below every entry.
fn oldest() -> FeedKey {
    FeedKey { at: Timestamp::default(), post: PostId::new(UserId::MIN, 0) }
}

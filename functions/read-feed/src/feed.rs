//! `GET /v1/feed`: one page of the caller's feed.

use tidemark::{
    App,
    domain::{Cursor, Since, Trail},
    http::{Page, Problem, Request, Response, bodies::FeedPage},
    reader::{self, FeedQuery, Origin},
    views::PageParts,
};

pub(crate) async fn page(app: &App, request: &Request) -> Result<Response, Problem> {
    match request.query("order") {
        None | Some("time") => by_time(app, request).await,
        Some("ranked") => ranked(app, request).await,
        Some("oldest") => oldest_first(app, request).await,
        Some(_) => Err(Problem::invalid("order", "must be time, ranked or oldest")),
    }
}

async fn by_time(app: &App, request: &Request) -> Result<Response, Problem> {
    let page = Page::of(request)?;
    let before = page.position(|cursor| if let Cursor::Feed(key, trail) = cursor { Some((key, trail)) } else { None })?;
    let query = query(app, request, page.limit, before, since(&page)?).await?;
    let parts = query.parts;
    let feed = app.readers.feed_page(request.caller()?, query).await?;
    rendered(app, request, parts, feed, |(key, trail)| Cursor::Feed(key, trail)).await
}

async fn ranked(app: &App, request: &Request) -> Result<Response, Problem> {
    let page = Page::of(request)?;
    let before = page.position(|cursor| if let Cursor::Ranked(place, trail) = cursor { Some((place, trail)) } else { None })?;
    let query = query(app, request, page.limit, before, since(&page)?).await?;
    let parts = query.parts;
    let feed = app.readers.ranked_page(request.caller()?, query).await?;
    rendered(app, request, parts, feed, |(place, trail)| Cursor::Ranked(place, trail)).await
}

async fn oldest_first(app: &App, request: &Request) -> Result<Response, Problem> {
    let page = Page::of(request)?;
    if page.since.is_some() {
        return Err(Problem::invalid("since", "cannot be combined with order=oldest"));
    }
    let walked = page.position(|cursor| if let Cursor::Oldest(walked) = cursor { Some(walked) } else { None })?;
    let query = query(app, request, page.limit, None, walked).await?;
    let parts = query.parts;
    let feed = app.readers.oldest_page(request.caller()?, query).await?;
    rendered(app, request, parts, feed, Cursor::Oldest).await
}

fn since(page: &Page) -> Result<Option<Since>, Problem> {
    page.end(|cursor| if let Cursor::Since(since) = cursor { Some(since) } else { None })
}

async fn query<Place>(
    app: &App,
    request: &Request,
    limit: usize,
    before: Option<(Place, Trail)>,
    since: Option<Since>,
) -> Result<FeedQuery<Place>, Problem> {
    let (status, own, parts) = (request.status()?, request.flag("own", false)?, crate::parts(request)?);
    let list = crate::list(app, request).await?;
    Ok(FeedQuery { list, status, own, before, limit, since, parts })
}

async fn rendered<Next>(
    app: &App,
    request: &Request,
    parts: PageParts,
    feed: reader::FeedPage<Next>,
    cursor: impl FnOnce(Next) -> Cursor,
) -> Result<Response, Problem> {
    let shown = crate::shown(app, request.viewer()?, feed.items, feed.bodies, feed.cards, parts).await?;
    let response = Page::response(request, feed.next.map(cursor), |next_cursor| FeedPage {
        items: shown.items,
        next_cursor,
        first_cursor: feed.first.map(|since| Page::first(&Cursor::Since(since))),
        profiles: shown.profiles,
        unread_total: feed.unread_total,
        rebuilding: feed.origin == Origin::Rebuilding,
    });
    let response = if request.query("cursor").is_none() { response.tagged() } else { response };
    Ok(response.degraded(feed.origin == Origin::Degraded || shown.degraded))
}

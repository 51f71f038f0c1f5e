//! `GET /v1/inbox` and `GET /v1/inbox/unread`.

use tidemark::{
    App,
    domain::{Cursor, UserId},
    http::{
        Page, Problem, Request, Response,
        bodies::{InboxGroup, InboxPage, InboxUnread},
    },
};

pub(crate) async fn page(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let (page, status, profiles) = (Page::of(request)?, request.status()?, request.wants_profiles()?);
    let below = page.position(|cursor| if let Cursor::Group(place) = cursor { Some(place) } else { None })?;
    let found = app.inboxes.page(caller, status, below, page.limit).await?;
    let users: Vec<UserId> = found.items.iter().flat_map(|group| group.acts.users.iter().copied()).collect();
    let (profiles, without_views) = app.profiles(profiles, &users, None).await?;
    let items = found.items.into_iter().map(|group| InboxGroup::of(caller, group)).collect();
    let (next, unread_total) = (found.next.map(Cursor::Group), found.unread);
    let response = Page::response(request, next, |next_cursor| InboxPage { items, next_cursor, profiles, unread_total });
    Ok(response.degraded(without_views))
}

pub(crate) async fn unread(app: &App, request: &Request) -> Result<Response, Problem> {
    let unread = app.inboxes.unread(request.caller()?).await?;
    Ok(Response::json(200, &InboxUnread { unread }).tagged())
}

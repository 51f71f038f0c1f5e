//! `/v1/follow-requests…`.

use tidemark::{
    App,
    domain::{Cursor, RequestSide, UserId},
    facts::Followed,
    http::{
        Page, Problem, Request, Response,
        bodies::{Accepted, FollowRequestPage, RelationEntry},
    },
};

use crate::edges::following_limit;

/// `GET /v1/follow-requests`.
pub(crate) async fn page(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let page = Page::of(request)?;
    let (side, profiles) = (side(request)?, request.wants_profiles()?);
    // One more than requested shows whether there is a next page.
    let (mut found, total) = app.following.requests(caller, side, page.below_relation()?, page.limit + 1).await?;
    let next = page.cut(&mut found).map(Cursor::Relation);
    let items: Vec<RelationEntry> = found.into_iter().map(RelationEntry::from).collect();
    let (profiles, without_views) = app.profiles(profiles, &items, None).await?;
    let response = Page::response(request, next, |next_cursor| FollowRequestPage { items, next_cursor, total, profiles });
    Ok(response.degraded(without_views))
}

/// `PUT /v1/follow-requests/{user}`.
pub(crate) async fn accept(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let user: UserId = request.parameter("user")?;
    match app.following.accept(caller, user).await? {
        Followed::Created(_) | Followed::Existing(_) => Ok(Response::json(200, &Accepted { accepted: true })),
        Followed::LimitReached => Err(following_limit(app)),
        // A block or an erasure has ended the request.
        Followed::Requested(_) | Followed::NoRequest | Followed::RequestLimitReached | Followed::Blocked | Followed::Erased => {
            Err(Problem::not_found(format!("no follow request of {user}")))
        }
    }
}

/// `DELETE /v1/follow-requests/{user}`.
pub(crate) async fn reject(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    app.following.reject(caller, request.parameter("user")?).await?;
    Ok(Response::json(200, &Accepted { accepted: false }))
}

fn side(request: &Request) -> Result<RequestSide, Problem> {
    match request.query("direction") {
        None | Some("received") => Ok(RequestSide::Received),
        Some("sent") => Ok(RequestSide::Sent),
        Some(_) => Err(Problem::invalid("direction", "must be received or sent")),
    }
}

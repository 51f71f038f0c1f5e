//! `GET /v1/users/{user}/following` and `/followers`.

use tidemark::{
    App,
    domain::{Cursor, UserId, ids::parse_decimal},
    http::{
        Answer, Page, Problem, Request,
        bodies::{RelationEntry, RelationPage},
    },
    ports::{List, Start},
};

/// The largest `?offset=`.
const MAX_OFFSET: u64 = 10_000;

/// Returns one page of a list, newest first.
pub(crate) async fn page(app: &App, request: &Request, list: impl FnOnce(UserId) -> List) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let user = request.user_parameter("user")?;
    let page = Page::of(request)?;
    let below = page.position(|cursor| match cursor {
        Cursor::Relation(relation) => Some(relation),
        Cursor::Feed(_) | Cursor::Author(_) | Cursor::Notice(_) => None,
    })?;
    let start = match (offset(request)?, below) {
        (Some(_), Some(_)) => return Err(Problem::invalid("offset", "does not go with a cursor")),
        (Some(offset), None) => Start::Offset(offset),
        (None, below) => Start::Below(below),
    };
    let found = app.relations.page(caller, list(user), start, page.limit).await?;
    let items = found.items.iter().map(|relation| RelationEntry { user: relation.user, since: relation.since }).collect();
    let next = found.next.map(Cursor::Relation);
    let answer = Page::answer(request, next, |next_cursor| RelationPage { items, next_cursor });
    Ok(answer.degraded(found.degraded))
}

fn offset(request: &Request) -> Result<Option<usize>, Problem> {
    let Some(text) = request.query("offset") else { return Ok(None) };
    let offset = parse_decimal(text).filter(|offset| *offset <= MAX_OFFSET).and_then(|offset| usize::try_from(offset).ok());
    offset.map(Some).ok_or_else(|| Problem::invalid("offset", format!("must be 0 to {MAX_OFFSET}")))
}

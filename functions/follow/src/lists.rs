//! `GET /v1/users/{user}/following` and `/followers`; `GET /v1/mutes` and `/v1/blocks`.

use tidemark::{
    App, Hiding,
    domain::{Cursor, Relation, UserId, ids::parse_decimal},
    http::{
        Page, Problem, Request, Response,
        bodies::{RelationEntry, RelationPage},
    },
    views::{List, Start},
};

/// The largest `?offset=`.
const MAX_OFFSET: u64 = 10_000;

/// Returns one page of a list, newest first.
pub(crate) async fn page(app: &App, request: &Request, list: impl FnOnce(UserId) -> List) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let user: UserId = request.parameter("user")?;
    let page = Page::of(request)?;
    let start = match (offset(request)?, page.below_relation()?) {
        (Some(_), Some(_)) => return Err(Problem::invalid("offset", "does not go with a cursor")),
        (Some(offset), None) => Start::Offset(offset),
        (None, below) => Start::Below(below),
    };
    let (profiles, with_relation) = (request.wants_profiles()?, request.flag("relation", false)?);
    let list = list(user);
    let followed_only = request.flag(if matches!(list, List::Following(_)) { "common" } else { "known" }, false)?;
    let found = match followed_only {
        true => app.relations.page_of_followed(caller, list, start, page.limit).await?,
        false => app.relations.page(caller, list, start, page.limit).await?,
    };
    let users: Vec<UserId> = found.items.iter().map(|relation| relation.user).collect();
    // Preferences are private: only the caller's own list shows them.
    let preferences = match list {
        List::Following(user) if user == caller => Some(app.following.preferences(caller, &users).await?),
        List::Following(_) | List::Followers(_) => None,
    };
    let relations = match with_relation {
        true => Some(app.relations.relations_to(caller, &users).await?),
        false => None,
    };
    let entry = |relation: &Relation| RelationEntry {
        preference: preferences.as_ref().map(|of| of.get(&relation.user).copied().unwrap_or_default()),
        relation: relations.as_ref().map(|of| of.get(&relation.user).cloned().unwrap_or_default().into()),
        ..RelationEntry::from(*relation)
    };
    let items = found.items.iter().map(entry).collect();
    Ok(rendered(app, request, items, found.next, profiles).await?.degraded(found.degraded))
}

/// `GET /v1/mutes` and `GET /v1/blocks`.
pub(crate) async fn hidden(app: &App, request: &Request, hiding: Hiding) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let page = Page::of(request)?;
    let hidden = app.following.hidden(caller, hiding, page.below_relation()?).await?;
    listed(app, request, &page, hidden).await
}

/// Renders the first entries of a list that was read as a whole.
pub(crate) async fn listed(app: &App, request: &Request, page: &Page, mut items: Vec<Relation>) -> Result<Response, Problem> {
    let profiles = request.wants_profiles()?;
    let next = page.cut(&mut items);
    rendered(app, request, items.into_iter().map(RelationEntry::from).collect(), next, profiles).await
}

async fn rendered(
    app: &App,
    request: &Request,
    items: Vec<RelationEntry>,
    next: Option<Relation>,
    profiles: bool,
) -> Result<Response, Problem> {
    let (profiles, without_views) = app.profiles(profiles, &items, None).await?;
    let next = next.map(Cursor::Relation);
    let response = Page::response(request, next, |next_cursor| RelationPage { items, next_cursor, profiles });
    Ok(response.degraded(without_views))
}

fn offset(request: &Request) -> Result<Option<usize>, Problem> {
    let Some(text) = request.query("offset") else { return Ok(None) };
    let offset = parse_decimal(text).filter(|offset| *offset <= MAX_OFFSET).and_then(|offset| usize::try_from(offset).ok());
    offset.map(Some).ok_or_else(|| Problem::invalid("offset", format!("must be 0 to {MAX_OFFSET}")))
}

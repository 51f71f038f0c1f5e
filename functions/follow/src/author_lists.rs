//! `/v1/lists…`.

use tidemark::{
    App, Membership,
    domain::{Cursor, ListId, UserId, author_lists::MOST_LISTS},
    http::{
        Kind, Page, Problem, Request, Response,
        bodies::{AuthorList, AuthorLists, MakeListRequest, Member},
    },
    once::Once,
};

use crate::lists;

/// `POST /v1/lists`.
pub(crate) async fn make(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let (MakeListRequest { name }, key) = request.keyed_body()?;
    match app.following.make_list(caller, &name, key.as_ref()).await? {
        Once::Done(Some(number)) => Ok(Response::json(201, &rendered(caller, number, name))),
        Once::Done(None) => Err(Problem::new(Kind::ListLimit, format!("a user can have at most {MOST_LISTS} lists"))),
        Once::KeyReused => Err(Problem::key_reused()),
    }
}

/// `GET /v1/lists`.
pub(crate) async fn page(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let page = Page::of(request)?;
    let below = page.position(|cursor| if let Cursor::List(number) = cursor { Some(number) } else { None })?;
    let mut lists = app.following.lists(caller).await?.lists;
    lists.retain(|list| below.is_none_or(|below| list.number < below));
    let next = page.cut(&mut lists).map(|list| Cursor::List(list.number));
    let items = lists.into_iter().map(|list| rendered(caller, list.number, list.name)).collect();
    Ok(Page::response(request, next, |next_cursor| AuthorLists { items, next_cursor }))
}

/// `DELETE /v1/lists/{list}`.
pub(crate) async fn delete(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let list = request.list_parameter()?;
    match app.following.delete_list(caller, list).await? {
        true => Ok(Response::no_content()),
        false => Err(Problem::no_list(list)),
    }
}

/// `PUT` and `DELETE /v1/lists/{list}/authors/{author}`.
pub(crate) async fn set_member(app: &App, request: &Request) -> Result<Response, Problem> {
    let (caller, member) = (request.caller()?, request.is_put());
    let (list, author) = (request.list_parameter()?, request.parameter("author")?);
    match app.following.set_list_member(caller, list, author, member).await? {
        Membership::Stands => Ok(Response::json(200, &Member { member })),
        Membership::UnknownList => Err(Problem::no_list(list)),
        Membership::NotFollowing => {
            Err(Problem::new(Kind::NotFollowing, "only authors whom the caller follows can be on a list"))
        }
    }
}

/// `GET /v1/lists/{list}/authors`.
pub(crate) async fn members(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let list = request.list_parameter()?;
    let page = Page::of(request)?;
    let members =
        app.following.list_members(caller, list, page.below_relation()?).await?.ok_or_else(|| Problem::no_list(list))?;
    lists::listed(app, request, &page, members).await
}

fn rendered(user: UserId, number: u32, name: String) -> AuthorList {
    AuthorList { id: ListId { user, number }, name }
}

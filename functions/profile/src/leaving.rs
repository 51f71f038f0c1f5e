//! `GET /v1/me/export`, `DELETE /v1/me` and `GET /v1/me/erasure`.

use tidemark::{
    App, Place,
    domain::Cursor,
    http::{
        Page, Problem, Request, Response,
        bodies::{Erasure, ExportItem, ExportPage},
    },
};

pub(crate) async fn export(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let page = Page::of(request)?;
    let place = page.position(|cursor| match cursor {
        Cursor::Export(section, after) => Some(Place { section: usize::try_from(section).ok()?, after }),
        _ => None,
    })?;
    let (items, next) = app.leaving.export(caller, place.unwrap_or_default(), page.limit).await?;
    let items = items.into_iter().map(|item| ExportItem::new(caller, item)).collect();
    let next = next.map(|Place { section, after }| Cursor::Export(section as u64, after));
    Ok(Page::response(request, next, |next_cursor| ExportPage { items, next_cursor }))
}

pub(crate) async fn erase(app: &App, request: &Request) -> Result<Response, Problem> {
    let erasure = app.leaving.begin(request.caller()?).await?;
    Ok(Response::json(202, &Erasure::from(erasure)))
}

pub(crate) async fn receipt(app: &App, request: &Request) -> Result<Response, Problem> {
    match app.stores.facts.erasure(request.caller()?).await? {
        Some(erasure) => Ok(Response::json(200, &Erasure::from(erasure))),
        None => Err(Problem::not_found("the caller has not asked to leave")),
    }
}

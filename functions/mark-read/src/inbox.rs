//! `PUT /v1/inbox/{group}/read` and `POST /v1/inbox/reads`.

use tidemark::{
    App,
    http::{
        Problem, Request, Response,
        bodies::{InboxUnread, ReadInboxRequest},
    },
    once::Once,
};

/// Marks a group read.
pub(crate) async fn one(app: &App, request: &Request) -> Result<Response, Problem> {
    let (caller, id) = (request.caller()?, request.group_parameter()?);
    let key = request.key_without_body()?;
    let unknown = || Problem::not_found(format!("no group {id} in the inbox"));
    let read = app.inboxes.read(caller, id, key.as_ref()).await?.ok_or_else(unknown)?;
    response(read)
}

/// Marks all acts before a time read.
pub(crate) async fn all(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let (ReadInboxRequest { before }, key) = request.keyed_body()?;
    response(app.inboxes.read_before(caller, before, key.as_ref()).await?)
}

fn response(read: Once<u64>) -> Result<Response, Problem> {
    let Once::Done(unread) = read else { return Err(Problem::key_reused()) };
    Ok(Response::json(200, &InboxUnread { unread }))
}

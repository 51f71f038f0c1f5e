//! `GET /v1/relations/{user}`, `GET /v1/relations?user=…` and `GET /v1/users/{user}/counters`.

use tidemark::{
    App,
    domain::UserId,
    http::{
        Problem, Request, Response,
        bodies::{Counters, Relation, Relations},
    },
    relations::{Directions, Status},
};

const MAX_USERS: usize = 100;

/// The relation between the caller and one user.
pub(crate) async fn of_one(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let user: UserId = request.parameter("user")?;
    let directions = directions(request)?;
    let status = app.relations.status(caller, &[user], directions).await?;
    Ok(Response::json(200, &item(user, status.get(&user).copied().unwrap_or_default(), directions)))
}

/// The relations between the caller and many users, in the order of the request.
pub(crate) async fn of_many(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let users: Vec<UserId> = request.many("user", MAX_USERS)?;
    let directions = directions(request)?;
    let status = app.relations.status(caller, &users, directions).await?;
    let items = users.iter().map(|user| item(*user, status.get(user).copied().unwrap_or_default(), directions));
    Ok(Response::json(200, &Relations { items: items.collect() }))
}

/// Exact counts of a user's followers and followees.
pub(crate) async fn counters(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let (counters, degraded) = app.relations.counters(caller, request.parameter("user")?).await?;
    Ok(Response::json(200, &Counters::from(counters)).degraded(degraded))
}

fn directions(request: &Request) -> Result<Directions, Problem> {
    match request.query("only") {
        None => Ok(Directions::Both),
        Some("following") => Ok(Directions::Following),
        Some(_) => Err(Problem::invalid("only", "must be following")),
    }
}

fn item(user: UserId, status: Status, directions: Directions) -> Relation {
    let Status { following, followed_by } = status;
    let other = |other| (directions == Directions::Both).then_some(other);
    Relation { user, following, followed_by: other(followed_by), mutual: other(following && followed_by) }
}

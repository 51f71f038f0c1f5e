//! `PUT`, `DELETE` and `POST /v1/following…`; `PUT` and `DELETE` of mutes and blocks.

use tidemark::{
    App, Hide, Hiding,
    domain::{MOST_REQUESTS, UserId},
    facts::Followed,
    http::{
        Kind, Problem, Request, Response,
        bodies::{
            Blocked, FollowManyRequest, FollowRequest, FollowResult, FollowResults, Following, Muted, NotFollower, NotFollowing,
        },
    },
};

/// `PUT /v1/following/{author}`.
pub(crate) async fn follow(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let author = request.parameter("author")?;
    let FollowRequest { preference } = request.optional_body()?;
    let outcome = app.following.follow(caller, &[author], preference).await?.pop();
    Ok(Response::json(200, &rendered(app, outcome.flatten())?))
}

/// `DELETE /v1/following/{author}`.
pub(crate) async fn unfollow(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    app.following.unfollow(caller, request.parameter("author")?).await?;
    Ok(Response::json(200, &NotFollowing { following: false }))
}

/// `DELETE /v1/followers/{user}`.
pub(crate) async fn remove_follower(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    app.following.remove_follower(caller, request.parameter("user")?).await?;
    Ok(Response::json(200, &NotFollower { follower: false }))
}

/// `POST /v1/following`.
pub(crate) async fn follow_many(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let FollowManyRequest { authors } = request.body()?;
    let outcomes = app.following.follow(caller, &authors, None).await?;
    let results = authors.into_iter().zip(outcomes).map(|(author, outcome)| match rendered(app, outcome) {
        Ok(Following { following, requested, since, created, .. }) => FollowResult {
            author,
            following,
            requested: Some(requested),
            since: Some(since),
            created: Some(created),
            error: None,
        },
        Err(problem) => {
            let error = Some(problem.of_item());
            FollowResult { author, following: false, requested: None, since: None, created: None, error }
        }
    });
    Ok(Response::json(200, &FollowResults { results: results.collect() }))
}

/// `PUT` and `DELETE` of `/v1/mutes/{user}` and `/v1/blocks/{user}`.
pub(crate) async fn hide(app: &App, request: &Request, hiding: Hiding) -> Result<Response, Problem> {
    let (caller, hidden) = (request.caller()?, request.is_put());
    let user: UserId = request.parameter("user")?;
    if user == caller {
        return Err(Problem::invalid("user", "must be another user"));
    }
    match (app.following.hide(caller, user, hiding, hidden).await?, hiding) {
        (Hide::Done, Hiding::Mute) => Ok(Response::json(200, &Muted { muted: hidden })),
        (Hide::Done, Hiding::Block) => Ok(Response::json(200, &Blocked { blocked: hidden })),
        (Hide::LimitReached, _) => Err(Problem::hidden_limit(hiding)),
        (Hide::Erased, _) => Err(Problem::not_found("the user has left")),
    }
}

fn rendered(app: &App, outcome: Option<Followed>) -> Result<Following, Problem> {
    let created = matches!(outcome, Some(Followed::Created(_)));
    match outcome {
        Some(Followed::Created(edge) | Followed::Existing(edge)) => {
            Ok(Following { following: true, requested: false, since: Some(edge.since), created, preference: edge.preference })
        }
        Some(Followed::Requested(edge)) => {
            Ok(Following { following: false, requested: true, since: None, created: false, preference: edge.preference })
        }
        Some(Followed::LimitReached) => Err(following_limit(app)),
        Some(Followed::RequestLimitReached) => {
            Err(Problem::new(Kind::RequestLimit, format!("a user can have at most {MOST_REQUESTS} follow requests")))
        }
        None => Err(Problem::new(Kind::SelfFollow, "an author is not their own follower")),
        Some(Followed::NoRequest) => Err(Problem::not_found("no follow request")),
        Some(Followed::Blocked) => Err(Problem::blocked()),
        Some(Followed::Erased) => Err(Problem::not_found("the author has left")),
    }
}

pub(crate) fn following_limit(app: &App) -> Problem {
    Problem::new(Kind::FollowingLimit, format!("a user can follow at most {} authors", app.settings.following_limit))
}

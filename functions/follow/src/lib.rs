//! Follow and unfollow, lists, status, counters.
//!
//! The edge is the fact. The function updates the caller's own views before the response, so that the caller's next
//! read shows the change. The relation projector updates them once more from the stream of edges, which also completes
//! interrupted requests.

mod counters;
mod edges;
mod lists;
mod status;

use aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use lambda_runtime::{Error, LambdaEvent};
use tidemark::{
    App,
    http::{Problem, serve},
    ports::List,
};

/// The routes of this function. A test compares them with `template.yaml`.
pub const ROUTES: &[&str] = &[
    "PUT /v1/following/{author}",
    "DELETE /v1/following/{author}",
    "POST /v1/following",
    "GET /v1/users/{user}/following",
    "GET /v1/users/{user}/followers",
    "GET /v1/users/{user}/counters",
    "GET /v1/relations/{user}",
    "GET /v1/relations",
];

/// Handles one request. It never returns an error: a failure is a response.
pub async fn handle(app: &App, event: LambdaEvent<ApiGatewayV2httpRequest>) -> Result<ApiGatewayV2httpResponse, Error> {
    Ok(serve(&app.settings.user_claim, event, async |request| match request.route() {
        "PUT /v1/following/{author}" => edges::follow(app, &request).await,
        "DELETE /v1/following/{author}" => edges::unfollow(app, &request).await,
        "POST /v1/following" => edges::follow_many(app, &request).await,
        "GET /v1/users/{user}/following" => lists::page(app, &request, List::Following).await,
        "GET /v1/users/{user}/followers" => lists::page(app, &request, List::Fans).await,
        "GET /v1/users/{user}/counters" => counters::get(app, &request).await,
        "GET /v1/relations/{user}" => status::of_one(app, &request).await,
        "GET /v1/relations" => status::of_many(app, &request).await,
        route => Err(Problem::not_found(format!("no route {route}"))),
    })
    .await)
}

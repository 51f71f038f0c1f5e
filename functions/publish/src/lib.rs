//! Publishes, reads and deletes posts; likes and favorites; delivery status.

mod posts;

use aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use lambda_runtime::{Error, LambdaEvent};
use tidemark::{
    App,
    domain::Reaction,
    http::{Problem, serve},
};

/// The routes of this function. A test compares them with `template.yaml`.
pub const ROUTES: &[&str] = &[
    "POST /v1/posts",
    "GET /v1/posts/{post}",
    "DELETE /v1/posts/{post}",
    "GET /v1/posts/{post}/delivery",
    "PUT /v1/posts/{post}/like",
    "DELETE /v1/posts/{post}/like",
    "PUT /v1/posts/{post}/favorite",
    "DELETE /v1/posts/{post}/favorite",
];

/// Handles one request. It never returns an error: a failure is a response.
pub async fn handle(app: &App, event: LambdaEvent<ApiGatewayV2httpRequest>) -> Result<ApiGatewayV2httpResponse, Error> {
    Ok(serve(&app.settings.user_claim, event, async |request| match request.route() {
        "POST /v1/posts" => posts::publish(app, &request).await,
        "GET /v1/posts/{post}" => posts::get(app, &request).await,
        "DELETE /v1/posts/{post}" => posts::delete(app, &request).await,
        "GET /v1/posts/{post}/delivery" => posts::delivery(app, &request).await,
        "PUT /v1/posts/{post}/like" => posts::react(app, &request, Reaction::Like, true).await,
        "DELETE /v1/posts/{post}/like" => posts::react(app, &request, Reaction::Like, false).await,
        "PUT /v1/posts/{post}/favorite" => posts::react(app, &request, Reaction::Favorite, true).await,
        "DELETE /v1/posts/{post}/favorite" => posts::react(app, &request, Reaction::Favorite, false).await,
        route => Err(Problem::not_found(format!("no route {route}"))),
    })
    .await)
}

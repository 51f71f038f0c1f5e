//! Publish, read and delete one post; delivery status.

mod deliver;
mod posts;

use aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use lambda_runtime::{Error, LambdaEvent};
use tidemark::{
    App,
    http::{Problem, serve},
};

/// The routes this function owns.
pub const ROUTES: &[&str] =
    &["POST /v1/posts", "GET /v1/posts/{post}", "DELETE /v1/posts/{post}", "GET /v1/posts/{post}/delivery"];

/// Answers one request.
///
/// # Errors
/// Never: failures are answers.
pub async fn handle(app: &App, event: LambdaEvent<ApiGatewayV2httpRequest>) -> Result<ApiGatewayV2httpResponse, Error> {
    Ok(serve(app, event, async |request| match request.route() {
        "POST /v1/posts" => posts::publish(app, &request).await,
        "GET /v1/posts/{post}" => posts::get(app, &request).await,
        "DELETE /v1/posts/{post}" => posts::delete(app, &request).await,
        "GET /v1/posts/{post}/delivery" => deliver::status(app, &request).await,
        route => Err(Problem::not_found(format!("no route {route}"))),
    })
    .await)
}

//! Read and unread: one post, many posts, through a post, everything before a time.
//!
//! A change is a fact before the answer, and reaches the view guarded by its version, so that any number of devices end as the facts say.

mod marks;

use aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use lambda_runtime::{Error, LambdaEvent};
use tidemark::{
    App,
    http::{Problem, serve},
};

/// The routes this function owns.
pub const ROUTES: &[&str] = &["PUT /v1/posts/{post}/read", "DELETE /v1/posts/{post}/read", "POST /v1/reads"];

/// Answers one request.
///
/// # Errors
/// Never: failures are answers.
pub async fn handle(app: &App, event: LambdaEvent<ApiGatewayV2httpRequest>) -> Result<ApiGatewayV2httpResponse, Error> {
    Ok(serve(&app.settings.user_claim, event, async |request| match request.route() {
        "PUT /v1/posts/{post}/read" => marks::one(app, &request, true).await,
        "DELETE /v1/posts/{post}/read" => marks::one(app, &request, false).await,
        "POST /v1/reads" => marks::many(app, &request).await,
        route => Err(Problem::not_found(format!("no route {route}"))),
    })
    .await)
}

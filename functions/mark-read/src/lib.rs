//! Marks posts read and unread: one post, a list of posts, an author's posts up to a number, all posts before a time.
//!
//! The fact is written before the response is sent. The update of the view carries the version of the fact, so changes
//! by several devices of a user end in the state of the facts.

mod marks;

use aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use lambda_runtime::{Error, LambdaEvent};
use tidemark::{
    App,
    http::{Problem, serve},
};

/// The routes of this function. A test compares them with `template.yaml`.
pub const ROUTES: &[&str] = &["PUT /v1/posts/{post}/read", "DELETE /v1/posts/{post}/read", "POST /v1/reads"];

/// Handles one request. It never returns an error: a failure is a response.
pub async fn handle(app: &App, event: LambdaEvent<ApiGatewayV2httpRequest>) -> Result<ApiGatewayV2httpResponse, Error> {
    Ok(serve(&app.settings.user_claim, event, async |request| match request.route() {
        "PUT /v1/posts/{post}/read" => marks::one(app, &request, true).await,
        "DELETE /v1/posts/{post}/read" => marks::one(app, &request, false).await,
        "POST /v1/reads" => marks::many(app, &request).await,
        route => Err(Problem::not_found(format!("no route {route}"))),
    })
    .await)
}

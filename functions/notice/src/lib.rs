//! Notices of platforms: publish, edit, delete; lists, counts and read state; the number of readers of a notice.

mod manage;
mod mark;
mod read;

use aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use lambda_runtime::{Error, LambdaEvent};
use tidemark::{
    App,
    http::{Problem, serve},
};

/// The routes of this function. A test compares them with `template.yaml`.
pub const ROUTES: &[&str] = &[
    "POST /v1/notices",
    "DELETE /v1/notices",
    "GET /v1/notices",
    "GET /v1/notices/unread",
    "POST /v1/notices/reads",
    "GET /v1/notices/{notice}",
    "PUT /v1/notices/{notice}",
    "DELETE /v1/notices/{notice}",
    "PUT /v1/notices/{notice}/read",
    "DELETE /v1/notices/{notice}/read",
];

/// The scope that a caller needs to publish, edit and delete notices, and to see how many users have read a notice.
const WRITE: &str = "notices:write";

/// Handles one request. It never returns an error: a failure is a response.
pub async fn handle(app: &App, event: LambdaEvent<ApiGatewayV2httpRequest>) -> Result<ApiGatewayV2httpResponse, Error> {
    Ok(serve(&app.settings.user_claim, event, async |request| match request.route() {
        "POST /v1/notices" => manage::publish(app, &request).await,
        "DELETE /v1/notices" => manage::delete_many(app, &request).await,
        "GET /v1/notices" => read::page(app, &request).await,
        "GET /v1/notices/unread" => read::unread(app, &request).await,
        "POST /v1/notices/reads" => mark::through(app, &request).await,
        "GET /v1/notices/{notice}" => read::one(app, &request).await,
        "PUT /v1/notices/{notice}" => manage::edit(app, &request).await,
        "DELETE /v1/notices/{notice}" => manage::delete(app, &request).await,
        "PUT /v1/notices/{notice}/read" => mark::one(app, &request, true).await,
        "DELETE /v1/notices/{notice}/read" => mark::one(app, &request, false).await,
        route => Err(Problem::not_found(format!("no route {route}"))),
    })
    .await)
}

fn unknown(id: tidemark::domain::NoticeId) -> Problem {
    Problem::not_found(format!("no notice {id}"))
}

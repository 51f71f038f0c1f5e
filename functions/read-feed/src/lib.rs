//! Feed, author timelines, unread counts, health.

mod feed;
mod health;
mod timeline;
mod unread;

use aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use lambda_runtime::{Error, LambdaEvent};
use tidemark::{
    App,
    http::{Problem, Request, serve},
    reader::{FeedItem, Status},
};

/// The routes of this function. A test compares them with `template.yaml`.
pub const ROUTES: &[&str] =
    &["GET /v1/feed", "GET /v1/authors/{author}/posts", "GET /v1/unread", "GET /v1/unread/{author}", "GET /v1/health"];

/// Handles one request. It never returns an error: a failure is a response.
pub async fn handle(app: &App, event: LambdaEvent<ApiGatewayV2httpRequest>) -> Result<ApiGatewayV2httpResponse, Error> {
    Ok(serve(&app.settings.user_claim, event, async |request| match request.route() {
        "GET /v1/feed" => feed::page(app, &request).await,
        "GET /v1/authors/{author}/posts" => timeline::page(app, &request).await,
        "GET /v1/unread" => unread::all(app, &request).await,
        "GET /v1/unread/{author}" => unread::of_author(app, &request).await,
        "GET /v1/health" => Ok(health::check(app).await),
        route => Err(Problem::not_found(format!("no route {route}"))),
    })
    .await)
}

/// Reads `?status=all|unread`. The default is all.
fn status(request: &Request) -> Result<Status, Problem> {
    match request.query("status") {
        None | Some("all") => Ok(Status::All),
        Some("unread") => Ok(Status::Unread),
        Some(_) => Err(Problem::invalid("status", "must be all or unread")),
    }
}

/// Renders a post as an item of a page.
fn item(item: &FeedItem) -> serde_json::Value {
    let post = &item.post;
    serde_json::json!({
        "id": post.id,
        "author": post.id.author,
        "seq": post.id.seq,
        "title": post.title,
        "created_at": post.created_at,
        "read": item.read,
        "liked": item.liked,
        "favorited": item.favorited,
    })
}

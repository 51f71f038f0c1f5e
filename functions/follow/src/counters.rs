//! `GET /v1/users/{user}/counters`.

use serde_json::json;
use tidemark::{
    App,
    http::{Answer, Problem, Request},
};

pub(crate) async fn get(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let user = request.user_parameter("user")?;
    let (counters, degraded) = app.relations.counters(caller, user).await?;
    let body = json!({
        "followings": counters.followings,
        "followers": counters.followers,
        "posts": counters.posts,
        "likes_received": counters.likes,
        "favorites_received": counters.favorites,
    });
    Ok(Answer::json(200, &body).degraded(degraded))
}

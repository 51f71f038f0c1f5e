//! `GET /v1/users/{user}/counters`.

use tidemark::{
    App,
    http::{Answer, Problem, Request, bodies::Counters},
};

pub(crate) async fn get(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let user = request.user_parameter("user")?;
    let (counters, degraded) = app.relations.counters(caller, user).await?;
    let body = Counters {
        followings: counters.followings.into(),
        followers: counters.followers.into(),
        posts: counters.posts.into(),
        likes_received: counters.likes.into(),
        favorites_received: counters.favorites.into(),
    };
    Ok(Answer::json(200, &body).degraded(degraded))
}

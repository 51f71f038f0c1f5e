//! `PUT` and `DELETE /v1/posts/{post}/read`, `POST /v1/reads`.

use serde_json::json;
use tidemark::{
    App,
    domain::PostId,
    http::{Answer, Problem, Request},
    reader::Origin,
};

/// The most posts in one request.
const MAX_POSTS: usize = 500;

/// Marks one post read, or unread if `read` is false.
pub(crate) async fn one(app: &App, request: &Request, read: bool) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let id = request.post_parameter()?;
    let marked = app.reading.mark_post(caller, id, read).await?;
    let marked = marked.ok_or_else(|| Problem::not_found(format!("no post {id}")))?;
    let state = &marked.snapshot.state;
    let body = json!({
        "read": marked.read,
        "unread": { "author": state.unread_of(id.author), "total": state.unread_total() },
    });
    Ok(Answer::json(200, &body).degraded(marked.snapshot.origin == Origin::Degraded))
}

/// Marks a list of posts, an author's posts up to a number, or all posts before a time. A request has exactly one of
/// these three forms.
pub(crate) async fn many(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let body = request.body()?;
    let forms = [body.has("posts"), body.has("author") || body.has("through"), body.has("all")];
    if body.has("before") && !body.has("all") {
        return Err(Problem::invalid("before", "is allowed only together with all"));
    }
    let marked = match forms {
        [true, false, false] => app.reading.mark_posts(caller, &body.ids::<PostId>("posts", MAX_POSTS)?).await?,
        [false, true, false] => app.reading.mark_through(caller, body.user("author")?, body.seq("through")?).await?,
        [false, false, true] => {
            if body.fields().get("all") != Some(&json!(true)) {
                return Err(Problem::invalid("all", "must be true"));
            }
            app.reading.mark_before(caller, body.optional_time("before")?).await?
        }
        _ => return Err(Problem::invalid("posts", "is one of three forms (posts, author with through, all): send exactly one")),
    };
    let answer = json!({ "changed": marked.changed, "unread": { "total": marked.snapshot.state.unread_total() } });
    Ok(Answer::json(200, &answer).degraded(marked.snapshot.origin == Origin::Degraded))
}

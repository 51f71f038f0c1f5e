//! Comments on a post: write, read, withdraw.

use tidemark::{
    App, Withdrawn,
    domain::{CommentId, CommentOrder, Cursor, PostId, ids::MAX_SEQ, ids::parse_decimal},
    http::{Page, Problem, Request, Response, bodies::*},
    once::Once,
};

/// `POST /v1/posts/{post}/comments`.
pub(crate) async fn write(app: &App, request: &Request) -> Result<Response, Problem> {
    let viewer = request.viewer()?;
    let post: PostId = request.parameter("post")?;
    let (CommentRequest { text }, key) = request.keyed_body()?;
    let written = match app.commenting.comment(viewer, post, text, key.as_ref()).await? {
        Once::Done(written) => written,
        Once::KeyReused => return Err(Problem::key_reused()),
    };
    let comment = written.map_err(|withheld| Problem::withheld(withheld, post))?;
    let path = format!("/v1/posts/{}/comments/{}", comment.id.post, comment.id.number);
    Ok(Response::json(201, &Comment::from(comment)).header("location", &path))
}

/// `GET /v1/posts/{post}/comments`.
pub(crate) async fn page(app: &App, request: &Request) -> Result<Response, Problem> {
    let viewer = request.viewer()?;
    let post: PostId = request.parameter("post")?;
    let page = Page::of(request)?;
    let order = match request.query("order") {
        None | Some("newest") => CommentOrder::Newest,
        Some("oldest") => CommentOrder::Oldest,
        Some(_) => return Err(Problem::invalid("order", "must be newest or oldest")),
    };
    let after = page.position(|cursor| if let Cursor::Comment(number) = cursor { Some(number) } else { None })?;
    let with_profiles = request.wants_profiles()?;
    let found = app.commenting.page(viewer, post, order, after, page.limit).await?;
    let found = found.map_err(|withheld| Problem::withheld(withheld, post))?;
    let items: Vec<Comment> = found.items.into_iter().map(Comment::from).collect();
    let (profiles, degraded) = app.profiles(with_profiles, &items, None).await?;
    let response = Page::response(request, found.next.map(Cursor::Comment), |next_cursor| CommentPage {
        items,
        next_cursor,
        profiles,
        total: found.total,
    });
    Ok(response.degraded(degraded))
}

/// `DELETE /v1/posts/{post}/comments/{number}`.
pub(crate) async fn withdraw(app: &App, request: &Request) -> Result<Response, Problem> {
    let viewer = request.viewer()?;
    let post: PostId = request.parameter("post")?;
    let number = parse_decimal(request.path_parameter("number")).filter(|number| (1..=MAX_SEQ).contains(number));
    let number = number.ok_or_else(|| Problem::invalid("number", "must be the number of a comment, a decimal from 1"))?;
    let id = CommentId::new(post, number);
    match app.commenting.withdraw(viewer, id).await? {
        Withdrawn::Done => Ok(Response::no_content()),
        Withdrawn::NotAllowed => {
            Err(Problem::forbidden("only its author, the author of the post and moderators may withdraw a comment"))
        }
        Withdrawn::Unknown => Err(Problem::not_found(format!("no comment {id}"))),
    }
}

//! Feed, author timelines, unread counts, health.

mod feed;
mod health;
mod timeline;
mod unread;

use tidemark::{
    App,
    domain::PostId,
    http::{Problem, Request, bodies::*, operation, routes},
    reader::{FeedItem, Status},
};

routes!(|app: &App, request| [
    (
        "GET /v1/feed",
        feed::page(app, &request),
        operation("feed", "readFeed", "Read the caller's feed, newest first")
            .describe(
                "The posts of the authors that the caller follows. Of each author's posts from before the follow, the feed has \
                the newest 100, as read. `status=unread` returns exactly the posts that count in `unread_total`."
            )
            .returns::<FeedPage>("A page. The first page has an `ETag`.")
            .parameter("status")
            .page()
            .tagged("ETagOfFirstPage")
            .degradable(),
    ),
    (
        "GET /v1/authors/{author}/posts",
        timeline::page(app, &request),
        operation("feed", "listAuthorPosts", "List an author's posts, newest first")
            .returns::<TimelinePage>("A page, with the caller's flags.")
            .parameter("status")
            .page(),
    ),
    (
        "GET /v1/unread",
        unread::all(app, &request),
        operation("read state", "countUnread", "Get the unread counts, in total and by author")
            .returns::<UnreadCounts>("The total, and the authors with unread posts, most recent post first.")
            .tagged("ETag")
            .degradable(),
    ),
    (
        "GET /v1/unread/{author}",
        unread::of_author(app, &request),
        operation("read state", "countUnreadOfAuthor", "Get the unread count of one author")
            .returns::<UnreadOfAuthor>("The count; zero if the caller does not follow the author.")
            .tagged("ETag")
            .degradable(),
    ),
    (
        "GET /v1/health",
        health::check(app),
        operation("operations", "getHealth", "Get the status of the stores")
            .returns::<Health>("The status of each store. The code is 200 also if a store is down.")
            .open(),
    ),
]);

/// Reads `?status=all|unread`. The default is all.
fn status(request: &Request) -> Result<Status, Problem> {
    match request.query("status") {
        None | Some("all") => Ok(Status::All),
        Some("unread") => Ok(Status::Unread),
        Some(_) => Err(Problem::invalid("status", "must be all or unread")),
    }
}

/// Renders a post as an item of a page.
fn item(item: FeedItem) -> PostItem {
    let FeedItem { post, read, liked, favorited } = item;
    let PostId { author, seq } = post.id;
    PostItem { id: post.id, author, seq, title: post.title, created_at: post.created_at, read, liked, favorited }
}

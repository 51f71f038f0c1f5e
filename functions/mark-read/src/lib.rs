//! Marks posts read and unread: one post, a list of posts, an author's posts up to a number, all posts before a time.
//! Marks groups of the inbox read.
//!
//! The fact is written before the response is sent. The update of the view carries the version of the fact, so changes
//! by several devices of a user end in the state of the facts.

mod inbox;
mod marks;

use tidemark::{
    App,
    http::{Budget, Policy, bodies::*, operation, routes},
};

routes!(|app: &App, request| [
    (
        "PUT /v1/posts/{post}/read",
        Policy::takes(Budget::Marks),
        marks::one(app, &request),
        operation("read state", "markPostRead", "Mark a post read")
            .returns::<PostMarked>("The read state, and the counts after the change.")
            .of_author()
            .responds("404", "NotFound"),
    ),
    (
        "DELETE /v1/posts/{post}/read",
        Policy::takes(Budget::Marks),
        marks::one(app, &request),
        operation("read state", "markPostUnread", "Mark a post unread again")
            .describe("The caller's own posts, and posts from before the follow, stay read.")
            .returns::<PostMarked>("The read state, and the counts after the change.")
            .of_author()
            .responds("404", "NotFound"),
    ),
    (
        "POST /v1/reads",
        Policy::takes(Budget::Marks),
        marks::many(app, &request),
        operation(
            "read state",
            "markRead",
            "Mark a list of posts read, an author's posts up to a number, or all posts before a time"
        )
        .accepts::<MarkReadRequest>()
        .returns::<PostsMarked>("The number of posts that were unread and are read now, and the unread count after the change.")
        .idempotent(),
    ),
    (
        "PUT /v1/inbox/{group}/read",
        Policy::takes(Budget::Marks),
        inbox::one(app, &request),
        operation("inbox", "readInboxGroup", "Mark a group of the inbox read")
            .describe("Acts that are later than the request are unread.")
            .returns::<InboxUnread>("The number of unread groups after the change.")
            .idempotent()
            .responds("404", "NotFound"),
    ),
    (
        "POST /v1/inbox/reads",
        Policy::takes(Budget::Marks),
        inbox::all(app, &request),
        operation("inbox", "readInbox", "Mark all acts before a time read")
            .accepts::<ReadInboxRequest>()
            .returns::<InboxUnread>("The number of unread groups after the change.")
            .idempotent(),
    ),
]);

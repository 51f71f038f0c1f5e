//! Notices of platforms: publish, edit, delete; lists, counts and read state; the number of readers of a notice.

mod manage;
mod read;

use tidemark::{
    App,
    http::{Budget, Kind, Policy, Problem, bodies::*, operation, routes},
};

/// The scope that a caller needs to publish, edit and delete notices, and to see how many users have read a notice.
const WRITE: &str = "notices:write";

routes!(|app: &App, request| [
    (
        "POST /v1/notices",
        Policy::takes(Budget::Posts).scope(WRITE),
        manage::publish(app, &request),
        operation("notices", "publishNotices", "Publish a notice on platforms")
            .accepts::<PublishNoticesRequest>()
            .creates::<PublishedNotices>(
                "One notice for each platform, in the order of the request. A repeated request gets the first response."
            )
            .idempotent()
            .refuses(Kind::NoticeLimit, "a platform has 2,000 live notices, the maximum; nothing was published")
            .links(["getNotice", "editNotice", "markNoticeRead", "markNoticeUnread"], "notice", "$response.body#/items/0/id")
            .links(["listNotices", "countNotices"], "platform", "$response.body#/items/0/platform")
            .links(["deleteNotice"], "notice", "$response.body#/items/0/id"),
    ),
    (
        "DELETE /v1/notices",
        Policy::takes(Budget::Posts).scope(WRITE),
        manage::delete_many(app, &request),
        operation("notices", "deleteNotices", "Delete up to 100 notices")
            .parameters(["notices"])
            .no_content("The notices are in no list and no count. The response is the same if they did not exist."),
    ),
    (
        "PUT /v1/notices",
        Policy::takes(Budget::Posts).scope(WRITE),
        manage::edit_many(app, &request),
        operation("notices", "editNotices", "Replace up to 100 notices with one")
            .describe(
                "All notices get this content, or none does: one that is unknown, deleted or expired is a 404. They are on \
                 at most 32 platforms, and their texts have at most 800 KiB together. Fields that are left out are removed, \
                 the expiry included."
            )
            .accepts::<EditNoticeRequest>()
            .returns::<EditedNotices>("The notices after the change, in the order of the request.")
            .parameters(["notices"])
            .idempotent()
            .responds("404", "NotFound"),
    ),
    (
        "GET /v1/notices",
        Policy::takes(Budget::Reads),
        read::page(app, &request),
        operation("notices", "listNotices", "List a platform's notices, newest first")
            .describe(
                "With `include=body`, a page ends before its texts have more than 800 KiB. It may then be shorter than \
                 `limit`."
            )
            .returns::<NoticePage>("A page.")
            .parameters(["platform", "noticeStatus", "noticeInclude"])
            .page(),
    ),
    (
        "GET /v1/notices/unread",
        Policy::takes(Budget::Reads),
        read::unread(app, &request),
        operation("notices", "countNotices", "Get the numbers of unread and read notices of up to 100 platforms")
            .describe("A platform that is named twice counts twice.")
            .returns::<NoticeCounts>("The live notices that the caller has not read, and those that the caller has read.")
            .parameters(["platforms"])
            .tagged("ETag"),
    ),
    (
        "POST /v1/notices/reads",
        Policy::takes(Budget::Marks),
        read::mark_through(app, &request),
        operation("notices", "markNoticesRead", "Mark a platform's notices read up to a number")
            .accepts::<MarkNoticesReadRequest>()
            .returns::<NoticesMarked>("The number of notices that changed, and the counts after the change.")
            .idempotent(),
    ),
    (
        "GET /v1/notices/{notice}",
        Policy::takes(Budget::Reads),
        read::one(app, &request),
        operation("notices", "getNotice", "Get a notice")
            .describe("With the scope `notices:write`, the response also has the number of users who have read the notice.")
            .returns::<ReadNotice>("The notice, and whether the caller has read it.")
            .responds("404", "NotFound"),
    ),
    (
        "PUT /v1/notices/{notice}",
        Policy::takes(Budget::Posts).scope(WRITE),
        manage::edit(app, &request),
        operation("notices", "editNotice", "Replace a notice")
            .describe("Fields that are left out are removed, the expiry included.")
            .accepts::<EditNoticeRequest>()
            .returns::<Notice>("The notice after the change.")
            .idempotent()
            .responds("404", "NotFound"),
    ),
    (
        "DELETE /v1/notices/{notice}",
        Policy::takes(Budget::Posts).scope(WRITE),
        manage::delete(app, &request),
        operation("notices", "deleteNotice", "Delete a notice")
            .no_content("The notice is in no list and no count. The response is the same if it did not exist."),
    ),
    (
        "PUT /v1/notices/{notice}/read",
        Policy::takes(Budget::Marks),
        read::mark(app, &request),
        operation("notices", "markNoticeRead", "Mark a notice read")
            .returns::<NoticeMarked>("The read state, and the counts after the change.")
            .responds("404", "NotFound"),
    ),
    (
        "DELETE /v1/notices/{notice}/read",
        Policy::takes(Budget::Marks),
        read::mark(app, &request),
        operation("notices", "markNoticeUnread", "Mark a notice unread again")
            .returns::<NoticeMarked>("The read state, and the counts after the change.")
            .responds("404", "NotFound"),
    ),
]);

fn unknown(id: tidemark::domain::NoticeId) -> Problem {
    Problem::not_found(format!("no notice {id}"))
}

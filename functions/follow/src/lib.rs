//! Follow and unfollow, follow requests, lists, status, counters.
//!
//! The edge is the fact. The function updates the caller's own views before the response, so that the caller's next
//! read shows the change. The projector updates them once more from the stream of edges, which also completes
//! interrupted requests.

mod author_lists;
mod edges;
mod lists;
mod requests;
mod status;

use tidemark::{
    App, Hiding,
    http::{Budget, Kind, Policy, bodies::*, operation, routes},
    views::List,
};

routes!(|app: &App, request| [
    (
        "PUT /v1/following/{author}",
        Policy::takes(Budget::Follows),
        edges::follow(app, &request),
        operation("relations", "follow", "Follow an author, and set a preference")
            .describe(
                "A repetition sets another preference. Without a body it changes nothing. If the author is private, the call \
                asks the author instead: the follow begins when the author accepts."
            )
            .may_accept::<FollowRequest>()
            .returns::<Following>("The caller follows the author, since now or since an earlier call, or has asked to.")
            .refuses(Kind::Blocked, "one of the two blocks the other")
            .refuses(Kind::SelfFollow, "users cannot follow themselves")
            .refuses(
                Kind::FollowingLimit,
                "the caller already follows as many authors as allowed, 500 by default; nothing has changed"
            )
            .refuses(Kind::RequestLimit, "1,000 requests of the caller wait for an answer, the maximum; nothing has changed")
            .responds("404", "NotFound")
            .links(["getRelation"], "user", "$request.path.author")
            .links(["listAuthorPosts", "unfollow"], "author", "$request.path.author"),
    ),
    (
        "DELETE /v1/following/{author}",
        Policy::takes(Budget::Follows),
        edges::unfollow(app, &request),
        operation("relations", "unfollow", "Unfollow an author")
            .describe(
                "Removes the author's posts from the feed and discards which were unread. A later follow begins again. Also \
                withdraws a request to follow the author."
            )
            .returns::<NotFollowing>("The caller does not follow the author. The response is the same if there was no follow."),
    ),
    (
        "POST /v1/following",
        Policy::takes(Budget::Follows),
        edges::follow_many(app, &request),
        operation("relations", "followMany", "Follow up to 50 authors, each independent of the others")
            .accepts::<FollowManyRequest>()
            .returns::<FollowResults>("One result for each author, in the order of the request."),
    ),
    (
        "DELETE /v1/followers/{user}",
        Policy::takes(Budget::Follows),
        edges::remove_follower(app, &request),
        operation("relations", "removeFollower", "End the follow of a user who follows the caller")
            .describe("It is an unfollow by that user, who is not told. The user may follow the caller again.")
            .returns::<NotFollower>("The user does not follow the caller. The response is the same if there was no follow."),
    ),
    (
        "GET /v1/follow-requests",
        Policy::takes(Budget::Reads),
        requests::page(app, &request),
        operation("relations", "listFollowRequests", "List requests to follow the caller, or of the caller, newest first")
            .returns::<FollowRequestPage>("A page.")
            .parameters(["direction", "profiles"])
            .page(),
    ),
    (
        "PUT /v1/follow-requests/{user}",
        Policy::takes(Budget::Follows),
        requests::accept(app, &request),
        operation("relations", "acceptFollowRequest", "Accept a user's request to follow the caller")
            .describe("The follow begins now. Also after the caller has become public.")
            .returns::<Accepted>("The user follows the caller, since now or since an earlier call.")
            .responds("404", "NotFound")
            .refuses(Kind::FollowingLimit, "the user already follows as many authors as allowed; the request stays")
            .links(["getRelation"], "user", "$request.path.user"),
    ),
    (
        "DELETE /v1/follow-requests/{user}",
        Policy::takes(Budget::Follows),
        requests::reject(app, &request),
        operation("relations", "rejectFollowRequest", "Reject a user's request to follow the caller")
            .describe("A follow stays as it is.")
            .returns::<Accepted>("The user does not ask any more. The response is the same if there was no request."),
    ),
    (
        "GET /v1/users/{user}/following",
        Policy::takes(Budget::Reads),
        lists::page(app, &request, List::Following),
        operation("relations", "listFollowing", "List the authors that a user follows, newest first")
            .returns::<RelationPage>("A page.")
            .parameters(["common", "relation", "profiles"])
            .page()
            .parameters(["offset"]),
    ),
    (
        "GET /v1/users/{user}/followers",
        Policy::takes(Budget::Reads),
        lists::page(app, &request, List::Followers),
        operation("relations", "listFollowers", "List a user's followers, newest first")
            .describe("The list is complete for any number of followers.")
            .returns::<RelationPage>("A page.")
            .parameters(["known", "relation", "profiles"])
            .page()
            .parameters(["offset"]),
    ),
    (
        "GET /v1/users/{user}/counters",
        Policy::takes(Budget::Reads),
        status::counters(app, &request),
        operation("relations", "getCounters", "Get a user's counters")
            .returns::<Counters>("Exact counts; zeros for an unknown user."),
    ),
    (
        "GET /v1/relations/{user}",
        Policy::takes(Budget::Reads),
        status::of_one(app, &request),
        operation("relations", "getRelation", "Get the relation between the caller and a user")
            .returns::<Relation>("Both directions, or the requested one.")
            .parameters(["only"]),
    ),
    (
        "GET /v1/relations",
        Policy::takes(Budget::Reads),
        status::of_many(app, &request),
        operation("relations", "listRelations", "Get the relations between the caller and up to 100 users")
            .returns::<Relations>("One item for each user, in the order of the request.")
            .parameters(["users", "only"]),
    ),
    (
        "PUT /v1/mutes/{user}",
        Policy::takes(Budget::Follows),
        edges::hide(app, &request, Hiding::Mute),
        operation("relations", "mute", "Mute a user")
            .describe(
                "Feeds and unread counts leave out the user's posts, at once. The user sees nothing of it. A follow stays as it \
                is; it may also begin or end while the user is muted."
            )
            .returns::<Muted>("The caller mutes the user.")
            .responds("404", "NotFound")
            .refuses(Kind::MuteLimit, "the caller mutes 1,000 users, the maximum; nothing has changed")
            .links(["unmute"], "user", "$request.path.user"),
    ),
    (
        "DELETE /v1/mutes/{user}",
        Policy::takes(Budget::Follows),
        edges::hide(app, &request, Hiding::Mute),
        operation("relations", "unmute", "End a mute")
            .describe("The user's posts since the follow come back, with their read state.")
            .returns::<Muted>("The caller does not mute the user. The response is the same if there was no mute."),
    ),
    (
        "GET /v1/mutes",
        Policy::takes(Budget::Reads),
        lists::hidden(app, &request, Hiding::Mute),
        operation("relations", "listMutes", "List the users whom the caller mutes, newest first")
            .returns::<RelationPage>("A page. `since` is the time of the mute.")
            .parameters(["profiles"])
            .page(),
    ),
    (
        "PUT /v1/blocks/{user}",
        Policy::takes(Budget::Follows),
        edges::hide(app, &request, Hiding::Block),
        operation("relations", "block", "Block a user")
            .describe(
                "Ends the follows between the two, in both directions. Until the block ends, neither can follow the other or \
                react to the other's posts, and the blocked user cannot read the caller's posts and timeline."
            )
            .returns::<Blocked>("The caller blocks the user.")
            .responds("404", "NotFound")
            .refuses(Kind::BlockLimit, "the caller blocks 1,000 users, the maximum; nothing has changed")
            .links(["unblock"], "user", "$request.path.user"),
    ),
    (
        "DELETE /v1/blocks/{user}",
        Policy::takes(Budget::Follows),
        edges::hide(app, &request, Hiding::Block),
        operation("relations", "unblock", "End a block")
            .describe("The follows that the block ended do not come back.")
            .returns::<Blocked>("The caller does not block the user. The response is the same if there was no block."),
    ),
    (
        "GET /v1/blocks",
        Policy::takes(Budget::Reads),
        lists::hidden(app, &request, Hiding::Block),
        operation("relations", "listBlocks", "List the users whom the caller blocks, newest first")
            .returns::<RelationPage>("A page. `since` is the time of the block.")
            .parameters(["profiles"])
            .page(),
    ),
    (
        "POST /v1/lists",
        Policy::takes(Budget::Follows),
        author_lists::make(app, &request),
        operation("lists", "makeList", "Make a list of followed authors")
            .accepts::<MakeListRequest>()
            .creates::<AuthorList>("The new list, without authors.")
            .idempotent()
            .refuses(Kind::ListLimit, "the caller has 50 lists, the maximum; nothing has changed")
            .links(["listMembers", "deleteList"], "list", "$response.body#/id"),
    ),
    (
        "GET /v1/lists",
        Policy::takes(Budget::Reads),
        author_lists::page(app, &request),
        operation("lists", "listLists", "List the caller's lists, newest first").returns::<AuthorLists>("A page.").page(),
    ),
    (
        "DELETE /v1/lists/{list}",
        Policy::takes(Budget::Follows),
        author_lists::delete(app, &request),
        operation("lists", "deleteList", "Delete a list")
            .no_content("The caller does not have the list any more.")
            .responds("404", "NotFound"),
    ),
    (
        "PUT /v1/lists/{list}/authors/{author}",
        Policy::takes(Budget::Follows),
        author_lists::set_member(app, &request),
        operation("lists", "addMember", "Put an author on a list")
            .returns::<Member>("The author is on the list, until the caller removes or unfollows the author.")
            .responds("404", "NotFound")
            .refuses(Kind::NotFollowing, "the caller does not follow the author"),
    ),
    (
        "DELETE /v1/lists/{list}/authors/{author}",
        Policy::takes(Budget::Follows),
        author_lists::set_member(app, &request),
        operation("lists", "removeMember", "Remove an author from a list")
            .returns::<Member>("The author is not on the list. The response is the same if the author was not.")
            .responds("404", "NotFound"),
    ),
    (
        "GET /v1/lists/{list}/authors",
        Policy::takes(Budget::Reads),
        author_lists::members(app, &request),
        operation("lists", "listMembers", "List the authors on a list, the newest follow first")
            .returns::<RelationPage>("A page. `since` is the time of the follow.")
            .responds("404", "NotFound")
            .parameters(["profiles"])
            .page(),
    ),
]);

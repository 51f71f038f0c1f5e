//! Publishes, reads and deletes posts; reposts; likes and favorites; comments; delivery status.

mod comments;
mod posts;

use tidemark::{
    App,
    domain::Reaction,
    http::{Budget, Kind, Policy, bodies::*, operation, routes},
};

routes!(|app: &App, request| [
    (
        "POST /v1/posts",
        Policy::takes(Budget::Posts),
        posts::publish(app, &request),
        operation("posts", "publishPost", "Publish a post")
            .accepts::<PublishPostRequest>()
            .creates::<PublishedPost>(
                "The post is published. A repeated request gets the first response, with the delivery as planned."
            )
            .header("Location", "PostLocation")
            .idempotent()
            .refuses(Kind::PostLimit, "the author has published 4,294,967,295 posts, the maximum; nothing was published")
            .refuses(Kind::Blocked, "one of the caller and the author of the quoted post blocks the other")
            .refuses(Kind::Private, "the author of the quoted post is private: only this author may quote it")
            .responds("404", "NotFound")
            .links(
                ["getPost", "getDelivery", "likePost", "favoritePost", "markPostRead", "markPostUnread"],
                "post",
                "$response.body#/id"
            )
            .links(["listAuthorPosts"], "author", "$response.body#/author")
            .links(["deletePost"], "post", "$response.body#/id"),
    ),
    (
        "GET /v1/posts/{post}",
        Policy::takes(Budget::Reads).begins_with_own_view(),
        posts::get(app, &request),
        operation("posts", "getPost", "Get a post, with the caller's flags")
            .returns::<Post>("The post.")
            .parameters(["profiles"])
            .of_author()
            .responds("404", "NotFound"),
    ),
    (
        "GET /v1/posts",
        Policy::takes(Budget::Reads),
        posts::get_many(app, &request),
        operation("posts", "listPosts", "Get up to 100 posts, with the caller's flags")
            .returns::<Posts>("The posts in the order of the request. Posts that the caller cannot see are left out.")
            .parameters(["posts", "profiles"])
            .refuses(Kind::TooMuchText, "the texts of these posts have more than 800 KiB together: ask for fewer posts"),
    ),
    (
        "PUT /v1/posts/{post}",
        Policy::takes(Budget::Posts),
        posts::edit(app, &request),
        operation("posts", "editPost", "Replace the title and text of a post of the caller")
            .describe(
                "Others see the change within five seconds. Neither the post's place in feeds nor its read state changes. The \
                same request again changes nothing."
            )
            .accepts::<EditPostRequest>()
            .returns::<EditedPost>("The post after the change.")
            .refuses(Kind::RepostText, "the post is a repost, which has neither title nor text")
            .responds("403", "Forbidden")
            .responds("404", "NotFound"),
    ),
    (
        "DELETE /v1/posts/{post}",
        Policy::takes(Budget::Posts),
        posts::delete(app, &request),
        operation("posts", "deletePost", "Delete a post of the caller")
            .describe("With the scope `posts:moderate`, a post of any author.")
            .no_content("The post is deleted, by this or an earlier request.")
            .responds("403", "Forbidden")
            .responds("404", "NotFound"),
    ),
    (
        "GET /v1/posts/{post}/delivery",
        Policy::takes(Budget::Reads),
        posts::delivery(app, &request),
        operation("posts", "getDelivery", "Get the progress of a post's delivery")
            .describe("It works for a deleted post too. The rest of its delivery is cancelled.")
            .returns::<Delivery>("The number of followers handled, and of pages done.")
            .of_author()
            .responds("404", "NotFound"),
    ),
    (
        "GET /v1/posts/{post}/likes",
        Policy::takes(Budget::Reads),
        posts::likers(app, &request, Reaction::Like),
        operation("posts", "listPostLikes", "List the users who like a post, newest first")
            .describe("As many as `likes` of the post, less the users in a block with the caller.")
            .returns::<RelationPage>("A page. `since` is the time of the like.")
            .of_author()
            .responds("404", "NotFound")
            .parameters(["profiles"])
            .page(),
    ),
    (
        "GET /v1/posts/{post}/favorites",
        Policy::takes(Budget::Reads),
        posts::likers(app, &request, Reaction::Favorite),
        operation("posts", "listPostFavorites", "List the users who have a post as a favorite, newest first")
            .describe("As many as `favorites` of the post, less the users in a block with the caller.")
            .returns::<RelationPage>("A page. `since` is the time of the favorite.")
            .of_author()
            .responds("404", "NotFound")
            .parameters(["profiles"])
            .page(),
    ),
    (
        "PUT /v1/posts/{post}/repost",
        Policy::takes(Budget::Posts),
        posts::repost(app, &request),
        operation("posts", "repostPost", "Repost a post")
            .describe(
                "The repost is a post of the caller without a title, with a number, a delivery and read states of its own. A \
                caller has one repost of a post. That of a repost goes to its original."
            )
            .returns::<Reposted>("The caller reposts the post. Repeated requests count once.")
            .refuses(Kind::Blocked, "one of the caller and the author blocks the other")
            .refuses(Kind::Private, "the author is private: only the author may repost the post")
            .refuses(Kind::PostLimit, "the caller has published 4,294,967,295 posts, the maximum; nothing was published")
            .responds("404", "NotFound"),
    ),
    (
        "DELETE /v1/posts/{post}/repost",
        Policy::takes(Budget::Posts),
        posts::repost(app, &request),
        operation("posts", "withdrawRepost", "Delete the caller's repost of a post")
            .describe("It works although the caller does not see the post any more.")
            .returns::<Reposted>("The caller does not repost the post.")
            .of_author()
            .responds("404", "NotFound"),
    ),
    (
        "GET /v1/posts/{post}/reposts",
        Policy::takes(Budget::Reads),
        posts::reposters(app, &request),
        operation("posts", "listReposts", "List the users who repost a post, newest first")
            .describe("As many as `reposts` of the post, less the users in a block with the caller. Quotes are not among them.")
            .returns::<RepostPage>("A page. `since` is the time of the repost.")
            .of_author()
            .responds("404", "NotFound")
            .parameters(["profiles"])
            .page(),
    ),
    (
        "POST /v1/posts/{post}/comments",
        Policy::takes(Budget::Posts),
        comments::write(app, &request),
        operation("posts", "writeComment", "Comment on a post")
            .accepts::<CommentRequest>()
            .creates::<Comment>("The comment. A repeated request gets the first response.")
            .header("Location", "CommentLocation")
            .idempotent()
            .refuses(Kind::Blocked, "one of the caller and the author blocks the other")
            .refuses_strangers()
            .responds("404", "NotFound")
            .links(["listComments"], "post", "$response.body#/post"),
    ),
    (
        "GET /v1/posts/{post}/comments",
        Policy::takes(Budget::Reads),
        comments::page(app, &request),
        operation("posts", "listComments", "List the comments on a post, by number")
            .describe(
                "Comments of users in a block with the caller are left out, also of `total`. Numbers of comments that were \
                withdrawn are not given again."
            )
            .returns::<CommentPage>("A page.")
            .of_author()
            .responds("404", "NotFound")
            .parameters(["commentOrder", "profiles"])
            .page(),
    ),
    (
        "DELETE /v1/posts/{post}/comments/{number}",
        Policy::takes(Budget::Posts),
        comments::withdraw(app, &request),
        operation("posts", "withdrawComment", "Withdraw a comment")
            .describe(
                "The author of the comment may do so, also if the post is deleted or kept from the caller now, the author of \
                the post, and with the scope `posts:moderate` everybody."
            )
            .no_content("The comment is withdrawn, by this or an earlier request.")
            .responds("403", "Forbidden")
            .responds("404", "NotFound"),
    ),
    (
        "PUT /v1/posts/{post}/like",
        Policy::takes(Budget::Reactions),
        posts::react(app, &request, Reaction::Like),
        operation("posts", "likePost", "Like a post")
            .returns::<Liked>("The caller likes the post. Repeated requests count once.")
            .refuses(Kind::Blocked, "one of the caller and the author blocks the other")
            .refuses_strangers()
            .responds("404", "NotFound"),
    ),
    (
        "DELETE /v1/posts/{post}/like",
        Policy::takes(Budget::Reactions),
        posts::react(app, &request, Reaction::Like),
        operation("posts", "unlikePost", "Remove a like")
            .describe("It works for a deleted post too.")
            .returns::<Liked>("The caller does not like the post.")
            .of_author()
            .responds("404", "NotFound"),
    ),
    (
        "PUT /v1/posts/{post}/favorite",
        Policy::takes(Budget::Reactions),
        posts::react(app, &request, Reaction::Favorite),
        operation("posts", "favoritePost", "Add a post to the favorites")
            .returns::<Favorited>("The post is a favorite of the caller. Repeated requests count once.")
            .refuses(Kind::Blocked, "one of the caller and the author blocks the other")
            .refuses_strangers()
            .responds("404", "NotFound"),
    ),
    (
        "DELETE /v1/posts/{post}/favorite",
        Policy::takes(Budget::Reactions),
        posts::react(app, &request, Reaction::Favorite),
        operation("posts", "unfavoritePost", "Remove a post from the favorites")
            .describe("It works for a deleted post too.")
            .returns::<Favorited>("The post is not a favorite of the caller.")
            .of_author()
            .responds("404", "NotFound"),
    ),
]);

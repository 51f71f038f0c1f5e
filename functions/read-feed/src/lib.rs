//! Feed, author timelines, unread counts, health.

mod feed;
mod health;
mod inbox;
mod timeline;
mod unread;

use std::collections::HashMap;

use tidemark::{
    App,
    domain::{Card, PostId, Reaction, Score, UserId, Viewer},
    http::{Budget, Policy, Problem, Request, bodies::*, operation, routes},
    reader::{Body, FeedItem},
    views::PageParts,
};

routes!(|app: &App, request| [
    (
        "GET /v1/feed",
        Policy::takes(Budget::Reads).begins_with_own_view(),
        feed::page(app, &request),
        operation("feed", "readFeed", "Read the caller's feed, newest, oldest or highest score first")
            .describe(
                "The posts of the authors that the caller follows. Of each author's posts from before the follow, the feed has \
                the newest 100, as read. `status=unread` returns exactly the posts that count in `unread_total`.\n\n\
                With `order=ranked`, the newest 1,000 posts that the request may show (or a few more) come by score, which is \
                weight + preference + step + age. `weight` is the post's, `preference` the caller's for the author. `step` is \
                log2(1 + likes + 2 · favorites), rounded down; after reactions were taken back it may be one more. `age` is \
                the time of the post divided by the half-life, 12 hours by default. The pages of a walk leave out posts whose \
                scores have changed since its first page.\n\n\
                With `order=oldest`, the same posts come from the other end, and posts that arrive during the walk are at its \
                end. The last page has the `first_cursor` with which polls go on. That of the first page repeats what has \
                arrived during the walk."
            )
            .returns::<FeedPage>("A page. The first page has an `ETag`.")
            .parameters(["order", "own", "ofList"])
            .responds("404", "NotFound")
            .parameters(["status"])
            .page()
            .parameters(["since", "include", "profiles"])
            .tagged("ETagOfFirstPage"),
    ),
    (
        "GET /v1/authors/{author}/posts",
        Policy::takes(Budget::Reads).begins_with_own_view(),
        timeline::of_author(app, &request),
        operation("feed", "listAuthorPosts", "List an author's posts, newest first")
            .returns::<TimelinePage>("A page, with the caller's flags.")
            .parameters(["status"])
            .page()
            .parameters(["since", "include", "profiles"])
            .of_author(),
    ),
    (
        "GET /v1/me/likes",
        Policy::takes(Budget::Reads),
        timeline::of_reaction(app, &request, Reaction::Like),
        operation("posts", "listLikes", "List the posts that the caller likes, newest like first")
            .returns::<ReactedPage>("A page. Deleted posts are left out.")
            .page()
            .parameters(["include", "profiles"]),
    ),
    (
        "GET /v1/me/favorites",
        Policy::takes(Budget::Reads),
        timeline::of_reaction(app, &request, Reaction::Favorite),
        operation("posts", "listFavorites", "List the caller's favorites, newest first")
            .returns::<ReactedPage>("A page. Deleted posts are left out.")
            .page()
            .parameters(["include", "profiles"]),
    ),
    (
        "GET /v1/unread",
        Policy::takes(Budget::Reads).begins_with_own_view(),
        unread::all(app, &request),
        operation("read state", "countUnread", "Get the unread counts, in total and by author")
            .returns::<UnreadCounts>("The total, and the authors with unread posts, most recent post first.")
            .parameters(["ofList"])
            .responds("404", "NotFound")
            .tagged("ETag"),
    ),
    (
        "GET /v1/unread/{author}",
        Policy::takes(Budget::Reads).begins_with_own_view(),
        unread::of_author(app, &request),
        operation("read state", "countUnreadOfAuthor", "Get the unread count of one author")
            .returns::<UnreadOfAuthor>("The count; zero if the caller does not follow the author.")
            .tagged("ETag"),
    ),
    (
        "GET /v1/inbox",
        Policy::takes(Budget::Reads),
        inbox::page(app, &request),
        operation("inbox", "getInbox", "Get the acts of other users that concern the caller, newest first")
            .describe(
                "Acts are grouped: by post, by day, or all requests together. A group without an act that stands is gone. \
                 Groups last 90 days after their latest act, at most 1,000. Acts of users in a block with the caller are \
                 left out. A group is derived from its acts within seconds."
            )
            .returns::<InboxPage>("A page.")
            .page()
            .parameters(["inboxStatus", "profiles"]),
    ),
    (
        "GET /v1/inbox/unread",
        Policy::takes(Budget::Reads),
        inbox::unread(app, &request),
        operation("inbox", "countInbox", "Get the number of unread groups of the inbox")
            .returns::<InboxUnread>("Groups, not acts.")
            .tagged("ETag"),
    ),
    (
        "GET /v1/health",
        Policy::OPEN,
        health::check(app),
        operation("operations", "getHealth", "Get the status of the stores")
            .returns::<Health>("The status of each store. The code is 200 also if a store is down."),
    ),
    (
        "HEAD /v1/health",
        Policy::OPEN,
        health::probe(),
        operation("operations", "probeHealth", "Probe whether the API responds")
            .describe("Reads no store. Other paths have no `HEAD`.")
            .empty("The API responds."),
    ),
]);

/// Reads `?list=`. Returns the number of the list; 404 if the caller has no such list.
async fn list(app: &App, request: &Request) -> Result<Option<u32>, Problem> {
    let caller = request.caller()?;
    match request.list_query()? {
        Some(list) if !app.following.has_list(caller, list).await? => Err(Problem::no_list(list)),
        list => Ok(list.map(|list| list.number)),
    }
}

/// Reads `?profiles=` and `?include=body|counts`.
fn parts(request: &Request) -> Result<PageParts, Problem> {
    let (texts, counts) = match request.query("include") {
        None => (false, false),
        Some("counts") => (false, true),
        Some("body") => (true, true),
        Some(_) => return Err(Problem::invalid("include", "must be body or counts")),
    };
    Ok(PageParts { cards: request.wants_profiles()?, texts, counts })
}

/// The rendered part of a page.
struct Shown {
    items: Vec<PostItem>,
    profiles: Option<Profiles>,
    degraded: bool,
}

/// Renders the items of a page with their originals, and the cards of the authors.
async fn shown(
    app: &App,
    viewer: Viewer,
    items: Vec<FeedItem>,
    mut bodies: HashMap<PostId, Body>,
    mut known: HashMap<UserId, Option<Card>>,
    parts: PageParts,
) -> Result<Shown, Problem> {
    let references = items.iter().filter_map(|item| item.post.of);
    let mut originals = app.readers.originals(viewer, references, parts).await?;
    known.extend(std::mem::take(&mut originals.cards));
    let item = |item: FeedItem| {
        let (content, counts) = bodies.remove(&item.post.id).map(|Body { text, counts }| (text, counts)).unzip();
        let (item, of_item) = originals.shown(item, counts.unwrap_or_default());
        let FeedItem { post, read, liked, favorited, score } = item;
        let counts = counts.map(|_| of_item);
        let PostId { author, seq } = post.id;
        let revision = post.revision.into();
        let (body, data) = content.flatten().map(|text| (text.body, raw(text.data))).unzip();
        PostItem {
            id: post.id,
            author,
            seq,
            title: post.shown_title(),
            created_at: post.created_at,
            of: post.of.map(|of| Original::new(of, &originals)),
            read,
            liked,
            favorited,
            score: score.map(Score::get),
            revision: body.is_some().then_some(revision),
            body,
            data,
            likes: counts.map(|counts| counts.likes),
            favorites: counts.map(|counts| counts.favorites),
            reposts: counts.map(|counts| counts.reposts),
            comments: counts.map(|counts| counts.comments),
        }
    };
    let items: Vec<PostItem> = items.into_iter().map(item).collect();
    let (profiles, degraded) = app.profiles(parts.cards, &items, Some(known)).await?;
    Ok(Shown { items, profiles, degraded: degraded || originals.degraded })
}

//! One post: publish, read, delete, repost, react, delivery status.

use std::collections::HashMap;

use tidemark::{
    App, PostChange, Reposting,
    domain::{self, Cursor, DeliveryState, NewPost, PostId, PostText, Reaction, ReactionCounts, Reference, ids::LAST_POST},
    facts::{Published, reposts::Reposter},
    http::{Kind, Page, Problem, Request, Response, bodies::*},
    reader::{FeedItem, MOST_TEXT, Originals, PostDetails},
    views::PageParts,
};

/// The most posts in one `GET /v1/posts`.
const MAX_POSTS: usize = 100;

/// `POST /v1/posts`.
pub(crate) async fn publish(app: &App, request: &Request) -> Result<Response, Problem> {
    let author = request.caller()?;
    let (PublishPostRequest { title, body, data, weight, of }, key) = request.keyed_body()?;
    let weight = weight.unwrap_or(0);
    let new = NewPost { author, title, text: PostText { body, data }, weight, of: of.map(Reference::Quote) };
    let post = match app.publishing.publish(&new, key.as_ref()).await? {
        Published::Created(post, _) | Published::Repeated(post) => post,
        Published::KeyReused => return Err(Problem::key_reused()),
        Published::Full => return Err(full()),
        Published::Withheld(withheld) => {
            return Err(Problem::withheld(withheld, of.map_or_else(String::new, |of| of.to_string())));
        }
    };
    let (of, degraded) = original_of(app, request, post.of).await?;
    // Title and text of the request: an edit does not change the response to a repeated publish.
    let body = PublishedPost {
        id: post.id,
        author: post.id.author,
        seq: post.id.seq,
        delivery: planned(&post),
        title: new.title,
        body: new.text.body,
        data: raw(new.text.data),
        weight,
        created_at: post.created_at,
        of,
    };
    Ok(Response::json(201, &body).header("location", &format!("/v1/posts/{}", post.id)).degraded(degraded))
}

fn full() -> Problem {
    Problem::new(Kind::PostLimit, format!("an author can publish {LAST_POST} posts; nothing was published"))
}

/// The original of one post, and whether the views were unavailable.
async fn original_of(app: &App, request: &Request, of: Option<Reference>) -> Result<(Option<Original>, bool), Problem> {
    let originals = app.readers.originals(request.viewer()?, of.into_iter(), PageParts::default()).await?;
    Ok((of.map(|of| Original::new(of, &originals)), originals.degraded))
}

/// `GET /v1/posts/{post}`.
pub(crate) async fn get(app: &App, request: &Request) -> Result<Response, Problem> {
    let viewer = request.viewer()?;
    let id: PostId = request.parameter("post")?;
    let with_profiles = request.wants_profiles()?;
    let found = app.readers.post(viewer, id).await?;
    let mut details = *found.map_err(|withheld| Problem::withheld(withheld, id))?;
    let (mut known, degraded) = (std::mem::take(&mut details.cards), details.degraded);
    let mut originals = originals(app, request, std::slice::from_ref(&details), with_profiles).await?;
    known.extend(std::mem::take(&mut originals.cards));
    let degraded = degraded || originals.degraded;
    let post = rendered(details, &originals);
    let (profiles, without_views) = app.profiles(with_profiles, std::slice::from_ref(&post), Some(known)).await?;
    Ok(Response::json(200, &Post { profiles, ..post }).degraded(degraded || without_views))
}

/// `GET /v1/posts?post=…`.
pub(crate) async fn get_many(app: &App, request: &Request) -> Result<Response, Problem> {
    let viewer = request.viewer()?;
    let ids: Vec<PostId> = request.many("post", MAX_POSTS)?;
    let with_profiles = request.wants_profiles()?;
    let Ok(mut found) = app.readers.posts(viewer, &ids).await? else {
        let detail = format!("the texts of these posts have more than {MOST_TEXT} bytes: ask for fewer posts");
        return Err(Problem::new(Kind::TooMuchText, detail));
    };
    let mut originals = originals(app, request, &found, with_profiles).await?;
    let mut known: HashMap<_, _> = found.iter_mut().flat_map(|details| std::mem::take(&mut details.cards)).collect();
    known.extend(std::mem::take(&mut originals.cards));
    let degraded = originals.degraded || found.iter().any(|details| details.degraded);
    let items: Vec<Post> = found.into_iter().map(|details| rendered(details, &originals)).collect();
    let (profiles, without_views) = app.profiles(with_profiles, &items, Some(known)).await?;
    Ok(Response::json(200, &Posts { items, profiles }).degraded(degraded || without_views))
}

async fn originals(app: &App, request: &Request, posts: &[PostDetails], cards: bool) -> Result<Originals, Problem> {
    let parts = PageParts { cards, counts: true, ..PageParts::default() };
    Ok(app.readers.originals(request.viewer()?, posts.iter().filter_map(|details| details.item.post.of), parts).await?)
}

fn rendered(details: PostDetails, originals: &Originals) -> Post {
    let PostDetails { item, text, counts, .. } = details;
    let (FeedItem { post, read, liked, favorited, .. }, counts) = originals.shown(item, counts);
    Post {
        id: post.id,
        author: post.id.author,
        seq: post.id.seq,
        title: post.shown_title(),
        body: text.body,
        data: raw(text.data),
        created_at: post.created_at,
        revision: post.revision.into(),
        of: post.of.map(|of| Original::new(of, originals)),
        read,
        liked,
        favorited,
        likes: counts.likes,
        favorites: counts.favorites,
        reposts: counts.reposts,
        comments: counts.comments,
        profiles: None,
    }
}

/// `PUT /v1/posts/{post}`.
pub(crate) async fn edit(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let id: PostId = request.parameter("post")?;
    let EditPostRequest { title, body, data } = request.body()?;
    let text = PostText { body, data };
    let post = match app.publishing.edit(caller, id, &title, &text).await? {
        PostChange::Stands(post) if post.reposted().is_some() => {
            return Err(Problem::new(Kind::RepostText, format!("{id} is a repost: it has neither title nor text")));
        }
        PostChange::Stands(post) => post,
        PostChange::NotAuthor => return Err(Problem::forbidden("only its author may edit a post")),
        PostChange::Unknown => return Err(Problem::no_post(id)),
    };
    let (of, degraded) = original_of(app, request, post.of).await?;
    let body = EditedPost {
        id,
        author: id.author,
        seq: id.seq,
        title,
        body: text.body,
        data: raw(text.data),
        created_at: post.created_at,
        revision: post.revision.into(),
        edited_at: post.edited_at,
        of,
    };
    Ok(Response::json(200, &body).degraded(degraded))
}

/// `DELETE /v1/posts/{post}`.
pub(crate) async fn delete(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let id: PostId = request.parameter("post")?;
    match app.publishing.delete(caller, request.moderates(), id).await? {
        PostChange::Stands(()) => Ok(Response::no_content()),
        PostChange::NotAuthor => Err(Problem::forbidden("only its author may delete a post")),
        PostChange::Unknown => Err(Problem::no_post(id)),
    }
}

/// `PUT` and `DELETE /v1/posts/{post}/repost`.
pub(crate) async fn repost(app: &App, request: &Request) -> Result<Response, Problem> {
    let (viewer, id) = (request.viewer()?, request.parameter("post")?);
    let body = if request.is_put() {
        match app.publishing.repost(viewer.user, id).await? {
            Reposting::Stands { repost, reposts } => Reposted { reposted: true, post: Some(repost), reposts },
            Reposting::Withheld(withheld) => return Err(Problem::withheld(withheld, id)),
            Reposting::Full => return Err(full()),
        }
    } else {
        let reposts = app.publishing.withdraw(viewer, id).await?.map_err(|withheld| Problem::withheld(withheld, id))?;
        Reposted { reposted: false, post: None, reposts }
    };
    Ok(Response::json(200, &body))
}

/// `GET /v1/posts/{post}/reposts`.
pub(crate) async fn reposters(app: &App, request: &Request) -> Result<Response, Problem> {
    let viewer = request.viewer()?;
    let id: PostId = request.parameter("post")?;
    let page = Page::of(request)?;
    let (before, profiles) = (page.below_relation()?, request.wants_profiles()?);
    let found = app.readers.reposters_page(viewer, id, before, page.limit).await?;
    let found = found.map_err(|withheld| Problem::withheld(withheld, id))?;
    let entry = |of: Reposter| RepostEntry { user: of.by.user, post: of.repost, since: of.by.since };
    let items: Vec<RepostEntry> = found.items.into_iter().map(entry).collect();
    let (profiles, degraded) = app.profiles(profiles, &items, None).await?;
    let next = found.next.map(Cursor::Relation);
    let response = Page::response(request, next, |next_cursor| RepostPage { items, next_cursor, profiles });
    Ok(response.degraded(degraded))
}

/// `PUT` and `DELETE /v1/posts/{post}/like` and `…/favorite`.
pub(crate) async fn react(app: &App, request: &Request, reaction: Reaction) -> Result<Response, Problem> {
    let (viewer, given) = (request.viewer()?, request.is_put());
    let id: PostId = request.parameter("post")?;
    let counts = app.publishing.react(viewer, id, reaction, given).await?;
    let ReactionCounts { likes, favorites, .. } = counts.map_err(|withheld| Problem::withheld(withheld, id))?;
    Ok(match reaction {
        Reaction::Like => Response::json(200, &Liked { liked: given, likes }),
        Reaction::Favorite => Response::json(200, &Favorited { favorited: given, favorites }),
    })
}

/// `GET /v1/posts/{post}/likes` and `…/favorites`.
pub(crate) async fn likers(app: &App, request: &Request, reaction: Reaction) -> Result<Response, Problem> {
    let viewer = request.viewer()?;
    let id: PostId = request.parameter("post")?;
    let page = Page::of(request)?;
    let (before, profiles) = (page.below_relation()?, request.wants_profiles()?);
    let found = app.readers.likers_page(viewer, id, reaction, before, page.limit).await?;
    let found = found.map_err(|withheld| Problem::withheld(withheld, id))?;
    let items: Vec<RelationEntry> = found.items.into_iter().map(RelationEntry::from).collect();
    let (profiles, degraded) = app.profiles(profiles, &items, None).await?;
    let next = found.next.map(Cursor::Relation);
    let response = Page::response(request, next, |next_cursor| RelationPage { items, next_cursor, profiles });
    Ok(response.degraded(degraded))
}

/// `GET /v1/posts/{post}/delivery`.
pub(crate) async fn delivery(app: &App, request: &Request) -> Result<Response, Problem> {
    let viewer = request.viewer()?;
    let id: PostId = request.parameter("post")?;
    let found = app.publishing.delivery(viewer, id).await?.map_err(|withheld| Problem::withheld(withheld, id))?;
    let body = Delivery {
        state: found.status.state,
        delivered: found.status.delivered,
        pages_done: found.status.pages_done,
        attempts: found.post.delivery.attempts.into(),
        finished_at: found.post.delivery.finished_at,
        ..planned(&found.post)
    };
    Ok(Response::json(200, &body).degraded(found.degraded))
}

/// The delivery in the response to a publish. It is always the planned delivery, so that a repeated request gets the
/// same response.
fn planned(post: &domain::Post) -> Delivery {
    Delivery {
        mode: post.delivery.mode,
        state: DeliveryState::Pending,
        followers: post.delivery.followers,
        delivered: 0,
        pages: post.delivery.pages.into(),
        pages_done: 0,
        attempts: 0,
        started_at: post.delivery.started_at,
        finished_at: None,
    }
}

//! `GET /v1/authors/{author}/posts`: one author's posts with the caller's flags, from the facts.

use serde_json::json;
use tidemark::{
    App,
    domain::{Cursor, Post},
    http::{Answer, Page, Problem, Request},
    reader::Status,
};

/// One page of an author's timeline.
pub(crate) async fn page(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let author = request.user_parameter("author")?;
    let status = crate::status(request)?;
    let page = Page::of(request)?;
    let before = page.position(|cursor| match cursor {
        Cursor::Author(seq) => Some(seq),
        Cursor::Feed(_) | Cursor::Relation(_) => None,
    })?;
    let flags = app.readers.flags(caller, author).await?;
    let latest = flags.head().latest_seq;
    let mut upto = before.map_or(latest, |seq| seq.saturating_sub(1).min(latest));
    let (after, total) = match status {
        Status::All => (0, flags.head().posts),
        Status::Unread => (flags.oldest_unread().map_or(latest, |seq| seq - 1), flags.unread()),
    };
    let wanted = |post: &Post| !post.deleted && (status == Status::All || flags.is_unread(post.id.seq));

    // One more than asked for tells whether there is a next page.
    let mut posts: Vec<Post> = Vec::with_capacity(page.limit + 1);
    while posts.len() <= page.limit && upto > after {
        let loaded = app.posts.timeline(author, after, upto, page.limit + 1).await?;
        let Some(last) = loaded.last() else { break };
        upto = last.id.seq - 1;
        posts.extend(loaded.into_iter().filter(wanted));
    }
    let more = posts.len() > page.limit;
    posts.truncate(page.limit);
    let next = posts.last().filter(|_| more).map(|post| Cursor::Author(post.id.seq));
    let items = posts.iter().map(|post| crate::item(post, flags.is_read(post.id.seq))).collect();
    Ok(Page::answer(request, items, next, json!({ "total": total })))
}

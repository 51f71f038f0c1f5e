//! `GET /v1/authors/{author}/posts`: one author's posts with the caller's flags, from the facts.

use serde_json::json;
use tidemark::{
    App,
    domain::{Cursor, Post, PostId, Seq, UserId},
    http::{Answer, Page, Problem, Request},
    reader::{Flags, Status},
};

/// One page of an author's timeline.
pub(crate) async fn page(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let author = request.user_parameter("author")?;
    let status = crate::status(request)?;
    let page = Page::of(request)?;
    let before = page.position(|cursor| match cursor {
        Cursor::Author(seq) => Some(seq),
        Cursor::Feed(_) | Cursor::Relation(_) | Cursor::Notice(_) => None,
    })?;
    let flags = app.readers.flags(caller, author).await?;
    let latest = flags.head().latest_seq;
    let upto = before.map_or(latest, |seq| seq.saturating_sub(1).min(latest));
    // One more than asked for tells whether there is a next page.
    let wanted = page.limit + 1;
    let (mut posts, total) = match status {
        Status::All => (all(app, author, upto, wanted).await?, flags.head().posts),
        Status::Unread => (unread(app, author, &flags, upto, wanted).await?, flags.unread()),
    };
    let more = posts.len() > page.limit;
    posts.truncate(page.limit);
    let next = posts.last().filter(|_| more).map(|post| Cursor::Author(post.id.seq));
    let item = |post: Post| {
        let read = flags.is_read(post.id.seq);
        crate::item(&post.into(), read)
    };
    let items = posts.into_iter().map(item).collect();
    Ok(Page::answer(request, items, next, json!({ "total": total })))
}

/// Live posts up to `upto`, newest first.
async fn all(app: &App, author: UserId, mut upto: Seq, wanted: usize) -> Result<Vec<Post>, Problem> {
    let mut posts: Vec<Post> = Vec::with_capacity(wanted);
    while posts.len() < wanted {
        let loaded = app.posts.timeline(author, 0, upto, wanted).await?;
        let Some(last) = loaded.last() else { break };
        upto = last.id.seq - 1;
        posts.extend(loaded.into_iter().filter(|post| !post.deleted));
    }
    posts.truncate(wanted);
    Ok(posts)
}

/// Posts up to `upto` that count as unread, newest first: just these are read.
async fn unread(app: &App, author: UserId, flags: &Flags, upto: Seq, wanted: usize) -> Result<Vec<Post>, Problem> {
    let ids: Vec<PostId> =
        flags.unread_seqs().filter(|&seq| seq <= upto).take(wanted).map(|seq| PostId::new(author, seq)).collect();
    let mut posts = app.posts.posts(&ids).await?;
    Ok(ids.iter().filter_map(|id| posts.remove(id)).collect())
}

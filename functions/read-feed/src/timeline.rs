//! `GET /v1/authors/{author}/posts`: one author's posts with the caller's flags, from the facts.

use serde_json::json;
use tidemark::{
    App,
    domain::{Cursor, Post, Seq},
    http::{Answer, Page, Problem, Request},
    reader::{FeedItem, Status},
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
    let (flags, reactions) = futures::try_join!(app.readers.flags(caller, author), app.readers.reactions_to(caller, author))?;
    let latest = flags.head().latest_seq;
    let upto = before.map_or(latest, |seq| seq.saturating_sub(1).min(latest));
    // One more than asked for tells whether there is a next page.
    let wanted = page.limit + 1;
    let (mut seqs, total): (Vec<Seq>, u64) = match status {
        Status::All => (flags.head().listed_seqs(upto, wanted), flags.head().posts),
        Status::Unread => (flags.unread_seqs().filter(|&seq| seq <= upto).take(wanted).collect(), flags.unread()),
    };
    let more = seqs.len() > page.limit;
    seqs.truncate(page.limit);
    // A post that was deleted since the head was read shortens this page. The next one begins where it would have begun.
    let next = seqs.last().filter(|_| more).map(|&seq| Cursor::Author(seq));
    let posts = app.posts.posts_of(author, &seqs).await?;
    let item = |post: Post| {
        let read = flags.is_read(post.id.seq);
        crate::item(&FeedItem::new(post.into(), read, &reactions))
    };
    let items = posts.into_iter().filter(|post| !post.deleted).map(item).collect();
    Ok(Page::answer(request, items, next, json!({ "total": total })))
}

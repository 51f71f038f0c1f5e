//! Pages of one author's posts with a reader's flags, from the facts.

use super::{FeedItem, Readers, Status};
use crate::error::StoreError;
use tidemark_domain::{Post, Seq, UserId};

/// A page of an author timeline.
#[derive(Debug, Clone)]
pub struct AuthorPage {
    /// Newest first. A post that is deleted during the read is missing from the page.
    pub items: Vec<FeedItem>,
    /// The next page begins below this number. `None` only at the end.
    pub next: Option<Seq>,
    /// The number of all posts of the author with the requested status.
    pub total: u64,
}

impl Readers {
    /// Returns one page below `before`.
    pub async fn author_page(
        &self,
        caller: UserId,
        author: UserId,
        status: Status,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<AuthorPage, StoreError> {
        let (flags, reactions) = futures::try_join!(self.flags(caller, author), self.reactions_to(caller, author))?;
        let latest = flags.head().latest_seq;
        let upto = before.map_or(latest, |seq| seq.saturating_sub(1).min(latest));
        // One more than requested shows whether there is a next page.
        let wanted = limit + 1;
        let (mut seqs, total): (Vec<Seq>, u64) = match status {
            Status::All => (flags.head().listed_seqs(upto, wanted), flags.head().posts),
            Status::Unread => (flags.unread_seqs().filter(|&seq| seq <= upto).take(wanted).collect(), flags.unread()),
        };
        let more = seqs.len() > limit;
        seqs.truncate(limit);
        let next = seqs.last().copied().filter(|_| more);
        let posts = self.stores.posts.posts_of(author, &seqs).await?;
        let item = |post: Post| {
            let read = flags.is_read(post.id.seq);
            FeedItem::new(post.into(), read, &reactions)
        };
        Ok(AuthorPage { items: posts.into_iter().filter(|post| !post.deleted).map(item).collect(), next, total })
    }
}

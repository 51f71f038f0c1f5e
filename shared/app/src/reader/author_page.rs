//! Pages of one author's posts with a reader's flags.
//!
//! A timeline follows from the author's head: its posts are the numbers up to the latest one that are not deleted. So
//! the head, which Redis keeps, is the whole index, and the page needs only the summaries of its posts.

use std::collections::HashMap;

use futures::FutureExt;
use tidemark_domain::{
    AuthorHead, Card, PostId, PostSummary, ReactionState, Seen, Seq, UserId, Viewer, Withheld, store::Result,
    visibility::may_see_author,
};
use tidemark_views::{KnownFollow, KnownReader, PageParts};

use super::{Body, FeedItem, Readers, Status, unless_failed};
use crate::cut;

/// The page of a timeline that a reader asks for.
#[derive(Debug, Clone, Copy)]
pub struct AuthorQuery {
    pub author: UserId,
    pub status: Status,
    /// The page begins below this number; at the latest post if `None`.
    pub before: Option<Seq>,
    pub limit: usize,
    /// The timeline ends above this number.
    pub since: Option<Seq>,
    pub parts: PageParts,
}

impl AuthorQuery {
    fn upto(&self, head: &AuthorHead) -> Seq {
        self.before.map_or(head.latest_seq, |seq| seq.saturating_sub(1).min(head.latest_seq))
    }

    /// Returns the posts of the page from all that the author has, and one more, which shows if there is a next page.
    fn listed(&self, head: &AuthorHead) -> Vec<Seq> {
        head.listed_seqs(self.upto(head), self.limit + 1)
    }

    /// The same from unread posts, which descend.
    fn unread(&self, head: &AuthorHead, unread: impl Iterator<Item = Seq>) -> Vec<Seq> {
        let upto = self.upto(head);
        unread.filter(|&seq| seq <= upto).take(self.limit + 1).collect()
    }

    /// Cuts the numbers at the end of the page and of the timeline. Returns where the next page begins.
    fn cut(&self, seqs: &mut Vec<Seq>) -> Option<Seq> {
        seqs.retain(|&seq| self.since.is_none_or(|since| seq > since));
        cut(seqs, self.limit)
    }
}

#[derive(Debug, Clone, Default)]
pub struct AuthorPage {
    /// Newest first. A post that is deleted during the read is missing from the page.
    pub items: Vec<FeedItem>,
    /// The next page begins below this number. `None` only at the end.
    pub next: Option<Seq>,
    /// The number of all posts of the author with the requested status.
    pub total: u64,
    pub cards: HashMap<UserId, Option<Card>>,
    pub bodies: HashMap<PostId, Body>,
    pub degraded: bool,
}

impl Readers {
    /// Returns one page of a timeline. A page that is read often costs two round trips to Redis.
    pub async fn author_page(&self, viewer: impl Into<Viewer>, query: AuthorQuery) -> Result<Seen<AuthorPage>> {
        let viewer = viewer.into();
        let page = async {
            let (head, known) = self.outage.checked(self.stores.views.known_timeline(viewer.user, query.author)).await?;
            self.known_author_page(viewer, query, head, known).await
        };
        let page = match unless_failed(viewer.user, page.boxed().await)? {
            (Some(Some(page)), _) => page,
            (_, degraded) => self.author_page_of_facts(viewer, query, degraded).await?,
        };
        // The timeline of an author who leaves is empty, like that of one who has left.
        Ok(if matches!(page, Err(Withheld::Gone)) { Ok(AuthorPage::default()) } else { page })
    }

    /// Returns the page that the views imply; `None` if they do not know all of it.
    async fn known_author_page(
        &self,
        viewer: Viewer,
        query: AuthorQuery,
        head: Option<AuthorHead>,
        mut known: KnownReader,
    ) -> Result<Option<Seen<AuthorPage>>> {
        let (AuthorQuery { author, parts, .. }, reader) = (query, viewer.user);
        let head = match head {
            Some(head) => head,
            None => self.heads_of_facts(&[author]).await?.remove(&author).unwrap_or_default().for_views(),
        };
        known.audience = Some(head.audience());
        // The head in Redis does not have the archived posts.
        if head.posts != head.implied_posts() {
            return Ok(None);
        }
        let (mut seqs, total) = match (query.status, &known.follow) {
            (Status::All, _) => (query.listed(&head), head.posts),
            (Status::Unread, KnownFollow::Following(state)) if state.older == 0 && !state.asks() => {
                // Every post of the head counts, delivered or not, as it does in the facts. So no post becomes visible
                // below one that a poll has returned.
                let state = state.clone().delivered_upto(head.latest_seq);
                let is_unread = |seq: &Seq| state.is_unread(*seq);
                let gone =
                    if head.deletions() > state.deletions { head.deleted.above(state.base).filter(is_unread).count() } else { 0 };
                let live = state.unread_seqs().filter(|seq| gone == 0 || !head.deleted.contains(*seq));
                (query.unread(&head, live), state.unread().saturating_sub(gone as u64))
            }
            (Status::Unread, KnownFollow::NotFollowing) => (Vec::new(), 0),
            (Status::Unread, _) => return Ok(None),
        };
        let next = query.cut(&mut seqs);
        let ids: Vec<PostId> = seqs.iter().map(|&seq| PostId::new(author, seq)).collect();
        let page = self.stores.views.known_page(reader, &ids, parts).await?;
        let (mut posts, _) = self.fill_summaries(&ids, page.summaries).await?;
        let sight = self.sight(viewer, author, &known, &seqs).await?;
        if let Err(withheld) = may_see_author(sight.standing) {
            return Ok(Some(Err(withheld)));
        }
        let reactions = self.reactions_of_page(reader, &posts, Some(page.reactions)).await?;
        let reactions = reactions.get(&author).cloned().unwrap_or_default();
        let mut counts = page.counts;
        if known.changed_lately {
            // A reader who has just reacted to a post sees its exact counts.
            let reacted = |seq| reactions.liked.contains(seq) || reactions.favorited.contains(seq);
            counts.retain(|post, _| !reacted(post.seq));
        }
        let (bodies, shortened) = self.bodies(viewer, parts, &mut posts, Some((page.texts, counts))).await?;
        let (items, next) = finished(posts, |seq| sight.is_read(seq), &reactions, next, shortened);
        Ok(Some(Ok(AuthorPage { items, next, total, cards: page.cards, bodies, degraded: false })))
    }

    async fn author_page_of_facts(&self, viewer: Viewer, query: AuthorQuery, degraded: bool) -> Result<Seen<AuthorPage>> {
        let (AuthorQuery { author, parts, .. }, reader) = (query, viewer.user);
        let ((flags, blocks), reactions) =
            futures::try_join!(self.flags_of_facts(reader, author), self.reactions_to(reader, author))?;
        if let Err(withheld) = may_see_author(flags.facts.standing(viewer, blocks)) {
            return Ok(Err(withheld));
        }
        let (mut seqs, total) = match query.status {
            Status::All => (query.listed(&flags.facts.head), flags.facts.head.posts),
            Status::Unread => (query.unread(&flags.facts.head, flags.unread_seqs()), flags.unread()),
        };
        let next = query.cut(&mut seqs);
        let posts = self.stores.facts.posts_of(author, &seqs).await?;
        let mut posts: Vec<PostSummary> = posts.into_iter().filter(|post| !post.deleted).map(PostSummary::from).collect();
        let (bodies, shortened) = self.bodies(viewer, parts, &mut posts, None).await?;
        let (items, next) = finished(posts, |seq| flags.is_read(seq), &reactions, next, shortened);
        Ok(Ok(AuthorPage { items, next, total, cards: HashMap::new(), bodies, degraded }))
    }
}

/// Returns the items of a page, and where the next begins: `next`, or below the last item if `shortened`.
fn finished(
    posts: Vec<PostSummary>,
    is_read: impl Fn(Seq) -> bool,
    reactions: &ReactionState,
    next: Option<Seq>,
    shortened: bool,
) -> (Vec<FeedItem>, Option<Seq>) {
    let next = if shortened { posts.last().map(|post| post.id.seq) } else { next };
    let item = |post: PostSummary| {
        let read = is_read(post.id.seq);
        FeedItem::new(post, read, reactions)
    };
    (posts.into_iter().map(item).collect(), next)
}

//! One page of the home timeline.

use std::collections::HashMap;

use tracing::warn;

use super::{Lane, Merge, Origin, ReaderError, Readers, Snapshot};
use crate::{
    domain::{FeedKey, Post, PostId, Timestamp, UserId},
    ports::ViewError,
};

/// Which posts a page is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Status {
    /// All.
    #[default]
    All,
    /// Those that count as unread.
    Unread,
}

/// A post and whether the reader has read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedItem {
    /// The post.
    pub post: Post,
    /// False exactly when it counts as unread.
    pub read: bool,
}

/// A page, newest first.
#[derive(Debug, Clone)]
pub struct FeedPage {
    /// At most as many as asked for.
    pub items: Vec<FeedItem>,
    /// Where the next page goes on; `None` at the end only.
    pub next: Option<FeedKey>,
    /// Posts that count as unread in the whole feed.
    pub unread_total: u64,
    /// Where the page comes from.
    pub origin: Origin,
}

/// Chunks read in one round trip.
const CHUNKS_AT_ONCE: usize = 4;

/// Chunks that may vanish under a reader before the view counts as damaged.
const ATTEMPTS: usize = 3;

impl Readers {
    /// The page of `limit` posts below `before`.
    ///
    /// # Errors
    /// The facts do not answer.
    pub async fn feed_page(
        &self,
        user: UserId,
        status: Status,
        before: Option<FeedKey>,
        limit: usize,
    ) -> Result<FeedPage, ReaderError> {
        for attempt in 0..ATTEMPTS {
            let snapshot = self.snapshot(user).await?;
            match self.page_of(user, &snapshot, status, before, limit).await {
                // A chunk that the state lists is gone: trimmed just now, or lost. Look again, then rebuild.
                Err(ReaderError::View(ViewError::Damaged { detail })) => {
                    warn!(%user, attempt, detail, "feed does not match its state");
                    if attempt > 0 {
                        self.rebuild(user, true).await?;
                    }
                }
                Err(ReaderError::View(error)) => {
                    warn!(%user, error = &error as &dyn std::error::Error, "view unavailable, answering from the facts");
                    break;
                }
                other => return other,
            }
        }
        let snapshot = self.snapshot_of_facts(user, Origin::Degraded).await?;
        self.page_of(user, &snapshot, status, before, limit).await
    }

    async fn page_of(
        &self,
        user: UserId,
        snapshot: &Snapshot,
        status: Status,
        before: Option<FeedKey>,
        limit: usize,
    ) -> Result<FeedPage, ReaderError> {
        // One more than asked for tells whether there is a next page.
        let mut posts = Vec::with_capacity(limit + 1);
        let mut bound = before;
        let mut from_facts = snapshot.origin != Origin::View;
        if !from_facts {
            let low = snapshot.state.meta.low;
            let wanted = |key: &FeedKey| {
                key.at >= low && snapshot.state.shows(key) && (status == Status::All || snapshot.state.is_unread(key.post))
            };
            let mut days = snapshot.state.meta.days.clone();
            while posts.len() <= limit {
                let keys = self.stored_keys(user, &mut days, bound, limit + 1 - posts.len(), &wanted).await?;
                let Some(last) = keys.last() else { break };
                bound = Some(*last);
                posts.extend(self.live_posts(&keys).await?);
            }
            if posts.len() <= limit && low > Timestamp::default() {
                let lowest = FeedKey { at: low, post: PostId::new(UserId::MIN, 0) };
                bound = Some(bound.map_or(lowest, |bound| bound.min(lowest)));
                from_facts = true;
            }
        }
        if from_facts {
            let owned;
            let snapshot = if snapshot.origin == Origin::View {
                let authors: Vec<UserId> = snapshot.state.authors.keys().copied().collect();
                owned = Snapshot { heads: self.posts.heads(&authors).await?, ..snapshot.clone() };
                &owned
            } else {
                snapshot
            };
            let lanes = match status {
                Status::All => Lane::of_feed(snapshot),
                Status::Unread => Lane::of_unread(snapshot),
            };
            let mut merge = Merge::new(&*self.posts, lanes, bound);
            while posts.len() <= limit
                && let Some(post) = merge.next().await?
            {
                posts.push(post);
            }
        }
        let more = posts.len() > limit;
        posts.truncate(limit);
        let next = posts.last().filter(|_| more).map(|post| post.key());
        let items = posts.into_iter().map(|post| FeedItem { read: !snapshot.state.is_unread(post.id), post }).collect();
        Ok(FeedPage { items, next, unread_total: snapshot.state.unread_total(), origin: snapshot.origin })
    }

    /// At least one and at most `limit` keys that the view stores below `bound` and that are `wanted`, newest first; none at its end. Takes the days
    /// that are read to their end out of `days`.
    async fn stored_keys(
        &self,
        user: UserId,
        days: &mut Vec<u16>,
        bound: Option<FeedKey>,
        limit: usize,
        wanted: &(dyn Fn(&FeedKey) -> bool + Sync),
    ) -> Result<Vec<FeedKey>, ReaderError> {
        let mut keys = Vec::new();
        if let Some(bound) = bound {
            days.retain(|&day| day <= bound.at.day());
        }
        let mut below = bound;
        while keys.len() < limit && !days.is_empty() {
            let newest: Vec<u16> = days.iter().rev().take(CHUNKS_AT_ONCE).copied().collect();
            let chunks = self.views.chunks(user, &newest, below, limit).await?;
            for (day, chunk) in newest.iter().zip(chunks) {
                let chunk = chunk.ok_or_else(|| ViewError::Damaged { detail: format!("feed chunk of day {day} is gone") })?;
                below = chunk.last().copied().or(below);
                keys.extend(chunk.iter().copied().filter(|key| wanted(key)));
                // A full answer may hide more of the day, and a cut one has to be read again.
                if chunk.len() >= limit || keys.len() > limit {
                    break;
                }
                days.pop();
            }
        }
        keys.truncate(limit);
        Ok(keys)
    }

    /// The posts of these keys in their order, without deleted ones.
    async fn live_posts(&self, keys: &[FeedKey]) -> Result<Vec<Post>, ReaderError> {
        let ids: Vec<PostId> = keys.iter().map(|key| key.post).collect();
        let mut posts: HashMap<PostId, Post> = self.posts.posts(&ids).await?;
        Ok(ids.iter().filter_map(|id| posts.remove(id)).filter(|post| !post.deleted).collect())
    }
}

//! Ranked feeds: the delivery to them, and the steps of posts.
//!
//! After a reaction, one [`Task::Rank`] a moment compares the exact counts of the post with its step. If the step changes,
//! [`Task::Rescore`] moves the post in the ranked feeds of the author's followers. That needs no progress: the queue
//! repeats a task until it is done, and reconcile compares scores with the facts.
//!
//! The posts of an author who was ever pulled are not rescored. The first page of each ranked walk compares them
//! ([`crate::reader::Readers::ranked_page`]).

use std::ops::Range;

use tidemark_domain::{
    Modes, Post, PostId, UserId,
    pages::{page_buckets, page_count, page_tasks},
};

use super::FanOuts;
use crate::{error::StoreError, ports::Task};

impl FanOuts {
    /// Delivers a live post to feeds, and then to those that are ranked. If it ends in between, the next ranked read
    /// sees that its ranked feed lacks the post.
    pub async fn deliver(&self, users: &[UserId], post: &Post, modes: Modes) -> Result<(), StoreError> {
        let views = &self.stores.reader_views;
        let delivered = views.deliver(users, post.key(), modes).await?;
        if delivered.ranked.is_empty() {
            return Ok(());
        }
        views.rank(&delivered.ranked, self.sync.readers.half_life, &[(post.key(), post.rank())], false).await
    }

    /// Changes the step of a post as long as its reactions imply another. If this task has made the last change, also in
    /// an earlier attempt, it tells the views.
    pub async fn rank(&self, id: PostId, token: u64) -> Result<(), StoreError> {
        // From now on a reaction sends another task. Every earlier reaction is in the counts that are read next.
        self.stores.post_views.begin_rank(id).await?;
        let mut attempts = self.stores.attempts("rank");
        loop {
            attempts.next().await?;
            // The post comes first: if its step changes after this, the counts may be older than that change, and the
            // condition of the write fails.
            let Some((post, by)) = self.stores.posts.ranked_by(id).await? else { return Ok(()) };
            if post.deleted {
                return Ok(());
            }
            let counts = self.stores.reactions.counts(id).await?.counts;
            match post.step.after(counts) {
                // Also after a success the loop looks again: the counts may have been older than those on which another
                // task relied when it left the step as it was.
                Some(step) => _ = self.stores.posts.set_step(id, step, token).await?,
                None if by == Some(token) => return self.announce(&post).await,
                None => return Ok(()),
            }
        }
    }

    /// Tells the views that the step of a post has changed: first the summary, from which ranked feeds are filled, then
    /// the ranked feeds.
    async fn announce(&self, post: &Post) -> Result<(), StoreError> {
        self.stores.post_views.remember(&[(post.clone().into(), None)], None).await?;
        let author = post.id.author;
        let head = self.stores.posts.heads(&[author]).await?.remove(&author).unwrap_or_default();
        if !head.modes.is_push_alone() {
            return Ok(());
        }
        let followers: u64 = self.stores.edges.follower_counts(author).await?.iter().sum();
        if followers == 0 {
            return Ok(());
        }
        let pages = page_count(followers);
        let task = |range: Range<u16>| Task::Rescore { post: post.id, pages, from: range.start, to: range.end, tries: 0 };
        self.stores.queue.send(&page_tasks(pages).into_iter().map(task).collect::<Vec<_>>()).await
    }

    /// Moves a post in the ranked feeds of these pages. Each page reads the post again, so late pages do no harm.
    pub(super) async fn rescore(
        &self,
        id: PostId,
        pages: u16,
        range: Range<u16>,
        out_of_time: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), StoreError> {
        for page in range.clone() {
            if page > range.start && out_of_time() {
                let rest = Task::Rescore { post: id, pages, from: page, to: range.end, tries: 0 };
                return self.stores.queue.send(&[rest]).await;
            }
            let users = self.stores.edges.followers_in(id.author, page_buckets(page, pages)).await?;
            let Some(post) = self.stores.posts.posts(&[id]).await?.remove(&id).filter(|post| !post.deleted) else {
                return Ok(());
            };
            let ranks = [(post.key(), post.rank())];
            self.stores.reader_views.rank(&users, self.sync.readers.half_life, &ranks, false).await?;
        }
        Ok(())
    }
}

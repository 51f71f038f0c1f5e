//! The steps of posts, and their moves in ranked feeds.
//!
//! After a reaction, a [`Task::Rank`] compares the exact counts of the post with its step. Reactions of the same moment
//! share one task. If the step
//! changes, Redis notes the post for the author's next [`Task::Rescore`]. That sends all noted posts together to the
//! followers' ranked feeds, in one [`Task::Move`] for each range of pages. An author has one of these fan-outs at a
//! time, with a pause after it. They need no progress: the queue repeats a task until it is done, and reconcile
//! compares scores with the facts.
//!
//! The posts of an author who was ever pulled are not rescored: the first page of each ranked walk compares them.

use std::{ops::Range, time::Duration};

use tidemark_domain::{
    FeedKey, Post, PostId, Rank, UserId,
    pages::{page_buckets, page_count, page_tasks},
    store::Result,
};
use tidemark_queue::{MovedPost, Task};
use tidemark_views::Moved;

use super::FanOuts;
use crate::OutOfTime;

/// The pause after a [`Task::Rescore`], for each page of followers: about ten times as long as the work on a page. So
/// users who react to an author's posts cannot keep the workers busy.
const EACH_PAGE: Duration = Duration::from_millis(100);
const LEAST_PAUSE: Duration = Duration::from_secs(1);
const MOST_PAUSE: Duration = Duration::from_secs(60);

/// Posts of a page that are moved before the task looks at its time. 250 posts would take some 500 calls.
const POSTS_AT_ONCE: usize = 25;

impl FanOuts {
    /// Changes the step of a post as long as its reactions imply another. If this task has made the last change, also
    /// in an earlier attempt, it updates the views.
    ///
    /// No reaction relies on this task once it may have begun ([`ViewSync::reacted`](crate::ViewSync)). So every
    /// reaction that does is in the counts.
    pub async fn rank(&self, id: PostId, token: u64) -> Result<()> {
        let mut attempts = self.stores.attempts("rank");
        loop {
            attempts.next().await?;
            // The post comes before the counts: if its step changes in between, the write's condition fails.
            let Some((post, by)) = self.stores.facts.ranked_by(id).await? else { return Ok(()) };
            if post.deleted {
                return Ok(());
            }
            let counts = self.stores.facts.counts_without_comments(id).await?;
            match post.step.after(counts) {
                // The loop looks again even after a success: the counts may have been older than those on which another
                // task relied when it left the step as it was.
                Some(step) => _ = self.stores.facts.set_step(id, step, token).await?,
                None if by == Some(token) => return self.show_step(&post, token).await,
                None => return Ok(()),
            }
        }
    }

    /// Updates the summary, from which ranked feeds are filled, then the ranked feeds.
    ///
    /// Changes of other posts rely on the task that this sends. If this ends before, the queue repeats it.
    async fn show_step(&self, post: &Post, token: u64) -> Result<()> {
        self.stores.views.remember_posts(&[(post.clone().into(), None)], None).await?;
        let noted = self.stores.views.note_step(post.id, post.step, token, self.stores.clock.now()).await?;
        match noted.delay {
            Some(delay) => self.send_rescore(post.id.author, noted.life, delay).await,
            None => Ok(()),
        }
    }

    async fn send_rescore(&self, author: UserId, life: u64, delay: Duration) -> Result<()> {
        self.stores.queues.tasks.send_after(&[Task::Rescore { author, life }], delay).await
    }

    /// Moves posts whose steps have changed in the ranked feeds of all followers. May be repeated. `life` is that of
    /// the notes for which the task was sent. If they are lost, all posts with a step are moved.
    pub(crate) async fn rescore(&self, author: UserId, life: u64) -> Result<()> {
        let moved = self.stores.views.moved_posts(author).await?;
        let whole = moved.life == Some(life);
        if whole && moved.posts.is_empty() {
            return Ok(());
        }
        let followers: u64 = self.stores.facts.follower_counts(author).await?.iter().sum();
        let pages = page_count(followers);
        // The steps are read after the changes were noted. A later change is noted again.
        let posts = self.moved_posts(author, whole.then_some(&moved)).await?;
        if followers > 0 && !posts.is_empty() {
            let task = |range| move_task(author, &posts, pages, range);
            self.stores.queues.tasks.send(&page_tasks(pages).into_iter().map(task).collect::<Vec<_>>()).await?;
        }
        let pause = (EACH_PAGE * pages.into()).clamp(LEAST_PAUSE, MOST_PAUSE);
        let next = self.stores.clock.now().plus_ms(pause.as_millis() as u64);
        // Notes that began after the loss have a task of their own.
        let Some(life) = moved.life else { return Ok(()) };
        match self.stores.views.settle_moved(author, life, &moved.posts, next).await? {
            0 => Ok(()),
            _ => self.send_rescore(author, life, pause).await,
        }
    }

    /// Returns those of the moved posts that feeds may have; all posts with a step if it is unknown which have moved.
    async fn moved_posts(&self, author: UserId, moved: Option<&Moved>) -> Result<Vec<MovedPost>> {
        let head = self.stores.facts.head_of(author).await?;
        if !head.modes.is_push_alone() {
            return Ok(Vec::new());
        }
        let mut seqs = head.feed_seqs(0, head.latest_seq, self.feed_cap.most());
        seqs.retain(|seq| moved.is_none_or(|moved| moved.posts.contains_key(seq)));
        let posts = self.stores.facts.posts_of(author, &seqs).await?;
        Ok(posts.iter().filter(|post| post.is_in_feeds() && post.step.changes > 0).map(MovedPost::new).collect())
    }

    /// Moves posts in the ranked feeds of these pages. Late pages do no harm: an older step changes nothing.
    pub(crate) async fn move_posts(
        &self,
        author: UserId,
        posts: &[MovedPost],
        (pages, range): (u16, Range<u16>),
        out_of_time: OutOfTime<'_>,
    ) -> Result<()> {
        for page in range.clone() {
            let users = self.stores.facts.followers_in(author, page_buckets(page, pages)).await?;
            for (index, some) in posts.chunks(POSTS_AT_ONCE).enumerate() {
                let ranks: Vec<(FeedKey, Rank)> = some.iter().map(|post| post.ranked(author)).collect();
                self.stores.views.rank(&users, self.half_life, &ranks, false).await?;
                if out_of_time() {
                    let rest = &posts[index * POSTS_AT_ONCE + some.len()..];
                    let of_page = (!rest.is_empty()).then(|| move_task(author, rest, pages, page..page + 1));
                    let of_others = (page + 1 < range.end).then(|| move_task(author, posts, pages, page + 1..range.end));
                    return self.stores.queues.tasks.send(&of_page.into_iter().chain(of_others).collect::<Vec<_>>()).await;
                }
            }
        }
        Ok(())
    }
}

fn move_task(author: UserId, posts: &[MovedPost], pages: u16, range: Range<u16>) -> Task {
    Task::Move { author, posts: posts.to_vec(), pages, from: range.start, to: range.end }
}

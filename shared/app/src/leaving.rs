//! [`Leaving`]: the erasure of a user.
//!
//! An erasure closes the user's access first. A worker then removes relations, posts and the rest, in slices of a
//! second. Each step lists what is left, so a slice that was cut in half is repeated. When nothing is left, the worker
//! waits until every request from before the erasure has ended, looks again, and finishes the receipt. The receipt
//! stays.

mod export;

pub use export::{Exported, Place};

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use tidemark_domain::{Erasure, NoticeReads, PostId, Reaction, UserId};
use tracing::{info, warn};

use crate::{
    Following, Hiding, Publishing,
    fan_out::FanOuts,
    ports::{StoreError, Task},
};

/// A request takes 10 seconds at most. One that began before the erasure may write until then.
const GRACE_MS: u64 = 15_000;

/// An erasure that no worker has touched for this time is resumed.
const STALLED_MS: u64 = 120_000;

/// Users, reactions or read states in one step.
const STEP: usize = 100;

/// Views of posts in one step.
const POSTS: u64 = 200;

/// Relations that are removed concurrently.
const PARALLEL: usize = 16;

/// Use cases of users who leave. Clones share the stores.
#[derive(Clone)]
pub struct Leaving {
    pub fan_outs: FanOuts,
}

/// The outcome of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Done,
    More,
    /// Another run has stored its progress, and continues.
    Lost,
}

/// Returns whether a slice is over.
type OutOfTime<'a> = &'a (dyn Fn() -> bool + Sync);

impl Leaving {
    /// Begins an erasure, or returns the one that has begun. If the worker's task cannot be sent, reconcile sends it.
    pub async fn begin(&self, user: UserId) -> Result<Erasure, StoreError> {
        let stores = &self.fan_outs.stores;
        let erasure = stores.erasures.begin_erasure(user, stores.clock.now()).await?;
        if erasure.finished_at.is_some() {
            return Ok(erasure);
        }
        let task = Task::Erase { user, tries: 0 };
        match stores.erasure_views.note_access(user, false).await {
            // While Redis is unavailable, every request reads the facts.
            Err(error) => self.fan_outs.sync.later.instead(&error, &[task]).await?,
            Ok(()) => {
                if let Err(error) = stores.queue.send(&[task]).await {
                    warn!(%user, error = &error as &dyn std::error::Error, "the erasure is left to reconcile");
                }
            }
        }
        Ok(erasure)
    }

    /// Returns the receipt of a user.
    pub async fn receipt(&self, user: UserId) -> Result<Option<Erasure>, StoreError> {
        self.fan_outs.stores.erasures.erasure(user).await
    }

    /// Sends tasks for erasures that no worker continues. Returns how many.
    pub async fn resume(&self) -> Result<usize, StoreError> {
        let stores = &self.fan_outs.stores;
        let mut stalled = Vec::new();
        for user in stores.erasures.running_erasures().await? {
            let erasure = stores.erasures.erasure(user).await?;
            if erasure.is_some_and(|erasure| erasure.touched_at.plus_ms(STALLED_MS) < stores.clock.now()) {
                stalled.push(Task::Erase { user, tries: 0 });
            }
        }
        stores.queue.send(&stalled).await?;
        Ok(stalled.len())
    }

    /// Continues an erasure for a slice, and sends the rest as a new task. May be repeated, also concurrently.
    pub async fn run(&self, user: UserId, out_of_time: OutOfTime<'_>) -> Result<(), StoreError> {
        let stores = &self.fan_outs.stores;
        let Some(mut erasure) = stores.erasures.erasure(user).await?.filter(|erasure| erasure.finished_at.is_none()) else {
            return Ok(());
        };
        stores.erasure_views.note_access(user, false).await?;
        if erasure.removed.is_none() {
            erasure.removed = Some(stores.erasures.count_traces(user).await?);
            if !self.save(user, &mut erasure).await? {
                return Ok(());
            }
        }
        match self.remove(user, &mut erasure, out_of_time).await? {
            Step::Lost => return Ok(()),
            Step::More => return self.again(user, &mut erasure, Duration::ZERO).await,
            Step::Done => {}
        }
        if !self.rest(user, out_of_time).await? {
            return self.again(user, &mut erasure, Duration::ZERO).await;
        }
        let now = stores.clock.now();
        let swept_at = *erasure.swept_at.get_or_insert(now);
        let end = swept_at.plus_ms(GRACE_MS);
        if now < end {
            return self.again(user, &mut erasure, Duration::from_millis(end.ms() - now.ms())).await;
        }
        if !self.clear(user, &mut erasure, out_of_time).await? {
            return self.again(user, &mut erasure, Duration::ZERO).await;
        }
        erasure.finished_at = Some(stores.clock.now());
        if self.save(user, &mut erasure).await? {
            info!(%user, "a user was erased");
        }
        Ok(())
    }

    /// Removes relations, posts, reactions and marks, in this order.
    async fn remove(&self, user: UserId, erasure: &mut Erasure, out_of_time: OutOfTime<'_>) -> Result<Step, StoreError> {
        let step = self.relations(user, erasure, out_of_time).await?;
        if step != Step::Done || !self.posts(user, out_of_time).await? || !self.reactions(user, out_of_time).await? {
            return Ok(if step == Step::Lost { Step::Lost } else { Step::More });
        }
        self.marks(user, out_of_time).await
    }

    /// Stores the progress, and sends a task that continues.
    async fn again(&self, user: UserId, erasure: &mut Erasure, delay: Duration) -> Result<(), StoreError> {
        if !self.save(user, erasure).await? {
            return Ok(());
        }
        let seconds = Duration::from_secs(delay.as_millis().div_ceil(1_000) as u64);
        self.fan_outs.stores.queue.send_after(&[Task::Erase { user, tries: 0 }], seconds).await
    }

    /// Stores the next version of a receipt. Returns false if another run was first, which then continues.
    async fn save(&self, user: UserId, erasure: &mut Erasure) -> Result<bool, StoreError> {
        let stores = &self.fan_outs.stores;
        erasure.version += 1;
        erasure.touched_at = stores.clock.now();
        if stores.erasures.put_erasure(user, erasure).await? {
            return Ok(true);
        }
        // The response to this write may have been lost.
        Ok(stores.erasures.erasure(user).await?.as_ref() == Some(erasure))
    }

    /// Removes follows, mutes and blocks in both directions.
    async fn relations(&self, user: UserId, erasure: &mut Erasure, out_of_time: OutOfTime<'_>) -> Result<Step, StoreError> {
        loop {
            if erasure.pairs.is_empty() {
                erasure.pairs = self.fan_outs.stores.erasures.related(user, STEP).await?;
                erasure.pairs.retain(|other| *other != user);
                if erasure.pairs.is_empty() {
                    return Ok(Step::Done);
                }
                if !self.save(user, erasure).await? {
                    return Ok(Step::Lost);
                }
            }
            let pairs = erasure.pairs.iter().map(|&other| self.pair(user, other));
            stream::iter(pairs.collect::<Vec<_>>()).buffer_unordered(PARALLEL).try_collect::<()>().await?;
            erasure.pairs.clear();
            if out_of_time() {
                return Ok(Step::More);
            }
        }
    }

    async fn pair(&self, user: UserId, other: UserId) -> Result<(), StoreError> {
        let stores = &self.fan_outs.stores;
        let sync = &self.fan_outs.sync;
        let following = Following { stores: stores.clone(), sync: sync.clone() };
        for (one, other) in [(user, other), (other, user)] {
            let Some(edge) = stores.edges.edges(one, &[other]).await?.remove(&other) else { continue };
            if edge.blocked.is_some() {
                following.hide(one, other, Hiding::Block, false).await?;
            }
            if edge.muted.is_some() {
                following.hide(one, other, Hiding::Mute, false).await?;
            }
            stores.edges.unfollow(one, other, stores.clock.now()).await?;
            // The views follow from the tombstone, which is removed below. So they must be updated first.
            sync.follows(one, &[other]).await?;
        }
        stores.reader_views.forget_marks(&[(user, other), (other, user)]).await?;
        stores.erasures.remove_pair(user, other).await
    }

    /// Deletes the posts. There are no followers any more, so a retraction has no pages.
    async fn posts(&self, user: UserId, out_of_time: OutOfTime<'_>) -> Result<bool, StoreError> {
        let stores = &self.fan_outs.stores;
        let publishing = Publishing { stores: stores.clone(), fan_outs: self.fan_outs.clone() };
        let mut before = u64::MAX;
        loop {
            let head = stores.posts.heads(&[user]).await?.remove(&user).unwrap_or_default();
            let live = head.listed_seqs(before, STEP);
            let Some(&last) = live.last() else { return Ok(true) };
            for seq in live {
                publishing.delete(user, false, PostId::new(user, seq)).await?;
                if out_of_time() {
                    return Ok(false);
                }
            }
            // A post that the head lists and the facts lack would be listed again.
            before = last - 1;
        }
    }

    /// Removes the user's reactions, and those to the user's posts.
    async fn reactions(&self, user: UserId, out_of_time: OutOfTime<'_>) -> Result<bool, StoreError> {
        let (stores, sync) = (&self.fan_outs.stores, &self.fan_outs.sync);
        for reaction in [Reaction::Like, Reaction::Favorite] {
            loop {
                let given = stores.reactions.reacted(user, reaction, None, STEP).await?;
                if given.is_empty() {
                    break;
                }
                for key in given {
                    stores.erasures.remove_reaction(user, key.post, reaction).await?;
                    sync.reacted(user, key.post).await?;
                    sync.relations.forget_counters(key.post.author, None).await?;
                    if out_of_time() {
                        return Ok(false);
                    }
                }
            }
        }
        loop {
            let given = stores.erasures.reactions_to(user, STEP).await?;
            if given.is_empty() {
                return Ok(true);
            }
            for (reader, state) in given {
                stores.erasures.remove_reactions_to(user, reader, &state).await?;
                stores.erasure_views.clear_reactions(reader).await?;
                if out_of_time() {
                    return Ok(false);
                }
            }
        }
    }

    /// Removes the user's marks, and those of the user's posts.
    async fn marks(&self, user: UserId, out_of_time: OutOfTime<'_>) -> Result<Step, StoreError> {
        let stores = &self.fan_outs.stores;
        loop {
            let (own, others) =
                futures::try_join!(stores.erasures.marked_authors(user, STEP), stores.erasures.markers(user, STEP))?;
            let pairs: Vec<(UserId, UserId)> =
                own.iter().map(|&author| (user, author)).chain(others.iter().map(|&reader| (reader, user))).collect();
            let remove = pairs.iter().map(|&(reader, author)| stores.erasures.remove_reads(reader, author));
            stream::iter(remove.collect::<Vec<_>>()).buffer_unordered(PARALLEL).try_collect::<()>().await?;
            stores.reader_views.forget_marks(&pairs).await?;
            // The index of the others' marks is a moment late, so it may list removed ones. The last look is later.
            if own.len() < STEP && others.len() < STEP {
                break;
            }
            if out_of_time() {
                return Ok(Step::More);
            }
        }
        for platform in stores.erasures.read_platforms(user).await? {
            let known = stores.notices.reads(platform, user).await?;
            let none = NoticeReads { version: known.version, ..NoticeReads::default() };
            // A request that is still in progress may be first. The next slice sees its marks.
            let Some(none) = stores.notices.put_reads(user, platform, &known, none).await? else { return Ok(Step::More) };
            if !stores.erasures.remove_notice_reads(user, platform, none.version).await? {
                return Ok(Step::More);
            }
        }
        Ok(Step::Done)
    }

    /// Removes the profile, the counts and the views of the user.
    async fn rest(&self, user: UserId, out_of_time: OutOfTime<'_>) -> Result<bool, StoreError> {
        let stores = &self.fan_outs.stores;
        stores.erasures.remove_profile(user).await?;
        while stores.erasures.remove_reaction_counts(user, STEP).await? > 0 {
            if out_of_time() {
                return Ok(false);
            }
        }
        stores.erasures.remove_counters(user).await?;
        stores.erasure_views.clear_user(user).await.map(|()| true)
    }

    /// Removes the views of the posts, then the tombstones.
    async fn clear(&self, user: UserId, erasure: &mut Erasure, out_of_time: OutOfTime<'_>) -> Result<bool, StoreError> {
        let stores = &self.fan_outs.stores;
        let latest = stores.posts.heads(&[user]).await?.remove(&user).unwrap_or_default().latest_seq;
        while erasure.cleared < latest {
            let last = latest.min(erasure.cleared + POSTS);
            let posts: Vec<PostId> = (erasure.cleared + 1..=last).map(|seq| PostId::new(user, seq)).collect();
            stores.erasure_views.clear_posts(&posts).await?;
            erasure.cleared = last;
            if out_of_time() {
                return Ok(false);
            }
        }
        while stores.erasures.remove_tombstones(user, STEP).await? > 0 {
            if out_of_time() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

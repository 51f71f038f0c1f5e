//! One slice of an erasure.
//!
//! Each step lists what is left and removes it, so a slice that was cut in half is repeated. An item that is damaged is
//! logged and left out: the rest is removed, and the erasure stays incomplete, with the reason in its receipt.

use std::{collections::HashSet, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use tidemark_domain::{
    CommentId, Erasure, FeedKey, GroupId, NoticeReads, Platform, PostId, Reaction, ReactionState, Removed, StoreError, UserId,
    store::Result,
};
use tidemark_facts::Trace;
use tracing::{error, info};

use super::{Leaving, task};
use crate::{Hiding, OutOfTime, Stores, in_parallel};

/// The last look comes this long after the first that found nothing. Until then, requests may write that were let in
/// before the erasure, or that read a post from a cache: a request takes 10 seconds at most, a process caches for 5,
/// and the index of marks by author is a moment late.
const GRACE_MS: u64 = 20_000;

/// Users, reactions or read states in one step.
const STEP: usize = 100;

/// Numbers of comments in one step.
const NUMBERS: u64 = 256;

/// What is counted in parts, in the order of [`Counting`](tidemark_domain::Counting).
const COUNTED: [Trace; 4] =
    [Trace::Reactions(Reaction::Like), Trace::Reactions(Reaction::Favorite), Trace::Reads, Trace::Comments];

/// Views of posts in one step.
const POSTS: u64 = 200;

/// With more damaged items, a step ends.
const MOST_LEFT_OUT: usize = 1_000;

/// The reason why a slice ends before everything is removed.
enum Stop {
    /// The time is over. Another slice continues.
    More,
    /// Another run has stored its progress, and continues.
    Lost,
    Failed(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

pub(super) struct Slice<'a> {
    leaving: &'a Leaving,
    user: UserId,
    erasure: Erasure,
    out_of_time: OutOfTime<'a>,
    /// The number of items that could not be removed, and the last reason.
    left_out: usize,
    reason: Option<String>,
}

impl<'a> Slice<'a> {
    pub(super) fn new(leaving: &'a Leaving, user: UserId, erasure: Erasure, out_of_time: OutOfTime<'a>) -> Self {
        Self { leaving, user, erasure, out_of_time, left_out: 0, reason: None }
    }

    /// Returns whether an item was removed. Fails if a later attempt may remove it, or if too many were left out.
    fn note<T>(&mut self, removed: Result<T>) -> Result<bool> {
        let Err(error) = removed else { return Ok(true) };
        if error.is_retryable() || self.left_out >= MOST_LEFT_OUT {
            return Err(error);
        }
        error!(user = %self.user, error = &error as &dyn std::error::Error, "an erasure leaves something out");
        self.left_out += 1;
        self.reason = Some(error.to_string());
        Ok(false)
    }

    fn stores(&self) -> &'a Stores {
        &self.leaving.stores
    }

    async fn save(&mut self) -> Result<(), Stop> {
        if self.leaving.save(self.user, &mut self.erasure).await? { Ok(()) } else { Err(Stop::Lost) }
    }

    /// Stores the progress, and sends a task that continues.
    async fn again(&mut self, delay: Duration) -> Result<(), Stop> {
        self.save().await?;
        Ok(self.stores().queues.tasks.send_after(&[task(self.user, &self.erasure, false)], delay).await?)
    }

    fn in_time(&self) -> Result<(), Stop> {
        if (self.out_of_time)() { Err(Stop::More) } else { Ok(()) }
    }

    /// Returns whether a step came to its end. If a damaged item stopped it, the item is left out.
    fn ended(&mut self, step: Result<(), Stop>) -> Result<bool, Stop> {
        match step {
            Err(Stop::Failed(error)) => Ok(self.note::<()>(Err(error))?),
            step => step.map(|()| true),
        }
    }

    pub(super) async fn run(mut self) -> Result<()> {
        let end = match self.steps().await {
            Err(Stop::More) => self.again(Duration::ZERO).await,
            end => end,
        };
        if let Err(Stop::Failed(error)) = end { Err(error) } else { Ok(()) }
    }

    async fn steps(&mut self) -> Result<(), Stop> {
        let clock = &self.stores().clock;
        if self.erasure.removed.is_none() {
            let counted = self.count().await;
            if self.ended(counted)? {
                self.save().await?;
            }
        }
        self.remove().await?;
        self.rest().await?;
        self.erasure.incomplete = self.reason.take();
        if let Some(reason) = &self.erasure.incomplete {
            error!(user = %self.user, reason, items = self.left_out, "an erasure is incomplete, it is tried again in an hour");
            return self.save().await;
        }
        let now = clock.now();
        let end = self.erasure.swept_at.get_or_insert(now).plus_ms(GRACE_MS);
        if now < end {
            return self.again(Duration::from_millis(end.ms() - now.ms())).await;
        }
        self.clear().await?;
        self.erasure.finished_at = Some(clock.now());
        self.save().await?;
        info!(user = %self.user, "a user was erased");
        Ok(())
    }

    async fn count(&mut self) -> Result<(), Stop> {
        let (facts, user) = (&self.stores().facts, self.user);
        let mut counting = self.erasure.counting.take().unwrap_or_default();
        while let Some(&trace) = COUNTED.get(counting.part) {
            let (found, last) = facts.count_some_traces(user, trace, counting.after.take()).await?;
            counting.counts[counting.part] += found;
            counting.part += usize::from(last.is_none());
            counting.after = last;
            if (self.out_of_time)() {
                self.erasure.counting = Some(counting);
                return Err(Stop::More);
            }
        }
        let [likes, favorites, reads, comments] = counting.counts;
        self.erasure.removed = Some(Removed { likes, favorites, reads, comments, ..facts.count_traces(user).await? });
        Ok(())
    }

    /// Removes relations, posts, what is left of reposts, reactions, comments and marks, in this order. A step that a
    /// damaged item stops is left out.
    ///
    /// The user's blocks end after the posts are gone: those who were blocked never see them.
    async fn remove(&mut self) -> Result<(), Stop> {
        let relations = self.relations(false).await;
        self.ended(relations)?;
        let before = self.left_out;
        let posts = self.posts().await;
        self.ended(posts)?;
        if self.left_out == before {
            let blocks = self.relations(true).await;
            self.ended(blocks)?;
        }
        let reposts = self.reposts().await;
        self.ended(reposts)?;
        let reactions = self.reactions().await;
        self.ended(reactions)?;
        let comments = self.comments().await;
        self.ended(comments)?;
        let marks = self.marks().await;
        self.ended(marks).map(drop)
    }

    /// Removes follows, requests, mutes and blocks in both directions, at first without the users whom the user blocks.
    async fn relations(&mut self, blocks_too: bool) -> Result<(), Stop> {
        let mut left = HashSet::from([self.user]);
        if !blocks_too {
            let hidden = self.stores().facts.hidden(self.user).await?;
            left.extend(hidden.iter().filter(|edge| edge.blocked.is_some()).map(|edge| edge.author));
        }
        loop {
            let mut next: Vec<UserId> = self.erasure.pairs.iter().filter(|other| !left.contains(other)).copied().collect();
            if next.is_empty() {
                next = self.stores().facts.related_users(self.user, STEP + left.len()).await?;
                next.retain(|other| !left.contains(other));
                if next.is_empty() {
                    return Ok(());
                }
                self.erasure.pairs.extend(&next);
                self.save().await?;
            }
            let pairs = next.into_iter().map(|other| self.pair(other).boxed()).collect();
            for (other, removed) in in_parallel(pairs).await {
                if self.note(removed)? {
                    self.erasure.pairs.retain(|pair| *pair != other);
                } else {
                    left.insert(other);
                }
            }
            self.in_time()?;
        }
    }

    async fn pair(&self, other: UserId) -> (UserId, Result<()>) {
        let (stores, user) = (self.stores(), self.user);
        let ended = [self.end(user, other).await, self.end(other, user).await];
        let removed = async {
            ended.into_iter().collect::<Result<(), _>>()?;
            stores.views.forget_marks(&[(user, other), (other, user)]).await?;
            // What a damaged table still lists, no stream shows.
            let (follow, asks) = stores.facts.listed_of(other, user).await?;
            for reader in stores.facts.remove_pair(user, other).await? {
                stores.views.clear_reactions(reader).await?;
            }
            let groups = follow.map(GroupId::follow).into_iter().chain(asks.then_some(GroupId::REQUEST));
            self.leaving.inboxes.listed(other, groups).await
        };
        (other, removed.await)
    }

    /// Ends what one user has with the other.
    async fn end(&self, one: UserId, other: UserId) -> Result<()> {
        let Leaving { stores, sync, following, .. } = self.leaving;
        let Some(edge) = stores.facts.edges(one, &[other]).await?.remove(&other) else { return Ok(()) };
        if edge.blocked.is_some() {
            following.hide(one, other, Hiding::Block, false).await?;
        }
        if edge.muted.is_some() {
            following.hide(one, other, Hiding::Mute, false).await?;
        }
        stores.facts.unfollow(one, other, stores.clock.now()).await?;
        // The views follow from the tombstone, which is removed later. So they must be in line before.
        sync.follows(one, &[other]).await
    }

    /// Deletes the posts. There are no followers any more, so a retraction has no pages.
    async fn posts(&mut self) -> Result<(), Stop> {
        let stores = self.stores();
        let mut before = u64::MAX;
        loop {
            let head = stores.facts.head_of(self.user).await?;
            let live = head.listed_seqs(before, STEP);
            let Some(&last) = live.last() else { return Ok(()) };
            for seq in live {
                let deleted = self.leaving.publishing.delete(self.user, false, PostId::new(self.user, seq)).await;
                self.note(deleted)?;
                self.in_time()?;
            }
            // A post that the head lists and the facts lack would be listed again.
            before = last - 1;
        }
    }

    /// Removes the items of a list, step by step, until all that it still has could not be removed.
    async fn remove_listed<T>(
        &mut self,
        listed: impl Fn(usize) -> BoxFuture<'a, Result<Vec<T>>>,
        remove: impl Fn(T) -> BoxFuture<'a, Result<()>>,
    ) -> Result<(), Stop> {
        let mut left = 0;
        loop {
            let items = listed(STEP + left).await?;
            let found = items.len();
            left = 0;
            for removed in in_parallel(items.into_iter().map(&remove).collect()).await {
                left += usize::from(!self.note(removed)?);
            }
            if left == found {
                return Ok(());
            }
            self.in_time()?;
        }
    }

    /// Removes entries of reposts without their posts. Usually the deletion of the posts has left none.
    async fn reposts(&mut self) -> Result<(), Stop> {
        let (facts, user) = (&self.stores().facts, self.user);
        let listed = |limit| facts.listed_reposts(user, limit).boxed();
        self.remove_listed(listed, |(original, entry)| facts.forget_repost(user, original, entry).boxed()).await
    }

    /// Removes the user's reactions, and those to the user's posts.
    async fn reactions(&mut self) -> Result<(), Stop> {
        for reaction in [Reaction::Like, Reaction::Favorite] {
            let mut below: Option<FeedKey> = None;
            loop {
                let given = self.stores().facts.reacted(self.user, reaction, below, STEP).await?;
                below = given.last().copied();
                for key in &given {
                    let removed = self.take_back(key.post, reaction).await;
                    self.note(removed)?;
                    self.in_time()?;
                }
                if below.is_none() {
                    break;
                }
            }
        }
        let (stores, user) = (self.stores(), self.user);
        let remove = |given: Result<(UserId, ReactionState)>| {
            async move {
                let (reader, state) = given?;
                stores.facts.remove_reactions_to(user, reader, &state).await?;
                stores.views.clear_reactions(reader).await
            }
            .boxed()
        };
        self.remove_listed(|limit| stores.facts.reactions_to(user, limit).boxed(), remove).await
    }

    /// Removes the user's comments.
    async fn comments(&mut self) -> Result<(), Stop> {
        let (facts, sync, user) = (&self.stores().facts, &self.leaving.sync, self.user);
        let remove = |comment: CommentId| {
            async move {
                facts.erase_comment(user, comment).await?;
                sync.comments(comment.post).await
            }
            .boxed()
        };
        self.remove_listed(|limit| facts.comment_entries(user, limit).boxed(), remove).await
    }

    async fn take_back(&self, post: PostId, reaction: Reaction) -> Result<()> {
        let stores = self.stores();
        stores.facts.unreact(self.user, post, reaction).await?;
        self.leaving.sync.reacted(post).await?;
        stores.views.forget_counters(post.author, None).await
    }

    /// Removes the user's marks, and those of the user's posts.
    async fn marks(&mut self) -> Result<(), Stop> {
        let (stores, user) = (self.stores(), self.user);
        let mut left = 0;
        loop {
            let limit = STEP + left;
            let (own, others) = futures::try_join!(stores.facts.marked_authors(user, limit), stores.facts.markers(user, limit))?;
            let pairs: Vec<(UserId, UserId)> =
                own.iter().map(|&author| (user, author)).chain(others.iter().map(|&reader| (reader, user))).collect();
            let remove = pairs.iter().map(|&(reader, author)| stores.facts.remove_reads(reader, author).boxed()).collect();
            let removed = in_parallel(remove).await;
            left = 0;
            for removed in removed {
                left += usize::from(!self.note(removed)?);
            }
            stores.views.forget_marks(&pairs).await?;
            // The index of the others' marks is a moment late, so it may list removed ones. The last look is later.
            if (own.len() < limit && others.len() < limit) || left == pairs.len() {
                break;
            }
            self.in_time()?;
        }
        for platform in stores.facts.read_platforms(user).await? {
            let forgotten = self.forget_platform(platform).await;
            self.ended(forgotten)?;
        }
        Ok(())
    }

    /// Removes the user's marks of notices. If a request in progress was first, the next slice sees its marks.
    async fn forget_platform(&self, platform: Platform) -> Result<(), Stop> {
        let (stores, user) = (self.stores(), self.user);
        let known = stores.facts.notice_reads(platform, user).await?;
        let none = NoticeReads { version: known.version, ..NoticeReads::default() };
        let put = stores.facts.replace_notice_reads(user, platform, &known, none, None, false).await?;
        let Some(none) = put else { return Err(Stop::More) };
        // First the view: afterwards nothing names the platform.
        stores.views.clear_notice_reads(user, platform).await?;
        let removed = stores.facts.remove_notice_reads(user, platform, none.version).await?;
        if removed { Ok(()) } else { Err(Stop::More) }
    }

    /// Removes the profile, the counts, the entries of reactions and the views of the user. Counts stay while something
    /// is left that they count.
    async fn rest(&mut self) -> Result<(), Stop> {
        let (stores, user) = (self.stores(), self.user);
        let removed = stores.facts.remove_profile(user).await;
        self.note(removed)?;
        while stores.facts.remove_inbox(user, STEP).await? > 0 {
            self.in_time()?;
        }
        if self.left_out == 0 {
            while stores.facts.remove_reaction_counts(user, STEP).await? > 0 {
                self.in_time()?;
            }
            stores.facts.remove_counters(user).await?;
        }
        Ok(stores.views.clear_user(user).await?)
    }

    /// Removes the views of the posts, the comments on them, the privacy that has kept the posts, then the tombstones.
    async fn clear(&mut self) -> Result<(), Stop> {
        let (stores, user) = (self.stores(), self.user);
        let latest = stores.facts.head_of(user).await?.latest_seq;
        while self.erasure.cleared < latest {
            let last = latest.min(self.erasure.cleared + POSTS);
            let posts: Vec<PostId> = (self.erasure.cleared + 1..=last).map(|seq| PostId::new(user, seq)).collect();
            stores.views.clear_posts(&posts).await?;
            for post in stores.facts.comment_numbers(&posts).await?.into_keys() {
                while !stores.facts.remove_comments(post, NUMBERS).await? {
                    self.in_time()?;
                }
            }
            self.erasure.cleared = last;
            self.in_time()?;
        }
        while stores.facts.remove_commenters(user, STEP).await? > 0 {
            self.in_time()?;
        }
        stores.facts.forget_privacy(user).await?;
        stores.views.clear_user(user).await?;
        while stores.facts.remove_tombstones(user, STEP).await? > 0 {
            self.in_time()?;
        }
        Ok(())
    }
}

//! [`Commenting`]: comments on posts.
//!
//! Comments are facts alone. The views have only how many stand, beside the counts of reactions.

use std::{collections::HashSet, ops::RangeInclusive, sync::Arc};

use tidemark_domain::{
    Comment, CommentId, CommentNumber, CommentNumbers, CommentOrder, IdempotencyKey, Post, PostId, PostState, Seen, StoreError,
    Timestamp, UserId, Viewer, Withheld,
    comments::may_withdraw,
    store::Result,
    visibility::{gone, may_see},
};
use tidemark_facts::{Placed, StoredComment};

use crate::{
    Stores, ViewSync,
    once::{Attempt, Begun, Once},
};

/// The most numbers that one page looks at. Withdrawn comments, and those of users in a block with the caller, make a
/// page shorter.
const MOST_NUMBERS: u64 = 512;

/// Use cases of comments. Clones share the stores.
#[derive(Clone)]
pub struct Commenting {
    stores: Arc<Stores>,
    sync: ViewSync,
}

/// A page of a post's comments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommentsPage {
    /// A page may be short, because comments were withdrawn or users are in a block with the caller.
    pub items: Vec<Comment>,
    /// The next page begins after this number. `None` only at the end.
    pub next: Option<CommentNumber>,
    /// The number of comments on all pages of this caller.
    pub total: u64,
}

/// The outcome of a request to withdraw a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawn {
    /// The comment does not stand, by this request or an earlier one.
    Done,
    NotAllowed,
    Unknown,
}

impl Commenting {
    pub fn new(stores: Arc<Stores>, sync: ViewSync) -> Self {
        Self { stores, sync }
    }

    /// Comments on a live post, or on the original of a repost. With a key, a repetition returns the comment of the
    /// first attempt.
    pub async fn comment(
        &self,
        viewer: Viewer,
        post: PostId,
        text: String,
        key: Option<&IdempotencyKey>,
    ) -> Result<Once<Seen<Comment>>> {
        let begun = self.stores.begun(viewer.user, "comment", key).await?;
        let attempt = match begun {
            Some(Begun::KeyReused) => return Ok(Once::KeyReused),
            // Whatever became of the repost or the original since, except the departure of an author.
            Some(Begun::Answered(answer)) => {
                let Some(post) = self.stores.facts.original_of(post).await? else {
                    return Ok(Once::Done(Err(Withheld::Gone)));
                };
                return answered(&answer, viewer.user, post, text).map(|comment| Once::Done(Ok(comment)));
            }
            Some(Begun::Attempt(attempt)) => Some(attempt),
            None => None,
        };
        let (post, numbers) = match self.stores.facts.may_comment(viewer, post).await? {
            Err(withheld) => return Ok(Once::Done(Err(withheld))),
            Ok(found) => found,
        };
        let comment = self.place(viewer.user, post, text, (key, attempt), numbers).await?;
        // Even if the comment was there: an earlier request may have ended before the views.
        self.sync.commented(viewer.user, post).await?;
        Ok(comment)
    }

    /// Gives a comment a number, and writes it. A number that another comment has is replaced by another one.
    async fn place(
        &self,
        user: UserId,
        post: PostId,
        text: String,
        (key, attempt): (Option<&IdempotencyKey>, Option<Attempt>),
        mut numbers: CommentNumbers,
    ) -> Result<Once<Seen<Comment>>> {
        let (facts, created_at) = (&self.stores.facts, self.stores.clock.now());
        let attempt = match attempt {
            Some(attempt) => attempt,
            None => {
                let number = facts.give_number(post, &numbers, created_at).await?;
                // A repetition uses the same number.
                match self.stores.begin(user, "comment", key, vec![number]).await? {
                    Begun::Attempt(attempt) if attempt.bound == [number] => attempt,
                    begun => {
                        self.free(post, number).await;
                        match begun {
                            Begun::Attempt(attempt) => attempt,
                            Begun::KeyReused => return Ok(Once::KeyReused),
                            Begun::Answered(answer) => {
                                return answered(&answer, user, post, text).map(|comment| Once::Done(Ok(comment)));
                            }
                        }
                    }
                }
            }
        };
        let mut comment = Comment { id: CommentId::new(post, number_in(&attempt.bound)?), author: user, text, created_at };
        let mut attempts = self.stores.attempts("comment");
        loop {
            attempts.next().await?;
            let number = comment.id.number;
            let record = attempt.done(vec![number, created_at.ms()]);
            match facts.put_comment(&comment, attempt.token, record.as_ref()).await? {
                Placed::Done(comment) => return Ok(Once::Done(Ok(comment))),
                Placed::Taken => {
                    numbers = facts.comment_numbers(&[post]).await?.remove(&post).unwrap_or(numbers);
                    comment.id.number = facts.give_number(post, &numbers, created_at).await?;
                }
                Placed::Blocked => {
                    self.free(post, number).await;
                    return Ok(Once::Done(Err(Withheld::Blocked)));
                }
                Placed::Answered => {
                    self.free(post, number).await;
                    let answer = self.stores.answer(&attempt).await?.unwrap_or_default();
                    return answered(&answer, user, post, comment.text).map(|comment| Once::Done(Ok(comment)));
                }
            }
        }
    }

    /// Gives a number back. Without this, a page does it.
    async fn free(&self, post: PostId, number: CommentNumber) {
        logged!(self.stores.facts.free_numbers(post, &[number]).await, "a number of a comment is left to a page", %post);
    }

    /// Returns one page of the comments on a live post, after the number `after` in this order.
    pub async fn page(
        &self,
        viewer: Viewer,
        post: PostId,
        order: CommentOrder,
        after: Option<CommentNumber>,
        limit: usize,
    ) -> Result<Seen<CommentsPage>> {
        let (facts, ids) = (&self.stores.facts, [post]);
        let (posts, standing, blocks, mut numbers) = futures::try_join!(
            facts.posts(&ids),
            facts.standing(viewer, post.author),
            facts.blocks_of(viewer.user),
            facts.comment_numbers(&ids)
        )?;
        let found = posts.get(&post);
        if let Err(withheld) = may_see(found.map_or(PostState::Gone, Post::state), standing) {
            return Ok(Err(withheld));
        }
        if let Some(original) = found.and_then(Post::reposted) {
            return Box::pin(self.page(viewer, original, order, after, limit)).await;
        }
        let apart: HashSet<UserId> = blocks.into_iter().flatten().collect();
        let Some(numbers) = numbers.remove(&post) else {
            return Ok(Ok(CommentsPage { items: Vec::new(), next: None, total: 0 }));
        };
        let ((items, next), total) = futures::try_join!(
            self.items(post, (order, after), limit, &numbers, &apart),
            self.total(post, numbers.last, &apart)
        )?;
        Ok(Ok(CommentsPage { items, next, total }))
    }

    /// The standing comments, without those of users in a block with the caller.
    async fn total(&self, post: PostId, last: CommentNumber, apart: &HashSet<UserId>) -> Result<u64> {
        let facts = &self.stores.facts;
        let (count, _) = facts.comment_count(post, last).await?;
        if apart.is_empty() || count == 0 {
            return Ok(count);
        }
        Ok(count.saturating_sub(facts.comments_of(post, apart, count).await?))
    }

    /// The comments of a page, and the number after which the next page begins.
    async fn items(
        &self,
        post: PostId,
        (order, after): (CommentOrder, Option<CommentNumber>),
        limit: usize,
        numbers: &CommentNumbers,
        apart: &HashSet<UserId>,
    ) -> Result<(Vec<Comment>, Option<CommentNumber>)> {
        let now = self.stores.clock.now();
        let mut left = match (order, after) {
            (CommentOrder::Newest, after) => 1..=after.map_or(numbers.last, |after| numbers.last.min(after.saturating_sub(1))),
            (CommentOrder::Oldest, after) => after.unwrap_or(0).saturating_add(1)..=numbers.last,
        };
        let (mut items, mut unused, mut seen): (Vec<Comment>, _, _) = (Vec::new(), Vec::new(), 0);
        while !left.is_empty() && items.len() <= limit && seen < MOST_NUMBERS {
            // One more than the page, and some for withdrawn ones.
            let part = part_of(&mut left, order, (limit - items.len()) as u64 + 8);
            seen += part.end() - part.start() + 1;
            let mut found = self.stores.facts.comments_between(post, part.clone()).await?;
            let known: Vec<(CommentNumber, Timestamp)> = found.iter().map(|known| (known.id.number, known.at)).collect();
            unused.extend(numbers.unused(part, &known, now));
            if order == CommentOrder::Newest {
                found.reverse();
            }
            let standing = found.into_iter().filter_map(StoredComment::standing);
            items.extend(standing.filter(|comment| !apart.contains(&comment.author)));
        }
        if !unused.is_empty() {
            logged!(self.stores.facts.free_numbers(post, &unused).await, "numbers are left to the next page", %post);
        }
        if items.len() > limit {
            items.truncate(limit);
            return Ok((items.clone(), items.last().map(|comment| comment.id.number)));
        }
        // The part of the list that this page has not looked at.
        let next = match order {
            CommentOrder::Newest => *left.end() + 1,
            CommentOrder::Oldest => *left.start() - 1,
        };
        Ok((items, (!left.is_empty()).then_some(next)))
    }

    /// Withdraws a comment. Its author may do so whatever became of the post.
    pub async fn withdraw(&self, viewer: Viewer, id: CommentId) -> Result<Withdrawn> {
        let facts = &self.stores.facts;
        // Of a repost whose author blocks the viewer, the viewer does not learn what it is of.
        let Ok(post) = facts.target_of(viewer, id.post).await? else { return Ok(Withdrawn::NotAllowed) };
        let id = CommentId { post, ..id };
        let known = facts.comment(id).await?;
        let author = known.as_ref().and_then(|known| known.author);
        if !may_withdraw(viewer, author, post) {
            // A stranger to a private author does not learn whether there is such a comment.
            let is_known = known.is_some() || gone(facts.standing(viewer, post.author).await?) != Withheld::Gone;
            return Ok(if is_known { Withdrawn::NotAllowed } else { Withdrawn::Unknown });
        }
        let Some(known) = known else { return Ok(Withdrawn::Unknown) };
        facts.withdraw_comment(&known).await?;
        self.sync.commented(viewer.user, post).await?;
        Ok(Withdrawn::Done)
    }
}

/// Takes the next numbers from those that are left.
fn part_of(left: &mut RangeInclusive<CommentNumber>, order: CommentOrder, most: u64) -> RangeInclusive<CommentNumber> {
    let (first, last) = (*left.start(), *left.end());
    match order {
        CommentOrder::Newest => {
            let start = (last + 1).saturating_sub(most).max(first);
            *left = first..=start - 1;
            start..=last
        }
        CommentOrder::Oldest => {
            let end = (first + most - 1).min(last);
            *left = end + 1..=last;
            first..=end
        }
    }
}

/// The number of the first attempt at a request.
fn number_in(bound: &[u64]) -> Result<CommentNumber> {
    bound.first().copied().ok_or(StoreError::Contention { operation: "comment" })
}

/// The comment in the answer of an earlier attempt, which has its number and time. The request has post and text.
fn answered(answer: &[u64], author: UserId, post: PostId, text: String) -> Result<Comment> {
    let &[number, at] = answer else { return Err(StoreError::Contention { operation: "comment" }) };
    Ok(Comment { id: CommentId::new(post, number), author, text, created_at: Timestamp::from_ms(at) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_from_the_end_of_the_order() {
        for (order, expected) in
            [(CommentOrder::Newest, vec![7..=10, 3..=6, 1..=2]), (CommentOrder::Oldest, vec![1..=4, 5..=8, 9..=10])]
        {
            let (mut left, mut parts) = (1..=10, Vec::new());
            while !left.is_empty() {
                parts.push(part_of(&mut left, order, 4));
            }
            assert_eq!(parts, expected);
        }
    }
}

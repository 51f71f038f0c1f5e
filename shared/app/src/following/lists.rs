//! A user's lists of followed authors, each with a feed and counts of its own.
//!
//! Membership is part of the edge, and of the author's field in the reader's view. So an unfollow ends it.

use tidemark_domain::{Edge, IdempotencyKey, ListId, Relation, UserId, UserLists, store::Result};
use tidemark_facts::Record;

use super::Following;
use crate::{
    newest_first,
    once::{Begun, Once},
};

/// The outcome of a change of membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// The membership is as requested, by this request or an earlier one.
    Stands,
    UnknownList,
    NotFollowing,
}

impl Following {
    /// Returns the lists of the caller, newest first.
    pub async fn lists(&self, caller: UserId) -> Result<UserLists> {
        let mut all = self.stores.facts.lists(caller).await?;
        all.lists.reverse();
        Ok(all)
    }

    pub async fn has_list(&self, caller: UserId, list: ListId) -> Result<bool> {
        Ok(list.user == caller && self.stores.facts.lists(caller).await?.has(list.number))
    }

    /// Makes a list, and returns its number; `None` if the caller has the maximum number of lists.
    pub async fn make_list(&self, caller: UserId, name: &str, key: Option<&IdempotencyKey>) -> Result<Once<Option<u32>>> {
        let attempt = match self.stores.begin(caller, "lists", key, Vec::new()).await? {
            Begun::Attempt(attempt) => attempt,
            Begun::Answered(answer) => return Ok(Once::Done(answer.first().and_then(|&number| u32::try_from(number).ok()))),
            Begun::KeyReused => return Ok(Once::KeyReused),
        };
        let made = self.change_lists(caller, |lists| {
            let number = lists.make(name, attempt.token);
            (number.and_then(|number| attempt.done(vec![number.into()])), number)
        });
        made.await.map(Once::Done)
    }

    /// Deletes a list of the caller. May be repeated. Returns false if the caller never had this list.
    pub async fn delete_list(&self, caller: UserId, list: ListId) -> Result<bool> {
        if list.user != caller {
            return Ok(false);
        }
        self.change_lists(caller, |lists| {
            let given = (1..=lists.last).contains(&list.number);
            lists.delete(list.number);
            (None, given)
        })
        .await
    }

    /// Applies `change`, which may run several times. It returns a record that is written with the lists, and the
    /// result. Nothing is written if the lists have no new version.
    async fn change_lists<T>(&self, caller: UserId, change: impl Fn(&mut UserLists) -> (Option<Record>, T)) -> Result<T> {
        let mut attempts = self.stores.attempts("lists");
        loop {
            attempts.next().await?;
            let mut lists = self.stores.facts.lists(caller).await?;
            let known = lists.version;
            let (record, result) = change(&mut lists);
            if lists.version == known || self.stores.facts.put_lists(caller, &lists, record.as_ref()).await? {
                return Ok(result);
            }
        }
    }

    /// Puts an author on a list, or removes the author.
    pub async fn set_list_member(&self, caller: UserId, list: ListId, author: UserId, member: bool) -> Result<Membership> {
        let lists = self.stores.facts.lists(caller).await?;
        if list.user != caller || !lists.has(list.number) {
            return Ok(Membership::UnknownList);
        }
        let now = self.stores.clock.now();
        let change = |known: Option<&Edge>| {
            let known = known.filter(|edge| edge.following && edge.lists.contains(&list.number) != member)?;
            // Deleted lists remain on edges until the edge changes.
            let others = known.lists.iter().copied().filter(|&number| number != list.number && lists.has(number));
            Some(Edge { lists: others.chain(member.then_some(list.number)).collect(), ..known.changed(now) })
        };
        let edge = self.stores.facts.change_pair(caller, author, &change).await?.filter(|edge| edge.following);
        // Even if the fact was there: an earlier request may have ended between its fact and the view.
        self.sync.choices(caller, edge.as_slice()).await?;
        Ok(if member && edge.is_none() { Membership::NotFollowing } else { Membership::Stands })
    }

    /// Returns the authors on a list, the newest follow first, below `below`; `None` if the caller has no such list.
    pub async fn list_members(&self, caller: UserId, list: ListId, below: Option<Relation>) -> Result<Option<Vec<Relation>>> {
        let (has, edges) = futures::try_join!(self.has_list(caller, list), self.stores.facts.following(caller))?;
        let on_list = edges.into_iter().filter(|edge| edge.lists.contains(&list.number));
        let members = on_list.map(|edge| Relation { since: edge.since, user: edge.author });
        Ok(has.then(|| newest_first(members, below)))
    }
}

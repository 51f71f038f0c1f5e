//! Requests, mutes and lists. [`Facts::make_follows`] imports follows, [`Facts::set_blocked`] blocks.

use std::collections::BTreeSet;

use tidemark_domain::{AuthorList, Edge, Timestamp, UserId};

use super::Imported;
use crate::{
    Facts, Result, attempts,
    counters::FollowerShard,
    edges::{BLOCK_CHECK, ERASURE_CHECKS, FOLLOWED},
    write::Cancelled,
};

impl Facts {
    /// Makes a request that began elsewhere at this time. One that has ended here since stays ended.
    pub async fn import_request(
        &self,
        user: UserId,
        author: UserId,
        since: Timestamp,
        preference: i8,
        now: Timestamp,
    ) -> Result<Imported> {
        let mut attempts = attempts("request");
        loop {
            attempts.next().await?;
            let known = self.edges(user, &[author]).await?.remove(&author);
            if let Some(edge) = &known {
                let ended_later = !edge.is_kept() && u64::from(edge.rev) >= since.seconds();
                if edge.is_counted() || ended_later {
                    return Ok(Imported::Existing);
                }
                if edge.blocked.is_some() {
                    return Ok(Imported::Blocked);
                }
            }
            attempts.outcome()?;
            let pair = known.clone().unwrap_or_else(|| Edge::never(user, author));
            let next = Edge { requested: Some(since), preference, ..pair.changed(now) };
            let shard = FollowerShard::new(author, user);
            let written = self.write_request(&next, known.map(|edge| edge.rev), &shard).await;
            if let Ok(Err(Cancelled::Conditions(failed))) = &written {
                if failed.contains(&BLOCK_CHECK) {
                    return Ok(Imported::Blocked);
                }
                if ERASURE_CHECKS.iter().any(|check| failed.contains(check)) {
                    return Ok(Imported::Erased);
                }
                // If an earlier attempt has counted the request, the pair has changed too.
                if failed.contains(&0) && !failed.contains(&FOLLOWED[1]) {
                    return Ok(Imported::LimitReached);
                }
            }
            if attempts.done(written) {
                return Ok(Imported::Written);
            }
        }
    }

    /// Mutes a user since a time of another system. A mute that is there keeps its own.
    pub async fn import_mute(&self, user: UserId, other: UserId, since: Timestamp, now: Timestamp) -> Result<Imported> {
        if self.edges(user, &[other]).await?.get(&other).is_some_and(|edge| edge.muted.is_some()) {
            return Ok(Imported::Existing);
        }
        let mute = |known: Option<&Edge>| {
            let pair = known.cloned().unwrap_or_else(|| Edge::never(user, other));
            pair.muted.is_none().then(|| Edge { muted: Some(since), ..pair.changed(now) })
        };
        self.change_pair(user, other, &mute).await.map(|_| Imported::Written)
    }

    /// Stores a list with its number. Returns whether it wrote it; `None` if another list of the user has the number.
    pub async fn import_list(&self, user: UserId, number: u32, name: &str) -> Result<Option<bool>> {
        let mut attempts = attempts("put_lists");
        loop {
            attempts.next().await?;
            let mut lists = self.lists(user).await?;
            if let Some(known) = lists.lists.iter().find(|list| list.number == number) {
                return Ok((known.name == name).then_some(false));
            }
            lists.lists.push(AuthorList { number, name: name.to_owned(), token: rand::random() });
            lists.lists.sort_by_key(|list| list.number);
            (lists.version, lists.last) = (lists.version + 1, lists.last.max(number));
            if self.put_lists(user, &lists, None).await? {
                return Ok(Some(true));
            }
        }
    }

    /// Puts followed authors on a list of the user. Returns how many were not on it, and the authors who are not
    /// followed.
    pub async fn import_members(
        &self,
        user: UserId,
        number: u32,
        authors: &[UserId],
        now: Timestamp,
    ) -> Result<(u64, Vec<UserId>)> {
        let known = self.edges(user, authors).await?;
        let (mut added, mut not_followed) = (0, Vec::new());
        for author in authors {
            let Some(edge) = known.get(author).filter(|edge| edge.following) else {
                not_followed.push(*author);
                continue;
            };
            if edge.lists.contains(&number) {
                continue;
            }
            let member = |known: Option<&Edge>| {
                let known = known.filter(|edge| edge.following && !edge.lists.contains(&number))?;
                let lists: BTreeSet<u32> = known.lists.iter().copied().chain([number]).collect();
                Some(Edge { lists, ..known.changed(now) })
            };
            match self.change_pair(user, *author, &member).await?.filter(|edge| edge.following) {
                Some(_) => added += 1,
                None => not_followed.push(*author),
            }
        }
        Ok((added, not_followed))
    }
}

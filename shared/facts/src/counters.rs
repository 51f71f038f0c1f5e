//! Counts of an author's followers: sixteen shards, each of 1, 4 or 16 parts. The first part stores how many.
//!
//! A follow or unfollow holds one part until its transaction ends, so a part takes about a hundred changes a second. A
//! part that holds up the same change twice in a row is split. Only the sum of a shard's parts has a meaning: an
//! unfollow may take from another part than its follow added to.
//!
//! The counters also protect follows from an import of older posts. `imports_begun` is a fence, which an import raises
//! in every part before its first post. A follow reads the first part of its shard, then the author's head, and
//! requires that its part has no higher fence than the one that was read. While `imports_ended` is below
//! `imports_begun`, a follow also requires that the head is still the one that it read ([decision
//! 23](../../../docs/adr/0023-counters-grow-and-are-a-fence.md)).
//!
//! `privacy` is another fence of the same kind: an author who becomes private raises it in every part, after the head
//! says so. A follow that has read the head before is cancelled, and finds a private author ([decision
//! 44](../../../docs/adr/0044-requests-wait-beside-the-pair.md)).

use aws_sdk_dynamodb::types::ReturnValue;
use futures::future::try_join_all;
use tidemark_domain::{UserId, ids::SHARDS};
use tracing::warn;

use super::{
    Facts, Result,
    item::{Attribute, Count, Item, number},
    read,
    schema::{self, CounterItem},
    write::{Cancelled, Write, absent, at_most},
};

/// The most parts of a shard. With 256 items for all shards, counters no longer limit the follows of one author.
const MOST_PARTS: u16 = 16;

/// The number of parts that a split makes of one.
const SPLIT: u16 = 4;

/// The first part of the shard that counts a follower of an author, as it was read before a change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FollowerShard {
    author: UserId,
    shard: u16,
    parts: u16,
    imports_begun: u64,
    privacy: u64,
    /// An import is in progress, or was interrupted.
    pub(crate) importing: bool,
}

impl FollowerShard {
    /// A shard that is not stored, or was not read.
    pub(crate) fn new(author: UserId, user: UserId) -> Self {
        Self { author, shard: user.shard(), parts: 1, imports_begun: 0, privacy: 0, importing: false }
    }

    pub(crate) fn key(&self) -> Item {
        schema::followers_counter(self.author, self.shard)
    }

    /// The shard as this item has it. A fence that cannot be read protects nothing, so it is an error.
    pub(crate) fn read(item: &CounterItem) -> Result<(UserId, Self)> {
        let damaged = |attribute: Attribute| attribute.damaged_at(item.counter.clone());
        let (author, shard) = schema::counter_shard(&item.counter).ok_or_else(|| damaged(CounterItem::counter))?;
        let exact = |count: Option<Count>, of| count.map_or(Some(0), |Count(count)| count).ok_or_else(|| damaged(of));
        let imports_begun = exact(item.imports_begun, CounterItem::imports_begun)?;
        let importing = exact(item.imports_ended, CounterItem::imports_ended)? < imports_begun;
        let privacy = exact(item.privacy, CounterItem::privacy)?;
        Ok((author, Self { author, shard, parts: item.number_of_parts(), imports_begun, privacy, importing }))
    }

    /// Adds to any part of the shard.
    pub(crate) fn add(&self, facts: &Facts, change: Changed) -> Write {
        let part = rand::random::<u16>() % self.parts;
        facts.add_to_counter(schema::followers_part(self.author, self.shard, part), change)
    }

    /// The same, on the condition that no import has begun and the author has not become private since the shard was
    /// read.
    pub(crate) fn add_behind_fences(&self, facts: &Facts, change: Changed) -> Write {
        let fences = [(CounterItem::imports_begun, self.imports_begun), (CounterItem::privacy, self.privacy)];
        fences
            .into_iter()
            .fold(self.add(facts, change), |write, (fence, known)| write.when(absent(fence).or(at_most(fence, number(known)))))
    }
}

/// What a change adds to the two counts of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Changed {
    pub(crate) follows: i64,
    pub(crate) requests: i64,
}

/// Finds the counters to split: those that hold up a change twice in a row. Two changes that meet by chance split
/// nothing.
#[derive(Debug, Default)]
pub(crate) struct HeldUp(Option<UserId>);

impl HeldUp {
    /// Notes why a transaction was cancelled. `counter` and `edge` are the indexes of its two writes. If the edge was
    /// held too, the other change is one of the same pair, and a split would not help.
    pub(crate) async fn note(
        &mut self,
        facts: &Facts,
        shard: &FollowerShard,
        cancelled: &Cancelled,
        [counter, edge]: [usize; 2],
    ) {
        let by_others = matches!(cancelled, Cancelled::Conflict(held) if held.contains(&counter) && !held.contains(&edge));
        let before = std::mem::replace(&mut self.0, by_others.then_some(shard.author));
        if by_others && before == self.0 {
            facts.split(shard).await;
        }
    }
}

impl CounterItem {
    /// The number of parts, if this is the first. If it cannot be read, there may be as many as possible.
    pub fn number_of_parts(&self) -> u16 {
        let parts = self.parts.map_or(Some(1), |Count(parts)| parts);
        parts.map_or(MOST_PARTS, |parts| parts.clamp(1, MOST_PARTS.into()) as u16)
    }

    /// The sum of the counts of these parts; `None` if it is negative or one of them cannot be read.
    pub fn total(parts: &[Self], of: impl Fn(&Self) -> Option<Count<i64>>) -> Option<u64> {
        let counts = parts.iter().map(|part| of(part).map_or(Some(0), |Count(count)| count.map(i128::from)));
        u64::try_from(counts.sum::<Option<i128>>()?).ok()
    }

    /// The sum; zero if it is negative or cannot be read, so that no response fails until reconcile repairs it.
    pub(crate) fn total_or_zero(parts: &[Self], of: impl Fn(&Self) -> Option<Count<i64>>) -> u64 {
        Self::total(parts, of).unwrap_or_else(|| {
            let key = parts.first().map(|part| part.counter.as_str());
            warn!(table = "counters", key, "a count is negative or cannot be read");
            0
        })
    }
}

impl Facts {
    /// All parts of an author's shards, the first part of each first. Shards that are split take a second trip. A shard
    /// without an item has no parts.
    pub async fn follower_parts(&self, author: UserId) -> Result<[Vec<CounterItem>; 16]> {
        let mut shards: [Vec<CounterItem>; 16] = Default::default();
        let mut keys: Vec<Item> = (0..SHARDS).map(|shard| schema::followers_counter(author, shard)).collect();
        for _trip in 0..2 {
            for item in self.get("follower_counts", &self.tables.counters, keys).await? {
                let item: CounterItem = read(item, Ok)?;
                let (_, shard) =
                    schema::counter_shard(&item.counter).ok_or_else(|| CounterItem::counter.damaged_at(item.counter.clone()))?;
                shards[usize::from(shard)].push(item);
            }
            let further = |(shard, items): (u16, &Vec<CounterItem>)| {
                let parts = items.first().map_or(1, CounterItem::number_of_parts);
                (1..parts).map(move |part| schema::followers_part(author, shard, part))
            };
            keys = (0..SHARDS).zip(&shards).flat_map(further).collect();
        }
        Ok(shards)
    }

    pub(crate) fn add_to_counter(&self, key: Item, change: Changed) -> Write {
        let counts = [(CounterItem::count, change.follows), (CounterItem::requests, change.requests)];
        let counts = counts.into_iter().filter(|(_, change)| *change != 0);
        let update = Write::update(&self.tables.counters, key).add(CounterItem::changes, 1);
        counts.fold(update, |update, (count, change)| update.add(count, change))
    }

    /// Raises the fence of an author who becomes private in every part of the author's counters. Follows that have read
    /// the head before are cancelled.
    pub(crate) async fn raise_privacy(&self, author: UserId, privacy: u32) -> Result<()> {
        const OPERATION: &str = "set_privacy";
        let raise = |shard, part| {
            let fence = number(privacy);
            let raise = Write::update(&self.tables.counters, schema::followers_part(author, shard, part));
            let is_lower = absent(CounterItem::privacy).or(at_most(CounterItem::privacy, fence.clone()));
            self.send(OPERATION, raise.set(CounterItem::privacy, fence).when(is_lower))
        };
        try_join_all((0..SHARDS).map(async |shard| {
            raise(shard, 0).await?;
            let first = self.get_one(OPERATION, &self.tables.counters, schema::followers_counter(author, shard)).await?;
            let parts = first.map_or(Ok(1), |first| read(first, |first: CounterItem| Ok(first.number_of_parts())))?;
            // A part that is added from now on is used only by follows that have read this fence.
            try_join_all((1..parts).map(|part| raise(shard, part))).await.map(drop)
        }))
        .await
        .map(drop)
    }

    /// Splits a shard further, unless a transaction holds its first part, or another change has split it.
    async fn split(&self, shard: &FollowerShard) {
        let parts = shard.parts * SPLIT;
        if parts > MOST_PARTS {
            return;
        }
        let known = absent(CounterItem::parts).or(at_most(CounterItem::parts, number(shard.parts)));
        let update = Write::update(&self.tables.counters, shard.key()).set(CounterItem::parts, number(parts)).when(known);
        // The change itself does not depend on the split.
        if let Err(error) = self.send_once("split", update, ReturnValue::None).await {
            let error = &error as &dyn std::error::Error;
            warn!(author = %shard.author, shard = shard.shard, error, "a follower count was not split");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::string;

    fn part(attributes: &[(Attribute, i64)]) -> CounterItem {
        let mut item = schema::followers_counter(UserId::MIN, 3);
        for (attribute, value) in attributes {
            item.insert(attribute.name().to_owned(), aws_sdk_dynamodb::types::AttributeValue::N(value.to_string()));
        }
        read(item, Ok).unwrap()
    }

    #[test]
    fn only_the_sum_of_the_parts_counts() {
        let counts =
            |counts: &[i64]| -> Vec<CounterItem> { counts.iter().map(|count| part(&[(CounterItem::count, *count)])).collect() };
        let total = |parts: &[CounterItem]| CounterItem::total(parts, |part| part.count);
        assert_eq!(total(&counts(&[5, -2, 0])), Some(3));
        assert_eq!(total(&counts(&[5, -6])), None);
        assert_eq!(total(&counts(&[i64::MAX, i64::MAX])), Some(u64::MAX - 1));
        assert_eq!(total(&[part(&[]), part(&[])]), Some(0));
        assert_eq!((total(&[]), CounterItem::total_or_zero(&counts(&[5, -6]), |part| part.count)), (Some(0), 0));
    }

    #[test]
    fn a_number_of_parts_that_cannot_be_read_hides_no_part() {
        let stored = |parts: i64| part(&[(CounterItem::parts, parts)]).number_of_parts();
        assert_eq!((part(&[]).number_of_parts(), [-1, 0, 1, 4, 16, 99].map(stored)), (1, [16, 1, 1, 4, 16, 16]));
        let mut item = schema::followers_counter(UserId::MIN, 3);
        item.insert(CounterItem::parts.name().to_owned(), string("many"));
        assert_eq!(read(item, |item: CounterItem| Ok(item.number_of_parts())).unwrap(), 16);
    }

    #[test]
    fn a_shard_is_importing_until_its_last_import_has_ended() {
        let read = |begun, ended| {
            let item = part(&[(CounterItem::imports_begun, begun), (CounterItem::imports_ended, ended)]);
            FollowerShard::read(&item).map(|(_, shard)| shard.importing).ok()
        };
        assert_eq!(
            [(0, 0), (1, 0), (1, 1), (2, 1), (1, 2), (-1, 0)].map(|(begun, ended)| read(begun, ended)),
            [Some(false), Some(true), Some(false), Some(true), Some(false), None]
        );
    }
}

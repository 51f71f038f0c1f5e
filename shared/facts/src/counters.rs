//! Counts of an author's followers: sixteen shards, each of 1, 4 or 16 parts. The first part stores how many.
//!
//! A follow or unfollow holds one part until its transaction ends, so a part takes about a hundred changes a second. A
//! part that holds up the same change twice in a row is split. Only the sum of a shard's parts has a meaning: an
//! unfollow may take from another part than its follow added to. The counts of a post are split in the same way
//! ([`super::post_counts`]).
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

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use futures::future::try_join_all;
use tidemark_domain::{UserId, ids::SHARDS};
use tracing::warn;

use super::{
    Facts, Result,
    item::{Attribute, Count, Item, number},
    read,
    schema::{self, CounterItem},
    write::{Cancelled, Write, absent, at_most, unchanged},
};

/// The most parts of a counter. With 256 items for all shards, counters no longer limit the follows of one author.
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

    pub(crate) fn first<'a>(&self, facts: &'a Facts) -> First<'a> {
        First { table: &facts.tables.counters, key: self.key(), attribute: CounterItem::parts, parts: self.parts }
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

/// The first part of a counter, and the number of parts that a change knows of.
#[derive(Debug, Clone)]
pub(crate) struct First<'a> {
    pub(crate) table: &'a str,
    pub(crate) key: Item,
    pub(crate) attribute: Attribute,
    pub(crate) parts: u16,
}

/// Finds the counters to split: those that hold up a change twice in a row. Two changes that meet by chance split
/// nothing.
#[derive(Debug, Default)]
pub(crate) struct HeldUp(Option<Item>);

impl HeldUp {
    /// Notes why a transaction was cancelled. `counter` and `fact` are the indexes of two of its writes. If the fact
    /// was held too, the other change is one of the same fact, and a split would not help.
    pub(crate) async fn note(&mut self, facts: &Facts, first: First<'_>, cancelled: &Cancelled, [counter, fact]: [usize; 2]) {
        let by_others = matches!(cancelled, Cancelled::Conflict(held) if held.contains(&counter) && !held.contains(&fact));
        let before = std::mem::replace(&mut self.0, by_others.then(|| first.key.clone()));
        if by_others && before == self.0 {
            facts.split(first).await;
        }
    }
}

/// The number of parts that the first part of a counter stores. If it cannot be read, there may be as many as possible.
pub(crate) fn number_of_parts(stored: Option<Count>) -> u16 {
    let parts = stored.map_or(Some(1), |Count(parts)| parts);
    parts.map_or(MOST_PARTS, |parts| parts.clamp(1, MOST_PARTS.into()) as u16)
}

/// The sum of the counts of all parts; `None` if it is negative or one of them cannot be read.
pub fn sum_of_parts(counts: impl IntoIterator<Item = Option<Count<i64>>>) -> Option<u64> {
    let counts = counts.into_iter().map(|count| count.map_or(Some(0), |Count(count)| count.map(i128::from)));
    u64::try_from(counts.sum::<Option<i128>>()?).ok()
}

/// The sum of the change numbers of all parts; `None` if one of them cannot be read.
pub fn sum_of_changes(changes: impl IntoIterator<Item = Option<Count>>) -> Option<u64> {
    changes.into_iter().map(|changes| changes.map_or(Some(0), |Count(changes)| changes)).sum()
}

/// A counter of parts for a repair.
pub struct PartedCounter<'a> {
    pub table: &'a str,
    pub key: &'a (dyn Fn(u16) -> Item + Sync),
    pub count: Attribute,
    pub changes: Attribute,
    pub parts: Attribute,
}

/// The stored items of a counter, by part.
pub struct StoredParts(Vec<Option<Item>>);

impl StoredParts {
    /// The sum of the counts, and that of the change numbers; `None` if it cannot be read.
    pub fn sums(&self, of: &PartedCounter<'_>) -> Result<[Option<u64>; 2]> {
        let counts: Vec<Option<Count<i64>>> = self.values(of.count)?;
        Ok([sum_of_parts(counts), sum_of_changes(self.values(of.changes)?)])
    }

    /// Whether no part is stored.
    pub fn is_absent(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    pub fn is_single(&self) -> bool {
        self.0.len() == 1
    }

    fn values<T: serde::de::DeserializeOwned>(&self, attribute: Attribute) -> Result<Vec<Option<T>>> {
        self.0.iter().map(|item| item.as_ref().map_or(Ok(None), |item| attribute.optional(item))).collect()
    }
}

impl CounterItem {
    /// The number of parts, if this is the first.
    pub fn number_of_parts(&self) -> u16 {
        number_of_parts(self.parts)
    }

    /// The sum of the counts of these parts; `None` if it is negative or one of them cannot be read.
    pub fn total(parts: &[Self], of: impl Fn(&Self) -> Option<Count<i64>>) -> Option<u64> {
        sum_of_parts(parts.iter().map(of))
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

    /// Splits a counter further, unless a transaction holds its first part, or another change has split it.
    async fn split(&self, First { table, key, attribute, parts: known }: First<'_>) {
        let parts = known * SPLIT;
        if parts > MOST_PARTS {
            return;
        }
        let text = schema::key_text(attribute.table, &key);
        let is_known = absent(attribute).or(at_most(attribute, number(known)));
        let update = Write::update(table, key).set(attribute, number(parts)).when(is_known);
        // The change itself does not depend on the split.
        if let Err(error) = self.send_once("split", update, ReturnValue::None).await {
            let error = &error as &dyn std::error::Error;
            warn!(table = attribute.table, key = text, error, "a count was not split");
        }
    }

    /// The stored items of a counter. A part that is added later changes `parts` of the first.
    pub async fn stored_parts(&self, operation: &'static str, of: &PartedCounter<'_>) -> Result<StoredParts> {
        let first = self.get_one(operation, of.table, (of.key)(0)).await?;
        let parts = first.as_ref().map(|first| of.parts.optional(first)).transpose()?.flatten();
        let further = (1..number_of_parts(parts)).map(|part| self.get_one(operation, of.table, (of.key)(part)));
        let further = try_join_all(further).await?;
        Ok(StoredParts([first].into_iter().chain(further).collect()))
    }

    /// Makes the sum of a counter right if all its parts are as they were read. The first part gets what the others
    /// have not counted. Without `right`, only change numbers that are not numbers begin again, at 1; no writer can
    /// change one in the meantime, because its addition to it would fail. `with` is set in the first part too.
    pub async fn set_count_of_parts(
        &self,
        operation: &'static str,
        of: &PartedCounter<'_>,
        StoredParts(stored): &StoredParts,
        right: Option<u64>,
        with: Option<(Attribute, AttributeValue)>,
    ) -> Result<bool> {
        let mut rest = right.map(i128::from);
        let mut writes = Vec::new();
        for (part, item) in stored.iter().enumerate().rev() {
            let counted: Option<Count<i64>> = item.as_ref().map(|item| of.count.optional(item)).transpose()?.flatten();
            let counted = counted.map_or(Some(0), |Count(count)| count);
            let key = (of.key)(part as u16);
            let update = Write::update(of.table, key.clone());
            let mut write = match rest {
                Some(rest) if part == 0 => {
                    let set = update.set(of.count, number(rest));
                    Some(with.iter().fold(set, |set, (attribute, value)| set.set(*attribute, value.clone())))
                }
                Some(_) if counted.is_none() => Some(update.set(of.count, number(0))),
                _ => None,
            };
            rest = rest.map(|rest| rest - i128::from(counted.unwrap_or(0)));
            let changes: Option<Count> = item.as_ref().map(|item| of.changes.optional(item)).transpose()?.flatten();
            if matches!(changes, Some(Count(None))) {
                let begun = write.unwrap_or_else(|| Write::update(of.table, key.clone()));
                write = Some(begun.set(of.changes, number(1)));
            }
            let write = write.unwrap_or_else(|| Write::check(of.table, key));
            let as_read = [of.count, of.changes, of.parts];
            writes.push(as_read.iter().fold(write, |write, attribute| write.when(unchanged(*attribute, item.as_ref()))));
        }
        self.send_all(operation, writes).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::string;

    fn part(attributes: &[(Attribute, i64)]) -> CounterItem {
        let mut item = schema::followers_counter(UserId::MIN, 3);
        for (attribute, value) in attributes {
            item.insert(attribute.name().to_owned(), AttributeValue::N(value.to_string()));
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

//! The fence of an import of posts that are older than follows.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use tidemark_domain::{StoreError, UserId, ids::SHARDS};

use crate::{
    Facts, Result, attempts,
    decode::read,
    distinct,
    item::{Count, Item, number},
    schema::{CounterItem, counter_shard, followers_counter, followers_part},
    write::{Cancelled, Write, absent, at_most, below, is, still_number},
};

/// An import of an author's posts that has begun. Only one can write at a time: a later import ends it. Until it ends,
/// follows of the author check the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Import {
    pub author: UserId,
    /// The number of imports of this author that have begun.
    pub number: u64,
}

impl Facts {
    /// Begins an import: every part of the author's follower counts gets its number as the fence. A follow that has
    /// read a lower one is cancelled ([`crate::counters`]). Returns `None` if the author has asked to leave.
    pub async fn begin_import(&self, author: UserId) -> Result<Option<Import>> {
        let mut attempts = attempts("begin_import");
        let number = loop {
            attempts.next().await?;
            let first = self.get_one("begin_import", &self.tables.counters, followers_counter(author, 0)).await?;
            let known = first.as_ref().map_or(Ok(None), |first| CounterItem::imports_begun.optional::<u64>(first))?.unwrap_or(0);
            let begun = Write::update(&self.tables.counters, followers_counter(author, 0))
                .set(CounterItem::imports_begun, number(known + 1))
                .when(still_number(CounterItem::imports_begun, known));
            match self.transact("begin_import", vec![begun, self.still_here(author, 0)]).await? {
                Ok(()) => break known + 1,
                Err(Cancelled::Conditions(failed)) if failed.contains(&1) => return Ok(None),
                Err(_) => (),
            }
        };
        let import = Import { author, number };
        let raised = try_join_all((0..SHARDS).map(async |shard| {
            if !self.raise_fence(import, shard, 0).await? {
                return Ok(false);
            }
            let first = self.get_one("begin_import", &self.tables.counters, followers_counter(author, shard)).await?;
            let parts = first.map_or(Ok(1), |first| read(first, |first: CounterItem| Ok(first.number_of_parts())))?;
            // A part that is added from now on is used only by follows that have read this fence.
            let raised = try_join_all((1..parts).map(|part| self.raise_fence(import, shard, part))).await?;
            Ok::<_, StoreError>(raised.into_iter().all(|raised| raised))
        }))
        .await?;
        Ok(raised.into_iter().all(|raised| raised).then_some(import))
    }

    /// Ends an import, and those before it. If a later one has begun, it stays open.
    pub async fn end_import(&self, Import { author, number: import }: Import) -> Result<()> {
        let end = async |shard| {
            let end = Write::update(&self.tables.counters, followers_counter(author, shard));
            let end =
                end.set(CounterItem::imports_ended, number(import)).when(at_most(CounterItem::imports_begun, number(import)));
            self.send("end_import", end).await.map(drop)
        };
        // The import writes only while it is open in the first shard.
        end(0).await?;
        try_join_all((1..SHARDS).map(end)).await.map(drop)
    }

    /// The imports of these authors that have begun and not ended.
    pub async fn open_imports(&self, authors: &[UserId]) -> Result<Vec<Import>> {
        let authors = distinct(authors).into_iter();
        let keys = authors.flat_map(|author| (0..SHARDS).map(move |shard| followers_counter(author, shard))).collect();
        let open = |item: Item| {
            read(item, |CounterItem { counter, imports_begun, imports_ended, .. }| {
                let (author, _) = counter_shard(&counter).ok_or(CounterItem::counter)?;
                let [begun, ended] = [imports_begun, imports_ended].map(|number| number.map_or(Some(0), |Count(number)| number));
                let number = begun.ok_or(CounterItem::imports_begun)?;
                Ok((ended < Some(number)).then_some(Import { author, number }))
            })
        };
        // All shards, because a run may die before it has ended its import in the last one.
        let mut imports = BTreeMap::<UserId, Import>::new();
        for item in self.get("open_imports", &self.tables.counters, keys).await? {
            if let Some(import) = open(item)? {
                let newest = imports.entry(import.author).or_insert(import);
                newest.number = newest.number.max(import.number);
            }
        }
        Ok(imports.into_values().collect())
    }

    /// Returns false if the author has asked to leave. If a later import has begun, its fence is higher and stays.
    async fn raise_fence(&self, import: Import, shard: u16, part: u16) -> Result<bool> {
        let fence = number(import.number);
        let raise = Write::update(&self.tables.counters, followers_part(import.author, shard, part))
            .set(CounterItem::imports_begun, fence.clone())
            .when(absent(CounterItem::imports_begun).or(at_most(CounterItem::imports_begun, fence)));
        let mut attempts = attempts("begin_import");
        loop {
            attempts.next().await?;
            match self.transact("begin_import", vec![raise.clone(), self.still_here(import.author, shard)]).await? {
                Err(Cancelled::Conditions(failed)) if failed.contains(&1) => return Ok(false),
                Ok(()) | Err(Cancelled::Conditions(_)) => return Ok(true),
                Err(Cancelled::Conflict(_)) => (),
            }
        }
    }

    /// The check that an import is open, for its transactions.
    pub fn is_open(&self, import: Import) -> Write {
        Write::check(&self.tables.counters, followers_counter(import.author, 0))
            .when(is(CounterItem::imports_begun, number(import.number)))
            .when(absent(CounterItem::imports_ended).or(below(CounterItem::imports_ended, number(import.number))))
    }
}

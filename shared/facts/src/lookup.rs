//! Consistent reads of items by their keys.

use std::collections::HashMap;

use aws_sdk_dynamodb::{
    operation::query::builders::QueryFluentBuilder,
    types::{KeysAndAttributes, ReturnConsumedCapacity},
};
use futures::{FutureExt, future::try_join_all};
use tidemark_domain::UserId;

use super::{
    Facts, Result, attempts,
    item::{Item, number},
    schema::{self, EdgeItem},
    unavailable,
    write::{below, is, is_throttled, queried},
};

/// The maximum number of keys in one BatchGetItem.
const BATCH_GET: usize = 100;

impl Facts {
    /// Checks that DynamoDB responds.
    pub async fn ping(&self) -> Result<()> {
        self.get_one("ping", &self.tables.counters, schema::followings_counter(UserId::MIN)).await.map(|_| ())
    }

    /// Reads all items of a user from `following` or `reads`, consistently and with whole sets.
    pub async fn of_user(&self, operation: &'static str, table: &str, user: UserId) -> Result<Vec<Item>> {
        let items = queried(operation, self.query_user(table, user), usize::MAX).await?;
        self.completed(operation, table, items).await
    }

    /// A consistent query of all items of a user in `following` or `reads`, without windows.
    pub(crate) fn query_user(&self, table: &str, user: UserId) -> QueryFluentBuilder {
        let items = [is(EdgeItem::user, number(user.get())), below(EdgeItem::author, schema::reads_end())];
        self.query(table, items).consistent_read(true)
    }

    /// Reads one item, consistently and with whole sets.
    pub async fn get_one(&self, operation: &'static str, table: &str, key: Item) -> Result<Option<Item>> {
        Ok(self.get(operation, table, vec![key]).await?.pop())
    }

    /// Reads any number of items of a table, consistently and with whole sets. Absent items are left out.
    pub async fn get(&self, operation: &'static str, table: &str, keys: Vec<Item>) -> Result<Vec<Item>> {
        let [items] = self.batch_get(operation, [(table, keys)]).await?;
        Ok(items)
    }

    /// The same for several tables. The result has one list for each table, in the order of `wanted`.
    pub async fn batch_get<const N: usize>(
        &self,
        operation: &'static str,
        wanted: [(&str, Vec<Item>); N],
    ) -> Result<[Vec<Item>; N]> {
        let tables = wanted.each_ref().map(|(table, _)| *table);
        let mut found = self.stored(operation, wanted).await?;
        let whole = found.iter_mut().zip(tables).map(|(items, table)| self.completed(operation, table, std::mem::take(items)));
        let whole = try_join_all(whole).await?;
        found.iter_mut().zip(whole).for_each(|(items, whole)| *items = whole);
        Ok(found)
    }

    /// The same, with sets as they are stored: without the bits that lie in windows.
    pub(crate) async fn stored<const N: usize>(
        &self,
        operation: &'static str,
        wanted: [(&str, Vec<Item>); N],
    ) -> Result<[Vec<Item>; N]> {
        let tables = wanted.each_ref().map(|(table, _)| *table);
        let keys = wanted.into_iter().enumerate().flat_map(|(index, (_, keys))| keys.into_iter().map(move |key| (index, key)));
        let keys: Vec<(usize, Item)> = keys.collect();
        let batches = keys.chunks(BATCH_GET).map(|keys| self.batch_get_once(operation, &tables, keys));
        let mut found = [const { Vec::new() }; N];
        for (index, item) in try_join_all(batches).await?.into_iter().flatten() {
            found[index].push(item);
        }
        Ok(found)
    }

    async fn batch_get_once(
        &self,
        operation: &'static str,
        tables: &[&str],
        keys: &[(usize, Item)],
    ) -> Result<Vec<(usize, Item)>> {
        let mut request = HashMap::new();
        for (index, table) in tables.iter().enumerate() {
            let keys: Vec<Item> = keys.iter().filter(|(of, _)| *of == index).map(|(_, key)| key.clone()).collect();
            if !keys.is_empty() {
                let keys = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build();
                request.insert((*table).to_owned(), keys.map_err(|error| unavailable(operation, error))?);
            }
        }
        let mut found = Vec::new();
        let mut attempts = attempts(operation);
        loop {
            attempts.next().await?;
            let read = self.client.batch_get_item().set_request_items(Some(request.clone()));
            let response = match read.return_consumed_capacity(ReturnConsumedCapacity::Total).send().boxed().await {
                // The partitions of all keys are at their limit.
                Err(error) if is_throttled(&error) => continue,
                response => response.map_err(|error| unavailable(operation, error))?,
            };
            for (table, items) in response.responses.unwrap_or_default() {
                let index = tables.iter().position(|name| *name == table).unwrap_or(0);
                found.extend(items.into_iter().map(|item| (index, item)));
            }
            request = response.unprocessed_keys.unwrap_or_default();
            if request.is_empty() {
                return Ok(found);
            }
        }
    }
}

//! Lists of authors: one item of the table `counters` for each user.

use tidemark_domain::{UserId, UserLists};

use super::{
    Facts, Result,
    item::encode,
    read,
    schema::{self, ListsItem},
    write::{Write, still_number},
};
use crate::Record;

impl Facts {
    pub async fn lists(&self, user: UserId) -> Result<UserLists> {
        let item = self.get_one("lists", &self.tables.counters, schema::lists(user)).await?;
        let lists = |ListsItem { version, last, lists, .. }| Ok(UserLists { version, last, lists });
        Ok(item.map(|item| read(item, lists)).transpose()?.unwrap_or_default())
    }

    /// Stores a user's lists, and returns true, if their version is one greater than the stored one. The record is
    /// written with them, on its own condition.
    pub async fn put_lists(
        &self,
        user: UserId,
        UserLists { version, last, lists }: &UserLists,
        record: Option<&Record>,
    ) -> Result<bool> {
        let item = ListsItem { counter: schema::lists_key(user), version: *version, last: *last, lists: lists.clone() };
        let unchanged = still_number(ListsItem::version, version.saturating_sub(1));
        let lists = Write::put(&self.tables.counters, encode(&item)).when(unchanged);
        self.send_all("put_lists", [lists].into_iter().chain(record.map(|record| self.record_write(record))).collect()).await
    }
}

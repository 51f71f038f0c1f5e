//! The notes of a block: two flags in the reactions of the two users, which follows and reactions check, and an entry
//! in the list of each. The block itself is in its pair ([`super::edges`]).

use std::collections::{HashMap, HashSet};

use aws_sdk_dynamodb::types::AttributeValue;
use tidemark_domain::UserId;

use super::{
    Facts, Result, distinct,
    item::{Attribute, Item, Stored, number, string},
    schema::{self, EdgeItem, FollowerItem, ReactionItem},
    write::{Write, is, queried, still},
};

impl Facts {
    /// Returns the four notes of each block (user, other): two flags, that the other user may not react to the user and
    /// the reverse, and the entries in the lists of both.
    pub async fn block_notes(&self, pairs: &[(UserId, UserId)]) -> Result<Vec<[bool; 4]>> {
        let both = distinct(&pairs.iter().flat_map(|&(user, other)| [(other, user), (user, other)]).collect::<Vec<_>>());
        let keys = both.into_iter().map(|(user, author)| schema::reaction(user, author)).collect();
        let entries = distinct(pairs).into_iter().flat_map(|(user, other)| schema::block_entries(user, other)).collect();
        let wanted = [(self.tables.reactions.as_str(), keys), (self.tables.followers.as_str(), entries)];
        let [items, entries] = self.stored("block_notes", wanted).await?;
        let text = |item: &Item| schema::key_text(ReactionItem::TABLE, item);
        let items: HashMap<String, Item> = items.into_iter().map(|item| (text(&item), item)).collect();
        let entry = |item: &Item| schema::key_text(FollowerItem::TABLE, item);
        let entries: HashSet<String> = entries.iter().map(entry).collect();
        let notes = |&(user, other): &(UserId, UserId)| {
            let is_set = |(key, flag): (Item, Attribute)| items.get(&text(&key)).is_some_and(|item| flag.of(item).is_some());
            let [flag, reverse] = flags(user, other).map(is_set);
            let [own, of_other] = schema::block_entries(user, other).map(|key| entries.contains(&entry(&key)));
            [flag, reverse, own, of_other]
        };
        Ok(pairs.iter().map(notes).collect())
    }

    /// Returns the users whom the user blocks, and those who block the user.
    pub async fn blocks_of(&self, user: UserId) -> Result<[Vec<UserId>; 2]> {
        let listed = async |partition: String| {
            let query = self.query(&self.tables.followers, [is(FollowerItem::shard, string(partition))]).consistent_read(true);
            let entries = queried("blocks_of", query, usize::MAX).await?;
            entries.iter().map(|entry| FollowerItem::follower.parsed(entry, schema::follower_of)).collect::<Result<Vec<_>>>()
        };
        let (blocked, blockers) = futures::try_join!(listed(schema::blocked_by(user)), listed(schema::blockers_of(user)))?;
        Ok([blocked, blockers])
    }

    /// Writes the notes of a block, or of none. Returns false, and writes nothing, if the pair has another revision.
    pub async fn restore_block_notes(&self, user: UserId, other: UserId, blocked: bool, rev: Option<u32>) -> Result<bool> {
        let check = Write::check(&self.tables.following, schema::edge(user, other));
        let mut writes = vec![check.when(still(EdgeItem::rev, rev.map(number)))];
        writes.extend(self.note_block(user, other, blocked));
        Ok(self.transact("restore_block_notes", writes).await?.is_ok())
    }

    /// The flags of a block, and its entries in the lists of both users.
    pub(crate) fn note_block(&self, user: UserId, other: UserId, blocked: bool) -> Vec<Write> {
        let flags = flags(user, other).map(|(key, attribute)| {
            let update = Write::update(&self.tables.reactions, key).add(ReactionItem::version, 1);
            if blocked { update.set(attribute, AttributeValue::Bool(true)) } else { update.remove([attribute]) }
        });
        let followers = &self.tables.followers;
        let entries = schema::block_entries(user, other)
            .map(|entry| if blocked { Write::put(followers, entry) } else { Write::delete(followers, entry) });
        flags.into_iter().chain(entries).collect()
    }
}

/// The two places where a block is noted for transactions that follow or react: in the reactions of both.
fn flags(user: UserId, other: UserId) -> [(Item, Attribute); 2] {
    [(schema::reaction(other, user), ReactionItem::blocked), (schema::reaction(user, other), ReactionItem::blocks)]
}

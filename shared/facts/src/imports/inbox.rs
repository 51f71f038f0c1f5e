//! What users have read of their inboxes.

use tidemark_domain::{GroupId, Timestamp, UserId, inbox::GROUP_LIFETIME_MS};

use super::Imported;
use crate::{
    Facts, Result,
    item::number,
    schema::{self, GroupItem, InboxReadItem},
    write::{Cancelled, Write, absent, below},
};

impl Facts {
    /// Notes until when a user has read a group of the inbox, or without `id` the whole inbox. It never goes back. The
    /// group may not be derived yet.
    pub async fn import_inbox_read(&self, user: UserId, id: Option<GroupId>, at: Timestamp) -> Result<Imported> {
        const OPERATION: &str = "import_inbox_read";
        let (inbox, time) = (&self.tables.inbox, number(at.ms()));
        let write = match id {
            Some(id) => {
                let update = Write::update(inbox, schema::group(user, id)).set(GroupItem::read_at, time.clone());
                // As long as an act that was read.
                let until = at.plus_ms(GROUP_LIFETIME_MS).seconds() + 1;
                let update = update.set_if_absent(GroupItem::expires_at, number(until));
                let update = update.set_if_absent(GroupItem::version, number(1_u64));
                let update = update.set_if_absent(GroupItem::written_at, number(0_u64));
                update.when(absent(GroupItem::read_at).or(below(GroupItem::read_at, time)))
            }
            None => {
                let read_before = InboxReadItem::read_before;
                let update = Write::update(inbox, schema::inbox_read(user)).set(read_before, time.clone());
                update.when(absent(read_before).or(below(read_before, time)))
            }
        };
        Ok(match self.transact(OPERATION, vec![write, self.still_here(user, user.shard())]).await? {
            Ok(()) => Imported::Written,
            Err(Cancelled::Conditions(failed)) if failed.contains(&1) => Imported::Erased,
            Err(Cancelled::Conditions(_)) => Imported::Existing,
            Err(Cancelled::Conflict(_)) => return Err(tidemark_domain::StoreError::Contention { operation: OPERATION }),
        })
    }
}

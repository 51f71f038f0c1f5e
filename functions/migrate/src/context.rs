//! [`Run`]: the state of one invocation.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use moka::sync::Cache;
use tidemark::{
    App,
    domain::{NoticeId, Seq, SeqSet, Timestamp, UserId},
};

use crate::{
    Imports, MigrateError,
    legacy::{LegacyNotice, Reason},
    progress::Pending,
    report::Tally,
    source::Source,
};

/// The state of one invocation.
pub(crate) struct Run<'a> {
    pub(crate) app: &'a App,
    pub(crate) imports: Imports,
    pub(crate) source: Source,
    pub(crate) dry_run: bool,
    /// Whether this is a pass over lists that are still in use.
    pub(crate) follow: bool,
    pub(crate) now: Timestamp,
    /// The notice here that each legacy notice was published as.
    pub(crate) notices: BTreeMap<LegacyNotice, NoticeId>,
    /// Times of an author's posts without archived ones, by author and latest sequence number. The value for a key
    /// never changes.
    pub(crate) times: Cache<(UserId, Seq), Times>,
    pub(crate) stop_at: u64,
    pub(crate) limit: u64,
    pub(crate) read: AtomicU64,
}

/// Times and sequence numbers of one author's posts, ascending.
pub(crate) type Times = Arc<Vec<(Timestamp, Seq)>>;

/// A key that is imported, and the counts of its entries.
pub(crate) struct Key<'a> {
    pub(crate) run: &'a Run<'a>,
    pub(crate) pending: Pending,
    pub(crate) tally: Tally,
}

impl Key<'_> {
    /// Counts a member that cannot be imported.
    pub(crate) fn refuse(&mut self, reason: Reason, member: &[u8]) {
        self.tally.refuse(reason, self.pending.key.as_bytes(), Some(member));
    }
}

/// The progress of one key.
pub(crate) enum Outcome {
    Done,
    /// Time is up. The next invocation continues at this position.
    GoesOn(u64),
}

impl Run<'_> {
    /// Whether the time or the limit of entries is used up.
    pub(crate) fn is_over(&self) -> bool {
        self.read.load(Ordering::Relaxed) >= self.limit || self.app.stores.clock.now().ms() >= self.stop_at
    }

    /// Stores that members of a list agree with the facts, for later passes.
    pub(crate) async fn note_seen(&self, list: &str, members: &SeqSet) -> Result<(), MigrateError> {
        if self.dry_run || members.is_empty() {
            return Ok(());
        }
        Ok(self.imports.change_seen(list, members, &SeqSet::default()).await?)
    }

    /// Counts entries towards the limit.
    pub(crate) fn has_read(&self, entries: usize) {
        self.read.fetch_add(entries as u64, Ordering::Relaxed);
    }
}

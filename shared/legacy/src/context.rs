//! [`Run`]: what all parts of one invocation share.

use std::{
    collections::BTreeMap,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use tidemark::{
    App,
    domain::{NoticeId, SeqSet, Timestamp, UserId},
    facts::PostTimes,
};

use crate::{
    Imports, MigrateError,
    legacy::{LegacyNotice, Reason, Unread},
    progress::Pending,
    removals::Removals,
    report::Tally,
    source::Source,
};

pub(crate) struct Run<'a> {
    pub(crate) app: &'a App,
    pub(crate) imports: Imports,
    pub(crate) source: Source,
    pub(crate) dry_run: bool,
    /// Whether this is a pass over lists that are still in use.
    pub(crate) follow: bool,
    /// The rule of a pass for members that are missing.
    pub(crate) removals: Removals,
    pub(crate) now: Timestamp,
    /// When the first import of follows began.
    pub(crate) begun_at: Timestamp,
    /// The rule for unread posts, once a layout of follows needs it.
    pub(crate) unread: OnceLock<Unread>,
    /// The notice here that each legacy notice was published as.
    pub(crate) notices: BTreeMap<LegacyNotice, NoticeId>,
    pub(crate) times: PostTimes,
    pub(crate) stop_at: u64,
    pub(crate) limit: u64,
    pub(crate) read: AtomicU64,
}

/// A key that is imported, and the counts of its entries.
pub(crate) struct Key<'a> {
    pub(crate) run: &'a Run<'a>,
    pub(crate) pending: Pending,
    pub(crate) tally: Tally,
}

impl Key<'_> {
    pub(crate) fn refuse(&mut self, reason: Reason, member: &[u8]) {
        self.tally.refuse(reason, self.pending.key.as_bytes(), Some(member));
    }
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
        Ok(self.imports.change_list(list, |list| list.add(members)).await?)
    }

    pub(crate) fn has_read(&self, entries: usize) {
        self.read.fetch_add(entries as u64, Ordering::Relaxed);
    }

    /// Updates the read state of these authors in the reader's view, if there is one. The facts stay if the view cannot
    /// be updated: the projector updates it later.
    pub(crate) async fn sync_view(&self, user: UserId, authors: &[UserId]) -> Result<(), MigrateError> {
        let shown = match self.app.stores.views.reader_view(user, 0).await {
            Ok(None) => return Ok(()),
            Ok(Some(view)) => authors.iter().copied().filter(|author| view.state.authors.contains_key(author)).collect(),
            Err(_) => authors.to_vec(),
        };
        for author in shown {
            self.app.marking.sync_view(user, author).await?;
        }
        Ok(())
    }
}

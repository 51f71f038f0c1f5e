//! The progress of a run. It is stored on condition that no other run has moved it. A dry run stores its own in the
//! same way, so that it fails where the run would.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidemark::domain::Timestamp;

use crate::{
    legacy::{Layout, Unread},
    removals::Absence,
    report::Report,
};

/// A key that is listed and not finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(crate) key: String,
    /// The position where its members continue; `None` at the beginning.
    pub(crate) at: Option<u64>,
}

/// The position of a run, and its report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// The time at which the run began.
    pub(crate) begun_at: Timestamp,
    /// The server process of the source that `scan` and `pending` belong to.
    pub(crate) server: String,
    /// The current layout; `None` when all are done.
    pub(crate) layout: Option<Layout>,
    /// The cursor where the listing of keys continues; `None` when all are listed.
    pub(crate) scan: Option<u64>,
    pub(crate) pending: Vec<Pending>,
    /// The place where a pass continues to look for lists that no longer exist, after its layouts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sweep: Option<String>,
    /// The rule for unread posts; `None` until a layout of follows needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unread: Option<Unread>,
    /// The cursor where the search for unread lists continues, which decides the rule `auto`.
    #[serde(default)]
    pub(crate) unread_scan: u64,
    /// What the last whole pass missed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) last: BTreeMap<Layout, Absence>,
    pub(crate) report: Report,
}

impl Progress {
    pub(crate) fn begin(begun_at: Timestamp, server: String, layouts: &[Layout], last: BTreeMap<Layout, Absence>) -> Self {
        let mut progress = Self {
            begun_at,
            server,
            layout: None,
            scan: None,
            pending: Vec::new(),
            sweep: None,
            unread: None,
            unread_scan: 0,
            last,
            report: Report::new(),
        };
        progress.enter(layouts.first().copied());
        progress
    }

    /// What this pass has missed.
    pub(crate) fn absences(&self) -> BTreeMap<Layout, Absence> {
        self.report.iter().map(|(layout, tally)| (*layout, Absence { seen: tally.seen, missing: tally.missing })).collect()
    }

    /// Begins a layout; `None` ends the run.
    pub(crate) fn enter(&mut self, layout: Option<Layout>) {
        self.layout = layout;
        self.scan = layout.map(|_| 0);
        self.pending.clear();
        if let Some(layout) = layout {
            self.report.entry(layout).or_default();
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.layout.is_none() && self.sweep.is_none()
    }

    /// If the source is another server process, its old cursors mean nothing, so the layout begins again.
    pub(crate) fn meet(&mut self, server: &str) {
        if self.server == server {
            return;
        }
        server.clone_into(&mut self.server);
        self.unread_scan = 0;
        self.enter(self.layout);
        if let Some(tally) = self.layout.and_then(|layout| self.report.get_mut(&layout)) {
            tally.begin_again();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_source_begins_the_layout_again_and_keeps_the_others() {
        let mut progress = Progress::begin(Timestamp::default(), "a".to_owned(), &Layout::ALL, BTreeMap::new());
        progress.report.entry(Layout::AuthorBlogs).or_default().wrote(7);
        progress.enter(Some(Layout::UserRead));
        progress.scan = None;
        progress.pending = vec![Pending { key: "user:read:1".to_owned(), at: Some(12) }];
        let same = progress.clone();
        progress.meet("a");
        assert_eq!(progress, same);
        progress.meet("b");
        assert_eq!((progress.layout, progress.scan, progress.pending.len()), (Some(Layout::UserRead), Some(0), 0));
        assert_eq!(progress.report[&Layout::AuthorBlogs].written, 7);
    }
}

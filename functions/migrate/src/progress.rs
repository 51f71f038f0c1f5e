//! The progress of a run. It is stored on condition that no other run has moved it. A dry run writes nothing, so its
//! caller keeps the progress as a cursor.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use tidemark::domain::Timestamp;

use crate::{legacy::Layout, report::Report};

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
    /// The time at which the first run with this source and these layouts began.
    pub(crate) first_begun: Timestamp,
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
    pub(crate) report: Report,
}

impl Progress {
    pub(crate) fn begin(first_begun: Timestamp, server: String, layouts: &[Layout]) -> Self {
        let mut progress =
            Self { first_begun, server, layout: None, scan: None, pending: Vec::new(), sweep: None, report: Report::new() };
        progress.enter(layouts.first().copied());
        progress
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
        self.enter(self.layout);
        if let Some(tally) = self.layout.and_then(|layout| self.report.get_mut(&layout)) {
            tally.begin_again();
        }
    }

    /// The cursor that the caller of a dry run sends back.
    pub(crate) fn cursor(&self) -> Result<String, serde_json::Error> {
        Ok(BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(self)?))
    }

    /// `None` if the text is not a cursor.
    pub(crate) fn from_cursor(cursor: &str) -> Option<Self> {
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_source_begins_the_layout_again_and_keeps_the_others() {
        let mut progress = Progress::begin(Timestamp::default(), "a".to_owned(), &Layout::ALL);
        progress.report.entry(Layout::AuthorBlogs).or_default().wrote(7);
        progress.enter(Some(Layout::UserRead));
        progress.scan = None;
        progress.pending = vec![Pending { key: "user:read:1".to_owned(), at: Some(12) }];
        let same = progress.clone();
        progress.meet("a");
        assert_eq!(progress, same);
        assert_eq!(Progress::from_cursor(&progress.cursor().unwrap()), Some(same));
        progress.meet("b");
        assert_eq!((progress.layout, progress.scan, progress.pending.len()), (Some(Layout::UserRead), Some(0), 0));
        assert_eq!(progress.report[&Layout::AuthorBlogs].written, 7);
        assert_eq!(Progress::from_cursor("nonsense"), None);
    }
}

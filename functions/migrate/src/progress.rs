//! Where a run is. In the facts, on the condition that nobody else moved it; of a dry run, which writes nothing, in the caller's hands.

use crate::legacy::Layout;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use tidemark::domain::Timestamp;

use crate::report::Report;

/// A key that has been listed and is not finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(crate) key: String,
    /// Where its members go on; `None` at its beginning.
    pub(crate) at: Option<u64>,
}

/// A run's position and what it has found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// When the first run of this source and these layouts began.
    pub(crate) first_begun: Timestamp,
    /// The life of the source that `scan` and `pending` belong to.
    pub(crate) server: String,
    /// The layout at work; `None` when all are done.
    pub(crate) layout: Option<Layout>,
    /// Where the listing of keys goes on; `None` when all are listed.
    pub(crate) scan: Option<u64>,
    /// Keys listed and not finished.
    pub(crate) pending: Vec<Pending>,
    pub(crate) report: Report,
}

impl Progress {
    /// The beginning of a run.
    pub(crate) fn begin(first_begun: Timestamp, server: String, layouts: &[Layout]) -> Self {
        let mut progress = Self { first_begun, server, layout: None, scan: None, pending: Vec::new(), report: Report::new() };
        progress.enter(layouts.first().copied());
        progress
    }

    /// Goes on to a layout.
    pub(crate) fn enter(&mut self, layout: Option<Layout>) {
        self.layout = layout;
        self.scan = layout.map(|_| 0);
        self.pending.clear();
        if let Some(layout) = layout {
            self.report.entry(layout).or_default();
        }
    }

    /// Whether every key of the layout is finished.
    pub(crate) fn has_finished_layout(&self) -> bool {
        self.scan.is_none() && self.pending.is_empty()
    }

    /// The source has begun another life, in which the old cursors mean nothing: the layout begins again.
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

    /// The text that is stored.
    pub(crate) fn text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Reads it back.
    pub(crate) fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The cursor that a dry run's caller hands back.
    pub(crate) fn cursor(&self) -> Result<String, serde_json::Error> {
        Ok(BASE64_URL_SAFE_NO_PAD.encode(self.text()?))
    }

    /// Reads it back; `None` when it is none.
    pub(crate) fn from_cursor(cursor: &str) -> Option<Self> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok()?;
        Self::from_text(std::str::from_utf8(&bytes).ok()?).ok()
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

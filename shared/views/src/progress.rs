//! The pages of a fan-out that are done.

use futures::FutureExt;
use redis::{Cmd, Value};
use tidemark_domain::{FanOutKind, PostId};

use super::{Function, Result, keys};
use crate::connection::{Views, ms, view_error};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    pub pages_done: u64,
    /// Followers handled in these pages.
    pub handled: u64,
}

impl Views {
    /// Stores that the pages of a fan-out were sent, or left to reconcile.
    pub async fn note_sent(&self, kind: FanOutKind, post: PostId) -> Result<()> {
        // No page is done, and no follower handled.
        let mut record = redis::cmd("SET");
        record.arg(keys::pages_done(kind, post)).arg(&[0_u8; 8]).arg("NX").arg("PX").arg(ms(keys::PROGRESS_LIFETIME));
        self.query::<Value>("note_sent", record).await.map(drop)
    }

    /// Returns whether the pages were sent, or one of them is done.
    pub async fn was_sent(&self, kind: FanOutKind, post: PostId) -> Result<bool> {
        self.query("was_sent", Cmd::exists(keys::pages_done(kind, post))).await
    }

    /// Stores that a page is done. A page counts once. Returns the progress after it.
    pub async fn page_done(&self, kind: FanOutKind, post: PostId, page: u16, handled: u64) -> Result<Progress> {
        let args = (page, handled, ms(keys::PROGRESS_LIFETIME));
        let (pages_done, handled) = self.call(Function::Progress, &[keys::pages_done(kind, post)], args).await?;
        Ok(Progress { pages_done, handled })
    }

    /// Returns the progress, and which of the first `pages` pages are not done.
    pub async fn progress(&self, kind: FanOutKind, post: PostId, pages: u16) -> Result<(Progress, Vec<u16>)> {
        // Of any epoch: a page in an older dump was done, and its readers' views of that epoch count as missing.
        let record: Option<Vec<u8>> = self.query("progress", Cmd::get(keys::pages_done(kind, post))).await?;
        let record = record.unwrap_or_default();
        let (handled, bitmap) = record.split_first_chunk().map_or((0, &[][..]), |(n, bitmap)| (u64::from_be_bytes(*n), bitmap));
        // SETBIT numbers the bits of a byte from the most significant one.
        let done = |page: u16| bitmap.get(usize::from(page / 8)).is_some_and(|byte| byte << (page % 8) & 0x80 != 0);
        let missing: Vec<u16> = (0..pages).filter(|&page| !done(page)).collect();
        let pages_done = u64::from(pages) - missing.len() as u64;
        Ok((Progress { pages_done, handled }, missing))
    }

    pub async fn ping(&self) -> Result<()> {
        self.link.responds("ping").boxed().await.map_err(view_error)
    }
}

//! The reader's own posts in the reader's feed (`own=true`).
//!
//! They are in no view. The reader is one more author of the merge, of whom every post is shown and read. A timeline is
//! the author's head, so a page needs that head, and the summaries of the posts that the page may have.

use std::collections::HashMap;

use tidemark_domain::{AuthorState, FeedKey, ReaderState, Trail, UserId, store::Result};
use tidemark_views::View;

use super::{
    FeedQuery, Origin, Readers, Snapshot, Status,
    feed::{MARGIN, Walk},
    merge::{Lane, Merge, Summaries},
    shared::HeadsFrom,
};

impl Readers {
    /// Returns the reader as the only author of a feed.
    pub(super) async fn own(&self, user: UserId, heads: HeadsFrom) -> Result<Snapshot> {
        let head = self.authors(&[user], heads).await?.heads.remove(&user).unwrap_or_default();
        let authors = HashMap::from([(user, AuthorState::own(&head))]);
        let state = ReaderState { authors, ..ReaderState::default() };
        Ok(Snapshot { state, heads: HashMap::from([(user, head)]), origin: Origin::View })
    }

    /// Returns what a query selects of a snapshot from the facts: the authors on the list, and the reader.
    pub(super) async fn selected<Place>(
        &self,
        user: UserId,
        mut snapshot: Snapshot,
        query: &FeedQuery<Place>,
    ) -> Result<Snapshot> {
        snapshot.state = snapshot.state.of_list(query.list);
        if query.has_own() {
            let own = self.own(user, HeadsFrom::Facts).await?;
            snapshot.state.authors.extend(own.state.authors);
            snapshot.heads.extend(own.heads);
        }
        Ok(snapshot)
    }

    /// Adds own posts to a view: from the place of a page on, as many as the page and its trail may need. If there are
    /// more, the view then ends at the last of them, and what is below comes from the facts.
    pub(super) async fn add_own(&self, own: &Snapshot, view: &mut View, walk: &mut Walk<'_>) -> Result<()> {
        view.state.authors.extend(own.state.authors.clone());
        let newest_at = view.state.newest_at();
        let summaries = Summaries(self);
        let lanes: Vec<Lane<'_, FeedKey>> = Lane::of(own, Status::All);
        let mut merge = Merge::new(&summaries, &self.stores.facts, lanes, walk.bound);
        // What lies below the entries that were read is unknown.
        let read_to = view.entries.last().filter(|_| !view.whole).copied();
        let mut keys: Vec<FeedKey> = Vec::new();
        walk.own_end = Some(1);
        while let Some(key) = merge.next().await? {
            if keys.len() > walk.query.limit + MARGIN && !Trail::may_have(keys.len(), &key, newest_at) {
                view.state.meta.low = view.state.meta.low.max(keys.last().copied());
            }
            if view.state.meta.low.max(read_to).is_some_and(|end| key < end) {
                walk.own_end = Some(key.post.seq + 1);
                break;
            }
            keys.push(key);
        }
        view.entries.extend(keys);
        view.entries.retain(|key| view.state.meta.low.is_none_or(|low| *key >= low));
        view.entries.sort_unstable_by(|a, b| b.cmp(a));
        Ok(())
    }
}

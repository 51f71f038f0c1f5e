//! The import of members, by layout.

use tidemark::domain::{SeqSet, UserId};

use crate::{MigrateError, context::Key, edges, legacy::Layout, posts, reads, records::SeenList, source::Member, untimed};

/// Imports members of a list, of which `list` is known. Returns those that agree with the facts now, and the position
/// of the rest if time is up.
pub(crate) async fn import(
    key: &mut Key<'_>,
    layout: Layout,
    owner: UserId,
    members: &[Member],
    list: &SeenList,
) -> Result<(SeqSet, Option<u64>), MigrateError> {
    let imported = match layout {
        Layout::AuthorBlogs => return posts::blogs(key, owner, members).await,
        Layout::UserRead | Layout::BlogRead => reads::mark(key, owner, members).await?,
        Layout::Following | Layout::UFollow => edges::own(key, owner, layout.unit_ms(), members, list).await?,
        Layout::Follows => untimed::follows(key, owner, members).await?,
        Layout::Fans | Layout::UFans => {
            edges::followers(key, owner, layout.unit_ms(), members).await?;
            SeqSet::default()
        }
        // The first is imported in groups of keys, the others key by key.
        Layout::BlogInfo | Layout::BlogLiked | Layout::Feed | Layout::UserFeed | Layout::Notices => SeqSet::default(),
    };
    Ok((imported, None))
}

//! Updates live views after an import of read marks.

use tidemark::{App, domain::UserId};

use crate::MigrateError;

/// Updates the read state of these authors in the reader's view, if there is one. The facts stay if the view cannot be
/// updated: a worker updates it later.
pub(crate) async fn reads(app: &App, user: UserId, authors: &[UserId]) -> Result<(), MigrateError> {
    let shown = match app.stores.reader_views.view(user, 0).await {
        Ok(None) => return Ok(()),
        Ok(Some(view)) => authors.iter().copied().filter(|author| view.state.authors.contains_key(author)).collect(),
        Err(_) => authors.to_vec(),
    };
    for author in shown {
        app.sync.reads_of(user, author).await?;
    }
    Ok(())
}

//! Showing imported read marks to a reader who is here already.

use tidemark::{App, domain::UserId};

use crate::MigrateError;

/// Shows the read state of these authors into the reader's view, when there is one. The facts stand whatever happens here: what cannot be done now is left to a worker.
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

//! Showing imported read marks to a reader who is here already.

use tidemark::{App, domain::UserId, ports::Task};

use crate::MigrateError;

/// Brings the read state of these authors into the reader's view, when there is one. The facts stand whatever happens here: what cannot be done now is left to a worker.
pub(crate) async fn reads(app: &App, user: UserId, authors: &[UserId]) -> Result<(), MigrateError> {
    let shown = match app.views.view(user, 0).await {
        Ok(None) => return Ok(()),
        Ok(Some(view)) => authors.iter().copied().filter(|author| view.state.authors.contains_key(author)).collect(),
        Err(_) => authors.to_vec(),
    };
    for author in shown {
        if let Err(error) = app.readers.sync_reads(user, author).await {
            app.later.instead(&error, &[Task::sync(user, author)]).await?;
        }
    }
    Ok(())
}

//! What one reader sees of one author's posts, from the views. Facts are read where the views do not know.

use tidemark_domain::{AuthorState, Seq, SeqSet, UserId};
use tracing::warn;

use super::{Flags, Readers};
use crate::{error::StoreError, ports::KnownReader};

/// Which posts of an author are read, as one reader sees them.
#[derive(Debug, Clone)]
pub(super) enum Sight {
    /// The reader follows the author.
    Following(AuthorState),
    /// The reader does not follow the author, and has marked these posts read.
    Marked(SeqSet),
    /// The author's own posts.
    Own,
    Facts(Box<Flags>),
}

impl Sight {
    /// The same as [`Flags::is_read`].
    pub(super) fn is_read(&self, seq: Seq) -> bool {
        match self {
            Self::Following(state) => state.is_settled(seq),
            Self::Marked(read) => read.contains(seq),
            Self::Own => true,
            Self::Facts(flags) => flags.is_read(seq),
        }
    }
}

impl Readers {
    /// Returns what a reader sees of the posts `seqs` of an author. A missing view is rebuilt.
    pub(super) async fn sight(
        &self,
        reader: UserId,
        author: UserId,
        known: &KnownReader,
        seqs: &[Seq],
    ) -> Result<Sight, StoreError> {
        if reader == author {
            return Ok(Sight::Own);
        }
        let state = match &known.state {
            Some(state) => state.clone(),
            None => self.snapshot(reader).await?.state.authors.remove(&author),
        };
        match (state, &known.marks) {
            (Some(state), _) if seqs.iter().all(|&seq| state.knows(seq)) => Ok(Sight::Following(state)),
            (None, Some(marks)) => Ok(Sight::Marked(marks.clone())),
            (Some(_), _) => Ok(Sight::Facts(Box::new(self.flags(reader, author).await?))),
            (None, None) => self.marks(reader, author).await,
        }
    }

    /// Reads the marks of an author whom the reader does not follow, and stores them for the next request. It takes the
    /// lease before it reads the facts: a mark removes it.
    async fn marks(&self, reader: UserId, author: UserId) -> Result<Sight, StoreError> {
        let (views, token) = (&self.stores.reader_views, (self.stores.random)());
        views.lease_marks(reader, author, token).await?;
        let flags = self.flags(reader, author).await?;
        if flags.is_following() {
            return Ok(Sight::Facts(Box::new(flags)));
        }
        if let Err(error) = views.fill_marks(reader, author, flags.reads(), token).await {
            warn!(user = %reader, error = &error as &dyn std::error::Error, "marks not stored");
        }
        Ok(Sight::Marked(flags.reads().read.clone()))
    }
}

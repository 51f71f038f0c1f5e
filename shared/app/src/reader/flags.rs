//! One caller's flags on one author's posts, from the facts.

use super::{PairFacts, Readers};
use crate::error::StoreError;
use tidemark_domain::{AuthorState, Seq, UserId};

/// The posts of an author that are read, and those that count as unread, as one caller sees them.
#[derive(Debug, Clone)]
pub(crate) struct Flags {
    pub(crate) facts: PairFacts,
    /// `None` if the caller does not follow the author.
    pub(crate) state: Option<AuthorState>,
    own: bool,
}

impl Flags {
    /// Derives the flags from these facts.
    pub(crate) fn new(user: UserId, facts: PairFacts) -> Self {
        Self { state: facts.state(), own: user == facts.author, facts }
    }

    /// Returns whether the post shows as read. If the caller follows the author, every post shows as read that does not
    /// count as unread, including posts from before the follow. The caller's own posts always show as read. Posts of
    /// other authors show as read if the caller has marked them.
    pub(crate) fn is_read(&self, seq: Seq) -> bool {
        match &self.state {
            Some(state) => !state.is_unread(seq),
            None => self.own || self.facts.reads.read.contains(seq),
        }
    }

    /// Returns how many posts count as unread.
    pub(crate) fn unread(&self) -> u64 {
        self.state.as_ref().map_or(0, AuthorState::unread)
    }

    /// Returns the posts that count as unread, newest first.
    pub(crate) fn unread_seqs(&self) -> impl Iterator<Item = Seq> + '_ {
        self.state.iter().flat_map(AuthorState::unread_seqs)
    }

    /// Returns how many posts up to `seq` count as unread.
    pub(crate) fn unread_upto(&self, seq: Seq) -> u64 {
        self.unread_seqs().filter(|unread| *unread <= seq).count() as u64
    }
}

impl Readers {
    pub(crate) async fn flags(&self, user: UserId, author: UserId) -> Result<Flags, StoreError> {
        Ok(Flags::new(user, self.pair(user, author).await?))
    }
}

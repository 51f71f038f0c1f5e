//! One caller's flags on one author's posts, from the facts.

use super::{PairFacts, Readers};
use crate::error::StoreError;
use tidemark_domain::{AuthorHead, AuthorState, ReadState, Seq, UserId};

/// What a caller sees of an author: which posts are read, and which of those that are not count as unread.
#[derive(Debug, Clone)]
pub struct Flags {
    facts: PairFacts,
    state: Option<AuthorState>,
    own: bool,
}

impl Flags {
    /// The flags that these facts imply.
    pub fn new(user: UserId, author: UserId, facts: PairFacts) -> Self {
        Self { state: facts.state(), own: user == author, facts }
    }

    /// Whether the post shows as read. Of a followed author everything that does not count as unread does, posts from before the follow included; one's own
    /// posts always do; of others' it is what the caller has marked.
    pub fn is_read(&self, seq: Seq) -> bool {
        match &self.state {
            Some(state) => !state.is_unread(seq),
            None => self.own || self.facts.reads.read.contains(seq),
        }
    }

    /// Whether the post counts as unread.
    pub fn is_unread(&self, seq: Seq) -> bool {
        self.state.as_ref().is_some_and(|state| state.is_unread(seq))
    }

    /// How many posts count as unread.
    pub fn unread(&self) -> u64 {
        self.state.as_ref().map_or(0, AuthorState::unread)
    }

    /// The posts that count as unread, newest first.
    pub fn unread_seqs(&self) -> impl Iterator<Item = Seq> + '_ {
        self.state.iter().flat_map(AuthorState::unread_seqs)
    }

    /// How many of the posts up to `seq` count as unread.
    pub fn unread_upto(&self, seq: Seq) -> u64 {
        self.unread_seqs().filter(|unread| *unread <= seq).count() as u64
    }

    /// The author's head.
    pub fn head(&self) -> &AuthorHead {
        &self.facts.head
    }

    /// What the caller has read.
    pub fn reads(&self) -> &ReadState {
        &self.facts.reads
    }

    /// The facts themselves.
    pub fn into_facts(self) -> PairFacts {
        self.facts
    }
}

impl Readers {
    /// The flags of one caller on one author's posts.
    ///
    /// # Errors
    /// The facts do not answer.
    pub async fn flags(&self, user: UserId, author: UserId) -> Result<Flags, StoreError> {
        Ok(Flags::new(user, author, self.pair(user, author).await?))
    }
}

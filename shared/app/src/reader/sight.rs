//! What one reader sees of an author's posts, from the views or the facts.

use tidemark_domain::{AuthorState, Seq, SeqSet, Standing, UserId, store::Result};
use tidemark_views::{KnownFollow, KnownReader, Marks};

use super::{PairFacts, Readers};

/// The posts of an author that are read, and those that count as unread, as one caller sees them.
#[derive(Debug, Clone)]
pub(crate) struct Flags {
    pub(crate) facts: PairFacts,
    /// `None` if the caller does not follow the author.
    pub(crate) state: Option<AuthorState>,
    own: bool,
}

impl Flags {
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

    pub(crate) fn unread(&self) -> u64 {
        self.state.as_ref().map_or(0, AuthorState::unread)
    }

    /// Returns the posts that count as unread, newest first.
    pub(crate) fn unread_seqs(&self) -> impl Iterator<Item = Seq> + '_ {
        self.state.iter().flat_map(AuthorState::unread_seqs)
    }

    pub(crate) fn unread_upto(&self, seq: Seq) -> u64 {
        self.unread_seqs().filter(|unread| *unread <= seq).count() as u64
    }
}

/// What one reader sees of an author's posts.
#[derive(Debug, Clone)]
pub(super) struct Sight {
    pub(super) standing: Standing,
    read: ReadPosts,
}

/// The read posts of an author, as one reader sees them.
#[derive(Debug, Clone)]
enum ReadPosts {
    Following(AuthorState),
    /// The reader does not follow the author, and has marked these posts read.
    Marked(SeqSet),
    Own,
    Facts(Box<Flags>),
}

impl Sight {
    /// A block has ended the follow, and nobody blocks themselves.
    fn open(read: ReadPosts) -> Self {
        Self { standing: Standing::Open, read }
    }

    fn of_marks(marks: &Marks) -> Self {
        Self { standing: marks.standing, read: ReadPosts::Marked(marks.read.clone()) }
    }

    /// The same as [`Flags::is_read`].
    pub(super) fn is_read(&self, seq: Seq) -> bool {
        match &self.read {
            ReadPosts::Following(state) => state.is_settled(seq),
            ReadPosts::Marked(read) => read.contains(seq),
            ReadPosts::Own => true,
            ReadPosts::Facts(flags) => flags.is_read(seq),
        }
    }
}

impl Readers {
    pub(crate) async fn flags(&self, user: UserId, author: UserId) -> Result<Flags> {
        Ok(Flags::new(user, self.pair(user, author).await?))
    }

    /// Returns what a reader sees of the posts `seqs` of an author. A missing view is rebuilt.
    pub(super) async fn sight(&self, reader: UserId, author: UserId, known: &KnownReader, seqs: &[Seq]) -> Result<Sight> {
        if reader == author {
            return Ok(Sight::open(ReadPosts::Own));
        }
        let state = match &known.follow {
            KnownFollow::Following(state) => Some(state.clone()),
            KnownFollow::NotFollowing => None,
            KnownFollow::Unknown => self.snapshot(reader).await?.state.authors.remove(&author),
        };
        match (state, &known.marks) {
            (Some(state), _) if seqs.iter().all(|&seq| state.knows(seq)) => Ok(Sight::open(ReadPosts::Following(state))),
            (None, Some(marks)) => Ok(Sight::of_marks(marks)),
            (Some(_), _) => self.sight_of_facts(reader, author).await,
            (None, None) => self.marks(reader, author).await,
        }
    }

    /// Reads the marks of an author without a follow, and stores them under a lease, which a mark removes.
    async fn marks(&self, reader: UserId, author: UserId) -> Result<Sight> {
        let (views, token) = (&self.stores.views, (self.stores.random)());
        views.lease_marks(reader, author, token).await?;
        let (flags, standing) = self.flags_of_facts(reader, author).await?;
        if flags.state.is_some() {
            return Ok(Sight { standing, read: ReadPosts::Facts(Box::new(flags)) });
        }
        let marks = Marks::new(flags.facts.reads, standing);
        logged!(views.fill_marks(reader, author, &marks, token).await, "marks not stored", user = %reader);
        Ok(Sight::of_marks(&marks))
    }

    /// Returns the marks that the facts imply for a reader who does not follow the author.
    pub async fn exact_marks(&self, reader: UserId, author: UserId) -> Result<Marks> {
        let authors = [author];
        let (mut reads, standing) =
            futures::try_join!(self.stores.facts.reads(reader, &authors), self.stores.facts.standing(reader, author))?;
        Ok(Marks::new(reads.remove(&author).unwrap_or_default(), standing))
    }

    pub(super) async fn flags_of_facts(&self, reader: UserId, author: UserId) -> Result<(Flags, Standing)> {
        futures::try_join!(self.flags(reader, author), self.stores.facts.standing(reader, author))
    }

    /// Returns what a reader sees of an author's posts, from the facts.
    pub(super) async fn sight_of_facts(&self, reader: UserId, author: UserId) -> Result<Sight> {
        let (flags, standing) = self.flags_of_facts(reader, author).await?;
        Ok(Sight { standing, read: ReadPosts::Facts(Box::new(flags)) })
    }
}

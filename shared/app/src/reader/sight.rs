//! What one reader sees of an author's posts, from the views or the facts.

use tidemark_domain::{Audience, AuthorHead, AuthorState, Blocks, Seq, SeqSet, Standing, UserId, Viewer, store::Result};
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

    /// Returns whether the post counts as unread: never of an author whom the caller does not follow.
    pub(crate) fn is_unread(&self, seq: Seq) -> bool {
        self.state.as_ref().is_some_and(|state| state.is_unread(seq))
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
    /// A block has ended the follow, followers of a private author are accepted, and nobody is kept from their own
    /// posts.
    fn open(read: ReadPosts) -> Self {
        Self { standing: Standing::Open, read }
    }

    fn of_marks(marks: &Marks, standing: Standing) -> Self {
        Self { standing, read: ReadPosts::Marked(marks.read.clone()) }
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
    pub(super) async fn sight(&self, viewer: Viewer, author: UserId, known: &KnownReader, seqs: &[Seq]) -> Result<Sight> {
        let reader = viewer.user;
        if reader == author {
            return Ok(Sight::open(ReadPosts::Own));
        }
        if known.audience == Some(Audience::Nobody) {
            return Ok(Sight { standing: Standing::Left, read: ReadPosts::Own });
        }
        let state = match &known.follow {
            KnownFollow::Following(state) => Some(state.clone()),
            KnownFollow::NotFollowing => None,
            KnownFollow::Unknown => self.snapshot(reader).await?.state.authors.remove(&author),
        };
        match (state, &known.marks) {
            (Some(state), _) if seqs.iter().all(|&seq| state.knows(seq)) => Ok(Sight::open(ReadPosts::Following(state))),
            (None, Some(marks)) => {
                let kept = viewer.kept_from(author, self.audience(author, known.audience).await?, false);
                let blocks = Blocks { by_author: marks.blocked, ..Blocks::default() };
                Ok(Sight::of_marks(marks, Standing::of(blocks, kept)))
            }
            (Some(_), _) => self.sight_of_facts(viewer, author).await,
            (None, None) => Ok(self.marks(viewer, &[author]).await?.remove(0).1),
        }
    }

    /// Returns who sees the posts of an author. `known` is what the head in Redis says.
    async fn audience(&self, author: UserId, known: Option<Audience>) -> Result<Audience> {
        match known {
            Some(known) => Ok(known),
            None => Ok(self.heads_of_facts(&[author]).await?.get(&author).map(AuthorHead::audience).unwrap_or_default()),
        }
    }

    /// Returns what a reader sees of distinct authors without a follow, in order. Reads the marks, and stores them
    /// under leases, which a mark removes.
    pub(super) async fn marks(&self, viewer: Viewer, authors: &[UserId]) -> Result<Vec<(UserId, Sight)>> {
        if authors.is_empty() {
            return Ok(Vec::new());
        }
        let (reader, views, token) = (viewer.user, &self.stores.views, (self.stores.random)());
        views.lease_marks(reader, authors, token).await?;
        let (pairs, blocks) =
            futures::try_join!(self.pairs_with(reader, authors), self.stores.facts.blocks_between(reader, authors))?;
        let (mut sights, mut stored) = (Vec::new(), Vec::new());
        for pair in pairs {
            let (author, flags) = (pair.author, Flags::new(reader, pair));
            let blocks = blocks.get(&author).copied().unwrap_or_default();
            let standing = flags.facts.standing(viewer, blocks);
            let sight = if flags.state.is_some() {
                Sight { standing, read: ReadPosts::Facts(Box::new(flags)) }
            } else {
                let marks = Marks::new(flags.facts.reads, blocks.by_author);
                let sight = Sight::of_marks(&marks, standing);
                stored.push((author, marks));
                sight
            };
            sights.push((author, sight));
        }
        logged!(views.fill_marks(reader, &stored, token).await, "marks not stored", user = %reader);
        Ok(sights)
    }

    /// Returns the marks that the facts imply for a reader who does not follow the author.
    pub async fn exact_marks(&self, reader: UserId, author: UserId) -> Result<Marks> {
        let (facts, authors) = (&self.stores.facts, [author]);
        let (mut reads, blocks) = futures::try_join!(facts.reads(reader, &authors), facts.blocks(reader, author))?;
        Ok(Marks::new(reads.remove(&author).unwrap_or_default(), blocks.by_author))
    }

    pub(super) async fn flags_of_facts(&self, reader: UserId, author: UserId) -> Result<(Flags, Blocks)> {
        futures::try_join!(self.flags(reader, author), self.stores.facts.blocks(reader, author))
    }

    /// Returns what a reader sees of an author's posts, from the facts.
    pub(super) async fn sight_of_facts(&self, viewer: Viewer, author: UserId) -> Result<Sight> {
        let (flags, blocks) = self.flags_of_facts(viewer.user, author).await?;
        Ok(Sight { standing: flags.facts.standing(viewer, blocks), read: ReadPosts::Facts(Box::new(flags)) })
    }
}

//! Read states and reactions.

use tidemark_domain::{PostId, Reaction, ReadState, Seq, SeqSet, Timestamp, UserId};

use crate::{
    Facts, Result, attempts,
    counters::HeldUp,
    item::{Bits, Item},
    post_counts::PostCounts,
    post_items::post_of,
    reactions::{Entry, REACTED, read_reactions},
    reads::read_reads,
    schema::{self, ReadsItem},
    write::Cancelled,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportedReaction {
    Written,
    Existing,
    /// There is neither such a post nor its tombstone.
    UnknownPost,
    /// One of the two blocks the other.
    Blocked,
    Erased,
}

impl Facts {
    /// Adds read marks and stores them as imported. Marks that were imported before are left out, so that a post that
    /// was marked unread here stays unread; with `again` only those that are read. Raises the watermark to `through`.
    /// Returns whether it wrote anything, and the number of marks that were not imported before. Writes nothing if one
    /// of the two users has asked to leave; then it returns `None`.
    pub async fn import_marks(
        &self,
        user: UserId,
        author: UserId,
        seqs: &SeqSet,
        through: Seq,
        again: bool,
    ) -> Result<Option<(bool, u64)>> {
        let mut attempts = attempts("import_reads");
        loop {
            attempts.next().await?;
            // State and imported marks are one item, which is read at once and guarded by one version. So an unmark in
            // between is not overwritten.
            let item = self.get_one("import_reads", &self.tables.reads, schema::reads(user, author)).await?;
            let (state, known) = match item {
                Some(item) => {
                    let known = ReadsItem::imported.optional::<Bits>(&item)?.unwrap_or_default().0;
                    (read_reads(item)?.1, known)
                }
                None => Default::default(),
            };
            let news = seqs.minus(&known);
            let marked = if again { seqs } else { &news };
            if news.is_empty() && through <= state.through && (!again || marked.minus(&state.read).is_empty()) {
                return Ok(Some((false, 0)));
            }
            let (version, read) = (state.version + 1, state.read.union(marked));
            let after = ReadState { version, read, through: state.through.max(through), ..state };
            if self.put_state(user, author, &after, Some(&known.union(&news))).await? {
                return Ok(Some((true, news.len())));
            }
            if !self.erased(&[user, author]).await?.is_empty() {
                return Ok(None);
            }
        }
    }

    /// Gives a reaction that was given elsewhere at this time, also to a post that is deleted. A block does not matter
    /// to a reaction from before it; with `unless_blocked` it is refused.
    pub async fn import_reaction(
        &self,
        user: UserId,
        post: PostId,
        reaction: Reaction,
        at: Timestamp,
        unless_blocked: bool,
    ) -> Result<ImportedReaction> {
        const OPERATION: &str = "import_reaction";
        let (mut attempts, mut held_up) = (attempts(OPERATION), HeldUp::default());
        loop {
            attempts.next().await?;
            let reactions = vec![schema::reaction(user, post.author), schema::post_reactions(post, 0)];
            let reactions = (self.tables.reactions.as_str(), reactions);
            let posts = (self.tables.posts.as_str(), vec![schema::post(post)]);
            let [mut reactions, posts] = self.batch_get(OPERATION, [reactions, posts]).await?;
            let counts = PostCounts::take(post, &mut reactions)?;
            if !posts.iter().any(|item: &Item| post_of(item).is_ok()) {
                return Ok(ImportedReaction::UnknownPost);
            }
            let known = reactions.pop().map(read_reactions).transpose()?.map_or_else(Default::default, |(.., state)| state);
            let Some(next) = known.changed(post.seq, reaction, true) else { return Ok(ImportedReaction::Existing) };
            if unless_blocked && known.blocks.are_apart() {
                return Ok(ImportedReaction::Blocked);
            }
            attempts.outcome()?;
            let mut writes = self.reaction_writes(user, counts, &next, reaction, Entry::New(at))?;
            let checks = writes.len();
            writes.push(self.still_here(user, post.author.shard()));
            writes.extend((user != post.author).then(|| self.still_here(post.author, user.shard())));
            let written = self.transact(OPERATION, writes).await;
            if let Ok(Err(Cancelled::Conditions(failed))) = &written
                && failed.iter().any(|failed| *failed >= checks)
            {
                return Ok(ImportedReaction::Erased);
            }
            if let Ok(Err(cancelled)) = &written {
                held_up.note(self, counts.first(self), cancelled, REACTED).await;
            }
            if attempts.done(written) {
                return Ok(ImportedReaction::Written);
            }
        }
    }
}

//! Comments with the numbers that they have elsewhere, withdrawn ones too.

use tidemark_domain::{Comment, CommentId, Timestamp, UserId};

use super::posts::MOST_LEFT_OUT;
use crate::{
    Facts, Result, attempts,
    comments::StoredComment,
    item::number,
    post_items::read_post,
    schema::{self, CommentItem, CommentNumbersItem, ReactedItem},
    write::{Cancelled, Write, absent, below},
};

/// A comment, or the remains of one that was withdrawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedComment {
    pub id: CommentId,
    /// `None` if the user has left.
    pub author: Option<UserId>,
    /// `None` if it was withdrawn.
    pub text: Option<String>,
    pub at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommentImport {
    Written,
    /// The comment is here, perhaps withdrawn since.
    Existing,
    /// Another comment was written here with this number.
    OtherComment,
    /// There is neither such a post nor its tombstone.
    UnknownPost,
    /// Comments on a repost go to its original.
    OnRepost,
    /// More numbers than allowed are left out before it.
    TooFar,
    Erased,
}

impl Facts {
    /// Writes a comment with its counts and its entry. Later comments get later numbers. A block does not matter to a
    /// comment from before it.
    pub async fn import_comment(&self, comment: &ImportedComment, now: Timestamp) -> Result<CommentImport> {
        const OPERATION: &str = "import_comment";
        let id = comment.id;
        let mut attempts = attempts(OPERATION);
        loop {
            attempts.next().await?;
            if let Some(known) = self.comment(id).await? {
                return Ok(judge(comment, &known));
            }
            let post = self.get_one(OPERATION, &self.tables.posts, schema::post(id.post)).await?;
            match post.map(read_post).transpose()? {
                Some(post) if post.reposted().is_none() => {}
                Some(_) => return Ok(CommentImport::OnRepost),
                None => return Ok(CommentImport::UnknownPost),
            }
            let given = self.comment_numbers(&[id.post]).await?.remove(&id.post).map_or(0, |numbers| numbers.last);
            if id.number > given.saturating_add(MOST_LEFT_OUT) {
                return Ok(CommentImport::TooFar);
            }
            attempts.outcome()?;
            // First the number, so that no request gets it.
            let last = CommentNumbersItem::last_number;
            let raise = Write::update(&self.tables.counters, schema::comment_numbers(id.post)).set(last, number(id.number));
            let raise = raise.set(CommentNumbersItem::at, number(now.ms()));
            self.send(OPERATION, raise.when(absent(last).or(below(last, number(id.number))))).await?;
            let mut writes = self.imported_writes(comment);
            let checks = writes.len();
            writes.push(self.still_here(id.post.author, comment.author.unwrap_or(id.post.author).shard()));
            let other = comment.author.filter(|author| *author != id.post.author);
            writes.extend(other.map(|author| self.still_here(author, id.post.author.shard())));
            let written = self.transact(OPERATION, writes).await;
            if let Ok(Err(Cancelled::Conditions(failed))) = &written
                && failed.iter().any(|failed| *failed >= checks)
            {
                return Ok(CommentImport::Erased);
            }
            if attempts.done(written) {
                return Ok(CommentImport::Written);
            }
        }
    }

    fn imported_writes(&self, comment: &ImportedComment) -> Vec<Write> {
        let &ImportedComment { id, author, ref text, at } = comment;
        let whole =
            Comment { id, author: author.unwrap_or(id.post.author), text: text.clone().unwrap_or_default(), created_at: at };
        let mut item = schema::comment_item(&whole, rand::random());
        let mut writes = Vec::new();
        if let Some(author) = author {
            let mut entry = schema::comment_entry_item(author, id, at);
            match text {
                Some(_) => writes.extend(self.count_comment(id, author, 1)),
                None => _ = entry.remove(ReactedItem::at.name()),
            }
            writes.push(Write::put(&self.tables.reacted, entry));
        } else {
            item.remove(CommentItem::user.name());
        }
        if text.is_none() {
            item.remove(CommentItem::text.name());
        }
        writes.push(Write::put(&self.tables.reactions, item).when(absent(CommentItem::item)));
        writes
    }
}

fn judge(comment: &ImportedComment, known: &StoredComment) -> CommentImport {
    let is_same =
        known.at == comment.at && (known.author == comment.author || known.author.is_none() || comment.author.is_none());
    if is_same { CommentImport::Existing } else { CommentImport::OtherComment }
}

#[cfg(test)]
mod tests {
    use tidemark_domain::PostId;

    use super::*;
    use crate::comments::read_comment;

    #[test]
    fn a_comment_that_was_withdrawn_here_is_the_same_one() {
        let [author, user] = [1, 2].map(|id| UserId::new(id).unwrap());
        let (id, at) = (CommentId::new(PostId::new(author, 3), 4), Timestamp::from_ms(5));
        let comment = ImportedComment { id, author: Some(user), text: Some("a".to_owned()), at };
        let stored = |author| {
            let comment = Comment { id, author, text: "a".to_owned(), created_at: at };
            read_comment(schema::comment_item(&comment, 9)).unwrap()
        };
        let (known, other) = (stored(user), stored(author));
        assert_eq!(judge(&comment, &known), CommentImport::Existing);
        assert_eq!(judge(&ImportedComment { text: None, author: None, ..comment.clone() }, &known), CommentImport::Existing);
        assert_eq!(judge(&comment, &other), CommentImport::OtherComment);
        assert_eq!(judge(&ImportedComment { at: at.plus_ms(1), ..comment }, &known), CommentImport::OtherComment);
    }
}

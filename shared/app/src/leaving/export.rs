//! The export of a user's facts, in pages.

use std::collections::HashMap;

use tidemark_domain::{
    Comment, CommentId, FeedKey, Post, PostId, PostText, Profile, Reaction, Relation, RequestSide, Seq, Timestamp, UserId,
    store::Result,
};

use super::Leaving;
use crate::{Hiding, newest_first};

/// One object of an export. A like or a favorite is a post with the time of the reaction. `Read` has the posts of an
/// author that are marked read: `through`, and ranges of sequence numbers, which may be spread over several objects.
#[derive(Debug, Clone, PartialEq)]
pub enum Exported {
    /// With whether the user is private. Without a profile, a private user has this object too.
    Profile(Option<Profile>, bool),
    Follow(Relation, i8),
    Follower(Relation),
    /// With its original, if it is a quote.
    Post(Box<Post>, PostText),
    /// A post that reposts another.
    Repost(Box<Post>, PostId),
    Like(FeedKey),
    Favorite(FeedKey),
    Read {
        author: UserId,
        through: Seq,
        ranges: Vec<(Seq, Seq)>,
    },
    List {
        number: u32,
        name: String,
        authors: Vec<UserId>,
    },
    Mute(Relation),
    Block(Relation),
    Request(Relation, RequestSide),
    Comment(Comment),
}

/// The place where an export continues: a section, and the last object before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The number of a section, below [`SECTIONS`].
    pub section: usize,
    /// The key of the last object within its section; `None` before the first.
    pub after: Option<[u64; 4]>,
}

/// Objects, each with its key in its section.
type Section = Vec<(Exported, [u64; 4])>;

const SECTIONS: usize = 13;

/// The longest texts of one page, in bytes of the response. A response may have 6 MB.
const MOST_ENCODED_TEXT: usize = 4 << 20;

/// Ranges of read posts in one object.
const MOST_RANGES: usize = 1_000;

impl Leaving {
    /// Returns at most `limit` objects of an export, and where it continues; `None` at its end. Objects that change
    /// meanwhile may be old or new.
    pub async fn export(&self, user: UserId, mut at: Place, limit: usize) -> Result<(Vec<Exported>, Option<Place>)> {
        let mut items = Vec::new();
        while at.section < SECTIONS {
            let wanted = limit - items.len();
            let found = self.section(user, at, wanted).await?;
            // A page of posts may be shorter, because their texts are long. Comments may be withdrawn meanwhile.
            let may_be_short =
                |exported: &Exported| matches!(exported, Exported::Post(..) | Exported::Repost(..) | Exported::Comment(_));
            let is_last = found.len() < wanted && !found.last().is_some_and(|(last, _)| may_be_short(last));
            if let Some((_, last)) = found.last() {
                at.after = Some(*last);
            }
            items.extend(found.into_iter().map(|(item, _)| item));
            if is_last {
                at = Place { section: at.section + 1, after: None };
            } else {
                return Ok((items, Some(at)));
            }
        }
        Ok((items, None))
    }

    async fn section(&self, user: UserId, Place { section, after }: Place, limit: usize) -> Result<Section> {
        let stores = &self.stores;
        let below =
            after.and_then(|[since, user, ..]| Some(Relation { since: Timestamp::from_ms(since), user: UserId::new(user)? }));
        let place = |relation: &Relation| [relation.since.ms(), relation.user.get(), 0, 0];
        match section {
            0 if after.is_none() => {
                let users = [user];
                let (mut profiles, head) = futures::try_join!(stores.facts.profiles(&users), stores.facts.head_of(user))?;
                let (profile, is_private) = (profiles.remove(&user), head.is_private());
                let is_set = profile.is_some() || is_private;
                Ok(is_set.then_some((Exported::Profile(profile, is_private), [0; 4])).into_iter().collect())
            }
            1 => {
                let edges = stores.facts.following(user).await?;
                let preferences: HashMap<UserId, i8> = edges.iter().map(|edge| (edge.author, edge.preference)).collect();
                let follows = edges.iter().map(|edge| Relation { since: edge.since, user: edge.author });
                let follows = newest_first(follows, below).into_iter().take(limit);
                Ok(follows.map(|of| (Exported::Follow(of, preferences[&of.user]), place(&of))).collect())
            }
            2 => {
                let followers = stores.facts.followers_by_time(user, below, limit).await?;
                Ok(followers.into_iter().map(|of| (Exported::Follower(of), place(&of))).collect())
            }
            3 => self.exported_posts(user, after.map_or(Seq::MAX, |[seq, ..]| seq.saturating_sub(1)), limit).await,
            4 | 5 => {
                let reaction = if section == 4 { Reaction::Like } else { Reaction::Favorite };
                let before = after.and_then(|[at, author, seq, _]| {
                    Some(FeedKey { at: Timestamp::from_ms(at), post: PostId::new(UserId::new(author)?, seq) })
                });
                let given = stores.facts.reacted(user, reaction, before, limit).await?;
                let exported = |key| if section == 4 { Exported::Like(key) } else { Exported::Favorite(key) };
                Ok(given.into_iter().map(|key| (exported(key), [key.at.ms(), key.post.author.get(), key.post.seq, 0])).collect())
            }
            6 => self.exported_reads(user, after, limit).await,
            7 => {
                let (lists, edges) = futures::try_join!(stores.facts.lists(user), stores.facts.following(user))?;
                let later =
                    lists.lists.into_iter().filter(|list| after.is_none_or(|[number, ..]| u64::from(list.number) > number));
                let list = |of: tidemark_domain::AuthorList| {
                    let authors = edges.iter().filter(|edge| edge.lists.contains(&of.number)).map(|edge| edge.author).collect();
                    (Exported::List { number: of.number, name: of.name, authors }, [of.number.into(), 0, 0, 0])
                };
                Ok(later.take(limit).map(list).collect())
            }
            8 | 9 => {
                let hiding = if section == 8 { Hiding::Mute } else { Hiding::Block };
                let hidden = self.following.hidden(user, hiding, below).await?.into_iter().take(limit);
                let exported = |of| if section == 8 { Exported::Mute(of) } else { Exported::Block(of) };
                Ok(hidden.map(|of| (exported(of), place(&of))).collect())
            }
            10 | 11 => {
                let side = if section == 10 { RequestSide::Received } else { RequestSide::Sent };
                let requests = stores.facts.requests(user, side, below, limit).await?;
                Ok(requests.into_iter().map(|of| (Exported::Request(of, side), place(&of))).collect())
            }
            12 => self.exported_comments(user, after, limit).await,
            _ => Ok(Vec::new()),
        }
    }

    /// The standing comments, newest first. The section ends with an empty page.
    async fn exported_comments(&self, user: UserId, after: Option<[u64; 4]>, limit: usize) -> Result<Section> {
        let facts = &self.stores.facts;
        let mut before = after.and_then(|[at, author, seq, number]| {
            let post = PostId::new(UserId::new(author)?, seq);
            Some((Timestamp::from_ms(at), CommentId::new(post, number)))
        });
        loop {
            let listed = facts.comments_by(user, before, limit).await?;
            let ids: Vec<CommentId> = listed.iter().map(|(_, id)| *id).collect();
            let stored = facts.comments(&ids).await?.into_iter();
            let mut found: HashMap<CommentId, Comment> =
                stored.filter_map(|known| known.standing().map(|comment| (comment.id, comment))).collect();
            let place = |at: &Timestamp, id: &CommentId| [at.ms(), id.post.author.get(), id.post.seq, id.number];
            let section: Section =
                listed.iter().filter_map(|(at, id)| Some((Exported::Comment(found.remove(id)?), place(at, id)))).collect();
            before = listed.last().copied();
            // All of them were withdrawn a moment ago. Older ones may be left.
            if !section.is_empty() || before.is_none() {
                return Ok(section);
            }
        }
    }

    /// The live posts up to `upto`, newest first. The section ends with an empty page.
    async fn exported_posts(&self, user: UserId, upto: Seq, limit: usize) -> Result<Section> {
        let facts = &self.stores.facts;
        let head = facts.head_of(user).await?;
        let ids: Vec<PostId> = head.listed_seqs(upto, limit).into_iter().map(|seq| PostId::new(user, seq)).collect();
        let mut found = facts.posts_with_texts(&ids).await?;
        let (mut section, mut bytes) = (Vec::new(), 0);
        let live = ids.iter().filter_map(|id| found.remove(id)).filter(|(post, _)| !post.deleted);
        for (post, text) in live {
            let text = text.unwrap_or_default();
            bytes += encoded_bytes(&text);
            if bytes > MOST_ENCODED_TEXT && !section.is_empty() {
                break;
            }
            let seq = post.id.seq;
            let exported = match post.reposted() {
                Some(original) => Exported::Repost(Box::new(post), original),
                None => Exported::Post(Box::new(post), text),
            };
            section.push((exported, [seq, 0, 0, 0]));
        }
        match ids.last() {
            // All of them were deleted a moment ago. Older ones may be left.
            Some(last) if section.is_empty() => Box::pin(self.exported_posts(user, last.seq.saturating_sub(1), limit)).await,
            _ => Ok(section),
        }
    }

    async fn exported_reads(&self, user: UserId, after: Option<[u64; 4]>, limit: usize) -> Result<Section> {
        let [last_author, last_seq, ..] = after.unwrap_or_default();
        let from = UserId::new(last_author).unwrap_or(UserId::MIN);
        let mut section = Vec::new();
        // One more, because nothing may be left of the first.
        for (author, state) in self.stores.facts.reads_from(user, from, limit + 1).await? {
            let mut ranges = state.read.ranges().filter(|(first, _)| author.get() > last_author || *first > last_seq).peekable();
            let mut is_first = author.get() > last_author;
            while (is_first || ranges.peek().is_some()) && section.len() < limit {
                is_first = false;
                let some: Vec<(Seq, Seq)> = ranges.by_ref().take(MOST_RANGES).collect();
                let place = [author.get(), some.last().map_or(0, |(_, last)| *last), 0, 0];
                section.push((Exported::Read { author, through: state.through, ranges: some }, place));
            }
        }
        Ok(section)
    }
}

/// The length of a text in a response, which is JSON in JSON: its characters may be escaped twice.
fn encoded_bytes(text: &PostText) -> usize {
    let bytes = [&text.body, &text.data].into_iter().flatten().flat_map(|text| text.bytes());
    bytes.map(|byte| if byte < b' ' { 7 } else { 1 + 3 * usize::from(matches!(byte, b'"' | b'\\')) }).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_counts_as_in_the_response() {
        let of = |body: &str| encoded_bytes(&PostText { body: Some(body.to_owned()), data: None });
        // A quote is `\\\"`, a control character `\\u0001`.
        assert_eq!(["abcä", "\"\"", "\\", "\u{1}"].map(of), [5, 8, 4, 7]);
    }
}

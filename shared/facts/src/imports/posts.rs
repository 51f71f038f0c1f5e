//! Posts with the numbers that they have elsewhere, deleted ones too.

use std::collections::HashMap;

use tidemark_domain::{
    AuthorHead, Delivery, DeliveryMode, DeliveryState, Post, PostId, PostText, Reference, Relation, Seq, Timestamp, UserId,
    ids::LAST_POST,
};

use super::Import;
use crate::{
    Facts, Result, attempts, distinct,
    heads::{read_head, still_latest, with_modes},
    item::{Item, Stored, encode, number},
    post_counts::PostCounts,
    post_items::{post_item, post_of, text_item},
    reposts::{quoter, read_entry},
    schema::{self, HeadItem, PostItem, ReactedItem, ReactionCountsItem, ReactionItem},
    windows::Layout,
    write::{Cancelled, Write, absent, present, still_number, unchanged},
};

/// The most numbers that a file may leave out before a post, which count as deleted, or before a comment.
pub(super) const MOST_LEFT_OUT: u64 = 1_000_000;

/// A post, or the remains of a deleted one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedPost {
    pub seq: Seq,
    pub created_at: Timestamp,
    /// The post that it reposts or quotes. The remains of a quote have none.
    pub of: Option<Reference>,
    /// `None` if it was deleted.
    pub content: Option<ImportedContent>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedContent {
    /// 1 to 200 characters; empty for a repost.
    pub title: String,
    pub text: PostText,
    pub revision: u32,
    pub edited_at: Option<Timestamp>,
    pub weight: i8,
}

impl ImportedContent {
    /// A post with this title alone, which was never edited; an empty one is that of a repost.
    pub fn titled(title: String) -> Self {
        Self { title, text: PostText::default(), revision: 1, edited_at: None, weight: 0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostImport {
    Written,
    /// The post is here, perhaps edited or deleted since.
    Existing,
    /// The author has published another post with this number here.
    OtherPost,
    /// The author's numbers have gone on beyond this one.
    NumberGone,
    /// The author has another repost of the same post.
    RepostedTwice,
    /// More numbers than allowed are left out before it, or it is beyond the last possible one.
    TooFar,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct PostsImported {
    /// The outcome of each post, in order.
    pub outcomes: Vec<PostImport>,
    /// Whether the author has asked to leave. Then nothing was written.
    pub has_left: bool,
    /// Whether another import of the author has begun. Then nothing was written.
    pub overtaken: bool,
}

impl Facts {
    /// Imports some posts of one author, in ascending order: head, posts and texts in one transaction. There are at
    /// most 31 posts, with at most 3 MB of text. A post that is older than the one before it becomes archived. If there
    /// are `followers`, the fan-outs of the posts are pending, and reconcile starts them.
    pub async fn import_posts_of(
        &self,
        author: UserId,
        import: Option<Import>,
        posts: &[ImportedPost],
        followers: u64,
        now: Timestamp,
    ) -> Result<PostsImported> {
        const OPERATION: &str = "import_posts_of";
        let mut attempts = attempts(OPERATION);
        loop {
            attempts.next().await?;
            let keys = posts.iter().map(|post| schema::post(PostId::new(author, post.seq))).chain([schema::head(author)]);
            let found = self.get(OPERATION, &self.tables.posts, keys.collect()).await?;
            let (heads, items): (Vec<Item>, Vec<Item>) = found.into_iter().partition(schema::is_head);
            if heads.first().is_some_and(|head| HeadItem::erased.of(head).is_some()) {
                return Ok(PostsImported { has_left: true, ..PostsImported::default() });
            }
            let before = heads.first().cloned().map(read_head).transpose()?.unwrap_or_default();
            let known = items.iter().map(|item| Ok((post_of(item)?.seq, PostItem::at.read(item)?)));
            let known: HashMap<Seq, u64> = known.collect::<Result<_>>()?;
            let reposts = self.reposts_of(author, posts).await?;
            let mut plan = PostPlan { reposts, ..self.import_plan(author, before.clone(), followers, now) };
            let outcomes: Vec<PostImport> = posts.iter().map(|post| plan.judge(post, known.get(&post.seq))).collect();
            if plan.new.is_empty() {
                return Ok(PostsImported { outcomes, ..PostsImported::default() });
            }
            match self.transact(OPERATION, self.import_writes(import, &before, heads.first(), &plan)?).await? {
                Ok(()) => return Ok(PostsImported { outcomes, ..PostsImported::default() }),
                Err(Cancelled::Conditions(failed)) if import.is_some() && failed.contains(&FENCE_CHECK) => {
                    return Ok(PostsImported { overtaken: true, ..PostsImported::default() });
                }
                // The author has published or left in the meantime, or another import has been first.
                Err(_) => (),
            }
        }
    }

    /// The numbers of the author's reposts of the same originals.
    async fn reposts_of(&self, author: UserId, posts: &[ImportedPost]) -> Result<HashMap<PostId, Seq>> {
        let reposts = posts.iter().filter(|post| post.content.is_some()).filter_map(|post| post.of?.reposted());
        let originals: Vec<PostId> = distinct(&reposts.collect::<Vec<_>>());
        if originals.is_empty() {
            return Ok(HashMap::new());
        }
        let keys = originals.iter().map(|original| schema::repost(author, *original)).collect();
        let entries = self.get("import_posts_of", &self.tables.reacted, keys).await?;
        let number = |item: &Item| Ok((ReactedItem::at.parsed(item, schema::reaction_of)?.post, read_entry(item)?.seq));
        entries.iter().map(number).collect()
    }

    /// Lists an imported repost or quote with its original, and counts it, after all posts are imported: the inbox of
    /// the original's author is derived when it is listed. Writes nothing if the post does not stand, is another one,
    /// or is listed, or if that author has left.
    pub async fn import_listing(&self, id: PostId, of: Reference, at: Timestamp) -> Result<()> {
        const OPERATION: &str = "import_listing";
        let mut attempts = attempts(OPERATION);
        loop {
            attempts.next().await?;
            let found = self.posts(&[id]).await?.remove(&id);
            let found = found.filter(|post| !post.deleted && (post.of, post.created_at) == (Some(of), at));
            let Some(post) = found else { return Ok(()) };
            let (original, user) = (of.original(), id.author);
            let entry = match of {
                Reference::Repost(_) => Some(schema::reposter_item(original, Relation { since: at, user }, id.seq)),
                Reference::Quote(_) => quoter(&post),
            };
            let Some(entry) = entry else { return Ok(()) };
            let key = schema::key_of(ReactionItem::TABLE, &entry);
            let listed = self.get_one(OPERATION, &self.tables.reactions, key).await?;
            if listed.is_some() || !self.erased(&[original.author]).await?.is_empty() {
                return Ok(());
            }
            attempts.outcome()?;
            let stands = Write::check(&self.tables.posts, schema::post(id)).when(present(PostItem::item));
            let put = Write::put(&self.tables.reactions, entry).when(absent(ReactionItem::item));
            let mut writes = vec![stands.when(absent(PostItem::tombstone)), put];
            if of.reposted().is_some() {
                writes.push(PostCounts::new(original).add(self, user, ReactionCountsItem::reposts, 1));
            }
            writes.push(self.still_here(original.author, user.shard()));
            if attempts.done(self.transact(OPERATION, writes).await) {
                return Ok(());
            }
        }
    }

    /// An import of posts of an author who has this head.
    pub fn import_plan(&self, author: UserId, head: AuthorHead, followers: u64, now: Timestamp) -> PostPlan {
        let limit = self.limits.pull_threshold;
        PostPlan { author, head, followers, limit, new: Vec::new(), reposts: HashMap::new(), now }
    }

    /// The writes of an import: the check of its fence, if it has one, as the first, the head, and the posts. `stored`
    /// is the item of the head before it.
    pub fn import_writes(
        &self,
        import: Option<Import>,
        before: &AuthorHead,
        stored: Option<&Item>,
        plan: &PostPlan,
    ) -> Result<Vec<Write>> {
        let (posts, key) = (&self.tables.posts, schema::head(plan.author));
        let after = &plan.head;
        let archived = after.archived - before.archived;
        let live = after.posts - before.posts;
        let mut update = with_modes(Write::update(posts, key.clone()), after).when(absent(HeadItem::erased));
        if live > 0 {
            update = update.add(HeadItem::posts, live as i64);
        }
        if archived > 0 {
            update = update.add(HeadItem::archived, archived as i64);
        }
        update = update.when(still_latest(before.latest_seq));
        let mut writes = Vec::with_capacity(2 * plan.new.len() + 4);
        writes.extend(import.map(|import| self.is_open(import)));
        if after.deleted == before.deleted {
            writes.push(update);
        } else {
            let mut sets = vec![(HeadItem::deleted, &after.deleted)];
            if archived > 0 {
                sets.push((HeadItem::archived_seqs, &after.archive));
            }
            let update = update
                .set(HeadItem::deletions, number(after.deleted.len()))
                .when(still_number(HeadItem::deletions, before.deleted.len()))
                .when(unchanged(HeadItem::archived, stored));
            // New posts change only the newest window of each set, and no window moves.
            writes.extend(Layout::new(&key, stored, &sets, false)?.writes(update));
        }
        for PlannedPost { post, order, text } in &plan.new {
            let mut item = post_item(post, *order);
            item.revision = (post.revision > 1).then_some(post.revision);
            item.edited_at = post.edited_at.map(Timestamp::ms);
            if post.deleted {
                (item.title, item.tombstone, item.weight) = (None, Some(true), None);
            }
            writes.push(Write::put(posts, encode(&item)).when(absent(PostItem::item)));
            if !post.deleted {
                // The original is not here yet, perhaps.
                writes.extend(self.repost_writes(post, None));
            }
            let is_edited = post.revision > 1 && !post.deleted;
            if is_edited || *text != PostText::default() {
                writes.push(Write::put(posts, encode(&text_item(post.id, text, is_edited.then_some(post.revision)))));
            }
        }
        Ok(writes)
    }
}

/// The index of the check of the fence in a transaction that has one.
pub const FENCE_CHECK: usize = 0;

/// The head after an import of posts of one author, and the posts that it adds.
pub struct PostPlan {
    author: UserId,
    pub head: AuthorHead,
    /// If there are any, the fan-outs of the posts are pending.
    followers: u64,
    /// The number of followers from which an author is pulled.
    limit: u64,
    pub new: Vec<PlannedPost>,
    /// The numbers of the author's reposts by their originals.
    reposts: HashMap<PostId, Seq>,
    now: Timestamp,
}

/// A post that an import adds.
pub struct PlannedPost {
    pub post: Post,
    /// The time by which it is ordered.
    order: Timestamp,
    text: PostText,
}

impl PostPlan {
    fn judge(&mut self, post: &ImportedPost, known: Option<&u64>) -> PostImport {
        match known {
            Some(at) if *at == post.created_at.ms() => return PostImport::Existing,
            Some(_) => return PostImport::OtherPost,
            None if post.seq <= self.head.latest_seq => return PostImport::NumberGone,
            None if post.seq > LAST_POST || post.seq - self.head.latest_seq > MOST_LEFT_OUT => return PostImport::TooFar,
            None => {}
        }
        if let Some(original) = post.of.and_then(Reference::reposted).filter(|_| post.content.is_some())
            && *self.reposts.entry(original).or_insert(post.seq) != post.seq
        {
            return PostImport::RepostedTwice;
        }
        self.append(post);
        PostImport::Written
    }

    /// Adds a post with a number above all others. Numbers in between count as deleted. A post that is older than the
    /// one before it becomes archived.
    pub fn append(&mut self, imported: &ImportedPost) {
        let &ImportedPost { seq, created_at, .. } = imported;
        let head = &mut self.head;
        head.deleted.insert_range(head.latest_seq + 1, seq - 1);
        let (deleted, is_older) = (imported.content.is_none(), created_at < head.latest_at);
        let archived = is_older && !deleted;
        let told = self.followers > 0 && !deleted && !archived;
        let mode = if archived { DeliveryMode::Push } else { head.modes.current() };
        if deleted || archived {
            head.deleted.insert(seq);
        } else {
            head.modes = head.modes.after(seq, self.followers, self.limit);
        }
        if archived {
            head.archive.insert(seq);
            head.archived += 1;
        }
        head.latest_at = head.latest_at.max(created_at);
        head.latest_seq = seq;
        head.posts += u64::from(!deleted);
        let mut delivery = Delivery::planned(mode, if told { self.followers } else { 0 }, created_at);
        if !told {
            delivery = Delivery { state: DeliveryState::Done, pages: 0, finished_at: Some(self.now), ..delivery };
        }
        let post = Post::new(PostId::new(self.author, seq), String::new(), created_at, delivery);
        let (post, text) = match imported.content.clone() {
            // The tombstone of a quote names nothing.
            None => {
                let of = imported.of.filter(|of| of.reposted().is_some());
                (Post { deleted, of, ..post }, PostText::default())
            }
            Some(ImportedContent { title, text, revision, edited_at, weight }) => {
                (Post { title, revision, edited_at, weight, archived, of: imported.of, ..post }, text)
            }
        };
        self.new.push(PlannedPost { post, order: head.latest_at, text });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(seq: Seq, at: u64, title: Option<&str>) -> ImportedPost {
        let content = title.map(|title| ImportedContent::titled(title.to_owned()));
        ImportedPost { seq, created_at: Timestamp::from_ms(at), of: None, content }
    }

    fn plan() -> PostPlan {
        let (author, head, now) = (UserId::MIN, AuthorHead::default(), Timestamp::MAX);
        PostPlan { author, head, followers: 0, limit: 10, new: Vec::new(), reposts: HashMap::new(), now }
    }

    #[test]
    fn an_author_reposts_a_post_once() {
        let original = PostId::new(UserId::new(7).unwrap(), 1);
        let repost = |seq| ImportedPost { of: Some(Reference::Repost(original)), ..post(seq, seq, Some("")) };
        let mut plan = plan();
        let outcomes = [repost(1), repost(2), post(3, 3, Some("a"))].map(|post| plan.judge(&post, None));
        assert_eq!(outcomes, [PostImport::Written, PostImport::RepostedTwice, PostImport::Written]);
        assert_eq!(plan.new.iter().map(|new| new.post.reposted()).collect::<Vec<_>>(), [Some(original), None]);
    }

    #[test]
    fn numbers_that_are_left_out_count_as_deleted_and_older_posts_are_archived() {
        let mut plan = plan();
        let posts = [post(1, 10, Some("a")), post(4, 40, None), post(5, 20, Some("b")), post(6, 40, Some("c"))];
        assert!(posts.iter().all(|post| plan.judge(post, None) == PostImport::Written));
        let head = &plan.head;
        assert_eq!((head.latest_seq, head.latest_at.ms(), head.posts, head.archived), (6, 40, 3, 1));
        assert_eq!(head.deleted.iter().collect::<Vec<_>>(), [2, 3, 4, 5]);
        assert_eq!((head.listed_seqs(9, 9), head.implied_posts()), (vec![6, 5, 1], 3));
        assert_eq!(plan.judge(&post(3, 9, Some("d")), None), PostImport::NumberGone);
        assert_eq!(plan.judge(&post(6, 40, Some("c")), Some(&40)), PostImport::Existing);
        assert_eq!(plan.judge(&post(6, 41, Some("c")), Some(&40)), PostImport::OtherPost);
        assert_eq!(plan.judge(&post(LAST_POST, 50, Some("e")), None), PostImport::TooFar);
    }
}

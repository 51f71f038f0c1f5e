//! Writes imports into DynamoDB. Each legacy fact is imported once, also if it was changed here since.

use std::{collections::HashMap, ops::Deref};

use sha2::{Digest, Sha256};
use tidemark_domain::{AuthorHead, Post, PostId, Seq, SeqSet, StoreError, Timestamp, UserId};
use tidemark_facts::{
    Facts, Import, attempts,
    decode::read,
    distinct,
    heads::read_head,
    imports::{FENCE_CHECK, ImportedContent, ImportedPost, PlannedPost, PostPlan},
    item::{Bits, Item, encode, number, string},
    schema::{HeadItem, ReadsItem, head, reads, record},
    write::{Cancelled, Write, absent, is, still_set},
};

use crate::{
    legacy::{Blog, BlogId},
    records::set_of,
    schema::{self as keys, ImportItem, MappingItem, PlacedItem},
};

/// The most blogs in one transaction: head, two windows of its sets, record, fence, a post and two mappings of each.
pub(crate) const BLOGS_PER_IMPORT: usize = 31;

/// The imports of one author.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ImportRecord {
    pub posts: SeqSet,
    /// First and last imported post that the followers from before the import have not received yet.
    pub unsettled: Option<(Seq, Seq)>,
}

/// The legacy blog of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    pub blog: BlogId,
    /// Write-back made the blog, and may not have stored it in the legacy system yet.
    pub new: bool,
    /// Whether the unread sets of the followers know the post as deleted; `None` if they do not know it.
    pub told: Option<bool>,
}

#[derive(Debug, Clone, Default)]
pub struct ImportedPosts {
    /// The new posts. Blogs that were posts before are left out.
    pub written: Vec<Post>,
    pub head: AuthorHead,
    /// As in the [`ImportRecord`].
    pub unsettled: Option<(Seq, Seq)>,
    /// Whether the author has asked to leave. Then nothing was written.
    pub has_left: bool,
}

/// Imports of facts. Each is idempotent, and changes that were made here stay.
#[derive(Debug, Clone)]
pub struct Imports(pub Facts);

impl Deref for Imports {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.0
    }
}

impl Imports {
    /// The posts that these blogs became. Other blogs are left out.
    pub async fn mapped(&self, blogs: &[BlogId]) -> Result<HashMap<BlogId, PostId>, StoreError> {
        let keys = distinct(blogs).into_iter().map(|blog| record(&keys::mapping(blog))).collect();
        self.get("mapped", &self.tables.migration, keys).await?.into_iter().map(read_mapping).collect()
    }

    /// The imports of these authors. Authors without imports are left out.
    pub async fn import_records(&self, authors: &[UserId]) -> Result<HashMap<UserId, ImportRecord>, StoreError> {
        let keys = distinct(authors).into_iter().map(|author| record(&keys::import_record(author))).collect();
        self.get("import_records", &self.tables.migration, keys).await?.into_iter().map(read_record).collect()
    }

    /// Imports blogs of one author, which are ordered by time and at most `BLOGS_PER_IMPORT`: head, posts, mappings and
    /// record in one transaction. The posts take the author's next sequence numbers. A blog that is older than the
    /// author's latest post becomes an archived post. If there are `followers`, the fan-outs of the posts are pending.
    /// `told` says whether the unread sets of the legacy system agree with the posts. The record stores that the posts
    /// are unsettled. Returns `None` if the import has ended, or a later one has begun.
    pub async fn import_posts(
        &self,
        import: Import,
        blogs: &[Blog],
        followers: u64,
        told: bool,
        now: Timestamp,
    ) -> Result<Option<ImportedPosts>, StoreError> {
        let (author, mut attempts) = (import.author, attempts("import_posts"));
        loop {
            attempts.next().await?;
            let mut keys: Vec<Item> = blogs.iter().map(|blog| record(&keys::mapping(blog.id))).collect();
            keys.push(record(&keys::import_record(author)));
            let heads = (self.tables.posts.as_str(), vec![head(author)]);
            let [heads, found] = self.batch_get("import_posts", [heads, (&self.tables.migration, keys)]).await?;
            let before = heads.first().cloned().map(read_head).transpose()?.unwrap_or_default();
            if heads.first().is_some_and(|head| HeadItem::erased.of(head).is_some()) {
                return Ok(Some(ImportedPosts { has_left: true, ..ImportedPosts::default() }));
            }
            let (mut records, mappings): (Vec<Item>, Vec<Item>) =
                found.into_iter().partition(|item| ImportItem::posts.of(item).is_some());
            let mut record = records.pop().map(read_record).transpose()?.map(|(_, record)| record).unwrap_or_default();
            let mapped: HashMap<BlogId, PostId> = mappings.into_iter().map(read_mapping).collect::<Result<_, _>>()?;
            let news: Vec<&Blog> = blogs.iter().filter(|blog| !mapped.contains_key(&blog.id)).collect();
            if news.is_empty() {
                return Ok(Some(ImportedPosts { head: before, unsettled: record.unsettled, ..ImportedPosts::default() }));
            }
            let mut plan = self.import_plan(author, before.clone(), followers, now);
            for (seq, blog) in (before.latest_seq + 1..).zip(&news) {
                let content = Some(ImportedContent::titled(blog.title.clone()));
                plan.append(&ImportedPost { seq, created_at: blog.created_at, of: None, content });
            }
            let known = record.posts.clone();
            record.posts.insert_range(before.latest_seq + 1, plan.head.latest_seq);
            if let Some(PlannedPost { post: first, .. }) = plan.new.iter().find(|new| !new.post.archived) {
                let first = record.unsettled.map_or(first.id.seq, |(first, _)| first);
                record.unsettled = Some((first, plan.head.latest_seq));
            }
            let mut writes = self.import_writes(Some(import), &before, heads.first(), &plan)?;
            writes.push(self.record_write(author, &known, &record));
            writes.extend(self.mapping_writes(&news, &plan, told));
            match self.transact("import_posts", writes).await? {
                Ok(()) => {
                    let PostPlan { head, new, .. } = plan;
                    let written = new.into_iter().map(|new| new.post).collect();
                    return Ok(Some(ImportedPosts { written, head, unsettled: record.unsettled, has_left: false }));
                }
                Err(Cancelled::Conditions(failed)) if failed.contains(&FENCE_CHECK) => return Ok(None),
                // The author has published or left in the meantime, or another run has imported the blogs.
                Err(_) => (),
            }
        }
    }

    /// Stores that the followers have the author's imported posts up to `last`.
    pub async fn settle(&self, author: UserId, last: Seq) -> Result<(), StoreError> {
        let update = Write::update(&self.tables.migration, record(&keys::import_record(author)))
            .remove([ImportItem::unsettled_first, ImportItem::unsettled_last])
            .when(is(ImportItem::unsettled_last, number(last)));
        // If the condition fails, another run has settled them, or more posts were imported.
        self.send("settle", update).await.map(drop)
    }

    pub(crate) async fn imported_reads(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, SeqSet>, StoreError> {
        let keys = distinct(authors).into_iter().map(|author| reads(user, author)).collect();
        let items = self.get("imported_reads", &self.tables.reads, keys).await?;
        let imported = |item: &Item| Ok((ReadsItem::author.user(item)?, set_of(item, ReadsItem::imported)?));
        items.iter().map(imported).collect()
    }

    /// The legacy blogs of these posts. Posts without one are left out.
    pub(crate) async fn placed(&self, posts: &[PostId]) -> Result<HashMap<PostId, Placed>, StoreError> {
        let keys = distinct(posts).into_iter().map(|post| record(&keys::placed(post))).collect();
        self.get("placed", &self.tables.migration, keys).await?.into_iter().map(read_placed).collect()
    }

    /// Gives a post the id of a legacy blog, once. The ids are from 2^62 on, which no counter of a legacy system
    /// reaches, and below 2^63, which signed numbers hold.
    pub async fn place(&self, post: PostId) -> Result<Placed, StoreError> {
        let (mut attempts, mut salt) = (attempts("place"), 0_u64);
        loop {
            attempts.next().await?;
            let digest = Sha256::digest(format!("{post} {salt}"));
            let number = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
            let placed = Placed { blog: number >> 2 | 1 << 62, new: true, told: None };
            let mapping = MappingItem { key: keys::mapping(placed.blog), post: post.to_string() };
            let writes = vec![
                Write::put(&self.tables.migration, encode(&mapping)).when(absent(MappingItem::post)),
                Write::put(&self.tables.migration, placed_item(post, placed)).when(absent(PlacedItem::blog)),
            ];
            if self.transact("place", writes).await?.is_ok() {
                return Ok(placed);
            }
            // Another invocation has placed the post, or another post has the id.
            if let Some(placed) = self.placed(&[post]).await?.remove(&post) {
                return Ok(placed);
            }
            salt += 1;
        }
    }

    /// Stores what the legacy system has of a post.
    pub(crate) async fn note_told(&self, post: PostId, placed: Placed) -> Result<(), StoreError> {
        self.send("note_told", Write::put(&self.tables.migration, placed_item(post, placed))).await.map(drop)
    }

    /// Adds read marks and stores them as imported ([`Facts::import_marks`]). Returns the number of marks that were not
    /// imported before.
    pub async fn import_reads(&self, user: UserId, author: UserId, seqs: &SeqSet, again: bool) -> Result<u64, StoreError> {
        Ok(self.import_marks(user, author, seqs, 0, again).await?.map_or(0, |(_, new)| new))
    }

    /// Lets a blog become a post once more, if it is still this one.
    pub(crate) async fn release(&self, blog: BlogId, post: PostId) -> Result<(), StoreError> {
        let mapping = Write::delete(&self.tables.migration, record(&keys::mapping(blog)));
        self.send("release", mapping.when(is(MappingItem::post, string(post.to_string())))).await.map(drop)
    }

    /// The writes that make blogs posts. `told` says whether the unread sets of the legacy system agree with the posts.
    fn mapping_writes(&self, blogs: &[&Blog], plan: &PostPlan, told: bool) -> Vec<Write> {
        let mut writes = Vec::with_capacity(2 * blogs.len());
        for (blog, PlannedPost { post, .. }) in blogs.iter().zip(&plan.new) {
            let mapping = MappingItem { key: keys::mapping(blog.id), post: post.id.to_string() };
            // The legacy system has an archived post as unread for followers who do not see it here.
            let placed = Placed { blog: blog.id, new: false, told: (told && !post.archived).then_some(false) };
            writes.push(Write::put(&self.tables.migration, placed_item(post.id, placed)));
            writes.push(Write::put(&self.tables.migration, encode(&mapping)).when(absent(MappingItem::post)));
        }
        writes
    }

    fn record_write(&self, author: UserId, known: &SeqSet, record: &ImportRecord) -> Write {
        let (unsettled_first, unsettled_last) = record.unsettled.unzip();
        let posts = Some(Bits(record.posts.clone()));
        let item = ImportItem { key: keys::import_record(author), posts, unsettled_first, unsettled_last };
        Write::put(&self.tables.migration, encode(&item)).when(still_set(ImportItem::posts, known))
    }
}

fn read_mapping(item: Item) -> Result<(BlogId, PostId), StoreError> {
    read(item, |MappingItem { key, post }| {
        let blog = keys::id(&key).ok_or(MappingItem::key)?;
        Ok((blog, post.parse().map_err(|_| MappingItem::post)?))
    })
}

fn placed_item(post: PostId, Placed { blog, new, told }: Placed) -> Item {
    encode(&PlacedItem { key: keys::placed(post), blog, fresh: new, told })
}

fn read_placed(item: Item) -> Result<(PostId, Placed), StoreError> {
    read(item, |PlacedItem { key, blog, fresh, told }| {
        Ok((keys::id(&key).ok_or(PlacedItem::key)?, Placed { blog, new: fresh, told }))
    })
}

fn read_record(item: Item) -> Result<(UserId, ImportRecord), StoreError> {
    read(item, |ImportItem { key, posts, unsettled_first, unsettled_last }| {
        let author = keys::id(&key).ok_or(ImportItem::key)?;
        Ok((author, ImportRecord { posts: posts.unwrap_or_default().0, unsettled: unsettled_first.zip(unsettled_last) }))
    })
}

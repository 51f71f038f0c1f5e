//! Imports into DynamoDB.

use std::{collections::HashMap, ops::Deref};

use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem, Update};
use tidemark_app::ports::{Followed, StoreError};
use tidemark_domain::{
    AuthorHead, Delivery, DeliveryMode, DeliveryState, NewFollow, Post, PostId, ReadState, Seq, SeqSet, Timestamp, UserId,
};
use tidemark_facts::{
    ATTEMPTS, Cancelled, DynamoFacts, back_off, build, condition_failed, distinct,
    edges::Kind,
    item::{Item, Reader},
    number,
    posts::{post_item, read_head},
    reads::read_reads,
    schema, string, unavailable,
    windows::{self, Layout, bits_of},
};

use crate::{
    imports::{ImportRecord, ImportedPosts, StoredProgress},
    legacy::{Blog, BlogId, LegacyNotice},
    schema as keys,
};

/// Imports of facts. Each is idempotent, and changes that were made here stay.
#[derive(Debug, Clone)]
pub struct Imports(pub DynamoFacts);

impl Deref for Imports {
    type Target = DynamoFacts;

    fn deref(&self) -> &DynamoFacts {
        &self.0
    }
}

const TABLE: &str = "migration";

impl Imports {
    /// The posts that these blogs became. Other blogs are left out.
    pub async fn mapped(&self, blogs: &[BlogId]) -> Result<HashMap<BlogId, PostId>, StoreError> {
        let keys = distinct(blogs).into_iter().map(keys::mapping).collect();
        let found = self.batch_get("mapped", vec![(self.tables.migration.clone(), keys)]).await?;
        found.iter().flatten().map(read_mapping).collect()
    }

    /// The imports of these authors. Authors without imports are left out.
    pub async fn import_records(&self, authors: &[UserId]) -> Result<HashMap<UserId, ImportRecord>, StoreError> {
        let keys = distinct(authors).into_iter().map(keys::import_record).collect();
        let found = self.batch_get("import_records", vec![(self.tables.migration.clone(), keys)]).await?;
        found.iter().flatten().map(read_record).collect()
    }

    /// Imports blogs of one author, which are ordered by time and at most `BLOGS_PER_IMPORT`: head, posts, mappings
    /// and record in one transaction. The posts take the author's next sequence numbers. A blog that is older than the
    /// author's latest post becomes an archived post. If there are `followers`, the fan-outs of the posts are pending.
    /// The record stores that the posts are unsettled, and the head stores whether there are `more` blogs.
    pub async fn import_posts(
        &self,
        author: UserId,
        blogs: &[Blog],
        more: bool,
        followers: u64,
        now: Timestamp,
    ) -> Result<ImportedPosts, StoreError> {
        for attempt in 0..ATTEMPTS {
            let mut keys: Vec<Item> = blogs.iter().map(|blog| keys::mapping(blog.id)).collect();
            keys.push(keys::import_record(author));
            let wanted = vec![(self.tables.posts.clone(), vec![schema::head(author)]), (self.tables.migration.clone(), keys)];
            let found = self.batch_get("import_posts", wanted).await?;
            let before = found[0].first().map(read_head).transpose()?.unwrap_or_default();
            let (records, mappings): (Vec<&Item>, Vec<&Item>) = found[1].iter().partition(|item| item.contains_key("posts"));
            let mut record =
                records.first().map(|item| read_record(item)).transpose()?.map(|(_, record)| record).unwrap_or_default();
            let mapped: HashMap<BlogId, PostId> = mappings.into_iter().map(read_mapping).collect::<Result<_, _>>()?;
            let news: Vec<&Blog> = blogs.iter().filter(|blog| !mapped.contains_key(&blog.id)).collect();
            if news.is_empty() {
                return Ok(ImportedPosts { written: Vec::new(), head: before });
            }
            let mut head = AuthorHead { importing: more, ..before.clone() };
            let written: Vec<(Post, Timestamp)> = news.iter().map(|blog| self.append(&mut head, blog, followers, now)).collect();
            let known = record.posts.clone();
            record.posts.insert_range(before.latest_seq + 1, head.latest_seq);
            if let Some((first, _)) = written.iter().find(|(post, _)| !post.archived) {
                let first = record.unsettled.map_or(first.id.seq, |(first, _)| first);
                record.unsettled = Some((first, head.latest_seq));
            }
            match self.write_import((&before, found[0].first()), &head, &known, &record, &news, &written).await? {
                Ok(()) => return Ok(ImportedPosts { written: written.into_iter().map(|(post, _)| post).collect(), head }),
                // The author has published in the meantime, or another run has imported the blogs.
                Err(Cancelled::Conditions(_) | Cancelled::Conflict) => back_off(attempt).await,
            }
        }
        Err(StoreError::Contention { operation: "import_posts" })
    }

    /// Stores that the followers have the author's imported posts up to `last`.
    pub async fn settle(&self, author: UserId, last: Seq) -> Result<(), StoreError> {
        let update = self
            .client
            .update_item()
            .table_name(&self.tables.migration)
            .set_key(Some(keys::import_record(author)))
            .update_expression("REMOVE unsettled_first, unsettled_last")
            .condition_expression("unsettled_last = :last")
            .expression_attribute_values(":last", number(last));
        match update.send().await {
            Err(error) if !condition_failed(&error) => Err(unavailable("settle", error)),
            // Another run has settled them, or more posts were imported.
            _ => Ok(()),
        }
    }

    /// Makes follows that began earlier, in the transaction of any follow. An existing edge stays, and so does an
    /// unfollow that is not older than the follow: both are [`Followed::Existing`].
    pub async fn import_follows(&self, user: UserId, follows: &[NewFollow], now: Timestamp) -> Result<Vec<Followed>, StoreError> {
        self.make_follows(user, follows.to_vec(), now, Kind::Imported).await
    }

    /// The imported read marks of one user, by author.
    pub async fn imported_reads(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, SeqSet>, StoreError> {
        let keys = distinct(authors).into_iter().map(|author| schema::reads(user, author)).collect();
        let found = self.batch_get("imported_reads", vec![(self.tables.reads.clone(), keys)]).await?;
        let read = |item| {
            let reader = Reader { table: "reads", item };
            Ok((reader.user("author")?, reader.seqs("imported")?))
        };
        found.iter().flatten().map(read).collect()
    }

    /// Adds read marks and stores them as imported. Marks that were imported before are left out, so that a post that
    /// was marked unread here stays unread. Returns the number of new marks.
    pub async fn import_reads(&self, user: UserId, author: UserId, seqs: &SeqSet) -> Result<u64, StoreError> {
        for attempt in 0..ATTEMPTS {
            // One item has the state and the imported marks. It is read at once and guarded by one version, so an
            // unmark in between is not overwritten.
            let wanted = vec![(self.tables.reads.clone(), vec![schema::reads(user, author)])];
            let found = self.batch_get("import_reads", wanted).await?;
            let (state, known) = match found.iter().flatten().next() {
                Some(item) => (read_reads(item)?.1, Reader { table: "reads", item }.seqs("imported")?),
                None => Default::default(),
            };
            let news = seqs.minus(&known);
            if news.is_empty() {
                return Ok(0);
            }
            let after = ReadState { version: state.version + 1, read: state.read.union(&news), ..state };
            if self.put_state(user, author, &after, Some(&known.union(&news))).await? {
                return Ok(news.len());
            }
            back_off(attempt).await;
        }
        Err(StoreError::Contention { operation: "import_reads" })
    }

    /// The imported bits of a block of a legacy notice's bitmap.
    pub async fn imported_bits(&self, notice: LegacyNotice, block: u64) -> Result<SeqSet, StoreError> {
        let wanted = vec![(self.tables.migration.clone(), vec![keys::imported_bits(notice, block)])];
        let found = self.batch_get("imported_bits", wanted).await?;
        found.iter().flatten().next().map_or(Ok(SeqSet::default()), |item| Reader { table: TABLE, item }.seqs("users"))
    }

    /// Adds to the imported bits of a block.
    pub async fn remember_bits(&self, notice: LegacyNotice, block: u64, bits: &SeqSet) -> Result<(), StoreError> {
        for attempt in 0..ATTEMPTS {
            let known = self.imported_bits(notice, block).await?;
            let mut item = keys::imported_bits(notice, block);
            item.insert("users".to_owned(), bits_of(&known.union(bits)));
            let put = self.client.put_item().table_name(&self.tables.migration).set_item(Some(item));
            let put = if known.is_empty() {
                put.condition_expression("attribute_not_exists(#users)").expression_attribute_names("#users", "users")
            } else {
                put.condition_expression("#users = :known")
                    .expression_attribute_names("#users", "users")
                    .expression_attribute_values(":known", bits_of(&known))
            };
            match put.send().await {
                Ok(_) => return Ok(()),
                Err(error) if condition_failed(&error) => back_off(attempt).await,
                Err(error) => return Err(unavailable("remember_bits", error)),
            }
        }
        Err(StoreError::Contention { operation: "remember_bits" })
    }

    pub async fn progress(&self, run: &str) -> Result<Option<StoredProgress>, StoreError> {
        let wanted = vec![(self.tables.migration.clone(), vec![keys::run(run)])];
        let found = self.batch_get("progress", wanted).await?;
        let read = |item| {
            let reader = Reader { table: TABLE, item };
            Ok(StoredProgress { version: reader.number("version")?, text: reader.text("progress")?.to_owned() })
        };
        found.iter().flatten().next().map(read).transpose()
    }

    /// Stores progress if its version is one above the stored one. Otherwise it writes nothing and returns false.
    pub async fn save_progress(&self, run: &str, progress: &StoredProgress) -> Result<bool, StoreError> {
        let mut item = keys::run(run);
        item.extend([("version".to_owned(), number(progress.version)), ("progress".to_owned(), string(&progress.text))]);
        let put = self.client.put_item().table_name(&self.tables.migration).set_item(Some(item));
        let put = match progress.version.saturating_sub(1) {
            0 => put.condition_expression("attribute_not_exists(version)"),
            known => put.condition_expression("version = :known").expression_attribute_values(":known", number(known)),
        };
        match put.send().await {
            Ok(_) => Ok(true),
            Err(error) if condition_failed(&error) => Ok(false),
            Err(error) => Err(unavailable("save_progress", error)),
        }
    }
}

impl Imports {
    /// Makes a blog the author's next post, and updates `head`. Returns the post, and its time in the order of the
    /// author's posts.
    fn append(&self, head: &mut AuthorHead, blog: &Blog, followers: u64, now: Timestamp) -> (Post, Timestamp) {
        let seq = head.latest_seq + 1;
        let archived = blog.created_at < head.latest_at;
        let told = followers > 0 && !archived;
        let mode = if archived { DeliveryMode::Push } else { head.modes.current() };
        if archived {
            head.deleted.insert(seq);
            head.archive.insert(seq);
            head.archived += 1;
        } else {
            head.modes = head.modes.after(seq, followers, self.limits.pull_threshold);
            head.latest_at = blog.created_at;
        }
        head.latest_seq = seq;
        head.posts += 1;
        let post = Post {
            id: PostId::new(blog.author, seq),
            title: blog.title.clone(),
            created_at: blog.created_at,
            revision: 1,
            edited_at: None,
            weight: 0,
            deleted: false,
            archived,
            delivery: if told {
                Delivery::planned(mode, followers, blog.created_at)
            } else {
                Delivery {
                    state: DeliveryState::Done,
                    pages: 0,
                    finished_at: Some(now),
                    ..Delivery::planned(mode, 0, blog.created_at)
                }
            },
        };
        (post, head.latest_at)
    }

    async fn write_import(
        &self,
        (before, stored): (&AuthorHead, Option<&Item>),
        after: &AuthorHead,
        known: &SeqSet,
        record: &ImportRecord,
        blogs: &[&Blog],
        written: &[(Post, Timestamp)],
    ) -> Result<Result<(), Cancelled>, StoreError> {
        const OPERATION: &str = "import_posts";
        let Some(author) = blogs.first().map(|blog| blog.author) else { return Ok(Ok(())) };
        let count = |expected: u64, name: &str, value: &str| match expected {
            0 => format!("attribute_not_exists({name})"),
            _ => format!("{name} = {value}"),
        };
        let archived = after.archived - before.archived;
        let mut conditions = vec![count(before.latest_seq, "latest_seq", ":previous")];
        let mut head = Update::builder()
            .table_name(&self.tables.posts)
            .set_key(Some(schema::head(author)))
            .expression_attribute_values(":seq", number(after.latest_seq))
            .expression_attribute_values(":at", number(after.latest_at.ms()))
            .expression_attribute_values(":changes", number(after.modes.changes.into()))
            .expression_attribute_values(":pulled", number(after.modes.pulled))
            .expression_attribute_values(":importing", AttributeValue::Bool(after.importing))
            .expression_attribute_values(":count", number(written.len() as u64))
            .expression_attribute_values(":archived", number(archived));
        if before.latest_seq > 0 {
            head = head.expression_attribute_values(":previous", number(before.latest_seq));
        }
        let set = "latest_seq = :seq, latest_at = :at, mode_changes = :changes, pulled = :pulled, importing = :importing";
        let then = "ADD posts :count, archived :archived";
        let mut windows = Vec::new();
        head = if archived > 0 {
            let sets = [("deleted", &after.deleted), ("archived_seqs", &after.archive)];
            // The transaction has no room for windows that move. New posts change only the newest window of each set.
            let layout = Layout::new(&schema::head(author), stored, &sets, false)?;
            windows = layout.puts(OPERATION, &self.tables.posts)?;
            conditions.push(count(before.deleted.len(), "deletions", ":deletions_before"));
            head = windows::unchanged(head, stored, "archived", &mut conditions);
            if !before.deleted.is_empty() {
                head = head.expression_attribute_values(":deletions_before", number(before.deleted.len()));
            }
            let head = head.expression_attribute_values(":deletions", number(after.deleted.len()));
            layout.sets_in(head, &sets, &format!("{set}, deletions = :deletions"), then)
        } else {
            head.update_expression(format!("SET {set} {then}"))
        };
        let head = head.condition_expression(conditions.join(" AND "));

        let mut item = keys::import_record(author);
        item.insert("posts".to_owned(), bits_of(&record.posts));
        if let Some((first, last)) = record.unsettled {
            item.extend([("unsettled_first".to_owned(), number(first)), ("unsettled_last".to_owned(), number(last))]);
        }
        let put = Put::builder().table_name(&self.tables.migration).set_item(Some(item));
        let record = if known.is_empty() {
            put.condition_expression("attribute_not_exists(posts)")
        } else {
            put.condition_expression("posts = :known").expression_attribute_values(":known", bits_of(known))
        };
        let mut transaction = self
            .client
            .transact_write_items()
            .transact_items(TransactWriteItem::builder().update(build(OPERATION, head.build())?).build())
            .transact_items(TransactWriteItem::builder().put(build(OPERATION, record.build())?).build());
        for (blog, (post, order)) in blogs.iter().zip(written) {
            let put = Put::builder()
                .table_name(&self.tables.posts)
                .set_item(Some(post_item(post, *order)))
                .condition_expression("attribute_not_exists(#item)")
                .expression_attribute_names("#item", "item");
            let mut item = keys::mapping(blog.id);
            item.insert("post".to_owned(), string(post.id.to_string()));
            let mapping = Put::builder()
                .table_name(&self.tables.migration)
                .set_item(Some(item))
                .condition_expression("attribute_not_exists(post)");
            transaction = transaction
                .transact_items(TransactWriteItem::builder().put(build(OPERATION, put.build())?).build())
                .transact_items(TransactWriteItem::builder().put(build(OPERATION, mapping.build())?).build());
        }
        transaction = windows.into_iter().fold(transaction, |all, window| all.transact_items(window));
        DynamoFacts::transact(OPERATION, transaction).await
    }
}

fn read_mapping(item: &Item) -> Result<(BlogId, PostId), StoreError> {
    let reader = Reader { table: TABLE, item };
    let blog = keys::mapped_blog(reader.text("key")?).ok_or_else(|| reader.damaged("key"))?;
    Ok((blog, reader.text("post")?.parse().map_err(|_| reader.damaged("post"))?))
}

fn read_record(item: &Item) -> Result<(UserId, ImportRecord), StoreError> {
    let reader = Reader { table: TABLE, item };
    let author = keys::imported_author(reader.text("key")?).ok_or_else(|| reader.damaged("key"))?;
    let unsettled = reader.optional_number("unsettled_first")?.zip(reader.optional_number("unsettled_last")?);
    Ok((author, ImportRecord { posts: reader.seqs("posts")?, unsettled }))
}

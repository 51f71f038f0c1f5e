//! Heads, posts, texts, idempotency records of publishes, and the state of fan-outs.

use std::{
    collections::{HashMap, HashSet},
    ops::RangeInclusive,
};

use tidemark_domain::{
    AuthorHead, DeliveryState, FanOutKind, FeedKey, IdempotencyKey, NewPost, Post, PostId, PostText, Seq, Step, StoreError,
    Timestamp, UserId, Withheld,
};
use tracing::error;

use super::{
    Facts, Result, attempts,
    counters::HeldUp,
    distinct,
    heads::{read_head, read_head_of, still_latest, with_modes},
    item::{Item, encode, flag, number, string, variant},
    post_counts::PostCounts,
    post_items::{body_of, index_shard, post_item, post_of, read_post, read_text, text_item, unfinished_shard},
    records::{new_record, valid_record},
    reposts::{Named, Naming, RepostEntry, quoter},
    schema::{self, HeadItem, PostItem, RecordItem},
    windows::Layout,
    write::{Cancelled, Write, absent, below, between, is, present, queried, still, still_number, unchanged},
};

/// The indexes of the original's count and of the author's head in the transaction of a repost.
const REPOSTED: [usize; 2] = [2, 0];

#[derive(Debug, Clone, PartialEq)]
pub enum Published {
    /// The new post, and its author's head after it.
    Created(Post, AuthorHead),
    /// An earlier request with the same key and body published this post, or it is the standing repost.
    Repeated(Post),
    /// An earlier request with the same key published something else.
    KeyReused,
    /// The author has used all sequence numbers.
    Full,
    /// The author may not name the post that the new one names.
    Withheld(Withheld),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Deleted {
    /// The post is a tombstone, and its retraction has to be started. Contains the author's head after the deletion.
    Deleted(Post, AuthorHead),
    /// The post was a tombstone before, and its retraction is finished.
    Already(Post),
    /// No such post was ever published.
    Unknown,
}

/// The result of a look at an unfinished fan-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Its pages wait in the queue, at the latest since this time.
    Waiting(Timestamp),
    /// This many pages are done, more than before.
    Moving(u64),
    /// The missing pages are about to be sent again. If [`Delivery::sent_at`](tidemark_domain::Delivery) is no longer
    /// `before`, another run was first. The token names this run, because two runs may have the same time.
    Sending { before: Option<Timestamp>, at: Timestamp, token: u64 },
    /// The pages of [`Look::Sending`] with this token were sent. This many other pages were done.
    Sent { token: u64, attempts: u32, pages_done: u64 },
    /// Some of its pages are not in the queue, because the queue was unavailable.
    Unsent,
    /// Its pages were sent as often as allowed. It leaves the list of fan-outs that are resumed.
    GivenUp,
}

impl Facts {
    /// Returns the heads of these authors. An author without a head gets an empty one.
    pub async fn heads(&self, authors: &[UserId]) -> Result<HashMap<UserId, AuthorHead>> {
        let keys = distinct(authors).into_iter().map(schema::head).collect();
        let items = self.get("heads", &self.tables.posts, keys).await?;
        items.into_iter().map(read_head_of).collect()
    }

    /// Publishes a post: head, post, body and idempotency record in one transaction.
    pub async fn publish_post(
        &self,
        post: &NewPost,
        followers: u64,
        idempotency: Option<&IdempotencyKey>,
        now: Timestamp,
    ) -> Result<Published> {
        let record = idempotency.map(|of| (schema::publish_record(post.author, &of.key), of.fingerprint.clone()));
        let mut publish = Publish { post: post.clone(), record, token: rand::random(), now };
        let mut tried: Option<(Post, AuthorHead)> = None;
        let (mut attempts, mut held_up) = (attempts("publish"), HeldUp::default());
        loop {
            attempts.next().await?;
            let (head, repeated, named) = self.head_and_record(&publish).await?;
            let counts = named.counts;
            // A write with an unknown outcome may have created the author's post of that number.
            if let Some((own, after)) = tried.take_if(|(own, _)| own.id.seq <= head.latest_seq)
                && self.token_of(own.id).await? == Some(publish.token)
            {
                return Ok(Published::Created(own, after));
            }
            if let Some(repeated) = repeated {
                return Ok(repeated);
            }
            attempts.outcome().map_err(StoreError::undone)?;
            match self.name(&mut publish.post, named).await? {
                Naming::Done => {}
                Naming::Again => continue,
                Naming::Ends(published) => return Ok(*published),
            }
            let Some((new, after)) = head.publish(&publish.post, followers, self.limits.pull_threshold, now) else {
                return Ok(Published::Full);
            };
            // If a condition fails, another publish has written first, or this one has and its response was lost.
            let written = self.write_post(&publish, counts, &head, &new, &after).await;
            if let (Some(counts), Ok(Err(cancelled))) = (counts, &written) {
                held_up.note(self, counts.first(self), cancelled, REPOSTED).await;
            }
            if attempts.done(written) {
                return Ok(Published::Created(new, after));
            }
            tried = Some((new, after));
        }
    }

    /// Makes a post a tombstone: post, body and head in one transaction. May be repeated. `followers` decides how many
    /// pages the retraction has.
    pub async fn delete_post(&self, post: PostId, followers: u64) -> Result<Deleted> {
        let mut tried = false;
        let mut attempts = attempts("delete");
        loop {
            attempts.next().await?;
            let keys = vec![schema::post(post), schema::head(post.author)];
            let found = self.get("delete", &self.tables.posts, keys).await?;
            let (heads, posts): (Vec<Item>, Vec<Item>) = found.into_iter().partition(schema::is_head);
            let Some(item) = posts.into_iter().next() else { return Ok(Deleted::Unknown) };
            let unfinished = PostItem::unfinished.of(&item).is_some();
            let mut head = heads.first().cloned().map(read_head).transpose()?.unwrap_or_default();
            let mut known = read_post(item)?;
            let reposted = known.reposted();
            if known.deleted {
                // An earlier attempt of this call has deleted it, or another request that has not retracted it yet.
                return Ok(if tried || unfinished { Deleted::Deleted(known, head) } else { Deleted::Already(known) });
            }
            attempts.outcome()?;
            let entry = RepostEntry { seq: post.seq, at: known.created_at };
            let unlisted = match reposted {
                Some(original) => self.repost_removal(post.author, original, entry).await?,
                None => quoter(&known).map(|entry| Write::delete(&self.tables.reactions, entry)).into_iter().collect(),
            };
            head.delete(&mut known, followers);
            if attempts.done(self.write_tombstone(&known, &head, heads.first(), unlisted).await) {
                return Ok(Deleted::Deleted(known, head));
            }
            tried = true;
        }
    }

    /// Returns these posts, tombstones included. Unknown posts are left out.
    pub async fn posts(&self, posts: &[PostId]) -> Result<HashMap<PostId, Post>> {
        let keys = distinct(posts).into_iter().map(schema::post).collect();
        let items = self.get("posts", &self.tables.posts, keys).await?;
        items.into_iter().map(|item| read_post(item).map(|post| (post.id, post))).collect()
    }

    /// Returns these posts, tombstones included, each with the text of the same revision; `None` instead of a text that
    /// cannot be read or is of another revision. Unknown posts are left out.
    pub async fn posts_with_texts(&self, posts: &[PostId]) -> Result<HashMap<PostId, (Post, Option<PostText>)>> {
        let mut left = distinct(posts);
        let mut different = HashMap::new();
        let mut found = HashMap::with_capacity(left.len());
        let mut attempts = attempts("with_texts");
        while !left.is_empty() {
            attempts.next().await?;
            let keys = left.iter().flat_map(|&post| [schema::post(post), schema::body(post)]).collect();
            let items = self.get("with_texts", &self.tables.posts, keys).await?;
            let (posts, texts): (Vec<Item>, Vec<Item>) = items.into_iter().partition(|item| post_of(item).is_ok());
            let texts = texts.into_iter().map(|text| Ok((body_of(&text)?, read_text(text))));
            let mut texts: HashMap<PostId, Result<(u32, PostText)>> = texts.collect::<Result<_>>()?;
            left.clear();
            for post in posts {
                let post = read_post(post)?;
                let (id, revision) = (post.id, post.revision);
                if post.deleted {
                    found.insert(id, (post, Some(PostText::default())));
                    continue;
                }
                match texts.remove(&id).unwrap_or_else(|| Ok((1, PostText::default()))) {
                    Ok((of, text)) if of == revision => _ = found.insert(id, (post, Some(text))),
                    // The two items may be from before and after an edit. The same difference twice is damage: items
                    // are read consistently, so the second read has the edit.
                    Ok((of, _)) if different.insert(id, (revision, of)) != Some((revision, of)) => left.push(id),
                    Ok((of, _)) => {
                        error!(%id, revision, of, "the text of a post is of another revision");
                        found.insert(id, (post, None));
                    }
                    Err(error) => {
                        error!(%id, error = &error as &dyn std::error::Error, "the text of a post cannot be read");
                        found.insert(id, (post, None));
                    }
                }
            }
        }
        Ok(found)
    }

    /// Replaces title and text of a live post, also a damaged text: post and body in one transaction. Writes nothing if
    /// they are equal, or if it is a repost. Returns the post after it; `None` if there is no such live post.
    pub async fn edit_post(&self, id: PostId, title: &str, text: &PostText, now: Timestamp) -> Result<Option<Post>> {
        let mut attempts = attempts("edit");
        loop {
            attempts.next().await?;
            let found = self.posts_with_texts(&[id]).await?.remove(&id).filter(|(post, _)| !post.deleted);
            let Some((post, known)) = found else { return Ok(None) };
            if post.reposted().is_some() || (post.title == title && known.as_ref() == Some(text)) {
                return Ok(Some(post));
            }
            attempts.outcome()?;
            let next = Post { title: title.to_owned(), revision: post.revision + 1, edited_at: Some(now), ..post };
            if attempts.done(self.write_edit(&next, text, now).await) {
                return Ok(Some(next));
            }
        }
    }

    /// Returns at most `limit` posts of one author in `after+1..=upto`, newest first, tombstones included.
    pub async fn author_timeline(&self, author: UserId, after: Seq, upto: Seq, limit: usize) -> Result<Vec<Post>> {
        if after >= upto || limit == 0 {
            return Ok(Vec::new());
        }
        let items = self.newest_items("timeline", author, after + 1..=upto, limit).await?;
        items.into_iter().map(read_post).collect()
    }

    /// Returns these posts of one author in the order of `seqs`, which must descend. Tombstones are included, unknown
    /// posts are left out. Uses one range query if the numbers are dense, else reads by key, a hundred in a request.
    pub async fn posts_of(&self, author: UserId, seqs: &[Seq]) -> Result<Vec<Post>> {
        let (Some(&newest), Some(&oldest)) = (seqs.first(), seqs.last()) else { return Ok(Vec::new()) };
        let span = usize::try_from(newest - oldest).unwrap_or(usize::MAX).saturating_add(1);
        if span > seqs.len().saturating_mul(DENSE) {
            let ids: Vec<PostId> = seqs.iter().map(|&seq| PostId::new(author, seq)).collect();
            let mut found = self.posts(&ids).await?;
            return Ok(ids.iter().filter_map(|id| found.remove(id)).collect());
        }
        let wanted: HashSet<Seq> = seqs.iter().copied().collect();
        let items = self.newest_items("posts_of", author, oldest..=newest, span).await?;
        // Posts between the wanted ones are not decoded.
        let is_wanted = |item: &Item| post_of(item).is_ok_and(|post| wanted.contains(&post.seq));
        items.into_iter().filter(is_wanted).map(read_post).collect()
    }

    /// Returns the place of the author's last post or tombstone at or before `at`.
    pub async fn last_post_at(&self, author: UserId, at: Timestamp) -> Result<Option<FeedKey>> {
        let end = below(PostItem::time, string(schema::post_time_end(at)));
        let posts = self.query(&self.tables.posts, [is(PostItem::author, number(author.get())), end]);
        let newest = posts.index_name(schema::BY_TIME).scan_index_forward(false);
        let place = |item: &Item| -> Result<FeedKey> {
            Ok(FeedKey { at: PostItem::time.parsed(item, schema::time_of)?, post: post_of(item)? })
        };
        let indexed = queried("last_at", newest, 1).await?.first().map(place).transpose()?;
        self.catch_up(author, indexed, at).await
    }

    /// Returns a post or its tombstone, and the token of the last change of its step.
    pub async fn ranked_by(&self, id: PostId) -> Result<Option<(Post, Option<u64>)>> {
        let Some(item) = self.get_one("ranked_by", &self.tables.posts, schema::post(id)).await? else { return Ok(None) };
        let by = PostItem::step_by.optional(&item)?;
        Ok(Some((read_post(item)?, by)))
    }

    /// Sets the step of a live post if it has changed `step.changes - 1` times. Otherwise it writes nothing and returns
    /// false. A repetition after a lost response returns false too; then [`Self::ranked_by`] returns this token.
    pub async fn set_step(&self, id: PostId, step: Step, token: u64) -> Result<bool> {
        let update = Write::update(&self.tables.posts, schema::post(id))
            .set(PostItem::step, number(step.level))
            .set(PostItem::step_changes, number(step.changes))
            .set(PostItem::step_by, number(token))
            .when(present(PostItem::item))
            .when(absent(PostItem::tombstone))
            .when(still_number(PostItem::step_changes, step.changes.saturating_sub(1)));
        self.send("set_step", update).await
    }

    /// Stores the result of a look at an unfinished fan-out. Writes nothing and returns false if it is finished by now,
    /// if the post has another one, or if another run is sending its pages.
    pub async fn note_look(&self, kind: FanOutKind, post: PostId, look: Look) -> Result<bool> {
        let is_same = match kind {
            FanOutKind::Deliver => absent(PostItem::tombstone),
            FanOutKind::Retract => present(PostItem::tombstone),
        };
        let update = Write::update(&self.tables.posts, schema::post(post)).when(present(PostItem::unfinished)).when(is_same);
        let open = string(unfinished_shard(post.author));
        let update = match look {
            Look::Waiting(at) => update.set(PostItem::sent_at, number(at.ms())),
            Look::Moving(pages_done) => update.set(PostItem::seen_pages, number(pages_done)).set(PostItem::unfinished, open),
            Look::Sending { before, at, token } => {
                let unchanged = match before {
                    Some(before) => is(PostItem::sent_at, number(before.ms())),
                    None => absent(PostItem::sent_at),
                };
                // The token is there if the response to an earlier attempt of this write was lost.
                let mine = unchanged.or(is(PostItem::sent_by, number(token)));
                let update = update.set(PostItem::sent_at, number(at.ms())).set(PostItem::sent_by, number(token));
                update.set(PostItem::sending, flag(true)).when(mine)
            }
            Look::Sent { token, attempts, pages_done } => update
                .set(PostItem::attempts, number(attempts))
                .set(PostItem::seen_pages, number(pages_done))
                .set(PostItem::unfinished, open)
                .remove([PostItem::sending])
                .when(is(PostItem::sent_by, number(token))),
            Look::Unsent => update.set(PostItem::sent_at, number(Timestamp::default().ms())).remove([PostItem::sending]),
            Look::GivenUp => update.set(PostItem::unfinished, string(schema::given_up_shard(index_shard(post.author)))),
        };
        self.send("note_look", update).await
    }

    /// Sets a pending fan-out to done, with the followers handled. Returns whether it was pending.
    pub async fn finish_delivery(&self, post: PostId, delivered: u64, now: Timestamp) -> Result<bool> {
        let update = self
            .live_post_in(post, DeliveryState::Pending)
            .set(PostItem::state, variant(DeliveryState::Done))
            .set(PostItem::delivered, number(delivered))
            .set(PostItem::finished_at, number(now.ms()))
            .remove([PostItem::unfinished]);
        // If the condition fails, the delivery is finished already, or the post is deleted.
        self.send("finish_delivery", update).await
    }

    pub async fn finish_retraction(&self, post: PostId) -> Result<()> {
        let update = Write::update(&self.tables.posts, schema::post(post)).remove([PostItem::unfinished]);
        self.send("finish_retraction", update.when(present(PostItem::tombstone))).await.map(drop)
    }

    pub async fn head_of(&self, author: UserId) -> Result<AuthorHead> {
        Ok(self.heads(&[author]).await?.remove(&author).unwrap_or_default())
    }
}

/// A post that has no number yet.
struct Publish {
    post: NewPost,
    /// Key and fingerprint of the idempotency record.
    record: Option<(String, String)>,
    /// Tells a publish whether a stored post is its own.
    token: u64,
    /// The time of the request.
    now: Timestamp,
}

impl Facts {
    /// The author's post items with these numbers, newest first, at most `limit`.
    pub async fn newest_items(
        &self,
        operation: &'static str,
        author: UserId,
        seqs: RangeInclusive<Seq>,
        limit: usize,
    ) -> Result<Vec<Item>> {
        let [first, last] = [seqs.start(), seqs.end()].map(|seq| string(schema::post_sort_key(*seq)));
        let posts = [is(PostItem::author, number(author.get())), between(PostItem::item, first, last)];
        let query = self.query(&self.tables.posts, posts).consistent_read(true).scan_index_forward(false);
        queried(operation, query, limit).await
    }

    /// An update of a live post whose fan-out is in this state.
    pub fn live_post_in(&self, post: PostId, state: DeliveryState) -> Write {
        let update = Write::update(&self.tables.posts, schema::post(post));
        update.when(is(PostItem::state, variant(state))).when(absent(PostItem::tombstone))
    }

    /// The head, the outcome that an earlier publish with the same key implies, and the post that the new one names.
    async fn head_and_record(&self, publish: &Publish) -> Result<(AuthorHead, Option<Published>, Named)> {
        let (tables, author) = (&self.tables, publish.post.author);
        let records = publish.record.iter().map(|(key, _)| schema::record(key)).collect();
        let [mut posts, reactions, entries] = Self::named_keys(&publish.post);
        posts.push(schema::head(author));
        let wanted =
            [(&tables.posts, posts), (&tables.idempotency, records), (&tables.reactions, reactions), (&tables.reacted, entries)];
        let wanted = wanted.map(|(table, keys)| (table.as_str(), keys));
        let [posts, records, reactions, entries] = self.batch_get("publish", wanted).await?;
        let is_own_head = |item: &Item| schema::is_head(item) && HeadItem::author.user(item).is_ok_and(|of| of == author);
        let (head, posts): (Vec<Item>, Vec<Item>) = posts.into_iter().partition(is_own_head);
        let head = head.into_iter().next().map(read_head).transpose()?.unwrap_or_default();
        Ok((head, self.published_before(publish, records).await?, Self::read_named(&publish.post, posts, reactions, &entries)?))
    }

    async fn published_before(&self, publish: &Publish, records: Vec<Item>) -> Result<Option<Published>> {
        let (Some(record), Some((_, fingerprint))) = (valid_record(records, publish.now)?, &publish.record) else {
            return Ok(None);
        };
        if record.fingerprint != *fingerprint {
            return Ok(Some(Published::KeyReused));
        }
        let id: Option<PostId> = record.post.and_then(|id| id.parse().ok());
        let mut posts = self.posts(id.as_slice()).await?;
        let earlier = id.and_then(|id| posts.remove(&id));
        let mut earlier = earlier.ok_or_else(|| RecordItem::post.damaged_at(record.key))?;
        // The body is the same, so the repeated response has its title even if the post is a tombstone now.
        earlier.title.clone_from(&publish.post.title);
        Ok(Some(Published::Repeated(earlier)))
    }

    /// The token of the publish that wrote a post, if one did. The head counts the post, so its item appears soon.
    async fn token_of(&self, post: PostId) -> Result<Option<u64>> {
        let mut attempts = attempts("publish");
        loop {
            attempts.next().await?;
            if let Some(item) = self.get_one("publish", &self.tables.posts, schema::post(post)).await? {
                return PostItem::write_token.optional(&item);
            }
        }
    }

    /// Writes a post and its text, the author's head `after` it, and the idempotency record.
    async fn write_post(
        &self,
        publish: &Publish,
        counts: Option<PostCounts>,
        before: &AuthorHead,
        new: &Post,
        after: &AuthorHead,
    ) -> Result<Result<(), Cancelled>> {
        let posts = &self.tables.posts;
        let head = with_modes(Write::update(posts, schema::head(new.id.author)), after).add(HeadItem::posts, 1);
        let mut item = post_item(new, new.created_at);
        item.write_token = Some(publish.token);
        let mut writes =
            vec![head.when(still_latest(before.latest_seq)), Write::put(posts, encode(&item)).when(absent(PostItem::item))];
        // The count of a repost comes first of these.
        writes.extend(self.reference_writes(new, counts).into_iter().rev());
        if publish.post.text != PostText::default() {
            writes.push(Write::put(posts, encode(&text_item(new.id, &publish.post.text, None))));
        }
        if let Some((key, fingerprint)) = &publish.record {
            let record = new_record(key.clone(), fingerprint, publish.now);
            writes.push(self.record_item_write(&RecordItem { post: Some(new.id.to_string()), ..record }, publish.now));
        }
        self.transact("publish", writes).await
    }

    /// Writes a post and its text after an edit. Also an empty text: its revision shows whether both belong together.
    async fn write_edit(&self, next: &Post, text: &PostText, now: Timestamp) -> Result<Result<(), Cancelled>> {
        let posts = &self.tables.posts;
        let before = (next.revision > 2).then(|| number(next.revision - 1));
        let post = Write::update(posts, schema::post(next.id))
            .set(PostItem::title, string(&next.title))
            .set(PostItem::revision, number(next.revision))
            .set(PostItem::edited_at, number(now.ms()))
            .when(present(PostItem::item))
            .when(absent(PostItem::tombstone))
            .when(still(PostItem::revision, before));
        let text = Write::put(posts, encode(&text_item(next.id, text, Some(next.revision))));
        self.transact("edit", vec![post, text]).await
    }

    /// Writes a tombstone and the head `after` the deletion, and what removes the entries of a repost. `stored` is the
    /// head's item before it.
    async fn write_tombstone(
        &self,
        post: &Post,
        after: &AuthorHead,
        stored: Option<&Item>,
        unlisted: Vec<Write>,
    ) -> Result<Result<(), Cancelled>> {
        let (posts, head) = (&self.tables.posts, schema::head(post.id.author));
        let mut sets = vec![(HeadItem::deleted, &after.deleted)];
        if post.archived {
            sets.push((HeadItem::archived_seqs, &after.archive));
        }
        let layout = Layout::new(&head, stored, &sets, true)?;
        let tombstone = Write::update(posts, schema::post(post.id))
            .set(PostItem::tombstone, flag(true))
            .set(PostItem::state, variant(post.delivery.state))
            .set(PostItem::retract_pages, number(post.delivery.retraction_pages))
            .set(PostItem::unfinished, string(unfinished_shard(post.id.author)))
            .remove([
                PostItem::title,
                PostItem::quote_of,
                PostItem::attempts,
                PostItem::seen_pages,
                PostItem::sent_at,
                PostItem::sent_by,
                PostItem::sending,
            ])
            .when(present(PostItem::item))
            .when(absent(PostItem::tombstone));
        // The deletion of an archived post leaves the number of deletions unchanged, so both counts are conditions.
        let head = Write::update(posts, head)
            .set(HeadItem::deletions, number(after.deleted.len()))
            .add(HeadItem::posts, -1)
            .add(HeadItem::archived, -i64::from(post.archived))
            .when(unchanged(HeadItem::deletions, stored))
            .when(unchanged(HeadItem::archived, stored));
        let post = vec![tombstone, Write::delete(posts, schema::body(post.id))];
        self.transact("delete", [post, layout.writes(head), unlisted].concat()).await
    }

    /// The index by time lags. Continues from its result to the last post at or before `at`, with consistent reads.
    async fn catch_up(&self, author: UserId, mut last: Option<FeedKey>, at: Timestamp) -> Result<Option<FeedKey>> {
        // Usually the index does not lag, and the post after its result shows it.
        let mut step = 1;
        loop {
            let from = last.map_or(0, |last| last.post.seq);
            let next: Vec<PostId> = (from + 1..=from + step).map(|seq| PostId::new(author, seq)).collect();
            let posts = self.posts(&next).await?;
            let known: Vec<FeedKey> =
                next.iter().map_while(|id| posts.get(id).map(Post::key).filter(|key| key.at <= at)).collect();
            last = known.last().copied().or(last);
            if (known.len() as u64) < step {
                return Ok(last);
            }
            step = CATCH_UP;
        }
    }
}

/// The sequence numbers are read as one range if at least one of this many posts in the range is wanted. A range costs
/// one read unit for about 20 small posts, or for 5 of the largest. A post that is read by its key costs one unit.
const DENSE: usize = 4;

/// The number of posts in each step of [`Facts::catch_up`] but the first.
const CATCH_UP: u64 = 4;

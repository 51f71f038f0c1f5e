//! Group commit of one author's posts.
//!
//! The author's head gives the numbers, so publishes of one author write it one after another. A publish that lost this
//! race leaves its post as a *draft* in one of the author's places. The one that waits longest writes all drafts in one
//! transaction: the head, the posts, their idempotency records, and the deletion of the drafts. A publish learns from
//! its record that its post is written, so in a group every post has a record, also without an `Idempotency-Key`. The
//! record also ensures that a post is written once, if a late repetition stores its draft again.
//!
//! A publish that ends without its post deletes its draft. If it cannot, the draft is ignored after a few seconds.

use std::{collections::HashSet, time::Duration};

use tidemark_app::{
    ports::{IdempotencyKey, Posts, Published, StoreError},
    retry::Attempts,
};
use tidemark_domain::{AuthorHead, NewPost, Post, PostText, Timestamp, UserId};
use tracing::{error, warn};

use super::{
    DynamoFacts, Result,
    heads::seen_head,
    item::{Item, encode, number},
    read,
    schema::{self, DraftItem},
    write::{Cancelled, Write, absent, at_most, is},
};

/// The places of an author, and so the most posts of a group: with four writes for each post and one of the head, a
/// transaction has at most 97 of the 100 that it may have.
const PLACES: u64 = 24;

/// After this many looks, a publish no longer leaves the write to the one that waits longest.
const LOOKS: u32 = 8;

/// A longer text is written alone: in a group it would be written three times.
const MOST_TEXT: usize = 16 * 1024;

/// The time that others may write a draft: longer than the request that left it waits.
const DRAFT_SECONDS: u64 = 12;

/// Looks for the record of a post whose draft is gone, and the pause after each.
const FINAL_LOOKS: usize = 4;
const FINAL_PAUSE: Duration = Duration::from_millis(50);

/// A post without a number.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub post: NewPost,
    pub followers: u64,
    /// Tells a publish whether a stored post is its own.
    pub token: u64,
    /// The time of the request.
    pub at: Timestamp,
    /// Key and fingerprint of the idempotency record.
    pub record: Option<(String, String)>,
    /// The key of the place where it waits.
    pub place: Option<String>,
}

impl Draft {
    pub(crate) fn new(post: &NewPost, followers: u64, idempotency: Option<&IdempotencyKey>, now: Timestamp) -> Self {
        let record = idempotency.map(|of| (schema::publish_record(post.author, &of.key), of.fingerprint.clone()));
        Self { post: post.clone(), followers, token: rand::random(), at: now, record, place: None }
    }

    pub(crate) fn may_wait(&self) -> bool {
        self.post.text.bytes() <= MOST_TEXT
    }
}

/// Numbers drafts in this order, until the author's numbers are used up.
pub(crate) fn numbered(head: &AuthorHead, drafts: &[Draft], pull_threshold: u64) -> (Vec<Post>, AuthorHead) {
    let mut after = head.clone();
    let posts = drafts.iter().map_while(|draft| {
        let (post, next) = after.publish(&draft.post, draft.followers, pull_threshold, draft.at)?;
        after = next;
        Some(post)
    });
    (posts.collect(), after)
}

impl DynamoFacts {
    /// Publishes a post with the drafts of other requests. No write of it may have an unknown outcome before this.
    pub(crate) async fn publish_in_group(
        &self,
        mut draft: Draft,
        now: &impl Fn() -> Timestamp,
        attempts: &mut Attempts,
    ) -> Result<Published> {
        let unnamed = || (schema::publish_record(draft.post.author, &format!("#{:016x}", draft.token)), String::new());
        draft.record = Some(draft.record.take().unwrap_or_else(unnamed));
        let published = match self.take_place(&mut draft, now, attempts).await {
            Ok(()) => self.wait_in_place(&draft, now, attempts).await,
            Err(error) => Err(error),
        };
        let (Some(place), false) = (&draft.place, matches!(published, Ok(Published::Created(..)))) else { return published };
        // Without its draft, the post is not written any more.
        let has_left = self.send("publish", self.leave(place, draft.token)).await;
        if published.is_ok() || has_left? {
            return published;
        }
        // The post may be written. A response may show a transaction's deletion before its record.
        for _ in 0..FINAL_LOOKS {
            if let Some(published) = self.look(&draft, now()).await?.published {
                return Ok(published);
            }
            tokio::time::sleep(FINAL_PAUSE).await;
        }
        published
    }

    /// Stores the draft in a free place, or in one whose draft is too old.
    async fn take_place(&self, draft: &mut Draft, now: &impl Fn() -> Timestamp, attempts: &mut Attempts) -> Result<()> {
        loop {
            let key = schema::draft(draft.post.author, rand::random_range(0..PLACES));
            let too_old = at_most(DraftItem::expires_at, number(now().seconds()));
            // A repetition by the SDK finds the draft that its first attempt has stored.
            let own = is(DraftItem::token, number(draft.token));
            let put = Write::put(&self.tables.idempotency, draft_item(draft, key.clone(), now()));
            // The draft may exist even after an error.
            draft.place = Some(key);
            if self.send("publish", put.when(absent(DraftItem::key).or(too_old).or(own))).await? {
                return Ok(());
            }
            draft.place = None;
            attempts.look_again().await?;
        }
    }

    /// Waits until the draft is written. The publish that has waited longest writes all drafts.
    async fn wait_in_place(&self, draft: &Draft, now: &impl Fn() -> Timestamp, attempts: &mut Attempts) -> Result<Published> {
        let (mut looks, mut is_missing) = (0, false);
        loop {
            let Seen { head, drafts, published } = self.look(draft, now()).await?;
            if let Some(published) = published {
                return Ok(published);
            }
            attempts.outcome()?;
            // Another publish deleted it and wrote no record, or one response has the deletion and not the record.
            let was_missing = std::mem::replace(&mut is_missing, !drafts.iter().any(|other| other.record == draft.record));
            if is_missing && was_missing {
                return Err(StoreError::Contention { operation: "publish" });
            }
            looks += 1;
            if is_missing || looks < LOOKS && drafts.first().is_some_and(|first| first.record != draft.record) {
                attempts.look_again().await?;
                continue;
            }
            let (new, after) = numbered(&head, &drafts, self.limits.pull_threshold);
            if new.is_empty() {
                return Ok(Published::Full);
            }
            let written = self.write_posts(&head, &drafts, &new, &after, now()).await;
            if let Ok(Err(Cancelled::Conditions(failed))) = &written {
                self.remove_acknowledged(&drafts, failed).await;
            }
            // After a success the next look finds the record.
            if !attempts.done(written) {
                attempts.next().await?;
            }
        }
    }

    async fn look(&self, draft: &Draft, now: Timestamp) -> Result<Seen> {
        let author = draft.post.author;
        let places = (0..PLACES).map(|place| schema::draft(author, place));
        let keys = draft.record.iter().map(|(key, _)| key.clone()).chain(places).map(|key| schema::record(&key)).collect();
        let head = (self.tables.posts.as_str(), vec![schema::head(author)]);
        let [head, found] = self.batch_get("publish", [head, (&self.tables.idempotency, keys)]).await?;
        let is_draft =
            |item: &Item| DraftItem::key.of(item).and_then(|key| key.as_s().ok()).is_some_and(|key| schema::is_draft(key));
        let (drafts, records): (Vec<Item>, Vec<Item>) = found.into_iter().partition(is_draft);
        let (head, _) = seen_head(head, now)?;
        let published = match self.published_before(draft, records, now).await? {
            Some(Published::Repeated(post)) if self.token_of(post.id).await? == Some(draft.token) => {
                // One response may have the record, and the head from before it.
                let is_old = head.latest_seq < post.id.seq;
                let newer = if is_old { self.heads(&[author]).await?.remove(&author) } else { None };
                Some(Published::Created(post, newer.unwrap_or_else(|| head.clone())))
            }
            published => published,
        };
        Ok(Seen { head, drafts: fresh(drafts, author, now), published })
    }

    /// Deletes drafts whose records could not be written. Their requests have a response, so no group may write them.
    async fn remove_acknowledged(&self, drafts: &[Draft], failed: &[usize]) {
        // The records come after the head.
        let acknowledged = failed.iter().filter_map(|index| drafts.get(index.checked_sub(1)?));
        for draft in acknowledged {
            let Some(place) = &draft.place else { continue };
            if let Err(error) = self.send("publish", self.leave(place, draft.token)).await {
                warn!(place, error = &error as &dyn std::error::Error, "a draft whose request is acknowledged is not deleted");
            }
        }
    }

    /// The keys of the author's places.
    pub(crate) fn places(author: UserId) -> impl Iterator<Item = Item> {
        (0..PLACES).map(move |place| schema::record(&schema::draft(author, place)))
    }

    /// The deletion of a draft from its place.
    pub(crate) fn leave(&self, place: &str, token: u64) -> Write {
        Write::delete(&self.tables.idempotency, schema::record(place)).when(is(DraftItem::token, number(token)))
    }
}

struct Seen {
    head: AuthorHead,
    /// The drafts that may be written, the oldest first.
    drafts: Vec<Draft>,
    /// The outcome of the publish, if it is known.
    published: Option<Published>,
}

/// The drafts that are readable and not too old, the oldest first, one for each record: a request may wait twice.
fn fresh(items: Vec<Item>, author: UserId, now: Timestamp) -> Vec<Draft> {
    let decoded = items.into_iter().filter_map(|item| match read(item, Ok::<DraftItem, _>) {
        Ok(draft) => Some(draft),
        Err(error) => {
            error!(error = &error as &dyn std::error::Error, "a draft cannot be read");
            None
        }
    });
    let mut drafts: Vec<DraftItem> = decoded.filter(|draft| draft.expires_at > now.seconds()).collect();
    drafts.sort_unstable_by_key(|draft| (draft.at, draft.token));
    let mut records = HashSet::new();
    drafts.retain(|draft| records.insert(draft.record.clone()));
    drafts.into_iter().map(|draft| drafted(draft, author)).collect()
}

fn drafted(item: DraftItem, author: UserId) -> Draft {
    let DraftItem { key, fingerprint, record, token, at, followers, title, body, data, weight, .. } = item;
    let post = NewPost { author, title, text: PostText { body, data }, weight: weight.unwrap_or(0) };
    let (at, record) = (Timestamp::from_ms(at), Some((record, fingerprint)));
    Draft { post, followers, token, at, record, place: Some(key) }
}

fn draft_item(draft: &Draft, key: String, now: Timestamp) -> Item {
    let (record, fingerprint) = draft.record.clone().unwrap_or_default();
    let NewPost { title, text: PostText { body, data }, weight, .. } = draft.post.clone();
    encode(&DraftItem {
        key,
        fingerprint,
        expires_at: now.seconds() + DRAFT_SECONDS,
        record,
        token: draft.token,
        at: draft.at.ms(),
        followers: draft.followers,
        title,
        body,
        data,
        weight: (weight != 0).then_some(weight),
    })
}

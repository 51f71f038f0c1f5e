//! Loads both sides of a subject into the same types.

use std::collections::{BTreeSet, HashMap, HashSet};

use futures::future::try_join_all;

use super::{Reconcile, ReconcileError, Subject};
use crate::{
    diff::{
        DamagedItem, Difference, Side, Stored, ViewDifference,
        facts::{self, ListedShard, UserFacts},
        notices,
        reader::{self, Followed, ReaderFacts, StoredReader},
        views::{self, StoredList},
    },
    stored::{Decoded, StoredUser, StoredView},
};
use tidemark_app::ports::List;
use tidemark_domain::{PostId, Relation, Timestamp, UserId, ids::SHARDS};
use tidemark_views::keys::View;

/// The most items of one shard that are looked at. The counts of an author with 16 times as many followers are not
/// checked: only the transactions that write them keep them exact.
const MOST_IN_SHARD: usize = 10_000;

/// The newest posts of an author that are looked at.
const MOST_POSTS: usize = 1_000;

/// Entries of a list that are read beyond the number of cached ones.
const MARGIN: usize = 50;

impl Reconcile {
    /// Loads all facts of one user: counts first, then the items that they count.
    pub(super) async fn user_facts(&self, user: UserId) -> Result<UserFacts, ReconcileError> {
        let audit = &self.facts;
        let (own, shards) = ([user], || 0..SHARDS);
        let (counts, mut heads) = futures::try_join!(audit.counts(user), audit.stored_heads(&own))?;
        let (following, posts, reads, followers, reactions) = futures::try_join!(
            audit.followed_by(user),
            audit.newest_posts(user, MOST_POSTS),
            audit.stored_reads(user),
            try_join_all(shards().map(|shard| audit.listed_followers(user, shard, MOST_IN_SHARD))),
            try_join_all(shards().map(|shard| audit.reactions_in(user, shard, MOST_IN_SHARD))),
        )?;
        let followed: Vec<UserId> = following.found.iter().map(|edge| edge.author).collect();
        let listed = followers.iter().flatten().flat_map(|shard| &shard.found);
        let listed: Vec<UserId> = listed.map(|relation| relation.user).collect();
        let read: Vec<UserId> = reads.found.keys().copied().collect();
        let tombstones: Vec<PostId> =
            posts.found.iter().filter(|stored| stored.post.deleted).map(|stored| stored.post.id).collect();
        let (listed, live, read_heads, bodies) = futures::try_join!(
            audit.listed_by(user, &followed),
            audit.live_followers(user, &listed),
            audit.stored_heads(&read),
            audit.bodies(&tombstones),
        )?;
        let unsure: HashSet<UserId> = live.damaged.iter().map(|(follower, _)| *follower).collect();
        let mut damaged = BTreeSet::new();
        let followers = followers.into_iter().map(|shard| listed_shard(shard, &unsure, &mut damaged)).collect();
        let reactions = reactions.into_iter().map(|shard| {
            let shard = shard?;
            let whole = shard.damaged.is_empty();
            let found = told(shard, &mut damaged);
            whole.then_some(found)
        });
        let reactions = reactions.collect();
        let unlisted: Vec<UserId> = listed.damaged.iter().map(|(author, _)| *author).collect();
        let mut listed: HashMap<UserId, Option<Timestamp>> =
            told(listed, &mut damaged).into_iter().map(|(author, since)| (author, Some(since))).collect();
        listed.extend(unlisted.into_iter().map(|author| (author, None)));
        let mut read_heads = told(read_heads, &mut damaged);
        let reads = told(reads, &mut damaged).into_iter();
        let head = heads.found.remove(&user);
        told(heads, &mut damaged);
        Ok(UserFacts {
            user,
            following_whole: following.damaged.is_empty(),
            following: told(following, &mut damaged),
            followings: counts.followings,
            listed,
            followers,
            live_followers: told(live, &mut damaged),
            follower_counts: counts.followers,
            head,
            posts: told(posts, &mut damaged),
            bodies,
            reads: reads.filter_map(|(author, reads)| Some((author, reads, read_heads.remove(&author)?.head))).collect(),
            reactions,
            damaged,
        })
    }

    /// Compares one subject.
    pub(super) async fn differences_of(&self, subject: &Subject) -> Result<Vec<Difference>, ReconcileError> {
        let now = self.readers.stores.clock.now();
        let found: Vec<Difference> = match subject {
            Subject::Facts(user) => {
                let facts = self.user_facts(*user).await?;
                facts::differences(&facts, &facts::missing(&facts).collect()).into_iter().map(Difference::from).collect()
            }
            Subject::Record(key) => {
                let record = self.facts.record(key).await?;
                record.and_then(|record| facts::of_record(&record, now)).into_iter().map(Difference::from).collect()
            }
            Subject::Tombstone(user, author) => {
                let edge = self.readers.stores.edges.edges(*user, &[*author]).await?.remove(author);
                let expired = edge.and_then(|edge| facts::of_tombstone(&edge, now));
                expired.into_iter().map(Difference::from).collect()
            }
            Subject::Views(user) => self.views_of(*user).await?.into_iter().map(Difference::from).collect(),
            Subject::Post(post) => {
                let (stored, right) =
                    futures::join!(self.views.of_post(*post), self.facts.stored_posts(std::slice::from_ref(post)));
                let (stored, right) = (stored?, right?.whole()?);
                let keys = stored.keys.iter().filter_map(views::of_key);
                keys.chain(views::of_summary(*post, &stored.summary, right.get(post))).map(Difference::from).collect()
            }
            Subject::Platform(platform) => {
                let stored = self.facts.stored_notices(*platform).await?;
                let head = self.notices.stores.notices.head(*platform).await?;
                let mut damaged = BTreeSet::new();
                let found = notices::of_platform(*platform, &head, &told(stored, &mut damaged), now);
                found.into_iter().map(Difference::from).chain(damaged.into_iter().map(Difference::from)).collect()
            }
            Subject::NoticeReads(user, platform) => {
                let (head, reads) = self.notices.stores.notices.state(*platform, *user).await?;
                let counted = self.facts.counted_slots(*user, *platform, &notices::above(&head, &reads)).await?;
                notices::of_reads(*user, *platform, &head, &reads, &counted).into_iter().map(Difference::from).collect()
            }
            Subject::PlatformView(platform) => {
                let stored = self.views.of_platform(*platform).await?;
                let right = self.notices.stores.notices.head(*platform).await?;
                of_view(&stored, |record| notices::of_head(*platform, record, &right))
            }
            Subject::NoticeReadsView(user, platform) => {
                let stored = self.views.of_notice_reads(*user, *platform).await?;
                let (head, right) = self.notices.stores.notices.state(*platform, *user).await?;
                of_view(&stored, |record| notices::of_slots(*user, *platform, record, &head, &right))
            }
            Subject::Title(notice, revision) => {
                let stored = self.views.of_title(*notice, *revision).await?;
                let ids = [*notice];
                let (head, right) = futures::try_join!(
                    self.notices.stores.notices.head(notice.platform),
                    self.notices.stores.notices.notices(&ids)
                )?;
                of_view(&stored, |record| notices::of_title(*notice, *revision, record, &head, right.get(notice)))
            }
            Subject::Astray(key) => {
                let there = self.views.exists(key).await?;
                there.then(|| ViewDifference::KeyAstray { key: key.clone() }.into()).into_iter().collect()
            }
        };
        Ok(found)
    }

    /// Compares all that Redis has of a user.
    async fn views_of(&self, user: UserId) -> Result<Vec<ViewDifference>, ReconcileError> {
        let stored = self.views.of_user(user).await?;
        let mut found: Vec<ViewDifference> = stored.keys.iter().filter_map(views::of_key).collect();
        let of_wrong_type = |view: View| stored.keys.iter().any(|key| key.view == view && !key.right_type);
        if !of_wrong_type(View::Reader(user)) {
            found.extend(self.reader_differences(user, &stored.reader).await?);
        }
        for (side, list, cached) in
            [(Side::Following, List::Following(user), &stored.following), (Side::Fans, List::Fans(user), &stored.fans)]
        {
            found.extend(self.list_differences(user, side, list, cached).await?);
        }
        found.extend(self.small_differences(user, &stored).await?);
        Ok(found)
    }

    async fn reader_differences(&self, user: UserId, stored: &StoredReader) -> Result<Vec<ViewDifference>, ReconcileError> {
        let now = self.readers.stores.clock.now();
        // Differences that need no facts come first. Without a complete view there is nothing to compare with facts.
        if stored.state.present().is_none_or(|state| state.meta.building) {
            return Ok(reader::differences(user, stored, &ReaderFacts::default(), now));
        }
        let (pairs, entries, low) = self.readers.implied_view(user).await?;
        let authors: HashMap<UserId, Followed> = pairs
            .into_iter()
            .filter_map(|pair| Some((pair.edge?, pair.head, pair.reads)))
            .map(|(edge, head, reads)| (edge.author, Followed { edge, head, reads }))
            .collect();
        let mut facts = ReaderFacts { authors, entries: entries.into_iter().collect(), low, posts: HashMap::new() };
        let unsure = reader::unsure(user, stored, &facts, now);
        facts.posts = self.facts.stored_posts(&unsure).await?.whole()?;
        Ok(reader::differences(user, stored, &facts, now))
    }

    async fn list_differences(
        &self,
        user: UserId,
        side: Side,
        list: List,
        stored: &Stored<StoredList>,
    ) -> Result<Vec<ViewDifference>, ReconcileError> {
        let limit = match (stored, side) {
            (Stored::Present(_), Side::Following) => usize::MAX,
            (Stored::Present(cached), Side::Fans) => cached.members.len() + MARGIN,
            _ => 0,
        };
        let relations = if limit == 0 { Vec::new() } else { self.relations.newest(list, limit).await? };
        Ok(views::of_list(user, side, stored, &relations, relations.len() < limit))
    }

    /// Compares counters, head and reactions.
    async fn small_differences(&self, user: UserId, stored: &StoredUser) -> Result<Vec<ViewDifference>, ReconcileError> {
        let mut found = Vec::new();
        if stored.counters != Stored::Absent {
            let right = self.relations.exact_counters(user).await?;
            found.extend(views::of_counters(user, &stored.counters, right));
        }
        if stored.head != Stored::Absent {
            let right = self.readers.stores.posts.heads(&[user]).await?.remove(&user).unwrap_or_default();
            found.extend(views::of_head(user, &stored.head, &right));
        }
        let authors: BTreeSet<UserId> = stored.reactions.present().into_iter().flat_map(|of| of.keys().copied()).collect();
        let authors: Vec<UserId> = authors.into_iter().collect();
        let right =
            if authors.is_empty() { HashMap::new() } else { self.readers.stores.reactions.reactions(user, &authors).await? };
        found.extend(views::of_reactions(user, &stored.reactions, &right));
        Ok(found)
    }
}

/// Returns the items that can be read, and adds the others to `damaged`.
fn told<T, K>(decoded: Decoded<T, K>, damaged: &mut BTreeSet<DamagedItem>) -> T {
    damaged.extend(decoded.damaged.into_iter().map(|(_, item)| item));
    decoded.found
}

/// A shard without the followers whose edges cannot be read.
fn listed_shard(
    shard: Option<Decoded<Vec<Relation>>>,
    unsure: &HashSet<UserId>,
    damaged: &mut BTreeSet<DamagedItem>,
) -> ListedShard {
    let Some(shard) = shard else { return ListedShard::default() };
    let whole = shard.damaged.is_empty() && shard.found.iter().all(|follower| !unsure.contains(&follower.user));
    let mut followers = told(shard, damaged);
    followers.retain(|follower| !unsure.contains(&follower.user));
    ListedShard { followers, whole }
}

/// Compares the keys of a view, and its record.
fn of_view<T>(stored: &StoredView<T>, differs: impl FnOnce(&Stored<T>) -> Option<ViewDifference>) -> Vec<Difference> {
    let keys = stored.keys.iter().filter_map(views::of_key);
    keys.chain(differs(&stored.record)).map(Difference::from).collect()
}

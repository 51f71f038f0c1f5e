//! Loads both sides of a subject into the same types.

use std::collections::{BTreeSet, HashMap, HashSet};

use futures::future::try_join_all;

use tidemark_app::ports::{CardVersion, List};
use tidemark_domain::{Post, PostId, Reaction, Relation, Timestamp, UserId, ids::SHARDS};
use tidemark_facts::{
    item::Stored as _,
    schema::{self, BodyItem},
};
use tidemark_views::keys::View;

use super::{
    context::{Reconcile, ReconcileError, Target},
    walk::{DAY, in_sample},
};
use crate::{
    diff::{
        DamagedItem, Difference, ListedReaction, Stored,
        facts::{self, ListedShard, ReactionShard, UserFacts},
        notices,
        reader::{self, Followed, ReaderFacts, StoredReader},
        views::{self, StoredKey, StoredList},
    },
    stored::{Decoded, StoredUser, StoredView},
};

/// Both sides of a target.
pub(super) enum Loaded {
    /// They are compared together with the facts of other users.
    Facts(Box<UserFacts>),
    Compared(Vec<Difference>),
}

/// The most items of one shard that are looked at. The counts of an author with 16 times as many followers are not
/// checked: only the transactions that write them keep them exact.
const MOST_IN_SHARD: usize = 10_000;

/// The newest posts of an author that are looked at.
const MOST_POSTS: usize = 1_000;

/// The most reactions of one shard that are looked for in the lists of their users.
const MOST_LISTED: usize = 1_000;

/// The live posts of an author whose texts are read. A text may have 64 KiB, that is 16 read units.
const MOST_TEXTS: usize = 50;

/// Entries of a list that are read beyond the number of cached ones.
const MARGIN: usize = 50;

impl Reconcile {
    /// Loads all facts of one user: counts first, then the items that they count. The other side of an edge costs a
    /// read unit of its own. It is loaded if one of the two users is in the sample, and if the count differs from the
    /// list. The others count as right.
    async fn user_facts(&self, user: UserId, share: f64) -> Result<UserFacts, ReconcileError> {
        let audit = &self.facts;
        let (own, shards) = ([user], || 0..SHARDS);
        let (counts, mut heads) = futures::try_join!(audit.counts(user), audit.stored_heads(&own))?;
        let (mut following, posts, reads, followers, mut reactions, likes, favorites, handle) = futures::try_join!(
            audit.edges_of(user),
            audit.newest_posts(user, MOST_POSTS),
            audit.stored_reads(user),
            try_join_all(shards().map(|shard| audit.listed_followers(user, shard, MOST_IN_SHARD))),
            try_join_all(shards().map(|shard| audit.reactions_in(user, shard, MOST_IN_SHARD))),
            audit.reacted_by(user, Reaction::Like, MOST_POSTS),
            audit.reacted_by(user, Reaction::Favorite, MOST_POSTS),
            audit.handle_of(user),
        )?;
        let blocked = following.found.iter().filter(|edge| edge.blocked.is_some()).map(|edge| (user, edge.author));
        let flagged = reactions.iter().flatten().flat_map(|shard| shard.found.flagged.iter().copied());
        let mut blocks: Vec<(UserId, UserId)> = blocked.chain(flagged).collect::<BTreeSet<_>>().into_iter().collect();
        self.only_todays(&mut blocks, MOST_LISTED);
        following.found.retain(|edge| edge.following);
        let followed: Vec<UserId> = following.found.iter().map(|edge| edge.author).collect();
        let day = self.app.stores.clock.now().ms() / DAY;
        let is_due = |user: UserId| in_sample(user, share, day);
        let compared = if is_due(user) { followed.as_slice() } else { &[] };
        let (mut due, mut others) = (Vec::new(), Vec::new());
        for (shard, count) in followers.iter().zip(&counts.followers) {
            let Some(shard) = shard else { continue };
            let all = is_due(user) || count.count != Some(shard.found.len() as u64);
            for Relation { user: follower, .. } in &shard.found {
                if all || is_due(*follower) { due.push(*follower) } else { others.push(*follower) }
            }
        }
        let read: Vec<UserId> = reads.found.keys().copied().collect();
        let (tombstones, live_posts): (Vec<&Post>, Vec<&Post>) =
            posts.found.iter().map(|stored| &stored.post).partition(|post| post.deleted);
        let tombstones: Vec<PostId> = tombstones.into_iter().map(|post| post.id).collect();
        let mut with_text: Vec<PostId> = live_posts.into_iter().map(|post| post.id).collect();
        self.only_todays(&mut with_text, MOST_TEXTS);
        let (listed, mut live, read_heads, bodies, texts, blocks) = futures::try_join!(
            audit.listed_by(user, compared),
            audit.live_followers(user, &due),
            audit.stored_heads(&read),
            audit.bodies(&tombstones),
            self.app.stores.posts.with_texts(&with_text),
            audit.blocks(&blocks),
        )?;
        let unsure: HashSet<UserId> = live.damaged.iter().map(|(follower, _)| *follower).collect();
        for shard in reactions.iter_mut().flatten() {
            shard.found.unlisted = self.unlisted(shard.found.entries(user)).await?;
        }
        let mut damaged =
            texts.values().filter(|(_, text)| text.is_none()).map(|(post, _)| damaged_text(post.id)).collect::<BTreeSet<_>>();
        let mut reacted: Vec<ListedReaction> =
            [likes, favorites].into_iter().flat_map(|list| readable(list, &mut damaged)).collect();
        let authors: Vec<UserId> = reacted.iter().map(|entry| entry.post.author).collect();
        let given = audit.given_to(user, &authors).await?;
        reacted.retain(|entry| given.damaged.iter().all(|(author, _)| *author != entry.post.author));
        let followers = followers.into_iter().map(|shard| listed_shard(shard, &unsure, &mut damaged)).collect();
        let reactions = reactions.into_iter().map(|shard| whole_shard(shard?, &mut damaged)).collect();
        live.found.extend(others);
        let mut unlisted: Vec<UserId> = listed.damaged.iter().map(|(author, _)| *author).collect();
        unlisted.extend(followed.iter().filter(|_| compared.is_empty()));
        let mut listed: HashMap<UserId, Option<Timestamp>> =
            readable(listed, &mut damaged).into_iter().map(|(author, since)| (author, Some(since))).collect();
        listed.extend(unlisted.into_iter().map(|author| (author, None)));
        let mut read_heads = readable(read_heads, &mut damaged);
        let reads = readable(reads, &mut damaged).into_iter();
        let head = heads.found.remove(&user);
        readable(heads, &mut damaged);
        Ok(UserFacts {
            user,
            following_whole: following.damaged.is_empty(),
            following: readable(following, &mut damaged),
            followings: counts.followings,
            listed,
            followers,
            live_followers: readable(live, &mut damaged),
            follower_counts: counts.followers,
            head,
            posts: readable(posts, &mut damaged),
            bodies,
            reads: reads.filter_map(|(author, reads)| Some((author, reads, read_heads.remove(&author)?.head))).collect(),
            reactions,
            reacted,
            given: readable(given, &mut damaged),
            blocks,
            handle: readable(handle, &mut damaged).pop(),
            damaged,
        })
    }

    /// Those of these reactions, as many as are looked at today, that the users' lists lack.
    async fn unlisted(&self, mut entries: Vec<(ListedReaction, u32)>) -> Result<Vec<(ListedReaction, u32)>, ReconcileError> {
        self.only_todays(&mut entries, MOST_LISTED);
        let wanted: Vec<ListedReaction> = entries.iter().map(|(entry, _)| *entry).collect();
        let listed = self.facts.listed_reactions(&wanted).await?;
        entries.retain(|(entry, _)| !listed.contains(entry));
        Ok(entries)
    }

    /// Leaves the entries that are looked at today, at most `most`. Every day these are others, until all were.
    fn only_todays<T>(&self, entries: &mut Vec<T>, most: usize) {
        if !entries.is_empty() {
            let day = (self.app.stores.clock.now().seconds() / (24 * 3600)) as usize;
            let first = day.wrapping_mul(most) % entries.len();
            entries.rotate_left(first);
            entries.truncate(most);
        }
    }

    /// Loads both sides of a target. Compares them, unless they are facts of a user.
    pub(super) async fn load(&self, target: &Target, share: f64) -> Result<Loaded, ReconcileError> {
        let now = self.app.stores.clock.now();
        let board = &self.app.stores.notices;
        let found = match *target {
            Target::Facts(user) => return Ok(Loaded::Facts(Box::new(self.user_facts(user, share).await?))),
            Target::Record(ref key) => {
                let record = self.facts.record(key).await?;
                record.and_then(|record| facts::of_record(&record, now)).into_iter().collect()
            }
            Target::Tombstone(user, author) => {
                let edge = self.app.stores.edges.edges(user, &[author]).await?.remove(&author);
                edge.and_then(|edge| facts::of_tombstone(&edge, now)).into_iter().collect()
            }
            Target::Views(user) => self.views_of(user).await?,
            Target::Post(post) => {
                let ids = [post];
                let (stored, right) = futures::try_join!(self.views.of_post(post), self.facts.stored_posts(&ids))?;
                let right = right.whole()?;
                let mut found: Vec<Difference> = of_keys(&stored.keys).collect();
                found.extend(views::of_summary(post, &stored.summary, right.get(&post)));
                if stored.text != Stored::Absent {
                    match self.app.stores.posts.with_texts(&ids).await?.remove(&post) {
                        Some((_, None)) => found.push(damaged_text(post).into()),
                        right => {
                            let right = right.and_then(|(post, text)| Some((post, text?)));
                            found.extend(views::of_text(post, &stored.text, right.as_ref()));
                        }
                    }
                }
                if stored.counts != Stored::Absent {
                    found.extend(views::of_counts(post, &stored.counts, &self.app.stores.reactions.counts(post).await?));
                }
                found
            }
            Target::Marks(user, author) => {
                let (StoredView { keys, record }, right) =
                    futures::try_join!(self.views.of_marks(user, author), self.app.readers.exact_marks(user, author))?;
                of_keys(&keys).chain(views::of_marks(user, author, &record, &right)).collect()
            }
            Target::Platform(platform) => {
                let Decoded { found, damaged } = self.facts.stored_notices(platform).await?;
                let differences = notices::of_platform(platform, &board.head(platform).await?, &found, now);
                let damaged: BTreeSet<DamagedItem> = damaged.into_iter().map(|(_, item)| item).collect();
                differences.into_iter().chain(damaged.into_iter().map(Difference::from)).collect()
            }
            Target::NoticeReads(user, platform) => {
                let (head, reads) = board.state(platform, user).await?;
                let counted = self.facts.counted_slots(user, platform, &notices::above(&head, &reads)).await?;
                notices::of_reads(user, platform, &head, &reads, &counted)
            }
            Target::PlatformView(platform) => {
                let StoredView { keys, record } = self.views.of_platform(platform).await?;
                of_keys(&keys).chain(notices::of_head(platform, &record, &board.head(platform).await?)).collect()
            }
            Target::NoticeReadsView(user, platform) => {
                let StoredView { keys, record } = self.views.of_notice_reads(user, platform).await?;
                let (head, right) = board.state(platform, user).await?;
                of_keys(&keys).chain(notices::of_slots(user, platform, &record, &head, &right)).collect()
            }
            Target::Title(notice, revision) => {
                let StoredView { keys, record } = self.views.of_title(notice, revision).await?;
                let ids = [notice];
                let (head, right) = futures::try_join!(board.head(notice.platform), board.notices(&ids))?;
                of_keys(&keys).chain(notices::of_title(notice, revision, &record, &head, right.get(&notice))).collect()
            }
            Target::Astray(ref key) => self.views.exists(key).await?.then(|| views::astray(key)).into_iter().collect(),
        };
        Ok(Loaded::Compared(found))
    }

    /// Compares all that Redis has of a user.
    async fn views_of(&self, user: UserId) -> Result<Vec<Difference>, ReconcileError> {
        let stored = self.views.of_user(user).await?;
        let mut found: Vec<Difference> = of_keys(&stored.keys).collect();
        let of_wrong_type = |view: View| stored.keys.iter().any(|key| key.view == view && !key.right_type);
        if !of_wrong_type(View::Reader(user)) {
            found.extend(self.reader_differences(user, &stored.reader).await?);
        }
        for (list, cached) in [(List::Following(user), &stored.following), (List::Fans(user), &stored.fans)] {
            found.extend(self.list_differences(list, cached).await?);
        }
        found.extend(self.small_differences(user, &stored).await?);
        Ok(found)
    }

    async fn reader_differences(&self, user: UserId, stored: &StoredReader) -> Result<Vec<Difference>, ReconcileError> {
        let now = self.app.stores.clock.now();
        // Differences that need no facts come first. Without a complete view there is nothing to compare with facts.
        if stored.state.present().is_none_or(|state| state.meta.building) {
            return Ok(reader::differences(user, stored, &ReaderFacts::default(), now));
        }
        let (pairs, entries, low) = self.app.readers.implied_view(user).await?;
        let authors: HashMap<UserId, Followed> = pairs
            .into_iter()
            .filter_map(|pair| Some((pair.edge?, pair.head, pair.reads)))
            .map(|(edge, head, reads)| (edge.author, Followed { edge, head, reads }))
            .collect();
        let ranks = entries.iter().map(|(key, rank)| (key.post, *rank)).collect();
        let entries = entries.into_iter().map(|(key, _)| key).collect();
        let mut facts = ReaderFacts { authors, entries, ranks, low, posts: HashMap::new() };
        let unsure = reader::undecided(user, stored, &facts, now);
        facts.posts = self.facts.stored_posts(&unsure).await?.whole()?;
        Ok(reader::differences(user, stored, &facts, now))
    }

    async fn list_differences(&self, list: List, stored: &Stored<StoredList>) -> Result<Vec<Difference>, ReconcileError> {
        let limit = match (stored, list) {
            (Stored::Present(_), List::Following(_)) => usize::MAX,
            (Stored::Present(cached), List::Fans(_)) => cached.members.len() + MARGIN,
            _ => 0,
        };
        let relations = if limit == 0 { Vec::new() } else { self.app.relations.newest(list, limit).await? };
        Ok(views::of_list(list, stored, &relations, relations.len() < limit))
    }

    /// Compares counters, head, card and reactions.
    async fn small_differences(&self, user: UserId, stored: &StoredUser) -> Result<Vec<Difference>, ReconcileError> {
        let mut found = Vec::new();
        if stored.counters != Stored::Absent {
            let right = self.app.relations.exact_counters(user).await?;
            found.extend(views::of_counters(user, &stored.counters, right));
        }
        if stored.head != Stored::Absent {
            let right = self.app.stores.posts.heads(&[user]).await?.remove(&user).unwrap_or_default();
            found.extend(views::of_head(user, &stored.head, &right));
        }
        if stored.card != Stored::Absent {
            let right = CardVersion::of(self.app.people.profile(user).await?);
            found.extend(views::of_card(user, &stored.card, &right));
        }
        let authors: BTreeSet<UserId> = stored.reactions.present().into_iter().flat_map(|of| of.keys().copied()).collect();
        let authors: Vec<UserId> = authors.into_iter().collect();
        let right = if authors.is_empty() { HashMap::new() } else { self.app.stores.reactions.reactions(user, &authors).await? };
        found.extend(views::of_reactions(user, &stored.reactions, &right));
        Ok(found)
    }
}

/// The item of a text that cannot be read or is of another revision than its post.
fn damaged_text(post: PostId) -> DamagedItem {
    DamagedItem { table: BodyItem::TABLE, key: schema::key_text(BodyItem::TABLE, &schema::body(post)) }
}

/// Returns the items that can be read, and adds the others to `damaged`.
fn readable<T, K>(decoded: Decoded<T, K>, damaged: &mut BTreeSet<DamagedItem>) -> T {
    damaged.extend(decoded.damaged.into_iter().map(|(_, item)| item));
    decoded.found
}

/// The reactions of a shard, if all of them can be read.
fn whole_shard(shard: Decoded<ReactionShard>, damaged: &mut BTreeSet<DamagedItem>) -> Option<ReactionShard> {
    let whole = shard.damaged.is_empty();
    let found = readable(shard, damaged);
    whole.then_some(found)
}

/// A shard without the followers whose edges cannot be read.
fn listed_shard(
    shard: Option<Decoded<Vec<Relation>>>,
    unsure: &HashSet<UserId>,
    damaged: &mut BTreeSet<DamagedItem>,
) -> ListedShard {
    let Some(shard) = shard else { return ListedShard::default() };
    let whole = shard.damaged.is_empty() && shard.found.iter().all(|follower| !unsure.contains(&follower.user));
    let mut followers = readable(shard, damaged);
    followers.retain(|follower| !unsure.contains(&follower.user));
    ListedShard { followers, whole }
}

/// Checks the keys of a view.
fn of_keys(keys: &[StoredKey]) -> impl Iterator<Item = Difference> + '_ {
    keys.iter().filter_map(views::of_key)
}

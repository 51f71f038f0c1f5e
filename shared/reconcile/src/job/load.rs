//! Loads both sides of a subject into the same types.

use std::collections::{BTreeSet, HashMap};

use tidemark_domain::{Notice, NoticeId, Platform, PostId, Timestamp, UserId};
use tidemark_facts::{
    item::Stored as _,
    schema::{self, BodyItem},
};
use tidemark_views::{
    CardVersion, List,
    keys::{Owner, View},
};

use super::{Reconcile, ReconcileError, Target, walk::DAY};
use crate::{
    diff::{
        DamagedItem, Difference, Stored,
        facts::{self, UserFacts},
        notices, of_group,
        reader::{self, Followed, ReaderFacts, StoredReader},
        views::{self, MOST_FIELDS, StoredKey, StoredList, of_copy},
    },
    facts::Decoded,
    views::StoredView,
};

/// Both sides of a target.
pub(super) enum Loaded {
    /// They are compared together with the facts of other users.
    Facts(Box<UserFacts>),
    Compared(Vec<Difference>),
}

/// Entries of a list that are read beyond the number of cached ones.
const MARGIN: usize = 50;

impl Reconcile {
    /// Loads both sides of a target. Compares them, unless they are facts of a user.
    pub(super) async fn load(&self, target: &Target, share: f64) -> Result<Loaded, ReconcileError> {
        let now = self.app.stores.clock.now();
        let facts = &self.app.stores.facts;
        let found = match *target {
            Target::Facts(user) => return Ok(Loaded::Facts(Box::new(self.user_facts(user, share).await?))),
            Target::Record(ref key) => {
                let record = self.facts.record(key).await?;
                record.and_then(|record| facts::of_record(&record, now)).into_iter().collect()
            }
            Target::Tombstone(user, author) => {
                let edge = self.app.stores.facts.edges(user, &[author]).await?.remove(&author);
                edge.and_then(|edge| facts::of_tombstone(&edge, now)).into_iter().collect()
            }
            Target::Inbox(user) => {
                let wrong = self.app.inboxes.wrong_groups(user, now.ms() / DAY).await?;
                wrong.into_iter().map(|(group, version)| of_group(user, group, version)).collect()
            }
            Target::Erased(user) => facts::of_erased(user, self.app.leaving.left(user).await?).into_iter().collect(),
            Target::Views(Owner::User(user)) => self.views_of(user).await?,
            Target::Views(Owner::Post(post)) => self.post_differences(post).await?,
            Target::Views(Owner::Marks(user, author)) => {
                let ((keys, stored), right) =
                    futures::try_join!(self.views.of_marks(user, author), self.app.readers.exact_marks(user, author))?;
                of_keys(&keys).chain(of_copy(View::Marks(user, author), &stored, &right, right.version)).collect()
            }
            Target::Platform(platform) => self.platform_differences(platform, now).await?,
            Target::NoticeReads(user, platform) => {
                let (head, reads) = facts.notice_state(platform, user).await?;
                let counted = self.facts.counted_slots(user, platform, &notices::above(&head, &reads)).await?;
                notices::of_reads(user, platform, &head, &reads, &counted)
            }
            Target::Views(Owner::Platform(platform)) => {
                let (keys, stored) = self.views.of_platform(platform).await?;
                let right = facts.platform_head(platform).await?;
                of_keys(&keys).chain(of_copy(View::Platform(platform), &stored, &right, right.version)).collect()
            }
            Target::Views(Owner::NoticeReads(user, platform)) => {
                let (keys, stored) = self.views.of_notice_reads(user, platform).await?;
                let (head, right) = facts.notice_state(platform, user).await?;
                of_keys(&keys).chain(notices::of_slots(user, platform, &stored, &head, &right)).collect()
            }
            Target::Views(Owner::Title(notice, revision)) => {
                let (stored, view) = (self.views.of_title(notice, revision).await?, View::Title(notice, revision));
                self.content_differences((notice, revision), view, stored, notices::title_of).await?
            }
            Target::Views(Owner::NoticeBody(notice, revision)) => {
                let (stored, view) = (self.views.of_notice_body(notice, revision).await?, View::NoticeBody(notice, revision));
                self.content_differences((notice, revision), view, stored, notices::body_of).await?
            }
            Target::Views(Owner::Astray(ref key)) => {
                self.views.exists(key).await?.then(|| views::astray(key)).into_iter().collect()
            }
        };
        Ok(Loaded::Compared(found))
    }

    async fn platform_differences(&self, platform: Platform, now: Timestamp) -> Result<Vec<Difference>, ReconcileError> {
        let Decoded { found, damaged } = self.facts.stored_notices(platform).await?;
        let head = self.app.stores.facts.platform_head(platform).await?;
        let pending = self.facts.pending_edits_of(platform).await?.into_iter();
        let pending = pending.map(|revision| notices::of_pending(platform, revision));
        let damaged: BTreeSet<DamagedItem> = damaged.into_iter().map(|(_, item)| item).collect();
        let differences = notices::of_platform(platform, &head, &found, now).into_iter();
        Ok(differences.chain(pending).chain(damaged.into_iter().map(Difference::from)).collect())
    }

    /// Compares the title or the text of a notice in one revision.
    async fn content_differences<T: PartialEq>(
        &self,
        (notice, revision): (NoticeId, u64),
        view: View,
        (keys, stored): StoredView<T>,
        content: fn(&Notice) -> T,
    ) -> Result<Vec<Difference>, ReconcileError> {
        let (facts, ids) = (&self.app.stores.facts, [notice]);
        let (head, right) = futures::try_join!(facts.platform_head(notice.platform), facts.notices(&ids))?;
        let found = notices::of_content(view, (notice, revision), &stored, &head, right.get(&notice), content);
        Ok(of_keys(&keys).chain(found).collect())
    }

    async fn post_differences(&self, post: PostId) -> Result<Vec<Difference>, ReconcileError> {
        let ids = [post];
        let (stored, right) = futures::try_join!(self.views.of_post(post), self.facts.stored_posts(&ids))?;
        let right = right.whole()?;
        let mut found: Vec<Difference> = of_keys(&stored.keys).collect();
        found.extend(views::of_summary(post, &stored.summary, right.get(&post)));
        if stored.text != Stored::Absent {
            match self.app.stores.facts.posts_with_texts(&ids).await?.remove(&post) {
                Some((_, None)) => found.push(damaged_text(post).into()),
                right => {
                    let right = right.and_then(|(post, text)| Some((post, text?)));
                    found.extend(views::of_text(post, &stored.text, right.as_ref()));
                }
            }
        }
        if stored.counts != Stored::Absent {
            let right = self.app.stores.facts.reaction_counts(post).await?;
            found.extend(of_copy(View::Counts(post), &stored.counts, &right, right.version));
        }
        Ok(found)
    }

    async fn views_of(&self, user: UserId) -> Result<Vec<Difference>, ReconcileError> {
        let stored = self.views.of_user(user).await?;
        let mut found: Vec<Difference> = of_keys(&stored.keys).collect();
        if stored.keys.iter().all(|key| key.view != View::Reader(user) || key.right_type) {
            found.extend(self.reader_differences(user, &stored.reader).await?.into_iter().take(MOST_FIELDS));
        }
        for (list, cached) in [(List::Following(user), &stored.following), (List::Followers(user), &stored.followers)] {
            found.extend(self.list_differences(list, cached).await?);
        }
        if stored.counters != Stored::Absent {
            let right = self.app.relations.exact_counters(user).await?;
            found.extend(of_copy(View::Counters(user), &stored.counters, &right, format!("{right:?}")));
        }
        if stored.head != Stored::Absent {
            let right = self.app.stores.facts.head_of(user).await?;
            let versions = (right.latest_seq, right.deletions(), right.privacy);
            found.extend(of_copy(View::Head(user), &stored.head, &right.for_views(), versions));
        }
        if stored.card != Stored::Absent {
            let right = CardVersion::of(self.app.people.profile(user).await?);
            found.extend(of_copy(View::Card(user), &stored.card, &right, right.version));
        }
        let authors: Vec<UserId> = stored.reactions.present().into_iter().flat_map(HashMap::keys).copied().collect();
        let right = if authors.is_empty() { HashMap::new() } else { self.app.stores.facts.reactions(user, &authors).await? };
        found.extend(views::of_reactions(user, &stored.reactions, &right));
        Ok(found)
    }

    async fn reader_differences(&self, user: UserId, stored: &StoredReader) -> Result<BTreeSet<Difference>, ReconcileError> {
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
        let unsure = reader::posts_of(&reader::differences(user, stored, &facts, now));
        facts.posts = self.facts.stored_posts(&unsure).await?.whole()?;
        Ok(reader::differences(user, stored, &facts, now))
    }

    async fn list_differences(&self, list: List, stored: &Stored<StoredList>) -> Result<Vec<Difference>, ReconcileError> {
        let (view, most) = match list {
            List::Following(user) => (View::Following(user), usize::MAX),
            List::Followers(user) => (View::Followers(user), stored.present().map_or(0, |cached| cached.members.len()) + MARGIN),
        };
        let relations = if stored.present().is_some() { self.app.relations.newest(list, most).await? } else { Vec::new() };
        Ok(views::of_list(&view, stored, &relations, relations.len() < most))
    }
}

/// The item of a text that cannot be read or is of another revision than its post.
pub(super) fn damaged_text(post: PostId) -> DamagedItem {
    DamagedItem { table: BodyItem::TABLE, key: schema::key_text(BodyItem::TABLE, &schema::body(post)) }
}

fn of_keys(keys: &[StoredKey]) -> impl Iterator<Item = Difference> + '_ {
    keys.iter().filter_map(views::of_key)
}

//! A walk over all users, in steps. A run continues where an earlier run stopped. First come the users with keys in
//! Redis: readers of the last 60 hours, and authors of posts that were shown to them. Then come a sample of all edges,
//! authors whom the lists of followers alone name, the inboxes of the same users, all idempotency records, and a sample
//! of the users who were erased. [`Segment`]s of a walk run in parallel, each with its own position.

use std::{collections::BTreeSet, fmt, str::FromStr};

use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use tidemark_app::OutOfTime;
use tidemark_domain::{NoticeId, StoreError, UserId, ids::BUCKETS};
use tidemark_views::keys::Owner;

use super::{Plan, Reconcile, ReconcileError, Report, Target};
use crate::diff::facts;

/// The name of the stored position of the walk over users.
const USERS: &str = "users";

/// The name of the stored position of the walk over the flags of rebuilds.
const MARKS: &str = "marks";

const MOST_SEGMENTS: u32 = 32;

/// Milliseconds of a day. Each day has another sample.
pub(super) const DAY: u64 = 24 * 3600 * 1000;

/// A part of the users: number `number` of `of` parts. Its text is `3/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Segment {
    pub(crate) number: u32,
    pub(crate) of: u32,
}

impl Segment {
    /// The only segment of a walk that is not divided.
    pub const WHOLE: Self = Self { number: 0, of: 1 };

    pub fn all(of: u32) -> impl Iterator<Item = Self> {
        (0..of).map(move |number| Self { number, of })
    }

    pub fn name(self) -> String {
        if self == Self::WHOLE { USERS.to_owned() } else { format!("{USERS} {}", String::from(self)) }
    }

    fn has(self, owner: &Owner) -> bool {
        let key = match owner {
            Owner::User(user) | Owner::NoticeReads(user, _) | Owner::Marks(user, _) => u64::from(user.bucket()),
            Owner::Post(post) => u64::from(post.author.bucket()),
            Owner::Platform(platform) => platform.get().into(),
            Owner::Title(notice, _) | Owner::NoticeBody(notice, _) => notice.platform.get().into(),
            Owner::Astray(_) => 0,
        };
        key % u64::from(self.of) == u64::from(self.number)
    }
}

impl From<Segment> for String {
    fn from(segment: Segment) -> Self {
        format!("{}/{}", segment.number, segment.of)
    }
}

impl TryFrom<String> for Segment {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let segment =
            text.split_once('/').and_then(|(number, of)| Some(Self { number: number.parse().ok()?, of: of.parse().ok()? }));
        let valid = |segment: &Self| segment.number < segment.of && segment.of <= MOST_SEGMENTS;
        segment.filter(valid).ok_or("not a segment, such as 0/4 to 3/4")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Position {
    /// Among the keys of Redis, at this cursor.
    Keys(u64),
    /// Among the edges, after this one.
    Edges(Option<(String, String)>),
    /// Among the lists of followers and requests, after this entry.
    Lists(Option<(String, String)>),
    /// Among the inboxes of the users of edges, after this one. All facts are repaired before.
    Inboxes(Option<(String, String)>),
    /// Among the inboxes of the users with keys in Redis, who may have no edges, at this cursor.
    InboxKeys(u64),
    /// Among the idempotency records, after this one.
    Records(Option<String>),
    /// Among the receipts of erasures, after this item.
    Erased(Option<String>),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keys(cursor) => write!(f, "keys {cursor}"),
            Self::Edges(None) => f.write_str("edges"),
            Self::Edges(Some((user, author))) => write!(f, "edges {user} {author}"),
            Self::Lists(None) => f.write_str("lists"),
            Self::Lists(Some((shard, follower))) => write!(f, "lists {shard} {follower}"),
            Self::Inboxes(None) => f.write_str("inboxes"),
            Self::Inboxes(Some((user, author))) => write!(f, "inboxes {user} {author}"),
            Self::InboxKeys(cursor) => write!(f, "inbox-keys {cursor}"),
            Self::Records(None) => f.write_str("records"),
            Self::Records(Some(key)) => write!(f, "records {key}"),
            Self::Erased(None) => f.write_str("erased"),
            Self::Erased(Some(key)) => write!(f, "erased {key}"),
        }
    }
}

impl FromStr for Position {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, after) = text.split_once(' ').map_or((text, None), |(kind, after)| (kind, Some(after)));
        // The numbers as they are stored, because the edge may be damaged.
        let number = |text: &str| text.parse::<f64>().is_ok().then(|| text.to_owned());
        let pair = |(user, author)| Some((number(user)?, number(author)?));
        let position = match (kind, after) {
            ("keys", Some(cursor)) => cursor.parse().ok().map(Self::Keys),
            ("edges", None) => Some(Self::Edges(None)),
            ("edges", Some(edge)) => edge.split_once(' ').and_then(pair).map(|edge| Self::Edges(Some(edge))),
            ("lists", None) => Some(Self::Lists(None)),
            ("lists", Some(entry)) => {
                let entry = entry.split_once(' ').map(|(shard, follower)| (shard.to_owned(), follower.to_owned()));
                entry.map(|entry| Self::Lists(Some(entry)))
            }
            ("inboxes", None) => Some(Self::Inboxes(None)),
            ("inboxes", Some(edge)) => edge.split_once(' ').and_then(pair).map(|edge| Self::Inboxes(Some(edge))),
            ("inbox-keys", Some(cursor)) => cursor.parse().ok().map(Self::InboxKeys),
            ("records", key) => Some(Self::Records(key.map(str::to_owned))),
            ("erased", key) => Some(Self::Erased(key.map(str::to_owned))),
            _ => None,
        };
        position.ok_or("not a position of a walk")
    }
}

impl Reconcile {
    /// Begins the walk of each of these segments, unless it is in progress. Each minute continues them.
    pub async fn begin(&self, segments: impl Iterator<Item = Segment>, plan: &Plan) -> Result<(), ReconcileError> {
        let first = noted(&Position::Keys(0), plan.share);
        let begin = async |segment: Segment| self.facts.note_walk(&segment.name(), None, Some(&first)).await;
        try_join_all(segments.map(begin)).await?;
        Ok(())
    }

    /// The segments among these whose walk is in progress.
    pub async fn in_progress(&self, segments: impl Iterator<Item = Segment>) -> Result<Vec<Segment>, ReconcileError> {
        let noted = segments.map(async |segment| {
            let position = self.facts.walk(&segment.name()).await?;
            Ok::<_, StoreError>(position.map(|_| segment))
        });
        Ok(try_join_all(noted).await?.into_iter().flatten().collect())
    }

    /// Continues the walk of the plan's segment where the last run stopped, or begins one, until it is done or time is
    /// up. With `only_continue` it does nothing if no walk is in progress. A walk keeps its share, or gets a larger
    /// one. A dry run does not store its position: it begins at `from`. If a step has more readers with wrong views
    /// than may be forgotten, the run ends, and the next one repeats the step.
    ///
    /// # Errors
    /// A store is unavailable, or another run has moved the walk. The walk continues from its last step.
    pub async fn walk(
        &self,
        plan: &Plan,
        from: Option<Position>,
        only_continue: bool,
        out_of_time: OutOfTime<'_>,
    ) -> Result<Option<Report>, ReconcileError> {
        let (mut report, name) = (Report::new(plan.dry_run), plan.segment.name());
        let mut stored = if plan.dry_run { None } else { self.facts.walk(&name).await? };
        if only_continue && stored.is_none() {
            return Ok(None);
        }
        // A position that this version cannot parse begins a new walk.
        let (position, share) = stored.as_deref().and_then(parsed).unwrap_or((Position::Keys(0), 0.0));
        let (mut position, plan) = (from.unwrap_or(position), &Plan { share: plan.share.max(share), ..*plan });
        // The keys of one user may be in several steps.
        let mut looked_at = BTreeSet::new();
        loop {
            let next = self.step(&position, plan, &mut looked_at, &mut report).await?;
            let next = if report.is_postponed { Some(position.clone()) } else { next };
            if !plan.dry_run {
                let text = next.as_ref().map(|next| noted(next, plan.share));
                if !self.facts.note_walk(&name, stored.as_deref(), text.as_deref()).await? {
                    return Err(ReconcileError::Overtaken);
                }
                stored = text;
            }
            report.next = next.as_ref().map(Position::to_string);
            match next {
                Some(next) if !report.is_postponed && !out_of_time() => position = next,
                _ => break,
            }
        }
        report.emit(&self.app.stores.recorder, USERS);
        Ok(Some(report))
    }

    /// One step, without the targets in `looked_at`. Returns where the next step begins.
    async fn step(
        &self,
        position: &Position,
        plan: &Plan,
        looked_at: &mut BTreeSet<Target>,
        report: &mut Report,
    ) -> Result<Option<Position>, ReconcileError> {
        let day = self.app.stores.clock.now().ms() / DAY;
        let mut news = |mut targets: Vec<Target>| {
            targets.retain(|target| looked_at.insert(target.clone()));
            targets
        };
        match position {
            Position::Keys(cursor) => {
                let (owners, next) = self.owners(*cursor, plan).await?;
                let (facts, views) = targets_of(owners, plan, day);
                self.reconcile(news(facts), news(views), plan, report).await;
                Ok(Some(if next == 0 { Position::Edges(None) } else { Position::Keys(next) }))
            }
            Position::Edges(after) => {
                let (edges, next) = self.facts.some_edges(after.clone(), plan.slice, plan.segment).await?;
                report.found(edges.damaged.into_iter().map(|(_, item)| item.into()));
                let now = self.app.stores.clock.now();
                let sampled = |user: &UserId| in_sample(*user, plan.share, day);
                let mut targets: BTreeSet<Target> =
                    edges.found.iter().flat_map(|edge| [edge.user, edge.author]).filter(sampled).map(Target::Facts).collect();
                let expired = edges.found.iter().filter(|edge| facts::of_tombstone(edge, now).is_some());
                targets.extend(expired.map(|edge| Target::Tombstone(edge.user, edge.author)));
                self.reconcile(news(targets.into_iter().collect()), Vec::new(), plan, report).await;
                Ok(Some(next.map_or(Position::Lists(None), |next| Position::Edges(Some(next)))))
            }
            Position::Lists(after) => {
                let sampled = |user| in_sample(user, plan.share, day);
                let (authors, next) = self.facts.some_authors(after.clone(), plan.slice, plan.segment, sampled).await?;
                self.reconcile(news(authors.into_iter().map(Target::Facts).collect()), Vec::new(), plan, report).await;
                Ok(Some(next.map_or(Position::Inboxes(None), |next| Position::Lists(Some(next)))))
            }
            Position::Inboxes(after) => {
                let (edges, next) = self.facts.some_edges(after.clone(), plan.slice, plan.segment).await?;
                let sampled = |user: &UserId| in_sample(*user, plan.share, day);
                let users: BTreeSet<UserId> =
                    edges.found.iter().flat_map(|edge| [edge.user, edge.author]).filter(sampled).collect();
                self.inboxes(news(users.into_iter().map(Target::Inbox).collect()), plan, report).await;
                Ok(Some(next.map_or(Position::InboxKeys(0), |next| Position::Inboxes(Some(next)))))
            }
            Position::InboxKeys(cursor) => {
                let (owners, next) = self.owners(*cursor, plan).await?;
                let users: BTreeSet<UserId> = owners.into_iter().filter_map(person).collect();
                let users = users.into_iter().filter(|user| in_sample(*user, plan.share, day));
                self.inboxes(news(users.map(Target::Inbox).collect()), plan, report).await;
                Ok(Some(if next == 0 { Position::Records(None) } else { Position::InboxKeys(next) }))
            }
            Position::Records(after) => {
                let (records, next) = self.facts.some_records(after.as_deref(), plan.slice, plan.segment).await?;
                self.reconcile(records.into_iter().map(Target::Record).collect(), Vec::new(), plan, report).await;
                Ok(Some(next.map_or(Position::Erased(None), |next| Position::Records(Some(next)))))
            }
            Position::Erased(after) => {
                let (receipts, next) = self.facts.some_erased(after.as_deref(), plan.slice, plan.segment).await?;
                let is_due = |user: UserId, ended| in_sample(user, plan.share, day) || self.app.leaving.is_recent(ended);
                let due = receipts.into_iter().filter(|(user, ended)| is_due(*user, *ended));
                self.reconcile(news(due.map(|(user, _)| Target::Erased(user)).collect()), Vec::new(), plan, report).await;
                Ok(next.map(|next| Position::Erased(Some(next))))
            }
        }
    }

    /// The owners of some keys of the plan's segment from a cursor on, and the next cursor, 0 at the end.
    async fn owners(&self, cursor: u64, plan: &Plan) -> Result<(BTreeSet<Owner>, u64), ReconcileError> {
        let (mut owners, mut next) = (BTreeSet::new(), cursor);
        // Each segment scans all keys. That costs Redis little: the facts of their owners are what takes time.
        for _ in 0..plan.segment.of {
            let (found, after) = self.views.owners(next, plan.slice).await?;
            owners.extend(found.into_iter().filter(|owner| plan.segment.has(owner)));
            next = after;
            if next == 0 {
                break;
            }
        }
        Ok((owners, next))
    }

    /// Looks at inboxes. Groups are derived from facts, which a dry run has left wrong: if it has found a difference,
    /// it does not look.
    async fn inboxes(&self, inboxes: Vec<Target>, plan: &Plan, report: &mut Report) {
        if !plan.dry_run || report.found.is_empty() {
            self.reconcile(Vec::new(), inboxes, plan, report).await;
        }
    }

    /// Deletes the views among the keys of Redis, from a position on, until all are looked at or time is up. Their
    /// number is `looked_at` of the report. A view that is made meanwhile may stay.
    ///
    /// # Errors
    /// Redis is unavailable. The views before are deleted.
    pub async fn forget(
        &self,
        plan: &Plan,
        from: Option<&Position>,
        out_of_time: OutOfTime<'_>,
    ) -> Result<Report, ReconcileError> {
        let mut report = Report::new(plan.dry_run);
        let mut cursor = if let Some(Position::Keys(cursor)) = from { *cursor } else { 0 };
        loop {
            let (views, next) = self.views.names(cursor, plan.slice).await?;
            if !plan.dry_run {
                self.views.forget(&views).await?;
            }
            report.looked_at += views.len() as u64;
            cursor = next;
            if next == 0 || out_of_time() {
                break;
            }
        }
        report.next = (cursor != 0).then(|| Position::Keys(cursor).to_string());
        Ok(report)
    }

    /// Looks for abandoned rebuilds among a part of the readers, in one step. The next run looks at the next part. A
    /// reader who returns in the meantime takes over their own rebuild, so no reader waits for this job.
    pub async fn marks(&self, plan: &Plan) -> Result<Report, ReconcileError> {
        let mut report = Report::new(plan.dry_run);
        let noted = self.facts.walk(MARKS).await?;
        let cursor = noted.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
        let (users, next) = self.views.abandoned(cursor, plan.slice, self.app.stores.clock.now()).await?;
        self.reconcile(Vec::new(), users.into_iter().map(|user| Target::Views(Owner::User(user))).collect(), plan, &mut report)
            .await;
        report.next = (next != 0).then(|| next.to_string());
        if !plan.dry_run && report.next != noted {
            // If another run was faster, it has looked at the same readers.
            self.facts.note_walk(MARKS, noted.as_deref(), report.next.as_deref()).await?;
        }
        report.emit(&self.app.stores.recorder, MARKS);
        Ok(report)
    }
}

/// The text of a stored position: `0.05@keys 7`.
fn noted(position: &Position, share: f64) -> String {
    format!("{share}@{position}")
}

/// The position and the share in a stored text.
fn parsed(text: &str) -> Option<(Position, f64)> {
    let (share, position) = text.split_once('@')?;
    Some((position.parse().ok()?, share.parse().ok()?))
}

/// Whether a user is in the sample of a day. The sample moves over the buckets, so that it reaches every user.
pub(super) fn in_sample(user: UserId, share: f64, day: u64) -> bool {
    let buckets = f64::from(BUCKETS);
    let (size, first) = ((share * buckets).ceil(), (day as f64 * share * buckets) % buckets);
    let offset = (f64::from(user.bucket()) - first.floor()).rem_euclid(buckets);
    offset < size
}

/// The user of a key: its reader, or the author of its post.
fn person(owner: Owner) -> Option<UserId> {
    match owner {
        Owner::User(user) | Owner::Marks(user, _) | Owner::NoticeReads(user, _) => Some(user),
        Owner::Post(post) => Some(post.author),
        Owner::Platform(_) | Owner::Title(..) | Owner::NoticeBody(..) | Owner::Astray(_) => None,
    }
}

/// The targets of these owners of keys: facts, and the views in the sample of the day.
fn targets_of(owners: BTreeSet<Owner>, plan: &Plan, day: u64) -> (Vec<Target>, Vec<Target>) {
    let (mut facts, mut views) = (BTreeSet::new(), Vec::new());
    for owner in owners {
        let (compared, sampled) = match owner {
            Owner::User(user) | Owner::Marks(user, _) => (Some(Target::Facts(user)), Some(user)),
            Owner::Post(post) => (Some(Target::Facts(post.author)), Some(post.author)),
            Owner::NoticeReads(user, platform) => {
                facts.insert(Target::NoticeReads(user, platform));
                (Some(Target::Platform(platform)), Some(user))
            }
            Owner::Platform(platform)
            | Owner::Title(NoticeId { platform, .. }, _)
            | Owner::NoticeBody(NoticeId { platform, .. }, _) => (Some(Target::Platform(platform)), None),
            Owner::Astray(_) => (None, None),
        };
        facts.extend(compared);
        if sampled.is_none_or(|user| in_sample(user, plan.share, day)) {
            views.push(Target::Views(owner));
        }
    }
    (facts.into_iter().collect(), views)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::SHARE;

    #[test]
    fn positions_are_parsed_back_from_their_text() {
        for text in [
            "keys 0",
            "keys 18446744073709551615",
            "edges",
            "edges 1 2",
            "lists",
            "lists 7#03 00000000000000000001",
            "records",
            "records 7#publish#a b",
            "erased",
            "erased a#b c",
        ] {
            assert_eq!(text.parse::<Position>().unwrap().to_string(), text);
        }
        for bad in ["", "keys", "keys x", "edges 1", "edges 1 x", "lists 7#03", "other 1"] {
            assert!(bad.parse::<Position>().is_err(), "{bad}");
        }
        let position = Position::Records(Some("0.5@7#publish#a".to_owned()));
        for share in [SHARE, 1.0, 0.0] {
            assert_eq!(parsed(&noted(&position, share)), Some((position.clone(), share)));
        }
    }

    #[test]
    fn the_samples_reach_every_user() {
        let users: Vec<UserId> = (1..=5_000).filter_map(UserId::new).collect();
        for share in [0.05, 0.3, 1.0] {
            let days = f64::ceil(1.0 / share) as u64;
            let turns = |user: &UserId| (1_000..1_000 + days).filter(|&day| in_sample(*user, share, day)).count();
            assert!(users.iter().all(|user| turns(user) > 0), "{share}");
            let a_day = users.iter().filter(|user| in_sample(**user, share, 1_000)).count() as f64;
            assert!((a_day / 5_000.0 - share).abs() < 0.03, "{share}: {a_day}");
        }
        assert!(users.iter().all(|user| !in_sample(*user, 0.0, 7)));
    }
}

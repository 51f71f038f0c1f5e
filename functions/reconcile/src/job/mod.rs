//! The repair job. It loads both sides into the same types ([`load`]), compares them with pure functions
//! ([`crate::diff`]), and applies the remedy of each difference ([`repair`]).
//!
//! A difference counts if a second look, after a while, finds exactly the same: changes in flight do not count as
//! differences. A repair counts if a third look does not find the difference any more. Facts come before views, so that
//! views are compared with, and made from, facts that agree with each other.

mod flow;
mod load;
mod repair;
mod report;
mod walk;

use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tidemark_app::ports::StoreError;

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use tracing::warn;

pub use flow::FlowPlan;
pub use report::Report;
pub use walk::{ParsePositionError, Position};

use crate::{
    diff::{
        DamagedItem, Difference, FactDifference,
        facts::{self, UserFacts},
    },
    facts::StoredFacts,
    views::StoredViews,
};
use tidemark::App;
use tidemark_app::{
    fan_out::FanOuts,
    notices::NoticeBoard,
    ports::{Failures, Metrics},
    reader::Readers,
    relations::Relations,
};
use tidemark_domain::{NoticeId, Platform, PostId, UserId};
use tidemark_views::keys::Owner;

/// A look or a repair failed.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("another run has moved the walk meanwhile")]
    Overtaken,
}

/// The settings of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Lists differences and repairs nothing.
    pub dry_run: bool,
    /// The share of users, 0 to 1, whose views are compared. Of the users without views, the same share has its facts
    /// compared.
    pub share: f64,
    /// How long a difference must last.
    pub settle: Duration,
    /// Keys or items in one step of a walk.
    pub slice: usize,
}

#[derive(Clone)]
pub struct Reconcile {
    pub facts: StoredFacts,
    pub views: StoredViews,
    /// Computes readers' views from facts, and repairs them.
    pub readers: Readers,
    /// The same for lists and counters.
    pub relations: Relations,
    /// The same for notices.
    pub notices: NoticeBoard,
    /// The same for fan-outs.
    pub fan_outs: FanOuts,
    /// Counts the stream records that the projector gave up.
    pub failures: Arc<dyn Failures>,
    pub metrics: Arc<dyn Metrics>,
    /// Waits between two looks.
    pub wait: fn(Duration) -> BoxFuture<'static, ()>,
}

impl Reconcile {
    pub fn new(app: &App) -> Self {
        Self {
            facts: StoredFacts(app.facts.clone()),
            views: StoredViews(app.redis.clone()),
            readers: app.readers.clone(),
            relations: app.relations.clone(),
            notices: app.notices.clone(),
            fan_outs: app.fan_outs.clone(),
            failures: app.failures.clone(),
            metrics: app.metrics.clone(),
            wait: |time| tokio::time::sleep(time).boxed(),
        }
    }
}

/// The unit of a look.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    /// A user's facts, compared with each other.
    Facts(UserId),
    /// An idempotency record, by its key.
    Record(String),
    /// The tombstone of an unfollow.
    Tombstone(UserId, UserId),
    /// All that Redis has of a user.
    Views(UserId),
    /// All that Redis has of a post.
    Post(PostId),
    /// A platform's head and its notices.
    Platform(Platform),
    /// A user's read state on a platform.
    NoticeReads(UserId, Platform),
    PlatformView(Platform),
    NoticeReadsView(UserId, Platform),
    /// The title of a notice in a revision.
    Title(NoticeId, u64),
    /// A key in a bucket where no request looks.
    Astray(String),
}

impl Subject {
    /// The subject's name in the log. It leaves out an idempotency key.
    fn name(&self) -> String {
        match self {
            Self::Facts(user) => format!("facts of {user}"),
            Self::Record(_) => "an idempotency record".to_owned(),
            Self::Tombstone(user, author) => format!("tombstone {user} {author}"),
            Self::Views(user) => format!("views of {user}"),
            Self::Post(post) => format!("views of {post}"),
            Self::Platform(platform) => format!("facts of platform {platform}"),
            Self::NoticeReads(user, platform) => format!("read state of {user} on platform {platform}"),
            Self::PlatformView(platform) => format!("view of platform {platform}"),
            Self::NoticeReadsView(user, platform) => format!("view of the read state of {user} on platform {platform}"),
            Self::Title(notice, revision) => format!("title of notice {notice} in revision {revision}"),
            Self::Astray(key) => format!("key {key}"),
        }
    }
}

/// The result of a look.
#[derive(Default)]
struct Looked {
    found: Vec<(Subject, Vec<Difference>)>,
    failed: BTreeSet<Subject>,
}

/// Subjects that are looked at concurrently.
const PARALLEL: usize = 8;

impl Reconcile {
    /// One step: facts first, then the views that are made from them.
    async fn reconcile(&self, facts: Vec<Subject>, views: Vec<Subject>, plan: &Plan, report: &mut Report) {
        report.looked_at += (facts.len() + views.len()) as u64;
        let here: BTreeSet<Subject> = facts.iter().cloned().collect();
        let repaired = self.settle(facts, plan, report).await;
        // If another step has looked at the author, it counted the followers without the missing edge.
        let authors = repaired.iter().filter_map(|difference| match difference {
            Difference::Fact(FactDifference::FollowerMissing { author, .. }) => Some(Subject::Facts(*author)),
            _ => None,
        });
        let authors: BTreeSet<Subject> = authors.filter(|author| !here.contains(author)).collect();
        self.settle(authors.into_iter().collect(), plan, report).await;
        self.settle(views, plan, report).await;
    }

    /// Looks twice, repairs the differences that both looks found, and looks a third time. Returns the differences for
    /// which a repair was tried.
    async fn settle(&self, subjects: Vec<Subject>, plan: &Plan, report: &mut Report) -> BTreeSet<Difference> {
        let first = self.look(subjects).await;
        report.failed += first.failed.len() as u64;
        if first.found.is_empty() {
            return BTreeSet::new();
        }
        (self.wait)(plan.settle).await;
        let second = self.look(first.found.iter().map(|(subject, _)| subject.clone()).collect()).await;
        report.failed += second.failed.len() as u64;
        let again: BTreeSet<&Difference> = second.found.iter().flat_map(|(_, found)| found).collect();
        let confirmed: Vec<(Subject, Vec<Difference>)> = first
            .found
            .into_iter()
            .map(|(subject, mut found)| {
                found.retain(|difference| again.contains(difference));
                (subject, found)
            })
            .filter(|(_, found)| !found.is_empty())
            .collect();
        let news: BTreeSet<Difference> = confirmed.iter().flat_map(|(_, found)| found).cloned().collect();
        report.found(news.iter());
        if plan.dry_run || news.is_empty() {
            return BTreeSet::new();
        }
        let mut tried = BTreeSet::new();
        for difference in &news {
            match self.repair(difference).await {
                Ok(true) => drop(tried.insert(difference)),
                Ok(false) => {}
                Err(error) => {
                    report.failed += 1;
                    warn!(kind = difference.kind(), error = &error as &dyn std::error::Error, "not repaired");
                }
            }
        }
        let third = self.look(confirmed.iter().map(|(subject, _)| subject.clone()).collect()).await;
        report.failed += third.failed.len() as u64;
        let mut left: BTreeSet<&Difference> = third.found.iter().flat_map(|(_, found)| found).collect();
        // If the third look at a subject fails, its differences do not count as repaired.
        left.extend(confirmed.iter().filter(|(subject, _)| third.failed.contains(subject)).flat_map(|(_, found)| found));
        report.repaired(tried.into_iter().filter(|difference| !left.contains(difference)));
        news
    }

    /// Compares both sides of each subject.
    async fn look(&self, subjects: Vec<Subject>) -> Looked {
        let (users, others): (Vec<Subject>, Vec<Subject>) =
            subjects.into_iter().partition(|subject| matches!(subject, Subject::Facts(_)));
        let mut looked = Looked::default();
        let loads = users.into_iter().filter_map(|subject| match subject {
            Subject::Facts(user) => Some(async move { (user, self.user_facts(user).await) }.boxed()),
            _ => None,
        });
        let loaded: Vec<(UserId, Result<UserFacts, ReconcileError>)> =
            stream::iter(loads.collect::<Vec<_>>()).buffer_unordered(PARALLEL).collect().await;
        let mut known = Vec::with_capacity(loaded.len());
        for (user, facts) in loaded {
            match facts {
                Ok(facts) => known.push(facts),
                Err(error) => looked.failed(Subject::Facts(user), error),
            }
        }
        // An edge that its author does not list is one difference. The author's count is not a second one.
        let missing: BTreeSet<(UserId, UserId)> = known.iter().flat_map(facts::missing).collect();
        for facts in &known {
            let found = facts::differences(facts, &missing).into_iter().map(Difference::from).collect();
            looked.found(Subject::Facts(facts.user), found);
        }
        let looks = others.into_iter().map(|subject| {
            async move {
                let found = self.differences_of(&subject).await;
                (subject, found)
            }
            .boxed()
        });
        let answers: Vec<(Subject, Result<Vec<Difference>, ReconcileError>)> =
            stream::iter(looks.collect::<Vec<_>>()).buffer_unordered(PARALLEL).collect().await;
        for (subject, found) in answers {
            match found {
                Ok(found) => looked.found(subject, found),
                Err(error) => looked.failed(subject, error),
            }
        }
        looked
    }

    /// Sorts the owners of keys into subjects: facts and views.
    fn of_owners(&self, owners: Vec<Owner>, plan: &Plan, day: u64) -> (Vec<Subject>, Vec<Subject>) {
        let (mut facts, mut views) = (BTreeSet::new(), BTreeSet::new());
        for owner in owners {
            match owner {
                Owner::User(user) => {
                    facts.insert(Subject::Facts(user));
                    if walk::in_sample(user, plan.share, day) {
                        views.insert(Subject::Views(user));
                    }
                }
                Owner::Post(post) => {
                    facts.insert(Subject::Facts(post.author));
                    if walk::in_sample(post.author, plan.share, day) {
                        views.insert(Subject::Post(post));
                    }
                }
                Owner::Platform(platform) => {
                    facts.insert(Subject::Platform(platform));
                    views.insert(Subject::PlatformView(platform));
                }
                Owner::NoticeReads(user, platform) => {
                    facts.extend([Subject::Platform(platform), Subject::NoticeReads(user, platform)]);
                    if walk::in_sample(user, plan.share, day) {
                        views.insert(Subject::NoticeReadsView(user, platform));
                    }
                }
                Owner::Title(notice, revision) => {
                    facts.insert(Subject::Platform(notice.platform));
                    views.insert(Subject::Title(notice, revision));
                }
                Owner::Astray(key) => drop(views.insert(Subject::Astray(key))),
            }
        }
        (facts.into_iter().collect(), views.into_iter().collect())
    }
}

impl Looked {
    fn found(&mut self, subject: Subject, found: Vec<Difference>) {
        if !found.is_empty() {
            self.found.push((subject, found));
        }
    }

    /// Adds a subject that could not be looked at. If the cause is an item that cannot be read, that item is the
    /// difference.
    fn failed(&mut self, subject: Subject, error: ReconcileError) {
        if let ReconcileError::Store(StoreError::DamagedItem { table, key, .. }) = error {
            return self.found(subject, vec![DamagedItem { table, key }.into()]);
        }
        let error = &error;
        warn!(subject = subject.name(), error = error as &dyn std::error::Error, "could not be looked at");
        self.failed.insert(subject);
    }
}

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
mod user;
mod walk;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{FutureExt, StreamExt, stream};
use tidemark::App;
use tidemark_domain::{Platform, StoreError, UserId};
use tidemark_views::keys::Owner;
use tracing::warn;

pub use flow::FlowPlan;
pub use report::Report;
pub use walk::{Position, Segment};

use crate::{
    diff::{
        DamagedItem, Difference, Kind, Subject,
        facts::{self, Unlisted},
    },
    facts::StoredFacts,
    views::StoredViews,
};
use load::Loaded;

/// Targets that are looked at concurrently.
const PARALLEL: usize = 8;

/// The share of users whose views are compared in a day. The samples reach every user within three weeks.
const SHARE: f64 = 0.05;

/// The least time that a difference lasts before it is repaired. A request takes less time from its fact to its views,
/// and so does the task that changes a post's step, although it waits for a second.
const SETTLE: Duration = Duration::from_secs(5);

/// Keys or items in one step of a walk: about a hundred users, a few seconds.
const SLICE: usize = 500;

/// Readers who return rebuild their forgotten views. If all of a minute's do, and each follows 100 authors, that takes
/// 1,900 read units a second. A step of the schedules has no more readers, so the walk always moves on.
const MOST_FORGOTTEN: usize = SLICE;

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
    /// The least time that a difference lasts before it is repaired.
    pub settle: Duration,
    /// Keys or items in one step of a walk.
    pub slice: usize,
    /// The users of a walk.
    pub segment: Segment,
    /// The most readers whose views a run forgets.
    pub most_forgotten: usize,
}

impl Default for Plan {
    /// The settings of the schedules.
    fn default() -> Self {
        Self {
            dry_run: false,
            share: SHARE,
            settle: SETTLE,
            slice: SLICE,
            segment: Segment::WHOLE,
            most_forgotten: MOST_FORGOTTEN,
        }
    }
}

/// The facts and the views as they are stored, and the app, which computes the right views from the facts.
#[derive(Clone)]
pub struct Reconcile {
    pub app: App,
    pub facts: StoredFacts,
    pub views: StoredViews,
}

/// The unit of a look.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Facts(UserId),
    /// An idempotency record, by its key.
    Record(String),
    /// The tombstone of an unfollow.
    Tombstone(UserId, UserId),
    /// What is left of a user whose erasure has ended.
    Erased(UserId),
    /// A platform's head and its notices.
    Platform(Platform),
    NoticeReads(UserId, Platform),
    /// The groups of a user's inbox.
    Inbox(UserId),
    /// All that Redis has of an owner of keys.
    Views(Owner),
}

impl Target {
    /// The target's name in the log. It leaves out an idempotency key.
    fn name(&self) -> String {
        if let Self::Record(_) = self { "an idempotency record".to_owned() } else { format!("{self:?}") }
    }
}

/// Whether a count of entries in a list of followers or of requests is wrong.
fn counts_entries(difference: &Difference) -> bool {
    matches!(difference.kind, Kind::FollowersCount | Kind::RequestsCount)
}

#[derive(Default)]
struct Looked {
    found: Vec<(Target, Vec<Difference>)>,
    failed: BTreeSet<Target>,
}

impl Reconcile {
    pub fn new(app: &App) -> Self {
        Self { app: app.clone(), facts: StoredFacts(app.stores.facts.clone()), views: StoredViews(app.stores.views.clone()) }
    }

    /// One step: facts first, then the views and groups that are made from them.
    async fn reconcile(&self, facts: Vec<Target>, views: Vec<Target>, plan: &Plan, report: &mut Report) {
        report.looked_at += (facts.len() + views.len()) as u64;
        let here: BTreeSet<Target> = facts.iter().cloned().collect();
        let lasting = self.settle(facts, |_| true, plan, report).await;
        // If another step has looked at the author, it counted the followers without the missing edge, or the requests.
        // What the author's own pairs lack is left to the author's step, which looks at their authors afterwards.
        let authors = lasting.iter().filter_map(|difference| match difference {
            Difference { kind: Kind::FollowerMissing | Kind::RequestMissing, subject: Subject::Pair { author, .. }, .. } => {
                Some(Target::Facts(*author))
            }
            _ => None,
        });
        let authors: BTreeSet<Target> = authors.filter(|author| !here.contains(author)).collect();
        self.settle(authors.into_iter().collect(), counts_entries, plan, report).await;
        self.settle(views, |_| true, plan, report).await;
    }

    /// Looks twice, tries to repair the due differences that both looks found, and looks again. Returns these
    /// differences.
    async fn settle(
        &self,
        targets: Vec<Target>,
        is_due: impl Fn(&Difference) -> bool,
        plan: &Plan,
        report: &mut Report,
    ) -> BTreeSet<Difference> {
        let first = self.look(targets, plan, report).await;
        let mut lasting = first.differences();
        lasting.retain(is_due);
        if lasting.is_empty() {
            return BTreeSet::new();
        }
        tokio::time::sleep(plan.settle).await;
        let second = self.look(first.targets(), plan, report).await;
        lasting = &lasting & &second.differences();
        report.found(lasting.iter().cloned());
        if plan.dry_run || lasting.is_empty() {
            return BTreeSet::new();
        }
        // A right count includes the entries that are about to be added to its list, and each addition changes the
        // number on which the repair of the count depends.
        let (counts, others): (Vec<_>, Vec<_>) = lasting.iter().partition(|difference| counts_entries(difference));
        // Several fields of a view have the same remedy.
        let (mut applied, mut tried) = (BTreeMap::new(), BTreeSet::new());
        for difference in counts.into_iter().chain(others) {
            let is_applied = match applied.get(&difference.remedy) {
                Some(is_applied) => *is_applied,
                None => self.try_repair(difference, plan, report).await,
            };
            applied.insert(&difference.remedy, is_applied);
            if is_applied {
                tried.insert(difference);
            }
        }
        let third = self.look(second.targets(), plan, report).await;
        let mut left = third.differences();
        // If the third look at a target fails, its differences do not count as repaired.
        left.extend(second.found.into_iter().filter(|(target, _)| third.failed.contains(target)).flat_map(|(_, found)| found));
        report.repaired(tried.into_iter().filter(|difference| !left.contains(difference)));
        lasting
    }

    /// Applies a remedy. Leaves it to the next run if this one has forgotten the views of enough readers.
    async fn try_repair(&self, difference: &Difference, plan: &Plan, report: &mut Report) -> bool {
        let Difference { kind, remedy, .. } = difference;
        if let Some(reader) = remedy.forgotten_reader()
            && !report.may_forget(reader, plan.most_forgotten)
        {
            return false;
        }
        self.repair(remedy).await.unwrap_or_else(|error| {
            report.failed += 1;
            warn!(kind = kind.id(), error = &error as &dyn std::error::Error, "not repaired");
            false
        })
    }

    async fn look(&self, targets: Vec<Target>, plan: &Plan, report: &mut Report) -> Looked {
        let loads = targets.into_iter().map(|target| {
            async move {
                let loaded = self.load(&target, plan.share).await;
                (target, loaded)
            }
            .boxed()
        });
        let loaded: Vec<(Target, Result<Loaded, ReconcileError>)> =
            stream::iter(loads.collect::<Vec<_>>()).buffer_unordered(PARALLEL).collect().await;
        // An edge that its author does not list is one difference. The author's count is not a second one.
        let known = loaded.iter().filter_map(|(_, loaded)| match loaded {
            Ok(Loaded::Facts(facts)) => Some(facts),
            _ => None,
        });
        let missing: BTreeSet<Unlisted> = known.flat_map(|facts| facts.missing()).collect();
        let mut looked = Looked::default();
        for (target, loaded) in loaded {
            match loaded {
                Ok(Loaded::Facts(facts)) => looked.found(target, facts::differences(&facts, &missing)),
                Ok(Loaded::Compared(found)) => looked.found(target, found),
                Err(error) => looked.failed(target, error),
            }
        }
        report.failed += looked.failed.len() as u64;
        looked
    }
}

impl Looked {
    fn targets(&self) -> Vec<Target> {
        self.found.iter().map(|(target, _)| target.clone()).collect()
    }

    fn differences(&self) -> BTreeSet<Difference> {
        self.found.iter().flat_map(|(_, found)| found).cloned().collect()
    }

    fn found(&mut self, target: Target, found: Vec<Difference>) {
        if !found.is_empty() {
            self.found.push((target, found));
        }
    }

    /// Adds a target that could not be looked at. If an item that cannot be read is the cause, it is the difference.
    fn failed(&mut self, target: Target, error: ReconcileError) {
        if let ReconcileError::Store(StoreError::DamagedItem { table, key, .. }) = error {
            return self.found(target, vec![DamagedItem { table, key }.into()]);
        }
        warn!(subject = target.name(), error = &error as &dyn std::error::Error, "could not be looked at");
        self.failed.insert(target);
    }
}

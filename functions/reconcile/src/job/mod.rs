//! The repair job. It loads both sides into the same types ([`load`]), compares them with pure functions
//! ([`crate::diff`]), and applies the remedy of each difference ([`repair`]).
//!
//! A difference counts if a second look, after a while, finds exactly the same: changes in flight do not count as
//! differences. A repair counts if a third look does not find the difference any more. Facts come before views, so that
//! views are compared with, and made from, facts that agree with each other.

mod context;
mod flow;
mod load;
mod repair;
mod report;
mod segment;
mod user;
mod walk;

use std::collections::BTreeSet;

use futures::{FutureExt, StreamExt, stream};
use tidemark_app::ports::StoreError;
use tidemark_domain::UserId;
use tracing::warn;

pub use context::{Plan, Reconcile, ReconcileError};
pub use flow::FlowPlan;
pub use report::Report;
pub use segment::{MOST_SEGMENTS, ParseSegmentError, Segment};
pub use walk::{ParsePositionError, Position};

use crate::diff::{DamagedItem, Difference, Kind, Subject, facts};
use context::Target;
use load::Loaded;

/// The result of a look.
#[derive(Default)]
struct Looked {
    found: Vec<(Target, Vec<Difference>)>,
    failed: BTreeSet<Target>,
}

/// Targets that are looked at concurrently.
const PARALLEL: usize = 8;

impl Reconcile {
    /// One step: facts first, then the views that are made from them.
    async fn reconcile(&self, facts: Vec<Target>, views: Vec<Target>, plan: &Plan, report: &mut Report) {
        report.looked_at += (facts.len() + views.len()) as u64;
        let here: BTreeSet<Target> = facts.iter().cloned().collect();
        let repaired = self.settle(facts, plan, report).await;
        // If another step has looked at the author, it counted the followers without the missing edge.
        let authors = repaired.iter().filter_map(|difference| match difference {
            Difference { kind: Kind::FollowerMissing, subject: Subject::Pair { author, .. }, .. } => Some(Target::Facts(*author)),
            _ => None,
        });
        let authors: BTreeSet<Target> = authors.filter(|author| !here.contains(author)).collect();
        self.settle(authors.into_iter().collect(), plan, report).await;
        self.settle(views, plan, report).await;
    }

    /// Looks twice, repairs the differences that both looks found, and looks a third time. Returns the differences for
    /// which a repair was tried.
    async fn settle(&self, targets: Vec<Target>, plan: &Plan, report: &mut Report) -> BTreeSet<Difference> {
        let first = self.look(targets, plan, report).await;
        if first.found.is_empty() {
            return BTreeSet::new();
        }
        (self.wait)(plan.settle).await;
        let second = self.look(first.targets(), plan, report).await;
        let lasting: BTreeSet<Difference> = first.differences().intersection(&second.differences()).cloned().collect();
        report.found(lasting.iter().cloned());
        if plan.dry_run || lasting.is_empty() {
            return BTreeSet::new();
        }
        let mut tried = BTreeSet::new();
        for difference in &lasting {
            match self.repair(&difference.remedy).await {
                Ok(true) => drop(tried.insert(difference)),
                Ok(false) => {}
                Err(error) => {
                    report.failed += 1;
                    warn!(kind = difference.kind.id(), error = &error as &dyn std::error::Error, "not repaired");
                }
            }
        }
        let third = self.look(second.targets(), plan, report).await;
        let mut left = third.differences();
        // If the third look at a target fails, its differences do not count as repaired.
        left.extend(second.found.into_iter().filter(|(target, _)| third.failed.contains(target)).flat_map(|(_, found)| found));
        report.repaired(tried.into_iter().filter(|difference| !left.contains(difference)));
        lasting
    }

    /// Compares both sides of each target.
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
        let missing: BTreeSet<(UserId, UserId)> = known.flat_map(|facts| facts::missing(facts)).collect();
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

    /// Adds a target that could not be looked at. If the cause is an item that cannot be read, that item is the
    /// difference.
    fn failed(&mut self, target: Target, error: ReconcileError) {
        if let ReconcileError::Store(StoreError::DamagedItem { table, key, .. }) = error {
            return self.found(target, vec![DamagedItem { table, key }.into()]);
        }
        let error = &error;
        warn!(subject = target.name(), error = error as &dyn std::error::Error, "could not be looked at");
        self.failed.insert(target);
    }
}

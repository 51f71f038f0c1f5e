//! What should have moved: unfinished fan-outs, and stream records that the projector gave up.

use tracing::{error, info, warn};

use super::{Plan, Reconcile, ReconcileError, Report};
use crate::{
    domain::{
        AuthorHead, DeliveryState, Difference, Post, Timestamp,
        diff::{FactDifference, FlowDifference},
    },
    fan_out::{Inspected, Resumed},
};

/// Posts looked at in one run; the next run goes on.
const POSTS_PER_RUN: usize = 200;

/// What became of unfinished fan-outs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowReport {
    /// Older than they should be.
    pub unfinished: usize,
    /// Finished, or sent again.
    pub resumed: usize,
    /// Pages sent.
    pub pages_sent: usize,
    /// Left to their workers.
    pub moving: usize,
    /// Resumed as often as allowed.
    pub given_up: usize,
    /// Stream records that wait; `None` when that is not known.
    pub stuck_records: Option<u64>,
}

impl Reconcile {
    /// Sends the missing pages of every fan-out published before `before` that stands still, and tells of stream records that were given up. What fails is counted and left to
    /// the next run.
    ///
    /// # Errors
    /// The facts do not answer.
    pub async fn flow(&self, plan: &Plan, before: Timestamp, most_attempts: u32) -> Result<(FlowReport, Report), ReconcileError> {
        let (mut flow, mut report) = (FlowReport::default(), Report::new(plan.dry_run));
        let overdue = self.fan_outs.overdue(before, POSTS_PER_RUN).await?;
        flow.unfinished = overdue.len();
        report.looked_at = overdue.len() as u64;
        for (post, head) in &overdue {
            if let Err(error) = self.flow_of(post, head, plan, most_attempts, &mut flow, &mut report).await {
                report.failed += 1;
                warn!(post = %post.id, error = &error as &dyn std::error::Error, "fan-out not resumed");
            }
        }
        match self.failures.waiting().await {
            Ok(records) => {
                flow.stuck_records = Some(records);
                if records > 0 {
                    warn!(records, "stream records that the projector gave up wait in its failure queue");
                    report.found([Difference::Flow(FlowDifference::RecordsGivenUp { records })].iter());
                }
            }
            Err(error) => warn!(error = &error as &dyn std::error::Error, "the projector's failure queue cannot be read"),
        }
        if !overdue.is_empty() {
            let FlowReport { resumed, pages_sent, given_up, .. } = flow;
            info!(resumed, pages = pages_sent, given_up, failed = report.failed, "unfinished fan-outs");
        }
        report.emit(&*self.metrics, self.readers.clock.now(), "fan-outs");
        Ok((flow, report))
    }

    async fn flow_of(
        &self,
        post: &Post,
        head: &AuthorHead,
        plan: &Plan,
        most_attempts: u32,
        flow: &mut FlowReport,
        report: &mut Report,
    ) -> Result<(), ReconcileError> {
        if !post.deleted && post.delivery.state == DeliveryState::Done {
            return self.take_out(post, plan, report).await;
        }
        let inspected = self.fan_outs.inspect(post, head).await?;
        let difference = match &inspected {
            Inspected::Moving { .. } => None,
            Inspected::Standing { missing, .. } => Some(difference(post, missing.len())),
        };
        report.found(difference.iter());
        if plan.dry_run {
            flow.moving += usize::from(difference.is_none());
            return Ok(());
        }
        match self.fan_outs.resume(post, head, inspected, most_attempts).await? {
            Resumed::Finished => {
                flow.resumed += 1;
                report.repaired(difference.iter());
            }
            Resumed::Moving => flow.moving += 1,
            // The next run sees whether that has helped.
            Resumed::Sent { pages } => {
                flow.resumed += 1;
                flow.pages_sent += pages;
            }
            Resumed::GivenUp { attempts } => {
                flow.given_up += 1;
                error!(post = %post.id, attempts, "fan-out given up");
            }
        }
        Ok(())
    }

    /// A finished fan-out that the index still lists.
    async fn take_out(&self, post: &Post, plan: &Plan, report: &mut Report) -> Result<(), ReconcileError> {
        let left = FactDifference::UnfinishedLeft { post: post.id };
        let difference = [Difference::Fact(left.clone())];
        report.found(difference.iter());
        if !plan.dry_run && self.facts.repair(&left).await? {
            report.repaired(difference.iter());
        }
        Ok(())
    }
}

fn difference(post: &Post, pages: usize) -> Difference {
    let post_id = post.id;
    if post.deleted {
        FlowDifference::RetractionUnfinished { post: post_id, pages }.into()
    } else {
        FlowDifference::DeliveryUnfinished { post: post_id, pages }.into()
    }
}

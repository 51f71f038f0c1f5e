//! Work in progress: unfinished fan-outs, and stream records that the projector gave up.

use std::collections::BTreeMap;

use futures::{FutureExt, StreamExt, future::try_join_all, stream};
use tidemark_app::{
    OutOfTime, Resumed,
    fan_out::{Due, Inspected, LookPlan},
};
use tidemark_domain::{AuthorHead, DeliveryState, Post, PostId, Timestamp, UserId};
use tidemark_facts::{Look, schema::UNFINISHED_SHARDS};
use tidemark_queue::FanOut;
use tracing::{error, info, warn};

use super::{Plan, Reconcile, ReconcileError, Report, report::FlowReport};
use crate::{
    diff::{Difference, Kind, Remedy, Subject, facts::wrongly_indexed},
    facts::{Decoded, Unfinished, UnfinishedAt},
};

/// Posts in one step: the same number of each shard of the index that has more.
const STEP: usize = 800;

/// Fan-outs that are looked at concurrently. One that is sent again takes three requests, one after another.
const PARALLEL: usize = 64;

/// The name of the job, and of its stored position among unfinished fan-outs.
const FAN_OUTS: &str = "fan-outs";

/// Decides which fan-outs are resumed, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowPlan {
    /// The time that the pages of a publish may take, in ms. After attempt `k` they may take 2ᵏ times as long.
    pub overdue_ms: u64,
    /// The number of times that a fan-out is resumed before it is given up.
    pub most_attempts: u32,
    /// Whether fan-outs that were given up are resumed, if they have fewer than `most_attempts`.
    pub given_up_too: bool,
}

struct Run<'a> {
    plan: &'a Plan,
    look: LookPlan,
    before: Timestamp,
    flow: FlowReport,
    report: Report,
}

#[derive(Default)]
struct Handled {
    flow: FlowReport,
    found: Option<Difference>,
    repaired: bool,
}

impl Run<'_> {
    fn add(&mut self, Handled { flow, found, repaired }: Handled) {
        self.flow.resumed += flow.resumed;
        self.flow.pages_sent += flow.pages_sent;
        self.flow.moving += flow.moving;
        self.flow.given_up += flow.given_up;
        self.flow.revived += flow.revived;
        self.report.repaired(found.as_ref().filter(|_| repaired));
        self.report.found(found);
    }
}

impl Reconcile {
    /// Looks at every fan-out that is not finished in time, newest first, and sends its lost pages again. Reports the
    /// fan-outs and stream records that were given up. When time is up, the next run begins with the newest again and
    /// then continues where this one stopped, so that neither old nor new fan-outs starve. A fan-out that fails is
    /// counted and left to the next run.
    ///
    /// # Errors
    /// The facts cannot be read.
    pub async fn flow(&self, plan: &Plan, of: &FlowPlan, out_of_time: OutOfTime<'_>) -> Result<Report, ReconcileError> {
        let (now, mut report) = (self.app.stores.clock.now(), Report::new(plan.dry_run));
        // This comes before any progress is read. If the queue is drained, every page that it held is done or lost.
        let drained = self.app.fan_outs.is_drained().await.inspect_err(|error| {
            report.failed += 1;
            warn!(error = error as &dyn std::error::Error, "the queue is unavailable: nothing is resumed");
        });
        let drained = drained.ok();
        let given_up_before = self.facts.given_up().await?;
        let before = Timestamp::from_ms(now.ms().saturating_sub(of.overdue_ms));
        let (wait_ms, most_attempts) = (of.overdue_ms, of.most_attempts);
        let look = LookPlan { now, wait_ms, drained: drained.unwrap_or(false), most_attempts };
        if let Some(drained) = drained.filter(|_| !plan.dry_run) {
            report.failed += self.resume_erasures(drained, out_of_time).await;
        }
        let mut run = Run { plan, look, before, flow: FlowReport::default(), report };
        if drained.is_some() {
            if of.given_up_too && given_up_before > 0 {
                self.each_unfinished(Unfinished::GivenUp, &BTreeMap::new(), &mut run, out_of_time).await?;
            }
            self.each_open(&mut run, out_of_time).await?;
        }
        let Run { mut flow, mut report, .. } = run;
        flow.given_up += given_up_before.saturating_sub(flow.revived);
        if flow.given_up > 0 {
            error!(posts = flow.given_up, "fan-out given up");
            report.found([Difference::new(Kind::FanOutsGivenUp, Subject::FanOuts { posts: flow.given_up }, Remedy::ReportOnly)]);
        }
        flow.stuck_records = self.stuck_records(&mut report).await;
        report.looked_at = flow.unfinished as u64;
        let FlowReport { unfinished, resumed, pages_sent: pages, given_up, .. } = flow;
        if unfinished > 0 {
            let (drained, failed) = (look.drained, report.failed);
            info!(unfinished, drained, resumed, pages, given_up, failed, "unfinished fan-outs");
        }
        report.emit(&self.app.stores.recorder, FAN_OUTS);
        report.fan_outs = Some(flow);
        Ok(report)
    }

    /// Resumes erasures that no worker continues. Returns how many could not be looked at: fan-outs do not wait for
    /// them.
    async fn resume_erasures(&self, drained: bool, out_of_time: OutOfTime<'_>) -> u64 {
        match self.app.leaving.resume(drained, out_of_time).await {
            Ok(Resumed { resumed, incomplete, failed }) => {
                if resumed > 0 {
                    warn!(erasures = resumed, "erasures that no worker continued are resumed");
                }
                if incomplete > 0 {
                    error!(erasures = incomplete, "erasures are incomplete: their receipts say why");
                }
                failed as u64
            }
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "erasures are not resumed");
                1
            }
        }
    }

    /// Reports the stream records that the projector gave up. Returns their number, if it is known.
    async fn stuck_records(&self, report: &mut Report) -> Option<u64> {
        let waiting = self.app.stores.queues.failures.waiting().await.inspect_err(|error| {
            warn!(error = error as &dyn std::error::Error, "the projector's failure queue cannot be read");
        });
        let records = waiting.ok()?;
        if records > 0 {
            warn!(records, "stream records are in the projector's failure queue");
            report.found([Difference::new(Kind::RecordsGivenUp, Subject::StreamRecords { records }, Remedy::ReportOnly)]);
        }
        Some(records)
    }

    /// Looks at the fan-outs that were not given up, and stores the position if time is up.
    async fn each_open(&self, run: &mut Run<'_>, out_of_time: OutOfTime<'_>) -> Result<(), ReconcileError> {
        let noted = if run.plan.dry_run { None } else { self.facts.walk(FAN_OUTS).await? };
        let from = noted.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let rest = self.each_unfinished(Unfinished::Open, &from, run, out_of_time).await?;
        let rest = (!rest.is_empty()).then(|| serde_json::to_string(&rest).unwrap_or_default());
        if !run.plan.dry_run && rest != noted {
            // If another run has stored its position first, it has looked at the same fan-outs.
            self.facts.note_walk(FAN_OUTS, noted.as_deref(), rest.as_deref()).await?;
        }
        Ok(())
    }

    /// Looks at one list, in steps over all its shards. After the first step it continues at `from`. Returns the
    /// positions of the shards that are not finished.
    async fn each_unfinished(
        &self,
        which: Unfinished,
        from: &BTreeMap<u64, UnfinishedAt>,
        run: &mut Run<'_>,
        out_of_time: OutOfTime<'_>,
    ) -> Result<BTreeMap<u64, UnfinishedAt>, ReconcileError> {
        let mut lanes: BTreeMap<u64, Option<UnfinishedAt>> = (0..UNFINISHED_SHARDS).map(|shard| (shard, None)).collect();
        let mut first = true;
        loop {
            let (mut posts, mut next) = (Vec::new(), BTreeMap::new());
            let some = STEP.div_ceil(lanes.len());
            let parts = lanes.iter().map(|(shard, at)| self.facts.unfinished(which, *shard, run.before, at.as_ref(), some));
            for (shard, part) in lanes.keys().zip(try_join_all(parts).await?) {
                let (Decoded { found, damaged }, mut at) = part;
                run.report.found(damaged.into_iter().map(|(_, item)| item.into()));
                posts.extend(found);
                // After the newest, it continues at the older of the two positions.
                if first && let Some(noted) = from.get(shard) {
                    at = at.map(|at| at.min(noted.clone()));
                }
                next.extend(at.map(|at| (*shard, at)));
            }
            self.look_at(which, posts, run).await?;
            first = false;
            if next.is_empty() || out_of_time() {
                return Ok(next);
            }
            lanes = next.into_iter().map(|(shard, at)| (shard, Some(at))).collect();
        }
    }

    async fn look_at(&self, which: Unfinished, ids: Vec<PostId>, run: &mut Run<'_>) -> Result<(), ReconcileError> {
        let authors: Vec<UserId> = ids.iter().map(|id| id.author).collect();
        let (posts, heads) = futures::try_join!(self.facts.stored_posts(&ids), self.facts.stored_heads(&authors))?;
        let Decoded { found: mut posts, damaged } = posts;
        run.report.found(damaged.into_iter().map(|(_, item)| item.into()));
        run.report.found(heads.damaged.into_iter().map(|(_, item)| item.into()));
        run.flow.unfinished += ids.len();
        let (dry_run, look) = (run.plan.dry_run, run.look);
        let work = ids.into_iter().filter_map(|id| {
            // Without its author's head, the content of a fan-out is unknown. The index may be stale: the post decides
            // whether its fan-out is finished.
            let post = posts.remove(&id).filter(|stored| stored.unfinished)?.post;
            let head = &heads.found.get(&id.author)?.head;
            Some(async move { (id, self.flow_of(which, &post, head, look, dry_run).await) }.boxed())
        });
        let mut handled = stream::iter(work.collect::<Vec<_>>()).buffer_unordered(PARALLEL);
        while let Some((post, handled)) = handled.next().await {
            match handled {
                Ok(handled) => run.add(handled),
                Err(error) => {
                    run.report.failed += 1;
                    warn!(%post, error = &error as &dyn std::error::Error, "fan-out not resumed");
                }
            }
        }
        Ok(())
    }

    async fn flow_of(
        &self,
        which: Unfinished,
        post: &Post,
        head: &AuthorHead,
        look: LookPlan,
        dry_run: bool,
    ) -> Result<Handled, ReconcileError> {
        let revived = u64::from(which == Unfinished::GivenUp);
        if !post.deleted && post.delivery.state == DeliveryState::Done {
            // It is finished, and the index still lists it.
            let left = wrongly_indexed(Kind::UnfinishedLeft, post.id);
            let repaired = !dry_run && self.repair(&left.remedy).await?;
            let flow = FlowReport { revived: if repaired { revived } else { 0 }, ..FlowReport::default() };
            return Ok(Handled { flow, found: Some(left), repaired });
        }
        let moving = Handled { flow: FlowReport { moving: 1, ..FlowReport::default() }, ..Handled::default() };
        // These are listed only if an operator asks for them, so they are due at once.
        let due = if which == Unfinished::GivenUp { Due::Now } else { look.due(&post.delivery) };
        if due != Due::Now {
            if due == Due::Unseen && !dry_run {
                self.app.stores.facts.note_look(FanOut::of(post, head).kind, post.id, Look::Waiting(look.now)).await?;
            }
            return Ok(moving);
        }
        let inspected = self.app.fan_outs.inspect(post, head, look.most_attempts).await?;
        let pages = match &inspected {
            Inspected::Moving { .. } => None,
            // `given_up_before` already counts it.
            Inspected::UsedUp { .. } if which == Unfinished::GivenUp => return Ok(Handled::default()),
            Inspected::Done(_) => Some(0),
            Inspected::Missing { pages, .. } => Some(pages.len()),
            Inspected::UsedUp { pages } => Some(*pages),
        };
        let found = pages.map(|pages| difference(post, pages));
        if dry_run {
            return Ok(if found.is_some() { Handled { found, ..Handled::default() } } else { moving });
        }
        if !self.app.fan_outs.resume(post, head, &inspected).await? {
            // Another run was first, or the fan-out is finished by now.
            return Ok(moving);
        }
        let mut flow = FlowReport { revived, ..FlowReport::default() };
        let repaired = matches!(inspected, Inspected::Done(_));
        match inspected {
            Inspected::Moving { .. } => flow.moving = 1,
            Inspected::Done(_) => flow.resumed = 1,
            // The next run finds out whether the pages are done.
            Inspected::Missing { pages, .. } => (flow.resumed, flow.pages_sent) = (1, pages.len()),
            Inspected::UsedUp { .. } => {
                flow.given_up = 1;
                error!(post = %post.id, attempts = post.delivery.attempts, "fan-out given up");
            }
        }
        Ok(Handled { flow, found, repaired })
    }
}

fn difference(post: &Post, pages: usize) -> Difference {
    let kind = if post.deleted { Kind::RetractionUnfinished } else { Kind::DeliveryUnfinished };
    Difference::new(kind, Subject::FanOut { post: post.id, pages }, Remedy::ReportOnly)
}

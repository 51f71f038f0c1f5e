//! Parses the event of a schedule or of an operator.

use std::time::Duration;

use lambda_runtime::Error;
use serde::Deserialize;
use serde_json::Value;
use tidemark_reconcile_lib::{FlowPlan, Plan, Position, Segment};

/// Reconcile leaves a fan-out that is younger than this to its workers.
const OVERDUE_MS: u64 = 30_000;

/// The number of times that a fan-out is resumed before it is given up. Each attempt waits twice as long as the one
/// before, some four hours in total.
const MOST_ATTEMPTS: u32 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Job {
    /// All jobs that run every minute.
    Minute,
    /// Interrupted fan-outs, and stream records that were given up.
    FanOuts,
    /// Rebuilds whose process died.
    Marks,
    /// The walk over users.
    Users,
    /// Deletes all views.
    Forget,
}

/// An event. A missing setting has the value that the schedules use.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Event {
    job: Job,
    #[serde(default)]
    dry_run: bool,
    overdue_ms: Option<u64>,
    most_attempts: Option<u32>,
    share: Option<f64>,
    settle_ms: Option<u64>,
    slice: Option<usize>,
    most_forgotten: Option<usize>,
    from: Option<String>,
    segment: Option<Segment>,
}

/// An event whose fields are valid.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) job: Job,
    /// `"dry_run"`, `"share"`, `"settle_ms"`, `"slice"`, `"segment"`, `"most_forgotten"`.
    pub(crate) plan: Plan,
    /// Whether the event continues a walk and begins none: `minute`, and `"segment"`.
    pub(crate) only_continues: bool,
    /// `"from"`: the position where a walk, or `forget`, begins, `next` of an earlier response.
    pub(crate) from: Option<Position>,
    /// `"overdue_ms"`: the age from which on a fan-out is looked at. `"most_attempts"`: if it is set, fan-outs that
    /// were given up after fewer attempts are resumed.
    pub(crate) flow: FlowPlan,
}

impl Run {
    pub(crate) fn read(event: &Value) -> Result<Self, Error> {
        let event = Event::deserialize(event)?;
        let schedules = Plan::default();
        let plan = Plan {
            dry_run: event.dry_run,
            share: event.share.unwrap_or(schedules.share),
            settle: event.settle_ms.map_or(schedules.settle, Duration::from_millis),
            slice: event.slice.unwrap_or(schedules.slice),
            segment: event.segment.unwrap_or(schedules.segment),
            most_forgotten: event.most_forgotten.unwrap_or(schedules.most_forgotten),
        };
        if !(0.0..=1.0).contains(&plan.share) {
            return Err("share is out of bounds".into());
        }
        if !(1..=100_000).contains(&plan.slice) || plan.most_forgotten == 0 {
            return Err("slice or most_forgotten is out of bounds".into());
        }
        let from: Option<Position> = event.from.map(|text| text.parse()).transpose().map_err(|error| format!("from: {error}"))?;
        let may_begin = match (event.job, &from) {
            (Job::Users, _) | (_, None) | (Job::Forget, Some(Position::Keys(_))) => true,
            (_, Some(_)) => false,
        };
        if !may_begin || (event.segment.is_some() && event.job != Job::Users) {
            return Err("from goes with users, and with forget among keys; segment with users alone".into());
        }
        Ok(Self {
            job: event.job,
            plan,
            only_continues: event.job == Job::Minute || (event.segment.is_some() && !event.dry_run),
            from,
            flow: FlowPlan {
                overdue_ms: event.overdue_ms.unwrap_or(OVERDUE_MS),
                most_attempts: event.most_attempts.unwrap_or(MOST_ATTEMPTS),
                given_up_too: event.most_attempts.is_some(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_missing_setting_has_the_value_of_the_schedules() {
        let run = Run::read(&json!({ "job": "minute" })).unwrap();
        let flow = FlowPlan { overdue_ms: OVERDUE_MS, most_attempts: MOST_ATTEMPTS, given_up_too: false };
        assert_eq!((run.job, run.plan.dry_run, run.flow), (Job::Minute, false, flow));
        assert!(Run::read(&json!({ "job": "fan-outs", "most_attempts": 1000 })).unwrap().flow.given_up_too);
        assert_eq!((run.plan, run.only_continues), (Plan::default(), true));
        assert_eq!(Run::read(&json!({ "job": "users", "most_forgotten": 9 })).unwrap().plan.most_forgotten, 9);
        assert!(Run::read(&json!({ "job": "users", "segment": "3/4" })).unwrap().only_continues);
        let run = Run::read(&json!({ "job": "users", "dry_run": true, "from": "edges 1 2" })).unwrap();
        assert!(run.plan.dry_run && run.from.is_some());
        assert_eq!(Run::read(&json!({ "job": "forget", "from": "keys 7" })).unwrap().from, Some(Position::Keys(7)));
    }

    #[test]
    fn a_misspelled_or_invalid_event_is_refused() {
        for bad in [
            json!({}),
            json!({ "job": "everything" }),
            json!({ "job": "users", "dryrun": true }),
            json!({ "job": "users", "dry_run": "true" }),
            json!({ "job": "users", "share": 1.5 }),
            json!({ "job": "users", "slice": 0 }),
            json!({ "job": "users", "most_forgotten": 0 }),
            json!({ "job": "users", "from": "somewhere" }),
            json!({ "job": "minute", "from": "edges 1 2" }),
            json!({ "job": "minute", "segment": "0/4" }),
            json!({ "job": "forget", "from": "edges" }),
            json!({ "job": "forget", "segment": "0/4" }),
            json!({ "job": "users", "segment": "4/4" }),
            json!({ "job": "users", "segment": "0/33" }),
            json!({ "job": "users", "segment": "1" }),
        ] {
            assert!(Run::read(&bad).is_err(), "{bad}");
        }
    }
}

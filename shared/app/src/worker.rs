//! [`Worker`]: runs the tasks of the queue.

use std::time::Duration;

use tidemark_domain::{Store, StoreError, store::Result};
use tidemark_queue::Task;
use tracing::warn;

use crate::{
    Inboxes, Leaving, OutOfTime,
    fan_out::FanOuts,
    outage::{FEW_TRIES, MOST_TRIES, Outage},
};

/// The use cases that have tasks. Clones share the stores.
#[derive(Clone)]
pub struct Worker {
    outage: Outage,
    fan_outs: FanOuts,
    inboxes: Inboxes,
    leaving: Leaving,
}

impl Worker {
    pub fn new(outage: Outage, fan_outs: FanOuts, inboxes: Inboxes, leaving: Leaving) -> Self {
        Self { outage, fan_outs, inboxes, leaving }
    }

    /// Runs a task that has failed `tries` times. If it fails again, sends it again with a delay. Returns false if the
    /// message has to go back to the queue.
    pub async fn work(&self, message: &str, (task, tries): (&Task, u8), out_of_time: OutOfTime<'_>) -> bool {
        match self.run(task, out_of_time).await {
            Ok(()) => {
                if task.is_missed_by_views() {
                    // Other tasks of the same outage may still wait.
                    self.outage.extend_note(Duration::ZERO).await;
                }
                true
            }
            Err(error) => {
                warn!(message_id = message, error = &error as &dyn std::error::Error, "task failed");
                self.outage.again(task, tries.saturating_add(1), most_tries(&error, task)).await
            }
        }
    }

    /// Runs one task. A task may run any number of times, in any order. Out of time, a task that lists pages, moves
    /// posts or erases a user sends its rest as a new task. After an error the task is not done.
    pub async fn run(&self, task: &Task, out_of_time: OutOfTime<'_>) -> Result<()> {
        let fan_outs = &self.fan_outs;
        match task {
            Task::Batch { fan_out, page, followers } => fan_outs.page(*fan_out, *page, followers).await,
            Task::List { fan_out, from, to } => fan_outs.list(*fan_out, *from..*to, out_of_time).await,
            Task::Rank { post, token } => fan_outs.rank(*post, *token).await,
            Task::Rescore { author, life } => fan_outs.rescore(*author, *life).await,
            Task::Move { author, posts, pages, from, to } => {
                fan_outs.move_posts(*author, posts, (*pages, *from..*to), out_of_time).await
            }
            Task::Group { user, id, other, version } => self.inboxes.run(*user, *id, *other, *version).await,
            Task::Erase { user, chain, .. } => self.leaving.run(*user, *chain, out_of_time).await,
        }
    }
}

/// Returns how often a failed task is sent again: never for a damaged item, which no attempt repairs.
fn most_tries(error: &StoreError, task: &Task) -> u8 {
    match task {
        _ if !error.is_retryable() => 0,
        // DynamoDB also rejects wrong requests. Few attempts are enough: reconcile resumes a fan-out.
        Task::Batch { .. } | Task::List { .. } | Task::Move { .. } if error.store() != Store::Views => FEW_TRIES,
        _ => MOST_TRIES,
    }
}

//! Everything that the simulation assumes, with defaults. Each field is a flag of `make scale`.

use std::ops::RangeInclusive;

use clap::Parser;

/// The load, the deployment and the times that are simulated.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Inputs {
    /// Sizes to simulate: registered users.
    #[arg(long, value_delimiter = ',', default_value = "1e5,1e6,1e7,1e8,1e9", value_parser = users)]
    pub(crate) users: Vec<f64>,
    /// Seed of the randomness. The same seed prints the same tables.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Users with a live view, which is users who have read within 60 hours.
    #[arg(long, default_value_t = 0.3, value_parser = share, value_name = "SHARE", help_heading = "Load")]
    pub(crate) live: f64,
    /// Authors that a user follows, on average.
    #[arg(long, default_value_t = 100.0, value_parser = positive, help_heading = "Load")]
    pub(crate) following: f64,
    /// Exponent of the power law of followers: the share of authors with more than n followers falls with n to the
    /// power of 1 - EXPONENT.
    #[arg(long, default_value_t = 2.276, value_parser = exponent, value_name = "EXPONENT", help_heading = "Load")]
    pub(crate) exponent: f64,
    /// The most followers that an author may have, as a share of the users.
    #[arg(long, default_value_t = 0.3, value_parser = share, value_name = "SHARE", help_heading = "Load")]
    pub(crate) most_followed: f64,
    /// Posts of a user in a day.
    #[arg(long, default_value_t = 0.2, value_parser = positive, help_heading = "Load")]
    pub(crate) publishes_per_day: f64,
    /// Size of a post's text in KB.
    #[arg(long, default_value_t = 1.0, value_parser = positive, help_heading = "Load")]
    pub(crate) post_kb: f64,
    /// First pages that a user with a live view opens in a day.
    #[arg(long, default_value_t = 20.0, value_parser = positive, help_heading = "Load")]
    pub(crate) feeds_per_day: f64,
    /// First pages that rebuild the reader's view.
    #[arg(long, default_value_t = 0.01, value_parser = share, value_name = "SHARE", help_heading = "Load")]
    pub(crate) rebuilds: f64,
    /// Marks that a user with a live view sends in a day.
    #[arg(long, default_value_t = 3.0, value_parser = positive, help_heading = "Load")]
    pub(crate) marks_per_day: f64,
    /// Likes of a user with a live view in a day.
    #[arg(long, default_value_t = 1.0, value_parser = positive, help_heading = "Load")]
    pub(crate) likes_per_day: f64,
    /// Follows and unfollows of a user with a live view in a day.
    #[arg(long, default_value_t = 0.2, value_parser = positive, help_heading = "Load")]
    pub(crate) follows_per_day: f64,
    /// The busiest rate, divided by the average rate.
    #[arg(long, default_value_t = 3.0, value_parser = positive, help_heading = "Load")]
    pub(crate) peak: f64,
    /// Users who follow the same author, or like the same post, within the same minute.
    #[arg(long, default_value_t = 0.001, value_parser = share, value_name = "SHARE", help_heading = "Load")]
    pub(crate) viral: f64,

    /// Masters of Redis. By default as many as the load needs.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = "Deployment")]
    pub(crate) shards: Option<u32>,
    /// `FanOutConcurrency`. By default 40, the template's value, or as many as the load needs.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=100_000), help_heading = "Deployment")]
    pub(crate) workers: Option<u32>,
    /// Followers from which an author's posts are pulled.
    #[arg(long, default_value_t = 1e6, value_parser = positive, help_heading = "Deployment")]
    pub(crate) pull_threshold: f64,
    /// Messages of one event that are worked on at the same time. 1 stands for a worker that sends one call at a time.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3), help_heading = "Deployment")]
    pub(crate) lanes: u32,
    /// Utilisation up to which Redis and workers are planned.
    #[arg(long, default_value_t = 0.6, value_parser = share, value_name = "SHARE", help_heading = "Deployment")]
    pub(crate) headroom: f64,

    /// A read of DynamoDB, in milliseconds.
    #[arg(long, default_value_t = 3.0, value_parser = positive, help_heading = "Times")]
    pub(crate) dynamodb_read_ms: f64,
    /// A write of DynamoDB.
    #[arg(long, default_value_t = 5.0, value_parser = positive, help_heading = "Times")]
    pub(crate) dynamodb_write_ms: f64,
    /// The query of a page of followers.
    #[arg(long, default_value_t = 10.0, value_parser = positive, help_heading = "Times")]
    pub(crate) dynamodb_query_ms: f64,
    /// A request to SQS.
    #[arg(long, default_value_t = 10.0, value_parser = positive, help_heading = "Times")]
    pub(crate) sqs_ms: f64,
    /// From a visible message to the start of its worker.
    #[arg(long, default_value_t = 15.0, value_parser = positive, help_heading = "Times")]
    pub(crate) invoke_ms: f64,
    /// The network between a function and Redis, both ways.
    #[arg(long, default_value_t = 0.5, value_parser = positive, help_heading = "Times")]
    pub(crate) redis_trip_ms: f64,
    /// A request of the API in its function.
    #[arg(long, default_value_t = 20.0, value_parser = positive, help_heading = "Times")]
    pub(crate) request_ms: f64,
    /// Processor time of a worker for each follower, in microseconds. Lambda gives 1 GB 0.58 of a processor.
    #[arg(long, default_value_t = 4.0, value_parser = positive, help_heading = "Times")]
    pub(crate) worker_us: f64,
    /// Processors that all workers share, as on one machine. Without the flag each worker has its own.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_024), help_heading = "Times")]
    pub(crate) cores: Option<u32>,

    /// Items that share one author's counter of followers, at most.
    #[arg(long, default_value_t = 256.0, value_parser = positive, help_heading = "Limits")]
    pub(crate) counter_shards: f64,
    /// Transactions a second that one item of DynamoDB takes before they conflict.
    #[arg(long, default_value_t = 50.0, value_parser = positive, help_heading = "Limits")]
    pub(crate) item_transactions: f64,
    /// Keys of Redis that one segment of reconcile's walk compares in a minute.
    #[arg(long, default_value_t = 5_000.0, value_parser = positive, help_heading = "Limits")]
    pub(crate) walk_per_minute: f64,
}

#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    inputs: Inputs,
}

impl Default for Inputs {
    fn default() -> Self {
        Defaults::parse_from(["scale"]).inputs
    }
}

fn within(text: &str, range: RangeInclusive<f64>) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if range.contains(&number) { Ok(number) } else { Err(format!("not from {} to {}", range.start(), range.end())) }
}

fn users(text: &str) -> Result<f64, String> {
    within(text, 1e3..=1e10)
}

fn positive(text: &str) -> Result<f64, String> {
    within(text, 1e-6..=1e12)
}

fn share(text: &str) -> Result<f64, String> {
    within(text, 1e-6..=1.0)
}

fn exponent(text: &str) -> Result<f64, String> {
    within(text, 2.01..=5.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_inputs_are_refused() {
        for wrong in
            ["--users=10", "--live=0", "--live=1.1", "--exponent=2", "--publishes-per-day=-1", "--shards=0", "--peak=NaN"]
        {
            assert!(Defaults::try_parse_from(["scale", wrong]).is_err(), "{wrong}");
        }
        let users = Defaults::try_parse_from(["scale", "--users", "1e7,2e7"]).map(|args| args.inputs.users);
        assert_eq!(users.unwrap(), [1e7, 2e7]);
    }
}

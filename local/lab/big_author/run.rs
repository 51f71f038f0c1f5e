//! The run: prepare, measure, check.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::{builder::TypedValueParser, value_parser};
use rand::{SeedableRng, rngs::StdRng, seq::IndexedRandom};
use tidemark::domain::UserId;
use tidemark_local::{Consumption, Weather};
use tidemark_tools::{
    progress::Progress,
    text::{rate, short, thousands},
    verify::latency::{Comparison, Sample, in_pairs},
};

use super::{
    beside::{Small, alone, beside},
    cast::{Cast, FOLLOWERS_BESIDE},
    check::{Expected, feeds, views},
    delivery::{Delivery, publish},
    disturb::disturb,
    edge_writer::EdgeWriter,
    followers::{compare, enliven, write},
    report::Report,
    stack::{NEVER_PULLED, OwnStack},
};

/// Readers without a view whose first read is checked.
const FIRST_READS: usize = 2_000;
const PUBLISH_AIM: f64 = 1.5;
const BESIDE_AIM: f64 = 3.0;
const DRAIN_POLL: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Followers of the author.
    #[arg(long, default_value = "1000000", value_parser = value_parser!(u32).range(1..NEVER_PULLED.into()).map(|n| n as usize))]
    pub(crate) followers: usize,
    /// The number of live followers, which have a view that the fan-out reaches.
    #[arg(long, default_value = "100000", value_parser = value_parser!(u32).map(|n| n as usize))]
    pub(crate) live: usize,
    /// The number of publishes of each of the two compared authors.
    #[arg(long, default_value_t = 30, value_parser = value_parser!(u32).range(1..=10_000))]
    pub(crate) publishes: u32,
    /// The number of small authors that publish once each during the fan-out.
    #[arg(long, default_value = "50", value_parser = value_parser!(u16).range(1..=1_000).map(usize::from))]
    pub(crate) beside: usize,
    /// Run a second fan-out with a restart of the stack, all its messages sent twice, and Redis emptied.
    #[arg(long)]
    pub(crate) disturb: bool,
    /// The weather of the stores after the preparation: calm, aws or storm.
    #[arg(long, env = "TIDEMARK_WEATHER", default_value_t)]
    pub(crate) weather: Weather,
    /// The longest time of a fan-out.
    #[arg(long, default_value = "1800", value_name = "SECONDS", value_parser = value_parser!(u64).map(Duration::from_secs))]
    pub(crate) limit: Duration,
    /// Path of the template.
    #[arg(long, env = "TIDEMARK_TEMPLATE", default_value = "./template.yaml")]
    pub(crate) template: PathBuf,
}

/// Runs the measurement on a stack of its own. Fails if a request fails. The report has the results of wrong responses.
pub(crate) async fn run(options: &Options, seed: u64) -> anyhow::Result<Report> {
    if options.live > options.followers {
        bail!("{} followers cannot have {} live ones", options.followers, options.live);
    }
    let cast = Cast::of(options.followers, options.beside).context("not enough ids")?;
    let mut own = OwnStack::start(options.template.clone()).await?;
    let mut run = Run { options, cast, random: StdRng::seed_from_u64(seed), report: Report::default() };
    run.prepare(&own).await?;
    run.report.figure("weather", options.weather.to_string());
    own.set_weather(options.weather, seed);
    run.publish_latency(&own).await?;
    run.fan_out(&own).await?;
    let own = if options.disturb { run.disturbed_fan_out(own).await? } else { own };
    own.stop().await?;
    Ok(run.report)
}

struct Run<'a> {
    options: &'a Options,
    cast: Cast,
    random: StdRng,
    report: Report,
}

impl Run<'_> {
    fn live(&self) -> &[UserId] {
        &self.cast.big.followers[..self.options.live]
    }

    async fn prepare(&mut self, own: &OwnStack) -> anyhow::Result<()> {
        let (app, readers) = (own.app("publish")?, own.app("read-feed")?);
        let big = self.cast.big.id;
        // One post before any follow. Redis would remember readers without posts for minutes only.
        publish(&own.api, big, "Before").await?;
        let writer = EdgeWriter::new(own.stack.dynamodb_endpoint(), app.settings.tables.clone());
        let (items, took) = write(app, &writer, &self.cast).await?;
        let edges = self.cast.authors().map(|author| author.followers.len()).sum::<usize>() as u64;
        self.report.figure("edges written", thousands(edges));
        self.report.figure("  in", short(took));
        self.report.figure("  edges per second", thousands(rate(edges, took)));
        self.report.figure("  items per second", thousands(rate(items, took)));
        let counts = app.stores.facts.follower_counts(big).await?;
        self.report.equal("followers counted", self.options.followers as u64, counts.iter().sum());
        let compared = compare(app, &self.cast.big, &mut self.random).await?;
        self.report.compared("edges of a sample, both directions", &compared);
        writer.write_follower_counts(self.cast.hollow, &counts).await?;

        let (live, took) = enliven(readers, self.live(), "live readers").await?;
        self.report.equal("live readers", self.options.live as u64, live);
        self.report.figure("views built per second", thousands(rate(live, took)));
        let others: Vec<UserId> =
            self.cast.beside.iter().chain([&self.cast.few]).flat_map(|author| author.followers.iter().copied()).collect();
        let (live, _) = enliven(readers, &others, "other live readers").await?;
        self.report.equal("live readers of the small authors", others.len() as u64, live);
        Ok(())
    }

    async fn publish_latency(&mut self, own: &OwnStack) -> anyhow::Result<()> {
        let authors = [self.cast.few.id, self.cast.hollow];
        let followers = [self.cast.few.followers.len() as u64, self.options.followers as u64];
        own.stack.pause("fan-out").await?;
        let publish = async |which: usize, round| Ok(publish(&own.api, authors[which], &format!("Post {round}")).await?.1);
        let compared = in_pairs(followers, self.options.publishes, &mut self.random, publish).await?;
        own.stack.resume("fan-out")?;
        for sample in &compared.0 {
            let [median, p99] = [0.5, 0.99].map(|share| short(sample.quantile(share)));
            let followers = thousands(sample.followers);
            self.report.figure(format!("publish with {followers} followers, median"), median);
            self.report.figure(format!("publish with {followers} followers, p99"), p99);
        }
        self.report.ratio("  ratio of the medians", compared.ratio(0.5), PUBLISH_AIM);
        self.drain(own).await
    }

    /// Waits until no message of an earlier fan-out is left.
    async fn drain(&self, own: &OwnStack) -> anyhow::Result<()> {
        let mut progress = Progress::start("wait for the queue", "messages");
        let (started, mut most) = (Instant::now(), 0);
        loop {
            let left = own.fan_out_messages().await?;
            if left == 0 {
                progress.finish();
                return Ok(());
            }
            if started.elapsed() >= self.options.limit {
                bail!("{left} messages are left in the queue");
            }
            most = most.max(left);
            progress.set(most - left, most, "");
            tokio::time::sleep(DRAIN_POLL).await;
        }
    }

    async fn fan_out(&mut self, own: &OwnStack) -> anyhow::Result<()> {
        let before = alone(&own.api, &self.cast.beside, &mut self.random).await?;
        let (post, _) = publish(&own.api, self.cast.big.id, "To everybody").await?;
        let published = Instant::now();
        let limit = self.options.limit;
        let meanwhile = beside(&own.api, post, published, limit, &self.cast.beside, &mut self.random).await?;
        self.report.figure("fan-out, from response to done", short(meanwhile.took));
        self.report.figure("  followers per second", thousands(rate(meanwhile.big.delivered, meanwhile.took)));
        self.delivered("fan-out", &meanwhile.big);
        self.report.figure("small publishes beside it", meanwhile.small.len().to_string());
        let [answered, done] = [|small: &Small| small.answered, |small: &Small| small.done].map(|time| {
            let sample = |all: &[Small]| Sample::of(FOLLOWERS_BESIDE as u64, all.iter().map(time).collect());
            Comparison([sample(&before), sample(&meanwhile.small)])
        });
        for (compared, what) in [(&answered, "answered"), (&done, "to done")] {
            for (sample, when) in compared.0.iter().zip(["alone", "beside it"]) {
                for (share, name) in [(0.5, "median"), (0.9, "p90")] {
                    self.report.figure(format!("small publish {what} {when}, {name}"), short(sample.quantile(share)));
                }
            }
        }
        self.report.ratio("  ratio of the medians to done", done.ratio(0.5), BESIDE_AIM);
        self.report.ratio("  ratio of the p90 to done", done.ratio(0.9), BESIDE_AIM);

        let expected = Expected { post, unread: 1 };
        let found = views(own.app("read-feed")?, self.live(), expected).await;
        self.report.compared("views of live readers", &found);
        self.first_reads(own, "first reads of others", expected).await;
        Ok(())
    }

    async fn disturbed_fan_out(&mut self, own: OwnStack) -> anyhow::Result<OwnStack> {
        let (post, _) = publish(&own.api, self.cast.big.id, "Through a storm").await?;
        let (own, disturbed) = disturb(own, post, self.options.limit, &mut self.random).await?;
        let [restarted, doubled, flushed] = disturbed.pages_done.map(thousands);
        self.report.figure("disturbed fan-out", short(disturbed.took));
        self.report.figure("  pages done at the restart", restarted);
        self.report.figure("  pages done at the doubling", doubled);
        self.report.figure("  messages sent twice", thousands(disturbed.doubled));
        self.report.figure("  pages done when Redis was emptied", flushed);
        self.report.figure("  pages sent again by reconcile", thousands(disturbed.resumed));
        self.delivered("disturbed fan-out", &disturbed.delivery);

        // Redis was emptied. The views of live readers are rebuilt by their next read.
        let readers = own.app("read-feed")?;
        let before = own.stack.consumption();
        let (live, took) = enliven(readers, self.live(), "live readers again").await?;
        let after = own.stack.consumption();
        let units = |consumption: &Consumption| consumption.read_of("PostsTable", self.cast.big.id.get());
        self.report.figure("  read units of the author's partition", thousands((units(&after) - units(&before)) as u64));
        self.report.figure("  requests refused by a partition", thousands(after.throttled - before.throttled));
        self.report.equal("live readers again", self.options.live as u64, live);
        self.report.figure("  views built again per second", thousands(rate(live, took)));
        let expected = Expected { post, unread: 2 };
        let found = views(readers, self.live(), expected).await;
        self.report.compared("views after the disturbed fan-out", &found);
        self.first_reads(&own, "reads of others after it", expected).await;
        Ok(own)
    }

    fn delivered(&mut self, what: &str, delivery: &Delivery) {
        self.report.same(format!("{what}: mode"), "push", &delivery.mode);
        self.report.same(format!("{what}: state"), "done", &delivery.state);
        self.report.equal(format!("{what}: pages done"), delivery.pages, delivery.pages_done);
        self.report.equal(format!("{what}: delivered"), self.options.followers as u64, delivery.delivered);
    }

    async fn first_reads(&mut self, own: &OwnStack, what: &str, expected: Expected) {
        let others = &self.cast.big.followers[self.options.live..];
        if others.is_empty() {
            return;
        }
        let sample: Vec<UserId> = others.choose_multiple(&mut self.random, FIRST_READS).copied().collect();
        let found = feeds(&own.api, &sample, expected).await;
        self.report.compared(what, &found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_small_run_in_the_weather_of_aws_finds_no_difference() {
        let options = Options {
            followers: 1_500,
            live: 60,
            publishes: 2,
            beside: 2,
            disturb: true,
            weather: Weather::Aws,
            limit: Duration::from_secs(180),
            template: PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../template.yaml")),
        };
        let report = run(&options, 1).await.unwrap();
        assert!(report.is_good(), "{report}");
    }
}

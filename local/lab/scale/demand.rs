//! The demand of a number of users on each service, as averages of a second.

use super::{
    followers::Followers,
    inputs::Inputs,
    measured::{CALL, Measured, REBUILD_COMMANDS, REBUILD_RRU, SCATTERED, SILENT, WALK_RRU},
};

/// Buckets of users (docs/glossary.md).
const BUCKETS: f64 = 4_096.0;
#[cfg(test)]
const SQS_BYTES: f64 = 65_536.0;
#[cfg(test)]
const FOLLOWER_BYTES: f64 = 21.0;
/// Users in a trip to a node of a cluster (docs/redis.md).
const CLUSTER_TRIP: f64 = 50.0;
/// Assumed time of a simple command in Redis, in µs.
const COMMAND_US: f64 = 3.0;
/// Assumed bytes in Redis of a post beside its text: summary, keys, progress, head. They live for 7 days.
const POST_BYTES: f64 = 600.0;
const POST_DAYS: f64 = 7.0;
pub(crate) const DAY: f64 = 86_400.0;

/// The units of one publish, by the formula of docs/fan-out.md.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Publish {
    pub(crate) followers: f64,
    pub(crate) pages: f64,
    /// Tasks that list pages.
    pub(crate) lists: f64,
    pub(crate) rru: f64,
    pub(crate) wru: f64,
}

impl Publish {
    pub(crate) fn new(followers: f64, threshold: f64, post_kb: f64) -> Self {
        let wru = 11.0 + 2.0 * post_kb.ceil();
        if followers >= threshold {
            return Self { followers, pages: 0.0, lists: 0.0, rru: 19.0, wru };
        }
        let pages = (followers / 1_000.0).ceil().clamp(1.0, BUCKETS);
        let (lists, listing) = if pages <= 5.0 { (0.0, 15.0 + pages) } else { (pages.min(16.0), pages) };
        Self { followers, pages, lists, rru: 19.0 + pages + 23.0 * followers / 1_000.0 + listing, wru }
    }

    pub(crate) fn messages(&self) -> f64 {
        self.pages + self.lists
    }

    /// Requests to SQS, with `per_event` messages in an event.
    #[cfg(test)]
    pub(crate) fn sqs(&self, per_event: f64) -> f64 {
        if self.pages == 0.0 {
            return 0.0;
        }
        let bytes = FOLLOWER_BYTES * self.followers / self.pages;
        let requests = |bytes: f64| (bytes / SQS_BYTES).ceil().max(1.0);
        let sends = if self.lists == 0.0 { requests(bytes * self.pages) } else { 2.0 + self.pages * requests(bytes) };
        let (batches, lists) = ((self.pages / per_event).ceil(), (self.lists / per_event).ceil());
        sends + batches * requests(bytes * per_event) + lists + batches + lists
    }

    /// Invocations, that of publish included.
    pub(crate) fn invocations(&self, per_event: f64) -> f64 {
        1.0 + (self.pages / per_event).ceil() + (self.lists / per_event).ceil()
    }
}

/// Server time of a fan-out in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Server {
    pub(crate) follower: f64,
    pub(crate) trip: f64,
    pub(crate) shards: f64,
    /// Followers in one trip.
    pub(crate) trip_users: f64,
}

impl Server {
    pub(crate) fn new(inputs: &Inputs, measured: &Measured, shards: u32) -> Self {
        let (live_us, trip_us) = (measured.live_us(), measured.trip_us);
        let follower = (live_us - trip_us / measured.call) * (inputs.live + (1.0 - inputs.live) * SILENT);
        let trip_users = if shards > 1 { CLUSTER_TRIP } else { CALL };
        Self { follower: follower / 1e6, trip: trip_us / 1e6, shards: f64::from(shards), trip_users }
    }

    /// The number of calls in a trip for `users` of an author with `followers`: one for each bucket on a cluster.
    pub(crate) fn calls(&self, users: f64, followers: f64) -> f64 {
        if self.shards > 1.0 { (users * (BUCKETS / followers).min(1.0)).ceil().max(1.0) } else { 1.0 }
    }

    /// Seconds of a master for one call.
    pub(crate) fn call(&self, users: f64) -> f64 {
        let scattered = if self.shards > 1.0 { SCATTERED - 1.0 } else { 0.0 };
        (users + scattered) * self.follower
    }

    /// Seconds of all masters for a whole fan-out.
    pub(crate) fn fan_out(&self, publish: &Publish) -> f64 {
        if publish.pages == 0.0 {
            return 0.0;
        }
        let page = publish.followers / publish.pages;
        let trips = (page / self.trip_users).ceil().max(1.0);
        let calls = self.calls(page / trips, publish.followers);
        let masters = self.shards * (1.0 - (1.0 - 1.0 / self.shards).powf(calls));
        publish.pages * (trips * (calls * self.call(page / trips / calls) + masters * self.trip) + self.trip)
    }
}

/// Read and write units of a request, with those of the projector for it and for the inbox of the author. Tests
/// compare them with docs/scale.md, and that with a stack.
pub(crate) const MARK: [f64; 2] = [4.0, 1.0];
pub(crate) const LIKE: [f64; 2] = [58.0, 12.0];
pub(crate) const FOLLOW: [f64; 2] = [64.0, 13.0];

/// The load of `users` users. Rates are averages of a second.
#[derive(Debug, Clone)]
pub(crate) struct Demand {
    pub(crate) inputs: Inputs,
    pub(crate) measured: Measured,
    pub(crate) users: f64,
    pub(crate) followers: Followers,
    /// Followers of the author who has the most.
    pub(crate) biggest: f64,
    pub(crate) publishes: f64,
    pub(crate) feeds: f64,
    pub(crate) marks: f64,
    pub(crate) likes: f64,
    pub(crate) follows: f64,
    /// Followers to whom posts are pushed.
    pub(crate) pushed: f64,
    /// Live followers of pulled authors, for each post. Each costs two reads at most.
    pub(crate) pulled: f64,
    pub(crate) messages: f64,
    /// Read units of the tables `followers` and `posts`, and of all tables.
    pub(crate) followers_rru: f64,
    pub(crate) posts_rru: f64,
    pub(crate) rru: f64,
    pub(crate) wru: f64,
    pub(crate) posts_wru: f64,
    /// Bytes of all views.
    pub(crate) memory: f64,
}

impl Demand {
    pub(crate) fn new(inputs: &Inputs, measured: &Measured, users: f64) -> Self {
        let followers = Followers::with_mean(inputs.following, inputs.exponent, users * inputs.most_followed);
        let live = users * inputs.live;
        let publishes = users * inputs.publishes_per_day / DAY;
        let [feeds, marks, likes, follows] =
            [inputs.feeds_per_day, inputs.marks_per_day, inputs.likes_per_day, inputs.follows_per_day]
                .map(|rate| live * rate / DAY);
        let cost = |n: f64| Publish::new(n, inputs.pull_threshold, inputs.post_kb);
        let of_publishes = |value: &dyn Fn(Publish) -> f64| publishes * followers.average(|n| value(cost(n)));
        let pushed = of_publishes(&|cost| if cost.pages > 0.0 { cost.followers } else { 0.0 });
        let pulled = publishes * inputs.live * followers.average(|n| if n < inputs.pull_threshold { 0.0 } else { n });
        let followers_rru = 23.0 * pushed / 1_000.0;
        let rebuilds = feeds * inputs.rebuilds * REBUILD_RRU * inputs.following;
        let publish_rru = of_publishes(&|cost| cost.rru);
        // A walk a day over the users with keys in Redis.
        let walk = live * (WALK_RRU[0] + WALK_RRU[1] * inputs.following) / DAY;
        let posts = publishes * (inputs.post_kb * 1024.0 + POST_BYTES) * DAY * POST_DAYS;
        Self {
            biggest: followers.quantile(1.0 - 1.0 / users),
            pushed,
            pulled,
            messages: of_publishes(&|cost| cost.messages()),
            followers_rru,
            posts_rru: publish_rru - followers_rru + rebuilds,
            rru: publish_rru + rebuilds + 2.0 * pulled + MARK[0] * marks + LIKE[0] * likes + FOLLOW[0] * follows + walk,
            wru: of_publishes(&|cost| cost.wru) + MARK[1] * marks + LIKE[1] * likes + FOLLOW[1] * follows,
            posts_wru: of_publishes(&|cost| cost.wru),
            memory: live * measured.view_bytes.at(inputs.following) + posts,
            inputs: inputs.clone(),
            measured: measured.clone(),
            users,
            followers,
            publishes,
            feeds,
            marks,
            likes,
            follows,
        }
    }

    /// Requests of the API.
    pub(crate) fn requests(&self) -> f64 {
        self.publishes + self.feeds + self.marks + self.likes + self.follows
    }

    /// Seconds of all masters for requests of the API, in a second.
    pub(crate) fn readers_seconds(&self) -> f64 {
        let (inputs, measured) = (&self.inputs, &self.measured);
        let pages = self.feeds * measured.first_page_us.at(inputs.following);
        let rebuilds = self.feeds * inputs.rebuilds * REBUILD_COMMANDS * inputs.following * COMMAND_US;
        let others = (self.requests() - self.feeds) * measured.unread_us.at(inputs.following);
        (pages + rebuilds + others + self.pulled * measured.live_us()) / 1e6
    }

    /// Busy share of a master at the peak.
    pub(crate) fn utilisation(&self, shards: u32) -> f64 {
        let server = Server::new(&self.inputs, &self.measured, shards);
        let cost = |n: f64| server.fan_out(&Publish::new(n, self.inputs.pull_threshold, self.inputs.post_kb));
        let fan_outs = self.publishes * self.followers.average(cost);
        self.inputs.peak * (self.readers_seconds() + fan_outs) / f64::from(shards)
    }

    /// Workers that are busy at the peak, with one message each and without waiting.
    pub(crate) fn busy_workers(&self, shards: u32) -> f64 {
        let inputs = &self.inputs;
        let server = Server::new(inputs, &self.measured, shards);
        let seconds = |n: f64| {
            let publish = Publish::new(n, inputs.pull_threshold, inputs.post_kb);
            if publish.pages == 0.0 {
                return 0.0;
            }
            let page = publish.followers / publish.pages;
            let trips = (page / server.trip_users).ceil().max(1.0) + 1.0;
            let batch = inputs.dynamodb_read_ms + trips * inputs.redis_trip_ms + page * inputs.worker_us / 1e3;
            let list = inputs.dynamodb_read_ms + inputs.dynamodb_query_ms + inputs.sqs_ms;
            let listed = if publish.lists > 0.0 { list } else { 0.0 };
            (publish.pages * (batch + listed) + inputs.dynamodb_write_ms) / 1e3 + server.fan_out(&publish)
        };
        inputs.peak * self.publishes * self.followers.average(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/fan-out.md has identifiers as long as they get, a body of no KB and full events.
    #[test]
    fn a_publish_costs_what_fan_out_md_says() {
        let document = include_str!("../../../docs/fan-out.md");
        let mut rows = 0;
        for line in document.lines().filter(|line| line.contains("| push |") || line.contains("| pull |")) {
            let cells: Vec<String> = line.split('|').map(|cell| cell.trim().replace(',', "")).collect();
            let number = |cell: usize| cells[cell].parse::<f64>().unwrap();
            let publish = Publish::new(number(1), if cells[2] == "pull" { 0.0 } else { 1e9 }, 0.0);
            let counted = [publish.pages, publish.rru, publish.wru, publish.sqs(3.0), publish.invocations(3.0)];
            assert_eq!(counted.map(f64::round), [3, 4, 5, 6, 7].map(number), "{line}");
            rows += 1;
        }
        assert_eq!(rows, 6);
    }

    #[test]
    fn a_full_call_takes_the_measured_time_of_its_followers() {
        let measured = Measured::read().unwrap();
        let inputs = Inputs { live: 1.0, ..Inputs::default() };
        let server = Server::new(&inputs, &measured, 1);
        let publish = Publish::new(70_000.0, 1e9, 1.0);
        let expected = 70_000.0 * measured.live_us() / 1e6;
        assert!((server.fan_out(&publish) / expected - 1.0).abs() < 0.1, "the rest of a page is a shorter call");
        assert!((server.call(measured.call) + server.trip - measured.call * measured.live_us() / 1e6).abs() < 1e-12);
    }

    #[test]
    fn rates_are_those_of_the_inputs() {
        let demand = Demand::new(&Inputs::default(), &Measured::read().unwrap(), 1e6);
        assert!((demand.publishes - 1e6 * 0.2 / 86_400.0).abs() < 1e-9);
        assert!((demand.feeds - 3e5 * 20.0 / 86_400.0).abs() < 1e-9);
        assert!((demand.pushed / (demand.publishes * 100.0) - 1.0).abs() < 1e-3, "nobody is pulled");
        assert!(demand.pulled == 0.0 && demand.biggest < 1e6);
        let bigger = Demand::new(&Inputs::default(), &Measured::read().unwrap(), 1e9);
        let followers = (bigger.pushed + bigger.pulled / 0.3) / bigger.publishes;
        assert!((followers / 100.0 - 1.0).abs() < 1e-3, "each follower is pushed to, or pulls");
    }
}

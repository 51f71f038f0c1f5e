//! A discrete-event simulation of fan-outs: publish, queue, workers and Redis, message by message.
//!
//! At the start one author with many followers publishes. Other authors publish at random moments until that post is
//! delivered. Times are seconds.

use std::collections::{BTreeMap, VecDeque};

use rand::{Rng, SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, Exp};

use super::{
    demand::{Publish, Server},
    followers::Followers,
    inputs::Inputs,
    redis::{Background, Master},
};

/// Messages of an event (`BatchSize` in template.yaml).
const BATCH: usize = 3;
/// Lambda starts with five batches at a time and adds 300 a minute while messages wait.
const FIRST_POLLERS: f64 = 5.0;
const MORE_POLLERS: f64 = 5.0;
/// From a message in the queue to the poller that receives it.
const POLL_SECONDS: f64 = 1e-3;
/// A time too short for the calendar, which counts nanoseconds.
const MOMENT: f64 = 1e-8;
/// A task that lists pages sends its rest as a new task after this time.
const LIST_SECONDS: f64 = 1.0;
/// The longest simulated time, and the least time in which other authors publish.
const LONGEST: f64 = 120.0;
const SHORTEST: f64 = 5.0;
/// Simulated followers after which no more authors publish.
const MOST_WORK: f64 = 2e7;

/// The input of a simulation.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) inputs: Inputs,
    pub(crate) server: Server,
    pub(crate) workers: u32,
    /// Workers that run at the start.
    pub(crate) warm: f64,
    /// Followers of the big post. The delivery of this post ends the simulation.
    pub(crate) big: f64,
    /// Posts of other authors a second, and their followers.
    pub(crate) others: f64,
    pub(crate) followers: Followers,
    /// Requests of readers at each master.
    pub(crate) readers: Background,
    /// Whether workers pace themselves, one trip at a time.
    pub(crate) paced: bool,
}

/// The result of a simulation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// Time from the publish of the big post to its last follower. `None` if it was not delivered in time.
    pub(crate) last_follower: Option<f64>,
    /// Times from publish to last follower of posts with up to five pages, sorted.
    pub(crate) small: Vec<f64>,
    /// Times that messages waited for a worker, sorted.
    pub(crate) ages: Vec<f64>,
    /// Times that requests of readers waited for Redis, sorted.
    pub(crate) waits: Vec<f64>,
    pub(crate) messages: u64,
    /// Pages whose progress was stored.
    pub(crate) pages: u64,
    pub(crate) events: u64,
    pub(crate) calls: u64,
    pub(crate) delivered: f64,
    pub(crate) published: f64,
    /// Messages in the queue at the end.
    pub(crate) left: usize,
    /// Busy share of the masters.
    pub(crate) utilisation: f64,
    /// Time of all workers.
    pub(crate) worker_seconds: f64,
}

/// The value that a `share` of sorted `values` does not exceed.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    values.get(((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Work {
    /// Followers of a page that are left.
    Page(f64),
    /// The progress of the page is stored.
    Progress,
    /// Pages of followers that are still to be listed.
    List(f64),
}

#[derive(Debug, Clone, Copy)]
struct Message {
    post: usize,
    work: Work,
    sent: f64,
}

/// A message at a worker.
#[derive(Debug, Clone, Copy)]
struct Run {
    message: Message,
    event: usize,
    started: f64,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Publish { others: bool },
    Send(Message),
    Start(usize),
    Ready(Run),
    Trip(Run, f64),
    Done(Run),
    Finished(usize),
    Poll,
    MorePollers,
}

struct Post {
    at: f64,
    publish: Publish,
    pages_left: f64,
}

struct Event {
    waiting: Vec<Message>,
    open: usize,
    started: f64,
    /// The time at which the worker may make its next trip, if it paces itself.
    turn: f64,
}

struct Simulation<'a> {
    plan: &'a Plan,
    random: StdRng,
    now: f64,
    /// Steps by time in nanoseconds, and by a number that keeps steps at the same time apart.
    calendar: BTreeMap<(u64, usize), Step>,
    /// Numbers that earlier steps had and that no waiting step has. They are given out first.
    free: Vec<usize>,
    posts: Vec<Post>,
    open_posts: usize,
    events: Vec<Event>,
    /// The fair queue: messages of posts with few messages come first, then those of the others.
    queue: [VecDeque<Message>; 2],
    pollers: f64,
    busy: usize,
    masters: Vec<Master>,
    cores: Vec<f64>,
    outcome: Outcome,
}

/// Simulates a plan. The same plan and seed have the same outcome.
pub(crate) fn simulate(plan: &Plan) -> Outcome {
    let mut random = StdRng::seed_from_u64(plan.inputs.seed);
    let masters = (0..plan.server.shards as usize).map(|_| Master::new(plan.readers, &mut random)).collect();
    let mut simulation = Simulation {
        plan,
        random,
        now: 0.0,
        calendar: BTreeMap::new(),
        free: Vec::new(),
        posts: Vec::new(),
        open_posts: 0,
        events: Vec::new(),
        queue: Default::default(),
        pollers: plan.warm.max(FIRST_POLLERS).min(f64::from(plan.workers)),
        busy: 0,
        masters,
        cores: vec![0.0; plan.inputs.cores.unwrap_or(0) as usize],
        outcome: Outcome::default(),
    };
    simulation.run();
    simulation.summary()
}

impl Simulation<'_> {
    fn run(&mut self) {
        self.after(0.0, Step::Publish { others: false });
        if self.plan.others > 0.0 {
            self.after(0.0, Step::Publish { others: true });
        }
        self.after(1.0, Step::MorePollers);
        while let Some(((at, number), step)) = self.calendar.pop_first() {
            self.now = at as f64 / 1e9;
            if self.now > LONGEST {
                break;
            }
            self.free.push(number);
            self.step(step);
            if self.open_posts == 0 && !self.is_publishing() {
                break;
            }
        }
    }

    /// Whether other authors still publish.
    fn is_publishing(&self) -> bool {
        let big_is_open = self.outcome.last_follower.is_none();
        let has_time = self.now < SHORTEST && self.plan.others > 0.0;
        (big_is_open || has_time) && self.outcome.published < MOST_WORK.max(self.plan.big * 2.0)
    }

    fn after(&mut self, seconds: f64, step: Step) {
        let number = self.free.pop().unwrap_or(self.calendar.len());
        self.calendar.insert((((self.now + seconds) * 1e9) as u64, number), step);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Publish { others } => self.publish(others),
            Step::Send(message) => self.send(message),
            Step::Start(event) => self.start(event),
            Step::Ready(run) => self.ready(run),
            Step::Trip(run, users) => self.trip(run, users),
            Step::Done(run) => self.done(run),
            Step::Finished(post) => self.finished(post),
            Step::Poll => self.dispatch(),
            Step::MorePollers => {
                if !self.queue.iter().all(VecDeque::is_empty) {
                    self.pollers = (self.pollers + MORE_POLLERS).min(f64::from(self.plan.workers));
                    self.dispatch();
                }
                self.after(1.0, Step::MorePollers);
            }
        }
    }

    fn publish(&mut self, others: bool) {
        let inputs = &self.plan.inputs;
        let followers = if others {
            let number = self.plan.followers.quantile(self.random.random()).round().max(1.0);
            let gap = Exp::new(self.plan.others).map_or(f64::INFINITY, |gap| gap.sample(&mut self.random));
            if self.is_publishing() {
                self.after(gap, Step::Publish { others });
            }
            number
        } else {
            self.plan.big
        };
        let threshold = if others { inputs.pull_threshold } else { f64::INFINITY };
        let publish = Publish::new(followers, threshold, inputs.post_kb);
        if publish.pages == 0.0 {
            return;
        }
        self.outcome.published += followers;
        let post = self.posts.len();
        self.open_posts += 1;
        self.posts.push(Post { at: self.now, publish, pages_left: publish.pages });
        let request = inputs.request_ms / 1e3;
        let works: Vec<Work> = match publish.lists {
            0.0 => vec![Work::Page(followers / publish.pages); publish.pages as usize],
            lists => {
                let bound = |task: usize| (task as f64 * publish.pages / lists).floor();
                (0..lists as usize).map(|task| Work::List(bound(task + 1) - bound(task))).collect()
            }
        };
        for work in works {
            self.after(request, Step::Send(Message { post, work, sent: 0.0 }));
        }
    }

    fn send(&mut self, message: Message) {
        self.outcome.messages += 1;
        let is_noisy = self.posts[message.post].publish.lists > 0.0;
        self.queue[usize::from(is_noisy)].push_back(Message { sent: self.now, ..message });
        // Messages that are sent together are received together.
        self.after(POLL_SECONDS, Step::Poll);
    }

    /// Gives waiting messages to workers, the authors with few messages first.
    fn dispatch(&mut self) {
        while (self.busy as f64) < self.pollers.floor() {
            let mut receive = || self.queue.iter_mut().find_map(VecDeque::pop_front);
            let waiting: Vec<Message> = (0..BATCH).map_while(|_| receive()).collect();
            self.outcome.ages.extend(waiting.iter().map(|message| self.now - message.sent));
            if waiting.is_empty() {
                break;
            }
            self.busy += 1;
            self.outcome.events += 1;
            let open = waiting.len();
            self.events.push(Event { waiting, open, started: self.now, turn: self.now });
            self.after(self.plan.inputs.invoke_ms / 1e3, Step::Start(self.events.len() - 1));
        }
    }

    fn start(&mut self, event: usize) {
        self.events[event].started = self.now;
        for _ in 0..self.plan.inputs.lanes {
            self.next(event);
        }
    }

    /// Begins the next message of an event.
    fn next(&mut self, event: usize) {
        if self.events[event].waiting.is_empty() {
            return;
        }
        let message = self.events[event].waiting.remove(0);
        let run = Run { message, event, started: self.now };
        match message.work {
            // Reads from Redis which pages are done.
            Work::List(_) => self.after(self.plan.inputs.redis_trip_ms / 2e3, Step::Trip(run, 0.0)),
            _ => self.after(self.plan.inputs.dynamodb_read_ms / 1e3, Step::Ready(run)),
        }
    }

    /// Continues after the look at the post, a listing or a trip.
    fn ready(&mut self, mut run: Run) {
        let inputs = &self.plan.inputs;
        match run.message.work {
            Work::Page(left) if left >= 0.5 => {
                let rest = self.events[run.event].turn - self.now;
                if self.plan.paced && rest > MOMENT {
                    return self.after(rest, Step::Ready(run));
                }
                let users = left.min(self.plan.server.trip_users);
                run.message.work = Work::Page(left - users);
                let compute = self.compute(users * inputs.worker_us / 1e6);
                // One trip at a time. When this one has arrived, it is known when it ends.
                self.events[run.event].turn = self.now + compute + inputs.redis_trip_ms / 1e3;
                self.after(compute + inputs.redis_trip_ms / 2e3, Step::Trip(run, users));
            }
            Work::Page(_) => {
                run.message.work = Work::Progress;
                self.after(inputs.redis_trip_ms / 2e3, Step::Trip(run, 0.0));
            }
            Work::Progress => self.after(0.0, Step::Done(run)),
            Work::List(pages) if pages < 0.5 => self.after(0.0, Step::Done(run)),
            Work::List(_) if self.now - run.started > LIST_SECONDS => {
                self.after(inputs.sqs_ms / 1e3, Step::Send(run.message));
                self.after(inputs.sqs_ms / 1e3, Step::Done(run));
            }
            Work::List(pages) => {
                let publish = self.posts[run.message.post].publish;
                let page = publish.followers / publish.pages;
                let compute = self.compute(page * inputs.worker_us / 1e6);
                let listed = compute + (inputs.dynamodb_read_ms + inputs.dynamodb_query_ms + inputs.sqs_ms) / 1e3;
                self.after(listed, Step::Send(Message { work: Work::Page(page), ..run.message }));
                run.message.work = Work::List(pages - 1.0);
                self.after(listed, Step::Ready(run));
            }
        }
    }

    /// The time that `seconds` of a processor take from now on.
    fn compute(&mut self, seconds: f64) -> f64 {
        let now = self.now;
        match self.cores.iter_mut().min_by(|a, b| a.total_cmp(b)) {
            Some(core) => {
                *core = core.max(now) + seconds;
                *core - now
            }
            None => seconds,
        }
    }

    /// A trip reaches the masters. It delivers to `users`, or stores the progress if there are none.
    fn trip(&mut self, run: Run, users: f64) {
        let (server, followers) = (self.plan.server, self.posts[run.message.post].publish.followers);
        let paced = self.plan.paced && users > 0.0;
        let calls = if users > 0.0 { server.calls(users, followers) } else { 1.0 };
        let seconds = if users > 0.0 { server.call(users / calls) } else { 0.0 };
        let (mut back, mut turn) = (self.now, self.now);
        let mut reached: Vec<usize> = (0..calls as usize).map(|_| self.random.random_range(0..self.masters.len())).collect();
        reached.sort_unstable();
        for same in reached.chunk_by(|a, b| a == b) {
            let master = &mut self.masters[same[0]];
            master.advance(self.now, &mut self.random, &mut self.outcome.waits);
            let seconds = seconds * same.len() as f64 + server.trip;
            back = back.max(master.run(self.now, seconds));
            if paced {
                turn = turn.max(master.take_turn(self.now, seconds));
            }
        }
        self.outcome.calls += calls as u64;
        self.outcome.delivered += users;
        let back = back + self.plan.inputs.redis_trip_ms / 2e3;
        if paced {
            self.events[run.event].turn = back.max(turn);
        }
        self.after(back - self.now, Step::Ready(run));
    }

    fn done(&mut self, run: Run) {
        if run.message.work == Work::Progress {
            let post = run.message.post;
            self.outcome.pages += 1;
            self.posts[post].pages_left -= 1.0;
            if self.posts[post].pages_left < 0.5 {
                self.after(self.plan.inputs.dynamodb_write_ms / 1e3, Step::Finished(post));
            }
        }
        let event = &mut self.events[run.event];
        event.open -= 1;
        if event.open > 0 {
            return self.next(run.event);
        }
        self.outcome.worker_seconds += self.now - event.started;
        self.busy -= 1;
        self.dispatch();
    }

    fn finished(&mut self, post: usize) {
        self.open_posts -= 1;
        let took = self.now - self.posts[post].at;
        if post == 0 {
            self.outcome.last_follower = Some(took);
        } else if self.posts[post].publish.lists == 0.0 {
            self.outcome.small.push(took);
        }
    }

    fn summary(mut self) -> Outcome {
        let end = self.now.min(LONGEST);
        for master in &mut self.masters {
            master.advance(end, &mut self.random, &mut self.outcome.waits);
        }
        let outcome = &mut self.outcome;
        outcome.left = self.queue.iter().map(VecDeque::len).sum();
        outcome.utilisation = self.masters.iter().map(|master| master.busy(end)).sum::<f64>() / self.masters.len() as f64 / end;
        for times in [&mut outcome.small, &mut outcome.ages, &mut outcome.waits] {
            times.sort_unstable_by(f64::total_cmp);
        }
        self.outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::Measured;
    use crate::redis::BUSY;

    fn plan(inputs: Inputs, shards: u32, workers: u32, big: f64) -> Plan {
        let server = Server::new(&inputs, &Measured::read().unwrap(), shards);
        let followers = Followers::with_mean(100.0, 2.276, 3e5);
        let readers = Background { rate: 0.0, seconds: 0.0 };
        Plan { inputs, server, workers, warm: f64::from(workers), big, others: 0.0, followers, readers, paced: true }
    }

    #[test]
    fn every_follower_is_delivered_once_and_each_page_is_one_message() {
        for (shards, others) in [(1, 0.0), (1, 20.0), (7, 50.0)] {
            let outcome = simulate(&Plan { others, ..plan(Inputs::default(), shards, 40, 200_000.0) });
            assert!((outcome.delivered - outcome.published).abs() < 0.5, "{} of {}", outcome.delivered, outcome.published);
            assert_eq!(outcome.left, 0);
            assert!(outcome.last_follower.is_some());
            if others == 0.0 {
                let publish = Publish::new(200_000.0, f64::INFINITY, 1.0);
                assert_eq!(outcome.pages as f64, publish.pages);
                assert_eq!(outcome.messages as f64, publish.messages(), "200 pages and 16 tasks");
                assert_eq!(outcome.calls as f64, 200.0 * 30.0 + 16.0, "29 calls of 35 and the progress");
            }
        }
    }

    #[test]
    fn the_slowest_part_binds() {
        let seconds = |inputs: Inputs, workers: u32| simulate(&plan(inputs, 1, workers, 500_000.0)).last_follower.unwrap();
        let live = Inputs { live: 1.0, ..Inputs::default() };
        let redis = 500_000.0 * Measured::read().unwrap().live_us() / 1e6;
        let (many, paced) = (seconds(live.clone(), 40), redis / BUSY);
        assert!(many > paced && many < paced * 1.15, "a part of one thread of Redis: {many} s for {paced} s");
        let slow = Inputs { redis_trip_ms: 10.0, ..live.clone() };
        // Each of two workers makes the 29 trips of its pages one after another.
        let waiting = 500.0 / 2.0 * 29.0 * 0.01;
        assert!(seconds(slow.clone(), 2) > waiting, "two workers wait for the network");
        assert!(seconds(slow, 40) < waiting / 4.0, "more workers lift that limit");
        let shared = Inputs { cores: Some(1), worker_us: 50.0, ..live };
        // A page is listed and delivered, at 50 µs a follower each.
        assert!((seconds(shared, 40) / 50.0 - 1.0).abs() < 0.05, "one processor");
    }

    #[test]
    fn small_posts_pass_the_big_one_and_seeds_repeat() {
        let plan = Plan { others: 20.0, ..plan(Inputs::default(), 1, 10, 1_000_000.0) };
        let outcome = simulate(&plan);
        assert!(quantile(&outcome.small, 0.99) < outcome.last_follower.unwrap() / 2.0);
        let again = simulate(&plan);
        assert_eq!((again.small, again.messages), (outcome.small.clone(), outcome.messages));
        let other = simulate(&Plan { inputs: Inputs { seed: 2, ..plan.inputs.clone() }, ..plan });
        assert_ne!(other.small, outcome.small);
    }

    #[test]
    fn too_few_workers_leave_a_queue() {
        let outcome = simulate(&Plan { others: 5_000.0, ..plan(Inputs::default(), 1, 2, 1_000_000.0) });
        assert!(outcome.last_follower.is_none() && outcome.left > 1_000);
        assert!(quantile(&outcome.ages, 1.0) > 10.0);
    }
}

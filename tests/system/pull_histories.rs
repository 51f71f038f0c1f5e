//! An author crosses the threshold many times. The author's tasks wait, repeat and run in any order. At the end of
//! each history, every reader must agree with the model.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use rand::{Rng, SeedableRng, rngs::StdRng};
use redis::AsyncCommands;
use serde_json::json;
use tidemark::{
    App, Stores,
    domain::{PostId, UserId},
    facts::schema,
    fan_out::FanOuts,
    ports::{Backlog, Deleted, FanOut, StoreError, Task, TaskQueue},
    views::keys,
};
use tidemark_reconcile::{StoredFacts, stored::Unfinished};
use tidemark_tests::{Model, World, user_id};

use crate::{at_once, delivery::publish_in_facts, operations::put_or_delete, pull::small_world};

/// The number of histories in a run. A build with `TIDEMARK_HISTORIES` sets another number.
const HISTORIES: u64 = match option_env!("TIDEMARK_HISTORIES") {
    Some(_) => 2_000,
    None => 80,
};

const TOGETHER: usize = 8;
const OPERATIONS: usize = 70;

/// A queue whose messages the history takes in any order.
#[derive(Default)]
struct Held(Mutex<Vec<Task>>);

#[async_trait]
impl TaskQueue for Held {
    async fn send_after(&self, tasks: &[Task], _delay: Duration) -> Result<(), StoreError> {
        self.0.lock().unwrap().extend_from_slice(tasks);
        Ok(())
    }

    async fn backlog(&self) -> Result<Backlog, StoreError> {
        Ok(Backlog::default())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Held {
    /// Takes a random message. With `again` the message also stays in the queue.
    fn take(&self, rng: &mut StdRng, again: bool) -> Option<Task> {
        let mut tasks = self.0.lock().unwrap();
        let index = (!tasks.is_empty()).then(|| rng.random_range(0..tasks.len()))?;
        Some(if again { tasks[index].clone() } else { tasks.swap_remove(index) })
    }
}

#[test]
fn tasks_in_any_order_around_the_threshold_end_in_agreement_with_the_model() {
    small_world(async |world| {
        at_once(TOGETHER, 0..HISTORIES, async |seed| History::new(world, seed).run().await).await;
        assert_eq!(crate::damage::walk(world, true, 0).await["differences"], json!([]));
    });
}

/// One author, the author's followers, and the log of the history.
struct History<'w> {
    world: &'w World,
    /// The use cases of the publish function, with this history's queue.
    app: App,
    held: Arc<Held>,
    rng: StdRng,
    model: Model,
    author: UserId,
    seed: u64,
    log: Vec<String>,
}

impl<'w> History<'w> {
    fn new(world: &'w World, seed: u64) -> Self {
        let held = Arc::new(Held::default());
        let mut app = world.stack.app("publish").unwrap().clone();
        let stores = Arc::new(Stores { queue: held.clone(), ..(*app.stores).clone() });
        app.fan_outs = FanOuts { stores, ..app.fan_outs };
        app.publishing.fan_outs = app.fan_outs.clone();
        app.worker.fan_outs = app.fan_outs.clone();
        let author = UserId::new((seed + 1) * 100).unwrap();
        Self { world, app, held, rng: StdRng::seed_from_u64(seed), model: Model::default(), author, seed, log: Vec::new() }
    }

    async fn run(mut self) {
        for _ in 0..OPERATIONS {
            self.operate().await;
        }
        loop {
            while let Some(task) = self.held.take(&mut self.rng, false) {
                self.work(&task).await;
            }
            self.resume().await;
            if self.held.0.lock().unwrap().is_empty() {
                break;
            }
        }
        for reader in self.readers() {
            self.compare(reader).await;
        }
    }

    /// Two readers, and three followers who only make the author big or small.
    fn readers(&self) -> [u64; 2] {
        [self.author.get() + 1, self.author.get() + 2]
    }

    async fn operate(&mut self) {
        let author = self.author.get();
        let user = author + self.rng.random_range(1..6);
        let reader = self.readers()[self.rng.random_range(0..2)];
        let latest = self.model.latest(author);
        let seq = self.rng.random_range(1..=latest.max(1));
        match self.rng.random_range(0..100) {
            0..24 => self.publish().await,
            24..36 if latest > 0 => self.delete(seq).await,
            36..52 => {
                let again = self.rng.random_bool(0.2);
                if let Some(task) = self.held.take(&mut self.rng, again) {
                    self.log.push(format!("work {task:?}"));
                    self.work(&task).await;
                }
            }
            52..70 => {
                let follow = self.model.following(user).is_empty();
                if follow || self.rng.random() {
                    self.log.push(format!("follow {user} {follow}"));
                    put_or_delete(&self.world.user(user), &format!("/v1/following/{author}"), follow).await.ok();
                    if follow { self.model.follow(user, author) } else { self.model.unfollow(user, author) }
                }
            }
            70..82 => {
                let path = ["/v1/unread", "/v1/feed?limit=3"][self.rng.random_range(0..2)];
                self.log.push(format!("read {reader} {path}"));
                self.world.user(reader).get(path).await.ok();
            }
            82..86 if latest > 0 => {
                self.log.push(format!("through {reader} {seq}"));
                let through = json!({ "author": author.to_string(), "through": seq });
                self.world.user(reader).post("/v1/reads", &through).await.ok();
                self.model.through(reader, author, seq);
            }
            86..92 if latest > 0 => {
                let read = self.rng.random_bool(0.7);
                self.log.push(format!("mark {reader} {seq} {read}"));
                put_or_delete(&self.world.user(reader), &format!("/v1/posts/{author}-{seq}/read"), read).await;
                self.model.mark(reader, (author, seq), read);
            }
            92..95 => {
                let reader = user_id(reader);
                let lost = [vec![keys::head(self.author)[0].clone()], vec![keys::reader_state(reader), keys::feed(reader)]];
                let lost = &lost[self.rng.random_range(0..2)];
                self.log.push(format!("lose {lost:?}"));
                let _: () = self.world.redis().await.del(lost).await.unwrap();
            }
            95..98 => self.resume().await,
            _ => {}
        }
    }

    async fn publish(&mut self) {
        let followers = self.app.stores.edges.follower_counts(self.author).await.unwrap().iter().sum();
        let (post, fan_out) = publish_in_facts(&self.app, self.author, followers, self.app.stores.clock.now()).await;
        self.log.push(format!("publish {} {:?} {:?}", post.id, post.delivery.mode, fan_out.modes));
        assert_eq!(post.id.seq, self.model.publish(self.author.get()));
        self.app.fan_outs.start(fan_out).await.unwrap();
    }

    async fn delete(&mut self, seq: u64) {
        let followers = self.app.stores.edges.follower_counts(self.author).await.unwrap().iter().sum();
        self.model.delete((self.author.get(), seq));
        let deleted = self.app.stores.posts.delete(PostId::new(self.author, seq), followers).await.unwrap();
        if let Deleted::Deleted(post, head) = deleted {
            self.log.push(format!("delete {seq} {} pages {:?}", post.delivery.retraction_pages, head.modes));
            self.app.fan_outs.start(FanOut::of(&post, &head)).await.unwrap();
        }
    }

    async fn work(&self, task: &Task) {
        self.app.worker.run(task, &|| false).await.unwrap();
    }

    /// Resumes the author's unfinished fan-outs, as reconcile does.
    async fn resume(&mut self) {
        let (facts, before) = (StoredFacts(self.app.facts.clone()), self.app.stores.clock.now().plus_ms(60_000));
        let shard = u64::from(self.author.bucket()) % schema::UNFINISHED_SHARDS;
        let mut unfinished = facts.unfinished(Unfinished::Open, shard, before, None, 1_000).await.unwrap().items;
        unfinished.retain(|post| post.author == self.author);
        let posts = self.app.stores.posts.posts(&unfinished).await.unwrap();
        let heads = self.app.stores.posts.heads(&[self.author]).await.unwrap();
        for post in posts.values() {
            self.log.push(format!("resume {}", post.id));
            let head = &heads[&self.author];
            let inspected = self.app.fan_outs.inspect(post, head, 1_000).await.unwrap();
            self.app.fan_outs.resume(post, head, &inspected).await.unwrap();
        }
    }

    async fn compare(&self, reader: u64) {
        let story = || format!("seed {}, reader {reader}:\n{}", self.seed, self.log.join("\n"));
        let caller = self.world.user(reader);
        assert_eq!(caller.unread_total_once().await, self.model.unread_total(reader), "{}", story());
        let id = |((author, seq), read): ((u64, u64), bool)| (format!("{author}-{seq}"), read);
        let expected: Vec<(String, bool)> = self.model.feed(reader).into_iter().map(id).collect();
        assert_eq!(caller.feed("all").await, expected, "{}", story());
        assert_eq!(caller.unread_total_once().await, self.model.unread_total(reader), "{}", story());
    }
}

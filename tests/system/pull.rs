//! Big authors: their posts are not pushed, and readers fetch them. In random histories an author crosses the threshold
//! many times, and the author's tasks wait, repeat and run in any order. At the end of each, every reader must agree
//! with the model.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use rand::{Rng, SeedableRng, rngs::StdRng};
use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark::{
    App, Stores,
    domain::{PostId, StoreError, UserId},
    facts::{Deleted, schema},
    queue::{Backlog, FanOut, Queues, Task, TaskQueue},
    views::keys,
};
use tidemark_reconcile_lib::{StoredFacts, Unfinished};
use tidemark_tests::{Model, User, World, number_from, parameter, user_id, world_with};

use crate::{
    at_once,
    delivery::{delivery, publish_in_facts},
    operations::put_or_delete,
    publish_and_deliver_all,
};

/// A stack on which three followers make an author big.
fn small_world(test: impl AsyncFnOnce(&World)) {
    world_with(parameter("PullThreshold", 3), test);
}

/// This number of users follow the author. Returns the first, who has a view, and the author.
async fn followers(world: &World, number: u64) -> (User, User) {
    world.follow(1..=number, 10).await;
    (world.live_reader(1, [10]).await, world.user(10))
}

async fn unfollow(world: &World, followers: impl IntoIterator<Item = u64>) {
    for follower in followers {
        world.user(follower).delete("/v1/following/10").await.ok();
    }
}

/// Publishes and delivers one post after the other. Returns how each was delivered.
async fn modes<const N: usize>(world: &World, titles: [&str; N]) -> Vec<Value> {
    let mut modes = Vec::new();
    for title in titles {
        let post = world.publish_and_deliver(10, title).await;
        let delivery = delivery(world, &post, &["state", "mode"]).await;
        assert_eq!(delivery[0], "done");
        modes.push(delivery[1].clone());
    }
    modes
}

#[test]
fn posts_of_a_big_author_are_fetched_and_count_as_unread() {
    small_world(async |world| {
        let ((live, author), cold) = (followers(world, 3).await, world.user(2));
        let modes = modes(world, ["x"; 4]).await;
        assert_eq!(modes, ["push", "pull", "pull", "pull"], "the post that reaches the threshold is the last pushed one");
        // No read of the feed has fetched the posts that were not pushed.
        let unread = live.get("/v1/authors/10/posts?status=unread").await.ok();
        assert_eq!((&unread["total"], unread["items"].as_array().unwrap().len()), (&json!(4), 4));
        for reader in [&live, &cold] {
            assert_eq!(reader.unread_total().await, 4);
            assert_eq!(reader.feed_ids().await, ["10-4", "10-3", "10-2", "10-1"]);
            reader.put("/v1/posts/10-3/read").await.has(json!({ "author": "10", "unread": 3, "total": 3 }));
        }
        // A deletion has no retraction here. Each reader's next read finds it.
        author.delete("/v1/posts/10-4").await.ok();
        author.delete("/v1/posts/10-1").await.ok();
        for reader in [&live, &cold] {
            assert_eq!(reader.unread_total().await, 1);
            assert_eq!(reader.feed("all").await, [("10-3".to_owned(), true), ("10-2".to_owned(), false)]);
            assert_eq!(reader.feed("unread").await, [("10-2".to_owned(), false)]);
        }
        // The same with an empty Redis.
        world.flush_redis().await;
        author.publish("after the flush").await;
        for reader in [&live, &cold] {
            assert_eq!((reader.unread_total().await, reader.feed_ids().await.len()), (2, 3));
        }
    });
}

#[test]
fn an_author_who_is_small_again_is_pushed_and_no_post_is_lost() {
    small_world(async |world| {
        let ((reader, _), sleeper) = (followers(world, 4).await, world.user(2));
        sleeper.feed_ids().await;
        publish_and_deliver_all(world, [10], ["one, pushed", "two, pulled"]).await;
        assert_eq!(reader.unread_total().await, 2);
        unfollow(world, [3, 4]).await;
        // Two followers are left. Post 3 is the last one to be pulled, later posts are pushed.
        assert_eq!(modes(world, ["three", "four", "five"]).await, ["pull", "push", "push"]);
        // One reader has read in between. The other has not read since the first post.
        for reader in [&reader, &sleeper] {
            assert_eq!(reader.unread_total().await, 5);
            assert_eq!(reader.feed_ids().await, ["10-5", "10-4", "10-3", "10-2", "10-1"]);
        }
    });
}

#[test]
fn posts_are_delivered_exactly_once_when_the_mode_changes_during_a_fan_out() {
    small_world(async |world| {
        let (reader, author) = followers(world, 3).await;
        world.stack.pause("fan-out").await.unwrap();
        // Pushed and held back. The mode changes to pull in the meantime.
        author.publish_all(["x"; 3]).await;
        assert_eq!(reader.unread_total().await, 0, "the view does not have the change of mode");
        world.resume("fan-out").await;
        assert_eq!((reader.unread_total().await, reader.feed_ids().await.len()), (3, 3));
        // Small again, and big again. The fan-out of the posts in between is held back.
        world.stack.pause("fan-out").await.unwrap();
        unfollow(world, [2, 3]).await;
        author.publish_all(["pulled", "pushed"]).await;
        world.follow(2..=3, 10).await;
        author.publish_all(["pushed", "pulled"]).await;
        assert_eq!((reader.unread_total().await, reader.feed_ids().await.len()), (7, 7), "this view fetches");
        world.resume("fan-out").await;
        assert_eq!((reader.unread_total().await, reader.feed_ids().await.len()), (7, 7));
        // A reader who followed in between has later posts as unread and older posts as read.
        assert_eq!((world.user(2).unread_total().await, world.user(2).feed_ids().await.len()), (2, 7));
    });
}

#[test]
fn a_change_of_mode_reaches_views_although_its_post_is_deleted_before_delivery() {
    for pulled_before_the_deletion in [false, true] {
        small_world(async |world| {
            let (reader, author) = followers(world, 3).await;
            world.stack.pause("fan-out").await.unwrap();
            author.publish("pushed, the last one").await;
            if pulled_before_the_deletion {
                author.publish("pulled").await;
            }
            author.delete("/v1/posts/10-1").await.ok();
            if !pulled_before_the_deletion {
                author.publish("pulled").await;
            }
            world.resume("fan-out").await;
            assert_eq!((reader.unread_total().await, reader.feed_ids().await), (1, vec!["10-2".to_owned()]));
        });
    }
}

#[test]
fn a_retracted_deletion_does_not_hide_a_pulled_one() {
    small_world(async |world| {
        let (reader, author) = followers(world, 2).await;
        author.publish("one").await;
        world.follow(3..=3, 10).await;
        world.idle().await;
        world.stack.pause("fan-out").await.unwrap();
        author.publish("two, pushed, the last one").await;
        // The first deletion is only in the head. The second is in its retraction, because no delivery has shown the
        // change of mode.
        author.delete("/v1/posts/10-1").await.ok();
        author.delete("/v1/posts/10-2").await.ok();
        world.resume("fan-out").await;
        assert_eq!((reader.unread_total_once().await, reader.feed_ids().await), (0, vec![]));
    });
}

#[test]
fn pulled_and_retracted_posts_do_not_hide_other_pulled_posts() {
    small_world(async |world| {
        let (reader, author) = followers(world, 3).await;
        publish_and_deliver_all(world, [10], ["one, pushed", "two, pulled"]).await;
        author.delete("/v1/posts/10-1").await.ok();
        unfollow(world, [2, 3]).await;
        author.publish("three, the last to be pulled").await;
        // These posts are retracted from views that never had them.
        author.delete("/v1/posts/10-2").await.ok();
        author.delete("/v1/posts/10-3").await.ok();
        world.publish_and_deliver(10, "four, pushed").await;
        assert_eq!((reader.unread_total_once().await, reader.feed_ids().await), (1, vec!["10-4".to_owned()]));
    });
}

#[test]
fn a_post_marked_read_before_it_is_pulled_is_in_the_feed() {
    small_world(async |world| {
        let (reader, _) = followers(world, 3).await;
        publish_and_deliver_all(world, [10], ["x"; 20]).await;
        reader.post("/v1/reads", &json!({ "author": "10", "through": 20 })).await.ok();
        let all: Vec<(String, bool)> = (1..=20).rev().map(|seq| (format!("10-{seq}"), true)).collect();
        assert_eq!((reader.unread_total_once().await, reader.feed("all").await), (0, all));
    });
}

const TOGETHER: usize = 8;
const OPERATIONS: usize = 70;

/// A queue whose messages the history takes in any order.
#[derive(Default)]
struct Held(Mutex<Vec<Task>>);

#[async_trait]
impl TaskQueue for Held {
    async fn send_again(&self, tasks: &[Task], _tries: u8, _delay: Duration) -> Result<(), StoreError> {
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
        at_once(TOGETHER, 0..number_from("TIDEMARK_HISTORIES", 40), async |seed| History::new(world, seed).run().await).await;
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
        let app = world.stack.app("publish").unwrap();
        let queues = Queues { tasks: held.clone(), ..app.stores.queues.clone() };
        let app = App::new(app.settings.clone(), Arc::new(Stores { queues, ..(*app.stores).clone() }));
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
        let followers = self.app.stores.facts.follower_counts(self.author).await.unwrap().iter().sum();
        let (post, fan_out) = publish_in_facts(&self.app, self.author, followers, self.app.stores.clock.now()).await;
        self.log.push(format!("publish {} {:?} {:?}", post.id, post.delivery.mode, fan_out.modes));
        assert_eq!(post.id.seq, self.model.publish(self.author.get()));
        self.app.fan_outs.start(fan_out).await.unwrap();
    }

    async fn delete(&mut self, seq: u64) {
        let followers = self.app.stores.facts.follower_counts(self.author).await.unwrap().iter().sum();
        self.model.delete((self.author.get(), seq));
        let deleted = self.app.stores.facts.delete_post(PostId::new(self.author, seq), followers).await.unwrap();
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
        let (facts, before) = (StoredFacts(self.app.stores.facts.clone()), self.app.stores.clock.now().plus_ms(60_000));
        let shard = u64::from(self.author.bucket()) % schema::UNFINISHED_SHARDS;
        let mut unfinished = facts.unfinished(Unfinished::Open, shard, before, None, 1_000).await.unwrap().0.found;
        unfinished.retain(|post| post.author == self.author);
        let posts = self.app.stores.facts.posts(&unfinished).await.unwrap();
        let heads = self.app.stores.facts.heads(&[self.author]).await.unwrap();
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

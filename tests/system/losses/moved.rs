//! Notes on the way from a reaction to ranked feeds: none is lost, and none speaks for a task that does not exist.

use std::time::Duration;

use redis::AsyncCommands;
use tidemark::{
    domain::{Edge, FeedKey, HalfLife, Modes, Post, PostId, Rank, Step, Timestamp},
    queue::Task,
    views::{Rebuild, keys},
};
use tidemark_tests::{User, World, user_id, world};

const AUTHOR: u64 = 1;
const READER: u64 = 7;
const RANKED: &str = "/v1/feed?order=ranked";

fn half_life() -> HalfLife {
    HalfLife::new(Duration::from_secs(12 * 3600))
}

/// A reader with a ranked feed, and so many posts by an author whom the reader follows.
async fn ranked_reader(world: &World, posts: usize) -> (User, Vec<PostId>) {
    let reader = world.reader(READER, [AUTHOR]).await;
    let posts = world.user(AUTHOR).publish_all(vec!["x"; posts]).await;
    world.idle().await;
    reader.get(RANKED).await.ok();
    (reader, posts.iter().map(|id| id.parse().unwrap()).collect())
}

/// The points that these posts have in the reader's ranked feed besides their age.
async fn points(world: &World, posts: &[PostId]) -> Vec<i64> {
    let views = &world.stack.app("fan-out").unwrap().stores.views;
    let entries = views.ranked_view(user_id(READER), half_life(), None, 10_000).await.unwrap().unwrap().ranked.entries;
    let of = |post: &PostId| {
        let (key, score) = entries.iter().find(|(key, _)| key.post == *post).unwrap();
        (score.get() - half_life().score(key.at, Rank::default(), 0).get()).round() as i64
    };
    posts.iter().map(of).collect()
}

/// Gives a post a like and changes its step, as a worker would. The worker is paused.
async fn like(world: &World, post: PostId) {
    let app = world.stack.app("fan-out").unwrap();
    world.user(1_000 + post.seq).put(&format!("/v1/posts/{post}/like")).await.ok();
    app.worker.run(&Task::Rank { post, token: 1_000 + post.seq }, &|| false).await.unwrap();
}

#[test]
fn no_post_is_left_behind_if_the_notes_are_lost_between_two_posts() {
    world(async |world| {
        let (_, posts) = ranked_reader(world, 3).await;
        world.stack.pause("projector").await.unwrap();
        for &post in &posts {
            like(world, post).await;
            if post.seq < 3 {
                world.redis().await.del::<_, ()>(keys::moved(user_id(AUTHOR))).await.unwrap();
            }
        }
        world.resume("projector").await;
        assert_eq!(points(world, &posts).await, [1, 1, 1]);
    });
}

/// A worker has read a post, the post's step changes and moves it in all feeds, and only then the worker delivers it.
#[test]
fn a_delivery_that_read_the_post_before_its_step_changed_gives_it_the_new_score() {
    world(async |world| {
        let (reader, posts) = ranked_reader(world, 2).await;
        reader.put(&format!("/v1/posts/{}/like", posts[1])).await.ok();
        world.idle().await;
        let app = world.stack.app("fan-out").unwrap();
        let (views, user) = (&app.stores.views, user_id(READER));
        let edges: Vec<Edge> = app.stores.facts.following(user).await.unwrap();
        let found = app.stores.facts.posts(&posts).await.unwrap();
        let now = app.stores.clock.now();
        views.begin_rebuild(user, 1, now, Rebuild::Anew).await.unwrap();
        views.open_gate(user, &edges).await.unwrap();
        views.finish_rebuild(user, 1, now).await.unwrap();
        let first = &found[&posts[0]];
        app.fan_outs.deliver(&[user], first, Modes::default(), false).await.unwrap();
        views.rank(&[user], half_life(), &[(first.key(), first.rank())], true).await.unwrap();
        let stale = Post { step: Step::default(), ..found[&posts[1]].clone() };
        app.fan_outs.deliver(&[user], &stale, Modes::default(), false).await.unwrap();
        assert_eq!(points(world, &posts).await, [0, 1]);
    });
}

/// A read that fills a ranked feed has read the step of a post. The step changes and moves the post in all feeds, and
/// only then the read stores it.
#[test]
fn a_ranked_feed_that_is_filled_while_a_post_moves_has_the_new_score() {
    world(async |world| {
        let (_, posts) = ranked_reader(world, 1).await;
        let app = world.stack.app("fan-out").unwrap();
        let (views, user, mut redis) = (&app.stores.views, user_id(READER), world.redis().await);
        let key = app.stores.facts.posts(&posts).await.unwrap()[&posts[0]].key();
        let rank = async |posts: &[(FeedKey, Rank)], create| views.rank(&[user], half_life(), posts, create).await.unwrap();
        let moved = Rank { weight: 0, step: Step { level: 1, changes: 1 } };
        redis.del::<_, ()>(keys::ranked(user).to_vec()).await.unwrap();
        // A read begins its ranked feed before it reads the steps.
        rank(&[], true).await;
        rank(&[(key, moved)], false).await;
        rank(&[(key, Rank::default())], true).await;
        assert_eq!(points(world, &posts).await, [1]);
    });
}

/// A task of other notes runs between a note and its task. The note does not speak for the changes after it.
#[test]
fn a_note_whose_post_was_moved_by_another_task_delays_no_later_change() {
    world(async |world| {
        let (_, posts) = ranked_reader(world, 2).await;
        let app = world.stack.app("fan-out").unwrap();
        world.stack.pause("projector").await.unwrap();
        let (views, author, step) = (&app.stores.views, user_id(AUTHOR), Step { level: 1, changes: 1 });
        let now = app.stores.clock.now();
        let noted = views.note_step(posts[0], step, 1, now).await.unwrap();
        assert!(noted.delay.is_some());
        app.worker.run(&Task::Rescore { author, life: noted.life }, &|| false).await.unwrap();
        // The sender of the first task is still at it.
        let later: Timestamp = now.plus_ms(2_000);
        assert!(views.note_step(posts[1], step, 2, later).await.unwrap().delay.is_some(), "no task is left for it");
        world.empty_queue("ActsQueue").await;
        world.resume("projector").await;
    });
}

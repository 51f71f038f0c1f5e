//! Big authors: their posts are not pushed, and readers fetch them.

use serde_json::{Value, json};
use tidemark_tests::{User, World, parameter, world_with};

use crate::delivery::delivery;

/// A stack on which three followers make an author big.
pub(crate) fn small_world(test: impl AsyncFnOnce(&World)) {
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
            assert_eq!(reader.put("/v1/posts/10-3/read").await.ok()["unread"], json!({ "author": 3, "total": 3 }));
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
        let ((reader, author), sleeper) = (followers(world, 4).await, world.user(2));
        sleeper.feed_ids().await;
        author.publish_all(["one, pushed", "two, pulled"]).await;
        world.idle().await;
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
        author.publish_all(["one, pushed", "two, pulled"]).await;
        world.idle().await;
        author.delete("/v1/posts/10-1").await.ok();
        unfollow(world, [2, 3]).await;
        author.publish("three, the last to be pulled").await;
        // These posts are retracted from views that never had them.
        author.delete("/v1/posts/10-2").await.ok();
        author.delete("/v1/posts/10-3").await.ok();
        author.publish("four, pushed").await;
        world.idle().await;
        assert_eq!((reader.unread_total_once().await, reader.feed_ids().await), (1, vec!["10-4".to_owned()]));
    });
}

#[test]
fn a_post_marked_read_before_it_is_pulled_is_in_the_feed() {
    small_world(async |world| {
        let (reader, author) = followers(world, 3).await;
        author.publish_all(["x"; 20]).await;
        world.idle().await;
        reader.post("/v1/reads", &json!({ "author": "10", "through": 20 })).await.ok();
        let all: Vec<(String, bool)> = (1..=20).rev().map(|seq| (format!("10-{seq}"), true)).collect();
        assert_eq!((reader.unread_total_once().await, reader.feed("all").await), (0, all));
    });
}

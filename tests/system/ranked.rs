//! Ranked feeds under load: the cost of readers who never rank, changes of steps, late and repeated messages, feeds at
//! their cap, and damage.

use std::time::{Duration, Instant};

use redis::AsyncCommands;
use tidemark::{
    domain::{FeedKey, HalfLife, Modes, PostId, PostSummary, Rank, Reference, Step, Timestamp, UserId, feed::FEED_CAP},
    queue::{MovedPost, Task},
    views::{NotedStep, Rebuild, Views, keys},
};
use tidemark_tests::{World, number_from, user_id, world};

use crate::{at_once, publish_and_deliver_all};

const AUTHOR: u64 = 1;
const RANKED: &str = "/v1/feed?order=ranked";

/// A post that was never published, later than all others.
fn post(seq: u64) -> FeedKey {
    FeedKey { at: Timestamp::from_ms(4_000_000_000_000 + seq), post: PostId::new(user_id(AUTHOR), seq) }
}

fn half_life() -> HalfLife {
    HalfLife::new(Duration::from_secs(12 * 3600))
}

/// The entries and scores of a ranked feed, highest first.
async fn stored(views: &Views, reader: UserId) -> Vec<(u64, f64)> {
    let ranked = views.ranked_view(reader, half_life(), None, 10_000).await.unwrap().unwrap().ranked;
    assert!(ranked.filled && ranked.whole);
    ranked.entries.into_iter().map(|(key, score)| (key.post.seq, score.get())).collect()
}

#[test]
fn readers_who_never_rank_cost_a_delivery_nothing_more() {
    world(async |world| {
        world.follow(100..150, AUTHOR).await;
        world.read_feeds(100..150).await;
        world.publish_and_deliver(AUTHOR, "first").await;
        let views = &world.stack.app("fan-out").unwrap().stores.views;
        let readers: Vec<UserId> = (100..150).map(user_id).collect();
        world.forget_redis_calls().await;
        let delivered = views.deliver(&readers, post(2), Modes::default(), false).await.unwrap();
        assert_eq!(delivered.reached, 50);
        let calls = world.redis_calls().await;
        assert_eq!([calls["hmget"], calls["hset"]], [50, 50], "{calls:?}");
        let others = ["rpush", "zadd", "zscore", "hget", "llen", "lpos", "exists"];
        assert!(others.iter().all(|other| !calls.contains_key(*other)), "{calls:?}");
    });
}

#[test]
fn a_post_with_many_likes_has_few_changes_and_the_right_score() {
    let likes = number_from("TIDEMARK_LIKES", 1_000);
    let level = (1 + likes).ilog2();
    world(async |world| {
        let reader = world.reader(7, [AUTHOR]).await;
        let id = world.publish_and_deliver(AUTHOR, "liked").await;
        reader.get(RANKED).await.ok();
        let like = format!("/v1/posts/{id}/like");
        let started = Instant::now();
        at_once(32, 1_000..1_000 + likes, async |liker| assert_eq!(world.user(liker).put(&like).await.ok()["liked"], true)).await;
        world.idle().await;
        let app = world.stack.app("fan-out").unwrap();
        let (post, _) = app.stores.facts.ranked_by(id.parse().unwrap()).await.unwrap().unwrap();
        println!("{likes} likes in {:?}: {} changes of the step", started.elapsed(), post.step.changes);
        assert_eq!(u32::from(post.step.level), level);
        assert!(post.step.changes <= level + 1, "{:?}", post.step);
        let page = reader.get(RANKED).await.ok();
        let score = page["items"][0]["score"].as_f64().unwrap();
        assert!((score - half_life().score(post.created_at, post.rank(), 0).get()).abs() < 1e-9, "{page}");
        assert_eq!(stored(&app.stores.views, user_id(7)).await[0].1, score);
        assert!(world.walk_over_all_users(true, Duration::ZERO).await.differences.is_empty());
    });
}

async fn resume_workers(world: &World) {
    world.stack.resume("fan-out").unwrap();
    world.resume("projector").await;
}

/// Gives each post a like and changes the steps, as workers would. The workers are paused.
async fn like_all(world: &World, posts: &[String]) {
    let app = world.stack.app("fan-out").unwrap();
    for (liker, id) in (1_000..).zip(posts) {
        world.user(liker).put(&format!("/v1/posts/{id}/like")).await.ok();
        app.worker.run(&Task::Rank { post: id.parse().unwrap(), token: liker }, &|| false).await.unwrap();
    }
}

/// A reader with a ranked feed, and posts by an author whom the reader follows.
async fn posts_of_a_ranked_reader(world: &World) -> Vec<String> {
    let reader = world.reader(7, [AUTHOR]).await;
    let posts = world.user(AUTHOR).publish_all(["x"; 20]).await;
    world.idle().await;
    reader.get(RANKED).await.ok();
    for worker in ["projector", "fan-out"] {
        world.stack.pause(worker).await.unwrap();
    }
    posts
}

/// Every post in the reader's ranked feed has the score of one like.
async fn all_have_one_like(world: &World) -> bool {
    let app = world.stack.app("fan-out").unwrap();
    let rank = Rank { weight: 0, step: Step { level: 1, changes: 1 } };
    let ranked = app.stores.views.ranked_view(user_id(7), half_life(), None, 10_000).await.unwrap().unwrap().ranked;
    ranked.entries.len() == 20 && ranked.entries.iter().all(|(key, score)| half_life().score(key.at, rank, 0) == *score)
}

#[test]
fn changes_of_many_posts_of_an_author_are_one_fan_out() {
    world(async |world| {
        let posts = posts_of_a_ranked_reader(world).await;
        let app = world.stack.app("fan-out").unwrap();
        let sent = async || {
            let queues = world.stack.status().await.unwrap().queues;
            ["ActsQueue", "FanOutQueue"].map(|name| queues[name].visible + queues[name].delayed)
        };
        let before = sent().await;
        let since = |now: [usize; 2]| [now[0] - before[0], now[1] - before[1]];
        like_all(world, &posts).await;
        assert_eq!(since(sent().await), [1, 0], "a task for the author");
        let life = app.stores.views.moved_posts(user_id(AUTHOR)).await.unwrap().life.unwrap();
        let (rescore, now) = (Task::Rescore { author: user_id(AUTHOR), life }, app.stores.clock.now());
        for _ in 0..3 {
            app.worker.run(&rescore, &|| false).await.unwrap();
        }
        assert_eq!(since(sent().await), [1, 1], "repetitions send nothing");
        // The next change waits until the pause is over. Its time is that before the runs, which may take long.
        let step = Step { level: 2, changes: 2 };
        let again = app.stores.views.note_step(posts[0].parse().unwrap(), step, 5, now).await.unwrap();
        assert!(again.delay.is_some_and(|wait| wait > Duration::from_millis(1)), "{again:?}");
        resume_workers(world).await;
        assert!(all_have_one_like(world).await);
    });
}

/// A worker that is killed between a note and its task, a change beside the task, and a Redis that has lost the notes.
#[test]
fn no_changed_post_is_left_behind() {
    world(async |world| {
        let posts = posts_of_a_ranked_reader(world).await;
        let app = world.stack.app("fan-out").unwrap();
        let (views, now, step) = (&app.stores.views, app.stores.clock.now(), Step { level: 1, changes: 1 });
        let [first, second]: [PostId; 2] = [&posts[0], &posts[1]].map(|id| id.parse().unwrap());
        let note = async |post, step, token, now| views.note_step(post, step, token, now).await.unwrap();
        // The task that noted the first was killed before it sent another. It is repeated, and others rely on it.
        let noted = note(first, step, 1, now).await;
        assert!(noted.delay.is_some());
        assert_eq!(note(second, step, 2, now).await, NotedStep { delay: None, ..noted });
        assert_eq!(note(first, step, 1, now).await, noted, "it has to send its task");
        assert!(note(second, step, 2, now.plus_ms(60_000)).await.delay.is_some(), "the task is lost");
        // The first changes again while a task takes both.
        let moved = views.moved_posts(user_id(AUTHOR)).await.unwrap();
        assert_eq!((moved.posts.len(), moved.life), (2, Some(noted.life)));
        note(first, Step { level: 2, changes: 2 }, 3, now).await;
        let settle = async || views.settle_moved(user_id(AUTHOR), noted.life, &moved.posts, now).await.unwrap();
        assert_eq!(settle().await, 1);
        assert_eq!(views.moved_posts(user_id(AUTHOR)).await.unwrap().posts, [(1, 2)].into());
        // Notes that were lost while a task took them are of another life.
        world.redis().await.del::<_, ()>(keys::moved(user_id(AUTHOR))).await.unwrap();
        assert_eq!(settle().await, 1, "the task has to come again");
        assert_ne!(note(second, step, 4, now).await.life, noted.life);
        assert_eq!(settle().await, 1);
        world.redis().await.del::<_, ()>(keys::moved(user_id(AUTHOR))).await.unwrap();

        like_all(world, &posts).await;
        world.redis().await.del::<_, ()>(keys::moved(user_id(AUTHOR))).await.unwrap();
        assert!(!all_have_one_like(world).await);
        resume_workers(world).await;
        assert!(all_have_one_like(world).await);
    });
}

#[test]
fn late_and_repeated_messages_end_in_the_newest_step() {
    world(async |world| {
        let reader = world.reader(7, [AUTHOR]).await;
        publish_and_deliver_all(world, [AUTHOR], ["x"; 3]).await;
        reader.get(RANKED).await.ok();
        let app = world.stack.app("fan-out").unwrap();
        let views = &app.stores.views;
        let posts = app.stores.facts.author_timeline(user_id(AUTHOR), 0, 3, 3).await.unwrap();
        let ranked = |seq: usize, level: u8, changes: u32| {
            let rank = Rank { weight: 0, step: Step { level, changes } };
            (posts[posts.len() - seq].key(), rank)
        };
        let put = async |rank: (FeedKey, Rank)| views.rank(&[user_id(7)], half_life(), &[rank], false).await.unwrap();
        put(ranked(1, 5, 5)).await;
        for older in [ranked(1, 4, 4), ranked(1, 0, 0), ranked(1, 5, 5)] {
            put(older).await;
        }
        put(ranked(2, 7, 1)).await;
        put(ranked(2, 3, 2)).await;
        // A post that the feed does not have.
        put((post(99), Rank::default())).await;
        let points: Vec<(u64, f64)> = stored(views, user_id(7)).await;
        let expected =
            |seq: usize, level: u8| (seq as u64, half_life().score(posts[3 - seq].created_at, ranked(seq, level, 1).1, 0).get());
        assert_eq!(points, [expected(1, 5), expected(2, 3), expected(3, 0)]);
        // A task of the queue for posts that do not need it changes nothing.
        for _ in 0..2 {
            app.worker.run(&Task::Rank { post: posts[0].id, token: 5 }, &|| false).await.unwrap();
            app.worker.run(&Task::Rescore { author: user_id(AUTHOR), life: 5 }, &|| false).await.unwrap();
            let of_facts = posts.iter().map(MovedPost::new).collect();
            let pages = Task::Move { author: user_id(AUTHOR), posts: of_facts, pages: 1, from: 0, to: 1 };
            app.worker.run(&pages, &|| false).await.unwrap();
        }
        assert_eq!(stored(views, user_id(7)).await, points);
        views.begin_rebuild(user_id(7), 1, app.stores.clock.now(), Rebuild::Anew).await.unwrap();
        world.flush_redis().await;
        assert_eq!(reader.get(RANKED).await.items().len(), 3);
        // The facts have no steps.
        assert_eq!(stored(views, user_id(7)).await.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [3, 2, 1]);
    });
}

#[test]
fn an_edit_and_a_step_of_a_summary_do_not_undo_each_other() {
    world(async |world| {
        let views = world.stack.app("fan-out").unwrap().stores.views.clone();
        let id = PostId::new(user_id(AUTHOR), 1);
        let summary = |title: &str, revision: u32, changes: u32| PostSummary {
            id,
            title: title.to_owned(),
            of: Some(Reference::Quote(PostId::new(user_id(AUTHOR + 1), 7))),
            created_at: Timestamp::from_ms(5),
            revision,
            rank: Rank { weight: -7, step: Step { level: changes as u8 + 1, changes } },
            deleted: false,
        };
        let expected = summary("second", 2, 3);
        let changes = [summary("first", 1, 0), summary("second", 2, 0), summary("first", 1, 3), summary("first", 1, 2)];
        for first in 0..changes.len() {
            world.flush_redis().await;
            for change in changes.iter().cycle().skip(first).take(changes.len() + first) {
                views.remember_posts(&[(change.clone(), None)], None).await.unwrap();
            }
            assert_eq!(views.summaries(&[id]).await.unwrap().get(&id), Some(&expected), "from {first} on");
        }
        let tombstone = PostSummary::tombstone(expected.key());
        for change in [tombstone.clone(), summary("third", 3, 9)] {
            views.remember_posts(&[(change, None)], None).await.unwrap();
        }
        assert_eq!(views.summaries(&[id]).await.unwrap().get(&id), Some(&tombstone));
    });
}

/// A feed is cut at its cap, and so is the ranked feed. The first ranked read fills it.
#[test]
fn a_ranked_feed_has_exactly_the_entries_of_a_full_feed() {
    world(async |world| {
        let reader = world.reader(7, [AUTHOR]).await;
        world.publish_and_deliver(AUTHOR, "first").await;
        assert_eq!(reader.feed_ids().await.len(), 1);
        let app = world.stack.app("fan-out").unwrap();
        let views = &app.stores.views;
        let now = app.stores.clock.now();
        let late = |seq: u64| FeedKey { at: now.plus_ms(seq), post: PostId::new(user_id(AUTHOR), seq) };
        let lists = async || {
            let unranked = views.unranked(user_id(7), half_life()).await.unwrap();
            let feed = views.reader_view(user_id(7), 10_000).await.unwrap().unwrap().entries;
            (feed, unranked)
        };
        for seq in 2..=500 {
            views.deliver(&[user_id(7)], late(seq), Modes::default(), false).await.unwrap();
        }
        let first: Vec<(FeedKey, Rank)> = lists().await.0.into_iter().map(|key| (key, Rank::default())).collect();
        views.rank(&[user_id(7)], half_life(), &first, true).await.unwrap();
        assert_eq!(stored(views, user_id(7)).await.len(), 500);
        for seq in 501..=(FEED_CAP as u64 + 300) {
            let delivered = views.deliver(&[user_id(7)], late(seq), Modes::default(), false).await.unwrap();
            assert_eq!(delivered.ranked, [user_id(7)]);
            // Some calls between the two are lost.
            if seq % 10 != 0 {
                views.rank(&delivered.ranked, half_life(), &[(late(seq), Rank::default())], false).await.unwrap();
            }
        }
        let (feed, missing) = lists().await;
        assert!((FEED_CAP..FEED_CAP + 129).contains(&feed.len()), "{}", feed.len());
        assert!(missing.iter().all(|key| key.post.seq % 10 == 0 && feed.contains(key)) && !missing.is_empty());
        let rest: Vec<(FeedKey, Rank)> = missing.iter().map(|key| (*key, Rank::default())).collect();
        views.rank(&[user_id(7)], half_life(), &rest, false).await.unwrap();
        let ranked: Vec<u64> = stored(views, user_id(7)).await.into_iter().map(|(seq, _)| seq).collect();
        assert_eq!(ranked, feed.iter().map(|key| key.post.seq).collect::<Vec<_>>());
        // A retraction, a touch and an unfollow remove entries from both.
        views.retract(&[user_id(7)], late(1_200), 1, Modes::default()).await.unwrap();
        views.touch(user_id(7), now, true).await.unwrap();
        let ranked = stored(views, user_id(7)).await;
        assert_eq!((ranked.len(), ranked.iter().any(|(seq, _)| *seq == 1_200)), (lists().await.0.len(), false));
        reader.delete(&format!("/v1/following/{AUTHOR}")).await.ok();
        let mut redis = world.redis().await;
        let [ranked, moves] = keys::ranked(user_id(7));
        let left: (u64, u64) = (redis.zcard(ranked).await.unwrap(), redis.hlen(moves).await.unwrap());
        assert_eq!(left, (0, 1), "only the marker is left");
    });
}

//! Feeds after removals: unfollows, blocks, deletions, erasures, mutes and lists leave a ranked feed as full as one
//! that is rebuilt from the facts, and a reader pays for it once.

use std::{collections::BTreeSet, time::Duration};

use redis::AsyncCommands;
use serde_json::json;
use tidemark::{
    domain::feed::FeedCap,
    views::{Begun, Rebuild, keys},
};
use tidemark_tests::{User, World, ids, number_from, parameter, user_id, world_with};

use crate::{damage::proxy::world_behind_a_proxy_with, publish_and_deliver_all};

const READER: u64 = 7;
/// An author with many newer posts, and one with fewer, older ones.
const BUSY: u64 = 1;
const QUIET: u64 = 2;

const CAP: u64 = 20;
const RANKED: &str = "/v1/feed?order=ranked";

fn small(test: impl AsyncFnOnce(&World)) {
    world_with(parameter("FeedCap", CAP), test);
}

/// The reader follows both authors, and has read the ranked feed after all posts were delivered.
async fn a_ranked_reader(world: &World, [quiet, busy]: [usize; 2]) -> User {
    let reader = world.live_reader(READER, [BUSY, QUIET]).await;
    publish_and_deliver_all(world, [QUIET], vec!["x"; quiet]).await;
    publish_and_deliver_all(world, [BUSY], vec!["x"; busy]).await;
    assert_is_full(&reader, "", quiet + busy).await;
    reader
}

/// Asserts that the ranked feed, and its unread posts, are the newest of the feed by time: all of them, or as many as a
/// view may store.
async fn assert_is_full(reader: &User, list: &str, posts: usize) {
    let cap = FeedCap::new(CAP);
    // The newest eight may be in no list yet.
    let full = posts.min(cap.least())..=posts.min(cap.most() + 8);
    let ranked = [format!("{RANKED}{list}"), format!("{RANKED}&status=unread{list}")];
    let [all, unread] = [ids(&reader.walk(&ranked[0], 7).await), ids(&reader.walk(&ranked[1], 7).await)];
    for (path, ranked) in [(format!("/v1/feed?{list}"), all), (format!("/v1/feed?status=unread{list}"), unread)] {
        let by_time = ids(&reader.walk(&path, 7).await);
        assert_eq!(by_time.len(), posts, "{path}");
        assert!(full.contains(&ranked.len()), "{path}: {} ranked posts of {posts}", ranked.len());
        let newest: BTreeSet<&String> = by_time.iter().take(ranked.len()).collect();
        assert_eq!(ranked.iter().collect::<BTreeSet<_>>(), newest, "{path}");
    }
}

/// The same again, after the views are lost, and without Redis.
async fn assert_stays_full(world: &World, reader: &User, list: &str, posts: usize) {
    for _ in 0..2 {
        assert_is_full(reader, list, posts).await;
    }
    let report = world.walk_over_all_users(true, Duration::ZERO).await;
    assert_eq!(report.differences, BTreeSet::new());
    world.at_each_loss_of_redis(async || assert_is_full(reader, list, posts).await).await;
}

#[test]
fn an_unfollow_of_a_busy_author_leaves_the_posts_of_the_others() {
    small(async |world| {
        let reader = a_ranked_reader(world, [10, 26]).await;
        reader.delete(&format!("/v1/following/{BUSY}")).await.ok();
        world.idle().await;
        // A view that nobody has read since is short, and not wrong.
        let report = world.walk_over_all_users(true, Duration::ZERO).await;
        assert_eq!(report.differences, BTreeSet::new());
        assert_stays_full(world, &reader, "", 10).await;
    });
}

#[test]
fn an_unfollow_of_an_author_of_most_of_the_newest_posts_leaves_a_full_feed() {
    small(async |world| {
        let reader = a_ranked_reader(world, [30, 12]).await;
        reader.delete(&format!("/v1/following/{BUSY}")).await.ok();
        assert_stays_full(world, &reader, "", 30).await;
    });
}

#[test]
fn a_block_of_a_busy_author_leaves_the_posts_of_the_others() {
    small(async |world| {
        let reader = a_ranked_reader(world, [10, 26]).await;
        reader.put(&format!("/v1/blocks/{BUSY}")).await.ok();
        world.idle().await;
        assert_stays_full(world, &reader, "", 10).await;
    });
}

#[test]
fn a_busy_author_who_blocks_the_reader_or_leaves_takes_only_own_posts_away() {
    for request in [format!("PUT /v1/blocks/{READER}"), "DELETE /v1/me".to_owned()] {
        small(async |world| {
            let reader = a_ranked_reader(world, [10, 26]).await;
            world.user(BUSY).request_with(&[], &request).await.ok();
            world.idle().await;
            assert_stays_full(world, &reader, "", 10).await;
        });
    }
}

async fn delete(world: &World, seqs: std::ops::RangeInclusive<u64>) {
    for seq in seqs {
        world.user(BUSY).delete(&format!("/v1/posts/{BUSY}-{seq}")).await.ok();
    }
    world.idle().await;
}

#[test]
fn deletions_of_most_posts_leave_the_others() {
    small(async |world| {
        let reader = a_ranked_reader(world, [10, 26]).await;
        delete(world, 9..=26).await;
        assert_stays_full(world, &reader, "", 18).await;
    });
}

/// Two followers make an author big. Nothing is pushed to them: they fetch the deletions when they read.
#[test]
fn deletions_of_a_big_author_leave_the_posts_of_the_others() {
    let big = |options: &mut tidemark_local::Options| {
        parameter("FeedCap", CAP)(options);
        parameter("PullThreshold", 2)(options);
    };
    world_with(big, async |world| {
        world.follow([8], BUSY).await;
        let reader = a_ranked_reader(world, [10, 26]).await;
        delete(world, 9..=26).await;
        assert_stays_full(world, &reader, "", 18).await;
    });
}

#[test]
fn a_mute_of_a_busy_author_leaves_the_posts_of_the_others_and_its_end_brings_all_back() {
    small(async |world| {
        let reader = a_ranked_reader(world, [10, 26]).await;
        reader.put(&format!("/v1/mutes/{BUSY}")).await.ok();
        assert_stays_full(world, &reader, "", 10).await;
        // Posts that are delivered during a mute take no place of others.
        publish_and_deliver_all(world, [BUSY], vec!["hidden"; 26]).await;
        assert_stays_full(world, &reader, "", 10).await;
        reader.delete(&format!("/v1/mutes/{BUSY}")).await.ok();
        assert_stays_full(world, &reader, "", 62).await;
    });
}

/// A mute begins and ends while the worker holds deliveries back, and the projector repeats both.
#[test]
fn a_mute_and_its_end_during_a_fan_out_lose_no_post() {
    small(async |world| {
        let reader = a_ranked_reader(world, [10, 8]).await;
        let mute = format!("/v1/mutes/{BUSY}");
        for (muted, expected) in [(true, 10), (false, 22)] {
            world.pause_workers().await;
            world.user(BUSY).publish_all(["held"; 2]).await;
            for _ in 0..2 {
                reader.put(&mute).await.ok();
                reader.get(RANKED).await.ok();
                reader.delete(&mute).await.ok();
                reader.get("/v1/feed?limit=3").await.ok();
            }
            if muted {
                reader.put(&mute).await.ok();
            }
            world.resume_workers();
            world.idle().await;
            assert_is_full(&reader, "", expected).await;
        }
        assert_stays_full(world, &reader, "", 22).await;
    });
}

async fn list_of(reader: &User, authors: &[u64]) -> String {
    let list = reader.post("/v1/lists", &json!({ "name": "few" })).await.ok()["id"].as_str().unwrap().to_owned();
    for author in authors {
        reader.put(&format!("/v1/lists/{list}/authors/{author}")).await.ok();
    }
    format!("&list={list}")
}

#[test]
fn a_list_of_a_quiet_author_is_as_full_as_from_the_facts() {
    small(async |world| {
        let reader = a_ranked_reader(world, [10, 26]).await;
        let list = list_of(&reader, &[QUIET]).await;
        assert_stays_full(world, &reader, &list, 10).await;
    });
}

#[test]
fn a_list_of_more_posts_than_the_cap_has_the_newest_of_its_authors() {
    small(async |world| {
        let reader = a_ranked_reader(world, [30, 12]).await;
        let list = list_of(&reader, &[QUIET]).await;
        assert_stays_full(world, &reader, &list, 30).await;
        assert_stays_full(world, &reader, &list_of(&reader, &[QUIET, BUSY]).await, 42).await;
    });
}

/// Unread posts are older than everything that the view stores.
#[test]
fn the_unread_posts_of_a_ranked_feed_are_those_that_count() {
    small(async |world| {
        let reader = a_ranked_reader(world, [10, 26]).await;
        reader.post("/v1/reads", &json!({ "author": BUSY.to_string(), "through": 26 })).await.ok();
        let unread = ids(&reader.walk("/v1/feed?order=ranked&status=unread", 7).await);
        assert_eq!((unread.len() as u64, reader.unread_total().await), (10, 10));
        world
            .at_each_loss_of_redis(async || {
                let again = ids(&reader.walk("/v1/feed?order=ranked&status=unread", 7).await);
                assert_eq!(again.iter().collect::<BTreeSet<_>>(), unread.iter().collect::<BTreeSet<_>>());
            })
            .await;
    });
}

/// What the reader pays after a removal: the first page of each kind, the second, and a poll with nothing new.
#[test]
fn a_removal_costs_at_most_one_rebuild_and_no_later_read() {
    let cap = number_from("TIDEMARK_FEED_CAP", CAP);
    let (quiet, busy) = (cap / 2, cap + cap * 3 / 10);
    world_behind_a_proxy_with(parameter("FeedCap", cap), async |world, proxy| {
        for (reader, change) in (100..).zip(["unfollow", "block", "mute", "list"]) {
            // New authors, whose posts are in Redis no more, as those of an author who was read last week.
            let (quiet_author, busy_author) = (1_000 + reader * 2, 1_001 + reader * 2);
            let reader = world.live_reader(reader, [quiet_author, busy_author]).await;
            publish_and_deliver_all(world, [quiet_author], vec!["x"; quiet as usize]).await;
            publish_and_deliver_all(world, [busy_author], vec!["x"; busy as usize]).await;
            let list = if change == "list" { list_of(&reader, &[quiet_author]).await } else { String::new() };
            world.flush_redis().await;
            proxy.meter();
            reader.get("/v1/feed?").await.ok();
            let rebuild = proxy.meter().units;
            reader.get(RANKED).await.ok();
            match change {
                "unfollow" => drop(reader.delete(&format!("/v1/following/{busy_author}")).await.ok()),
                "list" => {}
                change => drop(reader.put(&format!("/v1/{change}s/{busy_author}")).await.ok()),
            }
            world.idle().await;
            // A page of a list reads the item that says whether the caller has the list.
            let least = if change == "list" { 1.0 } else { 0.0 };
            let mut spent = Vec::new();
            for path in ["/v1/feed?limit=20", RANKED, "/v1/feed?limit=20", RANKED] {
                proxy.meter();
                let page = reader.get(&format!("{path}{list}")).await.ok();
                spent.push(proxy.meter().units);
                assert_eq!(page["items"].as_array().unwrap().len() as u64, quiet.min(20), "{change}, {path}");
            }
            let since = reader.cursor("first_cursor", &format!("/v1/feed?limit=20{list}")).await;
            for _ in 0..2 {
                proxy.meter();
                assert_eq!(reader.get(&format!("/v1/feed?since={since}{list}")).await.items().len(), 0);
                spent.push(proxy.meter().units);
            }
            println!("{change}: a rebuild costs {rebuild} units; time, ranked, time, ranked, poll, poll cost {spent:?}");
            assert!(spent[0] + spent[1] <= 1.2 * rebuild + 5.0, "{change}: {spent:?}");
            assert_eq!(spent[2..], [least; 4], "{change}");
        }
    });
}

/// The token of the reader's last rebuild.
async fn token(world: &World) -> u64 {
    let views = &world.stack.app("read-feed").unwrap().stores.views;
    views.reader_view(user_id(READER), 0).await.unwrap().unwrap().state.meta.token
}

#[test]
fn an_author_who_deletes_post_after_post_causes_few_rebuilds() {
    const CAP: u64 = 160;
    world_with(parameter("FeedCap", CAP), async |world| {
        let reader = world.live_reader(READER, [BUSY]).await;
        publish_and_deliver_all(world, [BUSY], vec!["x"; 260]).await;
        let (mut rebuilds, mut last) = (0, token(world).await);
        for seq in 161..=240 {
            delete(world, seq..=seq).await;
            reader.get(RANKED).await.ok();
            let now = token(world).await;
            rebuilds += u32::from(now != last);
            last = now;
        }
        // A rebuild stores a sixteenth more than the cap, and a trim leaves as much.
        assert!((1..=8).contains(&rebuilds), "{rebuilds} rebuilds for 80 deletions");
    });
}

#[test]
fn of_many_reads_of_a_short_view_one_rebuilds_it() {
    small(async |world| {
        let reader = a_ranked_reader(world, [10, 26]).await;
        let app = world.stack.app("read-feed").unwrap();
        let now = app.stores.clock.now();
        let begin = async |token| app.stores.views.begin_rebuild(user_id(READER), token, now, Rebuild::Short).await.unwrap();
        assert_eq!(begin(1).await, Begun::Ready);
        reader.delete(&format!("/v1/following/{BUSY}")).await.ok();
        assert_eq!([begin(2).await, begin(3).await], [Begun::Begun, Begun::Building]);
        // A page in between comes from the facts, and says so.
        let page = reader.get(RANKED).await.ok();
        assert_eq!((page["items"].as_array().unwrap().len(), &page["rebuilding"]), (10, &json!(true)));
    });
}

/// The score of a post that the first page had falls, and removals make the view short before the second page.
#[test]
fn a_walk_through_a_ranked_feed_goes_on_across_a_refill() {
    small(async |world| {
        let reader = world.live_reader(READER, [BUSY, QUIET]).await;
        publish_and_deliver_all(world, [BUSY], vec!["x"; 26]).await;
        publish_and_deliver_all(world, [QUIET], vec!["x"; 10]).await;
        let favorite = format!("/v1/posts/{QUIET}-5/favorite");
        world.user(8).put(&favorite).await.ok();
        world.idle().await;
        let first = reader.get(&format!("{RANKED}&limit=1")).await.ok();
        assert_eq!(first["items"][0]["id"], format!("{QUIET}-5"));
        world.user(8).delete(&favorite).await.ok();
        world.idle().await;
        reader.delete(&format!("/v1/following/{BUSY}")).await.ok();
        let cursor = first["next_cursor"].as_str().unwrap();
        let rest = ids(&reader.get(&format!("{RANKED}&limit=100&cursor={cursor}")).await.items());
        let expected: BTreeSet<String> = (1..=10).filter(|seq| *seq != 5).map(|seq| format!("{QUIET}-{seq}")).collect();
        assert_eq!((rest.len(), rest.into_iter().collect::<BTreeSet<_>>()), (9, expected));
    });
}

/// The posts of the list, and the unread posts, are older than everything that the view stores. The score of one that
/// the first page had falls before the second page.
#[test]
fn a_walk_through_posts_below_the_view_returns_each_once_while_scores_fall() {
    small(async |world| {
        let reader = a_ranked_reader(world, [10, 40]).await;
        reader.post("/v1/reads", &json!({ "author": BUSY.to_string(), "through": 40 })).await.ok();
        let list = list_of(&reader, &[QUIET]).await;
        for (selection, liked, unmoved) in [(list.as_str(), 5, 3), ("&status=unread", 6, 4)] {
            let like = |seq: u64| format!("/v1/posts/{QUIET}-{seq}/like");
            let likers = [8, 9, 10];
            for liker in likers {
                world.user(liker).put(&like(liked)).await.ok();
            }
            world.user(8).put(&like(unmoved)).await.ok();
            world.idle().await;
            let path = format!("{RANKED}&limit=1{selection}");
            let first = reader.get(&path).await.ok();
            assert_eq!(first["items"][0]["id"], format!("{QUIET}-{liked}"));
            for liker in likers {
                world.user(liker).delete(&like(liked)).await.ok();
            }
            world.idle().await;
            let cursor = first["next_cursor"].as_str().unwrap();
            let rest = ids(&reader.get(&format!("{RANKED}{selection}&limit=100&cursor={cursor}")).await.items());
            let expected: BTreeSet<String> = (1..=10).filter(|seq| *seq != liked).map(|seq| format!("{QUIET}-{seq}")).collect();
            assert_eq!((rest.len(), rest.into_iter().collect::<BTreeSet<_>>()), (9, expected), "{selection}");
        }
    });
}

/// A trim of the view or a rebuild forgets the notes of posts below it. None of them has moved.
#[test]
fn a_walk_through_posts_below_the_view_goes_on_when_their_notes_are_forgotten() {
    small(async |world| {
        let reader = a_ranked_reader(world, [10, 40]).await;
        let list = list_of(&reader, &[QUIET]).await;
        for seq in 1..=10 {
            world.user(8).put(&format!("/v1/posts/{QUIET}-{seq}/like")).await.ok();
        }
        world.idle().await;
        let first = reader.get(&format!("{RANKED}&limit=1{list}")).await.ok();
        assert_eq!(first["items"][0]["id"], format!("{QUIET}-10"));
        let [_, moves] = keys::ranked(user_id(READER));
        let mut redis = world.redis().await;
        let mut notes: Vec<Vec<u8>> = redis.hkeys(&moves).await.unwrap();
        notes.retain(|field| field != b"@");
        assert_eq!(redis.hdel::<_, _, usize>(&moves, &notes).await.unwrap(), 10);
        let cursor = first["next_cursor"].as_str().unwrap();
        let rest = ids(&reader.get(&format!("{RANKED}{list}&limit=100&cursor={cursor}")).await.items());
        assert_eq!(rest, (1..=9).rev().map(|seq| format!("{QUIET}-{seq}")).collect::<Vec<_>>());
    });
}

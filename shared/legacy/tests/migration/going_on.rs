//! Imports of legacy keys for users who are active in the new system.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use futures::{FutureExt, future::join};
use redis::Cmd;
use serde_json::json;
use tidemark::domain::Timestamp;
use tidemark_legacy::legacy::Layout;
use tidemark_local::{Fault, FaultAction};
use tidemark_tests::{LegacyRedis, World, user_id, world};

use super::{
    age_by_a_week, app, author_blogs, command, counts, edge, facts, imports,
    legacy::{Blog, THEN, info},
    migrate, publish_notice, zadd,
};
use crate::{
    damage::proxy::{Fate, Proxy, Request, world_behind_a_proxy},
    hot::split,
};

const AUTHOR: u64 = 1_000;

fn blogs(count: u64) -> Vec<Blog> {
    (1..=count).map(|id| Blog { at: THEN + id * 1_000, id }).collect()
}

/// Blogs in the form that the importer reads.
pub(super) fn read(author: u64, blogs: &[Blog]) -> Vec<tidemark_legacy::legacy::Blog> {
    let read = |blog: &Blog| tidemark_legacy::legacy::Blog {
        id: blog.id,
        author: user_id(author),
        title: format!("Blog {}", blog.id),
        created_at: Timestamp::from_ms(blog.at),
    };
    blogs.iter().map(read).collect()
}

/// An event during a follow of an author without posts.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    Begin,
    /// Imports the blogs up to this number.
    Posts(u64),
    Split,
    End,
}

/// The follow reads counters, reads the head, and writes. Before each of these, a part of an import is done.
#[test]
fn a_follow_at_any_moment_of_an_import_begins_after_the_imported_posts() {
    world_behind_a_proxy(async |world, proxy| {
        let import = [Step::Begin, Step::Posts(2), Step::Posts(3), Step::End];
        let mut author = AUTHOR;
        for read in 0..=import.len() {
            for (with_head, written) in (read..=import.len()).flat_map(|head| (head..=import.len()).map(move |end| (head, end))) {
                let mut parts = [&import[..read], &import[read..with_head], &import[with_head..written]].map(<[Step]>::to_vec);
                // The counter is split in any of the three, in turn.
                parts[author as usize % 3].insert(author as usize / 3 % (parts[author as usize % 3].len() + 1), Step::Split);
                follow_during(world, proxy, author, &parts).await;
                author += 1;
            }
        }
        assert_eq!(author, AUTHOR + 35);
    });
}

async fn follow_during(world: &World, proxy: &Proxy, author: u64, [first, second, third]: &[Vec<Step>; 3]) {
    let (facts, dynamodb) = (imports(world), world.dynamodb().await);
    let open = Arc::new(Mutex::new(None));
    let run = move |steps: Vec<Step>| {
        let (facts, dynamodb, open) = (facts.clone(), dynamodb.clone(), Arc::clone(&open));
        async move {
            for step in steps {
                let import = *open.lock().unwrap();
                match step {
                    Step::Begin => *open.lock().unwrap() = facts.begin_import(user_id(author)).await.unwrap(),
                    Step::Posts(last) => {
                        let first = if last == 2 { 1 } else { last };
                        let blogs = (first..=last).map(|blog| Blog { at: THEN + blog, id: author * 10 + blog });
                        let blogs = read(author, &blogs.collect::<Vec<_>>());
                        facts.import_posts(import.unwrap(), &blogs, 0, true, Timestamp::from_ms(THEN)).await.unwrap();
                    }
                    Step::Split => split(&dynamodb, author, user_id(1).shard()).await,
                    Step::End => facts.end_import(import.unwrap()).await.unwrap(),
                }
            }
        }
    };
    run(first.clone()).await;
    let (stage, second, third) = (AtomicUsize::new(0), second.clone(), third.clone());
    proxy.rule(move |asked: Request| {
        let is_next = |operation, table, next| {
            asked.is("follow", operation, table) && stage.compare_exchange(next, next + 1, SeqCst, SeqCst).is_ok()
        };
        let steps = if is_next("BatchGetItem", "PostsTable", 0) {
            second.clone()
        } else if is_next("TransactWriteItems", "CountersTable", 1) {
            third.clone()
        } else {
            Vec::new()
        };
        run(steps).map(|()| Fate::Forwarded).boxed()
    });
    world.user(1).put(&format!("/v1/following/{author}")).await.ok();
    proxy.forward_all();
    let edge = edge(world, 1, author).await.unwrap();
    let head = app(world).stores.facts.heads(&[user_id(author)]).await.unwrap().remove(&user_id(author)).unwrap_or_default();
    assert_eq!(edge.base, head.latest_seq, "author {author}: posts that were imported before the follow are not new");
    assert_eq!(world.follower_count(author).await, 1);
}

#[test]
fn an_import_that_a_later_one_has_replaced_writes_nothing() {
    world(async |world| {
        let (imports, author, now) = (imports(world), user_id(AUTHOR), Timestamp::from_ms(THEN));
        let begin = async || imports.begin_import(author).await.unwrap().unwrap();
        let [early, late] = [begin().await, begin().await];
        let before = facts(world).await;
        let import =
            async |import, count| imports.import_posts(import, &read(AUTHOR, &blogs(count)), 0, true, now).await.unwrap();
        assert!(import(early, 2).await.is_none());
        imports.end_import(early).await.unwrap();
        assert_eq!(facts(world).await, before);
        assert_eq!(imports.open_imports(&[author]).await.unwrap().len(), 1, "follows still check the head");
        assert_eq!(import(late, 2).await.unwrap().written.len(), 2);
        // No run has settled the first two: a run may be killed before it does.
        for _ in 0..2 {
            assert_eq!(import(late, 4).await.unwrap().unsettled, Some((1, 4)));
        }
        // The run ends its import in the first shard, and in no other.
        let faults = world.stack.faults();
        faults.add(Fault::new("UpdateItem", FaultAction::FailBefore("InternalServerError".to_owned())).after(1).times(100));
        assert!(imports.end_import(late).await.is_err());
        faults.clear();
        assert_eq!(imports.open_imports(&[author]).await.unwrap(), [late]);
        imports.end_import(late).await.unwrap();
        assert!(imports.open_imports(&[author]).await.unwrap().is_empty());
        assert!(import(late, 5).await.is_none(), "the import has ended");
    });
}

#[test]
fn posts_imported_after_a_follow_are_read_at_once() {
    imported_posts_are_read("author-blogs", 120, &author_blogs(AUTHOR, &blogs(120)), false);
}

#[test]
fn the_next_import_completes_one_that_died_before_it_updated_the_followers() {
    imported_posts_are_read("author-blogs", 30, &author_blogs(AUTHOR, &blogs(30)), true);
    // No set names these.
    let infos: Vec<Cmd> = blogs(30).iter().map(|blog| info(AUTHOR, blog)).collect();
    imported_posts_are_read("blog-info", 30, &infos, true);
}

/// Imports this number of posts of an author whom a reader follows. `is_interrupted`: an import died before.
fn imported_posts_are_read(layout: &str, number: u64, keys: &[Cmd], is_interrupted: bool) {
    world(async |world| {
        let legacy = LegacyRedis::with(keys).await;
        let reader = world.reader(1, [AUTHOR]).await;
        assert!(reader.feed_ids().await.is_empty(), "the view is live and empty");
        let timeline = format!("/v1/authors/{AUTHOR}/posts");
        assert!(reader.walk(&timeline, 100).await.is_empty(), "the head is in Redis");
        if is_interrupted {
            // The transaction of an import, without the steps after it.
            let posts = read(AUTHOR, &blogs(number));
            let now = app(world).stores.clock.now();
            let import = imports(world).begin_import(user_id(AUTHOR)).await.unwrap().unwrap();
            let imported = imports(world).import_posts(import, &posts, 1, true, now).await.unwrap().unwrap();
            assert_eq!(imported.written.len() as u64, number);
        }
        let (response, _) = migrate(world, json!({ "source": legacy.url() })).await;
        let [written, there] = if is_interrupted { [0, number] } else { [number, 0] };
        assert_eq!(counts(&response, layout), [number, written, there, 0]);
        world.idle().await;
        let live = reader.feed("all").await;
        assert_eq!((live.len() as u64, reader.unread_total().await), (number, 0));
        assert!(live.iter().all(|(_, read)| *read));
        assert_eq!(live[0].0, format!("{AUTHOR}-{number}"));
        assert_eq!(reader.walk(&timeline, 100).await.len() as u64, number);
        assert!(imports(world).import_records(&[user_id(AUTHOR)]).await.unwrap()[&user_id(AUTHOR)].unsettled.is_none());
        assert!(imports(world).open_imports(&[user_id(AUTHOR)]).await.unwrap().is_empty(), "follows no longer check the head");
        world.flush_redis().await;
        assert_eq!(reader.feed("all").await, live, "facts and view agree");
        let delivery = reader.get(&format!("/v1/posts/{AUTHOR}-7/delivery")).await.ok();
        assert_eq!(delivery["state"], "done");
        // Later posts are unread.
        let news = world.publish_and_deliver(AUTHOR, "new").await;
        assert_eq!((news, reader.unread_total().await), (format!("{AUTHOR}-{}", number + 1), 1));
    });
}

#[test]
fn imported_posts_of_an_active_author_keep_their_time_and_are_in_no_feed() {
    world(async |world| {
        let legacy = LegacyRedis::with(&author_blogs(AUTHOR, &blogs(60))).await;
        legacy.run(&[zadd(Layout::UFollow, 2, THEN / 1000, AUTHOR), command("SADD user:unread:2:1000 5")]).await;
        let (author, reader) = (world.user(AUTHOR), world.user(1));
        reader.put(&format!("/v1/following/{AUTHOR}")).await.ok();
        let first = world.publish_and_deliver(AUTHOR, "first here").await;
        assert_eq!(reader.feed("all").await, [(first.clone(), false)]);
        let (response, _) = migrate(world, json!({ "source": legacy.url() })).await;
        assert_eq!(counts(&response, "author-blogs"), [60, 60, 0, 0]);
        let second = author.publish("second here").await;
        assert_eq!((first.as_str(), second.as_str()), ("1000-1", "1000-62"), "posts keep their numbers, and numbers have no gap");
        world.idle().await;

        // The list and the post show the old time.
        let posts = reader.walk("/v1/authors/1000/posts", 20).await;
        assert_eq!(posts.len(), 62);
        assert_eq!((&posts[60]["id"], &posts[60]["created_at"]), (&json!("1000-2"), &json!("2025-06-01T00:00:01.000Z")));
        assert_eq!(reader.get("/v1/posts/1000-5").await.ok()["title"], "Blog 4");
        assert_eq!(reader.get("/v1/users/1000/counters").await.ok()["posts"], 62);

        // Feeds and counts of every reader, from views and from facts, have only the posts that the author published
        // here.
        let newcomer = world.user(3);
        newcomer.put(&format!("/v1/following/{AUTHOR}")).await.ok();
        for round in ["views", "facts"] {
            assert_eq!(reader.feed("all").await, [(second.clone(), false), (first.clone(), false)], "{round}");
            assert_eq!(world.user(2).feed_ids().await, [second.as_str(), first.as_str()], "{round}");
            assert_eq!((reader.unread_total().await, world.user(2).unread_total().await), (2, 2), "{round}");
            assert_eq!(newcomer.feed("all").await, [(second.clone(), true), (first.clone(), true)], "{round}");
            world.flush_redis().await;
        }
        // Imported posts can be deleted like others, and `all` and `through` cover them.
        author.delete("/v1/posts/1000-5").await;
        assert_eq!(author.get("/v1/posts/1000-5").await.status, 404);
        assert_eq!(reader.walk("/v1/authors/1000/posts", 20).await.len(), 61);
        assert_eq!(reader.post("/v1/reads", &json!({ "author": "1000", "through": 61 })).await.ok()["total"], 1);
        assert_eq!(reader.post("/v1/reads", &json!({ "all": true })).await.ok()["total"], 0);
        world.idle().await;
    });
}

#[test]
fn changes_made_here_override_legacy_keys() {
    world(async |world| {
        let mut commands: Vec<Cmd> = author_blogs(AUTHOR, &blogs(20));
        commands.extend([1, 2, 3].map(|user| zadd(Layout::UFollow, user, THEN / 1000, AUTHOR)));
        commands.push(zadd(Layout::Fans, AUTHOR, THEN + 77, 1));
        commands.extend(["SADD user:read:1 3 4", "SADD user:unread:1:1000 19 20 4"].map(command));
        let legacy = LegacyRedis::with(&commands).await;
        // User 2 has followed and unfollowed here. User 3 follows here.
        for user in [2, 3] {
            world.user(user).put("/v1/following/1000").await.ok();
        }
        world.user(2).delete("/v1/following/1000").await.ok();
        let since = edge(world, 3, AUTHOR).await.unwrap().since;
        let (response, _) = migrate(world, json!({ "source": legacy.url() })).await;
        assert_eq!(counts(&response, "u-follow"), [3, 1, 2, 0]);
        assert_eq!(counts(&response, "fans"), [1, 0, 1, 0]);
        world.idle().await;
        assert_eq!(edge(world, 1, AUTHOR).await.unwrap().since.ms(), THEN, "the first import of an edge sets its time");
        assert_eq!(edge(world, 3, AUTHOR).await.unwrap().since, since);
        assert!(!edge(world, 2, AUTHOR).await.unwrap().following);
        let user = world.user(1);
        let unread = async || user.feed("unread").await.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(unread().await, ["1000-20", "1000-19"], "read wins over unread, and a post in neither set is read");

        // A repeated run does not undo marks and unfollows that were made here after the import.
        user.delete("/v1/posts/1000-3/read").await.ok();
        user.delete("/v1/posts/1000-9/read").await.ok();
        user.put("/v1/posts/1000-20/read").await.ok();
        world.user(3).delete("/v1/following/1000").await.ok();
        world.idle().await;
        let before = facts(world).await;
        let (again, _) = migrate(world, json!({ "source": legacy.url() })).await;
        assert_eq!(again["totals"]["written"], 0);
        assert_eq!(facts(world).await, before);
        assert_eq!(unread().await, ["1000-19", "1000-9", "1000-3"]);

        // Posts that legacy users have read in the meantime are imported. The live view shows them as read.
        legacy.run(&[command("SADD user:read:1 19")]).await;
        let (more, _) = migrate(world, json!({ "source": legacy.url() })).await;
        assert_eq!(counts(&more, "user-read"), [3, 1, 2, 0]);
        assert_eq!(unread().await, ["1000-9", "1000-3"]);
    });
}

#[test]
fn users_can_follow_unfollow_and_read_during_an_import() {
    world(async |world| {
        let mut commands = Vec::new();
        for author in 0..10 {
            let blogs: Vec<Blog> = blogs(15).into_iter().map(|blog| Blog { id: blog.id + 100 * author, ..blog }).collect();
            commands.extend(author_blogs(AUTHOR + author, &blogs));
            for user in 1..=40 {
                commands.push(zadd(Layout::UFollow, user, THEN / 1000, AUTHOR + author));
                commands.push(command(&format!("SADD user:unread:{user}:{} {}", AUTHOR + author, 100 * author + 15)));
            }
        }
        let legacy = LegacyRedis::with(&commands).await;
        let busy = async {
            for user in 1..=40 {
                let (caller, path) = (world.user(user), |add: u64| format!("/v1/following/{}", AUTHOR + (user + add) % 10));
                // Each user reads a live feed before, between and after the imports of the user's edges.
                caller.get("/v1/feed").await.ok();
                caller.put(&path(0)).await.ok();
                caller.delete(&path(1)).await.ok();
                caller.put(&path(2)).await.ok();
                caller.delete(&path(2)).await.ok();
                caller.get("/v1/unread").await.ok();
            }
        };
        let event = json!({ "source": legacy.url(), "limit": 40 });
        join(busy, migrate(world, event)).await;
        world.idle().await;
        for user in 1..=40 {
            let caller = world.user(user);
            let pairs = app(world).readers.pairs(user_id(user)).await.unwrap();
            let follows = app(world).stores.facts.followings(user_id(user)).await.unwrap();
            assert_eq!(pairs.len() as u64, follows, "user {user}: the count is exact");
            let left = edge(world, user, AUTHOR + (user + 2) % 10).await.unwrap();
            assert!(!left.following, "user {user}: the import keeps an unfollow made here");
            let implied: u64 = pairs.iter().map(|pair| pair.state().unwrap().unread()).sum();
            assert_eq!(caller.unread_total().await, implied, "user {user}: the view agrees with the facts");
            // Unread posts are those in the legacy unread set. For a follow made here there are none.
            assert!(implied <= follows, "user {user}: {implied} unread of {follows}");
        }
        for author in 0..10 {
            let counts = world.follower_count(AUTHOR + author).await;
            let listed = world.user(1).walk(&format!("/v1/users/{}/followers", AUTHOR + author), 100).await;
            assert_eq!(counts, listed.len() as u64, "author {author}");
        }
    });
}

#[test]
fn a_notice_marked_unread_here_stays_unread_and_readers_count_once() {
    world(async |world| {
        // Two readers are in the first block of the bitmap, one is far away in another block.
        let commands = [3, 9, 3_000_000].map(|reader| command(&format!("SETBIT notice:2:57 {reader} 1")));
        let legacy = LegacyRedis::with(&commands).await;
        publish_notice(world, &[2]).await;
        world.user(9).put("/v1/notices/2-1/read").await.ok();
        let event = json!({ "source": legacy.url(), "notices": { "2:57": "2-1" } });
        let limited = json!({ "source": legacy.url(), "notices": { "2:57": "2-1" }, "limit": 1 });
        let (response, _) = migrate(world, limited).await;
        assert_eq!(counts(&response, "notices"), [3, 2, 1, 0]);
        let readers = async || world.administrator().get("/v1/notices/2-1").await.ok()["readers"].clone();
        assert_eq!(readers().await, 3);
        world.user(3).delete("/v1/notices/2-1/read").await.ok();
        let before = facts(world).await;
        let (again, _) = migrate(world, event.clone()).await;
        assert_eq!(counts(&again, "notices"), [3, 0, 3, 0]);
        assert_eq!(facts(world).await, before);
        assert_eq!(readers().await, 2);
        legacy.run(&[command("SETBIT notice:2:57 4 1")]).await;
        let (more, _) = migrate(world, event).await;
        assert_eq!(counts(&more, "notices"), [4, 1, 3, 0]);
        assert_eq!(world.user(4).get("/v1/notices/unread?platform=2").await.ok()["read"], 1);
    });
}

#[test]
fn follows_are_not_imported_after_unfollow_tombstones_may_have_expired_unless_forced() {
    world(async |world| {
        let legacy = LegacyRedis::with(&[zadd(Layout::UFollow, 1, THEN / 1000, AUTHOR)]).await;
        let mut event = json!({ "source": legacy.url(), "layout": ["u-follow"] });
        migrate(world, event.clone()).await;
        age_by_a_week(world).await;
        let refused = world.stack.invoke("migrate", event.clone()).await.unwrap_err();
        assert!(refused.to_string().contains("an unfollow may look like a follow never imported"), "{refused}");
        event["again"] = json!(true);
        let (response, _) = migrate(world, event).await;
        assert_eq!(counts(&response, "u-follow"), [1, 0, 1, 0]);
    });
}

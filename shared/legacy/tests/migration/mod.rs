//! Migration of legacy keys to facts: every layout, interrupted, resumed and repeated runs, active users, damaged
//! keys.

mod going_on;
mod legacy;
mod source;
mod unread;
mod whole;

use lambda_runtime::{Context, LambdaEvent};
use redis::Cmd;
use serde_json::{Value, json};
use tidemark::{
    App,
    domain::{Edge, PostId},
};
use tidemark_legacy::{Imports, legacy::Layout};
use tidemark_tests::{LegacyRedis, World, items::n, until, user_id, world};

use crate::damage::items;
use legacy::info;
pub(crate) use legacy::{Blog, THEN};

pub(crate) fn imports(world: &World) -> Imports {
    Imports(app(world).stores.facts.clone())
}

fn app(world: &World) -> &App {
    world.stack.app("migrate").unwrap()
}

/// An invocation that a test can drop at any point.
async fn invoke(world: &World, event: &Value) -> Value {
    let mut context = Context::default();
    context.deadline = u64::MAX / 2;
    tidemark_legacy::handle(app(world), LambdaEvent::new(event.clone(), context)).await.unwrap()
}

/// Invokes `migrate` until it is done. Returns the last response and the number of invocations.
pub(crate) async fn migrate(world: &World, mut event: Value) -> (Value, usize) {
    let mut overtaken = 0;
    for invocations in 1..100_000 {
        let response = world.stack.invoke("migrate", event).await.unwrap();
        // The last save of a dropped invocation may arrive after the next one has begun. No other run is active.
        overtaken += usize::from(response["overtaken"] == true);
        assert!(overtaken <= 1, "{response}");
        if response["done"] == true {
            return (response, invocations);
        }
        event = response["next"].clone();
    }
    panic!("the migration does not end");
}

/// Every item of every table as text, without the items of runs.
async fn facts(world: &World) -> Vec<String> {
    let facts = items(world).await.into_iter().map(|(table, item)| format!("{table} {item:?}"));
    let mut facts: Vec<String> = facts.filter(|text| !text.contains("\"run#")).collect();
    facts.sort();
    facts
}

async fn edge(world: &World, user: u64, author: u64) -> Option<Edge> {
    app(world).stores.facts.edges(user_id(user), &[user_id(author)]).await.unwrap().remove(&user_id(author))
}

/// Makes the first import of follows as old as if it had begun a week ago.
async fn age_by_a_week(world: &World) {
    let begun = app(world).stores.clock.now().ms() - 7 * 86_400_000;
    let key = tidemark::facts::schema::record("source");
    world.update_item("MigrationTable", key, &[("begun_at", n(begun))], &[]).await;
}

/// A command whose parts are separated by spaces.
pub(crate) fn command(text: &str) -> Cmd {
    let mut command = Cmd::new();
    command.arg(text.split(' ').collect::<Vec<_>>());
    command
}

fn zadd(layout: Layout, owner: u64, score: u64, member: u64) -> Cmd {
    command(&format!("ZADD {} {score} {member}", layout.key(owner)))
}

pub(crate) fn author_blogs(author: u64, blogs: &[Blog]) -> Vec<Cmd> {
    let set = blogs.iter().map(|blog| command(&format!("SADD {} {}", Layout::AuthorBlogs.key(author), blog.id)));
    set.chain(blogs.iter().map(|blog| info(author, blog))).collect()
}

fn counts(response: &Value, layout: &str) -> [u64; 4] {
    ["read", "written", "already_there", "unreadable"].map(|name| response["layouts"][layout][name].as_u64().unwrap())
}

async fn publish_notice(world: &World, platforms: &[u16]) -> Vec<Value> {
    let notice = json!({ "platforms": platforms, "title": "Notice" });
    world.administrator().post("/v1/notices", &notice).await.items()
}

/// Imports a little of every layout, among users below 1,000: of an author who has published here, of an author with
/// followers here, of an author with many posts, and of an author that no set names.
pub(super) async fn a_little_of_everything(world: &World) {
    let (known, new, busy, unnamed) = (107, 108, 109, 110);
    world.user(known).publish("here before").await;
    world.live_reader(101, [known, new]).await;
    world.idle().await;
    let notice = publish_notice(world, &[1]).await[0]["id"].clone();

    let blogs = |first: u64| [0, 1, 2].map(|number| Blog { at: THEN + number * 1_000, id: first + number });
    let many: Vec<Blog> = (1_000..=2_000).map(|id| Blog { at: THEN + id, id }).collect();
    let mut commands = [author_blogs(known, &blogs(10)), author_blogs(new, &blogs(20)), author_blogs(busy, &many)].concat();
    commands.extend([
        info(unnamed, &blogs(30)[0]),
        command("SADD user:read:101 10 20"),
        zadd(Layout::BlogRead, 102, 1, 21),
        zadd(Layout::Following, 102, THEN + 1_500, new),
        zadd(Layout::UFollow, 103, THEN / 1_000, known),
        zadd(Layout::Following, 102, THEN + 1_500, busy),
        zadd(Layout::Fans, new, THEN + 1_500, 104),
        zadd(Layout::UFans, known, THEN / 1_000, 105),
        zadd(Layout::Feed, 106, THEN + 1_000, 21),
        zadd(Layout::UserFeed, 112, THEN + 1_000, 21),
        command("SADD follows:111 108"),
        zadd(Layout::BlogLiked, 20, THEN + 5_000, 101),
        command("SADD user:unread:102:108 22"),
        command("SETBIT notice:1:5 101 1"),
    ]);
    let legacy = LegacyRedis::with(&commands).await;
    let (response, _) = migrate(world, json!({ "source": legacy.url(), "notices": { "1:5": notice } })).await;
    assert_eq!(response["totals"]["unreadable"], 0, "{response}");
    for layout in Layout::ALL {
        assert!(response["layouts"][json!(layout).as_str().unwrap()]["read"].as_u64() > Some(0), "{layout:?}: {response}");
    }
    world.idle().await;

    // The legacy system stays in use: a pass sees two new entries, a deletion and an unfollow.
    let follow = json!({ "source": legacy.url(), "follow": true });
    migrate(world, follow.clone()).await;
    let mut changes = author_blogs(new, &[Blog { at: THEN + 9_000, id: 29 }]);
    changes.extend([
        zadd(Layout::UFollow, 104, THEN / 1_000, known),
        command("SREM author:blogs:108 20"),
        command("ZREM u_follow:103 107"),
    ]);
    legacy.run(&changes).await;
    let (response, _) = migrate(world, follow.clone()).await;
    assert_eq!((&response["totals"]["written"], &response["totals"]["waiting"]), (&json!(2), &json!(2)), "{response}");
    let (response, _) = migrate(world, follow.clone()).await;
    assert_eq!((&response["totals"]["written"], &response["totals"]["waiting"]), (&json!(2), &json!(0)), "{response}");
    // The blog is back.
    legacy.run(&[command("SADD author:blogs:108 20")]).await;
    let (response, _) = migrate(world, follow).await;
    assert_eq!(response["totals"]["written"], 1, "{response}");
    world.idle().await;
}

/// Keys with damage of every kind. `future` is a time.
fn damaged_keys(future: u64) -> Vec<Cmd> {
    let long = "x".repeat(201);
    [
        // posts
        "SADD author:blogs:7 0 x1 18446744073709551616 102 103 104 105 106 107 108",
        "HSET blog:info:103 id 103 userId 7 title no-time",
        &format!("HSET blog:info:104 id 104 userId 7 title {long} createTime 1748736000000"),
        "HSET blog:info:105 id 105 userId 8 title another's createTime 1748736000000",
        "SET blog:info:106 no-hash",
        &format!("HSET blog:info:107 id 107 userId 7 title t createTime {future}"),
        "HSET blog:info:108 id 108 userId 7 title t createTime noon",
        "SET author:blogs:9 no-set",
        "SADD author:blogs:nobody 1",
        "HSET blog:info: id 1",
        // read marks
        "SADD user:read:1 100 -5 999",
        "ZADD user:read:2 1 100",
        "ZADD blog:read:1 1 101 1 0",
        "SET user:unread:1:7 no-set",
        // follows
        "ZADD u_follow:1 1748736000 7 1748736000 1 1748736000 seven",
        "ZADD u_follow:1 -5 11 1.5 12 inf 13",
        "ZADD u_follow:1 1748736000000 14 1748736000 0 1748736000 18446744073709551616",
        &format!("ZADD uf:fans:7 {future} 2 1748736000000 3"),
        "SADD u_fans:7 3",
        "ZADD uf:flws:0 1748736000000 3",
        // feeds
        "ZADD focusFeedKey3 1748736000000 100 1 0 5 12345 -1 101",
        "ZADD focusFeedKey1 1748736000000 105",
        // notices
        "SETBIT notice:1:5 0 1",
        "SETBIT notice:1:5 3 1",
        "SETBIT notice:1:6 3 1",
        "SETBIT notice:0:5 3 1",
        "SADD notice:1:7 3",
    ]
    .map(command)
    .to_vec()
}

#[test]
fn damaged_keys_are_reported_with_reasons_and_do_not_stop_the_run() {
    world(async |world| {
        let blog = |id, days: u64| Blog { at: THEN + days * 86_400_000, id };
        let mut commands = author_blogs(7, &[blog(100, 1), blog(101, 2)]);
        commands.extend(damaged_keys(app(world).stores.clock.now().ms() + 9 * 86_400_000));
        commands.push(Cmd::sadd(b"user:read:\xff\xfe", b"\xff"));
        let legacy = LegacyRedis::with(&commands).await;

        let notice = publish_notice(world, &[1]).await[0]["id"].clone();
        let notices = json!({ "1:5": notice, "1:7": notice });
        let (response, _) = migrate(world, json!({ "source": legacy.url(), "notices": notices })).await;
        let reasons = |layout: &str| {
            let reasons = response["layouts"][layout]["reasons"].as_object().unwrap();
            reasons.iter().map(|(reason, found)| format!("{reason} {}", found["count"])).collect::<Vec<_>>().join(", ")
        };
        for (layout, expected) in [
            (
                "author-blogs",
                "info-incomplete 1, key-without-id 1, no-info 1, not-a-time 1, not-an-id 3, other-author 1, time-ahead 1, title-length 1, \
                 wrong-type 2",
            ),
            ("blog-info", "info-incomplete 1, key-without-id 1, not-a-time 1, time-ahead 1, title-length 1, wrong-type 1"),
            ("user-read", "key-without-id 1, not-an-id 1, unknown-post 1, wrong-type 1"),
            ("blog-read", "not-an-id 1"),
            ("u-follow", "not-a-time 4, not-an-id 3, self-follow 1"),
            ("fans", "time-ahead 1"),
            ("u-fans", "wrong-type 1"),
            ("following", "key-without-id 1"),
            ("feed", "not-a-time 1, not-followed 1, unknown-post 1"),
            ("notices", "key-without-id 1, not-an-id 1, unknown-notice 1, wrong-type 1"),
        ] {
            assert_eq!(reasons(layout), expected, "{layout}");
        }
        world.user(3).get("/v1/notices/unread?platform=1").await.has(json!({ "unread": 0, "read": 1 }));
        let example = &response["layouts"]["fans"]["reasons"]["time-ahead"]["examples"][0];
        assert_eq!(*example, json!({ "key": "uf:fans:7", "member": "2" }));
        for tally in response["layouts"].as_object().unwrap().values() {
            let count = |name: &str| tally[name].as_u64().unwrap();
            assert_eq!(count("read"), count("written") + count("already_there") + count("unreadable"), "{tally}");
        }

        // The valid keys are imported. Blog 105 belongs to its own author, although no set names it.
        let posts = world.user(1).walk("/v1/authors/7/posts", 10).await;
        assert_eq!((&posts[0]["title"], &posts[1]["title"], posts.len()), (&json!("Blog 101"), &json!("Blog 100"), 2));
        assert_eq!(world.user(1).walk("/v1/authors/8/posts", 10).await[0]["title"], "another's");
        assert_eq!(edge(world, 1, 7).await.unwrap().since.ms(), 1_748_736_000_000);
        assert!(edge(world, 3, 7).await.unwrap().following);
        assert_eq!(world.user(1).get("/v1/users/7/counters").await.ok()["followers"], 2);
    });
}

#[test]
fn nothing_is_imported_for_users_who_have_left() {
    world(async |world| {
        // The second one is in a bitmap only, which has a bit for each smaller id.
        let (left, reader, other) = (777_777_777_777, 781, 778);
        let blogs = |first: u64| [Blog { at: THEN, id: first }, Blog { at: THEN + 1_000, id: first + 1 }];
        let mut commands = [author_blogs(left, &blogs(50)), author_blogs(other, &blogs(60))].concat();
        commands.extend([
            info(left, &Blog { at: THEN, id: 70 }),
            command(&format!("SADD {} 60", Layout::UserRead.key(left))),
            zadd(Layout::BlogRead, left, 1, 61),
            zadd(Layout::Following, left, THEN, other),
            zadd(Layout::Following, other, THEN, left),
            zadd(Layout::UFollow, 779, THEN / 1_000, left),
            zadd(Layout::Fans, left, THEN, 780),
            zadd(Layout::Fans, other, THEN, left),
            zadd(Layout::Feed, left, THEN, 60),
            command(&format!("SETBIT notice:1:5 {reader} 1")),
            command("SETBIT notice:1:5 779 1"),
        ]);
        let legacy = LegacyRedis::with(&commands).await;
        let notice = publish_notice(world, &[1]).await[0]["id"].clone();
        for user in [left, reader].map(|user| world.user(user)) {
            user.delete("/v1/me").await.ok();
            until("the erasure is done", async || user.get("/v1/me/erasure").await.ok()["state"] == "done").await;
        }
        world.idle().await;
        let (response, _) = migrate(world, json!({ "source": legacy.url(), "notices": { "1:5": notice } })).await;
        let erased = |layout: &str| response["layouts"][layout]["reasons"]["erased"]["count"].as_u64().unwrap_or(0);
        let layouts = ["author-blogs", "blog-info", "user-read", "blog-read", "following", "u-follow", "fans", "feed", "notices"];
        assert_eq!(layouts.map(erased), [1, 3, 1, 1, 2, 1, 2, 1, 1], "{response}");
        world.idle().await;
        let mut left_over = facts(world).await;
        left_over.retain(|fact| fact.contains(&left.to_string()) && !fact.contains("left#"));
        assert!(left_over.len() == 2 && left_over[0].contains("erased#") && left_over[1].contains("head"), "{left_over:#?}");
        assert_eq!(world.user(1).walk(&format!("/v1/authors/{other}/posts"), 10).await.len(), 2, "others are imported");
        assert_eq!(world.user(779).get("/v1/notices/unread?platform=1").await.ok()["read"], 1);
    });
}

#[test]
fn a_follow_over_the_limit_is_reported_and_the_count_stays_exact() {
    world(async |world| {
        let mut commands: Vec<Cmd> = (2..=504).map(|author| zadd(Layout::UFollow, 1, 1_748_736_000, author)).collect();
        commands.push(zadd(Layout::UFans, 600, 1_748_736_000, 1));
        let legacy = LegacyRedis::with(&commands).await;
        let (response, _) = migrate(world, json!({ "source": legacy.url() })).await;
        assert_eq!(counts(&response, "u-follow"), [503, 500, 0, 3]);
        assert_eq!(counts(&response, "u-fans"), [1, 0, 0, 1]);
        assert_eq!(response["layouts"]["u-follow"]["reasons"]["following-limit"]["count"], 3);
        assert_eq!(world.user(1).get("/v1/users/1/counters").await.ok()["followings"], 500);
        assert_eq!(world.user(1).walk("/v1/users/1/following", 100).await.len(), 500);
    });
}

#[test]
fn a_dry_run_writes_nothing_and_has_the_counts_of_a_run() {
    world(async |world| {
        let blogs = [Blog { at: THEN + 5_000, id: 1 << 60 }, Blog { at: THEN + 6_000, id: 3 }];
        let mut commands = author_blogs(7, &blogs);
        commands.extend([1, 2, 3].map(|user| zadd(Layout::UFollow, user, THEN / 1000, 7)));
        commands.extend([command("SADD user:read:1 3 4"), zadd(Layout::Feed, 9, THEN + 5_000, 1 << 60)]);
        let legacy = LegacyRedis::with(&commands).await;
        world.user(3).put("/v1/following/7").await.ok();
        world.idle().await;
        let before = facts(world).await;
        let (dry, invocations) = migrate(world, json!({ "source": legacy.url(), "dry_run": true, "limit": 1 })).await;
        assert!(invocations > 4, "{invocations}");
        assert_eq!(facts(world).await, before);
        let (wet, _) = migrate(world, json!({ "source": legacy.url() })).await;
        for layout in ["author-blogs", "user-read", "u-follow", "feed"] {
            assert_eq!(dry["layouts"][layout], wet["layouts"][layout], "{layout}");
        }
        assert_eq!(counts(&wet, "u-follow"), [3, 2, 1, 0], "one user follows here already");
        assert_eq!(counts(&wet, "user-read"), [2, 1, 0, 1]);
    });
}

/// Runs a part of a layout's import, then the rest from another server. Returns the counts of both responses.
async fn across_a_restart(world: &World, layout: &str, commands: &[Cmd], limit: u64) -> [[u64; 4]; 2] {
    let mut legacy = LegacyRedis::with(commands).await;
    let event = json!({ "source": legacy.url(), "layout": [layout], "limit": limit });
    let first = world.stack.invoke("migrate", event.clone()).await.unwrap();
    assert_eq!(first["done"], false, "{first}");
    legacy.restart().await;
    legacy.run(commands).await;
    [counts(&first, layout), counts(&migrate(world, event).await.0, layout)]
}

#[test]
fn after_a_restart_of_the_source_its_layout_starts_again_without_double_counts_and_old_cursors() {
    world(async |world| {
        let follows: Vec<Cmd> = (1..=300).map(|user| zadd(Layout::UFollow, user, THEN / 1000, 1_000)).collect();
        let [first, whole] = across_a_restart(world, "u-follow", &follows, 100).await;
        assert!((100..200).contains(&first[1]), "{first:?}");
        assert_eq!(whole, [300, 300, 0, 0]);
        assert_eq!(world.user(1).get("/v1/users/1000/counters").await.ok()["followers"], 300);
        // More keys than one SCAN returns. Blogs of unknown authors are read quickly.
        let reads: Vec<Cmd> = (1..=3_000).map(|user| command(&format!("SADD user:read:{user} 7"))).collect();
        let [first, whole] = across_a_restart(world, "user-read", &reads, 1_500).await;
        assert!(first[0] >= 1_500, "{first:?}");
        assert_eq!(whole, [3_000, 0, 0, 3_000]);
    });
}

#[test]
fn one_of_two_concurrent_runs_stops_and_nothing_is_written_twice() {
    world(async |world| {
        let mut commands: Vec<Cmd> = (1..=400).map(|user| zadd(Layout::UFollow, user, THEN / 1000, 1_000)).collect();
        let blogs: Vec<Blog> = (1..=150).map(|id| Blog { at: THEN + id, id }).collect();
        commands.extend(author_blogs(1_000, &blogs));
        let legacy = LegacyRedis::with(&commands).await;
        // Both runs begin together. Later both continue from the same position.
        for limit in [100, u64::MAX] {
            let limited = json!({ "source": legacy.url(), "limit": limit });
            let (one, other) = tokio::join!(invoke(world, &limited), invoke(world, &limited));
            let overtaken = [&one, &other].map(|response| response["overtaken"] == true);
            assert!(overtaken == [true, false] || overtaken == [false, true], "{one} {other}");
        }
        migrate(world, json!({ "source": legacy.url() })).await;
        assert_eq!(world.user(1).get("/v1/users/1000/counters").await.ok()["followers"], 400);
        let head = app(world).stores.facts.heads(&[user_id(1_000)]).await.unwrap()[&user_id(1_000)].clone();
        assert_eq!((head.latest_seq, head.posts), (150, 150));
        let mapped = imports(world).mapped(&(1..=150).collect::<Vec<_>>()).await.unwrap();
        assert!((1..=150).all(|blog| mapped[&blog] == PostId::new(user_id(1_000), blog)));
    });
}

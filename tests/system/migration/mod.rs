//! Migration of legacy keys to facts: every layout, interrupted, resumed and repeated runs, active users, damaged
//! keys.

mod going_on;
mod legacy;
mod whole;

use std::sync::Arc;

use lambda_runtime::{Context, LambdaEvent};
use legacy::{Blog, THEN, info};
use redis::Cmd;
use serde_json::{Value, json};
use tidemark::{
    App,
    domain::{Edge, PostId},
};
use tidemark_migrate::{Imports, legacy::Layout};
use tidemark_tests::{LegacyRedis, World, until, user_id, world};

/// The import use cases on the world's facts.
fn imports(world: &World) -> Imports {
    Imports(app(world).facts.clone())
}

fn app(world: &World) -> &App {
    world.stack.app("migrate").unwrap()
}

/// An invocation that a test can drop at any point.
async fn invoke(world: &World, event: &Value) -> Value {
    let mut context = Context::default();
    context.deadline = u64::MAX / 2;
    context.env_config = Arc::default();
    tidemark_migrate::handle(app(world), LambdaEvent::new(event.clone(), context)).await.unwrap()
}

/// Invokes `migrate` until it is done. Returns the last response and the number of invocations.
async fn migrate(world: &World, mut event: Value) -> (Value, usize) {
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
    let client = world.dynamodb().await;
    let mut facts = Vec::new();
    for table in world.stack.template().tables.values() {
        let mut items = client.scan().table_name(&table.name).into_paginator().items().send();
        while let Some(item) = items.next().await {
            let item: std::collections::BTreeMap<_, _> = item.unwrap().into_iter().collect();
            let text = format!("{} {item:?}", table.name);
            if !text.contains("\"run#") {
                facts.push(text);
            }
        }
    }
    facts.sort();
    facts
}

async fn edge(world: &World, user: u64, author: u64) -> Option<Edge> {
    app(world).stores.edges.edges(user_id(user), &[user_id(author)]).await.unwrap().remove(&user_id(author))
}

fn command(parts: &[&str]) -> Cmd {
    let mut command = redis::cmd(parts[0]);
    command.arg(&parts[1..]);
    command
}

fn zadd(layout: Layout, owner: u64, score: u64, member: u64) -> Cmd {
    command(&["ZADD", &layout.key(owner), &score.to_string(), &member.to_string()])
}

fn author_blogs(author: u64, blogs: &[Blog]) -> Vec<Cmd> {
    let set = blogs.iter().map(|blog| command(&["SADD", &Layout::AuthorBlogs.key(author), &blog.id.to_string()]));
    set.chain(blogs.iter().map(|blog| info(author, blog))).collect()
}

fn counts(response: &Value, layout: &str) -> [u64; 4] {
    ["read", "written", "already_there", "unreadable"].map(|name| response["layouts"][layout][name].as_u64().unwrap())
}

/// Imports a little of every layout, among users below 1,000: of an author who has published here, of an author with
/// followers here, of an author with many posts, and of an author that no set names.
pub(super) async fn a_little_of_everything(world: &World) {
    let (known, new, busy, unnamed) = (107, 108, 109, 110);
    world.user(known).publish("here before").await;
    world.user(101).put(&format!("/v1/following/{known}")).await.ok();
    world.user(101).put(&format!("/v1/following/{new}")).await.ok();
    world.user(101).feed_ids().await;
    world.idle().await;
    let notice = json!({ "platforms": [1], "title": "Notice" });
    let published = world.stranger(Some("9 notices:write")).post("/v1/notices", &notice).await.ok();

    let blogs = |first: u64| [0, 1, 2].map(|number| Blog { at: THEN + number * 1_000, id: first + number });
    let many: Vec<Blog> = (1_000..=2_000).map(|id| Blog { at: THEN + id, id }).collect();
    let mut commands = [author_blogs(known, &blogs(10)), author_blogs(new, &blogs(20)), author_blogs(busy, &many)].concat();
    commands.push(info(unnamed, &blogs(30)[0]));
    commands.push(command(&["SADD", &Layout::UserRead.key(101), "10", "20"]));
    commands.push(command(&["ZADD", &Layout::BlogRead.key(102), "1", "21"]));
    for (layout, owner, at, member) in [
        (Layout::Following, 102, THEN + 1_500, new),
        (Layout::UFollow, 103, THEN / 1_000, known),
        (Layout::Following, 102, THEN + 1_500, busy),
        (Layout::Fans, new, THEN + 1_500, 104),
        (Layout::UFans, known, THEN / 1_000, 105),
        (Layout::Feed, 106, THEN + 1_000, 21),
    ] {
        commands.push(zadd(layout, owner, at, member));
    }
    commands.push(command(&["SADD", "user:unread:102:108", "22"]));
    commands.push(command(&["SETBIT", "notice:1:5", "101", "1"]));
    let legacy = LegacyRedis::with(&commands).await;
    let notices = json!({ "1:5": published["items"][0]["id"] });
    let (response, _) = migrate(world, json!({ "source": legacy.url(), "notices": notices })).await;
    assert_eq!(response["totals"]["unreadable"], 0, "{response}");
    for layout in Layout::ALL {
        assert!(response["layouts"][json!(layout).as_str().unwrap()]["read"].as_u64() > Some(0), "{layout:?}: {response}");
    }
    world.idle().await;

    // The legacy system stays in use: a pass sees two new entries, a deletion and an unfollow.
    let follow = json!({ "source": legacy.url(), "follow": true });
    migrate(world, follow.clone()).await;
    let mut changes = author_blogs(new, &[Blog { at: THEN + 9_000, id: 29 }]);
    changes.push(zadd(Layout::UFollow, 104, THEN / 1_000, known));
    changes.push(command(&["SREM", &Layout::AuthorBlogs.key(new), "20"]));
    changes.push(command(&["ZREM", &Layout::UFollow.key(103), &known.to_string()]));
    legacy.run(&changes).await;
    let (response, _) = migrate(world, follow).await;
    assert_eq!(response["totals"]["written"], 4, "{response}");
    world.idle().await;
}

/// Keys with damage of every kind. `future` is a time.
fn damaged_keys(future: &str) -> Vec<Cmd> {
    let damaged: &[&[&str]] = &[
        // posts
        &["SADD", "author:blogs:7", "0", "x1", "18446744073709551616", "102", "103", "104", "105", "106", "107", "108"],
        &["HSET", "blog:info:103", "id", "103", "userId", "7", "title", "no time"],
        &["HSET", "blog:info:104", "id", "104", "userId", "7", "title", &"x".repeat(201), "createTime", "1748736000000"],
        &["HSET", "blog:info:105", "id", "105", "userId", "8", "title", "another's", "createTime", "1748736000000"],
        &["SET", "blog:info:106", "no hash"],
        &["HSET", "blog:info:107", "id", "107", "userId", "7", "title", "t", "createTime", future],
        &["HSET", "blog:info:108", "id", "108", "userId", "7", "title", "t", "createTime", "noon"],
        &["SET", "author:blogs:9", "no set"],
        &["SADD", "author:blogs:nobody", "1"],
        &["HSET", "blog:info:", "id", "1"],
        // read marks
        &["SADD", "user:read:1", "100", "-5", "999"],
        &["ZADD", "user:read:2", "1", "100"],
        &["ZADD", "blog:read:1", "1", "101", "1", "0"],
        &["SET", "user:unread:1:7", "no set"],
        // follows
        &["ZADD", "u_follow:1", "1748736000", "7", "1748736000", "1", "1748736000", "seven"],
        &["ZADD", "u_follow:1", "-5", "11", "1.5", "12", "inf", "13"],
        &["ZADD", "u_follow:1", "1748736000000", "14", "1748736000", "0", "1748736000", "18446744073709551616"],
        &["ZADD", "uf:fans:7", future, "2", "1748736000000", "3"],
        &["SADD", "u_fans:7", "3"],
        &["ZADD", "uf:flws:0", "1748736000000", "3"],
        // feeds
        &["ZADD", "focusFeedKey3", "1748736000000", "100", "1", "0", "5", "12345", "-1", "101"],
        &["ZADD", "focusFeedKey1", "1748736000000", "105"],
        // notices
        &["SETBIT", "notice:1:5", "0", "1"],
        &["SETBIT", "notice:1:5", "3", "1"],
        &["SETBIT", "notice:1:6", "3", "1"],
        &["SETBIT", "notice:0:5", "3", "1"],
        &["SADD", "notice:1:7", "3"],
    ];
    damaged.iter().map(|parts| command(parts)).collect()
}

/// The reasons of damaged keys, and how often each is found.
const REASONS: [(&str, &str); 10] = [
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
];

#[test]
fn damaged_keys_are_reported_with_reasons_and_do_not_stop_the_run() {
    world(async |world| {
        let blog = |id, days: u64| Blog { at: THEN + days * 86_400_000, id };
        let mut commands = author_blogs(7, &[blog(100, 1), blog(101, 2)]);
        let now = app(world).stores.clock.now();
        commands.extend(damaged_keys(&(now.ms() + 9 * 86_400_000).to_string()));
        let mut binary = redis::cmd("SADD");
        commands.push(binary.arg(&b"user:read:\xff\xfe"[..]).arg(&b"\xff"[..]).to_owned());
        let legacy = LegacyRedis::with(&commands).await;

        let notice = json!({ "platforms": [1], "title": "Notice" });
        world.stranger(Some("9 notices:write")).post("/v1/notices", &notice).await.ok();
        let notices = json!({ "1:5": "1-1", "1:7": "1-1" });
        let (response, _) = migrate(world, json!({ "source": legacy.url(), "notices": notices })).await;
        let reasons = |layout: &str| {
            let reasons = response["layouts"][layout]["reasons"].as_object().unwrap();
            reasons.iter().map(|(reason, found)| format!("{reason} {}", found["count"])).collect::<Vec<_>>().join(", ")
        };
        for (layout, expected) in REASONS {
            assert_eq!(reasons(layout), expected, "{layout}");
        }
        assert_eq!(world.user(3).get("/v1/notices/unread?platform=1").await.ok(), json!({ "unread": 0, "read": 1 }));
        let example = &response["layouts"]["fans"]["reasons"]["time-ahead"]["examples"][0];
        assert_eq!(*example, json!({ "key": "uf:fans:7", "member": "2" }));
        for tally in response["layouts"].as_object().unwrap().values() {
            let count = |name: &str| tally[name].as_u64().unwrap();
            assert_eq!(count("read"), count("written") + count("already_there") + count("unreadable"), "{tally}");
        }

        // The valid keys are imported. Blog 105 belongs to its own author, although no set names it.
        let posts: Vec<String> =
            world.user(1).walk("/v1/authors/7/posts", 10).await.iter().map(|p| p["title"].to_string()).collect();
        assert_eq!(posts, ["\"Blog 101\"", "\"Blog 100\""]);
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
        commands.push(info(left, &Blog { at: THEN, id: 70 }));
        commands.push(command(&["SADD", &Layout::UserRead.key(left), "60"]));
        commands.push(command(&["ZADD", &Layout::BlogRead.key(left), "1", "61"]));
        for (layout, owner, at, member) in [
            (Layout::Following, left, THEN, other),
            (Layout::Following, other, THEN, left),
            (Layout::UFollow, 779, THEN / 1_000, left),
            (Layout::Fans, left, THEN, 780),
            (Layout::Fans, other, THEN, left),
            (Layout::Feed, left, THEN, 60),
        ] {
            commands.push(zadd(layout, owner, at, member));
        }
        commands.push(command(&["SETBIT", "notice:1:5", &reader.to_string(), "1"]));
        commands.push(command(&["SETBIT", "notice:1:5", "779", "1"]));
        let legacy = LegacyRedis::with(&commands).await;
        world.stranger(Some("9 notices:write")).post("/v1/notices", &json!({ "platforms": [1], "title": "Notice" })).await.ok();
        for user in [left, reader].map(|user| world.user(user)) {
            user.delete("/v1/me").await.ok();
            until("the erasure is done", async || user.get("/v1/me/erasure").await.ok()["state"] == "done").await;
        }
        world.idle().await;
        let of_left =
            async || -> Vec<String> { facts(world).await.into_iter().filter(|fact| fact.contains(&left.to_string())).collect() };

        let (response, _) = migrate(world, json!({ "source": legacy.url(), "notices": { "1:5": "1-1" } })).await;
        let erased = |layout: &str| response["layouts"][layout]["reasons"]["erased"]["count"].as_u64().unwrap_or(0);
        let layouts = ["author-blogs", "blog-info", "user-read", "blog-read", "following", "u-follow", "fans", "feed", "notices"];
        assert_eq!(layouts.map(erased), [1, 3, 1, 1, 2, 1, 2, 1, 1], "{response}");
        world.idle().await;
        let left_over = of_left().await;
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
        commands.push(command(&["SADD", "user:read:1", "3", "4"]));
        commands.push(zadd(Layout::Feed, 9, THEN + 5_000, 1 << 60));
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

#[test]
fn after_a_restart_of_the_source_its_layout_starts_again_without_double_counts() {
    world(async |world| {
        let mut legacy = LegacyRedis::start().await;
        let commands: Vec<Cmd> = (1..=300).map(|user| zadd(Layout::UFollow, user, THEN / 1000, 1_000)).collect();
        legacy.run(&commands).await;
        let event = json!({ "source": legacy.url(), "layout": ["u-follow"], "limit": 100 });
        let first = world.stack.invoke("migrate", event.clone()).await.unwrap();
        assert_eq!(first["done"], false);
        let written = counts(&first, "u-follow")[1];
        assert!((100..200).contains(&written), "{first}");
        legacy.restart().await;
        legacy.run(&commands).await;
        let (response, _) = migrate(world, event).await;
        assert_eq!(counts(&response, "u-follow"), [300, 300, 0, 0]);
        assert_eq!(world.user(1).get("/v1/users/1000/counters").await.ok()["followers"], 300);
    });
}

#[test]
fn cursors_of_a_lost_server_are_not_used_on_its_successor() {
    world(async |world| {
        let mut legacy = LegacyRedis::start().await;
        // More keys than one SCAN returns. Blogs of unknown authors are read quickly.
        let commands: Vec<Cmd> = (1..=3_000).map(|user| command(&["SADD", &Layout::UserRead.key(user), "7"])).collect();
        legacy.run(&commands).await;
        let event = json!({ "source": legacy.url(), "layout": ["user-read"], "limit": 1_500 });
        let first = world.stack.invoke("migrate", event.clone()).await.unwrap();
        assert!(first["done"] == false && counts(&first, "user-read")[0] >= 1_500, "{first}");
        legacy.restart().await;
        legacy.run(&commands).await;
        let (response, _) = migrate(world, event).await;
        assert_eq!(counts(&response, "user-read"), [3_000, 0, 0, 3_000]);
    });
}

#[test]
fn one_of_two_concurrent_runs_stops_and_nothing_is_written_twice() {
    world(async |world| {
        let mut commands: Vec<Cmd> = (1..=400).map(|user| zadd(Layout::UFollow, user, THEN / 1000, 1_000)).collect();
        let blogs: Vec<Blog> = (1..=150).map(|id| Blog { at: THEN + id, id }).collect();
        commands.extend(author_blogs(1_000, &blogs));
        let legacy = LegacyRedis::with(&commands).await;
        let event = json!({ "source": legacy.url() });
        let mut limited = event.clone();
        // Both runs begin together. Later both continue from the same position.
        for limit in [100, u64::MAX] {
            limited["limit"] = json!(limit);
            let (one, other) = tokio::join!(invoke(world, &limited), invoke(world, &limited));
            let overtaken = [&one, &other].map(|response| response["overtaken"] == true);
            assert!(overtaken == [true, false] || overtaken == [false, true], "{one} {other}");
        }
        migrate(world, event).await;
        assert_eq!(world.user(1).get("/v1/users/1000/counters").await.ok()["followers"], 400);
        let head = app(world).stores.posts.heads(&[user_id(1_000)]).await.unwrap().remove(&user_id(1_000)).unwrap();
        assert_eq!((head.latest_seq, head.posts), (150, 150));
        let mapped = imports(world).mapped(&(1..=150).collect::<Vec<_>>()).await.unwrap();
        assert!((1..=150).all(|blog| mapped[&blog] == PostId::new(user_id(1_000), blog)));
    });
}

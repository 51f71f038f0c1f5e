//! Sources without unread lists, the tutorial system's keys, and what a run says of a source that does not respond.

use redis::Cmd;
use serde_json::{Value, json};
use tidemark_legacy::legacy::Layout;
use tidemark_tests::{LegacyRedis, World, world};

use super::{Blog, THEN, app, author_blogs, command, counts, edge, migrate, zadd};

const AUTHOR: u64 = 1_000;
const SECOND: u64 = 1_000;

/// Ten blogs of an author, one a second after the first one.
fn blogs() -> Vec<Blog> {
    (0..10).map(|number| Blog { at: THEN + number * SECOND, id: 50 + number }).collect()
}

/// The system before its optimisation: blogs, follows and read blogs. Reader 1 has read three of ten, reader 2 none.
/// Reader 3 follows since the fifth blog. Each list is a month old.
fn without_lists() -> Vec<Cmd> {
    let mut commands = author_blogs(AUTHOR, &blogs());
    commands.extend([1, 2].map(|reader| zadd(Layout::UFollow, reader, THEN / 1_000 - 30 * 86_400, AUTHOR)));
    commands.push(zadd(Layout::UFollow, 3, THEN / 1_000 + 4, AUTHOR));
    commands.push(command("ZADD blog:read:1 1 50 2 54 3 59"));
    commands
}

async fn unread(world: &World, readers: [u64; 3]) -> [u64; 3] {
    let [one, two, three] = readers.map(|reader| world.user(reader));
    [one.unread_total().await, two.unread_total().await, three.unread_total().await]
}

#[test]
fn a_source_without_unread_lists_has_posts_since_the_follow_minus_read_posts_unread() {
    world(async |world| {
        let legacy = LegacyRedis::with(&without_lists()).await;
        let expected = json!({ "rule": "complement", "edges_without_unread_list": 3 });
        for event in [json!({ "source": legacy.url(), "dry_run": true }), json!({ "source": legacy.url(), "limit": 1 })] {
            let (response, _) = migrate(world, event).await;
            assert_eq!(response["unread"], expected, "{response}");
        }
        assert_eq!(unread(world, [1, 2, 3]).await, [7, 10, 5]);
        let feed = world.user(1).feed("unread").await;
        assert_eq!((feed.len(), world.user(3).feed("all").await.len()), (7, 10));
        // A run that finds everything has decided nothing.
        let (again, _) = migrate(world, json!({ "source": legacy.url() })).await;
        assert_eq!((&again["totals"]["written"], &again["unread"]["edges_without_unread_list"]), (&json!(0), &json!(0)));
        // Write-back adds unread lists. A pass goes on with the rule of the first run.
        legacy.run(&[command("SADD user:unread:9:1000 59"), zadd(Layout::UFollow, 9, THEN / 1_000 - 60, AUTHOR)]).await;
        let (pass, _) = migrate(world, json!({ "source": legacy.url(), "follow": true })).await;
        assert_eq!(pass["unread"], json!({ "rule": "complement", "edges_without_unread_list": 0 }), "{pass}");
        assert_eq!(world.user(9).unread_total().await, 10);
    });
}

#[test]
fn the_rule_can_be_named_and_a_typo_is_refused() {
    world(async |world| {
        let mut commands = without_lists();
        // Reader 2 has a list; one of its posts is older than the follow. That of reader 1 has expired.
        commands.extend([command("SADD user:unread:3:1000 50 58 59"), command("HSET user:unread:count:3 1000 3")]);
        let legacy = LegacyRedis::with(&commands).await;
        let event = |rule: &str| json!({ "source": legacy.url(), "unread": rule });
        for rule in ["listd", "Listed", ""] {
            let refused = world.stack.invoke("migrate", event(rule)).await.unwrap_err().to_string();
            assert!(refused.contains("InvalidEvent"), "{rule}: {refused}");
        }
        let (response, _) = migrate(world, json!({ "source": legacy.url() })).await;
        assert_eq!(response["unread"], json!({ "rule": "listed", "edges_without_unread_list": 2 }), "{response}");
        assert_eq!(unread(world, [1, 2, 3]).await, [0, 0, 2]);
        for reader in [1, 2, 3] {
            world.user(reader).delete(&format!("/v1/following/{AUTHOR}")).await.ok();
        }
        // The same lists for other readers, by the other rule.
        let mut commands: Vec<Cmd> = [4, 5].map(|reader| zadd(Layout::UFollow, reader, THEN / 1_000 - 60, AUTHOR)).to_vec();
        commands.extend([command("ZADD blog:read:4 1 50 2 54 3 59"), command("SADD user:unread:5:1000 59")]);
        legacy.run(&commands).await;
        let (response, _) = migrate(world, event("complement")).await;
        assert_eq!(response["unread"], json!({ "rule": "complement", "edges_without_unread_list": 1 }), "{response}");
        assert_eq!(unread(world, [4, 5, 3]).await, [7, 10, 0]);
    });
}

#[test]
fn keys_of_the_tutorial_system_become_follows_and_likes() {
    world(async |world| {
        let mut commands = author_blogs(AUTHOR, &blogs());
        commands.extend([
            // Reader 1 has the last three blogs in a feed, reader 2 no feed, reader 3 an empty one of this author.
            command("SADD follows:1 1000 1 x"),
            command("SADD follows:2 1000"),
            command("SADD follows:3 1000"),
            command(&format!("ZADD feed:1 {} 57 {} 58 {} 59", THEN + 7_000, THEN + 8_000, THEN + 9_000)),
            command(&format!("ZADD feed:3 {THEN} 777")),
            // Reader 4 has a feed alone.
            command(&format!("ZADD feed:4 {} 59", THEN + 9_000)),
            command(&format!("ZADD blog:liked:50 {} 1 {} 2 5 0", THEN + 500, THEN + 700)),
            command(&format!("ZADD blog:liked:4040 {THEN} 1")),
        ]);
        let legacy = LegacyRedis::with(&commands).await;
        let (response, _) = migrate(world, json!({ "source": legacy.url() })).await;
        assert_eq!(counts(&response, "follows"), [5, 3, 0, 2], "{response}");
        assert_eq!(counts(&response, "blog-liked"), [4, 2, 0, 2], "{response}");
        assert_eq!(counts(&response, "user-feed"), [5, 1, 3, 1], "{response}");
        assert_eq!(response["unread"]["rule"], "complement");
        assert_eq!(edge(world, 1, AUTHOR).await.unwrap().since.ms(), THEN + 6_999);
        assert_eq!(edge(world, 2, AUTHOR).await.unwrap().since.ms(), THEN - 1);
        assert_eq!((unread(world, [1, 2, 3]).await, world.user(4).unread_total().await), ([3, 10, 0], 1));
        let likes = world.user(3).get("/v1/posts/1000-1/likes").await.ok();
        let since = |item: &Value| (item["user"].clone(), item["since"].as_str().unwrap().to_owned());
        assert_eq!(likes["items"].as_array().unwrap().iter().map(since).collect::<Vec<_>>().len(), 2, "{likes}");
        assert_eq!(likes["items"][0]["user"], "2", "{likes}");

        // What was done here stands.
        world.user(1).delete("/v1/posts/1000-1/like").await.ok();
        world.user(3).delete(&format!("/v1/following/{AUTHOR}")).await.ok();
        let (again, _) = migrate(world, json!({ "source": legacy.url() })).await;
        assert_eq!(again["totals"]["written"], 0, "{again}");
        world.idle().await;
        world.user(3).get("/v1/posts/1000-1").await.has(json!({ "liked": false }));
        assert_eq!(world.user(3).get("/v1/posts/1000-1/likes").await.items().len(), 1);
        assert_eq!(app(world).stores.facts.followings(tidemark_tests::user_id(3)).await.unwrap(), 0);
    });
}

#[test]
fn a_source_that_does_not_respond_is_named_with_its_cause_and_without_its_password() {
    world(async |world| {
        let refused = world.stack.invoke("migrate", json!({ "source": "redis://me:secret@127.0.0.1:1" })).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("the legacy Redis at 127.0.0.1:1 is unavailable: "), "{refused}");
        assert!(refused.to_lowercase().contains("refused") && !refused.contains("secret"), "{refused}");
    });
}

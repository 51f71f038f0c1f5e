//! What a source is and what it holds: other spellings, strange keys, and users who leave while it is read.

use futures::FutureExt;
use redis::Cmd;
use serde_json::json;
use tidemark::{
    domain::{NewFollow, Timestamp},
    facts::{Followed, edges::Kind},
};
use tidemark_legacy::legacy::Layout;
use tidemark_tests::{LegacyRedis, World, in_one_thread, parameter, until, user_id, world, world_with};
use tokio::net::TcpListener;

use super::{
    age_by_a_week, app, author_blogs, command, counts, edge, facts, going_on, imports,
    legacy::{Blog, THEN},
    migrate, publish_notice, zadd,
};

const AUTHOR: u64 = 1_000;
const LEAVING: u64 = 777_777_777_777;

#[test]
fn an_old_import_is_known_however_the_source_is_spelled() {
    world(async |world| {
        let follows = [zadd(Layout::UFollow, 1, THEN / 1000, AUTHOR), zadd(Layout::UFans, AUTHOR, THEN / 1000, 1)];
        let legacy = LegacyRedis::with(&follows).await;
        // A replica that is promoted later is another process with the same data.
        let promoted = LegacyRedis::with(&follows).await;
        let url = legacy.url();
        migrate(world, json!({ "source": url, "layout": ["u-follow"] })).await;
        // The user unfollows, and the tombstone expires.
        world.user(1).delete(&format!("/v1/following/{AUTHOR}")).await.ok();
        world.idle().await;
        world.delete_item("FollowingTable", tidemark::facts::schema::edge(user_id(1), user_id(AUTHOR))).await;
        age_by_a_week(world).await;
        let spelled = url.replace("127.0.0.1", "localhost");
        for event in [
            json!({ "source": url, "layout": ["u-follow"] }),
            json!({ "source": url, "layout": ["u-fans"] }),
            json!({ "source": url }),
            json!({ "source": spelled, "layout": ["u-follow"] }),
            json!({ "source": format!("{url}/0"), "layout": ["u-follow"] }),
            json!({ "source": promoted.url(), "layout": ["u-fans"] }),
            json!({ "source": url, "dry_run": true }),
        ] {
            let outcome = world.stack.invoke("migrate", event.clone()).await;
            assert!(edge(world, 1, AUTHOR).await.is_none(), "{event} imports an old follow again");
            let refused = outcome.unwrap_err().to_string();
            assert!(refused.contains("an unfollow may look like a follow never imported"), "{event}: {refused}");
        }
    });
}

/// An event alone does not make the function connect to a server.
#[test]
fn a_source_that_the_settings_do_not_name_is_refused_before_a_connection() {
    world_with(parameter("MigrationSources", ""), async |world| {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for source in [
            format!("redis://127.0.0.1:{port}"),
            format!("rediss://a:b@127.0.0.1:{port}/0"),
            format!("valkey://127.0.0.1:{port}"),
            "redis+unix:///run/redis.sock".to_owned(),
            "127.0.0.1".to_owned(),
        ] {
            let refused = world.stack.invoke("migrate", json!({ "source": source })).await.unwrap_err().to_string();
            assert!(refused.contains("\"InvalidEvent\""), "{source}: {refused}");
        }
        assert!(listener.accept().now_or_never().is_none(), "nothing has connected");
    });
}

#[test]
fn a_source_that_the_settings_name_is_imported() {
    in_one_thread(async {
        let legacy = LegacyRedis::with(&[zadd(Layout::UFollow, 1, THEN / 1000, AUTHOR)]).await;
        let server = legacy.url().replace("redis://", "");
        World::run_with(parameter("MigrationSources", format!("other.example:1,{server}")), async |world| {
            migrate(world, json!({ "source": legacy.url(), "layout": ["u-follow"] })).await;
            assert!(edge(world, 1, AUTHOR).await.is_some());
        })
        .await;
    });
}

#[test]
fn a_pass_on_another_server_needs_a_word_however_the_source_is_spelled() {
    world(async |world| {
        let mut legacy = LegacyRedis::with(&[zadd(Layout::UFollow, 1, THEN / 1000, AUTHOR)]).await;
        let other_server = LegacyRedis::start().await;
        let (url, other) = (legacy.url(), other_server.url());
        let spelled = url.replace("127.0.0.1", "localhost");
        migrate(world, json!({ "source": url, "layout": ["u-follow"] })).await;
        let pass = |source: &str| json!({ "source": source, "follow": true });
        migrate(world, pass(&url)).await;
        migrate(world, pass(&spelled)).await;
        // The server comes back without its data. A run with other layouts does not vouch for it.
        legacy.restart().await;
        migrate(world, json!({ "source": url, "layout": ["fans"] })).await;
        for source in [&url, &spelled, &other] {
            for dry_run in [false, true] {
                let event = json!({ "source": source, "follow": true, "dry_run": dry_run });
                let refused = world.stack.invoke("migrate", event).await.unwrap_err().to_string();
                assert!(refused.contains("was restarted"), "{source}: {refused}");
            }
        }
        legacy.run(&[zadd(Layout::UFollow, 1, THEN / 1000, AUTHOR)]).await;
        migrate(world, json!({ "source": spelled, "follow": true, "again": true })).await;
        migrate(world, pass(&url)).await;
        assert!(edge(world, 1, AUTHOR).await.unwrap().following);
        assert!(world.stack.invoke("migrate", pass(&other)).await.is_err());
    });
}

/// Keys that have a layout's prefix and are none of its keys.
fn strange_keys() -> Vec<Cmd> {
    let mut keys: Vec<Cmd> = (0..1_000).map(|number| command(&format!("SADD user:read:{number}{} 1", "x".repeat(600)))).collect();
    keys.push(command(&format!("SADD user:read:{} 1", "7".repeat(500_000))));
    keys
}

#[test]
fn keys_that_no_layout_has_do_not_stop_a_run() {
    world(async |world| {
        let blogs = [Blog { at: THEN, id: 3 }];
        let mut commands = author_blogs(AUTHOR, &blogs);
        commands.push(command("SADD user:read:1 3"));
        commands.extend(strange_keys());
        let legacy = LegacyRedis::with(&commands).await;
        for dry_run in [true, false] {
            let (response, _) = migrate(world, json!({ "source": legacy.url(), "dry_run": dry_run })).await;
            assert_eq!(counts(&response, "user-read"), [1_002, 1, 0, 1_001], "{response}");
            let unknown = &response["layouts"]["user-read"]["reasons"]["key-without-id"];
            assert_eq!(unknown["count"], 1_001);
            assert!(unknown.to_string().len() < 2_000, "{unknown}");
        }
        assert_eq!(world.user(1).get(&format!("/v1/authors/{AUTHOR}/posts")).await.ok()["items"][0]["read"], true);
    });
}

/// Each write of a migration, of users who have left after the run has looked.
#[test]
fn a_write_that_comes_after_an_erasure_is_refused() {
    world(async |world| {
        let blogs = |first: u64| [Blog { at: THEN, id: first }, Blog { at: THEN + 1_000, id: first + 1 }];
        publish_notice(world, &[1]).await;
        let source = LegacyRedis::with(&author_blogs(AUTHOR, &blogs(10))).await;
        migrate(world, json!({ "source": source.url(), "layout": ["author-blogs"] })).await;
        let user = world.user(LEAVING);
        world.user(1).follow([AUTHOR]).await;
        let (imports, left) = (imports(world), user_id(LEAVING));
        let now = app(world).stores.clock.now();
        // Begun before, as by a run that was killed.
        let open = imports.begin_import(left).await.unwrap().unwrap();
        user.delete("/v1/me").await.ok();
        until("the erasure is done", async || user.get("/v1/me/erasure").await.ok()["state"] == "done").await;
        world.idle().await;
        // The receipt has a map, which has no order as text.
        let facts = async || -> Vec<String> {
            facts(world).await.into_iter().filter(|fact| !fact.starts_with("IdentitiesTable")).collect()
        };
        let before = facts().await;

        let follow = |author| NewFollow {
            author: user_id(author),
            since: Timestamp::from_ms(THEN),
            base: 0,
            floor: 0,
            preference: 0,
            accepted: false,
        };
        for kind in [Kind::Imported, Kind::Restored { ended_at: now }] {
            let own = imports.make_follows(left, vec![follow(AUTHOR)], now, kind).await.unwrap();
            let others = imports.make_follows(user_id(7), vec![follow(LEAVING)], now, kind).await.unwrap();
            assert_eq!([own, others], [vec![Followed::Erased], vec![Followed::Erased]]);
        }
        assert_eq!(imports.begin_import(left).await.unwrap(), None);
        let imported = imports.import_posts(open, &going_on::read(LEAVING, &blogs(20)), 0, true, now).await.unwrap();
        assert!(imported.is_none_or(|imported| imported.has_left && imported.written.is_empty()));
        let seqs = [1].into_iter().collect();
        for (reader, author) in [(LEAVING, AUTHOR), (7, LEAVING)] {
            for again in [false, true] {
                assert_eq!(imports.import_reads(user_id(reader), user_id(author), &seqs, again).await.unwrap(), 0);
            }
        }
        let platform = "1".parse().unwrap();
        assert_eq!(app(world).notices.merge_reads(platform, &[(left, vec![1])]).await.unwrap(), [0]);
        assert_eq!(facts().await, before);

        // One of several follows in a transaction is refused, the others are made.
        let follows = vec![follow(AUTHOR), follow(LEAVING), follow(8)];
        let made = imports.make_follows(user_id(7), follows, now, Kind::Imported).await.unwrap();
        assert!(matches!(&made[..], [Followed::Created(_), Followed::Erased, Followed::Created(_)]), "{made:?}");
    });
}

//! Migrates a whole legacy system, interrupts and resumes the run, repeats it, and compares the result user by user.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use futures::{StreamExt, stream};
use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark::domain::Platform;
use tidemark_legacy::legacy::Layout;
use tidemark_tests::{LegacyRedis, World, user_id, world};

use super::{
    app, facts, invoke,
    legacy::{Legacy, title},
    migrate, publish_notice,
};

/// The number of users of the legacy system. A build with `TIDEMARK_LEGACY` sets another number.
const USERS: usize = match option_env!("TIDEMARK_LEGACY") {
    Some(_) => 10_000,
    None => 400,
};

/// The number of users whose data is also compared through the API.
const SAMPLE: usize = 40;

#[test]
fn users_of_every_layout_are_migrated_despite_interruptions_and_a_repeated_run_changes_nothing() {
    world(async |world| {
        let seed = rand::random();
        println!("legacy system with seed {seed}, {USERS} users");
        let expected = Legacy::generate(seed, USERS);
        let legacy = LegacyRedis::with(&expected.commands).await;
        let entries = entries(&legacy).await;

        let notices = publish_notices(world).await;
        let started = Instant::now();
        let event = json!({ "source": legacy.url(), "notices": notices });
        let limited = json!({ "source": legacy.url(), "notices": notices, "limit": 300 });
        // The first run stops in the posts. Later ones are interrupted in the read marks and in the follows.
        let stopped = world.stack.invoke("migrate", limited).await.unwrap();
        assert_eq!((&stopped["done"], &stopped["layout"]), (&json!(false), &json!("author-blogs")));
        cut_off(world, &event, "user-read", async || !read_marks(world, &expected).await).await;
        cut_off(world, &event, "follows", async || !edges(world, &expected).await).await;
        let (response, _) = migrate(world, event.clone()).await;
        println!("migrated in {:?}: {}", started.elapsed(), response["totals"]);
        for (layout, entries) in &entries {
            assert_eq!(response["layouts"][layout]["read"].as_u64(), Some(*entries), "{layout}");
        }
        assert_eq!(response["totals"]["unreadable"], 0, "{response}");
        world.stack.idle_within(std::time::Duration::from_secs(1_200)).await.unwrap();
        compare(world, &expected).await;
        compare_notices(world, &expected).await;
        sample(world, &expected).await;

        nothing_is_wrong(world).await;

        let before = facts(world).await;
        let started = Instant::now();
        let (again, _) = migrate(world, event).await;
        println!("again in {:?}: {}", started.elapsed(), again["totals"]);
        assert_eq!(again["totals"]["written"], 0);
        assert!(facts(world).await == before, "a repeated run must not change facts");
        nothing_is_wrong(world).await;
    });
}

/// Asserts that a dry run over all users finds no difference.
async fn nothing_is_wrong(world: &World) {
    let report = json!(world.walk_over_all_users(true, std::time::Duration::from_millis(50)).await);
    assert_eq!((&report["found"], &report["failed"], &report["next"]), (&json!({}), &json!(0), &Value::Null), "{report}");
    assert!(report["looked_at"].as_u64().unwrap() >= USERS as u64, "{report}");
}

/// The number of entries of each layout, counted in Redis.
async fn entries(legacy: &LegacyRedis) -> BTreeMap<String, u64> {
    let mut connection = legacy.connect().await;
    let mut entries = BTreeMap::new();
    for layout in Layout::ALL {
        let keys: Vec<String> = connection.keys(format!("{}*", layout.prefix())).await.unwrap();
        let mut count = 0;
        for key in keys {
            count += match layout {
                Layout::AuthorBlogs | Layout::UserRead | Layout::Follows => connection.scard::<_, u64>(key).await.unwrap(),
                Layout::BlogInfo => 1,
                Layout::Notices => redis::cmd("BITCOUNT").arg(key).query_async::<u64>(&mut connection).await.unwrap(),
                Layout::Feed | Layout::UserFeed => connection.zcount::<_, _, _, u64>(key, "(1", "+inf").await.unwrap(),
                _ => connection.zcard::<_, u64>(key).await.unwrap(),
            };
        }
        entries.insert(json!(layout).as_str().unwrap().to_owned(), count);
    }
    entries
}

/// Drops an invocation as soon as its first writes of a kind exist.
async fn cut_off(world: &World, event: &Value, kind: &str, nothing_yet: impl AsyncFn() -> bool) {
    let seen = async {
        while nothing_yet().await {
            tokio::task::yield_now().await;
        }
    };
    let work = async {
        loop {
            let response = invoke(world, event).await;
            // The invocation conflicted with the last save of the one that was dropped before.
            assert!(response["overtaken"] == true, "the invocation was not interrupted in the {kind}: {response}");
        }
    };
    tokio::select! {
        () = work => {}
        () = seen => {}
    }
}

async fn read_marks(world: &World, expected: &Legacy) -> bool {
    let some = stream::iter(expected.read.keys().step_by(7).take(20));
    some.any(async |user| !app(world).stores.facts.all_reads(user_id(*user)).await.unwrap().is_empty()).await
}

async fn edges(world: &World, expected: &Legacy) -> bool {
    let some = expected.follows.keys().step_by(7).take(50).map(|(user, author)| (user_id(*user), user_id(*author)));
    !app(world).stores.facts.live_pairs(&some.collect::<Vec<_>>()).await.unwrap().is_empty()
}

/// Compares every user's edges, counters, unread posts and read marks, and every author's posts.
async fn compare(world: &World, expected: &Legacy) {
    for (author, blogs) in &expected.blogs {
        let posts = app(world).stores.facts.author_timeline(user_id(*author), 0, u64::MAX >> 11, 1_000).await.unwrap();
        let posts: Vec<_> = posts.into_iter().rev().map(|post| (post.id.seq, post.created_at.ms(), post.title)).collect();
        let wanted: Vec<_> = blogs.iter().zip(1..).map(|(blog, seq)| (seq, blog.at, title(blog.id))).collect();
        let differs = posts.iter().zip(&wanted).find(|(post, wanted)| post != wanted);
        assert!(posts.len() == wanted.len() && differs.is_none(), "author {author}: {} posts, {differs:?}", posts.len());
    }
    let authors: BTreeMap<u64, u64> =
        expected.blogs.iter().flat_map(|(author, blogs)| blogs.iter().map(|blog| (blog.id, *author))).collect();
    let mut followers: BTreeMap<u64, u64> = BTreeMap::new();
    for &user in &expected.users {
        let follows: BTreeMap<u64, u64> =
            expected.follows.range((user, 0)..=(user, u64::MAX)).map(|((_, author), since)| (*author, *since)).collect();
        let pairs = app(world).readers.pairs(user_id(user)).await.unwrap();
        let since: BTreeMap<u64, u64> =
            pairs.iter().filter_map(|pair| pair.edge.as_ref()).map(|edge| (edge.author.get(), edge.since.ms())).collect();
        assert_eq!(since, follows, "user {user}");
        assert_eq!(app(world).stores.facts.followings(user_id(user)).await.unwrap(), follows.len() as u64, "user {user}");
        for pair in &pairs {
            let author = pair.edge.as_ref().unwrap().author.get();
            let unread: BTreeSet<u64> = pair.state().unwrap().unread_seqs().collect();
            assert_eq!(unread, expected.unread_of(user, author), "user {user} author {author}");
            *followers.entry(author).or_default() += 1;
        }
        // Read posts stay read, also those of authors who are not followed.
        let states = app(world).stores.facts.all_reads(user_id(user)).await.unwrap();
        for blog in expected.read.get(&user).into_iter().flatten() {
            let author = authors[blog];
            assert!(states[&user_id(author)].read.contains(expected.seqs(author)[blog]), "user {user} blog {blog}");
        }
    }
    for author in expected.blogs.keys() {
        assert_eq!(world.follower_count(*author).await, followers.get(author).copied().unwrap_or(0), "author {author}");
    }
    assert_eq!(expected.users.len(), USERS);
}

/// Publishes the legacy notices. Returns the new id of each.
async fn publish_notices(world: &World) -> BTreeMap<String, String> {
    let mut notices = BTreeMap::new();
    for legacy in [4, 57] {
        for item in publish_notice(world, &[1, 2, 3]).await {
            notices.insert(format!("{}:{legacy}", item["platform"]), item["id"].as_str().unwrap().to_owned());
        }
    }
    notices
}

/// Compares every user's counts on every platform, and every notice's readers.
async fn compare_notices(world: &World, expected: &Legacy) {
    let administrator = world.administrator();
    for platform in 1..=3_u16 {
        let of_platform = || expected.notices.iter().filter(move |((of, _), _)| *of == platform);
        for (seq, (_, readers)) in (1..).zip(of_platform()) {
            let notice = administrator.get(&format!("/v1/notices/{platform}-{seq}")).await.ok();
            assert_eq!(notice["readers"], readers.len(), "{notice}");
        }
        for &user in &expected.users {
            let board = app(world).notices.board(Platform::new(platform).unwrap(), user_id(user)).await.unwrap();
            let read = of_platform().filter(|(_, readers)| readers.contains(&user)).count() as u64;
            assert_eq!((board.counts().read, board.counts().unread), (read, 2 - read), "user {user} platform {platform}");
        }
    }
}

/// Compares the responses of the API for some users.
async fn sample(world: &World, expected: &Legacy) {
    for &user in expected.users.iter().step_by(expected.users.len() / SAMPLE) {
        let follows: Vec<u64> = expected.follows.range((user, 0)..=(user, u64::MAX)).map(|((_, author), _)| *author).collect();
        let unread = |author: u64| expected.unread_of(user, author).into_iter().map(move |seq| format!("{author}-{seq}"));
        let unread: BTreeSet<String> = follows.iter().copied().flat_map(unread).collect();
        let caller = world.user(user);
        let shown: BTreeSet<String> = caller.feed("unread").await.into_iter().map(|(id, _)| id).collect();
        assert_eq!(shown, unread, "user {user}");
        assert_eq!(caller.unread_total().await, unread.len() as u64, "user {user}");
        let listed = caller.walk(&format!("/v1/users/{user}/following"), 50).await;
        let following: BTreeSet<String> = listed.iter().map(|item| item["user"].as_str().unwrap().to_owned()).collect();
        assert_eq!(following, follows.iter().map(u64::to_string).collect(), "user {user}");
        let feed = caller.walk("/v1/feed", 50).await;
        let newest_first = feed.is_sorted_by(|a, b| a["created_at"].as_str().unwrap() >= b["created_at"].as_str().unwrap());
        assert!(newest_first, "user {user}");
    }
}

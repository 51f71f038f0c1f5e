//! `profiles`: the cards of exactly the users whom the items of a page name.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidemark_tests::{User, World, world};

const READER: u64 = 7;

/// Every page with profiles.
const PAGES: [&str; 17] = [
    "feed?limit=1",
    "feed?limit=1&include=body",
    "feed?limit=1&status=unread",
    "feed?limit=1&order=ranked",
    "feed?limit=1&order=ranked&status=unread&include=body",
    "feed?limit=1&list=7-1",
    "feed?limit=1&list=7-1&order=ranked",
    "authors/2/posts?limit=1",
    "me/likes?limit=1",
    "me/favorites?limit=1&include=body",
    "users/7/following?limit=1",
    "users/2/followers?limit=1",
    "mutes?limit=1",
    "blocks?limit=1",
    "lists/7-1/authors?limit=1",
    "posts/2-1?",
    "posts?post=1-1&post=2-1&post=4-1",
];

/// An author and the reader have no profile.
const WITHOUT_PROFILE: [&str; 2] = ["5", "7"];

fn users(page: &Value) -> BTreeSet<String> {
    let items = page["items"].as_array().cloned().unwrap_or_else(|| vec![page.clone()]);
    let name = |item: &Value| ["author", "user"].iter().find_map(|name| item[*name].as_str().map(str::to_owned)).unwrap();
    items.iter().map(name).collect()
}

/// Walks every page of the API. Asserts that each has the profiles of its items' users. Returns what they show.
async fn shown(reader: &User) -> Vec<(String, Vec<Value>)> {
    let mut all = Vec::new();
    for path in PAGES {
        let mut pages = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = reader.get(&format!("/v1/{path}{cursor}")).await.ok();
            let profiles: BTreeSet<String> = page["profiles"].as_object().unwrap().keys().cloned().collect();
            let named: BTreeSet<String> = users(&page).into_iter().filter(|user| !WITHOUT_PROFILE.contains(&&**user)).collect();
            assert_eq!(profiles, named, "{path}: {page}");
            pages.push(json!([users(&page), page["profiles"]]));
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        all.push((path.to_owned(), pages));
    }
    all
}

/// The reader follows five authors, and likes their posts.
async fn prepared(world: &World) -> User {
    let reader = world.reader(READER, 1..=5).await;
    for author in 1..=6 {
        if author != 5 {
            world.user(author).put_body("/v1/me/profile", &json!({ "name": format!("Author {author}") })).await.ok();
        }
    }
    reader.post("/v1/lists", &json!({ "name": "Friends" })).await;
    for author in [2, 3] {
        reader.put(&format!("/v1/lists/7-1/authors/{author}")).await.ok();
    }
    world.deliver_posts(1..=5, 2).await;
    for author in 1..=5 {
        for what in ["like", "favorite"] {
            reader.put(&format!("/v1/posts/{author}-1/{what}")).await.ok();
        }
    }
    world.follow([1, 3], 2).await;
    reader.put("/v1/mutes/1").await.ok();
    reader.put("/v1/blocks/6").await.ok();
    world.idle().await;
    reader
}

#[test]
fn a_page_has_the_profiles_of_exactly_the_users_whom_its_items_name() {
    world(async |world| {
        let reader = prepared(world).await;
        shown(&reader).await;
        let expected = shown(&reader).await;
        world.at_each_loss_of_redis(async || assert_eq!(shown(&reader).await, expected)).await;
    });
}

#[test]
fn no_page_has_the_profile_of_an_author_who_blocks_the_caller() {
    world(async |world| {
        let reader = prepared(world).await;
        shown(&reader).await;
        world.user(4).put("/v1/blocks/7").await.ok();
        world.idle().await;
        let expected = shown(&reader).await;
        for (path, pages) in &expected {
            assert!(pages.iter().all(|page| page[1].get("4").is_none()), "{path}: {pages:?}");
        }
        world.at_each_loss_of_redis(async || assert_eq!(shown(&reader).await, expected)).await;
    });
}

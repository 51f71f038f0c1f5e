//! Many posts of one author at once: each response says what was done.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use futures::future::join_all;
use serde_json::json;
use tidemark_local::Weather;
use tidemark_tests::{Response, World, deployed_timeouts, world_with};

/// Posts that an author publishes at the same moment.
const POSTS: u64 = 80;

/// The slow motion of DynamoDB in which these posts are beyond the bound.
const SLOWDOWN: u32 = 100;

/// Publishes the author's post of this number, with the key or without one.
async fn publish(world: &World, author: u64, number: u64, keyed: bool) -> Response {
    let body = json!({ "title": format!("post {number}"), "body": "text" });
    let caller = world.user(author);
    if keyed {
        caller.post_with_key("/v1/posts", &number.to_string(), &body).await
    } else {
        caller.post("/v1/posts", &body).await
    }
}

/// The titles of the author's posts by their numbers, which have no gaps.
async fn stored(world: &World, author: u64) -> BTreeMap<u64, String> {
    let posts = world.user(author).walk(&format!("/v1/authors/{author}/posts"), 100).await;
    let stored: BTreeMap<u64, String> =
        posts.iter().map(|post| (post["seq"].as_u64().unwrap(), post["title"].as_str().unwrap().to_owned())).collect();
    assert_eq!(stored.len(), posts.len(), "a number has one post");
    assert!(stored.keys().copied().eq(1..=posts.len() as u64), "the numbers have gaps: {:?}", stored.keys());
    stored
}

/// Publishes all posts at once. Returns the titles of the posts by the number in the response, and the titles of the
/// refused ones. A response that says that the request may be done is not among these.
async fn burst(world: &World, author: u64, keyed: bool) -> (BTreeMap<u64, String>, BTreeSet<String>) {
    let started = Instant::now();
    let responses = join_all((0..POSTS).map(|number| publish(world, author, number, keyed))).await;
    let (mut created, mut refused, mut unknown) = (BTreeMap::new(), BTreeSet::new(), 0);
    for (number, response) in responses.into_iter().enumerate() {
        let title = format!("post {number}");
        match response.status {
            201 => assert_eq!(created.insert(response.body["seq"].as_u64().unwrap(), title), None),
            status => {
                assert_eq!((status, response.header("retry-after")), (503, Some("1")), "{title}: {}", response.body);
                match response.body["detail"].as_str().unwrap().contains("may be done") {
                    true => unknown += 1,
                    false => _ = refused.insert(title),
                }
            }
        }
    }
    let (took, (weather, _)) = (started.elapsed(), world.stack.weather());
    println!(
        "{weather} weather, keyed {keyed}: {} created, {} refused, {unknown} unknown, in {took:.1?}",
        created.len(),
        refused.len()
    );
    (created, refused)
}

#[test]
fn each_response_to_many_posts_of_one_author_at_once_is_true() {
    world_with(deployed_timeouts, async |world| {
        // In slow motion, all of these posts are more than the time of a request allows.
        let runs = [(Weather::Calm, 1), (Weather::Aws, 1), (Weather::Aws, SLOWDOWN), (Weather::Storm, 1)];
        let runs = runs.map(|run| [(run, false), (run, true)]);
        for (author, ((weather, slowdown), keyed)) in (1..).zip(runs.into_iter().flatten()) {
            world.follow([100], author).await;
            world.stack.set_weather(weather, author);
            world.stack.slow_down(slowdown);
            let (mut created, refused) = burst(world, author, keyed).await;
            world.stack.slow_down(1);
            world.calm_down().await;
            assert!(slowdown == 1 || !refused.is_empty(), "the burst is within the bound");
            let stored_now = stored(world, author).await;
            for (seq, title) in &created {
                assert_eq!(stored_now.get(seq), Some(title), "{weather}: a 201 is a post");
            }
            let untrue = stored_now.values().filter(|title| refused.contains(*title)).count();
            assert_eq!(untrue, 0, "{weather}, keyed {keyed}: {untrue} of {} refused posts are written", refused.len());
            if keyed {
                for number in 0..POSTS {
                    let again = publish(world, author, number, true).await.ok();
                    created.insert(again["seq"].as_u64().unwrap(), again["title"].as_str().unwrap().to_owned());
                }
                assert_eq!(created.len(), POSTS as usize, "a key has one post");
                assert_eq!(stored(world, author).await, created);
            }
        }
    });
}

//! `?since=`: what is newer than an earlier first page.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::json;
use tidemark_tests::{ids, until, world};

#[test]
fn since_lists_what_is_newer_once_and_ends() {
    world(async |world| {
        let reader = world.reader(7, 1..=3).await;
        let paths = ["/v1/feed", "/v1/feed?status=unread", "/v1/authors/1/posts", "/v1/authors/1/posts?status=unread"];
        let mut firsts = Vec::new();
        for path in paths {
            let page = reader.get(path).await.ok();
            assert_eq!(page["items"], json!([]));
            firsts.push(page["first_cursor"].as_str().unwrap().to_owned());
        }
        let mut published = [BTreeSet::new(), BTreeSet::new()];
        for round in 0..3 {
            for author in 1..=3 {
                for _ in 0..4 {
                    let id = world.user(author).publish("x").await;
                    published[0].insert(id.clone());
                    if author == 1 {
                        published[1].insert(id);
                    }
                }
            }
            world.idle().await;
            for (index, path) in paths.iter().enumerate() {
                let join = if path.contains('?') { '&' } else { '?' };
                let path = format!("{path}{join}since={}", firsts[index]);
                let walked = reader.walk(&path, 5).await;
                let ids = ids(&walked);
                assert_eq!(ids.iter().cloned().collect::<BTreeSet<_>>(), published[index / 2], "{path} in round {round}");
                assert_eq!(ids.len(), published[index / 2].len(), "{path} in round {round}: each once");
                let page = reader.get(&path).await.ok();
                firsts[index] = page["first_cursor"].as_str().unwrap().to_owned();
                let rest = reader.get(&format!("{}{join}since={}", paths[index], firsts[index])).await.ok();
                assert_eq!((&rest["items"], &rest["next_cursor"]), (&json!([]), &json!(null)), "{path}: nothing is newer");
                assert_eq!(rest["first_cursor"], firsts[index]);
            }
            published = [BTreeSet::new(), BTreeSet::new()];
        }
        let page = reader.get("/v1/feed?limit=1").await.ok();
        let next = reader.get(&format!("/v1/feed?limit=1&cursor={}", page["next_cursor"].as_str().unwrap())).await.ok();
        assert_eq!(next.get("first_cursor"), None, "only a first page has it");
        assert_eq!(reader.get(&format!("/v1/feed?since={}", firsts[2])).await.field(), "since");
        assert_eq!(reader.get("/v1/authors/1/posts?since=%21").await.field(), "since");
    });
}

/// Pages through what is newer again and again, while posts arrive.
#[test]
fn each_arriving_post_is_listed_once() {
    const POSTS: usize = 200;
    world(async |world| {
        let reader = world.reader(7, 1..=4).await;
        world.publish_and_deliver(1, "first").await;
        let first = async |path: &str| reader.get(path).await.ok()["first_cursor"].as_str().unwrap().to_owned();
        let (start, mut since) = (first("/v1/feed").await, first("/v1/authors/1/posts").await);
        let arriving = join_all((1..=4).map(async |author| {
            let mut published = Vec::new();
            for _ in 0..POSTS / 4 {
                published.push(world.user(author).publish("x").await);
            }
            published
        }));
        let walks = async {
            let mut listed = Vec::new();
            until("all posts of an author are listed", async || {
                let path = format!("/v1/authors/1/posts?limit=3&since={since}");
                let mut page = reader.get(&path).await.ok();
                let next = page["first_cursor"].as_str().unwrap().to_owned();
                loop {
                    let items = page["items"].as_array().unwrap();
                    listed.extend(ids(items));
                    let Some(cursor) = page["next_cursor"].as_str() else { break };
                    page = reader.get(&format!("{path}&cursor={cursor}")).await.ok();
                }
                since = next;
                listed.len() >= POSTS / 4
            })
            .await;
            listed
        };
        let (published, listed) = futures::join!(arriving, walks);
        let of_author: BTreeSet<&String> = published[0].iter().collect();
        assert_eq!((listed.len(), listed.iter().collect::<BTreeSet<_>>()), (of_author.len(), of_author));
        world.idle().await;
        let all = reader.walk(&format!("/v1/feed?since={start}"), 7).await;
        let ids: BTreeSet<String> = ids(&all).into_iter().collect();
        assert_eq!((all.len(), ids), (POSTS, published.into_iter().flatten().collect()));
    });
}

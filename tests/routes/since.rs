//! `?since=`: what is newer than an earlier first page.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::json;
use tidemark::domain::PostId;
use tidemark_tests::{ids, until, world};

#[test]
fn since_lists_what_is_newer_once_and_ends() {
    world(async |world| {
        let reader = world.reader(7, 1..=3).await;
        let paths = ["/v1/feed", "/v1/feed?status=unread", "/v1/authors/1/posts", "/v1/authors/1/posts?status=unread"];
        let mut firsts = Vec::new();
        for path in paths {
            let page = reader.get(path).await.has(json!({ "items": [] }));
            firsts.push(page["first_cursor"].as_str().unwrap().to_owned());
        }
        for round in 0..3 {
            world.deliver_posts(1..=3, 4).await;
            for (path, first) in paths.iter().zip(&mut firsts) {
                let since = format!("{path}{}since=", if path.contains('?') { '&' } else { '?' });
                let authors = if path.contains("authors") { 1..=1 } else { 1..=3 };
                let seqs = 4 * round + 1..=4 * round + 4;
                let published = authors.flat_map(|author| seqs.clone().map(move |seq| format!("{author}-{seq}")));
                let mut ids = ids(&reader.walk(&format!("{since}{first}"), 5).await);
                ids.sort_by_key(|id| id.parse::<PostId>().unwrap());
                assert_eq!(ids, published.collect::<Vec<_>>(), "{path} in round {round}");
                *first = reader.cursor("first_cursor", &format!("{since}{first}")).await;
                let nothing = json!({ "items": [], "next_cursor": null, "first_cursor": first });
                reader.get(&format!("{since}{first}")).await.has(nothing);
            }
        }
        let next = reader.cursor("next_cursor", "/v1/feed?limit=1").await;
        let next = reader.get(&format!("/v1/feed?limit=1&cursor={next}")).await.ok();
        assert_eq!(next.get("first_cursor"), None, "only a first page has it");
        assert_eq!(reader.get(&format!("/v1/feed?since={}", firsts[2])).await.field(), "since");
    });
}

/// Pages through what is newer again and again, while posts arrive.
#[test]
fn each_arriving_post_is_listed_once() {
    const POSTS: usize = 200;
    world(async |world| {
        let reader = world.reader(7, 1..=4).await;
        world.publish_and_deliver(1, "first").await;
        let start = reader.cursor("first_cursor", "/v1/feed").await;
        let mut since = reader.cursor("first_cursor", "/v1/authors/1/posts").await;
        let arriving = join_all((1..=4).map(async |author| world.user(author).publish_all(["x"; POSTS / 4]).await));
        let walks = async {
            let mut listed = Vec::new();
            until("all posts of an author are listed", async || {
                let pages = reader.pages(&format!("/v1/authors/1/posts?since={since}"), 3).await;
                listed.extend(pages.iter().flat_map(|page| ids(page["items"].as_array().unwrap())));
                since = pages[0]["first_cursor"].as_str().unwrap().to_owned();
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

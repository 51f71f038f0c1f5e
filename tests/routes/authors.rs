//! `GET /v1/authors/{author}/posts`.

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::json;
use tidemark::facts::schema;
use tidemark_tests::{ids, ids_and_flags, items::s, world};

#[test]
fn an_author_timeline_has_flags_and_totals() {
    world(async |world| {
        let (reader, author) = (world.user(1), world.user(10));
        author.publish("before").await;
        reader.follow([10]).await;
        author.publish_all(2..=12).await;
        author.delete("/v1/posts/10-11").await.ok();
        reader.put("/v1/posts/10-5/read").await.ok();
        world.idle().await;

        let flags = ids_and_flags(&reader.walk("/v1/authors/10/posts", 4).await);
        let expected = (1..=12).rev().filter(|seq| *seq != 11).map(|seq| (format!("10-{seq}"), seq == 1 || seq == 5));
        assert_eq!(flags, expected.collect::<Vec<_>>());
        reader.get("/v1/authors/10/posts").await.has(json!({ "total": 11 }));

        let unread = reader.walk("/v1/authors/10/posts?status=unread", 4).await;
        let seqs: Vec<u64> = unread.iter().map(|post| post["seq"].as_u64().unwrap()).collect();
        assert_eq!(seqs, [12, 10, 9, 8, 7, 6, 4, 3, 2]);
        let page = reader.get("/v1/authors/10/posts?status=unread&limit=9").await;
        page.has(json!({ "total": 9, "next_cursor": null }));
    });
}

#[test]
fn posts_of_an_author_who_is_not_followed_do_not_count_as_unread() {
    world(async |world| {
        let (reader, author) = (world.user(1), world.user(10));
        author.publish("one").await;
        reader.get("/v1/authors/10/posts?status=unread").await.has(json!({ "items": [], "total": 0 }));
        author.get("/v1/authors/10/posts").await.has(json!({ "items": [{ "read": true }] }));
        reader.get("/v1/authors/11/posts").await.has(json!({ "items": [], "next_cursor": null, "total": 0 }));
        assert_eq!(reader.get("/v1/authors/0/posts").await.field(), "author");
    });
}

#[test]
fn a_post_deleted_during_a_read_is_left_out_and_the_next_cursor_stays_the_same() {
    world(async |world| {
        let reader = world.reader(1, [10]).await;
        world.deliver_posts([10], 6).await;
        // The tombstone of a deletion that happens after the page has read the author's head.
        let tombstone = [("tombstone", AttributeValue::Bool(true)), ("state", s("cancelled"))];
        for seq in [5, 2, 1] {
            let post = schema::post(format!("10-{seq}").parse().unwrap());
            world.update_item("PostsTable", post, &tombstone, &["title"]).await;
        }
        for status in ["all", "unread"] {
            let pages = reader.pages(&format!("/v1/authors/10/posts?status={status}"), 2).await;
            let pages = pages.iter().map(|page| page["items"].as_array().unwrap());
            assert!(pages.clone().flatten().all(|post| post["title"] == "x"), "{status}");
            assert_eq!(pages.map(ids).collect::<Vec<_>>(), [vec!["10-6"], vec!["10-4", "10-3"], vec![]], "{status}");
        }
    });
}

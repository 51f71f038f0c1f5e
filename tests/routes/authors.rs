//! `GET /v1/authors/{author}/posts`.

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Value, json};
use tidemark::facts::schema;
use tidemark_tests::{items::s, world};

#[test]
fn an_author_timeline_has_flags_and_totals() {
    world(async |world| {
        let (reader, author) = (world.user(1), world.user(10));
        author.publish("before").await;
        reader.put("/v1/following/10").await.ok();
        author.publish_all(2..=12).await;
        author.delete("/v1/posts/10-11").await.ok();
        reader.put("/v1/posts/10-5/read").await.ok();
        world.idle().await;

        let all = reader.walk("/v1/authors/10/posts", 4).await;
        let flags: Vec<(u64, bool)> = all.iter().map(|post| (post["seq"].as_u64().unwrap(), post["read"] == true)).collect();
        let expected: Vec<(u64, bool)> = (1..=12).rev().filter(|seq| *seq != 11).map(|seq| (seq, seq == 1 || seq == 5)).collect();
        assert_eq!(flags, expected);
        assert_eq!(reader.get("/v1/authors/10/posts").await.ok()["total"], 11);

        let unread = reader.walk("/v1/authors/10/posts?status=unread", 4).await;
        let seqs: Vec<u64> = unread.iter().map(|post| post["seq"].as_u64().unwrap()).collect();
        assert_eq!(seqs, [12, 10, 9, 8, 7, 6, 4, 3, 2]);
        let page = reader.get("/v1/authors/10/posts?status=unread&limit=9").await.ok();
        assert_eq!((&page["total"], &page["next_cursor"]), (&json!(9), &json!(null)));
    });
}

#[test]
fn posts_of_an_author_who_is_not_followed_do_not_count_as_unread() {
    world(async |world| {
        world.user(10).publish("one").await;
        let (reader, author) = (world.user(1), world.user(10));
        let page = reader.get("/v1/authors/10/posts?status=unread").await.ok();
        assert_eq!((&page["items"], &page["total"]), (&json!([]), &json!(0)));
        assert_eq!(author.get("/v1/authors/10/posts").await.ok()["items"][0]["read"], true);
        let nothing = reader.get("/v1/authors/11/posts").await.ok();
        assert_eq!((&nothing["items"], &nothing["next_cursor"], &nothing["total"]), (&json!([]), &json!(null), &json!(0)));
        assert_eq!(reader.get("/v1/authors/0/posts").await.field(), "author");
    });
}

#[test]
fn a_post_deleted_during_a_read_is_left_out_and_the_next_cursor_stays_the_same() {
    world(async |world| {
        let reader = world.reader(1, [10]).await;
        world.user(10).publish_all(1..=6).await;
        world.idle().await;
        // The tombstone of a deletion that happens after the page has read the author's head.
        let tombstone = [("tombstone", AttributeValue::Bool(true)), ("state", s("cancelled"))];
        for seq in [5, 2, 1] {
            let post = schema::post(format!("10-{seq}").parse().unwrap());
            world.update_item("PostsTable", post, &tombstone, &["title"]).await;
        }
        for status in ["all", "unread"] {
            let mut pages: Vec<Vec<u64>> = Vec::new();
            let mut cursor = String::new();
            loop {
                let page = reader.get(&format!("/v1/authors/10/posts?status={status}&limit=2{cursor}")).await.ok();
                let items = page["items"].as_array().unwrap();
                assert!(items.iter().all(|post| post["title"] != ""), "{page}");
                pages.push(items.iter().map(|post| post["seq"].as_u64().unwrap()).collect());
                let Value::String(next) = &page["next_cursor"] else { break };
                cursor = format!("&cursor={next}");
            }
            assert_eq!(pages, [vec![6], vec![4, 3], vec![]], "{status}");
        }
    });
}

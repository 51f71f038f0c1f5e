//! `GET /v1/unread…`.

use serde_json::json;
use tidemark_tests::world;

#[test]
fn counts_are_listed_by_author_with_the_most_recent_post_first() {
    world(async |world| {
        let reader = world.reader(1, [10, 20, 30]).await;
        assert_eq!(reader.get("/v1/unread").await.ok(), json!({ "total": 0, "authors": [] }));
        for author in [30, 10, 20, 10] {
            world.publish_and_deliver(author, "x").await;
        }
        let unread = reader.get("/v1/unread").await.ok();
        let authors = json!([{ "author": "10", "unread": 2 }, { "author": "20", "unread": 1 }, { "author": "30", "unread": 1 }]);
        assert_eq!(unread, json!({ "total": 4, "authors": authors }));
        assert_eq!(reader.get("/v1/unread/10").await.ok(), json!({ "author": "10", "unread": 2 }));
        assert_eq!(reader.get("/v1/unread/40").await.ok(), json!({ "author": "40", "unread": 0 }));
        reader.put("/v1/posts/20-1/read").await.ok();
        assert_eq!(reader.get("/v1/unread").await.ok()["authors"].as_array().unwrap().len(), 2);
    });
}

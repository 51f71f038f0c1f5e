//! Interrupted fan-outs and retractions.

use redis::AsyncCommands;
use serde_json::json;
use tidemark::{
    domain::Post,
    facts::schema,
    ports::{Deleted, FanOut, FanOutKind, Look, Task},
};

use super::{Damage, Scene};
use crate::delivery::publish_in_facts;

/// Publishes a post. The function dies after the transaction.
pub(super) async fn publish(scene: &Scene<'_>, followers: u64) -> (Post, FanOut) {
    publish_in_facts(scene.app, scene.author, followers, scene.now()).await
}

pub(super) const ALL: &[Damage] = &[
    ("a fan-out that never began", &async |scene: &Scene| {
        let (post, _) = publish(scene, 2).await;
        json!({ "kind": "delivery-unfinished", "post": post.id, "pages": 1 })
    }),
    ("a half-finished fan-out", &async |scene: &Scene| {
        let (post, fan_out) = publish(scene, 2_500).await;
        scene.app.worker.run(&Task::List { fan_out, from: 1, to: 2, tries: 0 }, &|| false).await.unwrap();
        scene.world.idle().await;
        scene.app.stores.posts.note_look(FanOutKind::Deliver, post.id, Look::Moving(1)).await.unwrap();
        json!({ "kind": "delivery-unfinished", "post": post.id, "pages": 2 })
    }),
    ("a finished fan-out that is not stored as done", &async |scene: &Scene| {
        let (post, fan_out) = publish(scene, 2).await;
        let users = [scene.reader, scene.follower];
        scene.app.stores.reader_views.deliver(&users, post.key(), fan_out.modes, false).await.unwrap();
        scene.app.stores.progress.page_done(FanOutKind::Deliver, post.id, 0, 2).await.unwrap();
        json!({ "kind": "delivery-unfinished", "post": post.id, "pages": 0 })
    }),
    ("a retraction that never began", &async |scene: &Scene| {
        let Deleted::Deleted(..) = scene.app.stores.posts.delete(scene.post(4), 2).await.unwrap() else { panic!() };
        json!({ "kind": "retraction-unfinished", "post": scene.post(4), "pages": 1 })
    }),
    ("a fan-out that is not in the index of unfinished ones", &async |scene: &Scene| {
        let (post, _) = publish(scene, 2).await;
        scene.world.update_item("PostsTable", schema::post(post.id), &[], &["unfinished"]).await;
        json!({ "kind": "unfinished-missing", "post": post.id })
    }),
    ("a stream record that the projector gave up, and its follow", &async |scene: &Scene| {
        scene.world.send_message("ProjectorFailuresQueue", "{}").await;
        scene.redis().hdel::<_, _, ()>(&scene.state_key, scene.other.get()).await.unwrap();
        json!([
            { "kind": "records-given-up", "records": 1 },
            { "kind": "field-missing", "user": scene.reader, "author": scene.other },
        ])
    }),
];

//! Interrupted fan-outs and retractions.

use serde_json::json;
use tidemark::{
    domain::{NewPost, Post},
    facts::schema,
    ports::{Deleted, FanOut, FanOutKind, Look, Published, Task},
};

use super::{Damage, Scene};

/// Publishes a post. The function dies after the transaction.
async fn publish(scene: &Scene<'_>, followers: u64) -> (Post, FanOut) {
    let new = NewPost::titled(scene.author(), "cut off");
    let published = scene.app.stores.posts.publish(&new, followers, None, scene.app.stores.clock.now()).await.unwrap();
    let Published::Created(post, head) = published else { panic!("{published:?}") };
    let fan_out = FanOut::of(&post, &head);
    (post, fan_out)
}

pub(super) const ALL: &[Damage] = &[
    ("a fan-out that never began", |scene| {
        Box::pin(async move {
            let (post, _) = publish(scene, 2).await;
            vec![json!({ "kind": "delivery-unfinished", "post": post.id, "pages": 1 })]
        })
    }),
    ("a half-finished fan-out", |scene| {
        Box::pin(async move {
            let (post, fan_out) = publish(scene, 2_500).await;
            scene.app.worker.run(&Task::List { fan_out, from: 1, to: 2, tries: 0 }, &|| false).await.unwrap();
            scene.world.idle().await;
            scene.app.stores.posts.note_look(FanOutKind::Deliver, post.id, Look::Moving(1)).await.unwrap();
            vec![json!({ "kind": "delivery-unfinished", "post": post.id, "pages": 2 })]
        })
    }),
    ("a finished fan-out that is not stored as done", |scene| {
        Box::pin(async move {
            let (post, fan_out) = publish(scene, 2).await;
            let users = [scene.reader(), scene.follower()];
            scene.app.stores.reader_views.deliver(&users, post.key(), fan_out.modes, false).await.unwrap();
            scene.app.stores.progress.page_done(FanOutKind::Deliver, post.id, 0, 2).await.unwrap();
            vec![json!({ "kind": "delivery-unfinished", "post": post.id, "pages": 0 })]
        })
    }),
    ("a retraction that never began", |scene| {
        Box::pin(async move {
            let Deleted::Deleted(..) = scene.app.stores.posts.delete(scene.post(4), 2).await.unwrap() else { panic!() };
            vec![json!({ "kind": "retraction-unfinished", "post": scene.post(4), "pages": 1 })]
        })
    }),
    ("a fan-out that is not in the index of unfinished ones", |scene| {
        Box::pin(async move {
            let (post, _) = publish(scene, 2).await;
            scene.update("PostsTable", schema::post(post.id), &[], &["unfinished"]).await;
            vec![json!({ "kind": "unfinished-missing", "post": post.id })]
        })
    }),
    ("a stream record that the projector gave up, and its follow", |scene| {
        Box::pin(async move {
            let (sqs, url) = (scene.world.sqs().await, scene.world.stack.queue("ProjectorFailuresQueue").unwrap().url.clone());
            sqs.send_message().queue_url(&url).message_body("{}").send().await.unwrap();
            let [state, _] = scene.keys();
            let other = scene.other().get();
            redis::cmd("HDEL").arg(state).arg(other).query_async::<()>(&mut scene.redis()).await.unwrap();
            vec![
                json!({ "kind": "records-given-up", "records": 1 }),
                json!({ "kind": "field-missing", "user": scene.reader(), "author": scene.other() }),
            ]
        })
    }),
];

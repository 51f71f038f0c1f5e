//! A restart of the stack keeps all facts and messages.

use tidemark_tests::World;

#[tokio::test]
async fn facts_and_queued_messages_survive_a_restart() {
    let world = World::start(|_| {}).await;
    world.user(1).put("/v1/following/2").await.ok();
    world.user(1).feed_ids().await;
    world.stack.pause("fan-out").await.unwrap();
    let post = world.user(2).publish("before").await;
    assert!(!world.stack.status().await.unwrap().idle);

    let world = world.restart().await;
    world.idle().await;
    let reader = world.user(1);
    assert_eq!((reader.feed_ids().await, reader.unread_total().await), (vec![post.clone()], 1));
    let delivery = reader.get(&format!("/v1/posts/{post}/delivery")).await.ok();
    assert_eq!((&delivery["state"], &delivery["delivered"]), (&"done".into(), &1.into()));
    world.finish().await;
}

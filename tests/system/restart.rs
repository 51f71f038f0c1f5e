//! A stack started again has everything it had.

use tidemark_local::{Options, Stack};
use tidemark_tests::{User, data_dir, repository};

#[tokio::test]
async fn facts_and_queued_messages_survive() {
    let data = data_dir();
    let start = async || {
        let mut options = Options::new(data.path());
        options.template = repository().join("template.yaml");
        options.schedules = false;
        Stack::start(options).await.unwrap()
    };
    let stack = start().await;
    let user = |stack: &Stack, id: u64| User::new(reqwest::Client::new(), stack.base_url(), Some(id.to_string()));
    user(&stack, 1).put("/v1/following/2").await.ok();
    user(&stack, 1).feed_ids().await;
    stack.pause("fan-out").await.unwrap();
    let post = user(&stack, 2).publish("before").await;
    assert!(!stack.status().unwrap().idle);
    stack.stop().await.unwrap();

    let stack = start().await;
    stack.idle().await.unwrap();
    let reader = user(&stack, 1);
    assert_eq!((reader.feed_ids().await, reader.unread_total().await), (vec![post.clone()], 1));
    let delivery = reader.get(&format!("/v1/posts/{post}/delivery")).await.ok();
    assert_eq!((&delivery["state"], &delivery["delivered"]), (&"done".into(), &1.into()));
    stack.stop().await.unwrap();
}

//! The delivery lag of a burst, from the lines of the functions and from outside.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    sync::mpsc::channel,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use serde_json::Value;
use tidemark_tests::{World, number_from};

use crate::at_once;

const AUTHOR: u64 = 1;

/// The percentile as CloudWatch computes it from single values: the smallest value that so many values do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
}

/// Publishes posts. Returns the milliseconds until a client sees each of them delivered.
async fn lags_of_a_client(world: &World, posts: u64) -> Vec<f64> {
    let author = world.user(AUTHOR);
    let started = Instant::now();
    let (open, published) = (RefCell::new(BTreeMap::<String, Instant>::new()), Cell::new(false));
    let publish = async {
        for number in 0..posts {
            let sent = Instant::now();
            let post = author.publish(&format!("{number}")).await;
            open.borrow_mut().insert(post, sent);
        }
        println!("{posts} posts published in {:?}", started.elapsed());
        published.set(true);
    };
    let watch = async {
        let mut seen: Vec<f64> = Vec::new();
        loop {
            let looks = open.borrow().clone();
            if published.get() && looks.is_empty() {
                return seen;
            }
            let look = async |(post, sent): (String, Instant)| {
                let delivery = author.get(&format!("/v1/posts/{post}/delivery")).await.ok();
                (delivery["state"] == "done").then(|| (post, sent.elapsed().as_secs_f64() * 1_000.0))
            };
            let looks: Vec<_> = stream::iter(looks).map(look).buffer_unordered(8).collect().await;
            for (post, lag) in looks.into_iter().flatten() {
                open.borrow_mut().remove(&post);
                seen.push(lag);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let ((), seen) = futures::join!(publish, watch);
    println!("all delivered after {:?}", started.elapsed());
    seen
}

/// A burst of 100 posts by an author with 10,000 followers, one in ten of whom has a live view. `FOLLOWERS` and `POSTS`
/// change the numbers: `cargo test -p tidemark-tests --test system -- --ignored --exact --nocapture
/// lag::percentiles_of_the_lag_from_the_lines_are_those_that_a_client_sees`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; it measures"]
async fn percentiles_of_the_lag_from_the_lines_are_those_that_a_client_sees() {
    let (followers, posts) = (number_from("FOLLOWERS", 10_000), number_from("POSTS", 100));
    let (sender, lines) = channel();
    World::run_with(
        |options| options.lines = Some(sender),
        async |world| {
            at_once(16, AUTHOR + 1..=AUTHOR + followers, async |follower| {
                let reader = world.reader(follower, [AUTHOR]).await;
                if follower % 10 == 0 {
                    reader.feed_ids().await;
                }
            })
            .await;
            world.idle().await;
            lines.try_iter().for_each(drop);

            let mut seen = lags_of_a_client(world, posts).await;
            world.idle().await;

            let lines: Vec<Value> = lines.try_iter().map(|line| serde_json::from_str(&line).unwrap()).collect();
            let of_metric = |name: &str| -> Vec<f64> {
                let of_line = |line: &Value| match &line[name] {
                    Value::Array(values) => values.iter().filter_map(Value::as_f64).collect::<Vec<_>>(),
                    value => value.as_f64().into_iter().collect(),
                };
                lines.iter().flat_map(of_line).collect()
            };
            let mut measured = of_metric("DeliveryLag");
            assert_eq!((measured.len(), seen.len()), (posts as usize, posts as usize));
            measured.sort_by(f64::total_cmp);
            seen.sort_by(f64::total_cmp);
            let [delivered, worked] = ["FollowersDelivered", "PageDeliveryTime"].map(|name| of_metric(name).iter().sum::<f64>());
            println!("{delivered} followers, {:.0} a second while one page is delivered", 1_000.0 * delivered / worked);
            assert_eq!(delivered, (followers * posts) as f64);
            for percent in [50, 90, 99] {
                let [inside, outside] = [&measured, &seen].map(|lags| percentile(lags, percent));
                println!("p{percent}: {inside:.0} ms from the lines, {outside:.0} ms at the client");
                assert!((inside / outside - 1.0).abs() <= 0.1, "p{percent}");
            }
        },
    )
    .await;
}

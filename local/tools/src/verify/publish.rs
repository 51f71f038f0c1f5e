//! Publishes posts and checks their delivery.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use futures::{StreamExt, stream};
use serde_json::{Value, json};

use super::{
    feed::walk,
    graph::Graph,
    ledger::{Checks, Ledger},
    model::{Post, PostId},
};
use crate::{
    api::{Api, Call},
    status,
};

/// Authors that publish at the same time.
const SIDE_BY_SIDE: usize = 8;
/// One post out of this number is sent a second time with the same key.
const REPEAT_EVERY: u32 = 3;
const DELIVERY_POLL: Duration = Duration::from_millis(200);

/// Publishes `posts` posts for each author. Authors publish at the same time, each author's posts go one after
/// another. `run` makes titles and idempotency keys differ from those of other runs.
pub async fn publish(api: &Api, authors: &[u64], posts: u32, run: &str, ledger: &mut Ledger) -> Vec<Arc<Post>> {
    let mut published = Vec::new();
    let mut results = stream::iter(authors).map(|author| of_author(api, *author, posts, run)).buffer_unordered(SIDE_BY_SIDE);
    while let Some((checks, posts)) = results.next().await {
        ledger.add(checks);
        published.extend(posts);
    }
    published
}

async fn of_author(api: &Api, author: u64, posts: u32, run: &str) -> (Checks, Vec<Arc<Post>>) {
    let mut checks = Checks::of(author);
    let mut published: Vec<Arc<Post>> = Vec::new();
    for number in 1..=posts {
        match one(api, author, number, run, &mut checks).await {
            Ok(post) => {
                if let Some(last) = published.last() {
                    checks.equal("publish: seq without gaps", last.id.seq + 1, post.id.seq);
                }
                published.push(Arc::new(post));
            }
            Err(error) => checks.failed(&error),
        }
    }
    (checks, published)
}

async fn one(api: &Api, author: u64, number: u32, run: &str, checks: &mut Checks) -> anyhow::Result<Post> {
    let title = format!("Post {number} of {author} in run {run}");
    let body = json!({"title": title, "body": format!("The {number}. post that {author} publishes in run {run}.")});
    let call = || Call::post("/v1/posts").caller(author).key(format!("verify-{run}-{author}-{number}")).json(body.clone());
    let response = api.fetch(call(), 201).await?;
    let post = Post::parse(&response).context("POST /v1/posts")?;
    checks.equal("publish: author and title", (author, &title), (post.id.author, &post.title));
    if number.is_multiple_of(REPEAT_EVERY) {
        let again = Post::parse(&api.fetch(call(), 201).await?)?;
        checks.equal("publish: the same key gives the same post", &post, &again);
    }
    Ok(post)
}

pub async fn timeline(api: &Api, author: u64) -> anyhow::Result<BTreeSet<PostId>> {
    let walk = walk(api, author, &format!("/v1/authors/{author}/posts?status=all"), 100).await?;
    Ok(walk.items.into_iter().map(|item| item.post.id).collect())
}

/// Compares the delivery of every post: within `limit` it must be done, to the number of followers that the edge file
/// gives. If Redis was `flushed`, the progress is lost: reconcile resumes unfinished deliveries, and the number of
/// handled followers is not compared.
pub async fn deliveries(api: &Api, posts: &[Arc<Post>], graph: &Graph, limit: Duration, flushed: bool, ledger: &mut Ledger) {
    let until = Instant::now() + limit;
    for id in posts.iter().map(|post| post.id) {
        let compare = async |checks: &mut Checks| {
            let body = delivery(api, id, until, flushed).await?;
            let followers = Some(graph.followers(id.author));
            checks.equal(&format!("delivery of {id}: state"), Some("done"), body["state"].as_str());
            checks.equal(&format!("delivery of {id}: followers"), followers, body["followers"].as_u64());
            if !flushed {
                checks.equal(&format!("delivery of {id}: delivered"), followers, body["delivered"].as_u64());
            }
            Ok(())
        };
        ledger.add(Checks::make(id.author, compare).await.0);
    }
}

async fn delivery(api: &Api, id: PostId, until: Instant, resume: bool) -> anyhow::Result<Value> {
    loop {
        let body = api.fetch(Call::get(format!("/v1/posts/{id}/delivery")).caller(id.author), 200).await?;
        if body["state"] == "done" || Instant::now() >= until {
            return Ok(body);
        }
        if resume {
            status::post(api, "/_local/schedules/reconcile").await?;
        }
        tokio::time::sleep(if resume { 10 * DELIVERY_POLL } else { DELIVERY_POLL }).await;
    }
}

//! Many watched readers of one author: what connections know after losses together, and what watching costs.

use std::time::{Duration, Instant};

use futures::{StreamExt, future::join_all, stream};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::Value;
use tidemark_tests::{LiveConnection, PATIENCE, World, number_from, until};

use super::kill;

const AUTHOR_OF_ALL: u64 = 9_000_000;

/// Readers from 1 follow the author and have views.
async fn readers(world: &World, number: u64) {
    stream::iter(1..=number).for_each_concurrent(16, async |reader| drop(world.live_reader(reader, [AUTHOR_OF_ALL]).await)).await;
    world.stack.idle_within(Duration::from_secs(600)).await.unwrap();
}

async fn connect(world: &World, readers: u64) -> Vec<LiveConnection> {
    stream::iter(1..=readers).map(|reader| world.live(reader)).buffer_unordered(16).collect().await
}

/// A client: a connection, and the unread total that it knows.
struct Client {
    connection: LiveConnection,
    total: u64,
    at: String,
}

impl Client {
    /// Connects as docs/live.md asks of clients: the counts are read after the first pong.
    async fn connect(world: &World, reader: u64) -> Self {
        let mut client = Self { connection: world.live(reader).await, total: 0, at: String::new() };
        client.ping().await;
        client.total = world.user(reader).unread_total_once().await;
        client
    }

    fn learn(&mut self, message: &Value) {
        assert_eq!(message["type"], "unread", "{message}");
        let at = message["at"].as_str().unwrap();
        if *at > *self.at {
            self.total = message["total"].as_u64().unwrap();
            at.clone_into(&mut self.at);
        }
    }

    async fn ping(&mut self) {
        self.connection.send(r#"{"type":"ping"}"#).await;
        loop {
            let message = self.connection.next().await;
            if message["type"] == "pong" {
                return;
            }
            self.learn(&message);
        }
    }

    /// Sends one ping when no work is left. Then the connection must learn this total.
    async fn agrees_after_a_ping(&mut self, total: u64) {
        self.ping().await;
        while self.total != total {
            let message = self.connection.next().await;
            self.learn(&message);
        }
    }
}

/// All clients learn this total by one ping each, after `loss`.
async fn agree(world: &World, clients: &mut [Client], total: u64, loss: &str) {
    world.idle().await;
    let agree = join_all(clients.iter_mut().map(|client| client.agrees_after_a_ping(total)));
    if tokio::time::timeout(PATIENCE / 3, agree).await.is_err() {
        let known: Vec<u64> = clients.iter().map(|client| client.total).collect();
        panic!("{loss}: the connections know {known:?} of {total}; GET: {}", world.user(1).unread_total_once().await);
    }
    world.idle().await;
}

/// Each round loses a worker, Redis or all connections in the middle of a post.
#[tokio::test(flavor = "multi_thread")]
async fn all_connections_know_the_counts_one_ping_after_a_loss() {
    const WATCHED: u64 = 60;
    let rounds = number_from("TIDEMARK_ROUNDS", 2);
    World::run(async |world| {
        readers(world, 200).await;
        let connect = async || -> Vec<Client> {
            stream::iter(1..=WATCHED).map(|reader| Client::connect(world, reader)).buffer_unordered(16).collect().await
        };
        let mut clients = connect().await;
        let mut posts = 0;
        let mut random = StdRng::seed_from_u64(1);
        for _ in 0..rounds {
            for function in ["fan-out", "live", "live-sender"] {
                posts += kill(world, AUTHOR_OF_ALL, function).await;
                agree(world, &mut clients, posts, function).await;
            }
            // The delivery takes some 10 ms, and the messages take some 100 ms more.
            let mut publish_and_wait = async |most| {
                world.user(AUTHOR_OF_ALL).publish("to all").await;
                tokio::time::sleep(Duration::from_millis(random.random_range(0..most))).await;
            };
            publish_and_wait(30).await;
            posts += 1;
            world.flush_redis().await;
            agree(world, &mut clients, posts, "Redis").await;
            publish_and_wait(150).await;
            posts += 1;
            assert_eq!(world.stack.drop_live_connections() as u64, WATCHED);
            clients = connect().await;
            agree(world, &mut clients, posts, "connections").await;
        }
        world.assert_unread(1..=WATCHED, posts).await;
    })
    .await;
}

const ROUNDS: usize = 5;
/// One of nine deliveries to a reader moves the recent entries of the feed.
const POSTS: u64 = 9;

/// The microseconds of calls and of the processor that Redis takes for a delivery to each of `all` readers, by the
/// functions that deliver: `live` waits meanwhile, because its time is not theirs.
async fn deliver(world: &World, all: u64) -> [f64; 2] {
    world.stack.pause("live").await.unwrap();
    world.forget_redis_calls().await;
    let before = world.redis_processor_micros().await;
    for _ in 0..POSTS {
        let post = world.user(AUTHOR_OF_ALL).publish("to all").await;
        let path = format!("/v1/posts/{post}/delivery");
        until("it is delivered", async || world.user(AUTHOR_OF_ALL).get(&path).await.ok()["state"] == "done").await;
    }
    let processor = world.redis_processor_micros().await - before;
    let micros = [world.redis_micros().await["fcall"] as f64, processor].map(|micros| micros / (POSTS * all) as f64);
    world.stack.resume("live").unwrap();
    world.stack.idle_within(Duration::from_secs(600)).await.unwrap();
    micros
}

/// Publishes to these connections, which know this total.
async fn show_latencies(world: &World, mut connections: Vec<LiveConnection>, mut total: u64) {
    let (mut latencies, mut messages) = (Vec::new(), 0);
    for _ in 0..ROUNDS {
        world.stack.idle_within(Duration::from_secs(600)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        total += 1;
        let published = Instant::now();
        world.user(AUTHOR_OF_ALL).publish("to all").await;
        let told = connections.into_iter().map(|mut connection| async move {
            let mut messages = 1;
            while connection.next().await["total"] != total {
                messages += 1;
            }
            (connection, published.elapsed(), messages)
        });
        let told: Vec<_> = join_all(told.map(tokio::spawn)).await;
        connections = Vec::new();
        for (connection, latency, told) in told.into_iter().map(Result::unwrap) {
            connections.push(connection);
            latencies.push(latency);
            messages += told;
        }
    }
    latencies.sort_unstable();
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
    let (p50, p99, changes) = (at(0.5), at(0.99), latencies.len());
    println!("from the publish to the message: p50 {p50:?}, p99 {p99:?}; {messages} messages for {changes} changes");
}

/// Measures the numbers in docs/live.md.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn the_cost_of_watched_readers() {
    let (watched, all) = (number_from("TIDEMARK_WATCHED", 1_000), number_from("TIDEMARK_READERS", 11_000));
    World::run(async |world| {
        readers(world, all).await;
        // A delivery to a short feed costs less, so the first ones do not count, and the order changes.
        deliver(world, all).await;
        let mut ratios = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            let mut micros = [[0.0; 2]; 2];
            for is_watched in [round % 2 == 1, round % 2 == 0] {
                let connections = connect(world, if is_watched { watched } else { 0 }).await;
                micros[usize::from(is_watched)] = deliver(world, all).await;
                stream::iter(connections).for_each(LiveConnection::close).await;
                world.stack.idle_within(Duration::from_secs(600)).await.unwrap();
            }
            let [unwatched, with_some] = micros;
            println!("[calls, processor] us of Redis for a delivery: {unwatched:.2?}, {with_some:.2?} with {watched} of {all}");
            for (ratios, (watched, unwatched)) in ratios.iter_mut().zip(with_some.into_iter().zip(unwatched)) {
                ratios.push(watched / unwatched);
            }
        }
        for (what, mut ratios) in ["calls", "processor"].into_iter().zip(ratios) {
            ratios.sort_unstable_by(f64::total_cmp);
            println!("ratio of {what}: {:.3} (median of {ROUNDS})", ratios[ROUNDS / 2]);
        }

        show_latencies(world, connect(world, watched).await, POSTS * (2 * ROUNDS as u64 + 1)).await;
    })
    .await;
}

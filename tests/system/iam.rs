//! Logins with IAM on real servers. The test stands for ElastiCache: it lets the servers accept the tokens that were
//! signed in the last second, and ends connections.

use std::{
    cell::Cell,
    time::{Duration, SystemTime},
};

use aws_sdk_sqs::config::{Credentials, SharedCredentialsProvider};
use futures::future::join_all;
use redis::{Cmd, aio::MultiplexedConnection};
use serde_json::json;
use tidemark::views::{IamLogin, RedisOptions, Views};
use tidemark_local::{ClusterSetup, RedisSetup};
use tidemark_tests::{
    LegacyRedis, World, redis_setup,
    template::{resources, template_document},
    until, world_with,
};

const USER: &str = "tidemark-iam";
const CACHE: &str = "tidemark-views";

/// The lifetime of a token in seconds. At ElastiCache it is 15 minutes.
const LIVES: u64 = 1;

/// The seconds by which the servers know tokens in advance, because the test may be late.
const AHEAD: u64 = 60;

/// Lines of traffic, one command at a time in each.
const LINES: u64 = 8;

#[expect(clippy::disallowed_methods, reason = "tokens of a real server have the time of the wall clock")]
fn now() -> SystemTime {
    SystemTime::now()
}

fn credentials(key: &str) -> Credentials {
    Credentials::new(key, "local", None, None, "test")
}

fn login(key: &str) -> IamLogin {
    IamLogin::new(CACHE.to_owned(), "us-east-1".to_owned(), SharedCredentialsProvider::new(credentials(key)), now)
}

fn token(key: &str, at: SystemTime) -> String {
    login(key).token(USER, credentials(key), at).unwrap()
}

/// Servers that know one user. `keys` are the access keys that may log in.
struct Elasticache<'a> {
    nodes: Vec<MultiplexedConnection>,
    keys: &'a [String],
}

impl Elasticache<'_> {
    async fn each(&mut self, command: &Cmd) {
        for node in &mut self.nodes {
            command.exec_async(node).await.unwrap();
        }
    }

    /// Accepts the tokens of the last second and of the next ones, and no others.
    async fn forget_old_tokens(&mut self) {
        let mut set = redis::cmd("ACL").arg("SETUSER").arg(USER).arg("resetpass").clone();
        let since = now() - Duration::from_secs(LIVES);
        for key in self.keys {
            for seconds in 0..=LIVES + AHEAD {
                set.arg(format!(">{}", token(key, since + Duration::from_secs(seconds))));
            }
        }
        self.each(&set).await;
    }

    /// Waits until the token that was valid at the call has expired.
    async fn tokens_expire(&mut self) {
        let (key, at) = (self.keys[0].clone(), now());
        let mut node = self.nodes[0].clone();
        loop {
            self.forget_old_tokens().await;
            // A connection keeps its user if a login fails, and changes it if not.
            let refused = redis::cmd("AUTH").arg(USER).arg(token(&key, at)).exec_async(&mut node).await.is_err();
            if refused {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Ends all connections of the user, as ElastiCache does twelve hours after a login.
    async fn end_connections(&mut self) {
        self.each(redis::cmd("CLIENT").arg("KILL").arg("USER").arg(USER).arg("SKIPME").arg("yes")).await;
    }

    /// The number of accepted logins, and of connections that were ever made.
    async fn logins_and_connections(&mut self) -> (u64, u64) {
        let (mut logins, mut connections) = (0, 0);
        for node in &mut self.nodes {
            let info: String = redis::cmd("INFO").arg("everything").query_async(node).await.unwrap();
            let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
            let stat = field("cmdstat_auth:");
            let number = |name: &str| stat.split(',').find_map(|part| part.strip_prefix(name)?.parse::<u64>().ok()).unwrap_or(0);
            logins += number("calls=") - number("failed_calls=");
            connections += field("total_connections_received:").parse::<u64>().unwrap();
        }
        (logins, connections)
    }
}

fn options(world: &World, login: IamLogin) -> RedisOptions {
    let of_stack = world.stack.redis_options().clone();
    let url = of_stack.url.replace("://", &format!("://{USER}@"));
    let (connect_timeout, response_timeout) = (Duration::from_secs(8), Duration::from_secs(8));
    RedisOptions { url, iam: Some(login), connect_timeout, response_timeout, ..of_stack }
}

/// Sends commands in several lines while tokens expire and connections end. None may fail.
async fn nothing_is_refused_while_tokens_expire(world: &World) {
    let keys = ["a-key".to_owned()];
    let mut server = Elasticache { nodes: world.redis_nodes().await, keys: &keys };
    server.each(redis::cmd("ACL").arg("SETUSER").arg(USER).arg("on").arg("~*").arg("+@all")).await;
    server.tokens_expire().await;

    let stale = IamLogin { now: || now() - Duration::from_secs(60), ..login("a-key") };
    let refused = Views::new(&options(world, stale)).unwrap().query::<String>("test", redis::cmd("PING")).await;
    assert!(refused.is_err(), "an old token must not be accepted: {refused:?}");

    let renewed = IamLogin { renew_after: Duration::from_millis(300), ..login("a-key") };
    let redis = Views::new(&options(world, renewed)).unwrap();
    let (done, failed, over) = (Cell::new(0_u64), Cell::new(0_u64), Cell::new(false));
    let line = async |line: u64| {
        let key = format!("{{{line}}}:iam");
        for number in 0_u64.. {
            if over.get() {
                return;
            }
            let set = redis.query::<()>("test", Cmd::set(&key, number).take()).await;
            let read = redis.query::<u64>("test", Cmd::get(&key)).await;
            failed.set(failed.get() + u64::from(set.is_err()) + u64::from(read.is_err()));
            assert!(read.is_err() || read.is_ok_and(|read| read == number), "the connection mixes responses up");
            done.set(done.get() + 2);
        }
    };
    let disturb = async {
        // Connections stay, and log in again.
        until("all lines run", async || done.get() > 20 * LINES).await;
        let (logins, connections) = server.logins_and_connections().await;
        let wanted = logins + 5 * u64::try_from(server.nodes.len()).unwrap();
        until("connections log in again", async || {
            server.forget_old_tokens().await;
            server.logins_and_connections().await.0 >= wanted
        })
        .await;
        assert_eq!(server.logins_and_connections().await.1, connections, "a login needs no new connection");
        // Connections end when their first token has long expired.
        for _ in 0..4 {
            server.tokens_expire().await;
            server.end_connections().await;
            let before = done.get();
            until("all lines go on", async || done.get() > before + 20 * LINES).await;
        }
        over.set(true);
    };
    futures::join!(join_all((0..LINES).map(line)), disturb);
    println!("{} commands, {} refused", done.get(), failed.get());
    assert_eq!(failed.get(), 0, "of {}", done.get());
}

#[test]
fn no_command_is_refused_while_tokens_expire_and_connections_end() {
    world_with(|_| {}, nothing_is_refused_while_tokens_expire);
}

#[test]
fn no_command_is_refused_on_a_cluster() {
    let setup = RedisSetup { cluster: Some(ClusterSetup::default()), ..redis_setup() };
    world_with(|options| options.redis = setup, nothing_is_refused_while_tokens_expire);
}

#[tokio::test]
async fn functions_log_in_as_the_user_of_the_template() {
    let template = template_document();
    let user = &template["Resources"]["RedisIamUser"]["Properties"];
    let rules: Vec<&str> = user["AccessString"].as_str().unwrap().split_whitespace().collect();
    let functions = resources(&template, "AWS::Serverless::Function").into_values();
    // On the local stack, a function's access key is its name.
    let keys: Vec<String> =
        functions.map(|function| function["Metadata"]["BuildProperties"]["Binary"].as_str().unwrap().to_owned()).collect();
    let redis = LegacyRedis::start().await;
    let mut server = Elasticache { nodes: vec![redis.connect().await], keys: &keys };
    server.each(redis::cmd("ACL").arg("SETUSER").arg(USER).arg(rules)).await;
    server.forget_old_tokens().await;
    let url = redis.url().replace("://", &format!("://{USER}@"));
    let configure = |options: &mut tidemark_local::Options| {
        options.redis_url = Some(url);
        options.environment.insert("REDIS_IAM_CACHE".to_owned(), CACHE.to_owned());
    };
    World::run_with(configure, async |world| {
        let reader = world.live_reader(1, [2]).await;
        let post = world.publish_and_deliver(2, "for one reader").await;
        let feed = reader.get("/v1/feed").await;
        assert_eq!(feed.header("degraded"), None, "Redis served it");
        assert_eq!(feed.ok()["items"][0]["id"], json!(post));
        let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut server.nodes[0]).await.unwrap();
        let of = |user: &str| clients.lines().filter(|client| client.contains(&format!(" user={user} "))).count();
        assert!(of(USER) >= 3, "{clients}");
        assert_eq!(of("default"), 1, "the test's own: {clients}");
    })
    .await;
}

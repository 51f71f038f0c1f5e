//! Random histories of a thousand readers on three platforms, over HTTP and live connections, compared with a model.
//! Several notices are edited at once, and Redis is flushed in between.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde_json::{Value, json};
use tidemark_tests::{LiveConnection, User, World, world};

use crate::{notice_histories::Model, publish_notices};

const PLATFORMS: [u16; 3] = [1, 2, 65_535];
const READERS: usize = 1_000;
const ROUNDS: usize = 6;
const LANES: usize = 16;

/// The readers whose unread notices are listed, and those who have two live connections each.
const LISTED: usize = 60;
const WATCHING: usize = 10;

/// A live connection, the platforms that it names, and the numbers that it shows.
struct Watch {
    reader: u64,
    connection: LiveConnection,
    platforms: Vec<u16>,
    shown: BTreeMap<u16, u64>,
}

struct History<'a> {
    world: &'a World,
    rng: StdRng,
    /// Grows with every group of operations.
    step: usize,
    readers: Vec<u64>,
    models: BTreeMap<u16, Model>,
    /// The last title and text of each notice that was edited.
    texts: BTreeMap<(u16, u64), (String, Value)>,
    watches: Vec<Watch>,
    compared: usize,
}

impl History<'_> {
    fn chance(&mut self, share: f64) -> bool {
        self.rng.random_bool(share)
    }

    fn notice(&mut self) -> (u16, u64) {
        let platform = PLATFORMS[self.rng.random_range(0..3)];
        (platform, self.rng.random_range(1..=self.models[&platform].latest))
    }

    /// One random mark of every reader, many at once.
    async fn marks(&mut self, flushes: bool) {
        self.step += 1;
        let mut plan = Vec::new();
        for reader in self.readers.clone() {
            let (platform, seq) = self.notice();
            let (kind, model) = (self.rng.random_range(0..10), self.models.get_mut(&platform).unwrap());
            match kind {
                0..3 => model.mark_through(reader, seq, self.step, 0),
                _ => model.mark(reader, seq, kind < 8, 0),
            }
            plan.push((reader, platform, seq, kind));
        }
        let (world, half) = (self.world, plan.len() / 2);
        let requests = plan.into_iter().enumerate().map(async |(index, (reader, platform, seq, kind))| {
            if flushes && index == half {
                world.flush_redis().await;
            }
            let (reader, path) = (world.user(reader), format!("/v1/notices/{platform}-{seq}/read"));
            let response = match kind {
                0..3 => reader.post("/v1/notices/reads", &json!({ "platform": platform, "through": seq })).await,
                3..8 => reader.put(&path).await,
                _ => reader.delete(&path).await,
            };
            // A deleted notice is neither read nor unread.
            assert!(matches!(response.status, 200 | 404), "{}", response.body);
        });
        stream::iter(requests).buffer_unordered(LANES).collect::<Vec<()>>().await;
    }

    /// Publishes, deletes, and edits several notices.
    async fn administer(&mut self) {
        let admin = self.world.administrator();
        for count in [3, 1] {
            let mut platforms = PLATFORMS.to_vec();
            platforms.shuffle(&mut self.rng);
            publish_notices(self.world, &platforms[..count], ["new"]).await;
            self.step += 1;
            platforms[..count].iter().for_each(|platform| self.models.get_mut(platform).unwrap().publish(None, self.step));
        }
        let (platform, seq) = self.notice();
        admin.delete(&format!("/v1/notices/{platform}-{seq}")).await.ok();
        self.models.get_mut(&platform).unwrap().notices.remove(&seq);
        for _ in 0..4 {
            self.edit(&admin).await;
        }
    }

    /// Edits up to 100 notices of all platforms. Sometimes one of them is unknown or deleted.
    async fn edit(&mut self, admin: &User) {
        self.step += 1;
        let live = |(platform, model): (&u16, &Model)| model.notices.keys().map(|&seq| (*platform, seq)).collect::<Vec<_>>();
        let mut chosen: Vec<(u16, u64)> = self.models.iter().flat_map(live).collect();
        chosen.shuffle(&mut self.rng);
        // A hundred are more than one transaction takes.
        let count = if self.chance(0.5) { 100 } else { self.rng.random_range(2..20) };
        chosen.truncate(count);
        if self.chance(0.3) {
            chosen[0] = self.notice();
        }
        let all_live = chosen.iter().all(|&(platform, seq)| self.models[&platform].is_live(seq, 0));
        let renotify = self.chance(0.3);
        let (title, text) = (format!("edited in {}", self.step), if self.chance(0.5) { json!("text") } else { Value::Null });
        let query: Vec<String> = chosen.iter().map(|(platform, seq)| format!("id={platform}-{seq}")).collect();
        let body = json!({ "title": title, "body": text, "renotify": renotify });
        let response = admin.put_body(&format!("/v1/notices?{}", query.join("&")), &body).await;
        assert_eq!(response.status, if all_live { 200 } else { 404 }, "{}", response.body);
        if !all_live {
            return;
        }
        for (platform, seq) in chosen {
            self.models.get_mut(&platform).unwrap().edit(seq, None, renotify.then_some(self.step));
            self.texts.insert((platform, seq), (title.clone(), text.clone()));
        }
    }

    /// Compares the counts of every reader, and the lists of some.
    async fn compare(&mut self) {
        let mut plan = Vec::new();
        for &reader in &self.readers {
            let mut platforms = PLATFORMS.to_vec();
            platforms.shuffle(&mut self.rng);
            platforms.truncate(self.rng.random_range(1..=3));
            plan.push((reader, platforms));
        }
        self.compared += plan.len();
        let (world, models, texts) = (self.world, &self.models, &self.texts);
        let counts = stream::iter(plan.into_iter().map(async |(reader, platforms)| {
            let query: Vec<String> = platforms.iter().map(|platform| format!("platform={platform}")).collect();
            let found = world.user(reader).get(&format!("/v1/notices/unread?{}", query.join("&"))).await.ok();
            let each = platforms.iter().map(|platform| (platform, models[platform].counts(reader, 0)));
            let sums = each.clone().fold((0, 0), |sums, (_, (unread, read))| (sums.0 + unread, sums.1 + read));
            let each: Vec<Value> =
                each.map(|(platform, (unread, read))| json!({ "platform": platform, "unread": unread, "read": read })).collect();
            assert_eq!(found, json!({ "unread": sums.0, "read": sums.1, "platforms": each }), "{reader}");
        }));
        counts.buffer_unordered(LANES).collect::<Vec<()>>().await;
        let mut listed = self.readers.clone();
        listed.shuffle(&mut self.rng);
        listed.truncate(LISTED);
        self.compared += listed.len();
        let lists = stream::iter(listed.into_iter().zip(PLATFORMS.into_iter().cycle()).map(async |(reader, platform)| {
            let path = format!("/v1/notices?platform={platform}&status=unread&include=body");
            let found = world.user(reader).walk(&path, 17).await;
            let found: Vec<Value> = found.iter().map(|item| json!([item["seq"], item["title"], item["body"]])).collect();
            let unread = models[&platform].list(reader, 0).into_iter().filter(|(_, read)| !read);
            let text = |seq| texts.get(&(platform, seq)).cloned().unwrap_or_else(|| ("new".to_owned(), Value::Null));
            let expected: Vec<Value> = unread.map(|(seq, _)| json!([seq, text(seq).0, text(seq).1])).collect();
            assert_eq!(found, expected, "{reader} on {platform}");
        }));
        lists.buffer_unordered(LANES).collect::<Vec<()>>().await;
    }

    /// Each connection pings. The numbers that it shows then are those of the model.
    async fn watch(&mut self) {
        for watch in &mut self.watches {
            let before = watch.connection.ping_platforms(&watch.platforms).await;
            show(&mut watch.shown, &before);
        }
        self.world.idle().await;
        for watch in &mut self.watches {
            let messages = watch.connection.arrived().await;
            show(&mut watch.shown, &messages);
            let expected: BTreeMap<u16, u64> =
                watch.platforms.iter().map(|platform| (*platform, self.models[platform].counts(watch.reader, 0).0)).collect();
            assert_eq!(watch.shown, expected, "{}", watch.reader);
            self.compared += 1;
        }
    }
}

/// Shows the numbers of these messages, in the order of their arrival.
fn show(shown: &mut BTreeMap<u16, u64>, messages: &[Value]) {
    for message in messages.iter().filter(|message| message["type"] == "notices") {
        let platform = u16::try_from(message["platform"].as_u64().unwrap()).unwrap();
        shown.insert(platform, message["unread"].as_u64().unwrap());
    }
}

#[test]
fn a_thousand_readers_of_three_platforms_agree_with_the_model() {
    const SEED: u64 = 20_261_127;
    println!("seed {SEED}");
    world(async |world| {
        let mut rng = StdRng::seed_from_u64(SEED);
        let mut readers: Vec<u64> = (0..READERS).map(|_| rng.random_range(1..u64::MAX)).collect();
        readers[0] = u64::MAX;
        publish_notices(world, &PLATFORMS, vec!["new"; 50]).await;
        let mut models: BTreeMap<u16, Model> = PLATFORMS.map(|platform| (platform, Model::default())).into();
        models.values_mut().for_each(|model| (0..50).for_each(|_| model.publish(None, 0)));
        let mut watches = Vec::new();
        for &reader in readers[..WATCHING].iter().flat_map(|reader| [reader, reader]) {
            let mut platforms = PLATFORMS.to_vec();
            platforms.shuffle(&mut rng);
            platforms.truncate(rng.random_range(1..=3));
            let shown = platforms.iter().map(|&platform| (platform, 0)).collect();
            watches.push(Watch { reader, connection: world.live(reader).await, platforms, shown });
        }
        let texts = BTreeMap::new();
        let mut history = History { world, rng, step: 0, readers, models, texts, watches, compared: 0 };
        history.watch().await;
        for round in 0..ROUNDS {
            history.marks(round % 3 == 1).await;
            history.administer().await;
            history.compare().await;
            history.watch().await;
        }
        println!("{} responses and connections agree", history.compared);
    });
}

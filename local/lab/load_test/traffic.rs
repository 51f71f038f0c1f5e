//! The requests: their kinds and shares, who sends them, and about what.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    str::FromStr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{StreamExt, TryStreamExt, stream};
use rand::{
    Rng, SeedableRng,
    distr::{Distribution, weighted::WeightedIndex},
    rngs::StdRng,
    seq::SliceRandom,
};
use serde::Serialize;
use serde_json::{Value, json};
use tidemark_tools::{
    api::{Api, Call, Response},
    progress::Progress,
};

use super::{graph::Graph, world::World};

/// Posts of a page.
const PAGE: usize = 20;
/// Follows of the run, before the oldest ends.
const FOLLOWS: usize = 500;
const WARMED_SIDE_BY_SIDE: usize = 4;

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    Feed,
    /// The feed of a user who has not read for long.
    Rebuild,
    Unread,
    Timeline,
    Mark,
    MarkAll,
    Like,
    Follow,
    Publish,
}

impl Kind {
    pub(crate) const ALL: [Self; 9] = [
        Self::Feed,
        Self::Rebuild,
        Self::Unread,
        Self::Timeline,
        Self::Mark,
        Self::MarkAll,
        Self::Like,
        Self::Follow,
        Self::Publish,
    ];

    /// The name in options and numbers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Feed => "feed",
            Self::Rebuild => "rebuild",
            Self::Unread => "unread",
            Self::Timeline => "timeline",
            Self::Mark => "mark",
            Self::MarkAll => "mark-all",
            Self::Like => "like",
            Self::Follow => "follow",
            Self::Publish => "publish",
        }
    }

    /// What tables show.
    pub(crate) fn route(self) -> &'static str {
        match self {
            Self::Feed => "`GET /v1/feed`, 20 posts",
            Self::Rebuild => "the same, with a rebuild",
            Self::Unread => "`GET /v1/unread`",
            Self::Timeline => "`GET /v1/authors/{author}/posts`",
            Self::Mark => "`PUT`, `DELETE …/read`",
            Self::MarkAll => "`POST /v1/reads`, all",
            Self::Like => "`PUT`, `DELETE …/like`",
            Self::Follow => "`PUT`, `DELETE /v1/following/{author}`",
            Self::Publish => "`POST /v1/posts`",
        }
    }

    /// The binary of the function that responds.
    pub(crate) fn function(self) -> &'static str {
        match self {
            Self::Feed | Self::Rebuild | Self::Unread | Self::Timeline => "read-feed",
            Self::Mark | Self::MarkAll => "mark-read",
            Self::Follow => "follow",
            Self::Like | Self::Publish => "publish",
        }
    }
}

/// Shares of the kinds, such as `feed=40,unread=30`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Mix(BTreeMap<Kind, f64>);

impl Default for Mix {
    /// More writes than in docs/scale.md, where six of seven requests are first pages. Rebuilds are one first page in a
    /// hundred, as there.
    fn default() -> Self {
        Self(
            [
                (Kind::Feed, 39.6),
                (Kind::Rebuild, 0.4),
                (Kind::Unread, 30.0),
                (Kind::Timeline, 8.0),
                (Kind::Mark, 11.0),
                (Kind::MarkAll, 1.0),
                (Kind::Like, 5.0),
                (Kind::Follow, 3.0),
                (Kind::Publish, 2.0),
            ]
            .into(),
        )
    }
}

impl Mix {
    pub(crate) fn sampler(&self) -> anyhow::Result<impl Fn(&mut StdRng) -> Kind + use<>> {
        let kinds: Vec<Kind> = self.0.keys().copied().collect();
        let shares = WeightedIndex::new(self.0.values())?;
        Ok(move |random: &mut StdRng| kinds[shares.sample(random)])
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(kind, share)| format!("{}={share}", kind.name())).collect();
        f.write_str(&parts.join(","))
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut shares = BTreeMap::new();
        for part in text.split(',') {
            let (name, share) = part.split_once('=').ok_or_else(|| format!("{part:?} is not kind=share"))?;
            let known = Kind::ALL.into_iter().find(|kind| kind.name() == name);
            let kind = known.ok_or_else(|| format!("{name:?} is not one of {}", Kind::ALL.map(Kind::name).join(", ")))?;
            let share: f64 = share.parse().map_err(|_| format!("{share:?} is not a number"))?;
            if !(share.is_finite() && share > 0.0) || shares.insert(kind, share).is_some() {
                return Err(format!("{name} needs one share above zero"));
            }
        }
        Ok(Self(shares))
    }
}

/// A post on a reader's last page.
#[derive(Debug, Clone)]
struct Shown {
    id: String,
    is_read: bool,
    is_liked: bool,
}

/// A request to send, and who sends it.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) call: Call,
    user: u32,
}

/// What the clients know.
#[derive(Debug)]
pub(crate) struct Traffic {
    graph: Graph,
    authors: u32,
    pub(crate) readers: Vec<u32>,
    /// Users without a view, each used once.
    cold: Vec<u32>,
    next_cold: AtomicUsize,
    pages: Mutex<HashMap<u32, Vec<Shown>>>,
    /// Follows of the run, oldest first.
    follows: Mutex<VecDeque<(u32, u32)>>,
    random: Mutex<StdRng>,
}

impl Traffic {
    /// Chooses the readers, and gives each a view and a first page.
    pub(crate) async fn start(world: &World) -> anyhow::Result<Arc<Self>> {
        let traffic =
            Self::new(world.graph.clone(), world.options.graph.authors, world.options.readers, world.options.graph.seed);
        traffic.warm(&world.stack.api).await?;
        Ok(Arc::new(traffic))
    }

    fn new(graph: Graph, authors: u32, readers: u32, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut readers_and_others: Vec<u32> = (1..=graph.users()).collect();
        readers_and_others.shuffle(&mut random);
        let cold = readers_and_others.split_off((readers as usize).min(readers_and_others.len()));
        Self {
            authors: authors.min(graph.users()),
            graph,
            readers: readers_and_others,
            cold,
            next_cold: AtomicUsize::new(0),
            pages: Mutex::default(),
            follows: Mutex::default(),
            random: Mutex::new(random),
        }
    }

    /// Reads the first page of every reader.
    pub(crate) async fn warm(&self, api: &Api) -> anyhow::Result<()> {
        let mut progress = Progress::start("first pages", "readers");
        let mut pages = stream::iter(self.readers.iter().copied())
            .map(|user| async move { anyhow::Ok((user, api.fetch(first_page(user), 200).await?)) })
            .buffer_unordered(WARMED_SIDE_BY_SIDE);
        let mut done = 0;
        while let Some((user, page)) = pages.try_next().await? {
            self.learn(user, &page);
            done += 1;
            progress.set(done, self.readers.len() as u64, "");
        }
        progress.finish();
        Ok(())
    }

    /// A request of this kind.
    pub(crate) fn plan(&self, kind: Kind) -> Planned {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = self.readers[random.random_range(0..self.readers.len())];
        let (user, call) = match kind {
            Kind::Feed => (reader, first_page(reader)),
            Kind::Rebuild => {
                let next = self.next_cold.fetch_add(1, Ordering::Relaxed);
                let user = self.cold.get(next % self.cold.len().max(1)).copied().unwrap_or(reader);
                (user, first_page(user))
            }
            Kind::Unread => (reader, Call::get("/v1/unread")),
            Kind::Timeline => {
                let author = random.random_range(1..=self.authors);
                (reader, Call::get(format!("/v1/authors/{author}/posts?limit={PAGE}")))
            }
            Kind::Mark => (reader, self.change(&mut random, reader, "read", |shown| &mut shown.is_read)),
            Kind::MarkAll => (reader, Call::post("/v1/reads").json(json!({"all": true}))),
            Kind::Like => (reader, self.change(&mut random, reader, "like", |shown| &mut shown.is_liked)),
            Kind::Follow => self.follow(&mut random, reader),
            Kind::Publish => {
                // Each user publishes as often as any other (docs/scale.md).
                let author = random.random_range(1..=self.graph.users());
                let body = json!({"title": "Measured", "body": "As long as a short message is."});
                (author, Call::post("/v1/posts").json(body))
            }
        };
        Planned { call: call.caller(user.into()), user }
    }

    /// Marks or likes a post of the reader's last page, or takes that back. So the request always changes something.
    fn change(&self, random: &mut StdRng, reader: u32, what: &str, flag: fn(&mut Shown) -> &mut bool) -> Call {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(shown) = pages.get_mut(&reader).filter(|page| !page.is_empty()) else { return Call::get("/v1/feed") };
        let place = random.random_range(0..shown.len());
        let shown = &mut shown[place];
        let path = format!("/v1/posts/{}/{what}", shown.id);
        let flag = flag(shown);
        *flag = !*flag;
        if *flag { Call::put(path) } else { Call::delete(path) }
    }

    /// Follows a user, or ends the oldest follow of the run.
    fn follow(&self, random: &mut StdRng, reader: u32) -> (u32, Call) {
        let mut follows = self.follows.lock().unwrap_or_else(PoisonError::into_inner);
        if follows.len() >= FOLLOWS
            && random.random()
            && let Some((user, author)) = follows.pop_front()
        {
            return (user, Call::delete(format!("/v1/following/{author}")));
        }
        let author = self.graph.followed(random);
        let author = if author == reader { author % self.graph.users() + 1 } else { author };
        follows.push_back((reader, author));
        (reader, Call::put(format!("/v1/following/{author}")))
    }

    /// Remembers a page that a reader has got.
    pub(crate) fn ended(&self, kind: Kind, planned: &Planned, response: &Response) {
        if kind == Kind::Feed && response.status == 200 {
            self.learn(planned.user, &response.body);
        }
    }

    fn learn(&self, user: u32, page: &Value) {
        let items = page["items"].as_array().into_iter().flatten();
        let shown = items.filter_map(|item| {
            let flag = |name: &str| item[name].as_bool().unwrap_or(false);
            Some(Shown { id: item["id"].as_str()?.to_owned(), is_read: flag("read"), is_liked: flag("liked") })
        });
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).insert(user, shown.collect());
    }
}

fn first_page(user: u32) -> Call {
    Call::get(format!("/v1/feed?limit={PAGE}")).caller(user.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic() -> Traffic {
        Traffic::new(Graph::new(1_000, 10.0, 1), 100, 50, 1)
    }

    #[test]
    fn a_mix_is_read_as_it_is_written_and_kinds_occur_by_their_shares() {
        let mix = Mix::default();
        assert_eq!(mix.to_string().parse::<Mix>(), Ok(mix.clone()));
        for wrong in ["", "feed", "feed=0", "feed=-1", "feed=x", "dance=1", "feed=1,feed=2", "feed=NaN"] {
            assert!(wrong.parse::<Mix>().is_err(), "{wrong}");
        }
        let sample = "feed=3,like=1".parse::<Mix>().unwrap().sampler().unwrap();
        let mut random = StdRng::seed_from_u64(1);
        let feeds = (0..10_000).filter(|_| sample(&mut random) == Kind::Feed).count();
        assert!((7_300..7_700).contains(&feeds), "{feeds}");
    }

    #[test]
    fn marks_and_likes_always_change_something() {
        let traffic = traffic();
        let item = json!({"id": "7-1", "read": true, "liked": false});
        for reader in &traffic.readers {
            traffic.learn(*reader, &json!({"items": [item]}));
        }
        let sent = |kind| traffic.plan(kind).call.to_string();
        let marks: Vec<String> = (0..500).map(|_| sent(Kind::Mark)).collect();
        let of = |user: u32| marks.iter().filter(|mark| mark.ends_with(&format!("by {user}"))).cloned().collect::<Vec<_>>();
        let first = of(traffic.readers[0]);
        assert!(first.len() >= 2 && first[0].starts_with("DELETE /v1/posts/7-1/read"), "{first:?}");
        assert!(first.windows(2).all(|two| two[0] != two[1]));
        assert!((0..50).map(|_| sent(Kind::Like)).any(|like| like.starts_with("PUT /v1/posts/7-1/like")));
    }

    #[test]
    fn follows_stay_bounded_and_rebuilds_are_of_users_who_are_no_readers() {
        let traffic = traffic();
        let calls: Vec<String> = (0..5_000).map(|_| traffic.plan(Kind::Follow).call.to_string()).collect();
        let begun = calls.iter().filter(|call| call.starts_with("PUT")).count();
        let ended = calls.iter().filter(|call| call.starts_with("DELETE")).count();
        assert!(begun + ended == 5_000 && begun - ended <= FOLLOWS + 100, "{begun} {ended}");
        let cold: Vec<u32> = (0..950).map(|_| traffic.plan(Kind::Rebuild).user).collect();
        assert!(cold.iter().all(|user| !traffic.readers.contains(user)));
        assert_eq!(cold.iter().collect::<std::collections::HashSet<_>>().len(), 950);
    }
}

//! Clients that chain polls beside the operations of a history. No post is in two polls, and none is lost.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use rand::{Rng, rngs::StdRng};
use serde_json::Value;
use tidemark::domain::feed::FeedCap;
use tidemark_tests::{Model, Post, User, World};

use crate::operations::post_of;

/// The chains of one history.
#[derive(Default)]
pub(super) struct Polls {
    seed: u64,
    chains: Vec<Chain>,
    /// For each post, the number of posts from before its operation: authors may publish at the same time.
    published: BTreeMap<Post, usize>,
    /// The last number of each author.
    latest: BTreeMap<u64, u64>,
}

/// A client that has walked a feed, and polls.
struct Chain {
    user: u64,
    list: Option<String>,
    ranked: bool,
    own: bool,
    since: String,
    /// The posts of the walk and of all polls.
    got: BTreeSet<Post>,
    /// Posts that came after the walk, of authors whom the feed has had ever since.
    owed: BTreeSet<Post>,
}

impl Chain {
    fn path(&self) -> String {
        let order = if self.ranked { "ranked" } else { "time" };
        let list = self.list.as_ref().map_or(String::new(), |list| format!("&list={list}"));
        format!("/v1/feed?order={order}&own={}{list}", self.own)
    }

    /// Whether the feed has the posts of this author.
    fn has(&self, model: &Model, author: u64) -> bool {
        if author == self.user {
            return self.own;
        }
        let is_selected = self.list.is_none() || model.list(self.user).is_some_and(|(_, authors)| authors.contains(&author));
        is_selected && model.hears(self.user, author)
    }

    /// Walks the feed for the first time, or one poll.
    async fn walk(&mut self, caller: &User, limit: usize, seed: u64) {
        let since = if self.since.is_empty() { String::new() } else { format!("&since={}", self.since) };
        // Between two pages of a ranked feed a post may move.
        let pages = caller.pages(&format!("{}{since}", self.path()), if self.ranked { 100 } else { limit }).await;
        self.since = pages[0]["first_cursor"].as_str().unwrap().to_owned();
        let items = pages.iter().flat_map(|page| page["items"].as_array().unwrap());
        for post in items.map(|item: &Value| post_of(item)) {
            assert!(self.got.insert(post), "seed {seed}, {} of {} returns {post:?} twice", self.path(), self.user);
        }
    }
}

impl Polls {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Notes what the last operation has changed.
    pub(super) fn observe(&mut self, model: &Model) {
        let list_of = |user| model.list(user).map(|(list, _)| list);
        self.chains.retain(|chain| chain.list.is_none() || chain.list.as_deref() == list_of(chain.user));
        let mut new = Vec::new();
        for author in model.authors() {
            let known = self.latest.insert(author, model.latest(author)).unwrap_or(0);
            new.extend((known + 1..=model.latest(author)).map(|seq| (author, seq)));
        }
        for chain in &mut self.chains {
            let owed = std::mem::take(&mut chain.owed).into_iter().chain(new.iter().copied());
            chain.owed = owed.filter(|post| chain.has(model, post.0)).collect();
        }
        let before = self.published.len();
        self.published.extend(new.into_iter().map(|post| (post, before)));
    }

    /// Begins a chain, or polls once.
    pub(super) async fn poll(&mut self, world: &World, rng: &mut StdRng, model: &Model, users: &[u64]) {
        let (most, limit) = (2 * users.len(), rng.random_range(1..6));
        let index = if self.chains.len() < most && (self.chains.is_empty() || rng.random_ratio(1, 4)) {
            let user = users[rng.random_range(0..users.len())];
            let list = model.list(user).map(|(list, _)| list.to_owned()).filter(|_| rng.random());
            let (since, got, owed) = Default::default();
            let (ranked, own) = (rng.random_ratio(1, 3), rng.random_ratio(1, 3));
            self.chains.push(Chain { user, list, ranked, own, since, got, owed });
            self.chains.len() - 1
        } else {
            rng.random_range(0..self.chains.len())
        };
        let chain = &mut self.chains[index];
        chain.walk(&world.user(chain.user), limit, self.seed).await;
    }

    /// Polls three times with each chain.
    pub(super) async fn poll_all(&mut self, world: &World) {
        let seed = self.seed;
        let polls = self.chains.iter_mut().map(async |chain| {
            for _ in 0..3 {
                chain.walk(&world.user(chain.user), 5, seed).await;
            }
        });
        join_all(polls).await;
    }

    /// Ends the chains of a user who left.
    pub(super) fn forget(&mut self, user: u64) {
        self.chains.retain(|chain| chain.user != user);
    }

    /// Polls for the last time, when no work is left. A post that becomes visible late, below `cap` newer posts, may be
    /// in no poll, and a ranked feed has no more posts.
    pub(super) async fn end(mut self, world: &World, model: &Model, cap: Option<FeedCap>) {
        for chain in &mut self.chains {
            chain.walk(&world.user(chain.user), 100, self.seed).await;
            let newest = chain.got.iter().filter_map(|post| self.published.get(post)).max();
            let may_lack = |lost: &Post| {
                let before = self.published[lost];
                cap.is_some_and(|cap| self.published.len() - before > cap.least()) && (chain.ranked || newest >= Some(&before))
            };
            let missing = chain.owed.iter().filter(|post| model.is_live(**post) && !chain.got.contains(post));
            let lost: Vec<&Post> = missing.filter(|post| !may_lack(post)).collect();
            assert!(lost.is_empty(), "seed {}, {} of {} lost {lost:?}", self.seed, chain.path(), chain.user);
        }
    }
}

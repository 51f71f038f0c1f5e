//! Facts of authors that rebuilds and follows need, from Redis.
//!
//! Many readers of a big author need the same facts at once: after Redis has lost its views, or when many follow an
//! author. All facts of an author lie in one partition of DynamoDB, with 3,000 read units a second. So the head and the
//! times of the newest posts of authors with many followers come from Redis, where one process stores them for all.
//!
//! A head in Redis may lack a post that is a fact already. It is safe to open the gate of a view first and to read such
//! a head then: a post is delivered only after Redis has the head that contains it, or the outage is noted
//! ([`FanOuts::start`](crate::fan_out::FanOuts::start)). So a post from after the follow that this head lacks will pass
//! the open gate. A head that lacks a post from before it is read from the facts ([`Readers::renew_heads`]).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use futures::future::try_join_all;
use tidemark_domain::{
    AuthorHead, Edge, FeedKey, MOST_TIMES, Post, PostId, PostSummary, PostTimes, ReadState, Seq, Store, UserId, store::Result,
};
use tidemark_facts::Facts;

use super::{PairFacts, Readers, merge::Source};

/// The times of an author's posts are stored from this many followers on.
const MANY_FOLLOWERS: u64 = 1_000;

/// One request stores the times of at most this many authors. Each costs up to 70 read units.
const MOST_STORED: usize = 2;

/// This many posts of one author, or more, are read together.
const MANY_POSTS: usize = 4;

/// The source of heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadsFrom {
    /// Redis, where it has them.
    Views,
    /// For repairs: a record in Redis may be the cause of what they repair.
    Facts,
}

/// The known facts of some authors.
pub(super) struct Authors {
    pub(super) heads: HashMap<UserId, AuthorHead>,
    times: HashMap<UserId, PostTimes>,
}

/// Finds places of posts by the known times, and in the facts.
pub(super) struct Places<'a> {
    facts: &'a Facts,
    times: &'a HashMap<UserId, PostTimes>,
    /// Authors with many followers whose posts were read from the facts.
    read: Mutex<BTreeSet<UserId>>,
}

impl<'a> Places<'a> {
    pub(super) fn new(facts: &'a Facts, authors: &'a Authors) -> Self {
        Self { facts, times: &authors.times, read: Mutex::default() }
    }

    /// Returns the authors whose times should be stored.
    pub(super) fn read(&self) -> BTreeSet<UserId> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Source<FeedKey> for Places<'_> {
    async fn load(&self, author: UserId, seqs: &[Seq]) -> Result<Vec<FeedKey>> {
        let known = self.times.get(&author);
        let is_known = |seq: &Seq| known.is_some_and(|times| times.knows(*seq));
        let unknown: Vec<Seq> = seqs.iter().filter(|seq| !is_known(seq)).copied().collect();
        let mut keys = known.map_or_else(Vec::new, |times| times.keys(author, seqs));
        if !unknown.is_empty() {
            let posts = self.facts.posts_of(author, &unknown).await?;
            if posts.iter().any(|post| post.delivery.followers >= MANY_FOLLOWERS) {
                self.read.lock().unwrap_or_else(PoisonError::into_inner).insert(author);
            }
            keys.extend(posts.iter().filter(|post| post.is_in_feeds()).map(Post::key));
            keys.sort_unstable_by(|a, b| b.cmp(a));
        }
        Ok(keys)
    }
}

impl Readers {
    /// Returns what a view needs to know of these authors. The caller has opened the gates.
    pub(super) async fn authors(&self, authors: &[UserId], heads: HeadsFrom) -> Result<Authors> {
        if heads == HeadsFrom::Facts {
            return Ok(Authors { heads: self.stores.facts.heads(authors).await?, times: HashMap::new() });
        }
        let known = match self.outage.checked(self.stores.views.known_authors(authors)).await {
            // Heads may lack posts that are delivered already.
            Err(error) if error.store() == Store::Views => HashMap::new(),
            known => known?,
        };
        let (mut heads, mut times) = (HashMap::with_capacity(authors.len()), HashMap::new());
        for (author, known) in known {
            heads.extend(known.head.map(|head| (author, head)));
            times.extend(known.times.map(|known| (author, known)));
        }
        let missing = authors.iter().copied().filter(|author| !heads.contains_key(author));
        // A rebuild may miss many heads. Only those that many readers need are worth a lease.
        let (busy, others): (Vec<UserId>, Vec<UserId>) = missing.partition(|author| times.contains_key(author));
        let (busy, others) = futures::try_join!(self.heads_of_facts(&busy), self.stores.facts.heads(&others))?;
        heads.extend(busy.into_iter().chain(others));
        Ok(Authors { heads, times })
    }

    /// Reads those heads from the facts that are older than a follow or a mark of the reader: their posts were
    /// published before it, and do not pass the gate any more.
    pub(super) async fn renew_heads(
        &self,
        known: &mut Authors,
        edges: &[Edge],
        reads: &HashMap<UserId, ReadState>,
    ) -> Result<()> {
        let is_old = |edge: &&Edge| {
            let marked = reads.get(&edge.author).and_then(|reads| reads.read.bounds()).map_or(0, |(_, last)| last);
            known.heads.get(&edge.author).map_or(0, |head| head.latest_seq) < edge.base.max(marked)
        };
        let old: Vec<UserId> = edges.iter().filter(is_old).map(|edge| edge.author).collect();
        if !old.is_empty() {
            known.heads.extend(self.stores.facts.heads(&old).await?);
        }
        Ok(())
    }

    /// Returns the facts of pairs for marks of these posts. A head may be older than the facts, but has all of the
    /// posts: a seed from an older head than a view knows is refused.
    pub(crate) async fn pairs_of_posts(&self, user: UserId, posts: &BTreeMap<UserId, Vec<Seq>>) -> Result<Vec<PairFacts>> {
        let authors: Vec<UserId> = posts.keys().copied().collect();
        let (known, edges, reads) = futures::join!(
            self.outage.checked(self.stores.views.heads_now(&authors)),
            self.stores.facts.edges(user, &authors),
            self.stores.facts.reads(user, &authors),
        );
        let (mut edges, mut reads, responds) = (edges?, reads?, known.is_ok());
        let mut heads = known.unwrap_or_default();
        let is_known = |author: &UserId| heads.contains_key(author);
        // From a minute after the author's last change, the marks of many readers miss the head.
        let (mut old, missing): (Vec<UserId>, Vec<UserId>) =
            authors.iter().copied().partition(|author| !responds || is_known(author));
        old.retain(|author| heads.get(author).is_none_or(|head| posts[author].iter().any(|&seq| seq > head.latest_seq)));
        let (missing, old) = futures::try_join!(self.heads_of_facts(&missing), self.stores.facts.heads(&old))?;
        heads.extend(missing.into_iter().chain(old));
        let pair = |author| PairFacts {
            author,
            edge: edges.remove(&author),
            head: heads.remove(&author).unwrap_or_default(),
            reads: reads.remove(&author).unwrap_or_default(),
        };
        Ok(authors.into_iter().map(pair).collect())
    }

    /// Returns those of these posts that are live.
    pub(crate) async fn live_posts(&self, ids: &[PostId]) -> Result<HashSet<PostId>> {
        Ok(self.live_summaries(ids).await?.into_iter().map(|post| post.id).collect())
    }

    pub(super) async fn live_summaries(&self, ids: &[PostId]) -> Result<Vec<PostSummary>> {
        match self.outage.checked(self.summaries(ids)).await {
            Err(error) if error.store() == Store::Views => {
                let posts = self.posts_of_facts(ids).await?;
                Ok(posts.into_iter().filter(|post| !post.deleted).map(PostSummary::from).collect())
            }
            known => Ok(known?.0),
        }
    }

    /// Returns these posts and tombstones from the facts. Several posts of one author are read together.
    pub(super) async fn posts_of_facts(&self, ids: &[PostId]) -> Result<Vec<Post>> {
        let mut by_author: BTreeMap<UserId, Vec<Seq>> = BTreeMap::new();
        for id in ids {
            by_author.entry(id.author).or_default().push(id.seq);
        }
        let (many, few): (Vec<_>, Vec<_>) = by_author.into_iter().partition(|(_, seqs)| seqs.len() >= MANY_POSTS);
        let few: Vec<PostId> = few.iter().flat_map(|(author, seqs)| seqs.iter().map(|&seq| PostId::new(*author, seq))).collect();
        let many = many.into_iter().map(async |(author, mut seqs)| {
            seqs.sort_unstable_by(|a, b| b.cmp(a));
            self.stores.facts.posts_of(author, &seqs).await
        });
        let (few, many) = futures::try_join!(self.stores.facts.posts(&few), try_join_all(many))?;
        Ok(few.into_values().chain(many.into_iter().flatten()).collect())
    }

    /// Returns heads from the facts, and stores them in Redis unless another process does.
    pub(super) async fn heads_of_facts(&self, authors: &[UserId]) -> Result<HashMap<UserId, AuthorHead>> {
        if authors.is_empty() {
            return Ok(HashMap::new());
        }
        let (views, token) = (&self.stores.views, (self.stores.random)());
        let leased = logged!(views.lease_heads(authors, token).await, "heads not leased").unwrap_or_default();
        let heads = self.stores.facts.heads(authors).await?;
        let filled: Vec<(UserId, AuthorHead)> =
            leased.into_iter().map(|author| (author, heads.get(&author).cloned().unwrap_or_default())).collect();
        logged!(views.fill_heads(&filled, token).await, "heads not stored");
        Ok(heads)
    }

    /// Stores the times of these authors' newest posts, so that other readers do not read the posts.
    pub(super) async fn store_times(&self, read: BTreeSet<UserId>, authors: &Authors) {
        for author in read.into_iter().take(MOST_STORED) {
            let Some(head) = authors.heads.get(&author) else { continue };
            logged!(self.store_times_of(author, head, authors.times.get(&author)).await, "times not stored", %author);
        }
    }

    async fn store_times_of(&self, author: UserId, head: &AuthorHead, known: Option<&PostTimes>) -> Result<()> {
        let (views, token) = (&self.stores.views, (self.stores.random)());
        if !views.lease_times(author, token).await? {
            return Ok(());
        }
        let newer = |known: &PostTimes| head.feed_seqs(known.upto, head.latest_seq, MOST_TIMES);
        let (mut times, mut seqs) = known.map_or_else(Default::default, |known| (known.clone(), newer(known)));
        if known.is_none() || seqs.len() == MOST_TIMES {
            seqs = head.feed_seqs(0, head.latest_seq, MOST_TIMES);
            let above = seqs.last().filter(|_| seqs.len() == MOST_TIMES).map_or(0, |oldest| oldest - 1);
            times = PostTimes { above, ..PostTimes::default() };
        }
        let posts = self.stores.facts.posts_of(author, &seqs).await?;
        // The head may be older than a deletion, but no item of a post is missing unless its author is erased.
        if posts.len() < seqs.len() {
            return Ok(());
        }
        let live = posts.iter().rev().filter(|post| post.is_in_feeds()).map(|post| (post.id.seq, post.created_at));
        views.store_times(author, &times.with(head.latest_seq, live), token).await
    }
}

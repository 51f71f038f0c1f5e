//! Updates of one reader's view after a change of an edge or a read state.

use tidemark_domain::{AuthorState, Edge, FeedKey, PostId, StoreError, UserId, store::Result};
use tidemark_views::{Gate, Rebuild, Seed};

use super::{
    PairFacts, Readers,
    merge::Source,
    shared::{HeadsFrom, Places},
};

/// The number of times that facts that changed during an update are loaded again.
const ROUNDS: usize = 8;

impl Readers {
    /// Makes the view agree with the edges between a reader and these authors: opens the gate for followed authors and
    /// merges their facts, and removes the others. The result depends on the facts alone, so any number of these
    /// updates may run, in any order. Does nothing if there is no view.
    pub async fn sync(&self, user: UserId, authors: &[UserId]) -> Result<()> {
        let edges = self.stores.facts.edges(user, authors).await?.into_values().collect();
        self.sync_edges(user, edges).await
    }

    /// The same for edges that were just read or written. Edges that are older than those in the view change nothing.
    pub async fn sync_edges(&self, user: UserId, mut edges: Vec<Edge>) -> Result<()> {
        let mut heads = HeadsFrom::Views;
        for _ in 0..ROUNDS {
            let authors: Vec<UserId> = edges.iter().map(|edge| edge.author).collect();
            let (live, gone): (Vec<Edge>, Vec<Edge>) = edges.into_iter().partition(|edge| edge.following);
            // Redis stores marks of an author separately while the reader does not follow the author; after a follow,
            // they are in the author's field. The author's own marks know whether this user blocks the author.
            let gone_pairs = gone.iter().map(|tombstone| (tombstone.author, user));
            let pairs: Vec<(UserId, UserId)> = authors.iter().map(|&author| (user, author)).chain(gone_pairs).collect();
            self.stores.views.forget_marks(&pairs).await?;
            for tombstone in &gone {
                self.stores.views.drop_author(tombstone).await?;
            }
            if live.is_empty() {
                return Ok(());
            }
            let Some(opened) = self.stores.views.open_gate(user, &live).await? else { return Ok(()) };
            let mut again = Vec::new();
            for (edge, opened) in live.iter().zip(opened) {
                match opened {
                    Gate::Complete => {}
                    Gate::Stale => again.push(edge.author),
                    Gate::Opening => match self.author_seed(user, edge, heads).await? {
                        None => again.push(edge.author),
                        Some(seed) => match self.stores.views.seed(user, &seed).await? {
                            None => return Ok(()),
                            Some(stale) => again.extend(stale),
                        },
                    },
                }
            }
            if again.is_empty() {
                return Ok(());
            }
            // The view knows more than a seed from before.
            heads = HeadsFrom::Facts;
            let (mut known, now) = (self.stores.facts.edges(user, &again).await?, self.stores.clock.now());
            // Without an edge, an erasure has removed the follow and its tombstone.
            let of = |edge: Edge| known.remove(&edge.author).unwrap_or_else(|| edge.ended(now));
            edges = live.into_iter().filter(|edge| again.contains(&edge.author)).map(of).collect();
        }
        Err(StoreError::Contention { operation: "sync" })
    }

    /// Updates the view after a change of a read state. May be repeated after an error.
    pub async fn sync_reads(&self, user: UserId, author: UserId) -> Result<()> {
        for _ in 0..ROUNDS {
            let pair = self.pair(user, author).await?;
            if pair.live_edge().is_none() {
                self.stores.views.forget_marks(&[(user, author)]).await?;
            }
            if self.seed_reads(user, &[&pair]).await?.is_empty() {
                return Ok(());
            }
            self.sync(user, &[author]).await?;
        }
        // A view that repeatedly claims to know more than the facts is damaged.
        self.rebuild(user, Rebuild::Anew).await.map(|_| ())
    }

    /// Updates the view from the read states of these facts. May be repeated after an error.
    pub(crate) async fn show_reads(&self, user: UserId, pairs: &[&PairFacts]) -> Result<()> {
        let unfollowed: Vec<UserId> = pairs.iter().filter(|pair| pair.live_edge().is_none()).map(|pair| pair.author).collect();
        if !unfollowed.is_empty() {
            self.sync(user, &unfollowed).await?;
            let marks: Vec<(UserId, UserId)> = unfollowed.iter().map(|&author| (user, author)).collect();
            self.stores.views.forget_marks(&marks).await?;
        }
        for author in self.seed_reads(user, pairs).await? {
            self.sync_reads(user, author).await?;
        }
        Ok(())
    }

    /// Merges these read states into the view. Returns authors whose field is newer or missing.
    async fn seed_reads(&self, user: UserId, pairs: &[&PairFacts]) -> Result<Vec<UserId>> {
        let state = |pair: &&PairFacts| {
            let edge = pair.live_edge()?;
            Some((edge.author, AuthorState::undelivered(edge, &pair.head, &pair.reads)))
        };
        let authors: Vec<(UserId, AuthorState)> = pairs.iter().filter_map(state).collect();
        if authors.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.stores.views.seed(user, &Seed { authors, ..Seed::default() }).await?.unwrap_or_default())
    }

    /// Returns the facts of one followed author; `None` if the edge has changed. State and entries come from the same
    /// head. So each live post that the state counts as delivered is in the entries or, if there are more posts than
    /// a view stores, below `low`. The view's low end rises to `low`, and posts below it come from the facts. Of a
    /// muted author there are no entries. The gate is open.
    pub(super) async fn author_seed(&self, user: UserId, edge: &Edge, heads: HeadsFrom) -> Result<Option<Seed>> {
        let authors = [edge.author];
        let (mut known, edges, reads) = futures::try_join!(
            self.authors(&authors, heads),
            self.stores.facts.edges(user, &authors),
            self.stores.facts.reads(user, &authors),
        )?;
        self.renew_heads(&mut known, std::slice::from_ref(edge), &reads).await?;
        let current = edges.get(&edge.author).filter(|current| current.following && current.rev == edge.rev);
        let (Some(edge), head) = (current, known.heads.get(&edge.author).cloned().unwrap_or_default()) else { return Ok(None) };
        let state = AuthorState::from_facts(edge, &head, &reads.get(&edge.author).cloned().unwrap_or_default());
        let most = if edge.muted.is_some() { 0 } else { self.feed_cap.filled() };
        let newest = head.feed_seqs(edge.floor, head.latest_seq, most);
        let places = Places::new(&self.stores.facts, &known);
        let entries = places.load(edge.author, &newest).await?;
        let top = FeedKey { at: head.latest_at, post: PostId::new(edge.author, head.latest_seq) };
        let low = (newest.len() == self.feed_cap.filled()).then(|| entries.last().copied().unwrap_or(top));
        self.store_times(places.read(), &known).await;
        Ok(Some(Seed { authors: vec![(edge.author, state)], entries, token: None, low }))
    }
}

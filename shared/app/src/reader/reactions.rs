//! A reader's reactions to the posts of a page; pages of the posts that a reader likes, or has as favorites; and
//! pages of the users who have reacted to a post.

use std::collections::{BTreeSet, HashMap};

use tidemark_domain::{
    Blocks, Card, FeedKey, Post, PostId, PostState, PostSummary, Reaction, ReactionState, Relation, Seen, UserId, Viewer,
    store::Result,
    visibility::{may_see, retain_seen},
};
use tidemark_facts::reposts::Reposter;
use tidemark_views::{KnownPage, KnownReactions, PageParts};

use super::{Body, FeedItem, Origin, Readers, sight::Sight, unless_failed};
use crate::cut;

/// A page, newest reaction first.
#[derive(Debug, Clone)]
pub struct ReactedPage {
    /// Live posts. A page may be short because posts were deleted, or because the reader may not see some.
    pub items: Vec<FeedItem>,
    /// The next page begins below this reaction. `None` only at the end.
    pub next: Option<FeedKey>,
    pub cards: HashMap<UserId, Option<Card>>,
    pub bodies: HashMap<PostId, Body>,
    pub degraded: bool,
}

/// Users who have reacted to a post, or repost it, newest first.
#[derive(Debug, Clone)]
pub struct ReactorsPage<T> {
    /// A page may be short because of blocks between a user and the reader.
    pub items: Vec<T>,
    /// The next page begins below this entry. `None` only at the end.
    pub next: Option<Relation>,
}

impl Readers {
    /// Returns the live post that a request of this viewer for `id` means: the original of a repost, or `id` itself.
    pub async fn live_target(&self, viewer: Viewer, id: PostId) -> Result<Seen<PostId>> {
        let (facts, ids) = (&self.stores.facts, [id]);
        let (posts, standing) = futures::try_join!(facts.posts(&ids), facts.standing(viewer, id.author))?;
        let post = posts.get(&id);
        if let Err(withheld) = may_see(post.map_or(PostState::Gone, Post::state), standing) {
            return Ok(Err(withheld));
        }
        match post.and_then(Post::reposted) {
            Some(original) => Box::pin(self.live_target(viewer, original)).await,
            None => Ok(Ok(id)),
        }
    }

    /// Returns one page of the users who have reacted to a live post, below `before`, from the facts.
    pub async fn likers_page(
        &self,
        viewer: Viewer,
        id: PostId,
        reaction: Reaction,
        before: Option<Relation>,
        limit: usize,
    ) -> Result<Seen<ReactorsPage<Relation>>> {
        let id = match self.live_target(viewer, id).await? {
            Ok(id) => id,
            Err(withheld) => return Ok(Err(withheld)),
        };
        let likers = self.stores.facts.likers(id, reaction, before, limit + 1).await?;
        self.reactors_page(viewer, likers, limit, |liker| *liker).await.map(Ok)
    }

    /// The same of the users who repost it.
    pub async fn reposters_page(
        &self,
        viewer: Viewer,
        id: PostId,
        before: Option<Relation>,
        limit: usize,
    ) -> Result<Seen<ReactorsPage<Reposter>>> {
        let id = match self.live_target(viewer, id).await? {
            Ok(id) => id,
            Err(withheld) => return Ok(Err(withheld)),
        };
        let reposters = self.stores.facts.reposters(id, before, limit + 1).await?;
        self.reactors_page(viewer, reposters, limit, |reposter| reposter.by).await.map(Ok)
    }

    /// Cuts the items at the end of a page, and leaves out those of users in a block with the viewer.
    async fn reactors_page<T: Clone>(
        &self,
        viewer: Viewer,
        mut items: Vec<T>,
        limit: usize,
        by: fn(&T) -> Relation,
    ) -> Result<ReactorsPage<T>> {
        let next = cut(&mut items, limit).map(|last| by(&last));
        let users: Vec<UserId> = items.iter().map(|item| by(item).user).collect();
        let blocks = self.stores.facts.blocks_between(viewer.user, &users).await?;
        items.retain(|item| !blocks.get(&by(item).user).copied().is_some_and(Blocks::are_apart));
        Ok(ReactorsPage { items, next })
    }

    /// Returns a user's reactions to an author's posts, from the facts.
    pub(crate) async fn reactions_to(&self, user: UserId, author: UserId) -> Result<ReactionState> {
        Ok(self.stores.facts.reactions(user, &[author]).await?.remove(&author).unwrap_or_default())
    }

    /// Updates the view of a user's reactions to one author from the facts. May be repeated.
    pub async fn sync_reactions(&self, user: UserId, author: UserId) -> Result<()> {
        match self.stores.facts.reactions(user, &[author]).await?.remove(&author) {
            Some(state) => self.stores.views.change_reactions(user, author, &state).await,
            // An erasure has removed them, and with them the version, without which nothing replaces what the view has.
            None => self.stores.views.clear_reactions(user).await,
        }
    }

    /// Returns the reader's reactions to the authors of these posts. `known` is what the view returned; `None` if the
    /// posts come from the facts. Missing reactions are read at once from the facts, and stored for the next page.
    pub(super) async fn reactions_of_page(
        &self,
        user: UserId,
        posts: &[PostSummary],
        known: Option<KnownReactions>,
    ) -> Result<HashMap<UserId, ReactionState>> {
        let view = known.as_ref().map(|known| known.token);
        let mut of = known.unwrap_or_default().of;
        let authors: BTreeSet<UserId> =
            posts.iter().map(|post| post.id.author).filter(|author| !of.contains_key(author)).collect();
        if authors.is_empty() {
            return Ok(of);
        }
        // The view is opened before the facts are read. If it is lost in between, the facts are not stored.
        let token = match view {
            Some(None) => {
                let opened = self.stores.views.open_reactions(user, (self.stores.random)()).await;
                logged!(opened, "reactions not stored", %user)
            }
            view => view.flatten(),
        };
        let authors: Vec<UserId> = authors.into_iter().collect();
        let mut found = self.stores.facts.reactions(user, &authors).await?;
        for author in authors {
            // An empty state is stored, too: it saves the next read.
            found.entry(author).or_default();
        }
        if let Some(token) = token {
            logged!(self.stores.views.fill_reactions(user, token, &found).await, "reactions not stored", %user);
        }
        of.extend(found);
        Ok(of)
    }

    /// Returns one page below `before`.
    pub async fn reacted_page(
        &self,
        viewer: impl Into<Viewer>,
        reaction: Reaction,
        before: Option<FeedKey>,
        limit: usize,
        parts: PageParts,
    ) -> Result<ReactedPage> {
        let viewer = viewer.into();
        let reader = viewer.user;
        // One more than requested shows whether there is a next page.
        let mut keys = self.stores.facts.reacted(reader, reaction, before, limit + 1).await?;
        let mut next = cut(&mut keys, limit);
        let ids: Vec<PostId> = keys.iter().map(|key| key.post).collect();
        let known = self.outage.checked(self.stores.views.known_page(reader, &ids, parts)).await;
        let (known, degraded) = unless_failed(reader, known)?;
        let KnownPage { summaries, reactions, cards, texts, counts } = known.unwrap_or_default();
        let (mut posts, _) = self.fill_summaries(&ids, summaries).await?;
        let reactions = self.reactions_of_page(reader, &posts, (!degraded).then_some(reactions)).await?;
        let (bodies, shortened) = self.bodies(viewer, parts, &mut posts, Some((texts, counts))).await?;
        if shortened {
            next = keys.into_iter().find(|key| posts.last().is_some_and(|post| post.id == key.post));
        }
        let snapshot = self.snapshot(reader).await?;
        let degraded = degraded || snapshot.origin == Origin::Degraded;
        let followed = |PostId { author, seq }: PostId| snapshot.state.authors.get(&author).filter(|state| state.knows(seq));
        let others: BTreeSet<UserId> =
            posts.iter().filter(|post| followed(post.id).is_none()).map(|post| post.id.author).collect();
        let mut sights: HashMap<UserId, Sight> = HashMap::new();
        for author in others {
            sights.insert(author, self.sight_of_facts(viewer, author).await?);
        }
        retain_seen(&mut posts, |author| sights.get(&author).map(|sight| sight.standing).unwrap_or_default());
        let nothing = ReactionState::default();
        let item = |post: PostSummary| {
            let PostId { author, seq } = post.id;
            let read = followed(post.id).map_or_else(|| sights[&author].is_read(seq), |state| state.is_settled(seq));
            FeedItem::new(post, read, reactions.get(&author).unwrap_or(&nothing))
        };
        let items = posts.into_iter().map(item).collect();
        Ok(ReactedPage { items, next, cards, bodies, degraded })
    }
}

//! [`Stores`]: all ports, as the use cases share them.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;

use crate::ports::{
    Clock, Edges, HeadViews, NoticeViews, Notices, Outages, PostViews, Posts, ProgressViews, ReactionViews, Reactions,
    ReaderViews, Reads, RelationViews, TaskQueue,
};

/// Facts, views, queue, and what is injected of the outside world. Clones share the adapters.
#[derive(Clone)]
pub struct Stores {
    /// Follow edges.
    pub edges: Arc<dyn Edges>,
    /// Posts, heads, and the state of fan-outs.
    pub posts: Arc<dyn Posts>,
    /// Read states.
    pub reads: Arc<dyn Reads>,
    /// Likes and favorites.
    pub reactions: Arc<dyn Reactions>,
    /// Notices and their read states.
    pub notices: Arc<dyn Notices>,
    /// The note of an outage of Redis.
    pub outages: Arc<dyn Outages>,
    /// Feeds and read states of live readers.
    pub reader_views: Arc<dyn ReaderViews>,
    /// Heads of authors whose readers pull.
    pub head_views: Arc<dyn HeadViews>,
    /// Summaries of posts.
    pub post_views: Arc<dyn PostViews>,
    /// Readers' reactions.
    pub reaction_views: Arc<dyn ReactionViews>,
    /// Cached relation lists and counters.
    pub relation_views: Arc<dyn RelationViews>,
    /// Heads of platforms and read states of notices.
    pub notice_views: Arc<dyn NoticeViews>,
    /// Progress of fan-outs.
    pub progress: Arc<dyn ProgressViews>,
    /// Tasks for the workers.
    pub queue: Arc<dyn TaskQueue>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Random numbers, for tokens of leases and rebuilds.
    pub random: fn() -> u64,
    /// Sleeps.
    pub wait: fn(Duration) -> BoxFuture<'static, ()>,
}

impl Stores {
    /// Adapters that implement every port of their store.
    pub fn new<F, V>(
        facts: Arc<F>,
        views: Arc<V>,
        queue: Arc<dyn TaskQueue>,
        clock: Arc<dyn Clock>,
        random: fn() -> u64,
        wait: fn(Duration) -> BoxFuture<'static, ()>,
    ) -> Self
    where
        F: Edges + Posts + Reads + Reactions + Notices + Outages + 'static,
        V: ReaderViews + HeadViews + PostViews + ReactionViews + RelationViews + NoticeViews + ProgressViews + 'static,
    {
        Self {
            edges: facts.clone(),
            posts: facts.clone(),
            reads: facts.clone(),
            reactions: facts.clone(),
            notices: facts.clone(),
            outages: facts,
            reader_views: views.clone(),
            head_views: views.clone(),
            post_views: views.clone(),
            reaction_views: views.clone(),
            relation_views: views.clone(),
            notice_views: views.clone(),
            progress: views,
            queue,
            clock,
            random,
            wait,
        }
    }

    /// Begins the attempts of one optimistic write.
    pub fn retries(&self) -> crate::retry::Retries {
        crate::retry::Retries::begin(self.wait, self.random)
    }
}

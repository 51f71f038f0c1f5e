//! [`Stores`]: the ports that the use cases share. `App` holds the other one, `Failures`.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;

use crate::{
    Recorder,
    ports::{
        AuthorLists, CardViews, Clock, Edges, ErasureViews, Erasures, HeadViews, Identities, IdentityViews, LimitViews,
        LiveQueue, LiveViews, Metrics, NoticeViews, Notices, Outages, PostViews, Posts, Profiles, ProgressViews, ReactionViews,
        Reactions, ReaderViews, Reads, RelationViews, TaskQueue,
    },
};

/// Facts, views, queue, clock, metrics, random numbers and sleep. Clones share the adapters.
#[derive(Clone)]
pub struct Stores {
    pub edges: Arc<dyn Edges>,
    pub lists: Arc<dyn AuthorLists>,
    pub posts: Arc<dyn Posts>,
    pub reads: Arc<dyn Reads>,
    pub reactions: Arc<dyn Reactions>,
    pub notices: Arc<dyn Notices>,
    pub outages: Arc<dyn Outages>,
    pub profiles: Arc<dyn Profiles>,
    pub identities: Arc<dyn Identities>,
    pub erasures: Arc<dyn Erasures>,
    pub reader_views: Arc<dyn ReaderViews>,
    pub head_views: Arc<dyn HeadViews>,
    pub post_views: Arc<dyn PostViews>,
    pub reaction_views: Arc<dyn ReactionViews>,
    pub relation_views: Arc<dyn RelationViews>,
    pub notice_views: Arc<dyn NoticeViews>,
    pub card_views: Arc<dyn CardViews>,
    pub identity_views: Arc<dyn IdentityViews>,
    pub limit_views: Arc<dyn LimitViews>,
    pub erasure_views: Arc<dyn ErasureViews>,
    pub live_views: Arc<dyn LiveViews>,
    pub progress: Arc<dyn ProgressViews>,
    pub queue: Arc<dyn TaskQueue>,
    pub live_queue: Arc<dyn LiveQueue>,
    pub clock: Arc<dyn Clock>,
    pub recorder: Arc<Recorder>,
    /// For tokens of leases and rebuilds, and for the pauses between attempts.
    pub random: fn() -> u64,
    /// Sleeps for this duration.
    pub wait: fn(Duration) -> BoxFuture<'static, ()>,
}

impl Stores {
    /// Takes adapters that implement every port of their store.
    pub fn new<F, V>(
        facts: Arc<F>,
        views: Arc<V>,
        (queue, live_queue): (Arc<dyn TaskQueue>, Arc<dyn LiveQueue>),
        clock: Arc<dyn Clock>,
        lines: Arc<dyn Metrics>,
        random: fn() -> u64,
        wait: fn(Duration) -> BoxFuture<'static, ()>,
    ) -> Self
    where
        F: Edges + AuthorLists + Posts + Reads + Reactions + Notices + Outages + Profiles + Identities + Erasures + 'static,
        V: ReaderViews
            + HeadViews
            + PostViews
            + ReactionViews
            + RelationViews
            + NoticeViews
            + CardViews
            + IdentityViews
            + LimitViews
            + ErasureViews
            + LiveViews
            + ProgressViews
            + 'static,
    {
        Self {
            edges: facts.clone(),
            lists: facts.clone(),
            posts: facts.clone(),
            reads: facts.clone(),
            reactions: facts.clone(),
            notices: facts.clone(),
            outages: facts.clone(),
            profiles: facts.clone(),
            identities: facts.clone(),
            erasures: facts,
            reader_views: views.clone(),
            head_views: views.clone(),
            post_views: views.clone(),
            reaction_views: views.clone(),
            relation_views: views.clone(),
            notice_views: views.clone(),
            card_views: views.clone(),
            identity_views: views.clone(),
            limit_views: views.clone(),
            erasure_views: views.clone(),
            live_views: views.clone(),
            progress: views,
            queue,
            live_queue,
            recorder: Arc::new(Recorder::new(lines, clock.clone())),
            clock,
            random,
            wait,
        }
    }

    /// Starts the attempts of one optimistic change.
    pub(crate) fn attempts(&self, operation: &'static str) -> crate::retry::Attempts {
        crate::retry::Attempts::begin(operation, self.wait, self.random)
    }
}

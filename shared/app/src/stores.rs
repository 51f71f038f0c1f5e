//! [`Stores`]: the ports that the use cases share. The port `Failures` is not among them: `App` holds it.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;

use crate::{
    Recorder,
    ports::{
        AuthorLists, CardViews, Clock, Edges, ErasureViews, Erasures, HeadViews, Identities, IdentityViews, LimitViews,
        LiveQueue, LiveViews, Metrics, NoticeViews, Notices, Outages, PostViews, Posts, Profiles, ProgressViews, ReactionViews,
        Reactions, ReaderViews, Reads, Records, RelationViews, TaskQueue,
    },
};

/// Declares [`Stores`] with the ports that the adapter of the facts implements, and those of the views.
macro_rules! stores {
    (facts: { $($fact:ident: $Fact:ident),* $(,)? }, views: { $($view:ident: $View:ident),* $(,)? }) => {
        /// Facts, views, queue, clock, metrics, random numbers and sleep. Clones share the adapters.
        #[derive(Clone)]
        pub struct Stores {
            $(pub $fact: Arc<dyn $Fact>,)*
            $(pub $view: Arc<dyn $View>,)*
            pub queue: Arc<dyn TaskQueue>,
            pub live_queue: Arc<dyn LiveQueue>,
            pub clock: Arc<dyn Clock>,
            pub recorder: Arc<Recorder>,
            /// For tokens of leases and rebuilds, and for the pauses between attempts.
            pub random: fn() -> u64,
            pub wait: fn(Duration) -> BoxFuture<'static, ()>,
        }

        impl Stores {
            pub fn new<Facts: $($Fact +)* 'static, Views: $($View +)* 'static>(
                facts: Arc<Facts>,
                views: Arc<Views>,
                (queue, live_queue): (Arc<dyn TaskQueue>, Arc<dyn LiveQueue>),
                clock: Arc<dyn Clock>,
                lines: Arc<dyn Metrics>,
                random: fn() -> u64,
                wait: fn(Duration) -> BoxFuture<'static, ()>,
            ) -> Self {
                let recorder = Arc::new(Recorder::new(lines, clock.clone()));
                Self {
                    $($fact: facts.clone(),)*
                    $($view: views.clone(),)*
                    queue, live_queue, clock, recorder, random, wait,
                }
            }
        }
    };
}

stores! {
    facts: {
        edges: Edges, lists: AuthorLists, posts: Posts, reads: Reads, reactions: Reactions, notices: Notices, outages: Outages,
        records: Records, profiles: Profiles, identities: Identities, erasures: Erasures,
    },
    views: {
        reader_views: ReaderViews, head_views: HeadViews, post_views: PostViews, reaction_views: ReactionViews,
        relation_views: RelationViews, notice_views: NoticeViews, card_views: CardViews, identity_views: IdentityViews,
        limit_views: LimitViews, erasure_views: ErasureViews, live_views: LiveViews, progress: ProgressViews,
    }
}

impl Stores {
    pub(crate) fn attempts(&self, operation: &'static str) -> crate::retry::Attempts {
        crate::retry::Attempts::begin(operation, self.wait, self.random)
    }
}

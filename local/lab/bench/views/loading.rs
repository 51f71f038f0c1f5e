//! Fills Tidemark's views as the system does: a rebuild from facts, or deliveries one post at a time.

use anyhow::ensure;
use tidemark::{
    domain::{Modes, UserId},
    views::{Begun, Rebuild, Seed, Views},
};

use crate::world::{Facts, World};

const TOKEN: u64 = 0x0123_4567_89ab_cdef;

/// The way in which views are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A rebuild from facts after all posts are published.
    Seeded,
    /// A rebuild from facts at the follow, then one delivery for each post.
    Delivered,
}

pub(super) async fn load(views: &Views, world: &World, origin: Origin) -> anyhow::Result<()> {
    let posts = if origin == Origin::Seeded { world.posts_of_each } else { 0 };
    for &user in &world.readers {
        rebuild(views, world, user, world.facts(user, posts)).await?;
    }
    if origin == Origin::Delivered {
        for post in world.posts() {
            let reached = views.deliver(&world.readers, post, Modes::default(), false).await?.reached;
            ensure!(reached == world.readers.len() as u64, "{} reached {reached} readers", post.post);
        }
    }
    Ok(())
}

/// The steps of `Readers::rebuild`, with these facts.
async fn rebuild(views: &Views, world: &World, user: UserId, facts: Facts) -> anyhow::Result<()> {
    let Facts { edges, authors, entries, low } = facts;
    ensure!(views.begin_rebuild(user, TOKEN, world.now(), Rebuild::Anew).await? == Begun::Begun, "no rebuild begun");
    ensure!(views.open_gate(user, &edges).await?.is_some(), "no view to open_gate authors to");
    let seed = Seed { authors, entries, token: Some(TOKEN), low };
    ensure!(views.seed(user, &seed).await? == Some(Vec::new()), "facts refused");
    ensure!(views.finish_rebuild(user, TOKEN, world.now()).await?, "rebuild not finished");
    Ok(())
}

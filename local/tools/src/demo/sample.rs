//! The people of the demo and what they do. The page of the local stack fills itself with the same.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The page serves this file.
const SAMPLE: &str = include_str!("../../../stack/src/gateway/page/sample.json");

#[derive(Debug, Deserialize)]
pub(super) struct Sample {
    /// Two readers, then three authors.
    pub people: Vec<Profile>,
    /// Whom each of them follows, by name.
    #[serde(borrow)]
    pub follows: BTreeMap<&'static str, Vec<&'static str>>,
    pub posts: Vec<Post>,
    /// Who likes which of the posts.
    pub likes: Vec<(&'static str, usize)>,
    pub comments: Vec<(&'static str, usize, &'static str)>,
}

/// The page sets the handle too. The demo cannot: its users are new each time.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Profile {
    pub name: &'static str,
    pub bio: &'static str,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Post {
    pub author: &'static str,
    pub title: &'static str,
    pub body: &'static str,
}

impl Sample {
    pub(super) fn load() -> serde_json::Result<Self> {
        serde_json::from_str(SAMPLE)
    }
}

//! Compares the followees that two users have in common, and the followers of one whom the other knows, with the edge
//! file, for all pairs of some users.

use std::{collections::BTreeSet, fmt, path::Path};

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};

use super::{
    graph::Graph,
    run::{Options, PAGE},
};
use crate::{
    api::{Api, Call},
    progress::Progress,
    text::thousands,
};

/// The number of compared lists, and those that differ.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pairs: u64,
    entries: u64,
    /// The first differences.
    first: Vec<String>,
    different: u64,
}

/// The largest number of differences that a report quotes.
const QUOTED: usize = 10;

/// The length of a list, and how it differs from the graph.
type List = (u64, Option<String>);

impl Report {
    fn add(&mut self, lists: [List; 2]) {
        self.pairs += 1;
        for (entries, difference) in lists {
            self.entries += entries;
            self.different += u64::from(difference.is_some());
            self.first.extend(difference.filter(|_| self.first.len() < QUOTED));
        }
    }

    pub fn is_good(&self) -> bool {
        self.different == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for difference in &self.first {
            writeln!(f, "MISMATCH {difference}")?;
        }
        let [pairs, entries, different] = [self.pairs, self.entries, self.different].map(thousands);
        write!(f, "{pairs} pairs, {entries} common followees and known followers, {different} lists differ")
    }
}

/// Compares both lists of every ordered pair of the `count` most followed accounts that follow others.
pub async fn verify(api: &Api, edges: &Path, count: usize, options: &Options) -> anyhow::Result<Report> {
    let graph = Graph::read(edges, options.limit)?;
    let users = graph.most_followed_readers(count);
    let pairs = users.iter().flat_map(|&caller| users.iter().map(move |&user| (caller, user)));
    let pairs: Vec<_> = pairs.filter(|(caller, user)| caller != user).collect();
    let (mut progress, mut report) = (Progress::start("people", "pairs"), Report::default());
    let mut compared =
        stream::iter(&pairs).map(|pair| compare(api, &graph, *pair)).buffer_unordered(usize::from(options.concurrency));
    while let Some(lists) = compared.try_next().await? {
        report.add(lists);
        progress.set(report.pairs, pairs.len() as u64, "");
    }
    progress.finish();
    Ok(report)
}

async fn compare(api: &Api, graph: &Graph, (caller, user): (u64, u64)) -> anyhow::Result<[List; 2]> {
    let followees = graph.following(caller);
    let common = followees.iter().copied().filter(|author| graph.following(user).contains(author)).collect();
    let known = followees.iter().copied().filter(|followee| graph.following(*followee).contains(&user)).collect();
    let lists = futures::try_join!(
        compare_list(api, caller, format!("/v1/users/{user}/following?common=true"), common),
        compare_list(api, caller, format!("/v1/users/{user}/followers?known=true"), known),
    )?;
    Ok(lists.into())
}

async fn compare_list(api: &Api, caller: u64, path: String, expected: BTreeSet<u64>) -> anyhow::Result<List> {
    let listed = walk(api, &path, caller).await?;
    let distinct: BTreeSet<u64> = listed.iter().copied().collect();
    let differs = listed.len() != distinct.len() || distinct != expected;
    let difference = differs.then(|| format!("{path} by {caller}: {listed:?} instead of {expected:?}"));
    Ok((listed.len() as u64, difference))
}

async fn walk(api: &Api, path: &str, caller: u64) -> anyhow::Result<Vec<u64>> {
    let (mut users, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = api.fetch(Call::get(format!("{path}&limit={PAGE}{cursor}")).caller(caller), 200).await?;
        for item in page["items"].as_array().context("a page without items")? {
            users.push(item["user"].as_str().and_then(|user| user.parse().ok()).context("an item without a user")?);
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(users),
        }
    }
}

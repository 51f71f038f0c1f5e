//! Reads all pages of an author's many followers, while others come and go.

use std::{collections::HashSet, fmt, time::Duration};

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use rand::{Rng, rngs::StdRng};

use super::latency::{FRESH_IDS, follow_all};
use crate::{
    api::{Api, Call},
    status::wait_idle,
    text::{short, thousands},
};

/// Entries in a page. Small, so that there are many pages.
const PAGE: usize = 50;
/// The number of users that follow, and of users that unfollow, during the second walk.
const CHANGES: u64 = 1_000;
/// The largest offset of the API.
const LAST_OFFSET: usize = 10_000;

/// The result of the walks, and the times of pages.
#[derive(Debug, Clone)]
pub struct Report {
    followers: u64,
    quiet: Walk,
    busy: Walk,
    missed: usize,
    by_offset: Vec<(usize, Duration)>,
}

/// One walk from the first page to the last.
#[derive(Debug, Clone, Default)]
struct Walk {
    users: Vec<u64>,
    in_order: bool,
    pages: Vec<Duration>,
}

impl Walk {
    fn distinct(&self) -> usize {
        self.users.iter().collect::<HashSet<_>>().len()
    }

    fn page(&self, number: usize) -> String {
        self.pages.get(number.min(self.pages.len()) - 1).map_or_else(String::new, |took| short(*took))
    }
}

impl Report {
    /// Returns true if every follower was listed once and in order.
    pub fn is_good(&self) -> bool {
        let each_once = |walk: &Walk| walk.distinct() == walk.users.len() && walk.in_order;
        self.quiet.users.len() as u64 == self.followers && each_once(&self.quiet) && each_once(&self.busy) && self.missed == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, walk) in [("quiet", &self.quiet), ("busy", &self.busy)] {
            let (all, distinct) = (thousands(walk.users.len() as u64), thousands(walk.distinct() as u64));
            let order = if walk.in_order { "in order" } else { "OUT OF ORDER" };
            writeln!(f, "{name:<10} {} pages of {PAGE}: {all} followers, {distinct} distinct, {order}", walk.pages.len())?;
        }
        let changes = thousands(CHANGES);
        writeln!(
            f,
            "busy       {changes} followed and {changes} unfollowed during the walk; {} of the other followers were missed",
            self.missed
        )?;
        let (first, thousandth, last) = (self.quiet.page(1), self.quiet.page(1_000), self.quiet.page(usize::MAX));
        writeln!(f, "by cursor  page 1 {first}, page 1,000 {thousandth}, last page {last}")?;
        write!(f, "by offset ")?;
        for (offset, took) in &self.by_offset {
            write!(f, " {} {},", thousands(*offset as u64), short(*took))?;
        }
        Ok(())
    }
}

/// Makes `count` followers of a new author through the API and walks the list twice.
pub async fn verify(api: &Api, count: u64, idle_limit: Duration, random: &mut StdRng) -> anyhow::Result<Report> {
    let author = FRESH_IDS + random.random_range(0..1 << 40);
    let path = format!("/v1/following/{author}");
    let first = author + 1;
    follow_all(api, (first..first + count).map(|user| (user, author)).collect()).await?;
    wait_idle(api, idle_limit).await?;

    let quiet = walk(api, author).await?;
    let mut by_offset = Vec::new();
    for offset in [0, 1_000, LAST_OFFSET / 2, LAST_OFFSET] {
        let call = Call::get(format!("/v1/users/{author}/followers?limit={PAGE}&offset={offset}")).caller(author);
        let response = api.once(&call).await.with_context(|| call.to_string())?;
        by_offset.push((offset, response.took));
    }

    let step = (count / CHANGES).max(1);
    let leavers: HashSet<u64> = (0..CHANGES.min(count)).map(|number| first + number * step).collect();
    let coming = (first + count..first + count + CHANGES).map(|user| Call::put(path.clone()).caller(user));
    let going = leavers.iter().map(|user| Call::delete(path.clone()).caller(*user));
    let calls: Vec<Call> = coming.zip(going).flat_map(|(come, go)| [come, go]).collect();
    let changes = stream::iter(calls).map(|call| api.fetch(call, 200)).buffer_unordered(2).try_collect::<Vec<_>>();
    let (busy, _) = futures::try_join!(walk(api, author), changes)?;
    let seen: HashSet<&u64> = busy.users.iter().collect();
    let missed = (first..first + count).filter(|user| !leavers.contains(user) && !seen.contains(user)).count();
    Ok(Report { followers: count, quiet, busy, missed, by_offset })
}

async fn walk(api: &Api, author: u64) -> anyhow::Result<Walk> {
    let mut walk = Walk { in_order: true, ..Walk::default() };
    let mut cursor = String::new();
    let mut last: Option<(String, u64)> = None;
    loop {
        let call = Call::get(format!("/v1/users/{author}/followers?limit={PAGE}{cursor}")).caller(author);
        let (page, took) = api.timed(&call, 200).await?;
        walk.pages.push(took);
        for item in page["items"].as_array().context("a page without items")? {
            let user: u64 = item["user"].as_str().and_then(|user| user.parse().ok()).context("an item without a user")?;
            let key = (item["since"].as_str().unwrap_or_default().to_owned(), user);
            walk.in_order &= last.as_ref().is_none_or(|last| key < *last);
            last = Some(key);
            walk.users.push(user);
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(walk),
        }
    }
}

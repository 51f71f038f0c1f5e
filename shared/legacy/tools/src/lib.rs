//! Compares a sample of users between the running stack and a legacy Redis.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt, stream};
use rand::{SeedableRng, rngs::StdRng, seq::IteratorRandom};
use redis::{AsyncCommands, aio::MultiplexedConnection};

use tidemark_tools::{
    api::{Api, Call},
    text::time,
    verify::feed::{escaped, millis, number, walk},
};

/// The longest wait for a reply of the legacy Redis.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Users that are compared concurrently.
const PARALLEL: usize = 4;
/// The number of examples that are kept for each kind.
const EXAMPLES: usize = 5;
/// Keys of users, whose ids follow.
const OF_USERS: [&str; 5] = ["u_follow:", "uf:flws:", "follows:", "user:read:", "author:blogs:"];
/// Items of a page.
const PAGE: u32 = 100;
/// The number of blogs that are read at a time.
const BLOGS: usize = 500;

/// A post as both sides know it: time in milliseconds and title. The two sides number posts differently.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Post {
    at: i64,
    title: String,
}

impl fmt::Display for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {}", self.title, time(self.at))
    }
}

/// Which posts count as unread in the legacy system: those in its unread lists, or all from after the follow that are
/// not read. `auto` is `complement` if the legacy Redis has no `user:unread:*`, as in `migrate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Unread {
    #[default]
    Auto,
    Listed,
    Complement,
}

impl Unread {
    /// Returns the value of the option of `migrate`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Listed => "listed",
            Self::Complement => "complement",
        }
    }
}

/// A kind of difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An author whom the user follows.
    Follow,
    /// A post of the user.
    Post,
    /// An unread post of a followed author.
    Unread,
    /// The stored number of unread posts of a followed author, or its absence for zero.
    Count,
    /// A legacy read mark on a post of an author whom the user does not follow. Posts that are read here alone are no
    /// difference: an import makes posts read that the legacy system has neither read nor unread.
    Read,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Follow => "follow",
            Self::Post => "post",
            Self::Unread => "unread",
            Self::Count => "count",
            Self::Read => "read",
        })
    }
}

/// The differences of one kind.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The number of entries that the stack has and the legacy system does not. Different counts are here.
    pub only_here: u64,
    pub only_there: u64,
    pub examples: Vec<String>,
}

/// The result of a comparison.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// `None` until it is known.
    pub unread: Option<Unread>,
    pub users: u64,
    /// Entries of both sides together that were compared: follows, posts, unread posts, counts, read marks.
    pub compared: u64,
    /// Legacy blogs whose `blog:info` has expired. They cannot be matched and are left out.
    pub expired: u64,
    pub differences: BTreeMap<Kind, Found>,
}

impl Report {
    pub fn is_empty(&self) -> bool {
        self.differences.is_empty()
    }

    fn add(&mut self, other: Self) {
        self.users += other.users;
        self.compared += other.compared;
        self.expired += other.expired;
        for (kind, more) in other.differences {
            let found = self.differences.entry(kind).or_default();
            found.only_here += more.only_here;
            found.only_there += more.only_there;
            found.examples.extend(more.examples);
            found.examples.truncate(EXAMPLES);
        }
    }

    fn differs(&mut self, kind: Kind, here: bool, example: String) {
        let found = self.differences.entry(kind).or_default();
        *(if here { &mut found.only_here } else { &mut found.only_there }) += 1;
        if found.examples.len() < EXAMPLES {
            found.examples.push(format!("{example}, only {}", if here { "here" } else { "there" }));
        }
    }

    fn compare<T: Ord + fmt::Display>(&mut self, kind: Kind, of: &str, here: &BTreeSet<T>, there: &BTreeSet<T>) {
        self.compared += (here.len() + there.len()) as u64;
        here.difference(there).for_each(|one| self.differs(kind, true, format!("{of}: {one}")));
        there.difference(here).for_each(|one| self.differs(kind, false, format!("{of}: {one}")));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} users, {} entries compared, {} blogs expired", self.users, self.compared, self.expired)?;
        if let Some(rule) = self.unread {
            writeln!(f, "unread posts by the rule `{}`", rule.name())?;
        }
        for (kind, found) in &self.differences {
            writeln!(f, "{kind:<7} {} only here, {} only there", found.only_here, found.only_there)?;
            found.examples.iter().try_for_each(|example| writeln!(f, "        {example}"))?;
        }
        if self.is_empty() { f.write_str("no differences") } else { Ok(()) }
    }
}

/// Compares at most `users` users, whom `seed` selects among all that the legacy Redis has a list of.
pub async fn run(api: &Api, source: &str, users: usize, seed: u64, unread: Unread) -> anyhow::Result<Report> {
    let client = redis::Client::open(source).context("SOURCE is not a Redis URL")?;
    let address = client.get_connection_info().addr().to_string();
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(TIMEOUT));
    let legacy = client.get_multiplexed_async_connection_with_config(&config).await;
    let legacy = legacy.with_context(|| format!("the legacy Redis at {address} does not respond"))?;
    let unread = match unread {
        Unread::Auto if has_unread_lists(&legacy).await? => Unread::Listed,
        Unread::Auto => Unread::Complement,
        named => named,
    };
    let all = all_users(&legacy).await?;
    let most = users.min(all.len());
    let sample = all.into_iter().choose_multiple(&mut StdRng::seed_from_u64(seed), most);
    let compared = stream::iter(sample).map(|user| compare(api, legacy.clone(), user, unread)).buffer_unordered(PARALLEL);
    compared
        .try_fold(Report { unread: Some(unread), ..Report::default() }, async |mut all, one| {
            all.add(one);
            Ok(all)
        })
        .await
}

async fn all_users(legacy: &MultiplexedConnection) -> anyhow::Result<BTreeSet<u64>> {
    let mut users = BTreeSet::new();
    for prefix in OF_USERS {
        let mut connection = legacy.clone();
        let mut keys = connection.scan_match::<_, String>(format!("{prefix}*")).await?;
        while let Some(key) = keys.next_item().await {
            users.extend(key?.strip_prefix(prefix).and_then(|id| id.parse::<u64>().ok()));
        }
    }
    Ok(users)
}

async fn has_unread_lists(legacy: &MultiplexedConnection) -> anyhow::Result<bool> {
    let mut connection = legacy.clone();
    let mut keys = connection.scan_match::<_, String>("user:unread:*").await?;
    Ok(keys.next_item().await.transpose()?.is_some())
}

async fn compare(api: &Api, mut legacy: MultiplexedConnection, user: u64, rule: Unread) -> anyhow::Result<Report> {
    let mut report = Report { users: 1, ..Report::default() };
    let lists = [format!("u_follow:{user}"), format!("uf:flws:{user}")];
    let mut there = BTreeSet::<u64>::new();
    for list in &lists {
        there.extend(legacy.zrange::<_, Vec<u64>>(list, 0, -1).await?);
    }
    there.extend(legacy.smembers::<_, Vec<u64>>(format!("follows:{user}")).await?);
    let since = following(api, user).await?;
    let here: BTreeSet<u64> = since.keys().copied().collect();
    report.compare(Kind::Follow, &format!("user {user}"), &here, &there);

    let blogs: BTreeSet<u64> = legacy.smembers(format!("author:blogs:{user}")).await?;
    let posts = timeline(api, user, user, "all").await?.into_iter().map(|(post, _)| post).collect();
    let blogs = infos(&mut legacy, &blogs, &mut report).await?.into_iter().map(|(_, post)| post).collect();
    report.compare(Kind::Post, &format!("author {user}"), &posts, &blogs);

    let mut read: BTreeSet<u64> = legacy.smembers(format!("user:read:{user}")).await?;
    read.extend(legacy.zrange::<_, Vec<u64>>(format!("blog:read:{user}"), 0, -1).await?);
    let counts: BTreeMap<u64, u64> = legacy.hgetall(format!("user:unread:count:{user}")).await?;
    let unread = unread_of(api, user).await?;
    for author in here.intersection(&there) {
        let of = format!("user {user} author {author}");
        let is_complement = rule == Unread::Complement;
        let list = if is_complement { format!("author:blogs:{author}") } else { format!("user:unread:{user}:{author}") };
        let marked: BTreeSet<u64> = legacy.smembers(list).await?;
        let marked = marked.difference(&read).copied().collect();
        let marked = infos(&mut legacy, &marked, &mut report).await?.into_iter().map(|(_, post)| post);
        // Posts from before the follow are read under every rule.
        let (there, older): (BTreeSet<Post>, BTreeSet<Post>) = marked.partition(|post| post.at > since[author]);
        let [count, stored] = [&unread, &counts].map(|counts| counts.get(author).copied().unwrap_or(0));
        let here = match count {
            0 => BTreeSet::new(),
            _ => timeline(api, user, *author, "unread").await?.into_iter().map(|(post, _)| post).collect(),
        };
        report.compare(Kind::Unread, &of, &here, &there);
        if is_complement {
            continue;
        }
        report.compared += 1;
        let stored = stored.saturating_sub(older.len() as u64);
        if count != stored {
            report.differs(Kind::Count, true, format!("{of}: {count} here, {stored} there"));
        }
    }
    // For authors who are followed, a read post is one that is not unread.
    let mut marks: BTreeMap<u64, BTreeSet<Post>> = BTreeMap::new();
    for (author, post) in infos(&mut legacy, &read, &mut report).await? {
        if author != user && !here.contains(&author) {
            marks.entry(author).or_default().insert(post);
        }
    }
    for (author, there) in marks {
        let posts = timeline(api, user, author, "all").await?.into_iter();
        let here = posts.filter(|(post, read)| *read && there.contains(post)).map(|(post, _)| post).collect();
        report.compare(Kind::Read, &format!("user {user} author {author}"), &here, &there);
    }
    Ok(report)
}

/// The user's unread posts of each author, as the API counts them.
async fn unread_of(api: &Api, user: u64) -> anyhow::Result<BTreeMap<u64, u64>> {
    let unread = api.fetch(Call::get("/v1/unread").caller(user), 200).await?;
    let authors = unread["authors"].as_array().context("GET /v1/unread without authors")?;
    Ok(authors.iter().filter_map(|one| Some((number(&one["author"])?, one["unread"].as_u64()?))).collect())
}

/// Author, time and title of blogs. Those without `blog:info` are counted as expired.
async fn infos(
    legacy: &mut MultiplexedConnection,
    blogs: &BTreeSet<u64>,
    report: &mut Report,
) -> anyhow::Result<Vec<(u64, Post)>> {
    let mut found = Vec::new();
    let blogs: Vec<u64> = blogs.iter().copied().collect();
    for blogs in blogs.chunks(BLOGS) {
        let mut pipeline = redis::pipe();
        for blog in blogs {
            pipeline.cmd("HMGET").arg(format!("blog:info:{blog}")).arg(&["userId", "title", "createTime"]);
        }
        let infos: Vec<[Option<String>; 3]> = pipeline.query_async(legacy).await?;
        for (blog, info) in blogs.iter().zip(infos) {
            let [Some(author), Some(title), Some(at)] = info else {
                report.expired += 1;
                continue;
            };
            let unreadable = || format!("blog:info:{blog}");
            let at = at.parse::<i64>().or_else(|_| millis(&at)).with_context(unreadable)?;
            found.push((author.parse().with_context(unreadable)?, Post { at, title }));
        }
    }
    Ok(found)
}

/// The posts of an author with the caller's read flags.
async fn timeline(api: &Api, caller: u64, author: u64, status: &str) -> anyhow::Result<Vec<(Post, bool)>> {
    let posts = walk(api, caller, &format!("/v1/authors/{author}/posts?status={status}"), PAGE).await?;
    Ok(posts.items.iter().map(|item| (Post { at: item.post.at, title: item.post.title.clone() }, item.read)).collect())
}

/// The authors whom a user follows, and since when, in milliseconds.
async fn following(api: &Api, user: u64) -> anyhow::Result<BTreeMap<u64, i64>> {
    let (mut followed, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let page = api.fetch(Call::get(format!("/v1/users/{user}/following?limit={PAGE}{cursor}")).caller(user), 200).await?;
        let Some(items) = page["items"].as_array() else { bail!("following of user {user} has no items: {page}") };
        let follow = |item: &serde_json::Value| Some((number(&item["user"])?, millis(item["since"].as_str()?).ok()?));
        followed.extend(items.iter().filter_map(follow));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={}", escaped(next)),
            None => return Ok(followed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_counted_by_side_with_a_few_examples() {
        let mut report = Report::default();
        let (here, there): (BTreeSet<u64>, BTreeSet<u64>) = ((1..=10).collect(), (4..=12).collect());
        report.compare(Kind::Follow, "user 7", &here, &there);
        report.compare(Kind::Post, "author 7", &here, &here);
        let found = &report.differences[&Kind::Follow];
        assert_eq!((found.only_here, found.only_there, found.examples.len()), (3, 2, EXAMPLES));
        assert_eq!(found.examples[0], "user 7: 1, only here");
        assert_eq!((report.differences.len(), report.compared), (1, 39));
        let mut all = report.clone();
        all.add(report);
        assert_eq!((all.differences[&Kind::Follow].only_here, all.differences[&Kind::Follow].examples.len()), (6, EXAMPLES));
    }
}

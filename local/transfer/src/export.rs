//! The export of all facts. Tables are scanned in segments; what other lines rely on comes last, so that lines of a
//! stack in use rely on nothing that the file lacks.

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};

use anyhow::Context;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use serde::Serialize;
use serde_json::value::RawValue;
use tidemark_domain::{
    AuthorHead, CommentNumber, Edge, GroupId, ListId, NoticeId, NoticeReads, Platform, PostId, Profile, Reaction, ReadState,
    Reference, Seq, StoreError, Timestamp, UserId, UserLists,
};
use tidemark_facts::{
    Facts, Identity, PostTimes, Rest, Segment,
    comments::{StoredComment, read_comment},
};
use tokio::sync::{Mutex, mpsc};

use crate::{
    bar::Bar,
    line::{
        BlockLine, CommentLine, DeletedLine, Direction, ErasedLine, FavoriteLine, FollowLine, HandleLine, IdentityLine,
        InboxReadLine, Kind, LikeLine, Line, ListLine, MuteLine, NoticeLine, NoticeReadLine, PlatformLine, PostLine, ProfileLine,
        ReadLine, RepostLine, RequestLine,
    },
};

/// Parts of a table that are scanned at once.
const SEGMENTS: i32 = 8;
/// Posts of an author that are read together.
const POSTS: u64 = 100;
/// Numbers of comments that are read together.
const COMMENTS: u64 = 512;
/// Ranges of read posts in one line.
const MOST_RANGES: usize = 1_000;
/// Batches of lines that wait for the file.
const WAITING: usize = 64;

/// The report of an export.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Report {
    pub written: u64,
    /// Items that cannot be read. They are listed on stderr, and left out.
    pub damaged: u64,
    pub kinds: BTreeMap<Kind, u64>,
}

type Lines = Vec<Line>;
type Result<T> = std::result::Result<T, StoreError>;

struct Export<'a> {
    facts: &'a Facts,
    times: PostTimes,
    /// Users whose erasures are not finished. The file says that they have left.
    leaving: HashSet<UserId>,
    now: Timestamp,
    bar: Bar,
    lines: mpsc::Sender<Lines>,
    damaged: Mutex<u64>,
}

/// Exports all facts. The file appears when it is complete.
pub async fn to_file(facts: &Facts, path: &Path) -> anyhow::Result<Report> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(|| format!("cannot write to {}", folder.display()))?;
    let (sender, receiver) = mpsc::channel(WAITING);
    let out = file.as_file().try_clone()?;
    let writer = tokio::task::spawn_blocking(move || write(out, receiver));
    let mut leaving = HashSet::new();
    for part in facts.running_erasures().await? {
        leaving.extend(part?);
    }
    let bar = Bar::start("export", items(facts).await);
    let export = Export {
        facts,
        times: PostTimes::default(),
        leaving,
        now: crate::import::now(),
        bar,
        lines: sender,
        damaged: Mutex::new(0),
    };
    let done = export.all().await;
    let Export { bar, lines, damaged, .. } = export;
    drop(lines);
    let kinds = writer.await??;
    done?;
    bar.finish();
    file.as_file_mut().sync_all()?;
    file.persist(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Report { written: kinds.values().sum(), damaged: damaged.into_inner(), kinds })
}

fn write(file: File, mut lines: mpsc::Receiver<Lines>) -> anyhow::Result<BTreeMap<Kind, u64>> {
    let (mut out, mut kinds) = (BufWriter::with_capacity(1 << 20, file), BTreeMap::new());
    while let Some(lines) = lines.blocking_recv() {
        for line in lines {
            *kinds.entry(line.kind()).or_default() += 1;
            writeln!(out, "{}", line.to_json()?)?;
        }
    }
    out.flush()?;
    Ok(kinds)
}

/// About how many items the scanned tables have: DynamoDB counts them every few hours.
async fn items(facts: &Facts) -> u64 {
    let t = &facts.tables;
    let mut items = 0;
    for table in [&t.following, &t.reads, &t.reacted, &t.profiles, &t.handles, &t.identities, &t.posts, &t.notices, &t.counters] {
        let described = facts.client.describe_table().table_name(table).send().await;
        let count = described.ok().and_then(|described| described.table?.item_count);
        items += count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
    }
    items
}

/// Scans a table in segments: `some` reads the next page of one, `lines` makes lines of it.
macro_rules! scan {
    ($export:ident, $some:ident, $lines:expr) => {
        stream::iter(Segment::all(SEGMENTS).map(|mut segment| {
            async move {
                loop {
                    let read = segment.read;
                    let Some(page) = $export.facts.$some(&mut segment).await? else { return Ok::<_, anyhow::Error>(()) };
                    let mut found = Vec::with_capacity(page.len());
                    for item in page {
                        match item {
                            Ok(item) => found.push(item),
                            Err(error) => $export.damaged(&error).await,
                        }
                    }
                    let lines: Lines = $lines($export, found).await?;
                    $export.send(lines).await?;
                    $export.bar.add(segment.read - read);
                }
            }
            .boxed()
        }))
        .buffer_unordered(SEGMENTS as usize)
        .try_collect::<()>()
        .await?
    };
}

impl Export<'_> {
    async fn all(&self) -> anyhow::Result<()> {
        let export = self;
        scan!(export, some_lists, Self::lists);
        scan!(export, some_reads, Self::reads);
        scan!(export, some_reactions, Self::reactions);
        scan!(export, some_commented, Self::comments);
        scan!(export, some_inbox_reads, Self::inbox_reads);
        scan!(export, some_notice_reads, Self::notice_reads);
        scan!(export, some_pairs, Self::pairs);
        scan!(export, some_platforms, Self::notices);
        scan!(export, some_profiles, Self::profiles);
        scan!(export, some_rests, Self::rests);
        scan!(export, some_identities, Self::identities);
        scan!(export, some_heads, Self::heads);
        Ok(())
    }

    async fn send(&self, lines: Lines) -> anyhow::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        self.lines.send(lines).await.map_err(|_| anyhow::anyhow!("the file cannot be written"))
    }

    async fn damaged(&self, error: &StoreError) {
        *self.damaged.lock().await += 1;
        eprintln!("damaged: {error}");
    }

    fn stays(&self, user: UserId) -> bool {
        !self.leaving.contains(&user)
    }

    /// Follows, mutes, blocks and requests.
    async fn pairs(&self, pairs: Vec<Edge>) -> Result<Lines> {
        let pairs: Vec<Edge> = pairs.into_iter().filter(|edge| self.stays(edge.user) && self.stays(edge.author)).collect();
        let authors: Vec<UserId> = pairs.iter().filter(|edge| edge.following).map(|edge| edge.author).collect();
        let heads = self.facts.heads(&authors).await?;
        let (mut lines, none) = (Vec::with_capacity(pairs.len()), AuthorHead::default());
        for edge in pairs {
            let (user, other) = (edge.user, edge.author);
            lines.extend(edge.muted.map(|since| Line::Mute(MuteLine { kind: Kind::Mute, user, other, since })));
            lines.extend(edge.blocked.map(|since| Line::Block(BlockLine { kind: Kind::Block, user, other, since })));
            if let Some(since) = edge.requested.filter(|_| edge.asks()) {
                let (kind, direction, preference) = (Kind::Request, Direction::Sent, edge.preference);
                lines.push(Line::Request(RequestLine { kind, user, other, direction, since, preference }));
            }
            if edge.following {
                lines.push(self.follow(&edge, heads.get(&other).unwrap_or(&none)).await?);
            }
        }
        Ok(lines)
    }

    async fn follow(&self, edge: &Edge, head: &AuthorHead) -> Result<Line> {
        let &Edge { user, author, since, preference, base, floor, accepted, .. } = edge;
        let implied = self.times.latest_at(self.facts, author, head, since).await?;
        let usual = head.backfill_floor_at(base).min(base);
        let (base, floor) = ((base != implied).then_some(base), (floor != usual).then_some(floor));
        Ok(Line::Follow(FollowLine { kind: Kind::Follow, user, author, since, preference, base, floor, accepted }))
    }

    async fn lists(&self, users: Vec<(UserId, UserLists)>) -> Result<Lines> {
        let mut lines = Vec::new();
        for (user, lists) in users.into_iter().filter(|(user, lists)| self.stays(*user) && !lists.lists.is_empty()) {
            let mut edges = self.facts.following(user).await?;
            edges.retain(|edge| self.stays(edge.author));
            edges.sort_unstable_by_key(|edge| edge.author);
            lines.extend(lists.lists.into_iter().map(|list| {
                let members = edges.iter().filter(|edge| edge.lists.contains(&list.number));
                let (id, authors) = (ListId { user, number: list.number }, members.map(|edge| edge.author).collect());
                Line::List(ListLine { kind: Kind::List, user, id, name: list.name, authors })
            }));
        }
        Ok(lines)
    }

    async fn reads(&self, states: Vec<(UserId, UserId, ReadState)>) -> Result<Lines> {
        let mut lines = Vec::new();
        for (user, author, state) in states.into_iter().filter(|(user, author, _)| self.stays(*user) && self.stays(*author)) {
            let (kind, through) = (Kind::Read, state.through);
            let mut ranges = state.read.ranges().peekable();
            loop {
                let some: Vec<(Seq, Seq)> = ranges.by_ref().take(MOST_RANGES).collect();
                lines.push(Line::Read(ReadLine { kind, user, author, through, ranges: some }));
                if ranges.peek().is_none() {
                    break;
                }
            }
        }
        Ok(lines)
    }

    async fn reactions(&self, reactions: Vec<(UserId, Reaction, tidemark_domain::FeedKey)>) -> Result<Lines> {
        let stay = reactions.into_iter().filter(|(user, _, key)| self.stays(*user) && self.stays(key.post.author));
        let line = |(user, reaction, key): (UserId, Reaction, tidemark_domain::FeedKey)| match reaction {
            Reaction::Like => Line::Like(LikeLine { kind: Kind::Like, user, post: key.post, at: key.at }),
            Reaction::Favorite => Line::Favorite(FavoriteLine { kind: Kind::Favorite, user, post: key.post, at: key.at }),
        };
        Ok(stay.map(line).collect())
    }

    /// The comments on posts, those that were withdrawn too, because their numbers are not given again.
    async fn comments(&self, posts: Vec<(PostId, CommentNumber)>) -> anyhow::Result<Lines> {
        for (post, last) in posts.into_iter().filter(|(post, _)| self.stays(post.author)) {
            let mut first = 1;
            while first <= last {
                let until = last.min(first + COMMENTS - 1);
                let mut lines = Lines::new();
                for item in self.facts.comment_items(post, first..=until).await? {
                    match read_comment(item) {
                        Ok(comment) => lines.push(Line::Comment(self.comment(comment))),
                        Err(error) => self.damaged(&error).await,
                    }
                }
                self.send(lines).await?;
                first = until + 1;
            }
        }
        Ok(Lines::new())
    }

    fn comment(&self, StoredComment { id, author, text, at, .. }: StoredComment) -> CommentLine {
        let user = author.filter(|author| self.stays(*author));
        CommentLine { kind: Kind::Comment, user, id, post: id.post, text: text.filter(|_| user.is_some()), created_at: at }
    }

    async fn inbox_reads(&self, states: Vec<(UserId, Option<GroupId>, Timestamp)>) -> Result<Lines> {
        let stay = states.into_iter().filter(|(user, ..)| self.stays(*user));
        Ok(stay.map(|(user, id, at)| Line::InboxRead(InboxReadLine { kind: Kind::InboxRead, user, id, at })).collect())
    }

    async fn notice_reads(&self, states: Vec<(UserId, Platform, NoticeReads)>) -> Result<Lines> {
        let (mut lines, mut heads) = (Vec::new(), HashMap::new());
        for (user, platform, reads) in states.into_iter().filter(|(user, ..)| self.stays(*user)) {
            let head = match heads.entry(platform) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(self.facts.platform_head(platform).await?),
            };
            let live = head.live_at(self.now).filter(|notice| reads.read.contains(notice.slot));
            let seqs: tidemark_domain::SeqSet = live.map(|notice| notice.seq).collect();
            let (kind, through, through_slot, ranges) =
                (Kind::NoticeRead, reads.through, Some(reads.through_slot), seqs.ranges().collect());
            lines.push(Line::NoticeRead(NoticeReadLine { kind, user, platform, through, through_slot, ranges }));
        }
        Ok(lines)
    }

    async fn notices(&self, platforms: Vec<Platform>) -> Result<Lines> {
        let mut lines = Vec::new();
        for platform in platforms {
            let head = self.facts.platform_head(platform).await?;
            let (latest_seq, latest_slot, latest_at) = (head.latest_seq, head.latest_slot, head.latest_at);
            lines.push(Line::Platform(PlatformLine { kind: Kind::Platform, platform, latest_seq, latest_slot, latest_at }));
            let live: Vec<_> = head.live_at(self.now).copied().collect();
            let ids: Vec<NoticeId> = live.iter().map(|notice| NoticeId { platform, seq: notice.seq }).collect();
            let mut notices = self.facts.notices(&ids).await?;
            for (live, id) in live.iter().zip(ids) {
                let Some(notice) = notices.remove(&id) else { continue };
                let (title, body, expires_at) = (notice.content.title, notice.content.body, live.expires_at);
                let (created_at, revision, slot) = (notice.created_at, live.revision, Some(live.slot));
                lines.push(Line::Notice(NoticeLine {
                    kind: Kind::Notice,
                    id,
                    title,
                    body,
                    created_at,
                    expires_at,
                    revision,
                    slot,
                }));
            }
        }
        Ok(lines)
    }

    async fn profiles(&self, profiles: Vec<Profile>) -> Result<Lines> {
        let profiles: Vec<Profile> = profiles.into_iter().filter(|profile| self.stays(profile.user)).collect();
        let heads = self.facts.heads(&profiles.iter().map(|profile| profile.user).collect::<Vec<_>>()).await?;
        let line = |profile: Profile| {
            let private = heads.get(&profile.user).is_some_and(AuthorHead::is_private);
            let (user, updated_at, card) = (profile.user, Some(profile.updated_at), profile.content.card);
            let (name, picture, bio) = (Some(card.name), card.picture, profile.content.bio);
            let (handle, data) = (card.handle.map(|handle| handle.to_string()), raw(profile.content.data));
            Line::Profile(ProfileLine { kind: Kind::Profile, user, name, handle, picture, bio, data, updated_at, private })
        };
        Ok(profiles.into_iter().map(line).collect())
    }

    async fn rests(&self, rests: Vec<Rest>) -> Result<Lines> {
        let stay = rests.into_iter().filter(|rest| rest.until > self.now && self.stays(rest.user));
        let line = |Rest { handle, user, until }: Rest| {
            Line::Handle(HandleLine { kind: Kind::Handle, user, handle: handle.to_string(), until })
        };
        Ok(stay.map(line).collect())
    }

    async fn identities(&self, identities: Vec<Identity>) -> Result<Lines> {
        let line = |identity| match identity {
            Identity::Claim(claim, user) => Line::Identity(IdentityLine { kind: Kind::Identity, claim, user }),
            Identity::Receipt(user, receipt) => {
                let (started_at, finished_at) = (receipt.started_at, receipt.finished_at.unwrap_or(self.now));
                Line::Erased(ErasedLine { kind: Kind::Erased, user, started_at, finished_at })
            }
        };
        Ok(identities.into_iter().map(line).collect())
    }

    /// Posts, numbers of deleted posts, and private users without a profile.
    async fn heads(&self, heads: Vec<(UserId, AuthorHead)>) -> anyhow::Result<Lines> {
        let heads: Vec<(UserId, AuthorHead)> = heads.into_iter().filter(|(author, _)| self.stays(*author)).collect();
        let private: Vec<UserId> = heads.iter().filter(|(_, head)| head.is_private()).map(|(author, _)| *author).collect();
        let profiles = self.facts.profiles(&private).await?;
        let (name, handle, picture, bio, data, updated_at) = (None, None, None, None, None, None);
        let blank =
            ProfileLine { kind: Kind::Profile, user: UserId::MIN, name, handle, picture, bio, data, updated_at, private: true };
        let without = private.into_iter().filter(|user| !profiles.contains_key(user));
        let lines = without.map(|user| Line::Profile(ProfileLine { user, ..blank.clone() })).collect();
        for (author, head) in heads {
            self.posts(author, &head).await?;
        }
        Ok(lines)
    }

    async fn posts(&self, author: UserId, head: &AuthorHead) -> anyhow::Result<()> {
        let mut first = 1;
        while first <= head.latest_seq {
            let last = head.latest_seq.min(first + POSTS - 1);
            let ids: Vec<PostId> = (first..=last).map(|seq| PostId::new(author, seq)).collect();
            let mut found = self.facts.posts_with_texts(&ids).await?;
            let mut lines = Vec::with_capacity(ids.len());
            for (post, text) in ids.iter().filter_map(|id| found.remove(id)) {
                let (user, id, created_at) = (author, post.id, post.created_at);
                if post.deleted {
                    let of = post.reposted();
                    lines.push(Line::Deleted(DeletedLine { kind: Kind::Deleted, user, id, created_at, of }));
                    continue;
                }
                if let Some(of) = post.reposted() {
                    lines.push(Line::Repost(RepostLine { kind: Kind::Repost, user, id, of, created_at }));
                    continue;
                }
                let Some(text) = text else {
                    *self.damaged.lock().await += 1;
                    eprintln!("damaged: the text of post {id}");
                    continue;
                };
                lines.push(Line::Post(PostLine {
                    kind: Kind::Post,
                    user,
                    id,
                    title: post.title,
                    body: text.body,
                    data: raw(text.data),
                    created_at,
                    revision: post.revision,
                    edited_at: post.edited_at,
                    weight: post.weight,
                    of: post.of.map(Reference::original),
                }));
            }
            self.send(lines).await?;
            first = last + 1;
        }
        Ok(())
    }
}

/// JSON as it is stored.
fn raw(data: Option<String>) -> Option<Box<RawValue>> {
    data.and_then(|data| RawValue::from_string(data).ok())
}

//! Compares the facts of each user with each other.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tidemark_domain::{
    AuthorHead, CommentId, DeliveryState, Edge, Handle, Post, PostId, Reaction, ReactionCounts, ReactionState, ReadState,
    Relation, Seq, Timestamp, UserId, ids::SHARDS, invariants,
};

use tidemark_facts::{
    counters::{sum_of_changes, sum_of_parts},
    item::Count,
    schema::{ReactionCountsItem, part_shard},
};

use super::{
    Correction, Counter, DamagedItem, Difference, GRACE_SECONDS, Kind, ListedQuote, ListedReaction, ListedRepost, Recount,
    Remedy, StoredRecord, Subject,
    comments::{self, PostComments},
};
/// A post, and whether it is in the index of unfinished fan-outs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPost {
    pub post: Post,
    pub unfinished: bool,
}

impl StoredPost {
    /// Whether its delivery or retraction is in progress.
    pub(crate) fn is_moving(&self) -> bool {
        self.unfinished || self.post.delivery.state == DeliveryState::Pending
    }
}

/// A stored count with its change number. A missing number is zero. `None` is a value that is negative or not a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredCount {
    pub count: Option<u64>,
    pub changes: Option<u64>,
}

impl Default for StoredCount {
    fn default() -> Self {
        Self { count: Some(0), changes: Some(0) }
    }
}

impl StoredCount {
    /// The difference of this count, if `right` items were listed after it was read.
    pub(super) fn differs(self, kind: Kind, of: Counter, right: u64) -> Option<Difference> {
        let Self { count: seen, changes } = self;
        let count = Recount { of, seen, right, changes };
        let is_right = seen == Some(right) && changes.is_some();
        (!is_right).then(|| Difference::new(kind, Subject::Count(count), Correction::SetCount(count)))
    }
}

/// A head, with its numbers as they are stored.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StoredHead {
    /// A count in it that cannot be read is zero.
    pub head: AuthorHead,
    /// The number of live posts.
    pub posts: StoredCount,
    /// The number of deletions; `None` if it is not stored.
    pub deletions: Option<u64>,
}

/// The handle in a profile of this version, and the user who has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredHandle {
    pub handle: Handle,
    pub version: u32,
    pub owner: Option<UserId>,
}

/// A pair of users of whom one may block the other, and the notes of the block: two flags and two entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredBlock {
    pub user: UserId,
    pub other: UserId,
    /// Whether the pair says that the user blocks the other.
    pub blocked: bool,
    pub rev: Option<u32>,
    pub notes: [bool; 4],
}

/// The reactions that the users of one shard have given to one author.
#[derive(Debug, Clone, Default)]
pub struct ReactionShard {
    /// Whether no item is damaged, and reconcile looks at a shard of this size. The counts of a bigger one are exact by
    /// construction, and would change before they could be checked.
    pub whole: bool,
    pub users: Vec<(UserId, ReactionState)>,
    /// The blocks (user, other) of which an item has a flag.
    pub flagged: Vec<(UserId, UserId)>,
    /// The reactions that the users' lists lack, each with the version of the user's reactions.
    pub unlisted: Vec<(ListedReaction, u32)>,
    /// The times of the reactions in the users' lists, as far as they are looked at today.
    pub listed_at: HashMap<ListedReaction, Timestamp>,
    /// The reactions in the lists of the posts; `None` if reconcile does not look at so many.
    pub likers: Option<Vec<(ListedReaction, Timestamp)>>,
    /// The numbers of comments of users on the posts; `None` if reconcile does not look at so many.
    pub commented: Option<Vec<((Seq, UserId), StoredCount)>>,
    /// The parts of counts of posts that lie in this shard.
    pub posts: HashMap<Seq, ReactionCountsItem>,
    /// The stored counts of likes and favorites of all posts together, in the order of [`Reaction::ALL`].
    pub total: [StoredCount; 2],
    /// The reposts in the lists of the posts.
    pub reposts: Vec<ListedRepost>,
    /// The quotes in the lists of the posts; `None` if reconcile does not look at so many.
    pub quotes: Option<Vec<ListedQuote>>,
}

impl ReactionShard {
    /// The entries that the users' lists must have for posts of this author, each with the version of the reactions.
    pub fn entries(&self, author: UserId) -> Vec<(ListedReaction, u32)> {
        let mut entries = Vec::new();
        for (user, state) in &self.users {
            for reaction in Reaction::ALL {
                let posts = state.of(reaction).above(0).map(|seq| PostId::new(author, seq));
                entries.extend(posts.map(|post| (ListedReaction { user: *user, post, reaction }, state.version)));
            }
        }
        entries
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListedShard {
    /// Without followers that cannot be read, or whose edges cannot be read.
    pub followers: Vec<Relation>,
    /// Whether no follower and no edge of one is damaged, and reconcile looks at a shard of this size.
    pub whole: bool,
}

/// All facts of one user, as follower, author and reader. Every count was read before the items that it counts.
#[derive(Debug, Clone)]
pub struct UserFacts {
    pub user: UserId,
    /// The user's edges, tombstones included.
    pub edges: Vec<Edge>,
    /// Whether no edge is damaged.
    pub edges_whole: bool,
    pub followings: StoredCount,
    /// The time since which each followed author lists the user; `None` if it cannot be read or is not looked at today.
    pub listed: HashMap<UserId, Option<Timestamp>>,
    pub followers: Vec<ListedShard>,
    /// The listed followers who have a live edge, and those whose edges are not looked at today.
    pub live_followers: HashSet<UserId>,
    pub follower_counts: [StoredCount; SHARDS as usize],
    pub requests_sent: StoredCount,
    /// The user's own requests, as they are listed by user.
    pub sent: ListedShard,
    /// The time since which each author whom the user asks lists the request; `None` if it cannot be read or is not
    /// looked at today.
    pub asked: HashMap<UserId, Option<Timestamp>>,
    /// The requests that the user has received, by shard.
    pub requests: Vec<ListedShard>,
    /// The users of `requests` whose pairs have the request, and those whose pairs are not looked at today.
    pub live_requests: HashSet<UserId>,
    pub request_counts: [StoredCount; SHARDS as usize],
    /// The user's head as an author; `None` if it cannot be read.
    pub head: Option<StoredHead>,
    /// The newest posts, deleted ones included.
    pub posts: Vec<StoredPost>,
    /// The deleted posts that have a body.
    pub bodies: HashSet<PostId>,
    pub reads: HashMap<UserId, ReadState>,
    /// The heads of the authors of `reads` that can be read.
    pub read_heads: HashMap<UserId, StoredHead>,
    /// The reactions that the user received, by shard.
    pub reactions: Vec<ReactionShard>,
    /// The newest entries of the user's own lists of likes and favorites.
    pub reacted: Vec<ListedReaction>,
    /// The user's reactions to the authors of `reacted`, by author. They were read after the lists.
    pub given: HashMap<UserId, ReactionState>,
    /// The newest entries of the user's own list of reposts.
    pub reposted: Vec<ListedRepost>,
    /// The listed reposts that do not stand, as far as they are looked at today: of the user's posts, and of the user.
    pub ghost_reposts: BTreeSet<ListedRepost>,
    /// The user's reposts that a list lacks, each with whether that of the original does.
    pub unlisted_reposts: BTreeMap<ListedRepost, bool>,
    /// The listed quotes of the user's posts that do not stand, as far as they are looked at today, and the user's
    /// quotes that the lists of their originals lack. Each with whether it stands.
    pub wrong_quotes: Vec<(ListedQuote, bool)>,
    /// The comments on the user's posts, of those that are looked at today.
    pub comments: HashMap<PostId, PostComments>,
    /// Comments in the newest entries of the user's list that do not stand.
    pub comment_ghosts: Vec<CommentId>,
    /// The user's blocks, and those of which the user's reactions have a flag or the user's lists have an entry.
    pub blocks: Vec<StoredBlock>,
    pub handle: Option<StoredHandle>,
    pub damaged: BTreeSet<DamagedItem>,
}

impl UserFacts {
    pub fn following(&self) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(|edge| edge.following)
    }

    pub fn asking(&self) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(|edge| edge.asks())
    }

    /// The edges, requests and reposts that the author does not list.
    pub fn missing(&self) -> impl Iterator<Item = Unlisted> {
        let follows = self.following().filter(|edge| !self.listed.contains_key(&edge.author));
        let requests = self.asking().filter(|edge| !self.asked.contains_key(&edge.author));
        let follows = follows.map(|edge| Unlisted::Follow(edge.user, edge.author));
        let reposts = self.unlisted_reposts.iter().filter(|(_, by_original)| **by_original);
        let reposts = reposts.map(|(of, _)| Unlisted::Repost(of.repost.author, of.original));
        follows.chain(requests.map(|edge| Unlisted::Request(edge.user, edge.author))).chain(reposts)
    }
}

/// What an author does not list of a pair (user, author).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unlisted {
    Follow(UserId, UserId),
    Request(UserId, UserId),
    /// A repost of the user.
    Repost(UserId, PostId),
}

/// `missing` is what is known not to be listed. The right counts of its authors include it.
pub fn differences(facts: &UserFacts, missing: &BTreeSet<Unlisted>) -> Vec<Difference> {
    let user = facts.user;
    let mut found = edges(facts, missing);
    found.extend(requests(facts, missing));
    found.extend(posts(facts));
    found.extend(facts.damaged.iter().cloned().map(Difference::from));
    found.extend(facts.reads.iter().filter_map(|(&author, reads)| {
        let head = &facts.read_heads.get(&author)?.head;
        let subject = Subject::Reads { user, author, latest: head.latest_seq };
        let beyond = || Difference::new(Kind::ReadsBeyond, subject, Correction::CutReads { user, author });
        (!invariants::reads_only_what_exists(head, reads)).then(beyond)
    }));
    found.extend(facts.blocks.iter().filter(|block| block.notes != [block.blocked; 4]).map(|block| {
        let StoredBlock { user, other: author, blocked, rev, .. } = *block;
        let correction = Correction::SetBlockFlags { user, author, blocked, rev };
        Difference::new(Kind::BlockFlagsWrong, Subject::Pair { user, author }, correction)
    }));
    found.extend(facts.handle.iter().filter(|stored| stored.owner != Some(user)).map(|stored| {
        let StoredHandle { handle, version, .. } = stored.clone();
        let correction = Correction::ClaimHandle { user, handle: handle.clone(), version };
        Difference::new(Kind::HandleLost, Subject::Handle { user, handle: handle.to_string() }, correction)
    }));
    found.extend(facts.comments.iter().flat_map(|(post, stored)| comments::differences(*post, stored)));
    found.extend(facts.comment_ghosts.iter().map(|ghost| comments::ghost(*ghost, user)));
    let list = |kind, of, listed, at, version| {
        Difference::new(kind, Subject::Reaction(of), Correction::ListReaction { of, listed, at, version })
    };
    for (number, shard) in facts.reactions.iter().enumerate().filter(|(_, shard)| shard.whole) {
        found.extend(totals(user, number as u16, shard));
        found.extend(shard.unlisted.iter().map(|&(entry, version)| {
            let at = shard.likers.iter().flatten().find(|(liker, _)| *liker == entry).map(|(_, at)| *at);
            list(Kind::ReactionUnlisted, entry, true, at, version)
        }));
        found.extend(likers(user, shard));
    }
    found.extend(post_counts(facts, missing));
    found.extend(reposts(facts));
    found.extend(facts.reacted.iter().filter_map(|entry| {
        let given = facts.given.get(&entry.post.author).cloned().unwrap_or_default();
        let ghost = !given.of(entry.reaction).contains(entry.post.seq);
        ghost.then(|| list(Kind::ReactionGhost, *entry, false, None, given.version))
    }));
    found
}

/// A post that the index of unfinished fan-outs lists, but must not, or the reverse.
pub(crate) fn wrongly_indexed(kind: Kind, post: PostId) -> Difference {
    let unfinished = kind == Kind::UnfinishedMissing;
    Difference::new(kind, Subject::Post { post }, Correction::SetUnfinished { post, unfinished })
}

fn edges(facts: &UserFacts, missing: &BTreeSet<Unlisted>) -> Vec<Difference> {
    let user = facts.user;
    let mirror = |kind, user, author, edge| {
        Difference::new(kind, Subject::Pair { user, author }, Correction::MirrorEdge { user, author, edge })
    };
    let mut found = Vec::new();
    for edge in facts.following() {
        let kind = match facts.listed.get(&edge.author) {
            None => Kind::FollowerMissing,
            Some(Some(listed)) if *listed != edge.since => Kind::FollowerSince,
            Some(_) => continue,
        };
        found.push(mirror(kind, user, edge.author, Some((edge.since, edge.rev))));
    }
    if facts.edges_whole {
        let right = facts.following().count() as u64;
        found.extend(facts.followings.differs(Kind::FollowingsCount, Counter::Followings { user }, right));
    }
    for (shard, ListedShard { followers, whole }) in facts.followers.iter().enumerate() {
        let (live, ghosts): (Vec<&Relation>, Vec<&Relation>) =
            followers.iter().partition(|follower| facts.live_followers.contains(&follower.user));
        // If the user follows again before the second look, the entry has another time.
        let ghost = |ghost: &Relation| mirror(Kind::FollowerGhost, ghost.user, user, None).in_version(ghost.since.ms());
        found.extend(ghosts.into_iter().map(ghost));
        let is_of_shard = |missing: &&Unlisted| match missing {
            Unlisted::Follow(follower, author) => *author == user && usize::from(follower.shard()) == shard,
            Unlisted::Request(..) | Unlisted::Repost(..) => false,
        };
        let right = (live.len() + missing.iter().filter(is_of_shard).count()) as u64;
        if *whole {
            let of = Counter::Followers { author: user, shard: shard as u16 };
            found.extend(facts.follower_counts[shard].differs(Kind::FollowersCount, of, right));
        }
    }
    found
}

fn requests(facts: &UserFacts, missing: &BTreeSet<Unlisted>) -> Vec<Difference> {
    let user = facts.user;
    let pair = |kind, user, author, correction| Difference::new(kind, Subject::Pair { user, author }, correction);
    let mirror = |kind, user, author, request| pair(kind, user, author, Correction::MirrorRequest { user, author, request });
    let mut found = Vec::new();
    for &Edge { author, requested, rev, .. } in facts.edges.iter().filter(|edge| edge.requested.is_some() && !edge.asks()) {
        let end = pair(Kind::RequestBeside, user, author, Correction::EndRequest { user, author, rev });
        found.push(end.in_version(requested.map(Timestamp::ms)));
    }
    let sent: HashMap<UserId, Timestamp> = facts.sent.followers.iter().map(|entry| (entry.user, entry.since)).collect();
    for &Edge { author, requested, rev, .. } in facts.asking() {
        let by_author = facts.asked.get(&author).map(|listed| listed.or(requested));
        let is_listed = by_author == Some(requested) && (!facts.sent.whole || sent.get(&author).copied() == requested);
        if !is_listed {
            found.push(mirror(Kind::RequestMissing, user, author, requested.map(|at| (at, rev))));
        }
    }
    // If the user asks again before the second look, the entry has another time.
    let ghost = |user, author, at: Timestamp| mirror(Kind::RequestGhost, user, author, None).in_version(at.ms());
    if facts.edges_whole {
        let asked: HashSet<UserId> = facts.asking().map(|edge| edge.author).collect();
        let ghosts = facts.sent.followers.iter().filter(|entry| !asked.contains(&entry.user));
        found.extend(ghosts.map(|entry| ghost(user, entry.user, entry.since)));
        found.extend(facts.requests_sent.differs(Kind::RequestsCount, Counter::RequestsSent { user }, asked.len() as u64));
    }
    for (shard, ListedShard { followers, whole }) in facts.requests.iter().enumerate() {
        let (live, ghosts): (Vec<&Relation>, Vec<&Relation>) =
            followers.iter().partition(|entry| facts.live_requests.contains(&entry.user));
        found.extend(ghosts.into_iter().map(|entry| ghost(entry.user, user, entry.since)));
        let is_of_shard = |missing: &&Unlisted| match missing {
            Unlisted::Request(asking, author) => *author == user && usize::from(asking.shard()) == shard,
            Unlisted::Follow(..) | Unlisted::Repost(..) => false,
        };
        let right = (live.len() + missing.iter().filter(is_of_shard).count()) as u64;
        if *whole {
            let of = Counter::RequestsReceived { author: user, shard: shard as u16 };
            found.extend(facts.request_counts[shard].differs(Kind::RequestsCount, of, right));
        }
    }
    found
}

fn posts(facts: &UserFacts) -> Vec<Difference> {
    let mut found = Vec::new();
    let head = facts.head.as_ref().map(|stored| &stored.head);
    let mut implied = head.map_or(0, AuthorHead::implied_posts);
    // The posts' reactions, if all of them are known.
    let given = facts.reactions.iter().all(|shard| shard.whole).then(|| given_in(&facts.reactions));
    for StoredPost { post, unfinished } in &facts.posts {
        let (id, left_out) = (post.id, !post.is_in_feeds());
        if head.is_some_and(|head| head.deleted.contains(id.seq) != left_out) {
            let subject = Subject::PostInHead { post: id, deleted: left_out };
            found.push(Difference::new(Kind::HeadDeletion, subject, Correction::SetDeleted { post: id, deleted: left_out }));
            implied = if left_out { implied.saturating_sub(1) } else { implied + 1 };
        }
        match (post.deleted, post.delivery.state, unfinished) {
            (false, DeliveryState::Done, true) => found.push(wrongly_indexed(Kind::UnfinishedLeft, id)),
            (false, DeliveryState::Pending | DeliveryState::Running, false) => {
                found.push(wrongly_indexed(Kind::UnfinishedMissing, id));
            }
            _ => {}
        }
        let counts = given.as_ref().map(|given| given.get(&id.seq).copied().unwrap_or_default());
        if let Some(counts) = counts.filter(|counts| !post.deleted && post.step.after(*counts).is_some()) {
            let wrong = Difference::new(Kind::StepWrong, Subject::Post { post: id }, Remedy::Rank { post: id });
            found.push(wrong.in_version(u64::from(post.step.changes) << 40 | (counts.likes + 2 * counts.favorites)));
        }
        if post.deleted && facts.bodies.contains(&id) {
            found.push(Difference::new(Kind::BodyLeft, Subject::Post { post: id }, Correction::DeleteBody { post: id }));
        }
    }
    if let Some(StoredHead { head, posts, deletions }) = &facts.head
        && posts.count != Some(implied)
    {
        let (author, right) = (facts.user, implied);
        let correction = Correction::SetPosts { author, right, latest: head.latest_seq, deletions: *deletions };
        found.push(Difference::new(Kind::HeadPosts, Subject::LivePosts { author, seen: posts.count, right }, correction));
    }
    found
}

/// Counts the users' reactions to each post. The stored counts may be wrong, which is a difference of its own.
fn given_in<'a>(shards: impl IntoIterator<Item = &'a ReactionShard>) -> HashMap<Seq, ReactionCounts> {
    let mut given: HashMap<Seq, ReactionCounts> = HashMap::new();
    for (_, state) in shards.into_iter().flat_map(|shard| &shard.users) {
        state.liked.above(0).for_each(|seq| given.entry(seq).or_default().likes += 1);
        state.favorited.above(0).for_each(|seq| given.entry(seq).or_default().favorites += 1);
    }
    given
}

fn totals(author: UserId, shard: u16, stored: &ReactionShard) -> Vec<Difference> {
    let given = given_in([stored]);
    let differs = |(index, reaction): (usize, Reaction)| {
        let of = Counter::AuthorReactions { author, shard, reaction };
        let total = given.values().map(|counts| counts.of(reaction)).sum();
        stored.total[index].differs(Kind::AuthorReactions, of, total)
    };
    Reaction::ALL.into_iter().enumerate().filter_map(differs).collect()
}

/// Compares the counts of an author's posts with the users' reactions and with the listed reposts, if all shards are
/// known.
fn post_counts(facts: &UserFacts, missing: &BTreeSet<Unlisted>) -> Vec<Difference> {
    if !facts.reactions.iter().all(|shard| shard.whole) {
        return Vec::new();
    }
    let mut right: BTreeMap<Seq, [Counted; 3]> = BTreeMap::new();
    for (shard, stored) in (0..SHARDS).zip(&facts.reactions) {
        for (_, state) in &stored.users {
            for (index, reaction) in Reaction::ALL.into_iter().enumerate() {
                state.of(reaction).above(0).for_each(|seq| right.entry(seq).or_default()[index].add(shard));
            }
        }
        let reposts = stored.reposts.iter().filter(|of| !facts.ghost_reposts.contains(of));
        reposts.for_each(|of| right.entry(of.original.seq).or_default()[REPOSTS].add(shard));
        stored.posts.keys().for_each(|seq| _ = right.entry(*seq).or_default());
    }
    for missing in missing {
        if let Unlisted::Repost(user, original) = missing
            && original.author == facts.user
        {
            right.entry(original.seq).or_default()[REPOSTS].add(user.shard());
        }
    }
    let differences = right.into_iter().flat_map(|(seq, right)| {
        let (post, counts) = (PostId::new(facts.user, seq), StoredCounts::of(&facts.reactions, seq));
        let of = |index: usize| match Reaction::ALL.get(index) {
            Some(&reaction) => (Kind::PostReactions, Counter::PostReactions { post, reaction }),
            None => (Kind::PostReposts, Counter::PostReposts { original: post }),
        };
        let differs = |(index, right): (usize, Counted)| {
            let (kind, counter) = of(index);
            counts.count(COUNTS[index], right).differs(kind, counter, right.count)
        };
        right.into_iter().enumerate().filter_map(differs).collect::<Vec<_>>()
    });
    differences.collect()
}

/// The index of reposts among the counts of a post, after those of [`Reaction::ALL`].
const REPOSTS: usize = 2;
const COUNTS: [CountOf; 3] = [|part| part.likes, |part| part.favorites, |part| part.reposts];

type CountOf = fn(&ReactionCountsItem) -> Option<Count<i64>>;

/// A right count of a post, and a bit for each shard of users whom it counts.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    count: u64,
    shards: u16,
}

impl Counted {
    fn add(&mut self, shard: u16) {
        self.count += 1;
        self.shards |= 1 << shard;
    }
}

/// The counts of a post: the parts that a response reads.
struct StoredCounts<'a>(Vec<&'a ReactionCountsItem>);

impl<'a> StoredCounts<'a> {
    fn of(shards: &'a [ReactionShard], seq: Seq) -> Self {
        let part = |part| shards.get(usize::from(part_shard(seq, part)))?.posts.get(&seq);
        let parts = part(0).map_or(1, ReactionCountsItem::number_of_parts);
        Self((0..parts).filter_map(part).collect())
    }

    /// One of the counts. A right one counts as damaged if a list would not read the shard of a user whom it counts.
    fn count(&self, of: CountOf, right: Counted) -> StoredCount {
        let Self(parts) = self;
        let listed = parts.first().map_or_else(|| (0..SHARDS).collect(), |first| first.listed_shards());
        let is_listed = (0..SHARDS).all(|shard| right.shards & 1 << shard == 0 || listed.contains(&shard));
        let count = sum_of_parts(parts.iter().map(|part| of(part))).filter(|count| is_listed || *count != right.count);
        StoredCount { count, changes: sum_of_changes(parts.iter().map(|part| part.changes)) }
    }
}

/// Compares lists of reposts and quotes with the posts.
fn reposts(facts: &UserFacts) -> Vec<Difference> {
    let mut found = Vec::new();
    // A user who reposts again has a post of another number.
    let ghost = |of: &ListedRepost| Difference::new(Kind::RepostGhost, Subject::Repost(*of), Correction::UnlistRepost(*of));
    found.extend(facts.ghost_reposts.iter().map(ghost));
    let lack = |of: &ListedRepost| Difference::new(Kind::RepostMissing, Subject::Repost(*of), Correction::ListRepost(*of));
    found.extend(facts.unlisted_reposts.keys().map(lack));
    let quote = |&(of, stands): &(ListedQuote, bool)| {
        let kind = if stands { Kind::QuoteMissing } else { Kind::QuoteGhost };
        Difference::new(kind, Subject::Quote(of), Correction::SetQuote { of, listed: stands })
    };
    found.extend(facts.wrong_quotes.iter().map(quote));
    found
}

/// Compares the lists of an author's posts with the users' reactions.
fn likers(author: UserId, shard: &ReactionShard) -> Vec<Difference> {
    let Some(listed) = &shard.likers else { return Vec::new() };
    let given: HashMap<ListedReaction, u32> = shard.entries(author).into_iter().collect();
    let versions: HashMap<UserId, u32> = shard.users.iter().map(|(user, state)| (*user, state.version)).collect();
    let (right, ghosts): (Vec<_>, Vec<_>) = listed
        .iter()
        .copied()
        .partition(|(entry, at)| given.contains_key(entry) && shard.listed_at.get(entry).is_none_or(|listed| listed == at));
    let right: HashSet<ListedReaction> = right.into_iter().map(|(entry, _)| entry).collect();
    let ghosts = ghosts.into_iter().map(|(of, at)| {
        let version = versions.get(&of.user).copied().unwrap_or_default();
        Difference::new(Kind::LikerGhost, Subject::Reaction(of), Correction::DeleteLiker { of, at, version })
    });
    let missing = given
        .iter()
        .filter(|(entry, _)| !right.contains(entry))
        .map(|(&of, &version)| Difference::new(Kind::LikerMissing, Subject::Reaction(of), Correction::AddLiker { of, version }));
    ghosts.chain(missing).collect()
}

pub(crate) fn of_record(record: &StoredRecord, now: Timestamp) -> Option<Difference> {
    let kind = match &record.says {
        None => Kind::RecordDamaged,
        Some(says) if says.expires_at + GRACE_SECONDS < now.seconds() => Kind::RecordExpired,
        Some(_) if !record.exists => Kind::RecordOfNothing,
        Some(_) => return None,
    };
    let subject = Subject::Record { record: record.key.clone() };
    Some(Difference::new(kind, subject, Correction::DeleteRecord(record.clone())))
}

pub(crate) fn of_erased(user: UserId, facts: Vec<&'static str>) -> Option<Difference> {
    let erase = Remedy::EraseAgain { user };
    (!facts.is_empty()).then(|| Difference::new(Kind::FactNamesErased, Subject::Left { user, facts }, erase))
}

/// Whether a tombstone is past its time. Messages that it must stop can no longer arrive.
pub(crate) fn of_tombstone(edge: &Edge, now: Timestamp) -> Option<Difference> {
    let Edge { user, author, rev, .. } = *edge;
    let expired = edge.expires_at().is_some_and(|at| at + GRACE_SECONDS < now.seconds());
    let delete = Correction::DeleteTombstone { user, author, rev };
    expired.then(|| Difference::new(Kind::TombstoneExpired, Subject::Pair { user, author }, delete))
}

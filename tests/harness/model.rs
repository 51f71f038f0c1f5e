//! A model of the system in memory. It gives the expected responses for a stack without queued work.

use std::collections::{BTreeMap, BTreeSet};

pub type Post = (u64, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `…/like`.
    Like,
    /// `…/favorite`.
    Favorite,
}

/// The size of a backfill: the number of posts from before a follow that a feed shows.
const BACKFILL: usize = 100;

#[derive(Debug, Clone, Default)]
struct Author {
    latest: u64,
    live: BTreeSet<u64>,
}

#[derive(Debug, Clone)]
struct Follow {
    base: u64,
    floor: u64,
}

/// The follows, posts, marks and reactions of all users.
#[derive(Debug, Clone, Default)]
pub struct Model {
    authors: BTreeMap<u64, Author>,
    follows: BTreeMap<(u64, u64), Follow>,
    /// By user and author. They end with the follow.
    preferences: BTreeMap<(u64, u64), i64>,
    /// Of posts whose weight is not zero.
    weights: BTreeMap<Post, i64>,
    /// User and muted author.
    mutes: BTreeSet<(u64, u64)>,
    /// User and blocked user.
    blocks: BTreeSet<(u64, u64)>,
    /// The private authors.
    private: BTreeSet<u64>,
    /// User and private author: the requests to follow that stand.
    requests: BTreeSet<(u64, u64)>,
    /// The list of each user who has one, and the authors on it.
    lists: BTreeMap<u64, (String, BTreeSet<u64>)>,
    read: BTreeSet<(u64, Post)>,
    through: BTreeMap<(u64, u64), u64>,
    reactions: BTreeSet<(u64, Post, Kind)>,
    /// The original of each repost and quote, and whether it is a repost. Deleted ones are among them.
    references: BTreeMap<Post, (Post, bool)>,
    /// When each quote was published.
    quoted_at: BTreeMap<Post, u64>,
    /// The author and the time of each comment that was ever written, with the text of those that stand, by post and
    /// number.
    comments: BTreeMap<(Post, u64), (u64, u64, Option<String>)>,
    /// Live posts in the order of publication.
    order: Vec<Post>,
    /// Titles and revisions of edited posts.
    edits: BTreeMap<Post, (String, u64)>,
    /// Name and handle of each user with a profile.
    profiles: BTreeMap<u64, (String, Option<String>)>,
    /// The last user of each handle.
    handles: BTreeMap<String, u64>,
    /// When each act began that stands, by its owner, its group and the other user.
    acts: BTreeMap<(u64, String, u64), u64>,
    /// When each owner has read a group, and the whole inbox.
    group_reads: BTreeMap<(u64, String), u64>,
    inbox_reads: BTreeMap<u64, u64>,
    /// The time of acts and of reads, which the requests are made in.
    clock: u64,
}

/// A group of an inbox as the model has it: without its id and its times.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// `follow`, or kind and post, as `like-7`.
    pub name: String,
    /// The users, newest act first.
    pub users: Vec<u64>,
    pub read: bool,
}

/// The groups of the follows, and of the authors who accepted the owner. They have a name for each day, which the model
/// does not know.
pub const FOLLOWS: &str = "follow";
pub const ACCEPTED: &str = "accepted";

/// The group of the requests to follow.
pub const REQUESTS: &str = "request";

/// The title of posts that are not edited.
pub const TITLE: &str = "x";

/// Puts an item into a set, or removes it.
fn set<T: Ord>(items: &mut BTreeSet<T>, item: T, present: bool) {
    if present {
        items.insert(item)
    } else {
        items.remove(&item)
    };
}

impl Model {
    pub fn follow(&mut self, user: u64, author: u64) {
        if user == author || self.follows(user, author) || self.are_apart(user, author) {
            return;
        }
        if !self.private.contains(&author) {
            self.begin(user, author);
        } else if self.requests.insert((user, author)) {
            self.act(author, REQUESTS, user);
        }
    }

    /// Begins a follow, which takes the preference of a request and ends it.
    fn begin(&mut self, user: u64, author: u64) {
        self.requests.remove(&(user, author));
        self.acts.remove(&(author, REQUESTS.to_owned(), user));
        let floor = self.authors.get(&author).and_then(|posts| posts.live.iter().rev().nth(BACKFILL)).copied().unwrap_or(0);
        self.follows.insert((user, author), Follow { base: self.latest(author), floor });
        self.act(author, FOLLOWS, user);
    }

    /// Ends a follow, or withdraws a request.
    pub fn unfollow(&mut self, user: u64, author: u64) {
        self.end_request(user, author);
        self.remove_follower(author, user);
    }

    /// Ends a request to follow a private author.
    pub fn end_request(&mut self, user: u64, author: u64) {
        if self.requests.remove(&(user, author)) {
            self.acts.remove(&(author, REQUESTS.to_owned(), user));
            self.preferences.remove(&(user, author));
        }
    }

    /// Accepts a request. Returns whether the user follows then.
    pub fn accept(&mut self, author: u64, user: u64) -> bool {
        if self.requests(user, author) {
            self.begin(user, author);
            self.act(user, ACCEPTED, author);
        }
        self.follows(user, author)
    }

    pub fn set_private(&mut self, author: u64, private: bool) {
        set(&mut self.private, author, private);
    }

    pub fn follows(&self, user: u64, author: u64) -> bool {
        self.follows.contains_key(&(user, author))
    }

    /// Whether `user` asks to follow `author`.
    pub fn requests(&self, user: u64, author: u64) -> bool {
        self.requests.contains(&(user, author))
    }

    /// The users who ask to follow `author`, and the authors whom the user asks.
    pub fn requests_of(&self, author: u64) -> [BTreeSet<u64>; 2] {
        let received = self.requests.iter().filter(|(_, asked)| *asked == author).map(|(user, _)| *user);
        let sent = self.requests.iter().filter(|(user, _)| *user == author).map(|(_, asked)| *asked);
        [received.collect(), sent.collect()]
    }

    /// Ends a follow. A request stays.
    pub fn remove_follower(&mut self, author: u64, user: u64) {
        if self.follows.remove(&(user, author)).is_none() {
            return;
        }
        self.acts.remove(&(author, FOLLOWS.to_owned(), user));
        self.acts.remove(&(user, ACCEPTED.to_owned(), author));
        self.preferences.remove(&(user, author));
        if let Some((_, authors)) = self.lists.get_mut(&user) {
            authors.remove(&author);
        }
    }

    /// Sets the preference of a follow, or of a request.
    pub fn prefer(&mut self, user: u64, author: u64, preference: i64) {
        if self.follows(user, author) || self.requests(user, author) {
            self.preferences.insert((user, author), preference);
        }
    }

    pub fn weigh(&mut self, post: Post, weight: i64) {
        self.weights.insert(post, weight);
    }

    /// The points that the ranked feed of `user` may add to the age of a post. There are two values if reactions were
    /// taken back, and `n` is not a power of two.
    pub fn points(&self, user: u64, post: Post) -> BTreeSet<i64> {
        let n = 1 + self.reactions_to(post, Kind::Like) + 2 * self.reactions_to(post, Kind::Favorite);
        let known = |of: Option<&i64>| of.copied().unwrap_or(0);
        let points = known(self.weights.get(&post)) + known(self.preferences.get(&(user, post.0))) + i64::from(n.ilog2());
        if n.is_power_of_two() { BTreeSet::from([points]) } else { BTreeSet::from([points, points + 1]) }
    }

    pub fn mute(&mut self, user: u64, author: u64, muted: bool) {
        set(&mut self.mutes, (user, author), muted);
    }

    pub fn mutes(&self, user: u64, author: u64) -> bool {
        self.mutes.contains(&(user, author))
    }

    pub fn block(&mut self, user: u64, other: u64, blocked: bool) {
        set(&mut self.blocks, (user, other), blocked);
        if blocked {
            self.unfollow(user, other);
            self.unfollow(other, user);
        }
    }

    pub fn make_list(&mut self, user: u64, id: &str) {
        self.lists.insert(user, (id.to_owned(), BTreeSet::new()));
    }

    pub fn delete_list(&mut self, user: u64) {
        self.lists.remove(&user);
    }

    /// The id of the user's list and the authors on it.
    pub fn list(&self, user: u64) -> Option<(&str, &BTreeSet<u64>)> {
        self.lists.get(&user).map(|(id, authors)| (&**id, authors))
    }

    /// Puts an author on the user's list, or removes the author. Returns whether that is possible.
    pub fn set_member(&mut self, user: u64, author: u64, member: bool) -> bool {
        let possible = !member || self.follows(user, author);
        if let Some((_, authors)) = self.lists.get_mut(&user).filter(|_| possible) {
            set(authors, author, member);
        }
        possible
    }

    pub fn blocks(&self, user: u64, other: u64) -> bool {
        self.blocks.contains(&(user, other))
    }

    /// Whether one of the two blocks the other.
    pub fn are_apart(&self, user: u64, other: u64) -> bool {
        self.blocks(user, other) || self.blocks(other, user)
    }

    /// Publishes a post of `author`. Returns its sequence number.
    pub fn publish(&mut self, author: u64) -> u64 {
        let posts = self.authors.entry(author).or_default();
        posts.latest += 1;
        posts.live.insert(posts.latest);
        self.order.push((author, posts.latest));
        posts.latest
    }

    /// Replaces the title of a live post.
    pub fn edit(&mut self, post: Post, title: &str) {
        let (known, revision) = self.title(post);
        if self.is_live(post) && !self.is_repost(post) && known != title {
            self.edits.insert(post, (title.to_owned(), revision + 1));
        }
    }

    /// Publishes a quote of a post. Returns its sequence number.
    pub fn quote(&mut self, author: u64, of: Post) -> u64 {
        let (original, seq) = (self.target(of), self.publish(author));
        self.references.insert((author, seq), (original, false));
        self.clock += 1;
        self.quoted_at.insert((author, seq), self.clock);
        seq
    }

    /// Publishes a repost of a post. Returns its sequence number.
    pub fn repost(&mut self, author: u64, of: Post) -> u64 {
        let (original, seq) = (self.target(of), self.publish(author));
        self.references.insert((author, seq), (original, true));
        self.act(original.0, &format!("repost-{}", original.1), author);
        seq
    }

    /// The original of a repost, or the post itself.
    pub fn target(&self, post: Post) -> Post {
        self.references.get(&post).filter(|(_, reposts)| *reposts).map_or(post, |(original, _)| *original)
    }

    pub fn is_repost(&self, post: Post) -> bool {
        self.target(post) != post
    }

    /// The original of a repost or a quote.
    pub fn original(&self, post: Post) -> Option<Post> {
        self.references.get(&post).map(|(original, _)| *original)
    }

    /// Whether the original is shown to `user` in reposts and quotes of it.
    pub fn is_available(&self, user: u64, original: Post) -> bool {
        self.is_live(original) && !self.are_apart(user, original.0) && !self.is_kept_out(user, original.0)
    }

    /// Whether `user` may repost or quote a post. Posts of a private author may be shown by that author only.
    pub fn may_refer(&self, user: u64, post: Post) -> bool {
        let target = self.target(post);
        let shows_private = self.private.contains(&target.0) && target.0 != user;
        self.may_see(user, post) && self.is_available(user, target) && !shows_private
    }

    /// Whether an author is private, and has not accepted `user`.
    pub fn is_kept_out(&self, user: u64, author: u64) -> bool {
        self.private.contains(&author) && user != author && !self.follows(user, author)
    }

    /// Whether `user` sees the posts of an author.
    pub fn may_see_author(&self, user: u64, author: u64) -> bool {
        !self.blocks(author, user) && !self.is_kept_out(user, author)
    }

    /// Whether `user` sees a post.
    pub fn may_see(&self, user: u64, post: Post) -> bool {
        self.is_live(post) && self.may_see_author(user, post.0)
    }

    /// The standing repost of a post by `user`.
    pub fn repost_by(&self, user: u64, original: Post) -> Option<Post> {
        let of = |post: &&Post| post.0 == user && self.is_live(**post) && self.is_repost(**post);
        self.references.keys().filter(of).find(|post| self.target(**post) == original).copied()
    }

    /// The users who repost a post, as `user` sees them.
    pub fn reposters(&self, user: u64, original: Post) -> BTreeSet<u64> {
        let live = self.order.iter().filter(|post| self.is_repost(**post) && self.target(**post) == original);
        live.map(|post| post.0).filter(|by| !self.are_apart(user, *by)).collect()
    }

    /// The number of standing reposts of a post.
    pub fn reposts_of(&self, original: Post) -> usize {
        self.order.iter().filter(|post| self.is_repost(**post) && self.target(**post) == original).count()
    }

    /// Title and revision of a post.
    pub fn title(&self, post: Post) -> (String, u64) {
        self.edits.get(&post).cloned().unwrap_or((TITLE.to_owned(), 1))
    }

    /// Replaces a profile. Returns whether the handle is free for the user.
    pub fn set_profile(&mut self, user: u64, name: &str, handle: Option<&str>) -> bool {
        let free = handle.is_none_or(|handle| self.handles.get(handle).is_none_or(|owner| *owner == user));
        if free {
            self.handles.extend(handle.map(|handle| (handle.to_owned(), user)));
            self.profiles.insert(user, (name.to_owned(), handle.map(str::to_owned)));
        }
        free
    }

    /// Name and handle of a user with a profile.
    pub fn profile(&self, user: u64) -> Option<&(String, Option<String>)> {
        self.profiles.get(&user)
    }

    /// The live posts with a reaction of `user`, who may see them.
    pub fn reacted(&self, user: u64, kind: Kind) -> BTreeSet<Post> {
        let given = self.reactions.iter().filter(|(by, post, of)| *by == user && *of == kind && self.may_see(user, *post));
        given.map(|(_, post, _)| *post).collect()
    }

    pub fn delete(&mut self, post: Post) {
        if let Some(posts) = self.authors.get_mut(&post.0) {
            posts.live.remove(&post.1);
        }
        self.order.retain(|known| *known != post);
        if self.is_repost(post) {
            let original = self.target(post);
            self.acts.remove(&(original.0, format!("repost-{}", original.1), post.0));
        }
    }

    /// Removes a user who left, and every trace. The user's last sequence number stays.
    pub fn forget(&mut self, user: u64) {
        let stays = |&(one, other): &(u64, u64)| one != user && other != user;
        self.follows.retain(|pair, _| stays(pair));
        self.preferences.retain(|pair, _| stays(pair));
        self.through.retain(|pair, _| stays(pair));
        self.mutes.retain(stays);
        self.blocks.retain(stays);
        self.requests.retain(stays);
        self.private.remove(&user);
        self.lists.remove(&user);
        self.lists.values_mut().for_each(|(_, authors)| _ = authors.remove(&user));
        self.read.retain(|(by, post)| stays(&(*by, post.0)));
        self.reactions.retain(|(by, post, _)| stays(&(*by, post.0)));
        self.comments.retain(|(post, _), (by, ..)| stays(&(*by, post.0)));
        self.order.retain(|post| post.0 != user);
        self.authors.entry(user).and_modify(|posts| posts.live.clear());
        self.profiles.remove(&user);
        self.handles.retain(|_, owner| *owner != user);
        self.acts.retain(|(owner, _, by), _| stays(&(*owner, *by)));
        self.group_reads.retain(|(owner, _), _| *owner != user);
        self.inbox_reads.remove(&user);
    }

    /// Marks a post read or unread.
    pub fn mark(&mut self, user: u64, post: Post, read: bool) {
        if self.is_live(post) {
            set(&mut self.read, (user, post), read);
        }
    }

    /// Marks an author read through a sequence number.
    pub fn through(&mut self, user: u64, author: u64, seq: u64) {
        let seq = seq.min(self.latest(author));
        let mark = self.through.entry((user, author)).or_insert(0);
        if seq >= *mark {
            *mark = seq;
            self.read.extend((1..=seq).map(|seq| (user, (author, seq))));
        }
    }

    /// Marks all posts read.
    pub fn all(&mut self, user: u64) {
        for author in self.following(user) {
            if self.unread_posts(user, author) > 0 {
                self.through(user, author, u64::MAX);
            }
        }
    }

    /// Whether a reaction may be given or taken back. It may be taken back whatever became of the post.
    pub fn may_react(&self, user: u64, post: Post, given: bool) -> bool {
        let target = self.target(post);
        match given {
            true => self.may_see(user, post) && self.is_available(user, target),
            false => [post, target].iter().all(|post| post.1 <= self.latest(post.0) && self.may_see_author(user, post.0)),
        }
    }

    /// Adds or removes a reaction of `user`.
    pub fn react(&mut self, user: u64, post: Post, kind: Kind, given: bool) {
        if self.may_react(user, post, given) {
            self.react_before_deletion(user, self.target(post), kind, given);
        }
    }

    /// Does the same for a post that may have been deleted right after the reaction.
    pub fn react_before_deletion(&mut self, user: u64, post: Post, kind: Kind, given: bool) {
        let stood = self.reactions.contains(&(user, post, kind));
        set(&mut self.reactions, (user, post, kind), given);
        let group = format!("{}-{}", if kind == Kind::Like { "like" } else { "favorite" }, post.1);
        match given {
            true if stood => {}
            true => self.act(post.0, &group, user),
            false => _ = self.acts.remove(&(post.0, group, user)),
        }
    }

    fn act(&mut self, owner: u64, group: &str, user: u64) {
        self.clock += 1;
        self.acts.insert((owner, group.to_owned(), user), self.clock);
    }

    /// Marks a group of an inbox read.
    pub fn read_group(&mut self, owner: u64, group: &str) {
        self.clock += 1;
        self.group_reads.insert((owner, group.to_owned()), self.clock);
    }

    /// Marks the whole inbox read.
    pub fn read_inbox(&mut self, owner: u64) {
        self.clock += 1;
        self.inbox_reads.insert(owner, self.clock);
    }

    /// The groups of an inbox, sorted by name.
    pub fn inbox(&self, owner: u64) -> Vec<Group> {
        let mut groups: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
        let mut acts = self.acts.clone();
        for (quote, at) in self.quoted_at.iter().filter(|(quote, _)| self.is_live(**quote)) {
            let Some(original) = self.original(*quote) else { continue };
            let latest = acts.entry((original.0, format!("quote-{}", original.1), quote.0)).or_default();
            *latest = (*latest).max(*at);
        }
        for ((post, _), (user, at, _)) in self.comments.iter().filter(|(_, (.., text))| text.is_some()) {
            let latest = acts.entry((post.0, format!("comment-{}", post.1), *user)).or_default();
            *latest = (*latest).max(*at);
        }
        for ((of, group, user), at) in acts {
            let seq = group.split_once('-').map(|(_, seq)| seq.parse().expect("a number"));
            let is_gone = seq.is_some_and(|seq| !self.is_live((owner, seq)));
            if of == owner && user != owner && !is_gone && !self.are_apart(owner, user) {
                groups.entry(group).or_default().push((at, user));
            }
        }
        let shown = groups.into_iter().map(|(name, mut acts)| {
            acts.sort_unstable_by(|a, b| b.cmp(a));
            let heard = acts.iter().find(|(_, user)| !self.mutes(owner, *user)).map(|(at, _)| *at);
            let read = self.group_reads.get(&(owner, name.clone())).max(self.inbox_reads.get(&owner)).copied();
            let users = acts.into_iter().map(|(_, user)| user).collect();
            Group { name, users, read: heard.is_none_or(|heard| read.is_some_and(|read| heard <= read)) }
        });
        shown.collect()
    }

    pub fn has_reacted(&self, user: u64, post: Post, kind: Kind) -> bool {
        self.reactions.contains(&(user, post, kind))
    }

    pub fn reactions_to(&self, post: Post, kind: Kind) -> usize {
        self.reactions.iter().filter(|(_, of, known)| *of == post && *known == kind).count()
    }

    /// The users who have reacted to a post, as `user` sees them.
    pub fn likers(&self, user: u64, post: Post, kind: Kind) -> BTreeSet<u64> {
        let given = self.reactions.iter().filter(|(_, of, known)| *of == post && *known == kind);
        given.map(|(by, ..)| *by).filter(|by| !self.are_apart(user, *by)).collect()
    }

    /// Adds a comment. Returns false if its number was given before.
    pub fn comment(&mut self, user: u64, post: Post, number: u64, text: &str) -> bool {
        self.clock += 1;
        self.comments.insert((post, number), (user, self.clock, Some(text.to_owned()))).is_none()
    }

    /// Withdraws a comment. Returns false if `user` may not.
    pub fn withdraw(&mut self, user: u64, post: Post, number: u64) -> bool {
        match self.comments.get_mut(&(post, number)) {
            Some((author, _, text)) if *author == user || post.0 == user => {
                *text = None;
                true
            }
            _ => false,
        }
    }

    /// The numbers of the comments of a post that were ever written.
    pub fn comment_numbers(&self, post: Post) -> Vec<u64> {
        self.comments.range((post, 0)..=(post, u64::MAX)).map(|((_, number), _)| *number).collect()
    }

    /// The standing comments on a post, the lowest number first: number, author and text.
    pub fn comments(&self, post: Post) -> Vec<(u64, u64, String)> {
        let all = self.comments.range((post, 0)..=(post, u64::MAX));
        all.filter_map(|((_, number), (author, _, text))| Some((*number, *author, text.clone()?))).collect()
    }

    /// The number of reactions that `author` has received, including those to deleted posts.
    pub fn received(&self, author: u64, kind: Kind) -> usize {
        self.reactions.iter().filter(|(_, of, known)| of.0 == author && *known == kind).count()
    }

    /// The model if the read state were that of an older one.
    #[must_use]
    pub fn with_read_state_of(self, older: &Self) -> Self {
        Self { read: older.read.clone(), through: older.through.clone(), ..self }
    }

    /// The model if the relations of each user to others were those of an older one.
    #[must_use]
    pub fn with_relations_of(self, older: &Self) -> Self {
        let members = |id: &u64| older.lists.get(id).map(|(_, members)| members.clone()).unwrap_or_default();
        let lists = self.lists.iter().map(|(id, (list, _))| (*id, (list.clone(), members(id)))).collect();
        let (follows, preferences) = (older.follows.clone(), older.preferences.clone());
        let (mutes, blocks, requests) = (older.mutes.clone(), older.blocks.clone(), older.requests.clone());
        let is_of_pair = |act: &&(u64, String, u64)| [FOLLOWS, REQUESTS, ACCEPTED].contains(&&*act.1);
        let others = self.acts.iter().filter(|(act, _)| !is_of_pair(act));
        let acts = others.chain(older.acts.iter().filter(|(act, _)| is_of_pair(act)));
        let acts = acts.map(|(act, at)| (act.clone(), *at)).collect();
        Self { follows, preferences, mutes, blocks, requests, lists, acts, ..self }
    }

    /// The users who have published.
    pub fn authors(&self) -> Vec<u64> {
        self.authors.keys().copied().collect()
    }

    pub fn posts(&self, author: u64) -> usize {
        self.authors.get(&author).map_or(0, |posts| posts.live.len())
    }

    pub fn is_live(&self, post: Post) -> bool {
        self.authors.get(&post.0).is_some_and(|posts| posts.live.contains(&post.1))
    }

    /// The author's last sequence number.
    pub fn latest(&self, author: u64) -> u64 {
        self.authors.get(&author).map_or(0, |posts| posts.latest)
    }

    /// The authors that `user` follows.
    pub fn following(&self, user: u64) -> Vec<u64> {
        self.follows.keys().filter(|(follower, _)| *follower == user).map(|(_, author)| *author).collect()
    }

    /// Whether the feed of `user` gets the posts of `author`.
    pub fn hears(&self, user: u64, author: u64) -> bool {
        self.follows(user, author) && !self.mutes(user, author)
    }

    pub fn followers(&self, author: u64) -> usize {
        self.follows.keys().filter(|(_, followee)| *followee == author).count()
    }

    /// The feed of `user`, newest first: each post, and true if it is read.
    pub fn feed(&self, user: u64) -> Vec<(Post, bool)> {
        let shown = |post: &&Post| {
            let follow = self.follows.get(&(user, post.0));
            !self.mutes(user, post.0) && follow.is_some_and(|follow| post.1 > follow.floor)
        };
        self.order.iter().rev().filter(shown).map(|&post| (post, !self.is_unread(user, post))).collect()
    }

    /// The same with the posts of `user`, which are read.
    pub fn feed_with_own(&self, user: u64) -> Vec<(Post, bool)> {
        let own = self.order.iter().filter(|post| post.0 == user).map(|&post| (post, true));
        self.feed(user).into_iter().chain(own).collect()
    }

    /// The live posts of `author`, whom `user` follows, newest first: each post, and true if it is read.
    pub fn timeline(&self, user: u64, author: u64) -> Vec<(Post, bool)> {
        let live = self.authors.get(&author).into_iter().flat_map(|posts| posts.live.iter().rev());
        live.map(|&seq| ((author, seq), !self.is_unread(user, (author, seq)))).collect()
    }

    /// Returns true if the post counts as unread for `user`.
    pub fn is_unread(&self, user: u64, post: Post) -> bool {
        let follow = self.follows.get(&(user, post.0));
        self.is_live(post) && follow.is_some_and(|follow| post.1 > follow.base) && !self.read.contains(&(user, post))
    }

    /// The count of an author as the API returns it.
    pub fn unread_of(&self, user: u64, author: u64) -> u64 {
        if self.mutes(user, author) { 0 } else { self.unread_posts(user, author) }
    }

    /// The unread posts of an author, who may be muted.
    fn unread_posts(&self, user: u64, author: u64) -> u64 {
        (1..=self.latest(author)).filter(|&seq| self.is_unread(user, (author, seq))).count() as u64
    }

    pub fn unread_total(&self, user: u64) -> u64 {
        self.following(user).into_iter().map(|author| self.unread_of(user, author)).sum()
    }
}

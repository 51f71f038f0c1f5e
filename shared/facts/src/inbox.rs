//! Groups of inboxes, and the facts that only these are derived from: the table `inbox`.

use std::collections::{BTreeSet, HashMap, HashSet};

use futures::future::try_join_all;
use tidemark_domain::{
    Acts, Edge, Group, GroupId, GroupKind, Inbox, PostId, Reaction, ReactionState, StoreError, Timestamp, UserId, ids::SHARDS,
    inbox::GROUP_LIFETIME_MS,
};
use tracing::warn;

use super::{
    Facts, Result,
    comments::read_count,
    distinct,
    edges::read_edge,
    followers::read_follower,
    item::{Attribute, Item, number, string},
    reactions::read_reactor,
    read,
    schema::{self, CommentCountItem, FollowerItem, GroupItem, InboxReadItem, ReactedItem, ReactionCountsItem, ReactionItem},
    stream::group_of,
    write::{Write, absent, below, between, count_queried, is, only, present, queried, still_number},
};

/// All that is stored of a user's inbox.
#[derive(Debug, Default)]
pub struct StoredInbox {
    pub inbox: Inbox,
    /// The groups that cannot be read. They are left out until reconcile derives them again.
    pub damaged: Vec<GroupId>,
}

/// A group as a derivation finds it.
#[derive(Debug)]
pub enum StoredGroup {
    Absent,
    Present(Group),
    /// It cannot be read. The next derivation replaces it.
    Damaged,
}

impl Facts {
    /// Returns all groups of a user, by one consistent query.
    pub async fn inbox(&self, user: UserId) -> Result<StoredInbox> {
        let query = self.query(&self.tables.inbox, [is(GroupItem::user, number(user.get()))]).consistent_read(true);
        let mut stored = StoredInbox::default();
        for item in queried("inbox", query, usize::MAX).await? {
            let sort_key: String = GroupItem::item.read(&item)?;
            let Some(id) = schema::group_of(&sort_key) else {
                // A time that cannot be read hides no group: all of them are unread again.
                let read_before = read(item, |item: InboxReadItem| Ok(item.read_before)).unwrap_or_else(|error| {
                    warn!(error = &error as &dyn std::error::Error, "an inbox counts as never read");
                    None
                });
                stored.inbox.read_before = Timestamp::from_ms(read_before.unwrap_or_default());
                continue;
            };
            match read_group(item) {
                Ok(group) => stored.inbox.groups.push(group),
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "a group of an inbox is left out");
                    stored.damaged.push(id);
                }
            }
        }
        Ok(stored)
    }

    pub async fn group(&self, user: UserId, id: GroupId) -> Result<StoredGroup> {
        let item = self.get_one("group", &self.tables.inbox, schema::group(user, id)).await?;
        Ok(match item.map(read_group) {
            None => StoredGroup::Absent,
            Some(Ok(group)) => StoredGroup::Present(group),
            Some(Err(_)) => StoredGroup::Damaged,
        })
    }

    /// Replaces what was derived of a group, unless another derivation has been written since `before` was read. A
    /// group that is neither of acts nor read is deleted. Returns whether it was written.
    pub async fn put_group(&self, user: UserId, before: &StoredGroup, after: &Group, now: Timestamp) -> Result<bool> {
        let (inbox, key) = (&self.tables.inbox, schema::group(user, after.id));
        let version = match before {
            StoredGroup::Absent => Some(0),
            StoredGroup::Present(group) => Some(group.version),
            StoredGroup::Damaged => None,
        };
        let unchanged = |write: Write| match version {
            Some(version) => write.when(still_number(GroupItem::version, version)),
            None => write,
        };
        if after.acts.is_none() && after.read_at.is_none() {
            let delete = Write::delete(inbox, key);
            // The user may have read it since.
            let delete = match before {
                StoredGroup::Present(group) => {
                    let read_at = group.read_at.map_or(0, Timestamp::ms);
                    delete.when(still_number(GroupItem::read_at, read_at))
                }
                StoredGroup::Absent => delete.when(absent(GroupItem::read_at)),
                StoredGroup::Damaged => delete,
            };
            return self.send("put_group", unchanged(delete)).await;
        }
        let mut update = Write::update(inbox, key)
            .set(GroupItem::version, number(after.version))
            .set(GroupItem::written_at, number(after.written_at.ms()))
            .set(GroupItem::expires_at, number(expires_at(after, now)));
        for (attribute, value) in derived(after) {
            update = match value {
                Some(value) => update.set(attribute, value),
                None => update.remove([attribute]),
            };
        }
        if version.is_none() {
            update = update.remove([GroupItem::read_at]);
        }
        self.send("put_group", unchanged(update)).await
    }

    /// Notes that the user has read a group up to a time. Returns false if there is no such group.
    pub async fn read_group(&self, user: UserId, id: GroupId, at: Timestamp) -> Result<bool> {
        let earlier = absent(GroupItem::read_at).or(below(GroupItem::read_at, number(at.ms())));
        let update = Write::update(&self.tables.inbox, schema::group(user, id)).set(GroupItem::read_at, number(at.ms()));
        if self.send("read_group", update.when(present(GroupItem::latest_at)).when(earlier)).await? {
            return Ok(true);
        }
        // The user may have read it later than that.
        let found = self.group(user, id).await?;
        Ok(matches!(found, StoredGroup::Present(Group { acts: Some(_), .. })))
    }

    /// Notes that the user has read the inbox up to a time. It never goes back.
    pub async fn read_inbox(&self, user: UserId, before: Timestamp) -> Result<()> {
        let before = number(before.ms());
        let earlier = absent(InboxReadItem::read_before).or(below(InboxReadItem::read_before, before.clone()));
        let update = Write::update(&self.tables.inbox, schema::inbox_read(user)).set(InboxReadItem::read_before, before);
        self.send("read_inbox", update.when(earlier)).await.map(drop)
    }

    /// Deletes at most `limit` items of a user's inbox. Returns how many.
    pub async fn remove_inbox(&self, user: UserId, limit: usize) -> Result<usize> {
        let query = self.query(&self.tables.inbox, [is(GroupItem::user, number(user.get()))]).consistent_read(true);
        let items = queried("remove_inbox", only(query, &[GroupItem::user, GroupItem::item]), limit).await?;
        self.delete_all(&self.tables.inbox, items).await
    }

    pub async fn has_inbox(&self, user: UserId) -> Result<bool> {
        let query = self.query(&self.tables.inbox, [is(GroupItem::user, number(user.get()))]).consistent_read(true);
        Ok(!queried("has_inbox", only(query, &[GroupItem::item]), 1).await?.is_empty())
    }

    /// Returns the reactions of these users to the author's posts, and the blocks between each and the author. A user
    /// whose item cannot be read counts as one without.
    pub async fn reactors(&self, author: UserId, users: &[UserId]) -> Result<HashMap<UserId, ReactionState>> {
        let keys = distinct(users).into_iter().map(|user| schema::reaction(user, author)).collect();
        let items = self.get("reactors", &self.tables.reactions, keys).await?;
        let known = items.into_iter().filter_map(|item| {
            let known = read_reactor(item);
            let log = |error: &StoreError| warn!(error = error as &dyn std::error::Error, "a user's reactions are left out");
            known.inspect_err(log).ok()
        });
        Ok(known.collect())
    }

    /// Returns those of these users whom the user mutes. A pair that cannot be read counts as one without a mute.
    pub async fn muted(&self, user: UserId, others: &[UserId]) -> Result<HashSet<UserId>> {
        let edges = self.readable_edges(user, others).await?;
        Ok(edges.into_iter().filter(|edge| edge.muted.is_some()).map(|edge| edge.author).collect())
    }

    /// Returns the pair of two users, if there is one that can be read.
    pub async fn readable_edge(&self, user: UserId, author: UserId) -> Result<Option<Edge>> {
        Ok(self.readable_edges(user, &[author]).await?.pop())
    }

    async fn readable_edges(&self, user: UserId, others: &[UserId]) -> Result<Vec<Edge>> {
        let keys = distinct(others).into_iter().map(|other| schema::edge(user, other)).collect();
        let items = self.get("readable_edges", &self.tables.following, keys).await?;
        let log = |error: &StoreError| warn!(error = error as &dyn std::error::Error, "a pair is left out");
        Ok(items.into_iter().filter_map(|item| read_edge(item).inspect_err(log).ok()).collect())
    }

    /// Returns how many users began to follow the author after `after`, up to `through`, and still do.
    pub async fn follows_between(&self, author: UserId, after: Timestamp, through: Timestamp) -> Result<u64> {
        if after >= through {
            return Ok(0);
        }
        let [first, last] = [format!("{:015}#", after.ms() + 1), format!("{:015}$", through.ms())];
        let of_shard = |shard| {
            let partition = is(FollowerItem::shard, string(schema::follower_shard(author, shard)));
            let range = between(FollowerItem::since, string(&first), string(&last));
            let query = self.query(&self.tables.followers, [partition, range]).index_name(schema::BY_TIME).consistent_read(true);
            count_queried("follows_between", query)
        };
        Ok(try_join_all((0..SHARDS).map(of_shard)).await?.into_iter().sum())
    }

    /// Returns those of these pairs of a user and a post whose user reposts the post.
    pub async fn reposting(&self, pairs: &[(UserId, PostId)]) -> Result<HashSet<(UserId, PostId)>> {
        let keys = distinct(pairs).into_iter().map(|(user, post)| schema::repost(user, post)).collect();
        let items = self.get("reposting", &self.tables.reacted, keys).await?;
        let pair = |item: &Item| {
            let post = ReactedItem::at.parsed(item, schema::reaction_of)?.post;
            Ok((ReactedItem::user.parsed(item, schema::reposting_user)?, post))
        };
        items.iter().map(pair).collect()
    }

    /// Returns those of these pairs of a user and a post whose user has comments that stand on the post.
    pub async fn commenting(&self, pairs: &[(UserId, PostId)]) -> Result<HashSet<(UserId, PostId)>> {
        let keys = distinct(pairs).into_iter().map(|(user, post)| schema::commented(post, user)).collect();
        let items = self.get("commenting", &self.tables.reactions, keys).await?;
        let mut found = HashSet::new();
        for item in items {
            let author = CommentCountItem::shard.parsed(&item, schema::shard_author)?;
            let (seq, user) = CommentCountItem::item.parsed(&item, schema::commented_of)?;
            if read_count(item)?.0 > 0 {
                found.insert((user, PostId::new(author, seq)));
            }
        }
        Ok(found)
    }

    /// Returns the groups of an author's posts that have acts of users of a shard, at most `limit` of each of two
    /// kinds of items, those of the newest posts.
    pub async fn acted_on(&self, author: UserId, shard: u16, limit: usize) -> Result<BTreeSet<GroupId>> {
        let of_shard = |range: [&'static str; 2], limit| {
            let partition = is(ReactionItem::shard, string(schema::follower_shard(author, shard)));
            let range = between(ReactionItem::item, string(range[0]), string(range[1]));
            let query = self.query(&self.tables.reactions, [partition, range]).consistent_read(true);
            queried("acted_on", query.scan_index_forward(false), limit)
        };
        let (counts, comments) =
            futures::try_join!(of_shard(schema::QUOTES_AND_POSTS, 2 * limit), of_shard(schema::COMMENTED, limit))?;
        let mut found = BTreeSet::new();
        for item in counts {
            let sort_key: String = ReactionCountsItem::item.read(&item)?;
            found.extend(schema::quoter_of(&sort_key).map(|(seq, ..)| GroupId::of_post(GroupKind::Quote, seq)));
            let Some(seq) = schema::post_seq(&sort_key) else { continue };
            let has = |of: Attribute| of.of(&item).and_then(|count| count.as_n().ok()).is_some_and(|count| count != "0");
            let reactions = Reaction::ALL.into_iter().filter(|reaction| has(super::reactions::counted(*reaction)));
            found.extend(reactions.map(|reaction| group_of(reaction, seq)));
            found.extend(has(ReactionCountsItem::reposts).then(|| GroupId::of_post(GroupKind::Repost, seq)));
        }
        let commented = |item: &Item| CommentCountItem::item.parsed(item, schema::commented_of);
        for item in comments {
            found.insert(GroupId::of_post(GroupKind::Comment, commented(&item)?.0));
        }
        Ok(found)
    }

    /// Returns the groups of an author that have reposts or comments of a user: those of at most `limit` of each on the
    /// newest posts.
    pub async fn newest_acts_of(&self, user: UserId, author: UserId, limit: usize) -> Result<BTreeSet<GroupId>> {
        if limit == 0 {
            return Ok(BTreeSet::new());
        }
        let listed = |partition: String| {
            let [first, last] = schema::reacted_to(author).map(string);
            let query = [is(ReactedItem::user, string(partition)), between(ReactedItem::post, first, last)];
            let newest = self.query(&self.tables.reacted, query).consistent_read(true).scan_index_forward(false);
            queried("newest_acts_of", newest, limit)
        };
        let (reposts, comments) = futures::try_join!(listed(schema::reposts_by(user)), listed(schema::comments_by(user)))?;
        let of_kind = |kind: GroupKind, items: Vec<Item>| {
            let seq = |item: &Item| ReactedItem::post.parsed(item, schema::reacted_seq);
            items.iter().map(|item| Ok(GroupId::of_post(kind, seq(item)?))).collect::<Result<BTreeSet<_>>>()
        };
        let mut found = of_kind(GroupKind::Repost, reposts)?;
        found.extend(of_kind(GroupKind::Comment, comments)?);
        Ok(found)
    }

    /// Returns the time of the follow that an author lists of a user, if there is one, and whether the author lists a
    /// request of the user.
    pub async fn listed_of(&self, author: UserId, user: UserId) -> Result<(Option<Timestamp>, bool)> {
        let [request, _] = schema::requests(user, author);
        let (follow, request) = futures::try_join!(
            self.get_one("listed_of", &self.tables.followers, schema::follower(author, user)),
            self.get_one("listed_of", &self.tables.followers, request)
        )?;
        // An entry that cannot be read is in no group.
        let since = follow.and_then(|item| read_follower(&item).ok()).map(|entry| entry.since);
        Ok((since, request.is_some()))
    }
}

/// The attributes of a group that a derivation sets or removes.
fn derived(group: &Group) -> [(Attribute, Option<aws_sdk_dynamodb::types::AttributeValue>); 6] {
    use aws_sdk_dynamodb::types::AttributeValue;
    let users = |users: &[UserId]| AttributeValue::L(users.iter().map(|user| number(user.get())).collect());
    let time = |at: Timestamp| number(at.ms());
    let Group { acts, apart, entries, .. } = group;
    [
        (GroupItem::count, acts.as_ref().map(|acts| number(acts.count))),
        (GroupItem::users, acts.as_ref().map(|acts| users(&acts.users))),
        (GroupItem::latest_at, acts.as_ref().map(|acts| time(acts.latest_at))),
        (GroupItem::heard_at, acts.as_ref().and_then(|acts| acts.heard_at).map(time)),
        (GroupItem::apart, (!apart.is_empty()).then(|| users(apart))),
        (GroupItem::entries, (*entries > 0).then(|| number(*entries))),
    ]
}

/// The second in which the table forgets a group. The remains of one are kept as long as an act that was read.
fn expires_at(group: &Group, now: Timestamp) -> u64 {
    let last = group.acts.as_ref().map_or(now, |acts| acts.latest_at);
    last.plus_ms(GROUP_LIFETIME_MS).seconds() + 1
}

fn read_group(item: Item) -> Result<Group> {
    read(item, |item: GroupItem| {
        let id = schema::group_of(&item.item).ok_or(GroupItem::item)?;
        let users = |users: Vec<std::num::NonZeroU64>| users.into_iter().map(UserId::from).collect::<Vec<_>>();
        let time = |ms: Option<u64>| ms.map(Timestamp::from_ms);
        let acts = match time(item.latest_at) {
            None => None,
            Some(latest_at) => Some(Acts {
                count: item.count.filter(|count| *count > 0).ok_or(GroupItem::count)?,
                users: item.users.map(users).filter(|users| !users.is_empty()).ok_or(GroupItem::users)?,
                latest_at,
                heard_at: time(item.heard_at),
            }),
        };
        Ok(Group {
            id,
            acts,
            read_at: time(item.read_at),
            version: item.version,
            written_at: Timestamp::from_ms(item.written_at),
            apart: item.apart.map(users).unwrap_or_default(),
            entries: item.entries.unwrap_or_default(),
        })
    })
}

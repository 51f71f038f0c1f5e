//! Records of the streams of DynamoDB.

use tidemark_domain::{GroupId, GroupKind, Platform, PostId, Reaction, Timestamp, UserId};

use super::{
    Tables,
    item::Count,
    schema::{
        self, EdgeItem, EdgeKey, HEAD, NoticeReadsKey, PlatformKey, PostItem, PostKey, ProfileKey, ReactionCountsItem,
        ReactionKey, ReadsVersion,
    },
};

/// A change of a fact that views show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// The follow, mute, block, lists or preference of a pair.
    Edge {
        user: UserId,
        author: UserId,
        part: EdgePart,
    },
    /// A read state, with its version.
    Reads {
        user: UserId,
        author: UserId,
        version: u32,
    },
    /// The reactions of a user to an author's posts.
    Reactions {
        user: UserId,
        author: UserId,
    },
    /// The number of reactions to a post.
    Counts(PostId),
    /// The number of comments on a post. No score depends on it.
    Comments(PostId),
    /// The numbers of an author's posts.
    Head(UserId),
    Post {
        id: PostId,
        write: PostWrite,
    },
    Profile(UserId),
    PlatformHead(Platform),
    /// An edit waits to be written to its notices, or was.
    PendingEdit {
        platform: Platform,
        revision: u64,
    },
    NoticeReads {
        user: UserId,
        platform: Platform,
    },
    /// The acts of a group of a user's inbox.
    Group {
        user: UserId,
        id: GroupId,
    },
    /// The user has begun or ended to mute or to block the other, or the other to block the user: which acts of the
    /// other the inbox of the user has.
    Apart {
        user: UserId,
        other: UserId,
        by: Hiding,
    },
}

/// What keeps the acts of a user out of another's inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hiding {
    Mute,
    Block,
}

/// What has changed in an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgePart {
    /// Neither began nor ended a follow.
    Choices,
    /// A follow may have begun or ended.
    Follow,
}

/// What has happened to a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PostWrite {
    /// It was published or imported. No view has it yet.
    New,
    /// Its title or text has changed.
    Edited,
    Deleted,
}

/// One record of a stream. An image is empty if the item was absent.
#[derive(Debug, Clone, Copy)]
pub struct StreamRecord<'a> {
    /// The stream, whose ARN names the table.
    pub arn: Option<&'a str>,
    pub keys: &'a serde_dynamo::Item,
    pub old: &'a serde_dynamo::Item,
    pub new: &'a serde_dynamo::Item,
}

/// The keys of a record are not those of its table.
#[derive(Debug, thiserror::Error)]
#[error("malformed stream record of {table}")]
pub struct MalformedRecord {
    table: String,
}

impl StreamRecord<'_> {
    /// Returns the changes that the record shows; none if neither a view nor an inbox shows it: a text, a window or a
    /// notice changes together with its post, read state or head, and a fan-out notes its progress among the facts.
    pub fn changes(&self, tables: &Tables) -> Result<Vec<Change>, MalformedRecord> {
        let table = self.table();
        let one = |change: Option<Option<Change>>| change.map(Vec::from_iter);
        let changes = if table == tables.following {
            self.edge()
        } else if table == tables.reads {
            one(self.reads())
        } else if table == tables.posts {
            self.post()
        } else if table == tables.reactions {
            self.reactions()
        } else if table == tables.profiles {
            self.key().map(|ProfileKey { user }| vec![Change::Profile(user.into())])
        } else if table == tables.notices {
            one(self.notices())
        } else if table == tables.notice_reads {
            self.key().map(|NoticeReadsKey { user, platform }| vec![Change::NoticeReads { user: user.into(), platform }])
        } else {
            None
        };
        changes.ok_or_else(|| MalformedRecord { table: table.to_owned() })
    }

    pub(crate) fn table(&self) -> &str {
        self.arn.and_then(|arn| arn.split('/').nth(1)).unwrap_or_default()
    }

    fn key<K: serde::de::DeserializeOwned>(&self) -> Option<K> {
        serde_dynamo::from_item(self.keys.clone()).ok()
    }

    fn pair(&self) -> Option<(UserId, UserId)> {
        self.key().map(|EdgeKey { user, author }| (user.into(), author.into()))
    }

    fn notices(&self) -> Option<Option<Change>> {
        let PlatformKey { platform, item } = self.key()?;
        let head = (item == HEAD).then_some(Change::PlatformHead(platform));
        let pending = || schema::pending_edit_revision(&item).map(|revision| Change::PendingEdit { platform, revision });
        Some(head.or_else(pending))
    }

    fn edge(&self) -> Option<Vec<Change>> {
        let (user, author) = self.pair()?;
        let images = [self.old, self.new].map(|image| serde_dynamo::from_item::<_, EdgeItem>(image.clone()).ok());
        let of = |of: fn(&EdgeItem) -> Option<u64>| images.each_ref().map(|image| image.as_ref().and_then(of));
        let follows = of(|edge| edge.following.filter(|following| *following).map(|_| edge.since));
        let part = if follows[0] == follows[1] { EdgePart::Choices } else { EdgePart::Follow };
        let mut changes = vec![Change::Edge { user, author, part }];
        if part == EdgePart::Follow {
            let times = follows.into_iter().flatten().map(Timestamp::from_ms);
            changes.extend(times.map(|at| Change::Group { user: author, id: GroupId::follow(at) }));
        }
        let accepted = of(|edge| edge.following.zip(edge.accepted).filter(|both| *both == (true, true)).map(|_| edge.since));
        if accepted[0] != accepted[1] {
            let days = accepted.into_iter().flatten().map(|at| GroupId::accepted(Timestamp::from_ms(at)));
            changes.extend(days.map(|id| Change::Group { user, id }));
        }
        let differs = |[old, new]: [Option<u64>; 2]| old != new;
        if differs(of(|edge| edge.requested_at)) {
            changes.push(Change::Group { user: author, id: GroupId::REQUEST });
        }
        if differs(of(|edge| edge.muted_at)) {
            changes.push(Change::Apart { user, other: author, by: Hiding::Mute });
        }
        if differs(of(|edge| edge.blocked_at)) {
            let apart = |user, other| Change::Apart { user, other, by: Hiding::Block };
            changes.extend([apart(user, author), apart(author, user)]);
        }
        Some(changes)
    }

    fn reads(&self) -> Option<Option<Change>> {
        // A window has another key.
        let Some((user, author)) = self.pair() else { return Some(None) };
        let version = serde_dynamo::from_item(self.new.clone()).map_or(u32::MAX, |ReadsVersion { version }| version);
        Some(Some(Change::Reads { user, author, version }))
    }

    fn post(&self) -> Option<Vec<Change>> {
        let PostKey { author, item } = self.key()?;
        let author = author.into();
        if item == HEAD {
            return Some(vec![Change::Head(author)]);
        }
        let Some(seq) = schema::post_seq(&item) else { return Some(Vec::new()) };
        let shown = |image: &serde_dynamo::Item| {
            let PostItem { title, tombstone, revision, .. } = serde_dynamo::from_item(image.clone()).ok()?;
            Some((title, tombstone, revision))
        };
        let write = match [self.old, self.new].map(shown) {
            [None, Some((_, None, _))] => PostWrite::New,
            // An import has written the remains of a post that no view had.
            [None, Some((_, Some(true), _))] => return Some(Vec::new()),
            // A fan-out has noted its progress.
            [Some(old), Some(new)] if old == new => return Some(Vec::new()),
            [_, Some((_, None, _))] => PostWrite::Edited,
            _ => PostWrite::Deleted,
        };
        let mut changes = vec![Change::Post { id: PostId::new(author, seq), write }];
        if write == PostWrite::Deleted {
            let groups = GroupKind::OF_POSTS.into_iter().map(|kind| GroupId::of_post(kind, seq));
            changes.extend(groups.map(|id| Change::Group { user: author, id }));
        }
        Some(changes)
    }

    fn reactions(&self) -> Option<Vec<Change>> {
        let ReactionKey { shard, item } = self.key()?;
        let user = schema::shard_author(&shard)?;
        if let Some(post) = schema::comment_counts_post(&shard) {
            return Some(vec![Change::Comments(post)]);
        }
        if let Some(reacting) = schema::reacting_user(&item) {
            return Some(vec![Change::Reactions { user: reacting, author: user }]);
        }
        let group = |kind, seq| Change::Group { user, id: GroupId::of_post(kind, seq) };
        if let Some(comment) = schema::comment_of(&shard, &item) {
            return Some(vec![group(GroupKind::Comment, comment.post.seq)]);
        }
        if let Some((seq, reaction, _)) = schema::liker_of(&item) {
            return Some(vec![Change::Group { user, id: group_of(reaction, seq) }]);
        }
        let of_others = schema::reposter_of(&item).map(|(seq, _)| (GroupKind::Repost, seq));
        let of_others = of_others.or(schema::quoter_of(&item).map(|(seq, ..)| (GroupKind::Quote, seq)));
        let of_others = of_others.or(schema::commented_of(&item).map(|(seq, _)| (GroupKind::Comment, seq)));
        if let Some((kind, seq)) = of_others {
            return Some(vec![group(kind, seq)]);
        }
        let Some(seq) = schema::post_seq(&item) else { return Some(Vec::new()) };
        let counts = [self.old, self.new].map(|image| {
            let counts: Option<ReactionCountsItem> = serde_dynamo::from_item(image.clone()).ok();
            counts.map_or([0; 3], |counts| {
                let counts = [counts.likes, counts.favorites, counts.reposts];
                counts.map(|count| count.and_then(|Count(count)| count).unwrap_or(0))
            })
        });
        let kinds = [GroupKind::Like, GroupKind::Favorite, GroupKind::Repost].into_iter().enumerate();
        let changed = kinds.filter(|(index, _)| counts[0][*index] != counts[1][*index]);
        let groups = changed.map(|(_, kind)| group(kind, seq));
        Some([Change::Counts(PostId::new(user, seq))].into_iter().chain(groups).collect())
    }
}

/// The group of a reaction to a post.
pub fn group_of(reaction: Reaction, seq: u64) -> GroupId {
    GroupId::of_post(if reaction == Reaction::Like { GroupKind::Like } else { GroupKind::Favorite }, seq)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_dynamo::{AttributeValue, Item};

    use super::*;

    /// An item: names and values. A value of digits is a number.
    fn item(text: &str) -> Item {
        let attribute = |pair: &str| {
            let (name, value) = pair.split_once(' ').unwrap();
            let value = match value {
                "true" => AttributeValue::Bool(true),
                _ if value.bytes().all(|byte| byte.is_ascii_digit()) => AttributeValue::N(value.to_owned()),
                _ => AttributeValue::S(value.to_owned()),
            };
            (name.to_owned(), value)
        };
        let pairs = text.split(", ").filter(|pair| !pair.is_empty());
        Item::from(pairs.map(attribute).collect::<HashMap<_, _>>())
    }

    fn changes(table: &str, keys: &str, images: [&str; 2]) -> Result<Vec<Change>, MalformedRecord> {
        let arn = format!("arn:aws:dynamodb:eu-central-1:123456789012:table/{table}/stream/2026-11-20T00:00:00.000");
        let [keys, old, new] = [keys, images[0], images[1]].map(item);
        StreamRecord { arn: Some(&arn), keys: &keys, old: &old, new: &new }.changes(&Tables::of_tests())
    }

    type Case<'a> = (&'a str, &'a str, [&'a str; 2], Vec<Change>);

    fn user() -> UserId {
        UserId::new(1).unwrap()
    }

    fn author() -> UserId {
        UserId::new(7).unwrap()
    }

    fn group(user: UserId, id: GroupId) -> Change {
        Change::Group { user, id }
    }

    /// The group of acts on post 7-3.
    fn of_kind(kind: GroupKind) -> Change {
        group(author(), GroupId::of_post(kind, 3))
    }

    fn check(cases: Vec<Case<'_>>) {
        for (table, keys, images, expected) in cases {
            assert_eq!(changes(table, keys, images).unwrap(), expected, "{table} {keys} {images:?}");
        }
    }

    #[test]
    fn a_record_of_a_pair_names_what_views_and_inboxes_show() {
        let (user, author, pair) = (user(), author(), "user 1, author 7");
        let left = format!("{pair}, since 5, rev 1, base 0, floor 0");
        let follow = format!("{left}, following true");
        let [muted, accepted] = ["muted_at 6", "accepted true"].map(|more| format!("{follow}, {more}"));
        let [asked, blocked] = ["requested_at 6", "blocked_at 6"].map(|more| format!("{left}, {more}"));
        let edge = |part| Change::Edge { user, author, part };
        let at = Timestamp::from_ms(5);
        let followed = || vec![edge(EdgePart::Follow), Change::Group { user: author, id: GroupId::follow(at) }];
        let apart = |user, other, by| Change::Apart { user, other, by };
        let hidden = vec![edge(EdgePart::Choices), apart(user, author, Hiding::Block), apart(author, user, Hiding::Block)];
        check(vec![
            ("following", pair, ["", follow.as_str()], followed()),
            ("following", pair, ["", &accepted], [followed(), vec![group(user, GroupId::accepted(at))]].concat()),
            ("following", pair, [&follow, &muted], vec![edge(EdgePart::Choices), apart(user, author, Hiding::Mute)]),
            ("following", pair, [&muted, &left], [followed(), vec![apart(user, author, Hiding::Mute)]].concat()),
            ("following", pair, ["", &asked], vec![edge(EdgePart::Choices), group(author, GroupId::REQUEST)]),
            ("following", pair, ["", &blocked], hidden),
            ("reads", pair, ["", "user 1, author 7, version 9"], vec![Change::Reads { user, author, version: 9 }]),
            ("reads", pair, ["", ""], vec![Change::Reads { user, author, version: u32::MAX }]),
            ("reads", "user 1, author 100000000000000000007", ["", ""], vec![]),
        ]);
    }

    #[test]
    fn a_record_of_a_post_names_what_views_and_inboxes_show() {
        let post = "author 7, item post#0000000000000003";
        let published = format!("{post}, at 1, mode push, state pending, followers 1");
        let titled = format!("{published}, title one");
        let (moved, edited) = (format!("{titled}, seen_pages 4"), format!("{published}, title two, revision 2"));
        let tombstone = format!("{published}, tombstone true");
        let of_post = |write| Change::Post { id: PostId::new(author(), 3), write };
        let gone = || [of_post(PostWrite::Deleted)].into_iter().chain(GroupKind::OF_POSTS.into_iter().map(of_kind)).collect();
        check(vec![
            ("posts", "author 7, item head", ["", ""], vec![Change::Head(author())]),
            ("posts", "author 7, item body#0000000000000003", ["", ""], vec![]),
            ("posts", post, ["", titled.as_str()], vec![of_post(PostWrite::New)]),
            ("posts", post, [&titled, &moved], vec![]),
            ("posts", post, [&titled, &edited], vec![of_post(PostWrite::Edited)]),
            ("posts", post, [&titled, &tombstone], gone()),
            ("posts", post, ["", &tombstone], vec![]),
            ("posts", post, ["", ""], gone()),
        ]);
    }

    #[test]
    fn a_record_of_an_act_names_what_views_and_inboxes_show() {
        let id = PostId::new(author(), 3);
        let counts = "shard 7#03, item post#0000000000000003";
        let (one, two) = (format!("{counts}, likes 1, changes 1"), format!("{counts}, likes 1, favorites 0, changes 2"));
        let reactions = Change::Reactions { user: user(), author: author() };
        let [like, repost] = ["like", "repost"]
            .map(|kind| format!("shard 7#03, item {kind}#0000000000000003#000000000000005#00000000000000000001"));
        let quote = "shard 7#03, item naming#0000000000000003#000000000000005#00000000000000000001#0000000000000009";
        let commented = "shard 7#03, item commented#0000000000000003#00000000000000000001";
        let cases = [
            ("shard 7#03, item user#00000000000000000001", ["", ""], vec![reactions]),
            (counts, ["", one.as_str()], vec![Change::Counts(id), of_kind(GroupKind::Like)]),
            (counts, [&one, &two], vec![Change::Counts(id)]),
            ("shard 7#03, item total", ["", ""], vec![]),
            (like.as_str(), ["", ""], vec![of_kind(GroupKind::Like)]),
            (&repost, ["", ""], vec![of_kind(GroupKind::Repost)]),
            (quote, ["", ""], vec![of_kind(GroupKind::Quote)]),
            (commented, ["", ""], vec![of_kind(GroupKind::Comment)]),
            ("shard 7#3#comments#0, item comment#0000000000000003", ["", ""], vec![of_kind(GroupKind::Comment)]),
            ("shard 7#3#counts#0, item lane#02", ["", ""], vec![Change::Comments(id)]),
        ];
        check(cases.into_iter().map(|(keys, images, expected)| ("reactions", keys, images, expected)).collect());
    }

    #[test]
    fn other_records_name_what_views_show() {
        let (user, platform) = (user(), "4".parse().unwrap());
        check(vec![
            ("profiles", "user 1", ["", ""], vec![Change::Profile(user)]),
            ("notices", "platform 4, item head", ["", ""], vec![Change::PlatformHead(platform)]),
            ("notices", "platform 4, item notice#0000000000000003", ["", ""], vec![]),
            (
                "notices",
                "platform 4, item edit#00000000000000000009",
                ["", ""],
                vec![Change::PendingEdit { platform, revision: 9 }],
            ),
            ("notice_reads", "user 1, platform 4", ["", ""], vec![Change::NoticeReads { user, platform }]),
        ]);
        for (table, keys) in [("following", "other 1"), ("posts", "author 0, item head"), ("handles", "user 1")] {
            assert_eq!(changes(table, keys, ["", ""]).unwrap_err().to_string(), format!("malformed stream record of {table}"));
        }
    }
}

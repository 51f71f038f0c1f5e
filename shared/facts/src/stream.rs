//! Records of the streams of DynamoDB.

use tidemark_domain::{Platform, PostId, UserId};

use super::{
    Tables,
    schema::{
        self, EdgeItem, EdgeKey, HEAD, NoticeReadsKey, PlatformKey, PostItem, PostKey, ProfileKey, ReactionKey, ReadsVersion,
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
    /// Returns the change that the record shows; `None` if no view shows it: a text, a window or a notice changes
    /// together with its post, read state or head, and a fan-out notes its progress among the facts.
    pub fn change(&self, tables: &Tables) -> Result<Option<Change>, MalformedRecord> {
        let table = self.arn.and_then(|arn| arn.split('/').nth(1)).unwrap_or_default();
        let change = if table == tables.following {
            self.edge()
        } else if table == tables.reads {
            self.reads()
        } else if table == tables.posts {
            self.post()
        } else if table == tables.reactions {
            self.reactions()
        } else if table == tables.profiles {
            self.key().map(|ProfileKey { user }| Some(Change::Profile(user.into())))
        } else if table == tables.notices {
            self.notices()
        } else if table == tables.notice_reads {
            self.key().map(|NoticeReadsKey { user, platform }| Some(Change::NoticeReads { user: user.into(), platform }))
        } else {
            None
        };
        change.ok_or_else(|| MalformedRecord { table: table.to_owned() })
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

    fn edge(&self) -> Option<Option<Change>> {
        let (user, author) = self.pair()?;
        let follow = |image: &serde_dynamo::Item| {
            let EdgeItem { following, since, .. } = serde_dynamo::from_item(image.clone()).ok()?;
            following.unwrap_or(false).then_some(since)
        };
        let part = if follow(self.old) == follow(self.new) { EdgePart::Choices } else { EdgePart::Follow };
        Some(Some(Change::Edge { user, author, part }))
    }

    fn reads(&self) -> Option<Option<Change>> {
        // A window has another key.
        let Some((user, author)) = self.pair() else { return Some(None) };
        let version = serde_dynamo::from_item(self.new.clone()).map_or(u32::MAX, |ReadsVersion { version }| version);
        Some(Some(Change::Reads { user, author, version }))
    }

    fn post(&self) -> Option<Option<Change>> {
        let PostKey { author, item } = self.key()?;
        let author = author.into();
        if item == HEAD {
            return Some(Some(Change::Head(author)));
        }
        let Some(seq) = schema::post_seq(&item) else { return Some(None) };
        let shown = |image: &serde_dynamo::Item| {
            let PostItem { title, tombstone, revision, .. } = serde_dynamo::from_item(image.clone()).ok()?;
            Some((title, tombstone, revision))
        };
        let write = match [self.old, self.new].map(shown) {
            [None, Some((_, None, _))] => PostWrite::New,
            // A fan-out has noted its progress.
            [Some(old), Some(new)] if old == new => return Some(None),
            [_, Some((_, None, _))] => PostWrite::Edited,
            _ => PostWrite::Deleted,
        };
        Some(Some(Change::Post { id: PostId::new(author, seq), write }))
    }

    fn reactions(&self) -> Option<Option<Change>> {
        let ReactionKey { shard, item } = self.key()?;
        let author = schema::shard_author(&shard)?;
        if let Some(post) = schema::comment_counts_post(&shard) {
            return Some(Some(Change::Comments(post)));
        }
        let reactions = schema::reacting_user(&item).map(|user| Change::Reactions { user, author });
        let counts = schema::post_seq(&item).map(|seq| Change::Counts(PostId::new(author, seq)));
        Some(reactions.or(counts))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_dynamo::{AttributeValue, Item};

    use super::*;

    fn tables() -> Tables {
        Tables {
            following: "following".to_owned(),
            followers: "followers".to_owned(),
            counters: "counters".to_owned(),
            posts: "posts".to_owned(),
            reads: "reads".to_owned(),
            notices: "notices".to_owned(),
            notice_reads: "notice_reads".to_owned(),
            reactions: "reactions".to_owned(),
            idempotency: "idempotency".to_owned(),
            migration: "migration".to_owned(),
            profiles: "profiles".to_owned(),
            handles: "handles".to_owned(),
            identities: "identities".to_owned(),
            reacted: "reacted".to_owned(),
        }
    }

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

    fn change(table: &str, keys: &str, images: [&str; 2]) -> Result<Option<Change>, MalformedRecord> {
        let arn = format!("arn:aws:dynamodb:eu-central-1:123456789012:table/{table}/stream/2026-11-20T00:00:00.000");
        let [keys, old, new] = [keys, images[0], images[1]].map(item);
        StreamRecord { arn: Some(&arn), keys: &keys, old: &old, new: &new }.change(&tables())
    }

    #[test]
    fn a_record_names_what_views_show() {
        let (user, author): (UserId, UserId) = ("1".parse().unwrap(), "7".parse().unwrap());
        let (id, platform) = (PostId::new(author, 3), "4".parse().unwrap());
        let (pair, post) = ("user 1, author 7", "author 7, item post#0000000000000003");
        let published = format!("{post}, at 1, mode push, state pending, followers 1");
        let titled = format!("{published}, title one");
        let (moved, edited) = (format!("{titled}, seen_pages 4"), format!("{published}, title two, revision 2"));
        let tombstone = format!("{published}, tombstone true");
        let left = format!("{pair}, since 5, rev 1, base 0, floor 0");
        let follow = format!("{left}, following true");
        let muted = format!("{follow}, muted_at 6");
        let edge = |part| Some(Change::Edge { user, author, part });
        let of_post = |write| Some(Change::Post { id, write });
        for (table, keys, images, expected) in [
            ("following", pair, ["", follow.as_str()], edge(EdgePart::Follow)),
            ("following", pair, [&follow, &muted], edge(EdgePart::Choices)),
            ("following", pair, [&muted, &left], edge(EdgePart::Follow)),
            ("reads", pair, ["", "user 1, author 7, version 9"], Some(Change::Reads { user, author, version: 9 })),
            ("reads", pair, ["", ""], Some(Change::Reads { user, author, version: u32::MAX })),
            ("reads", "user 1, author 100000000000000000007", ["", ""], None),
            ("posts", "author 7, item head", ["", ""], Some(Change::Head(author))),
            ("posts", "author 7, item body#0000000000000003", ["", ""], None),
            ("posts", post, ["", &titled], of_post(PostWrite::New)),
            ("posts", post, [&titled, &moved], None),
            ("posts", post, [&titled, &edited], of_post(PostWrite::Edited)),
            ("posts", post, [&titled, &tombstone], of_post(PostWrite::Deleted)),
            ("posts", post, ["", ""], of_post(PostWrite::Deleted)),
            ("reactions", "shard 7#03, item user#00000000000000000001", ["", ""], Some(Change::Reactions { user, author })),
            ("reactions", "shard 7#03, item post#0000000000000003", ["", ""], Some(Change::Counts(id))),
            ("reactions", "shard 7#03, item total", ["", ""], None),
            ("reactions", "shard 7#3#counts#0, item lane#02", ["", ""], Some(Change::Comments(id))),
            ("reactions", "shard 7#3#comments#0, item comment#0000000000000003", ["", ""], None),
            ("reactions", "shard 7#03, item commented#0000000000000003#00000000000000000001", ["", ""], None),
            ("profiles", "user 1", ["", ""], Some(Change::Profile(user))),
            ("notices", "platform 4, item head", ["", ""], Some(Change::PlatformHead(platform))),
            ("notices", "platform 4, item notice#0000000000000003", ["", ""], None),
            (
                "notices",
                "platform 4, item edit#00000000000000000009",
                ["", ""],
                Some(Change::PendingEdit { platform, revision: 9 }),
            ),
            ("notice_reads", "user 1, platform 4", ["", ""], Some(Change::NoticeReads { user, platform })),
        ] {
            assert_eq!(change(table, keys, images).unwrap(), expected, "{table} {keys} {images:?}");
        }
        for (table, keys) in [("following", "other 1"), ("posts", "author 0, item head"), ("handles", "user 1")] {
            assert_eq!(change(table, keys, ["", ""]).unwrap_err().to_string(), format!("malformed stream record of {table}"));
        }
    }
}

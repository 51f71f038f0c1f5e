//! Records of the streams of DynamoDB.

use tidemark_app::project::{Change, EdgePart, FanOutState};
use tidemark_domain::{PostId, UserId};

use super::{
    Tables,
    schema::{
        self, EdgeItem, EdgeKey, HEAD, NoticeReadsKey, PlatformKey, PostItem, PostKey, ProfileKey, ReactionKey, ReadsVersion,
    },
};

/// One record of a stream. The images are empty if the stream has none, or the item was absent.
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
    /// Returns the change that the record shows; `None` if no view shows it: a text or a window changes together with
    /// its post or read state, and a fan-out notes its progress among the facts.
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
            self.key().map(|PlatformKey { platform, item }| (item == HEAD).then_some(Change::PlatformHead(platform)))
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

    fn edge(&self) -> Option<Option<Change>> {
        let (user, author) = self.pair()?;
        let follow = |image: &serde_dynamo::Item| {
            let EdgeItem { following, since, .. } = serde_dynamo::from_item(image.clone()).ok()?;
            following.unwrap_or(false).then_some(since)
        };
        let has_images = !(self.old.is_empty() && self.new.is_empty());
        let part = if has_images && follow(self.old) == follow(self.new) { EdgePart::Choices } else { EdgePart::Follow };
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
        let is_same = !self.new.is_empty() && shown(self.old) == shown(self.new);
        let is_unfinished = self.new.get(PostItem::unfinished.name()).is_some();
        let fan_out = if is_unfinished { FanOutState::Unfinished } else { FanOutState::Finished };
        Some((!is_same).then_some(Change::Post { id: PostId::new(author, seq), fan_out }))
    }

    fn reactions(&self) -> Option<Option<Change>> {
        let ReactionKey { shard, item } = self.key()?;
        let author = schema::shard_author(&shard)?;
        let reactions = schema::reacting_user(&item).map(|user| Change::Reactions { user, author });
        let counts = schema::post_seq(&item).map(|seq| Change::Counts(PostId::new(author, seq)));
        Some(reactions.or(counts))
    }
}

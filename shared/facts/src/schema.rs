//! The keys and attributes of the fact tables. `shared/legacy` formats the items of the migration table.
//!
//! | table | key | item | attributes | written by the operations |
//! |---|---|---|---|---|
//! | following | `user` N, `author` N | edge by follower, or its tombstone (expires after 7 days, unless the user mutes, blocks or asks to follow the author) | `following` BOOL, `since` N ms, `rev` N, `begun` N (the `rev` with which this follow began, if the pair has changed since), `base` N, `floor` N, `muted_at` N ms, `blocked_at` N ms, `lists` L of N, `preference` N, `requested_at` N ms, `accepted` BOOL (this follow began when the author accepted a request), `expires_at` N s, `kept` N ms (follows, mutes and blocks; local index `kept`), `named` N (the author, in a pair that mutes or blocks without a follow; index `named`) | follow, unfollow, request, mute, block, list, migrate |
//! | followers | `shard` S `<author>#<shard>`, `follower` S `<bucket>#<user>` | edge by followee, in bucket order; local index `by-time` on `since` | `since` S `<ms>#<user>` | follow, unfollow, block, erase, migrate, reconcile |
//! | followers | `shard` S `<author>#<shard>#requests`, `follower` S `<bucket>#<user>` | request by author; local index `by-time` on `since` | `since` S `<ms>#<user>` | follow, unfollow, request, block, erase, migrate, reconcile |
//! | followers | `shard` S `<user>#sent`, `follower` S `<bucket>#<author>` | request by user; local index `by-time` on `since` | `since` S `<ms>#<author>` | the same |
//! | followers | `shard` S `<user>#blocks`, `follower` S `<bucket>#<other>` | user whom this user blocks | | block |
//! | followers | `shard` S `<user>#blocked`, `follower` S `<bucket>#<other>` | user who blocks this user | | block |
//! | counters | `counter` S `u#<user>` | number of authors that the user follows, and of the user's requests | `count` N, `requests` N, `changes` N | follow, unfollow, request, block, erase, migrate, reconcile |
//! | counters | `counter` S `f#<author>#<shard>` | number of followers and of requests in that shard, or its first part | `count` N, `requests` N, `changes` N, `parts` N, `imports_begun` N, `imports_ended` N, `privacy` N (see [`super::counters`]) | follow, unfollow, request, block, privacy, erase, migrate, reconcile |
//! | counters | `counter` S `f#<author>#<shard>#<part>` | a further part of it; may be negative | `count` N, `requests` N, `changes` N, `imports_begun` N, `privacy` N | follow, unfollow, request, block, privacy, erase, migrate, reconcile |
//! | counters | `counter` S `l#<user>` | lists of the user: number, name and token of each | `version` N, `last` N, `lists` L of M | lists |
//! | counters | `counter` S `c#<post>` | numbers of the post's comments; no transaction names it | `last_number` N, `at` N ms, `free` NS, `write_token` N | comment |
//! | counters | `counter` S `walk#<job>` | where a job of reconcile continues; present only while the job is unfinished | `position` S | reconcile |
//! | counters | `counter` S `outage` | outage note: until when views may lack changes that wait for the projector | `until` N ms | every function that changes facts, projector, fan-out |
//! | posts | `author` N, `item` S `head` | author head | `latest_seq` N, `latest_at` N ms, `posts` N, `deletions` N, `deleted` B, `mode_changes` N, `pulled` N, `archived` N, `archived_seqs` B (roaring), `windows` M, `erased` BOOL (no user can follow the author), `privacy` N (changes of the author's privacy; odd is private) | publish, delete, privacy, erase, migrate |
//! | posts | `author` N, `item` S `post#<seq>` | post, or its tombstone without `title`; index `by-time` on `time`, sparse index `unfinished` | `title` S, `at` N ms, `time` S `<ms>#<seq>`, `tombstone` BOOL, `mode` S, `state` S, `followers` N, `pages` N, `retract_pages` N, `delivered` N, `attempts` N, `seen_pages` N, `sent_at` N ms, `sent_by` N, `sending` BOOL, `finished_at` N ms, `unfinished` S, `archived` BOOL, `write_token` N, `revision` N, `edited_at` N ms, `weight` N, `step` N, `step_changes` N, `step_by` N, `repost_of` S `<author>-<seq>` (a repost, which has no `title`; its tombstone keeps it), `quote_of` S `<author>-<seq>` | publish, edit, delete, fan-out, reconcile, migrate |
//! | posts | `author` N, `item` S `body#<seq>` | text of a live post in a revision; absent if it is empty and was never edited | `body` S, `data` S (JSON), `revision` N | publish, edit, delete |
//! | reads | `user` N, `author` N | read state | `version` N, `through` N, `read` B (roaring, runs compressed), `marked` NS and `unmarked` NS (marks that are not part of `read` yet, normally at most a hundred), `imported` B (roaring, runs compressed: marks that came by migration), `windows` M, `applied` L of N (token of each of the last eight changes, and how many posts it changed), `by` S `<author>#<shard>` (index `by-author`) | mark-read, migrate |
//! | posts, reads | as their items; see [`window`] | bits of one window of a set that has outgrown its item | `bits` B (roaring), `token` N | as their items |
//! | reactions | `shard` S `<author>#<shard>`, `item` S `user#<user>` | reactions of a user of that shard to the author's posts, and blocks between the two | `version` N (a block changes it too), `liked` B, `favorited` B (roaring), `given_at` N ms (of the reaction that this version gave), `blocked` BOOL (the author blocks the user), `blocks` BOOL (the user blocks the author) | react, block |
//! | reactions | `shard` S, `item` S `post#<seq>` | number of users who have reacted to a post, deleted or not, and of those who repost it: the first part, in shard `seq` mod 16, or one of its parts, in the shards after it. The first part has the number of parts, and the shards with users in the lists below | `likes` N, `favorites` N, `reposts` N, `changes` N, `parts` N, `listed` NS | react, publish, delete, migrate, reconcile |
//! | reactions | `shard` S, `item` S `total` | number of reactions of the users of that shard to all posts of the author | `likes` N, `favorites` N, `changes` N | react |
//! | reactions | `shard` S, `item` S `<like or favorite>#<seq>#<ms>#<user>` | a user of that shard who has reacted to a post, deleted or not, at this time, which is that of the entry in `reacted` | | react, reconcile |
//! | reactions | `shard` S, `item` S `repost#<seq>#<ms>#<user>` | a user of that shard who reposts a post, deleted or not, at this time, which is that of the repost | `repost` N (the number of the user's post) | publish, delete, reconcile |
//! | reactions | `shard` S, `item` S `naming#<seq>#<ms>#<user>#<number>` | a user of that shard who quotes a post of another author, and the number and time of the quote | | publish, delete, migrate |
//! | reactions | `shard` S, `item` S `commented#<seq>#<user>` | number of standing comments of a user of that shard on a post, deleted or not | `comments` N, `changes` N | comment |
//! | reactions | `shard` S `<author>#<seq>#comments#<block>`, `item` S `comment#<number>` | comment on a post, deleted or not; without `text` if it was withdrawn, and without `user` if that user has left. A block has 64 numbers | `text` S, `user` N, `at` N ms, `write_token` N | comment, erase |
//! | reactions | `shard` S `<author>#<seq>#counts#<0–3>`, `item` S `lane#<00–63>` | number of standing comments on a post whose number has this remainder | `comments` N, `changes` N | comment |
//! | notices | `platform` N, `item` S `head` | platform head | `version` N, `latest_seq` N, `latest_slot` N, `latest_at` N ms, `live` B (see [`PlatformHead::encode_live`](tidemark_domain::PlatformHead::encode_live)) | notice, reconcile |
//! | notices | `platform` N, `item` S `notice#<seq>` | notice; absent when deleted, and some time after it has expired | `title` S, `body` S, `at` N ms, `revision` N, `until` N ms, `expires_at` N s | notice, projector, reconcile |
//! | notices | `platform` N, `item` S `edit#<version>` | pending edit: the content of the notices that the head lists in this revision; absent once they have it | `title` S, `body` S, `until` N ms | notice, projector, reconcile |
//! | notice_reads | `user` N, `platform` N | read state of notices | `version` N, `through` N, `through_slot` N, `read` B (roaring, runs compressed, of slots) | notice, migrate, reconcile |
//! | counters | `counter` S `n#<platform>#<shard>#<block>` | number of users of that shard who have read each slot of that block; a block has 32 slots | `s<slot % 32>` N | notice, migrate |
//! | reacted | `user` S `<user>#<likes or favorites>`, `post` S `<author>#<seq>` | reaction of a user; local index `by-time` on `at` | `at` S `<ms>#<author>#<seq>` | react, reconcile |
//! | reacted | `user` S `<user>#reposts`, `post` S `<author>#<seq>` | standing repost of a user, by its original: there is one at most | `at` S `<ms>#<author>#<seq>`, `repost` N | publish, delete, reconcile |
//! | reacted | `user` S `<user>#comments`, `post` S `<author>#<seq>#<number>` | comment of a user; local index `by-time` on `at`, without comments that were withdrawn | `at` S `<ms>#<author>#<seq>#<number>` | comment |
//! | inbox | `user` N, `item` S `group#<id>` | group of the user's inbox, derived from its acts; without `latest_at` it only keeps when the user has read it; expires after 90 days | `version` N, `written_at` N ms, `count` N, `users` L of N (the newest three), `latest_at` N ms, `heard_at` N ms (newest act of a user who is not muted), `read_at` N ms, `apart` L of N (users with an act who are in a block with the user), `entries` N (entries of lists that the derivation read), `expires_at` N s | projector, reconcile; mark-read (`read_at`) |
//! | inbox | `user` N, `item` S `read` | up to which time the user has read the inbox | `read_before` N ms | mark-read |
//! | profiles | `user` N | profile | `version` N, `name` S, `handle` S, `picture` S, `bio` S, `data` S (JSON), `updated_at` N ms | profile |
//! | handles | `handle` S | user who has a handle; one that was given up expires after 30 days | `user` N, `expires_at` N s | profile |
//! | identities | `identity` S `claim#<claim>` | user id of a claim; it never changes | `user` N | every function that serves requests |
//! | identities | `identity` S `user#<user>` | that the user id is given to a claim | | every function that serves requests |
//! | identities | `identity` S `erased#<user>` | receipt of an erasure; it stays | `started_at` N ms, `finished_at` N ms, `swept_at` N ms, `touched_at` N ms, `version` N, `removed` M, `counting` M, `pairs` L of N, `cleared` N, `chain` N, `incomplete` S | profile, fan-out, reconcile |
//! | identities | `identity` S `left#<user>#<shard>` | the same for transactions, which check it; 16 for each receipt | | profile |
//! | identities | `identity` S `erasures#<00–63>` | users of one of 64 parts whose erasures are not finished | `running` NS | profile, fan-out, reconcile |
//! | idempotency | `key` S `<user>#<operation>#<key>` | earlier request and its response; expires after 24 h | `fingerprint` S, `post` S, or `notices` S and `at` N ms, or `token` N, `bound` L of N and `answer` L of N (see `tidemark_app::once`), `user` N (index `by-user`), `expires_at` N s | publish, notice, mark-read, list |
//!
//! One transaction writes:
//! - for a follow or an unfollow, both edges and both counters; a follow checks the reactions item of user and
//!   author for blocks, and ends a request;
//! - for a request or its end, the pair, both items by author and by user, and both counters; a request checks for
//!   blocks and for erasures of either user;
//! - for a block, the pair that has it, both reactions items and both lists of the two users, and the follows and
//!   requests that it ends;
//! - for a publish, head, post, body and idempotency record; if the post names another, it checks for blocks; a repost
//!   adds its two entries, by original and by user, and to the count of its original, and its deletion removes them; so
//!   does a quote of another author's post, with one entry by original;
//! - for a deletion, head, post and body; for an edit, post and text;
//! - for a notice, the notice or a pending edit, its platform's head and idempotency record;
//! - for a read state of notices, the state, the counters of the slots that changed and, for the last ones, the
//!   idempotency record;
//! - for a new list, the lists and idempotency record;
//! - for a reaction, the reaction, its count of the author and its entry among those of the post, which lie in one
//!   partition, its count of the post, and its entry among those of the user; a given reaction requires that its item
//!   has no block;
//! - for a comment, the comment, its two counts, its entry among those of the user, and idempotency record, on the
//!   condition that its number has no comment and that the two users have no block; for its withdrawal, the same four;
//! - for a profile, the profile, the handle that it takes and the one that it gives up;
//! - for the first call of a claim, its user id, and that the user id is given;
//! - for a migration, up to 31 posts with head, mappings and record, or an edge as a follow does.
//!
//! A DynamoDB item holds at most 400 KB. When a set is larger than 64 KiB, its oldest windows of 65,536 numbers move to
//! items of their own. `windows` names them, each with the token that its item must carry ([`super::windows`]).
//!
//! `changes` grows with every write of the counted items. A repair sets a count only if `changes` is still the number
//! that it read before it listed them. For a head's `posts`, `latest_seq` and `deletions` serve this purpose. By its
//! token, a publish knows its own post (`write_token`), a `rank` task its own change of a step (`step_by`), and a run
//! of reconcile that it is the one that sends a fan-out's pages (`sent_by`).

mod keys;

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_bytes::ByteBuf;
use tidemark_domain::{AuthorList, Counting, DeliveryMode, DeliveryState, Platform, Removed};

use super::item::{Attribute, Bits, Count, Item, number, present, string};
pub use keys::*;

/// Index of an author's posts, of a shard's followers, and of a user's reactions, by time.
pub const BY_TIME: &str = "by-time";

/// Sparse index of a user's pairs, without tombstones. A user may leave any number of them within 7 days.
pub const KEPT: &str = "kept";

/// Sparse index of pairs that mute or block without a follow, by the user whom they name.
pub(crate) const NAMED: &str = "named";

/// Index of idempotency records by user.
pub(crate) const BY_USER: &str = "by-user";

/// Index of read states by author and shard of the user.
pub(crate) const BY_AUTHOR: &str = "by-author";

/// Sparse index of posts whose fan-out or retraction is unfinished. Reconcile resumes those in partitions `0` to `63`.
/// Fan-outs that were given up are in partitions `given-up#0` to `given-up#63`.
pub const UNFINISHED: &str = "unfinished";

/// A post costs the partition of its author's bucket two writes, so a partition takes 500 posts a second.
pub const UNFINISHED_SHARDS: u64 = 64;

pub(crate) const IDEMPOTENCY_SECONDS: u64 = 24 * 3600;

/// Declares the types of items: attributes that every item has, then attributes that may be absent. Each attribute is
/// also a constant of its own name. Items that are written as a whole derive `Serialize`.
#[macro_export]
macro_rules! items {
    ($(
        $(#[$meta:meta])*
        $item:ident in $table:literal { $($name:ident: $type:ty),* }
        $(maybe { $($optional:ident: $optional_type:ty),* })?
    );* $(;)?) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, Deserialize)]
        pub struct $item {
            $(pub $name: $type,)*
            $($(
                #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
                pub $optional: Option<$optional_type>,
            )*)?
        }

        #[allow(non_upper_case_globals, reason = "an attribute has the name that is stored")]
        impl $item {
            $(pub const $name: $crate::item::Attribute = $crate::item::Attribute::declared($table, stringify!($name));)*
            $($(
                pub const $optional: $crate::item::Attribute =
                    $crate::item::Attribute::declared($table, stringify!($optional));
            )*)?
            pub const ATTRIBUTES: &'static [$crate::item::Attribute] = &[$(Self::$name,)* $($(Self::$optional,)*)?];
        }

        impl $crate::item::Stored for $item {
            const TABLE: &'static str = $table;
        }
    )* };
}

items! {
    /// The key of an edge by follower.
    EdgeKey in "following" { user: NonZeroU64, author: NonZeroU64 };

    /// The key of an item of an author.
    PostKey in "posts" { author: NonZeroU64, item: String };

    ReactionKey in "reactions" { shard: String, item: String };

    ProfileKey in "profiles" { user: NonZeroU64 };

    PlatformKey in "notices" { platform: Platform, item: String };

    NoticeReadsKey in "notice_reads" { user: NonZeroU64, platform: Platform };

    /// The version of a read state, without the rest.
    ReadsVersion in "reads" { version: u32 };

    #[derive(Serialize)]
    EdgeItem in "following" { user: NonZeroU64, author: NonZeroU64, since: u64, rev: u32, base: u64, floor: u64 }
    maybe { following: bool, begun: u32, expires_at: u64, kept: u64, muted_at: u64, blocked_at: u64, lists: Vec<u32>, preference: i8, requested_at: u64, accepted: bool, named: u64 };

    #[derive(Serialize)]
    FollowerItem in "followers" { shard: String, follower: String, since: String };

    CounterItem in "counters" { counter: String }
    maybe {
        count: Count<i64>, requests: Count<i64>, changes: Count, parts: Count, imports_begun: Count, imports_ended: Count,
        privacy: Count
    };

    #[derive(Serialize)]
    WalkItem in "counters" { counter: String, position: String };

    #[derive(Serialize)]
    ListsItem in "counters" { counter: String, version: u64, last: u32, lists: Vec<AuthorList> };

    OutageItem in "counters" { counter: String, until: u64 };

    HeadItem in "posts" { author: NonZeroU64, item: String, latest_seq: u64, latest_at: u64 }
    maybe {
        posts: Count, deletions: Count, deleted: Bits, mode_changes: u32, pulled: u64, archived: Count,
        archived_seqs: Bits, windows: IgnoredAny, erased: bool, privacy: u32
    };

    #[derive(Serialize)]
    PostItem in "posts" {
        author: NonZeroU64, item: String, at: u64, mode: DeliveryMode, state: DeliveryState, followers: u64
    }
    maybe {
        title: String, time: String, tombstone: bool, pages: u64, retract_pages: u64, delivered: u64, attempts: u32,
        seen_pages: u64, sent_at: u64, sent_by: u64, sending: bool, finished_at: u64, unfinished: String, archived: bool, write_token: u64,
        revision: u32, edited_at: u64, weight: i8, step: u8, step_changes: u32, step_by: u64, repost_of: String, quote_of: String
    };

    #[derive(Serialize)]
    BodyItem in "posts" { author: NonZeroU64, item: String }
    maybe { body: String, data: String, revision: u32 };

    /// `imported` is not decoded with the rest, because only migration needs it.
    ReadsItem in "reads" { user: NonZeroU64, author: NonZeroU64, version: u32 }
    maybe {
        through: u64, read: Bits, marked: Vec<u64>, unmarked: Vec<u64>, imported: IgnoredAny, windows: IgnoredAny, by: String,
        applied: Vec<u64>
    };

    /// A window, without its key.
    #[derive(Serialize)]
    WindowItem in "windows" { bits: Bits, token: u64 };

    #[derive(Serialize)]
    ReactionItem in "reactions" { shard: String, item: String }
    maybe { version: u32, liked: Bits, favorited: Bits, given_at: u64, blocked: bool, blocks: bool };

    ReactionCountsItem in "reactions" { shard: String, item: String }
    maybe {
        likes: Count<i64>, favorites: Count<i64>, reposts: Count<i64>, changes: Count, parts: Count,
        listed: Count<Vec<u16>>
    };

    #[derive(Serialize)]
    ReposterItem in "reactions" { shard: String, item: String, repost: u64 };

    #[derive(Serialize)]
    CommentItem in "reactions" { shard: String, item: String, at: u64, write_token: u64 }
    maybe { user: NonZeroU64, text: String };

    CommentCountItem in "reactions" { shard: String, item: String }
    maybe { comments: Count, changes: Count };

    CommentNumbersItem in "counters" { counter: String, last_number: u64, at: u64 }
    maybe { free: Vec<u64>, write_token: u64 };

    #[derive(Serialize)]
    ReactedItem in "reacted" { user: String, post: String, at: String }
    maybe { repost: u64 };

    #[derive(Serialize)]
    GroupItem in "inbox" { user: NonZeroU64, item: String, version: u32, written_at: u64 }
    maybe {
        count: u64, users: Vec<NonZeroU64>, latest_at: u64, heard_at: u64, read_at: u64, apart: Vec<NonZeroU64>,
        entries: u64, expires_at: u64
    };

    /// The time up to which a user has read the inbox.
    InboxReadItem in "inbox" { user: NonZeroU64, item: String }
    maybe { read_before: u64 };

    #[derive(Serialize)]
    ProfileItem in "profiles" { user: NonZeroU64, version: u32, name: String, updated_at: u64 }
    maybe { handle: String, picture: String, bio: String, data: String };

    #[derive(Serialize)]
    HandleItem in "handles" { handle: String, user: NonZeroU64 }
    maybe { expires_at: u64 };

    #[derive(Serialize)]
    IdentityItem in "identities" { identity: String }
    maybe { user: NonZeroU64 };

    #[derive(Serialize)]
    ErasureItem in "identities" { identity: String, started_at: u64, touched_at: u64, version: u64 }
    maybe { finished_at: u64, swept_at: u64, removed: Removed, counting: Counting, pairs: Vec<NonZeroU64>, cleared: u64, chain: u64, incomplete: String };

    RunningItem in "identities" { identity: String }
    maybe { running: Vec<NonZeroU64> };

    #[derive(Serialize)]
    PlatformHeadItem in "notices" {
        platform: Platform, item: String, version: u64, latest_seq: u64, latest_slot: u64, latest_at: u64, live: ByteBuf
    };

    #[derive(Serialize)]
    NoticeItem in "notices" { platform: Platform, item: String, title: String, at: u64, revision: u64 }
    maybe { body: String, until: u64, expires_at: u64 };

    #[derive(Serialize)]
    PendingEditItem in "notices" { platform: Platform, item: String, title: String }
    maybe { body: String, until: u64 };

    #[derive(Serialize)]
    NoticeReadsItem in "notice_reads" {
        user: NonZeroU64, platform: Platform, version: u64, through: u64, through_slot: u64
    }
    maybe { read: Bits };

    #[derive(Serialize)]
    RecordItem in "idempotency" { key: String, fingerprint: String, expires_at: u64 }
    maybe { post: String, notices: String, at: u64, token: u64, bound: Vec<u64>, answer: Vec<u64>, user: NonZeroU64 };
}

macro_rules! slots {
    ($($name:literal)*) => { [$(Attribute::declared("counters", $name)),*] };
}

/// The reader counts of one block of slots. Such an item stays below one write unit.
pub(crate) const READER_SLOTS: [Attribute; 32] = slots!(
    "s0" "s1" "s2" "s3" "s4" "s5" "s6" "s7" "s8" "s9" "s10" "s11" "s12" "s13" "s14" "s15" "s16" "s17" "s18" "s19" "s20"
    "s21" "s22" "s23" "s24" "s25" "s26" "s27" "s28" "s29" "s30" "s31"
);

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        path::{Path, PathBuf},
    };

    use aws_sdk_dynamodb::types::AttributeValue;

    use super::*;
    use crate::item::encode;

    /// An item as text: `at N 5, title S one`.
    fn text(item: &Item) -> String {
        let value = |value: &AttributeValue| match value {
            AttributeValue::S(text) => format!("S {text}"),
            AttributeValue::N(number) => format!("N {number}"),
            AttributeValue::Bool(flag) => format!("BOOL {flag}"),
            AttributeValue::B(bytes) => format!("B {:02x?}", bytes.as_ref()),
            other => panic!("{other:?}"),
        };
        let sorted: BTreeMap<&String, String> = item.iter().map(|(name, stored)| (name, value(stored))).collect();
        sorted.into_iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn texts_windows_reactions_and_walks_are_stored_in_exactly_this_form() {
        let (author, item) = (NonZeroU64::MAX, "i".to_owned());
        let bits = |seqs: &[u64]| Bits(seqs.iter().copied().collect());
        let body = BodyItem { author, item: item.clone(), body: Some("b".to_owned()), data: None, revision: None };
        assert_eq!(text(&encode(&body)), "author N 18446744073709551615, body S b, item S i");
        let window = WindowItem { bits: bits(&[]), token: u64::MAX };
        assert_eq!(text(&encode(&window)), "bits B [00, 00, 00, 00, 00, 00, 00, 00], token N 18446744073709551615");
        let reaction = ReactionItem {
            shard: "s".to_owned(),
            item,
            version: Some(3),
            liked: Some(bits(&[5])),
            favorited: None,
            given_at: None,
            blocked: None,
            blocks: None,
        };
        let liked = "01, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 00, 3a, 30, 00, 00, 01, 00, 00, 00, 00, 00, 00, 00, 10, 00, 00, 00, \
                     05, 00";
        assert_eq!(text(&encode(&reaction)), format!("item S i, liked B [{liked}], shard S s, version N 3"));
        assert_eq!(text(&walk_item("users", "p")), "counter S walk#users, position S p");
    }

    #[test]
    fn notices_are_stored_in_exactly_this_form() {
        let (user, item, platform) = (NonZeroU64::new(1042).unwrap(), "i".to_owned(), Platform::new(7).unwrap());
        let head = PlatformHeadItem {
            platform,
            item: item.clone(),
            version: 1,
            latest_seq: 2,
            latest_slot: 3,
            latest_at: 4,
            live: vec![1, 255].into(),
        };
        assert_eq!(
            text(&encode(&head)),
            "item S i, latest_at N 4, latest_seq N 2, latest_slot N 3, live B [01, ff], platform N 7, version N 1"
        );
        let notice = NoticeItem {
            platform,
            item,
            title: "t".to_owned(),
            at: 5,
            revision: 6,
            body: None,
            until: Some(9_000),
            expires_at: Some(10),
        };
        assert_eq!(
            text(&encode(&notice)),
            "at N 5, expires_at N 10, item S i, platform N 7, revision N 6, title S t, until N 9000"
        );
        let pending =
            PendingEditItem { platform, item: "e".to_owned(), title: "t".to_owned(), body: Some("b".to_owned()), until: None };
        assert_eq!(text(&encode(&pending)), "body S b, item S e, platform N 7, title S t");
        let reads = NoticeReadsItem { user, platform, version: 1, through: 2, through_slot: 3, read: None };
        assert_eq!(text(&encode(&reads)), "platform N 7, through N 2, through_slot N 3, user N 1042, version N 1");
    }

    #[test]
    fn idempotency_records_are_stored_in_exactly_this_form() {
        let record = RecordItem {
            key: "k".to_owned(),
            fingerprint: "f".to_owned(),
            expires_at: 8,
            post: None,
            notices: Some("7-1 8-1".to_owned()),
            at: Some(9),
            token: None,
            bound: None,
            answer: None,
            user: NonZeroU64::new(1042),
        };
        assert_eq!(text(&encode(&record)), "at N 9, expires_at N 8, fingerprint S f, key S k, notices S 7-1 8-1, user N 1042");
    }

    fn sources(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
    }

    /// The names that the schema in this text declares.
    fn declared(schema: &str) -> BTreeSet<String> {
        let items = schema.split_once("\nitems! {").or(schema.split_once("::items! {")).unwrap().1.split_once("\n}").unwrap().0;
        let words = items.lines().filter(|line| !line.trim().starts_with("///")).flat_map(str::split_whitespace);
        words.filter_map(|word| word.strip_suffix(':')).map(str::to_owned).collect()
    }

    /// `Write` and `Condition` accept only attributes, and only schemas declare these. This test finds the two other
    /// ways: access to an item as a map, and an expression that is written as text.
    #[test]
    fn attribute_names_are_spelled_in_schemas_only() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let schemas = ["shared/facts/src/schema.rs", "shared/legacy/src/schema.rs"].map(|path| root.join(path));
        let names: BTreeSet<String> = schemas.iter().flat_map(|path| declared(&std::fs::read_to_string(path).unwrap())).collect();
        assert!(["latest_seq", "write_token", "unsettled_last"].iter().all(|name| names.contains(*name)), "{names:?}");
        let folders = ["shared/facts/src", "shared/legacy/src", "shared/reconcile/src"];
        let (mut seen, mut spelled) = (0, Vec::new());
        let keys = root.join("shared/facts/src/schema/keys.rs");
        let is_other = |path: &PathBuf| !schemas.contains(path) && *path != keys;
        for path in folders.iter().flat_map(|folder| sources(&root.join(folder))).filter(is_other) {
            let code = std::fs::read_to_string(&path).unwrap();
            let code = code.split_once("#[cfg(test)]\nmod tests").map_or(&*code, |(code, _)| code);
            if !code.contains("tidemark_facts") && !path.starts_with(root.join(folders[0])) {
                continue;
            }
            seen += 1;
            let parts: Vec<&str> = code.split('"').collect();
            for [before, literal, after] in parts.windows(3).map(|parts| [parts[0], parts[1], parts[2]]) {
                // A request's name may be the same word: the first argument of a call.
                let function = before.strip_suffix('(').is_some_and(|before| before.ends_with(char::is_alphanumeric));
                if names.contains(literal) && !(function && after.starts_with(',')) {
                    spelled.push(format!("{} {literal}", path.display()));
                }
            }
            let is_writer = path.ends_with("facts/src/write.rs");
            if !is_writer && code.contains("_expression(") || !path.ends_with("item.rs") && code.contains("declared(") {
                spelled.push(format!("{} writes an expression", path.display()));
            }
        }
        assert_eq!((spelled, seen > 12), (Vec::new(), true), "{seen} files");
    }
}

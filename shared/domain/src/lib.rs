//! The types and rules of the domain, without I/O and without a clock.
//!
//! [`decisions`] computes sequence numbers, edges and deliveries. [`author_state`] is the value behind every unread
//! count. [`visibility`] says who may see whose posts. [`invariants`] names the rules that tests and reconcile check.

pub mod author_lists;
pub(crate) mod author_state;
pub mod bitmap;
pub mod comments;
pub mod cursor;
pub(crate) mod decisions;
pub mod erasure;
pub mod events;
pub mod feed;
pub mod ids;
pub mod inbox;
pub mod invariants;
pub mod live;
pub mod model;
pub mod notices;
#[cfg(feature = "openapi")]
pub mod openapi;
pub mod pages;
pub(crate) mod post_times;
pub mod profile;
pub mod rank;
pub mod reactions;
pub mod reader_state;
pub(crate) mod references;
pub(crate) mod requests;
pub mod seq_set;
pub mod store;
pub mod time;
pub(crate) mod trail;
pub mod visibility;

pub use author_lists::{AuthorList, ListId, UserLists};
pub use author_state::AuthorState;
pub use comments::{Comment, CommentId, CommentNumber, CommentNumbers, CommentOrder};
pub use cursor::{Cursor, RankedPlace};
pub use decisions::NewFollow;
pub use erasure::{Counting, Erasure, Removed};
pub use events::{Event, EventPost, Happened};
pub use feed::FeedKey;
pub use ids::{ParseIdError, PostId, Seq, UserId};
pub use inbox::{Acts, Group, GroupId, GroupKind, GroupPlace, Inbox, ShownGroup};
pub use live::{CountsDigest, Known, Told, UnreadChange, UnreadNotices};
pub use model::{
    Applied, Audience, AuthorHead, Counters, Delivery, DeliveryMode, DeliveryState, Edge, FanOutKind, Hiding, MOST_REQUESTS,
    Modes, NewPost, Post, PostSummary, PostText, ReadState, Relation, RequestSide,
};
pub use notices::{LiveNotice, Notice, NoticeContent, NoticeCounts, NoticeId, NoticeReads, Platform, PlatformHead, Slot};
pub use post_times::{MOST_TIMES, PostTimes};
pub use profile::{Card, Handle, Profile, ProfileContent};
pub use rank::{HalfLife, Rank, Score, Step};
pub use reactions::{CountsVersion, Reaction, ReactionCounts, ReactionState};
pub use reader_state::ReaderState;
pub use references::Reference;
pub use requests::{Budget, IdempotencyKey};
pub use seq_set::SeqSet;
pub use store::{Source, Store, StoreError};
pub use time::Timestamp;
pub use trail::{Since, Trail};
pub use visibility::{Blocks, PostState, Seen, Standing, Viewer, Withheld};

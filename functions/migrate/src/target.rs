//! Writes to the legacy Redis, each one script. A repeated script changes nothing.

use redis::Script;
use tidemark::domain::{Edge, Post, UserId};

use crate::{
    legacy::{self, BlogId, Layout},
    source::{Source, SourceError},
};

/// The time that the source systems keep `blog:info`, and read and unread sets.
const INFO_SECONDS: u64 = 7 * 24 * 3600;
const MARK_SECONDS: u64 = 30 * 24 * 3600;

/// Blogs in one call of a script, during which the legacy Redis serves no other client.
const BLOGS_PER_CALL: usize = 500;

/// The new state of a blog in a reader's legacy read state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Read,
    /// Neither read nor unread.
    Gone,
    /// Unread, unless the legacy system has it read.
    Unread,
    /// Unread after it was read.
    Unmarked,
}

impl Mark {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Gone => "gone",
            Self::Unread => "unread",
            Self::Unmarked => "unmarked",
        }
    }
}

impl Source {
    /// Makes the legacy lists agree with an edge or its tombstone.
    pub(crate) async fn put_edge(&self, edge: &Edge) -> Result<(), SourceError> {
        let (user, author) = (edge.user.get(), edge.author.get());
        let script = Script::new(include_str!("lua/follow.lua"));
        let mut call = script.prepare_invoke();
        call.key(Layout::UFollow.key(user)).key(Layout::UFans.key(author));
        call.key(Layout::Following.key(user)).key(Layout::Fans.key(author));
        call.key(legacy::fans_number_key(edge.author));
        call.key(legacy::unread_key(edge.user, edge.author)).key(legacy::unread_counts_key(edge.user));
        call.arg(user).arg(author).arg(edge.since.ms()).arg(u8::from(edge.following));
        Ok(call.invoke_async(&mut self.connection()).await?)
    }

    /// Changes the read state of a pair.
    pub(crate) async fn put_marks(&self, user: UserId, author: UserId, marks: &[(Mark, BlogId)]) -> Result<(), SourceError> {
        let script = Script::new(include_str!("lua/marks.lua"));
        for marks in marks.chunks(BLOGS_PER_CALL) {
            let mut call = script.prepare_invoke();
            call.key(Layout::UserRead.key(user.get())).key(legacy::unread_key(user, author));
            call.key(legacy::unread_counts_key(user)).arg(author.get()).arg(MARK_SECONDS);
            for (mark, blog) in marks {
                call.arg(mark.name()).arg(*blog);
            }
            call.invoke_async::<()>(&mut self.connection()).await?;
        }
        Ok(())
    }

    /// Stores a live post. The legacy system has the post already unless it is `new` there.
    pub(crate) async fn put_blog(&self, blog: BlogId, post: &Post, new: bool) -> Result<(), SourceError> {
        let author = post.id.author.get();
        let script = Script::new(include_str!("lua/publish.lua"));
        let mut call = script.prepare_invoke();
        call.key(Layout::BlogInfo.key(blog)).key(Layout::AuthorBlogs.key(author));
        call.arg(blog).arg(author).arg(&post.title).arg(post.created_at.ms()).arg(INFO_SECONDS).arg(u8::from(new));
        Ok(call.invoke_async(&mut self.connection()).await?)
    }

    pub(crate) async fn retract_blog(&self, blog: BlogId, author: UserId) -> Result<(), SourceError> {
        let script = Script::new(include_str!("lua/retract.lua"));
        let mut call = script.prepare_invoke();
        call.key(Layout::BlogInfo.key(blog)).key(Layout::AuthorBlogs.key(author.get())).arg(blog);
        Ok(call.invoke_async(&mut self.connection()).await?)
    }
}

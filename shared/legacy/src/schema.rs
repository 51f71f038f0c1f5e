//! Every key and attribute of the migration table.
//!
//! | key | item | attributes |
//! |---|---|---|
//! | `key` S `blog#<blog>` | the post that a legacy blog became | `post` S |
//! | `key` S `author#<author>` | the imports of an author | `posts` B (roaring), `unsettled_first` N, `unsettled_last` N |
//! | `key` S `post#<author>-<seq>` | the legacy blog of a post | `blog` N, `fresh` BOOL (made by write-back, and perhaps not stored there yet), `told` BOOL (whether the followers' unread sets know the post as deleted; absent if they do not know it) |
//! | `key` S `seen#<legacy key>` | the members of a legacy list that agree with the facts, those of them that a pass has missed, and those that passes have given up | `members` B, `missing` B, `gone` B (roaring), `missed_at` N ms, `gone_at` N ms |
//! | `key` S `notice#<platform>#<legacy notice>#<block>` | the bits of a block of a legacy notice's bitmap that were imported | `users` B (roaring) |
//! | `key` S `run#<run>` | the progress of a run or of a dry run | `version` N, `progress` S (JSON) |
//! | `key` S `source` | when the first import of follows began, the server process of the legacy Redis whose lists passes compare, and the last rule for unread posts | `begun_at` N ms, `server` S, `unread` S (`listed` or `complement`) |

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tidemark_domain::{PostId, UserId};
use tidemark_facts::item::{Bits, present};

use crate::legacy::{BlogId, LegacyNotice};

tidemark_facts::items! {
    #[derive(Serialize)]
    MappingItem in "migration" { key: String, post: String };

    #[derive(Serialize)]
    ImportItem in "migration" { key: String }
    maybe { posts: Bits, unsettled_first: u64, unsettled_last: u64 };

    #[derive(Serialize)]
    PlacedItem in "migration" { key: String, blog: u64, fresh: bool }
    maybe { told: bool };

    #[derive(Serialize)]
    SeenItem in "migration" { key: String }
    maybe { members: Bits, missing: Bits, gone: Bits, missed_at: u64, gone_at: u64 };

    #[derive(Serialize)]
    ImportedBitsItem in "migration" { key: String }
    maybe { users: Bits };

    #[derive(Serialize)]
    RunItem in "migration" { key: String, version: u64, progress: String };

    SourceItem in "migration" { key: String }
    maybe { begun_at: u64, server: String, unread: String };
}

/// The id in the key of a mapping, an import record, or the blog of a post.
pub(crate) fn id<T: FromStr>(key: &str) -> Option<T> {
    key.split_once('#')?.1.parse().ok()
}

pub(crate) fn mapping(blog: BlogId) -> String {
    format!("blog#{blog}")
}

pub(crate) fn import_record(author: UserId) -> String {
    format!("author#{author}")
}

pub(crate) fn placed(post: PostId) -> String {
    format!("post#{post}")
}

pub(crate) fn seen(list: &str) -> String {
    format!("seen#{list}")
}

pub(crate) fn seen_list(key: &str) -> Option<&str> {
    key.strip_prefix("seen#")
}

pub(crate) fn imported_bits((platform, notice): LegacyNotice, block: u64) -> String {
    format!("notice#{platform}#{notice}#{block}")
}

/// There is one source: its lists and blogs have the ids of one legacy system.
pub(crate) const SOURCE: &str = "source";

pub(crate) fn run(run: &str) -> String {
    format!("run#{run}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_exactly_these() {
        let author = UserId::new(7).unwrap();
        assert_eq!(mapping(u64::MAX), "blog#18446744073709551615");
        assert_eq!(id("blog#7"), Some(7));
        assert_eq!(import_record(author), "author#7");
        assert_eq!(id("author#7"), Some(author));
        assert_eq!(run("abc"), "run#abc");
        assert_eq!(placed(PostId::new(author, 3)), "post#7-3");
        assert_eq!(id("post#7-3"), Some(PostId::new(author, 3)));
        assert_eq!(seen("u_follow:7"), "seen#u_follow:7");
        assert_eq!(seen_list("seen#u_follow:7"), Some("u_follow:7"));
        assert_eq!(imported_bits(("7".parse().unwrap(), 57), 2), "notice#7#57#2");
    }
}

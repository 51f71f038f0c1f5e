//! Every key and attribute of the migration table.
//!
//! | key | item | attributes |
//! |---|---|---|
//! | `key` S `blog#<blog>` | the post that a legacy blog became | `post` S |
//! | `key` S `author#<author>` | the imports of an author | `posts` B (roaring), `unsettled_first` N, `unsettled_last` N |
//! | `key` S `notice#<platform>#<legacy notice>#<block>` | the bits of a block of a legacy notice's bitmap that were imported | `users` B (roaring) |
//! | `key` S `run#<run>` | the progress of a run | `version` N, `progress` S (JSON) |

use tidemark_domain::UserId;
use tidemark_facts::{item::Item, schema::record};

use crate::legacy::{BlogId, LegacyNotice};

/// The key of the post that a legacy blog became.
pub(crate) fn mapping(blog: BlogId) -> Item {
    record(&format!("blog#{blog}"))
}

pub(crate) fn mapped_blog(key: &str) -> Option<BlogId> {
    key.strip_prefix("blog#")?.parse().ok()
}

pub(crate) fn import_record(author: UserId) -> Item {
    record(&format!("author#{author}"))
}

pub(crate) fn imported_author(key: &str) -> Option<UserId> {
    key.strip_prefix("author#")?.parse().ok()
}

/// The key of the imported bits of a block of a legacy notice's bitmap.
pub(crate) fn imported_bits((platform, notice): LegacyNotice, block: u64) -> Item {
    record(&format!("notice#{platform}#{notice}#{block}"))
}

pub(crate) fn run(run: &str) -> Item {
    record(&format!("run#{run}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_exactly_these() {
        let author = UserId::new(7).unwrap();
        let text = |item: &Item, name: &str| item[name].as_s().unwrap().clone();
        assert_eq!(text(&mapping(u64::MAX), "key"), "blog#18446744073709551615");
        assert_eq!(mapped_blog("blog#7"), Some(7));
        assert_eq!(text(&import_record(author), "key"), "author#7");
        assert_eq!(imported_author("author#7"), Some(author));
        assert_eq!(text(&run("abc"), "key"), "run#abc");
        assert_eq!(text(&imported_bits(("7".parse().unwrap(), 57), 2), "key"), "notice#7#57#2");
    }
}

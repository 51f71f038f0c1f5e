//! Records of the streams of DynamoDB.

use tidemark_domain::{PostId, UserId};

use super::schema::{self, EdgeItem, EdgeKey, PostKey};

/// The user and the author of a stream record of the table `following`; `None` if the keys are not those of an edge.
pub fn edge_of_record(keys: &serde_dynamo::Item) -> Option<(UserId, UserId)> {
    let EdgeKey { user, author } = serde_dynamo::from_item(keys.clone()).ok()?;
    Some((user.into(), author.into()))
}

/// The post of a stream record of the table `posts`; `None` if the keys are those of another item.
pub fn post_of_record(keys: &serde_dynamo::Item) -> Option<PostId> {
    let PostKey { author, item } = serde_dynamo::from_item(keys.clone()).ok()?;
    Some(PostId::new(author.into(), schema::post_seq(&item)?))
}

/// Whether a stream record of the table `following`, with these images, may have begun or ended a follow. It is false
/// if only a mute, a block, a list or a preference has changed.
pub fn may_change_follow(old: &serde_dynamo::Item, new: &serde_dynamo::Item) -> bool {
    let follow = |image: &serde_dynamo::Item| {
        let EdgeItem { following, since, .. } = serde_dynamo::from_item(image.clone()).ok()?;
        following.unwrap_or(false).then_some(since)
    };
    (old.is_empty() && new.is_empty()) || follow(old) != follow(new)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_stream_record_names_its_edge() {
        let keys = |user: &str| {
            let number = |text: &str| serde_dynamo::AttributeValue::N(text.to_owned());
            serde_dynamo::Item::from(HashMap::from([("user".to_owned(), number(user)), ("author".to_owned(), number("7"))]))
        };
        let pair = edge_of_record(&keys("18446744073709551615")).map(|(user, author)| (user.get(), author.get()));
        assert_eq!((pair, edge_of_record(&keys("0"))), (Some((u64::MAX, 7)), None));
    }
}

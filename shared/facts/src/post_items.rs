//! The items of posts and texts: how they are encoded and decoded.

use tidemark_domain::{Delivery, DeliveryState, Post, PostId, PostText, Reference, Step, Timestamp, UserId};

use super::{
    Result,
    item::{Attribute, Item},
    read,
    schema::{self, BodyItem, PostItem},
};

/// An author's partition of the index of unfinished fan-outs.
pub(crate) fn index_shard(author: UserId) -> u64 {
    u64::from(author.bucket()) % schema::UNFINISHED_SHARDS
}

pub fn unfinished_shard(author: UserId) -> String {
    schema::unfinished_shard(index_shard(author))
}

/// The item of a new post. `order` decides its place among its author's posts. It is the post's own time unless the
/// post is archived.
pub fn post_item(post: &Post, order: Timestamp) -> PostItem {
    let &Delivery { mode, state, followers, pages, finished_at, .. } = &post.delivery;
    PostItem {
        author: post.id.author.into(),
        item: schema::post_sort_key(post.id.seq),
        at: post.created_at.ms(),
        mode,
        state,
        followers,
        title: post.reposted().is_none().then(|| post.title.clone()),
        time: Some(schema::post_time(order, post.id.seq)),
        tombstone: None,
        pages: Some(pages.into()),
        retract_pages: None,
        delivered: None,
        attempts: None,
        seen_pages: None,
        sent_at: None,
        sent_by: None,
        sending: None,
        finished_at: finished_at.map(Timestamp::ms),
        unfinished: (state == DeliveryState::Pending).then(|| unfinished_shard(post.id.author)),
        archived: post.archived.then_some(true),
        write_token: None,
        revision: None,
        edited_at: None,
        weight: (post.weight != 0).then_some(post.weight),
        step: None,
        step_changes: None,
        step_by: None,
        repost_of: post.of.and_then(Reference::reposted).map(|original| original.to_string()),
        quote_of: post.of.filter(|of| of.reposted().is_none()).map(|of| of.original().to_string()),
    }
}

pub(crate) fn text_item(post: PostId, text: &PostText, revision: Option<u32>) -> BodyItem {
    let PostText { body, data } = text.clone();
    BodyItem { author: post.author.into(), item: schema::body_sort_key(post.seq), body, data, revision }
}

pub(crate) fn read_text(item: Item) -> Result<(u32, PostText)> {
    read(item, |BodyItem { body, data, revision, .. }| Ok((revision.unwrap_or(1), PostText { body, data })))
}

impl TryFrom<PostItem> for Post {
    type Error = Attribute;

    fn try_from(post: PostItem) -> Result<Self, Attribute> {
        let deleted = post.tombstone.unwrap_or(false);
        let pages = |pages: Option<u64>| u16::try_from(pages.unwrap_or(0)).unwrap_or(u16::MAX);
        let created_at = Timestamp::from_ms(post.at);
        let original = |of: Option<String>, attribute| of.map(|of| of.parse().map_err(|_| attribute)).transpose();
        let repost_of = original(post.repost_of, PostItem::repost_of)?.map(Reference::Repost);
        let quote_of = original(post.quote_of, PostItem::quote_of)?.map(Reference::Quote);
        let has_title = !deleted && repost_of.is_none();
        Ok(Self {
            id: PostId::new(post.author.into(), schema::post_seq(&post.item).ok_or(PostItem::item)?),
            title: if has_title { post.title.ok_or(PostItem::title)? } else { String::new() },
            of: repost_of.or(quote_of),
            created_at,
            revision: post.revision.unwrap_or(1),
            edited_at: post.edited_at.map(Timestamp::from_ms),
            weight: post.weight.unwrap_or(0),
            step: Step { level: post.step.unwrap_or(0), changes: post.step_changes.unwrap_or(0) },
            deleted,
            archived: post.archived.unwrap_or(false),
            delivery: Delivery {
                mode: post.mode,
                state: post.state,
                followers: post.followers,
                delivered: post.delivered.unwrap_or(0),
                pages: pages(post.pages),
                retraction_pages: pages(post.retract_pages),
                attempts: post.attempts.unwrap_or(0),
                seen_pages: post.seen_pages.unwrap_or(0),
                sent_at: post.sent_at.map(Timestamp::from_ms),
                sending: post.sending.unwrap_or(false),
                started_at: created_at,
                finished_at: post.finished_at.map(Timestamp::from_ms),
            },
        })
    }
}

pub fn read_post(item: Item) -> Result<Post> {
    read(item, |post: PostItem| post.try_into())
}

/// The post in the key of a body's item.
pub fn body_of(item: &Item) -> Result<PostId> {
    let seq = BodyItem::item.parsed(item, schema::body_seq)?;
    Ok(PostId::new(BodyItem::author.user(item)?, seq))
}

/// The post in the key of an item.
pub fn post_of(item: &Item) -> Result<PostId> {
    let seq = PostItem::item.parsed(item, schema::post_seq)?;
    Ok(PostId::new(PostItem::author.user(item)?, seq))
}

#[cfg(test)]
mod tests {
    use tidemark_domain::DeliveryMode;

    use super::*;
    use crate::item::{encode, string, variant};

    fn post_of_one(author: UserId, at: Timestamp) -> Post {
        Post::new(PostId::new(author, 9), "one".to_owned(), at, Delivery::planned(DeliveryMode::Push, 3, at))
    }

    #[test]
    fn a_post_has_the_stored_names_of_its_mode_and_state_and_decodes_to_itself() {
        let (author, at) = (UserId::new(6).unwrap(), Timestamp::from_ms(5_000));
        let post = post_of_one(author, at);
        let item = encode(&post_item(&post, at));
        let mut names: Vec<&str> = item.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names.join(" "), "at author followers item mode pages state time title unfinished");
        let text = |attribute: Attribute| attribute.of(&item).unwrap().as_s().unwrap().as_str();
        assert_eq!([PostItem::mode, PostItem::state, PostItem::unfinished].map(text), ["push", "pending", "23"]);
        assert_eq!([PostItem::item, PostItem::time].map(text), ["post#0000000000000009", "000000000005000#0000000000000009"]);
        assert_eq!(read_post(item).unwrap(), post);
        let delivery = Delivery { state: DeliveryState::Done, finished_at: Some(at), mode: DeliveryMode::Pull, ..post.delivery };
        let archived = Post { archived: true, delivery, ..post };
        let item = encode(&post_item(&archived, at));
        let text = |attribute: Attribute| attribute.of(&item).and_then(|value| value.as_s().ok()).map(String::as_str);
        assert_eq!([PostItem::mode, PostItem::state, PostItem::unfinished].map(text), [Some("pull"), Some("done"), None]);
        assert_eq!(variant(DeliveryState::Cancelled), string("cancelled"));
        assert_eq!(read_post(item).unwrap(), archived);
        let original = PostId::new(author, 4);
        let quote = Post { of: Some(Reference::Quote(original)), ..post_of_one(author, at) };
        let repost = Post { of: Some(Reference::Repost(original)), title: String::new(), ..quote.clone() };
        for post in [quote, repost] {
            let item = encode(&post_item(&post, at));
            assert_eq!(PostItem::title.of(&item).is_some(), post.reposted().is_none());
            assert_eq!(read_post(item).unwrap(), post);
        }
    }
}

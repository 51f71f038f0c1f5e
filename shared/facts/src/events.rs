//! Events of stream records: what has happened to the fact that a record shows, and what the record lacks of it.

use std::collections::HashSet;

use tidemark_domain::{
    AuthorHead, Comment, Edge, Event, EventPost, Happened, Post, PostId, Reaction, ReactionState, ReadState, Seq, UserId,
};

use super::{
    Facts, Result, StreamRecord, Tables,
    comments::{StoredComment, read_comment},
    edges::read_edge,
    item::Item,
    people::read_profile,
    post_items::{post_of, read_post},
    reactions::read_given,
    reads::read_reads,
    schema::{self, HeadItem, IdentityItem, ReactionItem, ReadsItem},
};

/// The post of an event that has a text.
fn post_in(event: &mut Event) -> Option<&mut EventPost> {
    match &mut event.happened {
        Happened::PostPublished(of) | Happened::PostEdited(of) => Some(of),
        _ => None,
    }
}

/// An image is empty if the item was absent.
fn item(image: &serde_dynamo::Item) -> Option<Item> {
    Some(Item::from(image.clone())).filter(|item| !item.is_empty())
}

impl StreamRecord<'_> {
    /// Returns the events of the record; none if it shows no change of a fact that others see. The text of a post is
    /// another item, so its events have no text yet: see [`Facts::completed_events`]. Fails if the item cannot be read.
    pub fn events(&self, tables: &Tables) -> Result<Vec<Event>> {
        let (table, [old, new]) = (self.table(), [self.old, self.new].map(item));
        let event = if table == tables.following {
            edge(old, new)?
        } else if table == tables.posts {
            let key = Item::from(self.keys.clone());
            if schema::is_head(&key) { head(&key, old, new)? } else { post(&key, old, new)? }
        } else if table == tables.reads {
            reads(new)?
        } else if table == tables.reactions {
            return reactions(old, new);
        } else if table == tables.profiles {
            let profile = new.map(read_profile).transpose()?;
            profile.map(|profile| Event { revision: profile.version, happened: Happened::ProfileChanged(profile) })
        } else {
            None
        };
        Ok(event.into_iter().collect())
    }
}

fn edge(old: Option<Item>, new: Option<Item>) -> Result<Option<Event>> {
    let known = old.map(read_edge);
    // The pair of a follow is not removed, but replaced by a tombstone. Whoever removes it by hand ends the follow.
    let removed = |edge: &Edge| Edge { following: false, rev: edge.rev.saturating_add(1), ..edge.clone() };
    let next = match (new.map(read_edge).transpose()?, &known) {
        (Some(next), _) => next,
        (None, Some(Ok(known))) => removed(known),
        (None, _) => return Ok(None),
    };
    let Edge { user, author, following, since, rev, .. } = next;
    let before = match &known {
        Some(Ok(known)) => known.following.then_some(known.since),
        None => None,
        // An item that could not be read is replaced. The state after it is told in any case.
        Some(Err(_)) => (!following).then_some(since),
    };
    let happened = match (before, following) {
        (before, true) if before != Some(since) => Happened::FollowBegan { user, author, since },
        (Some(_), false) => Happened::FollowEnded { user, author, at: since },
        _ => return Ok(None),
    };
    Ok(Some(Event { revision: rev, happened }))
}

/// The begin of an erasure, or a change of the author's privacy. An erasure ends the privacy without an event.
fn head(key: &Item, old: Option<Item>, new: Option<Item>) -> Result<Option<Event>> {
    let user = HeadItem::author.user(key)?;
    let heads = [old, new].map(Option::unwrap_or_default);
    let [was_erased, is_erased] = heads.each_ref().map(|head| HeadItem::erased.optional(head).ok().flatten() == Some(true));
    if is_erased && !was_erased {
        return Ok(Some(Event { revision: Event::LAST, happened: Happened::UserErased(user) }));
    }
    let [known, changes] = heads.each_ref().map(|head| HeadItem::privacy.optional(head).ok().flatten().unwrap_or(0));
    let private = AuthorHead { privacy: changes, ..AuthorHead::default() }.is_private();
    let changed = Event { revision: changes, happened: Happened::PrivacyChanged { user, private } };
    Ok((changes > known).then_some(changed))
}

fn post(key: &Item, old: Option<Item>, new: Option<Item>) -> Result<Option<Event>> {
    // Texts and windows have other keys.
    let Ok(id) = post_of(key) else { return Ok(None) };
    let (known, next) = (old.map(read_post), new.map(read_post).transpose()?);
    let text = |post: Post, of: fn(EventPost) -> Happened| {
        let revision = post.revision;
        Some(Event { revision, happened: of(EventPost { post: Box::new(post), text: None }) })
    };
    // No edit comes after a deletion.
    let deleted = |revision: u32| Some(Event { revision: revision.saturating_add(1), happened: Happened::PostDeleted(id) });
    Ok(match (known, next) {
        (None, Some(post)) if !post.deleted => text(post, Happened::PostPublished),
        (Some(Ok(known)), Some(post)) if !post.deleted => {
            let is_same = (known.revision, &known.title, known.deleted) == (post.revision, &post.title, false);
            if is_same { None } else { text(post, Happened::PostEdited) }
        }
        (Some(Ok(known)), _) if !known.deleted => deleted(known.revision),
        // An item that could not be read is replaced. The state after it is told in any case.
        (Some(Err(_)), Some(post)) if post.deleted => deleted(post.revision),
        (Some(Err(_)), Some(post)) => text(post, Happened::PostEdited),
        (Some(Err(error)), None) => return Err(error),
        _ => None,
    })
}

/// A read state is removed with one of its users only.
fn reads(new: Option<Item>) -> Result<Option<Event>> {
    let Some(item) = new else { return Ok(None) };
    // A window has another key.
    let (Ok(user), Ok(author)) = (ReadsItem::user.user(&item), ReadsItem::author.user(&item)) else { return Ok(None) };
    let is_spread = ReadsItem::windows.of(&item).is_some();
    let (_, ReadState { version, through, read, .. }) = read_reads(item)?;
    // A set that has outgrown its item has some 16,000 ranges or more, which are too many for an event.
    let read = (!is_spread).then_some(read);
    let happened = Happened::ReadChanged { user, author, through, read };
    Ok(Some(Event { revision: version, happened }))
}

/// A comment that stands begins or ends. A number that was withdrawn is never given again.
fn comment(old: Option<Item>, new: Option<Item>) -> Result<Vec<Event>> {
    let standing = |item: Option<Item>| Ok(item.map(read_comment).transpose()?.and_then(StoredComment::standing));
    let (known, next): (Option<Comment>, Option<Comment>) = (standing(old)?, standing(new)?);
    Ok(match (known, next) {
        (None, Some(Comment { id, author, text, created_at })) => {
            vec![Event { revision: 1, happened: Happened::CommentAdded { comment: id, author, text, at: created_at } }]
        }
        (Some(comment), None) => vec![Event { revision: 2, happened: Happened::CommentDeleted(comment.id) }],
        _ => Vec::new(),
    })
}

/// The reactions that one version of the item has and the other lacks. One version changes one reaction. If the item
/// is removed, one of its users has left.
fn reactions(old: Option<Item>, new: Option<Item>) -> Result<Vec<Event>> {
    if [&old, &new].into_iter().flatten().any(|item| schema::comment_in(item).is_ok()) {
        return comment(old, new);
    }
    let Some(item) = new else { return Ok(Vec::new()) };
    if ReactionItem::item.parsed(&item, schema::reacting_user).is_err() {
        return Ok(Vec::new());
    }
    let (user, author, state, given_at) = read_given(item.clone())?;
    let known = old.map(read_given).transpose()?.map_or_else(ReactionState::default, |(_, _, known, _)| known);
    let mut events = Vec::new();
    for reaction in Reaction::ALL {
        let (before, after) = (known.of(reaction), state.of(reaction));
        let event = |happened| Event { revision: state.version, happened };
        let post = |seq: Seq| PostId::new(author, seq);
        for seq in after.minus(before).iter() {
            let at = given_at.ok_or_else(|| ReactionItem::given_at.damaged(&item))?;
            events.push(event(Happened::ReactionGiven { user, post: post(seq), reaction, at }));
        }
        let removed = before.minus(after);
        events.extend(removed.iter().map(|seq| event(Happened::ReactionRemoved { user, post: post(seq), reaction })));
    }
    Ok(events)
}

impl Facts {
    /// Completes events, each with the number of its record: a post has the text of its revision, if the post still
    /// has it. Leaves out what names a user who has asked to leave, but for the event that says so.
    pub async fn completed_events(&self, events: Vec<(usize, Event)>) -> Result<Vec<(usize, Event)>> {
        let mut events = self.without_the_erased(events).await?;
        let ids: Vec<PostId> = events.iter_mut().filter_map(|(_, event)| Some(post_in(event)?.post.id)).collect();
        let posts = self.posts_with_texts(&ids).await?;
        for of in events.iter_mut().filter_map(|(_, event)| post_in(event)) {
            let stored = posts.get(&of.post.id).filter(|(post, _)| !post.deleted && post.revision == of.post.revision);
            of.text = stored.and_then(|(_, text)| text.clone());
        }
        Ok(events)
    }

    async fn without_the_erased(&self, events: Vec<(usize, Event)>) -> Result<Vec<(usize, Event)>> {
        let users: HashSet<UserId> = events.iter().flat_map(|(_, event)| event.users()).collect();
        let keys = users.into_iter().map(schema::erasure).collect();
        let receipts = self.get("erased_of_events", &self.tables.identities, keys).await?;
        let erased = |receipt: &Item| IdentityItem::identity.parsed(receipt, schema::erased_user);
        let erased: HashSet<UserId> = receipts.iter().map(erased).collect::<Result<_>>()?;
        let stays = |event: &Event| {
            matches!(event.happened, Happened::UserErased(_)) || !event.users().iter().any(|user| erased.contains(user))
        };
        Ok(events.into_iter().filter(|(_, event)| stays(event)).collect())
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::AttributeValue;
    use tidemark_domain::{Delivery, DeliveryMode, Timestamp};

    use super::*;
    use crate::{
        item::{encode, flag, number, string},
        post_items::post_item,
        schema::{EdgeItem, PostItem},
    };

    /// The ids of the events of a record, or the error.
    fn told(table: &str, old: Option<&Item>, new: Option<&Item>) -> String {
        let arn = format!("arn:aws:dynamodb:eu-central-1:123456789012:table/{table}/stream/2026-11-20T00:00:00.000");
        let key = |item: &Item| schema::key_of(table, item);
        let keys = serde_dynamo::Item::from(old.or(new).map(key).unwrap_or_default());
        let [old, new] = [old, new].map(|image| serde_dynamo::Item::from(image.cloned().unwrap_or_default()));
        let record = StreamRecord { arn: Some(&arn), keys: &keys, old: &old, new: &new };
        match record.events(&Tables::of_tests()) {
            Ok(events) => events.iter().map(Event::id).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        }
    }

    fn with(item: &Item, attribute: crate::item::Attribute, value: AttributeValue) -> Item {
        let mut item = item.clone();
        item.insert(attribute.name().to_owned(), value);
        item
    }

    fn users() -> [UserId; 2] {
        [1, 2].map(|id| UserId::new(id).unwrap())
    }

    #[test]
    fn a_record_of_a_pair_tells_when_a_follow_begins_and_ends() {
        let ([user, author], since) = (users(), Timestamp::from_ms(5_000));
        let follow = Edge { following: true, since, rev: 9, ..Edge::never(user, author) };
        let ended = Edge { following: false, rev: 11, ..follow.clone() };
        let muted = Edge { muted: Some(since), rev: 10, ..follow.clone() };
        let asked = Edge { requested: Some(since), rev: 12, ..ended.clone() };
        let again = Edge { since: since.plus_ms(1), rev: 13, ..follow.clone() };
        let [follow, ended, muted, asked, again] = [follow, ended, muted, asked, again].map(|edge| schema::edge_item(&edge));
        let damaged = with(&follow, EdgeItem::since, string("yesterday"));
        for (old, new, expected) in [
            (None, Some(&follow), "follow.began:1/2:9"),
            (Some(&follow), Some(&muted), ""),
            (Some(&muted), Some(&ended), "follow.ended:1/2:11"),
            (Some(&ended), Some(&asked), ""),
            (Some(&asked), Some(&again), "follow.began:1/2:13"),
            (Some(&follow), Some(&again), "follow.began:1/2:13"),
            (Some(&ended), None, ""),
            (None, Some(&ended), ""),
            (Some(&follow), None, "follow.ended:1/2:10"),
            (Some(&damaged), Some(&ended), "follow.ended:1/2:11"),
            (Some(&damaged), Some(&again), "follow.began:1/2:13"),
            (Some(&follow), Some(&damaged), "damaged item in following: "),
        ] {
            let told = told("following", old, new);
            assert!(told == expected || !expected.is_empty() && told.starts_with(expected), "{told} is not {expected}");
        }
    }

    #[test]
    fn a_record_of_an_author_tells_of_posts_and_of_an_erasure() {
        let ([_, author], at) = (users(), Timestamp::from_ms(5_000));
        let post = Post::new(PostId::new(author, 3), "one".to_owned(), at, Delivery::planned(DeliveryMode::Push, 3, at));
        let live = encode(&post_item(&post, at));
        let moved = with(&live, PostItem::seen_pages, number(4_u64));
        let edited = with(&live, PostItem::revision, number(2_u64));
        let mut deleted = with(&edited, PostItem::tombstone, flag(true));
        deleted.remove(PostItem::title.name());
        let body = schema::body(post.id);
        let head = |erased: bool| {
            let item = with(&schema::head(author), HeadItem::latest_seq, number(3_u64));
            if erased { with(&item, HeadItem::erased, flag(true)) } else { item }
        };
        let changed = |privacy: u32| with(&head(false), HeadItem::privacy, number(privacy));
        for (old, new, expected) in [
            (None, Some(&live), "post.published:2-3:1"),
            (Some(&live), Some(&moved), ""),
            (Some(&moved), Some(&edited), "post.edited:2-3:2"),
            (Some(&edited), Some(&deleted), "post.deleted:2-3:3"),
            (Some(&live), Some(&deleted), "post.deleted:2-3:2"),
            (Some(&deleted), Some(&deleted), ""),
            (Some(&deleted), None, ""),
            (None, Some(&deleted), ""),
            (Some(&edited), None, "post.deleted:2-3:3"),
            (None, Some(&body), ""),
            (Some(&head(false)), Some(&head(true)), "user.erased:2:4294967295"),
            (None, Some(&head(true)), "user.erased:2:4294967295"),
            (Some(&head(true)), Some(&head(true)), ""),
            (Some(&head(true)), Some(&head(false)), ""),
            (None, Some(&changed(1)), "privacy.changed:2:1"),
            (Some(&head(false)), Some(&changed(1)), "privacy.changed:2:1"),
            (Some(&changed(1)), Some(&changed(2)), "privacy.changed:2:2"),
            (Some(&changed(2)), Some(&changed(2)), ""),
            (Some(&changed(1)), Some(&head(false)), ""),
        ] {
            assert_eq!(told("posts", old, new), expected);
        }
    }

    #[test]
    fn a_record_of_reactions_or_marks_tells_what_the_item_shows() {
        let [user, author] = users();
        let bits = |seqs: &[Seq]| crate::item::bits(&seqs.iter().copied().collect());
        let reactions = |version: u32, liked: &[Seq], favorited: &[Seq]| {
            let item = with(&schema::reaction(user, author), ReactionItem::version, number(version));
            let item = with(&item, ReactionItem::liked, bits(liked));
            with(&with(&item, ReactionItem::favorited, bits(favorited)), ReactionItem::given_at, number(5_u64))
        };
        let (none, one, two) = (reactions(3, &[], &[4]), reactions(1, &[4], &[]), reactions(2, &[4], &[4]));
        let blocked = with(&two, ReactionItem::blocked, flag(true));
        let read = with(&with(&schema::reads(user, author), ReadsItem::version, number(7_u64)), ReadsItem::read, bits(&[1]));
        let large = with(&read, ReadsItem::windows, AttributeValue::M([("read#0".to_owned(), number(9_u64))].into()));
        let window = schema::window(&schema::reads(user, author), "read", 0).unwrap();
        for (table, old, new, expected) in [
            ("reactions", None, Some(&one), "reaction.given:1/2-4/like:1"),
            ("reactions", Some(&one), Some(&two), "reaction.given:1/2-4/favorite:2"),
            ("reactions", Some(&two), Some(&none), "reaction.removed:1/2-4/like:3"),
            ("reactions", Some(&two), Some(&blocked), ""),
            ("reactions", Some(&two), None, ""),
            ("reactions", None, Some(&schema::post_reactions(PostId::new(author, 4), 3)), ""),
            ("reads", None, Some(&read), "read.changed:1/2:7"),
            ("reads", None, Some(&large), "read.changed:1/2:7"),
            ("reads", None, Some(&window), ""),
            ("reads", Some(&read), None, ""),
            ("handles", None, Some(&read), ""),
        ] {
            assert_eq!(told(table, old, new), expected, "{table}");
        }
    }
}

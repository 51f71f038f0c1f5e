//! Repairs of facts: one write or transaction each, on condition that the facts are as the look found them.

use tidemark_domain::{
    CommentId, DeliveryState, FeedKey, NoticeId, Platform, PlatformHead, Post, PostId, ReadState, Relation, Slot, StoreError,
    Timestamp, UserId, invariants,
};
use tidemark_facts::{
    counters::PartedCounter,
    heads::{read_head, still_latest},
    item::{Attribute, flag, number, string},
    post_items::unfinished_shard,
    reactions::counted,
    reposts::RepostEntry,
    schema::{
        self, CommentCountItem, CounterItem, EdgeItem, HeadItem, NoticeItem, PlatformHeadItem, PostItem, ProfileItem,
        ReactedItem, ReactionCountsItem, ReactionItem, RecordItem,
    },
    windows::Layout,
    write::{Write, absent, is, is_not_of_type, present, still, still_number, unchanged},
};

use super::StoredFacts;
use crate::{
    diff::{Correction, Counter, ListedQuote, ListedReaction, ListedRepost, Recount, StoredRecord},
    facts::audit::{listed_quote, said},
};

const OPERATION: &str = "repair";
const NOTICES: &str = "repair_notices";

impl StoredFacts {
    /// Writes a correction; false if the facts have changed since the look.
    pub async fn correct(&self, correction: &Correction) -> Result<bool, StoreError> {
        match *correction {
            Correction::MirrorEdge { user, author, edge } => self.mirror_edge(user, author, edge).await,
            Correction::MirrorRequest { user, author, request } => self.mirror_request(user, author, request).await,
            Correction::EndRequest { user, author, rev } => self.end_request_beside(user, author, rev).await,
            Correction::SetCount(count) => self.recount(count).await,
            Correction::SetPosts { author, right, latest, deletions } => {
                let update = Write::update(&self.tables.posts, schema::head(author))
                    .set(HeadItem::posts, number(right))
                    .when(still_latest(latest))
                    .when(still(HeadItem::deletions, deletions.map(number)));
                self.send(OPERATION, update).await
            }
            Correction::SetDeleted { post, deleted } => self.set_deleted(post, deleted).await,
            Correction::CutReads { user, author } => self.cut_reads(user, author).await,
            Correction::ListReaction { of, listed, at, version } => self.list_reaction(of, listed, at, version).await,
            Correction::AddLiker { of, version } => self.add_liker(of, version).await,
            Correction::DeleteLiker { of, at, version } => self.delete_liker(of, at, version).await,
            Correction::ListRepost(of) => self.list_repost(of).await,
            Correction::UnlistRepost(of) => self.unlist_repost(of).await,
            Correction::SetQuote { of, listed } => self.set_quote(of, listed).await,
            Correction::ListComment { of, user, at } => self.list_comment(OPERATION, of, user, at).await,
            Correction::RaiseCommentNumbers { post, seen, right } => self.raise_last_number(OPERATION, post, seen, right).await,
            Correction::SetBlockFlags { user, author, blocked, rev } => {
                self.restore_block_notes(user, author, blocked, rev).await
            }
            Correction::ClaimHandle { user, ref handle, version } => {
                let same =
                    Write::check(&self.tables.profiles, schema::profile(user)).when(is(ProfileItem::version, number(version)));
                self.send_all(OPERATION, vec![same, self.claim(user, handle, Timestamp::from_ms(0))]).await
            }
            Correction::SetUnfinished { post, unfinished } => {
                let update = if unfinished {
                    let shard = string(unfinished_shard(post.author));
                    self.live_post_in(post, DeliveryState::Pending).set_if_absent(PostItem::unfinished, shard)
                } else {
                    self.live_post_in(post, DeliveryState::Done).remove([PostItem::unfinished])
                };
                self.send(OPERATION, update).await
            }
            Correction::DeleteBody { post } => {
                // A tombstone never becomes a live post again, so the body is never needed again.
                self.send(OPERATION, Write::delete(&self.tables.posts, schema::body(post))).await
            }
            Correction::DeleteRecord(ref record) => self.delete_record(record).await,
            Correction::UnlistNotice(notice) => self.unlist(notice).await,
            Correction::DeleteNotice(notice) => self.delete_left(notice).await,
            Correction::ApplyPendingEdit { platform, revision } => {
                self.apply_pending_edit(platform, revision).await.map(|()| true)
            }
            Correction::RaiseSlot { platform, given } => self.raise_slots(platform, given).await,
            Correction::CutNoticeReads { user, platform } => self.cut_notice_reads(user, platform).await,
            Correction::DeleteTombstone { user, author, rev } => {
                let delete = Write::delete(&self.tables.following, schema::edge(user, author))
                    .when(is(EdgeItem::following, flag(false)))
                    .when(is(EdgeItem::rev, number(rev)));
                self.send(OPERATION, delete).await
            }
        }
    }

    /// Ends a request that is beside a follow or a block.
    async fn end_request_beside(&self, user: UserId, author: UserId, rev: u32) -> Result<bool, StoreError> {
        let update = Write::update(&self.tables.following, schema::edge(user, author))
            .remove([EdgeItem::requested_at])
            .set(EdgeItem::rev, number(rev.saturating_add(1)))
            .when(is(EdgeItem::rev, number(rev)));
        self.send(OPERATION, update).await
    }

    /// Sets a count if its change number is the one that was read before its items were listed: then the items are
    /// still the same. If the change number is not a number, it begins again at 1. No writer can change it in the
    /// meantime, because its addition to it would fail.
    async fn recount(&self, found: Recount) -> Result<bool, StoreError> {
        let (counters, reactions) = (&self.tables.counters, &self.tables.reactions);
        let (table, key, count, changes) = match found.of {
            Counter::Followings { user } => {
                (counters, schema::followings_counter(user), CounterItem::count, CounterItem::changes)
            }
            Counter::RequestsSent { user } => {
                (counters, schema::followings_counter(user), CounterItem::requests, CounterItem::changes)
            }
            Counter::Followers { author, shard } => return self.recount_shard(author, shard, CounterItem::count, found).await,
            Counter::RequestsReceived { author, shard } => {
                return self.recount_shard(author, shard, CounterItem::requests, found).await;
            }
            Counter::PostReactions { post, reaction } => {
                return self.recount_post(OPERATION, post, counted(reaction), (found.changes, found.right)).await;
            }
            Counter::PostReposts { original } => {
                let reposts = ReactionCountsItem::reposts;
                return self.recount_post(OPERATION, original, reposts, (found.changes, found.right)).await;
            }
            Counter::Comments { post, lane } => {
                let key = schema::comment_count(CommentId::new(post, lane + 1));
                (reactions, key, CommentCountItem::comments, CommentCountItem::changes)
            }
            Counter::CommentsOf { post, user } => {
                (reactions, schema::commented(post, user), CommentCountItem::comments, CommentCountItem::changes)
            }
            Counter::AuthorReactions { author, shard, reaction } => {
                (reactions, schema::author_reactions(author, shard), counted(reaction), ReactionCountsItem::changes)
            }
        };
        let same = |attribute, known: u64| match known {
            0 => absent(attribute).or(is(attribute, number(known))),
            _ => is(attribute, number(known)),
        };
        let update = Write::update(table, key).set(count, number(found.right));
        let update = match found.changes {
            Some(known) => update.when(same(changes, known)),
            None => update.set(changes, number(1_u64)).when(is_not_of_type(changes, "N")),
        };
        // A version of this program that does not number its changes may run at the same time.
        let update = match found.seen {
            Some(seen) => update.when(same(count, seen)),
            None => update,
        };
        self.send(OPERATION, update).await
    }

    /// The same for a shard of followers or of requests: all its parts must be as they were before these were listed,
    /// and their sum becomes right. If one of several parts has a change number that is not a number, it is unknown
    /// whether the others have changed. Then only that number begins again, and the next look finds the count.
    async fn recount_shard(&self, author: UserId, shard: u16, count: Attribute, found: Recount) -> Result<bool, StoreError> {
        let key = |part| schema::followers_part(author, shard, part);
        let (table, changes, parts) = (self.tables.counters.as_str(), CounterItem::changes, CounterItem::parts);
        let counter = PartedCounter { table, key: &key, count, changes, parts };
        let stored = self.stored_parts(OPERATION, &counter).await?;
        let [seen, changes] = stored.sums(&counter)?;
        if (seen, changes) != (found.seen, found.changes) {
            return Ok(false);
        }
        let is_counted = changes.is_some() || stored.is_single();
        self.set_count_of_parts(OPERATION, &counter, &stored, is_counted.then_some(found.right), None).await
    }

    /// Waits for the items, because many repairs change the counter of a big author.
    async fn mirror_edge(&self, user: UserId, author: UserId, edge: Option<(Timestamp, u32)>) -> Result<bool, StoreError> {
        let followers = &self.tables.followers;
        let check = Write::check(&self.tables.following, schema::edge(user, author));
        let following = |following| is(EdgeItem::following, flag(following));
        let writes = match edge {
            Some((since, rev)) => vec![
                check.when(following(true)).when(is(EdgeItem::rev, number(rev))),
                Write::put(followers, schema::follower_item(user, author, since)),
                self.entry_added(user, author),
            ],
            None => vec![
                check.when(absent(EdgeItem::rev).or(following(false))),
                Write::delete(followers, schema::follower(author, user)),
            ],
        };
        self.transact_when_free(OPERATION, writes).await
    }

    /// Numbers a change of the author's list, as a follow does. A repair of the count whose look has not seen the entry
    /// is cancelled then, in whatever order two steps work. An entry without an edge is in no count.
    fn entry_added(&self, user: UserId, author: UserId) -> Write {
        let counter = schema::followers_counter(author, user.shard());
        Write::update(&self.tables.counters, counter).add(CounterItem::changes, 1)
    }

    async fn mirror_request(&self, user: UserId, author: UserId, request: Option<(Timestamp, u32)>) -> Result<bool, StoreError> {
        let followers = &self.tables.followers;
        let check = Write::check(&self.tables.following, schema::edge(user, author));
        let writes = match request {
            Some((at, rev)) => {
                let check = check.when(present(EdgeItem::requested_at)).when(is(EdgeItem::rev, number(rev)));
                let entries = schema::request_items(user, author, at).map(|entry| Write::put(followers, entry));
                [vec![check, self.entry_added(user, author)], entries.to_vec()].concat()
            }
            None => {
                let entries = schema::requests(user, author).map(|entry| Write::delete(followers, entry));
                [vec![check.when(absent(EdgeItem::requested_at))], entries.to_vec()].concat()
            }
        };
        self.transact_when_free(OPERATION, writes).await
    }

    /// The write fails if the head has changed since it was read here, or if the post is not as the look found it.
    async fn set_deleted(&self, post: PostId, deleted: bool) -> Result<bool, StoreError> {
        let (posts, key) = (&self.tables.posts, schema::head(post.author));
        let Some(item) = self.get_one(OPERATION, posts, key.clone()).await? else { return Ok(false) };
        let mut head = read_head(item.clone())?;
        if deleted {
            head.deleted.insert(post.seq)
        } else {
            head.deleted.remove(post.seq)
        };
        let layout = Layout::new(&key, Some(&item), &[(HeadItem::deleted, &head.deleted)], true)?;
        // A set with windows is unchanged if the windows and the number of deletions are unchanged.
        let windows: &[Attribute] = &[HeadItem::windows, HeadItem::deletions];
        let seen = if HeadItem::windows.of(&item).is_some() { windows } else { &[HeadItem::deleted] };
        let update = Write::update(posts, key).set(HeadItem::deletions, number(head.deleted.len()));
        let update = seen.iter().fold(update, |update, attribute| update.when(unchanged(*attribute, Some(&item))));
        let check = Write::check(posts, schema::post(post));
        let check = if deleted {
            check.when(present(PostItem::tombstone).or(present(PostItem::archived)))
        } else {
            check.when(present(PostItem::item)).when(absent(PostItem::tombstone)).when(absent(PostItem::archived))
        };
        self.send_all(OPERATION, [layout.writes(update), vec![check]].concat()).await
    }

    /// If the list of the post lacks the reaction too, its time is not stored, and the added entry gets that of the
    /// post.
    async fn list_reaction(
        &self,
        of: ListedReaction,
        listed: bool,
        at: Option<Timestamp>,
        version: u32,
    ) -> Result<bool, StoreError> {
        let ListedReaction { user, post, reaction } = of;
        let reacted = &self.tables.reacted;
        let write = if listed {
            let Some(found) = self.posts(&[post]).await?.remove(&post) else { return Ok(false) };
            let key = at.map_or_else(|| found.key(), |at| FeedKey { at, post });
            Write::put(reacted, schema::reacted_item(user, reaction, key)).when(absent(ReactedItem::user))
        } else {
            Write::delete(reacted, schema::reacted(user, reaction, post))
        };
        self.send_all(OPERATION, vec![self.reactions_are_still(of, version), write]).await
    }

    /// Nothing is written while the user's list lacks the reaction.
    async fn add_liker(&self, of: ListedReaction, version: u32) -> Result<bool, StoreError> {
        let ListedReaction { user, post, reaction } = of;
        let entry = self.get_one(OPERATION, &self.tables.reacted, schema::reacted(user, reaction, post)).await?;
        let at = entry.and_then(|entry| ReactedItem::at.parsed(&entry, schema::reaction_of).ok());
        let Some(FeedKey { at: since, .. }) = at else { return Ok(false) };
        let put = Write::put(&self.tables.reactions, schema::liker(post, reaction, Relation { since, user }));
        // The list may not have an entry of this shard yet.
        let noted = self.note_listed(post, user);
        self.send_all(OPERATION, vec![self.reactions_are_still(of, version), put, noted]).await
    }

    /// A list that has another repost of the user's is left alone. The count may have been repaired by the list that
    /// lacked the repost.
    async fn list_repost(&self, ListedRepost { repost, original, at }: ListedRepost) -> Result<bool, StoreError> {
        let user = repost.author;
        let entry = RepostEntry { seq: repost.seq, at };
        if self.standing_repost(user, original, entry).await?.is_none_or(|post| post.created_at != at) {
            return Ok(false);
        }
        let stands = Write::check(&self.tables.posts, schema::post(repost)).when(absent(PostItem::tombstone));
        let own = Write::put(&self.tables.reacted, schema::repost_item(user, original, at, repost.seq));
        let own = own.when(absent(ReactedItem::user).or(is(ReactedItem::repost, number(repost.seq))));
        let mut writes = vec![stands.when(present(PostItem::repost_of)), own];
        if !self.erased(&[original.author]).await?.contains(&original.author) {
            let listed = schema::reposter_item(original, Relation { since: at, user }, repost.seq);
            writes.push(Write::put(&self.tables.reactions, listed));
            return self.with_count(writes, original).await;
        }
        self.send_all(OPERATION, writes).await
    }

    /// Sends the writes, and counts the reposts that the original then lists.
    async fn with_count(&self, writes: Vec<Write>, original: PostId) -> Result<bool, StoreError> {
        let sent = self.send_all(OPERATION, writes).await?;
        if sent {
            self.recount_reposts(original).await?;
        }
        Ok(sent)
    }

    async fn unlist_repost(&self, ListedRepost { repost, original, at }: ListedRepost) -> Result<bool, StoreError> {
        let (user, reacted) = (repost.author, &self.tables.reacted);
        let post = self.get_one(OPERATION, &self.tables.posts, schema::post(repost)).await?;
        let stands = self.standing_repost(user, original, RepostEntry { seq: repost.seq, at }).await?;
        let is_right = |post: Post| post.created_at == at;
        if stands.is_some_and(is_right) {
            return Ok(false);
        }
        let as_read = [PostItem::tombstone, PostItem::repost_of].map(|attribute| unchanged(attribute, post.as_ref()));
        let check = as_read.into_iter().fold(Write::check(&self.tables.posts, schema::post(repost)), Write::when);
        let mut writes =
            vec![check, Write::delete(&self.tables.reactions, schema::reposter(original, Relation { since: at, user }))];
        let own = self.get_one(OPERATION, reacted, schema::repost(user, original)).await?;
        if own == Some(schema::repost_item(user, original, at, repost.seq)) {
            let delete = Write::delete(reacted, schema::repost(user, original));
            writes.push(delete.when(is(ReactedItem::repost, number(repost.seq))));
        }
        self.with_count(writes, original).await
    }

    /// Adds the entry of a quote to the list of its original if the quote stands, or removes it if it does not.
    async fn set_quote(&self, of: ListedQuote, listed: bool) -> Result<bool, StoreError> {
        let key = schema::post(of.quote);
        let seen = self.get_one(OPERATION, &self.tables.posts, key.clone()).await?;
        let post = self.posts(&[of.quote]).await?.remove(&of.quote).filter(|post| !post.deleted);
        let stands = post.as_ref().and_then(listed_quote) == Some(of);
        if stands != listed {
            return Ok(false);
        }
        let as_read = [PostItem::tombstone, PostItem::quote_of].map(|attribute| unchanged(attribute, seen.as_ref()));
        let check = as_read.into_iter().fold(Write::check(&self.tables.posts, key), Write::when);
        let entry = schema::quoter(of.original, Relation { since: of.at, user: of.quote.author }, of.quote.seq);
        let write = if listed { Write::put(&self.tables.reactions, entry) } else { Write::delete(&self.tables.reactions, entry) };
        self.send_all(OPERATION, vec![check, write]).await
    }

    async fn delete_liker(&self, of: ListedReaction, at: Timestamp, version: u32) -> Result<bool, StoreError> {
        let ListedReaction { user, post, reaction } = of;
        let liker = schema::liker(post, reaction, Relation { since: at, user });
        let delete = Write::delete(&self.tables.reactions, liker);
        self.send_all(OPERATION, vec![self.reactions_are_still(of, version), delete]).await
    }

    fn reactions_are_still(&self, of: ListedReaction, version: u32) -> Write {
        let check = Write::check(&self.tables.reactions, schema::reaction(of.user, of.post.author));
        check.when(still_number(ReactionItem::version, version))
    }

    async fn cut_reads(&self, user: UserId, author: UserId) -> Result<bool, StoreError> {
        let authors = [author];
        // The head is read last, so it includes every post that the read state covers.
        let Some(mut state) = self.reads(user, &authors).await?.remove(&author) else { return Ok(false) };
        let head = self.heads(&authors).await?.remove(&author).unwrap_or_default();
        if invariants::reads_only_what_exists(&head, &state) {
            return Ok(false);
        }
        state.read.truncate(head.latest_seq);
        let state = ReadState { version: state.version + 1, through: state.through.min(head.latest_seq), ..state };
        self.put_reads(user, author, &state).await
    }

    async fn delete_record(&self, seen: &StoredRecord) -> Result<bool, StoreError> {
        let (table, key) = (&self.tables.idempotency, schema::record(&seen.key));
        let Some(item) = self.get_one(OPERATION, table, key.clone()).await? else { return Ok(false) };
        if said(item.clone()) != seen.says {
            return Ok(false);
        }
        let same = RecordItem::ATTRIBUTES.iter().map(|attribute| unchanged(*attribute, Some(&item)));
        self.send(OPERATION, same.fold(Write::delete(table, key), Write::when)).await
    }

    async fn unlist(&self, notice: NoticeId) -> Result<bool, StoreError> {
        let before = self.platform_head(notice.platform).await?;
        let mut head = before.clone();
        if !head.remove(&[notice.seq]) {
            return Ok(false);
        }
        let check = Write::check(&self.tables.notices, schema::notice(notice)).when(absent(NoticeItem::title));
        self.send_all(NOTICES, vec![self.put_head(notice.platform, &before, &head), check]).await
    }

    async fn delete_left(&self, notice: NoticeId) -> Result<bool, StoreError> {
        let head = self.platform_head(notice.platform).await?;
        if head.live.iter().any(|live| live.seq == notice.seq) {
            return Ok(false);
        }
        let delete = Write::delete(&self.tables.notices, schema::notice(notice));
        self.send_all(NOTICES, vec![self.head_is_still(notice.platform, &head), delete]).await
    }

    /// Raises a head's latest slot to a slot that was given. Live notices keep their slots.
    async fn raise_slots(&self, platform: Platform, given: Slot) -> Result<bool, StoreError> {
        let before = self.platform_head(platform).await?;
        if before.latest_slot >= given {
            return Ok(false);
        }
        let head = PlatformHead { version: before.version + 1, latest_slot: given, ..before.clone() };
        self.send(NOTICES, self.put_head(platform, &before, &head)).await
    }

    /// The removed slots are not counted, so no number of readers changes.
    async fn cut_notice_reads(&self, user: UserId, platform: Platform) -> Result<bool, StoreError> {
        let (head, before) = self.notice_state(platform, user).await?;
        if !before.is_beyond(head.latest_seq, head.latest_slot) {
            return Ok(false);
        }
        let mut after = before.clone();
        after.cut(head.latest_seq, head.latest_slot);
        after.version += 1;
        let put = self.put_notice_reads(user, platform, &after, before.version);
        self.send_all(NOTICES, vec![self.head_is_still(platform, &head), put]).await
    }

    fn head_is_still(&self, platform: Platform, head: &PlatformHead) -> Write {
        let check = Write::check(&self.tables.notices, schema::platform_head(platform));
        check.when(still_number(PlatformHeadItem::version, head.version))
    }
}

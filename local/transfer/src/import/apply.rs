//! Applies lines of one phase and one owner, except posts.

use std::collections::HashMap;

use serde_json::value::RawValue;
use tidemark_domain::{
    AuthorHead, Card, Edge, Erasure, Handle, NewFollow, NoticeContent, NoticeReads, Platform, ProfileContent, Reaction, Removed,
    SeqSet, StoreError, UserId, author_lists::MOST_LISTS,
};
use tidemark_facts::{
    Followed, Imported, ImportedReaction,
    edges::Kind as Origin,
    imports::{CommentImport, IdentityImport, ImportedComment, ImportedNotice, NoticeImport, ProfileImport, ReceiptImport},
};

use super::{Import, Numbered, Outcome};
use crate::line::{
    BlockLine, CommentLine, FollowLine, HandleLine, IdentityLine, InboxReadLine, Line, ListLine, NoticeReadLine, PlatformLine,
    ProfileLine, ReadLine, RequestLine,
};

type Result<T> = std::result::Result<T, StoreError>;
type Outcomes = Vec<Numbered<Outcome>>;

const LEFT: &str = "one of the users has left";
const BLOCKED: &str = "one of the users blocks the other";

impl Import<'_> {
    /// Applies lines of one owner in their order; of a repost or a quote, its listing. Returns the outcome of each.
    pub(super) async fn apply(&self, lines: &[Numbered<Line>]) -> Result<Outcomes> {
        let mut outcomes = Outcomes::with_capacity(lines.len());
        // The outcome of a post is that of its own import.
        for (id, of, at) in lines.iter().filter_map(|(_, line)| line.reference()) {
            self.facts.import_listing(id, of, at).await?;
        }
        let follows: Vec<Numbered<&FollowLine>> =
            only(lines, |line| if let Line::Follow(line) = line { Some(line) } else { None });
        if !follows.is_empty() {
            outcomes.extend(self.follows(&follows).await?);
        }
        let reads: Vec<Numbered<&ReadLine>> = only(lines, |line| if let Line::Read(line) = line { Some(line) } else { None });
        if !reads.is_empty() {
            outcomes.extend(self.reads(&reads).await?);
        }
        // The last numbers of a platform come before its notices, which raise them too.
        let (first, rest): (Vec<_>, Vec<_>) = lines.iter().partition(|(_, line)| matches!(line, Line::Platform(_)));
        let notices = only(lines, |line| if let Line::Notice(line) = line { Some(line) } else { None });
        for (number, line) in first {
            outcomes.extend(self.one(line).await?.map(|outcome| (*number, outcome)));
        }
        if let Some((_, first)) = notices.first() {
            let new = notices.iter().map(|(_, line)| ImportedNotice {
                seq: line.id.seq,
                created_at: line.created_at,
                content: NoticeContent { title: line.title.clone(), body: line.body.clone(), expires_at: line.expires_at },
                revision: line.revision,
                slot: line.slot,
            });
            let imported = self.facts.import_notices(first.id.platform, &new.collect::<Vec<_>>(), self.now).await?;
            outcomes.extend(notices.iter().zip(imported).map(|((number, _), outcome)| (*number, of_notice(outcome))));
        }
        for (number, line) in rest {
            outcomes.extend(self.one(line).await?.map(|outcome| (*number, outcome)));
        }
        Ok(outcomes)
    }

    /// Applies a line that is no follow, read state, notice or post.
    async fn one(&self, line: &Line) -> Result<Option<Outcome>> {
        let facts = self.facts;
        Ok(Some(match line {
            Line::Identity(IdentityLine { claim, user, .. }) => match facts.import_identity(claim, *user).await? {
                IdentityImport::Written => Outcome::Written,
                IdentityImport::Existing => Outcome::AlreadyThere,
                IdentityImport::OtherUser => Outcome::bad("the claim has another user id"),
                IdentityImport::Taken => Outcome::bad("another claim has the user id"),
            },
            Line::Erased(line) => {
                let (started_at, finished_at) = (line.started_at, Some(line.finished_at));
                let swept_at = finished_at;
                let receipt = Erasure {
                    started_at,
                    finished_at,
                    swept_at,
                    touched_at: line.finished_at,
                    removed: Some(Removed::default()),
                    version: 1,
                    ..Erasure::default()
                };
                match facts.import_receipt(line.user, &receipt).await? {
                    ReceiptImport::Written => Outcome::Written,
                    ReceiptImport::Existing => Outcome::AlreadyThere,
                    ReceiptImport::IsHere => Outcome::bad("the user is here"),
                }
            }
            Line::Profile(line) => self.profile(line).await?,
            Line::Handle(HandleLine { handle, user, until, .. }) => match Handle::stored(handle) {
                None => Outcome::bad("`handle` must be 3 to 30 characters of a-z, 0-9 and _"),
                Some(_) if *until <= self.now => Outcome::AlreadyThere,
                Some(handle) => Outcome::written(facts.import_rest(&handle, *user, *until).await?),
            },
            Line::Block(line) => self.block(line).await?,
            Line::Request(line) => self.request(line).await?,
            Line::Mute(line) => match self.has_left(&[line.user, line.other]).await? {
                true => Outcome::bad(LEFT),
                false => of(facts.import_mute(line.user, line.other, line.since, self.now).await?),
            },
            Line::List(line) => self.list(line).await?,
            Line::Like(line) => of_reaction(facts.import_reaction(line.user, line.post, Reaction::Like, line.at, false).await?),
            Line::Favorite(line) => {
                of_reaction(facts.import_reaction(line.user, line.post, Reaction::Favorite, line.at, false).await?)
            }
            Line::Platform(PlatformLine { platform, latest_seq, latest_slot, latest_at, .. }) => {
                Outcome::written(facts.import_platform(*platform, *latest_seq, *latest_slot, *latest_at).await?)
            }
            Line::NoticeRead(line) => self.notice_reads(line).await?,
            Line::Comment(line) => self.comment(line).await?,
            Line::InboxRead(InboxReadLine { user, id, at, .. }) => of(facts.import_inbox_read(*user, *id, *at).await?),
            Line::Follow(_) | Line::Read(_) | Line::Notice(_) | Line::Post(_) | Line::Repost(_) | Line::Deleted(_) => {
                return Ok(None);
            }
        }))
    }

    async fn has_left(&self, users: &[UserId]) -> Result<bool> {
        Ok(!self.facts.erased(users).await?.is_empty())
    }

    /// The user is private before anything of the user can be seen.
    async fn profile(&self, line: &ProfileLine) -> Result<Outcome> {
        if self.has_left(&[line.user]).await? {
            return Ok(Outcome::bad(LEFT));
        }
        // A user who has changed it here keeps it. If an import was killed in between, its fence is raised now.
        let privacy = self.facts.head_of(line.user).await?.privacy;
        let makes_private = line.private && privacy == 0;
        if line.private && privacy <= 1 {
            self.facts.set_privacy(line.user, true).await?;
        }
        let (Some(name), Some(updated_at)) = (&line.name, line.updated_at) else { return Ok(Outcome::written(makes_private)) };
        let handle = match &line.handle {
            None => None,
            Some(handle) => match Handle::stored(handle) {
                None => return Ok(Outcome::bad("`handle` must be 3 to 30 characters of a-z, 0-9 and _")),
                handle => handle,
            },
        };
        let card = Card { name: name.clone(), handle, picture: line.picture.clone() };
        let data = line.data.as_deref().map(RawValue::get).map(str::to_owned);
        let content = ProfileContent { card, bio: line.bio.clone(), data };
        Ok(match self.facts.import_profile(line.user, &content, updated_at, self.now).await? {
            ProfileImport::Written => Outcome::Written,
            ProfileImport::Existing => Outcome::written(makes_private),
            ProfileImport::HandleTaken => Outcome::bad("another user has the handle"),
        })
    }

    async fn block(&self, BlockLine { user, other, since, .. }: &BlockLine) -> Result<Outcome> {
        let own = self.facts.edges(*user, &[*other]).await?;
        let reverse = self.facts.edges(*other, &[*user]).await?;
        // Users who block end the follows between them, so one that began later shows that the block has ended since.
        let began_later =
            |edge: &Edge| edge.following && edge.since > *since || edge.requested.is_some_and(|asked| asked > *since);
        if own.values().any(|edge| edge.blocked.is_some()) || own.values().chain(reverse.values()).any(began_later) {
            return Ok(Outcome::AlreadyThere);
        }
        if self.has_left(&[*user, *other]).await? {
            return Ok(Outcome::bad(LEFT));
        }
        self.facts.set_blocked(*user, *other, Some(*since), self.now).await?;
        Ok(Outcome::Written)
    }

    async fn request(&self, line: &RequestLine) -> Result<Outcome> {
        let (user, author) = line.pair();
        Ok(of(self.facts.import_request(user, author, line.since, line.preference, self.now).await?))
    }

    async fn comment(&self, line: &CommentLine) -> Result<Outcome> {
        let comment = ImportedComment { id: line.id, author: line.user, text: line.text.clone(), at: line.created_at };
        Ok(match self.facts.import_comment(&comment, self.now).await? {
            CommentImport::Written => Outcome::Written,
            CommentImport::Existing => Outcome::AlreadyThere,
            CommentImport::OtherComment => Outcome::bad("the post has another comment with this number"),
            CommentImport::UnknownPost => Outcome::bad("there is no such post"),
            CommentImport::OnRepost => Outcome::bad("the post is a repost"),
            CommentImport::TooFar => Outcome::bad("more than a million numbers before it are missing"),
            CommentImport::Erased => Outcome::bad(LEFT),
        })
    }

    async fn list(&self, ListLine { user, id, name, authors, .. }: &ListLine) -> Result<Outcome> {
        if self.has_left(&[*user]).await? {
            return Ok(Outcome::bad(LEFT));
        }
        let known = self.facts.lists(*user).await?;
        if known.lists.len() >= MOST_LISTS && !known.has(id.number) {
            return Ok(Outcome::bad(format!("a user has at most {MOST_LISTS} lists")));
        }
        let Some(is_new) = self.facts.import_list(*user, id.number, name).await? else {
            return Ok(Outcome::bad("another list of the user has this number"));
        };
        let (added, not_followed) = self.facts.import_members(*user, id.number, authors, self.now).await?;
        Ok(match not_followed.first() {
            Some(author) => Outcome::bad(format!("user {user} does not follow {author}; the list has the other authors")),
            None => Outcome::written(is_new || added > 0),
        })
    }

    async fn reads(&self, lines: &[Numbered<&ReadLine>]) -> Result<Outcomes> {
        let authors: Vec<UserId> = lines.iter().map(|(_, line)| line.author).collect();
        let Some(reader) = lines.first().map(|(_, line)| line.user) else { return Ok(Outcomes::new()) };
        let (heads, known) = futures::try_join!(self.facts.heads(&authors), self.facts.reads(reader, &authors))?;
        let mut outcomes = Outcomes::with_capacity(lines.len());
        for (number, ReadLine { user, author, through, ranges, .. }) in lines {
            let latest = heads.get(author).map_or(0, |head| head.latest_seq);
            let last = ranges.iter().map(|(_, last)| *last).max().unwrap_or(0).max(*through);
            let outcome = if last > latest {
                Outcome::bad(format!("post {author}-{last} does not exist"))
            } else {
                let marks = set(ranges);
                match known.get(author) {
                    Some(state) if marks.minus(&state.read).is_empty() && *through <= state.through => Outcome::AlreadyThere,
                    _ => match self.facts.import_marks(*user, *author, &marks, *through, false).await? {
                        Some((written, _)) => Outcome::written(written),
                        None => Outcome::bad(LEFT),
                    },
                }
            };
            outcomes.push((*number, outcome));
        }
        Ok(outcomes)
    }

    async fn follows(&self, lines: &[Numbered<&FollowLine>]) -> Result<Outcomes> {
        let Some(user) = lines.first().map(|(_, line)| line.user) else { return Ok(Outcomes::new()) };
        let authors: Vec<UserId> = lines.iter().map(|(_, line)| line.author).collect();
        let known = self.facts.edges(user, &authors).await?;
        let is_there =
            |line: &FollowLine| known.get(&line.author).is_some_and(|edge: &Edge| edge.following || edge.since >= line.since);
        let mut outcomes = Outcomes::with_capacity(lines.len());
        let mut new: HashMap<UserId, Numbered<&FollowLine>> = HashMap::new();
        for &(number, line) in lines {
            if is_there(line) || new.contains_key(&line.author) {
                outcomes.push((number, Outcome::AlreadyThere));
            } else {
                new.insert(line.author, (number, line));
            }
        }
        if new.is_empty() {
            return Ok(outcomes);
        }
        let heads = self.facts.heads(&new.keys().copied().collect::<Vec<_>>()).await?;
        let (mut follows, none) = (Vec::with_capacity(new.len()), AuthorHead::default());
        for (number, line) in new.values() {
            match self.follow(line, heads.get(&line.author).unwrap_or(&none)).await? {
                Ok(follow) => follows.push((*number, follow)),
                Err(reason) => outcomes.push((*number, Outcome::Bad(reason))),
            }
        }
        let (numbers, follows): (Vec<u64>, Vec<NewFollow>) = follows.into_iter().unzip();
        let made = self.facts.make_follows(user, follows, self.now, Origin::Imported).await?;
        outcomes.extend(numbers.into_iter().zip(made.iter().map(of_follow)));
        Ok(outcomes)
    }

    /// The edge of a line. Its posts are unread from the one on that was published after the follow.
    async fn follow(&self, line: &FollowLine, head: &AuthorHead) -> Result<std::result::Result<NewFollow, String>> {
        let base = match line.base {
            Some(base) => base,
            None => self.times.latest_at(self.facts, line.author, head, line.since).await?,
        };
        if base > head.latest_seq {
            return Ok(Err(format!("post {}-{base} does not exist", line.author)));
        }
        let floor = line.floor.unwrap_or_else(|| head.backfill_floor_at(base)).min(base);
        let (author, since, preference, accepted) = (line.author, line.since, line.preference, line.accepted);
        Ok(Ok(NewFollow { author, since, base, floor, preference, accepted }))
    }

    async fn notice_reads(&self, line: &NoticeReadLine) -> Result<Outcome> {
        let (user, platform): (UserId, Platform) = (line.user, line.platform);
        for _ in 0..super::ATTEMPTS {
            let (head, before) = self.facts.notice_state(platform, user).await?;
            if line.through > head.latest_seq || line.through_slot.is_some_and(|slot| slot > head.latest_slot) {
                return Ok(Outcome::bad(format!("notice {platform}-{} does not exist", line.through)));
            }
            let is_read = |seq: u64| line.ranges.iter().any(|(first, last)| (*first..=*last).contains(&seq));
            let slots: SeqSet = head.live.iter().filter(|notice| is_read(notice.seq)).map(|notice| notice.slot).collect();
            let through_slot = line.through_slot.unwrap_or(if line.through > 0 { head.latest_slot } else { 0 });
            let after = NoticeReads {
                version: before.version,
                through: before.through.max(line.through),
                through_slot: before.through_slot.max(through_slot),
                read: before.read.union(&slots),
            };
            if after == before {
                return Ok(Outcome::AlreadyThere);
            }
            if self.facts.replace_notice_reads(user, platform, &before, after, None, true).await?.is_some() {
                return Ok(Outcome::Written);
            }
            if self.has_left(&[user]).await? {
                return Ok(Outcome::bad(LEFT));
            }
        }
        Err(StoreError::Contention { operation: "notice_reads" })
    }
}

fn only<'a, T>(lines: &'a [Numbered<Line>], is: impl Fn(&'a Line) -> Option<T>) -> Vec<Numbered<T>> {
    lines.iter().filter_map(|(number, line)| Some((*number, is(line)?))).collect()
}

fn set(ranges: &[(u64, u64)]) -> SeqSet {
    ranges.iter().fold(SeqSet::default(), |mut set, (first, last)| {
        set.insert_range(*first, *last);
        set
    })
}

fn of(imported: Imported) -> Outcome {
    match imported {
        Imported::Written => Outcome::Written,
        Imported::Existing => Outcome::AlreadyThere,
        Imported::Erased => Outcome::bad(LEFT),
        Imported::Blocked => Outcome::bad(BLOCKED),
        Imported::LimitReached => Outcome::bad("the user has the maximum number of requests"),
    }
}

fn of_reaction(imported: ImportedReaction) -> Outcome {
    match imported {
        ImportedReaction::Written => Outcome::Written,
        ImportedReaction::Existing => Outcome::AlreadyThere,
        ImportedReaction::UnknownPost => Outcome::bad("there is no such post"),
        ImportedReaction::Blocked => Outcome::bad(BLOCKED),
        ImportedReaction::Erased => Outcome::bad(LEFT),
    }
}

fn of_notice(imported: NoticeImport) -> Outcome {
    match imported {
        NoticeImport::Written => Outcome::Written,
        NoticeImport::Existing => Outcome::AlreadyThere,
        NoticeImport::OtherNotice => Outcome::bad("another notice has this number"),
        NoticeImport::SlotTaken => Outcome::bad("another notice has the slot"),
        NoticeImport::Full => Outcome::bad("the platform has the maximum number of live notices"),
    }
}

fn of_follow(followed: &Followed) -> Outcome {
    match followed {
        Followed::Created(_) => Outcome::Written,
        Followed::Existing(_) => Outcome::AlreadyThere,
        Followed::LimitReached | Followed::RequestLimitReached => Outcome::bad("the user follows the maximum number of authors"),
        Followed::Blocked => Outcome::bad(BLOCKED),
        Followed::Erased => Outcome::bad(LEFT),
        // An import neither asks nor accepts.
        Followed::Requested(_) | Followed::NoRequest => Outcome::bad("the author is private"),
    }
}

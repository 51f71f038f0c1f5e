//! Posts, so that a page reads no facts: summaries, texts, reaction counts, and moved posts of an author.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use redis::{Cmd, Value};
use redis_link::{Consistency, Epoch};
use tidemark_domain::{
    AuthorHead, AuthorState, CountsVersion, PostId, PostSummary, PostText, Seq, Step, Timestamp, UserId,
    reader_state::{META_FIELD, ReaderMeta},
};

use super::{
    Function, Result, heads, keys, people,
    post_records::{decode, decode_counts, decode_text, encode, encode_counts, encode_text},
    reactions,
    readers::decode_marks,
    record::{current, string_of, take_lease},
};
use crate::{
    KnownFollow, KnownOriginals, KnownPage, KnownPost, KnownReactions, KnownReader, PageParts,
    connection::{MAX_ARGUMENTS, Views, damaged, fcall, ms, token_arg},
};

/// Posts of an author whose steps have changed since the last `Task::Rescore`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moved {
    /// The number of changes of each post's step.
    pub posts: HashMap<Seq, u32>,
    /// When these notes began. `None` if Redis has none. A task for notes that began at another time takes all posts of
    /// the author, because these may lack some.
    pub life: Option<u64>,
}

/// The result of [`Views::note_step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotedStep {
    /// When the author's notes began.
    pub life: u64,
    /// The delay of the `Task::Rescore` that the caller has to send; `None` if another caller sends one.
    pub delay: Option<Duration>,
}

impl Views {
    /// Returns the known summaries, those of deleted posts included.
    pub async fn summaries(&self, posts: &[PostId]) -> Result<HashMap<PostId, PostSummary>> {
        // Reads from the master, because the caller may store a result of these summaries.
        let values = self.strings("summaries", &post_keys(posts), Consistency::Strong).await?;
        Ok(known(posts, values))
    }

    /// Returns what Redis knows for a page, in one round trip.
    pub async fn known_page(&self, reader: UserId, posts: &[PostId], parts: PageParts) -> Result<KnownPage> {
        if posts.is_empty() {
            return Ok(KnownPage::default());
        }
        let authors = authors_of(posts);
        let named = if parts.cards { authors.as_slice() } else { &[] };
        let mut keys = [post_keys(posts), people::card_keys(named)].concat();
        let (texts, counts) = (if parts.texts { posts } else { &[] }, if parts.counts { posts } else { &[] });
        keys.extend(texts.iter().map(|&post| keys::text(post)));
        keys.extend(counts.iter().map(|&post| keys::counts(post)[0].clone()));
        // An author sees an own edit at once, so such a page does not come from a replica.
        let consistency = if authors.contains(&reader) { Consistency::Strong } else { Consistency::Eventual };
        let (mut values, states) = self.strings_and("page", &keys, consistency, Some(reactions::ask(reader, &authors))).await?;
        let mut bodies = values.split_off(posts.len() + named.len()).into_iter();
        let cards = people::known(named, values.split_off(posts.len()));
        let summaries = known(posts, values);
        let text = |(id, value): (&PostId, _)| {
            let revision = summaries.get(id)?.revision;
            Some((*id, current(value, |text| decode_text(revision, text))?))
        };
        let texts = texts.iter().zip(bodies.by_ref().take(texts.len())).filter_map(text).collect();
        let counts = counts.iter().zip(bodies);
        let counts = counts.filter_map(|(id, value)| Some((*id, current(value, decode_counts)?.counts))).collect();
        let reactions = reactions_in(&authors, states)?;
        Ok(KnownPage { summaries, reactions, cards, texts, counts })
    }

    /// Returns what Redis knows of the originals of a page and of the reader and their authors, in one round trip: the
    /// counts of those in `counted`, and cards if they are asked for.
    pub async fn known_originals(
        &self,
        reader: UserId,
        originals: &[PostId],
        counted: &[PostId],
        cards: bool,
    ) -> Result<KnownOriginals> {
        let authors = authors_of(originals);
        let named = if cards { authors.as_slice() } else { &[] };
        let heads = authors.iter().map(|&author| keys::head(author)[0].clone());
        let counts = counted.iter().map(|&post| keys::counts(post)[0].clone());
        let others = heads.chain(people::card_keys(named)).chain(counts).chain([keys::changed(reader)]);
        let keys: Vec<String> = post_keys(originals).into_iter().chain(others).collect();
        // From the masters: a caller who was blocked a moment ago must not see a title.
        let ask = Some(reactions::ask(reader, &authors));
        let (values, states) = self.strings_and("originals", &keys, Consistency::Strong, ask).await?;
        let mut values = values.into_iter();
        let mut next = |length| values.by_ref().take(length).collect::<Vec<_>>();
        let summaries = known(originals, next(originals.len()));
        let heads = authors.iter().zip(next(authors.len()));
        let audiences = heads.filter_map(|(&author, head)| Some((author, current(head, heads::decode)?.audience()))).collect();
        let cards = people::known(named, next(named.len()));
        let counts = counted.iter().zip(next(counted.len()));
        let counts = counts.filter_map(|(id, value)| Some((*id, current(value, decode_counts)?.counts))).collect();
        let changed_lately = next(1).into_iter().any(|noted| noted.is_some());
        let reactions = reactions_in(&authors, states)?;
        Ok(KnownOriginals { summaries, audiences, reactions, cards, counts, changed_lately })
    }

    pub async fn known_reader(&self, reader: UserId, author: UserId) -> Result<KnownReader> {
        known_reader(author, self.each_in_epoch("of_reader", of_reader(reader, author).to_vec()).await?)
    }

    /// Returns what Redis knows of a post, and of a reader and the post's author, in one round trip.
    pub async fn known_post(&self, reader: UserId, id: PostId) -> Result<(KnownPost, KnownReader)> {
        let mut commands = of_reader(reader, id.author).to_vec();
        let [counts, ..] = keys::counts(id);
        let ([card, _], [head, _]) = (keys::card(id.author), keys::head(id.author));
        let left = Cmd::pttl(&counts);
        let [summary, _] = keys::post(id);
        commands.extend([summary, keys::text(id), counts, card, head].map(Cmd::get));
        commands.push(left);
        let mut responses: Vec<(Value, Epoch)> = self.each_in_epoch("post", commands).await?;
        let left: i64 = responses.pop().and_then(|(left, _)| redis::from_redis_value(left).ok()).unwrap_or(0);
        // Counts from before a reaction live for a moment only.
        let counts_in_motion = u128::try_from(left).is_ok_and(|left| left <= keys::CHANGED_COUNTS_LIFETIME.as_millis());
        let mut records = responses.split_off(READER_COMMANDS).into_iter().map(string_of);
        let mut next = || records.next().flatten();
        let summary = current(next(), |summary| decode(id, summary));
        let text = next().zip(summary.as_ref());
        let text = text.and_then(|(text, summary)| current(Some(text), |text| decode_text(summary.revision, text)));
        let counts = current(next(), decode_counts).map(|known| known.counts);
        let card = current(next(), people::decode).map(|known| (id.author, known.card));
        let cards = card.into_iter().collect();
        let audience = current(next(), heads::decode).map(|head| head.audience());
        let reader = KnownReader { audience, ..known_reader(id.author, responses)? };
        Ok((KnownPost { summary, text, counts, counts_in_motion, cards }, reader))
    }

    /// The same for many posts, without the reactions in what it knows of the reader and each author.
    pub async fn known_posts(&self, reader: UserId, posts: &[PostId]) -> Result<(KnownPage, HashMap<UserId, KnownReader>)> {
        let authors = authors_of(posts);
        let ids: Vec<u64> = authors.iter().map(|author| author.get()).collect();
        let commands = vec![Cmd::hmget(keys::reader_state(reader), (META_FIELD, ids)), Cmd::exists(keys::changed(reader))];
        let marks = authors.iter().map(|&author| keys::marks(reader, author)[0].clone());
        let strong: Vec<String> = marks.chain(authors.iter().map(|&author| keys::head(author)[0].clone())).collect();
        let (page, responses, mut marks) = futures::try_join!(
            self.known_page(reader, posts, PageParts { cards: true, texts: true, counts: true }),
            self.each_in_epoch::<Value>("posts", commands),
            self.strings("posts", &strong, Consistency::Strong)
        )?;
        let author_heads = marks.split_off(authors.len());
        let unreadable = |_| damaged("a reader's records");
        let Ok([(fields, epoch), (changed, _)]) = <[_; 2]>::try_from(responses) else { return Ok((page, HashMap::new())) };
        let mut fields = redis::from_redis_value::<Vec<Option<Vec<u8>>>>(fields).map_err(unreadable)?.into_iter();
        let (meta, changed_lately) = (fields.next().flatten(), redis::from_redis_value(changed).map_err(unreadable)?);
        let known =
            authors.into_iter().zip(fields.zip(marks.into_iter().zip(author_heads))).map(|(author, (field, (marks, head)))| {
                let follow = known_follow([meta.clone(), field], epoch);
                let audience = current(head, heads::decode).map(|head| head.audience());
                let marks = current(marks, decode_marks);
                (author, KnownReader { follow, changed_lately, marks, audience, ..KnownReader::default() })
            });
        Ok((page, known.collect()))
    }

    /// Returns the known head of an author, and what Redis knows of the reader and the author, in one round trip.
    pub async fn known_timeline(&self, reader: UserId, author: UserId) -> Result<(Option<AuthorHead>, KnownReader)> {
        let mut commands = of_reader(reader, author).to_vec();
        let [head, _] = keys::head(author);
        commands.push(Cmd::get(head));
        let mut responses: Vec<(Value, Epoch)> = self.each_in_epoch("timeline", commands).await?;
        let head = current(responses.pop().and_then(string_of), heads::decode);
        let audience = head.as_ref().map(AuthorHead::audience);
        Ok((head, KnownReader { audience, ..known_reader(author, responses)? }))
    }

    /// Takes the leases for storing these posts. Redis must have them when the posts are stored.
    pub async fn lease_posts(&self, posts: &[PostId], token: u64) -> Result<()> {
        let lease = |&post: &PostId| take_lease(&keys::post(post)[1], keys::SHORT_LEASE_LIFETIME, token);
        self.each::<Value>("lease", posts.iter().map(lease).collect()).await.map(drop)
    }

    /// Stores posts that were read from the facts, with their texts if these were read too, unless Redis has a later
    /// revision or knows that the post is deleted. `lease` is the token with which a reader leased the posts before it
    /// read the facts; `None` if the caller has changed the post, or is the projector. If Redis loses an edit while the
    /// projector reads, the view may show the post from before it.
    pub async fn remember_posts(&self, posts: &[(PostSummary, Option<PostText>)], lease: Option<u64>) -> Result<()> {
        let call = |(post, text): &(PostSummary, Option<PostText>)| {
            let text = text.as_ref().map(|text| encode_text(post.revision, text)).unwrap_or_default();
            let args = (encode(post), text, ms(keys::POST_LIFETIME), lease.map_or_else(Vec::new, token_arg));
            let [summary, of_post] = keys::post(post.id);
            fcall(Function::Remember, &[summary, keys::text(post.id), of_post], args)
        };
        self.each::<Value>("remember", posts.iter().map(call).collect()).await.map(drop)
    }

    /// Takes the leases for storing the counts of posts. A reaction takes that of its post away.
    pub async fn lease_counts(&self, posts: &[PostId], token: u64) -> Result<()> {
        let lease = |&post: &PostId| take_lease(&keys::counts(post)[1], keys::SHORT_LEASE_LIFETIME, token);
        self.each::<Value>("lease_counts", posts.iter().map(lease).collect()).await.map(drop)
    }

    /// Stores counts from the facts, unless Redis has a later version; for two seconds without the lease.
    pub async fn store_counts(&self, counts: &HashMap<PostId, CountsVersion>, token: u64) -> Result<()> {
        let lifetimes = (ms(keys::COUNTS_LIFETIME), ms(keys::CHANGED_COUNTS_LIFETIME));
        let store = |(&post, &counts): (&PostId, &CountsVersion)| {
            let args = (token_arg(token), counts.version, encode_counts(counts), lifetimes);
            fcall(Function::Count, &keys::counts(post)[..2], args)
        };
        self.each::<Value>("store_counts", counts.iter().map(store).collect()).await.map(drop)
    }

    /// Notes a change of a post's counts by this number of new reactions; 0 if a request has noted them. Usually it
    /// removes the stored counts. If many users react at once, counts less than two seconds old stay until they are two
    /// seconds old.
    ///
    /// Returns `None` if a `Task::Rank` was sent before that has not begun ([`Self::note_rank`]). Otherwise the
    /// projector has to enqueue one. The time is that of this call, by the clock of Redis.
    pub async fn expire_counts(&self, post: PostId, reactions: u64) -> Result<Option<Timestamp>> {
        let [counts, moment] = [keys::COUNTS_LIFETIME, keys::CHANGED_COUNTS_LIFETIME].map(ms);
        let now: u64 =
            self.call(Function::Outdate, &keys::counts(post), (counts, moment, keys::MANY_REACTIONS, reactions)).await?;
        Ok((now > 0).then(|| Timestamp::from_ms(now)))
    }

    /// Notes that a `Task::Rank` of the post was sent that begins after this time, by the clock of Redis.
    pub async fn note_rank(&self, post: PostId, until: Timestamp) -> Result<()> {
        let [.., rank] = keys::counts(post);
        // A time that is over removes the key.
        self.query::<Value>("note_rank", redis::cmd("SET").arg(rank).arg("").arg("PXAT").arg(until.ms()).clone()).await.map(drop)
    }

    /// Notes that the step of a post has changed, for a `Task::Rescore` of the author. `token` names the caller, whose
    /// repetition gets the delay again.
    pub async fn note_step(&self, post: PostId, step: Step, token: u64, now: Timestamp) -> Result<NotedStep> {
        let times = (now.ms(), ms(keys::MOVED_GRACE), ms(keys::MOVED_LIFETIME));
        let args = (post.seq, step.changes, times, token_arg(token));
        let (life, delay): (u64, i64) = self.call(Function::Moved, &[keys::moved(post.author)], args).await?;
        Ok(NotedStep { life, delay: u64::try_from(delay).ok().map(Duration::from_millis) })
    }

    /// Returns the posts of an author whose steps have changed.
    pub async fn moved_posts(&self, author: UserId) -> Result<Moved> {
        let all = Cmd::hgetall(keys::moved(author));
        let (fields, epoch): (HashMap<String, Vec<u8>>, Epoch) = self.query_in_epoch("moved", all).await?;
        let life = fields.get(LIFE).and_then(|life| std::str::from_utf8(epoch.current(life)?).ok()?.parse().ok());
        let change =
            |(seq, changes): (&String, &Vec<u8>)| Some((seq.parse().ok()?, std::str::from_utf8(changes).ok()?.parse().ok()?));
        let posts = life.map(|_| fields.iter().filter_map(change).collect());
        Ok(Moved { posts: posts.unwrap_or_default(), life })
    }

    /// Removes these posts from the notes that began at `life`, if their steps have not changed since, and notes that
    /// no further `Task::Rescore` should run before `next`. Returns how many posts remain; 1 if these notes are lost.
    pub async fn settle_moved(&self, author: UserId, life: u64, posts: &HashMap<Seq, u32>, next: Timestamp) -> Result<u64> {
        let fields: Vec<(Seq, u32)> = posts.iter().map(|(&seq, &changes)| (seq, changes)).collect();
        let mut left = 0;
        for fields in fields.chunks(MAX_ARGUMENTS / 3) {
            let args = (life, next.ms(), ms(keys::MOVED_LIFETIME), fields);
            left = self.call(Function::Settle, &[keys::moved(author)], args).await?;
        }
        Ok(left)
    }
}

/// The field of an author's moved posts with the beginning of their hash. The script `moved` names it too.
const LIFE: &str = "life";

const READER_COMMANDS: usize = 4;

/// The commands that read what Redis knows of a reader and an author. [`known_reader`] decodes the responses.
fn of_reader(reader: UserId, author: UserId) -> [Cmd; READER_COMMANDS] {
    let state = Cmd::hmget(keys::reader_state(reader), (META_FIELD, author.get()));
    let [marks, _] = keys::marks(reader, author);
    [state, reactions::ask(reader, &[author]), Cmd::exists(keys::changed(reader)), Cmd::get(marks)]
}

/// What a view says about the follow of the author whose field this is.
fn known_follow([meta, field]: [Option<Vec<u8>>; 2], epoch: Epoch) -> KnownFollow {
    let meta = meta.and_then(|meta| ReaderMeta::decode(&meta)).filter(|meta| meta.epoch == epoch.as_bytes());
    // A state that is being built, or a follow whose facts are not merged yet, does not say what the reader sees.
    if meta.is_none_or(|meta| meta.building) {
        return KnownFollow::Unknown;
    }
    match field.map(|field| AuthorState::decode(&field)) {
        Some(None) => KnownFollow::Unknown,
        Some(Some(state)) if state.live && state.opening => KnownFollow::Unknown,
        Some(Some(state)) if state.live => KnownFollow::Following(state),
        Some(Some(_)) | None => KnownFollow::NotFollowing,
    }
}

/// The reactions to these authors in the response to [`reactions::ask`].
fn reactions_in(authors: &[UserId], states: Option<(Value, Epoch)>) -> Result<KnownReactions> {
    let Some((states, epoch)) = states else { return Ok(KnownReactions::default()) };
    let states = redis::from_redis_value::<Vec<Option<Vec<u8>>>>(states).map_err(|error| damaged(format!("page: {error}")))?;
    Ok(reactions::known(authors, &states, epoch))
}

/// A state or reactions that cannot be read count as unknown and come from the facts.
fn known_reader(author: UserId, responses: Vec<(Value, Epoch)>) -> Result<KnownReader> {
    let unreadable = |_| damaged("a reader's records");
    let Ok([(state, of), (reactions, of_reactions), (changed, _), (marks, of_marks)]) =
        <[_; READER_COMMANDS]>::try_from(responses)
    else {
        return Ok(KnownReader::default());
    };
    let reactions: Vec<Option<Vec<u8>>> = redis::from_redis_value(reactions).map_err(unreadable)?;
    let marks: Option<Vec<u8>> = redis::from_redis_value(marks).map_err(unreadable)?;
    Ok(KnownReader {
        follow: known_follow(redis::from_redis_value(state).map_err(unreadable)?, of),
        reactions: reactions::known(&[author], &reactions, of_reactions),
        changed_lately: redis::from_redis_value(changed).map_err(unreadable)?,
        marks: current(marks.map(|marks| (marks, of_marks)), decode_marks),
        audience: None,
    })
}

/// The authors of these posts, each once, in order.
fn authors_of(posts: &[PostId]) -> Vec<UserId> {
    posts.iter().map(|post| post.author).collect::<BTreeSet<_>>().into_iter().collect()
}

fn post_keys(posts: &[PostId]) -> Vec<String> {
    posts.iter().map(|&post| keys::post(post)[0].clone()).collect()
}

/// A summary that cannot be read counts as unknown. One that was damaged into a deletion or a later revision stays.
fn known(posts: &[PostId], values: Vec<Option<(Vec<u8>, Epoch)>>) -> HashMap<PostId, PostSummary> {
    let summary = |(&post, value)| Some((post, current(value, |summary| decode(post, summary))?));
    posts.iter().zip(values).filter_map(summary).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_a_complete_view_of_the_epoch_is_known() {
        let epoch = Epoch::read(Some("8a31f0c2".to_owned())).unwrap();
        // Flags, with the number of recent entries; times and token; the epoch.
        let meta = |flags: u8| Some([&[flags][..], &[0; 26], epoch.as_bytes()].concat());
        let state = AuthorState { live: true, through: 8, ..AuthorState::default() };
        let field = |opening| Some(AuthorState { opening, ..state.clone() }.encode());
        for recent in [0, 1, 8] {
            assert_eq!(
                known_follow([meta(2 + 16 * recent), field(false)], epoch),
                KnownFollow::Following(state.clone()),
                "{recent}"
            );
        }
        for unfollowed in [None, Some(AuthorState::default().encode())] {
            assert_eq!(known_follow([meta(2), unfollowed], epoch), KnownFollow::NotFollowing);
        }
        for unknown in [[meta(3), field(false)], [meta(2), field(true)], [meta(2), Some(vec![1])], [None, field(false)]] {
            assert_eq!(known_follow(unknown, epoch), KnownFollow::Unknown);
        }
        let other = Epoch::read(Some("8a31f0c3".to_owned())).unwrap();
        assert_eq!(known_follow([meta(2), field(false)], other), KnownFollow::Unknown);
    }
}

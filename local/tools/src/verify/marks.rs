//! Reading: a seed decides which posts a reader marks. The marks are made through the API and in the model.

use anyhow::Context;
use rand::{
    Rng,
    rngs::StdRng,
    seq::{IndexedRandom, SliceRandom},
};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::BorrowedFormatItem, macros::format_description};

use super::{
    feed::{number, walk},
    ledger::Checks,
    model::{PostId, Reader},
};
use crate::api::{Api, Call};

const WITH_MILLIS: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// One request of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// `PUT /v1/posts/{post}/read`.
    Read(PostId),
    /// `DELETE /v1/posts/{post}/read`.
    Unread(PostId),
    /// `POST /v1/reads {posts}`. Some of the posts may not exist.
    Many(Vec<PostId>),
    /// `POST /v1/reads {author, through}`.
    Through(PostId),
    /// `POST /v1/reads {all}`, with a time in milliseconds or without.
    All(Option<i64>),
}

impl Action {
    /// Applies the action to the model. Returns the number of changed posts.
    pub fn apply(&self, reader: &mut Reader) -> u64 {
        match self {
            Self::Read(id) => reader.mark(*id, true),
            Self::Unread(id) => reader.mark(*id, false),
            Self::Many(ids) => ids.iter().map(|id| reader.mark(*id, true)).sum(),
            Self::Through(id) => reader.through(id.author, id.seq),
            Self::All(before) => reader.all(*before),
        }
    }
}

/// The actions of a reader: none, some posts, some authors through a post, everything, or a mixture. A third of the
/// readers then make some posts unread again. That comes last, because the API does not define the effect of an older
/// `through` on a post that was made unread after a newer one.
pub fn plan(reader: &Reader, random: &mut StdRng) -> Vec<Action> {
    let ids: Vec<PostId> = reader.items.iter().map(|item| item.post.id).collect();
    if ids.is_empty() {
        return Vec::new();
    }
    let mut actions = Vec::new();
    match random.random_range(0..6) {
        0 => {}
        1 => some(&ids, random, &mut actions),
        2 => through(&ids, random, &mut actions),
        3 => actions.push(Action::All(None)),
        4 => {
            actions.extend(gap(reader, random).map(|before| Action::All(Some(before))));
            through(&ids, random, &mut actions);
        }
        _ => {
            let mut many: Vec<PostId> = ids.choose_multiple(random, 3).copied().collect();
            many.push(PostId { author: many[0].author, seq: 4_000_000_000 });
            actions.push(Action::Many(many));
            some(&ids, random, &mut actions);
            through(&ids, random, &mut actions);
        }
    }
    if random.random_range(0..3) == 0 {
        let again: Vec<PostId> = ids.choose_multiple(random, 2).copied().collect();
        actions.extend(again.iter().map(|id| Action::Unread(*id)));
        actions.push(Action::Unread(again[0]));
        if again.len() > 1 {
            actions.push(Action::Read(again[1]));
        }
    }
    actions
}

/// Marks up to four posts one by one, the first of them twice.
fn some(ids: &[PostId], random: &mut StdRng, actions: &mut Vec<Action>) {
    let count = random.random_range(1..=4);
    let mut chosen: Vec<PostId> = ids.choose_multiple(random, count).copied().collect();
    chosen.shuffle(random);
    chosen.push(chosen[0]);
    actions.extend(chosen.into_iter().map(Action::Read));
}

/// Marks up to three authors through one of their posts, then once through an older one, which must change nothing.
fn through(ids: &[PostId], random: &mut StdRng, actions: &mut Vec<Action>) {
    for _ in 0..random.random_range(1..=3) {
        actions.extend(ids.choose(random).map(|id| Action::Through(*id)));
    }
    if let Some(&Action::Through(PostId { author, seq: seq @ 2.. })) = actions.last() {
        actions.push(Action::Through(PostId { author, seq: seq - 1 }));
    }
}

/// Picks a time strictly between two of the reader's posts, so that no post has exactly this millisecond.
fn gap(reader: &Reader, random: &mut StdRng) -> Option<i64> {
    let times: Vec<i64> = reader.items.iter().map(|item| item.post.at).collect();
    let gaps: Vec<i64> = times.windows(2).filter(|pair| pair[0] - pair[1] >= 2).map(|pair| pair[1] + 1).collect();
    gaps.choose(random).copied()
}

/// Sends an action, applies it to the model, and compares the response. After an error the reader's state is unknown.
pub async fn perform(api: &Api, reader: &mut Reader, action: &Action, checks: &mut Checks) -> anyhow::Result<()> {
    let body = match action {
        Action::Read(id) | Action::Unread(id) => return one(api, reader, action, *id, checks).await,
        Action::Many(ids) => json!({"posts": ids.iter().map(PostId::to_string).collect::<Vec<_>>()}),
        Action::Through(id) => json!({"author": id.author.to_string(), "through": id.seq}),
        Action::All(None) => json!({"all": true}),
        Action::All(Some(before)) => json!({"all": true, "before": rfc3339(*before)?}),
    };
    several(api, reader, action, body, checks).await?;
    if let Action::Through(PostId { author, .. }) = action {
        let path = format!("/v1/authors/{author}/posts?status=unread");
        let unread = walk(api, reader.user, &path, 100).await?;
        super::compare::unread_timeline(checks, reader, *author, &unread);
    }
    Ok(())
}

fn rfc3339(millis: i64) -> anyhow::Result<String> {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * 1_000_000).context("a time out of range")?;
    time.format(WITH_MILLIS).context("a time that cannot be written")
}

async fn one(api: &Api, reader: &mut Reader, action: &Action, id: PostId, checks: &mut Checks) -> anyhow::Result<()> {
    let user = reader.user;
    let path = format!("/v1/posts/{id}/read");
    let read = matches!(action, Action::Read(_));
    let call = if read { Call::put(path) } else { Call::delete(path) };
    let name = call.to_string();
    let body = api.fetch(call.caller(user), 200).await?;
    action.apply(reader);
    let (of_author, total) = (Some(reader.unread_of(id.author)), Some(reader.unread_total()));
    checks.equal(&format!("{name}: read"), Some(read), body["read"].as_bool());
    checks.equal(&format!("{name}: unread"), (of_author, total), (body["unread"].as_u64(), body["total"].as_u64()));
    let body = api.fetch(Call::get(format!("/v1/posts/{id}")).caller(user), 200).await?;
    checks.equal(&format!("post {id}: read"), Some(read), body["read"].as_bool());
    let body = api.fetch(Call::get(format!("/v1/unread/{}", id.author)).caller(user), 200).await?;
    checks.equal(&format!("GET /v1/unread/{}", id.author), of_author, number(&body["unread"]));
    Ok(())
}

async fn several(api: &Api, reader: &mut Reader, action: &Action, body: Value, checks: &mut Checks) -> anyhow::Result<()> {
    let name = format!("POST /v1/reads {body}");
    let call = Call::post("/v1/reads").caller(reader.user).json(body);
    let response = api.send(call).await.context(name.clone())?;
    let retries = response.retries;
    let body = response.expect_status(200).context(name.clone())?;
    let changed = action.apply(reader);
    // A request without a response may have changed the posts already.
    if retries == 0 {
        checks.equal(&format!("{name}: changed"), Some(changed), number(&body["changed"]));
    }
    checks.equal(&format!("{name}: unread total"), Some(reader.unread_total()), number(&body["total"]));
    Ok(())
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::super::model::tests::post;
    use super::*;

    fn reader() -> Reader {
        Reader::new(1, (1..=5).flat_map(|seq| [post(10, seq, 10 * seq as i64), post(20, seq, 10 * seq as i64 + 1)]))
    }

    #[test]
    fn plans_are_the_same_for_the_same_seed_and_cover_every_action() {
        let mut seen = [false; 6];
        for seed in 0..200 {
            let plan_of = |seed| plan(&reader(), &mut StdRng::seed_from_u64(seed));
            let actions = plan_of(seed);
            assert_eq!(actions, plan_of(seed));
            for action in &actions {
                let kind = match action {
                    Action::Read(_) => 0,
                    Action::Unread(_) => 1,
                    Action::Many(_) => 2,
                    Action::Through(_) => 3,
                    Action::All(None) => 4,
                    Action::All(Some(_)) => 5,
                };
                seen[kind] = true;
            }
            let first_unread = actions.iter().position(|action| matches!(action, Action::Unread(_)));
            let last_through = actions.iter().rposition(|action| matches!(action, Action::Through(_)));
            assert!(first_unread.is_none() || last_through < first_unread);
        }
        assert_eq!(seen, [true; 6]);
    }

    #[test]
    fn a_reader_without_posts_does_nothing() {
        let nobody = Reader::new(1, []);
        assert!((0..50).all(|seed| plan(&nobody, &mut StdRng::seed_from_u64(seed)).is_empty()));
    }

    #[test]
    fn posts_that_do_not_exist_change_nothing() {
        let mut reader = reader();
        let action = Action::Many(vec![PostId { author: 10, seq: 1 }, PostId { author: 10, seq: 4_000_000_000 }]);
        assert_eq!(action.apply(&mut reader), 1);
    }

    #[test]
    fn times_are_written_in_the_form_of_the_api() {
        assert_eq!(rfc3339(1_005).unwrap(), "1970-01-01T00:00:01.005Z");
    }
}

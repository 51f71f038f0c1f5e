//! Read states: the table `reads`.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use tidemark_domain::{Applied, ReadState, Seq, SeqSet, UserId, model::MOST_APPLIED, seq_set::WINDOW};

use super::{
    Facts, Result, distinct,
    item::{Attribute, Bits, Item, number, numbers, string},
    read,
    schema::{self, ReadsItem},
    windows::{Layout, MOST_WINDOWS},
    write::{Write, absent, between, is, queried, still_number},
};

impl Facts {
    /// Returns the user's read states of these authors. Missing ones are left out.
    pub async fn reads(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, ReadState>> {
        let keys = distinct(authors).into_iter().map(|author| schema::reads(user, author)).collect();
        self.get("reads", &self.tables.reads, keys).await?.into_iter().map(read_reads).collect()
    }

    /// Returns at most `limit` read states of the user, from this author on, in the order of their authors.
    pub async fn reads_from(&self, user: UserId, author: UserId, limit: usize) -> Result<Vec<(UserId, ReadState)>> {
        const OPERATION: &str = "reads_from";
        let authors = between(ReadsItem::author, number(author.get()), number(u64::MAX));
        let query = self.query(&self.tables.reads, [is(ReadsItem::user, number(user.get())), authors]).consistent_read(true);
        let items = queried(OPERATION, query, limit).await?;
        let items = self.completed(OPERATION, &self.tables.reads, items).await?;
        let mut states = items.into_iter().map(read_reads).collect::<Result<Vec<_>, _>>()?;
        states.sort_unstable_by_key(|(author, _)| *author);
        Ok(states)
    }

    pub async fn all_reads(&self, user: UserId) -> Result<HashMap<UserId, ReadState>> {
        self.of_user("all_reads", &self.tables.reads, user).await?.into_iter().map(read_reads).collect()
    }

    /// The same for a state that differs from the stored one only in the marks of these posts, which all are `read` or
    /// not. Returns the state as it is stored; `None` if nothing is written.
    pub async fn put_marks(
        &self,
        user: UserId,
        author: UserId,
        state: &ReadState,
        seqs: &[Seq],
        read: bool,
    ) -> Result<Option<ReadState>> {
        let (into, out_of) = if read { (PENDING[0], PENDING[1]) } else { (PENDING[1], PENDING[0]) };
        let update = self
            .next(&schema::reads(user, author), state.version.saturating_sub(1))
            .set(ReadsItem::applied, applied(state))
            .set(ReadsItem::by, by(user, author))
            .insert(into, numbers(seqs))
            .take(out_of, numbers(seqs));
        let Some(item) = self.updated("mark", update).await? else { return Ok(None) };
        let folded = match pending(&item)?.iter().map(Vec::len).sum::<usize>() {
            few if few <= MOST_PENDING => None,
            _ => self.fold(user, author).await?,
        };
        Ok(Some(folded.unwrap_or_else(|| state.clone())))
    }

    /// Marks posts read or unread without a condition. Returns the state before it and the state after it. If the state
    /// before it has the token, the response to an earlier write of it was lost.
    pub async fn mark_posts(
        &self,
        user: UserId,
        author: UserId,
        seqs: &[Seq],
        read: bool,
        token: u64,
    ) -> Result<(ReadState, ReadState)> {
        const OPERATION: &str = "mark";
        let (into, out_of) = if read { (PENDING[0], PENDING[1]) } else { (PENDING[1], PENDING[0]) };
        let mark = ReadState { applied: vec![Applied { token, changed: 0 }], ..ReadState::default() };
        let update = Write::update(&self.tables.reads, schema::reads(user, author))
            .add(ReadsItem::version, 1)
            .set(ReadsItem::by, by(user, author))
            .prepend(ReadsItem::applied, applied(&mark))
            .insert(into, numbers(seqs))
            .take(out_of, numbers(seqs));
        let old = self.send_returning(OPERATION, update, ReturnValue::AllOld).await?;
        let old = old.filter(|item| ReadsItem::version.of(item).is_some());
        let known: u32 = old.as_ref().map_or(Ok(0), |item| ReadsItem::version.read(item))?;
        let old = self.completed(OPERATION, &self.tables.reads, old.into_iter().collect()).await?.into_iter().next();
        let (before, pending) = match old {
            Some(item) => (read_reads(item.clone())?.1, pending(&item)?.iter().map(Vec::len).sum::<usize>()),
            None => Default::default(),
        };
        let marked = |state: &ReadState, read| {
            let mut state = state.clone();
            for &seq in seqs {
                state.read.set(seq, read);
            }
            state
        };
        let (before, mut after) = if before.version == known {
            let after = ReadState { version: known + 1, ..marked(&before, read) };
            (before, after)
        } else {
            // The windows were written since then, so the previous state is lost. The current state contains the
            // marks. It is safe to assume that all of them are new.
            (marked(&before, !read), before)
        };
        if pending + seqs.len() > MOST_PENDING
            && let Some(folded) = self.fold(user, author).await?
        {
            after = folded;
        }
        Ok((before, after))
    }

    /// Writes a state if its version is one above the stored version. Otherwise it writes nothing and returns false.
    pub async fn put_reads(&self, user: UserId, author: UserId, state: &ReadState) -> Result<bool> {
        self.put_state(user, author, state, None).await
    }
}

impl Facts {
    /// Writes a state on the condition of its version. Without `imported`, the marks from a migration stay. With them,
    /// neither user may have asked to leave.
    pub async fn put_state(&self, user: UserId, author: UserId, state: &ReadState, imported: Option<&SeqSet>) -> Result<bool> {
        const OPERATION: &str = "put_reads";
        let key = schema::reads(user, author);
        let known = state.version.saturating_sub(1);
        let mut sets = vec![(ReadsItem::read, &state.read)];
        sets.extend(imported.map(|imported| (ReadsItem::imported, imported)));
        let update = self.next(&key, known).set(ReadsItem::through, number(state.through)).remove(PENDING);
        let update = update.set(ReadsItem::applied, applied(state)).set(ReadsItem::by, by(user, author));
        let guarded = |mut writes: Vec<Write>| {
            if imported.is_some() {
                writes.push(self.still_here(user, author.shard()));
                writes.extend((user != author).then(|| self.still_here(author, user.shard())));
            }
            writes
        };
        let whole = Layout::new(&key, None, &sets, false)?;
        let small = whole.is_small().then(|| guarded(whole.writes(update.clone().when(absent(ReadsItem::windows)))));
        if let Some(writes) = small
            && self.send_all(OPERATION, writes).await?
        {
            return Ok(true);
        }
        let stored = self.get_one(OPERATION, &self.tables.reads, key.clone()).await?;
        let version: u32 = stored.as_ref().map_or(Ok(0), |item| ReadsItem::version.read(item))?;
        if version != known {
            return Ok(false);
        }
        let layout = Layout::new(&key, stored.as_ref(), &sets, true)?;
        if !layout.fits() {
            // The fold leaves fewer marks beside the bitmap, so the next attempt writes fewer windows.
            self.fold(user, author).await?;
            return Ok(false);
        }
        self.send_all(OPERATION, guarded(layout.writes(update))).await
    }

    /// Moves marks into the bitmap, for at most [`MOST_WINDOWS`] windows. Returns the new state if this call wrote it.
    async fn fold(&self, user: UserId, author: UserId) -> Result<Option<ReadState>> {
        let key = schema::reads(user, author);
        let Some(item) = self.get_one("put_reads", &self.tables.reads, key.clone()).await? else { return Ok(None) };
        let state = read_reads(item.clone())?.1;
        let mut by_window: BTreeMap<u64, [Vec<Seq>; 2]> = BTreeMap::new();
        for (place, seqs) in pending(&item)?.into_iter().enumerate() {
            for seq in seqs {
                by_window.entry(seq / WINDOW).or_default()[place].push(seq);
            }
        }
        let mut by_window: Vec<[Vec<Seq>; 2]> = by_window.into_values().collect();
        by_window.sort_by_key(|[marked, unmarked]| Reverse(marked.len() + unmarked.len()));
        by_window.truncate(MOST_WINDOWS);
        let Bits(mut read) = ReadsItem::read.optional(&item)?.unwrap_or_default();
        let mut folded = [Vec::new(), Vec::new()];
        for (place, seqs) in by_window.into_iter().flat_map(|window| window.into_iter().enumerate()) {
            for &seq in &seqs {
                read.set(seq, place == 0);
            }
            folded[place].extend(seqs);
        }
        if folded.iter().all(Vec::is_empty) {
            return Ok(None);
        }
        let layout = Layout::new(&key, Some(&item), &[(ReadsItem::read, &read)], true)?;
        let some = PENDING.into_iter().zip(&folded).filter(|(_, seqs)| !seqs.is_empty());
        let update = some
            .fold(self.next(&key, state.version).set(ReadsItem::applied, applied(&state)), |update, (name, seqs)| {
                update.take(name, numbers(seqs))
            });
        let written = self.send_all("put_reads", layout.writes(update)).await?;
        // If the state has changed in the meantime, a later call folds its marks.
        Ok(written.then(|| ReadState { version: state.version + 1, ..state }))
    }

    /// An update from version `known` to the next version.
    fn next(&self, key: &Item, known: u32) -> Write {
        let update = Write::update(&self.tables.reads, key.clone()).set(ReadsItem::version, number(u64::from(known) + 1));
        update.when(still_number(ReadsItem::version, known))
    }
}

fn applied(state: &ReadState) -> AttributeValue {
    AttributeValue::L(
        state.applied.iter().take(MOST_APPLIED).flat_map(|applied| [applied.token, applied.changed]).map(number).collect(),
    )
}

/// The partition of a read state in the index by author.
pub fn by(user: UserId, author: UserId) -> AttributeValue {
    string(schema::follower_shard(author, user.shard()))
}

pub fn read_reads(item: Item) -> Result<(UserId, ReadState)> {
    read(item, |item: ReadsItem| {
        let Bits(mut read) = item.read.unwrap_or_default();
        for (seqs, is_read) in [(item.marked, true), (item.unmarked, false)] {
            for seq in seqs.unwrap_or_default() {
                read.set(seq, is_read);
            }
        }
        let applied = item.applied.unwrap_or_default();
        let applied = applied.as_chunks().0.iter().map(|&[token, changed]| Applied { token, changed }).collect();
        Ok((item.author.into(), ReadState { version: item.version, through: item.through.unwrap_or(0), read, applied }))
    })
}

/// Marks that are not in the bitmap yet: posts marked read, and posts marked unread. No number is in both.
const PENDING: [Attribute; 2] = [ReadsItem::marked, ReadsItem::unmarked];

/// With more marks beside the bitmap than this, a mark folds them into it.
const MOST_PENDING: usize = 100;

fn pending(item: &Item) -> Result<[Vec<Seq>; 2]> {
    let [marked, unmarked] = PENDING.map(|attribute| attribute.optional(item));
    Ok([marked?.unwrap_or_default(), unmarked?.unwrap_or_default()])
}

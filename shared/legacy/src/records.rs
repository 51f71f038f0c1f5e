//! What a migration remembers in its table: the members of legacy lists, positions, and the source.

use tidemark_domain::{SeqSet, StoreError, Timestamp};
use tidemark_facts::{
    attempts,
    decode::read,
    item::{Attribute, Bits, Item, encode, number, string},
    schema::record,
    unavailable,
    write::{Write, still_number, still_set, unchanged},
};

use crate::{
    Imports,
    legacy::{LegacyNotice, Unread},
    schema::{self as keys, ImportedBitsItem, RunItem, SeenItem, SourceItem},
};

/// An item holds 400 KB.
const MOST_SEEN_BYTES: usize = 300_000;
/// Items that one page of a scan reads.
const SCANNED: i32 = 2_000;

/// What earlier passes, runs and write-back know of a legacy list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SeenList {
    /// The members that agree with the facts.
    pub members: SeqSet,
    /// Those of `members` that a pass has missed in the list.
    pub missing: SeqSet,
    /// When the pass began that stored `missing`.
    pub missed_at: Timestamp,
    /// Former members that passes have given up, with their facts if the list is not a cache. They may return.
    pub gone: SeqSet,
    /// When a pass last gave up a member.
    pub gone_at: Timestamp,
}

impl SeenList {
    /// Adds members that agree with the facts.
    pub(crate) fn add(&mut self, members: &SeqSet) {
        self.members = self.members.union(members);
        self.missing = self.missing.minus(members);
        self.gone = self.gone.minus(members);
    }

    /// Removes members whose facts have changed here. What a pass gave up can still return.
    pub(crate) fn drop(&mut self, members: &SeqSet) {
        self.members = self.members.minus(members);
        self.missing = self.missing.minus(members);
    }

    /// Removes members of which nothing is to be remembered.
    pub(crate) fn forget(&mut self, members: &SeqSet) {
        self.drop(members);
        self.gone = self.gone.minus(members);
    }

    /// Stores the members that the pass that began at `pass` misses. Those that the record has already keep their time.
    pub(crate) fn miss(&mut self, missing: &SeqSet, pass: Timestamp) {
        if self.missing != *missing {
            self.missing = missing.clone();
            self.missed_at = pass;
        }
    }

    /// Moves members that a pass gives up to those that are gone.
    pub(crate) fn give_up(&mut self, members: &SeqSet, now: Timestamp) {
        if !members.is_empty() {
            self.drop(members);
            self.gone = self.gone.union(members);
            self.gone_at = now;
        }
    }

    /// Leaves out what an item has no room for: first the members that are gone, then those that `known` lacks.
    fn fitted(mut self, known: &Self) -> Self {
        let bytes =
            |list: &Self| [&list.members, &list.missing, &list.gone].map(|set| set.to_bytes().len()).iter().sum::<usize>();
        if bytes(&self) > MOST_SEEN_BYTES {
            self.gone = SeqSet::default();
        }
        if bytes(&self) > MOST_SEEN_BYTES {
            let added = self.members.minus(&known.members);
            self.members = self.members.minus(&added);
        }
        self
    }
}

/// What is known of the source, however an event spells it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownSource {
    /// When the first import of follows began.
    pub begun_at: Option<Timestamp>,
    /// The id of the server process whose lists passes compare.
    pub server: Option<String>,
    /// The rule by which the last run imported follows.
    pub unread: Option<Unread>,
}

/// The stored progress of a run. Its version shows whether another run has saved in the meantime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredProgress {
    /// Grows by one with every save.
    pub version: u64,
    /// The progress as JSON.
    pub text: String,
}

impl Imports {
    /// Returns what is known of a legacy list.
    pub async fn list(&self, list: &str) -> Result<SeenList, StoreError> {
        let item = self.get_one("list", &self.tables.migration, record(&keys::seen(list))).await?;
        item.map_or_else(|| Ok(SeenList::default()), read_list)
    }

    /// Changes what is known of a legacy list. Members that an item has no room for are not added: each pass then looks
    /// at them again, and does not notice that they are removed.
    pub(crate) async fn change_list(&self, list: &str, change: impl Fn(&mut SeenList)) -> Result<(), StoreError> {
        const OPERATION: &str = "change_list";
        let mut attempts = attempts(OPERATION);
        loop {
            attempts.next().await?;
            let item = self.get_one(OPERATION, &self.tables.migration, record(&keys::seen(list))).await?;
            let known = item.clone().map_or_else(|| Ok(SeenList::default()), read_list)?;
            let mut next = known.clone();
            change(&mut next);
            let next = next.fitted(&known);
            if next == known {
                return Ok(());
            }
            let put = Write::put(&self.tables.migration, encode(&list_item(list, next)));
            let same = SeenItem::ATTRIBUTES.iter().map(|attribute| unchanged(*attribute, item.as_ref()));
            if self.send(OPERATION, same.fold(put, Write::when)).await? {
                return Ok(());
            }
        }
    }

    /// Some legacy lists that have seen members, after the key `after`, and the key where the next page begins; `None`
    /// at the end. It scans the table: reading by size is cheaper than reading every item of every list.
    pub(crate) async fn lists_seen(&self, after: Option<String>) -> Result<(Vec<String>, Option<String>), StoreError> {
        let scan = self.client.scan().table_name(&self.tables.migration).limit(SCANNED);
        let scan = scan.set_exclusive_start_key(after.map(|key| record(&key)));
        let page = scan.send().await.map_err(|error| unavailable("lists_seen", error))?;
        let key = |item: &Item| SeenItem::key.read::<String>(item);
        let mut lists = Vec::new();
        for item in page.items.unwrap_or_default() {
            if SeenItem::members.of(&item).is_some()
                && let Some(list) = keys::seen_list(&key(&item)?)
            {
                lists.push(list.to_owned());
            }
        }
        Ok((lists, page.last_evaluated_key.as_ref().map(key).transpose()?))
    }

    /// The imported bits of a block of a legacy notice's bitmap.
    pub(crate) async fn imported_bits(&self, notice: LegacyNotice, block: u64) -> Result<SeqSet, StoreError> {
        let key = record(&keys::imported_bits(notice, block));
        let item = self.get_one("imported_bits", &self.tables.migration, key).await?;
        item.map_or_else(|| Ok(SeqSet::default()), |item| set_of(&item, ImportedBitsItem::users))
    }

    /// Adds to the imported bits of a block.
    pub(crate) async fn remember_bits(&self, notice: LegacyNotice, block: u64, new: &SeqSet) -> Result<(), StoreError> {
        let mut attempts = attempts("remember_bits");
        loop {
            attempts.next().await?;
            let known = self.imported_bits(notice, block).await?;
            let item = ImportedBitsItem { key: keys::imported_bits(notice, block), users: Some(Bits(known.union(new))) };
            let put = Write::put(&self.tables.migration, encode(&item)).when(still_set(ImportedBitsItem::users, &known));
            if self.send("remember_bits", put).await? {
                return Ok(());
            }
        }
    }

    /// Returns what is known of the source.
    pub async fn source(&self) -> Result<KnownSource, StoreError> {
        let item = self.get_one("source", &self.tables.migration, record(keys::SOURCE)).await?;
        item.map_or_else(|| Ok(KnownSource::default()), read_source)
    }

    /// Stores that an import of follows begins, and the server process, unless they are known. With `trusted` the
    /// process replaces the known one.
    pub async fn note_source(&self, now: Timestamp, server: &str, trusted: bool) -> Result<(), StoreError> {
        let update = Write::update(&self.tables.migration, record(keys::SOURCE));
        let update = update.set_if_absent(SourceItem::begun_at, number(now.ms()));
        let update = match trusted {
            true => update.set(SourceItem::server, string(server)),
            false => update.set_if_absent(SourceItem::server, string(server)),
        };
        self.send("note_source", update).await.map(drop)
    }

    /// Stores the rule for unread posts of the source.
    pub(crate) async fn note_rule(&self, rule: Unread) -> Result<(), StoreError> {
        let names = Unread::NAMED.into_iter().filter(|(_, known)| *known == rule);
        let update = Write::update(&self.tables.migration, record(keys::SOURCE));
        let update = names.fold(update, |update, (name, _)| update.set(SourceItem::unread, string(name)));
        self.send("note_rule", update).await.map(drop)
    }

    pub async fn progress(&self, run: &str) -> Result<Option<StoredProgress>, StoreError> {
        let item = self.get_one("progress", &self.tables.migration, record(&keys::run(run))).await?;
        item.map(|item| read(item, |RunItem { version, progress, .. }| Ok(StoredProgress { version, text: progress })))
            .transpose()
    }

    /// Stores progress if its version is one above the stored one. Otherwise it writes nothing and returns false.
    pub async fn save_progress(&self, run: &str, progress: &StoredProgress) -> Result<bool, StoreError> {
        let item = RunItem { key: keys::run(run), version: progress.version, progress: progress.text.clone() };
        let known = still_number(RunItem::version, progress.version.saturating_sub(1));
        self.send("save_progress", Write::put(&self.tables.migration, encode(&item)).when(known)).await
    }
}

pub(crate) fn set_of(item: &Item, attribute: Attribute) -> Result<SeqSet, StoreError> {
    Ok(attribute.optional::<Bits>(item)?.unwrap_or_default().0)
}

fn read_list(item: Item) -> Result<SeenList, StoreError> {
    read(item, |SeenItem { members, missing, missed_at, gone, gone_at, .. }| {
        let [members, missing, gone] = [members, missing, gone].map(|set| set.unwrap_or_default().0);
        let [missed_at, gone_at] = [missed_at, gone_at].map(|at| Timestamp::from_ms(at.unwrap_or(0)));
        Ok(SeenList { members, missing, missed_at, gone, gone_at })
    })
}

fn list_item(list: &str, SeenList { members, missing, missed_at, gone, gone_at }: SeenList) -> SeenItem {
    let [members, missing, gone] = [members, missing, gone].map(|set| (!set.is_empty()).then_some(Bits(set)));
    let [missed_at, gone_at] = [missed_at, gone_at].map(|at| (at.ms() > 0).then_some(at.ms()));
    SeenItem { key: keys::seen(list), members, missing, missed_at, gone, gone_at }
}

fn read_source(item: Item) -> Result<KnownSource, StoreError> {
    read(item, |SourceItem { begun_at, server, unread, .. }| {
        let rule = |name: String| Unread::NAMED.into_iter().find(|(known, _)| *known == name).map(|(_, rule)| rule);
        Ok(KnownSource { begun_at: begun_at.map(Timestamp::from_ms), server, unread: unread.and_then(rule) })
    })
}

//! Sets of sequence numbers that outgrow their item.
//!
//! A DynamoDB item holds 400 KB, and a set takes up to 8 KiB for each window of 65,536 numbers. When the attribute of a
//! set grows, its oldest windows move to items of their own. The attribute `windows` lists them, each with a token.
//!
//! One transaction writes the item and its windows. If a reader of an item finds a window with another token, the
//! window was written in between, and the reader reads the item again.
//!
//! A window of few bytes moves back into its item. Its own item remains until the next move of that window replaces it.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use futures::{StreamExt, TryStreamExt, stream};
use tidemark_domain::SeqSet;

use super::{
    Facts, Result, attempts,
    item::{Attribute, Bits, Item, bits, encode, number},
    schema::{self, HeadItem, WindowItem},
    write::Write,
};

/// Lists the windows of an item; the name is the same in both tables.
const WINDOWS: Attribute = HeadItem::windows;

/// Items that are completed at once.
const ITEMS_AT_ONCE: usize = 8;

/// A set of more than `MOST_BYTES` moves windows out of its item until at most `BYTES_LEFT` remain.
const MOST_BYTES: usize = 64 * 1024;
const BYTES_LEFT: usize = 32 * 1024;

/// A window with fewer bytes moves back. A full window takes 15 bytes.
const FEW_BYTES: usize = 64;

/// The maximum number of windows that one transaction writes in addition to its other items.
pub(crate) const MOST_WINDOWS: usize = 64;

/// The distribution of an item's sets between the item and its windows.
pub struct Layout {
    /// The bits of each set that are in no window.
    sets: Vec<(Attribute, AttributeValue)>,
    listed: HashMap<String, AttributeValue>,
    /// The windows to write together with the item.
    windows: Vec<Item>,
}

impl Layout {
    /// Distributes sets. `stored` is the item with whole sets. With `moves`, up to [`MOST_WINDOWS`] move out.
    pub fn new(key: &Item, stored: Option<&Item>, sets: &[(Attribute, &SeqSet)], moves: bool) -> Result<Self> {
        let listed = stored.map(listed).unwrap_or_default();
        let mut layout = Self { sets: Vec::new(), listed, windows: Vec::new() };
        for &(name, set) in sets {
            let before: Option<Bits> = stored.map(|item| name.optional(item)).transpose()?.flatten();
            let mut inline = layout.update_windows(key, name, &before.unwrap_or_default().0, set);
            if moves {
                layout.move_windows(key, name, &mut inline);
            }
            layout.sets.push((name, bits(&inline)));
        }
        Ok(layout)
    }

    /// Writes listed windows that change, and drops those that have few bits left. Returns the bits in no window.
    fn update_windows(&mut self, key: &Item, name: Attribute, before: &SeqSet, set: &SeqSet) -> SeqSet {
        let mut inline = set.clone();
        let known = self.listed.keys().filter_map(|key| schema::named_window(key));
        let known: Vec<u64> = known.filter(|(of, _)| *of == name.name()).map(|(_, window)| window).collect();
        for window in known {
            let bits = set.in_window(window);
            let same = bits == before.in_window(window);
            if !same && bits.to_bytes().len() < FEW_BYTES {
                self.listed.remove(&schema::window_name(name, window));
                continue;
            }
            inline = inline.minus(&bits);
            if !same {
                self.write(key, name, window, bits);
            }
        }
        inline
    }

    /// Moves the oldest windows out of a set that is too large.
    fn move_windows(&mut self, key: &Item, name: Attribute, inline: &mut SeqSet) {
        let mut bytes = inline.to_bytes().len();
        if bytes <= MOST_BYTES {
            return;
        }
        let oldest: Vec<u64> = inline.windows().collect();
        for window in oldest.into_iter().take(MOST_WINDOWS.saturating_sub(self.windows.len())) {
            let bits = inline.in_window(window);
            let length = bits.to_bytes().len();
            if length >= FEW_BYTES {
                *inline = inline.minus(&bits);
                bytes = bytes.saturating_sub(length);
                self.write(key, name, window, bits);
            }
            if bytes <= BYTES_LEFT {
                break;
            }
        }
    }

    fn write(&mut self, key: &Item, set: Attribute, window: u64, bits: SeqSet) {
        let Some(mut item) = schema::window(key, set.name(), window) else { return };
        let token = rand::random();
        item.extend(encode(&WindowItem { bits: Bits(bits), token }));
        self.listed.insert(schema::window_name(set, window), number(token));
        self.windows.push(item);
    }

    /// Whether every set fits into its item.
    pub(crate) fn is_small(&self) -> bool {
        self.sets.iter().all(|(_, set)| set.as_b().is_ok_and(|bits| bits.as_ref().len() <= MOST_BYTES))
    }

    /// Whether one transaction can write all changed windows.
    pub(crate) fn fits(&self) -> bool {
        self.windows.len() <= MOST_WINDOWS
    }

    /// The update with the sets, and the writes of the windows that belong to it.
    pub fn writes(self, update: Write) -> Vec<Write> {
        let table = update.table().to_owned();
        let update = self.sets.into_iter().fold(update, |update, (name, bits)| update.set(name, bits));
        let update =
            if self.listed.is_empty() { update.remove([WINDOWS]) } else { update.set(WINDOWS, AttributeValue::M(self.listed)) };
        [update].into_iter().chain(self.windows.into_iter().map(|window| Write::put(&table, window))).collect()
    }
}

/// The windows that an item lists, with their tokens.
fn listed(item: &Item) -> HashMap<String, AttributeValue> {
    WINDOWS.of(item).and_then(|listed| listed.as_m().ok()).cloned().unwrap_or_default()
}

/// The bits of a set that are in no window; `None` if they are damaged.
fn inline(item: &Item, set: &str) -> Option<SeqSet> {
    let Some(value) = item.get(set) else { return Some(SeqSet::default()) };
    SeqSet::from_bytes(value.as_b().ok()?.as_ref()).ok()
}

impl Facts {
    pub(crate) fn window_keys(&self, item: &Item) -> Vec<Item> {
        let key = schema::windowed_key(item);
        let named = listed(item);
        named.keys().filter_map(|name| schema::named_window(name)).filter_map(|(set, at)| schema::window(&key, set, at)).collect()
    }

    /// Returns the items with whole sets, in any order. The attribute `windows` remains. If the windows of a set are
    /// damaged, its attribute becomes one that cannot be read.
    pub(crate) async fn completed(&self, operation: &'static str, table: &str, items: Vec<Item>) -> Result<Vec<Item>> {
        let (mut incomplete, mut whole): (Vec<Item>, Vec<Item>) = items.into_iter().partition(|item| WINDOWS.of(item).is_some());
        let mut attempts = attempts(operation);
        attempts.next().await?;
        while !incomplete.is_empty() {
            let completed = incomplete.into_iter().map(|mut item| async move {
                let is_whole = self.complete(operation, table, &mut item).await?;
                Ok((item, is_whole))
            });
            let completed: Vec<(Item, bool)> = stream::iter(completed).buffered(ITEMS_AT_ONCE).try_collect().await?;
            let (complete, stale): (Vec<_>, Vec<_>) = completed.into_iter().partition(|(_, is_whole)| *is_whole);
            whole.extend(complete.into_iter().map(|(item, _)| item));
            let stale: Vec<Item> = stale.into_iter().map(|(item, _)| item).collect();
            if stale.is_empty() {
                break;
            }
            attempts.next().await?;
            let keys = stale.iter().map(schema::windowed_key).collect();
            let [again] = self.stored(operation, [(table, keys)]).await?;
            // An item that has not changed since then has windows that are missing or belong to another version.
            let (damaged, changed): (Vec<Item>, Vec<Item>) = again.into_iter().partition(|item| stale.contains(item));
            whole.extend(damaged.into_iter().map(|mut item| {
                let sets: Vec<String> =
                    listed(&item).keys().filter_map(|name| Some(schema::named_window(name)?.0.to_owned())).collect();
                item.extend(sets.into_iter().map(|set| (set, AttributeValue::Null(true))));
                item
            }));
            incomplete = changed;
        }
        Ok(whole)
    }

    /// Makes an item's sets whole. False if a window is missing, damaged, or has another token than the item lists.
    async fn complete(&self, operation: &'static str, table: &str, item: &mut Item) -> Result<bool> {
        let listed = listed(item);
        let windows = listed.iter().filter_map(|(name, token)| {
            let (set, window) = schema::named_window(name)?;
            Some((set, schema::window(item, set, window)?, token))
        });
        let windows: Vec<(&str, Item, &AttributeValue)> = windows.collect();
        let keys = windows.iter().map(|(_, key, _)| key.clone()).collect();
        let [found] = self.stored(operation, [(table, keys)]).await?;
        let mut sets: HashMap<&str, SeqSet> = HashMap::new();
        for (set, key, token) in windows {
            let is_it = |window: &&Item| {
                key.iter().all(|(name, value)| window.get(name) == Some(value)) && WindowItem::token.of(window) == Some(token)
            };
            let Some(window) = found.iter().find(is_it) else { return Ok(false) };
            let Ok(Bits(bits)) = WindowItem::bits.read(window) else { return Ok(false) };
            // Otherwise the set itself is damaged. Its reader reports that.
            let Some(whole) = sets.remove(set).or_else(|| inline(item, set)) else { return Ok(true) };
            sets.insert(set, whole.union(&bits));
        }
        let sets: Vec<(String, AttributeValue)> = sets.into_iter().map(|(set, whole)| (set.to_owned(), bits(&whole))).collect();
        item.extend(sets);
        Ok(true)
    }
}

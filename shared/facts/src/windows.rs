//! Sets of sequence numbers that outgrow their item.
//!
//! A DynamoDB item holds 400 KB, and a set takes up to 8 KiB for each window of 65,536 numbers. A small set is one
//! attribute of its item. When the set grows, its oldest windows move to items of their own. The attribute `windows` of
//! the item lists them, each with a token.
//!
//! One transaction writes the item and its windows. A reader reads first the item, then the windows. If a window has
//! another token, it was written in between, and the reader reads the item again.
//!
//! A window that has few bits left moves back into its item. Its own item remains, and the next move of that window
//! replaces it.

use std::collections::HashMap;
use tidemark_app::ports::StoreError;

use aws_sdk_dynamodb::{
    primitives::Blob,
    types::{AttributeValue, Put, TransactWriteItem, builders::UpdateBuilder},
};

use super::{
    ATTEMPTS, DynamoFacts, back_off, build,
    item::{Item, Reader},
    number, schema,
};
use tidemark_domain::SeqSet;

/// A set of more than `MOST_BYTES` moves windows out of its item until at most `BYTES_LEFT` remain.
const MOST_BYTES: usize = 64 * 1024;
const BYTES_LEFT: usize = 32 * 1024;

/// A window with fewer bytes moves back. A full window takes 15 bytes.
const FEW_BYTES: usize = 64;

/// The maximum number of windows that one transaction writes in addition to its other items.
pub(crate) const MOST_WINDOWS: usize = 64;

/// The distribution of an item's sets between the item and its windows.
pub struct Layout {
    /// The sets' attributes: the bits that are in no window.
    pub sets: Vec<AttributeValue>,
    /// The attribute `windows`; `None` if there are no windows.
    pub listed: Option<AttributeValue>,
    /// The windows to write together with the item.
    windows: Vec<Item>,
}

impl Layout {
    /// Distributes the sets of the item with this key. `stored` is that item as [`DynamoFacts::completed`] returns it.
    /// Moves at most [`MOST_WINDOWS`] windows out, and none if `moves` is false.
    pub fn new(key: &Item, stored: Option<&Item>, sets: &[(&'static str, &SeqSet)], moves: bool) -> Result<Self, StoreError> {
        let mut listed = stored.map(listed).unwrap_or_default();
        let mut layout = Self { sets: Vec::new(), listed: None, windows: Vec::new() };
        for &(name, set) in sets {
            let before = match stored {
                Some(item) => Reader { table: "windows", item }.seqs(name)?,
                None => SeqSet::default(),
            };
            let mut inline = set.clone();
            let known: Vec<u64> = listed
                .keys()
                .filter_map(|key| schema::named_window(key))
                .filter(|(of, _)| *of == name)
                .map(|(_, window)| window)
                .collect();
            for window in known {
                let bits = set.in_window(window);
                let same = bits == before.in_window(window);
                if !same && bits.to_bytes().len() < FEW_BYTES {
                    listed.remove(&schema::window_name(name, window));
                    continue;
                }
                inline = inline.minus(&bits);
                if !same {
                    layout.write(key, &mut listed, name, window, &bits);
                }
            }
            let mut bytes = if moves { inline.to_bytes().len() } else { 0 };
            if bytes > MOST_BYTES {
                let oldest: Vec<u64> = inline.windows().collect();
                for window in oldest.into_iter().take(MOST_WINDOWS.saturating_sub(layout.windows.len())) {
                    let bits = inline.in_window(window);
                    let length = bits.to_bytes().len();
                    if length >= FEW_BYTES {
                        inline = inline.minus(&bits);
                        bytes = bytes.saturating_sub(length);
                        layout.write(key, &mut listed, name, window, &bits);
                    }
                    if bytes <= BYTES_LEFT {
                        break;
                    }
                }
            }
            layout.sets.push(bits_of(&inline));
        }
        layout.listed = (!listed.is_empty()).then(|| AttributeValue::M(listed));
        Ok(layout)
    }

    fn write(&mut self, key: &Item, listed: &mut HashMap<String, AttributeValue>, set: &str, window: u64, bits: &SeqSet) {
        let Some(mut item) = schema::window(key, set, window) else { return };
        let token = number(rand::random());
        item.extend([("bits".to_owned(), bits_of(bits)), ("token".to_owned(), token.clone())]);
        listed.insert(schema::window_name(set, window), token);
        self.windows.push(item);
    }

    /// Completes an update with an expression that sets the sets of this layout and the assignments in `set`, then runs
    /// the clause `then`.
    pub fn sets_in(&self, update: UpdateBuilder, sets: &[(&'static str, &SeqSet)], set: &str, then: &str) -> UpdateBuilder {
        let (mut update, mut set) = (update, set.to_owned());
        for ((name, _), value) in sets.iter().zip(&self.sets) {
            set.push_str(&format!(", #{name} = :{name}"));
            update = update.expression_attribute_names(format!("#{name}"), *name);
            update = update.expression_attribute_values(format!(":{name}"), value.clone());
        }
        match &self.listed {
            Some(listed) => {
                let update = update.expression_attribute_values(":windows", listed.clone());
                update.update_expression(format!("SET {set}, windows = :windows {then}"))
            }
            None => {
                let then = match then.strip_prefix("REMOVE ") {
                    Some(lost) => format!("REMOVE windows, {lost}"),
                    None => format!("REMOVE windows {then}"),
                };
                update.update_expression(format!("SET {set} {then}"))
            }
        }
    }

    /// Whether every set fits into its item.
    pub(crate) fn is_small(&self) -> bool {
        self.sets.iter().all(|set| set.as_b().is_ok_and(|bits| bits.as_ref().len() <= MOST_BYTES))
    }

    /// The number of windows to write.
    pub fn writes(&self) -> usize {
        self.windows.len()
    }

    /// The writes of the windows, for the transaction that writes the item.
    pub fn puts(&self, operation: &'static str, table: &str) -> Result<Vec<TransactWriteItem>, StoreError> {
        let put = |item: &Item| {
            let put = Put::builder().table_name(table).set_item(Some(item.clone())).build();
            Ok(TransactWriteItem::builder().put(build(operation, put)?).build())
        };
        self.windows.iter().map(put).collect()
    }
}

pub fn bits_of(set: &SeqSet) -> AttributeValue {
    AttributeValue::B(Blob::new(set.to_bytes()))
}

/// Adds the condition that an attribute has not changed since the item was read as `seen`.
pub fn unchanged(update: UpdateBuilder, seen: Option<&Item>, name: &str, conditions: &mut Vec<String>) -> UpdateBuilder {
    match seen.and_then(|item| item.get(name)) {
        Some(value) => {
            conditions.push(format!("{name} = :{name}_seen"));
            update.expression_attribute_values(format!(":{name}_seen"), value.clone())
        }
        None => {
            conditions.push(format!("attribute_not_exists({name})"));
            update
        }
    }
}

/// The windows that an item lists, with their tokens.
fn listed(item: &Item) -> HashMap<String, AttributeValue> {
    item.get("windows").and_then(|listed| listed.as_m().ok()).cloned().unwrap_or_default()
}

impl DynamoFacts {
    /// Returns the items with whole sets, in any order. The attribute `windows` remains. If the windows of a set are
    /// damaged, its attribute becomes one that cannot be read.
    pub(crate) async fn completed(
        &self,
        operation: &'static str,
        table: &str,
        items: Vec<Item>,
    ) -> Result<Vec<Item>, StoreError> {
        let (mut incomplete, mut whole): (Vec<Item>, Vec<Item>) =
            items.into_iter().partition(|item| item.contains_key("windows"));
        for attempt in 0..ATTEMPTS {
            if incomplete.is_empty() {
                return Ok(whole);
            }
            let mut stale = Vec::new();
            for mut item in incomplete {
                if self.complete(operation, table, &mut item).await? { whole.push(item) } else { stale.push(item) }
            }
            if stale.is_empty() {
                return Ok(whole);
            }
            back_off(attempt).await;
            let keys = stale.iter().map(schema::windowed_key).collect();
            let again = self.stored(operation, vec![(table.to_owned(), keys)]).await?.remove(0);
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
        Err(StoreError::Contention { operation })
    }

    /// Makes an item's sets whole. Returns false if a window is missing, damaged, or has another token than the item
    /// lists.
    async fn complete(&self, operation: &'static str, table: &str, item: &mut Item) -> Result<bool, StoreError> {
        let listed = listed(item);
        let windows: Vec<(&str, Item, &AttributeValue)> = listed
            .iter()
            .filter_map(|(name, token)| {
                let (set, window) = schema::named_window(name)?;
                Some((set, schema::window(item, set, window)?, token))
            })
            .collect();
        let keys = windows.iter().map(|(_, key, _)| key.clone()).collect();
        let found = self.stored(operation, vec![(table.to_owned(), keys)]).await?.remove(0);
        let mut sets: HashMap<&str, SeqSet> = HashMap::new();
        for (set, key, token) in windows {
            let is_it = |window: &&Item| {
                key.iter().all(|(name, value)| window.get(name) == Some(value)) && window.get("token") == Some(token)
            };
            let Some(window) = found.iter().find(is_it) else { return Ok(false) };
            let Ok(bits) = (Reader { table: "windows", item: window }).seqs("bits") else { return Ok(false) };
            let whole = match sets.remove(set) {
                Some(whole) => Ok(whole),
                None => Reader { table: "windows", item }.seqs(set),
            };
            // The set itself is damaged. Its reader reports that.
            let Ok(whole) = whole else { return Ok(true) };
            sets.insert(set, whole.union(&bits));
        }
        let sets: Vec<(String, AttributeValue)> = sets.into_iter().map(|(set, bits)| (set.to_owned(), bits_of(&bits))).collect();
        item.extend(sets);
        Ok(true)
    }
}

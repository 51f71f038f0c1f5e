//! Queue messages on disk.
//!
//! A message is written before its sender gets the response, and removed when it is deleted. After any end of the
//! stack, every message that was not deleted is in its queue again, with its id and its number of receives. A message
//! that was in flight is visible at once. A message that was moved to a dead-letter queue is in that queue.

use std::collections::HashMap;

use rusqlite::{Connection, Params, Transaction};
use rustack_sqs_model::error::SqsError;

use super::queue::Message;
use crate::store::Store;

/// Reads all messages with the names of their queues, oldest first.
pub(crate) fn load(connection: &Connection) -> rusqlite::Result<Vec<(String, Message)>> {
    let mut statement = connection.prepare(
        "SELECT queue, id, body, attributes, message_group, sent_ms, due_ms, receives, first_received_ms, dead_letter_source
         FROM messages ORDER BY position",
    )?;
    let rows = statement.query_map([], |row| {
        let attributes: String = row.get(3)?;
        let message = Message {
            id: row.get(1)?,
            body: row.get(2)?,
            attributes: serde_json::from_str(&attributes).unwrap_or_else(|_| HashMap::new()),
            group: row.get(4)?,
            sent_ms: row.get(5)?,
            due_ms: row.get(6)?,
            receives: row.get(7)?,
            first_received_ms: row.get(8)?,
            dead_letter_source: row.get(9)?,
            ..Message::default()
        };
        Ok((row.get(0)?, message))
    })?;
    rows.collect()
}

/// Writes new messages. Returns when they are on disk.
pub(super) async fn insert(store: &Store, queue: &str, messages: &[Message]) -> Result<(), SqsError> {
    let row = |message: &Message| {
        let attributes = serde_json::to_string(&message.attributes).unwrap_or_default();
        let Message { id, body, group, sent_ms, due_ms, receives, first_received_ms, dead_letter_source, .. } = message.clone();
        (id, queue.to_owned(), body, attributes, group, sent_ms, due_ms, receives, first_received_ms, dead_letter_source)
    };
    let rows: Vec<_> = messages.iter().map(row).collect();
    let sql = "INSERT INTO messages (id, queue, body, attributes, message_group, sent_ms, due_ms, receives, first_received_ms, dead_letter_source)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    commit(store, move |transaction| each(transaction, sql, rows)).await
}

/// Removes messages. Returns when the removal is on disk.
pub(super) async fn delete(store: &Store, ids: Vec<String>) -> Result<(), SqsError> {
    commit(store, move |transaction| remove(transaction, ids)).await
}

/// Removes messages without waiting for the disk.
pub(super) fn forget(store: &Store, ids: Vec<String>) {
    store.post(move |transaction| remove(transaction, ids));
}

fn remove(transaction: &Transaction<'_>, ids: Vec<String>) -> rusqlite::Result<()> {
    each(transaction, "DELETE FROM messages WHERE id = ?1", ids.into_iter().map(|id| [id]))
}

/// Notes one more receive of messages, without waiting for the disk.
pub(super) fn received(store: &Store, messages: &[Message]) {
    let rows: Vec<_> = messages.iter().map(|m| (m.id.clone(), m.receives, m.first_received_ms)).collect();
    let sql = "UPDATE messages SET receives = ?2, first_received_ms = ?3 WHERE id = ?1";
    store.post(move |transaction| each(transaction, sql, rows));
}

/// Notes that messages moved to another queue, without waiting for the disk.
pub(super) fn moved(store: &Store, messages: &[Message], queue: &str) {
    let rows: Vec<_> = messages.iter().map(|m| (m.id.clone(), queue.to_owned(), m.dead_letter_source.clone())).collect();
    let sql = "UPDATE messages SET queue = ?2, dead_letter_source = ?3, receives = 0, first_received_ms = NULL WHERE id = ?1";
    store.post(move |transaction| each(transaction, sql, rows));
}

async fn commit(
    store: &Store,
    work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static,
) -> Result<(), SqsError> {
    store.commit(work).await.map_err(|error| SqsError::internal_error(error.to_string()))
}

/// Runs a statement with each of the rows.
fn each(transaction: &Transaction<'_>, sql: &str, rows: impl IntoIterator<Item: Params>) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached(sql)?;
    rows.into_iter().try_for_each(|row| statement.execute(row).map(drop))
}

//! Queue messages on disk.
//!
//! A message is written before its sender gets the response, and removed when it is deleted. After any end of the
//! stack, every message that was not deleted is in its queue again, with its id and its number of receives. A message
//! that was in flight is visible at once. A message that was moved to a dead-letter queue is in that queue.

use std::collections::HashMap;

use rusqlite::{Connection, Transaction, params};
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
    let (queue, messages) = (queue.to_owned(), messages.to_vec());
    let write = move |transaction: &Transaction<'_>| {
        let mut statement = transaction.prepare_cached(
            "INSERT INTO messages (id, queue, body, attributes, message_group, sent_ms, due_ms, receives, first_received_ms, dead_letter_source)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?;
        for message in &messages {
            let attributes = serde_json::to_string(&message.attributes).unwrap_or_default();
            let Message { id, body, group, sent_ms, due_ms, receives, first_received_ms, dead_letter_source: dead, .. } = message;
            let row = (id, &queue, body, attributes, group, sent_ms, due_ms, receives, first_received_ms, dead);
            statement.execute(row)?;
        }
        Ok(())
    };
    commit(store, write).await
}

/// Removes messages. Returns when the removal is on disk.
pub(super) async fn delete(store: &Store, ids: Vec<String>) -> Result<(), SqsError> {
    commit(store, move |transaction| remove(transaction, &ids)).await
}

/// Removes messages without waiting for the disk.
pub(super) fn forget(store: &Store, ids: Vec<String>) {
    store.post(move |transaction| remove(transaction, &ids));
}

async fn commit(
    store: &Store,
    work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static,
) -> Result<(), SqsError> {
    store.commit(work).await.map_err(|error| SqsError::internal_error(error.to_string()))
}

fn remove(transaction: &Transaction<'_>, ids: &[String]) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached("DELETE FROM messages WHERE id = ?1")?;
    for id in ids {
        statement.execute([id])?;
    }
    Ok(())
}

/// Notes one more receive of messages, without waiting for the disk.
pub(super) fn received(store: &Store, messages: &[Message]) {
    let notes: Vec<_> = messages.iter().map(|m| (m.id.clone(), m.receives, m.first_received_ms)).collect();
    store.post(move |transaction| {
        let mut statement =
            transaction.prepare_cached("UPDATE messages SET receives = ?2, first_received_ms = ?3 WHERE id = ?1")?;
        for (id, receives, first) in &notes {
            statement.execute(params![id, receives, first])?;
        }
        Ok(())
    });
}

/// Notes that messages moved to another queue, without waiting for the disk.
pub(super) fn moved(store: &Store, messages: &[Message], queue: &str) {
    let notes: Vec<_> = messages.iter().map(|m| (m.id.clone(), m.dead_letter_source.clone())).collect();
    let queue = queue.to_owned();
    store.post(move |transaction| {
        let mut statement = transaction.prepare_cached(
            "UPDATE messages SET queue = ?2, dead_letter_source = ?3, receives = 0, first_received_ms = NULL WHERE id = ?1",
        )?;
        for (id, source) in &notes {
            statement.execute(params![id, queue, source])?;
        }
        Ok(())
    });
}

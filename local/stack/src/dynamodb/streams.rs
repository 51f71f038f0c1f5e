//! The stream records, read directly from the engine's file.
//!
//! A record is visible here as soon as its write has returned. The backlog of a stream is therefore counted in the
//! table of records itself and is exact.

use std::{collections::BTreeMap, path::Path, sync::Mutex, time::Duration};

use anyhow::{Context as _, Result};
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{clock, lock::lock, template::REGION};

/// The time that a record without a reader is kept. DynamoDB keeps records for the same time.
const RETENTION_SECONDS: i64 = 24 * 3_600;
/// Records that one write drops. The limit keeps other writes from waiting long.
const PRUNE_PAGE: usize = 500;

/// One change of one item.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Rises within the table. Elsewhere it is not the sequence number of the API.
    pub(crate) sequence: i64,
    /// The time of the change, in seconds since the epoch.
    pub(crate) created_at: i64,
    /// The record in the form that functions receive.
    pub(crate) event: Value,
}

impl Record {
    /// The sequence number as the API writes it.
    pub(crate) fn sequence_number(&self) -> &str {
        self.event["dynamodb"]["SequenceNumber"].as_str().unwrap_or_default()
    }
}

pub(crate) struct StreamLog {
    reader: Mutex<Connection>,
    writer: Mutex<Connection>,
    /// By table and reader, the position up to which the reader has consumed the stream.
    consumed: Mutex<BTreeMap<String, BTreeMap<String, i64>>>,
    writes: watch::Sender<()>,
}

impl StreamLog {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let connect = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(path)?;
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            connection.busy_timeout(Duration::from_secs(5))?;
            Ok(connection)
        };
        let context = || format!("cannot read the streams of {}", path.display());
        Ok(Self {
            reader: Mutex::new(connect().with_context(context)?),
            writer: Mutex::new(connect().with_context(context)?),
            consumed: Mutex::new(BTreeMap::new()),
            writes: watch::Sender::new(()),
        })
    }

    /// Changes with every write to the tables.
    pub(crate) fn writes(&self) -> watch::Receiver<()> {
        self.writes.subscribe()
    }

    pub(crate) fn wrote(&self) {
        self.writes.send_replace(());
    }

    /// Returns up to `most` records after `position`, oldest first.
    pub(crate) fn read(&self, table: &str, view: &str, arn: &str, position: i64, most: usize) -> rusqlite::Result<Vec<Record>> {
        let reader = lock(&self.reader);
        let mut statement = reader.prepare_cached(
            "SELECT CAST(sequence_number AS INTEGER), created_at, event_name, keys_json, new_image, old_image, user_identity, event_id
             FROM _stream_records WHERE table_name = ?1 AND CAST(sequence_number AS INTEGER) > ?2
             ORDER BY CAST(sequence_number AS INTEGER) LIMIT ?3",
        )?;
        let rows = statement.query_map(params![table, position, i64::try_from(most).unwrap_or(i64::MAX)], |row| {
            let image = |index: usize| -> rusqlite::Result<Option<String>> { row.get(index) };
            let (keys, new, old): (String, _, _) = (row.get(3)?, image(4)?, image(5)?);
            let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
            let size = keys.len() + new.as_ref().map_or(0, String::len) + old.as_ref().map_or(0, String::len);
            let (sequence, created_at): (i64, i64) = (row.get(0)?, row.get(1)?);
            let mut change = json!({
                "ApproximateCreationDateTime": created_at,
                "Keys": parse(&keys),
                "SequenceNumber": format!("1{sequence:020}"),
                "SizeBytes": size,
                "StreamViewType": view,
            });
            for (name, image) in [("NewImage", new), ("OldImage", old)] {
                if let Some(image) = image {
                    change[name] = parse(&image);
                }
            }
            let mut event = json!({
                "eventID": row.get::<_, Option<String>>(7)?,
                "eventName": row.get::<_, String>(2)?,
                "eventVersion": "1.1",
                "eventSource": "aws:dynamodb",
                "awsRegion": REGION,
                "eventSourceARN": arn,
                "dynamodb": change,
            });
            if let Some(identity) = image(6)? {
                event["userIdentity"] = parse(&identity);
            }
            Ok(Record { sequence, created_at, event })
        })?;
        rows.collect()
    }

    /// Counts the records after `position`, up to 100,000.
    pub(crate) fn behind(&self, table: &str, position: i64) -> rusqlite::Result<u64> {
        let reader = lock(&self.reader);
        let mut statement = reader.prepare_cached(
            "SELECT COUNT(*) FROM (SELECT 1 FROM _stream_records WHERE table_name = ?1 AND CAST(sequence_number AS INTEGER) > ?2 LIMIT 100000)",
        )?;
        statement.query_row(params![table, position], |row| row.get(0))
    }

    pub(crate) fn newest(&self, table: &str) -> rusqlite::Result<i64> {
        let sql = "SELECT COALESCE(MAX(CAST(sequence_number AS INTEGER)), 0) FROM _stream_records WHERE table_name = ?1";
        lock(&self.reader).query_row(sql, [table], |row| row.get(0))
    }

    /// Notes that `reader` of `table` does not need records up to `position` again.
    pub(crate) fn consumed(&self, table: &str, reader: &str, position: i64) {
        lock(&self.consumed).entry(table.to_owned()).or_default().insert(reader.to_owned(), position);
    }

    /// Drops records that every reader has consumed, and records older than the retention. Keeps the newest consumed
    /// record, because the engine numbers new records from the newest one it has.
    pub(super) fn prune(&self) -> rusqlite::Result<()> {
        let readers = lock(&self.consumed).clone();
        for (table, positions) in readers {
            let Some(position) = positions.values().min() else { continue };
            self.drop_pages(
                "DELETE FROM _stream_records WHERE id IN (SELECT id FROM _stream_records
                 WHERE table_name = ?1 AND CAST(sequence_number AS INTEGER) < ?2 LIMIT 500)",
                &[&table, position],
            )?;
        }
        let oldest = clock::now_seconds() - RETENTION_SECONDS;
        self.drop_pages(
            "DELETE FROM _stream_records WHERE id IN (SELECT id FROM _stream_records WHERE created_at < ?1 LIMIT 500)",
            &[&oldest],
        )
    }

    fn drop_pages(&self, sql: &str, parameters: &[&dyn rusqlite::ToSql]) -> rusqlite::Result<()> {
        while lock(&self.writer).execute(sql, parameters)? >= PRUNE_PAGE {}
        Ok(())
    }
}

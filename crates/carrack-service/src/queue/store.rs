//! What the queue keeps: one SQLite file. A row's `record` is the truth; the columns beside it are what is asked by.
//!
//! WAL with `synchronous=FULL`: what was answered to a user survives the loss of power.

use std::path::Path;

use carrack_cluster::records::{RECORD_VERSION, TransferRecord, TransferState};
use rusqlite::{Connection, OptionalExtension, Row, params};

/// Layout of the tables (`user_version`).
const LAYOUT: i64 = 2;

const TABLES: &str = "
CREATE TABLE transfers (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    priority INTEGER NOT NULL,
    ended_ms INTEGER,
    -- The process that carries it out, as `carrack_service`'s `queue/process.rs` names one; and what its user wants of it.
    process TEXT,
    wish TEXT,
    record TEXT NOT NULL,
    -- When it may begin, milliseconds since 1970.
    not_before_ms INTEGER
) STRICT;
CREATE INDEX transfers_by_turn ON transfers (state, priority DESC, number);
";

/// From layout 1, which had no start times.
const FROM_LAYOUT_1: &str = "ALTER TABLE transfers ADD COLUMN not_before_ms INTEGER;";

/// Why the store does not do as it should.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite's words.
    #[error("the queue's store: {0}")]
    Sql(#[from] rusqlite::Error),
    /// A record can't be read.
    #[error("a record in the queue's store: {0}")]
    Record(#[from] serde_json::Error),
    /// A later carrack has written it.
    #[error("the queue's store is of a later carrack (layout {0})")]
    Later(i64),
}

/// What was found by an id or the beginning of one.
#[derive(Debug, PartialEq)]
pub enum Found {
    /// Nothing.
    None,
    /// This.
    One(Box<TransferRecord>),
    /// Several begin so.
    Several,
}

/// A transfer that was running when the queue ended.
#[derive(Debug)]
pub struct Left {
    /// As it was.
    pub record: TransferRecord,
    /// What carried it out.
    pub process: Option<String>,
    /// What its user wanted of it.
    pub wish: Option<String>,
}

/// The open store.
#[derive(Debug)]
pub struct Store(Connection);

impl Store {
    /// Opens the file, or makes it.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        let db = Connection::open(path)?;
        db.pragma_update(None, "journal_mode", "wal")?;
        db.pragma_update(None, "synchronous", "full")?;
        let layout: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let change = match layout {
            0 => TABLES,
            1 => FROM_LAYOUT_1,
            LAYOUT => return Ok(Store(db)),
            later => return Err(StoreError::Later(later)),
        };
        db.execute_batch(&format!("BEGIN; {change} PRAGMA user_version = {LAYOUT}; COMMIT;"))?;
        Ok(Store(db))
    }

    /// Adds a transfer.
    pub fn add(&self, record: &TransferRecord) -> Result<(), StoreError> {
        let mut adding = self.0.prepare_cached(
            "INSERT INTO transfers (id, state, priority, ended_ms, record, not_before_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        adding.execute(params![
            record.id,
            record.state.to_string(),
            record.submission.priority,
            record.ended_ms.map(signed),
            serde_json::to_string(record)?,
            record.submission.not_before_ms.map(signed)
        ])?;
        Ok(())
    }

    /// Replaces a transfer's record. One that does not run has neither process nor wish.
    pub fn put(&self, record: &TransferRecord) -> Result<(), StoreError> {
        let mut putting = self.0.prepare_cached(
            "UPDATE transfers SET state = ?2, ended_ms = ?3, record = ?4,
                process = CASE WHEN ?2 = 'running' THEN process END,
                wish = CASE WHEN ?2 = 'running' THEN wish END
             WHERE id = ?1",
        )?;
        putting.execute(params![
            record.id,
            record.state.to_string(),
            record.ended_ms.map(signed),
            serde_json::to_string(record)?
        ])?;
        Ok(())
    }

    /// Notes which process carries a transfer out.
    pub fn set_process(&self, id: &str, process: &str) -> Result<(), StoreError> {
        self.0.execute("UPDATE transfers SET process = ?2 WHERE id = ?1", params![id, process])?;
        Ok(())
    }

    /// Notes what its user wants of a transfer that runs.
    pub fn set_wish(&self, id: &str, wish: Option<&str>) -> Result<(), StoreError> {
        self.0.execute("UPDATE transfers SET wish = ?2 WHERE id = ?1", params![id, wish])?;
        Ok(())
    }

    /// The transfer with this id, or the only one whose id begins so.
    pub fn find(&self, id: &str) -> Result<Found, StoreError> {
        if id.is_empty() || id.len() > 16 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(Found::None);
        }
        let id = id.to_ascii_lowercase();
        // In ASCII 'g' follows 'f'.
        let mut finding = self
            .0
            .prepare_cached("SELECT record FROM transfers WHERE id >= ?1 AND id < ?1 || 'g' LIMIT 2")?;
        let mut rows = finding.query([&id])?;
        let Some(first) = rows.next()? else { return Ok(Found::None) };
        let first = record(first)?;
        Ok(if rows.next()?.is_some() { Found::Several } else { Found::One(Box::new(first)) })
    }

    /// The latest transfers, the latest first.
    pub fn latest(&self, limit: usize) -> Result<Vec<TransferRecord>, StoreError> {
        let mut asking =
            self.0.prepare_cached("SELECT record FROM transfers ORDER BY number DESC LIMIT ?1")?;
        let mut rows = asking.query([i64::try_from(limit).unwrap_or(i64::MAX)])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(record(row)?);
        }
        Ok(found)
    }

    /// Whose turn it is of those that may begin now, milliseconds since 1970: the highest priority, then the first that came.
    pub fn next(&self, now_ms: u64) -> Result<Option<TransferRecord>, StoreError> {
        let mut asking = self.0.prepare_cached(
            "SELECT record FROM transfers WHERE state = 'queued' AND (not_before_ms IS NULL OR not_before_ms <= ?1)
             ORDER BY priority DESC, number LIMIT 1",
        )?;
        let text: Option<String> = asking.query_row([signed(now_ms)], |row| row.get(0)).optional()?;
        Ok(text.map(|text: String| serde_json::from_str(&text)).transpose()?)
    }

    /// How many are not over.
    pub fn count_open(&self) -> Result<u64, StoreError> {
        let count: i64 =
            self.0
                .query_row("SELECT count(*) FROM transfers WHERE ended_ms IS NULL", [], |row| row.get(0))?;
        Ok(count.unsigned_abs())
    }

    /// Those that were running when somebody else ended.
    pub fn left_running(&self) -> Result<Vec<Left>, StoreError> {
        let mut asking =
            self.0.prepare("SELECT record, process, wish FROM transfers WHERE state = ?1 ORDER BY number")?;
        let mut rows = asking.query([TransferState::Running.to_string()])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(Left { record: record(row)?, process: row.get(1)?, wish: row.get(2)? });
        }
        Ok(found)
    }

    /// Forgets what was over before then, milliseconds since 1970; how many that were.
    pub fn forget_before(&self, moment_ms: u64) -> Result<usize, StoreError> {
        Ok(self.0.execute("DELETE FROM transfers WHERE ended_ms < ?1", [signed(moment_ms)])?)
    }
}

fn record(row: &Row<'_>) -> Result<TransferRecord, StoreError> {
    let record: TransferRecord = serde_json::from_str(&row.get::<_, String>(0)?)?;
    if record.version > RECORD_VERSION { Err(StoreError::Later(record.version.into())) } else { Ok(record) }
}

fn signed(moment_ms: u64) -> i64 {
    i64::try_from(moment_ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use carrack_cluster::records::{Options, Submission, Tally};

    use super::*;

    pub fn sample(id: &str, priority: u8) -> TransferRecord {
        TransferRecord {
            version: RECORD_VERSION,
            id: id.into(),
            submission: Submission {
                source: "local:/a".parse().unwrap(),
                destination: "local:/b".parse().unwrap(),
                options: Options::default(),
                priority,
                label: String::new(),
                not_before_ms: None,
                umask: None,
            },
            user: "alice".into(),
            state: TransferState::Queued,
            submitted_ms: 1,
            started_ms: None,
            ended_ms: None,
            leg: None,
            resumes: false,
            tally: Tally::default(),
            failures: Vec::new(),
            skipped: Vec::new(),
            losses: Vec::new(),
            reason: String::new(),
            waits_for: String::new(),
            manager: String::new(),
        }
    }

    #[test]
    fn what_was_added_is_there_when_it_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("queue.db");
        let (one, two) = (sample("00000000000000a1", 5), sample("00000000000000a2", 5));
        let store = Store::open(&path).unwrap();
        store.add(&one).unwrap();
        store.add(&two).unwrap();
        assert!(store.add(&one).is_err(), "an id is used once");
        drop(store);
        let store = Store::open(&path).unwrap();
        assert_eq!(store.find("00000000000000A1").unwrap(), Found::One(Box::new(one.clone())));
        assert_eq!(store.find("00000000").unwrap(), Found::Several);
        for nothing in ["", "1", "%", "00000000000000a1a", "\u{e9}"] {
            assert_eq!(store.find(nothing).unwrap(), Found::None, "{nothing}");
        }
        assert_eq!(store.latest(9).unwrap(), [two.clone(), one]);
        assert_eq!(store.latest(1).unwrap(), [two]);
    }

    #[test]
    fn turns_go_by_priority_and_then_by_age() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("queue.db")).unwrap();
        for (id, priority) in [("1", 5), ("2", 9), ("3", 9), ("4", 0)] {
            store.add(&sample(id, priority)).unwrap();
        }
        let mut turns = Vec::new();
        while let Some(mut next) = store.next(0).unwrap() {
            turns.push(next.id.clone());
            next.state = TransferState::Running;
            store.put(&next).unwrap();
        }
        assert_eq!(turns, ["2", "3", "1", "4"]);
        assert_eq!((store.left_running().unwrap().len(), store.count_open().unwrap()), (4, 4));
    }

    #[test]
    fn nothing_begins_before_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("queue.db")).unwrap();
        let mut urgent = sample("1", 9);
        urgent.submission.not_before_ms = Some(100);
        store.add(&urgent).unwrap();
        store.add(&sample("2", 0)).unwrap();
        let next = |now_ms| store.next(now_ms).unwrap().map(|record| record.id);
        assert_eq!((next(99).as_deref(), next(100).as_deref()), (Some("2"), Some("1")));
    }

    #[test]
    fn a_store_without_start_times_gets_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("queue.db");
        let store = Store::open(&path).unwrap();
        store.add(&sample("1", 5)).unwrap();
        let back = "ALTER TABLE transfers DROP COLUMN not_before_ms; PRAGMA user_version = 1;";
        store.0.execute_batch(back).unwrap();
        drop(store);
        let store = Store::open(&path).unwrap();
        assert_eq!(store.next(0).unwrap().unwrap().id, "1");
        assert_eq!(
            store.0.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).unwrap(),
            LAYOUT
        );
    }

    #[test]
    fn a_process_and_a_wish_belong_to_what_runs() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("queue.db")).unwrap();
        let mut record = sample("1", 5);
        record.state = TransferState::Running;
        store.add(&record).unwrap();
        store.set_process("1", "p").unwrap();
        store.set_wish("1", Some("pause")).unwrap();
        store.put(&record).unwrap();
        let left = store.left_running().unwrap().pop().unwrap();
        assert_eq!((left.process.as_deref(), left.wish.as_deref()), (Some("p"), Some("pause")));
        record.state = TransferState::Queued;
        store.put(&record).unwrap();
        record.state = TransferState::Running;
        store.put(&record).unwrap();
        let left = store.left_running().unwrap().pop().unwrap();
        assert_eq!((left.process, left.wish), (None, None));
    }

    #[test]
    fn history_ends_and_what_is_open_stays() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("queue.db")).unwrap();
        for (id, ended_ms) in [("1", Some(10)), ("2", Some(20)), ("3", None)] {
            store.add(&TransferRecord { ended_ms, ..sample(id, 5) }).unwrap();
        }
        assert_eq!(store.forget_before(20).unwrap(), 1);
        let kept: Vec<String> = store.latest(9).unwrap().into_iter().map(|transfer| transfer.id).collect();
        assert_eq!(kept, ["3", "2"]);
    }

    #[test]
    fn a_later_layout_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("queue.db");
        Store::open(&path).unwrap().0.pragma_update(None, "user_version", 3).unwrap();
        assert!(matches!(Store::open(&path), Err(StoreError::Later(3))));
    }
}

//! The queue's store: one SQLite file. A row's `record` is authoritative; the other columns are for queries.
//!
//! WAL with `synchronous=FULL`: a transfer whose submission was acknowledged survives the loss of power.

use std::path::Path;

use carrack_register::transfer_records::{OPTIONS_VERSION, TransferRecord};
use rusqlite::{Connection, Row, params};

/// Version of the tables (`user_version`).
const LAYOUT: i64 = 3;

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
    not_before_ms INTEGER,
    user TEXT NOT NULL,
    submitted_ms INTEGER NOT NULL,
    deadline_ms INTEGER
) STRICT;
";

/// Indexes that answer frequent queries alone.
const INDEXES: &str = "
CREATE INDEX transfers_waiting ON transfers (user, priority, submitted_ms, deadline_ms, not_before_ms, id)
    WHERE state = 'queued';
CREATE INDEX transfers_running ON transfers (number) WHERE state = 'running';
CREATE INDEX transfers_by_end ON transfers (ended_ms);
";

/// From layout 1, which had no start times.
const FROM_LAYOUT_1: &str = "ALTER TABLE transfers ADD COLUMN not_before_ms INTEGER;";

/// From layout 2, in which turns went by priority and age alone.
const FROM_LAYOUT_2: &str = "
DROP INDEX transfers_by_turn;
ALTER TABLE transfers ADD COLUMN user TEXT NOT NULL DEFAULT '';
ALTER TABLE transfers ADD COLUMN submitted_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE transfers ADD COLUMN deadline_ms INTEGER;
UPDATE transfers SET user = record ->> '$.user', submitted_ms = record ->> '$.submitted_ms',
    deadline_ms = record ->> '$.submission.options.deadline_ms';
";

const WAITING: &str = "
SELECT id, user, priority, submitted_ms, deadline_ms, not_before_ms FROM transfers
    WHERE state = 'queued' AND (not_before_ms IS NULL OR not_before_ms <= ?1)";

const COUNT_OPEN: &str = "SELECT count(*) FROM transfers WHERE ended_ms IS NULL";

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum QueueStoreError {
    /// SQLite's error.
    #[error("the queue's store: {0}")]
    Sql(#[from] rusqlite::Error),
    /// An unreadable record.
    #[error("a record in the queue's store: {0}")]
    Record(#[from] serde_json::Error),
    /// A store of a later carrack.
    #[error("the queue's store is of a later carrack (layout {0})")]
    Later(i64),
}

/// The result of a search by an ID or its prefix.
#[derive(Debug, PartialEq)]
pub enum TransferSearchResult {
    /// No transfer.
    None,
    /// A single transfer.
    One(Box<TransferRecord>),
    /// Several transfers with this prefix.
    Several,
}

/// A transfer that waits for its turn, with the columns that its turn depends on.
#[derive(Debug, PartialEq)]
pub struct QueuedTransfer {
    /// Its ID.
    pub id: String,
    /// Its user.
    pub user: String,
    /// 0 to 9.
    pub priority: u8,
    /// Time of its submission, milliseconds since 1970.
    pub submitted_ms: u64,
    /// Deadline, milliseconds since 1970.
    pub deadline_ms: Option<u64>,
    /// Earliest start, milliseconds since 1970.
    pub not_before_ms: Option<u64>,
}

/// A transfer that was running when the queue ended.
#[derive(Debug)]
pub struct InterruptedTransfer {
    /// Its last record.
    pub record: TransferRecord,
    /// Name of the process that carried it out.
    pub process: Option<String>,
    /// The order of its user.
    pub wish: Option<String>,
}

/// The open store.
#[derive(Debug)]
pub struct QueueStore(Connection);

impl QueueStore {
    /// Opens the file, or creates it.
    pub fn open(path: &Path) -> Result<QueueStore, QueueStoreError> {
        let db = Connection::open(path)?;
        db.pragma_update(None, "journal_mode", "wal")?;
        db.pragma_update(None, "synchronous", "full")?;
        let layout: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let changes = match layout {
            0 => [TABLES, ""],
            1 => [FROM_LAYOUT_1, FROM_LAYOUT_2],
            2 => [FROM_LAYOUT_2, ""],
            LAYOUT => return Ok(QueueStore(db)),
            later => return Err(QueueStoreError::Later(later)),
        };
        let changes = changes.concat();
        db.execute_batch(&format!("BEGIN; {changes} {INDEXES} PRAGMA user_version = {LAYOUT}; COMMIT;"))?;
        Ok(QueueStore(db))
    }

    /// Adds a transfer.
    pub fn add(&self, record: &TransferRecord) -> Result<(), QueueStoreError> {
        let mut adding = self.0.prepare_cached(
            "INSERT INTO transfers (id, state, priority, ended_ms, record, not_before_ms, user, submitted_ms, deadline_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?;
        adding.execute(params![
            record.id,
            record.state.to_string(),
            record.submission.priority,
            record.ended_ms.map(signed),
            serde_json::to_string(record)?,
            record.submission.not_before_ms.map(signed),
            record.user,
            signed(record.submitted_ms),
            record.submission.options.deadline_ms().map(signed)
        ])?;
        Ok(())
    }

    /// Replaces a transfer's record. A transfer that does not run has neither process nor wish.
    pub fn put(&self, record: &TransferRecord) -> Result<(), QueueStoreError> {
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

    /// Records the process that carries a transfer out.
    pub fn set_process(&self, id: &str, process: &str) -> Result<(), QueueStoreError> {
        self.0.execute("UPDATE transfers SET process = ?2 WHERE id = ?1", params![id, process])?;
        Ok(())
    }

    /// Records the order of a running transfer's user.
    pub fn set_wish(&self, id: &str, wish: Option<&str>) -> Result<(), QueueStoreError> {
        self.0.execute("UPDATE transfers SET wish = ?2 WHERE id = ?1", params![id, wish])?;
        Ok(())
    }

    /// Returns the transfer with this ID, or the only transfer whose ID begins so.
    pub fn find(&self, id: &str) -> Result<TransferSearchResult, QueueStoreError> {
        if id.is_empty() || id.len() > 16 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(TransferSearchResult::None);
        }
        let id = id.to_ascii_lowercase();
        // In ASCII 'g' follows 'f'.
        let mut finding = self
            .0
            .prepare_cached("SELECT record FROM transfers WHERE id >= ?1 AND id < ?1 || 'g' LIMIT 2")?;
        let mut rows = finding.query([&id])?;
        let Some(first) = rows.next()? else { return Ok(TransferSearchResult::None) };
        let first = record(first)?;
        Ok(if rows.next()?.is_some() {
            TransferSearchResult::Several
        } else {
            TransferSearchResult::One(Box::new(first))
        })
    }

    /// Returns the latest transfers, the latest first. With `after`: those submitted before that transfer,
    /// none if it is unknown.
    pub fn latest(&self, limit: usize, after: Option<&str>) -> Result<Vec<TransferRecord>, QueueStoreError> {
        let mut asking = self.0.prepare_cached(
            "SELECT record FROM transfers WHERE ?2 IS NULL OR number < (SELECT number FROM transfers WHERE id = ?2)
             ORDER BY number DESC LIMIT ?1",
        )?;
        let mut rows = asking.query(params![i64::try_from(limit).unwrap_or(i64::MAX), after])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(record(row)?);
        }
        Ok(found)
    }

    /// Returns the transfer with this ID.
    pub fn get(&self, id: &str) -> Result<Option<TransferRecord>, QueueStoreError> {
        let mut asking = self.0.prepare_cached("SELECT record FROM transfers WHERE id = ?1")?;
        let mut rows = asking.query([id])?;
        rows.next()?.map(record).transpose()
    }

    /// Returns the transfers that may begin now (milliseconds since 1970), in no order.
    pub fn due_transfers(&self, now_ms: u64) -> Result<Vec<QueuedTransfer>, QueueStoreError> {
        let mut asking = self.0.prepare_cached(WAITING)?;
        let rows = asking.query_map([signed(now_ms)], |row| {
            Ok(QueuedTransfer {
                id: row.get(0)?,
                user: row.get(1)?,
                priority: row.get(2)?,
                submitted_ms: moment(row, 3)?.unwrap_or(0),
                deadline_ms: moment(row, 4)?,
                not_before_ms: moment(row, 5)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Returns the number of transfers that are not over.
    pub fn count_open(&self) -> Result<u64, QueueStoreError> {
        let count: i64 = self.0.prepare_cached(COUNT_OPEN)?.query_row([], |row| row.get(0))?;
        Ok(count.unsigned_abs())
    }

    /// Returns the transfers that were running when an earlier queue ended.
    pub fn interrupted_transfers(&self) -> Result<Vec<InterruptedTransfer>, QueueStoreError> {
        let mut asking = self
            .0
            .prepare("SELECT record, process, wish FROM transfers WHERE state = 'running' ORDER BY number")?;
        let mut rows = asking.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(InterruptedTransfer { record: record(row)?, process: row.get(1)?, wish: row.get(2)? });
        }
        Ok(found)
    }

    /// Removes the transfers that were over before this time (milliseconds since 1970); returns their number.
    pub fn forget_before(&self, moment_ms: u64) -> Result<usize, QueueStoreError> {
        Ok(self.0.execute("DELETE FROM transfers WHERE ended_ms < ?1", [signed(moment_ms)])?)
    }
}

fn record(row: &Row<'_>) -> Result<TransferRecord, QueueStoreError> {
    let record: TransferRecord = serde_json::from_str(&row.get::<_, String>(0)?)?;
    if record.version > OPTIONS_VERSION {
        Err(QueueStoreError::Later(record.version.into()))
    } else {
        Ok(record)
    }
}

fn moment(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(i64::unsigned_abs))
}

fn signed(moment_ms: u64) -> i64 {
    i64::try_from(moment_ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use carrack_register::transfer_records::{TransferOptions, TransferState, TransferSubmission};

    use super::*;

    pub fn sample(id: &str, priority: u8) -> TransferRecord {
        let submission = TransferSubmission {
            source: "local:/a".parse().unwrap(),
            destination: "local:/b".parse().unwrap(),
            options: TransferOptions::default(),
            priority,
            label: String::new(),
            not_before_ms: None,
            umask: None,
        };
        TransferRecord::queued(id.into(), "alice", submission, 1)
    }

    #[test]
    fn what_was_added_is_there_when_it_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("queue.db");
        let (one, two) = (sample("00000000000000a1", 5), sample("00000000000000a2", 5));
        let store = QueueStore::open(&path).unwrap();
        store.add(&one).unwrap();
        store.add(&two).unwrap();
        assert!(store.add(&one).is_err(), "an id is used once");
        drop(store);
        let store = QueueStore::open(&path).unwrap();
        assert_eq!(store.find("00000000000000A1").unwrap(), TransferSearchResult::One(Box::new(one.clone())));
        assert_eq!(store.find("00000000").unwrap(), TransferSearchResult::Several);
        for nothing in ["", "1", "%", "00000000000000a1a", "\u{e9}"] {
            assert_eq!(store.find(nothing).unwrap(), TransferSearchResult::None, "{nothing}");
        }
        assert_eq!(store.latest(9, None).unwrap(), [two.clone(), one.clone()]);
        assert_eq!(store.latest(1, None).unwrap(), std::slice::from_ref(&two));
        assert_eq!(store.latest(9, Some(&two.id)).unwrap(), std::slice::from_ref(&one));
        assert_eq!(store.latest(9, Some(&one.id)).unwrap(), []);
        assert_eq!(store.latest(9, Some("nobody")).unwrap(), []);
    }

    fn waiting(store: &QueueStore, now_ms: u64) -> Vec<QueuedTransfer> {
        let mut waiting = store.due_transfers(now_ms).unwrap();
        waiting.sort_by(|a, b| a.id.cmp(&b.id));
        waiting
    }

    fn waits(id: &str, priority: u8, deadline_ms: Option<u64>, not_before_ms: Option<u64>) -> QueuedTransfer {
        let (id, user) = (id.to_owned(), "alice".to_owned());
        QueuedTransfer { id, user, priority, submitted_ms: 1, deadline_ms, not_before_ms }
    }

    #[test]
    fn what_waits_and_may_begin_is_listed_with_what_its_turn_depends_on() {
        let dir = tempfile::tempdir().unwrap();
        let store = QueueStore::open(&dir.path().join("queue.db")).unwrap();
        let mut urgent = sample("1", 9);
        urgent.submission.not_before_ms = Some(100);
        urgent.submission.options = TransferOptions::default().with("deadline", "@1000");
        for record in [&urgent, &sample("2", 0), &sample("3", 5)] {
            store.add(record).unwrap();
        }
        store.put(&TransferRecord { state: TransferState::Running, ..sample("3", 5) }).unwrap();
        let (urgent, other) = (waits("1", 9, Some(1_000_000), Some(100)), waits("2", 0, None, None));
        assert_eq!(waiting(&store, 99), [waits("2", 0, None, None)]);
        assert_eq!(waiting(&store, 100), [urgent, other]);
        assert_eq!(store.get("3").unwrap().unwrap().state, TransferState::Running);
        assert_eq!((store.interrupted_transfers().unwrap().len(), store.count_open().unwrap()), (1, 3));
        assert!(store.get("4").unwrap().is_none());
    }

    /// As the tables of earlier layouts were.
    const BACK: [(i64, &str); 2] = [
        (
            2,
            "DROP INDEX transfers_waiting; DROP INDEX transfers_running; DROP INDEX transfers_by_end;
             ALTER TABLE transfers DROP COLUMN user; ALTER TABLE transfers DROP COLUMN submitted_ms;
             ALTER TABLE transfers DROP COLUMN deadline_ms;
             CREATE INDEX transfers_by_turn ON transfers (state, priority DESC, number);",
        ),
        (1, "ALTER TABLE transfers DROP COLUMN not_before_ms;"),
    ];

    #[test]
    fn a_store_of_an_earlier_layout_goes_over_to_this_one() {
        for back in [&BACK[..1], &BACK[..]] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("queue.db");
            let mut record = sample("1", 5);
            record.submission.options = TransferOptions::default().with("deadline_ms", 7);
            let store = QueueStore::open(&path).unwrap();
            store.add(&record).unwrap();
            let waiting = store.due_transfers(0).unwrap();
            for (layout, change) in back {
                store.0.execute_batch(change).unwrap();
                store.0.pragma_update(None, "user_version", layout).unwrap();
            }
            drop(store);
            let store = QueueStore::open(&path).unwrap();
            assert_eq!(store.due_transfers(0).unwrap(), waiting);
            assert_eq!((waiting[0].deadline_ms, &*waiting[0].user), (Some(7), "alice"));
            let layout = store.0.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
            assert_eq!(layout.unwrap(), LAYOUT);
        }
    }

    /// With 10,000 waiting transfers no record is read; a record is about ten times as long as the columns
    /// that a turn depends on.
    #[test]
    fn what_is_asked_often_is_answered_from_an_index() {
        let dir = tempfile::tempdir().unwrap();
        let store = QueueStore::open(&dir.path().join("queue.db")).unwrap();
        for (asked, index) in
            [(WAITING, "COVERING INDEX transfers_waiting"), (COUNT_OPEN, "COVERING INDEX transfers_by_end")]
        {
            let mut explaining = store.0.prepare(&format!("EXPLAIN QUERY PLAN {asked}")).unwrap();
            let parameters = explaining.parameter_count();
            let mut rows = explaining.query(rusqlite::params_from_iter(vec![1; parameters])).unwrap();
            let mut plan = String::new();
            while let Some(row) = rows.next().unwrap() {
                plan += &row.get::<_, String>(3).unwrap();
            }
            assert!(plan.contains(index), "{plan}");
        }
    }

    #[test]
    fn a_process_and_a_wish_belong_to_what_runs() {
        let dir = tempfile::tempdir().unwrap();
        let store = QueueStore::open(&dir.path().join("queue.db")).unwrap();
        let mut record = sample("1", 5);
        record.state = TransferState::Running;
        store.add(&record).unwrap();
        store.set_process("1", "p").unwrap();
        store.set_wish("1", Some("pause")).unwrap();
        store.put(&record).unwrap();
        let left = store.interrupted_transfers().unwrap().pop().unwrap();
        assert_eq!((left.process.as_deref(), left.wish.as_deref()), (Some("p"), Some("pause")));
        record.state = TransferState::Queued;
        store.put(&record).unwrap();
        record.state = TransferState::Running;
        store.put(&record).unwrap();
        let left = store.interrupted_transfers().unwrap().pop().unwrap();
        assert_eq!((left.process, left.wish), (None, None));
    }

    #[test]
    fn history_ends_and_what_is_open_stays() {
        let dir = tempfile::tempdir().unwrap();
        let store = QueueStore::open(&dir.path().join("queue.db")).unwrap();
        for (id, ended_ms) in [("1", Some(10)), ("2", Some(20)), ("3", None)] {
            store.add(&TransferRecord { ended_ms, ..sample(id, 5) }).unwrap();
        }
        assert_eq!(store.forget_before(20).unwrap(), 1);
        let kept: Vec<String> =
            store.latest(9, None).unwrap().into_iter().map(|transfer| transfer.id).collect();
        assert_eq!(kept, ["3", "2"]);
    }

    #[test]
    fn a_later_layout_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("queue.db");
        QueueStore::open(&path).unwrap().0.pragma_update(None, "user_version", LAYOUT + 1).unwrap();
        assert!(matches!(QueueStore::open(&path), Err(QueueStoreError::Later(_))));
    }
}

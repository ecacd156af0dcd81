//! Compaction: a new journal without joined ranges, dropped files and past sessions.
//!
//! The new journal is written next to the old one, synced, and renamed over it. Until the rename the old one
//! is complete and in place; a crash leaves at most the unfinished new one, which the next compaction
//! empties.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::appender::JournalAppender;
use super::batch::RecordKind;
use super::header::{self, JournalHeader, JournalNonce, JournalSubject};
use super::recovery::{JournalFindings, begin_of, number_of};
use super::scanner::{RawJournalRecord, RecordScanner};
use super::{JournalError, JournalWriterIdentity, RecordBatch};

/// Less garbage than this does not justify a compaction.
const GARBAGE_BYTES_MIN: u64 = 1 << 20;

/// Bytes of records in one write.
const WRITE_BYTES: usize = 1 << 20;

/// Returns true if compaction is possible and makes the journal much shorter.
pub(super) fn is_worthwhile(findings: &JournalFindings) -> bool {
    let garbage_bytes = findings.garbage_bytes;
    let is_much = garbage_bytes >= GARBAGE_BYTES_MIN && garbage_bytes > findings.statistics.journal_bytes / 2;
    is_much && is_possible(findings)
}

/// Returns false with soft sessions of this boot, as a compaction would lose which records end with the boot,
/// and if some records were not remembered.
pub(super) fn is_possible(findings: &JournalFindings) -> bool {
    !findings.has_soft && findings.statistics.forgotten_records == 0
}

/// Writes the header, the valid records of `old` and the session to the empty `new`, without a sync.
pub(super) fn write(
    old: &File,
    header: &JournalHeader,
    findings: &JournalFindings,
    session: &JournalWriterIdentity,
    key: JournalNonce,
    new: File,
) -> Result<JournalAppender, JournalError> {
    let out = start_journal(new, &header.about, key)?;
    let boot = session.boot;
    let mut compaction = JournalCompaction {
        out,
        batch: RecordBatch::new(),
        boot,
        counts: true,
        begun: BTreeMap::new(),
        findings,
    };
    let mut scanner = RecordScanner::new(old, header, findings.statistics.journal_bytes)?;
    while let Some(record) = scanner.next()? {
        compaction.process_record(&record)?;
    }
    compaction.finish(session)
}

/// Begins a journal in an empty file with its header.
pub(super) fn start_journal(
    new: File,
    about: &JournalSubject,
    key: JournalNonce,
) -> Result<JournalAppender, JournalError> {
    let bytes = header::encode(about, key)?;
    new.write_all_at(&bytes, 0).map_err(JournalError::doing("writing the journal's header"))?;
    Ok(JournalAppender::new(new, key, bytes.len() as u64))
}

struct JournalCompaction<'a> {
    out: JournalAppender,
    batch: RecordBatch,
    boot: [u8; 16],
    counts: bool,
    /// The tables of large files that are not in `partials`: they are completed or dropped later.
    begun: BTreeMap<u64, Vec<u8>>,
    findings: &'a JournalFindings,
}

impl JournalCompaction<'_> {
    fn process_record(&mut self, record: &RawJournalRecord<'_>) -> Result<(), JournalError> {
        match record.kind {
            RecordKind::Session => {
                let session = JournalWriterIdentity::decode(record.body);
                self.counts = session.is_some_and(|session| !session.soft || session.boot == self.boot);
            }
            RecordKind::Small if self.counts => self.batch.add_small(record.body),
            RecordKind::Begin => self.process_begin(record),
            RecordKind::Done if self.counts => {
                if let Some(table) = number_of(record.body).ok().and_then(|number| self.begun.remove(&number))
                {
                    self.batch.add_small(&table);
                }
            }
            RecordKind::Dropped => drop(number_of(record.body).ok().map(|number| self.begun.remove(&number))),
            RecordKind::Small
            | RecordKind::Held
            | RecordKind::Done
            | RecordKind::Mode
            | RecordKind::ModesRestored => {}
        }
        self.flush_if_at_least(WRITE_BYTES)
    }

    fn process_begin(&mut self, record: &RawJournalRecord<'_>) {
        let Ok((number, temporary, table)) = begin_of(record.body) else { return };
        if self.findings.begin_offsets.binary_search(&record.offset).is_ok() {
            self.batch.add_begin(number, table, temporary);
        } else {
            self.begun.insert(number, table.to_vec());
        }
    }

    fn finish(mut self, session: &JournalWriterIdentity) -> Result<JournalAppender, JournalError> {
        for partial in &self.findings.partials {
            if partial.held.run_count() == 0 && partial.subtrees.is_empty() {
                continue;
            }
            self.batch.add_held_ranges(partial.number, partial.held.iter(), &partial.subtrees);
            self.flush_if_at_least(WRITE_BYTES)?;
        }
        for (path, &mode) in &self.findings.changed_modes {
            self.batch.add_mode(path, mode);
            self.flush_if_at_least(WRITE_BYTES)?;
        }
        self.batch.add_session(session);
        self.flush_if_at_least(0)?;
        Ok(self.out)
    }

    fn flush_if_at_least(&mut self, bytes: usize) -> Result<(), JournalError> {
        if self.batch.len_bytes() >= bytes {
            self.out.append(&self.batch, false)?;
            self.batch.clear();
        }
        Ok(())
    }
}

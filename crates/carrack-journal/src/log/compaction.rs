//! A journal without what no longer matters: ranges that were joined, files that were dropped, sessions of the past.
//!
//! The new one is written beside the old one, synced, and takes its name in one step. Until then the old one is whole and
//! in place, and a crash leaves at most the unfinished new one, which the next one empties.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::appender::Appender;
use super::batch::Kind;
use super::header::{self, About, Header, Key};
use super::recovery::{Findings, Partial, begin_of, number_of};
use super::scanner::{Record, Scanner};
use super::{Batch, JournalError, SessionInfo};

/// Garbage below this is not worth the trouble.
const GARBAGE_BYTES_MIN: u64 = 1 << 20;

/// Bytes of records that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// Whether the journal would become much shorter, see [`is_possible`].
pub(super) fn is_worthwhile(findings: &Findings) -> bool {
    let garbage_bytes = findings.garbage_bytes;
    let is_much = garbage_bytes >= GARBAGE_BYTES_MIN && garbage_bytes > findings.statistics.journal_bytes / 2;
    is_much && is_possible(findings)
}

/// Not with soft sessions of this boot, as it would be lost which records end with it; nor where not everything was
/// remembered.
pub(super) fn is_possible(findings: &Findings) -> bool {
    !findings.has_soft && findings.statistics.forgotten_records == 0
}

/// Writes the header and what counts of `old` to the empty `new`, and the session; it is not synced.
pub(super) fn write(
    old: &File,
    header: &Header,
    findings: &Findings,
    session: &SessionInfo,
    key: Key,
    new: File,
) -> Result<Appender, JournalError> {
    let out = begin(new, &header.about, key)?;
    let boot = session.boot;
    let mut compaction =
        Compaction { out, batch: Batch::new(), boot, counts: true, begun: BTreeMap::new(), findings };
    let mut scanner = Scanner::new(old, header, findings.statistics.journal_bytes)?;
    while let Some(record) = scanner.next()? {
        compaction.record(&record)?;
    }
    compaction.finish(session)
}

/// A journal of a header, in an empty file.
pub(super) fn begin(new: File, about: &About, key: Key) -> Result<Appender, JournalError> {
    let bytes = header::encode(about, key)?;
    new.write_all_at(&bytes, 0).map_err(JournalError::doing("writing the journal's header"))?;
    Ok(Appender::new(new, key, bytes.len() as u64))
}

struct Compaction<'a> {
    out: Appender,
    batch: Batch,
    boot: [u8; 16],
    counts: bool,
    /// The tables of large files that are not among the partial ones: they are complete or dropped later.
    begun: BTreeMap<u64, Vec<u8>>,
    findings: &'a Findings,
}

impl Compaction<'_> {
    fn record(&mut self, record: &Record<'_>) -> Result<(), JournalError> {
        match record.kind {
            Kind::Session => {
                let session = SessionInfo::decode(record.body);
                self.counts = session.is_some_and(|session| !session.soft || session.boot == self.boot);
            }
            Kind::Small if self.counts => self.batch.small(record.body),
            Kind::Begin => self.begin(record),
            Kind::Done if self.counts => {
                if let Some(table) = number_of(record.body).ok().and_then(|number| self.begun.remove(&number))
                {
                    self.batch.small(&table);
                }
            }
            Kind::Dropped => drop(number_of(record.body).ok().map(|number| self.begun.remove(&number))),
            Kind::Small | Kind::Held | Kind::Done | Kind::Mode | Kind::ModesRestored => {}
        }
        self.write_if(WRITE_BYTES)
    }

    fn begin(&mut self, record: &Record<'_>) {
        let Ok((number, temporary, table)) = begin_of(record.body) else { return };
        if self.findings.begin_offsets.binary_search(&record.offset).is_ok() {
            self.batch.begin(number, table, temporary);
        } else {
            self.begun.insert(number, table.to_vec());
        }
    }

    fn finish(mut self, session: &SessionInfo) -> Result<Appender, JournalError> {
        let says_something =
            |partial: &&Partial| partial.held.run_count() > 0 || !partial.subtrees.is_empty();
        for partial in self.findings.partials.iter().filter(says_something) {
            self.batch.held(partial.number, partial.held.iter(), &partial.subtrees);
            self.write_if(WRITE_BYTES)?;
        }
        for (path, &mode) in &self.findings.changed_modes {
            self.batch.mode(path, mode);
            self.write_if(WRITE_BYTES)?;
        }
        self.batch.session(session);
        self.write_if(0)?;
        Ok(self.out)
    }

    fn write_if(&mut self, bytes: usize) -> Result<(), JournalError> {
        if self.batch.len_bytes() >= bytes {
            self.out.append(&self.batch, false)?;
            self.batch.clear();
        }
        Ok(())
    }
}

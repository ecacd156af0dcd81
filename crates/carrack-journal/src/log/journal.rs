//! A transfer's journal in use.
//!
//! Owns the open, locked file. Any thread appends; one write at a time. The caller makes data durable before
//! it appends their records.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use carrack_model::TransferId;
use rustix::rand::{GetRandomFlags, getrandom};

use super::appender::JournalAppender;
use super::header::{self, JournalHeader, JournalNonce, JournalSubject};
use super::index::JournalIndexBuilder;
use super::location::{JournalLocation, LockedFile, is_locked};
use super::recovery::{self, JournalFindings, JournalStatistics, PartialFile, RecoveredJournal};
use super::scanner::RecordScanner;
use super::{JournalError, JournalWriterIdentity, RecordBatch, compaction};

/// The journal of one transfer, held by this process alone.
#[derive(Debug)]
pub struct Journal {
    place: JournalLocation,
    is_locked: bool,
    end: Mutex<JournalAppender>,
    next_number: AtomicU64,
}

/// The contents of a journal for a reader.
#[derive(Clone, Debug)]
pub struct JournalContents {
    /// The transfer.
    pub about: JournalSubject,
    /// Counts.
    pub statistics: JournalStatistics,
    /// Unfinished files, by number.
    pub partials: Vec<PartialFile>,
    /// The last session that wrote.
    pub last_session: Option<JournalWriterIdentity>,
    /// True if a process holds the journal.
    pub is_in_use: bool,
}

/// Returns the transfer of a journal in `directory`; `None` without a journal. Takes no lock.
///
/// # Errors
/// [`JournalError::NotAJournal`], [`JournalError::Newer`], [`JournalError::DamagedHeader`], or a read error.
pub fn peek(directory: BorrowedFd<'_>, id: TransferId) -> Result<Option<JournalSubject>, JournalError> {
    match JournalLocation::new(directory, id)?.open() {
        Err(JournalError::Missing) => Ok(None),
        file => header_of(&file?, id).map(|header| Some(header.about)),
    }
}

/// Reads a transfer's journal in `boot` (see [`super::boot_id`]). Takes no lock and changes nothing; a
/// process may be writing to the journal.
///
/// # Errors
/// [`JournalError::Missing`], and those of [`peek`].
pub fn inspect(
    directory: BorrowedFd<'_>,
    id: TransferId,
    boot: [u8; 16],
) -> Result<JournalContents, JournalError> {
    let file = JournalLocation::new(directory, id)?.open()?;
    let header = header_of(&file, id)?;
    let is_in_use = is_locked(&file);
    let (mut findings, _) =
        recovery::recover(RecordScanner::new(&file, &header, u64::MAX)?, &header, boot, None)?;
    count_cut(&file, &mut findings)?;
    Ok(contents(header, findings, is_in_use))
}

/// Removes a transfer's damaged journal from `directory`.
///
/// # Errors
/// A system error.
pub fn remove_damaged(directory: BorrowedFd<'_>, id: TransferId) -> Result<(), JournalError> {
    JournalLocation::new(directory, id)?.remove_damaged()
}

/// Removes the journal that a process had begun to create in `directory` when it ended, if there is one, and
/// no process goes on with it. A failure is ignored: the name has no use.
pub fn remove_unfinished(directory: BorrowedFd<'_>, id: TransferId) {
    if let Ok(place) = JournalLocation::new(directory, id) {
        place.remove_unfinished();
    }
}

fn recover_from(
    place: &JournalLocation,
    file: &File,
    header: &JournalHeader,
    boot: [u8; 16],
) -> Result<RecoveredJournal, JournalError> {
    let spill =
        place.directory.try_clone().map_err(JournalError::doing("opening the journal's directory"))?;
    recovery::recover_with_index(
        RecordScanner::new(file, header, u64::MAX)?,
        header,
        boot,
        JournalIndexBuilder::new(spill),
    )
}

impl Journal {
    /// Creates a journal. It is durable on return.
    ///
    /// # Errors
    /// [`JournalError::Exists`], [`JournalError::Busy`] if another process is creating it, or a system error.
    pub fn create(
        directory: BorrowedFd<'_>,
        about: &JournalSubject,
        session: &JournalWriterIdentity,
    ) -> Result<Journal, JournalError> {
        let place = JournalLocation::new(directory, about.id)?;
        let claimed = place.create_locked().map_err(|error| with_holder(&place, about.id, error))?;
        let LockedFile { file, is_locked } = claimed;
        let end = place.exists().and_then(|exists| match exists {
            true => Err(JournalError::Exists),
            false => write_new_journal(&place, file, about, session),
        });
        let end = end.inspect_err(|_| place.discard())?;
        // A transfer that does without the journal would leave it behind.
        place.sync().inspect_err(|_| drop(place.remove_damaged()))?;
        Ok(Journal { place, is_locked, end: Mutex::new(end), next_number: AtomicU64::new(1) })
    }

    /// Opens the journal of an earlier session: cuts off a torn end, compacts if that is worthwhile, and
    /// records this session.
    ///
    /// # Errors
    /// [`JournalError::Missing`], [`JournalError::Busy`], those of [`peek`], or a system error.
    pub fn open(
        directory: BorrowedFd<'_>,
        id: TransferId,
        session: &JournalWriterIdentity,
    ) -> Result<(Journal, RecoveredJournal), JournalError> {
        let opening = OpenedJournal::new(directory, id, session.boot)?;
        let is_worthwhile = compaction::is_worthwhile(&opening.recovered.findings);
        if is_worthwhile { opening.compact(session) } else { opening.append(session) }
    }

    /// Locks the journal of an earlier session for removal: appends fail.
    ///
    /// # Errors
    /// Those of [`Journal::open`].
    pub fn lock_for_removal(
        directory: BorrowedFd<'_>,
        id: TransferId,
        boot: [u8; 16],
    ) -> Result<(Journal, JournalContents), JournalError> {
        let OpenedJournal { place, file, is_locked, header, recovered } =
            OpenedJournal::new(directory, id, boot)?;
        let mut end = JournalAppender::new(file, header.key, recovered.findings.statistics.journal_bytes);
        end.poison();
        let findings = recovered.findings;
        let next_number = AtomicU64::new(findings.next_number);
        let journal = Journal { place, is_locked, end: Mutex::new(end), next_number };
        Ok((journal, contents(header, findings, false)))
    }

    /// The ID by which it is found.
    pub fn id(&self) -> TransferId {
        self.place.id()
    }

    /// Returns true if a lock keeps other processes out; false on file systems without locks.
    pub fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Appends the records with one write, and makes them durable if `sync` is set.
    ///
    /// # Errors
    /// A system error. After any error all appends fail: [`JournalError::Poisoned`].
    pub fn append(&self, batch: &RecordBatch, sync: bool) -> Result<(), JournalError> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).append(batch, sync)
    }

    /// Returns a new number for a large file, unique in this journal.
    pub fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Removes the journal of a complete transfer.
    ///
    /// # Errors
    /// A system error.
    pub fn remove(self) -> Result<(), JournalError> {
        self.place.remove()
    }
}

/// A locked journal whose records were read.
pub(super) struct OpenedJournal {
    place: JournalLocation,
    file: File,
    is_locked: bool,
    header: JournalHeader,
    recovered: RecoveredJournal,
}

impl OpenedJournal {
    pub(super) fn new(
        directory: BorrowedFd<'_>,
        id: TransferId,
        boot: [u8; 16],
    ) -> Result<OpenedJournal, JournalError> {
        let place = JournalLocation::new(directory, id)?;
        let LockedFile { file, is_locked } =
            place.open_locked().map_err(|error| with_holder(&place, id, error))?;
        let header = header_of(&file, id)?;
        let mut recovered = recover_from(&place, &file, &header, boot)?;
        if let Some(last) = recovered.last_session().filter(|last| !is_locked && is_another_process(last)) {
            return Err(JournalError::Busy(Some(Box::new(last.clone()))));
        }
        count_cut(&file, &mut recovered.findings)?;
        Ok(OpenedJournal { place, file, is_locked, header, recovered })
    }

    pub(super) fn findings(&self) -> &JournalFindings {
        &self.recovered.findings
    }

    /// Continues behind the last whole record.
    fn append(self, session: &JournalWriterIdentity) -> Result<(Journal, RecoveredJournal), JournalError> {
        let statistics = self.recovered.findings.statistics;
        if statistics.cut_bytes > 0 {
            // Synced before the next write: otherwise the torn end could reappear behind it.
            let doing = "cutting off the journal's torn end";
            self.file.set_len(statistics.journal_bytes).map_err(JournalError::doing(doing))?;
            self.file.sync_all().map_err(JournalError::doing(doing))?;
        }
        let mut end = JournalAppender::new(self.file, self.header.key, statistics.journal_bytes);
        let mut batch = RecordBatch::new();
        batch.add_session(session);
        end.append(&batch, true)?;
        Ok(assemble_journal(self.place, self.is_locked, end, self.recovered))
    }

    /// Continues in a compacted journal, or in the old one if that can't be written.
    pub(super) fn compact(
        self,
        session: &JournalWriterIdentity,
    ) -> Result<(Journal, RecoveredJournal), JournalError> {
        match self.write_compacted(session) {
            Ok(end) => {
                self.place.sync()?;
                Ok(assemble_journal(self.place, self.is_locked, end, self.recovered))
            }
            Err(_) => {
                self.place.discard();
                self.append(session)
            }
        }
    }

    /// Writes the compacted journal, which has the journal's name on success only.
    fn write_compacted(&self, session: &JournalWriterIdentity) -> Result<JournalAppender, JournalError> {
        let new = self.place.create_locked()?.file;
        let findings = &self.recovered.findings;
        let end = compaction::write(&self.file, &self.header, findings, session, random_key()?, new)?;
        self.place.install(end.file())?;
        Ok(end)
    }
}

fn assemble_journal(
    place: JournalLocation,
    is_locked: bool,
    end: JournalAppender,
    recovered: RecoveredJournal,
) -> (Journal, RecoveredJournal) {
    let next_number = AtomicU64::new(recovered.findings.next_number);
    (Journal { place, is_locked, end: Mutex::new(end), next_number }, recovered)
}

/// Returns true if another live process of this host wrote the session.
fn is_another_process(session: &JournalWriterIdentity) -> bool {
    session.pid != std::process::id() && session.is_alive() == Some(true)
}

/// Writes a journal's first bytes and renames it.
fn write_new_journal(
    place: &JournalLocation,
    file: File,
    about: &JournalSubject,
    session: &JournalWriterIdentity,
) -> Result<JournalAppender, JournalError> {
    let mut end = compaction::start_journal(file, about, random_key()?)?;
    let mut batch = RecordBatch::new();
    batch.add_session(session);
    end.append(&batch, false)?;
    place.install(end.file())?;
    Ok(end)
}

pub(super) fn header_of(file: &File, id: TransferId) -> Result<JournalHeader, JournalError> {
    let header = header::read(file)?;
    if header.about.id == id { Ok(header) } else { Err(JournalError::DamagedHeader) }
}

/// Counts the bytes behind the last whole record.
fn count_cut(file: &File, findings: &mut JournalFindings) -> Result<(), JournalError> {
    let len = file.metadata().map_err(JournalError::doing("looking at the journal"))?.len();
    findings.statistics.cut_bytes = len.saturating_sub(findings.statistics.journal_bytes);
    Ok(())
}

fn contents(header: JournalHeader, findings: JournalFindings, is_in_use: bool) -> JournalContents {
    let JournalFindings { statistics, partials, last_session, .. } = findings;
    JournalContents { about: header.about, statistics, partials, last_session, is_in_use }
}

/// Adds the last session to [`JournalError::Busy`].
fn with_holder(place: &JournalLocation, id: TransferId, error: JournalError) -> JournalError {
    match error {
        JournalError::Busy(None) => {
            let found = inspect(place.directory.as_fd(), id, [0; 16]).ok();
            JournalError::Busy(found.and_then(|contents| contents.last_session).map(Box::new))
        }
        error => error,
    }
}

fn random_key() -> Result<JournalNonce, JournalError> {
    let mut key = [0; 16];
    let doing = "asking for random bytes";
    let count = getrandom(&mut key, GetRandomFlags::empty()).map_err(JournalError::doing(doing))?;
    // Up to 256 bytes are returned at once (getrandom(2)).
    debug_assert_eq!(count, key.len());
    Ok(JournalNonce(key))
}

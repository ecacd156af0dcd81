//! A transfer's journal while it is in use.
//!
//! Owns the open, locked file. Any thread appends; one write at a time. Whoever appends has made durable before what the
//! records say.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use carrack_model::TransferId;
use rustix::rand::{GetRandomFlags, getrandom};

use super::appender::Appender;
use super::header::{self, About, Header, Key};
use super::index::IndexBuilder;
use super::place::{Claimed, Place, is_locked};
use super::recovery::{self, Findings, Partial, Recovered, Statistics};
use super::scanner::Scanner;
use super::{Batch, JournalError, SessionInfo, compaction};

/// The journal of one transfer, which this process has for itself.
#[derive(Debug)]
pub struct Journal {
    place: Place,
    is_locked: bool,
    end: Mutex<Appender>,
    next_number: AtomicU64,
}

/// What a journal says to whoever only looks.
#[derive(Clone, Debug)]
pub struct Contents {
    /// What it is about.
    pub about: About,
    /// Counts.
    pub statistics: Statistics,
    /// The files that were begun and not ended, by their numbers.
    pub partials: Vec<Partial>,
    /// Who wrote last.
    pub last_session: Option<SessionInfo>,
    /// Whether a process has it.
    pub is_in_use: bool,
}

/// What a transfer's journal in `directory` is about; nothing if there is none. Takes no lock.
///
/// # Errors
/// [`JournalError::NotAJournal`], [`JournalError::Newer`], [`JournalError::DamagedHeader`], or what reading says.
pub fn peek(directory: BorrowedFd<'_>, id: TransferId) -> Result<Option<About>, JournalError> {
    match Place::new(directory, id)?.open() {
        Err(JournalError::Missing) => Ok(None),
        file => header_of(&file?, id).map(|header| Some(header.about)),
    }
}

/// All that a transfer's journal says, in `boot` (see [`super::boot_id`]). Takes no lock and changes nothing; a process
/// may be writing to it.
///
/// # Errors
/// [`JournalError::Missing`], and those of [`peek`].
pub fn inspect(directory: BorrowedFd<'_>, id: TransferId, boot: [u8; 16]) -> Result<Contents, JournalError> {
    let file = Place::new(directory, id)?.open()?;
    let header = header_of(&file, id)?;
    let is_in_use = is_locked(&file);
    let (mut findings, _) = recovery::recover(Scanner::new(&file, &header, u64::MAX)?, &header, boot, None)?;
    count_cut(&file, &mut findings)?;
    Ok(contents(header, findings, is_in_use))
}

/// What a transfer's journal says up to now, as [`Journal::open`] finds it, in `boot` (see [`super::boot_id`]). Takes no lock and
/// changes nothing; a process may be writing to it.
///
/// # Errors
/// [`JournalError::Missing`], and those of [`peek`].
pub fn read(directory: BorrowedFd<'_>, id: TransferId, boot: [u8; 16]) -> Result<Recovered, JournalError> {
    let place = Place::new(directory, id)?;
    let file = place.open()?;
    let header = header_of(&file, id)?;
    recovered_from(&place, &file, &header, boot)
}

/// Takes a transfer's journal in `directory` out of the way, which is damaged: nothing can be read from it.
///
/// # Errors
/// What the system says.
pub fn set_aside(directory: BorrowedFd<'_>, id: TransferId) -> Result<(), JournalError> {
    Place::new(directory, id)?.set_aside()
}

fn recovered_from(
    place: &Place,
    file: &File,
    header: &Header,
    boot: [u8; 16],
) -> Result<Recovered, JournalError> {
    let spill =
        place.directory.try_clone().map_err(JournalError::doing("opening the journal's directory"))?;
    recovery::recovered(Scanner::new(file, header, u64::MAX)?, header, boot, IndexBuilder::new(spill))
}

impl Journal {
    /// Makes a journal. It is durable when this returns.
    ///
    /// # Errors
    /// [`JournalError::Exists`], [`JournalError::Busy`] if another process is making it, or what the system says.
    pub fn create(
        directory: BorrowedFd<'_>,
        about: &About,
        session: &SessionInfo,
    ) -> Result<Journal, JournalError> {
        let place = Place::new(directory, about.id)?;
        let claimed = place.begin().map_err(|error| with_holder(&place, about.id, error))?;
        let Claimed { file, is_locked } = claimed;
        let end =
            if place.exists()? { Err(JournalError::Exists) } else { fill(&place, file, about, session) };
        let end = end.inspect_err(|_| place.discard())?;
        place.sync()?;
        Ok(Journal { place, is_locked, end: Mutex::new(end), next_number: AtomicU64::new(1) })
    }

    /// Opens the journal of an earlier session: what is torn is cut off, what no longer matters is left out if that is
    /// worthwhile, and this session is recorded.
    ///
    /// # Errors
    /// [`JournalError::Missing`], [`JournalError::Busy`], those of [`peek`], or what the system says.
    pub fn open(
        directory: BorrowedFd<'_>,
        id: TransferId,
        session: &SessionInfo,
    ) -> Result<(Journal, Recovered), JournalError> {
        let opening = Opening::new(directory, id, session.boot)?;
        let is_worthwhile = compaction::is_worthwhile(&opening.recovered.findings);
        if is_worthwhile { opening.compact(session) } else { opening.append(session) }
    }

    /// Takes the journal of an earlier session to remove it: nothing can be appended.
    ///
    /// # Errors
    /// Those of [`Journal::open`].
    pub fn seize(
        directory: BorrowedFd<'_>,
        id: TransferId,
        boot: [u8; 16],
    ) -> Result<(Journal, Contents), JournalError> {
        let Opening { place, file, is_locked, header, recovered } = Opening::new(directory, id, boot)?;
        let mut end = Appender::new(file, header.key, recovered.findings.statistics.journal_bytes);
        end.poison();
        let findings = recovered.findings;
        let next_number = AtomicU64::new(findings.next_number);
        let journal = Journal { place, is_locked, end: Mutex::new(end), next_number };
        Ok((journal, contents(header, findings, false)))
    }

    /// Whether a lock keeps other processes away: not where the file system has none.
    pub fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Appends the records with one write, and with `sync` makes them durable.
    ///
    /// # Errors
    /// What the system says. After any error nothing can be appended any more: [`JournalError::Poisoned`].
    pub fn append(&self, batch: &Batch, sync: bool) -> Result<(), JournalError> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).append(batch, sync)
    }

    /// A number for a large file, which no other one in this journal has.
    pub fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Removes the journal: everything is done.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(self) -> Result<(), JournalError> {
        self.place.remove()
    }
}

/// A locked journal that was read.
pub(super) struct Opening {
    place: Place,
    file: File,
    is_locked: bool,
    header: Header,
    recovered: Recovered,
}

impl Opening {
    pub(super) fn new(
        directory: BorrowedFd<'_>,
        id: TransferId,
        boot: [u8; 16],
    ) -> Result<Opening, JournalError> {
        let place = Place::new(directory, id)?;
        let Claimed { file, is_locked } = place.claim().map_err(|error| with_holder(&place, id, error))?;
        let header = header_of(&file, id)?;
        let mut recovered = recovered_from(&place, &file, &header, boot)?;
        if let Some(last) = recovered.last_session().filter(|last| !is_locked && is_another_process(last)) {
            return Err(JournalError::Busy(Some(Box::new(last.clone()))));
        }
        count_cut(&file, &mut recovered.findings)?;
        Ok(Opening { place, file, is_locked, header, recovered })
    }

    pub(super) fn findings(&self) -> &Findings {
        &self.recovered.findings
    }

    /// Goes on behind the last whole record.
    fn append(self, session: &SessionInfo) -> Result<(Journal, Recovered), JournalError> {
        let statistics = self.recovered.findings.statistics;
        if statistics.cut_bytes > 0 {
            // Synced before something is written there: else what is cut off could come back behind it.
            let doing = "cutting off the journal's torn end";
            self.file.set_len(statistics.journal_bytes).map_err(JournalError::doing(doing))?;
            self.file.sync_all().map_err(JournalError::doing(doing))?;
        }
        let mut end = Appender::new(self.file, self.header.key, statistics.journal_bytes);
        let mut batch = Batch::new();
        batch.session(session);
        end.append(&batch, true)?;
        Ok(opened(self.place, self.is_locked, end, self.recovered))
    }

    /// Goes on in a shorter journal. If that can't be written, in this one.
    pub(super) fn compact(self, session: &SessionInfo) -> Result<(Journal, Recovered), JournalError> {
        match self.shortened(session) {
            Ok(end) => {
                self.place.sync()?;
                Ok(opened(self.place, self.is_locked, end, self.recovered))
            }
            Err(_) => {
                self.place.discard();
                self.append(session)
            }
        }
    }

    /// The shorter journal, which has the name by now; not if there is an error.
    fn shortened(&self, session: &SessionInfo) -> Result<Appender, JournalError> {
        let new = self.place.begin()?.file;
        let findings = &self.recovered.findings;
        let end = compaction::write(&self.file, &self.header, findings, session, random_key()?, new)?;
        self.place.install(end.file())?;
        Ok(end)
    }
}

fn opened(place: Place, is_locked: bool, end: Appender, recovered: Recovered) -> (Journal, Recovered) {
    let next_number = AtomicU64::new(recovered.findings.next_number);
    (Journal { place, is_locked, end: Mutex::new(end), next_number }, recovered)
}

/// Whether another process of this host wrote the session and lives.
fn is_another_process(session: &SessionInfo) -> bool {
    session.pid != std::process::id() && session.is_alive() == Some(true)
}

/// Writes a journal's first bytes and gives it its name.
fn fill(place: &Place, file: File, about: &About, session: &SessionInfo) -> Result<Appender, JournalError> {
    let mut end = compaction::begin(file, about, random_key()?)?;
    let mut batch = Batch::new();
    batch.session(session);
    end.append(&batch, false)?;
    place.install(end.file())?;
    Ok(end)
}

fn header_of(file: &File, id: TransferId) -> Result<Header, JournalError> {
    let header = header::read(file)?;
    if header.about.id == id { Ok(header) } else { Err(JournalError::DamagedHeader) }
}

/// Bytes behind the last whole record.
fn count_cut(file: &File, findings: &mut Findings) -> Result<(), JournalError> {
    let len = file.metadata().map_err(JournalError::doing("looking at the journal"))?.len();
    findings.statistics.cut_bytes = len.saturating_sub(findings.statistics.journal_bytes);
    Ok(())
}

fn contents(header: Header, findings: Findings, is_in_use: bool) -> Contents {
    let Findings { statistics, partials, last_session, .. } = findings;
    Contents { about: header.about, statistics, partials, last_session, is_in_use }
}

/// Adds to "busy" by whom.
fn with_holder(place: &Place, id: TransferId, error: JournalError) -> JournalError {
    match error {
        JournalError::Busy(None) => {
            let found = inspect(place.directory.as_fd(), id, [0; 16]).ok();
            JournalError::Busy(found.and_then(|contents| contents.last_session).map(Box::new))
        }
        error => error,
    }
}

fn random_key() -> Result<Key, JournalError> {
    let mut key = [0; 16];
    let doing = "asking for random bytes";
    let count = getrandom(&mut key, GetRandomFlags::empty()).map_err(JournalError::doing(doing))?;
    // Up to 256 bytes come at once (getrandom(2)).
    debug_assert_eq!(count, key.len());
    Ok(Key(key))
}

//! Access to a transfer's journal: its location, the search for an earlier session's, and the lock (L12).
//!
//! The journal is next to the destination: in its parent directory if the transfer creates the destination or
//! replaces a file, and in the destination itself if that is a directory that existed before. So a journal
//! also records the destination's first state: `cp -r src new` means the same when it is run again and `new`
//! exists by then.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use carrack_journal::{
    Journal, JournalError, JournalSubject, JournalWriterIdentity, RecoveredJournal, file_name, peek,
    remove_damaged, remove_unfinished,
};
use carrack_model::{Durability, RelPath, Timestamp, TransferId};
use carrack_storage::typed_path::parent;
use carrack_storage::{PathBase, PathPurpose, RootDirectory, preserve_times};
use rustix::process::{Pid, Signal, kill_process};

use super::destination_place::DestinationBaseDirectory;
use super::wait_heartbeats::WaitHeartbeatRecipients;
use crate::error::SessionError;
use crate::settings::{EndSettings, JournalSettings, TransferIdentity};
use crate::sink::SinkTransferJournal;

/// Attempts to create a journal while another run creates one.
const TRIES_MAX: u32 = 5;

/// The time that an earlier session of the same run, which has lost its other end, may take to end after the
/// signal.
const LAST_SESSION: Duration = Duration::from_secs(20);

/// The message to a user while the transfer waits.
const WAITING: &str = "waiting for the earlier session of this transfer, which has the journal, to end";

/// The access to a transfer's journal.
pub(crate) struct TransferJournalOpener {
    settings: JournalSettings,
    identity: TransferIdentity,
    /// The time that a session waits for an earlier session with the journal.
    patience: Duration,
    /// A damaged journal: its directory, and its path for messages.
    damaged: Option<(OwnedFd, String)>,
    /// The transfer continues without a journal.
    is_given_up: bool,
    /// Warnings for the user.
    warnings: Vec<String>,
}

/// The journal of an earlier session.
pub(crate) struct FoundJournal {
    directory: OwnedFd,
    /// For messages.
    path: String,
    about: JournalSubject,
}

/// An opened journal, with its records unless it is new, or the reason of a failure.
type JournalOpenResult = Result<(Journal, Option<RecoveredJournal>), JournalError>;

impl TransferJournalOpener {
    /// Returns `None` if no journal is kept.
    pub(crate) fn of(
        settings: &EndSettings,
        identity: Option<&TransferIdentity>,
    ) -> Option<TransferJournalOpener> {
        let patience = settings.stall;
        let settings = Some(&settings.journal).filter(|journal| journal.is_on)?;
        Some(TransferJournalOpener {
            settings: settings.clone(),
            identity: identity?.clone(),
            patience,
            damaged: None,
            is_given_up: false,
            warnings: Vec::new(),
        })
    }

    /// Looks for the journal of an earlier session with the destination `path`. Changes nothing.
    pub(crate) fn find(
        &mut self,
        base: &PathBase,
        path: &Path,
        is_directory: bool,
    ) -> Result<Option<FoundJournal>, SessionError> {
        if self.is_shared() {
            return Ok(None);
        }
        let beside = [Some(path).filter(|_| is_directory), Some(parent(path))].into_iter().flatten();
        let directories: Vec<PathBuf> = match &self.settings.directory {
            Some(directory) => vec![directory.clone()],
            None => beside.map(Path::to_path_buf).collect(),
        };
        for directory in directories {
            let path = self.path_in(&directory);
            let Ok(directory) = open(base, &directory) else { continue };
            match peek(directory.as_fd(), self.identity.id) {
                Ok(Some(about)) => return Ok(Some(FoundJournal { directory, path, about })),
                Ok(None) => {}
                Err(error) if error.is_damage() => self.damaged = Some((directory, path)),
                Err(error) => self.continue_without_journal(&path, error)?,
            }
        }
        Ok(None)
    }

    /// Opens the found journal, or creates one, before the destination is created. Returns `None` for a
    /// directory that may not be read (a drop box), where a later session could not find the journal, and if
    /// a journal is not possible.
    pub(crate) fn open_or_create_journal(
        &mut self,
        base: &PathBase,
        path: &Path,
        place: DestinationBaseDirectory,
        found: Option<&FoundJournal>,
        wait: &mut WaitHeartbeatRecipients<'_>,
    ) -> Result<Option<SinkTransferJournal>, SessionError> {
        if self.is_given_up {
            return Ok(None);
        }
        self.remove_unfinished(base, path, place);
        let session = self.writer_identity()?;
        if let Some(found) = found {
            let FoundJournal { directory, path, about } = found;
            match self.open_when_free(directory.as_fd(), path, about.id, &session, wait)? {
                Ok(opened) => return Ok(Some(self.wrap_opened_journal(opened, path.clone()))),
                // The earlier session was about to complete the transfer.
                Err(JournalError::Missing) => {}
                Err(error) if error.is_damage() => {
                    let held = directory.try_clone().map_err(SessionError::local("holding a directory"))?;
                    self.damaged = Some((held, path.clone()));
                }
                Err(error) => return self.continue_without_journal(path, error).map(|()| None),
            }
        }
        self.create_journal(base, path, place, &session, wait)
    }

    /// Removes the beginning of a journal that an earlier session has left where this one creates none:
    /// beside the destination, which did not exist then.
    fn remove_unfinished(&self, base: &PathBase, path: &Path, place: DestinationBaseDirectory) {
        let lies_elsewhere =
            self.settings.directory.is_none() && place == DestinationBaseDirectory::Destination;
        if let (true, Ok(directory)) = (lies_elsewhere, open(base, parent(path))) {
            remove_unfinished(directory.as_fd(), self.identity.id);
        }
    }

    /// Takes the warnings for the user.
    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Returns true if several sessions carry the transfer at the same time.
    pub(crate) fn is_shared(&self) -> bool {
        self.identity.is_shared
    }

    /// Creates the journal of this session, in the directory with the journals of the transfer's other
    /// sessions.
    pub(crate) fn create_shared_journal(
        &self,
        base: &PathBase,
        path: &Path,
        root: &RootDirectory,
    ) -> Result<SinkTransferJournal, SessionError> {
        let name = shared_journal_directory(self.identity.id);
        let shown = carrack_model::escape(path.join(&name).as_os_str().as_bytes());
        let relative = RelPath::new(name.as_bytes()).map_err(|_| SessionError::Internal)?;
        let held = root.open_directory(&RelPath::root()).map_err(unusable_journals(&shown))?;
        // Another session may have closed the transfer by now.
        let directory = preserve_times(held.as_fd(), || root.make_private_directory(&relative));
        let directory = directory.map_err(unusable_journals(&shown))?;
        let about = JournalSubject {
            id: TransferId(self.identity.run.0),
            ..self.journal_subject(base, path, DestinationBaseDirectory::Destination)
        };
        let journal = Journal::create(directory.as_fd(), &about, &self.writer_identity()?)
            .map_err(SessionError::journal(&shown))?;
        let tag = self.tag();
        Ok(SinkTransferJournal { journal, recovered: None, path: shown, tag, siblings: Some(directory) })
    }

    /// The tag of temporary names.
    fn tag(&self) -> u16 {
        let [a, b, ..] = self.identity.id.0;
        u16::from_be_bytes([a, b])
    }

    /// Returns the journal's path in `directory`, for messages.
    fn path_in(&self, directory: &Path) -> String {
        let path = directory.join(file_name(self.identity.id));
        carrack_model::escape(path.as_os_str().as_bytes())
    }

    fn writer_identity(&self) -> Result<JournalWriterIdentity, SessionError> {
        let soft = self.settings.durability == Durability::End;
        JournalWriterIdentity::of_this_process(self.identity.run, soft)
            .map_err(SessionError::local("asking who this process is"))
    }

    fn journal_subject(
        &self,
        base: &PathBase,
        path: &Path,
        place: DestinationBaseDirectory,
    ) -> JournalSubject {
        let root = if place == DestinationBaseDirectory::Parent { parent(path) } else { path };
        JournalSubject {
            id: self.identity.id,
            place: match place {
                DestinationBaseDirectory::Destination => 0,
                DestinationBaseDirectory::NewDestination => 1,
                DestinationBaseDirectory::Parent => 2,
            },
            sources: self.identity.sources.clone(),
            destination: self.identity.destination.clone(),
            root: absolute(base, root),
            software: env!("CARGO_PKG_VERSION").into(),
            created: now(),
        }
    }

    fn wrap_opened_journal(
        &mut self,
        (journal, recovered): (Journal, Option<RecoveredJournal>),
        path: String,
    ) -> SinkTransferJournal {
        if !journal.is_locked() {
            let warning = format!(
                "{path}: there are no file locks: don't run this transfer a second time while it runs"
            );
            self.warnings.push(warning);
        }
        SinkTransferJournal { journal, recovered, path, tag: self.tag(), siblings: None }
    }

    /// Continues without a journal that can't be used. If the user has named its directory, this is an error.
    fn continue_without_journal(&mut self, path: &str, error: JournalError) -> Result<(), SessionError> {
        if self.settings.directory.is_some() || !error.is_dispensable() {
            return Err(SessionError::journal(path)(error));
        }
        let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
        self.warnings.push(format!(
            "{path}: {error}; the transfer has no journal, and begins anew if it is interrupted{hint}"
        ));
        self.is_given_up = true;
        Ok(())
    }

    fn create_journal(
        &mut self,
        base: &PathBase,
        path: &Path,
        place: DestinationBaseDirectory,
        session: &JournalWriterIdentity,
        wait: &mut WaitHeartbeatRecipients<'_>,
    ) -> Result<Option<SinkTransferJournal>, SessionError> {
        if let Some((directory, path)) = self.damaged.take() {
            if let Err(error) = remove_damaged(directory.as_fd(), self.identity.id) {
                return self.continue_without_journal(&path, error).map(|()| None);
            }
            let warning = format!("{path}: the journal is damaged and was removed: the transfer begins anew");
            self.warnings.push(warning);
        }
        let beside = if place == DestinationBaseDirectory::Destination { path } else { parent(path) };
        let named = self.settings.directory.as_deref().unwrap_or(beside);
        let shown = self.path_in(named);
        let directory = match open(base, named) {
            Ok(directory) => directory,
            Err(error) if self.settings.directory.is_some() => return Err(unusable_directory(named, &error)),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(None),
            Err(source) => {
                let error = JournalError::Failed { doing: "opening the journal's directory", source };
                return self.continue_without_journal(&shown, error).map(|()| None);
            }
        };
        let about = self.journal_subject(base, path, place);
        let mut opened = Err(JournalError::Busy(None));
        for _ in 0..TRIES_MAX {
            // Durable before the destination is created, so that a later session knows that this transfer
            // created it.
            let created = Journal::create(directory.as_fd(), &about, session);
            opened = match created.map(|journal| (journal, None)) {
                // Another run creates or has created a journal in this moment.
                Err(JournalError::Exists | JournalError::Busy(_)) => {
                    let opened = self.open_when_free(directory.as_fd(), &shown, about.id, session, wait)?;
                    match peek(directory.as_fd(), about.id).ok().flatten() {
                        Some(other) if other.place == about.place => opened,
                        Some(_) => Err(JournalError::Busy(None)),
                        // That run has ended meanwhile.
                        None => continue,
                    }
                }
                created => created,
            };
            break;
        }
        match opened {
            Ok(opened) => Ok(Some(self.wrap_opened_journal(opened, shown))),
            Err(error) => self.continue_without_journal(&shown, error).map(|()| None),
        }
    }

    /// Opens a journal, and waits while another session has it. A session of the same run that has lost its
    /// other end gets a signal to end.
    fn open_when_free(
        &self,
        directory: BorrowedFd<'_>,
        path: &str,
        id: TransferId,
        session: &JournalWriterIdentity,
        wait: &mut WaitHeartbeatRecipients<'_>,
    ) -> Result<JournalOpenResult, SessionError> {
        let began = Instant::now();
        loop {
            let error = match Journal::open(directory, id, session) {
                Err(error @ JournalError::Busy(_)) => error,
                opened => return Ok(opened.map(|(journal, recovered)| (journal, Some(recovered)))),
            };
            let is_same_run = match &error {
                JournalError::Busy(Some(other)) if other.run == self.identity.run => {
                    end_process(other);
                    true
                }
                _ => false,
            };
            let patience = if is_same_run { LAST_SESSION } else { self.patience };
            if began.elapsed() >= patience {
                return Err(SessionError::journal(path)(error));
            }
            wait.pause(WAITING)?;
        }
    }
}

impl FoundJournal {
    /// Returns true if the transfer created the destination.
    pub(crate) fn made_destination(&self) -> bool {
        self.about.place == 1
    }
}

/// Returns the name of the directory in the destination for the journals of a transfer that several sessions
/// carry.
pub fn shared_journal_directory(id: TransferId) -> String {
    format!(".carrack-{id}.journals")
}

fn unusable_directory(named: &Path, error: &io::Error) -> SessionError {
    let shown = carrack_model::escape(named.as_os_str().as_bytes());
    let hint = "name a directory at the sink with --journal-dir, or do without with --no-journal";
    SessionError::refused(format!("the directory for the journal, {shown}, can't be used: {error}"), hint)
}

fn unusable_journals(shown: &str) -> impl Fn(io::Error) -> SessionError + '_ {
    move |error| {
        let hint =
            "several sessions carry the transfer, and each keeps a journal there: it has to be writable";
        SessionError::refused(
            format!("the directory for the journals, {shown}, can't be used: {error}"),
            hint,
        )
    }
}

fn open(base: &PathBase, path: &Path) -> io::Result<OwnedFd> {
    let root: RootDirectory = base.open(path, PathPurpose::Write)?;
    root.open_directory(&RelPath::root())
}

/// Returns the directory's path on this host, for messages; empty if it is unknown.
fn absolute(base: &PathBase, path: &Path) -> Vec<u8> {
    base.path_for_people(path).into_os_string().into_encoded_bytes()
}

fn end_process(session: &JournalWriterIdentity) {
    let is_other = session.pid != std::process::id();
    if session.is_alive() == Some(true)
        && is_other
        && let Some(pid) = i32::try_from(session.pid).ok().and_then(Pid::from_raw)
    {
        // The process may have ended, or belong to another user: then its end is waited for.
        let _ = kill_process(pid, Signal::TERM);
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
}

//! Where a transfer's journal lies, whether an earlier session left one, and whether somebody has it (L12).
//!
//! It lies beside the destination: in the directory that holds it if the transfer makes the destination or replaces a file, in the
//! destination itself if that is a directory that was there before. So a journal tells, too, how the destination stood at
//! first: `cp -r src new` means the same when it is run again and `new` exists by then.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use carrack_journal::{About, Journal, JournalError, Recovered, SessionInfo, file_name, peek};
use carrack_model::{Durability, RelPath, Timestamp, TransferId};
use carrack_storage::typed::parent;
use carrack_storage::{Base, Purpose, Root, keep_times, sync_directory};
use rustix::process::{Pid, Signal, kill_process};

use super::place::PlaceRoot;
use crate::error::SessionError;
use crate::settings::{JournalSettings, Settings, TransferIdentity};
use crate::sink::Records;

/// How long a session of the same run, which has lost its other end, may take to end when it is told to.
const LAST_SESSION: Duration = Duration::from_secs(20);

/// How a journal is kept; what the transfer is known by.
pub(crate) struct Keeping {
    settings: JournalSettings,
    identity: TransferIdentity,
}

/// The journal of an earlier session.
pub(crate) struct FoundJournal {
    directory: OwnedFd,
    /// For people.
    path: String,
    about: About,
}

impl Keeping {
    /// Nothing if no journal is kept.
    pub(crate) fn of(settings: &Settings, identity: Option<&TransferIdentity>) -> Option<Keeping> {
        let settings = Some(&settings.journal).filter(|journal| journal.is_on)?;
        Some(Keeping { settings: settings.clone(), identity: identity?.clone() })
    }

    /// Looks for the journal of an earlier session with the destination `path`, which is a directory or is not.
    pub(crate) fn find(
        &self,
        base: &Base,
        path: &Path,
        is_directory: bool,
    ) -> Result<Option<FoundJournal>, SessionError> {
        if self.is_shared() {
            return Ok(None);
        }
        let beside = [Some(path).filter(|_| is_directory), Some(parent(path))].into_iter().flatten();
        let directories: Vec<&Path> = match &self.settings.directory {
            Some(directory) => vec![directory],
            None => beside.collect(),
        };
        for directory in directories {
            let path = self.path_in(directory);
            let Ok(directory) = open(base, directory) else { continue };
            let found = peek(directory.as_fd(), self.identity.id).map_err(SessionError::journal(&path))?;
            if let Some(about) = found {
                return Ok(Some(FoundJournal { directory, path, about }));
            }
        }
        Ok(None)
    }

    /// Opens the journal that was found, or begins one. Before the destination is made. None in a directory that may not be
    /// read (a drop box), where nobody could find it again.
    pub(crate) fn records(
        &self,
        base: &Base,
        path: &Path,
        place: PlaceRoot,
        found: Option<&FoundJournal>,
    ) -> Result<Option<Records>, SessionError> {
        let soft = self.settings.durability == Durability::End;
        let session = SessionInfo::of_this_process(self.identity.run, soft)
            .map_err(SessionError::local("asking who this process is"))?;
        let tag = self.tag();
        if let Some(found) = found {
            let (journal, recovered) = self.go_on(found, &session)?;
            return Ok(Some(Records { journal, recovered, path: found.path.clone(), tag, siblings: None }));
        }
        let begun = self.begin(base, path, place, &session)?;
        Ok(begun.map(|(journal, path)| Records { journal, recovered: None, path, tag, siblings: None }))
    }

    /// Whether several sessions carry the transfer at the same time.
    pub(crate) fn is_shared(&self) -> bool {
        self.identity.is_shared
    }

    /// Begins the journal of this session, in the directory where the other sessions of the transfer have theirs.
    pub(crate) fn shared_records(
        &self,
        base: &Base,
        path: &Path,
        root: &Root,
    ) -> Result<Records, SessionError> {
        let name = shared_journals(self.identity.id);
        let shown = carrack_model::escape(path.join(&name).as_os_str().as_bytes());
        let relative = RelPath::new(name.as_bytes()).map_err(|_| SessionError::Internal)?;
        let held = root.open_directory(&RelPath::root()).map_err(unusable_journals(&shown))?;
        // Another session may have closed the transfer by now.
        let directory = keep_times(held.as_fd(), || root.make_private_directory(&relative));
        let directory = directory.map_err(unusable_journals(&shown))?;
        let soft = self.settings.durability == Durability::End;
        let session = SessionInfo::of_this_process(self.identity.run, soft)
            .map_err(SessionError::local("asking who this process is"))?;
        let about = About {
            id: TransferId(self.identity.run.0),
            place: 0,
            sources: self.identity.sources.clone(),
            destination: self.identity.destination.clone(),
            root: absolute(base, path),
            software: env!("CARGO_PKG_VERSION").into(),
            created: now(),
        };
        let journal =
            Journal::create(directory.as_fd(), &about, &session).map_err(SessionError::journal(&shown))?;
        let tag = self.tag();
        Ok(Records { journal, recovered: None, path: shown, tag, siblings: Some(directory) })
    }

    /// What temporary names are known by.
    fn tag(&self) -> u16 {
        let [a, b, ..] = self.identity.id.0;
        u16::from_be_bytes([a, b])
    }

    /// The journal's path, for people, if it lies in `directory`.
    fn path_in(&self, directory: &Path) -> String {
        let path = directory.join(file_name(self.identity.id));
        carrack_model::escape(path.as_os_str().as_bytes())
    }

    fn begin(
        &self,
        base: &Base,
        path: &Path,
        place: PlaceRoot,
        session: &SessionInfo,
    ) -> Result<Option<(Journal, String)>, SessionError> {
        let beside = if place == PlaceRoot::Destination { path } else { parent(path) };
        let named = self.settings.directory.as_deref().unwrap_or(beside);
        let opened = open(base, named);
        let is_drop_box = |error: &io::Error| error.kind() == ErrorKind::PermissionDenied;
        if self.settings.directory.is_none() && opened.as_ref().is_err_and(is_drop_box) {
            return Ok(None);
        }
        let directory = opened.map_err(|error| {
            let shown = carrack_model::escape(named.as_os_str().as_bytes());
            let hint = "name a directory at the sink with --journal-dir, or do without with --no-journal";
            SessionError::refused(
                format!("the directory for the journal, {shown}, can't be used: {error}"),
                hint,
            )
        })?;
        let root = if place == PlaceRoot::Parent { parent(path) } else { path };
        let about = About {
            id: self.identity.id,
            place: match place {
                PlaceRoot::Destination => 0,
                PlaceRoot::NewDestination => 1,
                PlaceRoot::Parent => 2,
            },
            sources: self.identity.sources.clone(),
            destination: self.identity.destination.clone(),
            root: absolute(base, root),
            software: env!("CARGO_PKG_VERSION").into(),
            created: now(),
        };
        let created = Journal::create(directory.as_fd(), &about, session);
        let created = created.and_then(|journal| match self.settings.durability {
            Durability::End => Ok(journal),
            // Before the destination is made: with its journal it will be known as what it is.
            _ => sync_directory(directory.as_fd()).map(|()| journal).map_err(|error| JournalError::Failed {
                doing: "writing back",
                source: io::Error::other(error),
            }),
        });
        let path = self.path_in(named);
        match created {
            Ok(journal) => Ok(Some((journal, path))),
            // Another run has begun in this moment.
            Err(JournalError::Exists) => Err(SessionError::journal(&path)(JournalError::Busy(None))),
            Err(error) => Err(SessionError::journal(&path)(error)),
        }
    }

    /// A session of the same run that has lost its other end is told to end, and waited for. Another run is left alone.
    fn go_on(
        &self,
        found: &FoundJournal,
        session: &SessionInfo,
    ) -> Result<(Journal, Option<Recovered>), SessionError> {
        let deadline = Instant::now() + LAST_SESSION;
        loop {
            match Journal::open(found.directory.as_fd(), found.about.id, session) {
                Ok((journal, recovered)) => return Ok((journal, Some(recovered))),
                Err(JournalError::Busy(Some(other)))
                    if other.run == self.identity.run && Instant::now() < deadline =>
                {
                    end_process(&other);
                    thread::sleep(Duration::from_millis(50));
                }
                Err(error) => return Err(SessionError::journal(&found.path)(error)),
            }
        }
    }
}

impl FoundJournal {
    /// Whether the transfer made the destination.
    pub(crate) fn made_destination(&self) -> bool {
        self.about.place == 1
    }
}

/// The directory in the destination where the sessions of one transfer have their journals, if several carry it.
pub fn shared_journals(id: TransferId) -> String {
    format!(".carrack-{id}.journals")
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

fn open(base: &Base, path: &Path) -> io::Result<OwnedFd> {
    let root: Root = base.open(path, Purpose::Write)?;
    root.open_directory(&RelPath::root())
}

/// Where this host knows the directory, for people; empty where that can't be told.
fn absolute(base: &Base, path: &Path) -> Vec<u8> {
    let absolute = match base {
        Base::Anywhere => std::path::absolute(path).unwrap_or_default(),
        Base::Beneath(root) => root.path().join(path.strip_prefix("/").unwrap_or(path)),
    };
    absolute.into_os_string().into_encoded_bytes()
}

fn end_process(session: &SessionInfo) {
    let is_other = session.pid != std::process::id();
    if session.is_alive() == Some(true)
        && is_other
        && let Some(pid) = i32::try_from(session.pid).ok().and_then(Pid::from_raw)
    {
        // It may have ended by itself meanwhile, or be another user's: then its end is waited for.
        let _ = kill_process(pid, Signal::TERM);
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
}

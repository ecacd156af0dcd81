//! The destination from the sink's view: examined before anything is changed, opened after the source's
//! decision.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carrack_model::limits::OPEN_FILES_MAX;
use carrack_model::{AgreedTransferSpec, KeptMetadata};
use carrack_storage::typed_path::{ends_with_slash, last_name, parent};
use carrack_storage::{FileIdentity, PathBase, PathPurpose, PathStatResult, RootDirectory, unknown_account};
use carrack_wire::message::SinkHandshakeFacts;
use rustix::fs::{PROC_SUPER_MAGIC, statfs};

use super::destination_place::{DestinationBaseDirectory, DestinationEntryKind, DestinationPathFacts};
use super::journal_access::{FoundJournal, TransferJournalOpener};
use super::wait_heartbeats::WaitHeartbeatRecipients;
use crate::error::SessionError;
use crate::lanes::open_files_max;
use crate::settings::EndSettings;
use crate::sink::{SinkStorageFacts, SinkTransferJournal};

/// Links that are followed to resolve a path, as by the kernel (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// The destination that the user named.
pub(crate) struct InspectedDestination {
    base: PathBase,
    path: PathBuf,
    facts: DestinationPathFacts,
    ancestors: Vec<FileIdentity>,
    storage: Arc<SinkStorageFacts>,
    journal: Option<TransferJournalOpener>,
    /// The journal of an earlier session.
    found: Option<FoundJournal>,
}

impl InspectedDestination {
    /// Examines `path` without changing anything.
    pub(crate) fn inspect(
        base: &PathBase,
        path: &Path,
        settings: &EndSettings,
        mut journal: Option<TransferJournalOpener>,
    ) -> Result<InspectedDestination, SessionError> {
        check_accounts(settings)?;
        let state = match base.look(path, PathPurpose::Write) {
            Ok(looked) if looked.is_directory => DestinationEntryKind::Directory,
            Ok(PathStatResult { special: Some(special), .. }) => {
                return Err(special_destination(path, special.noun()));
            }
            Ok(_) if !base.is_confined() && leads_to_proc(path) => {
                return Err(special_destination(path, "file that a process has open"));
            }
            Ok(_) => DestinationEntryKind::Other,
            Err(error) if error.kind() == ErrorKind::NotFound => DestinationEntryKind::Nothing,
            Err(error) if error.kind() == ErrorKind::NotADirectory => DestinationEntryKind::Other,
            Err(error) => return Err(unusable(path, &error)),
        };
        let found = match &mut journal {
            Some(journal) => journal.find(base, path, state == DestinationEntryKind::Directory)?,
            None => None,
        };
        let made_it = found.as_ref().is_some_and(FoundJournal::made_destination);
        let state = match state {
            // As it was when the transfer began.
            DestinationEntryKind::Directory if made_it => DestinationEntryKind::Nothing,
            state => state,
        };
        let (nearest, opened) = match state {
            DestinationEntryKind::Directory => (path, base.open(path, PathPurpose::Write)),
            _ => (parent(path), base.open_parent(path)),
        };
        let root = opened.map_err(|error| unusable(nearest, &error))?;
        let ancestors = root.ancestors().map_err(|error| unusable(nearest, &error))?;
        let storage = SinkStorageFacts::inspect(
            base,
            root.as_fd(),
            state == DestinationEntryKind::Directory,
            settings,
        )?;
        let facts = DestinationPathFacts {
            state,
            wants_directory: ends_with_slash(path),
            name: last_name(path).unwrap_or_default().to_vec(),
        };
        let (base, storage) = (base.clone(), Arc::new(storage));
        Ok(InspectedDestination { base, path: path.to_path_buf(), facts, ancestors, storage, journal, found })
    }

    pub(super) fn facts(&self) -> &DestinationPathFacts {
        &self.facts
    }

    pub(crate) fn storage(&self) -> Arc<SinkStorageFacts> {
        Arc::clone(&self.storage)
    }

    /// Returns the facts that the source needs.
    pub(crate) fn to_message(&self, spec: &AgreedTransferSpec, credits: u32) -> SinkHandshakeFacts {
        SinkHandshakeFacts {
            destination: match self.facts.state {
                DestinationEntryKind::Nothing => 0,
                DestinationEntryKind::Directory => 1,
                DestinationEntryKind::Other => 2,
            },
            wants_directory: self.facts.wants_directory,
            name: self.facts.name.clone(),
            host: host_identity(),
            ancestors: self.ancestors.iter().flat_map(|identity| [identity.dev, identity.ino]).collect(),
            credits,
            has_targets: self.storage.has_targets(),
            resumes: self.resumes(),
            kept: KeptMetadata::ALL.bits(),
            open_files: open_files_max() as u32,
            object_bytes: self.storage.object_bytes(&spec.stripe),
            takes_confirmations: true,
        }
    }

    /// Returns true if a source that follows the rules of [`super::destination_place`] could have decided so.
    /// A source that lies must not get the destination's parent to write to.
    pub(crate) fn allows(&self, root: DestinationBaseDirectory) -> bool {
        let may_be_a_file = !self.facts.wants_directory && !self.facts.name.is_empty();
        match (self.facts.state, root) {
            (DestinationEntryKind::Directory, root) => root == DestinationBaseDirectory::Destination,
            (DestinationEntryKind::Nothing, DestinationBaseDirectory::NewDestination) => true,
            (
                DestinationEntryKind::Nothing | DestinationEntryKind::Other,
                DestinationBaseDirectory::Parent,
            ) => may_be_a_file,
            _ => false,
        }
    }

    /// Returns true if the sink reports that entries of the transfer may exist.
    pub(crate) fn resumes(&self) -> bool {
        self.found.is_some() || self.journal.as_ref().is_some_and(TransferJournalOpener::is_shared)
    }

    /// Opens the journal, if one is kept, and the directory beneath which everything is written, creating it
    /// if the source decided so.
    pub(crate) fn open(
        &mut self,
        root: DestinationBaseDirectory,
        wait: &mut WaitHeartbeatRecipients<'_>,
    ) -> Result<OpenDestinationRoot, SessionError> {
        if let Some(journal) = self.journal.as_ref().filter(|journal| journal.is_shared()) {
            // Each session finds the directory or creates it: its meaning was decided before all of them.
            let opened = self.open_root(root)?;
            let records = Some(journal.create_shared_journal(&self.base, &self.path, &opened)?);
            return Ok(OpenDestinationRoot { root: opened, records, warnings: Vec::new() });
        }
        let (mut records, mut warnings) = (None, Vec::new());
        if let Some(journal) = &mut self.journal {
            records =
                journal.open_or_create_journal(&self.base, &self.path, root, self.found.as_ref(), wait)?;
            warnings = journal.take_warnings();
        }
        Ok(OpenDestinationRoot { root: self.open_root(root)?, records, warnings })
    }

    /// Opens the directory beneath which everything would be written, for reading only; `None` if it would be
    /// created.
    pub(crate) fn open_existing_root(
        &self,
        root: DestinationBaseDirectory,
    ) -> Result<Option<RootDirectory>, SessionError> {
        (root == DestinationBaseDirectory::Destination).then(|| self.open_root(root)).transpose()
    }

    fn open_root(&self, root: DestinationBaseDirectory) -> Result<RootDirectory, SessionError> {
        let path = match root {
            DestinationBaseDirectory::Destination => self.path.as_path(),
            DestinationBaseDirectory::Parent => {
                let opened = self.base.open_parent(&self.path);
                return opened.map_err(|error| unusable(parent(&self.path), &error));
            }
            DestinationBaseDirectory::NewDestination => {
                self.base.make_destination(&self.path).map_err(|error| unusable(&self.path, &error))?;
                self.path.as_path()
            }
        };
        self.base.open(path, PathPurpose::Write).map_err(|error| unusable(path, &error))
    }
}

/// An open destination.
pub(crate) struct OpenDestinationRoot {
    /// The directory beneath which everything is written.
    pub(crate) root: RootDirectory,
    /// The journal, if one is kept.
    pub(crate) records: Option<SinkTransferJournal>,
    /// Warnings for the user.
    pub(crate) warnings: Vec<String>,
}

/// The source's knowledge of a sink.
pub(crate) struct SinkFacts {
    pub(crate) facts: DestinationPathFacts,
    /// The destination (or its parent while it does not exist) and every directory above, if it is on this
    /// host.
    pub(crate) ancestors_here: Vec<FileIdentity>,
    pub(crate) credits: u32,
    pub(crate) has_targets: bool,
    /// True if it has a journal of this transfer.
    pub(crate) resumes: bool,
    /// The metadata that it keeps beyond mode and time.
    pub(crate) kept: KeptMetadata,
    /// Large files that it may have open at a time.
    pub(crate) open_files: usize,
    /// The size of objects that suits its storage; 0 for any.
    pub(crate) object_bytes: u32,
    /// True if it can wait until the source confirms what it has read.
    pub(crate) takes_confirmations: bool,
}

impl SinkFacts {
    pub(crate) fn from_message(message: &SinkHandshakeFacts) -> Result<SinkFacts, SessionError> {
        let state = match message.destination {
            0 => DestinationEntryKind::Nothing,
            1 => DestinationEntryKind::Directory,
            2 => DestinationEntryKind::Other,
            _ => return Err(SessionError::Protocol("a destination of a kind that is not known here".into())),
        };
        let same_host = !message.host.is_empty() && message.host == host_identity();
        let pairs = message.ancestors.chunks_exact(2);
        let identities = pairs.map(|pair| FileIdentity { dev: pair[0], ino: pair[1] });
        Ok(SinkFacts {
            facts: DestinationPathFacts {
                state,
                wants_directory: message.wants_directory,
                name: message.name.clone(),
            },
            ancestors_here: if same_host { identities.collect() } else { Vec::new() },
            credits: message.credits,
            has_targets: message.has_targets,
            resumes: message.resumes,
            kept: KeptMetadata::from_bits(message.kept),
            open_files: match message.open_files {
                0 => OPEN_FILES_MAX,
                count => OPEN_FILES_MAX.min(count as usize),
            },
            object_bytes: message.object_bytes,
            takes_confirmations: message.takes_confirmations,
        })
    }
}

/// Refuses a transfer to users or groups that do not exist at the destination: with a mistyped name all
/// entries would belong to another user. A sink that sets no owners counts them as losses.
fn check_accounts(settings: &EndSettings) -> Result<(), SessionError> {
    let unknown = if settings.special_modes { unknown_account(&settings.fidelity) } else { None };
    unknown.map_or(Ok(()), |account| {
        let message = format!("there is no {account} at the destination");
        Err(SessionError::refused(message, "check the name, or give a number"))
    })
}

/// Returns a value that is the same for two processes exactly if they run under one kernel; empty if it is
/// unknown.
fn host_identity() -> Vec<u8> {
    fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// A special file is neither written to, which may have effects that a copy must not have, nor replaced,
/// which would take it from its users.
fn special_destination(path: &Path, noun: &str) -> SessionError {
    let shown = carrack_model::escape(path.as_os_str().as_bytes());
    let message = format!("the destination {shown} is a {noun}, which is not written to");
    SessionError::refused(message, "name a file or a directory")
}

/// Returns true if links lead from a path to an entry of `/proc`, as `/dev/stdout` does: the file has no
/// certain name, and the link must not be replaced.
fn leads_to_proc(path: &Path) -> bool {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&path) else { return false };
        let above = parent(&path).to_owned();
        if statfs(&above).is_ok_and(|found| found.f_type == PROC_SUPER_MAGIC) {
            return true;
        }
        path = above.join(target);
    }
    false
}

fn unusable(path: &Path, error: &io::Error) -> SessionError {
    let hint = match error.kind() {
        ErrorKind::NotFound => "create the directory that is to hold it first",
        ErrorKind::PermissionDenied => "choose a destination that you may write to",
        _ => "",
    };
    let shown = carrack_model::escape(path.as_os_str().as_bytes());
    SessionError::refused(format!("the destination {shown} can't be used: {error}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abort::AbortHandle;
    use std::os::unix::fs::symlink;

    fn fixture() -> (tempfile::TempDir, PathBase) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("export/d")).unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        fs::write(dir.path().join("export/f"), "").unwrap();
        symlink("d", dir.path().join("export/link")).unwrap();
        symlink("../outside", dir.path().join("export/out")).unwrap();
        let base = PathBase::beneath(RootDirectory::open(&dir.path().join("export")).unwrap());
        (dir, base)
    }

    #[test]
    fn a_destination_beneath_a_base_is_named_from_there() {
        let (dir, base) = fixture();
        for (path, state, above) in [
            ("/", DestinationEntryKind::Directory, 1),
            ("", DestinationEntryKind::Directory, 1),
            ("/d", DestinationEntryKind::Directory, 2),
            ("d/new", DestinationEntryKind::Nothing, 2),
            ("f", DestinationEntryKind::Other, 1),
            ("link", DestinationEntryKind::Other, 1),
            ("out", DestinationEntryKind::Other, 1),
        ] {
            let destination =
                InspectedDestination::inspect(&base, Path::new(path), &EndSettings::default(), None).unwrap();
            assert_eq!(destination.facts.state, state, "{path}");
            assert_eq!(
                destination.to_message(&AgreedTransferSpec::default(), 1).ancestors.len(),
                2 * above,
                "{path}"
            );
        }
        let mut destination =
            InspectedDestination::inspect(&base, Path::new("/d/new"), &EndSettings::default(), None).unwrap();
        let abort = AbortHandle::new().unwrap();
        destination
            .open(
                DestinationBaseDirectory::NewDestination,
                &mut WaitHeartbeatRecipients::new(None, None, &abort),
            )
            .unwrap();
        assert!(dir.path().join("export/d/new").is_dir());
    }

    fn look(base: &PathBase, path: &Path) -> Result<InspectedDestination, SessionError> {
        InspectedDestination::inspect(base, path, &EndSettings::default(), None)
    }

    #[test]
    fn a_destination_is_not_outside_of_its_base() {
        let (dir, base) = fixture();
        for refused in ["..", "../outside/new", "d/../../outside", "out/new", "link/new", "f/new"] {
            let looked = look(&base, Path::new(refused));
            assert!(matches!(looked, Err(SessionError::Refused { .. })), "{refused}");
        }
        let outside = dir.path().join("outside");
        assert!(look(&base, &outside).is_err(), "an absolute path begins at the base");
        let (mut swapped, abort) = (look(&base, Path::new("new")).unwrap(), AbortHandle::new().unwrap());
        symlink("../outside", dir.path().join("export/new")).unwrap();
        assert!(
            swapped
                .open(
                    DestinationBaseDirectory::NewDestination,
                    &mut WaitHeartbeatRecipients::new(None, None, &abort)
                )
                .is_err()
        );
        assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
    }

    #[test]
    fn mounts_of_a_set_are_looked_for_beneath_the_base_only() {
        let (dir, base) = fixture();
        let sets = ["..", "/tmp", "out", "link"].map(PathBuf::from);
        let sets = [&sets[..], &[dir.path().join("outside")]].concat();
        let settings = EndSettings { target_sets: sets, ..EndSettings::default() };
        assert!(settings.file_systems(&base).is_ok(), "none of them is there");
        let settings = EndSettings { target_sets: ["/d", "nas1=/"].map(PathBuf::from).to_vec(), ..settings };
        assert!(settings.file_systems(&base).is_err(), "two of one file system");
    }
}

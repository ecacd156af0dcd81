//! `carrack sync --delete`: the deletion of entries that the source does not have, after all other work.
//!
//! It runs on one I/O thread of the first lane. It lists the directories that the source names, sends
//! existence queries for the names, many at a time, and deletes names that the source does not have. It
//! descends into directories that the source has, but not into those on which a file system is mounted. Names
//! that the user's patterns exclude stay, and so do names for which the source has no certain reply. Nothing
//! is deleted if an entry failed at the sink. In this case, and if a percentage of the entries is the limit,
//! a first pass only counts. Links are not followed: directories are opened beneath the destination, and
//! names are unlinked in the directory that was listed. Memory: the open queries, and the paths of waiting
//! directories.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carrack_model::limits::EXISTENCE_QUESTIONS_MAX;
use carrack_model::{EntryFailure, FailureKind, Metadata, RelPath, TransferEvent, UserNotice};
use carrack_storage::{ExistingEntry, MountIdentity, RootDirectory, SinkError, read_existing_entry};
use carrack_wire::message::{ControlMessage, DeletionDoneMessage, PruneMessage, SourceExistenceQuery};
use rustix::fs::{Dir, FileType};

use super::context::SinkContext;
use super::deleting::{self, NameDeleter};
use super::directory_access::with_access;
use super::lane::SinkLane;
use super::removal_rules::{RemovalCandidate, RemovalDirectory, SyncDeletionState};
use super::top_level_confinement::check_asked_for;
use crate::error::SessionError;
use crate::lanes::open_files_max;

/// Names of one query: with the longest path and the longest names it is smaller than the largest control
/// message.
const NAMES_MAX: usize = 512;

/// A directory at the destination, and its path beneath the source that it is a copy of.
#[derive(Clone)]
struct PruneDirectory {
    path: RelPath,
    at_source: RelPath,
    /// The mount of its parent directory. The deletion stays on it.
    mount: Option<MountIdentity>,
}

/// Names of one directory in an existence query.
struct ExtraneousNameQuestion {
    id: u64,
    place: PruneDirectory,
    held: Arc<OwnedFd>,
    names: Vec<DeletionCandidateName>,
}

struct DeletionCandidateName {
    name: Vec<u8>,
    is_directory: bool,
    /// The patterns exclude it, and exclusion deletes it (`--delete-excluded`).
    is_excluded: bool,
}

/// A pass over the names that may be deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExtraneousDeletionPass {
    Count,
    Remove,
}

struct ExtraneousTreeRemover<'a> {
    lane: &'a SinkLane<'a>,
    root: &'a RootDirectory,
    removal: &'a SyncDeletionState,
    pass: ExtraneousDeletionPass,
    waiting: Vec<PruneDirectory>,
    open: VecDeque<ExtraneousNameQuestion>,
    newest: u64,
    /// Entries that are not spared.
    entry_count: u64,
    /// Those of them that may be deleted, in a counting pass.
    going_count: u64,
    /// Backups of which the sources have directories, too: nothing in them is deleted.
    backup_count: u64,
}

/// Deletes the entries that the source does not have, and replies to the source.
pub(super) fn delete_extraneous_entries(
    lane: &SinkLane<'_>,
    prune: &PruneMessage,
) -> Result<(), SessionError> {
    let removal = lane.sink.removal.as_ref().filter(|removal| removal.deletes());
    let Some(removal) = removal else {
        return Err(SessionError::Protocol("something to be deleted that nobody asked for".into()));
    };
    let trees = trees(lane.sink, prune)?;
    if let Some(root) = &lane.sink.destination.seen {
        let is_meant = removal.allows_any_destination() || !trees.iter().any(RelPath::is_root);
        let pruning = ExtraneousEntryDeletion { lane, root, removal };
        let refused = if is_meant { None } else { protected_destination(root) };
        match refused {
            Some(what) => pruning.report_protected_destination(what)?,
            None => pruning.prune(&trees)?,
        }
    }
    lane.send_message(ControlMessage::Pruned(DeletionDoneMessage {}));
    Ok(())
}

/// The directories that the source names.
fn trees(sink: &SinkContext<'_>, prune: &PruneMessage) -> Result<Vec<RelPath>, SessionError> {
    let confinement = &sink.destination.confinement;
    let trees = prune.trees.iter().map(|bytes| {
        let path = RelPath::new(bytes).map_err(|problem| SessionError::Protocol(problem.to_string()))?;
        check_asked_for(confinement.allows_section(&path, Some(&Metadata::default())), || &path)?;
        Ok(path)
    });
    trees.collect()
}

/// A deletion beneath one root.
#[derive(Clone, Copy)]
struct ExtraneousEntryDeletion<'a> {
    lane: &'a SinkLane<'a>,
    root: &'a RootDirectory,
    removal: &'a SyncDeletionState,
}

impl ExtraneousEntryDeletion<'_> {
    fn prune(&self, trees: &[RelPath]) -> Result<(), SessionError> {
        let ExtraneousEntryDeletion { lane, removal, .. } = *self;
        // Files of rules have been copied since they were read.
        removal.directory_rules().forget();
        let failure_count = lane.sink.status.failure_count();
        let most_percent = removal.most_percent();
        let mut newest = 0;
        if failure_count > 0 || most_percent.is_some() {
            let mut counting =
                ExtraneousTreeRemover::new(*self, ExtraneousDeletionPass::Count, trees, newest);
            counting.run()?;
            newest = counting.newest;
            let (going, entries) = (counting.going_count, counting.entry_count);
            if failure_count > 0 {
                return self.report_nothing_deleted(failure_count, going);
            }
            if most_percent.is_some_and(|most| going * 100 > entries * most) {
                let detail = format!(
                    "{going} of {entries} entries are to be deleted, more than --max-delete allows: they stay"
                );
                let path = self.root.full_path(&RelPath::root(), b"");
                return self.lane.fail(EntryFailure { path, kind: FailureKind::WriteError, detail });
            }
        }
        let mounts_before = removal.mount_count();
        let mut pruner = ExtraneousTreeRemover::new(*self, ExtraneousDeletionPass::Remove, trees, newest);
        pruner.run()?;
        pruner.report_delete_limit()?;
        pruner.report_unknown_rules()?;
        assert!(mounts_before <= removal.mount_count(), "mounts that stay are only added");
        self.report_mounts(removal.mount_count() - mounts_before, removal.crosses_mounts());
        self.report_backups(pruner.backup_count);
        Ok(())
    }

    /// Reports a destination that an unset variable of a script leads to.
    fn report_protected_destination(&self, what: &str) -> Result<(), SessionError> {
        let path = self.root.full_path(&RelPath::root(), b"");
        let detail = format!("it is {what}: nothing is deleted there without --delete-all");
        self.lane.fail(EntryFailure { path, kind: FailureKind::WriteError, detail })
    }

    /// Reports that nothing is deleted after a failure: the entry that could not be written may be the most
    /// needed at the destination.
    fn report_nothing_deleted(&self, failure_count: u64, going: u64) -> Result<(), SessionError> {
        if going > 0 {
            let text = format!(
                "nothing was deleted, as something failed at the destination ({failure_count}): what the sources have not stays \
                 there ({going} entries)"
            );
            self.lane.report(TransferEvent::Notice(UserNotice::Warning(text)));
        }
        Ok(())
    }

    fn report_mounts(&self, count: u64, are_crossed: bool) {
        if count == 0 {
            return;
        }
        let text = if are_crossed {
            format!(
                "mount points beneath the destination stay ({count}); what is mounted there was looked into"
            )
        } else {
            format!(
                "mounts beneath the destination stay with what is in them ({count}); --delete-mounts deletes in them, too"
            )
        };
        self.lane.report(TransferEvent::Notice(UserNotice::Warning(text)));
    }

    fn report_backups(&self, count: u64) {
        if count > 0 {
            let text = format!(
                "backups of deleted entries at the destination stay with what is in them, though the sources have such directories \
                 too ({count})"
            );
            self.lane.report(TransferEvent::Notice(UserNotice::Warning(text)));
        }
    }
}

impl<'a> ExtraneousTreeRemover<'a> {
    /// Creates a pass. Queries are numbered from after `newest`.
    fn new(
        pruning: ExtraneousEntryDeletion<'a>,
        pass: ExtraneousDeletionPass,
        trees: &[RelPath],
        newest: u64,
    ) -> ExtraneousTreeRemover<'a> {
        let ExtraneousEntryDeletion { lane, root, removal } = pruning;
        let copied = trees.iter().filter(|path| !removal.is_source_excluded(path));
        let places =
            copied.map(|path| PruneDirectory { path: path.clone(), at_source: RelPath::root(), mount: None });
        ExtraneousTreeRemover {
            lane,
            root,
            removal,
            pass,
            waiting: places.collect(),
            open: VecDeque::new(),
            newest,
            entry_count: 0,
            going_count: 0,
            backup_count: 0,
        }
    }

    fn run(&mut self) -> Result<(), SessionError> {
        loop {
            if let Some(place) = self.waiting.pop() {
                self.query_directory(&place)?;
            } else if !self.open.is_empty() {
                self.handle_oldest_reply()?;
            } else {
                return Ok(());
            }
        }
    }

    /// Lists a directory, and sends queries for its names.
    fn query_directory(&mut self, place: &PruneDirectory) -> Result<(), SessionError> {
        let opened = with_access(self.lane.sink, &place.path, || {
            self.root.open_directory(&place.path).map_err(SinkError::of_directory)
        });
        let held = match opened {
            Ok(held) => Arc::new(held),
            // It is no directory (any more): it has no names to delete.
            Err(error) if error.is_no_directory() => return Ok(()),
            Err(error) => return self.report_failure(&place.path, b"", &std::io::Error::other(error)),
        };
        let mount = match MountIdentity::of(held.as_fd()) {
            Ok(mount) => mount,
            Err(error) => return self.report_failure(&place.path, b"", &error),
        };
        if place.mount.is_some_and(|above| above != mount) && !self.removal.crosses_mounts() {
            self.removal.count_mount();
            return Ok(());
        }
        if self.removal.is_backup(&place.path, held.as_fd()) {
            self.backup_count += 1;
            return Ok(());
        }
        let place = &PruneDirectory { mount: Some(mount), ..place.clone() };
        let listing = match Dir::read_from(&*held) {
            Ok(listing) => listing,
            Err(errno) => return self.report_failure(&place.path, b"", &errno.into()),
        };
        let mut names = Vec::new();
        for entry in listing {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => {
                    self.report_failure(&place.path, b"", &errno.into())?;
                    break;
                }
            };
            let name = entry.file_name().to_bytes();
            let is_directory = match entry.file_type() {
                FileType::Unknown => {
                    matches!(read_existing_entry(held.as_fd(), name), Ok(Some(ExistingEntry::Other)))
                }
                listed => listed == FileType::Directory,
            };
            if matches!(name, b"." | b"..") {
                continue;
            }
            let directory =
                RemovalDirectory { at_sink: &place.path, at_source: &place.at_source, is_deleted: false };
            if self.removal.is_spared(directory, name, is_directory) {
                continue;
            }
            self.entry_count += 1;
            let is_excluded = self.removal.is_excluded(directory, name, is_directory);
            names.push(DeletionCandidateName { name: name.to_vec(), is_directory, is_excluded });
            if names.len() == NAMES_MAX {
                self.send_query(place, &held, std::mem::take(&mut names))?;
            }
        }
        if names.is_empty() { Ok(()) } else { self.send_query(place, &held, names) }
    }

    fn send_query(
        &mut self,
        place: &PruneDirectory,
        held: &Arc<OwnedFd>,
        names: Vec<DeletionCandidateName>,
    ) -> Result<(), SessionError> {
        assert!((1..=NAMES_MAX).contains(&names.len()), "a question has names, and fits into a message");
        self.newest += 1;
        let asked = names.iter().map(|name| name.name.clone()).collect();
        let path = place.path.as_bytes().to_vec();
        if !self.lane.sink.queries.register(self.newest) {
            return Err(SessionError::Protocol("a deletion before another one is over".into()));
        }
        self.lane.send_message(ControlMessage::Stand(SourceExistenceQuery {
            id: self.newest,
            path,
            names: asked,
        }));
        let (place, held) = (place.clone(), Arc::clone(held));
        self.open.push_back(ExtraneousNameQuestion { id: self.newest, place, held, names });
        assert!(self.open.len() <= EXISTENCE_QUESTIONS_MAX, "the source allows so many open questions");
        // Each open query holds a directory's descriptor.
        if self.open.len() < open_files_max().min(EXISTENCE_QUESTIONS_MAX) {
            Ok(())
        } else {
            self.handle_oldest_reply()
        }
    }

    /// Waits for the reply to the oldest query, and handles its names.
    fn handle_oldest_reply(&mut self) -> Result<(), SessionError> {
        let Some(question) = self.open.pop_front() else { return Ok(()) };
        // Without a reply the session ends.
        let Ok(kinds) = self.lane.sink.queries.await_reply(question.id) else {
            return Err(SessionError::Internal);
        };
        if kinds.len() != question.names.len() {
            return Err(SessionError::Protocol("an answer of another size than its question".into()));
        }
        for (DeletionCandidateName { name, is_directory, is_excluded }, kind) in
            question.names.iter().zip(kinds)
        {
            let place = &question.place.path;
            match kind {
                // The source has it in another spelling.
                0 if self.lane.sink.destination.names.is_taken(question.held.as_fd(), place, name) => {}
                0 => self.count_or_delete(&question, name)?,
                1 | 2 if *is_excluded => self.count_or_delete(&question, name)?,
                2 if *is_directory => self.enter(&question.place, name),
                _ => {}
            }
        }
        Ok(())
    }

    fn enter(&mut self, place: &PruneDirectory, name: &[u8]) {
        if let (Ok(path), Ok(at_source)) = (place.path.join(name), place.at_source.join(name)) {
            self.waiting.push(PruneDirectory { path, at_source, mount: place.mount });
        }
    }

    fn count_or_delete(
        &mut self,
        question: &ExtraneousNameQuestion,
        name: &[u8],
    ) -> Result<(), SessionError> {
        if self.lane.is_stopped() {
            // The session ends: earlier replies delete nothing any more.
            return Err(SessionError::Internal);
        }
        let PruneDirectory { path: directory, at_source, .. } = &question.place;
        let at_source = std::slice::from_ref(at_source);
        let held = question.held.as_fd();
        let target = RemovalCandidate { held, directory, name, at_source, is_directory_deleted: false };
        if self.pass == ExtraneousDeletionPass::Count {
            let count = self.removal.count(target);
            // The name itself was counted when it was listed.
            self.entry_count += (count.going + count.staying).saturating_sub(1);
            self.going_count += count.going;
            assert!(self.going_count <= self.entry_count, "what goes was counted before");
            return Ok(());
        }
        NameDeleter::new(self.lane, self.removal).remove(target)
    }

    fn report_delete_limit(&self) -> Result<(), SessionError> {
        if !self.removal.has_reached_limit() {
            return Ok(());
        }
        let path = self.root.full_path(&RelPath::root(), b"");
        let detail = "more entries are to be deleted than --max-delete allows: the rest stays".to_owned();
        self.lane.fail(EntryFailure { path, kind: FailureKind::WriteError, detail })
    }

    fn report_unknown_rules(&self) -> Result<(), SessionError> {
        for (directory, detail) in self.removal.directory_rules().take_unknown() {
            let path = self.root.full_path(&directory, b"");
            let detail = format!("nothing is deleted in it: {detail}");
            self.lane.fail(EntryFailure { path, kind: FailureKind::WriteError, detail })?;
        }
        Ok(())
    }

    fn report_failure(
        &self,
        directory: &RelPath,
        name: &[u8],
        error: &std::io::Error,
    ) -> Result<(), SessionError> {
        self.lane.fail(deleting::failed(self.root.full_path(directory, name), error))
    }
}

/// Destinations where a deletion is most likely a mistake: the root directory, and the user's home directory.
fn protected_destination(root: &RootDirectory) -> Option<&'static str> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    if is_at(root, Path::new("/")) {
        return Some("the root directory");
    }
    home.is_some_and(|home| is_at(root, &home)).then_some("the home directory")
}

fn is_at(root: &RootDirectory, path: &Path) -> bool {
    RootDirectory::open(path).is_ok_and(|other| other.identity() == root.identity())
}

//! What a sink asks that removes what is not at the source (`carrack sync --delete`): which of these names are there?
//!
//! A name counts as absent only if the scan of this run has proven it: it is not there now, and its directory is the one that was scanned
//! and has the names that were listed then ([`ScanRecord`]). Of a directory that has changed, vanished or was covered by a mount since the
//! run began, nothing is absent; that is an entry that failed, once for each directory. A source without any entry proves nothing either,
//! unless the user says so. On I/O threads.

use std::collections::{BTreeSet, HashSet};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use carrack_model::{FailureKind, RelPath};
use carrack_storage::{Doubt, Medium, RootKind, ScanRecord, ScanRoot};
use carrack_wire::message::{Control, Prune, Stand, Stands};
use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::Errno;

use super::Source;
use super::lane::Lane;

/// Directories that are told one by one; more are kept without a word.
const TOLD_MAX: usize = 1_000;

/// What the source has of a name; see [`Stands`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Nothing = 0,
    Entry = 1,
    Directory = 2,
    Unknown = 3,
}

/// What answers the sink's questions.
pub(super) struct Evidence {
    pub(super) record: Arc<ScanRecord>,
    /// What a source without entries lacks is absent, too.
    believes_empty_sources: bool,
    /// Directories of which it was told why nothing is deleted in them.
    told: Mutex<HashSet<Box<[u8]>>>,
}

impl Evidence {
    pub(super) fn new(record: Arc<ScanRecord>, believes_empty_sources: bool) -> Evidence {
        Evidence { record, believes_empty_sources, told: Mutex::default() }
    }
}

impl Source<'_> {
    /// Beneath what everything was scanned, as the sink knows it.
    pub(super) fn trees(&self) -> Prune {
        let sink = |root: &ScanRoot| match &root.what {
            RootKind::Tree { sink } => Some(sink.as_bytes().to_vec()),
            RootKind::Name { .. } => None,
        };
        let trees: BTreeSet<Vec<u8>> = self.roots.iter().filter_map(sink).collect();
        Prune { trees: trees.into_iter().collect() }
    }
}

impl Lane<'_> {
    pub(super) fn tell_what_stands(&self, question: &Stand) {
        let kinds = match (RelPath::new(&question.path), &self.source.evidence) {
            (Ok(path), Some(evidence)) => self.standings(evidence, &path, &question.names),
            _ => vec![Standing::Unknown; question.names.len()],
        };
        let kinds = kinds.into_iter().map(|kind| kind as u8).collect();
        // Before it is said: whoever hears it may ask again.
        self.source.stands_answered.fetch_add(1, Relaxed);
        self.say(Control::Stands(Stands { id: question.id, kinds }));
    }

    /// What is at the source of each name in the directory that the sink knows as `path`.
    fn standings(&self, evidence: &Evidence, path: &RelPath, names: &[Vec<u8>]) -> Vec<Standing> {
        let mut found: Vec<Standing> = names.iter().map(|name| self.placed(path, name)).collect();
        for index in 0..self.source.roots.len() {
            let Some(beneath) = beneath(&self.source.roots[index], path) else { continue };
            let in_tree = self.in_tree(evidence, index, &beneath, names);
            found.iter_mut().zip(in_tree).for_each(|(found, standing)| *found = (*found).max(standing));
        }
        found
    }

    /// Whether a source as a whole has this place at the sink, or one beneath it.
    fn placed(&self, path: &RelPath, name: &[u8]) -> Standing {
        let Ok(place) = path.join(name) else { return Standing::Unknown };
        let standing = |root: &ScanRoot| match &root.what {
            RootKind::Tree { sink } if is_within(sink, &place) => Standing::Directory,
            RootKind::Name { sink_directory, .. } if is_within(sink_directory, &place) => Standing::Directory,
            RootKind::Name { sink_directory, sink_name, .. }
                if sink_directory == path && **sink_name == *name =>
            {
                Standing::Entry
            }
            RootKind::Tree { .. } | RootKind::Name { .. } => Standing::Nothing,
        };
        self.source.roots.iter().map(standing).max().unwrap_or(Standing::Unknown)
    }

    /// What is in the directory `path` of one root.
    fn in_tree(&self, evidence: &Evidence, index: usize, path: &RelPath, names: &[Vec<u8>]) -> Vec<Standing> {
        let root = &self.source.roots[index];
        let mut found = match root.root.open_directory(path) {
            Ok(held) => {
                let follows = root.root.follows_links();
                let mut found: Vec<Standing> =
                    names.iter().map(|name| look(held.as_fd(), name, follows)).collect();
                if found.contains(&Standing::Nothing) {
                    let proof = self.prove(evidence, index, path, held.as_fd());
                    self.keep_unproven(evidence, index, path, proof, &mut found);
                }
                found
            }
            Err(error) if is_absence(&error) => {
                let mut found = vec![Standing::Nothing; names.len()];
                if !self.is_proven_absent(evidence, index, path) {
                    let was_seen = evidence.record.has_seen(index, path);
                    let doubt = if was_seen { Doubt::Changed } else { Doubt::Unseen };
                    self.keep_unproven(evidence, index, path, Err(doubt), &mut found);
                }
                found
            }
            Err(_) => vec![Standing::Unknown; names.len()],
        };
        if found.contains(&Standing::Nothing) {
            self.check_root(evidence, index, &mut found);
        }
        if !evidence.believes_empty_sources
            && let Some(index) = self.empty_source_beside(evidence, root)
        {
            found.fill(Standing::Unknown);
            let detail = "it has no entries, or the patterns leave out all of them: nothing is deleted at the destination without \
                          --delete-all";
            self.tell_kept(evidence, index, &RelPath::root(), FailureKind::Missing, detail);
        }
        found
    }

    /// Whether the names that are not in a directory now were not there when it was scanned.
    fn prove(
        &self,
        evidence: &Evidence,
        index: usize,
        path: &RelPath,
        held: BorrowedFd<'_>,
    ) -> Result<(), Doubt> {
        let file_system = self.source.file_systems.of(held);
        let is_local =
            file_system.is_ok_and(|file_system| file_system.own_target().medium != Medium::Network);
        evidence.record.prove((index, &self.source.roots[index]), path, held, is_local)
    }

    /// Whether a directory that is not there was not there when the scan looked: where the listing above it tells so.
    fn is_proven_absent(&self, evidence: &Evidence, index: usize, path: &RelPath) -> bool {
        let root = &self.source.roots[index].root;
        let mut path = path.clone();
        while let Some((above, name)) = path.split_last() {
            match root.open_directory(&above) {
                Ok(held) => {
                    return look(held.as_fd(), name, root.follows_links()) == Standing::Nothing
                        && self.prove(evidence, index, &above, held.as_fd()).is_ok();
                }
                Err(error) if is_absence(&error) => path = above,
                Err(_) => return false,
            }
        }
        false
    }

    /// What is not proven to be absent is not known.
    fn keep_unproven(
        &self,
        evidence: &Evidence,
        index: usize,
        path: &RelPath,
        proof: Result<(), Doubt>,
        found: &mut [Standing],
    ) {
        let Err(doubt) = proof else { return };
        forget_absence(found);
        match doubt {
            // Left out of the scan, or made since.
            Doubt::Unseen => {}
            Doubt::Changed => {
                let detail = "it changed during this run: what it lacks is not deleted at the destination";
                self.tell_kept(evidence, index, path, FailureKind::Changed, detail);
            }
            Doubt::Unmounted => {
                let detail = "the file system that belongs here is not mounted: what is missing is not deleted at the destination";
                self.tell_kept(evidence, index, path, FailureKind::Missing, detail);
            }
        }
    }

    /// A source that is gone proves nothing.
    fn check_root(&self, evidence: &Evidence, index: usize, found: &mut [Standing]) {
        if let Err(why) = evidence.record.check_root(index, &self.source.roots[index].root) {
            forget_absence(found);
            let detail = format!("{why} during this run: what it lacks is not deleted at the destination");
            self.tell_kept(evidence, index, &RelPath::root(), FailureKind::Changed, &detail);
        }
    }

    /// A source of which nothing is copied, among those that become one directory at the sink with this one.
    fn empty_source_beside(&self, evidence: &Evidence, tree: &ScanRoot) -> Option<usize> {
        let place = |root: &ScanRoot| match &root.what {
            RootKind::Tree { sink } => Some(sink.clone()),
            RootKind::Name { .. } => None,
        };
        let roots = self.source.roots.iter().enumerate();
        let mut same = roots.filter(|(_, root)| place(root) == place(tree));
        same.find(|(index, _)| !evidence.record.has_entries(*index)).map(|(index, _)| index)
    }

    /// Once for each directory.
    fn tell_kept(&self, evidence: &Evidence, index: usize, path: &RelPath, kind: FailureKind, detail: &str) {
        let shown = self.source.roots[index].root.full_path(path, b"");
        let mut told = evidence.told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = told.len() < TOLD_MAX && told.insert(shown.clone());
        drop(told);
        if is_new {
            self.fail_path(shown, kind, detail);
        }
    }
}

fn forget_absence(found: &mut [Standing]) {
    let absent = found.iter_mut().filter(|standing| **standing == Standing::Nothing);
    absent.for_each(|standing| *standing = Standing::Unknown);
}

/// Whether `path` is `place`, or lies beneath it.
fn is_within(path: &RelPath, place: &RelPath) -> bool {
    match path.as_bytes().strip_prefix(place.as_bytes()) {
        Some(rest) => rest.is_empty() || rest[0] == b'/',
        None => false,
    }
}

/// Where a directory of the destination is beneath a root, if it is of it.
pub(super) fn beneath(root: &ScanRoot, path: &RelPath) -> Option<RelPath> {
    let RootKind::Tree { sink } = &root.what else { return None };
    if sink.is_root() {
        return Some(path.clone());
    }
    match path.as_bytes().strip_prefix(sink.as_bytes())? {
        [] => Some(RelPath::root()),
        [b'/', rest @ ..] => RelPath::new(rest).ok(),
        _ => None,
    }
}

fn look(directory: BorrowedFd<'_>, name: &[u8], follow: bool) -> Standing {
    let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    match statat(directory, name, flags) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Standing::Directory,
        Ok(_) => Standing::Entry,
        // It may be a link that leads nowhere.
        Err(Errno::NOENT) if follow => match look(directory, name, false) {
            Standing::Nothing => Standing::Nothing,
            _ => Standing::Unknown,
        },
        Err(Errno::NOENT) => Standing::Nothing,
        Err(_) => Standing::Unknown,
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

//! Existence queries of a sink that removes entries (`carrack sync --delete`).
//!
//! A name is absent only if the scan of this run proves it: the name is missing now, and its directory is the
//! scanned directory with the same listing ([`ScanListingProof`]). No name is absent in a directory that has
//! changed, vanished or been covered by a mount since the run began. Such a directory is reported as one
//! failed entry. An empty source proves nothing either, unless the user insists. Runs on I/O threads.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};

use carrack_layout::TargetAttachmentKind;
use carrack_model::{FailureKind, RelPath};
use carrack_storage::{AbsenceProofFailure, ScanRoot, ScanRootScope};
use carrack_wire::message::{ControlMessage, SourceExistenceQuery, SourceExistenceReply};
use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::Errno;

use super::absence_proof::{DeletionEvidence, path_beneath_root};
use super::context::SourceContext;
use super::lane::SourceLane;

/// The existence of a name at the source; see [`SourceExistenceReply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SourceNameExistence {
    Nothing = 0,
    Entry = 1,
    Directory = 2,
    Unknown = 3,
}

/// Answers an existence query.
pub(super) fn answer(lane: &SourceLane<'_>, query: &SourceExistenceQuery) {
    let deletion = &lane.source.deletion;
    let kinds = match (RelPath::new(&query.path), &deletion.evidence) {
        (Ok(path), Some(evidence)) => {
            ExistenceQueryResponder { lane, source: lane.source, evidence }.answer(&path, &query.names)
        }
        _ => vec![SourceNameExistence::Unknown; query.names.len()],
    };
    assert_eq!(kinds.len(), query.names.len(), "each name has an answer");
    let kinds = kinds.into_iter().map(|kind| kind as u8).collect();
    // Counted before the answer leaves: the sink may ask again as soon as it arrives.
    deletion.note_answer();
    lane.send_message(ControlMessage::Stands(SourceExistenceReply { id: query.id, kinds }));
}

struct ExistenceQueryResponder<'a> {
    lane: &'a SourceLane<'a>,
    source: &'a SourceContext<'a>,
    evidence: &'a DeletionEvidence,
}

impl ExistenceQueryResponder<'_> {
    /// Answers for each name in the directory with the path `path` at the sink.
    fn answer(&self, path: &RelPath, names: &[Vec<u8>]) -> Vec<SourceNameExistence> {
        let mut found: Vec<SourceNameExistence> =
            names.iter().map(|name| self.existence_by_placement(path, name)).collect();
        for index in 0..self.source.tree.roots.len() {
            let Some(beneath) = path_beneath_root(&self.source.tree.roots[index], path) else { continue };
            let in_tree = self.existence_in_root(index, &beneath, names);
            assert!(in_tree.len() == names.len(), "each tree answers for each name");
            found.iter_mut().zip(in_tree).for_each(|(found, existence)| *found = (*found).max(existence));
        }
        found
    }

    /// Returns the existence that follows from the place of whole sources at the sink.
    fn existence_by_placement(&self, path: &RelPath, name: &[u8]) -> SourceNameExistence {
        let Ok(place) = path.join(name) else { return SourceNameExistence::Unknown };
        let existences = self.source.tree.roots.iter().map(|root| match &root.what {
            ScanRootScope::Tree { sink } if is_within(sink, &place) => SourceNameExistence::Directory,
            ScanRootScope::Name { sink_directory, .. } if is_within(sink_directory, &place) => {
                SourceNameExistence::Directory
            }
            ScanRootScope::Name { sink_directory, sink_name, .. }
                if sink_directory == path && **sink_name == *name =>
            {
                SourceNameExistence::Entry
            }
            ScanRootScope::Tree { .. } | ScanRootScope::Name { .. } => SourceNameExistence::Nothing,
        });
        existences.max().unwrap_or(SourceNameExistence::Unknown)
    }

    /// Answers for each name in the directory `path` of one root.
    fn existence_in_root(&self, index: usize, path: &RelPath, names: &[Vec<u8>]) -> Vec<SourceNameExistence> {
        let root = &self.source.tree.roots[index];
        let mut found = match root.root.open_directory(path) {
            Ok(held) => {
                let follows = root.root.follows_links();
                let mut found: Vec<SourceNameExistence> =
                    names.iter().map(|name| stat_name(held.as_fd(), name, follows)).collect();
                if found.contains(&SourceNameExistence::Nothing) {
                    let proof = self.prove(index, path, held.as_fd());
                    self.keep_unproven(index, path, proof, &mut found);
                }
                found
            }
            Err(error) if is_absence(&error) => {
                let mut found = vec![SourceNameExistence::Nothing; names.len()];
                if !self.is_proven_absent(index, path) {
                    let was_seen = self.evidence.record.has_seen(index, path);
                    let doubt =
                        if was_seen { AbsenceProofFailure::Changed } else { AbsenceProofFailure::Unseen };
                    self.keep_unproven(index, path, Err(doubt), &mut found);
                }
                found
            }
            Err(_) => vec![SourceNameExistence::Unknown; names.len()],
        };
        if found.contains(&SourceNameExistence::Nothing) {
            self.check_root(index, &mut found);
        }
        if !self.evidence.believes_empty_sources
            && let Some(index) = self.empty_source_beside(root)
        {
            found.fill(SourceNameExistence::Unknown);
            let detail = "it has no entries, or the patterns leave out all of them: nothing is deleted at the destination without \
                          --delete-all";
            self.report_kept(index, &RelPath::root(), FailureKind::Missing, detail);
        }
        found
    }

    /// Proves that names missing now were missing in the scan.
    fn prove(&self, index: usize, path: &RelPath, held: BorrowedFd<'_>) -> Result<(), AbsenceProofFailure> {
        let file_system = self.source.tree.file_systems.file_system_of(held);
        let is_local = file_system
            .is_ok_and(|file_system| file_system.own_target().medium != TargetAttachmentKind::Network);
        self.evidence.record.check_listing((index, &self.source.tree.roots[index]), path, held, is_local)
    }

    /// Returns true if the listing of a parent directory proves that a missing directory was missing in the
    /// scan.
    fn is_proven_absent(&self, index: usize, path: &RelPath) -> bool {
        let root = &self.source.tree.roots[index].root;
        let mut path = path.clone();
        while let Some((above, name)) = path.split_last() {
            match root.open_directory(&above) {
                Ok(held) => {
                    return stat_name(held.as_fd(), name, root.follows_links())
                        == SourceNameExistence::Nothing
                        && self.prove(index, &above, held.as_fd()).is_ok();
                }
                Err(error) if is_absence(&error) => path = above,
                Err(_) => return false,
            }
        }
        false
    }

    /// Marks unproven names as unknown.
    fn keep_unproven(
        &self,
        index: usize,
        path: &RelPath,
        proof: Result<(), AbsenceProofFailure>,
        found: &mut [SourceNameExistence],
    ) {
        let Err(doubt) = proof else { return };
        forget_absence(found);
        match doubt {
            // It was left out of the scan, or created since.
            AbsenceProofFailure::Unseen => {}
            AbsenceProofFailure::Changed => {
                let detail = "it changed during this run: what it lacks is not deleted at the destination";
                self.report_kept(index, path, FailureKind::Changed, detail);
            }
            AbsenceProofFailure::Unmounted => {
                let detail = "the file system that belongs here is not mounted: what is missing is not deleted at the destination";
                self.report_kept(index, path, FailureKind::Missing, detail);
            }
        }
    }

    /// Checks the root: a source that is gone proves nothing.
    fn check_root(&self, index: usize, found: &mut [SourceNameExistence]) {
        if let Err(why) = self.evidence.record.check_root(index, &self.source.tree.roots[index].root) {
            forget_absence(found);
            let detail = format!("{why} during this run: what it lacks is not deleted at the destination");
            self.report_kept(index, &RelPath::root(), FailureKind::Changed, &detail);
        }
    }

    /// Returns an empty source among those that share this source's directory at the sink.
    fn empty_source_beside(&self, tree: &ScanRoot) -> Option<usize> {
        let roots = self.source.tree.roots.iter().enumerate();
        let mut same = roots.filter(|(_, root)| directory_at_sink(root) == directory_at_sink(tree));
        same.find(|(index, _)| !self.evidence.record.has_entries(*index)).map(|(index, _)| index)
    }

    /// Reports a directory whose entries are kept, once.
    fn report_kept(&self, index: usize, path: &RelPath, kind: FailureKind, detail: &str) {
        let shown = self.source.tree.roots[index].root.full_path(path, b"");
        if self.evidence.should_report(&shown) {
            self.lane.fail_path(shown, kind, detail);
        }
    }
}

/// Returns the directory of the sink that a scanned tree becomes.
fn directory_at_sink(root: &ScanRoot) -> Option<&RelPath> {
    match &root.what {
        ScanRootScope::Tree { sink } => Some(sink),
        ScanRootScope::Name { .. } => None,
    }
}

fn forget_absence(found: &mut [SourceNameExistence]) {
    let absent = found.iter_mut().filter(|existence| **existence == SourceNameExistence::Nothing);
    absent.for_each(|existence| *existence = SourceNameExistence::Unknown);
}

/// Returns true if `path` equals `place` or lies beneath it.
fn is_within(path: &RelPath, place: &RelPath) -> bool {
    match path.as_bytes().strip_prefix(place.as_bytes()) {
        Some(rest) => rest.is_empty() || rest[0] == b'/',
        None => false,
    }
}

fn stat_name(directory: BorrowedFd<'_>, name: &[u8], follow: bool) -> SourceNameExistence {
    let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    match statat(directory, name, flags) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
            SourceNameExistence::Directory
        }
        Ok(_) => SourceNameExistence::Entry,
        // It may be a link that leads nowhere.
        Err(Errno::NOENT) if follow => match stat_name(directory, name, false) {
            SourceNameExistence::Nothing => SourceNameExistence::Nothing,
            _ => SourceNameExistence::Unknown,
        },
        Err(Errno::NOENT) => SourceNameExistence::Nothing,
        Err(_) => SourceNameExistence::Unknown,
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

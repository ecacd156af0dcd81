//! The proof for removals at a sink that mirrors the source (`carrack sync --delete`), and their progress.
//!
//! Used by the scan, by I/O threads, and by the comm thread of the first lane.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use carrack_model::{AgreedTransferSpec, RelPath};
use carrack_storage::{ScanListingProof, ScanRoot, ScanRootScope};

use super::pre_deletion::PreDeletionProgress;

/// Limit of directories that are reported one by one. Entries of further directories are kept silently.
const TOLD_MAX: usize = 1_000;

/// The proof that a name is absent, and the progress of the removal.
pub(super) struct DeletionProof {
    /// The wait for a removal before the transfer.
    pub(super) clearing: Option<PreDeletionProgress>,
    /// The scan's record, in a transfer that deletes.
    pub(super) evidence: Option<DeletionEvidence>,
    /// Existence queries that were answered.
    answered: AtomicU64,
}

impl DeletionProof {
    /// Creates the proof for a transfer whose scan keeps this record.
    pub(super) fn new(spec: &AgreedTransferSpec, record: Option<Arc<ScanListingProof>>) -> DeletionProof {
        let deletion = spec.sync.as_ref().and_then(|sync| sync.deletion.as_ref());
        let believes_empty_sources = deletion.is_some_and(|deletion| deletion.by_empty_sources);
        DeletionProof {
            clearing: deletion.is_some_and(|deletion| deletion.first).then(PreDeletionProgress::new),
            evidence: record.map(|record| DeletionEvidence {
                record,
                believes_empty_sources,
                told: Mutex::default(),
            }),
            answered: AtomicU64::new(0),
        }
    }

    /// Counts an existence query that is about to be answered.
    pub(super) fn note_answer(&self) {
        self.answered.fetch_add(1, Relaxed);
    }

    pub(super) fn answered_count(&self) -> u64 {
        self.answered.load(Relaxed)
    }
}

/// The record of the scan.
pub(super) struct DeletionEvidence {
    pub(super) record: Arc<ScanListingProof>,
    /// True if entries that an empty source lacks are absent, too.
    pub(super) believes_empty_sources: bool,
    /// Directories that were reported with the reason why nothing is deleted in them.
    told: Mutex<HashSet<Box<[u8]>>>,
}

impl DeletionEvidence {
    /// Returns true if a directory has not been reported, and the limit allows a report.
    pub(super) fn should_report(&self, shown: &[u8]) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.len() < TOLD_MAX && told.insert(shown.into())
    }
}

/// Returns the place of a destination directory beneath a root, if it belongs to that root.
pub(super) fn path_beneath_root(root: &ScanRoot, path: &RelPath) -> Option<RelPath> {
    let ScanRootScope::Tree { sink } = &root.what else { return None };
    if sink.is_root() {
        return Some(path.clone());
    }
    match path.as_bytes().strip_prefix(sink.as_bytes())? {
        [] => Some(RelPath::root()),
        [b'/', rest @ ..] => RelPath::new(rest).ok(),
        _ => None,
    }
}

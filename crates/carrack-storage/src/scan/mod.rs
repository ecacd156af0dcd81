//! The parallel streamed scan: walks the sources and hands on their entries in sections.
//!
//! Owns the threads of the walk, which all end before [`SourceScan::run`] returns. Its memory and its open
//! descriptors are bounded for every tree (see [`walker`](self::walker) and [`TaskQueue`]): it never holds
//! the list of a whole directory. It changes nothing at the source, and makes no decision on the order of
//! copying.

mod filter;
mod inspect;
mod level;
mod lineage;
mod listing_hashes;
mod queue;
mod retries;
mod waiting_subdirectories;
mod walker;

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use carrack_machine::DescriptorBudget;
use carrack_model::limits::IO_THREADS_MAX;
use carrack_model::{DirectorySection, EntryFailure, FailureKind, RelPath};

use crate::{ExtraMetadataReader, FileIdentity, RootDirectory};
pub use filter::{BadPattern, DeletionCircumstances, FilteredDirectory, ScanFilter};
pub use listing_hashes::{AbsenceProofFailure, ScanListingProof};
use queue::TaskQueue;
pub use retries::ScanRetries;
use walker::ScanWalker;

/// Directories that all threads together hold open while they walk deeper, or fewer if the process may have
/// few descriptors. A thread's suspended levels beyond its share are closed, and opened again on the way
/// back.
const OPEN_DIRECTORIES_MAX: usize = 512;

/// Largest share of a thread; few trees are deeper.
const OPEN_LEVELS_PER_THREAD_MAX: usize = 128;

/// Smallest share of a thread, even with [`IO_THREADS_MAX`] threads.
const OPEN_LEVELS_PER_THREAD_MIN: usize = 2;

/// Directories offered to idle threads, for each thread, so that a thread finds the next directory at once.
const QUEUE_TASKS_PER_THREAD: usize = 2;

/// Directories that a thread holds open besides its suspended levels: the listed one, and the parents of
/// offered ones.
const OTHER_DIRECTORIES_PER_THREAD: usize = 1 + QUEUE_TASKS_PER_THREAD;

/// Directories that a thread needs at least.
const DIRECTORIES_PER_THREAD_MIN: usize = OPEN_LEVELS_PER_THREAD_MIN + OTHER_DIRECTORIES_PER_THREAD;

/// One of the sources that the user named.
#[derive(Clone, Debug)]
pub struct ScanRoot {
    /// The copied directory, or the parent of the copied entry.
    pub root: Arc<RootDirectory>,
    /// The part of the root that is copied.
    pub what: ScanRootScope,
}

/// The part of a root that is copied.
#[derive(Clone, Debug)]
pub enum ScanRootScope {
    /// Everything in the root, which becomes the directory `sink`.
    Tree {
        /// Its path beneath the destination; the empty path is the destination.
        sink: RelPath,
    },
    /// One file or link.
    Name {
        /// Its name in the root.
        name: Box<[u8]>,
        /// The directory beneath the destination that receives it.
        sink_directory: RelPath,
        /// Its name there.
        sink_name: Box<[u8]>,
        /// Set if a link is followed and the contents of its target are copied.
        follow: bool,
    },
}

/// A result of the scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScannedItem {
    /// Entries of one directory, at most [`carrack_model::limits::SCAN_BATCH_ENTRIES_MAX`].
    ///
    /// The first section of a directory carries its metadata, and precedes the sections of its
    /// subdirectories. It comes with the device number of its file system, see
    /// [`carrack_layout::FileSystems::known_file_system`].
    Section(DirectorySection, u64),
    /// An entry that can't be copied, with its path as the user knows it.
    Failed(EntryFailure),
    /// An entry that is left out: a socket, pipe or device, or one that a [`ScanFilter`] rejects.
    Skipped {
        /// Its path as the user knows it.
        path: Box<[u8]>,
        /// Its type, such as "a socket", or the filter's reason.
        reason: String,
    },
}

/// A walk over the sources of one transfer.
#[derive(Clone, Debug)]
pub struct SourceScan {
    /// The sources, in the order of a section's `root_index`.
    pub roots: Vec<ScanRoot>,
    /// Number of threads, including the caller's; at least 1.
    pub threads: usize,
    /// The destination, which is never entered: [`carrack_model::FailureKind::IntoItself`].
    pub destination: Option<FileIdentity>,
    /// Reads owners and attributes, if they are kept.
    pub extras: Option<Arc<ExtraMetadataReader>>,
    /// Selects the entries that are left out, if any are.
    pub filter: Option<Arc<ScanFilter>>,
    /// Records the listed directories, if a deletion needs proof.
    pub record: Option<Arc<ScanListingProof>>,
}

impl SourceScan {
    /// Walks all sources; returns when everything is found, or soon after `found` returned `Break`.
    ///
    /// `found` is called from all threads at once and may block, which slows the scan down to the speed of
    /// its consumer. At a `Break` the calls of other threads end, and no further call begins.
    pub fn run(&self, found: &(dyn Fn(ScannedItem) -> ControlFlow<()> + Sync)) {
        self.run_on(&|_, work| work(), None, found);
    }

    /// As [`SourceScan::run`], but thread `i` works within `around(i, work)`, which may pin it, and requests
    /// are repeated by `retries`. The caller's thread is 0.
    pub fn run_on(
        &self,
        around: &(dyn Fn(usize, &dyn Fn()) + Sync),
        retries: Option<&dyn ScanRetries>,
        found: &(dyn Fn(ScannedItem) -> ControlFlow<()> + Sync),
    ) {
        let directories = DescriptorBudget::of_this_process().walk_directories_max(OPEN_DIRECTORIES_MAX);
        let threads = self.threads.min(directories / DIRECTORIES_PER_THREAD_MIN).clamp(1, IO_THREADS_MAX);
        let offers_max = if threads == 1 { 0 } else { threads * QUEUE_TASKS_PER_THREAD };
        let queue = &TaskQueue::new(self.roots.len(), offers_max);
        let levels_max = open_levels_max(directories / threads);
        thread::scope(|scope| {
            for i in 1..threads {
                // If no more threads can be started, the existing ones do the work.
                let builder = thread::Builder::new().name("carrack-scan".to_owned());
                let spawned = builder.spawn_scoped(scope, move || {
                    around(i, &|| ScanWalker::new(self, queue, (found, retries), levels_max).run());
                });
                if spawned.is_err() {
                    break;
                }
            }
            around(0, &|| ScanWalker::new(self, queue, (found, retries), levels_max).run());
        });
        if !queue.is_stopped() {
            self.tell_missing(found);
        }
    }

    /// Reports missing names of the filter's list as failures beneath the first root.
    fn tell_missing(&self, found: &(dyn Fn(ScannedItem) -> ControlFlow<()> + Sync)) {
        let (Some(filter), Some(first)) = (&self.filter, self.roots.first()) else { return };
        for name in filter.missing() {
            let failure = EntryFailure {
                path: first.root.full_path(&RelPath::root(), name),
                kind: FailureKind::Missing,
                detail: "it is in the list only".to_owned(),
            };
            if found(ScannedItem::Failed(failure)).is_break() {
                return;
            }
        }
    }
}

/// The open levels of a thread that may hold this number of directories open.
fn open_levels_max(directories: usize) -> usize {
    directories
        .saturating_sub(OTHER_DIRECTORIES_PER_THREAD)
        .clamp(OPEN_LEVELS_PER_THREAD_MIN, OPEN_LEVELS_PER_THREAD_MAX)
}

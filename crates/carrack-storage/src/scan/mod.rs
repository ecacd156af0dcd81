//! The parallel streamed scan: walks the sources and hands on what it finds, section by section.
//!
//! Owns the threads of the walk, which all end before [`Scan::run`] returns. Its memory and its open descriptors are
//! bounded whatever the tree (see [`walker`](self::walker) and [`TaskQueue`]): nobody ever holds the list of a directory.
//! It must not change anything at the source, nor choose in which order entries are copied.

mod filter;
mod inspect;
mod level;
mod lineage;
mod name_list;
mod queue;
mod record;
mod walker;

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use carrack_machine::Descriptors;
use carrack_model::limits::IO_THREADS_MAX;
use carrack_model::{EntryFailure, FailureKind, RelPath, Section};

use crate::{ExtrasReader, Identity, Root};
pub use filter::{BadPattern, Filter};
use queue::TaskQueue;
pub use record::{Doubt, ScanRecord};
use walker::Walker;

/// Directories that all threads together hold open while they walk deeper, or fewer where the process may have few descriptors. A
/// thread's suspended levels beyond its share are closed, and opened again on the way back.
const OPEN_DIRECTORIES_MAX: usize = 512;

/// No thread's share is larger: hardly a tree is deeper.
const OPEN_LEVELS_PER_THREAD_MAX: usize = 128;

/// No thread's share is smaller than this, even with [`IO_THREADS_MAX`] threads.
const OPEN_LEVELS_PER_THREAD_MIN: usize = 2;

/// Directories offered to idle threads, for each thread: enough that one which ends finds another at once.
const QUEUE_TASKS_PER_THREAD: usize = 2;

/// Directories that a thread has open beside its suspended levels: the one that it lists, and those in which offered ones are.
const OTHER_DIRECTORIES_PER_THREAD: usize = 1 + QUEUE_TASKS_PER_THREAD;

/// A thread needs so many.
const DIRECTORIES_PER_THREAD_MIN: usize = OPEN_LEVELS_PER_THREAD_MIN + OTHER_DIRECTORIES_PER_THREAD;

/// One of the sources that the user named.
#[derive(Clone, Debug)]
pub struct ScanRoot {
    /// The directory that is copied or that holds what is copied.
    pub root: Arc<Root>,
    /// What of it.
    pub what: RootKind,
}

/// What is copied of a root.
#[derive(Clone, Debug)]
pub enum RootKind {
    /// Everything in the root, which itself becomes the directory `sink`.
    Tree {
        /// Beneath the destination; the empty path is the destination itself.
        sink: RelPath,
    },
    /// One file or link.
    Name {
        /// Its name in the root.
        name: Box<[u8]>,
        /// The directory beneath the destination where it goes.
        sink_directory: RelPath,
        /// Its name there.
        sink_name: Box<[u8]>,
        /// Whether a link is followed, and the contents of the file copied that it leads to.
        follow: bool,
    },
}

/// Something that the scan found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Entries of one directory, at most [`carrack_model::limits::SCAN_BATCH_ENTRIES_MAX`].
    ///
    /// The first section of a directory carries its metadata, and comes before any of the directories in it. With it
    /// comes the device number of the file system that it lies on, see [`crate::FileSystems::known`].
    Section(Section, u64),
    /// An entry that can't be copied, with its path as the user knows it.
    Failed(EntryFailure),
    /// What is left out: a socket, pipe or device, or what a [`Filter`] does not let through.
    Skipped {
        /// Its path as the user knows it.
        path: Box<[u8]>,
        /// What it is, such as "a socket", or why.
        reason: String,
    },
}

/// A walk over the sources of one transfer.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The sources; a section's `root_index` counts in them.
    pub roots: Vec<ScanRoot>,
    /// Threads that walk, the caller's included; at least 1.
    pub threads: usize,
    /// A directory never entered, because it is the destination: [`carrack_model::FailureKind::IntoItself`].
    pub destination: Option<Identity>,
    /// What reads owners and attributes, where they are kept.
    pub extras: Option<Arc<ExtrasReader>>,
    /// What is left out, if anything is.
    pub filter: Option<Arc<Filter>>,
    /// What notes the directories that were listed, where something is to be proven by that.
    pub record: Option<Arc<ScanRecord>>,
}

impl Scan {
    /// Walks everything; returns when all is found, or soon after `found` answered `Break`.
    ///
    /// `found` is called from all threads at once and may block: that is how whoever takes the sections slows the scan.
    /// Calls that other threads are in at a `Break` end; no call begins after it.
    pub fn run(&self, found: &(dyn Fn(Found) -> ControlFlow<()> + Sync)) {
        self.run_on(&|_, work| work(), found);
    }

    /// The same, where the work of thread `i`, the caller's being 0, is done within `around(i, work)`: whoever pins threads
    /// does it there.
    pub fn run_on(
        &self,
        around: &(dyn Fn(usize, &dyn Fn()) + Sync),
        found: &(dyn Fn(Found) -> ControlFlow<()> + Sync),
    ) {
        let directories = Descriptors::of_this_process().walk(OPEN_DIRECTORIES_MAX);
        let threads = self.threads.min(directories / DIRECTORIES_PER_THREAD_MIN).clamp(1, IO_THREADS_MAX);
        let offers_max = if threads == 1 { 0 } else { threads * QUEUE_TASKS_PER_THREAD };
        let queue = TaskQueue::new(self.roots.len(), offers_max);
        let work = || Walker::new(self, &queue, found, open_levels_max(directories / threads)).run();
        thread::scope(|scope| {
            for i in 1..threads {
                // Where no more threads can be had, those that are there do the work.
                let builder = thread::Builder::new().name("carrack-scan".to_owned());
                let work = &work;
                if builder.spawn_scoped(scope, move || around(i, work)).is_err() {
                    break;
                }
            }
            around(0, &work);
        });
        if !queue.is_stopped() {
            self.tell_missing(found);
        }
    }

    /// Names of the filter's list that are not there: failures, beneath the first root.
    fn tell_missing(&self, found: &(dyn Fn(Found) -> ControlFlow<()> + Sync)) {
        let (Some(filter), Some(first)) = (&self.filter, self.roots.first()) else { return };
        for name in filter.missing() {
            let failure = EntryFailure {
                path: first.root.full_path(&RelPath::root(), name),
                kind: FailureKind::Missing,
                detail: "it is in the list only".to_owned(),
            };
            if found(Found::Failed(failure)).is_break() {
                return;
            }
        }
    }
}

/// Of a thread that may hold so many directories open.
fn open_levels_max(directories: usize) -> usize {
    directories
        .saturating_sub(OTHER_DIRECTORIES_PER_THREAD)
        .clamp(OPEN_LEVELS_PER_THREAD_MIN, OPEN_LEVELS_PER_THREAD_MAX)
}

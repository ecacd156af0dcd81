//! The directories that wait for an idle thread, and the roots that no thread has begun.
//!
//! Bounded: a thread that finds it full walks its directory itself. Shared by all threads of a scan; the lock
//! is held for a few instructions only.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use carrack_model::CopiedDirectoryPaths;

use super::lineage::InheritedDirectoryState;

/// A directory that was found and not yet opened.
pub(super) struct ChildDirectory {
    /// The directory that holds it.
    pub parent: Arc<OwnedFd>,
    /// Its path; the last component of `source` is its name in `parent`.
    pub directory: Arc<CopiedDirectoryPaths>,
    /// The state of the parent.
    pub inherited: InheritedDirectoryState,
}

/// Work for a thread.
pub(super) enum ScanTask {
    /// Begin the root of this index.
    Root(usize),
    /// Walk this directory.
    Directory(ChildDirectory),
}

pub(super) struct TaskQueue {
    state: Mutex<TaskQueueState>,
    wake: Condvar,
    root_count: usize,
    offers_max: usize,
    /// A copy of the number of offers, so that a full queue costs no lock.
    offer_count: AtomicUsize,
    stopped: AtomicBool,
}

#[derive(Default)]
struct TaskQueueState {
    offers: VecDeque<ChildDirectory>,
    next_root: usize,
    busy_count: usize,
}

impl TaskQueue {
    pub fn new(root_count: usize, offers_max: usize) -> TaskQueue {
        TaskQueue {
            state: Mutex::default(),
            wake: Condvar::new(),
            root_count,
            offers_max,
            offer_count: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    /// Offers a directory to the other threads; returns it if the queue is full.
    pub fn offer(&self, child: ChildDirectory) -> Option<ChildDirectory> {
        if self.offer_count.load(Ordering::Relaxed) >= self.offers_max {
            return Some(child);
        }
        let mut state = self.lock();
        if state.offers.len() >= self.offers_max {
            return Some(child);
        }
        state.offers.push_back(child);
        self.offer_count.store(state.offers.len(), Ordering::Relaxed);
        drop(state);
        self.wake.notify_one();
        None
    }

    /// Waits for work; returns none when all work is done, or after [`TaskQueue::stop`].
    pub fn take(&self) -> Option<(ScanTask, BusyGuard<'_>)> {
        let mut state = self.lock();
        while !self.is_stopped() {
            if let Some(task) = self.next(&mut state) {
                state.busy_count += 1;
                return Some((task, BusyGuard { queue: self }));
            }
            if state.busy_count == 0 {
                break;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    fn next(&self, state: &mut TaskQueueState) -> Option<ScanTask> {
        if let Some(child) = state.offers.pop_front() {
            self.offer_count.store(state.offers.len(), Ordering::Relaxed);
            return Some(ScanTask::Directory(child));
        }
        let index = state.next_root;
        (index < self.root_count).then(|| {
            state.next_root += 1;
            ScanTask::Root(index)
        })
    }

    /// Ends the scan: no thread gets work any more.
    pub fn stop(&self) {
        // Under the lock, so that no thread is between its check of the flag and its wait.
        let state = self.lock();
        self.stopped.store(true, Ordering::Relaxed);
        drop(state);
        self.wake.notify_all();
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, TaskQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks a thread as busy; the last one to be dropped ends the scan.
pub(super) struct BusyGuard<'a> {
    queue: &'a TaskQueue,
}

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.queue.stop();
        }
        let mut state = self.queue.lock();
        state.busy_count -= 1;
        let was_last = state.busy_count == 0;
        drop(state);
        if was_last {
            self.queue.wake.notify_all();
        }
    }
}

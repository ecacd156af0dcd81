//! The directories that wait for an idle thread, and the roots that nobody has begun.
//!
//! Bounded: a thread that finds it full walks its directory itself. Shared by all threads of a scan; the lock is held
//! for a few instructions only.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use carrack_model::Directory;

use super::lineage::Lineage;

/// A directory that was found and not yet opened.
pub(super) struct Child {
    /// The directory that it stands in.
    pub parent: Arc<OwnedFd>,
    /// Where it is; the last component of `source` is its name in `parent`.
    pub directory: Arc<Directory>,
    /// The parent's.
    pub lineage: Option<Arc<Lineage>>,
}

/// Work for a thread.
pub(super) enum Task {
    /// Begin the root of this index.
    Root(usize),
    /// Walk this directory.
    Directory(Child),
}

pub(super) struct TaskQueue {
    state: Mutex<State>,
    wake: Condvar,
    root_count: usize,
    offers_max: usize,
    /// A copy of the number of offers, so that a full queue costs no lock.
    offer_count: AtomicUsize,
    stopped: AtomicBool,
}

#[derive(Default)]
struct State {
    offers: VecDeque<Child>,
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

    /// Leaves a directory to another thread; gives it back when enough are waiting.
    pub fn offer(&self, child: Child) -> Option<Child> {
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

    /// Waits for work; nothing when all work is done, or after [`TaskQueue::stop`].
    pub fn take(&self) -> Option<(Task, Lease<'_>)> {
        let mut state = self.lock();
        while !self.is_stopped() {
            if let Some(task) = self.next(&mut state) {
                state.busy_count += 1;
                return Some((task, Lease { queue: self }));
            }
            if state.busy_count == 0 {
                break;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    fn next(&self, state: &mut State) -> Option<Task> {
        if let Some(child) = state.offers.pop_front() {
            self.offer_count.store(state.offers.len(), Ordering::Relaxed);
            return Some(Task::Directory(child));
        }
        let index = state.next_root;
        (index < self.root_count).then(|| {
            state.next_root += 1;
            Task::Root(index)
        })
    }

    /// Ends the scan: nobody finds work any more.
    pub fn stop(&self) {
        // Under the lock, so that no thread can be between its look at the flag and its wait.
        let state = self.lock();
        self.stopped.store(true, Ordering::Relaxed);
        drop(state);
        self.wake.notify_all();
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that a thread is at work; the last one to drop it ends the scan.
pub(super) struct Lease<'a> {
    queue: &'a TaskQueue,
}

impl Drop for Lease<'_> {
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

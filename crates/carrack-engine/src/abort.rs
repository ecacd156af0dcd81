//! The interruption of a transfer: set once, from any thread or a signal's thread, and seen by every thread
//! that waits. The handle also knows the requests to storage for which an interrupted transfer still waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::error::SessionError;
use crate::storage_requests::StorageRequests;

/// A handle to interrupt a transfer. Clones share its state.
#[derive(Clone)]
pub struct AbortHandle {
    shared: Arc<AbortState>,
}

struct AbortState {
    is_set: AtomicBool,
    is_dismissal: AtomicBool,
    event: OwnedFd,
    requests: Arc<StorageRequests>,
}

impl AbortHandle {
    /// Creates a handle that is not set.
    pub fn new() -> io::Result<AbortHandle> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (is_set, is_dismissal) = (AtomicBool::new(false), AtomicBool::new(false));
        let requests = Arc::new(StorageRequests::new());
        Ok(AbortHandle { shared: Arc::new(AbortState { is_set, is_dismissal, event, requests }) })
    }

    /// Interrupts the transfer: temporary files are removed, and the peer gets a message.
    pub fn interrupt(&self) {
        self.shared.is_set.store(true, Ordering::Release);
        // The counter can't overflow into an error that matters: one write is enough to make it readable.
        let _ = rustix::io::write(&self.shared.event, &1u64.to_ne_bytes());
    }

    /// Interrupts the transfer at this end only: this process must end, but the other end may start another
    /// session.
    pub fn interrupt_locally(&self) {
        self.shared.is_dismissal.store(true, Ordering::Release);
        self.interrupt();
    }

    /// Waits for `duration`, or until the handle is set. Returns true if it is set.
    pub fn wait(&self, duration: Duration) -> bool {
        let deadline = Instant::now() + duration;
        while !self.is_set() {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::from_borrowed_fd(self.readiness(), PollFlags::IN)], Some(&timeout)) {
                Ok(_) if !left.is_zero() => {}
                Err(Errno::INTR) => {}
                _ => break,
            }
        }
        self.is_set()
    }

    /// Returns the error with which the session ends.
    pub(crate) fn error(&self) -> SessionError {
        let is_dismissal = self.shared.is_dismissal.load(Ordering::Acquire);
        if is_dismissal { SessionError::Dismissed } else { SessionError::Interrupted }
    }

    /// Returns true if the handle is set.
    pub fn is_set(&self) -> bool {
        self.shared.is_set.load(Ordering::Acquire)
    }

    /// Returns the requests to storage in this process that have not returned, in words; `None` if there are
    /// none. An interrupted transfer waits for them.
    pub fn outstanding_requests(&self) -> Option<String> {
        self.shared.requests.describe(Instant::now())
    }

    /// Returns the table in which the transfer's ends in this process note their requests.
    pub(crate) fn storage_requests(&self) -> Arc<StorageRequests> {
        Arc::clone(&self.shared.requests)
    }

    /// Returns a duplicate of the descriptor, for a thread that polls elsewhere.
    pub(crate) fn readiness_owned(&self) -> io::Result<OwnedFd> {
        self.shared.event.try_clone()
    }

    /// Readable once the handle is set.
    pub fn readiness(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

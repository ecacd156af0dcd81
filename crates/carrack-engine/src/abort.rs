//! The user's wish to stop: set once, from any thread or a signal's thread; seen by everything that waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::error::SessionError;

/// A handle to interrupt a transfer. Clones share it.
#[derive(Clone)]
pub struct Abort {
    shared: Arc<Shared>,
}

struct Shared {
    is_set: AtomicBool,
    is_dismissal: AtomicBool,
    event: OwnedFd,
}

impl Abort {
    /// Not set.
    pub fn new() -> io::Result<Abort> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (is_set, is_dismissal) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Abort { shared: Arc::new(Shared { is_set, is_dismissal, event }) })
    }

    /// Asks the transfer to stop: temporary names are removed, the peer is told.
    pub fn interrupt(&self) {
        self.shared.is_set.store(true, Ordering::Release);
        // The counter can't overflow into an error that matters: one write is enough to make it readable.
        let _ = rustix::io::write(&self.shared.event, &1u64.to_ne_bytes());
    }

    /// The same, where it is not the user who wants it: this process has to go, and the other end may come again.
    pub fn dismiss(&self) {
        self.shared.is_dismissal.store(true, Ordering::Release);
        self.interrupt();
    }

    /// Waits so long, or until somebody asks; whether somebody did.
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

    /// As what it ends a session.
    pub(crate) fn error(&self) -> SessionError {
        match self.shared.is_dismissal.load(Ordering::Acquire) {
            true => SessionError::Dismissed,
            false => SessionError::Interrupted,
        }
    }

    /// Whether somebody asked.
    pub fn is_set(&self) -> bool {
        self.shared.is_set.load(Ordering::Acquire)
    }

    /// A descriptor of its own for whoever waits elsewhere.
    pub(crate) fn readiness_owned(&self) -> io::Result<OwnedFd> {
        self.shared.event.try_clone()
    }

    /// Readable once somebody asked.
    pub(crate) fn readiness(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

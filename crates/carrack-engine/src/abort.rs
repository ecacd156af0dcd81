//! The user's wish to stop: set once, from any thread or a signal's thread; seen by everything that waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// A handle to interrupt a transfer. Clones share it.
#[derive(Clone)]
pub struct Abort {
    shared: Arc<Shared>,
}

struct Shared {
    is_set: AtomicBool,
    event: OwnedFd,
}

impl Abort {
    /// Not set.
    pub fn new() -> io::Result<Abort> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Abort { shared: Arc::new(Shared { is_set: AtomicBool::new(false), event }) })
    }

    /// Asks the transfer to stop: temporary names are removed, the peer is told.
    pub fn interrupt(&self) {
        self.shared.is_set.store(true, Ordering::Release);
        // The counter can't overflow into an error that matters: one write is enough to make it readable.
        let _ = rustix::io::write(&self.shared.event, &1u64.to_ne_bytes());
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

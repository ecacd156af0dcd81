//! Requests of other threads to the comm thread. Bounded, so that reports can't fill memory.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use carrack_machine::{FifoConditionLock, FifoMonitorClosed};
use rustix::event::{EventfdFlags, eventfd};

/// Requests that may wait before posting blocks: more than all endpoints and I/O threads together can have.
const LETTERS_MAX: usize = 1024;

/// A bounded queue whose reader sleeps in `poll`.
pub(crate) struct CommMailbox<T> {
    letters: FifoConditionLock<VecDeque<T>>,
    event: MailboxWaker,
}

/// Wakes the comm thread of a mailbox, for parts that outlive their access to the mailbox.
#[derive(Clone)]
pub(crate) struct MailboxWaker(Arc<OwnedFd>);

impl MailboxWaker {
    /// Wakes the comm thread.
    pub(crate) fn wake(&self) {
        // The counter can't overflow: the comm thread reads it before each look.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

impl<T> CommMailbox<T> {
    pub(crate) fn new() -> io::Result<CommMailbox<T>> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(CommMailbox {
            letters: FifoConditionLock::new(VecDeque::new()),
            event: MailboxWaker(Arc::new(event)),
        })
    }

    /// Returns a waker for parts that do not post.
    pub(crate) fn waker(&self) -> MailboxWaker {
        self.event.clone()
    }

    /// Posts a request, and waits while the mailbox is full. Not for the comm thread, which would wait for
    /// itself.
    pub(crate) fn post(&self, letter: T) -> Result<(), FifoMonitorClosed> {
        let mut letter = Some(letter);
        self.letters.take(|letters| {
            if letters.len() >= LETTERS_MAX {
                return None;
            }
            letters.extend(letter.take());
            Some(())
        })?;
        self.wake();
        Ok(())
    }

    /// Takes all requests.
    pub(crate) fn drain(&self) -> VecDeque<T> {
        self.letters.change_and_wake_many(LETTERS_MAX, std::mem::take)
    }

    /// Wakes the comm thread.
    pub(crate) fn wake(&self) {
        self.event.wake();
    }

    /// Readable once woken.
    pub(crate) fn readiness(&self) -> BorrowedFd<'_> {
        self.event.0.as_fd()
    }

    /// Resets earlier wake-ups. Call it before [`CommMailbox::drain`].
    pub(crate) fn reset_wakeups(&self) {
        let _ = rustix::io::read(&*self.event.0, &mut [0; 8][..]);
    }

    /// Ends all waiting.
    pub(crate) fn close(&self) {
        self.letters.close();
        self.wake();
    }
}

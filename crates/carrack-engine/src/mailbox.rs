//! Letters to the comm thread: what the other threads want it to do. Bounded, so that reports can't fill memory.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use carrack_machine::{Closed, Monitor};
use rustix::event::{EventfdFlags, eventfd};

/// Letters that may wait before writers do: more than all endpoints and I/O threads together can have.
const LETTERS_MAX: usize = 1024;

/// A bounded queue whose reader sleeps in `poll`.
pub(crate) struct Mailbox<T> {
    letters: Monitor<VecDeque<T>>,
    event: OwnedFd,
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> io::Result<Mailbox<T>> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox { letters: Monitor::new(VecDeque::new()), event })
    }

    /// Posts a letter, waiting while the box is full. Not for the comm thread, which would wait for itself.
    pub(crate) fn post(&self, letter: T) -> Result<(), Closed> {
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

    /// Takes everything out.
    pub(crate) fn drain(&self) -> VecDeque<T> {
        self.letters.release_many(LETTERS_MAX, std::mem::take)
    }

    /// Makes the comm thread look around.
    pub(crate) fn wake(&self) {
        // The counter can't overflow: the comm thread reads it before every look around.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Readable once woken.
    pub(crate) fn readiness(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Forgets earlier wake-ups; to be called before looking around.
    pub(crate) fn listen(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8][..]);
    }

    /// Ends all waiting.
    pub(crate) fn close(&self) {
        self.letters.close();
        self.wake();
    }
}

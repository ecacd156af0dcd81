//! Letters to the comm thread: what the other threads want it to do. Bounded, so that reports can't fill memory.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use carrack_machine::{Closed, Monitor};
use rustix::event::{EventfdFlags, eventfd};

/// Letters that may wait before writers do: more than all endpoints and I/O threads together can have.
const LETTERS_MAX: usize = 1024;

/// A bounded queue whose reader sleeps in `poll`.
pub(crate) struct Mailbox<T> {
    letters: Monitor<VecDeque<T>>,
    event: Waker,
}

/// Makes the comm thread of a mailbox look around, for those who outlive what else they know of it.
#[derive(Clone)]
pub(crate) struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Makes the comm thread look around.
    pub(crate) fn wake(&self) {
        // The counter can't overflow: the comm thread reads it before every look around.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> io::Result<Mailbox<T>> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox { letters: Monitor::new(VecDeque::new()), event: Waker(Arc::new(event)) })
    }

    /// For others than those who post.
    pub(crate) fn waker(&self) -> Waker {
        self.event.clone()
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
        self.event.wake();
    }

    /// Readable once woken.
    pub(crate) fn readiness(&self) -> BorrowedFd<'_> {
        self.event.0.as_fd()
    }

    /// Forgets earlier wake-ups; to be called before looking around.
    pub(crate) fn listen(&self) {
        let _ = rustix::io::read(&*self.event.0, &mut [0; 8][..]);
    }

    /// Ends all waiting.
    pub(crate) fn close(&self) {
        self.letters.close();
        self.wake();
    }
}

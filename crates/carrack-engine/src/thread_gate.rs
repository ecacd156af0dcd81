//! The number of an end's threads that are at work (a setting of the tuner, Y5). The threads with the lowest
//! numbers work, the others wait.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};

/// Lets the first threads pass, up to a number. They stay the same until the number changes, so that the data
/// in their caches is kept.
pub(crate) struct ThreadGate {
    /// Read without the lock: passing costs a thread one load.
    open_to: AtomicUsize,
    state: Mutex<bool>,
    changed: Condvar,
}

impl ThreadGate {
    /// Creates a gate that lets `count` threads pass.
    pub(crate) fn new(count: usize) -> ThreadGate {
        assert!(count > 0, "a thread may pass from the start");
        ThreadGate { open_to: AtomicUsize::new(count), state: Mutex::new(false), changed: Condvar::new() }
    }

    /// Returns the number of threads that may pass.
    pub(crate) fn allowed_thread_count(&self) -> usize {
        self.open_to.load(Relaxed)
    }

    /// Sets the number of threads that may pass, at least one. A thread that has passed finishes its work.
    pub(crate) fn set(&self, count: usize) {
        let _state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.open_to.store(count.max(1), Relaxed);
        self.changed.notify_all();
    }

    /// Waits until the thread `number`, counted from 0, may work.
    pub(crate) fn pass(&self, number: usize) {
        if number < self.allowed_thread_count() {
            return;
        }
        let mut is_closed = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_closed && number >= self.allowed_thread_count() {
            is_closed = self.changed.wait(is_closed).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends all waiting at the end of the session.
    pub(crate) fn close(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_pass_and_the_others_stand_aside() {
        let gate = ThreadGate::new(2);
        let (passed, who) = mpsc::channel();
        thread::scope(|scope| {
            for number in 0..4 {
                let (gate, passed) = (&gate, passed.clone());
                scope.spawn(move || {
                    gate.pass(number);
                    passed.send(number)
                });
            }
            let mut first = [next(&who), next(&who)];
            first.sort_unstable();
            assert_eq!(first, [Some(0), Some(1)]);
            gate.set(3);
            assert_eq!(next(&who), Some(2));
            gate.set(0);
            assert_eq!(gate.allowed_thread_count(), 1);
            gate.close();
            assert_eq!(next(&who), Some(3));
        });
    }

    fn next(who: &mpsc::Receiver<usize>) -> Option<usize> {
        who.recv_timeout(Duration::from_secs(20)).ok()
    }
}

//! How many of an end's threads are at work (a knob of the tuner, Y5): the first ones; the others stand aside.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};

/// Lets the first so many threads pass. It is the same ones until the number changes: what they have in their caches stays
/// there.
pub(crate) struct Gate {
    /// Read without the lock: a thread that passes costs a load.
    open_to: AtomicUsize,
    state: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    /// Open to so many.
    pub(crate) fn new(count: usize) -> Gate {
        Gate { open_to: AtomicUsize::new(count), state: Mutex::new(false), changed: Condvar::new() }
    }

    /// How many it is open to.
    pub(crate) fn open_to(&self) -> usize {
        self.open_to.load(Relaxed)
    }

    /// Opens it to so many, one at least. Whoever has passed finishes what it does.
    pub(crate) fn set(&self, count: usize) {
        let _state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.open_to.store(count.max(1), Relaxed);
        self.changed.notify_all();
    }

    /// Waits until the thread with this number, from 0, may work.
    pub(crate) fn pass(&self, number: usize) {
        if number < self.open_to() {
            return;
        }
        let mut is_closed = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_closed && number >= self.open_to() {
            is_closed = self.changed.wait(is_closed).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The session ends: nobody waits any more.
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
        let gate = Gate::new(2);
        let (passed, who) = mpsc::channel();
        thread::scope(|scope| {
            for number in 0..4 {
                let (gate, passed) = (&gate, passed.clone());
                scope.spawn(move || {
                    gate.pass(number);
                    passed.send(number)
                });
            }
            let next = || who.recv_timeout(Duration::from_secs(20)).ok();
            let mut first = [next(), next()];
            first.sort_unstable();
            assert_eq!(first, [Some(0), Some(1)]);
            gate.set(3);
            assert_eq!(next(), Some(2));
            gate.set(0);
            assert_eq!(gate.open_to(), 1);
            gate.close();
            assert_eq!(next(), Some(3));
        });
    }
}

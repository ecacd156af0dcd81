//! A resource that threads wait for in first-come-first-served order (L3).
//!
//! Each waiter sleeps separately (`std::thread::park`), so that a release wakes only the thread at the front
//! of the queue: no thundering herd, no spinning. A new waiter joins the end of the queue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The resource was closed before or during a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("closed")]
pub struct FifoMonitorClosed;

/// Result of a waiter's attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionWaitAttempt<R> {
    /// The attempt succeeded.
    Done(R),
    /// The attempt fails until the state changes.
    NotYet,
    /// The attempt may succeed at this time without a change of the state.
    Until(Instant),
}

/// State of type `S`, and the threads that wait for a change.
pub struct FifoConditionLock<S> {
    inner: Mutex<ConditionLockState<S>>,
}

struct ConditionLockState<S> {
    state: S,
    waiters: VecDeque<Arc<FifoMonitorWaiter>>,
    /// Releases that no waiter has used yet: the remaining length of the chain of wake-ups.
    wakes: usize,
    /// The front waiter sleeps with a timeout: each new front waiter must try, until one of
    /// them goes to sleep as the front.
    is_timed: bool,
    closed: bool,
}

struct FifoMonitorWaiter {
    thread: Thread,
    woken: AtomicBool,
}

impl FifoMonitorWaiter {
    fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.thread.unpark();
        }
    }

    fn sleep(&self, until: Option<Instant>) {
        while !self.woken.swap(false, Ordering::AcqRel) {
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => thread::park(),
                Some(Duration::ZERO) => return,
                Some(left) => thread::park_timeout(left),
            }
        }
    }
}

impl<S> FifoConditionLock<S> {
    /// A monitor of `state`.
    pub fn new(state: S) -> FifoConditionLock<S> {
        FifoConditionLock {
            inner: Mutex::new(ConditionLockState {
                state,
                waiters: VecDeque::new(),
                wakes: 0,
                is_timed: false,
                closed: false,
            }),
        }
    }

    /// A panic under the lock ends the session; the state is only replaced as a whole.
    fn lock(&self) -> MutexGuard<'_, ConditionLockState<S>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads or changes the state without a wake-up.
    pub fn with<R>(&self, change: impl FnOnce(&mut S) -> R) -> R {
        change(&mut self.lock().state)
    }

    /// Changes the state so that one more waiter may proceed, and wakes the front waiter.
    pub fn change_and_wake_one<R>(&self, change: impl FnOnce(&mut S) -> R) -> R {
        self.change_and_wake_many(1, change)
    }

    /// Changes the state so that up to `count` waiters may proceed.
    pub fn change_and_wake_many<R>(&self, count: usize, change: impl FnOnce(&mut S) -> R) -> R {
        let mut inner = self.lock();
        let result = change(&mut inner.state);
        inner.wakes = inner.wakes.saturating_add(count).min(inner.waiters.len());
        inner.wake_front();
        result
    }

    /// Takes without waiting, if there are no waiters and `take` succeeds.
    pub fn try_take<R>(&self, take: impl FnOnce(&mut S) -> Option<R>) -> Option<R> {
        let mut inner = self.lock();
        if inner.closed || !inner.waiters.is_empty() {
            return None;
        }
        take(&mut inner.state)
    }

    /// Waits for its turn, and until `take` succeeds.
    pub fn take<R>(&self, mut take: impl FnMut(&mut S) -> Option<R>) -> Result<R, FifoMonitorClosed> {
        self.take_timed(|state| take(state).map_or(ConditionWaitAttempt::NotYet, ConditionWaitAttempt::Done))
    }

    /// Same as [`FifoConditionLock::take`], for attempts that may succeed after a time.
    pub fn take_timed<R>(
        &self,
        mut take: impl FnMut(&mut S) -> ConditionWaitAttempt<R>,
    ) -> Result<R, FifoMonitorClosed> {
        let mut inner = self.lock();
        if inner.closed {
            return Err(FifoMonitorClosed);
        }
        let mut until = None;
        if inner.waiters.is_empty() {
            match take(&mut inner.state) {
                ConditionWaitAttempt::Done(result) => return Ok(result),
                ConditionWaitAttempt::NotYet => {}
                ConditionWaitAttempt::Until(time) => until = Some(time),
            }
        }
        // A queued thread has not tried yet: the chain of wake-ups must reach it.
        inner.wakes += usize::from(!inner.waiters.is_empty());
        let waiter = Arc::new(FifoMonitorWaiter { thread: thread::current(), woken: AtomicBool::new(false) });
        inner.waiters.push_back(Arc::clone(&waiter));
        self.wait_for_turn(inner, &waiter, until, take)
    }

    fn wait_for_turn<'a, R>(
        &'a self,
        mut inner: MutexGuard<'a, ConditionLockState<S>>,
        waiter: &Arc<FifoMonitorWaiter>,
        mut until: Option<Instant>,
        mut take: impl FnMut(&mut S) -> ConditionWaitAttempt<R>,
    ) -> Result<R, FifoMonitorClosed> {
        loop {
            let is_front = inner.waiters.front().is_some_and(|front| Arc::ptr_eq(front, waiter));
            if is_front {
                inner.is_timed = until.is_some();
            }
            drop(inner);
            waiter.sleep(until.take());
            inner = self.lock();
            if inner.closed {
                return Err(FifoMonitorClosed);
            }
            let is_front = inner.waiters.front().is_some_and(|front| Arc::ptr_eq(front, waiter));
            if !is_front {
                continue;
            }
            match take(&mut inner.state) {
                ConditionWaitAttempt::Done(result) => {
                    inner.waiters.pop_front();
                    inner.wakes = inner.wakes.saturating_sub(1).max(usize::from(inner.is_timed));
                    inner.wake_front();
                    return Ok(result);
                }
                ConditionWaitAttempt::NotYet => inner.wakes = 0,
                ConditionWaitAttempt::Until(time) => {
                    inner.wakes = 0;
                    until = Some(time);
                }
            }
        }
    }

    /// Ends all current and later waits.
    pub fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        for waiter in inner.waiters.drain(..) {
            waiter.wake();
        }
    }

    /// Number of waiting threads.
    pub fn waiter_count(&self) -> usize {
        self.lock().waiters.len()
    }
}

impl<S> ConditionLockState<S> {
    fn wake_front(&self) {
        if self.wakes > 0
            && let Some(front) = self.waiters.front()
        {
            front.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn take_one(count: &mut u32) -> Option<()> {
        *count = count.checked_sub(1)?;
        Some(())
    }

    fn until(condition: impl Fn() -> bool) {
        while !condition() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn first_come_first_served() {
        let monitor = Arc::new(FifoConditionLock::new(0));
        let (order, arrived) = mpsc::channel();
        let threads: Vec<_> = (0..5)
            .map(|i| {
                let (monitor_i, order) = (Arc::clone(&monitor), order.clone());
                let handle = thread::spawn(move || {
                    monitor_i.take(take_one).unwrap();
                    order.send(i).unwrap();
                });
                until(|| monitor.waiter_count() == i + 1);
                handle
            })
            .collect();
        for i in 0..5 {
            monitor.change_and_wake_one(|count| *count += 1);
            assert_eq!(arrived.recv().unwrap(), i);
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
    }

    #[test]
    fn releasing_many_wakes_many() {
        let monitor = Arc::new(FifoConditionLock::new(0));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let monitor = Arc::clone(&monitor);
                thread::spawn(move || monitor.take(take_one))
            })
            .collect();
        until(|| monitor.waiter_count() == 8);
        monitor.change_and_wake_many(8, |count| *count += 8);
        threads.into_iter().for_each(|t| t.join().unwrap().unwrap());
        assert_eq!(monitor.with(|count| *count), 0);
    }

    #[test]
    fn nobody_overtakes_those_who_wait() {
        let monitor = Arc::new(FifoConditionLock::new(0));
        let waiting = {
            let monitor = Arc::clone(&monitor);
            thread::spawn(move || monitor.take(|count| (*count >= 2).then(|| *count = 0)))
        };
        until(|| monitor.waiter_count() == 1);
        monitor.change_and_wake_one(|count| *count += 1);
        assert_eq!(monitor.try_take(take_one), None);
        monitor.change_and_wake_one(|count| *count += 1);
        waiting.join().unwrap().unwrap();
    }

    #[test]
    fn what_comes_with_time_is_found_by_all_who_wait() {
        let begin = Instant::now();
        const STEP: Duration = Duration::from_millis(20);
        // One more thread may proceed every 20 ms, without any release.
        let monitor = Arc::new(FifoConditionLock::new(0u32));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let monitor = Arc::clone(&monitor);
                thread::spawn(move || {
                    monitor.take_timed(|taken| {
                        let time = begin + STEP * (*taken + 1);
                        if Instant::now() < time {
                            return ConditionWaitAttempt::Until(time);
                        }
                        *taken += 1;
                        ConditionWaitAttempt::Done(())
                    })
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap().unwrap());
        assert!(Instant::now() >= begin + STEP * 4);
    }

    #[test]
    fn what_has_come_for_all_at_one_time_is_found_by_all() {
        let monitor = Arc::new(FifoConditionLock::new(()));
        let ready_at = Instant::now() + Duration::from_millis(100);
        let (done, finished) = mpsc::channel();
        for waiting in 1..=4 {
            let (monitor_i, done) = (Arc::clone(&monitor), done.clone());
            thread::spawn(move || {
                done.send(monitor_i.take_timed(|_| {
                    if Instant::now() < ready_at {
                        ConditionWaitAttempt::Until(ready_at)
                    } else {
                        ConditionWaitAttempt::Done(())
                    }
                }))
                .unwrap();
            });
            until(|| monitor.waiter_count() == waiting || Instant::now() >= ready_at);
        }
        for _ in 1..=4 {
            let found = finished.recv_timeout(Duration::from_secs(20));
            assert_eq!(found.expect("a thread sleeps beside what it waits for"), Ok(()));
        }
    }

    #[test]
    fn closing_ends_all_waiting() {
        let monitor = Arc::new(FifoConditionLock::new(0));
        let waiting = {
            let monitor = Arc::clone(&monitor);
            thread::spawn(move || monitor.take(take_one))
        };
        until(|| monitor.waiter_count() == 1);
        monitor.close();
        assert_eq!(waiting.join().unwrap(), Err(FifoMonitorClosed));
        assert_eq!(monitor.take(take_one), Err(FifoMonitorClosed));
    }

    #[test]
    fn whoever_queues_behind_a_woken_thread_is_reached_too() {
        for round in 0..200 {
            let monitor = Arc::new(FifoConditionLock::new(0));
            let (done, finished) = mpsc::channel();
            for _ in 0..3 {
                let (monitor, done) = (Arc::clone(&monitor), done.clone());
                thread::spawn(move || {
                    (0..50).for_each(|_| monitor.take(take_one).unwrap());
                    done.send(()).unwrap();
                });
            }
            for i in 0..150 {
                monitor.change_and_wake_one(|count| *count += 1);
                if (i + round) % 7 == 0 {
                    thread::yield_now();
                }
            }
            for _ in 0..3 {
                finished
                    .recv_timeout(Duration::from_secs(20))
                    .expect("a thread sleeps beside what it waits for");
            }
        }
    }

    #[test]
    fn nothing_is_lost_under_contention() {
        let monitor = Arc::new(FifoConditionLock::new(3));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let monitor = Arc::clone(&monitor);
                thread::spawn(move || {
                    for _ in 0..2_000 {
                        monitor.take(take_one).unwrap();
                        monitor.change_and_wake_one(|count| *count += 1);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(monitor.with(|count| *count), 3);
    }
}

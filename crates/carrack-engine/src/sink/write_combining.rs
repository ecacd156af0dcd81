//! Write combining for large files, where the kernel lets one thread at a time write to a file.
//!
//! A thread that finds another thread writing to the file leaves its object to that thread and receives the
//! next one: both cores stay busy, and no thread sleeps for the time of a write.

use std::collections::VecDeque;

use carrack_machine::FifoConditionLock;

/// Items that wait for the writing thread.
pub(super) struct WriteDelegationQueue<T> {
    state: FifoConditionLock<WriteCombiningQueueState<T>>,
}

struct WriteCombiningQueueState<T> {
    is_writing: bool,
    waiting: VecDeque<T>,
}

impl<T> Default for WriteDelegationQueue<T> {
    fn default() -> WriteDelegationQueue<T> {
        WriteDelegationQueue {
            state: FifoConditionLock::new(WriteCombiningQueueState {
                is_writing: false,
                waiting: VecDeque::new(),
            }),
        }
    }
}

impl<T> WriteDelegationQueue<T> {
    /// Writes `item`, and then the items that other threads leave to the caller meanwhile. If another thread
    /// is writing, `item` is left to that thread; if `room` items already are, the caller waits. Without room
    /// each thread writes its own item, one after the other.
    pub(super) fn write<E>(
        &self,
        item: T,
        room: usize,
        mut write: impl FnMut(T) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(item) = self.claim_or_delegate(item, room) else { return Ok(()) };
        let mut turn = FileWriterTurn { line: self, is_over: false };
        let mut next = Some(item);
        while let Some(item) = next {
            write(item)?;
            next = turn.next();
        }
        Ok(())
    }

    /// Returns the item if the caller writes now.
    fn claim_or_delegate(&self, item: T, room: usize) -> Option<T> {
        let mut item = Some(item);
        let entered = self.state.take(|state| {
            if !state.is_writing {
                state.is_writing = true;
                return Some(item.take());
            }
            let has_room = state.waiting.len() < room;
            has_room.then(|| {
                state.waiting.extend(item.take());
                None
            })
        });
        // The monitor is never closed.
        entered.ok().flatten()
    }
}

/// The right to write, until the turn ends or its thread fails.
struct FileWriterTurn<'a, T> {
    line: &'a WriteDelegationQueue<T>,
    is_over: bool,
}

impl<T> FileWriterTurn<'_, T> {
    /// Returns the next item that was left to this thread. Without one the turn ends.
    fn next(&mut self) -> Option<T> {
        let next = self.line.state.change_and_wake_one(|state| {
            assert!(state.is_writing, "nobody ends the turn of another thread");
            let next = state.waiting.pop_front();
            state.is_writing = next.is_some();
            next
        });
        self.is_over = next.is_none();
        next
    }
}

impl<T> Drop for FileWriterTurn<'_, T> {
    fn drop(&mut self) {
        if !self.is_over {
            self.line.state.change_and_wake_one(|state| state.is_writing = false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Waits until `count` threads wait for their turn.
    fn until_waiting<T>(line: &WriteDelegationQueue<T>, count: usize) {
        while line.state.waiter_count() < count {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn count(written: &AtomicUsize) -> Result<(), Infallible> {
        written.fetch_add(1, SeqCst);
        Ok(())
    }

    #[test]
    fn what_comes_during_a_write_is_left_to_the_writer() {
        let line = WriteDelegationQueue::default();
        let mut written = Vec::new();
        let done: Result<(), Infallible> = line.write(1, 2, |item| {
            if item == 1 {
                for other in [2, 3] {
                    line.write(other, 2, |_| -> Result<(), Infallible> {
                        panic!("another thread is writing")
                    })?;
                }
            }
            written.push(item);
            Ok(())
        });
        assert_eq!((done, written), (Ok(()), vec![1, 2, 3]));
        assert_eq!(line.write(4, 0, Err), Err(4), "the turn was over");
    }

    #[test]
    fn without_room_every_thread_writes_its_own() {
        let line = &WriteDelegationQueue::default();
        let (order, written) = channel();
        thread::scope(|scope| {
            let first = line.write(1, 0, |item| {
                let order_of_second = order.clone();
                scope.spawn(move || {
                    line.write(2, 0, |item| order_of_second.send((thread::current().id(), item)))
                });
                until_waiting(line, 1);
                order.send((thread::current().id(), item))
            });
            first.unwrap();
        });
        let written: Vec<_> = written.try_iter().collect();
        assert_eq!(written.iter().map(|(_, item)| *item).collect::<Vec<_>>(), [1, 2]);
        assert_ne!(written[0].0, written[1].0);
    }

    #[test]
    fn a_place_that_gets_free_goes_to_the_one_that_waits() {
        let line = &WriteDelegationQueue::default();
        let written = AtomicUsize::new(0);
        thread::scope(|scope| {
            line.write(1, 1, |item| {
                if item == 1 {
                    line.write(2, 1, |_| count(&written))?;
                    scope.spawn(|| line.write(3, 1, |_| count(&written)));
                    until_waiting(line, 1);
                }
                count(&written)
            })
            .unwrap();
        });
        assert_eq!(written.into_inner(), 3);
    }

    #[test]
    fn a_writer_that_fails_keeps_nobody_waiting() {
        let line = &WriteDelegationQueue::default();
        thread::scope(|scope| {
            let failed = line.write(1, 0, |_| {
                scope.spawn(|| line.write(2, 0, |_| Ok::<(), Infallible>(())));
                until_waiting(line, 1);
                Err("no")
            });
            assert_eq!(failed, Err("no"));
        });
        // The second thread has ended: the scope would wait for it.
        assert_eq!(line.write(3, 0, Err), Err(3));
    }

    #[test]
    fn nothing_is_lost_or_written_twice_or_at_once() {
        let line = &WriteDelegationQueue::default();
        let (seen, at_once) =
            (&(0..4000).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>(), &AtomicUsize::new(0));
        thread::scope(|scope| {
            for first in 0..4 {
                scope.spawn(move || {
                    for item in (first..4000).step_by(4) {
                        line.write(item, 2, |item| {
                            assert_eq!(at_once.fetch_add(1, SeqCst), 0);
                            seen[item].fetch_add(1, SeqCst);
                            at_once.fetch_sub(1, SeqCst);
                            Ok::<(), Infallible>(())
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert!(seen.iter().all(|count| count.load(SeqCst) == 1));
    }
}

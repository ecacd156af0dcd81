//! Acks of objects that the comm thread has not sent yet: one message carries several.
//!
//! I/O threads and the threads of a spill add them, the comm thread takes them.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use carrack_wire::message::ObjectAcksMessage;

/// Acks in one message. A message for sixteen objects costs little, and a source with as many credits does
/// not miss them meanwhile.
const ANSWERS_AT_ONCE: usize = 16;

/// The outcome of an object.
#[derive(Clone, Copy)]
pub(super) enum ObjectOutcome {
    /// It was written, or its file is given up; its slot is free again.
    Written,
    /// It failed its check; its slot is free again.
    Corrupt,
    /// It lies on flash, and gets a second ack when it is written or failed.
    SetAside,
}

/// The answers of one lane.
pub(super) struct AckBatch {
    waiting: Mutex<ObjectAcksMessage>,
    /// Objects with a final ack.
    answered: AtomicU64,
    /// Number of acks that are sent at once rather than a moment later.
    at_once: usize,
}

fn count(waiting: &ObjectAcksMessage) -> usize {
    waiting.written.len() + waiting.corrupt.len() + waiting.set_aside.len()
}

impl AckBatch {
    /// Creates the batch of a lane with `slot_count` slots.
    pub(super) fn new(slot_count: usize) -> AckBatch {
        let at_once = ANSWERS_AT_ONCE.min(slot_count / 8).max(1);
        assert!(
            at_once <= slot_count.max(1),
            "a source without credits misses no answer that waits for others"
        );
        AckBatch { waiting: Mutex::default(), answered: AtomicU64::new(0), at_once }
    }

    fn waiting(&self) -> MutexGuard<'_, ObjectAcksMessage> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an ack. Returns true if the comm thread must be woken: after the first ack, from which it waits a
    /// moment for more, and after the ack that fills a message.
    pub(super) fn add(&self, object: u64, answer: ObjectOutcome) -> bool {
        // Counted before the ack can be sent: the source ends after the last ack, and its count is compared
        // with the sink's.
        if !matches!(answer, ObjectOutcome::SetAside) {
            self.answered.fetch_add(1, Relaxed);
        }
        let mut waiting = self.waiting();
        match answer {
            ObjectOutcome::Written => waiting.written.push(object),
            ObjectOutcome::Corrupt => waiting.corrupt.push(object),
            ObjectOutcome::SetAside => waiting.set_aside.push(object),
        }
        let count = count(&waiting);
        count == 1 || count == self.at_once
    }

    /// Takes the waiting acks if there are enough for a message, or if `is_late`. Also returns true if acks
    /// are left waiting.
    pub(super) fn take(&self, is_late: bool) -> (Option<ObjectAcksMessage>, bool) {
        let mut waiting = self.waiting();
        let count = count(&waiting);
        let taken = (count > 0 && (is_late || count >= self.at_once)).then(|| mem::take(&mut *waiting));
        let waits = count > 0 && taken.is_none();
        assert!(waits || waiting.written.is_empty(), "what is sent waits no more");
        (taken, waits)
    }

    /// Objects with a final ack so far.
    pub(super) fn answered_count(&self) -> u64 {
        self.answered.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_answer_and_a_full_batch_wake_the_comm_thread() {
        let batch = AckBatch::new(1_000);
        let woken: Vec<u64> = (1..=20).filter(|&object| batch.add(object, ObjectOutcome::Written)).collect();
        assert_eq!(woken, [1, ANSWERS_AT_ONCE as u64]);
    }

    #[test]
    fn a_few_answers_wait_until_they_are_late() {
        let batch = AckBatch::new(1_000);
        assert_eq!(batch.take(true), (None, false));
        batch.add(1, ObjectOutcome::Written);
        batch.add(2, ObjectOutcome::Corrupt);
        batch.add(3, ObjectOutcome::SetAside);
        assert_eq!(batch.take(false), (None, true));
        let all = ObjectAcksMessage { written: vec![1], corrupt: vec![2], set_aside: vec![3] };
        assert_eq!(batch.take(true), (Some(all), false));
        assert_eq!(batch.answered_count(), 2, "what is on flash is answered once more");
    }

    #[test]
    fn a_lane_with_few_slots_answers_sooner() {
        let batch = AckBatch::new(16);
        batch.add(1, ObjectOutcome::Written);
        batch.add(2, ObjectOutcome::Written);
        assert!(batch.take(false).0.is_some());
    }
}

//! Fencing: the time for which a mover may work on a delivery.
//!
//! A delivery that is not extended for `ack_wait` is delivered again, to another mover. So its mover extends
//! it every third of that time, and gives up after two thirds in which no extension was confirmed: a third
//! before another mover begins.

use std::collections::BTreeMap;
use std::time::Duration;

/// The deliveries that a mover holds, by the numbers of its queue, with the time of the last confirmed
/// extension.
///
/// All instants are of one clock that counts suspend time (`CLOCK_BOOTTIME`): a mover that wakes up must
/// notice its absence. An extension counts from its send time, as the queue's own time runs from later than
/// that.
#[derive(Clone, Debug)]
pub struct HeldQueueDeliveries {
    ack_wait: Duration,
    held: BTreeMap<u64, HeldDelivery>,
}

#[derive(Clone, Copy, Debug)]
struct HeldDelivery {
    /// Send time of the last confirmed extension.
    confirmed_at: Duration,
    /// Time of the next extension.
    due_at: Duration,
}

impl HeldQueueDeliveries {
    /// Creates an empty set; a delivery without extension for `ack_wait` is delivered again.
    pub fn new(ack_wait: Duration) -> HeldQueueDeliveries {
        HeldQueueDeliveries { ack_wait, held: BTreeMap::new() }
    }

    /// Adds a delivery. Its first extension is due at once: it may have been on its way for long.
    pub fn add(&mut self, number: u64, now: Duration) {
        self.held.insert(number, HeldDelivery { confirmed_at: now, due_at: now });
    }

    /// Removes a delivery that was acknowledged or handed back; unknown numbers are ignored.
    pub fn remove(&mut self, number: u64) {
        self.held.remove(&number);
    }

    /// Returns the deliveries to extend now; each is due again after a third of `ack_wait`, confirmed or not.
    pub fn extend(&mut self, now: Duration) -> Vec<u64> {
        let next_due = now.saturating_add(self.ack_wait / 3);
        let due = self.held.iter_mut().filter(|(_, held)| held.due_at <= now);
        due.map(|(number, held)| {
            held.due_at = next_due;
            *number
        })
        .collect()
    }

    /// Confirms an extension that was sent at `sent_at`. Confirmations may come late and in any order.
    pub fn confirm(&mut self, number: u64, sent_at: Duration) {
        if let Some(held) = self.held.get_mut(&number) {
            held.confirmed_at = held.confirmed_at.max(sent_at);
        }
    }

    /// Returns the time at which the sessions must end without a further confirmation; `None` while no
    /// delivery is held.
    pub fn give_up_at(&self) -> Option<Duration> {
        let first = self.held.values().map(|held| held.confirmed_at).min()?;
        Some(first.saturating_add(self.ack_wait / 3 * 2))
    }

    /// Returns true if the sessions must end now.
    pub fn is_lost(&self, now: Duration) -> bool {
        self.give_up_at().is_some_and(|at| at <= now)
    }

    /// Returns true if another mover may have the delivery by now, or before a message from here arrives.
    /// Such a delivery is not handed back: that would take it from the other mover, and let a third one have
    /// it too.
    pub fn may_be_redelivered(&self, number: u64, now: Duration) -> bool {
        let surely_for = self.ack_wait / 6 * 5;
        self.held.get(&number).is_some_and(|held| held.confirmed_at.saturating_add(surely_for) <= now)
    }

    /// Returns the time of the next extension or loss.
    pub fn wake_at(&self) -> Option<Duration> {
        let due = self.held.values().map(|held| held.due_at).min();
        due.into_iter().chain(self.give_up_at()).min()
    }

    /// Returns the number of held deliveries.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns true if no delivery is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ACK_WAIT: Duration = Duration::from_secs(30);

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn extends_every_third_and_gives_up_after_two() {
        let mut deliveries = HeldQueueDeliveries::new(ACK_WAIT);
        assert_eq!((deliveries.wake_at(), deliveries.is_lost(s(1_000))), (None, false));
        deliveries.add(7, s(100));
        assert_eq!(deliveries.extend(s(100)), [7]);
        assert!(deliveries.extend(s(109)).is_empty());
        deliveries.confirm(7, s(100));
        assert_eq!(deliveries.wake_at(), Some(s(110)));
        assert_eq!(deliveries.extend(s(110)), [7]);
        assert_eq!(deliveries.give_up_at(), Some(s(120)));
        deliveries.confirm(7, s(110));
        assert_eq!(deliveries.give_up_at(), Some(s(130)));
        assert!(!deliveries.is_lost(s(129)) && deliveries.is_lost(s(130)));
        // A late confirmation of an earlier extension takes nothing back.
        deliveries.confirm(7, s(100));
        assert_eq!(deliveries.give_up_at(), Some(s(130)));
        deliveries.remove(7);
        deliveries.confirm(7, s(120));
        assert!(deliveries.is_empty() && !deliveries.is_lost(s(1_000)));
    }

    #[test]
    fn what_others_may_have_is_not_handed_back() {
        let mut deliveries = HeldQueueDeliveries::new(ACK_WAIT);
        deliveries.add(1, s(100));
        assert!(!deliveries.may_be_redelivered(1, s(124)) && deliveries.may_be_redelivered(1, s(125)));
        deliveries.confirm(1, s(110));
        assert!(!deliveries.may_be_redelivered(1, s(134)) && !deliveries.may_be_redelivered(2, s(999)));
    }

    #[test]
    fn one_that_is_not_confirmed_is_enough() {
        let mut deliveries = HeldQueueDeliveries::new(ACK_WAIT);
        deliveries.add(1, s(0));
        deliveries.add(2, s(5));
        deliveries.confirm(2, s(18));
        assert_eq!((deliveries.len(), deliveries.give_up_at()), (2, Some(s(20))));
        deliveries.remove(1);
        assert_eq!(deliveries.give_up_at(), Some(s(38)));
    }

    /// A queue that answers each extension or loses it, and delivers again after `ACK_WAIT` without one.
    fn run(is_lost: &[bool], delay: Duration) {
        let mut deliveries = HeldQueueDeliveries::new(ACK_WAIT);
        let mut heard_at = s(0);
        deliveries.add(1, s(0));
        for is_lost in is_lost {
            let Some(now) = deliveries.wake_at() else { return };
            if deliveries.is_lost(now) {
                let again_at = heard_at + ACK_WAIT;
                assert!(
                    now + ACK_WAIT / 3 <= again_at,
                    "gave up at {now:?}, delivered again at {again_at:?}"
                );
                return;
            }
            assert_eq!(deliveries.extend(now), [1]);
            if !is_lost {
                heard_at = now + delay;
                deliveries.confirm(1, now);
            }
        }
    }

    proptest! {
        #[test]
        fn nobody_else_begins_before_it_has_given_up(
            is_lost in prop::collection::vec(any::<bool>(), 0..40),
            delay_ms in 0u64..9_000,
        ) {
            run(&is_lost, Duration::from_millis(delay_ms));
        }
    }
}

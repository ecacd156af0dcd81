//! The target queues: objects that wait to be read or written, one queue for each storage target (L2).
//!
//! Owns the waiting items, the number of items in service at each target, and the rate limits. Must not know
//! the type of an item, wait, or wake: the engine keeps it behind a lock and does the waiting. A
//! [`SchedulingPolicy`] chooses the next target.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use carrack_model::{ServerId, TargetId};

use crate::pace::RateLimits;
use crate::policy::{
    RoundRobinPolicy, SchedulingPolicy, StorageRequestTiming, TargetCongestion, TargetState,
};

/// One FIFO of items for each target, and the choice of the next item.
///
/// A target stays known after its queue ran empty: memory grows with the number of targets, not of items.
/// Taking costs a few looks at each target at most. The caller bounds the number of items.
pub struct TargetQueues<T> {
    policy: Box<dyn SchedulingPolicy>,
    limits: Arc<RateLimits>,
    len: usize,
    in_service: usize,
    states: Vec<TargetState>,
    /// By the same index as `states`.
    queues: Vec<TargetQueue<T>>,
    index_of: HashMap<TargetId, usize>,
}

struct TargetQueue<T> {
    /// With the bytes of each item.
    items: VecDeque<(u64, T)>,
    /// Bytes taken so far.
    bytes_taken: u64,
}

impl<T> Default for TargetQueues<T> {
    fn default() -> TargetQueues<T> {
        TargetQueues::new(Box::new(RoundRobinPolicy::new()))
    }
}

impl<T> TargetQueues<T> {
    /// Empty queues.
    pub fn new(policy: Box<dyn SchedulingPolicy>) -> TargetQueues<T> {
        TargetQueues {
            policy,
            limits: Arc::default(),
            len: 0,
            in_service: 0,
            states: Vec::new(),
            queues: Vec::new(),
            index_of: HashMap::new(),
        }
    }

    /// Bounds the items of a target that are in service at a time; 0 pauses the target. Without a bound only
    /// the threads limit them. Items already in service stay so.
    pub fn set_depth(&mut self, target: TargetId, depth: u32) {
        let index = self.index_or_new(target);
        self.states[index].depth = depth;
    }

    /// Sets the host that a target shares with other targets.
    pub fn set_server(&mut self, target: TargetId, server: Option<ServerId>) {
        let index = self.index_or_new(target);
        self.states[index].server = server;
    }

    /// Sets the rate limits, which other queues may share; see [`charge`](Self::charge).
    pub fn set_rate_limits(&mut self, limits: Arc<RateLimits>) {
        self.limits = limits;
    }

    /// Returns true if the rate changes with the time.
    pub fn has_scheduled_rate(&self) -> bool {
        self.limits.is_scheduled()
    }

    /// Adds an item that stands for `bytes` bytes at the tail of a target's queue.
    pub fn push(&mut self, target: TargetId, bytes: u64, item: T) {
        let index = self.add(target, bytes);
        self.queues[index].items.push_back((bytes, item));
    }

    /// Adds an item at the head of a target's queue: an item that was taken and holds more work, such as a
    /// file cursor. It does not finish the service that the item was taken for.
    pub fn push_front(&mut self, target: TargetId, bytes: u64, item: T) {
        let index = self.add(target, bytes);
        self.queues[index].items.push_front((bytes, item));
    }

    fn add(&mut self, target: TargetId, bytes: u64) -> usize {
        let index = self.index_or_new(target);
        let state = &mut self.states[index];
        state.waiting += 1;
        state.waiting_bytes = state.waiting_bytes.saturating_add(bytes);
        state.is_blocked = false;
        self.len += 1;
        index
    }

    /// Takes the item at the head of the queue that the policy chooses and counts it as in service until
    /// [`finish_service`](Self::finish_service). Returns `None` if no item waits, or the policy or a rate
    /// makes the thread wait.
    pub fn take(&mut self, now: Duration) -> Option<(TargetId, T)> {
        if self.len == 0 || self.limits.free_at() > now {
            return None;
        }
        if self.limits.has_target_rate() {
            // Other queues may have taken from the same targets.
            self.states
                .iter_mut()
                .for_each(|state| state.paused_until = self.limits.target_free_at(state.target));
        }
        let index = self.policy.choose(now, &self.states)?;
        let state = self.states.get_mut(index)?;
        let (bytes, item) = self.queues[index].items.pop_front()?;
        state.waiting -= 1;
        state.waiting_bytes = state.waiting_bytes.saturating_sub(bytes);
        state.in_service += 1;
        self.len -= 1;
        self.in_service += 1;
        Some((state.target, item))
    }

    /// Takes back the item at the tail of the longest queue, if more than `kept` wait there and it is `fit`:
    /// it was never in service.
    pub fn take_last(&mut self, kept: usize, fit: impl FnOnce(&T) -> bool) -> Option<(TargetId, T)> {
        let longest = self.states.iter().enumerate().max_by_key(|(_, state)| state.waiting);
        let (index, _) = longest.filter(|(_, state)| state.waiting > kept)?;
        let items = &mut self.queues[index].items;
        items.back().filter(|(_, item)| fit(item))?;
        let (bytes, item) = items.pop_back()?;
        let state = &mut self.states[index];
        state.waiting -= 1;
        state.waiting_bytes = state.waiting_bytes.saturating_sub(bytes);
        self.len -= 1;
        Some((state.target, item))
    }

    /// Returns the time at which [`take`](Self::take) might find an item though only the time has changed;
    /// `None` if never.
    pub fn wake_at(&self, now: Duration) -> Option<Duration> {
        if self.len == 0 {
            return None;
        }
        // Rates and policy hold back independently: the thread looks again at the first time.
        self.rates_free_at(now).into_iter().chain(self.policy.wake_at(now, &self.states)).min()
    }

    /// Returns true if items wait only for a rate.
    pub fn is_held_by_rate(&self, now: Duration) -> bool {
        self.len > 0 && self.rates_free_at(now).is_some()
    }

    /// Returns the time at which the first of the rates that hold items back allows one.
    fn rates_free_at(&self, now: Duration) -> Option<Duration> {
        let paused = self.states.iter().filter(|state| state.waiting > 0 && state.paused_until > now);
        let paused = paused.map(|state| state.paused_until).min();
        let all = Some(self.limits.free_at()).filter(|free_at| *free_at > now);
        paused.into_iter().chain(all).min()
    }

    /// Books bytes that are read from or written to a target from now on against the rates.
    pub fn charge(&mut self, target: TargetId, bytes: u64, now: Duration) {
        let index = self.index_or_new(target);
        let queue = &mut self.queues[index];
        queue.bytes_taken = queue.bytes_taken.saturating_add(bytes);
        self.states[index].paused_until = self.limits.charge(target, bytes, now);
        self.policy.record_charge(now, target, bytes);
    }

    /// Ends the service of one item taken from `target`; the policy learns the storage's time, if it is
    /// known.
    ///
    /// # Panics
    /// If no item of this target is in service.
    pub fn finish_service(&mut self, target: TargetId, service: Option<StorageRequestTiming>, now: Duration) {
        let index = self.index_of.get(&target).copied();
        let Some(index) = index.filter(|&index| self.states[index].in_service > 0) else {
            panic!("nothing of {target:?} is in service");
        };
        if let Some(service) = service {
            self.policy.record_service(now, index, &self.states, service);
        }
        self.states[index].in_service -= 1;
        self.in_service -= 1;
    }

    /// Passes a target by because the head of its queue can't be taken now, until the next push to it or
    /// [`unblock`](Self::unblock).
    pub fn block(&mut self, target: TargetId) {
        let index = self.index_or_new(target);
        self.states[index].is_blocked = true;
    }

    /// Unblocks all targets.
    pub fn unblock(&mut self) {
        self.states.iter_mut().for_each(|state| state.is_blocked = false);
    }

    /// Returns the number of waiting items, over all targets.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if no item waits; items in service may still bring more.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of items taken and not yet finished, over all targets.
    pub fn in_service(&self) -> usize {
        self.in_service
    }

    /// Returns every target seen so far, as the policy sees it.
    pub fn states(&self) -> &[TargetState] {
        &self.states
    }

    /// Takes back a charge for an item that could not be used yet, and will be charged again. The rates keep
    /// it.
    pub fn uncharge(&mut self, target: TargetId, bytes: u64) {
        if let Some(index) = self.states.iter().position(|state| state.target == target) {
            let queue = &mut self.queues[index];
            queue.bytes_taken = queue.bytes_taken.saturating_sub(bytes);
        }
    }

    /// Returns every target seen so far, with the policy's verdict and the bytes taken from it.
    pub fn verdicts(&self, now: Duration) -> impl Iterator<Item = (&TargetState, TargetCongestion, u64)> {
        self.states.iter().enumerate().map(move |(index, state)| {
            (state, self.policy.verdict(now, index), self.queues[index].bytes_taken)
        })
    }

    fn index_or_new(&mut self, target: TargetId) -> usize {
        *self.index_of.entry(target).or_insert_with(|| {
            self.states.push(TargetState {
                target,
                server: None,
                waiting: 0,
                waiting_bytes: 0,
                in_service: 0,
                depth: u32::MAX,
                paused_until: Duration::ZERO,
                is_blocked: false,
            });
            self.queues.push(TargetQueue { items: VecDeque::new(), bytes_taken: 0 });
            self.states.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pace::RateCaps;
    use crate::timetable::ScheduledRateLimits;

    fn filled(items: &[(u64, u32)]) -> TargetQueues<u32> {
        let mut queues = TargetQueues::default();
        for &(target, item) in items {
            queues.push(TargetId(target), 1, item);
        }
        queues
    }

    fn take(queues: &mut TargetQueues<u32>) -> Option<(u64, u32)> {
        queues.take(Duration::ZERO).map(|(target, item)| (target.0, item))
    }

    fn finish(queues: &mut TargetQueues<u32>, target: u64) {
        queues.finish_service(TargetId(target), None, Duration::ZERO);
    }

    #[test]
    fn the_youngest_of_the_longest_queue_can_be_taken_back() {
        let mut queues = filled(&[(1, 10), (2, 20), (2, 21), (2, 22)]);
        assert_eq!(queues.take_last(3, |_| true), None);
        assert_eq!(queues.take_last(2, |&item| item != 22), None);
        assert_eq!(queues.take_last(2, |_| true), Some((TargetId(2), 22)));
        assert_eq!((queues.len(), queues.in_service()), (3, 0));
        queues.push_front(TargetId(2), 1, 22);
        let taken = std::iter::from_fn(|| queues.take(Duration::ZERO));
        assert_eq!(
            taken.filter(|(target, _)| target.0 == 2).map(|(_, item)| item).collect::<Vec<_>>(),
            [22, 20, 21]
        );
        assert!(queues.states().iter().all(|state| state.waiting == 0 && state.waiting_bytes == 0));
    }

    #[test]
    fn goes_round_and_skips_the_target_that_is_being_served() {
        let mut queues = filled(&[(1, 10), (1, 11), (1, 12), (2, 20), (2, 21), (3, 30)]);
        assert_eq!(take(&mut queues), Some((1, 10)));
        assert_eq!(take(&mut queues), Some((2, 20)));
        finish(&mut queues, 2);
        assert_eq!(take(&mut queues), Some((3, 30)));
        assert_eq!(take(&mut queues), Some((2, 21)), "1 comes next but is being served");
        assert_eq!(take(&mut queues), Some((1, 11)), "only 1 has work");
        assert_eq!((queues.len(), queues.in_service()), (1, 4));
    }

    #[test]
    fn what_is_taken_twice_counts_once() {
        let mut queues = filled(&[(1, 10)]);
        queues.charge(TargetId(1), 7, Duration::ZERO);
        queues.uncharge(TargetId(1), 7);
        queues.uncharge(TargetId(9), 7);
        queues.charge(TargetId(1), 7, Duration::ZERO);
        let bytes: u64 = queues.verdicts(Duration::ZERO).map(|(.., bytes)| bytes).sum();
        assert_eq!(bytes, 7);
    }

    #[test]
    fn takes_the_least_busy_when_all_are_served() {
        let mut queues = filled(&[(1, 10), (1, 11), (1, 12), (2, 20), (2, 21)]);
        for expected in [(1, 10), (2, 20), (1, 11), (2, 21), (1, 12)] {
            assert_eq!(take(&mut queues), Some(expected));
        }
        assert_eq!(take(&mut queues), None);
    }

    #[test]
    fn respects_depth() {
        let mut queues = filled(&[(1, 10), (1, 11), (2, 20)]);
        queues.set_depth(TargetId(1), 1);
        queues.set_depth(TargetId(2), 0);
        assert_eq!(take(&mut queues), Some((1, 10)));
        assert_eq!(take(&mut queues), None);
        finish(&mut queues, 1);
        assert_eq!(take(&mut queues), Some((1, 11)));
        queues.set_depth(TargetId(2), 1);
        assert_eq!(take(&mut queues), Some((2, 20)));
    }

    #[test]
    fn what_holds_more_work_goes_to_the_head_or_the_tail() {
        let mut queues = filled(&[(1, 10), (2, 20)]);
        let (target, item) = queues.take(Duration::ZERO).unwrap();
        queues.push(TargetId(1), 1, 11);
        queues.push_front(TargetId(2), 1, item);
        finish(&mut queues, target.0);
        assert_eq!((queues.len(), queues.in_service()), (3, 0));
        assert_eq!([take(&mut queues), take(&mut queues)], [Some((2, 10)), Some((1, 11))]);
    }

    #[test]
    fn a_blocked_target_is_passed_by() {
        let mut queues = filled(&[(1, 10), (2, 20)]);
        queues.block(TargetId(1));
        assert_eq!([take(&mut queues), take(&mut queues)], [Some((2, 20)), None]);
        queues.unblock();
        assert_eq!(take(&mut queues), Some((1, 10)));
        queues.push(TargetId(1), 1, 11);
        queues.block(TargetId(1));
        queues.push_front(TargetId(1), 1, 12);
        assert_eq!(take(&mut queues), Some((1, 12)), "what was pushed may be another matter");
    }

    #[test]
    fn rates_hold_back_until_their_time() {
        let ms = Duration::from_millis;
        let mut queues = filled(&[(1, 10), (1, 11), (2, 20), (2, 21)]);
        queues.set_rate_limits(Arc::new(RateLimits::new(RateCaps { all: 0, each: 1_000 })));
        assert_eq!(take(&mut queues), Some((1, 10)));
        queues.charge(TargetId(1), 1_000, ms(0));
        assert_eq!(
            [take(&mut queues), take(&mut queues), take(&mut queues)],
            [Some((2, 20)), Some((2, 21)), None]
        );
        assert_eq!(queues.wake_at(ms(0)), Some(ms(950)));
        assert_eq!(queues.take(ms(949)), None);
        assert_eq!(queues.take(ms(950)), Some((TargetId(1), 11)));
        queues.set_rate_limits(Arc::new(RateLimits::new(RateCaps { all: 1_000, each: 0 })));
        queues.charge(TargetId(2), 500, ms(1_000));
        queues.push(TargetId(3), 1, 30);
        assert_eq!((queues.take(ms(1_449)), queues.wake_at(ms(1_449))), (None, Some(ms(1_450))));
        assert_eq!(queues.take(ms(1_450)), Some((TargetId(3), 30)));
        assert_eq!(queues.wake_at(ms(1_450)), None);
    }

    #[test]
    fn the_rate_follows_the_time() {
        let ms = Duration::from_millis;
        let steps =
            ScheduledRateLimits::new(vec![(ms(100_000), 1_000), (ms(101_000), 100), (ms(103_000), 0)]);
        let mut queues = filled(&[(1, 10), (1, 11), (1, 12), (1, 13)]);
        queues.set_rate_limits(Arc::new(RateLimits::default().with_schedule(steps, ms(100_000))));
        fn taken_at(queues: &mut TargetQueues<u32>, from_ms: u64, bytes: u64) -> u64 {
            let mut times = (from_ms..10_000).map(Duration::from_millis);
            let at = times.find(|&at| queues.take(at).is_some()).unwrap();
            queues.charge(TargetId(1), bytes, at);
            at.as_millis() as u64
        }
        // A burst of 50 ms is granted; the charge at 1 s takes ten times as long.
        assert_eq!((taken_at(&mut queues, 0, 1_000), taken_at(&mut queues, 0, 200)), (0, 950));
        assert_eq!((taken_at(&mut queues, 0, 200), taken_at(&mut queues, 1_150, 1 << 40)), (1_150, 3_150));
        queues.push(TargetId(1), 1, 14);
        assert!(queues.take(ms(3_150)).is_some());
    }

    #[test]
    fn lanes_keep_to_a_rate_together_and_one_alone_has_all_of_it() {
        let ms = Duration::from_millis;
        let limits = Arc::new(RateLimits::new(RateCaps { all: 1_000, each: 500 }));
        let mut lanes = [filled(&[(1, 10), (2, 20)]), filled(&[(1, 11), (2, 21)])];
        lanes.iter_mut().for_each(|lane| lane.set_rate_limits(Arc::clone(&limits)));
        fn taken(lane: &mut TargetQueues<u32>, now: Duration) -> Option<u32> {
            let (target, item) = lane.take(now)?;
            lane.charge(target, 500, now);
            Some(item)
        }
        assert_eq!(taken(&mut lanes[0], ms(0)), Some(10));
        assert_eq!(taken(&mut lanes[1], ms(0)), None, "the rate of all is used up");
        assert_eq!(lanes[1].wake_at(ms(0)), Some(ms(450)));
        assert_eq!(taken(&mut lanes[1], ms(450)), Some(21), "target 1 waits for its own");
        assert_eq!(taken(&mut lanes[0], ms(950)), None);
        assert_eq!(taken(&mut lanes[1], ms(950)), Some(11), "whoever has work has the rate");
    }

    #[test]
    #[should_panic(expected = "in service")]
    fn finishing_what_was_not_taken_is_a_bug() {
        finish(&mut filled(&[(1, 10)]), 1);
    }

    #[derive(Clone, Debug)]
    enum TestQueueOperation {
        Push(u64),
        Take,
        /// Finishes one of the items in service, put back before if the flag is set.
        Finish(prop::sample::Index, Option<u64>),
    }

    fn steps() -> impl Strategy<Value = Vec<TestQueueOperation>> {
        let step = prop_oneof![
            3 => (0u64..6).prop_map(TestQueueOperation::Push),
            3 => Just(TestQueueOperation::Take),
            2 => (any::<prop::sample::Index>(), prop::option::weighted(0.3, 0u64..6))
                .prop_map(|(which, back)| TestQueueOperation::Finish(which, back)),
        ];
        prop::collection::vec(step, 0..200)
    }

    /// Reference bookkeeping to compare the queues with.
    #[derive(Default)]
    struct TargetQueuesModel {
        waiting: HashMap<u64, VecDeque<u32>>,
        serving: Vec<(u64, u32)>,
        /// Takes that passed by an idle target with work.
        passed_by: HashMap<u64, usize>,
    }

    impl TargetQueuesModel {
        fn len(&self) -> usize {
            self.waiting.values().map(VecDeque::len).sum()
        }

        fn in_service(&self, target: u64) -> u32 {
            self.serving.iter().filter(|(served, _)| *served == target).count() as u32
        }

        fn ready(&self, depth: u32) -> Vec<u64> {
            let has_work = self.waiting.iter().filter(|(_, queue)| !queue.is_empty());
            has_work.map(|(&target, _)| target).filter(|&target| self.in_service(target) < depth).collect()
        }

        fn check_take(&mut self, taken: Option<(u64, u32)>, depth: u32) {
            let ready = self.ready(depth);
            let Some((target, item)) = taken else {
                return assert!(ready.is_empty(), "{ready:?} could have been served");
            };
            assert!(ready.contains(&target), "depth");
            let fewest = ready.iter().map(|&other| self.in_service(other)).min();
            assert_eq!(Some(self.in_service(target)), fewest, "not the least busy");
            assert_eq!(self.waiting.get_mut(&target).and_then(VecDeque::pop_front), Some(item), "FIFO");
            self.count_passed_by(&ready, target);
            self.serving.push((target, item));
        }

        fn count_passed_by(&mut self, ready: &[u64], chosen: u64) {
            self.passed_by.retain(|target, _| ready.contains(target) && *target != chosen);
            for &target in ready.iter().filter(|&&target| target != chosen) {
                if self.in_service(target) == 0 {
                    let takes = self.passed_by.entry(target).or_default();
                    *takes += 1;
                    assert!(*takes < self.waiting.len(), "{target} starves");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn nothing_is_lost_reordered_or_starved(steps in steps(), depth in 1u32..4) {
            let mut queues = TargetQueues::default();
            (0..6).for_each(|target| queues.set_depth(TargetId(target), depth));
            let mut model = TargetQueuesModel::default();
            for (item, step) in (0u32..).zip(steps) {
                match step {
                    TestQueueOperation::Push(target) => {
                        queues.push(TargetId(target), 1, item);
                        model.waiting.entry(target).or_default().push_back(item);
                    }
                    TestQueueOperation::Take => model.check_take(take(&mut queues), depth),
                    TestQueueOperation::Finish(which, back) if !model.serving.is_empty() => {
                        let (target, item) = model.serving.remove(which.index(model.serving.len()));
                        if let Some(back) = back {
                            queues.push(TargetId(back), 1, item);
                            model.waiting.entry(back).or_default().push_back(item);
                        }
                        finish(&mut queues, target);
                    }
                    TestQueueOperation::Finish(..) => {}
                }
                prop_assert_eq!(queues.len(), model.len());
                prop_assert_eq!(queues.in_service(), model.serving.len());
                prop_assert_eq!(queues.is_empty(), model.len() == 0);
            }
            model.serving.drain(..).for_each(|(target, _)| finish(&mut queues, target));
            while let Some((target, item)) = take(&mut queues) {
                model.check_take(Some((target, item)), depth);
                model.serving.clear();
                finish(&mut queues, target);
            }
            prop_assert_eq!(model.len(), 0);
        }
    }
}

//! The target queues: what waits to be read or written, one queue for each storage target (L2).
//!
//! Owns the waiting items and how many of each target are in service. Must not know what an item is, wait, or wake:
//! the engine keeps it behind a lock and does the waiting. Which target comes next is a [`Policy`]'s choice; those
//! that watch congestion (L7) come beside [`RoundRobin`].

use std::collections::{HashMap, VecDeque};

use carrack_model::TargetId;

/// What a policy sees of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetState {
    /// Which target.
    pub target: TargetId,
    /// Items in its queue.
    pub waiting: usize,
    /// Items taken and not yet finished.
    pub in_service: u32,
    /// Most items in service at a time.
    pub depth: u32,
}

impl TargetState {
    /// Whether an item waits that may be taken now.
    pub fn is_ready(&self) -> bool {
        self.waiting > 0 && self.in_service < self.depth
    }
}

/// Chooses the target that an idle thread serves next.
pub trait Policy {
    /// The index in `targets` of one that [is ready](TargetState::is_ready), or nothing if the thread shall wait.
    ///
    /// A target keeps its index for good; new ones are added at the end.
    fn choose(&mut self, targets: &[TargetState]) -> Option<usize>;
}

/// Goes round the targets and skips those that another thread is serving (L2).
///
/// When all that have work are being served, it takes the one with the fewest items in service. A target that has
/// work and that nobody serves is chosen before any other is chosen twice.
#[derive(Clone, Debug, Default)]
pub struct RoundRobin {
    next_index: usize,
}

impl RoundRobin {
    /// Starts at the first target.
    pub fn new() -> RoundRobin {
        RoundRobin::default()
    }
}

impl Policy for RoundRobin {
    fn choose(&mut self, targets: &[TargetState]) -> Option<usize> {
        let start = if self.next_index < targets.len() { self.next_index } else { 0 };
        let mut chosen: Option<usize> = None;
        for index in (start..targets.len()).chain(0..start).filter(|&index| targets[index].is_ready()) {
            if chosen.is_none_or(|best| targets[index].in_service < targets[best].in_service) {
                chosen = Some(index);
            }
            if targets[index].in_service == 0 {
                break;
            }
        }
        self.next_index = chosen? + 1;
        chosen
    }
}

/// One bounded FIFO of items for each target, and which of them may be taken now.
///
/// A target stays known after its queue ran empty: memory grows with the number of targets, not of items. Taking
/// costs one look at each target at most and allocates nothing.
#[derive(Debug)]
pub struct TargetQueues<T, P = RoundRobin> {
    policy: P,
    items_max: usize,
    len: usize,
    in_service: usize,
    states: Vec<TargetState>,
    /// By the same index as `states`.
    queues: Vec<VecDeque<T>>,
    index_of: HashMap<TargetId, usize>,
}

impl<T> TargetQueues<T> {
    /// Empty queues that accept `items_max` items together and go round the targets.
    pub fn new(items_max: usize) -> TargetQueues<T> {
        TargetQueues::with_policy(items_max, RoundRobin::new())
    }
}

impl<T, P: Policy> TargetQueues<T, P> {
    /// Empty queues that accept `items_max` items together, with a policy of the caller's.
    pub fn with_policy(items_max: usize, policy: P) -> TargetQueues<T, P> {
        TargetQueues {
            policy,
            items_max,
            len: 0,
            in_service: 0,
            states: Vec::new(),
            queues: Vec::new(),
            index_of: HashMap::new(),
        }
    }

    /// Bounds the items of a target that are in service at a time. Without it the threads are the only bound; 0
    /// pauses the target. What is in service already stays so.
    pub fn set_depth(&mut self, target: TargetId, depth: u32) {
        let index = self.index_or_new(target);
        self.states[index].depth = depth;
    }

    /// Adds an item at the tail of a target's queue.
    ///
    /// # Errors
    /// Gives the item back if the queues are full: push it again after a [`take`](Self::take).
    pub fn push(&mut self, target: TargetId, item: T) -> Result<(), T> {
        if self.is_full() {
            return Err(item);
        }
        self.put_back(target, item);
        Ok(())
    }

    /// Takes the item at the head of the queue that the policy chooses and counts it as in service until
    /// [`finished`](Self::finished). Nothing if nothing waits, or the policy wants the thread to wait.
    pub fn take(&mut self) -> Option<(TargetId, T)> {
        let index = self.policy.choose(&self.states)?;
        let state = self.states.get_mut(index)?;
        let item = self.queues[index].pop_front()?;
        state.waiting -= 1;
        state.in_service += 1;
        self.len -= 1;
        self.in_service += 1;
        Some((state.target, item))
    }

    /// Adds an item that was taken and holds more work, such as a file's cursor, at the tail of the queue of its next
    /// work's target. Never refused: the queues exceed their bound by no more than the items in service. It does not
    /// finish the service that it was taken for.
    pub fn put_back(&mut self, target: TargetId, item: T) {
        let index = self.index_or_new(target);
        self.queues[index].push_back(item);
        self.states[index].waiting += 1;
        self.len += 1;
    }

    /// Ends the service of one item taken from `target`.
    ///
    /// # Panics
    /// If none of this target is in service.
    pub fn finished(&mut self, target: TargetId) {
        let state = self.index_of.get(&target).map(|&index| &mut self.states[index]);
        let Some(state) = state.filter(|state| state.in_service > 0) else {
            panic!("nothing of {target:?} is in service");
        };
        state.in_service -= 1;
        self.in_service -= 1;
    }

    /// Items that wait, over all targets.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits; items in service may still be [put back](Self::put_back).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether [`push`](Self::push) would give the item back.
    pub fn is_full(&self) -> bool {
        self.len >= self.items_max
    }

    /// Items taken and not yet finished, over all targets.
    pub fn in_service(&self) -> usize {
        self.in_service
    }

    /// Every target seen so far, as the policy sees it.
    pub fn states(&self) -> &[TargetState] {
        &self.states
    }

    fn index_or_new(&mut self, target: TargetId) -> usize {
        *self.index_of.entry(target).or_insert_with(|| {
            self.states.push(TargetState { target, waiting: 0, in_service: 0, depth: u32::MAX });
            self.queues.push(VecDeque::new());
            self.states.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(items: &[(u64, u32)]) -> TargetQueues<u32> {
        let mut queues = TargetQueues::new(items.len());
        for &(target, item) in items {
            queues.push(TargetId(target), item).unwrap();
        }
        queues
    }

    fn take(queues: &mut TargetQueues<u32>) -> Option<(u64, u32)> {
        queues.take().map(|(target, item)| (target.0, item))
    }

    #[test]
    fn goes_round_and_skips_the_target_that_is_being_served() {
        let mut queues = filled(&[(1, 10), (1, 11), (1, 12), (2, 20), (2, 21), (3, 30)]);
        assert_eq!(take(&mut queues), Some((1, 10)));
        assert_eq!(take(&mut queues), Some((2, 20)));
        queues.finished(TargetId(2));
        assert_eq!(take(&mut queues), Some((3, 30)));
        assert_eq!(take(&mut queues), Some((2, 21)), "1 comes next but is being served");
        assert_eq!(take(&mut queues), Some((1, 11)), "only 1 has work");
        assert_eq!((queues.len(), queues.in_service()), (1, 4));
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
        queues.finished(TargetId(1));
        assert_eq!(take(&mut queues), Some((1, 11)));
        queues.set_depth(TargetId(2), 1);
        assert_eq!(take(&mut queues), Some((2, 20)));
    }

    #[test]
    fn full_gives_back_and_put_back_does_not() {
        let mut queues = filled(&[(1, 10), (2, 20)]);
        assert_eq!(queues.push(TargetId(1), 11), Err(11));
        let (target, item) = queues.take().unwrap();
        queues.push(TargetId(1), 11).unwrap();
        queues.put_back(TargetId(2), item);
        queues.finished(target);
        assert_eq!((queues.len(), queues.in_service(), queues.is_full()), (3, 0, true));
        assert_eq!([take(&mut queues), take(&mut queues)], [Some((2, 20)), Some((1, 11))]);
    }

    #[test]
    #[should_panic(expected = "in service")]
    fn finishing_what_was_not_taken_is_a_bug() {
        filled(&[(1, 10)]).finished(TargetId(1));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u64),
        Take,
        /// Finishes one of the items in service, put back before if the flag is set.
        Finish(prop::sample::Index, Option<u64>),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0u64..6).prop_map(Step::Push),
            3 => Just(Step::Take),
            2 => (any::<prop::sample::Index>(), prop::option::weighted(0.3, 0u64..6))
                .prop_map(|(which, back)| Step::Finish(which, back)),
        ];
        prop::collection::vec(step, 0..200)
    }

    /// Plain bookkeeping beside the queues, which they are held against.
    #[derive(Default)]
    struct Model {
        waiting: HashMap<u64, VecDeque<u32>>,
        serving: Vec<(u64, u32)>,
        /// Takes that passed a target by that had work and that nobody served.
        passed_by: HashMap<u64, usize>,
    }

    impl Model {
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
        fn nothing_is_lost_reordered_or_starved(steps in steps(), items_max in 1usize..40, depth in 1u32..4) {
            let mut queues = TargetQueues::new(items_max);
            (0..6).for_each(|target| queues.set_depth(TargetId(target), depth));
            let mut model = Model::default();
            for (item, step) in (0u32..).zip(steps) {
                match step {
                    Step::Push(target) => {
                        let was_full = model.len() >= items_max;
                        prop_assert_eq!(queues.push(TargetId(target), item), if was_full { Err(item) } else { Ok(()) });
                        if !was_full {
                            model.waiting.entry(target).or_default().push_back(item);
                        }
                    }
                    Step::Take => model.check_take(take(&mut queues), depth),
                    Step::Finish(which, back) if !model.serving.is_empty() => {
                        let (target, item) = model.serving.remove(which.index(model.serving.len()));
                        if let Some(back) = back {
                            queues.put_back(TargetId(back), item);
                            model.waiting.entry(back).or_default().push_back(item);
                        }
                        queues.finished(TargetId(target));
                    }
                    Step::Finish(..) => {}
                }
                prop_assert_eq!(queues.len(), model.len());
                prop_assert_eq!(queues.in_service(), model.serving.len());
                prop_assert_eq!(queues.is_empty(), model.len() == 0);
            }
            model.serving.drain(..).for_each(|(target, _)| queues.finished(TargetId(target)));
            while let Some((target, item)) = take(&mut queues) {
                model.check_take(Some((target, item)), depth);
                model.serving.clear();
                queues.finished(TargetId(target));
            }
            prop_assert_eq!(model.len(), 0);
        }
    }
}

//! A seed's chances, in one sequence.

use crate::power_cut::mix;

/// A generator of numbers, the same for the same seed.
#[derive(Clone, Debug)]
pub struct SeedChance(u64);

impl SeedChance {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> SeedChance {
        SeedChance(mix(seed ^ 0xca77_ac0d))
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// True once in `bound` times.
    pub fn one_in(&mut self, bound: u64) -> bool {
        bound > 0 && self.below(bound) == 0
    }

    /// One of these.
    pub fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }

    /// A number from `from` to `to`, small ones more often: all orders of magnitude alike.
    pub fn spread(&mut self, from: u64, to: u64) -> u64 {
        let bits = self.below(u64::from(64 - (to - from).leading_zeros()) + 1);
        let most = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        from + self.next() % (most.min(to - from) + 1)
    }
}

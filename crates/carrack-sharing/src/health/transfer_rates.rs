//! The rates of the transfers themselves at each target. Pure.

use std::collections::{BTreeMap, VecDeque};

/// Points of a window that are kept: more would cost memory without use.
const POINTS: f64 = 16.0;

/// Bytes per second from counters that only grow, as means over the window of the load measurement.
#[derive(Debug)]
pub(super) struct OwnRates {
    window_s: f64,
    /// Times in seconds with the counters at that time, the oldest first.
    seen: VecDeque<(f64, BTreeMap<String, u64>)>,
}

impl OwnRates {
    pub(super) fn new(window_s: u64) -> OwnRates {
        OwnRates { window_s: window_s as f64, seen: VecDeque::new() }
    }

    /// The rates at a time, from the counters `moved`: the difference to the counters of a window ago, or to
    /// the oldest.
    pub(super) fn rates_at(&mut self, now_s: f64, moved: Vec<(String, u64)>) -> BTreeMap<String, f64> {
        let moved: BTreeMap<String, u64> = moved.into_iter().collect();
        if self.seen.back().is_none_or(|(at_s, _)| now_s - at_s >= self.window_s / POINTS) {
            self.seen.push_back((now_s, moved.clone()));
        }
        // A point that is a window old is kept.
        while self.seen.get(1).is_some_and(|(at_s, _)| now_s - at_s >= self.window_s) {
            self.seen.pop_front();
        }
        let Some((since_s, before)) = self.seen.front() else { return BTreeMap::new() };
        let seconds = now_s - since_s;
        if seconds <= 0.0 {
            return BTreeMap::new();
        }
        let mut rates = BTreeMap::new();
        for (name, bytes) in moved {
            // The counter of a target that was forgotten meanwhile starts again at 0.
            let moved_bytes = bytes.saturating_sub(before.get(&name).copied().unwrap_or(0));
            rates.insert(name, moved_bytes as f64 / seconds);
        }
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_means_over_the_window() {
        let mut rates = OwnRates::new(30);
        for (now_s, bytes, rate) in [
            (0.0, 100, None),
            (10.0, 1100, Some(100.0)),
            (20.0, 1100, Some(50.0)),
            (30.0, 1100, Some(1000.0 / 30.0)),
            (40.0, 1100, Some(0.0)),
            // The counter starts again.
            (50.0, 0, Some(0.0)),
        ] {
            assert_eq!(rates.rates_at(now_s, vec![("a".to_owned(), bytes)]).remove("a"), rate, "{now_s}");
        }
        assert_eq!(rates.seen.len(), 4);
    }
}

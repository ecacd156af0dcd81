//! What transfers themselves move at each target, of late. Pure.

use std::collections::{BTreeMap, VecDeque};

/// What is remembered of a window: more would be as good, and memory.
const POINTS: f64 = 16.0;

/// Bytes per second from counters that only grow: means over the window over which load is measured too.
#[derive(Debug)]
pub(super) struct OwnRates {
    window_s: f64,
    /// Times in seconds, and bytes until then; the oldest first.
    seen: VecDeque<(f64, BTreeMap<String, u64>)>,
}

impl OwnRates {
    pub(super) fn new(window_s: u64) -> OwnRates {
        OwnRates { window_s: window_s as f64, seen: VecDeque::new() }
    }

    /// The rates at a time, by what was moved until then. What is compared is a window old, or as old as there is.
    pub(super) fn at(&mut self, now_s: f64, moved: Vec<(String, u64)>) -> BTreeMap<String, f64> {
        let moved: BTreeMap<String, u64> = moved.into_iter().collect();
        if self.seen.back().is_none_or(|(at_s, _)| now_s - at_s >= self.window_s / POINTS) {
            self.seen.push_back((now_s, moved.clone()));
        }
        // One that is a window old is kept.
        while self.seen.get(1).is_some_and(|(at_s, _)| now_s - at_s >= self.window_s) {
            self.seen.pop_front();
        }
        let Some((since_s, before)) = self.seen.front() else { return BTreeMap::new() };
        let seconds = now_s - since_s;
        if seconds <= 0.0 {
            return BTreeMap::new();
        }
        // A target that was forgotten meanwhile counts from 0 again.
        let rate = |name: &str, bytes: u64| {
            bytes.saturating_sub(before.get(name).copied().unwrap_or(0)) as f64 / seconds
        };
        moved.into_iter().map(|(name, bytes)| (name.clone(), rate(&name, bytes))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_means_over_the_window() {
        let mut rates = OwnRates::new(30);
        let mut at = |now_s: f64, bytes: u64| rates.at(now_s, vec![("a".to_owned(), bytes)]).remove("a");
        assert_eq!(at(0.0, 100), None);
        assert_eq!(at(10.0, 1100), Some(100.0));
        assert_eq!(at(20.0, 1100), Some(50.0));
        assert_eq!(at(30.0, 1100), Some(1000.0 / 30.0));
        assert_eq!(at(40.0, 1100), Some(0.0));
        assert_eq!(at(50.0, 0), Some(0.0), "counted anew");
        assert_eq!(rates.seen.len(), 4);
    }
}

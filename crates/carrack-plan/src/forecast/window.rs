//! When a transfer should start: where it takes the least time, before its deadline (L14).

use super::{Forecast, STEP_S};
use crate::grants::share_left;

/// A later start has to make the transfer so much shorter. Less is within what forecasts are off by, and waiting has its
/// own price: until a transfer runs, everything can still happen to it.
const WORTH: f64 = 0.05;

/// How fast a transfer is beside a load: at full rate where there is none, and so much slower as load takes of the target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateModel {
    idle_bytes_per_s: f64,
    full_load: f64,
}

impl RateModel {
    /// A transfer that moves `idle_bytes_per_s` beside no load, and what sharing leaves it of that ([`share_left`]) beside any.
    /// `full_load` is in the forecast's unit: 1 for a share that is busy, a target's rate for bytes per second. None if one of
    /// them is not above 0: the transfer would never end.
    pub fn new(idle_bytes_per_s: f64, full_load: f64) -> Option<Self> {
        let is_possible = |value: f64| value.is_finite() && value > 0.0;
        (is_possible(idle_bytes_per_s) && is_possible(full_load))
            .then_some(Self { idle_bytes_per_s, full_load })
    }

    /// Bytes per second beside a load.
    pub fn rate(&self, load: f64) -> f64 {
        self.idle_bytes_per_s * share_left(load / self.full_load)
    }
}

/// When a transfer should run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// When to start, in Unix seconds.
    pub start_s: i64,
    /// When it is expected to be done.
    pub end_s: i64,
    /// When it would be done if it started at once.
    pub end_if_now_s: i64,
    /// Whether it is expected to miss its deadline: then it starts at once.
    pub is_late: bool,
}

/// The best start for `bytes` between now and the deadline: where they take the least time, and of starts that are within 5 %
/// of that, the first. If none meets the deadline, now.
///
/// What lies beyond the forecast counts as its mean load. A tie is never broken by waiting, so with a forecast that is level
/// the answer is now.
pub fn best_window(forecast: &Forecast, bytes: u64, rate: &RateModel, now_s: i64, deadline_s: i64) -> Window {
    let work = Work::new(forecast, rate);
    let (now, deadline) = (now_s as f64, deadline_s as f64);
    let bytes = bytes as f64;
    let end_if_now = work.end(now, bytes);
    let starts = work.starts(bytes, deadline).into_iter().chain([now]);
    let mut ways: Vec<(f64, f64)> = starts
        .filter(|start| (now..=deadline).contains(start))
        // To the second before: to start then can only be a second less good.
        .map(|start| start.floor().max(now))
        .map(|start| (start, work.end(start, bytes)))
        .filter(|(_, end)| end.ceil() <= deadline)
        .collect();
    ways.sort_by(|a, b| a.0.total_cmp(&b.0));
    let shortest = ways.iter().map(|(start, end)| end - start).fold(f64::INFINITY, f64::min);
    let chosen = ways.iter().find(|(start, end)| (end - start) * (1.0 - WORTH) <= shortest);
    let (start, end) = chosen.copied().unwrap_or((now, end_if_now));
    Window {
        start_s: start as i64,
        end_s: end.ceil() as i64,
        end_if_now_s: end_if_now.ceil() as i64,
        is_late: chosen.is_none(),
    }
}

/// Bytes that could be moved since the begin of the forecast, at the edges of its steps; straight between them.
struct Work {
    start: f64,
    moved: Vec<f64>,
    /// Bytes per second before the first edge and after the last.
    before: f64,
    after: f64,
}

impl Work {
    fn new(forecast: &Forecast, rate: &RateModel) -> Self {
        let rates: Vec<f64> = forecast.expected.iter().map(|&load| rate.rate(load)).collect();
        let mut moved = vec![0.0];
        let mut sum = 0.0;
        for rate in &rates {
            sum += rate * STEP_S as f64;
            moved.push(sum);
        }
        let mean = forecast.expected.iter().sum::<f64>() / forecast.expected.len().max(1) as f64;
        let after = rate.rate(mean);
        Self { start: forecast.start_s as f64, moved, before: rates.first().copied().unwrap_or(after), after }
    }

    fn edge(&self, place: usize) -> f64 {
        self.start + (place as i64 * STEP_S) as f64
    }

    fn last(&self) -> (f64, f64) {
        let place = self.moved.len() - 1;
        (self.edge(place), self.moved[place])
    }

    /// Bytes until a time; below 0 before the forecast.
    fn moved_until(&self, at: f64) -> f64 {
        let (end, all) = self.last();
        if at >= end {
            return all + (at - end) * self.after;
        }
        if at <= self.start {
            return (at - self.start) * self.before;
        }
        let place = ((at - self.start) / STEP_S as f64) as usize;
        let rate = (self.moved[place + 1] - self.moved[place]) / STEP_S as f64;
        self.moved[place] + (at - self.edge(place)) * rate
    }

    /// When so many bytes are moved.
    fn when(&self, bytes: f64) -> f64 {
        let (end, all) = self.last();
        if bytes >= all {
            return end + (bytes - all) / self.after;
        }
        if bytes <= 0.0 {
            return self.start + bytes / self.before;
        }
        let place = self.moved.partition_point(|&moved| moved <= bytes) - 1;
        let rate = (self.moved[place + 1] - self.moved[place]) / STEP_S as f64;
        self.edge(place) + (bytes - self.moved[place]) / rate
    }

    fn end(&self, start: f64, bytes: f64) -> f64 {
        self.when(self.moved_until(start) + bytes)
    }

    /// The starts among which the best is: the time that bytes take changes its slope only where start or end is on an edge.
    fn starts(&self, bytes: f64, deadline: f64) -> Vec<f64> {
        let edges = (0..self.moved.len()).map(|place| self.edge(place));
        let ends = edges.clone().chain([deadline]).map(|end| self.when(self.moved_until(end) - bytes));
        edges.chain(ends).collect()
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;

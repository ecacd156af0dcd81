//! The best start of a transfer: the shortest duration that ends before its deadline (L14).

use super::{LoadForecast, STEP_S};
use crate::grants::share_left;

/// A later start must shorten the transfer by this part. Less is within the error of forecasts, and waiting
/// has a price: until a transfer runs, anything can happen to it.
const WORTH: f64 = 0.05;

/// The rate of a transfer under a load: the full rate without load, and less by the target's time that load
/// takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransferRateUnderLoad {
    idle_bytes_per_s: f64,
    full_load: f64,
}

impl TransferRateUnderLoad {
    /// Creates a model of a transfer with `idle_bytes_per_s` without load, and the part that sharing leaves
    /// ([`share_left`]) with load. `full_load` is in the forecast's unit: 1 for a busy share, a target's rate
    /// for bytes per second. Returns `None` if one of both is not above 0: the transfer would never end.
    pub fn new(idle_bytes_per_s: f64, full_load: f64) -> Option<Self> {
        let is_possible = [idle_bytes_per_s, full_load].iter().all(|value| value.is_finite() && *value > 0.0);
        is_possible.then_some(Self { idle_bytes_per_s, full_load })
    }

    /// Returns the bytes per second under a load.
    pub fn rate(&self, load: f64) -> f64 {
        self.idle_bytes_per_s * share_left(load / self.full_load)
    }
}

/// The time in which a transfer should run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForecastTransferWindow {
    /// Start, in Unix seconds.
    pub start_s: i64,
    /// Expected end.
    pub end_s: i64,
    /// Expected end after a start at once.
    pub end_if_now_s: i64,
    /// True if it is expected to miss its deadline: then it starts at once.
    pub is_late: bool,
}

/// Returns the best start for `bytes` between now and the deadline: the start with the shortest duration, or
/// the first start within 5 % of that. If no start meets the deadline, now.
///
/// Time beyond the forecast counts with its mean load. Waiting never breaks a tie: with a level forecast the
/// answer is now.
pub fn best_window(
    forecast: &LoadForecast,
    bytes: u64,
    rate: &TransferRateUnderLoad,
    now_s: i64,
    deadline_s: i64,
) -> ForecastTransferWindow {
    let work = ForecastByteCapacity::new(forecast, rate);
    let (now, deadline) = (now_s as f64, deadline_s as f64);
    let bytes = bytes as f64;
    let end_if_now = work.end(now, bytes);
    let starts = work.starts(bytes, deadline).into_iter().chain([now]);
    let mut ways: Vec<(f64, f64)> = starts
        .filter(|start| (now..=deadline).contains(start))
        // To the second before: a start then can only be a second worse.
        .map(|start| start.floor().max(now))
        .map(|start| (start, work.end(start, bytes)))
        .filter(|(_, end)| end.ceil() <= deadline)
        .collect();
    ways.sort_by(|a, b| a.0.total_cmp(&b.0));
    let shortest = ways.iter().map(|(start, end)| end - start).fold(f64::INFINITY, f64::min);
    let chosen = ways.iter().find(|(start, end)| (end - start) * (1.0 - WORTH) <= shortest);
    let (start, end) = chosen.copied().unwrap_or((now, end_if_now));
    ForecastTransferWindow {
        start_s: start as i64,
        end_s: end.ceil() as i64,
        end_if_now_s: end_if_now.ceil() as i64,
        is_late: chosen.is_none(),
    }
}

/// Bytes that could be moved since the begin of the forecast, at the edges of its steps; linear between them.
struct ForecastByteCapacity {
    start: f64,
    moved: Vec<f64>,
    /// Bytes per second before the first edge and after the last.
    before: f64,
    after: f64,
}

impl ForecastByteCapacity {
    fn new(forecast: &LoadForecast, rate: &TransferRateUnderLoad) -> Self {
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

    /// Returns the bytes until a time; below 0 before the forecast.
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

    /// Returns the time at which this many bytes are moved.
    fn time_when_moved(&self, bytes: f64) -> f64 {
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
        self.time_when_moved(self.moved_until(start) + bytes)
    }

    /// Returns the candidates for the best start: the duration changes its slope only where start or end is
    /// on an edge.
    fn starts(&self, bytes: f64, deadline: f64) -> Vec<f64> {
        let edges = (0..self.moved.len()).map(|place| self.edge(place));
        let ends =
            edges.clone().chain([deadline]).map(|end| self.time_when_moved(self.moved_until(end) - bytes));
        edges.chain(ends).collect()
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;

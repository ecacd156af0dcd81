//! Amounts over time in bounded memory: when the time exceeds the bins, pairs of bins are merged.

use crate::views::report::STILL_S;

/// Most bins: as many as a plot has room for.
pub const BINS_MAX: usize = 480;

/// Seconds of a bin at first: counters come twice a second.
const FINEST_S: f64 = 0.5;

/// The amount in each stretch of time, from 0 on.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeBins {
    step_s: f64,
    amounts: Vec<f64>,
    end_s: f64,
}

/// A bin: a stretch of time, and its rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeBin {
    pub start_s: f64,
    pub end_s: f64,
    pub per_s: f64,
}

impl Default for TimeBins {
    fn default() -> TimeBins {
        TimeBins { step_s: FINEST_S, amounts: Vec::new(), end_s: 0.0 }
    }
}

impl TimeBins {
    /// Spreads an amount evenly over the time in which it came.
    pub fn add(&mut self, from_s: f64, to_s: f64, amount: f64) {
        while to_s > self.step_s * BINS_MAX as f64 {
            self.halve();
        }
        let span_s = to_s - from_s;
        if span_s <= 0.0 {
            return;
        }
        let last = (to_s / self.step_s).ceil() as usize;
        self.amounts.resize(self.amounts.len().max(last), 0.0);
        for bin in (from_s / self.step_s) as usize..last {
            let (start_s, end_s) = (bin as f64 * self.step_s, (bin + 1) as f64 * self.step_s);
            let part_s = (end_s.min(to_s) - start_s.max(from_s)).max(0.0);
            self.amounts[bin] += amount * part_s / span_s;
        }
        self.end_s = self.end_s.max(to_s);
    }

    fn halve(&mut self) {
        self.amounts = self.amounts.chunks(2).map(|pair| pair.iter().sum()).collect();
        self.step_s *= 2.0;
    }

    /// Returns the sum of all amounts.
    pub fn total(&self) -> f64 {
        self.amounts.iter().sum()
    }

    /// Returns the bins in order.
    pub fn iter(&self) -> impl Iterator<Item = TimeBin> {
        self.amounts.iter().enumerate().map(|(bin, amount)| {
            let start_s = bin as f64 * self.step_s;
            let end_s = (start_s + self.step_s).min(self.end_s);
            TimeBin { start_s, end_s, per_s: amount / (end_s - start_s).max(f64::EPSILON) }
        })
    }

    /// Returns the amounts in `count` equal stretches of the time until `end_s`.
    pub fn in_columns(&self, end_s: f64, count: usize) -> Vec<TimeBin> {
        let step_s = end_s / count as f64;
        let mut columns: Vec<f64> = vec![0.0; count];
        for TimeBin { start_s, end_s, per_s } in self.iter() {
            let (first, last) = ((start_s / step_s) as usize, (end_s / step_s).ceil() as usize);
            for (column, amount) in columns.iter_mut().enumerate().take(last).skip(first) {
                let (left_s, right_s) = (column as f64 * step_s, (column + 1) as f64 * step_s);
                *amount += per_s * (end_s.min(right_s) - start_s.max(left_s)).max(0.0);
            }
        }
        let bins = columns.into_iter().enumerate().map(|(column, amount)| TimeBin {
            start_s: column as f64 * step_s,
            end_s: (column + 1) as f64 * step_s,
            per_s: amount / step_s,
        });
        bins.collect()
    }
}

/// A counter that only grows, except that a new session of the transfer counts from 0.
#[derive(Clone, Debug, Default)]
pub struct CounterSeries {
    /// The increments.
    pub bins: TimeBins,
    last: u64,
    last_s: f64,
}

impl CounterSeries {
    /// Creates a series that begins at a time.
    pub fn since(at_s: f64) -> CounterSeries {
        CounterSeries { last_s: at_s, ..CounterSeries::default() }
    }

    /// Notes that a new session counts from 0.
    pub fn restart(&mut self, at_s: f64) {
        (self.last, self.last_s) = (0, at_s);
    }

    /// Records the counter's value at a time.
    pub fn record_total(&mut self, total: u64, at_s: f64) {
        let span_s = at_s - self.last_s;
        // An increment within no time is added to the next one.
        if span_s > 0.0 && (total != self.last || span_s > STILL_S) {
            self.bins.add(self.last_s, at_s, total.saturating_sub(self.last) as f64);
            (self.last, self.last_s) = (total, at_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_fits_and_nothing_is_lost() {
        let mut bins = TimeBins::default();
        for tick in 0..7_200 {
            bins.add(f64::from(tick) * 0.5, f64::from(tick + 1) * 0.5, 50.0);
        }
        assert!(bins.amounts.len() <= BINS_MAX, "{}", bins.amounts.len());
        assert!((bins.total() - 360_000.0).abs() < 1e-6, "{}", bins.total());
        assert!(bins.iter().all(|bin| (bin.per_s - 100.0).abs() < 1e-6));
        assert_eq!(bins.iter().last().map(|bin| bin.end_s), Some(3_600.0));
    }

    #[test]
    fn an_amount_is_spread_over_its_time() {
        let mut bins = TimeBins::default();
        bins.add(0.25, 1.25, 100.0);
        let rates: Vec<f64> = bins.iter().map(|bin| bin.per_s).collect();
        assert_eq!(rates, [50.0, 100.0, 100.0]);
        let columns = bins.in_columns(2.5, 2);
        assert_eq!(columns.iter().map(|bin| bin.per_s * 1.25).collect::<Vec<_>>(), [100.0, 0.0]);
    }

    #[test]
    fn a_new_session_counts_from_nothing() {
        let mut series = CounterSeries::default();
        series.record_total(100, 1.0);
        series.restart(5.0);
        series.record_total(30, 6.0);
        assert_eq!(series.bins.total(), 130.0);
        assert_eq!(series.bins.iter().filter(|bin| bin.per_s > 0.0).count(), 4);
        series.record_total(50, 6.0);
        series.record_total(60, 7.0);
        assert_eq!(series.bins.total(), 160.0);
    }

    #[test]
    fn a_look_between_two_counters_is_no_standstill_and_a_second_is() {
        let mut series = CounterSeries::default();
        for (total, at_s) in [(50, 0.5), (50, 1.0), (150, 1.5), (150, 2.0), (150, 2.5)] {
            series.record_total(total, at_s);
        }
        let rates: Vec<f64> = series.bins.iter().map(|bin| bin.per_s).collect();
        assert_eq!(rates, [100.0, 100.0, 100.0, 0.0, 0.0]);
    }
}

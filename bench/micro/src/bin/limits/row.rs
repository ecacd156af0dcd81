//! The results of one kind: all runs, and their median, minimum and maximum.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::kind::{Group, Kind};

/// One run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Seconds from the start to the end of the last process.
    pub wall_s: f64,
    /// CPU seconds of all processes, user and system.
    pub cpu_s: f64,
    /// Cores that other processes kept busy meanwhile.
    pub foreign_cores: f64,
}

/// All runs of one kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The measurement.
    pub kind: Kind,
    /// Bytes that a run moves.
    pub bytes: u64,
    /// Files that a run touches.
    pub files: u64,
    /// One for each repetition, unless there is a problem.
    pub runs: Vec<Run>,
    /// The reason why it can't be measured here.
    pub problem: Option<String>,
}

/// Median and range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of values; `None` without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Spread { median: f64::midpoint(low, high), min, max })
    }
}

impl Row {
    /// Creates a row without runs.
    pub fn new(kind: Kind, bytes: u64, files: u64) -> Row {
        Row { kind, bytes, files, runs: Vec::new(), problem: None }
    }

    /// Returns files per second for small files, else GB/s (10^9 bytes).
    pub fn rate(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| self.rate_of(run)))
    }

    /// Returns CPU microseconds per file for small files, else CPU seconds per GB; of both ends together.
    pub fn cpu_cost(&self) -> Option<Spread> {
        let unit = if self.counts_files() { self.files as f64 / 1e6 } else { self.bytes as f64 / 1e9 };
        Spread::of(self.runs.iter().map(|run| run.cpu_s / unit))
    }

    /// Returns the unit of [`Row::rate`].
    pub fn rate_unit(&self) -> &'static str {
        if self.counts_files() { "files/s" } else { "GB/s" }
    }

    /// Returns the unit of [`Row::cpu_cost`].
    pub fn cpu_unit(&self) -> &'static str {
        if self.counts_files() { "µs/file" } else { "s/GB" }
    }

    /// Returns one run's [`Row::rate`].
    pub fn rate_of(&self, run: &Run) -> f64 {
        let amount = if self.counts_files() { self.files as f64 } else { self.bytes as f64 / 1e9 };
        amount / run.wall_s
    }

    /// Formats a [`Row::rate`] for people, without its unit.
    pub fn show_rate(&self, rate: f64) -> String {
        if self.counts_files() { grouped(rate) } else { format!("{rate:.2}") }
    }

    /// Returns the row for other programs: all stored values, and those computed from them.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.kind.to_string(),
            "group": self.kind.group().heading(),
            "kind": self.kind,
            "bytes": self.bytes,
            "files": self.files,
            "rate": self.rate(),
            "rate_unit": self.rate_unit(),
            "cpu": self.cpu_cost().map(|cost| cost.median),
            "cpu_unit": self.cpu_unit(),
            "runs": self.runs,
            "problem": self.problem,
        })
    }

    fn counts_files(&self) -> bool {
        self.kind.group() == Group::SmallFiles
    }
}

/// Formats a whole number with commas: `12,345`.
pub fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{Local, Operation, Small};

    fn runs(walls_s: &[f64]) -> Vec<Run> {
        walls_s.iter().map(|&wall_s| Run { wall_s, cpu_s: 2.0 * wall_s, foreign_cores: 0.0 }).collect()
    }

    #[test]
    fn medians_of_odd_and_even_numbers() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn rates_and_costs_have_their_units() {
        let copy =
            Row { runs: runs(&[1.0, 2.0, 4.0]), ..Row::new(Kind::Local(Local::CopyHot), 4_000_000_000, 0) };
        assert_eq!(copy.rate(), Some(Spread { median: 2.0, min: 1.0, max: 4.0 }));
        assert_eq!(
            (copy.cpu_cost().unwrap().median, copy.rate_unit(), copy.cpu_unit()),
            (1.0, "GB/s", "s/GB")
        );
        let kind = Kind::Small(Small { operation: Operation::Stat, threads: 1 });
        let stat = Row { runs: runs(&[0.5]), ..Row::new(kind, 0, 1_000) };
        assert_eq!((stat.rate().unwrap().median, stat.cpu_cost().unwrap().median), (2_000.0, 1_000.0));
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([999.4, 1_000.0, 1_234_567.0].map(grouped), ["999", "1,000", "1,234,567"]);
    }

    #[test]
    fn what_is_written_can_be_read() {
        let row = Row { runs: runs(&[1.0]), ..Row::new(Kind::Local(Local::ReadFiles), 10, 1) };
        let again: Row = serde_json::from_value(row.to_json()).unwrap();
        assert_eq!((again.kind, again.bytes, again.runs.len()), (row.kind, 10, 1));
    }
}

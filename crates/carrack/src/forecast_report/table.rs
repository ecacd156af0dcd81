//! `carrack forecast` for people.

use std::io::{self, Write};

use carrack_plan::forecast::{Horizon, Method};

use super::Report;
use crate::lifetime::show_moment;
use crate::trouble::tame;

/// A bar for everything that a target can bear.
const BAR: f64 = 30.0;

impl Report {
    /// Writes what is expected, hour by hour, and how far off that will be.
    pub fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}: {}", tame(&self.name), self.what_is_known())?;
        for (horizon, words, method) in
            [(Horizon::Hour, "next hour", self.forecast.near), (Horizon::Day, "next day", self.forecast.far)]
        {
            writeln!(out, "  {words:<10} by {}: {}", method.name(), self.error(horizon))?;
            let naive = self.naive_errors(horizon);
            if !naive.is_empty() {
                writeln!(out, "  {:<10} MAE of {}", "", naive.join(", of "))?;
            }
        }
        writeln!(out, "\n{:<20}  {:>12}  {:>8}", "HOUR (UTC)", "EXPECTED", "LOAD")?;
        for hour in self.hours() {
            let part = self.part(hour.load);
            let percent = part.map_or("?".to_owned(), |part| format!("{:.0} %", part * 100.0));
            let bar = "#".repeat(part.map_or(0, |part| (part * BAR).round() as usize));
            let line = format!(
                "{:<20}  {:>12}  {percent:>8}  {bar}",
                show_moment(hour.start_s),
                self.unit.show(hour.load)
            );
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    fn what_is_known(&self) -> String {
        let storage = &self.storage;
        let targets = match storage.targets {
            1 => String::new(),
            many => format!("mean of {many} targets; "),
        };
        let capacity = match storage.capacity {
            Some(capacity) => format!("can bear {}", self.unit.show(capacity)),
            None => "what it can bear is not known".to_owned(),
        };
        let covered = storage.history.coverage() * 100.0;
        format!("{targets}{:.1} days of history, {covered:.0} % of it measured; {capacity}", self.days())
    }

    fn error(&self, horizon: Horizon) -> String {
        match self.forecast.error(horizon) {
            Some(error) => format!("MAE {}, RMSE {}", self.unit.show(error.mae), self.unit.show(error.rmse)),
            None => "error unknown, there is too little history".to_owned(),
        }
    }

    /// What would have been wrong without any thought.
    fn naive_errors(&self, horizon: Horizon) -> Vec<String> {
        let naive = [Method::SameAsNow, Method::DayAgo].into_iter();
        let errors = naive.filter_map(|method| self.forecast.error_of(method, horizon));
        errors.map(|error| format!("\"{}\" {}", error.method.name(), self.unit.show(error.mae))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::waves;

    #[test]
    fn says_hours_and_errors() {
        let mut out = Vec::new();
        waves().write_table(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with("lfs01: mean of 3 targets; 8.0 days of history, 100 % of it measured;"),
            "{text}"
        );
        assert!(text.contains("\n  next day   by ") && text.contains("MAE of \"same as now\" "), "{text}");
        assert_eq!(text.lines().filter(|line| line.contains(":00:00Z  ")).count(), 24, "{text}");
        assert!(text.contains("2026-01-04T10:00:00Z") && text.contains(" %  ####"), "{text}");
    }
}

//! The report: results and machine, as tables for people and as JSON for programs.

use std::env;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use bytesize::ByteSize;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kind::{Group, Kind};
use crate::options::{Options, Sizes};
use crate::row::Row;
use crate::{machine, measure};

/// The part of a core that other processes may take during a run, as in `bench/compare`.
const FOREIGN_CORES_MAX: f64 = 0.10;

/// The shortest run that is judged: the kernel counts busy time in ticks of 10 ms.
const JUDGED_WALL_S_MIN: f64 = 0.5;

/// All results, and the machine.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// The command line.
    pub command: String,
    /// Start, in seconds since 1970.
    pub started_unix_s: u64,
    /// The repository's commit.
    pub commit: String,
    /// The machine in words.
    pub machine: String,
    /// Cores that could be used.
    pub cores: usize,
    /// Runs of each measurement.
    pub repetitions: u32,
    /// The amounts that each measurement moved.
    pub sizes: Sizes,
    /// The results.
    pub rows: Vec<Row>,
}

impl Report {
    /// Runs the measurements.
    pub fn measure(options: &Options) -> Result<Report> {
        Ok(Report {
            command: env::args().collect::<Vec<_>>().join(" "),
            started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            commit: machine::commit(),
            machine: machine::describe(&options.work_dir),
            cores: machine::cores(),
            repetitions: options.repetitions,
            sizes: options.sizes,
            rows: measure::measure_all(options)?,
        })
    }

    /// Returns the row of a kind, if it was measured.
    pub fn row(&self, kind: Kind) -> Option<&Row> {
        self.rows.iter().find(|row| row.kind == kind && !row.runs.is_empty() && row.problem.is_none())
    }

    /// Returns the report for other programs, which can be read again.
    pub fn to_json(&self) -> Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        value["rows"] = self.rows.iter().map(Row::to_json).collect();
        value
    }

    /// Returns the report for people.
    pub fn markdown(&self) -> String {
        let Sizes { file_count, file_bytes, block_bytes, small_count, small_bytes } = self.sizes;
        let mut text = format!(
            "# The limits of this machine\n\n{}.\nCommit {}, {} repetitions, interleaved: medians, minimum–maximum in \
             parentheses; GB is 10^9 bytes.\n{file_count} files of {}, blocks of {}; {small_count} small files of {}. \
             Each end is a process, each stream a thread at\neach end; CPU time is of all of them.\n",
            self.machine,
            self.commit,
            self.repetitions,
            show(file_bytes),
            show(block_bytes),
            show(small_bytes),
        );
        Group::ALL.iter().for_each(|&group| text += &self.table(group));
        text + &self.disturbances()
    }

    /// Returns the table of a group; empty without rows.
    fn table(&self, group: Group) -> String {
        let rows: Vec<&Row> = self.rows.iter().filter(|row| row.kind.group() == group).collect();
        let Some(first) = rows.first() else { return String::new() };
        let mut text = format!(
            "\n## {}\n\n| measurement | {}: median (min–max) | CPU {}: median (min) |\n| --- | --- | --- |\n",
            group.heading(),
            first.rate_unit(),
            first.cpu_unit()
        );
        rows.into_iter().for_each(|row| text += &line(row));
        text
    }

    fn disturbances(&self) -> String {
        let judged = self.rows.iter().flat_map(|row| &row.runs).filter(|run| run.wall_s >= JUDGED_WALL_S_MIN);
        let (mut judged_count, mut disturbed_count) = (0, 0);
        judged.for_each(|run| {
            judged_count += 1;
            disturbed_count += u32::from(run.foreign_cores > FOREIGN_CORES_MAX);
        });
        let mut text = String::new();
        if disturbed_count > 0 {
            let _ = writeln!(
                text,
                "\nOthers took more than {:.0} % of a core during {disturbed_count} of the {judged_count} runs of at least \
                 {JUDGED_WALL_S_MIN} s.",
                FOREIGN_CORES_MAX * 100.0
            );
        }
        text
    }
}

fn line(row: &Row) -> String {
    let (Some(rate), Some(cpu)) = (row.rate(), row.cpu_cost()) else {
        let problem = row.problem.as_deref().unwrap_or("not measured");
        return format!("| {} | – {problem} | – |\n", row.kind);
    };
    let problem = row.problem.as_ref().map_or(String::new(), |problem| format!(" – then: {problem}"));
    let [median, min, max] = [rate.median, rate.min, rate.max].map(|rate| row.show_rate(rate));
    let decimals = if row.kind.group() == Group::SmallFiles { 2 } else { 3 };
    let cpu = format!("{:.decimals$} ({:.decimals$})", cpu.median, cpu.min);
    format!("| {} | {median} ({min}–{max}){problem} | {cpu} |\n", row.kind)
}

/// Formats a size in powers of 1,024.
fn show(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Local;
    use crate::row::Run;

    fn report(problem: Option<&str>, foreign_cores: f64) -> Report {
        let run = Run { wall_s: 1.0, cpu_s: 0.5, foreign_cores };
        let row = Row::new(Kind::Local(Local::HashHot), 4_000_000_000, 0);
        let row = match problem {
            Some(words) => Row { problem: Some(words.to_owned()), ..row },
            None => Row { runs: vec![run, Run { wall_s: 2.0, ..run }], ..row },
        };
        Report {
            command: "limits".to_owned(),
            started_unix_s: 1,
            commit: "c".to_owned(),
            machine: "m".to_owned(),
            cores: 2,
            repetitions: 2,
            sizes: Sizes {
                file_count: 4,
                file_bytes: 1 << 30,
                block_bytes: 1 << 18,
                small_count: 7,
                small_bytes: 9,
            },
            rows: vec![row],
        }
    }

    #[test]
    fn a_table_has_median_range_and_cost() {
        let text = report(None, 0.0).markdown();
        assert!(text.contains("| XXH3-128, one buffer | 3.00 (2.00–4.00) | 0.125 (0.125) |"), "{text}");
        assert!(!text.contains("## Small files") && !text.contains("Others took"), "{text}");
    }

    #[test]
    fn problems_and_disturbances_are_said() {
        assert!(report(Some("no such thing"), 0.0).markdown().contains("| – no such thing | – |"));
        assert!(report(None, 0.2).markdown().contains("during 2 of the 2 runs"));
    }

    #[test]
    fn json_can_be_read_again() {
        let again: Report = serde_json::from_value(report(None, 0.0).to_json()).unwrap();
        assert_eq!(again.markdown(), report(None, 0.0).markdown());
        assert!(again.row(Kind::Local(Local::HashHot)).is_some());
    }
}

//! The distance of carrack from the limits: results of `bench/compare` next to those measured here.
//!
//! A row's limit depends on its files' mean size and on the checksum of its objects:
//!
//! | mean size | checksum | the limit |
//! | --- | --- | --- |
//! | 1 MiB and more | XXH3-128 | read+hash+send → recv+hash+write, 2 streams |
//! | 1 MiB and more | no | the best path without a hash |
//! | less | either | the sum of its parts |
//!
//! The parts are the CPU time of reading and creating small files, of the bytes beyond, of hashing and of
//! sending them, with all cores busy.
//!
//! A limit is the best of its runs: a disturbance makes a run slower. Of carrack's runs the median counts.
//!
//! Of results.json only `bytes`, `files`, `tools` and their `runs` are read; missing ones are left out.

use std::fmt::Write;

use serde_json::{Map, Value};

use crate::kind::{Congestion, Kind, Local, Operation, ReceiveWay, SendWay, Small, Transfer};
use crate::report::Report;
use crate::row::{Row, Spread, grouped};

/// Tools of `bench/compare` that are carrack, with a suffix for the variant.
const TOOL_PREFIX: &str = "carrack";

/// Mean size from which a workload is one of large files: a file's own costs are then below a tenth of its
/// bytes'.
const LARGE_BYTES_MIN: f64 = 1_048_576.0;

/// Streams that carrack opens on a near path.
const STREAMS: u64 = 2;

/// One row of results.json with its limit.
#[derive(Debug, PartialEq)]
pub struct Standing {
    /// Name of the workload.
    pub workload: String,
    /// Name of the tool.
    pub tool: String,
    /// Bytes of the workload.
    pub bytes: f64,
    /// Its files.
    pub files: f64,
    /// Median of carrack's runs.
    pub taken: Cost,
    /// The limit to compare with; `None` if there is none.
    pub limit: Option<Limit>,
}

/// The cost of a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Seconds.
    pub wall_s: f64,
    /// CPU seconds of both ends.
    pub cpu_s: f64,
}

/// A cost that this machine can't go below, and its origin.
#[derive(Debug, PartialEq)]
pub struct Limit {
    /// Its cost.
    pub cost: Cost,
    /// The origin in words.
    pub words: String,
}

/// The checksum that carrack computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    None,
    Xxh3,
    Blake3,
}

/// Returns carrack's rows, sorted by workload and tool.
pub fn standings(results: &Value, report: &Report) -> Vec<Standing> {
    let mut found = Vec::new();
    // A section with a link was measured over an emulated path, for which this machine's limits don't hold.
    let on_loopback = |section: &&(&String, &Value)| section.1["link"].is_null();
    let sections: Vec<_> = objects(results, "sections").collect();
    for (workload, value) in sections.iter().filter(on_loopback).copied() {
        for (tool, tool_value) in objects(value, "tools") {
            if tool.starts_with(TOOL_PREFIX)
                && let Some(taken) = median_cost(tool_value)
                && let (Some(bytes), Some(files)) = (value["bytes"].as_f64(), value["files"].as_f64())
            {
                let limit = limit_of(check_of(tool, tool_value), bytes, files, report);
                let (workload, tool) = (workload.clone(), tool.clone());
                found.push(Standing { workload, tool, bytes, files, taken, limit });
            }
        }
    }
    found
}

/// Returns a table for people.
pub fn markdown(standings: &[Standing]) -> String {
    let mut text = "## carrack beside the limits\n\nThe share is the limit's wall time over carrack's: 100 % is the limit. \
                    Results of another day than\nthe limits' compare the days as well.\n\n\
                    | workload | tool | wall s | GB/s | files/s | CPU s/GB | limit: wall s | CPU s/GB | share | which limit |\n\
                    | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for Standing { workload, tool, bytes, files, taken, limit } in standings {
        let gb = bytes / 1e9;
        let files_per_s = grouped(files / taken.wall_s);
        let rates = format!("{:.2} | {:.2} | {files_per_s}", taken.wall_s, gb / taken.wall_s);
        let _ = write!(text, "| {workload} | {tool} | {rates} | {:.3} | ", taken.cpu_s / gb);
        let _ = match limit {
            Some(Limit { cost, words }) => {
                let share = 100.0 * cost.wall_s / taken.wall_s;
                writeln!(text, "{:.2} | {:.3} | {share:.0} % | {words} |", cost.wall_s, cost.cpu_s / gb)
            }
            None => writeln!(text, "– | – | – | not measured |"),
        };
    }
    text
}

fn objects<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.get(key).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

/// Returns the median of the runs without problems.
fn median_cost(tool: &Value) -> Option<Cost> {
    let runs = tool.get("runs")?.as_array()?;
    let is_good = |run: &&Value| run["problems"].as_array().is_none_or(Vec::is_empty);
    let good: Vec<&Value> = runs.iter().filter(is_good).collect();
    let median = |key: &str| {
        let values = good.iter().filter_map(|run| run[key].as_f64()).filter(|&seconds| seconds > 0.0);
        Spread::of(values).map(|spread| spread.median)
    };
    Some(Cost { wall_s: median("wall_s")?, cpu_s: median("cpu_s")? })
}

/// Returns the checksum by the options in the tool's settings, or by its name; carrack's default is XXH3.
fn check_of(tool: &str, value: &Value) -> Check {
    let settings = value["settings"].as_str().unwrap_or_default();
    let says = |word: &str| {
        let option = [format!("--checksum={word}"), format!("--checksum {word}")];
        option.iter().any(|option| settings.contains(option)) || tool.split('-').any(|part| part == word)
    };
    match () {
        () if says("none") => Check::None,
        () if says("blake3") => Check::Blake3,
        () => Check::Xxh3,
    }
}

fn limit_of(check: Check, bytes: f64, files: f64, report: &Report) -> Option<Limit> {
    let is_large = bytes >= LARGE_BYTES_MIN * files;
    match check {
        Check::Blake3 => None,
        Check::Xxh3 if is_large => {
            limit_of_row(report.row(transfer(SendWay::ReadHash, ReceiveWay::HashWrite, STREAMS))?, bytes)
        }
        Check::None if is_large => {
            let unhashed = [
                (SendWay::Read, ReceiveWay::Write),
                (SendWay::Sendfile, ReceiveWay::Write),
                (SendWay::Sendfile, ReceiveWay::Splice),
            ];
            unhashed
                .into_iter()
                .flat_map(|(send, receive)| [1, STREAMS].map(|streams| transfer(send, receive, streams)))
                .filter_map(|kind| limit_of_row(report.row(kind)?, bytes))
                .min_by(|a, b| a.cost.wall_s.total_cmp(&b.cost.wall_s))
        }
        check => limit_of_parts(check == Check::Xxh3, bytes, files, report),
    }
}

fn transfer(send: SendWay, receive: ReceiveWay, streams: u64) -> Kind {
    Kind::Transfer(Transfer { send, receive, streams, congestion: Congestion::Cubic })
}

/// Returns the limit by a whole path's best run, for this number of bytes.
fn limit_of_row(row: &Row, bytes: f64) -> Option<Limit> {
    let gb = bytes / 1e9;
    let cost = Cost { wall_s: gb / row.rate()?.max, cpu_s: gb * row.cpu_cost()?.min };
    Some(Limit { cost, words: row.kind.to_string() })
}

/// Returns the sum of the work for every file and every byte, spread over all cores.
fn limit_of_parts(is_checked: bool, bytes: f64, files: f64, report: &Report) -> Option<Limit> {
    let cpu_of = |kind: Kind| report.row(kind)?.cpu_cost().map(|cost| cost.min);
    let small = |operation| cpu_of(Kind::Small(Small { operation, threads: 2 }));
    // carrack names files like this: by descriptor, or by /proc if the kernel can't.
    let create_us = small(Operation::LinkDescriptor).or_else(|| small(Operation::LinkProc))?;
    let files_s = files * (small(Operation::Read)? + create_us) / 1e6;
    let gb = bytes / 1e9;
    // The small files' costs include the bytes of a small file.
    let gb_beyond = (gb - files * report.sizes.small_bytes as f64 / 1e9).max(0.0);
    let contents = cpu_of(Kind::Local(Local::ReadFiles))? + cpu_of(Kind::Local(Local::WriteFiles))?;
    let network = cpu_of(transfer(SendWay::Buffer, ReceiveWay::Buffer, STREAMS))?;
    let hash = if is_checked { 2.0 * cpu_of(Kind::Local(Local::HashCycling))? } else { 0.0 };
    let cpu_s = files_s + gb_beyond * contents + gb * (network + hash);
    let words = format!(
        "its parts: files {files_s:.2}, contents {:.2}, network {:.2}, hashes {:.2} CPU s on {} cores",
        gb_beyond * contents,
        gb * network,
        gb * hash,
        report.cores
    );
    Some(Limit { cost: Cost { wall_s: cpu_s / report.cores as f64, cpu_s }, words })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::options::Sizes;
    use crate::row::Run;

    const GB: u64 = 1_000_000_000;

    /// Returns a machine on which all work takes one second of wall time and one of CPU for a GB, or for a
    /// million files.
    fn report() -> Report {
        let run = Run { wall_s: 1.0, cpu_s: 1.0, foreign_cores: 0.0 };
        let row = |kind| Row { runs: vec![run], ..Row::new(kind, GB, 1_000_000) };
        Report {
            command: String::new(),
            started_unix_s: 0,
            commit: String::new(),
            machine: String::new(),
            cores: 2,
            repetitions: 1,
            sizes: Sizes {
                file_count: 1,
                file_bytes: GB,
                block_bytes: 1,
                small_count: 1_000_000,
                small_bytes: 1_000,
            },
            rows: Kind::all().into_iter().map(row).collect(),
        }
    }

    fn set_wall_s(report: &mut Report, kind: Kind, wall_s: f64) {
        let row = report.rows.iter_mut().find(|row| row.kind == kind).unwrap();
        row.runs[0].wall_s = wall_s;
    }

    fn tool(wall_s: f64, settings: &str) -> Value {
        let bad = json!({"wall_s": 900.0, "cpu_s": 9.0, "problems": ["a file is missing"]});
        json!({"settings": settings, "runs": [{"wall_s": wall_s, "cpu_s": 3.0, "problems": []}, bad]})
    }

    fn results(files: u64, bytes: u64, name: &str, tool: Value) -> Value {
        json!({"sections": {"w": {"files": files, "bytes": bytes, "tools": {name: tool, "cp": {"runs": []}}}}})
    }

    fn only(results: &Value, report: &Report) -> Standing {
        let mut standings = standings(results, report);
        assert_eq!(standings.len(), 1);
        standings.remove(0)
    }

    #[test]
    fn large_files_have_the_limit_of_the_whole_path() {
        let mut report = report();
        set_wall_s(&mut report, transfer(SendWay::ReadHash, ReceiveWay::HashWrite, 2), 0.5);
        let standing =
            only(&results(4, 4 * GB, "carrack-pull", tool(4.0, "pull over direct-shell")), &report);
        assert_eq!(standing.taken, Cost { wall_s: 4.0, cpu_s: 3.0 });
        assert_eq!(standing.limit.as_ref().unwrap().cost, Cost { wall_s: 2.0, cpu_s: 4.0 });
        assert!(
            markdown(&[standing]).contains("| 50 % | read+hash+send → recv+hash+write, 2 streams, cubic |")
        );
    }

    #[test]
    fn unchecked_large_files_have_the_best_that_hashes_nothing() {
        let mut report = report();
        set_wall_s(&mut report, transfer(SendWay::Sendfile, ReceiveWay::Splice, 1), 0.25);
        set_wall_s(&mut report, transfer(SendWay::HashSendfile, ReceiveWay::HashWrite, 2), 0.1);
        for (name, settings) in
            [("carrack-none", ""), ("carrack-x", "push --checksum=none"), ("carrack-y", "--checksum none")]
        {
            let standing = only(&results(4, 4 * GB, name, tool(4.0, settings)), &report);
            assert_eq!(standing.limit.unwrap().words, "sendfile → splice to file, 1 stream, cubic", "{name}");
        }
    }

    #[test]
    fn a_limit_is_the_best_run() {
        let mut report = report();
        let kind = transfer(SendWay::ReadHash, ReceiveWay::HashWrite, 2);
        let row = report.rows.iter_mut().find(|row| row.kind == kind).unwrap();
        row.runs.extend([3.0, 0.5].map(|wall_s| Run { wall_s, cpu_s: wall_s, foreign_cores: 0.0 }));
        let standing = only(&results(4, 4 * GB, "carrack", tool(4.0, "push")), &report);
        assert_eq!(standing.limit.unwrap().cost, Cost { wall_s: 2.0, cpu_s: 2.0 });
    }

    #[test]
    fn small_files_have_the_sum_of_their_parts() {
        // 2 s for the files, 3 GB beyond the small ones' own at 2 s, 4 GB over the network and hashed twice.
        let standing = only(&results(1_000_000, 4 * GB, "carrack", tool(20.0, "push")), &report());
        let cost = standing.limit.unwrap().cost;
        assert!((cost.cpu_s - 20.0).abs() < 1e-9 && (cost.wall_s - 10.0).abs() < 1e-9, "{cost:?}");
        let unchecked = only(&results(1_000_000, 4 * GB, "carrack-none", tool(20.0, "push")), &report());
        assert!((unchecked.limit.unwrap().cost.cpu_s - 12.0).abs() < 1e-9);
    }

    #[test]
    fn says_so_where_there_is_no_limit() {
        let mut report = report();
        let blake3 = results(4, 4 * GB, "carrack-blake3", tool(4.0, ""));
        assert_eq!(only(&blake3, &report).limit, None);
        report.rows.clear();
        let standing = only(&results(4, 4 * GB, "carrack", tool(4.0, "")), &report);
        assert!(markdown(&[standing]).contains("not measured"));
    }

    #[test]
    fn takes_what_it_finds() {
        for odd in [json!({}), json!([1]), json!({"sections": {"w": {"tools": {"carrack": {}}}}})] {
            assert_eq!(standings(&odd, &report()), [], "{odd}");
        }
    }
}

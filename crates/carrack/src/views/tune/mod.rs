//! The records of tuners; `svg.rs` draws the curves.
//!
//! With `--json` one object a line for each workload; field names are stable, new ones may come:
//!
//! | field | content |
//! | --- | --- |
//! | `source`, `sink` | the names of the sites |
//! | `size` | `small`, `mixed`, `large`: of the files, on the average |
//! | `found` | Unix seconds |
//! | `settled` | true if no other values promised more |
//! | `bytes_per_s` | the throughput with the values; 0 if it had just changed |
//! | `values` | `readers`, `streams`, `writers`: those with which a session begins |
//! | `curves` | for each of these a list of points |
//!
//! A point:
//!
//! | field | content |
//! | --- | --- |
//! | `value` | the setting's |
//! | `present` | true for the value in `values` |
//! | `current` | true if nothing else has changed since |
//! | `bytes_per_s` | the sustained throughput: the least of the three stages |
//! | `read`, `sent`, `written` | the rates of the stages, in bytes per second |
//! | `deviation` | the samples' standard deviation in bytes per second, null for a single one |
//! | `loss` | the part that was sent again, 0 to 1 |
//! | `samples` | the number of samples |

mod svg;

use std::io::{self, Write};

use carrack_plan::tuner::{KnobCurvePoint, MeanSizeClass, PerKnob, SessionTuningResult, TunerKnob};
use serde::Serialize;

use crate::lifetime::format_moment;
use crate::register::tuner_store::TunerWorkloadRecord;
use crate::user_error::escape_control_characters;
use crate::views::json::write_lines;
use crate::views::table::TextTable;

const LEGEND: &str = "
* is the present value, with which a session begins; ± is the samples' standard deviation;
outdated: seen before something else had changed.
";

/// The records, workload by workload.
pub struct TuneReport {
    /// Not empty.
    pub known: Vec<TunerWorkloadRecord>,
    /// True if people see each value that was measured, and not only the best.
    pub with_curves: bool,
}

impl TuneReport {
    /// Writes the records for programs.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write_lines(self.known.iter().map(workload_json), out)
    }

    /// Writes the records for people: a line for each workload, or the curves of each.
    pub fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        if !self.with_curves {
            return self.write_list(out);
        }
        for (number, known) in self.known.iter().enumerate() {
            let blank = if number > 0 { "\n" } else { "" };
            write!(out, "{blank}")?;
            write_curves(known, out)?;
        }
        out.write_all(LEGEND.as_bytes())
    }

    fn write_list(&self, out: &mut dyn Write) -> io::Result<()> {
        let headings =
            ["<SOURCE", "<SINK", "<FILES", "<FOUND", "<SETTLED", ">READERS", ">STREAMS", ">WRITERS", ">MB/s"];
        let mut table = TextTable::headed(&headings);
        for TunerWorkloadRecord { workload, record, .. } in &self.known {
            let [readers, streams, writers] = TunerKnob::ALL.map(|knob| record.values[knob]);
            table.row(&[
                &workload.source,
                &workload.sink,
                &size_name(workload.size),
                &record_time(record),
                &if record.is_settled { "yes" } else { "no" },
                &readers,
                &streams,
                &writers,
                &throughput_text(record),
            ]);
        }
        table.write("", out)
    }
}

fn write_curves(known: &TunerWorkloadRecord, out: &mut dyn Write) -> io::Result<()> {
    let (workload, record) = (&known.workload, &known.record);
    let size = match workload.size {
        MeanSizeClass::Small => "files below 1 MiB on the average",
        MeanSizeClass::Mixed => "files of 1 MiB to 64 MiB on the average",
        MeanSizeClass::Large => "files of 64 MiB and more on the average",
    };
    let (source, sink) =
        (escape_control_characters(&workload.source), escape_control_characters(&workload.sink));
    writeln!(out, "{source} → {sink}, {size}, found {}", record_time(record))?;
    let state = if record.is_settled { "settled at" } else { "not settled, the best was" };
    let values = TunerKnob::ALL.map(|knob| format!("{} {knob}", record.values[knob])).join(", ");
    let control = if record.uses_bbr { ", with bbr" } else { "" };
    writeln!(out, "{state} {values}{control}: {} MB/s", throughput_text(record))?;
    let mut table = TextTable::new("<>>>><");
    TunerKnob::ALL.into_iter().for_each(|knob| add_curve(record, knob, &mut table));
    table.write("", out)
}

fn add_curve(record: &SessionTuningResult, knob: TunerKnob, table: &mut TextTable) {
    table.row(&[&""]);
    table.row(&[&"", &knob.to_string().to_uppercase(), &"MB/s", &"±", &"SAMPLES", &""]);
    let points = &record.curves[knob];
    for point in points {
        table.row(&[
            &if is_start_value(record, knob, point) { "*" } else { "" },
            &point.value,
            &megabytes(point.bytes_per_s()),
            &deviation(point).map_or("?".to_owned(), megabytes),
            &point.samples,
            &if point.is_current { "" } else { "outdated" },
        ]);
    }
    if !points.iter().any(|point| is_start_value(record, knob, point)) {
        table.row(&[&"*", &record.values[knob], &"?", &"?", &0, &""]);
    }
}

/// Returns the name in the records.
fn size_name(size: MeanSizeClass) -> &'static str {
    match size {
        MeanSizeClass::Small => "small",
        MeanSizeClass::Mixed => "mixed",
        MeanSizeClass::Large => "large",
    }
}

/// Returns the time of the record.
fn record_time(record: &SessionTuningResult) -> String {
    format_moment(i64::try_from(record.at_s).unwrap_or(i64::MAX))
}

fn megabytes(bytes_per_s: f64) -> String {
    format!("{:.1}", bytes_per_s / 1e6)
}

/// Returns the throughput with the values, in MB/s. Zero means unknown: the session ended when the throughput
/// had just changed.
fn throughput_text(record: &SessionTuningResult) -> String {
    match record.bytes_per_s {
        0 => "?".to_owned(),
        rate => megabytes(rate as f64),
    }
}

/// Returns the samples' standard deviation, in bytes per second; `None` for a single sample.
fn deviation(point: &KnobCurvePoint) -> Option<f64> {
    (point.samples > 1).then(|| point.variance.max(0.0).sqrt())
}

/// Returns true if a session would begin with this value.
fn is_start_value(record: &SessionTuningResult, knob: TunerKnob, point: &KnobCurvePoint) -> bool {
    record.values[knob] == point.value
}

#[derive(Serialize)]
struct TunerWorkloadJson<'a> {
    source: &'a str,
    sink: &'a str,
    size: &'static str,
    found: u64,
    settled: bool,
    bytes_per_s: u64,
    values: PerKnob<u32>,
    curves: PerKnob<Vec<KnobCurvePointJson>>,
}

#[derive(Serialize)]
struct KnobCurvePointJson {
    value: u32,
    present: bool,
    current: bool,
    bytes_per_s: f64,
    read: f64,
    sent: f64,
    written: f64,
    deviation: Option<f64>,
    loss: f64,
    samples: u32,
}

fn workload_json(known: &TunerWorkloadRecord) -> TunerWorkloadJson<'_> {
    let (workload, record) = (&known.workload, &known.record);
    TunerWorkloadJson {
        source: &workload.source,
        sink: &workload.sink,
        size: size_name(workload.size),
        found: record.at_s,
        settled: record.is_settled,
        bytes_per_s: record.bytes_per_s,
        values: record.values,
        curves: PerKnob::from_fn(|knob| {
            let points = record.curves[knob].iter();
            points.map(|point| point_json(point, is_start_value(record, knob, point))).collect()
        }),
    }
}

fn point_json(point: &KnobCurvePoint, present: bool) -> KnobCurvePointJson {
    KnobCurvePointJson {
        value: point.value,
        present,
        current: point.is_current,
        bytes_per_s: point.bytes_per_s(),
        read: point.rates.read,
        sent: point.rates.sent,
        written: point.rates.written,
        deviation: deviation(point),
        loss: point.loss,
        samples: point.samples,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use carrack_plan::tuner::{StageRates, TunerWorkload};

    use super::*;
    use crate::views::output::tests::text_of;

    pub(super) const NOW_S: u64 = 1_767_484_800;

    fn point(value: u32, megabytes: f64, samples: u32, is_current: bool) -> KnobCurvePoint {
        let written = megabytes * 1e6;
        let rates = StageRates { read: written + 1e6, sent: written + 2e6, written };
        let at = Duration::from_secs(1);
        KnobCurvePoint { value, rates, variance: 4e12, loss: 0.0, samples, at, is_current }
    }

    /// Returns a record between `a` and `b`: readers were tried, streams were seen, writers are the user's.
    pub(super) fn found(size: MeanSizeClass) -> TunerWorkloadRecord {
        let readers = vec![
            point(4, 50.0, 9, false),
            point(8, 100.0, 12, true),
            point(16, 190.0, 7, true),
            point(32, 188.0, 1, true),
        ];
        let curves = PerKnob { readers, streams: vec![point(2, 190.0, 7, true)], writers: vec![] };
        let values = PerKnob { readers: 16, streams: 2, writers: 12 };
        let record = SessionTuningResult {
            at_s: NOW_S,
            values,
            is_settled: true,
            bytes_per_s: 190_250_000,
            session: Duration::from_secs(9),
            curves,
            uses_bbr: true,
        };
        TunerWorkloadRecord::new(TunerWorkload { source: "a\u{1b}".into(), sink: "b<c".into(), size }, record)
    }

    #[test]
    fn nothing_measured_is_not_zero() {
        let mut record = found(MeanSizeClass::Large).record;
        assert_eq!(throughput_text(&record), "190.2");
        record.bytes_per_s = 0;
        assert_eq!(throughput_text(&record), "?");
    }

    #[test]
    fn one_sample_deviates_from_nothing() {
        assert_eq!(deviation(&point(1, 1.0, 1, true)), None);
        assert_eq!(deviation(&point(1, 1.0, 2, true)), Some(2e6));
    }

    fn table(known: Vec<TunerWorkloadRecord>, with_curves: bool) -> String {
        text_of(|out| TuneReport { known, with_curves }.write_table(out))
    }

    #[test]
    fn many_are_listed() {
        let mut other = found(MeanSizeClass::Small);
        other.workload.source = "a.longer.name".into();
        other.record.is_settled = false;
        let text = table(vec![found(MeanSizeClass::Large), other], false);
        let expected = "\
SOURCE         SINK  FILES  FOUND                 SETTLED  READERS  STREAMS  WRITERS   MB/s
a\\u{1b}        b<c   large  2026-01-04T00:00:00Z  yes           16        2       12  190.2
a.longer.name  b<c   small  2026-01-04T00:00:00Z  no            16        2       12  190.2
";
        assert_eq!(text, expected);
    }

    #[test]
    fn one_is_told_point_by_point() {
        let text = table(vec![found(MeanSizeClass::Large)], true);
        let expected = "\
a\\u{1b} → b<c, files of 64 MiB and more on the average, found 2026-01-04T00:00:00Z
settled at 16 readers, 2 streams, 12 writers, with bbr: 190.2 MB/s

   READERS   MB/s    ±  SAMPLES
         4   50.0  2.0        9  outdated
         8  100.0  2.0       12
*       16  190.0  2.0        7
        32  188.0    ?        1

   STREAMS   MB/s    ±  SAMPLES
*        2  190.0  2.0        7

   WRITERS   MB/s    ±  SAMPLES
*       12      ?    ?        0

* is the present value, with which a session begins; ± is the samples' standard deviation;
outdated: seen before something else had changed.
";
        assert_eq!(text, expected);
        let two = table(vec![found(MeanSizeClass::Large), found(MeanSizeClass::Small)], true);
        assert_eq!((two.matches(" → ").count(), two.matches("\n* is").count()), (2, 1), "{two}");
    }

    #[test]
    fn an_object_a_workload() {
        let known = vec![found(MeanSizeClass::Mixed), found(MeanSizeClass::Large)];
        let text = text_of(|out| TuneReport { known, with_curves: false }.write_json(out));
        let objects: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((objects.len(), &objects[1]["size"]), (2, &"large".into()));
        let one = &objects[0];
        assert_eq!((&one["source"], &one["found"]), (&"a\u{1b}".into(), &NOW_S.into()));
        assert_eq!((&one["size"], &one["settled"]), (&"mixed".into(), &true.into()));
        assert_eq!(one["values"], serde_json::json!({"readers": 16, "streams": 2, "writers": 12}));
        let readers = one["curves"]["readers"].as_array().unwrap();
        assert_eq!(readers.len(), 4);
        let expected = serde_json::json!({
            "value": 16, "present": true, "current": true, "bytes_per_s": 190e6, "read": 191e6, "sent": 192e6,
            "written": 190e6, "deviation": 2e6, "loss": 0.0, "samples": 7
        });
        assert_eq!(readers[2], expected);
        assert_eq!((&readers[0]["current"], &readers[3]["deviation"]), (&false.into(), &().into()));
        assert_eq!(one["curves"]["writers"], serde_json::json!([]));
    }
}

//! `carrack tune show --json`: one object a line for each workload. Field names are stable; new ones may come.
//!
//! | field | what |
//! | --- | --- |
//! | `source`, `sink` | the names of the sites |
//! | `size` | `small`, `mixed`, `large`: of the files, on the average |
//! | `found` | when, in Unix seconds |
//! | `settled` | whether nothing promised more |
//! | `bytes_per_s` | what the values bring; 0 where the throughput had just become another one |
//! | `values` | `readers`, `streams`, `writers`: with which a session begins |
//! | `curves` | for each of these a list of points |
//!
//! A point:
//!
//! | field | what |
//! | --- | --- |
//! | `value` | the knob's |
//! | `present` | whether it is the one in `values` |
//! | `current` | whether nothing else has changed since |
//! | `bytes_per_s` | what it brings and keeps up: the least of the three stages |
//! | `read`, `sent`, `written` | what the stages move, in bytes per second |
//! | `deviation` | the samples' standard deviation in bytes per second, null for a single one |
//! | `loss` | the part that was sent again, 0 to 1 |
//! | `samples` | how many |

use std::io::{self, Write};

use carrack_plan::tuner::{CurvePoint, Knob, PerKnob};
use serde::Serialize;

use super::{Report, deviation, is_present, size_name};
use crate::tuner_store::Known;

#[derive(Serialize)]
struct Whole<'a> {
    source: &'a str,
    sink: &'a str,
    size: &'static str,
    found: u64,
    settled: bool,
    bytes_per_s: u64,
    values: PerKnob<u32>,
    curves: PerKnob<Vec<PointJson>>,
}

#[derive(Serialize)]
struct PointJson {
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

impl Report {
    /// Writes the objects and the ends of their lines.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        self.known.iter().try_for_each(|known| {
            serde_json::to_writer(&mut *out, &whole(known))?;
            out.write_all(b"\n")
        })
    }
}

fn whole(known: &Known) -> Whole<'_> {
    let (workload, record) = (&known.workload, &known.record);
    let curve = |knob: Knob| {
        let points = record.curves[knob].iter();
        points.map(|point| point_json(point, is_present(record, knob, point))).collect()
    };
    Whole {
        source: &workload.source,
        sink: &workload.sink,
        size: size_name(workload.size),
        found: record.at_s,
        settled: record.is_settled,
        bytes_per_s: record.bytes_per_s,
        values: record.values,
        curves: PerKnob::from_fn(curve),
    }
}

fn point_json(point: &CurvePoint, present: bool) -> PointJson {
    PointJson {
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
    use carrack_plan::tuner::SizeClass;

    use super::super::tests::{NOW_S, found};
    use super::*;

    #[test]
    fn an_object_a_workload() {
        let mut out = Vec::new();
        let known = vec![found(SizeClass::Mixed), found(SizeClass::Large)];
        Report { known, with_curves: false }.write_json(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
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

//! What tuners have found out: `table.rs` says it to people, `json.rs` to machines, `svg.rs` draws the curves.

mod json;
mod svg;
mod table;

use carrack_plan::tuner::{CurvePoint, Knob, SizeClass, TunerRecord};

use crate::tuner_store::Known;

/// What is known, workload by workload.
pub struct Report {
    /// Not empty.
    pub known: Vec<Known>,
    /// Whether people are told each value that was seen, and not only the best.
    pub with_curves: bool,
}

/// As the records have it.
fn size_name(size: SizeClass) -> &'static str {
    match size {
        SizeClass::Small => "small",
        SizeClass::Mixed => "mixed",
        SizeClass::Large => "large",
    }
}

fn megabytes(bytes_per_s: f64) -> String {
    format!("{:.1}", bytes_per_s / 1e6)
}

/// What the values bring, in MB/s. Zero is none: the session has ended when the throughput had just become another one.
fn brings(record: &TunerRecord) -> String {
    match record.bytes_per_s {
        0 => "?".to_owned(),
        rate => megabytes(rate as f64),
    }
}

/// The samples' standard deviation, in bytes per second. One sample has none.
fn deviation(point: &CurvePoint) -> Option<f64> {
    (point.samples > 1).then(|| point.variance.max(0.0).sqrt())
}

/// Whether it is the value that a session would begin with.
fn is_present(record: &TunerRecord, knob: Knob, point: &CurvePoint) -> bool {
    record.values[knob] == point.value
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use carrack_plan::tuner::{PerKnob, StageRates, Workload};

    use super::*;

    pub(super) const NOW_S: u64 = 1_767_484_800;

    fn point(value: u32, megabytes: f64, samples: u32, is_current: bool) -> CurvePoint {
        let written = megabytes * 1e6;
        let rates = StageRates { read: written + 1e6, sent: written + 2e6, written };
        let at = Duration::from_secs(1);
        CurvePoint { value, rates, variance: 4e12, loss: 0.0, samples, at, is_current }
    }

    /// Between `a` and `b`: readers were tried, streams were seen, writers are the user's.
    pub(super) fn found(size: SizeClass) -> Known {
        let readers = vec![
            point(4, 50.0, 9, false),
            point(8, 100.0, 12, true),
            point(16, 190.0, 7, true),
            point(32, 188.0, 1, true),
        ];
        let curves = PerKnob { readers, streams: vec![point(2, 190.0, 7, true)], writers: vec![] };
        let values = PerKnob { readers: 16, streams: 2, writers: 12 };
        let record = TunerRecord {
            at_s: NOW_S,
            values,
            is_settled: true,
            bytes_per_s: 190_250_000,
            session: Duration::from_secs(9),
            curves,
        };
        Known::new(Workload { source: "a\u{1b}".into(), sink: "b<c".into(), size }, record)
    }

    #[test]
    fn nothing_measured_is_not_zero() {
        let mut record = found(SizeClass::Large).record;
        assert_eq!(brings(&record), "190.2");
        record.bytes_per_s = 0;
        assert_eq!(brings(&record), "?");
    }

    #[test]
    fn one_sample_deviates_from_nothing() {
        assert_eq!(deviation(&point(1, 1.0, 1, true)), None);
        assert_eq!(deviation(&point(1, 1.0, 2, true)), Some(2e6));
    }
}

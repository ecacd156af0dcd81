//! `carrack tune show` for people.

use std::io::{self, Write};

use carrack_plan::tuner::{CurvePoint, Knob, SizeClass};

use super::{Report, brings, deviation, is_present, megabytes, size_name};
use crate::lifetime::show_moment;
use crate::trouble::tame;
use crate::tuner_store::Known;

const LEGEND: &str = "
* is the present value, with which a session begins; ± is the samples' standard deviation;
outdated: seen before something else had changed.
";

impl Report {
    /// Writes a line for each workload, or the curves of each.
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
        let sources: Vec<String> = self.known.iter().map(|known| tame(&known.workload.source)).collect();
        let sinks: Vec<String> = self.known.iter().map(|known| tame(&known.workload.sink)).collect();
        let (left, right) = (width("SOURCE", &sources), width("SINK", &sinks));
        writeln!(
            out,
            "{:<left$}  {:<right$}  {:<5}  {:<20}  {:<7}  {:>7}  {:>7}  {:>7}  {:>10}",
            "SOURCE", "SINK", "FILES", "FOUND", "SETTLED", "READERS", "STREAMS", "WRITERS", "MB/s"
        )?;
        for ((known, source), sink) in self.known.iter().zip(sources).zip(sinks) {
            let (record, size) = (&known.record, size_name(known.workload.size));
            let [readers, streams, writers] = Knob::ALL.map(|knob| record.values[knob]);
            let settled = if record.is_settled { "yes" } else { "no" };
            let (found, rate) = (found(known), brings(record));
            writeln!(
                out,
                "{source:<left$}  {sink:<right$}  {size:<5}  {found:<20}  {settled:<7}  {readers:>7}  {streams:>7}  \
                 {writers:>7}  {rate:>10}"
            )?;
        }
        Ok(())
    }
}

fn width(heading: &str, words: &[String]) -> usize {
    words.iter().map(|word| word.chars().count()).max().unwrap_or(0).max(heading.len())
}

fn found(known: &Known) -> String {
    show_moment(i64::try_from(known.record.at_s).unwrap_or(i64::MAX))
}

fn write_curves(known: &Known, out: &mut dyn Write) -> io::Result<()> {
    let (workload, record) = (&known.workload, &known.record);
    let size = match workload.size {
        SizeClass::Small => "files below 1 MiB on the average",
        SizeClass::Mixed => "files of 1 MiB to 64 MiB on the average",
        SizeClass::Large => "files of 64 MiB and more on the average",
    };
    let (source, sink) = (tame(&workload.source), tame(&workload.sink));
    writeln!(out, "{source} → {sink}, {size}, found {}", found(known))?;
    let state = if record.is_settled { "settled at" } else { "not settled, the best was" };
    let values = Knob::ALL.map(|knob| format!("{} {knob}", record.values[knob])).join(", ");
    writeln!(out, "{state} {values}: {} MB/s", brings(record))?;
    Knob::ALL.into_iter().try_for_each(|knob| write_curve(known, knob, out))
}

fn write_curve(known: &Known, knob: Knob, out: &mut dyn Write) -> io::Result<()> {
    let (record, heading) = (&known.record, knob.to_string().to_uppercase());
    writeln!(out, "\n  {heading:>8}  {:>10}  {:>8}  {:>7}", "MB/s", "±", "SAMPLES")?;
    let points = &record.curves[knob];
    for point in points {
        write_point(point, is_present(record, knob, point), out)?;
    }
    if !points.iter().any(|point| is_present(record, knob, point)) {
        writeln!(out, "* {:>8}  {:>10}  {:>8}  {:>7}", record.values[knob], "?", "?", 0)?;
    }
    Ok(())
}

fn write_point(point: &CurvePoint, is_present: bool, out: &mut dyn Write) -> io::Result<()> {
    let mark = if is_present { '*' } else { ' ' };
    let rate = megabytes(point.bytes_per_s());
    let deviation = deviation(point).map_or("?".to_owned(), megabytes);
    let note = if point.is_current { "" } else { "  outdated" };
    writeln!(out, "{mark} {:>8}  {rate:>10}  {deviation:>8}  {:>7}{note}", point.value, point.samples)
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    fn table(known: Vec<Known>, with_curves: bool) -> String {
        let mut out = Vec::new();
        Report { known, with_curves }.write_table(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn many_are_listed() {
        let mut other = found(SizeClass::Small);
        other.workload.source = "a.longer.name".into();
        other.record.is_settled = false;
        let text = table(vec![found(SizeClass::Large), other], false);
        let expected = "\
SOURCE         SINK  FILES  FOUND                 SETTLED  READERS  STREAMS  WRITERS        MB/s
a\\u{1b}        b<c   large  2026-01-04T00:00:00Z  yes           16        2       12       190.2
a.longer.name  b<c   small  2026-01-04T00:00:00Z  no            16        2       12       190.2
";
        assert_eq!(text, expected);
    }

    #[test]
    fn one_is_told_point_by_point() {
        let text = table(vec![found(SizeClass::Large)], true);
        let expected = "\
a\\u{1b} → b<c, files of 64 MiB and more on the average, found 2026-01-04T00:00:00Z
settled at 16 readers, 2 streams, 12 writers: 190.2 MB/s

   READERS        MB/s         ±  SAMPLES
         4        50.0       2.0        9  outdated
         8       100.0       2.0       12
*       16       190.0       2.0        7
        32       188.0         ?        1

   STREAMS        MB/s         ±  SAMPLES
*        2       190.0       2.0        7

   WRITERS        MB/s         ±  SAMPLES
*       12           ?         ?        0

* is the present value, with which a session begins; ± is the samples' standard deviation;
outdated: seen before something else had changed.
";
        assert_eq!(text, expected);
        let two = table(vec![found(SizeClass::Large), found(SizeClass::Small)], true);
        assert_eq!((two.matches(" → ").count(), two.matches("\n* is").count()), (2, 1), "{two}");
    }
}

//! Load history as CSV text (L11).
//!
//! The first line names the columns, in any order; others than these are passed over:
//!
//! | column | content |
//! | --- | --- |
//! | `time` | Unix seconds, UTC; a fraction is cut off |
//! | `target` | the target's name, as `carrack targets` prints it |
//! | `load` | 0 or more, in one unit for the file: a busy share, bytes per second, requests per second |
//!
//! Empty lines and lines that begin with `#` mean nothing. Nothing is quoted: a name has no comma, no
//! quotation mark. A `load` that is empty or `NaN` is a gap, as Prometheus' exports have them.

use super::TargetLoadSample;

const COLUMNS: [&str; 3] = ["time", "target", "load"];

/// A line of a history.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CsvSample<'a> {
    /// The target's name.
    pub target: &'a str,
    /// Its load.
    pub sample: TargetLoadSample,
}

/// The reason why a text is no history.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsvError {
    /// A column is missing or repeated.
    #[error("the history's first line has not one column {0} (hint: it begins with time,target,load)")]
    Column(&'static str),
    /// A line has too few fields.
    #[error("line {line} of the history has {fields} fields, fewer than the first line")]
    Fields {
        /// Number of the line, from 1.
        line: usize,
        /// Number of its fields.
        fields: usize,
    },
    /// A quotation mark.
    #[error(
        "line {0} of the history has a quotation mark (hint: fields are not quoted; a target's name has no comma)"
    )]
    Quoted(usize),
    /// An invalid time.
    #[error("line {line} of the history: {value:?} is no time (hint: Unix seconds, like 1767225600)")]
    Time {
        /// Number of the line, from 1.
        line: usize,
        /// Content of the field.
        value: String,
    },
    /// An invalid load.
    #[error(
        "line {line} of the history: {value:?} is no load (hint: a number, 0 or more; empty where there is none)"
    )]
    Load {
        /// Number of the line, from 1.
        line: usize,
        /// Content of the field.
        value: String,
    },
}

/// Returns the samples of a history in CSV, in the order of its lines.
///
/// # Errors
/// At the first wrong line: [`CsvError`].
pub fn parse_csv(text: &str) -> Result<Vec<CsvSample<'_>>, CsvError> {
    let numbered = text.lines().enumerate().map(|(place, line)| (place + 1, line.trim()));
    let mut lines = numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let Some((_, header)) = lines.next() else { return Err(CsvError::Column(COLUMNS[0])) };
    let places = find_columns(header.trim_start_matches('\u{feff}'))?;
    lines.filter_map(|(line, content)| parse_sample(line, content, places).transpose()).collect()
}

fn find_columns(header: &str) -> Result<[usize; 3], CsvError> {
    let mut places = [0; 3];
    for (place, column) in places.iter_mut().zip(COLUMNS) {
        let mut found = header.split(',').enumerate().filter(|(_, name)| name.trim() == column);
        match (found.next(), found.next()) {
            (Some((at, _)), None) => *place = at,
            _ => return Err(CsvError::Column(column)),
        }
    }
    Ok(places)
}

/// Parses a line; `None` if its load is missing.
fn parse_sample(line: usize, content: &str, places: [usize; 3]) -> Result<Option<CsvSample<'_>>, CsvError> {
    if content.contains('"') {
        return Err(CsvError::Quoted(line));
    }
    let fields = places.map(|place| content.split(',').nth(place).map(str::trim));
    let [Some(time), Some(target), Some(load)] = fields else {
        return Err(CsvError::Fields { line, fields: content.split(',').count() });
    };
    let at_s = parse_seconds(time).ok_or_else(|| CsvError::Time { line, value: time.to_owned() })?;
    if load.is_empty() || load.eq_ignore_ascii_case("nan") {
        return Ok(None);
    }
    let number = load.parse().ok().filter(|load: &f64| load.is_finite() && *load >= 0.0);
    let load = number.ok_or_else(|| CsvError::Load { line, value: load.to_owned() })?;
    Ok(Some(CsvSample { target, sample: TargetLoadSample { at_s, load } }))
}

/// Parses a time of a history: up to the year 9999.
fn parse_seconds(text: &str) -> Option<i64> {
    const MOST: f64 = 253_402_300_800.0;
    let seconds: f64 = text.parse().ok()?;
    (0.0..MOST).contains(&seconds).then_some(seconds as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn columns_are_found_by_name_and_gaps_are_passed_over() {
        let text = "# of the site's exporter\nload,host,time,target\n0.5,a,1767225600,ost1\n\nNaN,a,1767225660,ost1\n,a,1,x\n2e3,b,1767225660.75, ost2 \n";
        let samples = parse_csv(text).expect("a history");
        fn of(target: &str, at_s: i64, load: f64) -> CsvSample<'_> {
            CsvSample { target, sample: TargetLoadSample { at_s, load } }
        }
        assert_eq!(samples, [of("ost1", 1_767_225_600, 0.5), of("ost2", 1_767_225_660, 2000.0)]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let errors = [
            ("", CsvError::Column("time")),
            ("time,load\n", CsvError::Column("target")),
            ("time,time,target,load\n", CsvError::Column("time")),
            ("time,target,load\n1,a\n", CsvError::Fields { line: 2, fields: 2 }),
            ("time,target,load\n\n1,\"a,b\",1\n", CsvError::Quoted(3)),
            ("time,target,load\n2026-01-01,a,1\n", CsvError::Time { line: 2, value: "2026-01-01".into() }),
            ("time,target,load\n-1,a,1\n", CsvError::Time { line: 2, value: "-1".into() }),
            ("time,target,load\n1,a,-1\n", CsvError::Load { line: 2, value: "-1".into() }),
            ("time,target,load\n1,a,inf\n", CsvError::Load { line: 2, value: "inf".into() }),
        ];
        for (text, error) in errors {
            assert_eq!(parse_csv(text), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(rows in prop::collection::vec((0_i64..4_000_000_000, "[a-z0-9_:-]{1,12}", 0.0_f64..1e12), 0..40)) {
            let lines: Vec<String> = rows.iter().map(|(at_s, target, load)| format!("{at_s},{target},{load}")).collect();
            let text = format!("time,target,load\n{}", lines.join("\r\n"));
            let samples = parse_csv(&text).expect("a history");
            let read: Vec<_> = samples.iter().map(|s| (s.sample.at_s, s.target.to_owned(), s.sample.load)).collect();
            prop_assert_eq!(read, rows);
        }

        #[test]
        fn no_text_is_too_strange(text in "\\PC{0,200}|(time,target,load\n)?([0-9a-z,.\"\n-]{0,80})") {
            let _ = parse_csv(&text);
        }
    }
}

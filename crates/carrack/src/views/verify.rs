//! The findings of `carrack verify`, as lines for people and for programs.
//!
//! JSON, one object a line; field names are stable, new ones may come:
//!
//! | field | content |
//! | --- | --- |
//! | `event` | `difference`, or `summary`, which is last |
//! | `path`, `path_hex` | below the destination, `.` for itself. As in `carrack cp --json` |
//! | `what` | the kind of the difference, which decides on the other fields: see below |
//! | `source`, `destination` | `kind`: as in `carrack ls --json`; `size`: bytes |
//! | `ranges`, `is_cut` | `content`: `offset` and `bytes` of each range that differs; true if more do |
//! | `metadata` | `metadata`: a list of differences: see below |
//! | `side`, `detail` | `unreadable`: `source` or `destination`, and the reason; `skipped`: the kind |
//!
//! `what` is `missing`, `extra`, `kind`, `size`, `content`, `digest`, `link`, `device`, `metadata`,
//! `unreadable` or `skipped`. The path of a directory that can't be listed, and of an entry that an older
//! carrack skips, is that of its end.
//!
//! An element of `metadata` has `of` (`mode`, `time`, `owner`, `group`, `attribute`, `flags`, `hard-link`,
//! `holes`), `name` (of an attribute; of a hard link the other name), `source` and `destination`; a value
//! that an end lacks is null.
//!
//! The summary has the counters of [`VerifyTotals`], and `complete`: true if everything was compared; with a
//! part of a file also `part`, its `offset` and `bytes`.

use std::io::{self, Write};

use carrack_engine::{EntryDifference, VerifyFinding, VerifyTotals};
use carrack_model::{ByteRange, FailureSide, escape};
use serde::Serialize;

use crate::size;
use crate::user_error::escape_control_characters;
use crate::views::entry::kind_name;
use crate::views::json::{self, write_line};
use crate::views::metadata_differences::{self, MetadataLine};

/// Most ranges in a line for people.
const RANGES_SHOWN_MAX: usize = 16;

/// The format of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyOutputFormat {
    /// A line with the path's bytes.
    Bytes,
    /// A line with the path escaped for a terminal.
    Terminal,
    /// A JSON object.
    Json,
}

/// Writes one line.
pub fn write_finding(
    finding: &VerifyFinding,
    style: VerifyOutputFormat,
    out: &mut dyn Write,
) -> io::Result<()> {
    let path: &[u8] = if finding.path.is_empty() { b"." } else { &finding.path };
    let (word, more) = in_words(&finding.what);
    match style {
        VerifyOutputFormat::Json => return write_line(&VerifyFindingLine::of(path, &finding.what), out),
        VerifyOutputFormat::Bytes => {
            write!(out, "{word:<10} ")?;
            out.write_all(path)?;
        }
        VerifyOutputFormat::Terminal => write!(out, "{word:<10} {}", escape(path))?,
    }
    let colon = if more.is_empty() { "" } else { ": " };
    writeln!(out, "{colon}{}", escape_control_characters(&more))
}

/// Writes the summary.
pub fn write_summary(
    verified: &VerifyTotals,
    is_whole: bool,
    style: VerifyOutputFormat,
    out: &mut dyn Write,
) -> io::Result<()> {
    if style == VerifyOutputFormat::Json {
        let part = verified.part.map(DifferingRange::of);
        let summary = VerifySummary { event: "summary", complete: is_whole, verified: *verified, part };
        return write_line(&summary, out);
    }
    let VerifyTotals { equal, known, bytes_equal, differing, extra, unreadable, skipped, .. } = *verified;
    let mut parts = vec![match verified.part {
        None => format!("{equal} entries are equal ({})", size::format_size(bytes_equal)),
        Some(part) => {
            let bytes = format!("bytes {}-{}", part.offset, part.offset + part.len - 1);
            let are = if equal > 0 { "are equal" } else { "were compared, and no others" };
            format!("{bytes} {are} ({})", size::format_size(part.len))
        }
    }];
    for (count, what) in [
        (known, "known from before"),
        (differing, "differ or are missing"),
        (extra, "too many"),
        (unreadable, "can't be read"),
        (skipped, "left out"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    let end = if is_whole { "" } else { "; not everything was compared" };
    writeln!(out, "carrack: {}{end}", parts.join(", "))
}

fn in_words(what: &EntryDifference) -> (&'static str, String) {
    match what {
        EntryDifference::Missing => ("missing", String::new()),
        EntryDifference::Extra => ("extra", String::new()),
        EntryDifference::Kind { source, sink } => {
            ("differs", format!("a {} where a {} should be", kind_name(*sink), kind_name(*source)))
        }
        EntryDifference::Size { source, sink } => {
            ("differs", format!("{sink} bytes where {source} should be"))
        }
        EntryDifference::Content { ranges, is_cut } => ("differs", ranges_in_words(ranges, *is_cut)),
        EntryDifference::Digest => ("differs", "another digest than in the manifest".into()),
        EntryDifference::Link => ("differs", "the link leads elsewhere".into()),
        EntryDifference::Device => ("differs", "another device".into()),
        EntryDifference::Metadata(all) => {
            let all: Vec<String> = all.iter().map(metadata_differences::in_words).collect();
            ("differs", all.join("; "))
        }
        EntryDifference::Unreadable { side, detail } | EntryDifference::Unwalked { side, detail } => {
            ("unreadable", format!("at the {}: {detail}", side_name(*side)))
        }
        EntryDifference::Skipped { what } => ("skipped", what.clone()),
    }
}

/// Returns the first and the last byte of each range, as `dd` and `cmp` count them: from 0.
fn ranges_in_words(ranges: &[ByteRange], is_cut: bool) -> String {
    let shown = ranges.iter().take(RANGES_SHOWN_MAX);
    let shown: Vec<String> =
        shown.map(|range| format!("{}-{}", range.offset, range.offset + range.len - 1)).collect();
    let more = match ranges.len().saturating_sub(RANGES_SHOWN_MAX) {
        0 if !is_cut => String::new(),
        count => format!(" and {}{count} more", if is_cut { "at least " } else { "" }),
    };
    format!("bytes {}{more}", shown.join(", "))
}

/// Returns the name for people and for `--json`.
pub fn side_name(side: FailureSide) -> &'static str {
    if side == FailureSide::Source { "source" } else { "destination" }
}

#[derive(Serialize)]
struct VerifyFindingLine<'a> {
    event: &'static str,
    #[serde(flatten)]
    path: json::JsonFilePathFields<'a>,
    what: &'static str,
    #[serde(flatten)]
    more: VerifyFindingDetails<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum VerifyFindingDetails<'a> {
    Nothing {},
    Kinds { source: &'static str, destination: &'static str },
    Sizes { source: u64, destination: u64 },
    Ranges { ranges: Vec<DifferingRange>, is_cut: bool },
    Metadata { metadata: Vec<MetadataLine> },
    Detail { side: &'static str, detail: &'a str },
}

#[derive(Serialize)]
struct DifferingRange {
    offset: u64,
    bytes: u64,
}

impl DifferingRange {
    fn of(range: ByteRange) -> DifferingRange {
        DifferingRange { offset: range.offset, bytes: range.len }
    }
}

impl<'a> VerifyFindingLine<'a> {
    fn of(path: &'a [u8], difference: &'a EntryDifference) -> VerifyFindingLine<'a> {
        let (what, more) = match difference {
            EntryDifference::Missing => ("missing", VerifyFindingDetails::Nothing {}),
            EntryDifference::Extra => ("extra", VerifyFindingDetails::Nothing {}),
            EntryDifference::Digest => ("digest", VerifyFindingDetails::Nothing {}),
            EntryDifference::Link => ("link", VerifyFindingDetails::Nothing {}),
            EntryDifference::Device => ("device", VerifyFindingDetails::Nothing {}),
            EntryDifference::Metadata(all) => (
                "metadata",
                VerifyFindingDetails::Metadata { metadata: all.iter().map(MetadataLine::of).collect() },
            ),
            EntryDifference::Kind { source, sink } => (
                "kind",
                VerifyFindingDetails::Kinds { source: kind_name(*source), destination: kind_name(*sink) },
            ),
            EntryDifference::Size { source, sink } => {
                ("size", VerifyFindingDetails::Sizes { source: *source, destination: *sink })
            }
            EntryDifference::Content { ranges, is_cut } => {
                let ranges = ranges.iter().copied().map(DifferingRange::of).collect();
                ("content", VerifyFindingDetails::Ranges { ranges, is_cut: *is_cut })
            }
            EntryDifference::Unreadable { side, detail } | EntryDifference::Unwalked { side, detail } => {
                ("unreadable", VerifyFindingDetails::Detail { side: side_name(*side), detail })
            }
            EntryDifference::Skipped { what } => {
                ("skipped", VerifyFindingDetails::Detail { side: "source", detail: what })
            }
        };
        VerifyFindingLine { event: "difference", path: json::JsonFilePathFields::of(path), what, more }
    }
}

#[derive(Serialize)]
struct VerifySummary {
    event: &'static str,
    complete: bool,
    #[serde(flatten)]
    verified: VerifyTotals,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<DifferingRange>,
}

#[cfg(test)]
mod tests {
    use carrack_engine::BrowsedKind;

    use super::*;
    use crate::views::output::tests::text_of;

    fn text(what: EntryDifference, style: VerifyOutputFormat) -> String {
        text_of(|out| write_finding(&VerifyFinding { path: b"a\x1bb"[..].into(), what }, style, out))
    }

    #[test]
    fn lines() {
        let many = (0..20).map(|n| ByteRange::new(n << 20, 1_024)).collect();
        for (what, line) in [
            (EntryDifference::Missing, "missing    a\\u{1b}b\n"),
            (EntryDifference::Link, "differs    a\\u{1b}b: the link leads elsewhere\n"),
            (
                EntryDifference::Size { source: 7, sink: 8 },
                "differs    a\\u{1b}b: 8 bytes where 7 should be\n",
            ),
            (
                EntryDifference::Kind { source: BrowsedKind::File, sink: BrowsedKind::Directory },
                "differs    a\\u{1b}b: a directory where a file should be\n",
            ),
            (
                EntryDifference::Content { ranges: vec![ByteRange::new(1_024, 1_024)], is_cut: false },
                "differs    a\\u{1b}b: bytes 1024-2047\n",
            ),
        ] {
            assert_eq!(text(what, VerifyOutputFormat::Terminal), line);
        }
        let cut = text(EntryDifference::Content { ranges: many, is_cut: true }, VerifyOutputFormat::Bytes);
        assert!(
            cut.starts_with("differs    a\x1bb: bytes 0-1023, ") && cut.ends_with(" and at least 4 more\n")
        );
    }

    #[test]
    fn json() {
        let ranges = vec![ByteRange::new(1_024, 2_048)];
        let line: serde_json::Value = serde_json::from_str(&text(
            EntryDifference::Content { ranges, is_cut: false },
            VerifyOutputFormat::Json,
        ))
        .unwrap();
        assert_eq!((&line["what"], &line["ranges"][0]["offset"]), (&"content".into(), &1_024.into()));
        assert_eq!((&line["ranges"][0]["bytes"], &line["is_cut"]), (&2_048.into(), &false.into()));
        let detail = EntryDifference::Unreadable { side: FailureSide::Sink, detail: "no".into() };
        let line: serde_json::Value = serde_json::from_str(&text(detail, VerifyOutputFormat::Json)).unwrap();
        assert_eq!((&line["side"], &line["detail"]), (&"destination".into(), &"no".into()));
    }
}

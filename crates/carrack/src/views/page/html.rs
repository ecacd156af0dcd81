//! The page as text. All text from elsewhere (paths, details, labels) goes through [`escaped_text`],
//! [`escaped_path`] or [`escaped`]: control characters and invalid UTF-8 are
//! shown as escapes, and no such text is markup.

use std::os::unix::ffi::OsStrExt;

use carrack_model::{FailureSide, LargeFileProgress};

use super::PageHeadline;
use super::markup::{HtmlMarkupBuilder, escaped_path, escaped_text};
use super::plots;
use super::record::{EndSeries, FirstItems, HtmlReportData};
use crate::exit::ExitStatus;
use crate::lifetime::format_moment;
use crate::size;
use crate::views::canvas::escaped;
use crate::views::quantity::{bytes_per_s, clock, count_with_noun, group_digits, rate};
use crate::views::report::FinishedTransfer;
use crate::views::report::summary;

const STYLE: &str = include_str!("page.css");

/// The contents of the page.
pub struct HtmlPage<'a> {
    pub headline: &'a PageHeadline,
    /// Seconds since 1970.
    pub started_s: i64,
    pub record: &'a HtmlReportData,
    pub ending: &'a FinishedTransfer,
}

impl HtmlPage<'_> {
    /// Returns the page.
    pub fn to_html(&self) -> String {
        let mut page = HtmlMarkupBuilder::default();
        page.raw("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
        page.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n");
        page.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
        let title = format!("carrack {}: {}", self.headline.command, outcome(self.ending.exit));
        page.raw(&format!("<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"));
        self.write_header(&mut page, &title);
        self.write_key_figures(&mut page);
        self.write_rates(&mut page);
        self.record.targets.iter().for_each(|targets| self.write_targets(&mut page, targets));
        self.write_lanes(&mut page);
        self.write_files(&mut page);
        self.write_event_lists(&mut page);
        page.raw("<footer>Numbers are explained in carrack's docs/watching.md. KiB, MiB, GiB are powers of 1,024.</footer>\n");
        page.raw("</body>\n</html>\n");
        page.0
    }

    /// Returns the time that plots span: from the start to the end.
    fn end_s(&self) -> f64 {
        self.ending.elapsed.as_secs_f64().max(0.001)
    }

    fn write_header(&self, page: &mut HtmlMarkupBuilder, title: &str) {
        let PageHeadline { sources, destination, .. } = self.headline;
        page.raw(&format!("<h1 class=\"{}\">{title}</h1>\n<p>", class_of(self.ending.exit)));
        for source in sources {
            page.raw(&format!("<code>{}</code> ", escaped_path(source.as_bytes())));
        }
        page.raw(&format!("→ <code>{}</code></p>\n", escaped_path(destination.as_bytes())));
        let (begun, version) = (format_moment(self.started_s), env!("CARGO_PKG_VERSION"));
        page.raw(&format!("<p class=\"dim\">begun {begun}, carrack {version}</p>\n"));
        page.raw("<ul>\n");
        for line in summary::lines(self.ending) {
            page.item(line.strip_prefix("carrack: ").unwrap_or(&line));
        }
        for trouble in &self.ending.troubles {
            page.item(&format!("error: {}", trouble.message));
            trouble.hint.iter().for_each(|hint| page.item(&format!("hint: {hint}")));
        }
        page.raw("</ul>\n");
    }

    /// Writes the most important numbers.
    fn write_key_figures(&self, page: &mut HtmlMarkupBuilder) {
        let (ending, summary) = (self.ending, &self.ending.summary);
        let connection = ending.tally.connection;
        let protection =
            connection.map_or("-", |it| it.protection.map_or("none needed: local", |level| level.name()));
        let way = connection.map_or("-".to_owned(), |it| match it.streams {
            0 => it.transport.to_owned(),
            streams => format!("{} × {streams}", it.transport),
        });
        page.raw("<dl>\n");
        for (name, value) in [
            ("written", size::format_size(summary.bytes_done)),
            (
                "duration",
                format!("{} ({:.1} s)", clock(ending.elapsed.as_secs()), ending.elapsed.as_secs_f64()),
            ),
            ("mean rate", rate(bytes_per_s(summary.bytes_done, ending.elapsed))),
            ("files", group_digits(summary.files_done)),
            ("directories", group_digits(summary.directories_done)),
            ("links", group_digits(summary.symlinks_done)),
            ("special files", group_digits(summary.specials_done)),
            ("there before", group_digits(summary.entries_kept)),
            ("deleted", group_digits(summary.entries_deleted)),
            ("left out", group_digits(summary.entries_skipped)),
            ("failed", group_digits(summary.entries_failed)),
            ("warnings", group_digits(self.record.warnings.count)),
            ("checksum", ending.checksum.name().to_owned()),
            ("protection", protection.to_owned()),
            ("way", way),
        ] {
            page.raw(&format!("<div><dt>{name}</dt><dd>{}</dd></div>\n", escaped(&value)));
        }
        page.raw("</dl>\n");
    }

    fn write_rates(&self, page: &mut HtmlMarkupBuilder) {
        page.heading("Rates over time");
        page.raw(&plots::plot_rates(self.record, self.end_s()));
        if self.record.progress.bytes_read == 0 && self.ending.summary.bytes_done > 0 {
            page.paragraph(
                "The source's end did not tell what it read and sent: its carrack is too old for that.",
            );
        }
    }

    fn write_targets(&self, page: &mut HtmlMarkupBuilder, targets: &EndSeries) {
        let end = if targets.side == FailureSide::Source { "source" } else { "destination" };
        page.heading(&format!("Storage targets at the {end}"));
        let rows: Vec<_> =
            targets.listed.iter().map(|target| (&*target.report.label, &target.series.bins)).collect();
        page.raw(&plots::plot_heat_map(&rows, self.end_s(), "rate of each target over time"));
        page.table(&["target", "moved", "mean rate", "normal", "recent", "limit", "congested"], |page| {
            for target in &targets.listed {
                let report = &target.report;
                let limit = if report.limit == 0 { "-".to_owned() } else { report.limit.to_string() };
                page.row(&[
                    &escaped(&report.label),
                    &size::format_size(report.bytes),
                    &self.rate(report.bytes),
                    &milliseconds(report.normal_us),
                    &milliseconds(report.recent_us),
                    &limit,
                    &format!("{} ×", report.avoided_count),
                ]);
            }
        });
        page.omitted_count(targets.rest as u64, "targets");
    }

    fn write_lanes(&self, page: &mut HtmlMarkupBuilder) {
        page.heading("Lanes of the source");
        if self.record.lanes.is_empty() {
            return page.paragraph(UNTOLD);
        }
        let names: Vec<String> = (0..self.record.lanes.len()).map(|lane| format!("lane {lane}")).collect();
        let lanes = names.iter().zip(&self.record.lanes);
        let rows: Vec<_> = lanes.clone().map(|(name, lane)| (&**name, &lane.series.bins)).collect();
        page.raw(&plots::plot_heat_map(&rows, self.end_s(), "rate of each lane over time"));
        page.table(&["lane", "sent", "mean rate", "objects", "threads that read, at the end"], |page| {
            for (name, lane) in lanes {
                page.row(&[
                    name,
                    &size::format_size(lane.report.bytes_sent),
                    &self.rate(lane.report.bytes_sent),
                    &group_digits(lane.report.objects_sent),
                    &lane.report.readers.to_string(),
                ]);
            }
        });
    }

    fn write_files(&self, page: &mut HtmlMarkupBuilder) {
        page.heading("Sizes of the files");
        let Some(source) = &self.record.source else { return page.paragraph(UNTOLD) };
        let found: u64 = source.size_counts.iter().sum();
        page.paragraph(&format!("found at the source: {}", count_with_noun(found, "file", "files")));
        if found > 0 {
            page.raw(&plots::plot_file_sizes(&source.size_counts));
            page.raw("<details><summary>as a table</summary>\n");
            page.table(&["size", "files"], |page| {
                let used = source.size_counts.iter().enumerate().filter(|(_, count)| **count > 0);
                used.for_each(|(class, count)| page.row(&[&plots::class_name(class), &group_digits(*count)]));
            });
            page.raw("</details>\n");
        }
        page.heading("Files that took longest");
        page.paragraph("Large ones only: small files travel many at a time, and nobody takes their time.");
        let files: Vec<&LargeFileProgress> = source.slowest.iter().chain(&source.open).collect();
        page.table(&["file", "time", "sent", "rate", ""], |page| {
            for (nth, file) in files.iter().enumerate() {
                let seconds = file.open_ms as f64 / 1_000.0;
                let state = if nth < source.slowest.len() { "" } else { "not complete" };
                page.row(&[
                    &escaped_path(&file.path),
                    &format!("{seconds:.1} s"),
                    &size::format_size(file.bytes),
                    &rate((file.bytes_done as f64 / seconds.max(0.001)) as u64),
                    state,
                ]);
            }
        });
    }

    fn write_event_lists(&self, page: &mut HtmlMarkupBuilder) {
        let HtmlReportData { failures, warnings, decisions, .. } = self.record;
        if failures.count > 0 {
            page.heading(&format!("Failures: {}", group_digits(failures.count)));
            page.table(&["at", "path", "kind", "detail"], |page| {
                for (at_s, failure) in &failures.listed {
                    let kind = failure.kind.name();
                    page.row(&[
                        &moment(*at_s),
                        &escaped_path(&failure.path),
                        kind,
                        &escaped_text(&failure.detail),
                    ]);
                }
            });
            page.omitted_count(failures.omitted_count(), "failures");
        }
        write_messages(page, "Warnings", warnings);
        write_messages(page, "What the tuner decided", decisions);
    }

    /// Returns the mean rate over the whole transfer.
    fn rate(&self, bytes: u64) -> String {
        rate(bytes_per_s(bytes, self.ending.elapsed))
    }
}

const UNTOLD: &str =
    "Not known: the source's end does not tell, or both ends were far and this one only in control.";

fn write_messages(page: &mut HtmlMarkupBuilder, heading: &str, texts: &FirstItems<String>) {
    if texts.count == 0 {
        return;
    }
    page.heading(&format!("{heading}: {}", group_digits(texts.count)));
    page.table(&["at", "what"], |page| {
        texts.listed.iter().for_each(|(at_s, text)| page.row(&[&moment(*at_s), &escaped_text(text)]));
    });
    page.omitted_count(texts.omitted_count(), "lines");
}

fn moment(at_s: f64) -> String {
    format!("{at_s:.1} s")
}

fn milliseconds(us: u64) -> String {
    match us {
        0 => "-".to_owned(),
        us => format!("{:.1} ms", us as f64 / 1_000.0),
    }
}

fn outcome(exit: ExitStatus) -> &'static str {
    match exit {
        ExitStatus::Complete => "complete",
        ExitStatus::Partial => "partial: something failed",
        ExitStatus::Usage | ExitStatus::Nothing | ExitStatus::OtherVersion => "nothing was copied",
        ExitStatus::Interrupted => "interrupted",
        ExitStatus::TimedOut => "timed out",
    }
}

fn class_of(exit: ExitStatus) -> &'static str {
    if exit == ExitStatus::Complete { "good" } else { "bad" }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::time::Duration;

    use carrack_model::{
        EntryFailure, FailureKind, LaneReport, LimitingStage, SourceReport, TargetReport, TransferEvent,
        TransferProgress, TransferSummary, UserNotice,
    };

    use super::*;
    use crate::user_error::UserError;
    use crate::views::report::summary::tests::ending;

    fn headline() -> PageHeadline {
        PageHeadline {
            command: "cp",
            sources: vec!["a&b".into(), OsStr::from_bytes(b"<i>\xff").into()],
            destination: "h:d".into(),
        }
    }

    fn text(record: &HtmlReportData, ending: &FinishedTransfer) -> String {
        HtmlPage { headline: &headline(), started_s: 1_700_000_000, record, ending }.to_html()
    }

    fn hostile() -> HtmlReportData {
        let mut record = HtmlReportData::default();
        let path: Box<[u8]> = b"<script>alert(1)</script>\xfe".as_slice().into();
        let failure = EntryFailure { path: path.clone(), kind: FailureKind::Missing, detail: "<b>&".into() };
        let file = LargeFileProgress { path, bytes: 4 << 20, bytes_done: 2 << 20, open_ms: 2_000 };
        let lane = LaneReport { bytes_sent: 5 << 20, objects_sent: 5, readers: 3, ..LaneReport::default() };
        let source = SourceReport {
            lanes: vec![lane],
            size_counts: vec![1, 0, 7],
            open: vec![file.clone()],
            slowest: vec![file],
        };
        let target = TargetReport { label: "<t>".into(), bytes: 1 << 20, ..TargetReport::default() };
        for (nth, event) in [
            TransferEvent::Progress(TransferProgress {
                bytes_read: 5 << 20,
                bytes_sent: 5 << 20,
                bytes_moved: 4 << 20,
                limiter: LimitingStage::Network,
                ..TransferProgress::default()
            }),
            TransferEvent::Targets { side: FailureSide::Sink, targets: vec![target] },
            TransferEvent::Source(source),
            TransferEvent::Failed(failure),
            TransferEvent::Notice(UserNotice::Warning("<w>\x1b".into())),
            TransferEvent::Notice(UserNotice::Decision("readers 2 → 4".into())),
        ]
        .iter()
        .enumerate()
        {
            record.add(event, 1.0 + nth as f64 / 10.0);
        }
        record
    }

    #[test]
    fn what_others_chose_is_never_markup() {
        let mut ending =
            ending(TransferSummary { files_done: 2, entries_failed: 1, ..TransferSummary::default() });
        ending.troubles = vec![UserError::new("<e>").hint("<h>")];
        let page = text(&hostile(), &ending);
        for markup in ["<script", "<i>", "<b>", "<t>", "<w>", "<e>", "<h>", "\x1b"] {
            assert!(!page.contains(markup), "{markup}");
        }
        for shown in [
            "<code>a&amp;b</code>",
            "&lt;i&gt;\\xff",
            "&lt;script&gt;alert(1)&lt;/script&gt;\\xfe",
            "&lt;b&gt;&amp;",
            "&lt;w&gt;\\u{1b}",
            "error: &lt;e&gt;",
            "hint: &lt;h&gt;",
            "readers 2 → 4",
            "limited by",
            "network 50 %",
            "2 B to 4 B",
            "not complete",
            "1.0 MiB/s",
        ] {
            assert!(page.contains(shown), "{shown}");
        }
    }

    #[test]
    fn it_loads_nothing() {
        let page = text(&hostile(), &ending(TransferSummary::default()));
        for loads in ["http://", "https://", "src=", "href=", "url(", "@import", "<script", "<link"] {
            assert!(!page.contains(loads), "{loads}");
        }
        assert!(page.contains("default-src 'none'"));
    }

    #[test]
    fn a_transfer_that_told_nothing_has_a_page() {
        let mut ending = ending(TransferSummary::default());
        (ending.exit, ending.elapsed) = (ExitStatus::Nothing, Duration::ZERO);
        let page = text(&HtmlReportData::default(), &ending);
        assert!(page.contains("nothing was copied") && page.contains(UNTOLD), "{page}");
        assert!(page.ends_with("</html>\n"));
    }
}

//! `--json`: one object a line on stdout, for programs. Field names are stable; new ones may come.
//!
//! Every object has `event` and `seconds` (since the start). The last object is the `summary`, with the exit
//! code.
//!
//! | event | fields |
//! | --- | --- |
//! | `placed` | `path`, `nesting`: see below |
//! | `connected` | `streams`, `lanes`, `transport` (`tcp`, `ssh pipe`, `local`), `protection`, `cipher` |
//! | `progress` | counters, queues and the limiting stage: see below |
//! | `source` | `lanes`, `size_counts`, `open`, `slowest`: see `SourceLine` |
//! | `targets` | `side`, `targets`: see `TargetReport` |
//! | `would_copy` | `path`, `size_bytes` |
//! | `would_delete` | `path` |
//! | `file_digest` | `path`, `size_bytes`, `blake3` |
//! | `failed` | `path`, `kind`, `side`, `detail`, `hint` |
//! | `skipped` | `path`, `reason` |
//! | `notice`, `warning`, `decision` | `text` |
//! | `storage_delay` | `side`, `target`, `requests`, `age_s`: see `StorageDelay` |
//! | `loss` | `text`, `count`: metadata of one kind that the destination could not keep |
//! | `summary` | see `SummaryLine` below: counts, rate, protection, errors, `exit_code` |
//!
//! In `placed`, `path` is the name of the only source within the destination; it is empty if the source
//! becomes the destination, or if there are several sources. `nesting` is `never`, `inside` (a directory goes
//! into an existing one) or `next time` (it would if the same command were run again).
//!
//! `progress` has `entries_found`, `bytes_found`, `scan_done`, `entries_done`, `bytes_done`,
//! `entries_failed`, `bytes_read`, `bytes_sent`, `to_read`, `to_send`, `to_write` (each `waiting`, `room`)
//! and `limiter`.

use std::io::{self, Write};
use std::time::Duration;

use carrack_model::{
    EntryFailure, FailureSide, LaneReport, LargeFileProgress, ProtectionLevel, SealCipher, SourceReport,
    TargetReport, TransferEvent, TransferProgress, UserNotice,
};
use serde::Serialize;

use super::{FinishedTransfer, TransferEventPresenter};
use crate::exit::{ExitReason, ExitStatus};
use crate::user_error::UserError;
use crate::views::json::{JsonFilePathFields, hex, write_line};
use crate::views::quantity::bytes_per_s;

/// Writes the events as JSON.
pub struct JsonView<W: Write + Send> {
    out: W,
    /// The last counters.
    progress: TransferProgress,
}

impl<W: Write + Send> JsonView<W> {
    /// Creates a view. `out` should be buffered by lines, so that a reader sees each event at once.
    pub fn new(out: W) -> JsonView<W> {
        JsonView { out, progress: TransferProgress::default() }
    }

    fn write(&mut self, body: JsonEventBody<'_>, elapsed: Duration) -> io::Result<()> {
        write_line(&JsonLine { seconds: round_ms(elapsed), body }, &mut self.out)
    }
}

impl<W: Write + Send> TransferEventPresenter for JsonView<W> {
    fn show_event(&mut self, event: &TransferEvent, elapsed: Duration) -> io::Result<()> {
        if let TransferEvent::Progress(progress) = event {
            self.progress = *progress;
        }
        self.write(JsonEventBody::of(event), elapsed)
    }

    fn show_status(&mut self, elapsed: Duration, is_requested: bool) -> io::Result<()> {
        let progress = self.progress;
        if is_requested { self.write(JsonEventBody::Progress(&progress), elapsed) } else { Ok(()) }
    }

    fn show_end(&mut self, ending: &FinishedTransfer) -> io::Result<()> {
        self.write(JsonEventBody::Summary(Box::new(SummaryLine::of(ending))), ending.elapsed)?;
        self.out.flush()
    }
}

fn round_ms(elapsed: Duration) -> f64 {
    elapsed.as_millis() as f64 / 1_000.0
}

#[derive(Serialize)]
struct JsonLine<'a> {
    #[serde(flatten)]
    body: JsonEventBody<'a>,
    seconds: f64,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum JsonEventBody<'a> {
    Placed {
        #[serde(flatten)]
        path: JsonFilePathFields<'a>,
        nesting: &'static str,
    },
    Connected {
        streams: u32,
        lanes: u32,
        transport: &'a str,
        protection: Option<&'static str>,
        cipher: Option<&'static str>,
    },
    Progress(&'a TransferProgress),
    WouldCopy {
        #[serde(flatten)]
        path: JsonFilePathFields<'a>,
        size_bytes: u64,
    },
    WouldDelete {
        #[serde(flatten)]
        path: JsonFilePathFields<'a>,
    },
    FileDigest {
        #[serde(flatten)]
        path: JsonFilePathFields<'a>,
        size_bytes: u64,
        blake3: String,
    },
    Failed(FailedLine<'a>),
    Skipped {
        #[serde(flatten)]
        path: JsonFilePathFields<'a>,
        reason: &'a str,
    },
    Notice {
        text: &'a str,
    },
    Warning {
        text: &'a str,
    },
    Decision {
        text: &'a str,
    },
    Loss {
        text: String,
        count: u64,
    },
    StorageDelay {
        side: &'static str,
        target: &'a str,
        requests: u64,
        age_s: u64,
    },
    Source(SourceLine<'a>),
    Targets {
        side: &'static str,
        targets: &'a [TargetReport],
    },
    Summary(Box<SummaryLine<'a>>),
}

impl<'a> JsonEventBody<'a> {
    fn of(event: &'a TransferEvent) -> JsonEventBody<'a> {
        match event {
            TransferEvent::Placed(arrival) => JsonEventBody::Placed {
                path: JsonFilePathFields::of(arrival.name.as_deref().unwrap_or_default()),
                nesting: arrival.nesting.name(),
            },
            TransferEvent::Connected { streams, lanes, transport, protection, cipher } => {
                JsonEventBody::Connected {
                    streams: *streams,
                    lanes: *lanes,
                    transport,
                    protection: protection.map(ProtectionLevel::name),
                    cipher: cipher.map(SealCipher::name),
                }
            }
            TransferEvent::Progress(progress) => JsonEventBody::Progress(progress),
            TransferEvent::WouldDelete { path } => {
                JsonEventBody::WouldDelete { path: JsonFilePathFields::of(path) }
            }
            TransferEvent::WouldCopy { path, size } => {
                JsonEventBody::WouldCopy { path: JsonFilePathFields::of(path), size_bytes: *size }
            }
            TransferEvent::FileDigest { path, size, digest } => JsonEventBody::FileDigest {
                path: JsonFilePathFields::of(path),
                size_bytes: *size,
                blake3: hex(digest),
            },
            TransferEvent::Targets { side, targets } => {
                JsonEventBody::Targets { side: side_name(*side), targets }
            }
            TransferEvent::Failed(failure) => JsonEventBody::Failed(FailedLine::of(failure)),
            TransferEvent::Notice(UserNotice::Skipped { path, reason }) => {
                JsonEventBody::Skipped { path: JsonFilePathFields::of(path), reason }
            }
            TransferEvent::Notice(UserNotice::Text(text) | UserNotice::Detail(text)) => {
                JsonEventBody::Notice { text }
            }
            TransferEvent::Notice(UserNotice::Warning(text)) => JsonEventBody::Warning { text },
            TransferEvent::Notice(UserNotice::Decision(text)) => JsonEventBody::Decision { text },
            TransferEvent::Notice(UserNotice::Loss(loss)) => {
                JsonEventBody::Loss { text: loss.to_string(), count: loss.count }
            }
            TransferEvent::Notice(UserNotice::StorageDelay(delay)) => JsonEventBody::StorageDelay {
                side: side_name(delay.side),
                target: &delay.target,
                requests: delay.requests,
                age_s: delay.seconds,
            },
            TransferEvent::Source(report) => JsonEventBody::Source(SourceLine::of(report)),
        }
    }
}

/// Details of the source.
#[derive(Serialize)]
struct SourceLine<'a> {
    lanes: &'a [LaneReport],
    /// Regular files found so far by the number of bits of their sizes: 0 bytes, 1, 2 to 3, 4 to 7 and so on.
    size_counts: &'a [u64],
    /// Large files in transfer.
    open: Vec<FileLine<'a>>,
    /// The slowest large files that are complete.
    slowest: Vec<FileLine<'a>>,
}

impl<'a> SourceLine<'a> {
    fn of(report: &'a SourceReport) -> SourceLine<'a> {
        SourceLine {
            lanes: &report.lanes,
            size_counts: &report.size_counts,
            open: report.open.iter().map(FileLine::of).collect(),
            slowest: report.slowest.iter().map(FileLine::of).collect(),
        }
    }
}

#[derive(Serialize)]
struct FileLine<'a> {
    #[serde(flatten)]
    path: JsonFilePathFields<'a>,
    bytes: u64,
    bytes_done: u64,
    open_ms: u64,
}

impl<'a> FileLine<'a> {
    fn of(file: &'a LargeFileProgress) -> FileLine<'a> {
        let LargeFileProgress { path, bytes, bytes_done, open_ms } = file;
        FileLine {
            path: JsonFilePathFields::of(path),
            bytes: *bytes,
            bytes_done: *bytes_done,
            open_ms: *open_ms,
        }
    }
}

#[derive(Serialize)]
struct FailedLine<'a> {
    #[serde(flatten)]
    path: JsonFilePathFields<'a>,
    kind: &'static str,
    side: &'static str,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'static str>,
}

impl<'a> FailedLine<'a> {
    fn of(failure: &'a EntryFailure) -> FailedLine<'a> {
        FailedLine {
            path: JsonFilePathFields::of(&failure.path),
            kind: failure.kind.name(),
            side: side_name(failure.kind.side()),
            detail: &failure.detail,
            hint: failure.kind.hint(),
        }
    }
}

fn side_name(side: FailureSide) -> &'static str {
    match side {
        FailureSide::Source => "source",
        FailureSide::Sink => "sink",
        FailureSide::Network => "network",
    }
}

#[derive(Serialize)]
struct ErrorLine<'a> {
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

impl<'a> ErrorLine<'a> {
    fn of(trouble: &'a UserError) -> ErrorLine<'a> {
        ErrorLine { message: &trouble.message, hint: trouble.hint.as_deref() }
    }
}

/// The last line.
#[derive(Serialize)]
struct SummaryLine<'a> {
    /// `complete`, `partial`, `usage`, `nothing`, `interrupted` or `timed_out`.
    outcome: &'static str,
    exit_code: u8,
    dry_run: bool,
    /// Path at the destination, as text; null if it was never determined.
    destination: Option<std::borrow::Cow<'a, str>>,
    files_done: u64,
    directories_done: u64,
    symlinks_done: u64,
    specials_done: u64,
    bytes_done: u64,
    bytes_per_s: u64,
    entries_failed: u64,
    entries_skipped: u64,
    /// Owners, modes, attributes and other metadata that could not be kept.
    losses: u64,
    objects_reread: u64,
    /// Entries that a sync deleted, and entries that its dry run would delete.
    entries_deleted: u64,
    entries_to_delete: u64,
    /// Files and links that an earlier session had completed, or that a sync left as they were.
    entries_kept: u64,
    /// Bytes that an earlier session had written.
    bytes_kept: u64,
    /// Entries and bytes that a dry run would copy.
    entries_listed: u64,
    bytes_listed: u64,
    /// `tcp`, `ssh pipe`, `tls`, `local`, between two far hosts `direct` or `relay`; null without a session.
    transport: Option<&'static str>,
    /// `private`, `safe` or `clear`; `local` where the data did not leave the host.
    protection: Option<&'static str>,
    /// Algorithm of the seals, if there are any.
    cipher: Option<&'static str>,
    checksum: &'static str,
    /// Lines of the manifest, or null without one; and lines that `b3sum --check` can't use.
    manifest_lines: Option<u64>,
    manifest_lines_uncheckable: Option<u64>,
    manifest_complete: Option<bool>,
    errors: Vec<ErrorLine<'a>>,
}

impl<'a> SummaryLine<'a> {
    fn of(ending: &'a FinishedTransfer) -> SummaryLine<'a> {
        let (summary, tally) = (&ending.summary, &ending.tally);
        SummaryLine {
            outcome: outcome_name(ending.exit),
            exit_code: ending.exit.code(),
            dry_run: ending.dry_run,
            destination: ending.destination.as_deref().map(String::from_utf8_lossy),
            files_done: summary.files_done,
            directories_done: summary.directories_done,
            symlinks_done: summary.symlinks_done,
            specials_done: summary.specials_done,
            bytes_done: summary.bytes_done,
            bytes_per_s: bytes_per_s(summary.bytes_done, ending.elapsed),
            entries_failed: summary.entries_failed,
            entries_skipped: summary.entries_skipped,
            losses: tally.lost,
            objects_reread: summary.objects_reread,
            entries_deleted: summary.entries_deleted,
            entries_to_delete: tally.goes,
            entries_kept: summary.entries_kept,
            bytes_kept: summary.bytes_kept,
            entries_listed: tally.listed,
            bytes_listed: tally.listed_bytes,
            transport: tally.connection.map(|connection| connection.transport),
            protection: tally
                .connection
                .map(|connection| connection.protection.map_or("local", ProtectionLevel::name)),
            cipher: tally.connection.and_then(|connection| connection.cipher).map(SealCipher::name),
            checksum: ending.checksum.name(),
            manifest_lines: ending.manifest.map(|manifest| manifest.lines),
            manifest_lines_uncheckable: ending.manifest.map(|manifest| manifest.uncheckable),
            manifest_complete: ending
                .manifest
                .map(|_| ending.end == ExitReason::Reached && summary.entries_failed == 0),
            errors: ending.troubles.iter().map(ErrorLine::of).collect(),
        }
    }
}

fn outcome_name(exit: ExitStatus) -> &'static str {
    match exit {
        ExitStatus::Complete => "complete",
        ExitStatus::Partial => "partial",
        ExitStatus::Usage => "usage",
        ExitStatus::Nothing | ExitStatus::OtherVersion => "nothing",
        ExitStatus::Interrupted => "interrupted",
        ExitStatus::TimedOut => "timed_out",
    }
}

#[cfg(test)]
mod tests {
    use carrack_model::{FailureKind, LimitingStage, MetadataLoss, MetadataLossKind, TransferSummary};

    use super::*;
    use crate::views::report::summary::tests::ending;

    fn line(event: &TransferEvent) -> String {
        let mut out = Vec::new();
        JsonView::new(&mut out).show_event(event, Duration::from_micros(1_500_900)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_event_is_one_line() {
        let progress = TransferProgress {
            bytes_found: 7,
            limiter: LimitingStage::SinkStorage,
            ..TransferProgress::default()
        };
        for (event, expected) in [
            (
                TransferEvent::Connected {
                    streams: 4,
                    lanes: 2,
                    transport: "tcp",
                    protection: Some(ProtectionLevel::Safe),
                    cipher: Some(SealCipher::Aes128Gcm),
                },
                r#"{"event":"connected","streams":4,"lanes":2,"transport":"tcp","protection":"safe","cipher":"aes-128-gcm","seconds":1.5}"#,
            ),
            (
                TransferEvent::Progress(progress),
                concat!(
                    r#"{"event":"progress","entries_found":0,"bytes_found":7,"scan_done":false,"#,
                    r#""entries_done":0,"bytes_done":0,"entries_failed":0,"bytes_read":0,"bytes_sent":0,"#,
                    r#""to_read":{"waiting":0,"room":0},"to_send":{"waiting":0,"room":0},"#,
                    r#""to_write":{"waiting":0,"room":0},"limiter":"sink storage","seconds":1.5}"#
                ),
            ),
            (
                TransferEvent::WouldCopy { path: b"a\nb"[..].into(), size: 3 },
                r#"{"event":"would_copy","path":"a\nb","size_bytes":3,"seconds":1.5}"#,
            ),
            (
                TransferEvent::Failed(EntryFailure {
                    path: b"x\xff"[..].into(),
                    kind: FailureKind::IntoItself,
                    detail: "why".into(),
                }),
                concat!(
                    r#"{"event":"failed","path":"x�","path_hex":"78ff","kind":"into-itself","side":"source","#,
                    r#""detail":"why","hint":"choose a destination outside of the source","seconds":1.5}"#
                ),
            ),
            (
                TransferEvent::Notice(UserNotice::Skipped {
                    path: b"s"[..].into(),
                    reason: "a socket".into(),
                }),
                r#"{"event":"skipped","path":"s","reason":"a socket","seconds":1.5}"#,
            ),
            (
                TransferEvent::Notice(UserNotice::Text("t".into())),
                r#"{"event":"notice","text":"t","seconds":1.5}"#,
            ),
            (
                TransferEvent::Notice(UserNotice::Loss(MetadataLoss {
                    lost: MetadataLossKind::Several("ACLs".into()),
                    reason: "r".into(),
                    count: 2,
                })),
                r#"{"event":"loss","text":"2 ACLs not kept: r","count":2,"seconds":1.5}"#,
            ),
            (
                TransferEvent::Notice(UserNotice::Warning("w".into())),
                r#"{"event":"warning","text":"w","seconds":1.5}"#,
            ),
        ] {
            assert_eq!(line(&event), format!("{expected}\n"));
        }
    }

    #[test]
    fn digests_are_hexadecimal() {
        let line = line(&TransferEvent::FileDigest { path: b"f"[..].into(), size: 1, digest: [0xa5; 32] });
        assert!(line.contains(&format!(r#""blake3":"{}""#, "a5".repeat(32))), "{line}");
    }

    #[test]
    fn the_summary_says_everything() {
        let mut out = Vec::new();
        let summary = TransferSummary {
            files_done: 2,
            bytes_done: 4_000,
            entries_failed: 1,
            ..TransferSummary::default()
        };
        let ending = FinishedTransfer {
            troubles: vec![UserError::new("cut").hint("again")],
            exit: ExitStatus::Partial,
            ..ending(summary)
        };
        JsonView::new(&mut out).show_end(&ending).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        for (field, expected) in [
            ("event", serde_json::json!("summary")),
            ("outcome", "partial".into()),
            ("exit_code", 1.into()),
            ("files_done", 2.into()),
            ("bytes_per_s", 2_000.into()),
            ("transport", "tcp".into()),
            ("protection", "clear".into()),
            ("checksum", "xxh3".into()),
            ("manifest_lines", serde_json::Value::Null),
            ("errors", serde_json::json!([{"message": "cut", "hint": "again"}])),
        ] {
            assert_eq!(value[field], expected, "{field}");
        }
    }
}

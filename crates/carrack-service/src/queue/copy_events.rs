//! The output of `carrack cp --json`, and its effects on a record. No I/O.

use carrack_register::transfer_records::{EntryCopyFailure, FAILURES_KEPT, TransferRecord, TransferState};
use serde::Deserialize;

/// A line of the output, as far as the queue uses it.
#[derive(Debug, Deserialize)]
pub struct CopyProcessOutputLine {
    /// Time since the start.
    #[serde(default)]
    seconds: f64,
    #[serde(flatten)]
    event: CopyEvent,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum CopyEvent {
    Progress(CopyProgress),
    Failed {
        path: String,
        kind: String,
        detail: String,
    },
    Loss {
        text: String,
    },
    Summary(Box<CopySummary>),
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct CopyProgress {
    entries_found: u64,
    bytes_found: u64,
    scan_done: bool,
    entries_done: u64,
    bytes_done: u64,
    entries_failed: u64,
}

#[derive(Debug, Deserialize)]
struct CopySummary {
    outcome: String,
    files_done: u64,
    symlinks_done: u64,
    #[serde(default)]
    specials_done: u64,
    bytes_done: u64,
    entries_failed: u64,
    #[serde(default)]
    entries_skipped: u64,
    #[serde(default)]
    entries_deleted: u64,
    entries_kept: u64,
    bytes_kept: u64,
    errors: Vec<CopySummaryError>,
}

#[derive(Debug, Deserialize)]
struct CopySummaryError {
    message: String,
    hint: Option<String>,
}

/// The end of a copy, by its output and its exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// Every entry was tried.
    Reached,
    /// A signal ended it.
    Interrupted,
    /// It could not continue, for this reason.
    Failed(String),
}

/// The state of reading a copy's output.
#[derive(Debug)]
pub struct CopyOutputParser {
    /// Bytes moved by earlier runs.
    moved_before: u64,
    last: Option<(f64, u64)>,
    errors: Vec<CopySummaryError>,
    /// True once its summary was read, of whichever outcome.
    has_summary: bool,
}

impl CopyOutputParser {
    /// Begins a run: entries that failed before are tried again.
    pub fn new(record: &mut TransferRecord) -> CopyOutputParser {
        record.failures.clear();
        record.losses.clear();
        record.tally.entries_failed = 0;
        record.tally.pairs = 1;
        CopyOutputParser {
            moved_before: record.tally.bytes_moved,
            last: None,
            errors: Vec::new(),
            has_summary: false,
        }
    }

    /// Takes a line; returns true if it changed the record.
    pub fn apply_line(&mut self, line: &str, record: &mut TransferRecord) -> bool {
        // Unknown lines are ignored: a later carrack may write further ones.
        let Ok(line) = serde_json::from_str::<CopyProcessOutputLine>(line) else { return false };
        let tally = &mut record.tally;
        match line.event {
            CopyEvent::Progress(progress) => {
                tally.files_found = tally.files_found.max(progress.entries_found);
                tally.bytes_found = tally.bytes_found.max(progress.bytes_found);
                tally.is_scanned |= progress.scan_done;
                tally.files_done = tally.files_done.max(progress.entries_done);
                tally.bytes_done = tally.bytes_done.max(progress.bytes_done);
                tally.entries_failed = progress.entries_failed;
                tally.bytes_moved = tally.bytes_moved.max(self.moved_before + progress.bytes_done);
                tally.bytes_per_s = self.rate(line.seconds, progress.bytes_done).unwrap_or(tally.bytes_per_s);
            }
            CopyEvent::Failed { path, kind, detail } if record.failures.len() < FAILURES_KEPT => {
                record.failures.push(EntryCopyFailure { path, kind, detail });
            }
            CopyEvent::Loss { text } if record.losses.len() < FAILURES_KEPT => record.losses.push(text),
            CopyEvent::Summary(summary) => {
                let files_done =
                    summary.files_done + summary.symlinks_done + summary.specials_done + summary.entries_kept;
                if matches!(&*summary.outcome, "complete" | "partial" | "nothing")
                    && summary.errors.is_empty()
                {
                    // Until now directories were counted too: there is no other number while a copy runs.
                    tally.files_done = files_done;
                    tally.files_found = files_done + summary.entries_failed;
                    tally.bytes_found = tally.bytes_found.max(summary.bytes_done + summary.bytes_kept);
                    tally.is_scanned = true;
                }
                tally.bytes_done = tally.bytes_done.max(summary.bytes_done + summary.bytes_kept);
                tally.entries_failed = summary.entries_failed;
                tally.entries_skipped = summary.entries_skipped;
                tally.entries_deleted = tally.entries_deleted.saturating_add(summary.entries_deleted);
                tally.bytes_moved = self.moved_before + summary.bytes_done;
                if self.moved_before > 0 {
                    // A run that is cut short may leave more in its journal than it has reported.
                    tally.bytes_moved = tally.bytes_moved.max(tally.bytes_done);
                }
                self.errors = summary.errors;
                self.has_summary = true;
            }
            CopyEvent::Failed { .. } | CopyEvent::Loss { .. } | CopyEvent::Other => return false,
        }
        true
    }

    /// Returns the rate over one second or more: objects come in bursts.
    fn rate(&mut self, seconds: f64, bytes: u64) -> Option<u64> {
        let Some((then, before)) = self.last else {
            self.last = Some((seconds, bytes));
            return None;
        };
        if seconds - then < 1.0 {
            return None;
        }
        self.last = Some((seconds, bytes));
        Some((bytes.saturating_sub(before) as f64 / (seconds - then)) as u64)
    }

    /// Returns the meaning of the process's end; `code` is `None` if a signal ended it. `said` is the end of
    /// its messages to people.
    pub fn outcome(&self, code: Option<i32>, said: &str) -> CopyOutcome {
        if let Some(trouble) = self.errors.first() {
            return CopyOutcome::Failed(message_with_hint(&trouble.message, trouble.hint.as_deref()));
        }
        match code {
            Some(0 | 1 | 3) if self.has_summary => CopyOutcome::Reached,
            Some(130) | None => CopyOutcome::Interrupted,
            Some(code) if said.is_empty() => {
                CopyOutcome::Failed(format!("the copy ended with exit code {code}"))
            }
            Some(_) => CopyOutcome::Failed(said.to_owned()),
        }
    }
}

fn message_with_hint(message: &str, hint: Option<&str>) -> String {
    hint.map_or(message.to_owned(), |hint| format!("{message} ({hint})"))
}

/// Sets a state in which no process works on the transfer.
pub fn set_stopped_state(record: &mut TransferRecord, state: TransferState, reason: String, now_ms: u64) {
    record.tally.pairs = 0;
    record.tally.bytes_per_s = 0;
    record.state = state;
    record.reason = reason;
    record.ended_ms = state.is_over().then_some(now_ms);
}

#[cfg(test)]
mod tests {
    use super::super::store::tests::sample;
    use super::*;

    fn progress(seconds: f64, bytes: u64) -> String {
        format!(
            r#"{{"event":"progress","entries_found":3,"bytes_found":900,"scan_done":true,"entries_done":1,
            "bytes_done":{bytes},"entries_failed":0,"limiter":"x","seconds":{seconds}}}"#
        )
    }

    #[test]
    fn a_copy_is_followed_to_its_end() {
        let mut record = sample("1", 5);
        let mut listener = CopyOutputParser::new(&mut record);
        assert!(listener.apply_line(&progress(0.5, 100), &mut record));
        assert!(listener.apply_line(&progress(2.5, 500), &mut record));
        let tally = record.tally;
        assert_eq!((tally.files_found, tally.bytes_done, tally.bytes_per_s), (3, 500, 200));
        assert!(!listener.apply_line(r#"{"event":"weather","seconds":3}"#, &mut record));
        assert!(!listener.apply_line("no JSON", &mut record));
        let failed =
            r#"{"event":"failed","path":"x","kind":"changed","side":"source","detail":"d","seconds":3}"#;
        assert!(listener.apply_line(failed, &mut record));
        let summary = r#"{"event":"summary","outcome":"partial","exit_code":1,"files_done":2,"symlinks_done":0,
            "bytes_done":600,"entries_failed":1,"entries_skipped":2,"entries_kept":0,"bytes_kept":0,"errors":[],"seconds":4}"#;
        assert!(listener.apply_line(summary, &mut record));
        assert_eq!((record.tally.files_done, record.tally.entries_failed), (2, 1));
        assert_eq!(record.tally.entries_skipped, 2);
        assert_eq!(record.failures[0].kind, "changed");
        assert_eq!(listener.outcome(Some(1), ""), CopyOutcome::Reached);
        set_stopped_state(&mut record, TransferState::Done, String::new(), 9);
        assert_eq!((record.ended_ms, record.tally.bytes_per_s), (Some(9), 0));
    }

    #[test]
    fn another_run_adds_what_it_moves() {
        let mut record = sample("1", 5);
        record.tally.bytes_moved = 400;
        record.tally.bytes_done = 400;
        record.tally.entries_failed = 2;
        let mut listener = CopyOutputParser::new(&mut record);
        assert_eq!(record.tally.entries_failed, 0, "what failed is tried again");
        let summary = r#"{"event":"summary","outcome":"complete","files_done":1,"symlinks_done":0,"bytes_done":600,
            "entries_failed":0,"entries_kept":1,"bytes_kept":300,"errors":[],"seconds":4}"#;
        assert!(listener.apply_line(summary, &mut record));
        let tally = record.tally;
        assert_eq!((tally.files_done, tally.bytes_done, tally.bytes_moved), (2, 900, 1000));
    }

    #[test]
    fn ends_are_told_apart() {
        let mut record = sample("1", 5);
        let mut listener = CopyOutputParser::new(&mut record);
        assert_eq!(listener.outcome(Some(130), ""), CopyOutcome::Interrupted);
        assert_eq!(listener.outcome(None, ""), CopyOutcome::Interrupted);
        assert_eq!(listener.outcome(Some(2), "why"), CopyOutcome::Failed("why".into()));
        assert!(matches!(listener.outcome(Some(0), ""), CopyOutcome::Failed(_)), "a copy has a summary");
        assert!(matches!(listener.outcome(Some(124), ""), CopyOutcome::Failed(_)));
        let summary = r#"{"event":"summary","outcome":"complete","files_done":0,"symlinks_done":0,"bytes_done":0,"entries_failed":0,
            "entries_kept":0,"bytes_kept":0,"errors":[{"message":"m","hint":"h"}],"seconds":4}"#;
        assert!(listener.apply_line(summary, &mut record));
        assert_eq!(listener.outcome(Some(3), ""), CopyOutcome::Failed("m (h)".into()));
    }
}

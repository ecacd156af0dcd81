//! Submitted transfers and movers for people: a line each, or all details of one. Programs get the records
//! unchanged.

use std::io::{self, Write};

use carrack_options::colour::TextColour;
use carrack_register::transfer_records::{
    MoverAvailability, MoverRecord, MoverSessionRecord, TransferRecord, TransferTally,
};

use crate::lifetime::format_moment;
use crate::register::LocalCopyRecord;
use crate::size;
use crate::user_error::escape_control_characters;
use crate::views::quantity::{age, rate};
use crate::views::table::{TextTable, write_facts};

/// Most failures that are shown; `--json` has all that are kept.
const FAILURES_SHOWN: usize = 10;

/// A transfer in a list: a copy or a submitted one.
#[derive(Clone, Debug)]
pub struct TransferRow {
    id: String,
    state: String,
    /// The priority; `None` for a copy of one's own.
    priority: Option<u8>,
    user: String,
    bytes_found: u64,
    is_scanned: bool,
    bytes_done: u64,
    bytes_per_s: u64,
    is_over: bool,
    /// Start or submission, in seconds since 1970.
    pub since_s: i64,
    source: String,
    destination: String,
    label: String,
}

impl From<&TransferRecord> for TransferRow {
    fn from(record: &TransferRecord) -> TransferRow {
        let (submission, tally) = (&record.submission, &record.tally);
        TransferRow {
            id: record.id.clone(),
            state: record.state.to_string(),
            priority: Some(submission.priority),
            user: record.user.clone(),
            bytes_found: tally.bytes_found,
            is_scanned: tally.is_scanned,
            bytes_done: tally.bytes_done,
            bytes_per_s: tally.bytes_per_s,
            is_over: record.state.is_over(),
            since_s: i64::try_from(record.submitted_ms / 1_000).unwrap_or(i64::MAX),
            source: submission.source.to_string(),
            destination: submission.destination.to_string(),
            label: submission.label.clone(),
        }
    }
}

impl From<&LocalCopyRecord> for TransferRow {
    fn from(copy: &LocalCopyRecord) -> TransferRow {
        let standing = &copy.standing;
        TransferRow {
            id: copy.short_id().to_owned(),
            state: copy.state().to_owned(),
            priority: None,
            user: String::new(),
            bytes_found: standing.bytes_found,
            is_scanned: standing.scan_done || copy.is_complete(),
            bytes_done: standing.bytes_done,
            bytes_per_s: if copy.is_running() { standing.bytes_per_s } else { 0 },
            is_over: !copy.is_running(),
            since_s: i64::try_from(copy.started).unwrap_or(i64::MAX),
            source: standing.sources.join(" "),
            destination: standing.destination.clone(),
            label: standing.label.clone(),
        }
    }
}

impl TransferRow {
    /// Returns the part of the bytes that the scan has found so far; empty if it has found none.
    fn percent(&self) -> String {
        match self.bytes_found {
            0 => String::new(),
            found => format!("{}%", u128::from(self.bytes_done.min(found)) * 100 / u128::from(found)),
        }
    }

    /// Returns the time left at the present rate, once the scan is complete.
    fn time_left(&self) -> String {
        let left = self.bytes_found.saturating_sub(self.bytes_done);
        match left.checked_div(self.bytes_per_s).filter(|_| self.is_scanned && !self.is_over) {
            Some(seconds) => age(seconds),
            None => String::new(),
        }
    }
}

/// Returns the rate; empty for 0.
pub fn rate_if_any(bytes_per_s: u64) -> String {
    if bytes_per_s > 0 { rate(bytes_per_s) } else { String::new() }
}

/// Returns the colour of a state.
fn colour_of_state(state: &str) -> Option<TextColour> {
    match state {
        "done" => Some(TextColour::Green),
        "failed" | "killed" => Some(TextColour::Red),
        "done in part" | "interrupted" | "out of time" | "cancelled" | "paused" => Some(TextColour::Yellow),
        "running" | "starting" => Some(TextColour::Cyan),
        _ => None,
    }
}

/// Writes a table of transfers; `now_s` is in seconds since 1970.
pub fn write_list(rows: &[TransferRow], now_s: i64, out: &mut impl Write) -> io::Result<()> {
    if rows.is_empty() {
        return writeln!(out, "no transfers");
    }
    let headings = ["<ID", "<STATE", "<PRI", "<USER", ">AGE", ">DONE", ">BYTES", ">RATE", ">LEFT", "<COPY"];
    let mut table = TextTable::headed(&headings);
    table.paint(1, colour_of_state);
    for row in rows {
        let label = if row.label.is_empty() { String::new() } else { format!("  ({})", row.label) };
        table.row(&[
            &row.id,
            &row.state,
            &row.priority.map_or_else(|| "-".to_owned(), |priority| priority.to_string()),
            &if row.priority.is_some() { &row.user } else { "-" },
            &age(u64::try_from(now_s.saturating_sub(row.since_s)).unwrap_or(0)),
            &row.percent(),
            &size::format_size(row.bytes_done),
            &rate_if_any(row.bytes_per_s),
            &row.time_left(),
            &format_args!("{} to {}{label}", row.source, row.destination),
        ]);
    }
    table.write("", out)
}

fn moment(ms: Option<u64>) -> String {
    ms.map_or(String::new(), |ms| format_moment((ms / 1000) as i64))
}

/// Returns `words` for a count above `least`, else nothing.
fn text_if_above(least: u64, count: u64, words: String) -> String {
    if count > least { words } else { String::new() }
}

/// Writes everything about a transfer.
pub fn write_transfer(record: &TransferRecord, out: &mut impl Write) -> io::Result<()> {
    let (submission, tally) = (&record.submission, &record.tally);
    writeln!(out, "{}  {}", escape_control_characters(&record.id), record.state)?;
    let twice = tally.bytes_moved.saturating_sub(tally.bytes_done);
    let mut facts = vec![
        ("from", submission.source.to_string()),
        ("to", submission.destination.to_string()),
        ("label", submission.label.clone()),
        ("of", format!("{}, priority {}", record.user, submission.priority)),
        ("submitted", moment(Some(record.submitted_ms))),
        ("started", moment(record.started_ms)),
        ("ended", moment(record.ended_ms)),
        ("files", done_of_found(tally.files_done.to_string(), tally.files_found.to_string(), tally)),
        (
            "bytes",
            done_of_found(size::format_size(tally.bytes_done), size::format_size(tally.bytes_found), tally),
        ),
        ("rate", rate_if_any(tally.bytes_per_s)),
        ("moved twice", text_if_above(0, twice, size::format_size(twice))),
        ("pairs", text_if_above(1, tally.pairs.into(), tally.pairs.to_string())),
    ];
    facts.extend(record.sessions.iter().map(|session| ("session", session_words(session))));
    facts.extend([
        ("manager", record.manager.clone()),
        ("reason", record.reason.clone()),
        ("waits for", record.waits_for.clone()),
        ("left out", entries(tally.entries_skipped)),
        ("deleted", entries(tally.entries_deleted)),
    ]);
    facts.extend(record.undeleted.iter().map(|words| ("stays", words.clone())));
    facts.extend(record.losses.iter().map(|loss| ("lost", loss.clone())));
    facts.push(("failed", text_if_above(0, tally.entries_failed, tally.entries_failed.to_string())));
    write_facts(&facts, out)?;
    let failures = record.failures.iter().map(|failure| (&failure.path, &failure.detail));
    let skipped = record.skipped.iter().map(|skipped| (&skipped.path, &skipped.reason));
    write_entries(failures, out)?;
    write_entries(skipped, out)
}

/// Returns a session of a fleet, with its tuner's settings.
fn session_words(session: &MoverSessionRecord) -> String {
    let MoverSessionRecord { source, sink, transport, readers, streams } = session;
    let over = match &**transport {
        "fabric" => "over a fabric".to_owned(),
        _ => format!("{streams} streams"),
    };
    format!("{source} to {sink}: {readers} readers, {over}")
}

fn write_entries<'a>(
    mut entries: impl ExactSizeIterator<Item = (&'a String, &'a String)>,
    out: &mut impl Write,
) -> io::Result<()> {
    for (path, words) in entries.by_ref().take(FAILURES_SHOWN) {
        writeln!(out, "    {}: {}", escape_control_characters(path), escape_control_characters(words))?;
    }
    match entries.len() {
        0 => Ok(()),
        more => writeln!(out, "    and {more} more (--json)"),
    }
}

/// Returns the count with its noun; empty for 0.
pub fn entries(count: u64) -> String {
    match count {
        0 => String::new(),
        1 => "1 entry".to_owned(),
        more => format!("{more} entries"),
    }
}

fn done_of_found(done: String, found: String, tally: &TransferTally) -> String {
    match (tally.is_scanned, tally.files_found) {
        (_, 0) if !tally.is_scanned => String::new(),
        (true, _) => format!("{done} of {found}"),
        (false, _) => format!("{done} of {found} found so far"),
    }
}

/// Returns the progress in a line.
pub fn line(record: &TransferRecord) -> String {
    let tally = &record.tally;
    let mut line = format!("{}  {}", escape_control_characters(&record.id), record.state);
    if tally.files_found > 0 {
        let (done, found) = (size::format_size(tally.bytes_done), size::format_size(tally.bytes_found));
        line.push_str(&format!("  {done} of {found}, {} of {} files", tally.files_done, tally.files_found));
    }
    if tally.bytes_per_s > 0 {
        line.push_str(&format!("  {}", rate(tally.bytes_per_s)));
    }
    if tally.entries_failed > 0 {
        line.push_str(&format!("  {} failed", tally.entries_failed));
    }
    if tally.entries_skipped > 0 {
        line.push_str(&format!("  {} left out", tally.entries_skipped));
    }
    if tally.entries_deleted > 0 {
        line.push_str(&format!("  {} deleted", tally.entries_deleted));
    }
    if !record.waits_for.is_empty() {
        line.push_str(&format!("  waits: {}", escape_control_characters(&record.waits_for)));
    }
    line
}

/// Writes a table of movers.
pub fn write_movers(movers: &[MoverRecord], out: &mut impl Write) -> io::Result<()> {
    if movers.is_empty() {
        return writeln!(out, "no movers");
    }
    let mut table = TextTable::headed(&["<SITE", "<STATE", ">PAIRS", ">RATE", "<HOST", "<PATHS"]);
    for mover in movers {
        let why = if mover.ill.is_empty() { &mover.left_out } else { &mover.ill };
        let state = match mover.state {
            _ if !mover.ill.is_empty() => "unhealthy",
            _ if !mover.left_out.is_empty() => "quarantined",
            MoverAvailability::Idle => "idle",
            MoverAvailability::Busy => "busy",
            MoverAvailability::Draining => "draining",
        };
        table.row(&[
            &mover.site,
            &state,
            &format_args!("{}/{}", mover.pairs, mover.pairs_max),
            &rate(mover.bytes_per_s),
            &mover.host,
            &mover.paths.join(" "),
        ]);
        if !why.is_empty() {
            table.row(&[&format_args!("    {}: {why}", mover.id)]);
        }
    }
    table.write("", out)
}

#[cfg(test)]
mod tests {
    use carrack_register::transfer_records::SkippedEntry;

    use super::*;
    use crate::views::output::tests::text_of;

    fn record() -> TransferRecord {
        let text = r#"{"version":1,"id":"0123456789abcdef","submission":{"source":"local:/a","destination":"local:/b"},
            "user":"alice","state":"running","submitted_ms":1800000000000,"tally":{"files_found":4,"bytes_found":4096,
            "is_scanned":true,"files_done":1,"bytes_done":1024,"bytes_per_s":2048,"bytes_moved":1024,"entries_failed":1},
            "failures":[{"path":"x\u001b[2J","kind":"changed","detail":"why"}]}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_transfer_is_told_without_what_a_terminal_obeys() {
        let text = text_of(|out| write_transfer(&record(), out));
        for words in ["running", "from         local:/a", "1 of 4", "1.0 KiB of 4.0 KiB", "2027-01-15", "why"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains('\u{1b}'));
        assert_eq!(
            line(&record()),
            "0123456789abcdef  running  1.0 KiB of 4.0 KiB, 1 of 4 files  2.0 KiB/s  1 failed"
        );
        let waits = TransferRecord { waits_for: "all 2 movers of site x are full".into(), ..record() };
        assert!(line(&waits).ends_with("  waits: all 2 movers of site x are full"));
        assert!(text_of(|out| write_transfer(&waits, out)).contains("waits for    all 2 movers"));
    }

    #[test]
    fn what_was_left_out_is_told() {
        let skipped = vec![SkippedEntry { path: "run/s".into(), reason: "a socket".into() }];
        let tally = TransferTally { entries_skipped: 2, ..record().tally };
        let left = TransferRecord { skipped, tally, ..record() };
        assert!(line(&left).ends_with("  2 left out"));
        let text = text_of(|out| write_transfer(&left, out));
        for words in ["left out     2 entries\n", "    run/s: a socket"] {
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn what_was_deleted_and_what_stays_is_told() {
        let tally = TransferTally { entries_deleted: 1, ..record().tally };
        let undeleted = vec!["mounts stay".to_owned()];
        let deleted = TransferRecord { undeleted, tally, ..record() };
        assert!(line(&deleted).ends_with("  1 deleted"));
        let text = text_of(|out| write_transfer(&deleted, out));
        for words in ["deleted      1 entry\n", "stays        mounts stay\n"] {
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn lists_have_a_line_for_each() {
        let row = TransferRow::from(&record());
        let later = TransferRow { label: "mine".into(), is_over: true, ..row.clone() };
        let text = text_of(|out| write_list(&[row, later], 1_800_000_180, out));
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains("25%") && text.contains("local:/a to local:/b"), "{text}");
        assert!(text.contains(" 3m ") && text.contains(" 2.0 KiB/s    1s  local:/a"), "{text}");
        assert!(text.ends_with("2.0 KiB/s        local:/a to local:/b  (mine)\n"), "{text}");
        assert_eq!(text_of(|out| write_list(&[], 0, out)), "no transfers\n");
    }
}

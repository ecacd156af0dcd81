//! Submitted transfers and movers for people: a line each, or everything about one. Programs get the records as they are.

use std::io::{self, Write};

use carrack_cluster::records::{MoverRecord, MoverState, Tally, TransferRecord};
use serde::Serialize;

use crate::lifetime::show_moment;
use crate::size;
use crate::trouble::tame;

/// Failures that are shown; `--json` has all that are kept.
const FAILURES_SHOWN: usize = 10;

/// A line of JSON for each.
pub fn write_json(records: &[impl Serialize], out: &mut impl Write) -> io::Result<()> {
    for record in records {
        serde_json::to_writer(&mut *out, record)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// A table of transfers.
pub fn write_list(records: &[TransferRecord], out: &mut impl Write) -> io::Result<()> {
    if records.is_empty() {
        return writeln!(out, "no transfers");
    }
    writeln!(
        out,
        "{:<16}  {:<9}  {:<3}  {:<10}  {:>4}  {:>10}  COPY",
        "ID", "STATE", "PRI", "USER", "DONE", "BYTES"
    )?;
    for record in records {
        let submission = &record.submission;
        writeln!(
            out,
            "{:<16}  {:<9}  {:<3}  {:<10}  {:>4}  {:>10}  {} to {}",
            tame(&record.id),
            record.state.to_string(),
            submission.priority,
            tame(&record.user),
            percent(&record.tally),
            size::show(record.tally.bytes_done),
            tame(&submission.source.to_string()),
            tame(&submission.destination.to_string())
        )?;
    }
    Ok(())
}

/// Of what the scan has found so far; nothing while that says nothing.
fn percent(tally: &Tally) -> String {
    match tally.bytes_found {
        0 => String::new(),
        found => format!("{}%", u128::from(tally.bytes_done.min(found)) * 100 / u128::from(found)),
    }
}

/// Everything about a transfer.
pub fn write_transfer(record: &TransferRecord, out: &mut impl Write) -> io::Result<()> {
    let (submission, tally) = (&record.submission, &record.tally);
    writeln!(out, "{}  {}", tame(&record.id), record.state)?;
    let mut line = |label: &str, words: String| match words.is_empty() {
        true => Ok(()),
        false => writeln!(out, "  {label:<12} {}", tame(&words)),
    };
    let moment = |ms: Option<u64>| ms.map_or(String::new(), |ms| show_moment((ms / 1000) as i64));
    line("from", submission.source.to_string())?;
    line("to", submission.destination.to_string())?;
    line("label", submission.label.clone())?;
    line("of", format!("{}, priority {}", record.user, submission.priority))?;
    line("submitted", moment(Some(record.submitted_ms)))?;
    line("started", moment(record.started_ms))?;
    line("ended", moment(record.ended_ms))?;
    line("files", of_all(tally.files_done.to_string(), tally.files_found.to_string(), tally))?;
    line("bytes", of_all(size::show(tally.bytes_done), size::show(tally.bytes_found), tally))?;
    line(
        "rate",
        if tally.bytes_per_s > 0 { format!("{}/s", size::show(tally.bytes_per_s)) } else { String::new() },
    )?;
    let twice = tally.bytes_moved.saturating_sub(tally.bytes_done);
    line("moved twice", if twice > 0 { size::show(twice) } else { String::new() })?;
    line("pairs", if tally.pairs > 1 { tally.pairs.to_string() } else { String::new() })?;
    line("manager", record.manager.clone())?;
    line("reason", record.reason.clone())?;
    line("waits for", record.waits_for.clone())?;
    line("left out", left_out(tally.entries_skipped))?;
    for loss in &record.losses {
        line("lost", tame(loss))?;
    }
    line("failed", if tally.entries_failed > 0 { tally.entries_failed.to_string() } else { String::new() })?;
    let failures: Vec<_> = record.failures.iter().map(|failure| (&failure.path, &failure.detail)).collect();
    let skipped: Vec<_> = record.skipped.iter().map(|skipped| (&skipped.path, &skipped.reason)).collect();
    write_entries(&failures, out)?;
    write_entries(&skipped, out)
}

fn write_entries(entries: &[(&String, &String)], out: &mut impl Write) -> io::Result<()> {
    for (path, words) in entries.iter().take(FAILURES_SHOWN) {
        writeln!(out, "    {}: {}", tame(path), tame(words))?;
    }
    match entries.len().saturating_sub(FAILURES_SHOWN) {
        0 => Ok(()),
        more => writeln!(out, "    and {more} more (--json)"),
    }
}

/// As the summary of `carrack cp` has it; empty for none.
pub fn left_out(entries: u64) -> String {
    match entries {
        0 => String::new(),
        1 => "1 entry (link, socket, device or pipe)".to_owned(),
        more => format!("{more} entries (links, sockets, devices, pipes)"),
    }
}

fn of_all(done: String, found: String, tally: &Tally) -> String {
    match (tally.is_scanned, tally.files_found) {
        (_, 0) if !tally.is_scanned => String::new(),
        (true, _) => format!("{done} of {found}"),
        (false, _) => format!("{done} of {found} found so far"),
    }
}

/// How far it is, in a line.
pub fn line(record: &TransferRecord) -> String {
    let tally = &record.tally;
    let mut line = format!("{}  {}", tame(&record.id), record.state);
    if tally.files_found > 0 {
        let (done, found) = (size::show(tally.bytes_done), size::show(tally.bytes_found));
        line.push_str(&format!("  {done} of {found}, {} of {} files", tally.files_done, tally.files_found));
    }
    if tally.bytes_per_s > 0 {
        line.push_str(&format!("  {}/s", size::show(tally.bytes_per_s)));
    }
    if tally.entries_failed > 0 {
        line.push_str(&format!("  {} failed", tally.entries_failed));
    }
    if tally.entries_skipped > 0 {
        line.push_str(&format!("  {} left out", tally.entries_skipped));
    }
    if !record.waits_for.is_empty() {
        line.push_str(&format!("  waits: {}", tame(&record.waits_for)));
    }
    line
}

/// A table of movers.
pub fn write_movers(movers: &[MoverRecord], out: &mut impl Write) -> io::Result<()> {
    if movers.is_empty() {
        return writeln!(out, "no movers");
    }
    writeln!(out, "{:<12}  {:<8}  {:>5}  {:>10}  {:<20}  PATHS", "SITE", "STATE", "PAIRS", "RATE", "HOST")?;
    for mover in movers {
        let why = if mover.ill.is_empty() { &mover.left_out } else { &mover.ill };
        let state = match mover.state {
            _ if !why.is_empty() => "left out",
            MoverState::Idle => "idle",
            MoverState::Busy => "busy",
            MoverState::Draining => "draining",
        };
        writeln!(
            out,
            "{:<12}  {state:<8}  {:>5}  {:>10}  {:<20}  {}",
            tame(&mover.site),
            format!("{}/{}", mover.pairs, mover.pairs_max),
            format!("{}/s", size::show(mover.bytes_per_s)),
            tame(&mover.host),
            tame(&mover.paths.join(" "))
        )?;
        if !why.is_empty() {
            writeln!(out, "    {}: {}", tame(&mover.id), tame(why))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use carrack_cluster::records::Skipped;

    use super::*;

    fn record() -> TransferRecord {
        let text = r#"{"version":1,"id":"0123456789abcdef","submission":{"source":"local:/a","destination":"local:/b"},
            "user":"alice","state":"running","submitted_ms":1800000000000,"tally":{"files_found":4,"bytes_found":4096,
            "is_scanned":true,"files_done":1,"bytes_done":1024,"bytes_per_s":2048,"bytes_moved":1024,"entries_failed":1},
            "failures":[{"path":"x\u001b[2J","kind":"changed","detail":"why"}]}"#;
        serde_json::from_str(text).unwrap()
    }

    fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_transfer_is_told_without_what_a_terminal_obeys() {
        let text = written(|out| write_transfer(&record(), out));
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
        assert!(written(|out| write_transfer(&waits, out)).contains("waits for    all 2 movers"));
    }

    #[test]
    fn what_was_left_out_is_told() {
        let skipped = vec![Skipped { path: "run/s".into(), reason: "a socket".into() }];
        let tally = Tally { entries_skipped: 2, ..record().tally };
        let left = TransferRecord { skipped, tally, ..record() };
        assert!(line(&left).ends_with("  2 left out"));
        let text = written(|out| write_transfer(&left, out));
        for words in ["left out     2 entries (links, sockets, devices, pipes)", "    run/s: a socket"] {
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn lists_have_a_line_for_each() {
        let text = written(|out| write_list(&[record(), record()], out));
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains("25%") && text.contains("local:/a to local:/b"), "{text}");
        assert_eq!(written(|out| write_list(&[], out)), "no transfers\n");
    }
}

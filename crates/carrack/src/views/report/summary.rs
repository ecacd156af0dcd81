//! The end of a transfer in words for people: the entries that were copied, those that were not, and the
//! protection of the data.

use carrack_model::limits::FAILURES_LISTED_MAX;
use carrack_model::{ObjectChecksumAlgorithm, ProtectionLevel, RepeatEffect, TransferSummary, escape};

use super::FinishedTransfer;
use crate::exit::{ExitReason, ExitStatus};
use crate::size;
use crate::views::quantity::{bytes_per_s, count_with_noun, group_digits, rate};

/// Returns the lines that follow a transfer, the most important first.
pub fn lines(ending: &FinishedTransfer) -> Vec<String> {
    let mut lines = vec![format!("carrack: {}", headline(ending))];
    lines.extend(loss_line(ending));
    lines.extend(hint_lines(ending));
    lines.extend(protection_line(ending));
    lines.extend(nesting_line(ending));
    lines.extend(manifest_line(ending));
    lines
}

fn headline(ending: &FinishedTransfer) -> String {
    let what = if ending.dry_run { dry_run_phrase(ending) } else { copied_phrase(ending) };
    match ending.end {
        ExitReason::Reached => what,
        ExitReason::Failed => format!("ended early: {what}"),
        ExitReason::Interrupted => format!("interrupted: {what}"),
        ExitReason::TimedOut => format!("timed out: {what}"),
    }
}

fn dry_run_phrase(ending: &FinishedTransfer) -> String {
    let entries = count_with_noun(ending.tally.listed, "entry", "entries");
    let goes = match ending.tally.goes {
        0 => String::new(),
        goes => format!("; would delete {}", count_with_noun(goes, "entry", "entries")),
    };
    format!(
        "would copy {entries}, {}{}{goes}",
        size::format_size(ending.tally.listed_bytes),
        destination_phrase(ending)
    )
}

fn copied_phrase(ending: &FinishedTransfer) -> String {
    let summary = &ending.summary;
    if summary.entries_done() == 0 {
        return match summary.entries_kept {
            0 => "nothing was copied".into(),
            kept => format!("nothing was left to copy; {} there before", entry_count_with_verb(kept)),
        };
    }
    let rate = rate(bytes_per_s(summary.bytes_done, ending.elapsed));
    let (bytes, seconds) = (size::format_size(summary.bytes_done), ending.elapsed.as_secs_f64());
    let before = match (summary.entries_kept, summary.bytes_kept) {
        (0, 0) => String::new(),
        (0, bytes) => format!("; {} were there before", size::format_size(bytes)),
        (kept, bytes) => {
            format!("; {} there before, {}", entry_count_with_verb(kept), size::format_size(bytes))
        }
    };
    format!(
        "copied {}, {bytes} in {seconds:.1} s ({rate}){}{before}",
        kinds(summary),
        destination_phrase(ending)
    )
}

/// Returns the destination, if it is known.
fn destination_phrase(ending: &FinishedTransfer) -> String {
    let destination = ending.destination.as_ref();
    destination.map(|destination| format!(" to {}", escape(destination))).unwrap_or_default()
}

/// Returns a hint if the same command would copy to another place the next time.
fn nesting_line(ending: &FinishedTransfer) -> Option<String> {
    let arrival = ending.tally.arrival.as_ref();
    let is_next = arrival.is_some_and(|arrival| arrival.nesting == RepeatEffect::NextTime);
    let made = ending.destination.as_ref().filter(|_| is_next)?;
    (ending.exit == ExitStatus::Complete && !ending.dry_run).then(|| {
        let made = escape(made);
        format!("hint: run again, this command would copy into {made}; with -T it goes to {made} each time")
    })
}

/// Formats a count as `1 entry was` or `2 entries were`.
fn entry_count_with_verb(number: u64) -> String {
    format!("{} {}", count_with_noun(number, "entry", "entries"), if number == 1 { "was" } else { "were" })
}

/// Returns `3 files, 1 directory`; kinds without entries are left out, except files.
fn kinds(summary: &TransferSummary) -> String {
    let mut kinds = vec![count_with_noun(summary.files_done, "file", "files")];
    if summary.directories_done > 0 {
        kinds.push(count_with_noun(summary.directories_done, "directory", "directories"));
    }
    if summary.symlinks_done > 0 {
        kinds.push(count_with_noun(summary.symlinks_done, "link", "links"));
    }
    if summary.specials_done > 0 {
        kinds.push(count_with_noun(summary.specials_done, "special file", "special files"));
    }
    kinds.join(", ")
}

fn loss_line(ending: &FinishedTransfer) -> Option<String> {
    let summary = &ending.summary;
    let mut losses = Vec::new();
    if summary.entries_failed > 0 {
        losses.push(failed_phrase(ending));
    }
    if summary.entries_deleted > 0 {
        losses.push(format!("{} deleted", count_with_noun(summary.entries_deleted, "entry", "entries")));
    }
    if summary.entries_skipped > 0 {
        losses.push(format!("{} left out", count_with_noun(summary.entries_skipped, "entry", "entries")));
    }
    if summary.objects_reread > 0 {
        losses.push(format!(
            "{} read again because the check failed",
            count_with_noun(summary.objects_reread, "object", "objects")
        ));
    }
    (!losses.is_empty()).then(|| format!("carrack: {}", losses.join("; ")))
}

fn failed_phrase(ending: &FinishedTransfer) -> String {
    let failed = group_digits(ending.summary.entries_failed);
    let kinds: Vec<String> =
        ending.tally.failed_by_kind.iter().map(|(kind, n)| format!("{kind} {}", group_digits(*n))).collect();
    let listed = match ending.tally.failed {
        reported if reported > FAILURES_LISTED_MAX as u64 => {
            format!(", the first {} listed above", group_digits(FAILURES_LISTED_MAX as u64))
        }
        _ => String::new(),
    };
    if kinds.is_empty() {
        format!("{failed} failed")
    } else {
        format!("{failed} failed ({}{listed})", kinds.join(", "))
    }
}

/// Returns one hint for each kind of failure that has one.
fn hint_lines(ending: &FinishedTransfer) -> impl Iterator<Item = String> {
    ending
        .tally
        .failed_by_kind
        .iter()
        .filter_map(|(kind, _)| kind.hint().map(|hint| format!("hint: {kind}: {hint}")))
}

/// Returns the protection of the data, if it left the host.
fn protection_line(ending: &FinishedTransfer) -> Option<String> {
    let connection = ending.tally.connection.filter(|_| ending.summary.entries_done() > 0)?;
    let level = match connection.protection? {
        ProtectionLevel::Private => "private",
        ProtectionLevel::Safe => "safe (authenticated, not encrypted)",
        ProtectionLevel::Clear => "in clear",
    };
    let way = match connection.transport {
        "ssh pipe" => "through ssh".into(),
        "tls" => "with the control channel, over TLS".into(),
        "direct" => "directly between the two hosts".into(),
        "relay" => "through this host, over the control channels".into(),
        _ => format!("over {}", count_with_noun(u64::from(connection.streams), "connection", "connections")),
    };
    let seal = connection.cipher.map(|cipher| format!(", sealed with {cipher}")).unwrap_or_default();
    let check = match ending.checksum {
        // A seal is a check, and so is the protection of ssh and TLS.
        ObjectChecksumAlgorithm::None if connection.protection > Some(ProtectionLevel::Clear) => {
            String::new()
        }
        ObjectChecksumAlgorithm::None => ", not checked".into(),
        checksum => format!(", checked with {checksum}"),
    };
    Some(format!("carrack: data travelled {level} {way}{seal}{check}"))
}

fn manifest_line(ending: &FinishedTransfer) -> Option<String> {
    let manifest = ending.manifest?;
    let is_partial = ending.exit != ExitStatus::Complete;
    let partial = if is_partial { "; only the files that are complete are in it" } else { "" };
    let unusable = match manifest.uncheckable {
        0 => String::new(),
        n => format!(
            "; warning: b3sum --check can't find {} by {}, which no line of text can hold",
            count_with_noun(n, "file", "files"),
            if n == 1 { "its name" } else { "their names" }
        ),
    };
    let is_worth_a_line = is_partial || manifest.uncheckable > 0;
    is_worth_a_line.then(|| {
        format!(
            "carrack: manifest of {}{partial}{unusable}",
            count_with_noun(manifest.lines, "file", "files")
        )
    })
}

#[cfg(test)]
pub mod tests {
    use std::time::Duration;

    use carrack_model::{EntryFailure, FailureKind, ResolvedDestination, TransferEvent};

    use carrack_model::SealCipher;

    use super::*;
    use crate::views::manifest::ManifestLineCounts;
    use crate::views::report::tally::{EventTally, SessionTransportSummary};

    fn connection(transport: &'static str, protection: Option<ProtectionLevel>) -> SessionTransportSummary {
        SessionTransportSummary { streams: 2, transport, protection, cipher: None }
    }

    /// Returns the end of a transfer that was complete after two seconds, over two connections.
    pub fn ending(summary: TransferSummary) -> FinishedTransfer {
        FinishedTransfer {
            exit: ExitStatus::Complete,
            end: ExitReason::Reached,
            summary,
            troubles: Vec::new(),
            tally: EventTally {
                connection: Some(connection("tcp", Some(ProtectionLevel::Clear))),
                ..EventTally::default()
            },
            elapsed: Duration::from_secs(2),
            destination: None,
            dry_run: false,
            checksum: ObjectChecksumAlgorithm::Xxh3,
            manifest: None,
        }
    }

    fn tree() -> TransferSummary {
        TransferSummary {
            files_done: 85_123,
            directories_done: 1,
            symlinks_done: 54,
            bytes_done: 3 << 30,
            ..TransferSummary::default()
        }
    }

    #[test]
    fn a_success_over_the_network() {
        assert_eq!(
            lines(&ending(tree())),
            [
                "carrack: copied 85,123 files, 1 directory, 54 links, 3.0 GiB in 2.0 s (1.5 GiB/s)",
                "carrack: data travelled in clear over 2 connections, checked with xxh3",
            ]
        );
    }

    #[test]
    fn local_data_needs_no_words_and_every_level_has_its_own() {
        let mut ending = ending(tree());
        ending.tally.connection = Some(connection("local", None));
        assert_eq!(lines(&ending).len(), 1);
        ending.checksum = ObjectChecksumAlgorithm::None;
        for (transport, protection, cipher, words) in [
            ("ssh pipe", ProtectionLevel::Private, None, "private through ssh"),
            ("tls", ProtectionLevel::Private, None, "private with the control channel, over TLS"),
            (
                "tcp",
                ProtectionLevel::Private,
                Some(SealCipher::Aes256Gcm),
                "private over 2 connections, sealed with aes-256-gcm",
            ),
            (
                "tcp",
                ProtectionLevel::Safe,
                Some(SealCipher::ChaCha20Poly1305),
                "safe (authenticated, not encrypted) over 2 connections, sealed with chacha20-poly1305",
            ),
            ("tcp", ProtectionLevel::Clear, None, "in clear over 2 connections, not checked"),
            ("direct", ProtectionLevel::Clear, None, "in clear directly between the two hosts, not checked"),
            ("relay", ProtectionLevel::Private, None, "private through this host, over the control channels"),
        ] {
            ending.tally.connection =
                Some(SessionTransportSummary { cipher, ..connection(transport, Some(protection)) });
            assert_eq!(lines(&ending)[1], format!("carrack: data travelled {words}"));
        }
    }

    #[test]
    fn failures_are_counted_by_kind_with_a_hint_each() {
        let mut ending =
            ending(TransferSummary { entries_failed: 3, entries_skipped: 1, ..TransferSummary::default() });
        ending.exit = ExitStatus::Nothing;
        for kind in [FailureKind::Missing, FailureKind::Unreadable, FailureKind::Missing] {
            let failure = EntryFailure { path: b"a"[..].into(), kind, detail: "x".into() };
            ending.tally.add(&TransferEvent::Failed(failure));
        }
        assert_eq!(
            lines(&ending),
            [
                "carrack: nothing was copied",
                "carrack: 3 failed (missing 2, unreadable 1); 1 entry left out",
                "hint: unreadable: run as a user who may read it, or leave it out",
            ]
        );
    }

    #[test]
    fn an_early_end_is_named_and_so_is_a_partial_manifest() {
        let mut ending = ending(tree());
        (ending.exit, ending.end) = (ExitStatus::Interrupted, ExitReason::Interrupted);
        ending.manifest = Some(ManifestLineCounts { lines: 9, uncheckable: 1 });
        let lines = lines(&ending);
        assert!(lines[0].starts_with("carrack: interrupted: copied 85,123 files"), "{lines:?}");
        assert_eq!(
            lines[2],
            "carrack: manifest of 9 files; only the files that are complete are in it; \
             warning: b3sum --check can't find 1 file by its name, which no line of text can hold"
        );
    }

    #[test]
    fn the_destination_is_named_and_so_is_another_one_next_time() {
        let mut ending = ending(tree());
        ending.tally.connection = Some(connection("local", None));
        ending.tally.arrival = Some(ResolvedDestination { name: None, nesting: RepeatEffect::NextTime });
        ending.destination = Some(b"copy".to_vec());
        assert_eq!(
            lines(&ending),
            [
                "carrack: copied 85,123 files, 1 directory, 54 links, 3.0 GiB in 2.0 s (1.5 GiB/s) to copy",
                "hint: run again, this command would copy into copy; with -T it goes to copy each time",
            ]
        );
        // A partial copy resumes to the same place.
        ending.exit = ExitStatus::Partial;
        assert_eq!(lines(&ending).len(), 1);
    }

    #[test]
    fn a_dry_run_says_would() {
        let mut ending = ending(TransferSummary::default());
        ending.dry_run = true;
        (ending.tally.listed, ending.tally.listed_bytes) = (1, 2048);
        assert_eq!(lines(&ending), ["carrack: would copy 1 entry, 2.0 KiB"]);
    }
}

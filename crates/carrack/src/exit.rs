//! The exit codes, on which scripts rely. No other file has their numbers.

use carrack_machine::doctor::Verdict;
use carrack_model::Summary;
use carrack_register::records::{TransferRecord, TransferState};

use crate::trouble::Trouble;

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything is done.
    Complete = 0,
    /// A part is done, and a part is not.
    Partial = 1,
    /// The command line is invalid; nothing was tried.
    Usage = 2,
    /// Nothing is done.
    Nothing = 3,
    /// Ended by `--timeout` or `--stop-at`; the number is timeout(1)'s.
    TimedOut = 124,
    /// Ended by a signal.
    Interrupted = 130,
}

/// The reason why a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was complete.
    Reached,
    /// An error ended it early.
    Failed,
    /// A signal ended it early.
    Interrupted,
    /// Its time was over.
    TimedOut,
}

impl Exit {
    /// The codes and their meanings, for the help and the manual page.
    const MEANINGS: [(Exit, &'static str); 6] = [
        (Exit::Complete, "everything that was asked for is done"),
        (Exit::Partial, "something is done, and something failed or was left undone"),
        (Exit::Usage, "the command line makes no sense; nothing was tried"),
        (Exit::Nothing, "nothing is done"),
        (Exit::TimedOut, "ended by --timeout or --stop-at"),
        (Exit::Interrupted, "interrupted by a signal"),
    ];

    /// Their meanings for `carrack doctor`.
    const MEANINGS_OF_DOCTOR: [(Exit, &'static str); 4] = [
        (Exit::Complete, "all is well; notes and what can't be seen don't count"),
        (Exit::Partial, "something can be improved, or could not be set"),
        (Exit::Usage, "the command line makes no sense; nothing was looked at"),
        (Exit::Nothing, "something keeps transfers from working"),
    ];

    /// Their meanings for `carrack verify`.
    const MEANINGS_OF_VERIFY: [(Exit, &'static str); 5] = [
        (Exit::Complete, "everything is as it should be"),
        (Exit::Partial, "something is, and something differs or could not be compared"),
        (Exit::Usage, "the command line makes no sense; nothing was compared"),
        (Exit::Nothing, "nothing is as it should be, or nothing could be compared"),
        (Exit::Interrupted, "interrupted by a signal"),
    ];

    /// Returns the number.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the outcome with this number, if there is one.
    pub fn of_code(code: u8) -> Option<Exit> {
        Exit::MEANINGS.into_iter().map(|(exit, _)| exit).find(|exit| exit.code() == code)
    }

    /// Returns the outcome of a transfer that ended for this reason; `done` entries are complete (in a dry
    /// run: would be copied).
    pub fn of_transfer(end: End, summary: &Summary, done: u64) -> Exit {
        match end {
            End::Interrupted => Exit::Interrupted,
            End::TimedOut => Exit::TimedOut,
            End::Reached if summary.entries_failed == 0 => Exit::Complete,
            _ if done > 0 => Exit::Partial,
            _ => Exit::Nothing,
        }
    }

    /// Returns the outcome of a submitted transfer that is over, as `carrack cp` would have had it.
    pub fn of_record(record: &TransferRecord) -> Exit {
        match record.state {
            TransferState::Cancelled => Exit::Interrupted,
            TransferState::Done if record.tally.entries_failed == 0 && !record.has_lost_strictly() => {
                Exit::Complete
            }
            _ if record.tally.files_done > 0 => Exit::Partial,
            _ => Exit::Nothing,
        }
    }

    /// Returns the outcome of a command that succeeded `done` times and failed `failed` times.
    pub fn of_counts(done: u64, failed: u64) -> Exit {
        match (done, failed) {
            (_, 0) => Exit::Complete,
            (0, _) => Exit::Nothing,
            _ => Exit::Partial,
        }
    }

    /// Returns the outcome of a command. Prints an error on stderr.
    pub fn of_command(ended: Result<Exit, Trouble>) -> Exit {
        ended.unwrap_or_else(|trouble| {
            trouble.tell();
            Exit::Nothing
        })
    }

    /// Returns the outcome of `carrack doctor`, by its worst finding.
    pub fn of_findings(worst: Option<Verdict>) -> Exit {
        match worst {
            Some(Verdict::Broken) => Exit::Nothing,
            Some(Verdict::Improve) => Exit::Partial,
            Some(Verdict::Note | Verdict::Unknown | Verdict::Well) | None => Exit::Complete,
        }
    }

    /// Returns this outcome, but `Partial` in place of `Complete`: something other than an entry failed.
    pub fn with_loss(self) -> Exit {
        if self == Exit::Complete { Exit::Partial } else { self }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// The heading of the exit codes in the help.
pub const HELP_HEADING: &str = "Exit codes:\n";

/// Returns the end of a command's help: its examples, and the codes as a paragraph.
pub fn help(examples: &str) -> String {
    with_codes(examples, &Exit::MEANINGS)
}

/// Returns the same for `carrack doctor`.
pub fn help_of_doctor(examples: &str) -> String {
    with_codes(examples, &Exit::MEANINGS_OF_DOCTOR)
}

/// Returns the same for `carrack verify`.
pub fn help_of_verify(examples: &str) -> String {
    with_codes(examples, &Exit::MEANINGS_OF_VERIFY)
}

fn with_codes(examples: &str, meanings: &[(Exit, &str)]) -> String {
    let mut text = format!("{examples}{HELP_HEADING}");
    for (exit, meaning) in meanings {
        text.push_str(&format!("  {:>3}  {meaning}\n", exit.code()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(entries_failed: u64) -> Summary {
        Summary { entries_failed, ..Summary::default() }
    }

    #[test]
    fn maps_every_ending() {
        for (end, entries_failed, done, exit) in [
            (End::Reached, 0, 5, Exit::Complete),
            (End::Reached, 0, 0, Exit::Complete),
            (End::Reached, 1, 5, Exit::Partial),
            (End::Reached, 1, 0, Exit::Nothing),
            (End::Failed, 0, 5, Exit::Partial),
            (End::Failed, 0, 0, Exit::Nothing),
            (End::Failed, 1, 0, Exit::Nothing),
            (End::Interrupted, 0, 5, Exit::Interrupted),
            (End::Interrupted, 0, 0, Exit::Interrupted),
            (End::TimedOut, 0, 5, Exit::TimedOut),
        ] {
            assert_eq!(Exit::of_transfer(end, &failed(entries_failed), done), exit, "{end:?}");
        }
    }

    #[test]
    fn counts_what_was_done() {
        for (done, failed, exit) in
            [(0, 0, Exit::Complete), (2, 0, Exit::Complete), (2, 1, Exit::Partial), (0, 1, Exit::Nothing)]
        {
            assert_eq!(Exit::of_counts(done, failed), exit);
        }
    }

    #[test]
    fn the_worst_finding_counts() {
        for (worst, exit) in [
            (None, Exit::Complete),
            (Some(Verdict::Unknown), Exit::Complete),
            (Some(Verdict::Note), Exit::Complete),
            (Some(Verdict::Improve), Exit::Partial),
            (Some(Verdict::Broken), Exit::Nothing),
        ] {
            assert_eq!(Exit::of_findings(worst), exit, "{worst:?}");
        }
    }

    #[test]
    fn a_loss_beside_the_entries_is_not_a_success() {
        assert_eq!(Exit::Complete.with_loss(), Exit::Partial);
        assert_eq!(Exit::Nothing.with_loss(), Exit::Nothing);
        assert_eq!(Exit::Interrupted.with_loss(), Exit::Interrupted);
    }
}

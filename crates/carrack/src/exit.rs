//! The exit codes, on which scripts rely. No other file has their numbers.

use carrack_machine::doctor::CheckVerdict;
use carrack_model::TransferSummary;
use carrack_register::transfer_records::{TransferRecord, TransferState};

use crate::user_error::UserError;

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitStatus {
    /// Everything is done.
    Complete = 0,
    /// A part is done, and a part is not.
    Partial = 1,
    /// The command line is invalid; nothing was tried.
    Usage = 2,
    /// Nothing is done.
    Nothing = 3,
    /// `carrack session` only: the near end speaks other versions of the protocol (EX_PROTOCOL, sysexits(3)).
    OtherVersion = 76,
    /// Ended by `--timeout` or `--stop-at`; the number is timeout(1)'s.
    TimedOut = 124,
    /// Ended by a signal.
    Interrupted = 130,
}

/// The reason why a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// It was complete.
    Reached,
    /// An error ended it early.
    Failed,
    /// A signal ended it early.
    Interrupted,
    /// Its time was over.
    TimedOut,
}

impl ExitStatus {
    /// The codes and their meanings, for the help and the manual page.
    const MEANINGS: [(ExitStatus, &'static str); 6] = [
        (ExitStatus::Complete, "everything that was asked for is done"),
        (ExitStatus::Partial, "something is done, and something failed or was left undone"),
        (ExitStatus::Usage, "the command line makes no sense; nothing was tried"),
        (ExitStatus::Nothing, "nothing is done"),
        (ExitStatus::TimedOut, "ended by --timeout or --stop-at"),
        (ExitStatus::Interrupted, "interrupted by a signal"),
    ];

    /// Their meanings for `carrack doctor`.
    const MEANINGS_OF_DOCTOR: [(ExitStatus, &'static str); 4] = [
        (ExitStatus::Complete, "all is well; notes and what can't be seen don't count"),
        (ExitStatus::Partial, "something can be improved, or could not be set"),
        (ExitStatus::Usage, "the command line makes no sense; nothing was looked at"),
        (ExitStatus::Nothing, "something keeps transfers from working"),
    ];

    /// Their meanings for `carrack verify`.
    const MEANINGS_OF_VERIFY: [(ExitStatus, &'static str); 5] = [
        (ExitStatus::Complete, "everything is as it should be"),
        (ExitStatus::Partial, "something is, and something differs or could not be compared"),
        (ExitStatus::Usage, "the command line makes no sense; nothing was compared"),
        (ExitStatus::Nothing, "nothing is as it should be, or nothing could be compared"),
        (ExitStatus::Interrupted, "interrupted by a signal"),
    ];

    /// Returns the number.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the outcome with this number, if there is one.
    pub fn from_code(code: u8) -> Option<ExitStatus> {
        ExitStatus::MEANINGS.into_iter().map(|(exit, _)| exit).find(|exit| exit.code() == code)
    }

    /// Returns the outcome of a transfer that ended for this reason; `done` entries are complete (in a dry
    /// run: would be copied).
    pub fn of_transfer(end: ExitReason, summary: &TransferSummary, done: u64) -> ExitStatus {
        match end {
            ExitReason::Interrupted => ExitStatus::Interrupted,
            ExitReason::TimedOut => ExitStatus::TimedOut,
            ExitReason::Reached if summary.entries_failed == 0 => ExitStatus::Complete,
            _ if done > 0 => ExitStatus::Partial,
            _ => ExitStatus::Nothing,
        }
    }

    /// Returns the outcome of a submitted transfer that is over, as `carrack cp` would have had it.
    pub fn of_record(record: &TransferRecord) -> ExitStatus {
        match record.state {
            TransferState::Cancelled => ExitStatus::Interrupted,
            TransferState::Done if record.tally.entries_failed == 0 && !record.violates_strict() => {
                ExitStatus::Complete
            }
            _ if record.tally.files_done > 0 => ExitStatus::Partial,
            _ => ExitStatus::Nothing,
        }
    }

    /// Returns the outcome of a command that succeeded `done` times and failed `failed` times.
    pub fn of_counts(done: u64, failed: u64) -> ExitStatus {
        match (done, failed) {
            (_, 0) => ExitStatus::Complete,
            (0, _) => ExitStatus::Nothing,
            _ => ExitStatus::Partial,
        }
    }

    /// Returns the outcome of a command. Prints an error on stderr.
    pub fn of_command_result(ended: Result<ExitStatus, UserError>) -> ExitStatus {
        ended.unwrap_or_else(|trouble| {
            trouble.print();
            ExitStatus::Nothing
        })
    }

    /// Returns the outcome of `carrack doctor`, by its worst finding.
    pub fn of_findings(worst: Option<CheckVerdict>) -> ExitStatus {
        match worst {
            Some(CheckVerdict::Broken) => ExitStatus::Nothing,
            Some(CheckVerdict::Improve) => ExitStatus::Partial,
            Some(CheckVerdict::Note | CheckVerdict::Unknown | CheckVerdict::Well) | None => {
                ExitStatus::Complete
            }
        }
    }

    /// Returns this outcome, but `Partial` in place of `Complete`: something other than an entry failed.
    pub fn partial_if_complete(self) -> ExitStatus {
        if self == ExitStatus::Complete { ExitStatus::Partial } else { self }
    }
}

impl From<ExitStatus> for std::process::ExitCode {
    fn from(exit: ExitStatus) -> Self {
        exit.code().into()
    }
}

/// The heading of the exit codes in the help.
pub const HELP_HEADING: &str = "Exit codes:\n";

/// Returns the end of a command's help: its examples, and the codes as a paragraph.
pub fn help(examples: &str) -> String {
    with_codes(examples, &ExitStatus::MEANINGS)
}

/// Returns the same for `carrack doctor`.
pub fn help_of_doctor(examples: &str) -> String {
    with_codes(examples, &ExitStatus::MEANINGS_OF_DOCTOR)
}

/// Returns the same for `carrack verify`.
pub fn help_of_verify(examples: &str) -> String {
    with_codes(examples, &ExitStatus::MEANINGS_OF_VERIFY)
}

fn with_codes(examples: &str, meanings: &[(ExitStatus, &str)]) -> String {
    let mut text = format!("{examples}{HELP_HEADING}");
    for (exit, meaning) in meanings {
        text.push_str(&format!("  {:>3}  {meaning}\n", exit.code()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(entries_failed: u64) -> TransferSummary {
        TransferSummary { entries_failed, ..TransferSummary::default() }
    }

    #[test]
    fn maps_every_ending() {
        for (end, entries_failed, done, exit) in [
            (ExitReason::Reached, 0, 5, ExitStatus::Complete),
            (ExitReason::Reached, 0, 0, ExitStatus::Complete),
            (ExitReason::Reached, 1, 5, ExitStatus::Partial),
            (ExitReason::Reached, 1, 0, ExitStatus::Nothing),
            (ExitReason::Failed, 0, 5, ExitStatus::Partial),
            (ExitReason::Failed, 0, 0, ExitStatus::Nothing),
            (ExitReason::Failed, 1, 0, ExitStatus::Nothing),
            (ExitReason::Interrupted, 0, 5, ExitStatus::Interrupted),
            (ExitReason::Interrupted, 0, 0, ExitStatus::Interrupted),
            (ExitReason::TimedOut, 0, 5, ExitStatus::TimedOut),
        ] {
            assert_eq!(ExitStatus::of_transfer(end, &failed(entries_failed), done), exit, "{end:?}");
        }
    }

    #[test]
    fn counts_what_was_done() {
        for (done, failed, exit) in [
            (0, 0, ExitStatus::Complete),
            (2, 0, ExitStatus::Complete),
            (2, 1, ExitStatus::Partial),
            (0, 1, ExitStatus::Nothing),
        ] {
            assert_eq!(ExitStatus::of_counts(done, failed), exit);
        }
    }

    #[test]
    fn the_worst_finding_counts() {
        for (worst, exit) in [
            (None, ExitStatus::Complete),
            (Some(CheckVerdict::Unknown), ExitStatus::Complete),
            (Some(CheckVerdict::Note), ExitStatus::Complete),
            (Some(CheckVerdict::Improve), ExitStatus::Partial),
            (Some(CheckVerdict::Broken), ExitStatus::Nothing),
        ] {
            assert_eq!(ExitStatus::of_findings(worst), exit, "{worst:?}");
        }
    }

    #[test]
    fn a_loss_beside_the_entries_is_not_a_success() {
        assert_eq!(ExitStatus::Complete.partial_if_complete(), ExitStatus::Partial);
        assert_eq!(ExitStatus::Nothing.partial_if_complete(), ExitStatus::Nothing);
        assert_eq!(ExitStatus::Interrupted.partial_if_complete(), ExitStatus::Interrupted);
    }
}

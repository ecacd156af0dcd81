//! The exit codes: what a script may rely on. The only place where they are numbers.

use carrack_machine::doctor::Verdict;
use carrack_model::Summary;
use carrack_register::records::{TransferRecord, TransferState};

use crate::trouble::Trouble;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything that was asked for is done.
    Complete = 0,
    /// Something is done and something is not.
    Partial = 1,
    /// The command makes no sense; nothing was tried.
    Usage = 2,
    /// Nothing is done.
    Nothing = 3,
    /// Ended by `--timeout` or `--stop-at`; the number is timeout(1)'s.
    TimedOut = 124,
    /// Ended by a signal.
    Interrupted = 130,
}

/// Why a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It came to its end.
    Reached,
    /// An error ended it early.
    Failed,
    /// A signal did.
    Interrupted,
    /// Its time was over.
    TimedOut,
}

impl Exit {
    /// The codes in words, for the help and the manual page.
    const MEANINGS: [(Exit, &'static str); 6] = [
        (Exit::Complete, "everything that was asked for is done"),
        (Exit::Partial, "something is done, and something failed or was left undone"),
        (Exit::Usage, "the command line makes no sense; nothing was tried"),
        (Exit::Nothing, "nothing is done"),
        (Exit::TimedOut, "ended by --timeout or --stop-at"),
        (Exit::Interrupted, "interrupted by a signal"),
    ];

    /// What they mean for `carrack doctor`.
    const MEANINGS_OF_DOCTOR: [(Exit, &'static str); 4] = [
        (Exit::Complete, "all is well; notes and what can't be seen don't count"),
        (Exit::Partial, "something can be improved, or could not be set"),
        (Exit::Usage, "the command line makes no sense; nothing was looked at"),
        (Exit::Nothing, "something keeps transfers from working"),
    ];

    /// What they mean for `carrack verify`.
    const MEANINGS_OF_VERIFY: [(Exit, &'static str); 5] = [
        (Exit::Complete, "everything is as it should be"),
        (Exit::Partial, "something is, and something differs or could not be compared"),
        (Exit::Usage, "the command line makes no sense; nothing was compared"),
        (Exit::Nothing, "nothing is as it should be, or nothing could be compared"),
        (Exit::Interrupted, "interrupted by a signal"),
    ];

    /// The number.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// What a number means, if it is one of them.
    pub fn of_code(code: u8) -> Option<Exit> {
        Exit::MEANINGS.into_iter().map(|(exit, _)| exit).find(|exit| exit.code() == code)
    }

    /// The code of a transfer that ended so; `done` entries are complete (in a dry run: would be copied).
    pub fn of_transfer(end: End, summary: &Summary, done: u64) -> Exit {
        match end {
            End::Interrupted => Exit::Interrupted,
            End::TimedOut => Exit::TimedOut,
            End::Reached if summary.entries_failed == 0 => Exit::Complete,
            _ if done > 0 => Exit::Partial,
            _ => Exit::Nothing,
        }
    }

    /// The code of a transfer that was submitted and is over: what `carrack cp` would have ended with.
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

    /// The code of a command that did `done` things and failed at `failed`.
    pub fn of_counts(done: u64, failed: u64) -> Exit {
        match (done, failed) {
            (_, 0) => Exit::Complete,
            (0, _) => Exit::Nothing,
            _ => Exit::Partial,
        }
    }

    /// The code of a command that may have come to nothing, which is told on stderr.
    pub fn of_command(ended: Result<Exit, Trouble>) -> Exit {
        ended.unwrap_or_else(|trouble| {
            trouble.tell();
            Exit::Nothing
        })
    }

    /// The code of `carrack doctor`, by the worst that it found.
    pub fn of_findings(worst: Option<Verdict>) -> Exit {
        match worst {
            Some(Verdict::Broken) => Exit::Nothing,
            Some(Verdict::Improve) => Exit::Partial,
            Some(Verdict::Note | Verdict::Unknown | Verdict::Well) | None => Exit::Complete,
        }
    }

    /// This code, or `Partial` if something beside the entries failed too.
    pub fn with_loss(self) -> Exit {
        if self == Exit::Complete { Exit::Partial } else { self }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// Where the exit codes begin in the help.
pub const HELP_HEADING: &str = "Exit codes:\n";

/// The end of a command's help: its examples, and the codes as a paragraph.
pub fn help(examples: &str) -> String {
    with_codes(examples, &Exit::MEANINGS)
}

/// The same for `carrack doctor`.
pub fn help_of_doctor(examples: &str) -> String {
    with_codes(examples, &Exit::MEANINGS_OF_DOCTOR)
}

/// The same for `carrack verify`.
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

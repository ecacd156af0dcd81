//! Operations on single locations other than copying: on this host, over ssh or at a daemon.

use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::ControlFlow;

use carrack_engine::{
    BrowseItem, PathOperationRequest, RemotePathOperation, RemotePathOperationCounts, SessionError,
    perform_local_operation, perform_remote_operation,
};
use carrack_model::text_without_errno;

use crate::exit::ExitStatus;
use crate::options::FarArgs;
use crate::remote::far_end::{self, FarEndAccess, connect_to_far_end};
use crate::remote::location::{EndLocation, FarEndAddress, LocationError, path_text};
use crate::remote::stop_control::StopControl;
use crate::user_error::{UserError, escape_control_characters};
use crate::views::output::print_stdout_error;

/// The reason why an operation failed or ended early.
#[derive(Debug)]
pub enum BrowseStop {
    /// A signal.
    Interrupted,
    /// An error.
    Trouble(UserError),
}

impl BrowseStop {
    /// Prints an error, and returns the exit code of a command that has done nothing yet.
    pub fn print(self) -> ExitStatus {
        match self {
            BrowseStop::Interrupted => ExitStatus::Interrupted,
            BrowseStop::Trouble(trouble) => print_and_return_status(&trouble, ExitStatus::Nothing),
        }
    }
}

/// Runs operations on locations, each in a session of its own.
pub struct RemoteBrowser<'a> {
    args: &'a FarArgs,
    stop_control: StopControl,
}

impl<'a> RemoteBrowser<'a> {
    /// Watches signals from now on; once in a process. Prints an error, and returns the exit code that
    /// follows from it.
    pub fn new(args: &'a FarArgs) -> Result<RemoteBrowser<'a>, ExitStatus> {
        let stop_control = StopControl::watch_signals()
            .map_err(|trouble| print_and_return_status(&trouble, ExitStatus::Nothing))?;
        Ok(RemoteBrowser::with_stop_control(args, stop_control))
    }

    /// Creates a browser whose operations end with those of another part of the command.
    pub fn with_stop_control(args: &'a FarArgs, stop_control: StopControl) -> RemoteBrowser<'a> {
        RemoteBrowser { args, stop_control }
    }

    /// Runs an operation; `found` gets each result, and ends the operation early with `Break`.
    pub fn run(
        &self,
        location: &EndLocation,
        operation: RemotePathOperation,
        found: &mut dyn FnMut(BrowseItem) -> ControlFlow<()>,
    ) -> Result<RemotePathOperationCounts, BrowseStop> {
        let browsing = PathOperationRequest { operation, path: location.path.clone() };
        match &location.far {
            None => {
                let done = perform_local_operation(&browsing, found, &self.stop_control.abort);
                done.map_err(|error| self.stop_reason(&error, None))
            }
            Some(end) => self.run_at(end, &browsing, found),
        }
    }

    fn run_at(
        &self,
        end: &FarEndAddress,
        browsing: &PathOperationRequest,
        found: &mut dyn FnMut(BrowseItem) -> ControlFlow<()>,
    ) -> Result<RemotePathOperationCounts, BrowseStop> {
        let abort = &self.stop_control.abort;
        let done = far_end::retry_while_busy(abort, &mut || {
            let reached =
                connect_to_far_end(end, FarEndAccess::without_transfer(self.args), &self.stop_control);
            let reached = reached.map_err(|unreached| (unreached.into(), None))?;
            let (reached, peer) = reached.ok_or((SessionError::Interrupted, None))?;
            let done = perform_remote_operation(peer, browsing, found, abort);
            let left = reached.disconnect(&self.stop_control, false);
            done.map_err(|error| (error, Some(left)))
        });
        done.map_err(|(error, left)| self.stop_reason(&error, left))
    }

    fn stop_reason(&self, error: &SessionError, left: Option<far_end::FailedFarEnd<'_>>) -> BrowseStop {
        if error.is_interrupted() || self.stop_control.is_stop_requested() {
            BrowseStop::Interrupted
        } else {
            BrowseStop::Trouble(far_end::explain(error, left))
        }
    }
}

/// The outcome of a command, over all of its locations.
#[derive(Debug, Default)]
pub struct RemotePathCommandOutcome {
    done: u64,
    failed: u64,
    is_interrupted: bool,
}

impl RemotePathCommandOutcome {
    /// Adds the outcome of one location and prints its error; returns false if the command must end.
    pub fn add(&mut self, ended: Result<RemotePathOperationCounts, BrowseStop>) -> bool {
        match ended {
            Ok(summary) => {
                self.done += summary.done_count;
                self.failed += summary.failed_count;
            }
            Err(BrowseStop::Interrupted) => self.is_interrupted = true,
            Err(BrowseStop::Trouble(trouble)) => self.report_failure(&trouble),
        }
        !self.is_interrupted
    }

    /// Adds a failure, and prints it.
    pub fn report_failure(&mut self, trouble: &UserError) {
        self.failed += 1;
        trouble.print();
    }

    /// Adds results that were handed on before the rest failed.
    pub fn add_done(&mut self, count: u64) {
        self.done += count;
    }

    /// Adds a failed write to stdout, and prints it unless the reader has closed the pipe.
    pub fn report_write_failure(&mut self, error: &io::Error) {
        self.failed += 1;
        print_stdout_error(error);
    }

    /// Returns the exit code.
    pub fn exit_status(&self) -> ExitStatus {
        if self.is_interrupted {
            ExitStatus::Interrupted
        } else {
            ExitStatus::of_counts(self.done, self.failed)
        }
    }
}

/// Prints the failure of an entry on stderr; a failed write can't be reported.
pub fn print_entry_failure(far: Option<&FarEndAddress>, path: &[u8], detail: &str) {
    let _ = writeln!(
        io::stderr(),
        "carrack: failed: {}: {}",
        path_text(far, path),
        escape_control_characters(&text_without_errno(&detail))
    );
}

/// Parses the locations of a command's arguments. Prints the error of an invalid one, and returns the exit
/// code.
pub fn locations(texts: &[OsString]) -> Result<Vec<EndLocation>, ExitStatus> {
    texts.iter().map(|text| location_or_exit_status(EndLocation::parse_path(text))).collect()
}

/// Returns a location, or the exit code without it.
pub fn location_or_exit_status(
    parsed: Result<EndLocation, LocationError>,
) -> Result<EndLocation, ExitStatus> {
    parsed.map_err(|error| {
        print_and_return_status(&UserError::new(error.to_string()).hint(error.hint()), ExitStatus::Usage)
    })
}

fn print_and_return_status(trouble: &UserError, exit: ExitStatus) -> ExitStatus {
    trouble.print();
    exit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tally_makes_the_code() {
        let mut tally = RemotePathCommandOutcome::default();
        assert_eq!(tally.exit_status(), ExitStatus::Complete);
        assert!(tally.add(Err(BrowseStop::Trouble(UserError::new("no")))));
        assert_eq!(tally.exit_status(), ExitStatus::Nothing);
        assert!(tally.add(Ok(RemotePathOperationCounts { done_count: 2, failed_count: 0 })));
        assert_eq!(tally.exit_status(), ExitStatus::Partial);
        assert!(!tally.add(Err(BrowseStop::Interrupted)));
        assert_eq!(tally.exit_status(), ExitStatus::Interrupted);
        let mut tally = RemotePathCommandOutcome::default();
        tally.add(Ok(RemotePathOperationCounts { done_count: 2, failed_count: 1 }));
        assert_eq!(tally.exit_status(), ExitStatus::Partial);
    }
}

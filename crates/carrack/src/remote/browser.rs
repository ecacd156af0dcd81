//! Operations on single locations other than copying: on this host, over ssh or at a daemon.

use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::ControlFlow;

use carrack_engine::{BrowseSummary, Browsing, Found, Operation, SessionError, browse, browse_here};
use carrack_model::escape;

use crate::exit::Exit;
use crate::options::FarArgs;
use crate::remote::far_end::{self, Approach, reach};
use crate::remote::location::{FarEnd, Location, LocationError};
use crate::remote::reins::Reins;
use crate::trouble::{Trouble, tame};
use crate::views::output::tell_unwritten;

/// The reason why an operation failed or ended early.
#[derive(Debug)]
pub enum Stop {
    /// A signal.
    Interrupted,
    /// An error.
    Trouble(Trouble),
}

/// Runs operations on locations, each in a session of its own.
pub struct Browser<'a> {
    args: &'a FarArgs,
    reins: Reins,
}

impl<'a> Browser<'a> {
    /// Watches signals from now on; once in a process. Prints an error, and returns the exit code that
    /// follows from it.
    pub fn new(args: &'a FarArgs) -> Result<Browser<'a>, Exit> {
        let reins = Reins::take().map_err(|trouble| told(&trouble, Exit::Nothing))?;
        Ok(Browser { args, reins })
    }

    /// Runs an operation; `found` gets each result, and ends the operation early with `Break`.
    pub fn run(
        &self,
        location: &Location,
        operation: Operation,
        found: &mut dyn FnMut(Found) -> ControlFlow<()>,
    ) -> Result<BrowseSummary, Stop> {
        let browsing = Browsing { operation, path: location.path.clone() };
        match &location.far {
            None => {
                let done = browse_here(&browsing, found, &self.reins.abort);
                done.map_err(|error| self.stop(&error, None))
            }
            Some(end) => self.run_at(end, &browsing, found),
        }
    }

    fn run_at(
        &self,
        end: &FarEnd,
        browsing: &Browsing,
        found: &mut dyn FnMut(Found) -> ControlFlow<()>,
    ) -> Result<BrowseSummary, Stop> {
        let abort = &self.reins.abort;
        let done = far_end::in_turn(abort, &mut || {
            let reached = reach(end, Approach::plain(self.args), &self.reins);
            let reached = reached.map_err(|unreached| (unreached.into(), None))?;
            let (reached, peer) = reached.ok_or((SessionError::Interrupted, None))?;
            let done = browse(peer, browsing, found, abort);
            let left = reached.leave(&self.reins, false);
            done.map_err(|error| (error, Some(left)))
        });
        done.map_err(|(error, left)| self.stop(&error, left))
    }

    fn stop(&self, error: &SessionError, left: Option<far_end::Left<'_>>) -> Stop {
        if error.is_interrupted() || self.reins.is_told_to_end() {
            Stop::Interrupted
        } else {
            Stop::Trouble(far_end::explain(error, left))
        }
    }
}

/// The outcome of a command, over all of its locations.
#[derive(Debug, Default)]
pub struct Tally {
    done: u64,
    failed: u64,
    is_interrupted: bool,
}

impl Tally {
    /// Adds the outcome of one location and prints its error; returns false if the command must end.
    pub fn add(&mut self, ended: Result<BrowseSummary, Stop>) -> bool {
        match ended {
            Ok(summary) => {
                self.done += summary.done_count;
                self.failed += summary.failed_count;
            }
            Err(Stop::Interrupted) => self.is_interrupted = true,
            Err(Stop::Trouble(trouble)) => self.fail(&trouble),
        }
        !self.is_interrupted
    }

    /// Adds a failure, and prints it.
    pub fn fail(&mut self, trouble: &Trouble) {
        self.failed += 1;
        trouble.tell();
    }

    /// Adds results that were handed on before the rest failed.
    pub fn add_done(&mut self, count: u64) {
        self.done += count;
    }

    /// Adds a failed write to stdout, and prints it unless the reader has closed the pipe.
    pub fn fail_to_write(&mut self, error: &io::Error) {
        self.failed += 1;
        tell_unwritten(error);
    }

    /// Returns the exit code.
    pub fn exit(&self) -> Exit {
        if self.is_interrupted { Exit::Interrupted } else { Exit::of_counts(self.done, self.failed) }
    }
}

/// Prints the failure of an entry on stderr; a failed write can't be reported.
pub fn tell_failure(path: &[u8], detail: &str) {
    let _ = writeln!(io::stderr(), "carrack: failed: {}: {}", escape(path), tame(detail));
}

/// Parses the locations of a command's arguments. Prints the error of an invalid one, and returns the exit
/// code.
pub fn locations(texts: &[OsString]) -> Result<Vec<Location>, Exit> {
    texts.iter().map(|text| located(Location::parse_path(text))).collect()
}

/// Returns a location, or the exit code without it.
pub fn located(parsed: Result<Location, LocationError>) -> Result<Location, Exit> {
    parsed.map_err(|error| told(&Trouble::new(error.to_string()).hint(error.hint()), Exit::Usage))
}

fn told(trouble: &Trouble, exit: Exit) -> Exit {
    trouble.tell();
    exit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tally_makes_the_code() {
        let mut tally = Tally::default();
        assert_eq!(tally.exit(), Exit::Complete);
        assert!(tally.add(Err(Stop::Trouble(Trouble::new("no")))));
        assert_eq!(tally.exit(), Exit::Nothing);
        assert!(tally.add(Ok(BrowseSummary { done_count: 2, failed_count: 0 })));
        assert_eq!(tally.exit(), Exit::Partial);
        assert!(!tally.add(Err(Stop::Interrupted)));
        assert_eq!(tally.exit(), Exit::Interrupted);
        let mut tally = Tally::default();
        tally.add(Ok(BrowseSummary { done_count: 2, failed_count: 1 }));
        assert_eq!(tally.exit(), Exit::Partial);
    }
}

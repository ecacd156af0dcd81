//! Writing of reports to stdout, and the outcome of a failed write.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;

use crate::exit::ExitStatus;
use crate::user_error::UserError;
use crate::views::canvas;

/// Writes a report to stdout.
pub fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    write(&mut out)?;
    out.flush()
}

/// Returns the outcome of writing. A closed pipe is no error: the reader has seen enough.
pub fn write_outcome(result: io::Result<()>) -> Result<ExitStatus, UserError> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(stdout_error(&error)),
        _ => Ok(ExitStatus::Complete),
    }
}

/// Writes a report to stdout, and its picture to a file if one is named; prints write errors.
pub fn print_with_picture(
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    picture: Option<(&Path, String)>,
) -> ExitStatus {
    let count = 1 + u64::from(picture.is_some());
    let printed = write_outcome(print(write)).map(drop);
    let drawn = picture.map_or(Ok(()), |(path, picture)| canvas::write(&picture, path));
    let troubles = [printed, drawn].into_iter().filter_map(Result::err);
    let failed = troubles.inspect(UserError::print).count() as u64;
    ExitStatus::of_counts(count - failed, failed)
}

/// Returns the error that stdout can't be written.
pub fn stdout_error(error: &io::Error) -> UserError {
    UserError::new(format!("writing to stdout: {error}"))
}

/// Prints the error that stdout can't be written, unless the reader has closed the pipe.
pub fn print_stdout_error(error: &io::Error) {
    if error.kind() != ErrorKind::BrokenPipe {
        stdout_error(error).print();
    }
}

/// Writes reports one after the other to stdout, until a write fails; an empty line separates reports for
/// people.
pub struct StdoutReportWriter {
    out: BufWriter<io::Stdout>,
    is_json: bool,
    done: u64,
    failed: u64,
    /// True if a write has failed.
    pub is_over: bool,
}

impl StdoutReportWriter {
    /// Creates a writer without reports.
    pub fn new(is_json: bool) -> StdoutReportWriter {
        StdoutReportWriter { out: BufWriter::new(io::stdout()), is_json, done: 0, failed: 0, is_over: false }
    }

    /// Writes a report at once, so that it precedes messages about the next.
    pub fn write(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        if self.is_over {
            return;
        }
        let blank = if self.is_json || self.done == 0 { "" } else { "\n" };
        let written = self.out.write_all(blank.as_bytes()).and_then(|()| write(&mut self.out));
        match written.and_then(|()| self.out.flush()) {
            Ok(()) => self.done += 1,
            Err(error) => {
                print_stdout_error(&error);
                (self.failed, self.is_over) = (self.failed + 1, true);
            }
        }
    }

    /// Counts and prints a failure in place of a report.
    pub fn report_failure(&mut self, trouble: &UserError) {
        self.failed += 1;
        trouble.print();
    }

    /// Returns the exit code.
    pub fn into_exit_status(self) -> ExitStatus {
        // After an error the rest of the buffer can't be written either.
        let _ = self.out.into_parts();
        ExitStatus::of_counts(self.done, self.failed)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns the written text.
    pub fn text_of(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }
}

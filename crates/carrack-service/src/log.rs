//! The daemon's own log: lines on standard error, which systemd keeps. The sessions' results are in the audit
//! log.

use std::fmt::Display;
use std::io::Write;

use carrack_model::text_without_errno;
use serde::{Deserialize, Serialize};

/// The log's verbosity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LogVerbosity {
    /// Warnings only.
    Quiet,
    /// Also beginnings and ends.
    #[default]
    Normal,
    /// Also connections of strangers, and the confinement of each session.
    Verbose,
}

/// A log, which writes lines. Copies share no state.
#[derive(Clone, Copy, Debug, Default)]
pub struct DaemonLog(pub LogVerbosity);

impl DaemonLog {
    /// Logs a warning for the administrator.
    pub fn warn(self, line: impl Display) {
        // With one call, as the sessions write to the same stream. There is no other place to report an
        // error.
        let line = format!("carrack: {}\n", one_line(&text_without_errno(&line)));
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    /// Logs a beginning or an end.
    pub fn info(self, line: impl Display) {
        if self.0 >= LogVerbosity::Normal {
            self.warn(line);
        }
    }

    /// Logs a detail.
    pub fn detail(self, line: impl FnOnce() -> String) {
        if self.0 >= LogVerbosity::Verbose {
            self.warn(line());
        }
    }
}

/// Replaces control characters: a peer's text in a line must not begin another line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn a_line_is_one_line() {
        assert_eq!(one_line("a\nb\x1b[2J"), "a b [2J");
    }
}

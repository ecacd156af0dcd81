//! The daemon's own log: lines on standard error, which systemd keeps. What sessions did is in the audit log.

use std::fmt::Display;
use std::io::Write;

use serde::{Deserialize, Serialize};

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verbosity {
    /// What went wrong.
    Quiet,
    /// Beginnings and ends too.
    #[default]
    Normal,
    /// What strangers did, and how each session is confined.
    Verbose,
}

/// Writes lines. Copies share nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Log(pub Verbosity);

impl Log {
    /// Something went wrong that an administrator has to know.
    pub fn warn(self, line: impl Display) {
        // In one piece: the sessions write to the same place. Nobody is left to be told where that can't be done.
        let line = format!("carrack: {}\n", one_line(&line.to_string()));
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    /// Something began or ended.
    pub fn note(self, line: impl Display) {
        if self.0 >= Verbosity::Normal {
            self.warn(line);
        }
    }

    /// A detail.
    pub fn detail(self, line: impl FnOnce() -> String) {
        if self.0 >= Verbosity::Verbose {
            self.warn(line());
        }
    }
}

/// What a peer said may be part of a line, and must not make another.
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

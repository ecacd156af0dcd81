//! Errors of a command as a whole, in words, with hints.

use std::fmt;
use std::io::{self, Write};

use carrack_model::text_without_errno;

use crate::colour::{self, TextColour};

/// A message for the user and, if there is one, a hint.
///
/// Other crates create it by its functions only: messages have no numbers of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UserError {
    /// The error; one line, no full stop.
    pub message: String,
    /// The hint.
    pub hint: Option<String>,
}

impl UserError {
    /// Creates an error without a hint.
    pub fn new(message: impl Into<String>) -> UserError {
        UserError { message: text_without_errno(&message.into()), hint: None }
    }

    /// Creates an error with the hint that its reason has; an empty hint counts as none.
    pub fn explained(message: impl fmt::Display, hint: Option<impl Into<String>>) -> UserError {
        let hint = hint.map(Into::into).filter(|hint| !hint.is_empty());
        UserError { message: text_without_errno(&message), hint }
    }

    /// Adds a hint.
    pub fn hint(self, hint: impl Into<String>) -> UserError {
        UserError { hint: Some(hint.into()), ..self }
    }

    /// Returns the message in one line, the hint in brackets.
    pub fn line(&self) -> String {
        self.hint.as_ref().map_or_else(|| self.message.clone(), |hint| format!("{} ({hint})", self.message))
    }

    /// Escapes control characters, which a terminal would obey: the text may be another machine's.
    pub fn escaped(self) -> UserError {
        UserError {
            message: escape_control_characters(&self.message),
            hint: self.hint.as_deref().map(escape_control_characters),
        }
    }

    /// Returns the lines for a terminal.
    pub fn terminal_text(&self, in_colour: bool) -> String {
        let error = colour::paint("error:", TextColour::Red, in_colour);
        let line = format!("carrack: {error} {}", self.message);
        match &self.hint {
            Some(hint) => format!("{line}\n{} {hint}", colour::paint("hint:", TextColour::Cyan, in_colour)),
            None => line,
        }
    }

    /// Prints it on stderr; an error of that is ignored, as there is no other place for it.
    pub fn print(&self) {
        let _ = writeln!(io::stderr(), "{}", self.terminal_text(colour::wants_colour(&io::stderr())));
    }
}

/// Prints what the user may want to know on stderr; an error of that is ignored.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "carrack: {}", text_without_errno(&text));
}

/// Prints a warning on stderr; an error of that is ignored, as there is no other place for it.
pub fn warn(text: &str) {
    let warning = colour::paint("warning:", TextColour::Yellow, colour::wants_colour(&io::stderr()));
    let _ = writeln!(io::stderr(), "carrack: {warning} {}", text_without_errno(&text));
}

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.terminal_text(false))
    }
}

/// Escapes a text's control characters, which a terminal would obey.
pub fn escape_control_characters(text: &str) -> String {
    let mut tamed = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { tamed.extend(c.escape_default()) } else { tamed.push(c) }
    }
    tamed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_machines_words_cannot_drive_the_terminal() {
        let trouble = UserError::new("a\\b\x1b[2J").hint("x\r\ny").escaped();
        assert_eq!((&*trouble.message, trouble.hint.as_deref()), ("a\\b\\u{1b}[2J", Some("x\\r\\ny")));
    }

    #[test]
    fn the_systems_numbers_are_left_out() {
        let missing = io::Error::from_raw_os_error(2);
        let explained = UserError::explained(format!("x: {missing}"), Some(""));
        for trouble in [UserError::new(format!("x: {missing}")), explained.clone().escaped(), explained] {
            assert_eq!(trouble.to_string(), "carrack: error: x: No such file or directory");
        }
    }

    #[test]
    fn a_terminal_gets_colour() {
        let shown = UserError::new("no").hint("yes").terminal_text(true);
        assert_eq!(shown, "carrack: \u{1b}[1;31merror:\u{1b}[0m no\n\u{1b}[1;36mhint:\u{1b}[0m yes");
    }

    #[test]
    fn ends_with_the_hint() {
        assert_eq!(UserError::new("no").to_string(), "carrack: error: no");
        assert_eq!(UserError::new("no").hint("yes").to_string(), "carrack: error: no\nhint: yes");
    }
}

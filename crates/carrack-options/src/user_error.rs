//! Errors of a command as a whole, in words, with hints.

use std::fmt;
use std::io::{self, Write};

/// A message for the user and, if there is one, a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserError {
    /// The error; one line, no full stop.
    pub message: String,
    /// The hint.
    pub hint: Option<String>,
}

impl UserError {
    /// Creates an error without a hint.
    pub fn new(message: impl Into<String>) -> UserError {
        UserError { message: message.into(), hint: None }
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
    pub fn tamed(self) -> UserError {
        UserError { message: tame(&self.message), hint: self.hint.as_deref().map(tame) }
    }

    /// Prints it on stderr; an error of that is ignored, as there is no other place for it.
    pub fn tell(&self) {
        let _ = writeln!(io::stderr(), "{self}");
    }
}

/// Prints a warning on stderr; an error of that is ignored, as there is no other place for it.
pub fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "carrack: warning: {text}");
}

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "carrack: error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Escapes a text's control characters, which a terminal would obey.
pub fn tame(text: &str) -> String {
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
        let trouble = UserError::new("a\\b\x1b[2J").hint("x\r\ny").tamed();
        assert_eq!((&*trouble.message, trouble.hint.as_deref()), ("a\\b\\u{1b}[2J", Some("x\\r\\ny")));
    }

    #[test]
    fn ends_with_the_hint() {
        assert_eq!(UserError::new("no").to_string(), "carrack: error: no");
        assert_eq!(UserError::new("no").hint("yes").to_string(), "carrack: error: no\nhint: yes");
    }
}

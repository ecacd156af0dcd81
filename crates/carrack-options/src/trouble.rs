//! What went wrong with a command as a whole, in words, and what to do about it.

use std::fmt;
use std::io::{self, Write};

/// A message for the user and, where there is one, a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What happened; one line, no full stop.
    pub message: String,
    /// What the user can do.
    pub hint: Option<String>,
}

impl Trouble {
    /// Trouble without a hint.
    pub fn new(message: impl Into<String>) -> Trouble {
        Trouble { message: message.into(), hint: None }
    }

    /// The same with a hint.
    pub fn hint(self, hint: impl Into<String>) -> Trouble {
        Trouble { hint: Some(hint.into()), ..self }
    }

    /// In one line, the hint in brackets.
    pub fn line(&self) -> String {
        self.hint.as_ref().map_or_else(|| self.message.clone(), |hint| format!("{} ({hint})", self.message))
    }

    /// The same without what a terminal would obey: some of it may be another machine's words.
    pub fn tamed(self) -> Trouble {
        Trouble { message: tame(&self.message), hint: self.hint.as_deref().map(tame) }
    }

    /// Tells it on stderr; nobody can be told if that fails.
    pub fn tell(&self) {
        let _ = writeln!(io::stderr(), "{self}");
    }
}

/// Warns on stderr; nobody can be told if that fails.
pub fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "carrack: warning: {text}");
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "carrack: error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// The text without what a terminal would obey.
pub fn tame(text: &str) -> String {
    let mut tamed = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => tamed.extend(c.escape_default()),
            false => tamed.push(c),
        }
    }
    tamed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_machines_words_cannot_drive_the_terminal() {
        let trouble = Trouble::new("a\\b\x1b[2J").hint("x\r\ny").tamed();
        assert_eq!((&*trouble.message, trouble.hint.as_deref()), ("a\\b\\u{1b}[2J", Some("x\\r\\ny")));
    }

    #[test]
    fn ends_with_the_hint() {
        assert_eq!(Trouble::new("no").to_string(), "carrack: error: no");
        assert_eq!(Trouble::new("no").hint("yes").to_string(), "carrack: error: no\nhint: yes");
    }
}

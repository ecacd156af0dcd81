//! Colour of messages on a terminal.
//!
//! As usual among programs: none in pipes and files, none with NO_COLOR (no-color.org) or a dumb terminal,
//! and everywhere with CLICOLOR_FORCE.

use std::ffi::OsString;
use std::io::IsTerminal;

/// A colour of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextColour {
    /// For errors and failures.
    Red,
    /// For warnings, and for states that need attention.
    Yellow,
    /// For states that are well.
    Green,
    /// For hints, and for states in progress.
    Cyan,
}

impl TextColour {
    /// Returns the parameter of the escape sequence (ECMA-48, SGR).
    fn parameter(self) -> u8 {
        match self {
            TextColour::Red => 31,
            TextColour::Green => 32,
            TextColour::Yellow => 33,
            TextColour::Cyan => 36,
        }
    }
}

/// Returns true if text to this stream gets colour.
pub fn wants_colour(stream: &impl IsTerminal) -> bool {
    wants_colour_with(stream.is_terminal(), |name| std::env::var_os(name))
}

fn wants_colour_with(is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> bool {
    if variable("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        return false;
    }
    if variable("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0") {
        return true;
    }
    is_terminal && variable("TERM").is_some_and(|term| term != "dumb")
}

/// Returns the text in bold and in this colour, if colour is wanted.
pub fn paint(text: &str, colour: TextColour, is_wanted: bool) -> String {
    if is_wanted { format!("\u{1b}[1;{}m{text}\u{1b}[0m", colour.parameter()) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_decide_before_the_terminal() {
        for (variables, on_terminal, elsewhere) in [
            (&[("TERM", "xterm")][..], true, false),
            (&[], false, false),
            (&[("TERM", "dumb")], false, false),
            (&[("TERM", "xterm"), ("NO_COLOR", "1")], false, false),
            (&[("TERM", "xterm"), ("NO_COLOR", "")], true, false),
            (&[("TERM", "dumb"), ("CLICOLOR_FORCE", "1")], true, true),
            (&[("TERM", "xterm"), ("CLICOLOR_FORCE", "0")], true, false),
            (&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], false, false),
        ] {
            let value_of = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
            };
            let found = [true, false].map(|is_terminal| wants_colour_with(is_terminal, value_of));
            assert_eq!(found, [on_terminal, elsewhere], "{variables:?}");
        }
    }
}

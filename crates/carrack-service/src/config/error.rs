//! Errors in a configuration, with the line of each.

use thiserror::Error;

use super::MAX_CONFIG_BYTES;

/// Separator of a message and its hint within a deserializer's error.
pub(super) const HINT: &str = "\nhint: ";

/// An error in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}{message}")]
pub struct ConfigError {
    /// `line 3 (rate = "x"): `, or empty.
    place: String,
    message: String,
    hint: String,
    line: Option<usize>,
}

impl ConfigError {
    pub(super) fn new(text: &str, error: &toml::de::Error) -> ConfigError {
        let (message, hint) = split(error.message());
        ConfigError::at_position(text, error.span().map(|span| span.start), message, hint)
    }

    /// Creates an error at a byte of the text, if its position is known.
    pub(super) fn at_position(
        text: &str,
        start: Option<usize>,
        message: String,
        hint: String,
    ) -> ConfigError {
        let line = start.map(|start| text[..start.min(text.len())].matches('\n').count() + 1);
        let place = line.map_or(String::new(), |line| {
            let content = text.lines().nth(line - 1).unwrap_or_default().trim();
            let shown: String = content.chars().filter(|c| !c.is_control()).take(60).collect();
            if shown.is_empty() { format!("line {line}: ") } else { format!("line {line} ({shown}): ") }
        });
        ConfigError { place, message, hint, line }
    }

    pub(super) fn too_long() -> ConfigError {
        let message = format!("the configuration is longer than {MAX_CONFIG_BYTES} bytes");
        let hint = "is this the right file?".to_owned();
        ConfigError { place: String::new(), message, hint, line: None }
    }

    /// Returns the number of the line, from 1.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// Returns a hint for the administrator.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

fn split(said: &str) -> (String, String) {
    if let Some((message, hint)) = said.split_once(HINT) {
        return (message.to_owned(), hint.to_owned());
    }
    let hint = match said {
        _ if said.starts_with("unknown field") => {
            "a key that isn't known would do nothing: take it out or correct it"
        }
        _ if said.starts_with("missing field") => {
            "add it; packaging/carrack.toml shows every key with its meaning"
        }
        _ if said.starts_with("invalid type") => "packaging/carrack.toml shows what the key wants",
        _ if said.contains("socket address") => {
            "write ADDRESS:PORT, such as \"0.0.0.0:7512\" or \"[::]:7512\""
        }
        _ => "packaging/carrack.toml shows every key with its meaning",
    };
    (said.trim().replace('\n', ", "), hint.to_owned())
}

//! The form of identity names, which appear in configurations, in logs and on terminals.

use thiserror::Error;

/// The longest name, in bytes: that of a DNS name.
pub const MAX_NAME_BYTES: usize = 255;

/// An invalid name of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum IdentityNameError {
    /// The name is empty.
    #[error("the name is empty")]
    Empty,
    /// The name is longer than [`MAX_NAME_BYTES`].
    #[error("the name is longer than {MAX_NAME_BYTES} bytes")]
    TooLong,
    /// The name has a character that can't be shown, or a blank at an end.
    #[error("the name has control or invisible characters, or blanks at its ends")]
    Unseen,
}

/// Checks that a name can be shown as it is: letters, digits, the signs of ASCII, blanks within.
///
/// # Errors
/// The first problem.
pub fn check_identity_name(name: &str) -> Result<(), IdentityNameError> {
    match name {
        "" => Err(IdentityNameError::Empty),
        _ if name.len() > MAX_NAME_BYTES => Err(IdentityNameError::TooLong),
        _ if !name.chars().all(is_visible) || name.trim() != name => Err(IdentityNameError::Unseen),
        _ => Ok(()),
    }
}

fn is_visible(c: char) -> bool {
    c.is_ascii_graphic() || c == ' ' || (!c.is_ascii() && c.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_people_use_are_names() {
        for name in ["alice", "alice@dtn1.example.org", "spiffe://site/mover", "Ada Lovelace", "Jörg"] {
            assert_eq!(check_identity_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn what_can_not_be_seen_is_no_name() {
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        for (name, error) in [
            ("", IdentityNameError::Empty),
            (long.as_str(), IdentityNameError::TooLong),
            ("alice\n", IdentityNameError::Unseen),
            ("alice\0", IdentityNameError::Unseen),
            (" alice", IdentityNameError::Unseen),
            ("al\u{202e}ice", IdentityNameError::Unseen),
            ("al\u{200b}ice", IdentityNameError::Unseen),
            ("\u{1b}[2J", IdentityNameError::Unseen),
        ] {
            assert_eq!(check_identity_name(name), Err(error), "{name:?}");
        }
    }
}

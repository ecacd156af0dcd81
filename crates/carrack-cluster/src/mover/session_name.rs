//! The name of a session between movers, by which both ends' counts of moved bytes are matched.

use std::fmt;

use crate::transfer_records::is_name;
use crate::unique_ids;

/// Sent by the source's mover in place of a token: its certificate has proved its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionName {
    /// The transfer's ID.
    pub transfer: String,
    /// The session's ID, unique among all sessions of all transfers.
    pub session: String,
}

impl SessionName {
    /// Creates the name of a new session.
    pub fn new(transfer: &str) -> SessionName {
        SessionName { transfer: transfer.to_owned(), session: unique_ids::new_id() }
    }

    /// Parses a name; `None` if it is invalid.
    pub fn read(said: &str) -> Option<SessionName> {
        let (transfer, session) =
            said.split_once('.').filter(|(one, other)| is_name(one) && is_name(other))?;
        Some(SessionName { transfer: transfer.to_owned(), session: session.to_owned() })
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.transfer, self.session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_said() {
        let name = SessionName::new("0123456789abcdef");
        assert_ne!(name, SessionName::new("0123456789abcdef"));
        assert_eq!(SessionName::read(&name.to_string()), Some(name));
        for other in ["", "a", "a.", ".a", "a.b.c", "a.*", "a b.c"] {
            assert_eq!(SessionName::read(other), None, "{other:?}");
        }
    }
}

//! Which session it is that a mover is called for, so that both ends' counts of what it moved are known to be of the same.

use std::fmt;

use crate::ids;
use crate::records::is_name;

/// Said by the source's mover where other callers show a token: who it is its certificate has proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionName {
    /// The transfer's id.
    pub transfer: String,
    /// Of all sessions of all transfers, which it is.
    pub session: String,
}

impl SessionName {
    /// Of a session that begins.
    pub fn new(transfer: &str) -> SessionName {
        SessionName { transfer: transfer.to_owned(), session: ids::new_id() }
    }

    /// As it was said; nothing if it can't be one.
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

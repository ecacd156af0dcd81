//! The two roles of a session's ends.

use carrack_model::Side;

/// The part of this process in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It reads.
    Source,
    /// It writes.
    Sink,
}

impl Role {
    /// Returns the role of the other end.
    pub(crate) fn other(self) -> Role {
        match self {
            Role::Source => Role::Sink,
            Role::Sink => Role::Source,
        }
    }

    /// Returns the same as a side of events.
    pub(crate) fn side(self) -> Side {
        match self {
            Role::Source => Side::Source,
            Role::Sink => Side::Sink,
        }
    }
}

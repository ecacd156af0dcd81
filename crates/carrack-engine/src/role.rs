//! The two roles of a session's ends.

use carrack_model::FailureSide;

/// The part of this process in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionRole {
    /// It reads.
    Source,
    /// It writes.
    Sink,
}

impl SessionRole {
    /// Returns the role of the other end.
    pub(crate) fn other(self) -> SessionRole {
        match self {
            SessionRole::Source => SessionRole::Sink,
            SessionRole::Sink => SessionRole::Source,
        }
    }

    /// Returns the same as a side of events.
    pub(crate) fn side(self) -> FailureSide {
        match self {
            SessionRole::Source => FailureSide::Source,
            SessionRole::Sink => FailureSide::Sink,
        }
    }
}

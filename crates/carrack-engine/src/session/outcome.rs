//! The outcome of a session.

use carrack_model::TransferSummary;

use crate::counters::TransferCounters;
use crate::error::SessionError;

/// The furthest stage that a session reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FurthestSessionPoint {
    /// It was not established.
    None,
    /// Both ends had agreed on everything.
    Stood,
    /// Objects or entries were moved.
    Moved,
}

/// The end of a transfer.
#[derive(Debug)]
pub struct TransferOutcome {
    /// The completed work, as far as this end knows.
    pub summary: TransferSummary,
    /// Success if everything was tried; failures of single entries are in the summary.
    pub result: Result<(), SessionError>,
    /// The furthest stage that the session reached.
    pub advance: FurthestSessionPoint,
}

/// The counters of both ends of an established session, and its result.
pub(super) type SessionResult = (TransferCounters, Result<(), SessionError>);

impl TransferOutcome {
    pub(super) fn of(ended: Result<SessionResult, SessionError>) -> TransferOutcome {
        match ended {
            Ok((both, result)) => {
                let advance =
                    if both.has_moved() { FurthestSessionPoint::Moved } else { FurthestSessionPoint::Stood };
                TransferOutcome { summary: both.summary(), result, advance }
            }
            Err(error) => TransferOutcome::failed(error),
        }
    }

    /// Returns the outcome of a session that was not established.
    pub fn failed(error: SessionError) -> TransferOutcome {
        TransferOutcome {
            summary: TransferSummary::default(),
            result: Err(error),
            advance: FurthestSessionPoint::None,
        }
    }
}

//! The outcome of a session.

use carrack_model::Summary;

use crate::counters::BothEnds;
use crate::error::SessionError;

/// The furthest stage that a session reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Advance {
    /// It was not established.
    None,
    /// Both ends had agreed on everything.
    Stood,
    /// Objects or entries were moved.
    Moved,
}

/// The end of a transfer.
#[derive(Debug)]
pub struct Outcome {
    /// The completed work, as far as this end knows.
    pub summary: Summary,
    /// Success if everything was tried; failures of single entries are in the summary.
    pub result: Result<(), SessionError>,
    /// The furthest stage that the session reached.
    pub advance: Advance,
}

/// The counters of both ends of an established session, and its result.
pub(super) type Ended = (BothEnds, Result<(), SessionError>);

impl Outcome {
    pub(super) fn of(ended: Result<Ended, SessionError>) -> Outcome {
        match ended {
            Ok((both, result)) => {
                let advance = if both.has_moved() { Advance::Moved } else { Advance::Stood };
                Outcome { summary: both.summary(), result, advance }
            }
            Err(error) => Outcome::failed(error),
        }
    }

    /// Returns the outcome of a session that was not established.
    pub fn failed(error: SessionError) -> Outcome {
        Outcome { summary: Summary::default(), result: Err(error), advance: Advance::None }
    }
}

//! An episode of the tuner, from a cause for trials to the next rest.

use std::time::Duration;

use super::decision::TunerSearchCause;
use super::knob::TunerKnob;
use super::search::SearchReach;

/// Purpose of the present settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum KnobTrialPhase {
    /// Measure the kept settings.
    Measure,
    /// Measure another value.
    Try(KnobAttempt),
    /// Move data.
    Settled { look_at: Duration, bottleneck_at: Duration, is_other_since: Option<Duration> },
}

/// Another value of one knob.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct KnobAttempt {
    pub knob: TunerKnob,
    pub value: u32,
    /// True if less is tried of a knob that is not the bottleneck.
    pub is_release: bool,
}

/// From a cause to the next rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchEpisode {
    pub cause: TunerSearchCause,
    pub reach: SearchReach,
    pub trials: u32,
    pub has_gained: bool,
    pub has_released: bool,
}

impl SearchEpisode {
    pub fn new(cause: TunerSearchCause, reach: SearchReach) -> SearchEpisode {
        SearchEpisode { cause, reach, trials: 0, has_gained: false, has_released: false }
    }
}

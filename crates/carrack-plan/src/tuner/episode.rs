//! What a tuner is at, from a cause to try something to the next rest.

use std::time::Duration;

use super::decision::Cause;
use super::knob::Knob;
use super::search::Reach;

/// What the present settings are for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Aim {
    /// To know what the kept settings bring.
    Measure,
    /// To see what another value brings.
    Try(Attempt),
    /// To move data.
    Settled { look_at: Duration, bottleneck_at: Duration, is_other_since: Option<Duration> },
}

/// Another value of one knob.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Attempt {
    pub knob: Knob,
    pub value: u32,
    /// Whether less is tried of something that is not the bottleneck.
    pub is_release: bool,
}

/// From a cause to the next rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Episode {
    pub cause: Cause,
    pub reach: Reach,
    pub trials: u32,
    pub has_gained: bool,
    pub has_released: bool,
}

impl Episode {
    pub fn new(cause: Cause, reach: Reach) -> Episode {
        Episode { cause, reach, trials: 0, has_gained: false, has_released: false }
    }
}

//! The measurements of an end that decide on the use of flash.

use std::time::{Duration, Instant};

use carrack_plan::SpillWindowSample;

use super::spilling_lane::{LaneByteFlow, LaneWaitingObjects};

/// The interval of measurements.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Measurements in a window.
const LOOKS: u32 = 4;

/// Collects measurements into windows.
pub(super) struct SpillWindowSampler {
    due: Instant,
    began: Instant,
    looks: u32,
    held_back: f64,
    moved: LaneByteFlow,
}

impl SpillWindowSampler {
    pub(super) fn new(moved: LaneByteFlow) -> SpillWindowSampler {
        let now = Instant::now();
        SpillWindowSampler { due: now + LOOK_EVERY, began: now, looks: 0, held_back: 0.0, moved }
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// Returns a window, if one is complete.
    pub(super) fn sample(
        &mut self,
        side: &impl LaneWaitingObjects,
        is_holding: bool,
    ) -> Option<SpillWindowSample> {
        let now = Instant::now();
        if now < self.due {
            return None;
        }
        self.due = now + LOOK_EVERY;
        self.looks += 1;
        self.held_back += side.waiting_thread_fraction();
        if self.looks < LOOKS {
            return None;
        }
        let moved = side.byte_flow();
        let is_later = moved.came >= self.moved.came && moved.went >= self.moved.went;
        assert!(is_later, "bytes that were moved stay counted");
        let window = SpillWindowSample {
            span: now - self.began,
            read_bytes: moved.came - self.moved.came,
            left_bytes: moved.went - self.moved.went,
            held_back: self.held_back / f64::from(self.looks),
            is_holding,
        };
        *self = SpillWindowSampler { due: self.due, began: now, looks: 0, held_back: 0.0, moved };
        Some(window)
    }
}

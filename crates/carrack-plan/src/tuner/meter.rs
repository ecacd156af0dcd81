//! Rates from cumulative samples.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sample::Sample;

/// Shorter intervals are joined with the next one: a few slots more or less would be noise.
const INTERVAL_MIN: Duration = Duration::from_millis(150);

/// What each stage moves, in bytes per second.
///
/// While a queue fills or empties they differ, and the throughput of the whole is one that does not last: more writers empty the
/// sink's queue faster than the network fills it. What lasts is the least of the three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageRates {
    /// What comes into the outbox.
    pub read: f64,
    /// What leaves it for the sink's queue.
    pub sent: f64,
    /// What the sink answers.
    pub written: f64,
}

impl StageRates {
    /// The throughput that these stages can keep up.
    pub fn lasting(&self) -> f64 {
        self.read.min(self.sent).min(self.written).max(0.0)
    }

    /// A mean that moves towards these by such a part of the difference.
    pub(super) fn approach(&mut self, other: &StageRates, weight: f64) {
        self.read += weight * (other.read - self.read);
        self.sent += weight * (other.sent - self.sent);
        self.written += weight * (other.written - self.written);
    }
}

/// What happened between two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reading {
    /// When the interval began.
    pub since: Duration,
    pub rates: StageRates,
    /// The part of what was sent that was sent again.
    pub loss: f64,
}

/// Remembers where the present interval began.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    since: Sample,
}

impl Meter {
    /// When the last interval ended.
    pub fn at(&self) -> Duration {
        self.since.at
    }

    /// What the interval that ends with this sample says; nothing while it goes on.
    ///
    /// An interval without a byte goes on: where answers come in bursts (groups of a journal) the rate is that of whole bursts, and a
    /// stall, which no knob ends, is not taken for a slow curve. So does one with fewer than `objects_min` objects, one for each thread that
    /// makes them: threads that each take seconds for an object (a bundle of small files) end together, and then nothing comes for as long.
    pub fn read(&mut self, sample: &Sample, objects_min: u64) -> Option<Reading> {
        let since = self.since;
        if sample.is_held || sample.work == 0 {
            self.since = *sample;
            return None;
        }
        let span = sample.at.saturating_sub(since.at);
        let objects = sample.objects.saturating_sub(since.objects);
        if span < INTERVAL_MIN || sample.bytes <= since.bytes || objects < objects_min {
            return None;
        }
        self.since = *sample;
        let sent = sample.sent.saturating_sub(since.sent).max(1);
        let again = sample.retransmitted.saturating_sub(since.retransmitted);
        let loss = (again as f64 / sent as f64).min(1.0);
        Some(Reading { since: since.at, rates: rates(&since, sample, span), loss })
    }
}

/// What came into a queue is what left it and what it has gained.
fn rates(from: &Sample, to: &Sample, span: Duration) -> StageRates {
    let rate = |from: u64, to: u64| (to as f64 - from as f64) / span.as_secs_f64();
    let queue = |sample: &Sample| sample.sink_queue.map_or(0, |fill| fill.waiting);
    let written = rate(from.bytes, to.bytes);
    let sent = written + rate(queue(from), queue(to));
    StageRates { read: sent + rate(from.outbox.waiting, to.outbox.waiting), sent, written }
}

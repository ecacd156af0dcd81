//! Rates from cumulative samples.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sample::SessionSample;

/// Shorter intervals are joined with the next one: a few slots more or less would be noise.
const INTERVAL_MIN: Duration = Duration::from_millis(150);

/// The rate of each stage, in bytes per second.
///
/// While a queue fills or empties the rates differ, and the throughput of the whole does not last: more
/// writers empty the sink's queue faster than the network fills it. The least of the three lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageRates {
    /// Rate into the outbox.
    pub read: f64,
    /// Rate from the outbox into the sink's queue.
    pub sent: f64,
    /// Rate of the sink's answers.
    pub written: f64,
}

impl StageRates {
    /// Returns the throughput that these stages can keep up.
    pub fn sustained_rate(&self) -> f64 {
        self.read.min(self.sent).min(self.written).max(0.0)
    }

    /// Moves the mean by this part of the difference.
    pub(super) fn approach(&mut self, other: &StageRates, weight: f64) {
        self.read += weight * (other.read - self.read);
        self.sent += weight * (other.sent - self.sent);
        self.written += weight * (other.written - self.written);
    }
}

/// The measurement between two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RateReading {
    /// Begin of the interval.
    pub since: Duration,
    pub rates: StageRates,
    /// The retransmitted part of the bytes sent.
    pub loss: f64,
}

/// Remembers the begin of the present interval.
#[derive(Clone, Debug, Default)]
pub(super) struct RateMeter {
    since: SessionSample,
}

impl RateMeter {
    /// Returns the end of the last interval.
    pub fn interval_end(&self) -> Duration {
        self.since.at
    }

    /// Returns the measurement of the interval that ends with this sample; `None` while it continues.
    ///
    /// An interval without a byte continues: where answers come in bursts (groups of a journal) the rate is
    /// that of whole bursts, and a stall, which no knob ends, does not count as a slow curve. An interval
    /// with fewer than `objects_min` objects, one for each thread that makes them, continues as well: threads
    /// that each take seconds for an object (a bundle of small files) end together, and then no object comes
    /// for as long.
    pub fn read(&mut self, sample: &SessionSample, objects_min: u64) -> Option<RateReading> {
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
        Some(RateReading { since: since.at, rates: rates(&since, sample, span), loss })
    }
}

/// The rate into a queue is the rate out of the queue plus its growth.
fn rates(from: &SessionSample, to: &SessionSample, span: Duration) -> StageRates {
    let written = rate(from.bytes, to.bytes, span);
    let sent = written + rate(sink_queue_bytes(from), sink_queue_bytes(to), span);
    let read = sent + rate(from.outbox.waiting, to.outbox.waiting, span);
    StageRates { read, sent, written }
}

fn rate(from: u64, to: u64, span: Duration) -> f64 {
    (to as f64 - from as f64) / span.as_secs_f64()
}

fn sink_queue_bytes(sample: &SessionSample) -> u64 {
    sample.sink_queue.map_or(0, |fill| fill.waiting)
}

//! The engine's samples of a session, and the stage that limits it.

use std::fmt;
use std::time::Duration;

use super::knob::TunerKnob;

/// Part of the machine's CPU time from which on it is full: more threads hardly help then.
const CPU_FULL: f64 = 0.95;

/// A queue counts as full above this part and as empty again below its complement, so that a half full queue
/// changes nothing.
const QUEUE_FULL: f64 = 0.65;

/// The weight of a new sample among those of the last second, at four samples a second.
const NEW_WEIGHT: f64 = 0.25;

/// The fill and the capacity of a queue. In bytes, so that the rates in and out can be distinguished; slots
/// times their size is precise enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFill {
    /// Waiting bytes.
    pub waiting: u64,
    /// Upper bound of waiting bytes.
    pub capacity: u64,
}

impl QueueFill {
    /// From 0, empty, to 1, full.
    fn share(self) -> f64 {
        self.waiting.min(self.capacity) as f64 / self.capacity.max(1) as f64
    }
}

/// The state of a session at a moment. Bytes and segments are counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SessionSample {
    /// Time since the session's start.
    pub at: Duration,
    /// Bytes of payload that the sink has answered.
    pub bytes: u64,
    /// Objects that the sink has answered.
    pub objects: u64,
    /// Segments, or bytes, that all data connections have sent: any unit common to both counts.
    pub sent: u64,
    /// The retransmitted ones among them.
    pub retransmitted: u64,
    /// The part of the machine's CPU time used since the last sample, 0 to 1: the fuller end's, where both
    /// are known.
    pub cpu: f64,
    /// Objects that wait in the source's target queues. Without any the sample says nothing about a curve.
    pub work: u64,
    /// True if rate limits or grants have held the transfer back since the last sample. Then it says nothing
    /// either.
    pub is_held: bool,
    /// Objects that were read and wait to be sent.
    pub outbox: QueueFill,
    /// Objects that wait at the sink to be written, if the sink reports them.
    pub sink_queue: Option<QueueFill>,
}

/// The stage that limits the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// Work waits, and the outbox is empty.
    Reading,
    /// The outbox is full, and the sink has little to write.
    Network,
    /// The outbox is full, and the sink does not report its queue.
    NetworkOrWriting,
    /// Received objects wait to be written.
    Writing,
}

impl Bottleneck {
    /// Returns the knobs that may help, the likeliest first.
    pub fn knobs(self) -> &'static [TunerKnob] {
        match self {
            Bottleneck::Reading => &[TunerKnob::Readers],
            Bottleneck::Network => &[TunerKnob::Streams],
            Bottleneck::NetworkOrWriting => &[TunerKnob::Streams, TunerKnob::Writers],
            Bottleneck::Writing => &[TunerKnob::Writers],
        }
    }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bottleneck::Reading => "reading",
            Bottleneck::Network => "the network",
            Bottleneck::NetworkOrWriting => "the way to the sink",
            Bottleneck::Writing => "writing",
        })
    }
}

/// The queues and the CPU over the last second.
#[derive(Clone, Debug, Default)]
pub(super) struct StageGauges {
    outbox: FillGauge,
    /// `None` until the sink has reported.
    sink_queue: Option<FillGauge>,
    cpu: f64,
    samples: u32,
}

/// A smoothed fill, with hysteresis.
#[derive(Clone, Copy, Debug, Default)]
struct FillGauge {
    share: f64,
    is_full: bool,
}

impl FillGauge {
    fn learn(&mut self, share: f64, weight: f64) {
        self.share += weight * (share - self.share);
        let mark = if self.is_full { 1.0 - QUEUE_FULL } else { QUEUE_FULL };
        self.is_full = self.share > mark;
    }
}

impl StageGauges {
    pub fn learn(&mut self, sample: &SessionSample) {
        self.samples = self.samples.saturating_add(1);
        // A running mean at first, so that the first samples don't count for more than others.
        let weight = NEW_WEIGHT.max(1.0 / f64::from(self.samples));
        self.cpu += weight * (sample.cpu - self.cpu);
        self.outbox.learn(sample.outbox.share(), weight);
        if let Some(fill) = sample.sink_queue {
            self.sink_queue.get_or_insert_default().learn(fill.share(), weight);
        }
    }

    pub fn bottleneck(&self) -> Bottleneck {
        match self.sink_queue {
            Some(queue) if queue.is_full => Bottleneck::Writing,
            _ if !self.outbox.is_full => Bottleneck::Reading,
            Some(_) => Bottleneck::Network,
            None => Bottleneck::NetworkOrWriting,
        }
    }

    pub fn is_cpu_full(&self) -> bool {
        self.cpu >= CPU_FULL
    }
}

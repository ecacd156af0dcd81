//! What the engine sees of a session at a moment, and which stage holds the others up.

use std::fmt;
use std::time::Duration;

use super::knob::Knob;

/// The part of the machine's CPU time from which on it is full: more of anything hardly helps then.
const CPU_FULL: f64 = 0.95;

/// A queue counts as full above this part and as empty again below its complement, so that one that is half full
/// changes nothing.
const QUEUE_FULL: f64 = 0.65;

/// The weight of a new sample among those of the last second, at four samples a second.
const NEW_WEIGHT: f64 = 0.25;

/// How much waits in a queue, and of how much. In bytes, so that what comes in can be told from what goes out; slots times their
/// size is good enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFill {
    /// Bytes that wait.
    pub waiting: u64,
    /// Bytes that could wait.
    pub capacity: u64,
}

impl QueueFill {
    /// From 0, empty, to 1, full.
    fn share(self) -> f64 {
        self.waiting.min(self.capacity) as f64 / self.capacity.max(1) as f64
    }
}

/// A session as it is at a moment. Bytes and segments are counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Since the session's start.
    pub at: Duration,
    /// Bytes of payload that the sink has answered.
    pub bytes: u64,
    /// Objects that it has answered.
    pub objects: u64,
    /// Segments, or bytes, that all data connections have sent: any unit that is the same for both.
    pub sent: u64,
    /// Those among them that were sent again.
    pub retransmitted: u64,
    /// The part of the machine's CPU time that was used since the last sample, 0 to 1: the fuller end's, where both are known.
    pub cpu: f64,
    /// Objects that wait in the source's target queues. Without any the sample says nothing about a curve.
    pub work: u64,
    /// Whether rate limits or grants have held the transfer back since the last sample. Then it says nothing either.
    pub is_held: bool,
    /// What was read and waits to be sent.
    pub outbox: QueueFill,
    /// What waits at the sink to be written, if the sink tells.
    pub sink_queue: Option<QueueFill>,
}

/// The stage that holds the others up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// Work waits, and nothing waits to be sent.
    Reading,
    /// What was read waits to be sent, and the sink has little to write.
    Network,
    /// What was read waits to be sent, and what the sink does is not known.
    NetworkOrWriting,
    /// What has arrived waits to be written.
    Writing,
}

impl Bottleneck {
    /// The knobs that may help, the likeliest first.
    pub fn knobs(self) -> &'static [Knob] {
        match self {
            Bottleneck::Reading => &[Knob::Readers],
            Bottleneck::Network => &[Knob::Streams],
            Bottleneck::NetworkOrWriting => &[Knob::Streams, Knob::Writers],
            Bottleneck::Writing => &[Knob::Writers],
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
pub(super) struct Stages {
    outbox: Gauge,
    /// `None` until the sink has told.
    sink_queue: Option<Gauge>,
    cpu: f64,
    samples: u32,
}

/// A smoothed fill, with hysteresis.
#[derive(Clone, Copy, Debug, Default)]
struct Gauge {
    share: f64,
    is_full: bool,
}

impl Gauge {
    fn learn(&mut self, share: f64, weight: f64) {
        self.share += weight * (share - self.share);
        let mark = if self.is_full { 1.0 - QUEUE_FULL } else { QUEUE_FULL };
        self.is_full = self.share > mark;
    }
}

impl Stages {
    pub fn learn(&mut self, sample: &Sample) {
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

//! Models of sessions to tune: curves of a knob, a path that several transfers share, a pipeline of stages
//! with queues. All random numbers are from a seed.

use std::time::Duration;

use super::super::*;
use super::baseline_rules::SimulatedBaselineTuner;

/// Interval between samples.
pub const SAMPLE: Duration = Duration::from_millis(250);

/// Unit of the models' rates.
pub const UNIT: f64 = 1e8;

/// A controller of knobs.
pub trait TestedKnobController {
    fn value(&self, knob: TunerKnob) -> u32;
    fn observe(&mut self, sample: &SessionSample) -> Option<TunerDecision>;
}

impl TestedKnobController for SessionTuner {
    fn value(&self, knob: TunerKnob) -> u32 {
        SessionTuner::value(self, knob)
    }

    fn observe(&mut self, sample: &SessionSample) -> Option<TunerDecision> {
        SessionTuner::observe(self, sample)
    }
}

/// Turns one knob by a simpler rule.
pub struct TestBaselineController(pub TunerKnob, pub SimulatedBaselineTuner);

impl TestedKnobController for TestBaselineController {
    fn value(&self, knob: TunerKnob) -> u32 {
        if knob == self.0 { self.1.value() } else { 4 }
    }

    fn observe(&mut self, sample: &SessionSample) -> Option<TunerDecision> {
        self.1.observe(sample);
        None
    }
}

/// The result of one interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimulatedIntervalResult {
    /// In [`UNIT`]s per second.
    pub rate: f64,
    /// The retransmitted part.
    pub loss: f64,
    pub cpu: f64,
    /// From 0 to 1.
    pub outbox: f64,
    pub sink_queue: f64,
}

/// Random numbers (Knuth's MMIX generator).
#[derive(Clone)]
pub struct TestRandomGenerator(pub u64);

impl TestRandomGenerator {
    /// From 0 to 1.
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / f64::from(1u32 << 31)
    }

    /// About a normal distribution of deviation 1 (Irwin and Hall).
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next()).sum::<f64>() - 6.0
    }
}

/// One transfer: its controller, and its results.
pub struct SimulatedSession<C> {
    pub controller: C,
    pub noise: f64,
    /// Correlation of the deviations of a sample and the next one.
    pub correlation: f64,
    deviation: f64,
    /// The sink answers with every n-th sample.
    pub answers_every: usize,
    /// Capacity of the outbox, and of the sink's queue.
    pub queue_bytes: u64,
    pub object_bytes: u64,
    chance: TestRandomGenerator,
    sample: SessionSample,
    bytes: f64,
    sent: f64,
    again: f64,
    last: [u32; 3],
    pub decisions: Vec<TunerDecision>,
    /// Seconds at which a knob was turned.
    pub changes: Vec<f64>,
    /// Its values after each sample, and the bytes before it without noise.
    pub trace: Vec<(f64, [u32; 3], f64)>,
}

impl<C: TestedKnobController> SimulatedSession<C> {
    pub fn new(controller: C, noise: f64, seed: u64) -> SimulatedSession<C> {
        let last = TunerKnob::ALL.map(|knob| controller.value(knob));
        SimulatedSession {
            controller,
            noise,
            correlation: 0.0,
            deviation: 0.0,
            answers_every: 1,
            queue_bytes: 64 << 20,
            object_bytes: 1 << 20,
            chance: TestRandomGenerator(seed.wrapping_mul(2).wrapping_add(1)),
            sample: SessionSample { work: 100, ..SessionSample::default() },
            bytes: 0.0,
            sent: 0.0,
            again: 0.0,
            last,
            decisions: Vec::new(),
            changes: Vec::new(),
            trace: Vec::new(),
        }
    }

    pub fn values(&self) -> [u32; 3] {
        TunerKnob::ALL.map(|knob| self.controller.value(knob))
    }

    /// Reports the flow so far to the controller.
    pub fn tell(&mut self, now: f64, flow: SimulatedIntervalResult) {
        let fresh = (1.0 - self.correlation * self.correlation).sqrt() * self.chance.normal();
        self.deviation = self.correlation * self.deviation + fresh;
        let noise = (1.0 + self.noise * self.deviation).max(0.0);
        let bytes = flow.rate * UNIT * SAMPLE.as_secs_f64();
        self.bytes += bytes * noise;
        self.sent += bytes;
        self.again += bytes * flow.loss;
        let capacity = self.queue_bytes;
        let fill = |share: f64| QueueFill { waiting: (share * capacity as f64) as u64, capacity };
        let is_answered = self.trace.len().is_multiple_of(self.answers_every);
        let bytes = if is_answered { self.bytes as u64 } else { self.sample.bytes };
        self.sample = SessionSample {
            at: self.sample.at + SAMPLE,
            bytes,
            objects: bytes / self.object_bytes,
            sent: self.sent as u64,
            retransmitted: self.again as u64,
            cpu: flow.cpu,
            outbox: fill(flow.outbox),
            sink_queue: Some(fill(flow.sink_queue)),
            ..self.sample
        };
        self.decisions.extend(self.controller.observe(&self.sample));
        let values = self.values();
        if values != self.last {
            self.changes.push(now);
            self.last = values;
        }
        self.trace.push((now, values, flow.rate));
    }

    /// The mean rate between two times, in units per second.
    pub fn mean(&self, from: f64, to: f64) -> f64 {
        let rates = || self.trace.iter().filter(|(at, ..)| *at > from && *at <= to).map(|(.., rate)| rate);
        rates().sum::<f64>() / rates().count() as f64
    }

    /// Returns the most changes in any minute that begins after these seconds.
    pub fn changes_in_a_minute(&self, after: f64) -> usize {
        let late: Vec<f64> = self.changes.iter().copied().filter(|at| *at >= after).collect();
        late.iter()
            .map(|from| late.iter().filter(|at| **at >= *from && **at < from + 60.0).count())
            .max()
            .unwrap_or(0)
    }
}

/// Streams whose windows grow: new ones bring less at first.
#[derive(Clone, Debug)]
pub struct StreamRampModel {
    round_trip: f64,
    /// Seconds since each stream began.
    ages: Vec<f64>,
}

impl StreamRampModel {
    pub fn new(round_trip: f64) -> StreamRampModel {
        StreamRampModel { round_trip, ages: Vec::new() }
    }

    /// Returns the equivalent number of full streams after this time: a window doubles each round trip, nine
    /// times until it is full.
    pub fn worth(&mut self, streams: u32, span: f64) -> f64 {
        self.ages.resize(streams as usize, 0.0);
        self.ages.iter_mut().for_each(|age| *age += span);
        if self.round_trip == 0.0 {
            return f64::from(streams);
        }
        self.ages.iter().map(|age| (2f64.powf(age / self.round_trip - 9.0)).min(1.0)).sum()
    }
}

/// One knob, and throughput as a function of it.
pub struct SimulatedKnobThroughput {
    pub name: &'static str,
    pub knob: TunerKnob,
    pub range: KnobRange,
    /// Seconds.
    pub round_trip: f64,
    /// Units per second for a value, or for an equivalent number of streams.
    pub curve: Box<dyn Fn(f64) -> f64>,
    /// Retransmitted part of the bytes, for a value.
    pub loss: Box<dyn Fn(f64) -> f64>,
    /// Part of the CPU time, for a value.
    pub cpu: Box<dyn Fn(f64) -> f64>,
}

impl SimulatedKnobThroughput {
    pub fn new(
        name: &'static str,
        knob: TunerKnob,
        range: KnobRange,
        curve: impl Fn(f64) -> f64 + 'static,
    ) -> SimulatedKnobThroughput {
        SimulatedKnobThroughput {
            name,
            knob,
            range,
            round_trip: 0.0,
            curve: Box::new(curve),
            loss: Box::new(|_| 0.0),
            cpu: Box::new(|_| 0.2),
        }
    }

    pub fn setup(&self) -> TunerSetup {
        let ranges =
            PerKnob::from_fn(|knob| if knob == self.knob { self.range } else { KnobRange::fixed(4) });
        TunerSetup { ranges, round_trip: Duration::from_secs_f64(self.round_trip) }
    }

    /// Returns the throughput of the best fixed value.
    pub fn best(&self) -> f64 {
        let values = (self.range.least..=self.range.most).filter(|value| self.range.clamp(*value) == *value);
        values.map(|value| (self.curve)(f64::from(value))).fold(0.0, f64::max)
    }

    /// Runs a session until this second.
    pub fn run<C: TestedKnobController>(&self, session: &mut SimulatedSession<C>, until: f64) {
        self.run_as(session, until, |value, _| (self.curve)(value));
    }

    /// The same, with a curve that changes: of the value and the time in seconds.
    pub fn run_as<C: TestedKnobController>(
        &self,
        session: &mut SimulatedSession<C>,
        until: f64,
        curve: impl Fn(f64, f64) -> f64,
    ) {
        let span = SAMPLE.as_secs_f64();
        let mut ramp =
            StreamRampModel::new(if self.knob == TunerKnob::Streams { self.round_trip } else { 0.0 });
        let mut now = 0.0;
        while now < until {
            now += span;
            let value = session.controller.value(self.knob);
            let rate = curve(ramp.worth(value, span), now);
            let outbox = if self.knob == TunerKnob::Readers { 0.0 } else { 1.0 };
            let sink_queue = if self.knob == TunerKnob::Writers { 1.0 } else { 0.0 };
            let (loss, cpu) = ((self.loss)(f64::from(value)), (self.cpu)(f64::from(value)));
            session.tell(now, SimulatedIntervalResult { rate, loss, cpu, outbox, sink_queue });
        }
    }
}

/// Returns the rate of each stream of a path, in units per second: a window of 4 MiB each round trip.
pub fn window_per_round_trip(round_trip: f64) -> f64 {
    4.0 * 1_048_576.0 / round_trip / UNIT
}

/// Returns one target's rate with this many requests at a time: the second one brings a bit, more of them
/// seek.
fn target(requests: f64) -> f64 {
    match requests {
        few if few <= 1.0 => few,
        few if few <= 2.0 => 1.0 + 0.15 * (few - 1.0),
        many => (1.15 - 0.03 * (many - 2.0)).max(0.5),
    }
}

/// The conditions of the issue, with the session's defaults.
pub fn conditions() -> Vec<SimulatedKnobThroughput> {
    let threads = KnobRange::new(1, 64, 4);
    let (near, far) = (KnobRange::doubling(2, 4, 2), KnobRange::doubling(8, 16, 8));
    let pipe = |name, round_trip, link: f64| {
        let each = window_per_round_trip(round_trip);
        SimulatedKnobThroughput {
            round_trip,
            ..SimulatedKnobThroughput::new(name, TunerKnob::Streams, far, move |n| (n * each).min(link))
        }
    };
    // Mathis and others 1997: 1.22 segments of 1,448 bytes for each round trip and square root of the loss.
    let mathis = 1_448.0 * 1.22 / (0.02 * 0.0001f64.sqrt()) / UNIT;
    vec![
        SimulatedKnobThroughput::new("fast disk", TunerKnob::Readers, threads, |_| 20.0),
        SimulatedKnobThroughput::new("slow disk, 8 targets", TunerKnob::Readers, threads, |n| {
            8.0 * target(n / 8.0)
        }),
        pipe("long fat pipe, 50 ms", 0.05, 12.5),
        pipe("long fat pipe, 100 ms", 0.1, 12.5),
        SimulatedKnobThroughput {
            round_trip: 0.02,
            loss: Box::new(|_| 0.0001),
            ..SimulatedKnobThroughput::new("lossy pipe, 20 ms", TunerKnob::Streams, far, move |n| {
                (n * mathis).min(1.25)
            })
        },
        SimulatedKnobThroughput {
            cpu: Box::new(|n| (n / 8.0).min(1.0)),
            ..SimulatedKnobThroughput::new("CPU-bound, 8 cores", TunerKnob::Readers, threads, |n| {
                n.min(8.0) - 0.15 * (n - 8.0).max(0.0)
            })
        },
        // 64 KiB files: 4 ms for each, and a metadata server that serves 6,000 a second and suffers beyond.
        SimulatedKnobThroughput::new("small files", TunerKnob::Writers, threads, |n| {
            let files = (n / 0.004).min(6_000.0 - 30.0 * (n - 24.0).max(0.0));
            files * 65_536.0 / UNIT
        }),
        SimulatedKnobThroughput::new("one stream is enough", TunerKnob::Streams, near, |_| 12.5),
    ]
}

/// Several sessions on one path, which share it in proportion to their streams.
pub fn share_a_path<C: TestedKnobController>(
    sessions: &mut [(f64, SimulatedSession<C>)],
    each: f64,
    link: f64,
    round_trip: f64,
    until: f64,
) {
    let span = SAMPLE.as_secs_f64();
    let mut ramps = vec![StreamRampModel::new(round_trip); sessions.len()];
    let mut now = 0.0;
    while now < until {
        now += span;
        let worth: Vec<f64> = sessions
            .iter()
            .zip(&mut ramps)
            .map(|((begin, session), ramp)| {
                if now > *begin {
                    ramp.worth(session.controller.value(TunerKnob::Streams), span)
                } else {
                    0.0
                }
            })
            .collect();
        let all: f64 = worth.iter().sum();
        let part = each.min(link / all);
        for ((begin, session), worth) in sessions.iter_mut().zip(worth) {
            if now > *begin {
                session.tell(
                    now,
                    SimulatedIntervalResult {
                        rate: worth * part,
                        outbox: 1.0,
                        cpu: 0.2,
                        ..SimulatedIntervalResult::default()
                    },
                );
            }
        }
    }
}

/// Reading, sending and writing, each with its curve, and the queues between them.
pub struct SimulatedPipeline {
    /// Units per second for a value and a time: readers, streams, writers.
    pub stages: [Box<dyn Fn(f64, f64) -> f64>; 3],
    /// Capacity of each queue, in units.
    pub room: f64,
    /// Independent deviation of each stage's rate from its curve, each tenth of a second.
    pub jitter: f64,
}

impl SimulatedPipeline {
    /// Returns the throughput of the best settings at a time, up to a maximum of each.
    pub fn best(&self, most: u32, at: f64) -> f64 {
        let stage =
            |curve: &dyn Fn(f64, f64) -> f64| (1..=most).map(|n| curve(f64::from(n), at)).fold(0.0, f64::max);
        self.stages.iter().map(|curve| stage(curve.as_ref())).fold(f64::INFINITY, f64::min)
    }

    pub fn run<C: TestedKnobController>(&self, session: &mut SimulatedSession<C>, until: f64) {
        const STEPS: u32 = 25;
        session.queue_bytes = (self.room * UNIT) as u64;
        let step = SAMPLE.as_secs_f64() / f64::from(STEPS);
        let (mut now, mut outbox, mut queue) = (0.0, 0.0f64, 0.0f64);
        let (mut chance, mut stray) = (session.chance.clone(), [1.0; 3]);
        while now < until {
            let values = session.values().map(f64::from);
            let mut written = 0.0;
            for index in 0..STEPS {
                now += step;
                if index % 10 == 0 {
                    stray = [0; 3].map(|_: i32| (1.0 + self.jitter * chance.normal()).max(0.0));
                }
                let [read, send, write] =
                    [0, 1, 2].map(|i| (self.stages[i])(values[i], now) * stray[i] * step);
                let wrote = write.min(queue);
                queue -= wrote;
                let sent = send.min(outbox).min(self.room - queue);
                (outbox, queue) = (outbox - sent, queue + sent);
                outbox += read.min(self.room - outbox);
                written += wrote;
            }
            let rate = written / SAMPLE.as_secs_f64();
            let (outbox, sink_queue) = (outbox / self.room, queue / self.room);
            session.tell(
                now,
                SimulatedIntervalResult {
                    rate,
                    outbox,
                    sink_queue,
                    cpu: 0.3,
                    ..SimulatedIntervalResult::default()
                },
            );
        }
    }
}

/// A random concave curve: rising then level, or rising then falling.
pub fn any_curve(chance: &mut TestRandomGenerator, most: u32) -> (&'static str, Box<dyn Fn(f64) -> f64>) {
    let most = f64::from(most);
    // From one to `most`, small ones as likely as large ones.
    let knee = most.powf(chance.next());
    match (chance.next() * 4.0) as u32 {
        0 => ("rising to a knee, then level", Box::new(move |n| 10.0 * n.min(knee) / knee)),
        1 => ("rising to a peak, then falling", {
            // With all of them at least a tenth is left.
            let fall = 0.9 * chance.next() / (most - knee).max(1.0);
            Box::new(move |n| 10.0 * (n.min(knee) / knee - fall * (n - knee).max(0.0)))
        }),
        2 => ("rising ever slower", Box::new(move |n| 10.0 * (1.0 - (-2.0 * n / knee).exp()))),
        _ => ("contention and crosstalk", {
            // The universal scalability law (Gunther 2007): its peak is at sqrt((1 - s) / k).
            let (s, k) = (0.2 * chance.next(), 1.0 / (knee * knee));
            Box::new(move |n| 10.0 * n / (1.0 + s * (n - 1.0) + k * n * (n - 1.0)) / knee)
        }),
    }
}

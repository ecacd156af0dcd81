//! Turns the session's knobs while it runs (Y4, Y5, Y7): takes samples, asks the tuner, does what it says.
//!
//! The tuner is `carrack-plan`'s and pure. Here are its eyes (counters, queues, the kernel's view of the connections and of the CPUs)
//! and its hands: gates for threads, the outbox's connections, a message to the sink.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_machine::CpuUse;
use carrack_model::PolicyChoice;
use carrack_plan::tuner::{KnobRange, PerKnob, QueueFill, Sample, SizeClass, Tuner, TunerSetup};
use carrack_transport::PathState;
use carrack_wire::message::{Counters, Knobs};

use super::lane::Lane;
use super::queue::Queue;
#[cfg(feature = "rivals")]
use super::rivals::Rivals;
use crate::counters::sum_of;

/// How often the tuner is told how the session does.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// A session that lasted less has hardly tried anything.
const WORTH_KEEPING: Duration = Duration::from_secs(5);

pub(super) struct Tuning<'a> {
    lanes: &'a [Lane<'a>],
    /// Since the sink has told how it stands.
    tuner: Option<Tuner>,
    began: Instant,
    due: Instant,
    cpu: CpuUse,
    cpu_part: f64,
    /// Of what size the files are, as far as they were found when the tuner began.
    size: SizeClass,
    /// The sink's knobs as it was told.
    told: Option<Knobs>,
    /// What was decided and not told yet.
    decision: Option<String>,
    /// The shortest that the path had.
    round_trip: Option<Duration>,
    #[cfg(feature = "rivals")]
    rivals: Option<Rivals>,
}

impl<'a> Tuning<'a> {
    /// Nothing where the user wants nothing to be turned.
    pub(super) fn begin(lanes: &'a [Lane<'a>]) -> Option<Tuning<'a>> {
        let source = lanes.first()?.source;
        let settings = source.settings;
        if !settings.tunes || source.spec.dry_run {
            return None;
        }
        let now = Instant::now();
        Some(Tuning {
            lanes,
            tuner: None,
            began: now,
            due: now + SAMPLE_EVERY,
            cpu: CpuUse::at(Path::new("/")),
            cpu_part: 0.0,
            size: SizeClass::Mixed,
            told: None,
            decision: None,
            round_trip: None,
            #[cfg(feature = "rivals")]
            rivals: None,
        })
    }

    /// When the next sample is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// What was decided since the last time, in words.
    pub(super) fn take_decision(&mut self) -> Option<String> {
        self.decision.take()
    }

    /// Looks, if it is time, at a session whose sink has said this of itself last; what the sink is to be told. An older one, which says
    /// nothing, is left alone.
    pub(super) fn look(&mut self, sink: &Counters, now: Instant) -> Option<Knobs> {
        if now < self.due {
            return None;
        }
        self.due = now + SAMPLE_EVERY;
        if sink.write_slots == 0 {
            return None;
        }
        let sample = self.sample(sink, now);
        #[cfg(feature = "rivals")]
        if let Some(values) = Rivals::turn(&mut self.rivals, &sample, || ranges(self.lanes, sink)) {
            return self.turn(values);
        }
        let mut tuner = self.tuner.take().unwrap_or_else(|| self.new_tuner(sink));
        if let Some(round_trip) = self.round_trip {
            tuner.set_round_trip(round_trip);
        }
        let decision = tuner.observe(&sample);
        let values = PerKnob::from_fn(|knob| tuner.value(knob));
        self.tuner = Some(tuner);
        if let Some(decision) = decision {
            self.decision = Some(format!("source: tuner: {decision}"));
        }
        self.turn(values)
    }

    /// From what an earlier session has found out, if there is one.
    fn new_tuner(&mut self, sink: &Counters) -> Tuner {
        let setup = TunerSetup { ranges: ranges(self.lanes, sink), round_trip: Duration::ZERO };
        let found = sum_of(self.lanes.iter().map(|lane| &lane.counters));
        self.size = SizeClass::of(found.bytes_found, found.entries_found);
        let history = self.lanes[0].source.settings.history.as_ref();
        match history.and_then(|history| history.0.recall(self.size)) {
            Some(record) => Tuner::from_history(setup, &record),
            None => Tuner::new(setup),
        }
    }

    /// Leaves what was found out to later sessions, if that took long enough to be worth something.
    pub(super) fn leave(&self) {
        let lasted = self.began.elapsed() >= WORTH_KEEPING;
        let history = self.lanes[0].source.settings.history.as_ref();
        if let (true, Some(tuner), Some(history)) = (lasted, &self.tuner, history) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let record = tuner.record(now.as_secs());
            // One that has just begun anew knows less than the last one did.
            if record.bytes_per_s > 0 {
                history.0.keep(self.size, &record);
            }
        }
    }

    fn sample(&mut self, sink: &Counters, now: Instant) -> Sample {
        let (sent, retransmitted) = self.segments();
        self.cpu_part = self.cpu.look().unwrap_or(self.cpu_part);
        Sample {
            at: now - self.began,
            bytes: self.lanes.iter().map(Lane::answered_bytes).sum(),
            objects: self.lanes.iter().map(|lane| lane.objects_answered.load(Relaxed)).sum(),
            sent,
            retransmitted,
            cpu: self.cpu_part,
            work: self.work(),
            is_held: self.is_held(),
            outbox: self.outbox(),
            sink_queue: Some(self.of_slots(sink.write_waiting.into(), sink.write_slots.into())),
        }
    }

    /// Whether a limit or a grant has held a lane back since the last time.
    fn is_held(&self) -> bool {
        self.lanes.iter().filter(|lane| lane.queue.with(Queue::take_hold)).count() > 0
    }

    /// Objects' worth of work that waits, if that is enough for all threads.
    fn work(&self) -> u64 {
        let slot_bytes = u64::from(self.lanes[0].source.spec.slot_bytes);
        let saturated = self.lanes.iter().filter(|lane| lane.is_saturated());
        saturated.map(|lane| lane.backlog_bytes() / slot_bytes).sum()
    }

    /// What was read and is not with the kernel: what threads are sending is as much in the way as what waits.
    fn outbox(&self) -> QueueFill {
        let fills = self.lanes.iter().map(|lane| lane.outbox.fill());
        let (waiting, capacity) = fills.fold((0, 0), |sum, fill| (sum.0 + fill.0, sum.1 + fill.1));
        self.of_slots(waiting as u64, capacity as u64)
    }

    fn of_slots(&self, waiting: u64, capacity: u64) -> QueueFill {
        let slot_bytes = u64::from(self.lanes[0].source.spec.slot_bytes);
        QueueFill { waiting: waiting * slot_bytes, capacity: capacity * slot_bytes }
    }

    /// Segments that all connections have sent, and those among them that were sent again.
    fn segments(&mut self) -> (u64, u64) {
        let paths: Vec<PathState> =
            self.lanes.iter().flat_map(Lane::paths).filter(|path| path.segments > 0).collect();
        let shortest = paths.iter().map(|path| path.round_trip).min();
        self.round_trip = [self.round_trip, shortest].into_iter().flatten().min();
        (paths.iter().map(|path| path.segments).sum(), paths.iter().map(|path| path.retransmitted).sum())
    }

    /// Every lane gets its part of what the tuner wants, and at least one of each; what the sink is to be told.
    fn turn(&mut self, values: PerKnob<u32>) -> Option<Knobs> {
        let part = |value: u32| (value as usize).div_ceil(self.lanes.len());
        let streams = part(values.streams);
        // One for each stream: whoever sends stays with its stream until the object is out.
        let readers = part(values.readers).max(streams);
        for lane in self.lanes {
            lane.set_readers(readers);
            lane.outbox.use_endpoints(streams);
        }
        let knobs = Knobs { streams: values.streams, writers: values.writers };
        (self.told != Some(knobs)).then(|| *self.told.insert(knobs))
    }
}

/// What may be turned, and how far: what the user chose stays.
fn ranges(lanes: &[Lane<'_>], sink: &Counters) -> PerKnob<KnobRange> {
    let source = lanes[0].source;
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let of_all = |count: fn(&Lane<'_>) -> usize| number(lanes.iter().map(count).sum());
    let opened = of_all(|lane| lane.outbox.endpoint_count);
    let stock = Stock {
        lanes: number(lanes.len()),
        readers_at_start: of_all(|lane| lane.io_threads),
        threads: of_all(|lane| lane.thread_count),
        streams_at_start: number(source.streams_at_start(opened as usize)),
        streams_opened: opened,
        is_memory: source.is_memory,
        is_near: source.stream_count().is_near(opened as usize),
    };
    // More would be more requests at targets that others use.
    let is_nice = source.settings.scheduling.policy == PolicyChoice::Adaptive { nice: true };
    PerKnob {
        readers: match source.settings.io_threads {
            0 if is_nice => stock.readers().at_most(stock.readers_at_start),
            0 => stock.readers(),
            _ => KnobRange::fixed(stock.readers_at_start),
        },
        streams: match source.spec.streams {
            0 => stock.streams(),
            _ => KnobRange::fixed(opened),
        },
        writers: match (source.settings.io_threads, sink.write_threads) {
            (0, start @ 1..) => {
                let range = KnobRange::new(1, number(source.settings.io_threads_most(start as usize)), start);
                if is_nice { range.at_most(start) } else { range }
            }
            (_, start) => KnobRange::fixed(start),
        },
    }
}

/// What the source's lanes have to turn, all together.
struct Stock {
    lanes: u32,
    readers_at_start: u32,
    /// As many may read or send.
    threads: u32,
    streams_at_start: u32,
    streams_opened: u32,
    /// Whether what is read lies in memory.
    is_memory: bool,
    /// Whether the streams were opened for a near path.
    is_near: bool,
}

impl Stock {
    fn readers(&self) -> KnobRange {
        if self.is_memory {
            // One for each core: nothing is waited for. The threads beyond are for streams, of which each takes one.
            return KnobRange::fixed(self.readers_at_start);
        }
        KnobRange::new(self.lanes, self.threads, self.readers_at_start)
    }

    fn streams(&self) -> KnobRange {
        // On a near path a stream from memory is as fast as the core that drives it.
        let is_of_cores = self.is_memory && self.is_near;
        let most =
            if is_of_cores { self.streams_opened.min(self.readers_at_start) } else { self.streams_opened };
        // Fewer would hardly bring more; between two that share a path and have nearly as many nobody could tell what is better.
        KnobRange::doubling(self.streams_at_start, most, self.streams_at_start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of one lane on a machine of `cores` cores, near enough for eight streams, of which two are used at first.
    fn near(cores: u32, is_memory: bool) -> Stock {
        Stock {
            lanes: 1,
            readers_at_start: cores,
            threads: 32,
            streams_at_start: 2,
            streams_opened: 8,
            is_memory,
            is_near: true,
        }
    }

    #[test]
    fn from_memory_over_a_near_path_nothing_goes_beyond_the_cores() {
        for (cores, streams) in [(1, 2), (2, 2), (4, 4), (16, 8)] {
            let stock = near(cores, true);
            assert_eq!(stock.readers(), KnobRange::fixed(cores));
            assert_eq!(stock.streams(), KnobRange::doubling(2, streams, 2), "{cores} cores");
        }
    }

    #[test]
    fn what_is_waited_for_is_turned_as_far_as_it_goes() {
        let from_disks = near(2, false);
        assert_eq!(from_disks.readers(), KnobRange::new(1, 32, 2));
        assert_eq!(from_disks.streams(), KnobRange::doubling(2, 8, 2));
        let far = Stock { streams_at_start: 8, streams_opened: 64, is_near: false, ..near(2, true) };
        assert_eq!(far.readers(), KnobRange::fixed(2));
        assert_eq!(far.streams(), KnobRange::doubling(8, 64, 8));
    }
}

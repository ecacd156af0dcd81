//! Applies the tuner to a running session (Y4, Y5, Y7): takes samples, and sets the chosen values.
//!
//! The tuner of `carrack-plan` is pure. This module provides its input (counters, queues, the kernel's view
//! of connections and CPUs) and its output: active readers, data connections in use, and a message to the
//! sink.

use std::mem;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_machine::CpuUse;
use carrack_plan::tuner::{
    KnobRange, MeanSizeClass, PerKnob, QueueFill, SessionSample, SessionTuner, SessionTuningResult,
    TunerSetup,
};
use carrack_transport::TcpPathState;
use carrack_wire::message::{CountersMessage, KnobsMessage};

use super::lane::SourceLane;
use crate::counters::sum_of;

/// The interval between two samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// A shorter session has tried hardly any value.
const WORTH_KEEPING: Duration = Duration::from_secs(5);

pub(super) struct SessionTuningDriver<'a> {
    lanes: &'a [SourceLane<'a>],
    /// Created after the sink's first report.
    tuner: Option<SessionTuner>,
    began: Instant,
    due: Instant,
    cpu: CpuUse,
    cpu_part: f64,
    /// The size class of the files that were found before the tuner began.
    size: MeanSizeClass,
    /// The last values sent to the sink.
    told: Option<KnobsMessage>,
    /// A decision that was not reported yet.
    decision: Option<String>,
    /// The shortest round trip so far.
    round_trip: Option<Duration>,
    /// True if an earlier session ended with BBR, until this is taken.
    recalls_bbr: bool,
}

impl<'a> SessionTuningDriver<'a> {
    /// Returns `None` if the user switched tuning off.
    pub(super) fn begin(lanes: &'a [SourceLane<'a>]) -> Option<SessionTuningDriver<'a>> {
        let source = lanes.first()?.source;
        let settings = source.settings;
        if !settings.tunes || source.spec.dry_run {
            return None;
        }
        let now = Instant::now();
        Some(SessionTuningDriver {
            lanes,
            tuner: None,
            began: now,
            due: now + SAMPLE_EVERY,
            cpu: CpuUse::with_root(Path::new("/")),
            cpu_part: 0.0,
            size: MeanSizeClass::Mixed,
            told: None,
            decision: None,
            round_trip: None,
            recalls_bbr: false,
        })
    }

    /// Returns the time of the next sample.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Returns the decisions since the last call as a text.
    pub(super) fn take_decision(&mut self) -> Option<String> {
        self.decision.take()
    }

    /// Takes a sample if it is due, with the sink's last counters. Returns new settings for the sink. An
    /// older sink without these counters gets none.
    pub(super) fn sample_and_tune(&mut self, sink: &CountersMessage, now: Instant) -> Option<KnobsMessage> {
        if now < self.due {
            return None;
        }
        self.due = now + SAMPLE_EVERY;
        if sink.write_slots == 0 {
            return None;
        }
        let sample = self.sample(sink, now);
        let mut tuner = self.tuner.take().unwrap_or_else(|| self.new_tuner(sink));
        if let Some(round_trip) = self.round_trip {
            tuner.set_round_trip(round_trip);
        }
        // The user has fixed all values: there is nothing to report.
        let decision = tuner.observe(&sample).filter(|_| tuner.has_choice());
        let values = PerKnob::from_fn(|knob| tuner.value(knob));
        self.tuner = Some(tuner);
        if let Some(decision) = decision {
            self.decision = Some(format!("source: tuner: {decision}"));
        }
        self.apply_values(values)
    }

    /// Creates the tuner from the result of an earlier session, if there is one.
    fn new_tuner(&mut self, sink: &CountersMessage) -> SessionTuner {
        let setup = TunerSetup { ranges: ranges(self.lanes, sink), round_trip: Duration::ZERO };
        let found = sum_of(self.lanes.iter().map(|lane| &lane.counters));
        self.size = MeanSizeClass::of(found.bytes_found, found.entries_found);
        let history = self.lanes[0].source.settings.history.as_ref();
        match history.and_then(|history| history.0.recall(self.size)) {
            Some(record) => {
                self.recalls_bbr = record.uses_bbr;
                SessionTuner::from_history(setup, &record)
            }
            None => SessionTuner::new(setup),
        }
    }

    /// Returns true once if an earlier session on this path ended with BBR.
    pub(super) fn take_recalled_bbr(&mut self) -> bool {
        mem::take(&mut self.recalls_bbr)
    }

    /// Stores the result for later sessions, if the session lasted long enough.
    pub(super) fn store_result(&self, uses_bbr: bool) {
        let lasted = self.began.elapsed() >= WORTH_KEEPING;
        let history = self.lanes[0].source.settings.history.as_ref();
        if let (true, Some(tuner), Some(history)) = (lasted, &self.tuner, history) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let record = SessionTuningResult { uses_bbr, ..tuner.tuning_result(now.as_secs()) };
            // A tuner that has just restarted knows less than the stored record.
            if record.bytes_per_s > 0 {
                history.0.keep(self.size, &record);
            }
        }
    }

    fn sample(&mut self, sink: &CountersMessage, now: Instant) -> SessionSample {
        let (sent, retransmitted) = self.segments();
        self.cpu_part = self.cpu.sample_busy_share().unwrap_or(self.cpu_part);
        SessionSample {
            at: now - self.began,
            bytes: self.lanes.iter().map(|lane| lane.backlog.answered_bytes()).sum(),
            objects: self.lanes.iter().map(|lane| lane.in_flight.answered_count()).sum(),
            sent,
            retransmitted,
            cpu: self.cpu_part,
            work: self.pending_object_count(),
            is_held: self.take_was_held(),
            outbox: self.send_queue_fill(),
            sink_queue: Some(self.to_queue_fill(sink.write_waiting.into(), sink.write_slots.into())),
        }
    }

    /// Returns true if a limit or a grant has held a lane back since the last call.
    fn take_was_held(&self) -> bool {
        self.lanes.iter().filter(|lane| lane.read_queue.take_was_held()).count() > 0
    }

    /// Returns the waiting work in objects, if that is enough for all threads.
    fn pending_object_count(&self) -> u64 {
        let slot_bytes = u64::from(self.lanes[0].source.spec.slot_bytes);
        let saturated = self.lanes.iter().filter(|lane| lane.is_saturated());
        saturated.map(|lane| lane.backlog.bytes() / slot_bytes).sum()
    }

    /// Returns the bytes that were read and are not with the kernel. Objects being sent count like waiting
    /// ones.
    fn send_queue_fill(&self) -> QueueFill {
        let fills = self.lanes.iter().map(|lane| lane.send_queue.fill());
        let (waiting, capacity) = fills.fold((0, 0), |sum, fill| (sum.0 + fill.0, sum.1 + fill.1));
        self.to_queue_fill(waiting as u64, capacity as u64)
    }

    fn to_queue_fill(&self, waiting: u64, capacity: u64) -> QueueFill {
        let slot_bytes = u64::from(self.lanes[0].source.spec.slot_bytes);
        QueueFill { waiting: waiting * slot_bytes, capacity: capacity * slot_bytes }
    }

    /// Returns the segments that all connections have sent, and the retransmitted ones among them.
    fn segments(&mut self) -> (u64, u64) {
        let paths: Vec<TcpPathState> = self
            .lanes
            .iter()
            .flat_map(|lane| lane.send_queue.paths())
            .filter(|path| path.segments > 0)
            .collect();
        let shortest = paths.iter().map(|path| path.round_trip).min();
        self.round_trip = [self.round_trip, shortest].into_iter().flatten().min();
        (paths.iter().map(|path| path.segments).sum(), paths.iter().map(|path| path.retransmitted).sum())
    }

    /// Gives every lane its part of the chosen values, at least one of each. Returns new settings for the
    /// sink.
    fn apply_values(&mut self, values: PerKnob<u32>) -> Option<KnobsMessage> {
        let lane_count = self.lanes.len();
        let streams = (values.streams as usize).div_ceil(lane_count);
        // One for each connection: a sending thread keeps its connection until the object is out.
        let readers = (values.readers as usize).div_ceil(lane_count).max(streams);
        for lane in self.lanes {
            lane.read_queue.set_readers(readers);
            lane.send_queue.use_endpoints(streams);
        }
        let knobs = KnobsMessage { streams: values.streams, writers: values.writers };
        (self.told != Some(knobs)).then(|| *self.told.insert(knobs))
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the range of each setting. The user's choices are fixed.
fn ranges(lanes: &[SourceLane<'_>], sink: &CountersMessage) -> PerKnob<KnobRange> {
    let source = lanes[0].source;
    let opened = number(lanes.iter().map(|lane| lane.send_queue.endpoint_count).sum());
    let stock = TunableResources {
        lanes: number(lanes.len()),
        readers_at_start: number(lanes.iter().map(|lane| lane.read_queue.threads_at_start()).sum()),
        threads: number(
            lanes.iter().map(|lane| source.sizing.lane(lane.send_queue.endpoint_count).thread_count).sum(),
        ),
        streams_at_start: number(source.sizing.streams.used(opened as usize)),
        streams_opened: opened,
        is_memory: source.sizing.is_memory,
        is_near: source.sizing.streams.is_near(opened as usize),
    };
    // More would mean more requests at targets that others use.
    let is_nice = source.settings.is_nice();
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

/// The adjustable resources of all lanes together.
struct TunableResources {
    lanes: u32,
    readers_at_start: u32,
    /// The number of threads that may read or send.
    threads: u32,
    streams_at_start: u32,
    streams_opened: u32,
    /// True if the sources lie in memory.
    is_memory: bool,
    /// True if the connections were opened for a short path.
    is_near: bool,
}

impl TunableResources {
    fn readers(&self) -> KnobRange {
        if self.is_memory {
            // One for each core, as reads never wait. Further threads are for connections, one for each.
            return KnobRange::fixed(self.readers_at_start);
        }
        KnobRange::new(self.lanes, self.threads, self.readers_at_start)
    }

    fn streams(&self) -> KnobRange {
        assert!(self.streams_at_start <= self.streams_opened, "no more connections are used than opened");
        // On a near path a stream from memory is as fast as the core that drives it.
        let is_of_cores = self.is_memory && self.is_near;
        let most =
            if is_of_cores { self.streams_opened.min(self.readers_at_start) } else { self.streams_opened };
        // A smaller step would gain little: two sessions with nearly as many streams on one path could not
        // tell which number is better.
        KnobRange::doubling(self.streams_at_start, most, self.streams_at_start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One lane on a machine of `cores` cores on a near path with eight streams, of which two are in use at
    /// first.
    fn near(cores: u32, is_memory: bool) -> TunableResources {
        TunableResources {
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
        let far =
            TunableResources { streams_at_start: 8, streams_opened: 64, is_near: false, ..near(2, true) };
        assert_eq!(far.readers(), KnobRange::fixed(2));
        assert_eq!(far.streams(), KnobRange::doubling(8, 64, 8));
    }
}

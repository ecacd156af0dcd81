//! The decision whether objects that can't leave go to flash (L9): if the sink takes less than usual, and the
//! objects read meanwhile can be sent later.
//!
//! Where the way to the sink limits the transfer anyway, flash would only be worn out: its objects would
//! leave later, in place of others. Time comes as the length of windows; nothing here knows a clock.

use std::time::Duration;

/// Readers that wait for slots for more than this part of their time read more than leaves.
const HELD_BACK: f64 = 0.5;

/// Below this part of the usual rate, the sink is stalled.
const STALLED: f64 = 0.5;

/// Time over which the usual rate is learnt.
const USUAL_OVER: Duration = Duration::from_secs(5);

/// Time constant with which a lasting stall becomes usual.
const STALL_OVER: Duration = Duration::from_secs(30);

/// Records after which the flash's rate is known.
const RECORDS_KNOWN: u32 = 16;

/// Measurements of one window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpillWindowSample {
    /// Length of the window.
    pub span: Duration,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that left for the sink.
    pub left_bytes: u64,
    /// The part of their time for which readers waited for slots, 0 to 1.
    pub held_back: f64,
    /// True if flash holds objects: then more leaves than the source brings.
    pub is_holding: bool,
}

/// The reason why objects go to flash, or do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpillVerdict {
    /// Everything leaves as usual, or readers have slots.
    Unneeded,
    /// The sink takes less than usual, and readers wait.
    Spill,
    /// Readers wait most of the time: the way to the sink limits the transfer, and would not carry more
    /// later.
    Pointless,
    /// The flash writes slower than the source reads.
    TooSlow,
    /// The whole budget of bytes was written.
    WornOut,
}

/// The decision for one lane.
#[derive(Clone, Debug)]
pub struct SpillGate {
    usual: Option<f64>,
    held_back: FadingMean,
    source: FadingMean,
    flash: FadingMean,
    records: u32,
    budget: u64,
    verdict: SpillVerdict,
}

/// A forgetting mean of values that each hold for a while. Early values weigh no more than their time.
#[derive(Clone, Copy, Debug, Default)]
struct FadingMean {
    mean: Option<f64>,
    learnt_for: Duration,
}

impl FadingMean {
    fn learn(&mut self, value: f64, span: Duration, over: Duration) {
        self.learnt_for += span;
        let share = span.as_secs_f64() / self.learnt_for.as_secs_f64().max(1e-6);
        let mean = self.mean.unwrap_or(value);
        self.mean = Some(mean + (value - mean) * share.min(1.0).max(weight(span, over)));
    }
}

fn weight(span: Duration, over: Duration) -> f64 {
    1.0 - (-span.as_secs_f64() / over.as_secs_f64()).exp()
}

fn rate(bytes: u64, span: Duration) -> f64 {
    bytes as f64 / span.as_secs_f64().max(1e-6)
}

impl SpillGate {
    /// Creates a gate; `budget` is the upper bound of all bytes written to flash.
    pub fn new(budget: u64) -> SpillGate {
        SpillGate {
            usual: None,
            held_back: FadingMean::default(),
            source: FadingMean::default(),
            flash: FadingMean::default(),
            records: 0,
            budget,
            verdict: SpillVerdict::Unneeded,
        }
    }

    /// Returns the verdict after a window of some 200 ms.
    pub fn update_verdict(&mut self, window: SpillWindowSample) -> SpillVerdict {
        let SpillWindowSample { span, held_back, .. } = window;
        let leaves = rate(window.left_bytes, span);
        if held_back < 0.1 && window.read_bytes > 0 {
            self.source.learn(rate(window.read_bytes, span), span, USUAL_OVER);
        }
        let is_stalled = held_back >= HELD_BACK || self.verdict == SpillVerdict::Spill;
        let is_stalled = is_stalled && self.usual.map_or(leaves == 0.0, |usual| leaves < usual * STALLED);
        if is_stalled {
            self.usual = self.usual.map(|usual| usual + (leaves - usual) * weight(span, STALL_OVER));
        } else {
            self.usual =
                Some(self.usual.map_or(leaves, |usual| usual + (leaves - usual) * weight(span, USUAL_OVER)));
            if !window.is_holding {
                self.held_back.learn(held_back, span, USUAL_OVER);
            }
        }
        self.verdict = match self.verdict {
            last @ (SpillVerdict::TooSlow | SpillVerdict::WornOut) => last,
            _ if self.is_slow() => SpillVerdict::TooSlow,
            _ if !is_stalled => SpillVerdict::Unneeded,
            _ if self.held_back.mean.is_some_and(|share| share >= HELD_BACK) => SpillVerdict::Pointless,
            _ => SpillVerdict::Spill,
        };
        self.verdict
    }

    /// Returns the last verdict.
    pub fn verdict(&self) -> SpillVerdict {
        self.verdict
    }

    /// Takes bytes from the budget; returns false if the budget is too small.
    pub fn spend(&mut self, bytes: u64) -> bool {
        match self.budget.checked_sub(bytes) {
            Some(left) => self.budget = left,
            None => self.verdict = SpillVerdict::WornOut,
        }
        self.verdict == SpillVerdict::Spill
    }

    /// Records the time of one write.
    pub fn record_write(&mut self, bytes: u64, took: Duration) {
        self.records = self.records.saturating_add(1);
        self.flash.learn(rate(bytes, took), took, Duration::from_secs(1));
    }

    fn is_slow(&self) -> bool {
        let is_known = self.records >= RECORDS_KNOWN;
        is_known && self.flash.mean.zip(self.source.mean).is_some_and(|(flash, source)| flash < source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_millis(200);
    const MIB: f64 = (1 << 20) as f64;

    /// A source, slots, flash and a sink that flow: rates in MiB/s, sizes in MiB.
    struct SpillSimulation {
        gate: SpillGate,
        source: f64,
        slots: f64,
        log: f64,
        in_slots: f64,
        in_log: f64,
        arrived: f64,
        written: f64,
    }

    impl SpillSimulation {
        fn new(source: f64, log: f64) -> SpillSimulation {
            let gate = SpillGate::new(u64::MAX);
            SpillSimulation {
                gate,
                source,
                slots: 256.0,
                log,
                in_slots: 0.0,
                in_log: 0.0,
                arrived: 0.0,
                written: 0.0,
            }
        }

        /// Runs some windows with this rate of the sink.
        fn run(&mut self, sink: f64, windows: usize) {
            for _ in 0..windows {
                let second = WINDOW.as_secs_f64();
                let spills = self.gate.verdict() == SpillVerdict::Spill;
                let left = (sink * second).min(self.in_slots + self.in_log + self.source * second);
                let of_log = left.min(self.in_log);
                self.in_log -= of_log;
                let room = self.slots - self.in_slots + (left - of_log);
                let more = if spills { (self.log - self.in_log).max(0.0) } else { 0.0 };
                let read = (self.source * second).min(room + more);
                let spilt = (read - room).max(0.0);
                self.in_log += spilt;
                self.written += spilt;
                self.in_slots += read - spilt - (left - of_log);
                self.arrived += left;
                let window = SpillWindowSample {
                    span: WINDOW,
                    read_bytes: (read * MIB) as u64,
                    left_bytes: (left * MIB) as u64,
                    held_back: 1.0 - read / (self.source * second),
                    is_holding: self.in_log > 0.0,
                };
                self.gate.update_verdict(window);
            }
        }
    }

    #[test]
    fn pauses_of_the_sink_are_filled() {
        // The paper's section 5.3: ten seconds of congestion, ten without, slots for a fraction of that.
        fn rounds(log: f64) -> SpillSimulation {
            let mut flow = SpillSimulation::new(400.0, log);
            for _ in 0..4 {
                flow.run(1_200.0, 50);
                flow.run(20.0, 50);
            }
            flow
        }
        let (with, without) = (rounds(8_192.0), rounds(0.0));
        assert!(with.arrived > 1.37 * without.arrived, "{} MiB and {}", with.arrived, without.arrived);
        assert!(with.written < 4.0 * 10.0 * 400.0);
    }

    #[test]
    fn flash_is_left_alone_where_it_brings_nothing() {
        // The link limits the rate, with and without pauses.
        let mut flow = SpillSimulation::new(1_000.0, 8_192.0);
        flow.run(300.0, 100);
        assert_eq!((flow.written, flow.gate.verdict()), (0.0, SpillVerdict::Unneeded));
        flow.run(10.0, 50);
        assert_eq!((flow.written, flow.gate.verdict()), (0.0, SpillVerdict::Pointless));
        // The source limits the rate.
        let mut flow = SpillSimulation::new(300.0, 8_192.0);
        flow.run(1_000.0, 100);
        flow.run(310.0, 100);
        assert_eq!((flow.written, flow.gate.verdict()), (0.0, SpillVerdict::Unneeded));
    }

    #[test]
    fn how_it_began_is_soon_forgotten() {
        // All readers wait in the first window: for streams to open.
        let first = SpillWindowSample {
            span: WINDOW,
            read_bytes: 8 << 20,
            held_back: 1.0,
            ..SpillWindowSample::default()
        };
        let free = SpillWindowSample {
            span: WINDOW,
            read_bytes: 8 << 20,
            left_bytes: 8 << 20,
            ..SpillWindowSample::default()
        };
        let mut gate = SpillGate::new(u64::MAX);
        for window in [SpillWindowSample { left_bytes: 1 << 20, ..first }, free, free, free] {
            gate.update_verdict(window);
        }
        assert_eq!(gate.update_verdict(SpillWindowSample { left_bytes: 0, ..first }), SpillVerdict::Spill);
    }

    #[test]
    fn a_sink_that_stays_slow_does_not_wear_it_out() {
        let mut flow = SpillSimulation::new(400.0, 1_000_000.0);
        flow.run(1_000.0, 100);
        flow.run(100.0, 1_000);
        let written = flow.written;
        assert!(written > 300.0 && written < 400.0 * 40.0, "{written}");
        flow.run(100.0, 1_000);
        assert_eq!(flow.written, written, "that is usual now");
    }

    #[test]
    fn a_slow_or_worn_out_flash_is_not_written_to() {
        let stalled = SpillWindowSample { span: WINDOW, held_back: 1.0, ..SpillWindowSample::default() };
        let free = SpillWindowSample { span: WINDOW, read_bytes: 80 << 20, left_bytes: 80 << 20, ..stalled };
        let free = SpillWindowSample { held_back: 0.0, ..free };
        let mut gate = SpillGate::new(3 << 20);
        assert_eq!(
            (gate.update_verdict(free), gate.update_verdict(stalled)),
            (SpillVerdict::Unneeded, SpillVerdict::Spill)
        );
        assert!(gate.spend(2 << 20) && !gate.spend(2 << 20));
        assert_eq!(
            (gate.verdict(), gate.update_verdict(stalled)),
            (SpillVerdict::WornOut, SpillVerdict::WornOut)
        );
        for (took_ms, expected) in [(2, SpillVerdict::Spill), (4, SpillVerdict::TooSlow)] {
            let mut gate = SpillGate::new(u64::MAX);
            gate.update_verdict(free);
            gate.update_verdict(stalled);
            (0..RECORDS_KNOWN).for_each(|_| gate.record_write(1 << 20, Duration::from_millis(took_ms)));
            assert_eq!(gate.update_verdict(stalled), expected, "500 and 250 MiB/s for a source of 400");
        }
    }
}

//! The choice between loss-based congestion control and BBR on one path.
//!
//! CUBIC and Reno take every loss for congestion: at a loss of 0.1 % and a round trip of 20 ms, a connection
//! has some 30 Mbit/s, however wide the path is (RFC 8312, section 5.2). BBR does not (Cardwell et al. 2016).
//! It would press others where a queue is full; so it is tried only where packets are lost while the round
//! trip shows no queue, on every second connection, and stays only if these move more.

use std::time::Duration;

/// The state of one connection in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionSample {
    /// Payload that was acknowledged so far.
    pub acked_bytes: u64,
    /// Segments that were sent so far.
    pub segments: u64,
    /// The retransmitted ones among them.
    pub retransmitted: u64,
    /// The smoothed round trip.
    pub round_trip: Duration,
    /// The shortest round trip.
    pub round_trip_min: Duration,
}

/// The connections that use BBR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BbrConnections {
    /// None: the system's congestion control.
    None,
    /// Those with odd numbers.
    EverySecond,
    /// All.
    All,
}

impl BbrConnections {
    /// Returns true if the connection with this number is one of them.
    pub fn contains(self, number: usize) -> bool {
        match self {
            BbrConnections::None => false,
            BbrConnections::EverySecond => number % 2 == 1,
            BbrConnections::All => true,
        }
    }
}

/// Round trips of one comparison, and its shortest time.
const ROUND_TRIPS: u32 = 10;
const WINDOW_MIN: Duration = Duration::from_millis(750);

/// A path whose round trip is longer than this multiple of the shortest one has a queue.
const QUEUE: f64 = 1.25;

/// Samples in a row with losses and no queue after which a trial begins: a full queue that has just lost
/// packets is short for a moment, too.
const LOSSY_SAMPLES: u32 = 3;

/// The same for BBR, whose own queue is as long as the path holds.
const QUEUE_OF_BBR: f64 = 3.0;

/// BBR stays if its connections move this multiple of the others'.
const GAIN: f64 = 1.3;

/// Comparisons of one trial at most.
const COMPARISONS_MAX: u32 = 4;

/// The part of retransmissions at which BBR ends: a rate limit drops what is above it. In a short queue its
/// own losses are a tenth.
const LOSS_MAX: f64 = 0.2;

/// Windows in a row with more loss, or a longer queue, after which BBR ends: it finds the path's rate first.
const PRESSED_MAX: u32 = 2;

/// Trials of one session at most, and the time between them.
const TRIALS_MAX: u32 = 3;
const PAUSE: Duration = Duration::from_secs(60);

/// The choice of one session. Pure: the time is an argument.
#[derive(Clone, Debug)]
pub struct CongestionControlTrial {
    uses: BbrConnections,
    /// The time and samples at the beginning of the present window.
    since: Option<(Duration, Vec<ConnectionSample>)>,
    lossy_samples: u32,
    comparisons: u32,
    trials: u32,
    /// No trial begins before.
    pause_until: Duration,
    /// The multiple of the others' throughput that BBR had at the last comparison.
    gain: f64,
    /// Windows in a row in which BBR met loss or a queue.
    pressed: u32,
    /// The part of retransmissions in the last window.
    loss: f64,
}

impl Default for CongestionControlTrial {
    fn default() -> CongestionControlTrial {
        CongestionControlTrial {
            uses: BbrConnections::None,
            since: None,
            lossy_samples: 0,
            comparisons: 0,
            trials: 0,
            pause_until: Duration::ZERO,
            gain: 0.0,
            pressed: 0,
            loss: 0.0,
        }
    }
}

/// Changes of connections over a window.
struct WindowChanges {
    /// Of each connection.
    acked_bytes: Vec<u64>,
    loss: f64,
    /// The mean multiple of the shortest round trip.
    queue: f64,
}

impl CongestionControlTrial {
    /// The multiple of the others' throughput that BBR had at the last comparison.
    pub fn gain(&self) -> f64 {
        self.gain
    }

    /// The part of retransmissions in the last window with BBR on all connections.
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// Begins with BBR on all connections, as an earlier session on this path ended; it ends as after a
    /// trial. Returns `None` if a trial has begun, which decides.
    pub fn begin_with_bbr(&mut self) -> Option<BbrConnections> {
        if self.uses != BbrConnections::None {
            return None;
        }
        self.since = None;
        self.uses = BbrConnections::All;
        Some(self.uses)
    }

    /// Observes all connections in use, by their numbers. Returns the connections that use BBR from now on,
    /// if they change.
    pub fn observe(&mut self, now: Duration, samples: &[ConnectionSample]) -> Option<BbrConnections> {
        let round_trip = samples.iter().map(|sample| sample.round_trip_min).max()?;
        let Some((at, first)) = &self.since else {
            self.since = Some((now, samples.to_vec()));
            return None;
        };
        if first.len() != samples.len() {
            // The tuner has changed the number of connections.
            self.since = Some((now, samples.to_vec()));
            return None;
        }
        let is_comparison = self.uses != BbrConnections::None;
        if is_comparison && now.saturating_sub(*at) < (ROUND_TRIPS * round_trip).max(WINDOW_MIN) {
            return None;
        }
        let changes = WindowChanges::between(first, samples);
        self.since = Some((now, samples.to_vec()));
        let uses = match self.uses {
            BbrConnections::None => self.begin(now, &changes, samples.len()),
            BbrConnections::EverySecond => self.compare(now, &changes),
            BbrConnections::All => self.watch(now, &changes),
        };
        (uses != self.uses).then(|| {
            self.uses = uses;
            uses
        })
    }

    /// Begins a trial where packets are lost and no queue shows.
    fn begin(&mut self, now: Duration, changes: &WindowChanges, count: usize) -> BbrConnections {
        let may_try = count > 1 && self.trials < TRIALS_MAX && now >= self.pause_until;
        let is_lossy = changes.loss > 0.0 && changes.queue <= QUEUE;
        self.lossy_samples = if is_lossy { self.lossy_samples + 1 } else { 0 };
        if !may_try || self.lossy_samples < LOSSY_SAMPLES {
            return BbrConnections::None;
        }
        self.lossy_samples = 0;
        self.trials += 1;
        self.comparisons = 0;
        BbrConnections::EverySecond
    }

    /// Ends a trial after enough comparisons. A queue and its losses are BBR's own by now: it begins with
    /// twice the rate that the path has.
    fn compare(&mut self, now: Duration, changes: &WindowChanges) -> BbrConnections {
        self.comparisons += 1;
        let mean = |with_bbr: bool| {
            let (mut bytes, mut count) = (0, 0u32);
            for (number, acked) in changes.acked_bytes.iter().enumerate() {
                if BbrConnections::EverySecond.contains(number) == with_bbr {
                    (bytes, count) = (bytes + acked, count + 1);
                }
            }
            bytes as f64 / f64::from(count.max(1))
        };
        self.gain = mean(true) / mean(false).max(1.0);
        match () {
            () if self.gain >= GAIN => BbrConnections::All,
            () if self.comparisons >= COMPARISONS_MAX => self.end(now),
            () => BbrConnections::EverySecond,
        }
    }

    /// Ends the use of BBR where it presses others.
    fn watch(&mut self, now: Duration, changes: &WindowChanges) -> BbrConnections {
        self.loss = changes.loss;
        let presses = changes.loss > LOSS_MAX || changes.queue > QUEUE_OF_BBR;
        self.pressed = if presses { self.pressed + 1 } else { 0 };
        if self.pressed > PRESSED_MAX { self.end(now) } else { BbrConnections::All }
    }

    fn end(&mut self, now: Duration) -> BbrConnections {
        self.pause_until = now + PAUSE;
        self.pressed = 0;
        BbrConnections::None
    }
}

impl WindowChanges {
    fn between(first: &[ConnectionSample], last: &[ConnectionSample]) -> WindowChanges {
        let pairs = || first.iter().zip(last);
        let sum = |part: fn(&ConnectionSample) -> u64| -> u64 {
            pairs().map(|(first, last)| part(last).saturating_sub(part(first))).sum()
        };
        let round_trips = last.iter().filter(|sample| !sample.round_trip_min.is_zero());
        let queues =
            round_trips.map(|sample| sample.round_trip.as_secs_f64() / sample.round_trip_min.as_secs_f64());
        let (queue, count) = queues.fold((0.0, 0u32), |(sum, count), queue| (sum + queue, count + 1));
        WindowChanges {
            acked_bytes: pairs()
                .map(|(first, last)| last.acked_bytes.saturating_sub(first.acked_bytes))
                .collect(),
            loss: sum(|sample| sample.retransmitted) as f64 / sum(|sample| sample.segments).max(1) as f64,
            queue: queue / f64::from(count.max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(20);

    /// Connections over a modelled path, looked at every 250 ms.
    struct Path {
        trial: CongestionControlTrial,
        uses: BbrConnections,
        now: Duration,
        samples: Vec<ConnectionSample>,
    }

    impl Path {
        fn new(connections: usize) -> Path {
            let sample = ConnectionSample { round_trip_min: ROUND_TRIP, ..ConnectionSample::default() };
            Path {
                trial: CongestionControlTrial::default(),
                uses: BbrConnections::None,
                now: Duration::ZERO,
                samples: vec![sample; connections],
            }
        }

        /// A second in which each connection has this throughput, with and without BBR, in segments.
        fn second(&mut self, system: u64, bbr: u64, lost: u64, queue: f64) -> BbrConnections {
            for _ in 0..4 {
                self.now += Duration::from_millis(250);
                for (number, sample) in self.samples.iter_mut().enumerate() {
                    let sent = if self.uses.contains(number) { bbr } else { system } / 4;
                    sample.segments += sent;
                    sample.acked_bytes += sent * 1448;
                    sample.retransmitted += lost;
                    sample.round_trip = ROUND_TRIP.mul_f64(queue);
                }
                if let Some(uses) = self.trial.observe(self.now, &self.samples) {
                    assert_ne!(uses, self.uses, "told when it changes");
                    self.uses = uses;
                }
            }
            self.uses
        }
    }

    #[test]
    fn loss_without_a_queue_is_no_congestion() {
        let mut path = Path::new(8);
        assert_eq!(path.second(2_000, 10_000, 1, 1.05), BbrConnections::EverySecond);
        // The queue of BBR itself.
        assert_eq!(path.second(2_000, 10_000, 1, 1.9), BbrConnections::All);
        assert!(path.trial.gain() > 4.9);
        assert_eq!(path.second(2_000, 10_000, 1, 1.9), BbrConnections::All);
    }

    #[test]
    fn an_earlier_session_spares_the_trial() {
        let mut path = Path::new(8);
        path.uses = path.trial.begin_with_bbr().unwrap();
        assert_eq!(path.trial.begin_with_bbr(), None);
        (0..10).for_each(|_| assert_eq!(path.second(2_000, 10_000, 1, 1.9), BbrConnections::All));
        // The path has changed.
        let uses = [(); 3].map(|()| path.second(2_000, 10_000, 1, 4.0));
        assert_eq!(uses[2], BbrConnections::None);
    }

    #[test]
    fn a_path_without_loss_keeps_its_congestion_control() {
        let mut path = Path::new(8);
        (0..60).for_each(|_| assert_eq!(path.second(9_000, 10_000, 0, 1.0), BbrConnections::None));
    }

    #[test]
    fn loss_by_a_full_queue_is_congestion() {
        let mut path = Path::new(8);
        (0..60).for_each(|_| assert_eq!(path.second(9_000, 10_000, 3, 1.8), BbrConnections::None));
    }

    #[test]
    fn a_full_queue_that_is_short_for_a_moment_is_congestion() {
        let mut path = Path::new(8);
        for second in 0..60 {
            let queue = if second % 2 == 0 { 1.1 } else { 1.8 };
            path.now += Duration::from_millis(250);
            path.samples.iter_mut().for_each(|sample| {
                sample.segments += 1_000;
                sample.retransmitted += 3;
                sample.round_trip = ROUND_TRIP.mul_f64(queue);
            });
            assert_eq!(path.trial.observe(path.now, &path.samples), None);
        }
    }

    #[test]
    fn bbr_that_brings_nothing_ends_after_some_comparisons() {
        let mut path = Path::new(4);
        let mut seconds = 0;
        for _ in 0..600 {
            seconds += u32::from(path.second(5_000, 5_500, 1, 1.1) != BbrConnections::None);
        }
        assert!((1..=5 * TRIALS_MAX).contains(&seconds), "{seconds}");
        assert_eq!(path.trial.trials, TRIALS_MAX);
    }

    #[test]
    fn bbr_that_meets_a_queue_of_others_or_a_policer_ends() {
        for (lost, queue) in [(1, 4.0), (900, 1.1)] {
            let mut path = Path::new(4);
            path.second(2_000, 10_000, 1, 1.05);
            path.second(2_000, 10_000, 1, 1.05);
            assert_eq!(path.uses, BbrConnections::All);
            for _ in 0..5 {
                path.second(2_000, 10_000, lost, queue);
            }
            assert_eq!(path.uses, BbrConnections::None);
        }
    }

    #[test]
    fn one_connection_has_none_to_compare_with() {
        let mut path = Path::new(1);
        (0..9).for_each(|_| assert_eq!(path.second(2_000, 10_000, 1, 1.0), BbrConnections::None));
    }

    #[test]
    fn a_new_number_of_connections_begins_a_new_window() {
        let mut path = Path::new(4);
        assert_eq!(path.second(2_000, 10_000, 1, 1.0), BbrConnections::EverySecond);
        path.samples.resize(8, path.samples[0]);
        path.samples.iter_mut().for_each(|sample| sample.acked_bytes += 1 << 40);
        let look = path.trial.observe(path.now + WINDOW_MIN, &path.samples);
        assert_eq!(look, None);
    }
}

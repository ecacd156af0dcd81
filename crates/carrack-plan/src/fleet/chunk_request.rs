//! The time at which a source mover asks for its next chunk (Y3): early enough that it does not run dry, late
//! enough that others get the chunks which it could not start yet.

use std::time::Duration;

/// Threshold before the first measurement: the paper's (Y3), for its chunks of 1 GiB.
pub const THRESHOLD_BYTES_FIRST: u64 = 256 << 20;

/// The same for smaller chunks: a quarter. Otherwise a slow mover would take many of them before it knows
/// that it is slow.
const FIRST_PART_OF_A_CHUNK: u64 = 4;

/// Lower bound: a socket's buffer holds as much besides.
pub const THRESHOLD_BYTES_MIN: u64 = 256 << 10;

/// Upper bound: with more than a chunk ahead a fast mover would hoard work of others.
pub const THRESHOLD_BYTES_MAX: u64 = 1 << 30;

/// Upper bound of chunks in one request: each is bound to one mover from then on.
const CHUNKS_AT_ONCE_MAX: u64 = 32;

/// Weight of a new round trip in the smoothed one, and in its deviation (RFC 6298, 2.3).
const ROUND_TRIP_WEIGHT: f64 = 0.125;
const DEVIATION_WEIGHT: f64 = 0.25;

/// Deviations above the mean that a round trip may last (RFC 6298).
const DEVIATIONS: f64 = 4.0;

/// Interval in seconds at which a session checks its remaining bytes.
const LOOK_S: f64 = 0.01;

/// Weight of a higher rate: a mover that has become faster must not run dry.
const RATE_UP: f64 = 0.5;

/// Weight of a lower rate: asking early for a while harms little.
const RATE_DOWN: f64 = 0.125;

/// The remaining bytes at which the next chunk is asked for: those that a mover reads in one request's round
/// trip.
///
/// The round trip is an upper estimate, as TCP makes it for its retransmissions: its smoothed value and four
/// times its deviation.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChunkRequestThreshold {
    /// Smoothed round trip and its deviation, in seconds.
    round_trip: Option<(f64, f64)>,
    bytes_per_s: Option<f64>,
    /// Bytes of the last chunk.
    chunk_bytes: Option<u64>,
}

impl ChunkRequestThreshold {
    /// Records the round trip of a request that was answered with a chunk. Waiting for a chunk to exist is no
    /// part of a round trip and must not be counted.
    pub fn record_round_trip(&mut self, round_trip: Duration) {
        let seconds = round_trip.as_secs_f64();
        self.round_trip = Some(match self.round_trip {
            None => (seconds, seconds / 2.0),
            Some((mean, deviation)) => {
                let error = seconds - mean;
                (mean + ROUND_TRIP_WEIGHT * error, deviation + DEVIATION_WEIGHT * (error.abs() - deviation))
            }
        });
    }

    /// Records the mover's recent read rate. A mover without data to read must not report.
    pub fn record_read_rate(&mut self, bytes_per_s: u64) {
        let rate = bytes_per_s as f64;
        self.bytes_per_s = Some(match self.bytes_per_s {
            None => rate,
            Some(known) => known + (if rate > known { RATE_UP } else { RATE_DOWN }) * (rate - known),
        });
    }

    /// Records the size of a chunk.
    pub fn record_chunk_size(&mut self, chunk_bytes: u64) {
        self.chunk_bytes = Some(chunk_bytes);
    }

    /// Returns the threshold: a request is sent when fewer bytes than this are left to read.
    pub fn bytes(&self) -> u64 {
        let bytes = match (self.bytes_per_s, self.round_trip, self.chunk_bytes) {
            (Some(rate), Some((mean, deviation)), _) => {
                ((rate * (mean + DEVIATIONS * deviation + LOOK_S)) as u64).min(THRESHOLD_BYTES_MAX)
            }
            (_, _, Some(chunk_bytes)) => (chunk_bytes / FIRST_PART_OF_A_CHUNK).min(THRESHOLD_BYTES_FIRST),
            _ => THRESHOLD_BYTES_FIRST,
        };
        bytes.max(THRESHOLD_BYTES_MIN)
    }

    /// Returns the number of chunks like the last one in a request: the bytes of a round trip, and those that
    /// idle readers could read at once, may be several chunks.
    pub fn chunks_at_once(&self, idle_bytes: u64) -> u64 {
        let chunk_bytes = self.chunk_bytes.unwrap_or(u64::MAX).max(1);
        self.bytes().max(idle_bytes).div_ceil(chunk_bytes).clamp(1, CHUNKS_AT_ONCE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(round_trips_ms: &[u64], rates: &[u64]) -> ChunkRequestThreshold {
        let mut threshold = ChunkRequestThreshold::default();
        round_trips_ms.iter().for_each(|&ms| threshold.record_round_trip(Duration::from_millis(ms)));
        rates.iter().for_each(|&rate| threshold.record_read_rate(rate));
        threshold
    }

    #[test]
    fn begins_with_the_papers() {
        assert_eq!(after(&[], &[]).bytes(), 256 << 20);
        assert_eq!(after(&[1], &[]).bytes(), 256 << 20);
        assert_eq!(after(&[], &[1 << 30]).bytes(), 256 << 20);
        for (chunk_bytes, bytes) in [(1 << 30, 256 << 20), (64 << 20, 16 << 20), (1, THRESHOLD_BYTES_MIN)] {
            let mut threshold = after(&[1], &[]);
            threshold.record_chunk_size(chunk_bytes);
            assert_eq!(threshold.bytes(), bytes);
        }
    }

    #[test]
    fn on_a_long_path_several_small_chunks_are_asked_for_at_once() {
        // 400 MB/s, 110 ms: 44 MB in a round trip.
        let mut threshold = after(&[100; 60], &[400_000_000]);
        assert_eq!(threshold.chunks_at_once(1 << 40), 1, "of what size is not known");
        for (chunk_bytes, count) in [(4 << 20, 11), (64 << 20, 1), (0, CHUNKS_AT_ONCE_MAX)] {
            threshold.record_chunk_size(chunk_bytes);
            assert_eq!(threshold.chunks_at_once(0), count, "{chunk_bytes}");
        }
        let mut near = after(&[1; 60], &[100_000_000]);
        near.record_chunk_size(4 << 20);
        assert_eq!(near.chunks_at_once(0), 1);
    }

    #[test]
    fn idle_readers_get_chunks_at_once_also_on_a_short_path() {
        // 32 readers wait for storage of a high latency, with objects and chunks of 1 MiB.
        let mut near = after(&[1; 60], &[100_000_000]);
        near.record_chunk_size(1 << 20);
        assert_eq!(near.chunks_at_once(20 << 20), 20);
        assert_eq!(near.chunks_at_once(u64::MAX), CHUNKS_AT_ONCE_MAX);
    }

    #[test]
    fn becomes_what_is_read_in_a_round_trip() {
        // The deviation of a steady round trip vanishes: 1 GB/s for 110 ms.
        let bytes = after(&[100; 60], &[1_000_000_000]).bytes();
        assert!((110_000_000..112_000_000).contains(&bytes), "{bytes}");
        assert_eq!(after(&[1; 60], &[10_000_000]).bytes(), THRESHOLD_BYTES_MIN);
        assert_eq!(after(&[60_000], &[u64::MAX]).bytes(), THRESHOLD_BYTES_MAX);
    }

    #[test]
    fn is_above_nearly_all_round_trips_that_vary() {
        let varied: Vec<u64> = (0..200).map(|n| 50 + n * 37 % 100).collect();
        let bytes = after(&varied, &[1_000_000_000]).bytes();
        assert!(bytes >= 149_000_000, "{bytes}");
    }

    #[test]
    fn follows_a_higher_rate_faster_than_a_lower_one() {
        let up = after(&[100; 60], &[100_000_000, 1_000_000_000, 1_000_000_000, 1_000_000_000]).bytes();
        let down = after(&[100; 60], &[1_000_000_000, 100_000_000, 100_000_000, 100_000_000]).bytes();
        assert!(up > 85_000_000 && down > 65_000_000, "{up} {down}");
    }

    proptest! {
        #[test]
        fn is_always_within_its_bounds(
            round_trips in prop::collection::vec(any::<u64>(), 0..20),
            rates in prop::collection::vec(any::<u64>(), 0..20),
        ) {
            let bytes = after(&round_trips, &rates).bytes();
            prop_assert!((THRESHOLD_BYTES_MIN..=THRESHOLD_BYTES_MAX).contains(&bytes));
        }
    }
}

//! The pairs that hold up the end of a transfer: they hold a chunk for much longer than others take for one.
//!
//! Owns the reports of one transfer's pairs, and decides nothing else. A slow pair costs nothing while chunks
//! are left for the others. When only slow pairs hold chunks, these chunks are given to others; bytes that
//! have arrived by then do not travel again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A pair that has held a chunk for less than this is never behind.
const AT_LEAST: Duration = Duration::from_secs(10);

/// Nor is a pair that has held it for less than this multiple of the others' longest time.
const TIMES: u32 = 4;

/// A pair without a report for this time counts as ended.
const SPEAKS_EVERY: Duration = Duration::from_secs(4);

/// The end at which a pair waits for storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StorageWaitSide {
    /// At the source.
    Source,
    /// At the sink.
    Sink,
    /// At neither, or unknown.
    #[default]
    #[serde(other)]
    Neither,
}

/// A mover that holds up a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StragglingMover {
    /// The mover.
    pub mover: String,
    /// The mover at the other end of its pair.
    pub other: String,
    /// True for a mover that reads.
    pub is_source: bool,
    /// Time in which its pair has settled no chunk.
    pub held_for: Duration,
    /// The others' longest time for a chunk.
    pub others_take: Duration,
}

/// The pace of one transfer's pairs. All instants are of one clock.
///
/// Memory: some words for each pair of movers that has worked for the transfer.
#[derive(Clone, Debug, Default)]
pub struct PairStragglerDetector {
    pairs: BTreeMap<(String, String), PairChunkTiming>,
}

/// The pace of a pair.
#[derive(Clone, Debug, Default)]
struct PairChunkTiming {
    held: u32,
    waits_at: StorageWaitSide,
    told_at: Duration,
    /// Begin of the present chunk, as far as the reports tell.
    since: Duration,
    /// The longest time for a chunk, if the pair has settled one.
    longest: Option<Duration>,
}

impl PairStragglerDetector {
    /// Creates the state without reports.
    pub fn new() -> PairStragglerDetector {
        PairStragglerDetector::default()
    }

    /// Takes a pair's report: the number of its chunks and the end at which it waits.
    pub fn record_report(
        &mut self,
        now: Duration,
        source: &str,
        sink: &str,
        held: u32,
        waits_at: StorageWaitSide,
    ) {
        let pace = self.pace(source, sink);
        if pace.held == 0 {
            pace.since = now;
        }
        (pace.held, pace.waits_at, pace.told_at) = (held, waits_at, now);
    }

    /// Records that a pair has settled a chunk.
    pub fn record_settled_chunk(&mut self, now: Duration, source: &str, sink: &str) {
        let pace = self.pace(source, sink);
        let took = now.saturating_sub(pace.since);
        pace.longest = Some(pace.longest.map_or(took, |longest| longest.max(took)));
        pace.since = now;
    }

    /// Records that a mover that reads has done other work for the transfer, in one of its pairs.
    pub fn record_other_progress(&mut self, now: Duration, source: &str) {
        for (_, pace) in self.pairs.iter_mut().filter(|(pair, _)| pair.0 == source) {
            pace.since = now;
        }
    }

    fn pace(&mut self, source: &str, sink: &str) -> &mut PairChunkTiming {
        self.pairs.entry((source.to_owned(), sink.to_owned())).or_default()
    }

    /// Returns the number of chunks that pairs hold.
    pub fn held_chunks(&self, now: Duration) -> u64 {
        self.recently_reported(now).map(|(_, pace)| u64::from(pace.held)).sum()
    }

    /// Returns the stragglers when no chunk is left to take; none if no other pair has shown a shorter time.
    pub fn stragglers(&self, now: Duration) -> Vec<StragglingMover> {
        let behind = self.recently_reported(now).filter_map(|((source, sink), pace)| {
            let held_for = now.saturating_sub(pace.since);
            let others = self.pairs.iter().filter(|(pair, _)| (&pair.0, &pair.1) != (source, sink));
            let others_take = others.filter_map(|(_, other)| other.longest).min()?;
            let is_behind = pace.held > 0 && held_for > AT_LEAST.max(others_take * TIMES);
            let is_source = is_behind.then(|| self.is_source_to_blame(source, sink, pace))?;
            let (mover, other) = if is_source { (source, sink) } else { (sink, source) };
            Some(StragglingMover {
                mover: mover.clone(),
                other: other.clone(),
                is_source,
                held_for,
                others_take,
            })
        });
        behind.collect()
    }

    /// Returns true if the source's mover is to blame: it waits for storage, or neither does, and only the
    /// sink's mover has done well with other movers.
    fn is_source_to_blame(&self, source: &str, sink: &str, pace: &PairChunkTiming) -> bool {
        match pace.waits_at {
            StorageWaitSide::Source => true,
            StorageWaitSide::Sink => false,
            StorageWaitSide::Neither => {
                let (mut source_did_well, mut sink_did_well) = (false, false);
                for ((other_source, other_sink), pace) in &self.pairs {
                    let did_well = pace.longest.is_some();
                    source_did_well |= did_well && other_source == source && other_sink != sink;
                    sink_did_well |= did_well && other_source != source && other_sink == sink;
                }
                !source_did_well && sink_did_well
            }
        }
    }

    fn recently_reported(
        &self,
        now: Duration,
    ) -> impl Iterator<Item = ((&String, &String), &PairChunkTiming)> {
        let pairs = self.pairs.iter().map(|((source, sink), pace)| ((source, sink), pace));
        pairs.filter(move |(_, pace)| now.saturating_sub(pace.told_at) < SPEAKS_EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Two pairs that begin together, of which the second settles a chunk each second, until `seconds`.
    fn watched(
        slow: (&str, &str),
        good: (&str, &str),
        waits_at: StorageWaitSide,
        seconds: u64,
    ) -> PairStragglerDetector {
        let mut stragglers = PairStragglerDetector::new();
        for second in 0..seconds {
            stragglers.record_report(at(second), slow.0, slow.1, 1, waits_at);
            stragglers.record_report(
                at(second),
                good.0,
                good.1,
                u32::from(second < 5),
                StorageWaitSide::Neither,
            );
            if (1..5).contains(&second) {
                stragglers.record_settled_chunk(at(second), good.0, good.1);
            }
        }
        stragglers
    }

    fn blamed(stragglers: &PairStragglerDetector, second: u64) -> Vec<(String, bool)> {
        let behind = stragglers.stragglers(at(second)).into_iter();
        behind.map(|straggler| (straggler.mover, straggler.is_source)).collect()
    }

    #[test]
    fn who_holds_a_chunk_for_many_times_what_others_take_is_behind() {
        fn sight(seconds: u64) -> PairStragglerDetector {
            watched(("a", "x"), ("b", "y"), StorageWaitSide::Neither, seconds)
        }
        assert_eq!(blamed(&sight(10), 9), [], "it may take some seconds");
        assert_eq!(blamed(&sight(13), 12), [("x".into(), false)]);
        assert_eq!(sight(13).held_chunks(at(12)), 1);
        let mut settled = sight(13);
        settled.record_settled_chunk(at(12), "a", "x");
        assert_eq!(blamed(&settled, 13), [], "it goes on");
        let mut goes_on = sight(13);
        goes_on.record_other_progress(at(12), "a");
        assert_eq!(blamed(&goes_on, 13), [], "with something else");
        assert_eq!(blamed(&sight(13), 30), [], "a pair that tells nothing is none");
    }

    #[test]
    fn where_others_take_as_long_nobody_is() {
        let mut stragglers = PairStragglerDetector::new();
        for second in 0..60 {
            for source in ["a", "b"] {
                stragglers.record_report(at(second), source, "x", 1, StorageWaitSide::Neither);
            }
            if second == 20 {
                stragglers.record_settled_chunk(at(second), "b", "x");
            }
        }
        assert_eq!(blamed(&stragglers, 59), []);
        let mut alone = PairStragglerDetector::new();
        (0..60).for_each(|second| alone.record_report(at(second), "a", "x", 1, StorageWaitSide::Neither));
        assert_eq!(blamed(&alone, 59), [], "nobody has shown that it can be faster");
    }

    #[test]
    fn the_one_that_waits_for_storage_is_to_blame_or_the_one_that_does_well_with_nobody() {
        fn pair(slow: (&str, &str), good: (&str, &str), waits_at: StorageWaitSide) -> Vec<(String, bool)> {
            blamed(&watched(slow, good, waits_at, 13), 12)
        }
        assert_eq!(pair(("a", "x"), ("b", "y"), StorageWaitSide::Source), [("a".into(), true)]);
        assert_eq!(pair(("a", "x"), ("b", "y"), StorageWaitSide::Sink), [("x".into(), false)]);
        assert_eq!(pair(("a", "x"), ("a", "y"), StorageWaitSide::Neither), [("x".into(), false)]);
        assert_eq!(pair(("a", "x"), ("b", "x"), StorageWaitSide::Neither), [("a".into(), true)]);
    }
}

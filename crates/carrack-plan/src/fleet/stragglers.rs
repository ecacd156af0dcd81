//! Which pairs hold up the end of a transfer: they have chunks for much longer than others take for one.
//!
//! Owns what it was told of the pairs of one transfer, and decides nothing else. A pair that is slow costs nothing as long as there is
//! something for the others to take; when all that is left is with slow pairs, it is better given to others: what of it has arrived
//! by then does not travel again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Nobody is behind who has had a chunk for less than this.
const AT_LEAST: Duration = Duration::from_secs(10);

/// Nor who has had it for less than this many times of what others take at most.
const TIMES: u32 = 4;

/// A pair that has told nothing for so long is none.
const SPEAKS_EVERY: Duration = Duration::from_secs(4);

/// At which end a pair waits for storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitsAt {
    /// Where it is read.
    Source,
    /// Where it is written.
    Sink,
    /// At neither, or it is not known.
    #[default]
    #[serde(other)]
    Neither,
}

/// A mover that holds up a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Straggler {
    /// Which.
    pub mover: String,
    /// At the other end of its pair.
    pub other: String,
    /// Whether it reads.
    pub is_source: bool,
    /// For how long its pair has brought no chunk to its end.
    pub held_for: Duration,
    /// What others take for one at most.
    pub others_take: Duration,
}

/// What is known of the pairs of one transfer. All instants are of one clock.
///
/// Memory: some words for each pair of movers that has worked for it.
#[derive(Clone, Debug, Default)]
pub struct Stragglers {
    pairs: BTreeMap<(String, String), Pace>,
}

/// How a pair does.
#[derive(Clone, Debug, Default)]
struct Pace {
    held: u32,
    waits_at: WaitsAt,
    told_at: Duration,
    /// When the chunk that it works on was begun, as far as can be told.
    since: Duration,
    /// The most that one took, if it has brought one to its end.
    longest: Option<Duration>,
}

impl Stragglers {
    /// Nothing is known.
    pub fn new() -> Stragglers {
        Stragglers::default()
    }

    /// A pair tells how many chunks it has, and what it waits for.
    pub fn report(&mut self, now: Duration, source: &str, sink: &str, held: u32, waits_at: WaitsAt) {
        let pace = self.pace(source, sink);
        if pace.held == 0 {
            pace.since = now;
        }
        (pace.held, pace.waits_at, pace.told_at) = (held, waits_at, now);
    }

    /// A pair has brought a chunk to its end.
    pub fn settled(&mut self, now: Duration, source: &str, sink: &str) {
        let pace = self.pace(source, sink);
        let took = now.saturating_sub(pace.since);
        pace.longest = Some(pace.longest.map_or(took, |longest| longest.max(took)));
        pace.since = now;
    }

    /// A mover that reads has done something else of the transfer, in one of its pairs.
    pub fn goes_on(&mut self, now: Duration, source: &str) {
        for (_, pace) in self.pairs.iter_mut().filter(|(pair, _)| pair.0 == source) {
            pace.since = now;
        }
    }

    fn pace(&mut self, source: &str, sink: &str) -> &mut Pace {
        self.pairs.entry((source.to_owned(), sink.to_owned())).or_default()
    }

    /// Chunks that pairs have.
    pub fn held(&self, now: Duration) -> u64 {
        self.speaking(now).map(|(_, pace)| u64::from(pace.held)).sum()
    }

    /// Those that are behind, where nothing is left to be taken. None if nobody has shown that it can be done faster.
    pub fn behind(&self, now: Duration) -> Vec<Straggler> {
        let behind = self.speaking(now).filter_map(|((source, sink), pace)| {
            let held_for = now.saturating_sub(pace.since);
            let others = self.pairs.iter().filter(|(pair, _)| (&pair.0, &pair.1) != (source, sink));
            let others_take = others.filter_map(|(_, other)| other.longest).min()?;
            let is_behind = pace.held > 0 && held_for > AT_LEAST.max(others_take * TIMES);
            let is_source = is_behind.then(|| self.is_of_source(source, sink, pace))?;
            let (mover, other) = if is_source { (source, sink) } else { (sink, source) };
            Some(Straggler { mover: mover.clone(), other: other.clone(), is_source, held_for, others_take })
        });
        behind.collect()
    }

    /// Whose fault it is: who waits for storage; else who has done well with nobody else, and else the sink.
    fn is_of_source(&self, source: &str, sink: &str, pace: &Pace) -> bool {
        match pace.waits_at {
            WaitsAt::Source => true,
            WaitsAt::Sink => false,
            WaitsAt::Neither => {
                let did_well = |is_it: &dyn Fn(&(String, String)) -> bool| {
                    self.pairs.iter().any(|(pair, pace)| is_it(pair) && pace.longest.is_some())
                };
                !did_well(&|pair| pair.0 == source && pair.1 != sink)
                    && did_well(&|pair| pair.0 != source && pair.1 == sink)
            }
        }
    }

    fn speaking(&self, now: Duration) -> impl Iterator<Item = ((&String, &String), &Pace)> {
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

    /// Two pairs that begin together, of which the second brings a chunk to its end each second, until `seconds`.
    fn watched(slow: (&str, &str), good: (&str, &str), waits_at: WaitsAt, seconds: u64) -> Stragglers {
        let mut stragglers = Stragglers::new();
        for second in 0..seconds {
            stragglers.report(at(second), slow.0, slow.1, 1, waits_at);
            stragglers.report(at(second), good.0, good.1, u32::from(second < 5), WaitsAt::Neither);
            if (1..5).contains(&second) {
                stragglers.settled(at(second), good.0, good.1);
            }
        }
        stragglers
    }

    fn blamed(stragglers: &Stragglers, second: u64) -> Vec<(String, bool)> {
        let behind = stragglers.behind(at(second)).into_iter();
        behind.map(|straggler| (straggler.mover, straggler.is_source)).collect()
    }

    #[test]
    fn who_holds_a_chunk_for_many_times_what_others_take_is_behind() {
        let sight = |seconds| watched(("a", "x"), ("b", "y"), WaitsAt::Neither, seconds);
        assert_eq!(blamed(&sight(10), 9), [], "it may take some seconds");
        assert_eq!(blamed(&sight(13), 12), [("x".into(), false)]);
        assert_eq!(sight(13).held(at(12)), 1);
        let mut settled = sight(13);
        settled.settled(at(12), "a", "x");
        assert_eq!(blamed(&settled, 13), [], "it goes on");
        let mut goes_on = sight(13);
        goes_on.goes_on(at(12), "a");
        assert_eq!(blamed(&goes_on, 13), [], "with something else");
        assert_eq!(blamed(&sight(13), 30), [], "a pair that tells nothing is none");
    }

    #[test]
    fn where_others_take_as_long_nobody_is() {
        let mut stragglers = Stragglers::new();
        for second in 0..60 {
            for source in ["a", "b"] {
                stragglers.report(at(second), source, "x", 1, WaitsAt::Neither);
            }
            if second == 20 {
                stragglers.settled(at(second), "b", "x");
            }
        }
        assert_eq!(blamed(&stragglers, 59), []);
        let mut alone = Stragglers::new();
        (0..60).for_each(|second| alone.report(at(second), "a", "x", 1, WaitsAt::Neither));
        assert_eq!(blamed(&alone, 59), [], "nobody has shown that it can be faster");
    }

    #[test]
    fn the_one_that_waits_for_storage_is_to_blame_or_the_one_that_does_well_with_nobody() {
        let pair = |slow, good, waits_at| blamed(&watched(slow, good, waits_at, 13), 12);
        assert_eq!(pair(("a", "x"), ("b", "y"), WaitsAt::Source), [("a".into(), true)]);
        assert_eq!(pair(("a", "x"), ("b", "y"), WaitsAt::Sink), [("x".into(), false)]);
        assert_eq!(pair(("a", "x"), ("a", "y"), WaitsAt::Neither), [("x".into(), false)]);
        assert_eq!(pair(("a", "x"), ("b", "x"), WaitsAt::Neither), [("a".into(), true)]);
    }
}

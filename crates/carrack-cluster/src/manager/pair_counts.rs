//! The fastest number of pairs between two sites: requested once for all transfers that begin within a short
//! time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::bus::NatsBus;
use crate::curves::PairCountCurveStore;

/// Lifetime of an answer. Results of this manager's own transfers replace it at once.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// Names of a source's and a sink's site.
type SitePair = (String, String);

/// Answers, by path.
#[derive(Default)]
pub(super) struct FastestPairCountCache {
    answers: Mutex<HashMap<SitePair, (Instant, Option<u32>)>>,
}

impl FastestPairCountCache {
    fn answers(&self) -> MutexGuard<'_, HashMap<SitePair, (Instant, Option<u32>)>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pairs with which an earlier transfer between these sites was fastest; `None` if there was
    /// none, or NATS does not answer.
    pub async fn fastest(&self, bus: &NatsBus, source: &str, sink: &str) -> Option<u32> {
        let path = (source.to_owned(), sink.to_owned());
        if let Some((at, pairs)) = self.answers().get(&path)
            && at.elapsed() < FRESH_FOR
        {
            return *pairs;
        }
        let curve = PairCountCurveStore::open(bus).await.ok()?.get(source, sink).await.ok()?;
        let fastest =
            curve.as_ref().and_then(|curve| curve.points.iter().max_by_key(|point| point.bytes_per_s));
        let pairs = fastest.map(|point| point.pairs.max(1));
        let mut answers = self.answers();
        answers.retain(|_, (at, _)| at.elapsed() < FRESH_FOR);
        answers.insert(path, (Instant::now(), pairs));
        pairs
    }

    /// Drops the answer for a path after a new result.
    pub fn forget(&self, source: &str, sink: &str) {
        self.answers().remove(&(source.to_owned(), sink.to_owned()));
    }
}

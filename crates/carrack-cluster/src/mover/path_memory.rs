//! Results of a mover's earlier sessions by host: the values that tuners found (Y4), and broken fabrics.
//!
//! They last while the mover runs. The best number of pairs of a whole path is stored on NATS (`curves`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carrack_engine::{TunerHistory, TunerMemory};
use carrack_plan::tuner::{MeanSizeClass, SessionTuningResult};

/// Upper bound of records (hosts with three size classes each); beyond it all are dropped.
const RECORDS_MAX: usize = 3_000;

/// Time after which a broken fabric is tried again.
const FABRIC_REST: Duration = Duration::from_secs(600);

/// The results known to one mover.
#[derive(Clone, Default)]
pub(super) struct PathMemory(Arc<Mutex<PeerHostHistory>>);

#[derive(Default)]
struct PeerHostHistory {
    tuners: HashMap<(String, MeanSizeClass), SessionTuningResult>,
    broken_fabrics: HashMap<String, Instant>,
}

impl PathMemory {
    fn lock_history(&self) -> MutexGuard<'_, PeerHostHistory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the history for a session with a mover on `host`, which also takes the results of its tuner.
    pub fn history(&self, host: &str) -> TunerHistory {
        TunerHistory(Arc::new(HostTunerMemory { paths: self.clone(), host: host.to_owned() }))
    }

    /// Records that the fabric to `host` broke.
    pub fn record_broken_fabric(&self, host: &str) {
        let mut known = self.lock_history();
        known.broken_fabrics.retain(|_, at| at.elapsed() < FABRIC_REST);
        known.broken_fabrics.insert(host.to_owned(), Instant::now());
    }

    /// Returns true if a fabric to `host` may be tried without the user's demand.
    pub fn may_use_fabric(&self, host: &str) -> bool {
        self.lock_history().broken_fabrics.get(host).is_none_or(|at| at.elapsed() >= FABRIC_REST)
    }
}

struct HostTunerMemory {
    paths: PathMemory,
    host: String,
}

impl TunerMemory for HostTunerMemory {
    fn recall(&self, size: MeanSizeClass) -> Option<SessionTuningResult> {
        self.paths.lock_history().tuners.get(&(self.host.clone(), size)).cloned()
    }

    fn keep(&self, size: MeanSizeClass, record: &SessionTuningResult) {
        let mut known = self.paths.lock_history();
        if known.tuners.len() >= RECORDS_MAX {
            known.tuners.clear();
        }
        known.tuners.insert((self.host.clone(), size), record.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fabric_that_broke_is_left_alone_on_the_way_to_that_host_only() {
        let paths = PathMemory::default();
        assert!(paths.may_use_fabric("a"));
        paths.record_broken_fabric("a");
        assert!(!paths.may_use_fabric("a") && paths.may_use_fabric("b"));
    }
}

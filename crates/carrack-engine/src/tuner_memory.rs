//! The results of tuners of earlier sessions (Y4), which the caller stores: it knows a place for them, and
//! their two ends.

use std::fmt;
use std::sync::Arc;

use carrack_plan::tuner::{MeanSizeClass, SessionTuningResult};

/// Stores the records of sessions between the same two ends.
pub trait TunerMemory: Send + Sync {
    /// Returns the last record of files of this size.
    fn recall(&self, size: MeanSizeClass) -> Option<SessionTuningResult>;

    /// Replaces the record of files of this size. A transfer does not depend on it.
    fn keep(&self, size: MeanSizeClass, record: &SessionTuningResult);
}

/// The record from which a source begins, and where it stores its result.
#[derive(Clone)]
pub struct TunerHistory(pub Arc<dyn TunerMemory>);

impl fmt::Debug for TunerHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TunerHistory")
    }
}

impl PartialEq for TunerHistory {
    fn eq(&self, other: &TunerHistory) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for TunerHistory {}

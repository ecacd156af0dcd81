//! What tuners of earlier sessions have found out (Y4): the caller keeps it, who knows where, and between which ends it was.

use std::fmt;
use std::sync::Arc;

use carrack_plan::tuner::{SizeClass, TunerRecord};

/// Remembers the records of sessions between the same two ends.
pub trait TunerMemory: Send + Sync {
    /// The last one of files of this size.
    fn recall(&self, size: SizeClass) -> Option<TunerRecord>;

    /// Keeps one in its place. A transfer does not depend on it.
    fn keep(&self, size: SizeClass, record: &TunerRecord);
}

/// Where a source begins from, and leaves what it has found out.
#[derive(Clone)]
pub struct History(pub Arc<dyn TunerMemory>);

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("History")
    }
}

impl PartialEq for History {
    fn eq(&self, other: &History) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for History {}

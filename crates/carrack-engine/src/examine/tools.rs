//! The resources that the threads of one end share: the top of its paths, memory, the rate.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use carrack_machine::{Slot, SlotPool};
use carrack_model::{KeptMetadata, MetadataFidelity};
use carrack_plan::RatePacer;
use carrack_storage::ExtraMetadataReader;

use super::examine_root::ExamineRoot;
use super::question::WHOLE_BYTES_MAX;
use super::walk::VerifyEndWalk;
use crate::error::SessionError;

/// The settings of an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExamineThreadSettings {
    /// Threads that read and hash; 0 to choose.
    pub(crate) threads: usize,
    /// True to read past the page cache.
    pub(crate) past_cache: bool,
    /// The rate limit in bytes per second; 0 for none.
    pub(crate) rate: u64,
}

/// The resources of the threads.
pub(super) struct ExamineTools {
    pub(super) top: ExamineRoot,
    pub(super) past_cache: bool,
    pub(super) walk: Mutex<Option<VerifyEndWalk>>,
    /// The last requested metadata with its reader: a caller mostly requests the same metadata.
    extras: Mutex<(KeptMetadata, Option<Arc<ExtraMetadataReader>>)>,
    slots: SlotPool,
    rate: u64,
    began: Instant,
    pace: Mutex<RatePacer>,
}

impl ExamineTools {
    /// Creates the resources, with a slot for each thread.
    pub(super) fn new(
        top: ExamineRoot,
        manners: ExamineThreadSettings,
    ) -> Result<ExamineTools, SessionError> {
        assert!(manners.threads > 0, "each thread has a slot, and at least one reads");
        let pool_bytes = manners.threads as u64 * WHOLE_BYTES_MAX;
        Ok(ExamineTools {
            top,
            past_cache: manners.past_cache,
            walk: Mutex::new(None),
            extras: Mutex::default(),
            slots: SlotPool::new(pool_bytes, WHOLE_BYTES_MAX as usize)?,
            rate: manners.rate,
            began: Instant::now(),
            pace: Mutex::default(),
        })
    }

    /// Wakes the threads that wait for memory: they end.
    pub(super) fn close(&self) {
        self.slots.close();
    }

    /// Returns the reader of owners, attributes and flags, or `None` if none of these are requested.
    pub(super) fn extras_reader(&self, kept: KeptMetadata) -> Option<Arc<ExtraMetadataReader>> {
        let mut extras = self.extras.lock().unwrap_or_else(PoisonError::into_inner);
        if extras.0 != kept {
            let fidelity = MetadataFidelity { kept, ..MetadataFidelity::default() };
            *extras = (kept, ExtraMetadataReader::new(fidelity, WHOLE_BYTES_MAX as usize).map(Arc::new));
        }
        extras.1.clone()
    }

    /// Leases memory for a read.
    pub(super) fn lease(&self) -> Result<Slot, String> {
        self.slots.lease().map_err(|closed| closed.to_string())
    }

    /// Waits until the rate limit allows a read of `bytes` bytes.
    pub(super) fn wait_for_rate_limit(&self, bytes: u64) {
        if self.rate == 0 {
            return;
        }
        let free_at = {
            let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
            let free_at = pace.free_at();
            pace.charge(self.began.elapsed().max(free_at), bytes, self.rate);
            free_at
        };
        let wait = free_at.saturating_sub(self.began.elapsed());
        if wait > Duration::ZERO {
            thread::sleep(wait);
        }
    }
}

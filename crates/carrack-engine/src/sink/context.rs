//! The context of a sink: the values and parts that all its lanes share.
//!
//! Any thread may read it. Values that change are behind the locks of the parts; the context itself has only
//! atomic counts. Only the journal's mutex is locked while another mutex of the sink is held: when
//! [`super::directory_access`] changes a directory's mode.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use carrack_model::{AgreedTransferSpec, TransferEvent, UserNotice};
use carrack_wire::message::ControlMessage;

use super::attributes::AttributePolicy;
use super::committer::GroupCommitter;
use super::destination::SinkDestination;
use super::final_spools::DeferredEntrySpools;
use super::past_sessions::PastSessions;
use super::pending_queries::OpenSourceQueries;
use super::removal_rules::SyncDeletionState;
use super::shared_file_names::SharedFileNames;
use super::sibling_sessions::{SiblingJournals, SiblingRecords};
use super::sizing::SinkSizing;
use crate::error::SessionError;
use crate::event_delivery::{TransferObserver, deliver};
use crate::placement::PlacedLanes;
use crate::sharing::SessionGrantClient;

/// The session as its lanes see it.
pub(super) struct SinkContext<'a> {
    pub(super) spec: AgreedTransferSpec,
    pub(super) destination: SinkDestination,
    pub(super) sizing: SinkSizing,
    pub(super) attributes: AttributePolicy,
    /// `None` in a dry run.
    pub(super) committer: Option<GroupCommitter>,
    pub(super) history: SinkSessionJournals,
    pub(super) spools: DeferredEntrySpools,
    /// The rules for the deletion of entries in a sync.
    pub(super) removal: Option<SyncDeletionState>,
    /// Existence queries to the source.
    pub(super) queries: OpenSourceQueries,
    pub(super) status: SinkSessionCounts,
    pub(super) timeouts: SinkTimeouts,
    pub(super) reporting: SinkEventRecipients<'a>,
}

impl SinkContext<'_> {
    /// Returns an error in a dry run, in which nothing is written.
    pub(super) fn committer(&self) -> Result<&GroupCommitter, SessionError> {
        self.committer.as_ref().ok_or_else(|| SessionError::Protocol("data in a dry run".into()))
    }
}

/// The records of earlier and other sessions of the transfer.
pub(super) struct SinkSessionJournals {
    /// Those of earlier sessions, if there are any.
    pub(super) past: Option<PastSessions>,
    /// Those of other sessions, if several carry the transfer.
    pub(super) siblings: Option<SiblingJournals>,
    /// The temporary names of files that several sessions write.
    pub(super) shared_names: SharedFileNames,
    /// True if the source may offer its entries before it sends them.
    pub(super) takes_offers: bool,
}

impl SinkSessionJournals {
    /// Returns an error if other sessions may have taken over from this one.
    pub(super) fn check_takeover(&self) -> Result<(), SessionError> {
        self.siblings.as_ref().map_or(Ok(()), |siblings| siblings.takeover.check())
    }

    /// The records of all sessions up to now, if several carry the transfer and they can be read.
    pub(super) fn sibling_records(&self) -> Option<SiblingRecords<'_>> {
        self.siblings.as_ref()?.read_records().ok()
    }

    /// True if other sessions carry the transfer at the same time.
    pub(super) fn is_shared(&self) -> bool {
        self.siblings.is_some()
    }
}

/// Counts of all lanes together, and the source's announcement of the transfer's end.
#[derive(Default)]
pub(super) struct SinkSessionCounts {
    failure_count: AtomicU64,
    /// True if this session is the transfer's last one.
    closes: AtomicBool,
    lanes_over: AtomicUsize,
}

impl SinkSessionCounts {
    /// Counts an entry that failed at the sink.
    pub(super) fn count_failure(&self) {
        self.failure_count.fetch_add(1, Relaxed);
    }

    /// Entries that failed at the sink so far, in all lanes.
    pub(super) fn failure_count(&self) -> u64 {
        self.failure_count.load(Relaxed)
    }

    /// Notes the end of a lane at the source, which may announce that this session is the transfer's last
    /// one.
    pub(super) fn record_last_session(&self, closes: bool) {
        self.closes.fetch_or(closes, Relaxed);
    }

    /// Returns true if this session is the transfer's last one.
    pub(super) fn is_last_session(&self) -> bool {
        self.closes.load(Relaxed)
    }

    /// Counts the end of one of `lane_count` lanes.
    pub(super) fn end_lane(&self, lane_count: usize) {
        let before = self.lanes_over.fetch_add(1, Relaxed);
        assert!(before < lane_count, "each lane ends once");
    }

    /// Lanes that have ended.
    pub(super) fn lanes_over(&self) -> usize {
        self.lanes_over.load(Relaxed)
    }
}

/// The time that a session waits for the source, and the state that extends it.
pub(super) struct SinkTimeouts {
    /// The longest time without progress.
    pub(super) idle: Option<Duration>,
    /// The longest time in which the other end may be silent, and in which an object may stop midway.
    pub(super) stall: Duration,
    /// True if the source is in a call to its storage while it sends straight from files, as its last
    /// counters tell.
    source_is_busy: AtomicBool,
}

impl SinkTimeouts {
    pub(super) fn new(idle: Option<Duration>, stall: Duration) -> SinkTimeouts {
        SinkTimeouts { idle, stall, source_is_busy: AtomicBool::new(false) }
    }

    /// Notes the source's report about its storage.
    pub(super) fn set_source_busy(&self, source_is_busy: bool) {
        self.source_is_busy.store(source_is_busy, Relaxed);
    }

    /// Returns true if an object may stop midway for any time.
    pub(super) fn are_suspended(&self) -> bool {
        self.source_is_busy.load(Relaxed)
    }
}

/// The recipients of a session's events: the observer at this end, or the source, and the meta-scheduler.
pub(super) struct SinkEventRecipients<'a> {
    pub(super) camp: &'a PlacedLanes,
    pub(super) share: Option<Arc<SessionGrantClient>>,
    /// The observer, if the user started this end.
    pub(super) observer: Option<&'a dyn TransferObserver>,
}

impl SinkEventRecipients<'_> {
    /// Returns true if the user started this end.
    pub(super) fn has_observer(&self) -> bool {
        self.observer.is_some()
    }

    /// Delivers an event at this end only.
    pub(super) fn notify_observer(&self, event: &TransferEvent) {
        if let Some(observer) = self.observer {
            observer.handle_event(event);
        }
    }

    /// Delivers an event to the user: to the observer at this end, or by `say` to the source.
    pub(super) fn deliver(&self, event: TransferEvent, say: impl FnOnce(ControlMessage)) {
        deliver(event, self.observer, say);
    }

    /// Delivers a text to the user, with `-v`.
    pub(super) fn add_notice(&self, text: String) {
        self.camp.add_notice(text);
    }

    /// Returns the placement of the lanes and its reasons, and that of the shared targets if `leads`.
    pub(super) fn take_notices(&self, leads: bool) -> Vec<UserNotice> {
        let shared = self.share.iter().filter(|_| leads).flat_map(|share| share.take_notices());
        self.camp.take_notices().into_iter().map(UserNotice::Text).chain(shared).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lane_that_closes_closes_all() {
        let status = SinkSessionCounts::default();
        [false, true, false].into_iter().for_each(|closes| status.record_last_session(closes));
        (0..3).for_each(|_| status.end_lane(3));
        status.count_failure();
        assert_eq!((status.is_last_session(), status.lanes_over(), status.failure_count()), (true, 3, 1));
    }
}

//! Sums of a transfer's events, besides the engine's own counts.

use carrack_model::{
    FailureKind, FailureSide, ProtectionLevel, ResolvedDestination, SealCipher, TargetReport, TransferEvent,
    UserNotice,
};

/// The connection of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTransportSummary {
    /// Data connections; 0 if the data shares the control channel, or is local.
    pub streams: u32,
    /// The engine's name: `tcp`, `ssh pipe`, `tls`, `local`; `direct` or `relay` between two far hosts.
    pub transport: &'static str,
    /// The protection level; `None` where the data did not leave the host.
    pub protection: Option<ProtectionLevel>,
    /// The algorithm, if carrack sealed the data.
    pub cipher: Option<SealCipher>,
}

/// Sums of events; bounded for any number of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventTally {
    /// The place of the sources at the destination.
    pub arrival: Option<ResolvedDestination>,
    /// The last connection that was announced.
    pub connection: Option<SessionTransportSummary>,
    /// Entries that a dry run would copy.
    pub listed: u64,
    /// Bytes in them.
    pub listed_bytes: u64,
    /// Entries that a dry run would delete.
    pub goes: u64,
    /// Failures that were reported.
    pub failed: u64,
    /// Each kind of failure in order of appearance, with its count.
    pub failed_by_kind: Vec<(FailureKind, u64)>,
    /// Owners, modes, attributes and the like that an end could not keep.
    pub lost: u64,
    /// True if bytes were moved, or entries made.
    pub has_moved: bool,
    /// The last reports on the storage targets of either end.
    pub targets: Vec<(FailureSide, Vec<TargetReport>)>,
}

impl EventTally {
    /// Counts one event.
    pub fn add(&mut self, event: &TransferEvent) {
        match event {
            // The first session's report holds: a later session finds the destination that the first has
            // made.
            TransferEvent::Placed(arrival) => drop(self.arrival.get_or_insert_with(|| arrival.clone())),
            TransferEvent::Progress(progress) => {
                self.has_moved |=
                    progress.bytes_moved > 0 || progress.bytes_sent > 0 || progress.entries_done > 0;
            }
            TransferEvent::Connected { streams, transport, protection, cipher, .. } => {
                let (streams, protection, cipher) = (*streams, *protection, *cipher);
                self.connection = Some(SessionTransportSummary { streams, transport, protection, cipher });
            }
            TransferEvent::WouldCopy { size, .. } => {
                self.listed += 1;
                self.listed_bytes = self.listed_bytes.saturating_add(*size);
            }
            TransferEvent::WouldDelete { .. } => self.goes += 1,
            TransferEvent::Failed(failure) => self.add_failure(failure.kind),
            TransferEvent::Targets { side, targets } => {
                self.targets.retain(|(known, _)| known != side);
                self.targets.push((*side, targets.clone()));
            }
            TransferEvent::Notice(UserNotice::Loss(loss)) => self.lost = self.lost.saturating_add(loss.count),
            TransferEvent::Source(_) | TransferEvent::FileDigest { .. } | TransferEvent::Notice(_) => {}
        }
    }

    fn add_failure(&mut self, kind: FailureKind) {
        self.failed += 1;
        match self.failed_by_kind.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => self.failed_by_kind.push((kind, 1)),
        }
    }
}

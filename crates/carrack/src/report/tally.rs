//! What the events of a transfer add up to, beside the engine's own counts.

use carrack_model::{Cipher, Event, FailureKind, Notice, Protection, Side, TargetReport};

/// How the data travelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Data connections; 0 if there are none of their own.
    pub streams: u32,
    /// The engine's word: `tcp`, `ssh pipe`, `tls`, `local`; `direct` or `relay` between two far hosts.
    pub transport: &'static str,
    /// What kept strangers from the data; nothing where it did not leave the host.
    pub protection: Option<Protection>,
    /// The algorithm, where carrack sealed it.
    pub cipher: Option<Cipher>,
}

/// Sums of events; bounded, whatever comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The last connection that was announced.
    pub connection: Option<Connection>,
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
    /// The storage targets of either end as last told.
    pub targets: Vec<(Side, Vec<TargetReport>)>,
}

impl Tally {
    /// Counts one event.
    pub fn add(&mut self, event: &Event) {
        match event {
            Event::Connected { streams, transport, protection, cipher, .. } => {
                let (streams, protection, cipher) = (*streams, *protection, *cipher);
                self.connection = Some(Connection { streams, transport, protection, cipher });
            }
            Event::WouldCopy { size, .. } => {
                self.listed += 1;
                self.listed_bytes = self.listed_bytes.saturating_add(*size);
            }
            Event::WouldDelete { .. } => self.goes += 1,
            Event::Failed(failure) => self.add_failure(failure.kind),
            Event::Targets { side, targets } => {
                self.targets.retain(|(known, _)| known != side);
                self.targets.push((*side, targets.clone()));
            }
            Event::Notice(Notice::Loss(loss)) => self.lost = self.lost.saturating_add(loss.count),
            Event::Progress(_) | Event::Source(_) | Event::FileDigest { .. } | Event::Notice(_) => {}
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

//! A chunk in the hands of this mover, from its delivery to its settlement.

use carrack_model::{EntryFailure, FailureKind, escape};
use carrack_plan::fleet::{ChunkDeliveryState, MoverBlamedChunkFailure};
use carrack_wire::{EntryTableDecoder, EntryTableRecord};

use crate::log::{DeletionDone, LoggedChunkResult, TransferLogEntry};
use crate::queue::{DeliveryAcker, QueueDelivery, WorkItemHeader, WorkItemKind};
use crate::transfer_records::{EntryCopyFailure, FAILURES_KEPT};

/// A delivery, with its results so far.
pub(super) struct HeldChunkDelivery {
    pub head: WorkItemHeader,
    pub acker: DeliveryAcker,
    /// The work of the delivery.
    pub case: ChunkDeliveryState,
    /// Entries that it removed.
    pub deleted: u64,
    /// Entries that a deletion keeps, described for users.
    pub stays: Vec<String>,
    delivered: u64,
    table: Vec<u8>,
    failures: Vec<EntryCopyFailure>,
    failed_entries: u64,
    /// The first failure at either end that another mover may not have.
    doubts: [Option<String>; 2],
}

impl HeldChunkDelivery {
    pub fn new(delivery: QueueDelivery<WorkItemHeader>, case: ChunkDeliveryState) -> HeldChunkDelivery {
        let acker = delivery.acker();
        let QueueDelivery { head, body, delivered, .. } = delivery;
        HeldChunkDelivery {
            head,
            acker,
            case,
            deleted: 0,
            stays: Vec::new(),
            delivered,
            table: body,
            failures: Vec::new(),
            failed_entries: 0,
            doubts: Default::default(),
        }
    }

    /// Returns its entry table.
    pub fn table(&self) -> &[u8] {
        &self.table
    }

    /// See [`longest_matching_suffix`].
    pub fn matching_suffix_len(&self, path: &[u8]) -> Option<usize> {
        longest_matching_suffix(&self.table, path)
    }

    /// Records a failed entry.
    pub fn record_failure(&mut self, failure: &EntryFailure) {
        self.failed_entries += 1;
        if let Some(is_source) = blames_source(failure.kind) {
            self.doubts[usize::from(is_source)].get_or_insert_with(|| failure.to_string());
        }
        if self.failures.len() < FAILURES_KEPT {
            self.failures.push(failure_of(failure));
        }
    }

    /// Returns true if one of its entries could not be copied or removed.
    pub fn has_failures(&self) -> bool {
        self.failed_entries > 0
    }

    /// Makes the failures final: no other mover retries them.
    pub fn make_failures_final(&mut self) {
        self.doubts = Default::default();
    }

    /// Returns the failures that another mover may not have.
    pub fn blamed_failures(&self) -> Vec<MoverBlamedChunkFailure> {
        let [sink, source] = &self.doubts;
        [(true, source), (false, sink)]
            .into_iter()
            .filter_map(|(is_source, reason)| {
                Some(MoverBlamedChunkFailure { is_source, reason: reason.clone()? })
            })
            .collect()
    }

    /// Returns true if files get their names by this chunk.
    pub fn names_files(&self) -> bool {
        matches!(self.head.kind, WorkItemKind::Files | WorkItemKind::Finish { .. })
    }

    /// Returns true if the entry at a path beneath the transfer's root has failed.
    pub fn has_failed(&self, path: &[u8]) -> bool {
        let path = escape(path);
        // Beyond the kept failures the state of an entry is unknown.
        self.failed_entries > self.failures.len() as u64
            || self.failures.iter().any(|failure| failure.path.ends_with(&path))
    }

    /// Returns true if the log gets the sent bytes of this work.
    pub fn logs_moved_bytes(&self) -> bool {
        matches!(self.head.kind, WorkItemKind::Files | WorkItemKind::Part(_))
    }

    /// Returns the log entry. `moved_bytes` of the session's bytes were sent for this work, approximately.
    pub fn take_log_entry(
        &mut self,
        [by, sink]: [&str; 2],
        moved_bytes: u64,
        session: &str,
        session_bytes: u64,
    ) -> TransferLogEntry {
        let (attempt, by) = (self.head.attempt, by.to_owned());
        let mut failures = std::mem::take(&mut self.failures);
        let failed_entries = self.failed_entries;
        match self.head.kind {
            WorkItemKind::Files | WorkItemKind::Part(_) => {
                let part = match self.head.kind {
                    WorkItemKind::Part(part) => Some(part),
                    _ => None,
                };
                let files = if part.is_some() { 0 } else { self.head.entries.saturating_sub(failed_entries) };
                let bytes =
                    if failed_entries == 0 { self.head.bytes } else { self.bytes_except_failed(&failures) };
                TransferLogEntry::ChunkDone(LoggedChunkResult {
                    attempt,
                    number: self.head.number,
                    by,
                    sink: sink.to_owned(),
                    delivered: self.delivered,
                    part,
                    files,
                    bytes,
                    moved_bytes,
                    session: session.to_owned(),
                    session_bytes,
                    failures,
                    failed_entries,
                })
            }
            WorkItemKind::Finish { file } => {
                TransferLogEntry::FileFinished { attempt, file, by, failure: failures.pop() }
            }
            WorkItemKind::Discard { file } => TransferLogEntry::FileDiscarded { attempt, file, by },
            WorkItemKind::Delete => TransferLogEntry::Deleted(DeletionDone {
                attempt,
                by,
                sink: sink.to_owned(),
                delivered: self.delivered,
                entries: self.deleted,
                stays: std::mem::take(&mut self.stays),
                failures,
                failed_entries,
            }),
            WorkItemKind::Close => TransferLogEntry::Closed { attempt, by, failures, failed_entries },
        }
    }

    /// Returns the bytes of the files that have not failed; 0 for a failed part.
    fn bytes_except_failed(&self, failures: &[EntryCopyFailure]) -> u64 {
        if matches!(self.head.kind, WorkItemKind::Part(_)) {
            return 0;
        }
        let mut directory = String::new();
        let mut bytes = 0;
        for record in EntryTableDecoder::new(&self.table).flatten() {
            match record {
                EntryTableRecord::Section { path, .. } => directory = escape(path.as_bytes()),
                EntryTableRecord::Entry(entry) => {
                    let name = escape(entry.name);
                    let path = if directory.is_empty() { name } else { format!("{directory}/{name}") };
                    let has_failed = failures.iter().any(|failure| failure.path.ends_with(&path));
                    bytes += if has_failed { 0 } else { entry.size };
                }
            }
        }
        bytes
    }
}

/// Returns the length of the path's suffix that is an entry of the table, or a directory of entries. An end
/// reports longer paths than the table has. Returns `None` without a match.
fn longest_matching_suffix(table: &[u8], path: &[u8]) -> Option<usize> {
    let mut directory = Vec::new();
    let known = EntryTableDecoder::new(table).flatten().filter_map(|record| match record {
        EntryTableRecord::Section { path: section, .. } => {
            directory = section.as_bytes().to_vec();
            suffix_len(path, &directory)
        }
        EntryTableRecord::Entry(entry) if directory.is_empty() => suffix_len(path, entry.name),
        EntryTableRecord::Entry(entry) => suffix_len(path, &[&directory, entry.name].join(&b'/')),
    });
    known.max()
}

/// Returns the length of `own` if whole components at the end of the path equal it.
fn suffix_len(path: &[u8], own: &[u8]) -> Option<usize> {
    let rest = path.strip_suffix(own)?;
    (!own.is_empty() && (rest.is_empty() || rest.ends_with(b"/"))).then_some(own.len())
}

/// Returns the end whose mover may cause a failure: true for the reading one. `None` if the entry fails at
/// any mover.
pub(super) fn blames_source(kind: FailureKind) -> Option<bool> {
    match kind {
        FailureKind::Missing | FailureKind::Unreadable | FailureKind::ReadError => Some(true),
        FailureKind::WriteError | FailureKind::InTheWay | FailureKind::Metadata => Some(false),
        _ => None,
    }
}

/// Converts a failure for the log.
pub(super) fn failure_of(failure: &EntryFailure) -> EntryCopyFailure {
    EntryCopyFailure {
        path: escape(&failure.path),
        kind: failure.kind.name().to_owned(),
        detail: failure.detail.clone(),
    }
}

#[cfg(test)]
mod tests {
    use carrack_model::{Metadata, RelPath};
    use carrack_wire::EntryTableEncoder;

    use super::*;

    fn table_of(directory: &str, name: &str) -> Vec<u8> {
        let mut table = Vec::new();
        let mut writer = EntryTableEncoder::new(&mut table);
        writer.begin_section(&RelPath::new(directory.as_bytes()).unwrap(), None);
        writer.add_symlink(name.as_bytes(), b"x", &Metadata::default(), 1);
        table
    }

    #[test]
    fn a_path_belongs_to_who_knows_most_of_it() {
        let (above, beneath) = (table_of("", "f"), table_of("d", "f"));
        assert_eq!(
            (longest_matching_suffix(&above, b"/root/d/f"), longest_matching_suffix(&beneath, b"/root/d/f")),
            (Some(1), Some(3))
        );
        assert_eq!(
            (longest_matching_suffix(&above, b"f"), longest_matching_suffix(&beneath, b"/root/f")),
            (Some(1), None)
        );
        assert_eq!(
            (longest_matching_suffix(&beneath, b"/root/d"), longest_matching_suffix(&beneath, b"/root/cd/f")),
            (Some(1), None)
        );
    }
}

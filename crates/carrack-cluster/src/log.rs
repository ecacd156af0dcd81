//! A transfer's log: scanned, settled and finished work, in the order of its reports.
//!
//! Managers decide by the log alone. An entry may occur more than once, as may entries of obsolete attempts:
//! a reader counts each attempt's chunk once.

use std::collections::VecDeque;

use async_nats::HeaderMap;
use carrack_model::MetadataLoss;
use carrack_plan::fleet::{
    ChunkOutcome, CutTotals, LargeFileNumber, MoverFaultKind, PartedFileRef, TransferTrackerEvent,
};
use futures_util::Stream;
use futures_util::stream;
use serde::{Deserialize, Serialize};

use crate::bus::NatsBus;
use crate::error::BusError;
use crate::queue::FilePartRange;
use crate::store::{NatsStreamFollower, TailEvent, TailStart, read_record, write_record};
use crate::transfer_records::{EntryCopyFailure, FAILURES_KEPT, RECORD_VERSION, SkippedEntry, is_name};

/// Upper bound of bytes of failures in one entry, and the same of skipped entries; the rest is only counted.
const FAILURE_BYTES: usize = 256 * 1024;

/// Large files in one entry: about 300 KiB.
pub const LARGE_FILES_AT_ONCE: usize = 8_192;

/// An event. A transfer is finished when a `Close` is done; that is published when all chunks of the last
/// completely scanned attempt are done, and all its large files are finished or discarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum TransferLogEntry {
    /// Large files that a scan has found; all of them come before its `ScanDone`.
    LargeFiles {
        /// The scan's attempt.
        attempt: u32,
        /// The files.
        files: Vec<LargeFilePartCount>,
    },
    /// A scan has seen everything, and all its messages are stored.
    ScanDone {
        /// The scan's attempt.
        attempt: u32,
        /// The mover.
        by: String,
        /// Number of chunks; their numbers begin with 0.
        chunks: u64,
        /// Files and links in them; a large file is one.
        files: u64,
        /// Their bytes.
        bytes: u64,
        /// Further names of these files, which they get at the end.
        #[serde(default)]
        names: u64,
        /// Directories.
        directories: u64,
        /// Messages with directories and further names.
        directory_messages: u64,
        /// Files that were cut in parts, all named by `LargeFiles`.
        large_files: u64,
        /// Entries that could not be scanned: at most the first [`FAILURES_KEPT`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failures: Vec<EntryCopyFailure>,
        /// Number of all these entries.
        #[serde(default)]
        failed_entries: u64,
        /// Sockets, pipes and devices: at most the first [`FAILURES_KEPT`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        skipped: Vec<SkippedEntry>,
        /// Number of all these entries.
        #[serde(default)]
        skipped_entries: u64,
    },
    /// Scans have failed at every mover that could try one: the source is unreadable.
    ScanFailed {
        /// The scan's attempt.
        attempt: u32,
        /// The mover.
        by: String,
        /// The reason, for people.
        reason: String,
    },
    /// Everything in a chunk is durable at the sink, or has failed.
    ChunkDone(LoggedChunkResult),
    /// A large file has its name, or has failed at its end.
    FileFinished {
        /// The scan's attempt.
        attempt: u32,
        /// [`FilePartRange::file`].
        file: u64,
        /// The sink's mover.
        by: String,
        /// The failure, if it has no name at the destination.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<EntryCopyFailure>,
    },
    /// A large file with failed parts has left nothing at the destination.
    FileDiscarded {
        /// The scan's attempt.
        attempt: u32,
        /// [`FilePartRange::file`].
        file: u64,
        /// The sink's mover.
        by: String,
    },
    /// Destination entries that the source lacks are removed, as far as permitted.
    Deleted(DeletionDone),
    /// Files have their further names and directories their metadata, and the journals are gone: the transfer
    /// is over.
    Closed {
        /// The scan's attempt.
        attempt: u32,
        /// The sink's mover.
        by: String,
        /// Failed names and directories: at most the first [`FAILURES_KEPT`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failures: Vec<EntryCopyFailure>,
        /// Number of all these failures.
        #[serde(default)]
        failed_entries: u64,
    },
    /// Attributes of entries that a session or a scan could not keep, since its last such report.
    Lost {
        /// The source's mover.
        by: String,
        /// The session, or the scan.
        of: String,
        /// Number of the report, from 0.
        number: u64,
        /// One for each kind and reason.
        losses: Vec<MetadataLoss>,
    },
    /// Sent bytes that belong to no completed chunk.
    Moved {
        /// The source's mover.
        by: String,
        /// Number of bytes.
        bytes: u64,
        /// The session.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        session: String,
        /// All bytes that its source has reported for the session, including these.
        #[serde(default)]
        session_bytes: u64,
    },
    /// The bytes written in a session that did not end in order. Its source may have died before its report.
    Received {
        /// The sink's mover.
        by: String,
        /// The session.
        session: String,
        /// All bytes written in it, reported before or not.
        bytes: u64,
    },
    /// A mover has a fault: in a session, in a scan, or with entries that others may be able to copy.
    PairBroken {
        /// The source's mover, which reports it.
        by: String,
        /// The sink's mover; empty for a scan.
        sink: String,
        /// True if the fault is the source mover's, and not the sink mover's.
        #[serde(default)]
        is_source: bool,
        /// The kind of the fault.
        #[serde(default)]
        kind: MoverFaultKind,
        /// The reason, for people.
        reason: String,
    },
    /// For people: a manager took over, a mover was lost.
    Note {
        /// The writer.
        by: String,
        /// The text.
        text: String,
    },
    /// An entry of a later version.
    #[serde(other)]
    Unknown,
}

/// A large file with its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LargeFilePartCount {
    /// [`FilePartRange::file`].
    pub file: u64,
    /// Number of its parts.
    pub parts: u32,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The result of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedChunkResult {
    /// The scan's attempt.
    pub attempt: u32,
    /// Its number.
    pub number: u64,
    /// The source's mover.
    pub by: String,
    /// The sink's mover.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sink: String,
    /// Number of its deliveries so far.
    #[serde(default)]
    pub delivered: u64,
    /// The part of a large file, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<FilePartRange>,
    /// Files and links that are complete under their names by it; a part completes none.
    pub files: u64,
    /// Its bytes that are at the sink, independent of their mover.
    pub bytes: u64,
    /// Approximate number of bytes sent for it by this delivery.
    pub moved_bytes: u64,
    /// The session.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session: String,
    /// All bytes sent in the session, reported before or not.
    #[serde(default)]
    pub session_bytes: u64,
    /// Failures: at most the first [`FAILURES_KEPT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<EntryCopyFailure>,
    /// Number of all failed entries.
    #[serde(default)]
    pub failed_entries: u64,
}

/// The result of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletionDone {
    /// The scan's attempt.
    pub attempt: u32,
    /// The source's mover.
    pub by: String,
    /// The sink's mover.
    pub sink: String,
    /// Number of deliveries of the item so far: each may have removed entries.
    pub delivered: u64,
    /// Removed entries. Those removed by a killed mover are not counted.
    pub entries: u64,
    /// Entries that stay, with the reason, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stays: Vec<String>,
    /// Failures to remove entries: at most the first [`FAILURES_KEPT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<EntryCopyFailure>,
    /// Number of all these failures.
    #[serde(default)]
    pub failed_entries: u64,
}

impl TransferLogEntry {
    /// Returns the ID by which the server recognizes a repeated entry within two minutes.
    fn message_id(&self, transfer: &str) -> Option<String> {
        let rest = match self {
            TransferLogEntry::LargeFiles { attempt, files } => {
                format!("{attempt}-large-{}", files.first().map_or(0, |file| file.file))
            }
            TransferLogEntry::ScanDone { attempt, .. } => format!("{attempt}-scanned"),
            TransferLogEntry::ScanFailed { attempt, .. } => format!("{attempt}-scan-failed"),
            TransferLogEntry::ChunkDone(done) => {
                format!("{}-chunk-{}-{}", done.attempt, done.number, done.delivered)
            }
            TransferLogEntry::FileFinished { attempt, file, .. } => format!("{attempt}-finished-{file}"),
            TransferLogEntry::FileDiscarded { attempt, file, .. } => format!("{attempt}-discarded-{file}"),
            TransferLogEntry::Deleted(DeletionDone { attempt, delivered, .. }) => {
                format!("{attempt}-deleted-{delivered}")
            }
            TransferLogEntry::Closed { attempt, .. } => format!("{attempt}-closed"),
            TransferLogEntry::Lost { of, number, .. } => format!("{of}-lost-{number}"),
            TransferLogEntry::Moved { .. }
            | TransferLogEntry::Received { .. }
            | TransferLogEntry::PairBroken { .. }
            | TransferLogEntry::Note { .. }
            | TransferLogEntry::Unknown => return None,
        };
        Some(format!("{transfer}-{rest}"))
    }

    /// Returns the entry's effect on the transfer's progress; `None` if it has none.
    pub fn to_tracker_event(&self) -> Option<TransferTrackerEvent> {
        Some(match self {
            TransferLogEntry::ScanDone {
                attempt,
                chunks,
                files,
                bytes,
                names,
                directories,
                large_files,
                failed_entries,
                ..
            } => {
                let found = CutTotals {
                    chunks: *chunks,
                    files: *files,
                    bytes: *bytes,
                    names: *names,
                    directories: *directories,
                    files_in_parts: *large_files,
                    failed: *failed_entries,
                };
                TransferTrackerEvent::Scanned { attempt: *attempt, found, is_finished: true }
            }
            TransferLogEntry::ChunkDone(done) => TransferTrackerEvent::ChunkSettled {
                attempt: done.attempt,
                number: done.number,
                delivery: u32::try_from(done.delivered).unwrap_or(u32::MAX),
                outcome: ChunkOutcome {
                    files: done.files,
                    bytes: done.bytes,
                    moved_bytes: done.moved_bytes,
                    failed: done.failed_entries,
                },
                part: done
                    .part
                    .map(|part| PartedFileRef { file: LargeFileNumber(part.file), count: part.count.into() }),
            },
            TransferLogEntry::FileFinished { attempt, file, failure, .. } => {
                TransferTrackerEvent::FinishSettled {
                    attempt: *attempt,
                    file: LargeFileNumber(*file),
                    is_done: failure.is_none(),
                }
            }
            TransferLogEntry::FileDiscarded { attempt, file, .. } => {
                TransferTrackerEvent::DiscardSettled { attempt: *attempt, file: LargeFileNumber(*file) }
            }
            TransferLogEntry::Deleted(deleted) => TransferTrackerEvent::DeleteSettled {
                attempt: deleted.attempt,
                delivery: u32::try_from(deleted.delivered).unwrap_or(u32::MAX),
                deleted: deleted.entries,
                failed: deleted.failed_entries,
            },
            TransferLogEntry::Closed { attempt, failed_entries, .. } => {
                TransferTrackerEvent::CloseSettled { attempt: *attempt, failed: *failed_entries }
            }
            _ => return None,
        })
    }

    fn shorten(&mut self) {
        if let TransferLogEntry::ScanDone { skipped, .. } = self {
            let sizes = skipped.iter().map(|skipped| skipped.path.len() + skipped.reason.len());
            skipped.truncate(count_that_fits(sizes));
        }
        let failures = match self {
            TransferLogEntry::ScanDone { failures, .. } | TransferLogEntry::Closed { failures, .. } => {
                failures
            }
            TransferLogEntry::ChunkDone(done) => &mut done.failures,
            TransferLogEntry::Deleted(deleted) => &mut deleted.failures,
            _ => return,
        };
        let sizes =
            failures.iter().map(|failure| failure.path.len() + failure.kind.len() + failure.detail.len());
        failures.truncate(count_that_fits(sizes));
    }
}

/// Returns how many items of these sizes fit.
fn count_that_fits(sizes: impl Iterator<Item = usize>) -> usize {
    let mut bytes = 0;
    let fit = sizes.take_while(|size| {
        bytes += size;
        bytes <= FAILURE_BYTES
    });
    fit.count().min(FAILURES_KEPT)
}

/// An item for a follower of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // All but one are entries.
pub enum LogFollowEvent {
    /// An entry, with its sequence number in the stream.
    Entry {
        /// Grows from entry to entry.
        seq: u64,
        /// The entry.
        entry: TransferLogEntry,
    },
    /// The end of the replay, reported once; before it nothing should be decided.
    Current,
}

/// One transfer's log.
#[derive(Clone)]
pub struct FleetTransferLog {
    bus: NatsBus,
    transfer: String,
    subject: String,
}

#[derive(Serialize)]
struct SerializedLogEntry<'a> {
    version: u32,
    #[serde(flatten)]
    entry: &'a TransferLogEntry,
}

impl FleetTransferLog {
    /// Opens a log.
    ///
    /// # Errors
    /// If `transfer` is no valid name.
    pub fn open(bus: &NatsBus, transfer: &str) -> Result<FleetTransferLog, BusError> {
        if !is_name(transfer) {
            return Err(BusError::BadName(transfer.to_owned()));
        }
        let subject = bus.names().log_subject(transfer);
        Ok(FleetTransferLog { bus: bus.clone(), transfer: transfer.to_owned(), subject })
    }

    /// Appends an entry; it is stored when this returns. A repeated entry is harmless. Failures beyond
    /// [`FAILURES_KEPT`] are left out.
    ///
    /// # Errors
    /// If NATS does not take it.
    pub async fn append(&self, entry: &TransferLogEntry) -> Result<u64, BusError> {
        let mut entry = entry.clone();
        entry.shorten();
        let what = format!("the log of transfer {}", self.transfer);
        let mut headers = HeaderMap::new();
        if let Some(id) = entry.message_id(&self.transfer) {
            headers.insert("Nats-Msg-Id", id.as_str());
        }
        let body = write_record(&what, &SerializedLogEntry { version: RECORD_VERSION, entry: &entry })?;
        self.bus.publish_to_stream(&what, self.subject.clone(), headers, body).await.map(|ack| ack.sequence)
    }

    /// Returns all entries from the beginning, then [`LogFollowEvent::Current`], then later entries. Never
    /// ends.
    ///
    /// # Errors
    /// If NATS refuses, or does not answer at first. Later interruptions are waited out.
    pub async fn replay_and_follow(
        &self,
    ) -> Result<impl Stream<Item = LogFollowEvent> + Send + use<>, BusError> {
        let tail = NatsStreamFollower::open(
            &self.bus,
            self.bus.names().log_stream(),
            self.subject.clone(),
            TailStart::Message(1),
        )
        .await?;
        let follower = TransferLogFollower { tail, is_current: false, ready: VecDeque::new() };
        Ok(stream::unfold(follower, |mut follower| async move {
            let logged = follower.next().await;
            Some((logged, follower))
        }))
    }

    /// Removes the log.
    ///
    /// # Errors
    /// If NATS refuses, or does not answer.
    pub async fn remove(&self) -> Result<(), BusError> {
        let what = format!("the log of transfer {}", self.transfer);
        let stream = self.bus.context().get_stream_no_info(self.bus.names().log_stream()).await;
        let stream = stream.map_err(|error| self.bus.no_answer_error(&what, &error))?;
        let purged = stream.purge().filter(self.subject.clone()).await;
        purged.map_err(|error| self.bus.no_answer_error(&what, &error))?;
        Ok(())
    }
}

/// Parses an entry; returns [`TransferLogEntry::Unknown`] if it is unreadable.
pub(crate) fn read_entry(body: &[u8]) -> TransferLogEntry {
    read_record("a log", body).unwrap_or(TransferLogEntry::Unknown)
}

struct TransferLogFollower {
    tail: NatsStreamFollower,
    is_current: bool,
    ready: VecDeque<LogFollowEvent>,
}

impl TransferLogFollower {
    async fn next(&mut self) -> LogFollowEvent {
        loop {
            if let Some(logged) = self.ready.pop_front() {
                return logged;
            }
            let behind = match self.tail.next().await {
                TailEvent::Begun(pending) => pending,
                TailEvent::Next(message) => {
                    self.ready.push_back(LogFollowEvent::Entry {
                        seq: message.seq,
                        entry: read_entry(&message.body),
                    });
                    message.behind
                }
            };
            if behind == 0 && !self.is_current {
                self.is_current = true;
                self.ready.push_back(LogFollowEvent::Current);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(failures: Vec<EntryCopyFailure>) -> TransferLogEntry {
        TransferLogEntry::ChunkDone(LoggedChunkResult {
            attempt: 1,
            number: 7,
            by: "m".into(),
            sink: "n".into(),
            delivered: 1,
            part: None,
            files: 1,
            bytes: 2,
            moved_bytes: 3,
            session: "s".into(),
            session_bytes: 4,
            failed_entries: failures.len() as u64,
            failures,
        })
    }

    #[test]
    fn entries_are_read_as_they_are_written_and_unknown_ones_are_known_as_such() {
        let entry = done(Vec::new());
        let text = write_record("", &SerializedLogEntry { version: RECORD_VERSION, entry: &entry }).unwrap();
        assert!(text.starts_with(br#"{"version":1,"what":"chunk-done","attempt":1"#));
        assert_eq!(read_record::<TransferLogEntry>("", &text).unwrap(), entry);
        let later = br#"{"version":1,"what":"weather","rain":true}"#;
        assert_eq!(read_record::<TransferLogEntry>("", later).unwrap(), TransferLogEntry::Unknown);
        assert!(read_record::<TransferLogEntry>("", br#"{"version":4,"what":"note"}"#).is_err());
    }

    #[test]
    fn failures_are_left_out_until_the_entry_fits_a_message() {
        for (bytes, count, kept) in [(10, 300, FAILURES_KEPT), (16_000, 100, 16), (300_000, 2, 0)] {
            let failure = EntryCopyFailure { path: "p".repeat(bytes), kind: "k".into(), detail: "d".into() };
            let mut entry = done(vec![failure; count]);
            entry.shorten();
            let TransferLogEntry::ChunkDone(done) = entry else { panic!("another entry") };
            assert_eq!((done.failures.len(), done.failed_entries), (kept, count as u64));
        }
    }
}

//! A transfer's log: what was scanned, settled and finished, in the order in which it became known.
//!
//! Managers decide by it, and by nothing else. The same entry may be there more than once, and entries of attempts that nobody waits for
//! any more: whoever reads counts each attempt's chunk once.

use std::collections::VecDeque;

use async_nats::HeaderMap;
use carrack_model::Loss;
use carrack_plan::fleet::{FaultKind, FileKey, Found, Outcome, PartOf as TrackedPart, TrackerEvent};
use futures_util::Stream;
use futures_util::stream;
use serde::{Deserialize, Serialize};

use crate::bus::Bus;
use crate::error::BusError;
use crate::queue::PartOf;
use crate::records::{FAILURES_KEPT, Failure, RECORD_VERSION, Skipped, is_name};
use crate::store::{From, Tail, Tailed, read_record, write_record};

/// Bytes of failures in one entry at most, and as many of what is left out; what is beyond is only counted.
const FAILURE_BYTES: usize = 256 * 1024;

/// Large files in one entry: about 300 KiB.
pub const LARGE_FILES_AT_ONCE: usize = 8_192;

/// What has happened. A transfer is finished when a `Close` is done; that is published when all chunks of the last attempt that was
/// scanned to its end are done, and all its large files are finished or discarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum LogEntry {
    /// Large files that a scan has found; all of them are told before its `ScanDone`.
    LargeFiles {
        /// Of the scan.
        attempt: u32,
        /// The files.
        files: Vec<LargeFile>,
    },
    /// A scan has seen everything, and all it has published is kept.
    ScanDone {
        /// Of the scan.
        attempt: u32,
        /// The mover.
        by: String,
        /// Chunks that it cut: they have the numbers 0 to one less.
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
        /// What could not be scanned: at most the first [`FAILURES_KEPT`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failures: Vec<Failure>,
        /// How many these are.
        #[serde(default)]
        failed_entries: u64,
        /// Sockets, pipes and devices: at most the first [`FAILURES_KEPT`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        skipped: Vec<Skipped>,
        /// How many these are.
        #[serde(default)]
        skipped_entries: u64,
    },
    /// Scans have come to nothing at every mover that could try one: the source can't be read at all.
    ScanFailed {
        /// Of the scan.
        attempt: u32,
        /// The mover.
        by: String,
        /// For people.
        reason: String,
    },
    /// Everything of a chunk is durable at the sink, or has failed.
    ChunkDone(ChunkDone),
    /// A large file has its name, or has failed at its end.
    FileFinished {
        /// Of the scan.
        attempt: u32,
        /// [`PartOf::file`].
        file: u64,
        /// The sink's mover.
        by: String,
        /// Why it has no name at the destination.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
    },
    /// A large file of which parts have failed has left nothing at the destination.
    FileDiscarded {
        /// Of the scan.
        attempt: u32,
        /// [`PartOf::file`].
        file: u64,
        /// The sink's mover.
        by: String,
    },
    /// What the source has not is gone at the destination, as far as it may go.
    Deleted(Deleted),
    /// Files have their further names and directories their metadata, and the journals are gone: the transfer is over.
    Closed {
        /// Of the scan.
        attempt: u32,
        /// The sink's mover.
        by: String,
        /// Names and directories that have not: at most the first [`FAILURES_KEPT`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failures: Vec<Failure>,
        /// How many these are.
        #[serde(default)]
        failed_entries: u64,
    },
    /// What a session or a scan could not keep of entries since it told of that last.
    Lost {
        /// The source's mover.
        by: String,
        /// The session, or the scan.
        of: String,
        /// Of what it has told, from 0.
        number: u64,
        /// Of each kind and reason one.
        losses: Vec<Loss>,
    },
    /// Bytes that were sent and belong to no chunk that is done.
    Moved {
        /// The source's mover.
        by: String,
        /// How many.
        bytes: u64,
        /// In which session.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        session: String,
        /// Bytes that its source has told of it, with these.
        #[serde(default)]
        session_bytes: u64,
    },
    /// A session has ended otherwise than it should: what its sink has written. Its source may have died before it told.
    Received {
        /// The sink's mover.
        by: String,
        /// Which session.
        session: String,
        /// All that was written in it, told of before or not.
        bytes: u64,
    },
    /// Something went wrong with a mover: in a session, in a scan, or with entries that others may be able to copy.
    PairBroken {
        /// The source's mover, who tells it.
        by: String,
        /// The sink's; empty for a scan.
        sink: String,
        /// Whether it is the source's mover with which something is wrong, and not the sink's.
        #[serde(default)]
        is_source: bool,
        /// What it is.
        #[serde(default)]
        kind: FaultKind,
        /// For people.
        reason: String,
    },
    /// For people: a manager took over, a mover was lost.
    Note {
        /// Who says it.
        by: String,
        /// What.
        text: String,
    },
    /// What a later version has written.
    #[serde(other)]
    Unknown,
}

/// A large file, and how it was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LargeFile {
    /// [`PartOf::file`].
    pub file: u64,
    /// Its parts.
    pub parts: u32,
    /// Its bytes.
    pub bytes: u64,
}

/// What became of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkDone {
    /// Of the scan.
    pub attempt: u32,
    /// Its number.
    pub number: u64,
    /// The source's mover.
    pub by: String,
    /// The sink's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sink: String,
    /// How often it had been delivered, with this time.
    #[serde(default)]
    pub delivered: u64,
    /// If it is a part of a large file: which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartOf>,
    /// Files and links that are complete under their names by it; a part completes none.
    pub files: u64,
    /// Bytes of it that are at the sink, whoever has moved them.
    pub bytes: u64,
    /// Bytes that were sent for it this time, about.
    pub moved_bytes: u64,
    /// In which session.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session: String,
    /// Bytes that were sent in it, these and those that were told of before.
    #[serde(default)]
    pub session_bytes: u64,
    /// What has failed: at most the first [`FAILURES_KEPT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// How many these are.
    #[serde(default)]
    pub failed_entries: u64,
}

/// What became of what the source has not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleted {
    /// Of the scan.
    pub attempt: u32,
    /// The source's mover.
    pub by: String,
    /// The sink's.
    pub sink: String,
    /// How often the item had been delivered, with this time: each time may have removed something.
    pub delivered: u64,
    /// Entries that were removed. What a mover has removed that was killed is not told.
    pub entries: u64,
    /// What stays, and why, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stays: Vec<String>,
    /// What keeps entries there as a failure: at most the first [`FAILURES_KEPT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// How many these are.
    #[serde(default)]
    pub failed_entries: u64,
}

impl LogEntry {
    /// What the server knows the same entry by when it comes again within two minutes.
    fn message_id(&self, transfer: &str) -> Option<String> {
        let rest = match self {
            LogEntry::LargeFiles { attempt, files } => {
                format!("{attempt}-large-{}", files.first().map_or(0, |file| file.file))
            }
            LogEntry::ScanDone { attempt, .. } => format!("{attempt}-scanned"),
            LogEntry::ScanFailed { attempt, .. } => format!("{attempt}-scan-failed"),
            LogEntry::ChunkDone(done) => {
                format!("{}-chunk-{}-{}", done.attempt, done.number, done.delivered)
            }
            LogEntry::FileFinished { attempt, file, .. } => format!("{attempt}-finished-{file}"),
            LogEntry::FileDiscarded { attempt, file, .. } => format!("{attempt}-discarded-{file}"),
            LogEntry::Deleted(Deleted { attempt, delivered, .. }) => format!("{attempt}-deleted-{delivered}"),
            LogEntry::Closed { attempt, .. } => format!("{attempt}-closed"),
            LogEntry::Lost { of, number, .. } => format!("{of}-lost-{number}"),
            LogEntry::Moved { .. }
            | LogEntry::Received { .. }
            | LogEntry::PairBroken { .. }
            | LogEntry::Note { .. }
            | LogEntry::Unknown => return None,
        };
        Some(format!("{transfer}-{rest}"))
    }

    /// What it says about how far its transfer is; `None` if it says something else.
    pub fn tracked(&self) -> Option<TrackerEvent> {
        Some(match self {
            LogEntry::ScanDone {
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
                let found = Found {
                    chunks: *chunks,
                    files: *files,
                    bytes: *bytes,
                    names: *names,
                    directories: *directories,
                    files_in_parts: *large_files,
                    failed: *failed_entries,
                };
                TrackerEvent::Scanned { attempt: *attempt, found, is_finished: true }
            }
            LogEntry::ChunkDone(done) => TrackerEvent::ChunkSettled {
                attempt: done.attempt,
                number: done.number,
                delivery: u32::try_from(done.delivered).unwrap_or(u32::MAX),
                outcome: Outcome {
                    files: done.files,
                    bytes: done.bytes,
                    moved_bytes: done.moved_bytes,
                    failed: done.failed_entries,
                },
                part: done
                    .part
                    .map(|part| TrackedPart { file: FileKey(part.file), count: part.count.into() }),
            },
            LogEntry::FileFinished { attempt, file, failure, .. } => TrackerEvent::FinishSettled {
                attempt: *attempt,
                file: FileKey(*file),
                is_done: failure.is_none(),
            },
            LogEntry::FileDiscarded { attempt, file, .. } => {
                TrackerEvent::DiscardSettled { attempt: *attempt, file: FileKey(*file) }
            }
            LogEntry::Deleted(deleted) => TrackerEvent::DeleteSettled {
                attempt: deleted.attempt,
                delivery: u32::try_from(deleted.delivered).unwrap_or(u32::MAX),
                deleted: deleted.entries,
                failed: deleted.failed_entries,
            },
            LogEntry::Closed { attempt, failed_entries, .. } => {
                TrackerEvent::CloseSettled { attempt: *attempt, failed: *failed_entries }
            }
            _ => return None,
        })
    }

    fn shorten(&mut self) {
        if let LogEntry::ScanDone { skipped, .. } = self {
            let sizes = skipped.iter().map(|skipped| skipped.path.len() + skipped.reason.len());
            skipped.truncate(fit(sizes));
        }
        let failures = match self {
            LogEntry::ScanDone { failures, .. } | LogEntry::Closed { failures, .. } => failures,
            LogEntry::ChunkDone(done) => &mut done.failures,
            LogEntry::Deleted(deleted) => &mut deleted.failures,
            _ => return,
        };
        let size = |failure: &Failure| failure.path.len() + failure.kind.len() + failure.detail.len();
        failures.truncate(fit(failures.iter().map(size)));
    }
}

/// How many of so many bytes each may stay.
fn fit(sizes: impl Iterator<Item = usize>) -> usize {
    let mut bytes = 0;
    let fit = sizes.take_while(|size| {
        bytes += size;
        bytes <= FAILURE_BYTES
    });
    fit.count().min(FAILURES_KEPT)
}

/// What one who follows a log gets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // All but one are entries.
pub enum Logged {
    /// An entry, and its place in the stream.
    Entry {
        /// Grows from entry to entry.
        seq: u64,
        /// What it says.
        entry: LogEntry,
    },
    /// That was all so far. Said once; before it nothing should be decided.
    Current,
}

/// One transfer's log.
#[derive(Clone)]
pub struct Log {
    bus: Bus,
    transfer: String,
    subject: String,
}

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    #[serde(flatten)]
    entry: &'a LogEntry,
}

impl Log {
    /// # Errors
    /// If `transfer` is no name.
    pub fn open(bus: &Bus, transfer: &str) -> Result<Log, BusError> {
        if !is_name(transfer) {
            return Err(BusError::BadName(transfer.to_owned()));
        }
        let subject = bus.names().log_of(transfer);
        Ok(Log { bus: bus.clone(), transfer: transfer.to_owned(), subject })
    }

    /// Adds an entry; it is kept when this returns. The same one again is harmless. Failures beyond [`FAILURES_KEPT`] are left out.
    ///
    /// # Errors
    /// If NATS does not take it.
    pub async fn append(&self, entry: &LogEntry) -> Result<u64, BusError> {
        let mut entry = entry.clone();
        entry.shorten();
        let what = format!("the log of transfer {}", self.transfer);
        let mut headers = HeaderMap::new();
        if let Some(id) = entry.message_id(&self.transfer) {
            headers.insert("Nats-Msg-Id", id.as_str());
        }
        let body = write_record(&what, &Written { version: RECORD_VERSION, entry: &entry })?;
        self.bus.store(&what, self.subject.clone(), headers, body).await.map(|ack| ack.sequence)
    }

    /// Everything from the beginning, then [`Logged::Current`], then what comes. Never ends.
    ///
    /// # Errors
    /// If NATS does not let us, or does not answer at first. Later breaks are waited out.
    pub async fn replay_and_follow(&self) -> Result<impl Stream<Item = Logged> + Send + use<>, BusError> {
        let tail =
            Tail::open(&self.bus, self.bus.names().log(), self.subject.clone(), From::Message(1)).await?;
        let follower = Follower { tail, is_current: false, ready: VecDeque::new() };
        Ok(stream::unfold(follower, |mut follower| async move {
            let logged = follower.next().await;
            Some((logged, follower))
        }))
    }

    /// Removes the log.
    ///
    /// # Errors
    /// If NATS does not let us, or does not answer.
    pub async fn remove(&self) -> Result<(), BusError> {
        let what = format!("the log of transfer {}", self.transfer);
        let failed = |error: &dyn std::fmt::Display| self.bus.explain(BusError::away(&what, error));
        let stream = self.bus.context().get_stream_no_info(self.bus.names().log()).await;
        let stream = stream.map_err(|error| failed(&error))?;
        stream.purge().filter(self.subject.clone()).await.map_err(|error| failed(&error))?;
        Ok(())
    }
}

/// An entry as it was written; [`LogEntry::Unknown`] if it can't be read.
pub(crate) fn read_entry(body: &[u8]) -> LogEntry {
    read_record("a log", body).unwrap_or(LogEntry::Unknown)
}

struct Follower {
    tail: Tail,
    is_current: bool,
    ready: VecDeque<Logged>,
}

impl Follower {
    async fn next(&mut self) -> Logged {
        loop {
            if let Some(logged) = self.ready.pop_front() {
                return logged;
            }
            let behind = match self.tail.next().await {
                Tailed::Begun(pending) => pending,
                Tailed::Next(message) => {
                    self.ready
                        .push_back(Logged::Entry { seq: message.seq, entry: read_entry(&message.body) });
                    message.behind
                }
            };
            if behind == 0 && !self.is_current {
                self.is_current = true;
                self.ready.push_back(Logged::Current);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(failures: Vec<Failure>) -> LogEntry {
        LogEntry::ChunkDone(ChunkDone {
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
        let text = write_record("", &Written { version: RECORD_VERSION, entry: &entry }).unwrap();
        assert!(text.starts_with(br#"{"version":1,"what":"chunk-done","attempt":1"#));
        assert_eq!(read_record::<LogEntry>("", &text).unwrap(), entry);
        let later = br#"{"version":1,"what":"weather","rain":true}"#;
        assert_eq!(read_record::<LogEntry>("", later).unwrap(), LogEntry::Unknown);
        assert!(read_record::<LogEntry>("", br#"{"version":4,"what":"note"}"#).is_err());
    }

    #[test]
    fn failures_are_left_out_until_the_entry_fits_a_message() {
        let failure = |bytes| Failure { path: "p".repeat(bytes), kind: "k".into(), detail: "d".into() };
        for (bytes, count, kept) in [(10, 300, FAILURES_KEPT), (16_000, 100, 16), (300_000, 2, 0)] {
            let mut entry = done(vec![failure(bytes); count]);
            entry.shorten();
            let LogEntry::ChunkDone(done) = entry else { panic!("another entry") };
            assert_eq!((done.failures.len(), done.failed_entries), (kept, count as u64));
        }
    }
}

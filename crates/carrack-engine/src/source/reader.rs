//! An I/O thread of the source: takes work, leases a slot, reads into it, computes the checksum, and passes
//! the object to the sender.

use std::sync::Arc;
use std::time::Instant;
use std::{fmt, io};

use carrack_machine::{Slot, ThreadDuty};
use carrack_model::{FailureKind, FileId, TargetId, text_without_errno};
use carrack_plan::{FileCursor, ObjectExtent, StorageRequestTiming};
use carrack_storage::{SourceError, SourceFile};
use carrack_transport::{ObjectPayload, OutgoingObject, SendfileSourceFile};
use carrack_wire::{FrameHeader, FrameKind};

use super::bundle_filling::{self, FilledSlot};
use super::file_opening::{RUN_OBJECTS, SourceLargeFileOpener};
use super::lane::SourceLane;
use super::large_file::{FileAbortReason, OpenSourceLargeFile};
use super::sender::ObjectSender;
use super::sink_existence_queries;
use super::work::{BundleReadWork, ObjectWork, ReadWork, SentObject};
use crate::chunks::FILE_COSTS_BYTES;
use crate::counters::ThreadActivity;
use crate::error::SessionError;
use crate::object_checksum::{bundle_check, object_check};
use crate::spill::LaneSpill;
use crate::storage_retries::may_pass;

/// The alignment of direct I/O; slots have it.
const DIRECT_ALIGN: usize = 4096;

/// Works until the session ends, while the tuner lets this thread work.
pub(super) fn run(lane: &SourceLane<'_>, number: usize) {
    let _seat = lane.crew.bind_current_thread(ThreadDuty::Io(number));
    let mut reader = SourceReader { lane, sender: ObjectSender::new(lane), table: Vec::new(), serving: None };
    loop {
        lane.read_queue.await_turn(number);
        let taken = lane.counters.time(ThreadActivity::Idle, || lane.read_queue.take());
        let Ok((target, work)) = taken else { return };
        reader.serving = target;
        // An error here is a closed monitor (the session ends) or a broken endpoint.
        if let Err(error) = reader.run_work(work) {
            lane.raise(error);
            return;
        }
        reader.end_service(None);
    }
}

struct SourceReader<'a> {
    lane: &'a SourceLane<'a>,
    sender: ObjectSender<'a>,
    /// The entry table of the bundle that is being filled.
    table: Vec<u8>,
    /// The target in service, until the storage request ends.
    serving: Option<TargetId>,
}

impl SourceReader<'_> {
    fn run_work(&mut self, work: ReadWork) -> Result<(), SessionError> {
        match (work, self.serving) {
            (ReadWork::Bundle(parcel), Some(target)) => self.send_bundle(target, parcel),
            (ReadWork::Open(opening), Some(target)) => {
                match (SourceLargeFileOpener { lane: self.lane, target }).open(opening) {
                    Some((file, cursor)) => self.send_object_run(target, &file, cursor),
                    None => Ok(()),
                }
            }
            (ReadWork::Refill(file, ranges), _) => {
                SourceLargeFileOpener { lane: self.lane, target: file.target }.refill(&file, ranges);
                Ok(())
            }
            (ReadWork::Object(piece), _) => self.send_object(piece),
            (ReadWork::Cursor(file, cursor), Some(target)) => self.send_object_run(target, &file, cursor),
            (ReadWork::Damaged(file, step), _) => {
                let detail = "the sink's storage does not hold what is written to it";
                self.lane.fail_object(&file, true, FailureKind::Corrupt, detail, step);
                Ok(())
            }
            (ReadWork::Follow(file, step), _) => {
                self.lane.take_next_step(&file, step);
                Ok(())
            }
            (ReadWork::Close(file), _) => {
                drop(file);
                Ok(())
            }
            (ReadWork::Stand(question), _) => {
                sink_existence_queries::answer(self.lane, &question);
                Ok(())
            }
            (ReadWork::GiveUp(sent), _) => {
                self.lane.give_up(sent);
                Ok(())
            }
            // Work of a target's queue always comes with its target.
            (ReadWork::Bundle(_) | ReadWork::Open(_) | ReadWork::Cursor(..), None) => {
                Err(SessionError::Internal)
            }
        }
    }

    /// Ends the service of the target, and reports the service time to the policy.
    fn end_service(&mut self, service: Option<StorageRequestTiming>) {
        if let Some(target) = self.serving.take() {
            self.lane.read_queue.finish_service(target, service);
        }
    }

    fn lease(&self) -> Result<Slot, SessionError> {
        let lane = self.lane;
        let leased = lane.counters.time(ThreadActivity::Blocked, || {
            lane.pool.try_lease().map_or_else(
                || {
                    lane.spills.iter().for_each(LaneSpill::wake_writer);
                    lane.pool.lease()
                },
                Ok,
            )
        });
        leased.map_err(|_| SessionError::PeerGone)
    }

    // Bundles: many small files in one object (M7).

    fn send_bundle(&mut self, target: TargetId, mut parcel: BundleReadWork) -> Result<(), SessionError> {
        let mut slot = self.lease()?;
        let lane = self.lane;
        let began = Instant::now();
        let FilledSlot { content_len, table_len, cut_at } =
            lane.counters.time(ThreadActivity::Storage, || {
                bundle_filling::fill(lane, target, &parcel, slot.bytes_mut(), &mut self.table)
            });
        if let Some(cut_at) = cut_at {
            lane.backlog.split();
            lane.read_queue.put_back(target, parcel.split_off(cut_at));
        }
        let bytes = content_len as u64 + FILE_COSTS_BYTES * parcel.bundle.entry_count as u64;
        self.end_service(Some(StorageRequestTiming { time: began.elapsed(), bytes }));
        let body_len = content_len + table_len;
        assert!(body_len <= slot.bytes().len(), "a bundle fits into a slot");
        let header = FrameHeader {
            kind: FrameKind::Bundle,
            body_len: body_len as u32,
            object: lane.in_flight.next_id(),
            file: FileId(0),
            offset: 0,
            table_len: table_len as u32,
            lane: 0,
            check: bundle_check(lane.source.spec.checksum, &slot.bytes()[..body_len], table_len),
        };
        let payload = ObjectPayload::Slot(slot);
        self.sender.post(OutgoingObject { header, payload }, SentObject::Bundle(target, parcel))
    }

    /// Reads and sends neighbouring objects, then releases the file to other threads. Its cursor goes before
    /// files that wait to be opened: behind them it would never be reached while the maximum of files is
    /// open.
    fn send_object_run(
        &mut self,
        target: TargetId,
        file: &Arc<OpenSourceLargeFile>,
        mut cursor: FileCursor,
    ) -> Result<(), SessionError> {
        for _ in 0..RUN_OBJECTS {
            let Some(extent) = file.cut(&mut cursor) else {
                let step = file.end_cursor();
                self.lane.take_next_step(file, step);
                return Ok(());
            };
            self.lane.read_queue.charge(target, extent.range.len);
            self.send_object(ObjectWork { file: Arc::clone(file), extent, attempts: 0, place: None })?;
        }
        self.lane.read_queue.push_begun(vec![(target, ReadWork::Cursor(Arc::clone(file), cursor))]);
        Ok(())
    }

    fn send_object(&mut self, piece: ObjectWork) -> Result<(), SessionError> {
        let (file, extent) = (Arc::clone(&piece.file), piece.extent);
        let prepared = if piece.attempts == 0 && self.lane.sends_from_file(&file) {
            self.end_service(None);
            Ok((ObjectPayload::Extent(Arc::clone(&file) as Arc<dyn SendfileSourceFile>), 0, [0; 32]))
        } else {
            let mut slot = self.lease()?;
            let read =
                self.lane.counters.time(ThreadActivity::Storage, || self.read(&file, extent, &mut slot));
            read.map(|(table_len, check)| (ObjectPayload::Slot(slot), table_len, check))
        };
        let (payload, table_len, check) =
            match prepared.and_then(|read| self.check_unchanged(&piece).map(|()| read)) {
                Ok(read) => read,
                Err(problem) => {
                    self.lane.read_queue.release_in_flight(piece.place);
                    self.fail_object(&file, extent.target, problem);
                    return Ok(());
                }
            };
        file.mark_announced();
        let header = FrameHeader {
            kind: FrameKind::Object,
            body_len: extent.range.len as u32 + table_len,
            object: self.lane.in_flight.next_id(),
            file: file.id,
            offset: extent.range.offset,
            table_len,
            lane: 0,
            check,
        };
        self.sender.post(OutgoingObject { header, payload }, SentObject::Object(piece))
    }

    /// Checks an inline-announced file before its last object, or before an object that is read again: the
    /// sink commits the file with that object, so the file must be unchanged.
    fn check_unchanged(&self, piece: &ObjectWork) -> Result<(), ReadProblem> {
        let file = &piece.file;
        let may_be_last = piece.attempts > 0 || piece.extent.range.end() == Some(file.found.entry.size());
        if !file.is_inline_announced() || !may_be_last {
            return Ok(());
        }
        match file.source.is_unchanged() {
            Ok(true) => Ok(()),
            Ok(false) => Err(ReadProblem::Changed),
            Err(error) => {
                let may_pass = may_pass(&error);
                Err(ReadProblem::Failed { detail: SourceError::ReadError(error).to_string(), may_pass })
            }
        }
    }

    fn fail_object(&self, file: &Arc<OpenSourceLargeFile>, target: TargetId, problem: ReadProblem) {
        match problem {
            ReadProblem::Changed => {
                let (_, step) = file.end_lost_object(FileAbortReason::Changed);
                self.lane.take_next_step(file, step);
            }
            ReadProblem::Failed { detail, may_pass } => {
                let (is_first, step) = file.end_lost_object(FileAbortReason::Reported);
                if is_first && may_pass {
                    self.lane.source.tree.requests.count_failed(Some(target));
                }
                self.lane.fail_object(file, is_first, FailureKind::ReadError, detail, step);
            }
        }
    }

    /// Reads an object into the slot, followed by the entry table if it announces its file, and computes its
    /// checksum. Returns the table's length and the checksum.
    fn read(
        &mut self,
        file: &OpenSourceLargeFile,
        extent: ObjectExtent,
        slot: &mut Slot,
    ) -> Result<(u32, [u8; 32]), ReadProblem> {
        let len = extent.range.len as usize;
        assert!(len > 0 && len <= slot.bytes().len(), "an object has bytes, and fits into a slot");
        let wanted = if file.source.is_direct() { len.next_multiple_of(DIRECT_ALIGN) } else { len };
        if self.read_extent(file, extent, &mut slot.bytes_mut()[..wanted])? < len {
            return Err(ReadProblem::Changed);
        }
        let checksum = self.lane.source.spec.checksum;
        if let Some(table) = file.table_to_send() {
            let body_len = len + table.len();
            assert!(body_len <= slot.bytes().len(), "an inline announcement fits behind its object");
            slot.bytes_mut()[len..body_len].copy_from_slice(table);
            return Ok((table.len() as u32, bundle_check(checksum, &slot.bytes()[..body_len], table.len())));
        }
        let digested_size = self.lane.source.spec.part.is_none().then(|| file.found.entry.size());
        object_check(checksum, extent.range, &slot.bytes()[..len], digested_size)
            .map(|check| (0, check.value))
            .map_err(|error| ReadProblem::Failed { detail: text_without_errno(&error), may_pass: false })
    }

    /// Reads an extent, from the file as it was opened, and after an error that may pass from the file opened
    /// anew: a client that its server evicted has lost the old handle. Returns the bytes read.
    fn read_extent(
        &mut self,
        file: &OpenSourceLargeFile,
        extent: ObjectExtent,
        buffer: &mut [u8],
    ) -> Result<usize, ReadProblem> {
        let (lane, offset, mut tries) = (self.lane, extent.range.offset, 0);
        let began = Instant::now();
        let read = lane.request(
            extent.target,
            |failed| {
                tries += 1;
                match failed {
                    0 => file.source.read_at(buffer, offset).map_err(ReadProblem::of),
                    _ => self.reopen(file)?.read_at(buffer, offset).map_err(ReadProblem::of),
                }
            },
            |problem| matches!(problem, ReadProblem::Failed { may_pass: true, .. }),
        );
        // Waits between tries are no service times.
        let timing = StorageRequestTiming { time: began.elapsed(), bytes: extent.range.len };
        self.end_service((tries == 1).then_some(timing));
        read
    }

    /// Opens a file again, which must be the same version.
    fn reopen(&self, file: &OpenSourceLargeFile) -> Result<SourceFile, ReadProblem> {
        let opener = SourceLargeFileOpener { lane: self.lane, target: file.target };
        match opener.open_source(&file.found.directory, &file.found.entry) {
            Ok(opened) if opened.stamp() == file.source.stamp() => Ok(opened),
            Ok(_) => Err(ReadProblem::Changed),
            Err(SourceError::ReadError(error)) => Err(ReadProblem::of(error)),
            Err(error) => Err(ReadProblem::Failed { detail: error.to_string(), may_pass: false }),
        }
    }
}

/// The reason why an object could not be read.
enum ReadProblem {
    /// The file ends before the object, or has been replaced.
    Changed,
    /// A read failed.
    Failed {
        /// The reason as a text.
        detail: String,
        /// True for an error of the storage that may pass.
        may_pass: bool,
    },
}

impl ReadProblem {
    fn of(error: io::Error) -> ReadProblem {
        ReadProblem::Failed { may_pass: may_pass(&error), detail: text_without_errno(&error) }
    }
}

impl fmt::Display for ReadProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadProblem::Changed => f.write_str("it changed"),
            ReadProblem::Failed { detail, .. } => f.write_str(detail),
        }
    }
}
